#include "build_mark.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

namespace imgconv {
namespace {

constexpr int FLAGS = O_RDWR | O_CLOEXEC | O_NOFOLLOW;

// Takes the lock of an opened mark. False if a process has it, or removed the mark since it was opened.
bool lock(int file) {
  struct stat status {};
  return flock(file, LOCK_EX | LOCK_NB) == 0 && fstat(file, &status) == 0 && status.st_nlink > 0;
}

// The number of lines from here to the end of a file.
int count_lines(int file) {
  char part[256];
  int count = 0;
  for (ssize_t size; (size = read(file, part, sizeof part)) > 0;) count += int(std::count(part, part + size, '\n'));
  return count;
}

}  // namespace

BuildMark::BuildMark(const std::string &path, const std::string &kernels, int most_ends) : path_(path) {
  if (path.empty()) return;
  file_ = open(path.c_str(), FLAGS | O_CREAT, 0600);
  if (file_ < 0) return;
  const bool is_ours = lock(file_);
  const int ends = is_ours ? count_lines(file_) : 0;
  too_many_ends_ = ends >= most_ends;
  const std::string line = kernels + "\n";
  if (is_ours && !too_many_ends_ && write(file_, line.data(), line.size()) > 0) return;
  if (is_ours && ends == 0) unlink(path.c_str());
  close(file_);
  file_ = -1;
}

void BuildMark::remove() {
  if (file_ < 0) return;
  unlink(path_.c_str());
  close(file_);
  file_ = -1;
}

int BuildMark::ends(const std::string &path) {
  const int file = open(path.c_str(), FLAGS);
  if (file < 0) return 0;
  const int found = lock(file) ? count_lines(file) : 0;
  close(file);
  return found;
}

}  // namespace imgconv
