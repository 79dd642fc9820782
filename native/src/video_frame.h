// Frames in memory of any layout as a model's picture. As imgconv/preprocessing/video_frame.py.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "device.h"
#include "plan.h"
#include "programs.h"
#include "watchdog.h"

namespace imgconv {

// Memory of the caller, and where it goes in the device's copy of the frame.
struct FramePart {
  size_t to;
  const uint8_t *data;
  size_t bytes;
};

// A frame as its kernel reads it. header: numbers that say where the samples are. parts: none if the frame is in a
// buffer of the caller.
struct PackedFrame {
  std::vector<int32_t> header;
  std::vector<FramePart> parts;
  size_t bytes;
};

// Throws Error for a frame that is not of the format and the size, and for a plane that ends before its last pixel.
PackedFrame pack(const FrameInput &input, const imgconv_video_frame &frame);

// "frames of nv12": the launch that reads frames, which is in no plan.
std::string frame_launch_name(const FrameInput &input);

// The kernel that reads frames, which is built at its first use.
class FrameProgram {
 public:
  FrameProgram(const Context &context, const Plan &plan, const std::string &cache_folder, const Activity &activity);

  // A new kernel object. Throws Error.
  Kernel new_kernel();
  // Keeps what was built, once it has been launched; then it waits for that.
  void keep();

 private:
  const Context &context_;
  std::string cache_folder_;
  Activity activity_;
  Plan plan_;  // of that kernel only
  std::unique_ptr<Programs> programs_;
  bool kept_ = false;
};

// The device's memory of one frame after another, as large as the largest so far, and the launch that reads it.
class FrameUpload {
 public:
  FrameUpload(const Context &context, FrameProgram &program, Memory result)
      : context_(context), program_(program), result_(std::move(result)) {}

  // Enqueues what makes the input of a frame. copy: whether its memory may change before this is over. Throws Error.
  void enqueue(const FrameInput &input, const imgconv_video_frame &frame, bool copy);

 private:
  void check_buffer(const imgconv_video_frame &frame, cl_mem buffer) const;
  void reserve(size_t bytes);
  void write(size_t to, const void *data, size_t bytes) const;

  const Context &context_;
  FrameProgram &program_;
  Memory result_, memory_;
  Kernel kernel_;
  size_t capacity_ = 0;
  PackedFrame packed_;          // which the upload reads
  std::vector<uint8_t> copied_;
};

}  // namespace imgconv
