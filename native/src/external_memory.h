// Buffers of memory that belongs to others, such as a camera: Linux's dma-bufs and Android's AHardwareBuffers.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "device.h"

namespace imgconv {

class ExternalMemory {
 public:
  explicit ExternalMemory(const Context &context) : context_(context) {}

  // Buffers, until `release`. Throw Error.
  cl_mem import_dma_buf(int descriptor, size_t bytes);
  cl_mem import_hardware_buffer(void *buffer, size_t bytes);
  // Throws Error if the memory was not imported.
  void release(cl_mem memory);

  // Enqueues what makes a buffer the device's before commands, and that of others after them. Nothing for null, and for
  // memory that does not need it. Throw Error.
  void acquire(cl_mem memory) const { hand_over("clEnqueueAcquireExternalMemObjectsKHR", memory); }
  void give_back(cl_mem memory) const { hand_over("clEnqueueReleaseExternalMemObjectsKHR", memory); }

 private:
  struct Import {
    Memory memory;
    bool is_handed_over;
  };
  // An extension of OpenCL, and what it makes of the memory.
  struct Way {
    const char *extension;
    std::function<Import()> make;
  };

  cl_mem import(const char *what, const std::vector<Way> &ways);
  Import by_khronos(int descriptor, size_t bytes) const;
  Import by_qualcomm(cl_uint type, int descriptor, size_t bytes) const;
  Import by_host_pointer(size_t bytes, void *about, const std::function<void()> &released) const;
  Import by_arm(intptr_t type, void *memory, size_t bytes) const;
  cl_uint cache_policy() const;
  void hand_over(const char *function, cl_mem memory) const;

  const Context &context_;
  std::map<cl_mem, Import> imports_;
};

}  // namespace imgconv
