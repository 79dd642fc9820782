#include "build_mark.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace imgconv {
namespace {

constexpr int FLAGS = O_RDWR | O_CLOEXEC | O_NOFOLLOW;

// Takes the lock of an opened mark. False if a process has it, or removed the mark since it was opened.
bool lock(int file) {
  struct stat status {};
  return flock(file, LOCK_EX | LOCK_NB) == 0 && fstat(file, &status) == 0 && status.st_nlink > 0;
}

// A process locks its mark before it writes to it.
bool is_written(int file) {
  struct stat status {};
  return fstat(file, &status) == 0 && status.st_size > 0;
}

}  // namespace

BuildMark::BuildMark(const std::string &path, const std::string &kernels) : path_(path) {
  if (path.empty()) return;
  file_ = open(path.c_str(), FLAGS | O_CREAT, 0600);
  if (file_ < 0) return;
  const bool is_ours = lock(file_);
  was_left_ = is_ours && is_written(file_);
  if (is_ours && !was_left_ && write(file_, kernels.data(), kernels.size()) > 0) return;
  if (is_ours && !was_left_) unlink(path.c_str());
  close(file_);
  file_ = -1;
}

BuildMark::~BuildMark() {
  if (file_ < 0) return;
  unlink(path_.c_str());
  close(file_);
}

bool BuildMark::is_left(const std::string &path) {
  const int file = open(path.c_str(), FLAGS);
  if (file < 0) return false;
  const bool found = lock(file) && is_written(file);
  close(file);
  return found;
}

}  // namespace imgconv
