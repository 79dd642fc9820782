#include "external_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "error.h"

namespace imgconv {
namespace {

// cl_ext.h and Qualcomm's cl_ext_qcom.h.
constexpr cl_ulong EXTERNAL_DMA_BUF = 0x2067;
constexpr cl_mem_flags EXT_HOST_PTR = cl_mem_flags(1) << 29;
constexpr cl_uint UNCACHED = 0x40A4, ION = 0x40A8, IO_COHERENT = 0x40A9, HARDWARE_BUFFER = 0x4119, DMA_BUF = 0x411D;
constexpr intptr_t IMPORT_TYPE_ARM = 0x40B2, DMA_BUF_ARM = 0x40B4, HARDWARE_BUFFER_ARM = 0x41E2;

// cl_mem_dmabuf_host_ptr and cl_mem_ion_host_ptr.
struct DescriptorAndPointer {
  cl_uint type, cache_policy;
  int descriptor;
  void *pointer;
};

// cl_mem_ahardwarebuffer_host_ptr.
struct HardwareBufferPointer {
  cl_uint type, cache_policy;
  void *buffer;
};

using CreateBuffer = cl_mem(CL_API_CALL *)(cl_context, const cl_ulong *, cl_mem_flags, size_t, void *, cl_int *);
using ImportMemory = cl_mem(CL_API_CALL *)(cl_context, cl_mem_flags, const intptr_t *, void *, size_t, cl_int *);
using HandOver = cl_int(CL_API_CALL *)(
    cl_command_queue, cl_uint, const cl_mem *, cl_uint, const cl_event *, cl_event *);

template <class Function>
Function extension_function(const Context &context, const char *name) {
  const auto find = context.cl->clGetExtensionFunctionAddressForPlatform;
  const auto found = reinterpret_cast<Function>(find(context.info.platform_id, name));
  if (!found) throw Error(IMGCONV_ERROR_DEVICE, "the driver has no ", name, ", though it lists the extension");
  return found;
}

}  // namespace

cl_mem ExternalMemory::import_dma_buf(int descriptor, size_t bytes) {
  const off_t size = lseek(descriptor, 0, SEEK_END);
  if (size < 0 && errno == EBADF) throw Error(IMGCONV_ERROR_ARGUMENT, "descriptor ", descriptor, " is not open");
  if (!bytes || (size >= 0 && static_cast<size_t>(size) < bytes)) {
    throw Error(IMGCONV_ERROR_ARGUMENT, "the dma-buf has ", size, " bytes; requested: ", bytes);
  }
  return import("dma-buf", {
    {"cl_khr_external_memory_dma_buf", [&] { return by_khronos(descriptor, bytes); }},
    {"cl_qcom_dmabuf_host_ptr", [&] { return by_qualcomm(DMA_BUF, descriptor, bytes); }},
    {"cl_qcom_ion_host_ptr", [&] { return by_qualcomm(ION, descriptor, bytes); }},
    {"cl_arm_import_memory_dma_buf", [&] { return by_arm(DMA_BUF_ARM, &descriptor, bytes); }},
  });
}

cl_mem ExternalMemory::import_hardware_buffer(void *buffer, size_t bytes) {
  HardwareBufferPointer about{HARDWARE_BUFFER, cache_policy(), buffer};
  return import("AHardwareBuffer", {
    {"cl_qcom_android_ahardwarebuffer_host_ptr", [&] { return by_host_pointer(bytes, &about, nullptr); }},
    {"cl_arm_import_memory_android_hardware_buffer", [&] { return by_arm(HARDWARE_BUFFER_ARM, buffer, bytes); }},
  });
}

// By the first of the ways that the driver offers and takes.
cl_mem ExternalMemory::import(const char *what, const std::vector<Way> &ways) {
  std::string names;
  std::optional<Error> refused;
  for (const Way &each : ways) {
    names += (names.empty() ? "" : ", ") + std::string(each.extension);
    if (!context_.info.has(each.extension)) continue;
    try {
      Import made = each.make();
      const cl_mem handle = made.memory.get();
      imports_[handle] = std::move(made);
      return handle;
    } catch (const Error &problem) {
      if (!refused) refused = problem;
    }
  }
  if (refused) throw *refused;
  throw Error(IMGCONV_ERROR_UNSUPPORTED, context_.info.name, " cannot import ", what, "s: its driver has none of ",
              names, ". Give the frame as data of its planes: it is uploaded");
}

void ExternalMemory::release(cl_mem memory) {
  if (!imports_.count(memory)) throw Error(IMGCONV_ERROR_ARGUMENT, "the memory was not imported");
  context_.finish("releasing imported memory");
  imports_.erase(memory);
}

ExternalMemory::Import ExternalMemory::by_khronos(int descriptor, size_t bytes) const {
  const auto create = context_.cl->later<CreateBuffer>("clCreateBufferWithProperties");
  if (!create) throw Error(IMGCONV_ERROR_DEVICE, "the OpenCL library has no clCreateBufferWithProperties: update it");
  // The driver owns the descriptor that it takes.
  const int given = dup(descriptor);
  const cl_ulong properties[] = {EXTERNAL_DMA_BUF, static_cast<cl_ulong>(given), 0};
  cl_int status = CL_SUCCESS;
  const cl_mem made = create(context_.handle.get(), properties, CL_MEM_READ_WRITE, bytes, nullptr, &status);
  if (status != CL_SUCCESS) close(given);
  check(status, "importing a dma-buf of ", bytes, " bytes by cl_khr_external_memory_dma_buf");
  return {Memory(made, context_.cl->clReleaseMemObject), true};
}

ExternalMemory::Import ExternalMemory::by_qualcomm(cl_uint type, int descriptor, size_t bytes) const {
  void *const mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (mapped == MAP_FAILED) {
    throw Error(IMGCONV_ERROR_ARGUMENT, "descriptor ", descriptor, " cannot be mapped: ", std::strerror(errno));
  }
  DescriptorAndPointer about{type, cache_policy(), descriptor, mapped};
  return by_host_pointer(bytes, &about, [=] { munmap(mapped, bytes); });
}

// about: by cl_qcom_ext_host_ptr. released: called once the buffer is no more, or if the driver refuses; may be null.
ExternalMemory::Import ExternalMemory::by_host_pointer(
    size_t bytes, void *about, const std::function<void()> &released) const {
  const auto release = [cl = context_.cl, released](cl_mem memory) {
    if (memory) cl->clReleaseMemObject(memory);
    if (released) released();
  };
  cl_int status = CL_SUCCESS;
  const cl_mem_flags flags = CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR | EXT_HOST_PTR;
  const Memory made(context_.cl->clCreateBuffer(context_.handle.get(), flags, bytes, about, &status), release);
  check(status, "importing ", bytes, " bytes by cl_qcom_ext_host_ptr");
  return {made, false};
}

ExternalMemory::Import ExternalMemory::by_arm(intptr_t type, void *memory, size_t bytes) const {
  const auto create = extension_function<ImportMemory>(context_, "clImportMemoryARM");
  const intptr_t properties[] = {IMPORT_TYPE_ARM, type, 0};
  return {own(join("importing ", bytes, " bytes by cl_arm_import_memory"), context_.cl->clReleaseMemObject, create,
              context_.handle.get(), cl_mem_flags(CL_MEM_READ_WRITE), properties, memory, bytes), false};
}

// Without coherence, a host that writes the memory ends that by DMA_BUF_IOCTL_SYNC; a camera's writes need nothing.
cl_uint ExternalMemory::cache_policy() const {
  return context_.info.has("cl_qcom_ext_host_ptr_iocoherent") ? IO_COHERENT : UNCACHED;
}

void ExternalMemory::hand_over(const char *function, cl_mem memory) const {
  const auto found = imports_.find(memory);
  if (found == imports_.end() || !found->second.is_handed_over) return;
  const auto enqueue = extension_function<HandOver>(context_, function);
  check(enqueue(context_.queue.get(), 1, &memory, 0, nullptr, nullptr), function);
}

}  // namespace imgconv
