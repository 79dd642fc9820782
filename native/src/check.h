// The check of launches: each runs on drawn inputs, and what it writes is compared with values that the desk computed.
#pragma once

#include <string>
#include <vector>

#include "frame.h"
#include "watchdog.h"

namespace imgconv {

enum class Verdict { right, wrong, not_covered };

// check: a number of Plan.checks. text: what is wrong, or why it is not covered. again: it was right when it was
// launched again, so that the driver loses launches.
struct Finding {
  size_t check = 0;
  Verdict verdict = Verdict::right;
  std::string text;
  bool again = false;
};

// The check of single launches. What it leaves in the frame's memory is of no use.
class Checking {
 public:
  Checking(const Shared &shared, Frame &frame, const Activity &activity)
      : shared_(shared), plan_(shared.plan), frame_(frame), activity_(activity) {}

  // The verdict on the launch of a check, or on another one in its place. Throws Error if the driver fails.
  Finding check(size_t number, const BoundLaunch *instead = nullptr);

 private:
  std::vector<BoundLaunch> launches_of(const Check &check, const BoundLaunch *instead) const;
  void run(const Check &check, const std::vector<BoundLaunch> &launches, int times);
  void upload(uint32_t number, const Check &check);
  std::string compare(const Check &check);

  const Shared &shared_;
  const Plan &plan_;
  Frame &frame_;
  const Activity &activity_;
};

// Checks all launches, each alone. It overwrites all memory of the frame but the constants, and leaves zeros there.
// Throws Error if the driver fails.
std::vector<Finding> check_launches(const Shared &shared, Frame &frame, const Activity &activity);

// Whether check_launches finds no wrong launch.
bool are_right(const Shared &shared, Frame &frame, const Activity &activity);

// "launch 'conv1' of node 'Conv_0', kernel conv.cl: 3 of 48 numbers are wrong: ..."
std::string describe(const Plan &plan, const Finding &finding);

// JSON of all launches. frames: what is wrong with the kernel that reads video frames; empty if nothing is.
std::string report(
    const Context &context, const Plan &plan, const std::vector<Finding> &findings, const std::string &frames);

// Whether imgconv's own tests run on the driver at every change.
bool is_tested_driver(const DeviceInfo &info);

}  // namespace imgconv
