/* An OpenCL library in front of a real one, REAL_OPENCL: it loses the device, or has none. The linker gives it the real
 * one's other functions.
 *
 *     FAKE_DEVICES=none       clGetDeviceIDs finds no device
 *     FAKE_LAUNCHES=N         from the Nth launch on, everything that needs the device fails
 *     FAKE_FORMATS=none       no image has texels of half
 *     FAKE_LOCAL_MEMORY=N     every kernel is said to take so many bytes of local memory
 *     FAKE_BUFFERS=N          there is memory for N buffers; what writes a later one fails, as with drivers that allocate
 *                             at the first use. Setting another N begins to count anew
 */
#define CL_TARGET_OPENCL_VERSION 120
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static long launches;

static void *real(const char *name) {
  static void *library;
  if (!library) library = dlopen(REAL_OPENCL, RTLD_NOW | RTLD_LOCAL);
  void *found = library ? dlsym(library, name) : NULL;
  if (!found) abort();
  return found;
}

static cl_mem without_memory[256];
static long buffers;

static int lacks_memory(cl_mem buffer) {
  for (int i = 0; i < 256; ++i) {
    if (without_memory[i] == buffer) return 1;
  }
  return 0;
}

static int is_lost(void) {
  const char *limit = getenv("FAKE_LAUNCHES");
  return limit && launches >= atol(limit);
}

#define FORWARD(name, parameters, arguments)                                      \
  cl_int name parameters {                                                        \
    if (is_lost()) return CL_DEVICE_NOT_AVAILABLE;                                \
    return ((cl_int(*) parameters)real(#name))arguments;                          \
  }

cl_int clGetDeviceIDs(cl_platform_id a, cl_device_type b, cl_uint c, cl_device_id *d, cl_uint *e) {
  if (getenv("FAKE_DEVICES")) return CL_DEVICE_NOT_FOUND;
  return ((cl_int(*)(cl_platform_id, cl_device_type, cl_uint, cl_device_id *, cl_uint *))real("clGetDeviceIDs"))(
      a, b, c, d, e);
}

/* The texels of half become texels of an order that nobody asks for. */
cl_int clGetSupportedImageFormats(
    cl_context a, cl_mem_flags b, cl_mem_object_type c, cl_uint d, cl_image_format *e, cl_uint *f) {
  const cl_int status = ((cl_int(*)(cl_context, cl_mem_flags, cl_mem_object_type, cl_uint, cl_image_format *, cl_uint *))real(
      "clGetSupportedImageFormats"))(a, b, c, d, e, f);
  for (cl_uint i = 0; e && status == CL_SUCCESS && getenv("FAKE_FORMATS") && i < d; ++i) {
    if (e[i].image_channel_data_type == CL_HALF_FLOAT) e[i].image_channel_order = CL_INTENSITY;
  }
  return status;
}

cl_int clGetKernelWorkGroupInfo(
    cl_kernel a, cl_device_id b, cl_kernel_work_group_info c, size_t d, void *e, size_t *f) {
  const char *bytes = getenv("FAKE_LOCAL_MEMORY");
  if (c == CL_KERNEL_LOCAL_MEM_SIZE && bytes) {
    const cl_ulong said = strtoull(bytes, NULL, 10);
    memcpy(e, &said, sizeof said);
    return CL_SUCCESS;
  }
  return ((cl_int(*)(cl_kernel, cl_device_id, cl_kernel_work_group_info, size_t, void *, size_t *))real(
      "clGetKernelWorkGroupInfo"))(a, b, c, d, e, f);
}

/* Launches are enqueued one by one, so that they are counted. */
void *clGetExtensionFunctionAddressForPlatform(cl_platform_id platform, const char *name) {
  (void)platform, (void)name;
  return NULL;
}

cl_int clEnqueueNDRangeKernel(
    cl_command_queue a, cl_kernel b, cl_uint c, const size_t *d, const size_t *e, const size_t *f, cl_uint g,
    const cl_event *h, cl_event *i) {
  if (is_lost()) return CL_DEVICE_NOT_AVAILABLE;
  ++launches;
  return ((cl_int(*)(cl_command_queue, cl_kernel, cl_uint, const size_t *, const size_t *, const size_t *, cl_uint,
                     const cl_event *, cl_event *))real("clEnqueueNDRangeKernel"))(a, b, c, d, e, f, g, h, i);
}

cl_mem clCreateBuffer(cl_context a, cl_mem_flags b, size_t c, void *d, cl_int *e) {
  static long counted = -1;
  const cl_mem made =
      ((cl_mem(*)(cl_context, cl_mem_flags, size_t, void *, cl_int *))real("clCreateBuffer"))(a, b, c, d, e);
  const char *text = getenv("FAKE_BUFFERS");
  const long limit = text ? atol(text) : LONG_MAX;
  if (limit != counted) {
    counted = limit;
    buffers = 0;
    memset(without_memory, 0, sizeof without_memory);
  }
  if (buffers++ >= limit) without_memory[buffers % 256] = made;
  return made;
}

cl_int clEnqueueFillBuffer(cl_command_queue a, cl_mem b, const void *c, size_t d, size_t e, size_t f, cl_uint g,
                           const cl_event *h, cl_event *i) {
  if (lacks_memory(b)) return CL_MEM_OBJECT_ALLOCATION_FAILURE;
  return ((cl_int(*)(cl_command_queue, cl_mem, const void *, size_t, size_t, size_t, cl_uint, const cl_event *,
                     cl_event *))real("clEnqueueFillBuffer"))(a, b, c, d, e, f, g, h, i);
}

cl_int clEnqueueWriteBuffer(cl_command_queue a, cl_mem b, cl_bool c, size_t d, size_t e, const void *f, cl_uint g,
                            const cl_event *h, cl_event *i) {
  if (is_lost()) return CL_DEVICE_NOT_AVAILABLE;
  if (lacks_memory(b)) return CL_MEM_OBJECT_ALLOCATION_FAILURE;
  return ((cl_int(*)(cl_command_queue, cl_mem, cl_bool, size_t, size_t, const void *, cl_uint, const cl_event *,
                     cl_event *))real("clEnqueueWriteBuffer"))(a, b, c, d, e, f, g, h, i);
}

FORWARD(clFinish, (cl_command_queue a), (a))
FORWARD(clFlush, (cl_command_queue a), (a))
FORWARD(clWaitForEvents, (cl_uint a, const cl_event *b), (a, b))
FORWARD(clEnqueueMarkerWithWaitList, (cl_command_queue a, cl_uint b, const cl_event *c, cl_event *d), (a, b, c, d))
FORWARD(clEnqueueReadBuffer, (cl_command_queue a, cl_mem b, cl_bool c, size_t d, size_t e, void *f, cl_uint g,
                              const cl_event *h, cl_event *i), (a, b, c, d, e, f, g, h, i))
