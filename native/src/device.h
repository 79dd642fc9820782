// Which devices there are, what each can do, and opening one. The same values as imgconv/cl/device.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "opencl.h"

namespace imgconv {

// Image sizes and alignments are in texels, memory in bytes, work sizes in work items.
struct DeviceInfo {
  size_t index = 0;
  std::string platform, name, vendor, kind, driver_version, opencl_version, opencl_c_version;
  uint64_t max_image_width = 0, max_image_height = 0, max_image_layers = 0, max_read_images = 0, max_write_images = 0;
  uint64_t compute_units = 0, max_work_group_size = 0;
  std::vector<size_t> max_work_item_sizes;
  uint64_t local_memory_bytes = 0, global_memory_bytes = 0, max_allocation_bytes = 0;
  bool float_images = false, half_images = false, byte_images = false, shares_memory = false;
  std::vector<std::string> extensions;  // sorted
  uint64_t image_row_alignment = 0, image_base_alignment = 0;  // 0: no images in buffers
  uint64_t buffer_alignment = 128;  // in bytes, of the start of a buffer in a buffer
  uint64_t vector_floats = 16;  // in a register of vectors, if it is a CPU
  std::string instruction_set;  // what the driver compiles for, if it is a CPU
  // Why it cannot be opened, so that float_images, half_images and byte_images are not known; empty if it can.
  std::string problem;
  imgconv_status refused_with = IMGCONV_OK;
  cl_platform_id platform_id = nullptr;
  cl_device_id device_id = nullptr;

  std::string full_name() const;
  // One line that identifies device and driver: the full name and, of a CPU, its instruction set.
  std::string key() const;
  bool has(const std::string &extension) const;
};

// Sorted by platform; empty without a driver.
std::vector<DeviceInfo> list_devices(const Opencl &cl);

// The device that `choice` means: see imgconv_options.device. Throws Error.
const DeviceInfo &select_device(const std::vector<DeviceInfo> &devices, const char *choice);

// The text as one of JSON.
std::string quoted(const std::string &text);

// {"devices": [...]}, each with "default". What is not known of a device is left out, and "problem" says why.
std::string to_json(const std::vector<DeviceInfo> &devices, const DeviceInfo *chosen);

// An opened device with one in-order queue.
struct Context {
  std::shared_ptr<const Opencl> cl;
  DeviceInfo info;
  bool profile = false;
  ContextHandle handle;
  Queue queue;

  // Waits for the queue. what: the parts of a text. Throws Error, also if a command failed.
  template <class... Parts>
  void finish(const Parts &...what) const {
    const Event over = mark(what...);
    check(cl->clFinish(queue.get()), what...);
    check(outcome(over), what...);
  }
  // Waits for the queue when the result is released: declare it after the host memory that the commands use.
  std::shared_ptr<void> finish_at_release() const {
    return {nullptr, [this](void *) { cl->clFinish(queue.get()); }};
  }
  // An event that ends when all that was enqueued before has ended. Throws Error.
  template <class... Parts>
  Event mark(const Parts &...what) const {
    cl_event made = nullptr;
    check(cl->clEnqueueMarkerWithWaitList(queue.get(), 0, nullptr, &made), what...);
    return Event(made, cl->clReleaseEvent);
  }
  // The status of a command that is over: clFinish may be successful though a command failed.
  cl_int outcome(const Event &event) const;
};

// Throws Error if the device has no RGBA float images, or the driver refuses.
Context open_device(
    std::shared_ptr<const Opencl> cl, const DeviceInfo &info, bool profile, imgconv_priority priority);

// A context of one device, with the hints that its driver knows, unless it refuses them: those of a priority, or,
// without one, that which keeps a phone's GPU at a high clock. Throws Error.
ContextHandle new_context(const Opencl &cl, const DeviceInfo &info, imgconv_priority priority);

// A number that clGetDeviceInfo gives; 0 if the driver does not know it.
template <class T>
T device_number(const Opencl &cl, cl_device_id device, cl_device_info parameter) {
  T value{};
  return cl.clGetDeviceInfo(device, parameter, sizeof value, &value, nullptr) == CL_SUCCESS ? value : T{};
}

}  // namespace imgconv
