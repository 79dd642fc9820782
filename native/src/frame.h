// One run at a time: memory of its own for inputs and outputs, on host and device, and launches that are bound to it.
#pragma once

#include <memory>
#include <vector>

#include "device_memory.h"
#include "external_memory.h"
#include "plan.h"
#include "programs.h"
#include "recording.h"
#include "video_frame.h"

namespace imgconv {

// What all frames of a model share.
struct Shared {
  const Context &context;
  const Plan &plan;
  const DeviceMemory &memory;
  const Programs &programs;
  FrameProgram &frame_program;
  const ExternalMemory &external;
};

class Frame {
 public:
  // Throws Error.
  explicit Frame(const Shared &shared);
  ~Frame();
  Frame(const Frame &) = delete;
  Frame &operator=(const Frame &) = delete;

  // Lets the driver replay the launches, if it can.
  void record_launches() { recording_ = record(shared_.context, launches_); }
  void forget_recording() { recording_.reset(); }
  bool is_recorded() const { return recording_ != nullptr; }
  const char *extension() const { return recording_ ? recording_->extension() : ""; }
  const std::vector<BoundLaunch> &launches() const { return launches_; }

  // That of a storage, for a check of launches.
  const Memory &memory(uint32_t storage) const;
  // A launch with a kernel of its own, bound to the memory of the frame. Throws Error.
  BoundLaunch bind(const Launch &launch, const Programs &programs) const;

  // Memory of an input that the device reads, for the caller to fill before the next upload.
  void *map(const Input &input);
  // Each enqueues and returns. outputs: null if they are fetched from the frame's own memory.
  // keep: whether the arrays may change before the frame is over. Throws Error for arrays that do not fit.
  void upload(const imgconv_array *inputs, bool keep);
  void enqueue();
  std::vector<Event> enqueue_timed();
  void download(const imgconv_array *outputs);
  // Copies the outputs of a finished frame from its own memory. outputs: those of `download`, or any if it had none.
  void fetch(const imgconv_array *outputs, bool downloaded) const;

  // For a test of recordings. Sets everything that the launches write; see DeviceMemory::fill.
  void overwrite(uint8_t value);
  // Of all that the launches write. Waits.
  std::vector<uint32_t> checksums() const;
  // Fills the inputs with zeros and small numbers, for a test.
  void upload_drawn(uint32_t seed);

 private:
  // Where an input or output is. staged: the host's side. mapped: where the caller fills it; null if it is not mapped.
  struct Port {
    Memory memory;
    std::vector<uint8_t> staged;
    void *mapped = nullptr;
  };

  void upload_video_frame(const Input &input, const imgconv_video_frame &frame, bool keep);
  void upload_input(const Input &input, const imgconv_array &given, bool keep);
  void move_integers(const imgconv_array *inputs);
  void unmap(Port &port);
  template <class Work>
  void for_each_variable(Work work) const;
  void copy_buffer(cl_mem source, cl_mem destination, const Storage &storage) const;

  const Shared &shared_;
  std::vector<Port> ports_;                  // by storage; those of inputs and outputs are used
  std::vector<std::vector<uint8_t>> moved_;  // by output: what the host moved
  std::vector<BoundLaunch> launches_;
  std::unique_ptr<Recording> recording_;
  std::unique_ptr<FrameUpload> frame_upload_;  // of the picture
};

// Throws Error unless the array is of the value's size. optional: whether it may be left out.
void check_array(const Context &context, const Value &value, const imgconv_array &array, bool optional);

}  // namespace imgconv
