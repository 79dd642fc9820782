#include "instruction_set.h"

#include <sys/utsname.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>

#include "file.h"

namespace imgconv {
namespace {

constexpr std::streamsize CPUINFO_BYTES = 1 << 14;  // with the first processor
// Labels in /proc/cpuinfo: of x86, ARM and RISC-V.
constexpr const char *MODEL[] = {"cpu family", "model", "CPU implementer", "CPU part", "isa"};
constexpr const char *FEATURES[] = {"flags", "Features"};
// Beginnings of the flags of x86 that a compiler chooses instructions by.
constexpr const char *EXTENSIONS[] = {
    "abm", "adx", "amx", "apx", "avx", "bmi", "f16c", "fma", "gfni", "movbe", "pni", "popcnt", "sse", "ssse", "xop"};
// Settings of Intel's and of PoCL's driver.
constexpr const char *VARIABLES[] = {"CL_CONFIG_CPU_TARGET_ARCH", "POCL_LLVM_CPU_NAME", "POCL_KERNELLIB_NAME"};

bool is_extension(const std::string &flag) {
  return std::any_of(std::begin(EXTENSIONS), std::end(EXTENSIONS),
                     [&](const char *each) { return flag.rfind(each, 0) == 0; });
}

// The first value of each label.
std::map<std::string, std::string> read_cpuinfo() {
  std::string content(CPUINFO_BYTES, '\0');
  std::ifstream file("/proc/cpuinfo", std::ios::binary);
  file.read(&content[0], CPUINFO_BYTES);
  content.resize(static_cast<size_t>(file.gcount()));
  std::istringstream lines(content);
  std::map<std::string, std::string> processor;
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = std::min(line.find(':'), line.size());
    processor.emplace(words(line.substr(0, colon)), words(line.substr(std::min(colon + 1, line.size()))));
  }
  return processor;
}

std::string digest(const std::string &label, const std::string &features) {
  std::istringstream stream(features);
  std::set<std::string> chosen;
  for (std::string each; stream >> each;) {
    if (label != "flags" || is_extension(each)) chosen.insert(each);
  }
  std::string text;
  for (const std::string &each : chosen) text += (text.empty() ? "" : " ") + each;
  char made[9];
  std::snprintf(made, sizeof made, "%08x", crc32({reinterpret_cast<const uint8_t *>(text.data()), text.size()}));
  return made;
}

// What is set of VARIABLES. Drivers read them when they are loaded.
std::string settings() {
  std::string made;
  for (const char *name : VARIABLES) {
    const char *value = std::getenv(name);
    if (value && *value) made += std::string(", ") + name + "=" + words(value);
  }
  return made;
}

}  // namespace

std::string words(const std::string &text) {
  std::istringstream stream(text.substr(0, text.find('\0')));
  std::string found, word;
  while (stream >> word) found += (found.empty() ? "" : " ") + word;
  return found;
}

std::string instruction_set(uint64_t vector_floats) {
  static const std::string set = settings();
  const std::map<std::string, std::string> processor = read_cpuinfo();
  utsname machine{};
  uname(&machine);
  std::string made = machine.machine;
  for (const char *label : MODEL) {
    const auto found = processor.find(label);
    if (found != processor.end()) made += ", " + found->first + " " + found->second;
  }
  for (const char *label : FEATURES) {
    const auto found = processor.find(label);
    if (found != processor.end()) made += ", " + found->first + " " + digest(label, found->second);
  }
  return made + ", " + std::to_string(vector_floats) + " floats" + set;
}

}  // namespace imgconv
