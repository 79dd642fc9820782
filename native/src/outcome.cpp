#include "outcome.h"

#include <sstream>

#include "program_cache.h"

namespace imgconv {
namespace {

// Raise it if checks find more.
constexpr int VERSION = 3;
constexpr const char *CHECKED = "checked", *TUNED = "tuned";

std::string key_of(uint32_t checksum, const Plan &plan) {
  std::string sizes;  // a file may have plans for several
  for (const Input &each : plan.inputs) {
    for (const int64_t size : each.value.shape) sizes += join(" ", size);
  }
  return join("outcome ", VERSION, " of plan ", plan.number, " of file ", checksum, " for", sizes);
}

}  // namespace

// "checked tuned 3:1 7:4": what was done, and forms by the numbers of their checks.
Outcome read_outcome(const std::string &folder, const DeviceInfo &info, uint32_t checksum, const Plan &plan) {
  Outcome found;
  std::istringstream words(read_program(folder, info, key_of(checksum, plan)));
  for (std::string word; words >> word;) {
    uint32_t check = 0, form = 0;
    char colon = 0;
    found.checked = found.checked || word == CHECKED;
    found.tuned = found.tuned || word == TUNED;
    const bool is_form = bool(std::istringstream(word) >> check >> colon >> form);
    if (!is_form || check >= plan.checks.size()) continue;
    if (form <= plan.checks[check].unoptimised_form()) found.forms[check] = form;
  }
  return found;
}

void write_outcome(
    const std::string &folder, const DeviceInfo &info, uint32_t checksum, const Plan &plan, const Outcome &outcome) {
  std::string text = join(outcome.checked ? CHECKED : "", " ", outcome.tuned ? TUNED : "");
  for (const auto &[check, form] : outcome.forms) text += join(" ", check, ":", form);
  write_program(folder, info, key_of(checksum, plan), text);
}

}  // namespace imgconv
