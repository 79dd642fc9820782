#include "device_memory.h"

#include <algorithm>

namespace imgconv {
namespace {

cl_image_format format_of(const Storage &storage) {
  if (storage.integers) return {CL_RGBA, CL_UNSIGNED_INT8};
  switch (storage.dtype) {
    case IMGCONV_FLOAT32: return {CL_RGBA, CL_FLOAT};
    case IMGCONV_FLOAT16: return {CL_RGBA, CL_HALF_FLOAT};
    case IMGCONV_INT8: return {CL_RGBA, CL_SNORM_INT8};
    case IMGCONV_UINT32: return {CL_RGBA, CL_UNSIGNED_INT32};
    default: return {CL_RGBA, CL_UNORM_INT8};
  }
}

std::string size_text(const Storage &storage) {
  return join("'", storage.name, "', ", storage.width, "x", storage.height, "x", storage.layers, " texels");
}

constexpr size_t ORIGIN[3] = {0, 0, 0};
constexpr cl_mem_flags READ_WRITE = CL_MEM_READ_WRITE;
constexpr cl_buffer_create_type REGION = CL_BUFFER_CREATE_TYPE_REGION;

// Enqueues a copy of all of a storage, by the function for its kind. Throws Error.
template <class OfImage, class OfBuffer, class Content>
void copy(const char *what, OfImage of_image, OfBuffer of_buffer, const Context &context, const Storage &storage,
          const Memory &memory, Content content) {
  if (!storage.bytes) return;
  const size_t size[3] = {storage.width, storage.height, storage.layers};
  cl_command_queue queue = context.queue.get();
  check(storage.is_image()
            ? of_image(queue, memory.get(), CL_FALSE, ORIGIN, size, 0, 0, content, 0, nullptr, nullptr)
            : of_buffer(queue, memory.get(), CL_FALSE, 0, storage.bytes, content, 0, nullptr, nullptr),
        what, " '", storage.name, "'");
}

}  // namespace

DeviceMemory::DeviceMemory(const Context &context, const File &file, const Plan &plan)
    : context_(context), plan_(plan), memory_(plan.storages.size()) {
  const auto idle = context.finish_at_release();  // uploads read gathered_, also if an allocation fails
  if (plan.workspace_bytes) {
    Storage storage;
    storage.name = "the workspace";
    storage.bytes = plan.workspace_bytes;
    workspace_ = new_filled(file, storage);
  }
  for (const Storage &slot : plan.slots) slots_.push_back(new_filled(file, slot));
  for (size_t number = 0; number < plan.storages.size(); ++number) {
    const Storage &storage = plan.storages[number];
    if (storage.exchanged || storage.spare) continue;
    if (storage.place == Place::slot) {
      memory_[number] = slots_[storage.slot];
      continue;
    }
    if (storage.place == Place::workspace) memory_[number] = part_of_workspace(storage);
    // What the driver refuses as a part has memory of its own.
    if (!memory_[number]) memory_[number] = new_filled(file, storage);
  }
  context.finish("allocating the memory of the plan");
  gathered_.clear();
}

Memory DeviceMemory::new_filled(const File &file, const Storage &storage) {
  const Memory made = storage.is_image() ? new_image(storage, nullptr) : new_buffer(storage, 0);
  if (storage.content >= 0) {
    const Span blob = file.checked_blob(static_cast<uint32_t>(storage.content));
    if (!storage.view.is_used) {
      upload(storage, made, blob.data);
    } else {
      gathered_.emplace_back();
      if (!gather(storage.view, blob, storage.dtype, gathered_.back())) {
        file.refuse("'", storage.name, "' is not a view of its blob: it is damaged, compile it again");
      }
      upload(storage, made, gathered_.back().data());
    }
  } else {
    fill(storage, made, 0);
    variables_.push_back({storage, made});
  }
  return made;
}

Memory DeviceMemory::new_exchanged(const Storage &storage) const {
  // Where host and device share memory, such a buffer is mapped without a copy.
  const cl_mem_flags flags = context_.info.shares_memory ? CL_MEM_ALLOC_HOST_PTR : 0;
  return storage.is_image() ? new_image(storage, nullptr) : new_buffer(storage, flags);
}

// buffer: null for an image with memory of its own.
Memory DeviceMemory::new_image(const Storage &storage, const Memory &buffer) const {
  const cl_image_format format = format_of(storage);
  cl_image_desc description{};
  description.image_type = storage.layers > 1 ? CL_MEM_OBJECT_IMAGE2D_ARRAY : CL_MEM_OBJECT_IMAGE2D;
  description.image_width = storage.width;
  description.image_height = storage.height;
  description.image_array_size = storage.layers > 1 ? storage.layers : 0;
  description.image_row_pitch = buffer ? storage.row_bytes : 0;
  description.buffer = buffer.get();
  const auto release = context_.cl->clReleaseMemObject;
  // The buffer must outlive the image; not every driver retains it.
  return own("image " + size_text(storage), [release, buffer](cl_mem image) { release(image); },
             context_.cl->clCreateImage, context_.handle.get(), READ_WRITE, &format, &description, nullptr);
}

Memory DeviceMemory::new_buffer(const Storage &storage, cl_mem_flags flags) const {
  const size_t size = std::max<size_t>(storage.bytes, 4);
  return own(join("a buffer of ", size, " bytes for ", storage.name), context_.cl->clReleaseMemObject,
             context_.cl->clCreateBuffer, context_.handle.get(), READ_WRITE | flags, size, nullptr);
}

// Null if the driver refuses it.
Memory DeviceMemory::part_of_workspace(const Storage &storage) const {
  const cl_buffer_region region{storage.offset, storage.linear ? storage.bytes : storage.row_bytes * storage.height};
  try {
    const Memory part = own("the part of the workspace for " + size_text(storage), context_.cl->clReleaseMemObject,
                            context_.cl->clCreateSubBuffer, workspace_.get(), READ_WRITE, REGION, &region);
    return storage.linear ? part : new_image(storage, part);  // by cl_khr_image2d_from_buffer
  } catch (const Error &) {
    return nullptr;
  }
}

void DeviceMemory::fill(const Storage &storage, const Memory &memory, uint8_t value) const {
  if (!storage.bytes) return;
  const Opencl &cl = *context_.cl;
  const cl_float number = value;
  const cl_float texel[4] = {number, number, number, number};
  const cl_uint integers[4] = {value, value, value, value};
  const bool is_integer = storage.integers || storage.dtype == IMGCONV_UINT32;
  const size_t size[3] = {storage.width, storage.height, storage.layers};
  cl_command_queue queue = context_.queue.get();
  check(storage.is_image()
            ? cl.clEnqueueFillImage(queue, memory.get(), is_integer ? static_cast<const void *>(integers) : texel,
                                    ORIGIN, size, 0, nullptr, nullptr)
            : cl.clEnqueueFillBuffer(queue, memory.get(), &value, 1, 0, storage.bytes, 0, nullptr, nullptr),
        "filling '", storage.name, "'");
}

void DeviceMemory::clear_states() const {
  for (size_t number = 0; number < memory_.size(); ++number) {
    if (plan_.storages[number].state) fill(plan_.storages[number], memory_[number], 0);
  }
}

void DeviceMemory::upload(const Storage &storage, const Memory &memory, const void *content) const {
  const Opencl &cl = *context_.cl;
  copy("uploading", cl.clEnqueueWriteImage, cl.clEnqueueWriteBuffer, context_, storage, memory, content);
}

void DeviceMemory::download(const Storage &storage, const Memory &memory, void *content) const {
  const Opencl &cl = *context_.cl;
  copy("downloading", cl.clEnqueueReadImage, cl.clEnqueueReadBuffer, context_, storage, memory, content);
}

}  // namespace imgconv
