// A mark in the folder of programs while the driver compiles: its compiler may end the process, at each start again.
//
//     <hash>.building     a line for each process that began to compile: the kernels; locked while one compiles
//
// A line of a mark that nobody has locked is of a process that ended meanwhile. A folder without marks, or without
// locks, only costs that knowledge.
#pragma once

#include <string>

namespace imgconv {

class BuildMark {
 public:
  // path: empty for none. kernels: a line. If another process compiles the same now, or if `most_ends` processes have
  // ended while they compiled it, nothing is marked.
  BuildMark(const std::string &path, const std::string &kernels, int most_ends);
  // Removes the mark, unless too many processes have ended.
  ~BuildMark() { remove(); }
  BuildMark(const BuildMark &) = delete;
  BuildMark &operator=(const BuildMark &) = delete;

  void remove();
  bool too_many_ends() const { return too_many_ends_; }
  // The number of processes that ended while they compiled this.
  static int ends(const std::string &path);

 private:
  std::string path_;
  int file_ = -1;
  bool too_many_ends_ = false;
};

}  // namespace imgconv
