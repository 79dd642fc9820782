// What a folder keeps of the check and the tuning of a plan, so that both are done once for each file and driver.
#pragma once

#include <optional>
#include <string>

#include "device.h"
#include "plan.h"

namespace imgconv {

// forms: right ones, and the fastest that were found if it is tuned. options: the fastest in place of the plan's.
struct Outcome {
  bool checked = false, tuned = false;
  Forms forms;
  std::optional<BuildOptions> options;
};

// checksum: of the plan's file. An outcome of nothing if none is kept.
Outcome read_outcome(const std::string &folder, const DeviceInfo &info, uint32_t checksum, const Plan &plan);

void write_outcome(
    const std::string &folder, const DeviceInfo &info, uint32_t checksum, const Plan &plan, const Outcome &outcome);

}  // namespace imgconv
