// The choice of the fastest forms of launches, by time on the device.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "file.h"
#include "frame.h"
#include "watchdog.h"

namespace imgconv {

// forms: of all launches. programs: those of the forms that are new.
struct Tuned {
  Forms forms;
  std::vector<BuiltProgram> programs;
};

// Times each launch, the slowest first, and the alternatives of its own form, until `budget` has passed. An alternative
// is taken if it is right and clearly faster. It overwrites the memory of the frame, as check_launches does.
Tuned tune(const Shared &shared, Frame &frame, const File &file, const std::string &cache_folder,
           std::chrono::milliseconds budget, const Activity &activity);

}  // namespace imgconv
