#include "bench.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <utility>

#include "call.h"

namespace {

constexpr char TEXT[] =
    "%zu frames, %.1f a second: %.1f in the first quarter, %.1f in the last; ms: least %.3f, p50 %.3f, p90 %.3f, "
    "p99 %.3f, most %.3f%s";
constexpr char JSON[] =
    "{\"frames\": %zu, \"frames_per_second\": %.6g, \"first_quarter\": %.6g, \"last_quarter\": %.6g, "
    "\"milliseconds\": {\"least\": %.6g, \"p50\": %.6g, \"p90\": %.6g, \"p99\": %.6g, \"most\": %.6g}, "
    "\"replay\": \"%s\"}";

}  // namespace

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

Frames measure(
    imgconv_model *model, const std::vector<imgconv_array> &inputs, const std::vector<imgconv_array> &outputs,
    size_t in_flight, double seconds) {
  Frames found;
  std::deque<std::pair<uint64_t, Clock::time_point>> flying;
  const Clock::time_point begin = Clock::now();
  const auto ended = [&](Clock::time_point start) {
    found.taken.push_back(seconds_since(start));
    found.ended.push_back(seconds_since(begin));
  };
  while (found.taken.empty() || seconds_since(begin) < seconds || !flying.empty()) {
    const Clock::time_point start = Clock::now();
    if (in_flight == 1) {
      call(imgconv_run, model, inputs.data(), inputs.size(), outputs.data(), outputs.size());
      ended(start);
      continue;
    }
    if (flying.size() < in_flight && (flying.empty() || seconds_since(begin) < seconds)) {
      uint64_t frame = 0;
      call(imgconv_submit, model, inputs.data(), inputs.size(), &frame);
      flying.emplace_back(frame, start);
      continue;
    }
    call(imgconv_wait, model, flying.front().first, outputs.data(), outputs.size());
    ended(flying.front().second);
    flying.pop_front();
  }
  return found;
}

std::string figures(const Frames &frames, const std::string &replay, bool as_json) {
  std::vector<double> sorted = frames.taken;
  std::sort(sorted.begin(), sorted.end());
  const double last = static_cast<double>(sorted.size() - 1);
  const auto at = [&](double part) { return 1e3 * sorted[static_cast<size_t>(part * last)]; };
  const double total = frames.ended.back();
  const auto rate = [&](double from, double to) {  // parts of the time
    const auto within = [&](double end) { return from * total < end && end <= to * total; };
    const auto count = std::count_if(frames.ended.begin(), frames.ended.end(), within);
    return static_cast<double>(count) / ((to - from) * total);
  };
  const std::string by = as_json ? replay : replay.empty() ? "" : "; launches replayed by " + replay;
  const auto print = [&](char *text, size_t size) {
    return std::snprintf(text, size, as_json ? JSON : TEXT, sorted.size(), rate(0, 1), rate(0, 0.25), rate(0.75, 1),
                         at(0), at(0.5), at(0.9), at(0.99), at(1), by.c_str());
  };
  std::string made(static_cast<size_t>(print(nullptr, 0)) + 1, '\0');
  print(&made[0], made.size());
  made.pop_back();
  return made;
}
