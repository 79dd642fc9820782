#include "recording.h"

#include <algorithm>

#include "error.h"

namespace imgconv {
namespace {

// Intel's CPU driver (2026.22) leaks 2 KB for each launch that it replays, and 10 KB for each that it records. Launches
// one by one leak nothing there, and take as long.
constexpr const char *LEAKING_PLATFORM = "Intel(R) OpenCL";
constexpr const char *COMMAND_BUFFER = "cl_khr_command_buffer", *RECORDABLE_QUEUES = "cl_qcom_recordable_queues";
// cl_ext.h and Qualcomm's cl_ext_qcom.h.
constexpr cl_device_info QUEUE_PROPERTIES_REQUIRED = 0x12AA, RECORDING_MAX_SIZE = 0x41DE;
constexpr cl_command_queue_properties QUEUE_RECORDABLE = cl_command_queue_properties(1) << 30;

using Handle = void *;

// A function of an extension. Throws Error if the driver lacks it.
template <class Function>
Function *extension_function(const Context &context, const char *name) {
  void *found = context.cl->clGetExtensionFunctionAddressForPlatform(context.info.platform_id, name);
  if (!found) throw Error(IMGCONV_ERROR_DEVICE, "the driver lacks ", name);
  return reinterpret_cast<Function *>(found);
}

// The functions that are used here are the same in the provisional versions (PoCL 3.1 has 0.9.0) and in 1.0.0.
class CommandBuffer : public Recording {
 public:
  CommandBuffer(const Context &context, const std::vector<BoundLaunch> &launches)
      : launches_(launches), queue_(context.queue) {
    const auto create = extension_function<Handle(cl_uint, const cl_command_queue *, const void *, cl_int *)>(
        context, "clCreateCommandBufferKHR");
    const auto add = extension_function<cl_int(
        Handle, void *, const void *, cl_kernel, cl_uint, const size_t *, const size_t *, const size_t *, cl_uint,
        const void *, void *, void *)>(context, "clCommandNDRangeKernelKHR");
    const auto finalize = extension_function<cl_int(Handle)>(context, "clFinalizeCommandBufferKHR");
    enqueue_ = extension_function<Enqueue>(context, "clEnqueueCommandBufferKHR");
    const auto release = extension_function<cl_int(Handle)>(context, "clReleaseCommandBufferKHR");
    if (device_number<cl_command_queue_properties>(*context.cl, context.info.device_id, QUEUE_PROPERTIES_REQUIRED)) {
      throw Error(IMGCONV_ERROR_DEVICE, "command buffers need an out-of-order or a profiled queue here");
    }
    cl_command_queue queue = context.queue.get();
    handle_ = own("clCreateCommandBufferKHR", release, create, 1u, &queue, nullptr);
    for (const BoundLaunch &each : launches) {
      check(add(handle_.get(), nullptr, nullptr, each.kernel.get(), each.dimensions(), nullptr, each.global_size(),
                each.local_size(), 0, nullptr, nullptr, nullptr), "clCommandNDRangeKernelKHR");
    }
    check(finalize(handle_.get()), "clFinalizeCommandBufferKHR");
  }

  const char *extension() const override { return COMMAND_BUFFER; }

  void replay() override {
    check(enqueue_(0, nullptr, handle_.get(), 0, nullptr, nullptr), "clEnqueueCommandBufferKHR");
  }

 private:
  using Enqueue = cl_int(cl_uint, cl_command_queue *, Handle, cl_uint, const cl_event *, cl_event *);

  // The kernels and the queue must outlive the buffer; not every driver retains them.
  std::vector<BoundLaunch> launches_;
  Queue queue_;
  Enqueue *enqueue_ = nullptr;
  std::shared_ptr<void> handle_;
};

// Recordings each as long as the device allows.
class RecordedQueue : public Recording {
 public:
  RecordedQueue(const Context &context, const std::vector<BoundLaunch> &launches)
      : launches_(launches), queue_(context.queue) {
    enqueue_ = extension_function<Enqueue>(context, "clEnqueueRecordingQCOM");
    const size_t longest = device_number<cl_uint>(*context.cl, context.info.device_id, RECORDING_MAX_SIZE);
    if (longest < 1) throw Error(IMGCONV_ERROR_DEVICE, "its recordings hold no launches");
    // The driver refuses the queue if it has any other property too.
    recorder_ = own("a queue for recordings", context.cl->clReleaseCommandQueue, context.cl->clCreateCommandQueue,
                    context.handle.get(), context.info.device_id, QUEUE_RECORDABLE);
    for (size_t start = 0; start < launches.size(); start += longest) {
      add(context, start, std::min(start + longest, launches.size()));
    }
  }

  const char *extension() const override { return RECORDABLE_QUEUES; }

  void replay() override {
    for (const std::shared_ptr<void> &each : handles_) {
      check(enqueue_(queue_.get(), each.get(), 0, nullptr, 0, nullptr, 0, nullptr, 0, nullptr, 0, nullptr, nullptr),
            "clEnqueueRecordingQCOM");
    }
  }

 private:
  using Enqueue = cl_int(
      cl_command_queue, Handle, size_t, const void *, size_t, const void *, size_t, const void *, size_t, const void *,
      cl_uint, const cl_event *, cl_event *);

  void add(const Context &context, size_t start, size_t end) {
    const auto create = extension_function<Handle(cl_command_queue, cl_int *)>(context, "clNewRecordingQCOM");
    const auto finish = extension_function<cl_int(Handle)>(context, "clEndRecordingQCOM");
    const auto release = extension_function<cl_int(Handle)>(context, "clReleaseRecordingQCOM");
    handles_.push_back(own("clNewRecordingQCOM", release, create, recorder_.get()));
    for (size_t number = start; number < end; ++number) launches_[number].enqueue(context, nullptr, recorder_.get());
    check(finish(handles_.back().get()), "clEndRecordingQCOM");
  }

  std::vector<BoundLaunch> launches_;
  Queue queue_, recorder_;
  Enqueue *enqueue_ = nullptr;
  std::vector<std::shared_ptr<void>> handles_;
};

}  // namespace

void BoundLaunch::enqueue(const Context &context, cl_event *event, cl_command_queue queue) const {
  const cl_int status = context.cl->clEnqueueNDRangeKernel(
      queue ? queue : context.queue.get(), kernel.get(), dimensions(), nullptr, global_size(), local_size(), 0, nullptr,
      event);
  check(status, "launching '", launch->name, "', kernel k", launch->kernel);
}

std::unique_ptr<Recording> record(const Context &context, const std::vector<BoundLaunch> &launches) {
  if (context.profile || launches.empty() || context.info.platform == LEAKING_PLATFORM) return nullptr;
  try {
    if (context.info.has(COMMAND_BUFFER)) return std::make_unique<CommandBuffer>(context, launches);
    if (context.info.has(RECORDABLE_QUEUES)) return std::make_unique<RecordedQueue>(context, launches);
  } catch (const Error &) {
    // The launches are enqueued one by one.
  }
  return nullptr;
}

}  // namespace imgconv
