#include "tuning.h"

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "check.h"
#include "error.h"

namespace imgconv {
namespace {

using Clock = std::chrono::steady_clock;

// Rounds in which two forms take turns, the seconds of one, and the most launches in it.
constexpr int ROUNDS = 5;
constexpr double SECONDS_OF_A_ROUND = 2e-3, MOST_LAUNCHES = 100;
// What an alternative may take of the present form's time: a difference below is noise.
constexpr double FASTER = 0.95;
// An alternative that takes this many times as long in the first round is not timed again.
constexpr double HOPELESS = 1.5;

// Options of Qualcomm's compiler, whose effect differs from device to device: full or half waves,
// -qcom-accelerate-16-bit=true or =false, and one kernel per program.
constexpr const char *QUALCOMM = "QUALCOMM Snapdragon(TM)";
constexpr BuildOptions OPTIONS[] = {{1, 0, false}, {2, 0, false}, {0, 1, false}, {0, 2, false}, {0, 0, true}};

using Launches = std::vector<BoundLaunch>;

double seconds_of(const Context &context, const Launches &launches, int times) {
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < times; ++i) {
    for (const BoundLaunch &each : launches) each.enqueue(context, nullptr);
  }
  context.finish("the tuning of launches");
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Of as many in a row as a round holds.
double mean_of(const Context &context, const Launches &launches) {
  const double times = SECONDS_OF_A_ROUND / std::max(seconds_of(context, launches, 1), 1e-9);
  const int count = static_cast<int>(std::min(std::max(times, 1.0), MOST_LAUNCHES));
  return seconds_of(context, launches, count) / count;
}

bool is_faster(const Context &context, const Launches &one, const Launches &other) {
  double least = 0, least_of_other = 0;
  for (int round = 0; round < ROUNDS; ++round) {
    const double seconds = mean_of(context, one), seconds_of_other = mean_of(context, other);
    if (!round && seconds > HOPELESS * seconds_of_other) return false;
    least = round ? std::min(least, seconds) : seconds;
    least_of_other = round ? std::min(least_of_other, seconds_of_other) : seconds_of_other;
  }
  return least < FASTER * least_of_other;
}

class Tuning {
 public:
  Tuning(const Shared &shared, Frame &frame, const File &file, const std::string &cache_folder, Clock::time_point end,
         const Activity &activity)
      : shared_(shared), frame_(frame), file_(file), cache_folder_(cache_folder), end_(end), activity_(activity),
        checking_(shared, frame, activity), trial_(shared.plan), found_{shared.plan.forms, {}} {}

  Tuned run() {
    const std::vector<uint32_t> numbers = slowest_first();
    for (size_t i = 0; i < numbers.size() && is_time_left(); ++i) {
      activity_.advance(IMGCONV_PHASE_TUNE, i, numbers.size());
      take_fastest(numbers[i]);
    }
    return std::move(found_);
  }

 private:
  bool is_time_left() const { return Clock::now() < end_; }

  // The numbers of the checks whose launches have alternatives.
  std::vector<uint32_t> slowest_first() {
    std::vector<std::pair<double, uint32_t>> timed;
    for (uint32_t number = 0; number < shared_.plan.checks.size() && is_time_left(); ++number) {
      const Check &check = shared_.plan.checks[number];
      if (check.elements.empty() || check.alternatives.empty()) continue;
      const Launches own = present(check);
      seconds_of(shared_.context, own, 1);
      timed.emplace_back(seconds_of(shared_.context, own, 1), number);
    }
    std::sort(timed.rbegin(), timed.rend());
    std::vector<uint32_t> numbers;
    for (const auto &each : timed) numbers.push_back(each.second);
    return numbers;
  }

  // The launches of the present form.
  Launches present(const Check &check) const {
    Launches found;
    for (const BoundLaunch &each : frame_.launches()) {
      if (each.launch->number == check.launch) found.push_back(each);
    }
    return found;
  }

