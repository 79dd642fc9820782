#include "model.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "check.h"
#include "error.h"
#include "frame_check.h"
#include "outcome.h"
#include "tuning.h"

namespace imgconv {
namespace {

constexpr const char *ADVICE = "Update the driver, or choose another device; imgconv_check has a report to send us";
constexpr uint32_t MOST_FRAMES = 64, USUAL_FRAMES = 2;

Context open(const Settings &settings) {
  if (settings.frames > MOST_FRAMES) throw Error(IMGCONV_ERROR_ARGUMENT, "options.frames is over 64");
  std::shared_ptr<const Opencl> cl = Opencl::load();
  const std::vector<DeviceInfo> devices = list_devices(*cl);
  const char *const choice = settings.has_device ? settings.device.c_str() : nullptr;
  if (settings.priority < IMGCONV_PRIORITY_DEFAULT || settings.priority > IMGCONV_PRIORITY_LOW) {
    throw Error(IMGCONV_ERROR_ARGUMENT, "options.priority is no imgconv_priority");
  }
  return open_device(cl, select_device(devices, choice), settings.profile, settings.priority);
}

// Takes the next form of the launches of these checks. Returns whether each has one, and there are any.
bool take_next(const Plan &plan, const std::vector<uint32_t> &checks, Forms &forms) {
  for (const uint32_t number : checks) {
    uint32_t &form = forms[number];
    const std::optional<uint32_t> next = plan.checks[number].form_after(form);
    if (!next) return false;
    form = *next;
  }
  return !checks.empty();
}

// The driver loses launches: no other plan helps.
struct LostLaunches : Error {
  using Error::Error;
};

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

Model::Model(const File &file, const Settings &settings, const Activity &activity)
    : activity_(activity), description_(file.description()),
      context_(open(settings)), external_(context_) {
  on_device([&] {
    choose_plan(file, settings);
    prepare(settings);
  });
}

// Takes the first plan whose kernels the driver builds, and computes rightly.
void Model::choose_plan(const File &file, const Settings &settings) {
  PlanChoice plans(file, context_.info, settings.shapes);
  while (!first_) {
    const Plan plan = plans.next();
    try {
      prove(file, settings, plan, plans.none_waits());
    } catch (const LostLaunches &) {
      throw;
    } catch (const Error &problem) {
      first_.reset();
      plans.reject(problem);
    }
  }
  for (KernelText &each : plan_.kernels) each.text.clear();  // they are not needed any more
}

// Builds a plan. On a driver that nobody has proved, launches that are wrong are replaced; then, if it is wanted, by
// faster ones, and by other build options. The outcome is kept.
void Model::prove(const File &file, const Settings &settings, Plan plan, bool is_last) {
  const bool is_wanted = (!plan.checks.empty() || plan.frame) && (settings.check || settings.tune_ms);
  Outcome known;
  if (is_wanted) known = read_outcome(settings.cache_folder, context_.info, file.checksum(), plan);
  const Outcome before = known;
  bool check = is_wanted && settings.check && !known.checked && !is_tested_driver(context_.info);
  bool is_tuned = !is_wanted || !settings.tune_ms || known.tuned, try_options = !is_tuned;
  if (known.options) plan.take(*known.options);
  std::chrono::steady_clock::time_point end;  // of the tuning
  std::vector<BuiltProgram> built;
  std::vector<uint32_t> replaced;
  const auto drop_options = [&] {
    known.options = BuildOptions();
    plan.take(*known.options);
    built.clear();
  };
  while (true) {
    plan_ = plan;
    plan_.take(known.forms);
    try {
      build(file, settings, is_last, built);
    } catch (const Error &) {
      if (activity_.is_cancelled()) throw;
      if (plan.build_options != BuildOptions()) {  // the driver may refuse them
        drop_options();
      } else if (!take_next(plan, replaced, known.forms)) {
        throw;
      }
      continue;
    }
    built = programs_->all();
    if (check) {
      if (plan.build_options != BuildOptions() && !are_right(*shared_, *first_, activity_)) {
        drop_options();
        continue;
      }
      replaced = wrong_launches();
      if (take_next(plan, replaced, known.forms)) continue;
      check_frame_kernel();
      has_run_ = plan_.is_covered();
      known.checked = true;
      check = false;
    }
    if (!is_tuned) {
      const std::chrono::milliseconds budget(settings.tune_ms);
      end = std::chrono::steady_clock::now() + budget;
      Tuned found = tune(*shared_, *first_, file, settings.cache_folder, budget, activity_);
      is_tuned = known.tuned = true;
      if (found.forms != known.forms) {
        known.forms = std::move(found.forms);
        built.insert(built.end(), found.programs.begin(), found.programs.end());
        continue;
      }
    }
    if (!try_options) break;
    try_options = false;
    TunedOptions found = tune_options(*shared_, *first_, file, settings.cache_folder, end, activity_);
    if (found.programs.empty()) break;
    known.options = found.options;
    plan.take(found.options);
    built = std::move(found.programs);
  }
  const bool is_new = known.checked != before.checked || known.tuned != before.tuned || known.options != before.options;
  if (is_wanted && is_new) {
    write_outcome(settings.cache_folder, context_.info, file.checksum(), plan, known);
  }
}

void Model::build(
    const File &file, const Settings &settings, bool is_last, const std::vector<BuiltProgram> &known) {
  first_.reset();
  has_run_ = false;
  activity_.restart();
  programs_ = std::make_unique<Programs>(context_, &file, plan_, is_last, settings.cache_folder, activity_, known);
  for (Output &output : plan_.outputs) {
    if (!output.is_constant()) continue;
    const Span content = file.checked_blob(output.blob);
    output.constant.assign(content.data, content.data + content.bytes);
  }
  memory_ = std::make_unique<DeviceMemory>(context_, file, plan_);
  frame_program_ = std::make_unique<FrameProgram>(context_, plan_, settings.cache_folder, activity_);
  shared_.reset(new Shared{context_, plan_, *memory_, *programs_, *frame_program_, external_});
  first_ = std::make_unique<Frame>(*shared_);
}

// The numbers of the checks whose launches are wrong. Throws Error if nothing can replace one.
std::vector<uint32_t> Model::wrong_launches() {
  std::vector<uint32_t> wrong;
  for (const Finding &each : check_launches(*shared_, *first_, activity_)) {
    if (each.verdict != Verdict::wrong) continue;
    const auto number = static_cast<uint32_t>(each.check);
    const std::string about = join(context_.info.name, ", driver ", context_.info.driver_version);
    if (each.again) {
      throw LostLaunches(IMGCONV_ERROR_WRONG, describe(plan_, each), ". Repeated, it is right: ", about,
                         " loses launches. ", ADVICE);
    }
    const auto taken = plan_.forms.find(number);
    if (!plan_.checks[number].form_after(taken == plan_.forms.end() ? 0 : taken->second)) {
      throw Error(IMGCONV_ERROR_WRONG, describe(plan_, each), ". ", about,
                  " computes it wrongly with this kernel and every alternative. ", ADVICE);
    }
    wrong.push_back(number);
  }
  return wrong;
}

// Throws Error if the kernel that reads video frames is wrong: there is no other one.
void Model::check_frame_kernel() const {
  const std::string problem = check_video_frames(*shared_, *first_, activity_);
  if (problem.empty()) return;
  throw Error(IMGCONV_ERROR_WRONG, frame_launch_of(plan_), ": ", problem, ". ", context_.info.name, ", driver ",
              context_.info.driver_version, " computes it wrongly. ", ADVICE);
}

void Model::prepare(const Settings &settings) {
  test_replay();
  flights_.resize(settings.frames ? settings.frames : USUAL_FRAMES);
  for (size_t number = 0; number < settings.frames; ++number) flights_[number].frame = new_frame();
  if (programs_->have_new()) {
    if (!has_run_) run_each();
    activity_.advance(IMGCONV_PHASE_RUN, first_->launches().size(), first_->launches().size());
    programs_->keep();
  }
  programs_->forget_sources();
  reset();
}

// Waits for each launch, so that one that hangs is named.
void Model::run_each() {
  size_t done = 0;
  for (const BoundLaunch &each : first_->launches()) {
    activity_.advance(IMGCONV_PHASE_RUN, done++, first_->launches().size());
    const auto doing = activity_.begin("launch '" + each.launch->name + "'");
    each.enqueue(context_, nullptr);
    context_.finish("launch '", each.launch->name, "', kernel k", each.launch->kernel);
  }
  has_run_ = true;
}

Model::~Model() { context_.cl->clFinish(context_.queue.get()); }

// A driver's recording is used if it leaves in all memory what plain launches leave there.
void Model::test_replay() {
  first_->record_launches();
  if (!first_->is_recorded()) return;
  const std::vector<uint32_t> expected = checksums_of_a_run(false);
  try {
    trusted_ = checksums_of_a_run(true) == expected;
  } catch (const Error &) {
    context_.finish("a test of replayed launches");
  }
  if (!trusted_) first_->forget_recording();
  first_->overwrite(0);
}

// Of all memory that the launches write, which held other numbers before.
std::vector<uint32_t> Model::checksums_of_a_run(bool replayed) {
  first_->overwrite(OVERWRITTEN);
  memory_->clear_states();
  first_->upload_drawn(0);
  replayed ? first_->enqueue() : run_each();
  return first_->checksums();
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

cl_mem Model::import_dma_buf(int descriptor, size_t bytes) {
  const std::lock_guard<std::mutex> turn(lock_);
  return external_.import_dma_buf(descriptor, bytes);
}

cl_mem Model::import_hardware_buffer(void *buffer, size_t bytes) {
  const std::lock_guard<std::mutex> turn(lock_);
  return external_.import_hardware_buffer(buffer, bytes);
}

void Model::release_memory(cl_mem memory) {
  const std::lock_guard<std::mutex> turn(lock_);
  external_.release(memory);
}

void Model::run(const imgconv_array *inputs, const imgconv_array *outputs) {
  const std::lock_guard<std::mutex> turn(lock_);
  check_outputs(outputs);
  on_device([&] {
    first_->upload(inputs, false);
    has_run_ ? first_->enqueue() : run_each();
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

uint64_t Model::submit(const imgconv_array *inputs, const uint64_t *tag) {
  const std::lock_guard<std::mutex> turn(lock_);
  Flight &flight = free_flight();
  on_device([&] {
    flight.frame->upload(inputs, true);
    flight.frame->enqueue();
    flight.frame->download(nullptr);
    flight.over = context_.mark("a frame");
  });
  context_.cl->clFlush(context_.queue.get());
  flight.number = ++submitted_;
  flight.tag = tag ? *tag : flight.number;
  return flight.number;
}

void Model::wait(uint64_t number, const imgconv_array *outputs) {
  std::unique_lock<std::mutex> turn(lock_);
  const auto found = std::find_if(flights_.begin(), flights_.end(), [&](const Flight &each) {
    return number && each.number == number && !each.taken;
  });
  if (found == flights_.end()) {
    throw Error(IMGCONV_ERROR_ARGUMENT, "frame ", number, " is not in flight");
  }
  wait_for(*found, turn, outputs);
}

void Model::wait_next(std::atomic<uint64_t> &tag, const imgconv_array *outputs) {
  std::unique_lock<std::mutex> turn(lock_);
  const auto later = [](const Flight &a, const Flight &b) {
    return (a.number && !a.taken ? a.number : UINT64_MAX) < (b.number && !b.taken ? b.number : UINT64_MAX);
  };
  Flight &first = *std::min_element(flights_.begin(), flights_.end(), later);
  if (!first.number || first.taken) throw Error(IMGCONV_ERROR_ARGUMENT, "no frame is in flight");
  tag = first.tag;
  wait_for(first, turn, outputs);
}

// turn: of the lock, which is released while it waits.
void Model::wait_for(Flight &flight, std::unique_lock<std::mutex> &turn, const imgconv_array *outputs) {
  flight.taken = true;
  const Event over = flight.over;
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
  } release{flight};
  const cl_int failed = context_.outcome(over);  // clWaitForEvents says only that something did
  check(failed ? failed : status, "frame ", flight.number);
  check_outputs(outputs);
  for (size_t i = 0; i < plan_.outputs.size(); ++i) {
    if (outputs[i].memory) throw Error(IMGCONV_ERROR_ARGUMENT, "outputs in OpenCL buffers need imgconv_run");
  }
  flight.frame->fetch(outputs, false);
}

void Model::reset() {
  const std::lock_guard<std::mutex> turn(lock_);
  memory_->clear_states();
  context_.finish("clearing the states");
}

std::vector<double> Model::profile(const imgconv_array *inputs) {
  const std::lock_guard<std::mutex> turn(lock_);
  if (!context_.profile) throw Error(IMGCONV_ERROR_ARGUMENT, "the model was opened without options.profile");
  std::vector<Event> events;
  on_device([&] {
    first_->upload(inputs, false);
    events = first_->enqueue_timed();
    context_.finish("a run");
  });
  std::vector<double> seconds;
  for (const Event &each : events) {
    cl_ulong start = 0, end = 0;
    const auto get = context_.cl->clGetEventProfilingInfo;
    check(get(each.get(), CL_PROFILING_COMMAND_START, sizeof start, &start, nullptr), "a launch's time");
    check(get(each.get(), CL_PROFILING_COMMAND_END, sizeof end, &end, nullptr), "a launch's time");
    seconds.push_back(static_cast<double>(end - start) * 1e-9);
  }
  return seconds;
}

std::string Model::check_all(size_t &wrong) {
  const std::lock_guard<std::mutex> turn(lock_);
  std::string text;
  on_device([&] {
    Frame frame(*shared_);  // the caller may have mapped inputs of the others
    const std::string frames = check_video_frames(*shared_, frame, activity_);
    const std::vector<Finding> found = check_launches(*shared_, frame, activity_);
    const auto is_wrong = [](const Finding &each) { return each.verdict == Verdict::wrong; };
    wrong = static_cast<size_t>(std::count_if(found.begin(), found.end(), is_wrong)) + !frames.empty();
    text = report(context_, plan_, found, frames);
    memory_->clear_states();
    context_.finish("clearing the states");
  });
  return text;
}

}  // namespace imgconv
