#include "program_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "file.h"

namespace imgconv {
namespace {

const std::string MAGIC = "imgconvP";

std::string key_of(const DeviceInfo &info, const std::string &source) {
  return info.key() + "\n" + info.vendor + "\n" + info.opencl_version + "\n" + source;
}

std::string path_of(const std::string &folder, const std::string &key) {
  uint64_t hash = 14695981039346656037u;  // FNV-1a
  for (const unsigned char letter : key) hash = (hash ^ letter) * 1099511628211u;
  char name[32];
  std::snprintf(name, sizeof name, "/%016llx.program", static_cast<unsigned long long>(hash));
  return folder + name;
}

template <class T>
std::string bytes_of(T number) {
  return std::string(reinterpret_cast<const char *>(&number), sizeof number);
}

// Everything after the checksum.
std::string rest_of(const std::string &key, const std::string &binary) {
  return bytes_of(static_cast<uint64_t>(key.size())) + key + binary;
}

uint32_t checksum(const std::string &text) {
  return crc32({reinterpret_cast<const uint8_t *>(text.data()), text.size()});
}

std::string content_of(const std::string &path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return "";
  struct stat status {};
  std::string content;
  if (fstat(file, &status) == 0 && S_ISREG(status.st_mode)) {
    content.resize(static_cast<size_t>(status.st_size));
    size_t done = 0;
    for (ssize_t got = 1; got > 0 && done < content.size(); done += static_cast<size_t>(got > 0 ? got : 0)) {
      got = read(file, &content[done], content.size() - done);
    }
    content.resize(done);
  }
  close(file);
  return content;
}

bool write_all(int file, const std::string &content) {
  size_t done = 0;
  while (done < content.size()) {
    const ssize_t written = write(file, content.data() + done, content.size() - done);
    if (written <= 0) return false;
    done += static_cast<size_t>(written);
  }
  return true;
}

}  // namespace

std::string read_program(const std::string &folder, const DeviceInfo &info, const std::string &source) {
  if (folder.empty()) return "";
  const std::string key = key_of(info, source), content = content_of(path_of(folder, key));
  const size_t head = MAGIC.size() + sizeof(uint32_t), start = head + sizeof(uint64_t) + key.size();
  if (content.size() <= start || content.compare(0, MAGIC.size(), MAGIC)) return "";
  const std::string rest = content.substr(head), binary = content.substr(start);
  const bool whole = content.compare(MAGIC.size(), sizeof(uint32_t), bytes_of(checksum(rest))) == 0;
  return whole && rest == rest_of(key, binary) ? binary : "";
}

void write_program(
    const std::string &folder, const DeviceInfo &info, const std::string &source, const std::string &binary) {
  if (folder.empty() || binary.empty()) return;
  const std::string key = key_of(info, source), path = path_of(folder, key), rest = rest_of(key, binary);
  std::string part = path + ".XXXXXX";
  const int file = mkstemp(&part[0]);
  if (file < 0) return;
  const bool written = write_all(file, MAGIC + bytes_of(checksum(rest)) + rest);
  if (close(file) != 0 || !written || std::rename(part.c_str(), path.c_str()) != 0) unlink(part.c_str());
}

}  // namespace imgconv