  void take_fastest(uint32_t number) {
    const Check &check = shared_.plan.checks[number];
    const auto doing = activity_.begin("tuning launch '" + shared_.plan.launches[check.launch].name + "'");
    const auto taken = found_.forms.find(number);
    // Those up to the form that the check has taken were wrong.
    const uint32_t form = taken == found_.forms.end() ? 0 : taken->second;
    const uint32_t first = form < check.plain_form() ? form + 1 : 2;
    Launches best = present(check);
    for (uint32_t next = first; next < check.plain_form() && is_time_left(); ++next) {
      try {
        const Programs &programs = programs_of(check.alternatives[next - 1]);
        const BoundLaunch bound = frame_.bind(check.alternatives[next - 1], programs);
        if (checking_.check(number, &bound).verdict != Verdict::right) continue;
        if (!is_faster(shared_.context, {bound}, best)) continue;
        best = {bound};
        found_.forms[number] = next;
        found_.programs.insert(found_.programs.end(), programs.all().begin(), programs.all().end());
      } catch (const Error &) {
        if (activity_.is_cancelled()) throw;
        // The driver does not build it, or refuses the launch.
      }
    }
  }

  // Launches of equal kernels share them. Throws Error.
  const Programs &programs_of(const Launch &launch) {
    std::unique_ptr<Programs> &made = programs_[launch.kernel];
    if (made) return *made;
    trial_.launches = {launch};
    trial_.programs = {{{launch.kernel}, -1}};
    made = std::make_unique<Programs>(
        shared_.context, &file_, trial_, false, cache_folder_, activity_, std::vector<BuiltProgram>());
    return *made;
  }

  const Shared &shared_;
  Frame &frame_;
  const File &file_;
  const std::string &cache_folder_;
  const Clock::time_point end_;
  const Activity &activity_;
  Checking checking_;
  Plan trial_;  // of one launch
  std::map<uint32_t, std::unique_ptr<Programs>> programs_;  // by kernel
  Tuned found_;
};

// A plan with other build options, in the memory of the plan itself.
struct OptionsTrial {
  OptionsTrial(const Shared &base, const BuildOptions &options, const File &file, const std::string &cache_folder,
               const Activity &activity)
      : plan(base.plan), programs(base.context, &file, with(plan, options), false, cache_folder, activity, {}),
        shared{base.context, plan, base.memory, programs, base.frame_program, base.external}, frame(shared) {}

  static const Plan &with(Plan &plan, const BuildOptions &options) {
    plan.take(options);
    return plan;
  }

  Plan plan;
  Programs programs;
  Shared shared;
  Frame frame;
};

}  // namespace

TunedOptions tune_options(const Shared &shared, Frame &frame, const File &file, const std::string &cache_folder,
                          Clock::time_point end, const Activity &activity) {
  std::unique_ptr<OptionsTrial> best;
  BuildOptions options = shared.plan.build_options;
  if (shared.context.info.platform != QUALCOMM || shared.plan.checks.empty()) return {options, {}};
  for (const BuildOptions &option : OPTIONS) {
    const BuildOptions wanted = options.overridden_by(option);
    if (Clock::now() >= end || wanted == options) continue;
    const auto doing = activity.begin("tuning build options");
    try {
      auto trial = std::make_unique<OptionsTrial>(shared, wanted, file, cache_folder, activity);
      const Launches &others = (best ? best->frame : frame).launches();
      if (!are_right(trial->shared, trial->frame, activity)) continue;
      if (!is_faster(shared.context, trial->frame.launches(), others)) continue;
      best = std::move(trial);
      options = wanted;
    } catch (const Error &) {
      if (activity.is_cancelled()) throw;
      // The driver does not build the plan with the option, or refuses a launch.
    }
  }
  frame.overwrite(0);
  shared.context.finish("the tuning of build options");
  return {options, best ? best->programs.all() : std::vector<BuiltProgram>()};
}

Tuned tune(const Shared &shared, Frame &frame, const File &file, const std::string &cache_folder,
           std::chrono::milliseconds budget, const Activity &activity) {
  Tuned found = Tuning(shared, frame, file, cache_folder, Clock::now() + budget, activity).run();
  frame.overwrite(0);
  shared.context.finish("the tuning of launches");
  return found;
}

}  // namespace imgconv
