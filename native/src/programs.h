// The kernels of a plan: from the binaries of the file, from the folder that the app names, or compiled.
#pragma once

#include <string>
#include <vector>

#include "device.h"
#include "file.h"
#include "plan.h"
#include "watchdog.h"

namespace imgconv {

// is_new: whether it was compiled.
struct BuiltProgram {
  std::vector<uint32_t> kernels;
  Program program;
  std::string source;
  bool is_new;
};

class Programs {
 public:
  // file: null if no program of the plan has a binary. is_last: whether no other plan is left. cache_folder: empty for
  // none. known: programs that need not be built again.
  // Throws Error, with IMGCONV_ERROR_BUILD, _CRASH or _UNFIT if another plan may do.
  Programs(const Context &context, const File *file, const Plan &plan, bool is_last, const std::string &cache_folder,
           const Activity &activity, const std::vector<BuiltProgram> &known);

  const std::vector<BuiltProgram> &all() const { return programs_; }

  // A new kernel object, with arguments of its own. Throws Error.
  Kernel new_kernel(uint32_t number) const;
  // Whether there are programs to keep.
  bool have_new() const;
  // Writes the programs that were compiled to the folder. A driver may compile kernels at their first launch, as PoCL
  // does: call it after that.
  void keep() const;
  // Frees the sources once nothing is built any more.
  void forget_sources();

 private:
  void check_launch(const Launch &launch) const;

  const Context &context_;
  std::string cache_folder_;
  bool local_memory_fits_;
  std::vector<BuiltProgram> programs_;
  std::vector<Program> program_of_;  // of each kernel
};

}  // namespace imgconv
