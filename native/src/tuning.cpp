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

using Launches = std::vector<BoundLaunch>;

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
      seconds_of(own, 1);
      timed.emplace_back(seconds_of(own, 1), number);
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
        if (checking_.check(number, &bound).verdict != Verdict::right || !is_faster({bound}, best)) continue;
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

  bool is_faster(const Launches &one, const Launches &other) const {
    double least = 0, least_of_other = 0;
    for (int round = 0; round < ROUNDS; ++round) {
      const double seconds = mean_of(one), seconds_of_other = mean_of(other);
      if (!round && seconds > HOPELESS * seconds_of_other) return false;
      least = round ? std::min(least, seconds) : seconds;
      least_of_other = round ? std::min(least_of_other, seconds_of_other) : seconds_of_other;
    }
    return least < FASTER * least_of_other;
  }

  // Of as many in a row as a round holds.
  double mean_of(const Launches &launches) const {
    const double times = SECONDS_OF_A_ROUND / std::max(seconds_of(launches, 1), 1e-9);
    const int count = static_cast<int>(std::min(std::max(times, 1.0), MOST_LAUNCHES));
    return seconds_of(launches, count) / count;
  }

  double seconds_of(const Launches &launches, int times) const {
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < times; ++i) {
      for (const BoundLaunch &each : launches) each.enqueue(shared_.context, nullptr);
    }
    shared_.context.finish("the tuning of launches");
    return std::chrono::duration<double>(Clock::now() - start).count();
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

}  // namespace

Tuned tune(const Shared &shared, Frame &frame, const File &file, const std::string &cache_folder,
           std::chrono::milliseconds budget, const Activity &activity) {
  Tuned found = Tuning(shared, frame, file, cache_folder, Clock::now() + budget, activity).run();
  frame.overwrite(0);
  shared.context.finish("the tuning of launches");
  return found;
}

}  // namespace imgconv
