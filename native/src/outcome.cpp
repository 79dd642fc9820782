#include "outcome.h"

#include <sstream>

#include "program_cache.h"

namespace imgconv {
namespace {

// Raise it if checks find more.
constexpr int VERSION = 3;
constexpr const char *CHECKED = "checked", *TUNED = "tuned";
// Before the numbers of build options.
const std::string OPTIONS = "options=";

std::string key_of(uint32_t checksum, const Plan &plan) {
  std::string sizes;  // a file may have plans for several
  for (const Input &each : plan.inputs) {
    for (const int64_t size : each.value.shape) sizes += join(" ", size);
  }
  return join("outcome ", VERSION, " of plan ", plan.number, " of file ", checksum, " for", sizes);
}

}  // namespace

// "checked tuned options=201 3:1 7:4": what was done, build options, and forms by the numbers of their checks.
Outcome read_outcome(const std::string &folder, const DeviceInfo &info, uint32_t checksum, const Plan &plan) {
  Outcome found;
  std::istringstream words(read_program(folder, info, key_of(checksum, plan)));
  for (std::string word; words >> word;) {
    uint32_t check = 0, form = 0;
    char colon = 0;
    found.checked = found.checked || word == CHECKED;
    found.tuned = found.tuned || word == TUNED;
    if (word.compare(0, OPTIONS.size(), OPTIONS) == 0 && word.size() == OPTIONS.size() + 3) {
      const auto digit = [&](size_t place) { return static_cast<uint8_t>(word[OPTIONS.size() + place] - '0'); };
      if (digit(0) < 3 && digit(1) < 3 && digit(2) < 2) found.options = BuildOptions{digit(0), digit(1), digit(2) > 0};
    }
    const bool is_form = bool(std::istringstream(word) >> check >> colon >> form);
    if (!is_form || check >= plan.checks.size()) continue;
    if (form <= plan.checks[check].unoptimised_form()) found.forms[check] = form;
  }
  return found;
}

void write_outcome(
    const std::string &folder, const DeviceInfo &info, uint32_t checksum, const Plan &plan, const Outcome &outcome) {
  std::string text = join(outcome.checked ? CHECKED : "", " ", outcome.tuned ? TUNED : "");
  if (const auto &options = outcome.options) {
    text += join(" ", OPTIONS, int(options->wave_size), int(options->accelerate_16_bit),
                 int(options->one_kernel_a_program));
  }
  for (const auto &[check, form] : outcome.forms) text += join(" ", check, ":", form);
  write_program(folder, info, key_of(checksum, plan), text);
}

}  // namespace imgconv
