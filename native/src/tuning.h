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

// options: the fastest. programs: those of the plan with them; none if these are the options that the plan has.
struct TunedOptions {
  BuildOptions options;
  std::vector<BuiltProgram> programs;
};

// Builds the plan with each option of the vendor's compiler, together with those that were faster, until `end`. An
// option is taken if all launches are right and the model is clearly faster. Overwrites the memory of the frame.
TunedOptions tune_options(const Shared &shared, Frame &frame, const File &file, const std::string &cache_folder,
                          std::chrono::steady_clock::time_point end, const Activity &activity);

}  // namespace imgconv
