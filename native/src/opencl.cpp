#include "opencl.h"

#include <dlfcn.h>

namespace imgconv {
namespace {

// Linux's loaders, then the drivers of Android: an app's linker finds the first name if the app's manifest has
// <uses-native-library android:name="libOpenCL.so" android:required="false"/>.
constexpr const char *LIBRARIES[] = {
    "libOpenCL.so", "libOpenCL.so.1", "libOpenCL-pixel.so", "libOpenCL-car.so",
#if defined(__LP64__)
    "/vendor/lib64/libOpenCL.so", "/system/vendor/lib64/libOpenCL.so", "/system/lib64/libOpenCL.so",
    "/vendor/lib64/egl/libGLES_mali.so", "/system/vendor/lib64/egl/libGLES_mali.so",
#else
    "/vendor/lib/libOpenCL.so", "/system/vendor/lib/libOpenCL.so", "/system/lib/libOpenCL.so",
    "/vendor/lib/egl/libGLES_mali.so", "/system/vendor/lib/egl/libGLES_mali.so",
#endif
};

// NVIDIA's own, after a reset.
constexpr cl_int NVIDIA_LOST = -9999;

bool find_functions(void *library, Opencl &found) {
  // Pixel phones' library gives its functions out itself, once it is enabled.
  const auto enable = reinterpret_cast<void (*)()>(dlsym(library, "enableOpenCL"));
  const auto give = reinterpret_cast<void *(*)(const char *)>(dlsym(library, "loadOpenCLPointer"));
  if (enable) enable();
  found.find = [=](const char *name) { return give ? give(name) : dlsym(library, name); };
#define IMGCONV_FIND(name) \
  found.name = reinterpret_cast<decltype(found.name)>(found.find(#name)); \
  if (!found.name) return false;
  IMGCONV_OPENCL_FUNCTIONS(IMGCONV_FIND)
#undef IMGCONV_FIND
  return true;
}

}  // namespace

std::shared_ptr<const Opencl> Opencl::load() {
  for (const char *name : LIBRARIES) {
    // It is never closed: drivers leave threads behind, whose code must stay.
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    auto found = std::make_shared<Opencl>();
    if (library && find_functions(library, *found)) return found;
  }
  throw Error(
      IMGCONV_ERROR_DEVICE,
      "no OpenCL 1.2 library is found (libOpenCL.so, libOpenCL.so.1, /vendor/lib64/libOpenCL.so ...): install the GPU "
      "vendor's driver; on Android, name libOpenCL.so in a <uses-native-library> of the app's manifest");
}

std::string status_name(cl_int status) {
  const char *name = "an OpenCL error";
  switch (status) {
#define IMGCONV_NAME(code) case code: name = #code; break;
    IMGCONV_NAME(CL_DEVICE_NOT_FOUND) IMGCONV_NAME(CL_DEVICE_NOT_AVAILABLE) IMGCONV_NAME(CL_COMPILER_NOT_AVAILABLE)
    IMGCONV_NAME(CL_MEM_OBJECT_ALLOCATION_FAILURE) IMGCONV_NAME(CL_OUT_OF_RESOURCES)
    IMGCONV_NAME(CL_OUT_OF_HOST_MEMORY) IMGCONV_NAME(CL_PROFILING_INFO_NOT_AVAILABLE)
    IMGCONV_NAME(CL_MEM_COPY_OVERLAP) IMGCONV_NAME(CL_IMAGE_FORMAT_MISMATCH)
    IMGCONV_NAME(CL_IMAGE_FORMAT_NOT_SUPPORTED) IMGCONV_NAME(CL_BUILD_PROGRAM_FAILURE) IMGCONV_NAME(CL_MAP_FAILURE)
    IMGCONV_NAME(CL_MISALIGNED_SUB_BUFFER_OFFSET) IMGCONV_NAME(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST)
    IMGCONV_NAME(CL_INVALID_VALUE) IMGCONV_NAME(CL_INVALID_DEVICE_TYPE) IMGCONV_NAME(CL_INVALID_PLATFORM)
    IMGCONV_NAME(CL_INVALID_DEVICE) IMGCONV_NAME(CL_INVALID_CONTEXT) IMGCONV_NAME(CL_INVALID_QUEUE_PROPERTIES)
    IMGCONV_NAME(CL_INVALID_COMMAND_QUEUE) IMGCONV_NAME(CL_INVALID_HOST_PTR) IMGCONV_NAME(CL_INVALID_MEM_OBJECT)
    IMGCONV_NAME(CL_INVALID_IMAGE_FORMAT_DESCRIPTOR) IMGCONV_NAME(CL_INVALID_IMAGE_SIZE)
    IMGCONV_NAME(CL_INVALID_SAMPLER) IMGCONV_NAME(CL_INVALID_BINARY) IMGCONV_NAME(CL_INVALID_BUILD_OPTIONS)
    IMGCONV_NAME(CL_INVALID_PROGRAM) IMGCONV_NAME(CL_INVALID_PROGRAM_EXECUTABLE) IMGCONV_NAME(CL_INVALID_KERNEL_NAME)
    IMGCONV_NAME(CL_INVALID_KERNEL_DEFINITION) IMGCONV_NAME(CL_INVALID_KERNEL) IMGCONV_NAME(CL_INVALID_ARG_INDEX)
    IMGCONV_NAME(CL_INVALID_ARG_VALUE) IMGCONV_NAME(CL_INVALID_ARG_SIZE) IMGCONV_NAME(CL_INVALID_KERNEL_ARGS)
    IMGCONV_NAME(CL_INVALID_WORK_DIMENSION) IMGCONV_NAME(CL_INVALID_WORK_GROUP_SIZE)
    IMGCONV_NAME(CL_INVALID_WORK_ITEM_SIZE) IMGCONV_NAME(CL_INVALID_GLOBAL_OFFSET)
    IMGCONV_NAME(CL_INVALID_EVENT_WAIT_LIST) IMGCONV_NAME(CL_INVALID_EVENT) IMGCONV_NAME(CL_INVALID_OPERATION)
    IMGCONV_NAME(CL_INVALID_BUFFER_SIZE) IMGCONV_NAME(CL_INVALID_GLOBAL_WORK_SIZE) IMGCONV_NAME(CL_INVALID_PROPERTY)
    IMGCONV_NAME(CL_INVALID_IMAGE_DESCRIPTOR)
#undef IMGCONV_NAME
  }
  return join(name, " (", status, ")");
}

imgconv_status kind_of_failure(cl_int status) {
  for (const cl_int shortage : {CL_MEM_OBJECT_ALLOCATION_FAILURE, CL_OUT_OF_RESOURCES, CL_OUT_OF_HOST_MEMORY,
                                CL_INVALID_IMAGE_SIZE, CL_INVALID_BUFFER_SIZE}) {
    if (status == shortage) return IMGCONV_ERROR_MEMORY;
  }
  return IMGCONV_ERROR_DEVICE;
}

const char *remedy(cl_int status) {
  if (kind_of_failure(status) == IMGCONV_ERROR_MEMORY) {
    return "; a smaller input or FLOAT16=1 takes less, and so does ending what else uses the device";
  }
  switch (status) {
    case CL_DEVICE_NOT_AVAILABLE: case CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST: case CL_INVALID_DEVICE:
    case CL_INVALID_CONTEXT: case CL_INVALID_COMMAND_QUEUE: case NVIDIA_LOST:
      return "; the device was lost or reset: open the model again; if that fails too, start another process";
    default: return "; update the driver, or choose another device: imgconv-run --devices lists them";
  }
}

}  // namespace imgconv
