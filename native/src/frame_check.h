// The check of the kernel that reads video frames, which is in no plan: random frames with gaps between rows, rotated,
// mirrored and cropped, and every element compared. As imgconv/checking/frame_checks.py.
#pragma once

#include <string>

#include "frame.h"

namespace imgconv {

// "launch 'frames of nv12', kernel frame.cl"
std::string frame_launch_of(const Plan &plan);

// What is wrong; empty if nothing is, or if the plan takes no frames. It overwrites the picture's memory in the frame.
// Throws Error if the driver fails.
std::string check_video_frames(const Shared &shared, const Frame &frame, const Activity &activity);

}  // namespace imgconv
