#include "frame.h"

#include <algorithm>
#include <cstring>

#include "error.h"

namespace imgconv {
namespace {

Kernel bind(const Shared &shared, const Launch &launch, const std::vector<Memory> *exchanged) {
  Kernel kernel = shared.programs.new_kernel(launch.kernel);
  for (size_t i = 0; i < launch.arguments.size(); ++i) {
    const uint32_t storage = launch.arguments[i];
    const bool own = exchanged && (*exchanged)[storage];
    cl_mem memory = own ? (*exchanged)[storage].get() : shared.memory[storage].get();
    check(shared.context.cl->clSetKernelArg(kernel.get(), static_cast<cl_uint>(i), sizeof memory, &memory),
          "argument " + std::to_string(i) + " of '" + launch.name + "'");
  }
  cl_uint wanted = 0;
  shared.context.cl->clGetKernelInfo(kernel.get(), CL_KERNEL_NUM_ARGS, sizeof wanted, &wanted, nullptr);
  if (wanted != launch.arguments.size()) {
    throw Error(IMGCONV_ERROR_FILE, "'" + launch.name + "' has " + std::to_string(launch.arguments.size()) +
                                        " arguments, its kernel takes " + std::to_string(wanted));
  }
  return kernel;
}

}  // namespace

Shared::Shared(const Context &context, const Plan &plan, const DeviceMemory &memory, const Programs &programs)
    : context(context), plan(plan), memory(memory), programs(programs) {
  for (const Launch &launch : plan.launches) {
    const bool all_there = std::all_of(launch.arguments.begin(), launch.arguments.end(),
                                       [&](uint32_t storage) { return memory[storage] != nullptr; });
    kernels.push_back(all_there ? bind(*this, launch, nullptr) : nullptr);
  }
}

Frame::Frame(const Shared &shared)
    : shared_(shared), exchanged_(shared.plan.storages.size()), staged_(shared.plan.storages.size()) {
  const Plan &plan = shared.plan;
  std::vector<uint32_t> numbers;
  for (const Input &input : plan.inputs) numbers.push_back(input.storage);
  for (const Output &output : plan.outputs) {
    if (!output.is_constant) numbers.push_back(output.storage);
  }
  for (uint32_t number : numbers) {
    if (exchanged_[number]) continue;
    const Storage &storage = plan.storages[number];
    exchanged_[number] = shared.memory.new_exchanged(storage);
    staged_[number].resize(storage.bytes);
    // A driver that allocates late fails here.
    shared.memory.upload(storage, exchanged_[number], staged_[number].data());
    check(shared.context.cl->clFinish(shared.context.queue.get()), "allocating '" + storage.name + "'");
  }
  for (size_t number = 0; number < plan.launches.size(); ++number) {
    const Launch &launch = plan.launches[number];
    Kernel kernel = shared.kernels[number];
    launches_.push_back({kernel ? kernel : bind(shared, launch, &exchanged_), &launch});
  }
}

const Memory &Frame::memory(uint32_t storage) const {
  return exchanged_[storage] ? exchanged_[storage] : shared_.memory[storage];
}

void Frame::upload(const imgconv_array *inputs, bool keep) {
  const Plan &plan = shared_.plan;
  for (size_t number = 0; number < plan.inputs.size(); ++number) {
    check_array(shared_.context, plan.inputs[number].value, inputs[number], false);
    if (plan.inputs[number].exact && !inputs[number].memory) {
      check_exact(plan.inputs[number].value, inputs[number].data);
    }
  }
  for (size_t number = 0; number < plan.inputs.size(); ++number) {
    const Input &input = plan.inputs[number];
    const Storage &storage = plan.storages[input.storage];
    const imgconv_array &given = inputs[number];
    const bool as_it_is = input.value.dtype == storage.dtype;
    std::vector<uint8_t> &staged = staged_[input.storage];
    if (given.memory) {
      if (!as_it_is || storage.is_image()) {
        throw Error(IMGCONV_ERROR_ARGUMENT, "input '" + input.value.name + "' cannot be a buffer: give an array");
      }
      copy(Memory(static_cast<cl_mem>(given.memory), [](cl_mem) {}), memory(input.storage), storage.bytes);
      continue;
    }
    if (!as_it_is) {
      to_float(input.value, given.data, reinterpret_cast<float *>(staged.data()));
    } else if (keep && storage.bytes) {
      std::memcpy(staged.data(), given.data, storage.bytes);
    }
    shared_.memory.upload(storage, memory(input.storage), as_it_is && !keep ? given.data : staged.data());
  }
}

void Frame::enqueue() {
  if (recording_) {
    recording_->replay();
    return;
  }
  const Opencl &cl = *shared_.context.cl;
  cl_command_queue queue = shared_.context.queue.get();
  for (const BoundLaunch &each : launches_) {
    const cl_int status = cl.clEnqueueNDRangeKernel(
        queue, each.kernel.get(), each.dimensions(), nullptr, each.global_size(), each.local_size(), 0, nullptr, nullptr);
    if (status) check(status, "launching '" + each.launch->name + "'");
  }
}

std::vector<Event> Frame::enqueue_timed() {
  const Opencl &cl = *shared_.context.cl;
  std::vector<Event> events;
  for (const BoundLaunch &each : launches_) {
    cl_event event = nullptr;
    check(cl.clEnqueueNDRangeKernel(
              shared_.context.queue.get(), each.kernel.get(), each.dimensions(), nullptr, each.global_size(),
              each.local_size(), 0, nullptr, &event), "launching '" + each.launch->name + "'");
    events.emplace_back(event, cl.clReleaseEvent);
  }
  return events;
}

void Frame::download(const imgconv_array *outputs) {
  const Plan &plan = shared_.plan;
  for (size_t number = 0; number < plan.outputs.size(); ++number) {
    const Output &output = plan.outputs[number];
    if (output.is_constant) continue;
    const Storage &storage = plan.storages[output.storage];
    const bool as_it_is = output.value.dtype == storage.dtype;
    if (outputs && outputs[number].memory) {
      if (!as_it_is || storage.is_image()) {
        throw Error(IMGCONV_ERROR_ARGUMENT, "output '" + output.value.name + "' cannot go to a buffer: give an array");
      }
      copy(memory(output.storage), Memory(static_cast<cl_mem>(outputs[number].memory), [](cl_mem) {}), storage.bytes);
    } else if (!outputs || outputs[number].data) {
      void *direct = outputs && as_it_is ? outputs[number].data : nullptr;
      shared_.memory.download(storage, memory(output.storage), direct ? direct : staged_[output.storage].data());
    }
  }
}

void Frame::fetch(const imgconv_array *outputs, bool downloaded) const {
  const Plan &plan = shared_.plan;
  for (size_t number = 0; number < plan.outputs.size(); ++number) {
    const Output &output = plan.outputs[number];
    void *data = outputs[number].data;
    if (outputs[number].memory || !data || !output.value.bytes()) continue;
    if (output.is_constant) {
      std::memcpy(data, output.constant.data(), output.constant.size());
      continue;
    }
    const std::vector<uint8_t> &staged = staged_[output.storage];
    const bool as_it_is = output.value.dtype == plan.storages[output.storage].dtype;
    if (!as_it_is) from_float(output.value, reinterpret_cast<const float *>(staged.data()), data);
    if (as_it_is && !downloaded) std::memcpy(data, staged.data(), staged.size());
  }
}

std::vector<uint8_t> Frame::content(uint32_t storage) const {
  std::vector<uint8_t> found(shared_.plan.storages[storage].bytes);
  shared_.memory.download(shared_.plan.storages[storage], memory(storage), found.data());
  check(shared_.context.cl->clFinish(shared_.context.queue.get()), "waiting for a launch");
  return found;
}

void Frame::upload_drawn(uint32_t seed) {
  for (const Input &input : shared_.plan.inputs) {
    const Storage &storage = shared_.plan.storages[input.storage];
    std::vector<uint8_t> &staged = staged_[input.storage];
    for (size_t i = 0; i < input.value.elements; ++i) {
      seed = seed * 1664525u + 1013904223u;
      const bool one = seed >> 31;
      if (storage.dtype == IMGCONV_FLOAT32) {
        reinterpret_cast<float *>(staged.data())[i] = one ? 1.0f : 0.0f;
      } else if (storage.dtype == IMGCONV_FLOAT16) {
        reinterpret_cast<uint16_t *>(staged.data())[i] = one ? 0x3C00 : 0;
      } else {
        staged[i] = one;
      }
    }
    shared_.memory.upload(storage, memory(input.storage), staged.data());
  }
}

void Frame::copy(const Memory &source, const Memory &destination, size_t bytes) const {
  if (!bytes) return;
  check(shared_.context.cl->clEnqueueCopyBuffer(
            shared_.context.queue.get(), source.get(), destination.get(), 0, 0, bytes, 0, nullptr, nullptr),
        "copying a buffer");
}

void check_array(const Context &context, const Value &value, const imgconv_array &array, bool optional) {
  if (!array.data && !array.memory) {
    if (optional || !value.bytes()) return;
    throw Error(IMGCONV_ERROR_ARGUMENT, "'" + value.name + "' is missing");
  }
  if (array.bytes != value.bytes()) {
    throw Error(IMGCONV_ERROR_ARGUMENT, "'" + value.name + "' takes " + std::to_string(value.bytes()) + " bytes, " +
                                            dtype_name(value.dtype) + "; given are " + std::to_string(array.bytes));
  }
  if (!array.memory) return;
  size_t size = 0;
  cl_mem buffer = static_cast<cl_mem>(array.memory);
  check(context.cl->clGetMemObjectInfo(buffer, CL_MEM_SIZE, sizeof size, &size, nullptr), "'" + value.name + "'");
  if (size < array.bytes) {
    throw Error(IMGCONV_ERROR_ARGUMENT, "the buffer of '" + value.name + "' has " + std::to_string(size) + " bytes");
  }
}

}  // namespace imgconv
