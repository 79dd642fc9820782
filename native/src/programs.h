// The kernels of a plan: from the binaries of the file, from the folder that the app names, or compiled.
#pragma once

#include <string>
#include <vector>

#include "device.h"
#include "file.h"
#include "plan.h"

namespace imgconv {

class Programs {
 public:
  // cache_folder: empty for none. Throws Error.
  Programs(const Context &context, const File &file, const Plan &plan, const std::string &cache_folder);

  // A new kernel object, with arguments of its own. Throws Error, also if the device lacks local memory for it.
  Kernel new_kernel(uint32_t number) const;
  // Whether there are programs to keep.
  bool have_new() const;
  // Writes the programs that were compiled to the folder. A driver may compile kernels at their first launch, as PoCL
  // does: call it after that.
  void keep() const;

 private:
  struct Built {
    Program program;
    std::string source;  // if it is to be kept: it was compiled, and there is a folder
  };

  Built build(const std::string &source, Span binary) const;
  Program from_binary(Span binary) const;
  Program from_source(const std::string &source) const;
  void check_local_memory(const Kernel &kernel, const std::string &name) const;

  const Context &context_;
  std::string cache_folder_;
  bool local_memory_fits_;  // the plan is for a device with no more local memory
  std::vector<Built> programs_;
  std::vector<size_t> program_of_;  // of each kernel
};

}  // namespace imgconv
