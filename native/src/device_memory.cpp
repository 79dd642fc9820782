#include "device_memory.h"

#include <algorithm>
#include <set>

#include "error.h"

namespace imgconv {
namespace {

cl_image_format format_of(imgconv_dtype dtype) {
  const cl_channel_type type = dtype == IMGCONV_FLOAT32   ? CL_FLOAT
                               : dtype == IMGCONV_FLOAT16 ? CL_HALF_FLOAT
                               : dtype == IMGCONV_INT8    ? CL_SNORM_INT8
                                                          : CL_UNORM_INT8;
  return {CL_RGBA, type};
}

std::string size_text(const Storage &storage) {
  return "'" + storage.name + "', " + std::to_string(storage.width) + "x" + std::to_string(storage.height) + "x" +
         std::to_string(storage.layers) + " texels";
}

constexpr size_t ORIGIN[3] = {0, 0, 0};

}  // namespace

DeviceMemory::DeviceMemory(const Context &context, const File &file, const Plan &plan)
    : context_(context), plan_(plan), memory_(plan.storages.size()) {
  const Opencl &cl = *context.cl;
  if (plan.workspace_bytes) {
    workspace_ = new_buffer(plan.workspace_bytes, "the workspace");
    const cl_uchar zero = 0;
    check(cl.clEnqueueFillBuffer(context.queue.get(), workspace_.get(), &zero, 1, 0, plan.workspace_bytes, 0, nullptr,
                                 nullptr), "filling the workspace");
  }
  for (const Storage &slot : plan.slots) {
    slots_.push_back(new_exchanged(slot));
    fill(slot, slots_.back());
  }
  std::set<uint32_t> exchanged;
  for (const Input &input : plan.inputs) exchanged.insert(input.storage);
  for (const Output &output : plan.outputs) {
    if (!output.is_constant) exchanged.insert(output.storage);
  }
  for (uint32_t number = 0; number < plan.storages.size(); ++number) {
    const Storage &storage = plan.storages[number];
    if (exchanged.count(number)) continue;
    if (storage.place == Place::workspace) {
      memory_[number] = image_in_workspace(storage);
    } else if (storage.place == Place::slot) {
      memory_[number] = slots_[storage.slot];
    } else {
      memory_[number] = new_exchanged(storage);
      if (storage.content >= 0) {
        upload(storage, memory_[number], file.checked_blob(static_cast<uint32_t>(storage.content)).data);
      } else if (storage.bytes) {
        fill(storage, memory_[number]);
      }
    }
  }
  check(cl.clFinish(context.queue.get()), "allocating the memory of the plan");
}

Memory DeviceMemory::new_exchanged(const Storage &storage) const {
  return storage.is_image() ? new_image(storage) : new_buffer(std::max<uint64_t>(storage.bytes, 4), storage.name);
}

Memory DeviceMemory::new_image(const Storage &storage) const {
  const cl_image_format format = format_of(storage.dtype);
  cl_image_desc description{};
  description.image_type = storage.layers > 1 ? CL_MEM_OBJECT_IMAGE2D_ARRAY : CL_MEM_OBJECT_IMAGE2D;
  description.image_width = storage.width;
  description.image_height = storage.height;
  description.image_array_size = storage.layers > 1 ? storage.layers : 0;
  cl_int status = CL_SUCCESS;
  cl_mem made = context_.cl->clCreateImage(
      context_.handle.get(), CL_MEM_READ_WRITE, &format, &description, nullptr, &status);
  check(status, "image " + size_text(storage));
  return Memory(made, context_.cl->clReleaseMemObject);
}

Memory DeviceMemory::new_buffer(uint64_t bytes, const std::string &name) const {
  cl_int status = CL_SUCCESS;
  cl_mem made = context_.cl->clCreateBuffer(
      context_.handle.get(), CL_MEM_READ_WRITE, static_cast<size_t>(bytes), nullptr, &status);
  check(status, "a buffer of " + std::to_string(bytes) + " bytes for " + name);
  return Memory(made, context_.cl->clReleaseMemObject);
}

// cl_khr_image2d_from_buffer.
Memory DeviceMemory::image_in_workspace(const Storage &storage) const {
  const cl_buffer_region region{storage.offset, storage.linear ? storage.bytes : storage.row_bytes * storage.height};
  const auto release = context_.cl->clReleaseMemObject;
  cl_int status = CL_SUCCESS;
  cl_mem part = context_.cl->clCreateSubBuffer(
      workspace_.get(), CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, &region, &status);
  check(status, "the part of the workspace for " + size_text(storage));
  Memory buffer(part, release);
  if (storage.linear) return buffer;
  const cl_image_format format = format_of(storage.dtype);
  cl_image_desc description{};
  description.image_type = CL_MEM_OBJECT_IMAGE2D;
  description.image_width = storage.width;
  description.image_height = storage.height;
  description.image_row_pitch = storage.row_bytes;
  description.buffer = part;
  cl_mem made = context_.cl->clCreateImage(
      context_.handle.get(), CL_MEM_READ_WRITE, &format, &description, nullptr, &status);
  check(status, "image in a buffer " + size_text(storage));
  // The part must outlive the image; not every driver retains it.
  return Memory(made, [release, buffer](cl_mem image) { release(image); });
}

void DeviceMemory::fill(const Storage &storage, const Memory &image) const {
  if (!storage.is_image()) {
    const cl_uchar zero = 0;
    check(context_.cl->clEnqueueFillBuffer(
              context_.queue.get(), image.get(), &zero, 1, 0, storage.bytes, 0, nullptr, nullptr),
          "filling '" + storage.name + "'");
    return;
  }
  const cl_float zeros[4] = {0, 0, 0, 0};
  const size_t region[3] = {storage.width, storage.height, storage.layers};
  check(context_.cl->clEnqueueFillImage(
            context_.queue.get(), image.get(), zeros, ORIGIN, region, 0, nullptr, nullptr),
        "filling image " + size_text(storage));
}

void DeviceMemory::clear_states() const {
  for (size_t number = 0; number < memory_.size(); ++number) {
    const Storage &storage = plan_.storages[number];
    if (storage.state) fill(storage, memory_[number]);
  }
}

void DeviceMemory::upload(const Storage &storage, const Memory &memory, const void *content) const {
  if (!storage.bytes) return;
  const Opencl &cl = *context_.cl;
  const size_t region[3] = {storage.width, storage.height, storage.layers};
  cl_command_queue queue = context_.queue.get();
  const cl_int status =
      storage.is_image()
          ? cl.clEnqueueWriteImage(queue, memory.get(), CL_FALSE, ORIGIN, region, 0, 0, content, 0, nullptr, nullptr)
          : cl.clEnqueueWriteBuffer(queue, memory.get(), CL_FALSE, 0, storage.bytes, content, 0, nullptr, nullptr);
  check(status, "uploading '" + storage.name + "'");
}

void DeviceMemory::download(const Storage &storage, const Memory &memory, void *content) const {
  if (!storage.bytes) return;
  const Opencl &cl = *context_.cl;
  const size_t region[3] = {storage.width, storage.height, storage.layers};
  cl_command_queue queue = context_.queue.get();
  const cl_int status =
      storage.is_image()
          ? cl.clEnqueueReadImage(queue, memory.get(), CL_FALSE, ORIGIN, region, 0, 0, content, 0, nullptr, nullptr)
          : cl.clEnqueueReadBuffer(queue, memory.get(), CL_FALSE, 0, storage.bytes, content, 0, nullptr, nullptr);
  check(status, "downloading '" + storage.name + "'");
}

}  // namespace imgconv
