// The OpenCL library, loaded at run time: nothing is linked to it.
#pragma once

#define CL_TARGET_OPENCL_VERSION 120
#define CL_USE_DEPRECATED_OPENCL_1_1_APIS
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>

#include <functional>
#include <memory>
#include <string>
#include <type_traits>

#include "error.h"

namespace imgconv {

#define IMGCONV_OPENCL_FUNCTIONS(X)                                                                               \
  X(clGetPlatformIDs) X(clGetPlatformInfo) X(clGetDeviceIDs) X(clGetDeviceInfo) X(clCreateContext)                \
  X(clReleaseContext) X(clCreateCommandQueue) X(clReleaseCommandQueue) X(clGetSupportedImageFormats)              \
  X(clCreateBuffer) X(clCreateSubBuffer) X(clCreateImage) X(clReleaseMemObject) X(clEnqueueFillBuffer)            \
  X(clEnqueueFillImage) X(clEnqueueWriteBuffer) X(clEnqueueReadBuffer) X(clEnqueueWriteImage)                     \
  X(clEnqueueReadImage) X(clEnqueueCopyBuffer) X(clEnqueueNDRangeKernel) X(clEnqueueMarkerWithWaitList)           \
  X(clWaitForEvents) X(clReleaseEvent) X(clGetEventInfo) X(clGetEventProfilingInfo) X(clFlush) X(clFinish)        \
  X(clCreateProgramWithSource) X(clCreateProgramWithBinary) X(clBuildProgram) X(clGetProgramInfo)                 \
  X(clGetProgramBuildInfo) X(clReleaseProgram) X(clCreateKernel) X(clSetKernelArg) X(clReleaseKernel)             \
  X(clGetKernelInfo) X(clGetKernelWorkGroupInfo) X(clGetMemObjectInfo) X(clEnqueueMapBuffer)                      \
  X(clEnqueueUnmapMemObject) X(clGetExtensionFunctionAddressForPlatform)

// The functions of the library, by their names.
struct Opencl {
#define IMGCONV_MEMBER(name) decltype(&::name) name = nullptr;
  IMGCONV_OPENCL_FUNCTIONS(IMGCONV_MEMBER)
#undef IMGCONV_MEMBER

  // Throws Error if no library is found.
  static std::shared_ptr<const Opencl> load();
  // A function of a later version of OpenCL; null if the library has none.
  template <class Function>
  Function later(const char *name) const {
    return reinterpret_cast<Function>(find(name));
  }

  std::function<void *(const char *name)> find;
};

// Handles that release themselves.
using ContextHandle = std::shared_ptr<_cl_context>;
using Queue = std::shared_ptr<_cl_command_queue>;
using Memory = std::shared_ptr<_cl_mem>;
using Program = std::shared_ptr<_cl_program>;
using Kernel = std::shared_ptr<_cl_kernel>;
using Event = std::shared_ptr<_cl_event>;

// "CL_OUT_OF_RESOURCES (-5)"
std::string status_name(cl_int status);

// What a failed call is: IMGCONV_ERROR_MEMORY if memory is short, else IMGCONV_ERROR_DEVICE.
imgconv_status kind_of_failure(cl_int status);

// What the user may do after a failed call, as the end of a message.
const char *remedy(cl_int status);

// Throws Error if a call failed. what: the parts of a text.
template <class... Parts>
void check(cl_int status, const Parts &...what) {
  if (status != CL_SUCCESS) {
    throw Error(kind_of_failure(status), what..., ": ", status_name(status), remedy(status));
  }
}

// A new object of the driver: `create` makes it of the arguments, `release` frees it. Throws Error.
template <class Release, class Create, class... Arguments>
auto own(const std::string &what, Release release, Create create, Arguments... arguments) {
  cl_int status = CL_SUCCESS;
  auto *made = create(arguments..., &status);
  check(status, what);
  return std::shared_ptr<std::remove_pointer_t<decltype(made)>>(made, release);
}

}  // namespace imgconv
