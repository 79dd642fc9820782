#include "model.h"

#include <algorithm>

#include "error.h"

namespace imgconv {
namespace {

constexpr size_t LAUNCHES_COMPARED = 4;

Context open(const Options &options) {
  std::shared_ptr<const Opencl> cl = Opencl::load();
  const std::vector<DeviceInfo> devices = list_devices(*cl);
  return open_device(cl, select_device(devices, options.has_device ? options.device.c_str() : nullptr), options.profile);
}

}  // namespace

Model::Model(const File &file, const Options &options)
    : context_(open(options)), plan_(choose_plan(file, context_.info)) {
  try {
    prepare(file, options);
  } catch (...) {
    // The device must no longer read the file.
    context_.cl->clFinish(context_.queue.get());
    throw;
  }
}

void Model::prepare(const File &file, const Options &options) {
  for (Output &output : plan_.outputs) {
    if (!output.is_constant) continue;
    const Span content = file.checked_blob(output.blob);
    output.constant.assign(content.data, content.data + content.bytes);
  }
  programs_ = std::make_unique<Programs>(context_, file, plan_, options.cache_folder);
  plan_.kernels.clear();  // the texts are not needed any more
  memory_ = std::make_unique<DeviceMemory>(context_, file, plan_);
  shared_ = std::make_unique<Shared>(context_, plan_, *memory_, *programs_);
  first_ = std::make_unique<Frame>(*shared_);
  flights_.resize(options.frames);
  test_replay();
  if (trusted_) first_->record_launches();
  if (programs_->have_new()) {
    first_->enqueue();
    finish("the first run");
    programs_->keep();
  }
  reset();
}

Model::~Model() {
  context_.cl->clFinish(context_.queue.get());
}

// A driver's recordings are used if they give what plain launches give.
void Model::test_replay() {
  const auto &all = first_->launches();
  const std::vector<BoundLaunch> launches(all.begin(), all.begin() + std::min(all.size(), LAUNCHES_COMPARED));
  const std::unique_ptr<Recording> recording = record(context_, launches);
  if (!recording) return;
  try {
    trusted_ = replays_equally(launches, *recording);
  } catch (const Error &) {
    finish("a test of replayed launches");
  }
}

bool Model::replays_equally(const std::vector<BoundLaunch> &launches, Recording &recording) {
  const Opencl &cl = *context_.cl;
  std::vector<std::vector<uint8_t>> results;
  // The run in the middle leaves other content, so that a replay that does nothing is found.
  for (const auto &[seed, replayed] : {std::pair(0u, false), std::pair(1u, false), std::pair(0u, true)}) {
    first_->upload_drawn(seed);
    if (replayed) recording.replay();
    for (size_t i = 0; !replayed && i < launches.size(); ++i) {
      const BoundLaunch &each = launches[i];
      check(cl.clEnqueueNDRangeKernel(context_.queue.get(), each.kernel.get(), each.dimensions(), nullptr,
                                      each.global_size(), each.local_size(), 0, nullptr, nullptr), "a launch");
    }
    results.push_back(first_->content(launches.back().launch->arguments[0]));
    memory_->clear_states();
  }
  return results[0] == results[2];
}

void Model::finish(const char *what) { check(context_.cl->clFinish(context_.queue.get()), what); }

void Model::check_outputs(const imgconv_array *outputs) const {
  for (size_t number = 0; number < plan_.outputs.size(); ++number) {
    check_array(context_, plan_.outputs[number].value, outputs[number], true);
  }
}

void Model::run(const imgconv_array *inputs, const imgconv_array *outputs) {
  const std::lock_guard<std::mutex> turn(lock_);
  check_outputs(outputs);
  try {
    first_->upload(inputs, false);
    first_->enqueue();
    first_->download(outputs);
    finish("a run");
  } catch (...) {
    // The device must no longer use the caller's arrays.
    context_.cl->clFinish(context_.queue.get());
    throw;
  }
  first_->fetch(outputs, true);
}

Model::Flight &Model::free_flight() {
  for (Flight &each : flights_) {
    if (each.number) continue;
    if (!each.frame) {
      each.frame = std::make_unique<Frame>(*shared_);
      if (trusted_) each.frame->record_launches();
    }
    return each;
  }
  throw Error(IMGCONV_ERROR_BUSY, std::to_string(flights_.size()) + " frames are in flight: wait for one first");
}

uint64_t Model::submit(const imgconv_array *inputs) {
  const std::lock_guard<std::mutex> turn(lock_);
  Flight &flight = free_flight();
  cl_event over = nullptr;
  try {
    flight.frame->upload(inputs, true);
    flight.frame->enqueue();
    flight.frame->download(nullptr);
    check(context_.cl->clEnqueueMarkerWithWaitList(context_.queue.get(), 0, nullptr, &over), "a frame");
  } catch (...) {
    context_.cl->clFinish(context_.queue.get());
    throw;
  }
  flight.over = Event(over, context_.cl->clReleaseEvent);
  context_.cl->clFlush(context_.queue.get());
  return flight.number = ++submitted_;
}

void Model::wait(uint64_t number, const imgconv_array *outputs) {
  std::unique_lock<std::mutex> turn(lock_);
  const auto found = std::find_if(flights_.begin(), flights_.end(), [&](const Flight &each) {
    return number && each.number == number && !each.taken;
  });
  if (found == flights_.end()) {
    throw Error(IMGCONV_ERROR_ARGUMENT, "frame " + std::to_string(number) + " is not in flight");
  }
  found->taken = true;
  const Event over = found->over;
  cl_event event = over.get();
  turn.unlock();  // other threads may submit frames
  const cl_int status = context_.cl->clWaitForEvents(1, &event);
  turn.lock();
  const struct Release {
    Flight &flight;
    ~Release() {
      flight.number = 0;
      flight.taken = false;
      flight.over.reset();
    }
  } release{*found};
  check(status, "frame " + std::to_string(number));
  check_outputs(outputs);
  for (size_t i = 0; i < plan_.outputs.size(); ++i) {
    if (outputs[i].memory) throw Error(IMGCONV_ERROR_ARGUMENT, "outputs in OpenCL buffers need imgconv_run");
  }
  found->frame->fetch(outputs, false);
}

void Model::reset() {
  const std::lock_guard<std::mutex> turn(lock_);
  memory_->clear_states();
  finish("clearing the states");
}

void Model::profile(const imgconv_array *inputs, double *seconds) {
  const std::lock_guard<std::mutex> turn(lock_);
  if (!context_.profile) throw Error(IMGCONV_ERROR_ARGUMENT, "the model was opened without options.profile");
  try {
    first_->upload(inputs, false);
    const std::vector<Event> events = first_->enqueue_timed();
    finish("a run");
    for (size_t i = 0; i < events.size(); ++i) {
      cl_ulong start = 0, end = 0;
      const auto get = context_.cl->clGetEventProfilingInfo;
      check(get(events[i].get(), CL_PROFILING_COMMAND_START, sizeof start, &start, nullptr), "a launch's time");
      check(get(events[i].get(), CL_PROFILING_COMMAND_END, sizeof end, &end, nullptr), "a launch's time");
      seconds[i] = static_cast<double>(end - start) * 1e-9;
    }
  } catch (...) {
    context_.cl->clFinish(context_.queue.get());
    throw;
  }
}

}  // namespace imgconv
