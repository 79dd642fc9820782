#include "frame.h"

#include <cstring>

#include "error.h"

namespace imgconv {

Frame::Frame(const Shared &shared)
    : shared_(shared), ports_(shared.plan.storages.size()), moved_(shared.plan.outputs.size()) {
  for (size_t number = 0; number < ports_.size(); ++number) {
    const Storage &storage = shared.plan.storages[number];
    Port &port = ports_[number];
    if (!storage.exchanged) continue;
    port.memory = shared.memory.new_exchanged(storage);
    port.staged.resize(storage.bytes);
    // A driver that allocates late fails here.
    shared.memory.upload(storage, port.memory, port.staged.data());
    shared.context.finish("allocating '", storage.name, "'");
  }
  for (const Launch &launch : shared.plan.launches) launches_.push_back(bind(launch, shared.programs));
}

Frame::~Frame() {
  for (Port &port : ports_) unmap(port);
}

const Memory &Frame::memory(uint32_t storage) const {
  return ports_[storage].memory ? ports_[storage].memory : shared_.memory[storage];
}

BoundLaunch Frame::bind(const Launch &launch, const Programs &programs) const {
  const Opencl &cl = *shared_.context.cl;
  const Kernel kernel = programs.new_kernel(launch.kernel);
  cl_uint wanted = 0;
  cl.clGetKernelInfo(kernel.get(), CL_KERNEL_NUM_ARGS, sizeof wanted, &wanted, nullptr);
  if (wanted != launch.arguments.size()) {
    throw Error(IMGCONV_ERROR_FILE, "'", launch.name, "' has ", launch.arguments.size(),
                " arguments, its kernel takes ", wanted);
  }
  for (cl_uint i = 0; i < wanted; ++i) {
    cl_mem argument = memory(launch.arguments[i]).get();
    check(cl.clSetKernelArg(kernel.get(), i, sizeof argument, &argument), "argument ", i, " of '", launch.name,
          "', kernel k", launch.kernel);
  }
  return {kernel, &launch};
}

void *Frame::map(const Input &input) {
  const Storage &storage = shared_.plan.storages[input.storage];
  if (input.converted || storage.is_image() || !storage.bytes) {
    throw Error(IMGCONV_ERROR_UNSUPPORTED, "'", input.value.name, "' is kept in an image, or in another dtype, which ",
                "cannot be mapped: give an array");
  }
  Port &port = ports_[input.storage];
  if (port.mapped) return port.mapped;
  cl_int status = CL_SUCCESS;
  port.mapped = shared_.context.cl->clEnqueueMapBuffer(
      shared_.context.queue.get(), port.memory.get(), CL_TRUE, CL_MAP_WRITE, 0, storage.bytes, 0, nullptr, nullptr,
      &status);
  check(status, "mapping '", input.value.name, "'");
  return port.mapped;
}

void Frame::unmap(Port &port) {
  if (!port.mapped) return;
  shared_.context.cl->clEnqueueUnmapMemObject(
      shared_.context.queue.get(), port.memory.get(), port.mapped, 0, nullptr, nullptr);
  port.mapped = nullptr;
}

void Frame::upload(const imgconv_array *inputs, bool keep) {
  const std::vector<Input> &values = shared_.plan.inputs;
  if (!inputs && !values.empty()) throw Error(IMGCONV_ERROR_ARGUMENT, "inputs is NULL");
  for (size_t number = 0; number < values.size(); ++number) {
    if (inputs[number].video_frame) {
      if (!shared_.plan.frame || shared_.plan.frame->input != number) {
        throw Error(IMGCONV_ERROR_ARGUMENT, "input '", values[number].value.name,
                    "' takes no video frame: compile the model with --picture");
      }
      continue;
    }
    check_array(shared_.context, values[number].value, inputs[number], false);
    if (values[number].exact && !inputs[number].memory) check_exact(values[number].value, inputs[number].data);
  }
  move_integers(inputs);
  for (size_t number = 0; number < values.size(); ++number) upload_input(values[number], inputs[number], keep);
}

void Frame::upload_input(const Input &input, const imgconv_array &given, bool keep) {
  const Storage &storage = shared_.plan.storages[input.storage];
  Port &port = ports_[input.storage];
  const bool filled = port.mapped && given.data == port.mapped;
  unmap(port);
  if (given.video_frame) return upload_video_frame(input, *given.video_frame, keep);
  if (filled) return;
  if (given.memory) {
    if (input.converted || storage.is_image()) {
      throw Error(IMGCONV_ERROR_ARGUMENT, "input '", input.value.name, "' cannot be a buffer: give an array");
    }
    return copy_buffer(static_cast<cl_mem>(given.memory), port.memory.get(), storage);
  }
  if (input.converted) {
    to_float(input.value, given.data, reinterpret_cast<float *>(port.staged.data()));
  } else if (keep && storage.bytes) {
    std::memcpy(port.staged.data(), given.data, storage.bytes);
  }
  shared_.memory.upload(storage, port.memory, input.converted || keep ? port.staged.data() : given.data);
}

void Frame::upload_video_frame(const Input &input, const imgconv_video_frame &frame, bool keep) {
  if (!frame_upload_) {
    const Memory &result = ports_[input.storage].memory;
    frame_upload_ = std::make_unique<FrameUpload>(shared_.context, shared_.frame_program, result);
  }
  const cl_mem given = static_cast<cl_mem>(frame.planes[0].memory);
  shared_.external.acquire(given);
  frame_upload_->enqueue(*shared_.plan.frame, frame, keep);
  shared_.external.give_back(given);
}

void Frame::move_integers(const imgconv_array *inputs) {
  const Plan &plan = shared_.plan;
  for (size_t number = 0; number < plan.outputs.size(); ++number) {
    const Output &output = plan.outputs[number];
    moved_[number].resize(output.moved.size() * dtype_bytes(output.value.dtype));
    for (size_t i = 0; i < output.moved.size(); ++i) {
      const auto [from, element] = output.moved[i];
      const Value *source = from < 0 ? nullptr : &plan.inputs[static_cast<size_t>(from)].value;
      if (source && (inputs[from].memory || inputs[from].video_frame)) {
        throw Error(IMGCONV_ERROR_ARGUMENT, "input '", source->name, "' reaches output '", output.value.name,
                    "' through the host: give it as an array");
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
    const imgconv_array given = outputs ? outputs[number] : imgconv_array{};
    if (given.memory && (!output.is_stored || output.converted)) {
      throw Error(IMGCONV_ERROR_ARGUMENT, "output '", output.value.name, "' cannot go to a buffer: give an array");
    }
    if (!output.is_stored || (outputs && !given.data && !given.memory)) continue;
    const Storage &storage = plan.storages[output.storage];
    Port &port = ports_[output.storage];
    if (given.memory) {
      copy_buffer(port.memory.get(), static_cast<cl_mem>(given.memory), storage);
    } else {
      const bool direct = given.data && !output.converted;
      shared_.memory.download(storage, port.memory, direct ? given.data : port.staged.data());
    }
  }
}

void Frame::fetch(const imgconv_array *outputs, bool downloaded) const {
  const Plan &plan = shared_.plan;
  for (size_t number = 0; number < plan.outputs.size(); ++number) {
    const Output &output = plan.outputs[number];
    void *data = outputs[number].data;
    if (outputs[number].memory || !data || !output.value.bytes()) continue;
    const std::vector<uint8_t> &made = output.is_stored       ? ports_[output.storage].staged
                                       : output.moved.empty() ? output.constant
                                                              : moved_[number];
    if (output.converted) from_float(output.value, reinterpret_cast<const float *>(made.data()), data);
    else if (!output.is_stored || !downloaded) std::memcpy(data, made.data(), made.size());
  }
}

// Gives all storages whose content is not constant, and their memory.
template <class Work>
void Frame::for_each_variable(Work work) const {
  for (const Variable &each : shared_.memory.variables()) work(each.storage, each.memory);
  for (size_t number = 0; number < ports_.size(); ++number) {
    if (ports_[number].memory) work(shared_.plan.storages[number], ports_[number].memory);
  }
}

void Frame::overwrite(uint8_t value) {
  for_each_variable([&](const Storage &storage, const Memory &memory) { shared_.memory.fill(storage, memory, value); });
}

std::vector<uint32_t> Frame::checksums() const {
  std::vector<uint32_t> found;
  std::vector<uint8_t> content;
  for_each_variable([&](const Storage &storage, const Memory &memory) {
    content.resize(storage.bytes);
    shared_.memory.download(storage, memory, content.data());
    shared_.context.finish("a test of replayed launches");
    found.push_back(crc32({content.data(), content.size()}));
  });
  return found;
}

void Frame::upload_drawn(uint32_t seed) {
  for (const Input &input : shared_.plan.inputs) {
    Port &port = ports_[input.storage];
    for (size_t i = 0; i < port.staged.size(); ++i) {
      if (i % 4 == 0) seed = seed * 1664525u + 1013904223u;
      port.staged[i] = seed >> 31 ? 0x3C : 0;  // in each byte: 0.011 in float32, 1.06 in float16, 60 in uint8
    }
    shared_.memory.upload(shared_.plan.storages[input.storage], port.memory, port.staged.data());
  }
}

void Frame::copy_buffer(cl_mem source, cl_mem destination, const Storage &storage) const {
  if (!storage.bytes) return;
  for (const cl_mem each : {source, destination}) shared_.external.acquire(each);
  check(shared_.context.cl->clEnqueueCopyBuffer(
            shared_.context.queue.get(), source, destination, 0, 0, storage.bytes, 0, nullptr, nullptr),
        "copying '", storage.name, "'");
  for (const cl_mem each : {source, destination}) shared_.external.give_back(each);
}

void check_array(const Context &context, const Value &value, const imgconv_array &array, bool optional) {
  if (!array.data && !array.memory) {
    if (optional || !value.bytes()) return;
    throw Error(IMGCONV_ERROR_ARGUMENT, "'", value.name, "' is missing");
  }
  if (array.bytes != value.bytes()) {
    throw Error(IMGCONV_ERROR_ARGUMENT, "'", value.name, "' takes ", value.bytes(), " bytes, ", dtype_name(value.dtype),
                ", not ", array.bytes);
  }
  if (!array.memory) return;
  size_t size = 0;
  cl_mem buffer = static_cast<cl_mem>(array.memory);
  check(context.cl->clGetMemObjectInfo(buffer, CL_MEM_SIZE, sizeof size, &size, nullptr), "'", value.name, "'");
  if (size < array.bytes) {
    throw Error(IMGCONV_ERROR_ARGUMENT, "the buffer of '", value.name, "' has ", size, " bytes");
  }
}

}  // namespace imgconv
