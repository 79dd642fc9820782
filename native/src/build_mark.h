// A mark in the folder of programs while the driver compiles: its compiler may end the process, at each start again.
//
//     <hash>.building     the kernels that are compiled, as text; locked by the process that compiles them
//
// A mark that nobody has locked was left by a process that ended meanwhile. A folder without marks, or without locks,
// only costs that knowledge.
#pragma once

#include <string>

namespace imgconv {

class BuildMark {
 public:
  // path: empty for none. If another process compiles the same now, or if the mark was left, nothing is marked.
  BuildMark(const std::string &path, const std::string &kernels);
  // Removes the mark, unless it was left.
  ~BuildMark();
  BuildMark(const BuildMark &) = delete;
  BuildMark &operator=(const BuildMark &) = delete;

  bool was_left() const { return was_left_; }
  // Whether an earlier process left this mark.
  static bool is_left(const std::string &path);

 private:
  std::string path_;
  int file_ = -1;
  bool was_left_ = false;
};

}  // namespace imgconv
