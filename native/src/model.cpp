#include "model.h"

#include <algorithm>

#include "error.h"

namespace imgconv {
namespace {

constexpr size_t LAUNCHES_COMPARED = 4;
constexpr uint32_t MOST_FRAMES = 64, USUAL_FRAMES = 2;

Context open(const imgconv_options &options) {
  if (options.frames > MOST_FRAMES) throw Error(IMGCONV_ERROR_ARGUMENT, "options.frames is over 64");
  std::shared_ptr<const Opencl> cl = Opencl::load();
  const std::vector<DeviceInfo> devices = list_devices(*cl);
  return open_device(cl, select_device(devices, options.device), options.profile != 0);
}

}  // namespace

// What `work` enqueues must no longer use the file or the caller's arrays if it fails.
template <class Work>
void Model::on_device(Work work) {
  try {
    work();
  } catch (...) {
    context_.cl->clFinish(context_.queue.get());
    throw;
  }
}

Model::Model(const File &file, const imgconv_options &options)
    : context_(open(options)), plan_(choose_plan(file, context_.info)) {
  on_device([&] { prepare(file, options); });
}

void Model::prepare(const File &file, const imgconv_options &options) {
  for (Output &output : plan_.outputs) {
    if (!output.is_constant()) continue;
    const Span content = file.checked_blob(output.blob);
    output.constant.assign(content.data, content.data + content.bytes);
  }
  programs_ = std::make_unique<Programs>(context_, file, plan_, options.cache_folder ? options.cache_folder : "");
  plan_.kernels.clear();  // the texts are not needed any more
  memory_ = std::make_unique<DeviceMemory>(context_, file, plan_);
  shared_.reset(new Shared{context_, plan_, *memory_, *programs_});
  first_ = std::make_unique<Frame>(*shared_);
  test_replay();
  if (trusted_) first_->record_launches();
  flights_.resize(options.frames ? options.frames : USUAL_FRAMES);
  for (size_t number = 0; number < options.frames; ++number) flights_[number].frame = new_frame();
  if (programs_->have_new()) {
    first_->enqueue();
    context_.finish("the first run");
    programs_->keep();
  }
  reset();
}

Model::~Model() { context_.cl->clFinish(context_.queue.get()); }

// A driver's recordings are used if they give what plain launches give.
void Model::test_replay() {
  std::vector<BoundLaunch> launches = first_->launches();
  if (launches.size() > LAUNCHES_COMPARED) launches.resize(LAUNCHES_COMPARED);
  const std::unique_ptr<Recording> recording = record(context_, launches);
  if (!recording) return;
  try {
    trusted_ = replays_equally(launches, *recording);
  } catch (const Error &) {
    context_.finish("a test of replayed launches");
  }
}

bool Model::replays_equally(const std::vector<BoundLaunch> &launches, Recording &recording) {
  std::vector<std::vector<uint8_t>> results;
  // The run in the middle leaves other content, so that a replay that does nothing is found.
  for (const auto &[seed, replayed] : {std::pair(0u, false), std::pair(1u, false), std::pair(0u, true)}) {
    first_->upload_drawn(seed);
    if (replayed) recording.replay();
    for (size_t i = 0; !replayed && i < launches.size(); ++i) launches[i].enqueue(context_, nullptr);
    results.push_back(first_->content(launches.back().launch->arguments[0]));
    memory_->clear_states();
  }
  return results[0] == results[2];
}

void Model::check_outputs(const imgconv_array *outputs) const {
  if (!outputs && !plan_.outputs.empty()) throw Error(IMGCONV_ERROR_ARGUMENT, "outputs is NULL");
  for (size_t number = 0; number < plan_.outputs.size(); ++number) {
    check_array(context_, plan_.outputs[number].value, outputs[number], true);
  }
}

void *Model::map_input(size_t number) {
  const std::lock_guard<std::mutex> turn(lock_);
  if (number >= plan_.inputs.size()) throw Error(IMGCONV_ERROR_ARGUMENT, "no input ", number);
  return first_->map(plan_.inputs[number]);
}

void Model::run(const imgconv_array *inputs, const imgconv_array *outputs) {
  const std::lock_guard<std::mutex> turn(lock_);
  check_outputs(outputs);
  on_device([&] {
    first_->upload(inputs, false);
    first_->enqueue();
    first_->download(outputs);
    context_.finish("a run");
  });
  first_->fetch(outputs, true);
}

std::unique_ptr<Frame> Model::new_frame() const {
  auto made = std::make_unique<Frame>(*shared_);
  if (trusted_) made->record_launches();
  return made;
}

Model::Flight &Model::free_flight() {
  for (Flight &each : flights_) {
    if (each.number) continue;
    if (!each.frame) each.frame = new_frame();
    return each;
  }
  throw Error(IMGCONV_ERROR_BUSY, flights_.size(), " frames are in flight: wait for one first");
}

uint64_t Model::submit(const imgconv_array *inputs) {
  const std::lock_guard<std::mutex> turn(lock_);
  Flight &flight = free_flight();
  cl_event over = nullptr;
  on_device([&] {
    flight.frame->upload(inputs, true);
    flight.frame->enqueue();
    flight.frame->download(nullptr);
    check(context_.cl->clEnqueueMarkerWithWaitList(context_.queue.get(), 0, nullptr, &over), "a frame");
  });
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
    throw Error(IMGCONV_ERROR_ARGUMENT, "frame ", number, " is not in flight");
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
  check(status, "frame ", number);
  check_outputs(outputs);
  for (size_t i = 0; i < plan_.outputs.size(); ++i) {
    if (outputs[i].memory) throw Error(IMGCONV_ERROR_ARGUMENT, "outputs in OpenCL buffers need imgconv_run");
  }
  found->frame->fetch(outputs, false);
}

void Model::reset() {
  const std::lock_guard<std::mutex> turn(lock_);
  memory_->clear_states();
  context_.finish("clearing the states");
}

void Model::profile(const imgconv_array *inputs, double *seconds) {
  const std::lock_guard<std::mutex> turn(lock_);
  if (!context_.profile) throw Error(IMGCONV_ERROR_ARGUMENT, "the model was opened without options.profile");
  std::vector<Event> events;
  on_device([&] {
    first_->upload(inputs, false);
    events = first_->enqueue_timed();
    context_.finish("a run");
  });
  for (const Event &each : events) {
    cl_ulong start = 0, end = 0;
    const auto get = context_.cl->clGetEventProfilingInfo;
    check(get(each.get(), CL_PROFILING_COMMAND_START, sizeof start, &start, nullptr), "a launch's time");
    check(get(each.get(), CL_PROFILING_COMMAND_END, sizeof end, &end, nullptr), "a launch's time");
    *seconds++ = static_cast<double>(end - start) * 1e-9;
  }
}

}  // namespace imgconv
