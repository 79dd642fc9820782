#include "frame.h"

#include <algorithm>
#include <cstring>

#include "error.h"

namespace imgconv {
namespace {

// exchanged: null for a launch that only has what frames share.
Kernel bind(const Shared &shared, const Launch &launch, const std::vector<Memory> *exchanged) {
  Kernel kernel = shared.programs.new_kernel(launch.kernel);
  cl_uint wanted = 0;
  shared.context.cl->clGetKernelInfo(kernel.get(), CL_KERNEL_NUM_ARGS, sizeof wanted, &wanted, nullptr);
  if (wanted != launch.arguments.size()) {
    throw Error(IMGCONV_ERROR_FILE, "'" + launch.name + "' has " + std::to_string(launch.arguments.size()) +
                                        " arguments, its kernel takes " + std::to_string(wanted));
  }
  for (cl_uint i = 0; i < wanted; ++i) {
    const uint32_t storage = launch.arguments[i];
    const bool own = shared.plan.storages[storage].exchanged;
    cl_mem memory = own ? (*exchanged)[storage].get() : shared.memory[storage].get();
    check(shared.context.cl->clSetKernelArg(kernel.get(), i, sizeof memory, &memory),
          "argument " + std::to_string(i) + " of '" + launch.name + "'");
  }
  return kernel;
}

}  // namespace

Shared::Shared(const Context &context, const Plan &plan, const DeviceMemory &memory, const Programs &programs)
    : context(context), plan(plan), memory(memory), programs(programs) {
  for (const Launch &launch : plan.launches) {
    const bool own = std::any_of(launch.arguments.begin(), launch.arguments.end(),
                                 [&](uint32_t storage) { return plan.storages[storage].exchanged; });
    kernels.push_back(own ? nullptr : bind(*this, launch, nullptr));
  }
}

Frame::Frame(const Shared &shared)
    : shared_(shared), exchanged_(shared.plan.storages.size()), staged_(shared.plan.storages.size()),
      mapped_(shared.plan.storages.size()), moved_(shared.plan.outputs.size()) {
  const Plan &plan = shared.plan;
  for (const uint32_t number : plan.exchanged) {
    const Storage &storage = plan.storages[number];
    exchanged_[number] = shared.memory.new_exchanged(storage);
    staged_[number].resize(storage.bytes);
    // A driver that allocates late fails here.
    shared.memory.upload(storage, exchanged_[number], staged_[number].data());
    check(shared.context.cl->clFinish(shared.context.queue.get()), "allocating '" + storage.name + "'");
  }
  for (size_t number = 0; number < plan.launches.size(); ++number) {
    const Launch &launch = plan.launches[number];
    const Kernel &kernel = shared.kernels[number];
    launches_.push_back({kernel ? kernel : bind(shared, launch, &exchanged_), &launch});
  }
}

Frame::~Frame() {
  for (const uint32_t number : shared_.plan.exchanged) {
    if (mapped_[number]) unmap(number);
  }
}

const Memory &Frame::memory(uint32_t storage) const {
  return exchanged_[storage] ? exchanged_[storage] : shared_.memory[storage];
}

void *Frame::map(const Input &input) {
  const Storage &storage = shared_.plan.storages[input.storage];
  if (input.value.dtype != storage.dtype || storage.is_image() || !storage.bytes) {
    throw Error(IMGCONV_ERROR_UNSUPPORTED, "'" + input.value.name + "' is no buffer of its dtype: give an array");
  }
  void *&place = mapped_[input.storage];
  if (place) return place;
  cl_int status = CL_SUCCESS;
  place = shared_.context.cl->clEnqueueMapBuffer(
      shared_.context.queue.get(), memory(input.storage).get(), CL_TRUE, CL_MAP_WRITE, 0, storage.bytes, 0, nullptr,
      nullptr, &status);
  check(status, "mapping '" + input.value.name + "'");
  return place;
}

void Frame::unmap(uint32_t storage) {
  const Opencl &cl = *shared_.context.cl;
  cl.clEnqueueUnmapMemObject(
      shared_.context.queue.get(), memory(storage).get(), mapped_[storage], 0, nullptr, nullptr);
  mapped_[storage] = nullptr;
}

void Frame::check_inputs(const imgconv_array *inputs) const {
  const Plan &plan = shared_.plan;
  for (size_t number = 0; number < plan.inputs.size(); ++number) {
    const Input &input = plan.inputs[number];
    check_array(shared_.context, input.value, inputs[number], false);
    if (input.exact && !inputs[number].memory) check_exact(input.value, inputs[number].data);
  }
}

void Frame::upload(const imgconv_array *inputs, bool keep) {
  const Plan &plan = shared_.plan;
  check_inputs(inputs);
  move_integers(inputs);
  for (size_t number = 0; number < plan.inputs.size(); ++number) {
    upload_input(plan.inputs[number], inputs[number], keep);
  }
}

void Frame::upload_input(const Input &input, const imgconv_array &given, bool keep) {
  const Storage &storage = shared_.plan.storages[input.storage];
  const bool as_it_is = input.value.dtype == storage.dtype;
  const bool filled = mapped_[input.storage] && given.data == mapped_[input.storage];
  if (mapped_[input.storage]) unmap(input.storage);
  if (filled) return;
  if (given.memory) {
    if (!as_it_is || storage.is_image()) {
      throw Error(IMGCONV_ERROR_ARGUMENT, "input '" + input.value.name + "' cannot be a buffer: give an array");
    }
    return copy_buffer(static_cast<cl_mem>(given.memory), memory(input.storage).get(), storage);
  }
  std::vector<uint8_t> &staged = staged_[input.storage];
  if (!as_it_is) {
    to_float(input.value, given.data, reinterpret_cast<float *>(staged.data()));
  } else if (keep && storage.bytes) {
    std::memcpy(staged.data(), given.data, storage.bytes);
  }
  shared_.memory.upload(storage, memory(input.storage), as_it_is && !keep ? given.data : staged.data());
}

void Frame::move_integers(const imgconv_array *inputs) {
  const Plan &plan = shared_.plan;
  for (size_t number = 0; number < plan.outputs.size(); ++number) {
    const Output &output = plan.outputs[number];
    moved_[number].resize(output.moved.size() * dtype_bytes(output.value.dtype));
    for (size_t i = 0; i < output.moved.size(); ++i) {
      const auto [from, element] = output.moved[i];
      const Value *source = from < 0 ? nullptr : &plan.inputs[static_cast<size_t>(from)].value;
      if (source && inputs[from].memory) {
        throw Error(IMGCONV_ERROR_ARGUMENT, "input '" + source->name + "' goes to output '" + output.value.name +
                                                "' by way of the host: give it as an array");
      }
      const int64_t value =
          source ? integer_at(source->dtype, inputs[from].data, static_cast<size_t>(element)) : element;
      set_integer(output.value.dtype, moved_[number].data(), i, value);
    }
  }
}

void Frame::enqueue() {
  if (recording_) return recording_->replay();
  for (const BoundLaunch &each : launches_) each.enqueue(shared_.context, nullptr);
}

std::vector<Event> Frame::enqueue_timed() {
  std::vector<Event> events;
  for (const BoundLaunch &each : launches_) {
    cl_event event = nullptr;
    each.enqueue(shared_.context, &event);
    events.emplace_back(event, shared_.context.cl->clReleaseEvent);
  }
  return events;
}

void Frame::download(const imgconv_array *outputs) {
  const Plan &plan = shared_.plan;
  for (size_t number = 0; number < plan.outputs.size(); ++number) {
    const Output &output = plan.outputs[number];
    const bool to_buffer = outputs && outputs[number].memory;
    if (!output.is_stored && !to_buffer) continue;
    const Storage &storage = plan.storages[output.storage];
    const bool as_it_is = output.value.dtype == storage.dtype;
    if (to_buffer) {
      if (!output.is_stored || !as_it_is || storage.is_image()) {
        throw Error(IMGCONV_ERROR_ARGUMENT, "output '" + output.value.name + "' cannot go to a buffer: give an array");
      }
      copy_buffer(memory(output.storage).get(), static_cast<cl_mem>(outputs[number].memory), storage);
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
    const bool as_it_is = !output.is_stored || output.value.dtype == plan.storages[output.storage].dtype;
    const std::vector<uint8_t> &made = output.is_stored          ? staged_[output.storage]
                                       : output.moved.empty() ? output.constant
                                                              : moved_[number];
    if (!as_it_is) from_float(output.value, reinterpret_cast<const float *>(made.data()), data);
    else if (!output.is_stored || !downloaded) std::memcpy(data, made.data(), made.size());
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

void Frame::copy_buffer(cl_mem source, cl_mem destination, const Storage &storage) const {
  if (!storage.bytes) return;
  check(shared_.context.cl->clEnqueueCopyBuffer(
            shared_.context.queue.get(), source, destination, 0, 0, storage.bytes, 0, nullptr, nullptr),
        "copying '" + storage.name + "'");
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
