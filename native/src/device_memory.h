// The memory of a plan: an OpenCL image or buffer for each storage.
#pragma once

#include <vector>

#include "device.h"
#include "file.h"
#include "plan.h"

namespace imgconv {

// What memory holds before a launch that is compared: 65 in images, 12.1 in buffers of float32, 2.63 in those of
// float16, numbers that no launch is likely to make.
constexpr uint8_t OVERWRITTEN = 0x41;

// A storage and its memory.
struct Variable {
  Storage storage;
  Memory memory;
};

class DeviceMemory {
 public:
  // Allocates everything but the inputs and outputs, which frames have, and uploads the constants. Waits, so that a
  // driver that allocates late fails here. Throws Error.
  DeviceMemory(const Context &context, const File &file, const Plan &plan);

  // Null for an input or output, and for what no launch uses.
  const Memory &operator[](size_t storage) const { return memory_[storage]; }
  // An image or a buffer for an input or output, which may be mapped. Throws Error.
  Memory new_exchanged(const Storage &storage) const;
  void clear_states() const;
  // All memory whose content is not constant, each once, without inputs and outputs.
  const std::vector<Variable> &variables() const { return variables_; }
  // Sets each byte of a buffer, each channel of an image. Without waiting.
  void fill(const Storage &storage, const Memory &memory, uint8_t value) const;
  // Copies between host and device, without waiting. The host's side must stay until the copy is over.
  void upload(const Storage &storage, const Memory &memory, const void *content) const;
  void download(const Storage &storage, const Memory &memory, void *content) const;

 private:
  Memory new_image(const Storage &storage, const Memory &buffer) const;
  Memory new_buffer(const Storage &storage, cl_mem_flags flags) const;
  // Memory that is filled: with its content, or with zeros.
  Memory new_filled(const File &file, const Storage &storage);
  Memory part_of_workspace(const Storage &storage) const;

  const Context &context_;
  const Plan &plan_;
  Memory workspace_;
  std::vector<Memory> slots_, memory_;
  std::vector<Variable> variables_;
  std::vector<std::vector<uint8_t>> gathered_;  // what is being uploaded of views
};

}  // namespace imgconv
