// The times of many runs.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "imgconv.h"

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start);

// Seconds from the start of each frame to its outputs, and from the start of all to these outputs.
struct Frames {
  std::vector<double> taken, ended;
};

// Runs for so many seconds, at least once, with at most so many frames in flight. Throws std::runtime_error.
Frames measure(
    imgconv_model *model, const std::vector<imgconv_array> &inputs, const std::vector<imgconv_array> &outputs,
    size_t in_flight, double seconds);

// A line of text, or of JSON. As `imgconv bench`, it gives the frames a second of the first and of the last quarter of
// the time too: a phone that gets hot has a lower last one. replay: imgconv_replay.
std::string figures(const Frames &frames, const std::string &replay, bool as_json);
