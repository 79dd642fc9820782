#include "program_cache.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "file.h"

namespace imgconv {
namespace {

const std::string MAGIC = "imgconvP";

std::string key_of(const DeviceInfo &info, const std::string &source) {
  return info.key() + "\n" + info.vendor + "\n" + info.opencl_version + "\n" + source;
}

std::string path_of(const std::string &folder, const std::string &key, const char *suffix) {
  uint64_t hash = 14695981039346656037u;  // FNV-1a
  for (const unsigned char letter : key) hash = (hash ^ letter) * 1099511628211u;
  char name[32];
  std::snprintf(name, sizeof name, "/%016llx.", static_cast<unsigned long long>(hash));
  return folder + name + suffix;
}

template <class T>
std::string bytes_of(T number) {
  return std::string(reinterpret_cast<const char *>(&number), sizeof number);
}

// The start of an entry: everything but the binary.
std::string head_of(const std::string &key, const std::string &binary) {
  const std::string rest = bytes_of(uint64_t(key.size())) + key + binary;
  const uint32_t checksum = crc32({reinterpret_cast<const uint8_t *>(rest.data()), rest.size()});
  return MAGIC + bytes_of(checksum) + bytes_of(uint64_t(key.size())) + key;
}

}  // namespace

std::string program_path(
    const std::string &folder, const DeviceInfo &info, const std::string &source, const char *suffix) {
  return path_of(folder, key_of(info, source), suffix);
}

std::string read_program(const std::string &folder, const DeviceInfo &info, const std::string &source) {
  if (folder.empty()) return "";
  const std::string key = key_of(info, source);
  std::ostringstream stream;
  stream << std::ifstream(path_of(folder, key, "program"), std::ios::binary).rdbuf();
  const std::string content = stream.str();
  const size_t start = head_of(key, "").size();
  if (content.size() <= start) return "";
  const std::string binary = content.substr(start);
  return content.compare(0, start, head_of(key, binary)) == 0 ? binary : "";
}

void write_program(
    const std::string &folder, const DeviceInfo &info, const std::string &source, const std::string &binary) {
  if (folder.empty() || binary.empty()) return;
  const std::string key = key_of(info, source), path = path_of(folder, key, "program");
  const std::string content = head_of(key, binary) + binary;
  std::string part = path + ".XXXXXX";
  const int file = mkstemp(&part[0]);
  if (file < 0) return;
  std::FILE *stream = fdopen(file, "wb");
  const bool written = stream && std::fwrite(content.data(), 1, content.size(), stream) == content.size();
  const bool closed = stream ? std::fclose(stream) == 0 : close(file) == 0;
  if (!written || !closed || std::rename(part.c_str(), path.c_str()) != 0) unlink(part.c_str());
}

}  // namespace imgconv
