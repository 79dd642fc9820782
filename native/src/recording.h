// Launches that the driver replays by one call: cl_khr_command_buffer, and cl_qcom_recordable_queues on Adreno.
#pragma once

#include <memory>
#include <vector>

#include "device.h"
#include "plan.h"

namespace imgconv {

// A launch whose arguments are bound.
struct BoundLaunch {
  Kernel kernel;
  const Launch *launch;

  const size_t *global_size() const { return launch->global_size.data(); }
  const size_t *local_size() const { return launch->local_size.empty() ? nullptr : launch->local_size.data(); }
  cl_uint dimensions() const { return static_cast<cl_uint>(launch->global_size.size()); }
  // queue: null for that of the context. event: null for none. Throws Error.
  void enqueue(const Context &context, cl_event *event, cl_command_queue queue = nullptr) const;
};

class Recording {
 public:
  virtual ~Recording() = default;
  virtual const char *extension() const = 0;
  // Enqueues the launches on the context's queue. The last replay must be over. Throws Error.
  virtual void replay() = 0;
};

// Null if the driver has no such extension, leaks or fails, or if launches are timed.
std::unique_ptr<Recording> record(const Context &context, const std::vector<BoundLaunch> &launches);

}  // namespace imgconv
