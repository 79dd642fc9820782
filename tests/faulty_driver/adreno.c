/* The fault "adreno": the driver says about itself what that of an Adreno 640 says (loading/devices/adreno_640.json). */
#include "faults.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IMAGE_PITCH_ALIGNMENT = 0x104A, IMAGE_BASE_ADDRESS_ALIGNMENT = 0x104B, RECORDING_MAX_SIZE = 0x41DE };

static const struct { cl_uint parameter; const char *text; } TEXTS[] = {
    {CL_PLATFORM_NAME, "QUALCOMM Snapdragon(TM)"},
    {CL_PLATFORM_VENDOR, "QUALCOMM"},
    {CL_PLATFORM_VERSION, "OpenCL 2.0 QUALCOMM build: commit #3dad7f8ed7 changeid #I593c16c433 Date: 10/01/21 Fri "
                          "Local Branch: Remote Branch: refs/tags/AU_LINUX_ANDROID_LA.UM.9.1.R1.11.00.00.604.073"},
    {CL_DEVICE_NAME, "QUALCOMM Adreno(TM)"},
    {CL_DEVICE_VENDOR, "QUALCOMM"},
    {CL_DEVICE_VERSION, "OpenCL 2.0 Adreno(TM) 640"},
    {CL_DEVICE_OPENCL_C_VERSION, "OpenCL C 2.0 Adreno(TM) 640"},
    {CL_DRIVER_VERSION, "OpenCL 2.0 QUALCOMM build: commit #3dad7f8ed7 changeid #I593c16c433 Date: 10/01/21 Fri Local "
                        "Branch: Remote Branch: refs/tags/AU_LINUX_ANDROID_LA.UM.9.1.R1.11.00.00.604.073 Compiler "
                        "E031.37.12.01"},
};

/* The value lies in memory as one of size bytes: the machine is little-endian. */
static const struct { cl_uint parameter; cl_ulong value; size_t size; } NUMBERS[] = {
    {CL_DEVICE_TYPE, CL_DEVICE_TYPE_GPU, sizeof(cl_device_type)},
    {CL_DEVICE_VENDOR_ID, 0x5143, sizeof(cl_uint)},
    {CL_DEVICE_MAX_COMPUTE_UNITS, 2, sizeof(cl_uint)},
    {CL_DEVICE_MAX_WORK_GROUP_SIZE, 1024, sizeof(size_t)},
    {CL_DEVICE_LOCAL_MEM_TYPE, CL_LOCAL, sizeof(cl_uint)},
    {CL_DEVICE_LOCAL_MEM_SIZE, 32768, sizeof(cl_ulong)},
    {CL_DEVICE_GLOBAL_MEM_SIZE, 1ul << 31, sizeof(cl_ulong)},
    {CL_DEVICE_MAX_MEM_ALLOC_SIZE, 1ul << 30, sizeof(cl_ulong)},
    {CL_DEVICE_HOST_UNIFIED_MEMORY, CL_TRUE, sizeof(cl_bool)},
    {CL_DEVICE_SVM_CAPABILITIES, CL_DEVICE_SVM_COARSE_GRAIN_BUFFER, sizeof(cl_device_svm_capabilities)},
    {CL_DEVICE_MAX_READ_IMAGE_ARGS, 128, sizeof(cl_uint)},
    {CL_DEVICE_MAX_WRITE_IMAGE_ARGS, 64, sizeof(cl_uint)},
    {CL_DEVICE_IMAGE_MAX_ARRAY_SIZE, 2048, sizeof(size_t)},
    {IMAGE_PITCH_ALIGNMENT, 64, sizeof(cl_uint)},
    {IMAGE_BASE_ADDRESS_ALIGNMENT, 64, sizeof(cl_uint)},
    {RECORDING_MAX_SIZE, 64, sizeof(cl_uint)},
};
static const size_t SIZES[] = {1024, 1024, 1024};

/* Those of the phone that the real driver has too, and what other faults add. */
static const char *extensions(cl_device_id device) {
  static char text[1024];
  static const char *const SHARED[] = {"cl_khr_fp16", "cl_khr_image2d_from_buffer"};
  static const struct { const char *fault, *extension; } IMPORTS[] = {
      {"external_memory", "cl_khr_external_memory_dma_buf"}, {"dmabuf_host_ptr", "cl_qcom_dmabuf_host_ptr"},
      {"ion_host_ptr", "cl_qcom_ion_host_ptr"}, {"ahardwarebuffer_host_ptr", "cl_qcom_android_ahardwarebuffer_host_ptr"},
      {"arm_import", "cl_arm_import_memory_dma_buf cl_arm_import_memory_android_hardware_buffer"}};
  char all[8192] = "";
  real.clGetDeviceInfo(device, CL_DEVICE_EXTENSIONS, sizeof all, all, NULL);
  snprintf(text, sizeof text, "cl_khr_byte_addressable_store%s%s%s",
           fault("recordable") ? " cl_qcom_recordable_queues" : "", fault("perf_hint") ? " cl_qcom_perf_hint" : "",
           fault("priority") ? " cl_khr_priority_hints cl_qcom_priority_hint" : "");
  for (size_t i = 0; i < sizeof IMPORTS / sizeof *IMPORTS; ++i) {
    if (fault(IMPORTS[i].fault)) strcat(strcat(text, " "), IMPORTS[i].extension);
  }
  for (size_t i = 0; i < sizeof SHARED / sizeof *SHARED; ++i) {
    if (strstr(all, SHARED[i])) strcat(strcat(text, " "), SHARED[i]);
  }
  return text;
}

cl_bool adreno_info(cl_device_id device, cl_uint parameter, const void **value, size_t *size) {
  if (!fault("adreno")) return CL_FALSE;
  if (parameter == CL_DEVICE_MAX_WORK_ITEM_SIZES) return *value = SIZES, *size = sizeof SIZES, CL_TRUE;
  const char *text = parameter == CL_DEVICE_EXTENSIONS ? extensions(device) : NULL;
  for (size_t i = 0; i < sizeof TEXTS / sizeof *TEXTS; ++i) {
    if (TEXTS[i].parameter == parameter) text = TEXTS[i].text;
  }
  if (text) return *value = text, *size = strlen(text) + 1, CL_TRUE;
  for (size_t i = 0; i < sizeof NUMBERS / sizeof *NUMBERS; ++i) {
    if (NUMBERS[i].parameter == parameter) return *value = &NUMBERS[i].value, *size = NUMBERS[i].size, CL_TRUE;
  }
  return CL_FALSE;
}
