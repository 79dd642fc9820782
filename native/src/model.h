// A model that is open on a device: what the C interface calls.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "device_memory.h"
#include "frame.h"
#include "plan.h"
#include "programs.h"
#include "watchdog.h"

namespace imgconv {

// A copy of imgconv_options.
struct Settings {
  explicit Settings(const imgconv_options &options)
      : device(options.device ? options.device : ""), cache_folder(options.cache_folder ? options.cache_folder : ""),
        shapes(options.shapes ? options.shapes : ""),
        has_device(options.device), profile(options.profile), check(options.check != IMGCONV_CHECK_OFF),
        frames(options.frames), tune_ms(options.tune_ms), priority(options.priority) {}

  std::string device, cache_folder, shapes;
  bool has_device, profile, check;
  uint32_t frames, tune_ms;
  imgconv_priority priority;
};

class Model {
 public:
  // The file is no longer needed once it returns. Throws Error.
  Model(const File &file, const Settings &settings, const Activity &activity);
  ~Model();
  Model(const Model &) = delete;
  Model &operator=(const Model &) = delete;

  const Plan &plan() const { return plan_; }
  const Context &context() const { return context_; }
  const char *description() const { return description_.c_str(); }
  const char *replay() const { return first_->extension(); }

  // See imgconv.h.
  void *map_input(size_t number);
  cl_mem import_dma_buf(int descriptor, size_t bytes);
  cl_mem import_hardware_buffer(void *buffer, size_t bytes);
  void release_memory(cl_mem memory);
  void run(const imgconv_array *inputs, const imgconv_array *outputs);
  // tag: null for the frame's number.
  uint64_t submit(const imgconv_array *inputs, const uint64_t *tag);
  void wait(uint64_t number, const imgconv_array *outputs);
  void wait_next(std::atomic<uint64_t> &tag, const imgconv_array *outputs);
  void reset();
  std::vector<double> profile(const imgconv_array *inputs);
  // wrong: becomes the number of wrong launches.
  std::string check_all(size_t &wrong);

 private:
  // A frame of `submit`. number: of its run; 0: free. taken: whether a thread waits for it.
  struct Flight {
    std::unique_ptr<Frame> frame;
    uint64_t number = 0, tag = 0;
    bool taken = false;
    Event over;
  };

  void choose_plan(const File &file, const Settings &settings);
  void prove(const File &file, const Settings &settings, Plan plan, bool is_last);
  void build(const File &file, const Settings &settings, bool is_last, const std::vector<BuiltProgram> &known);
  std::vector<uint32_t> wrong_launches();
  void check_frame_kernel() const;
  void prepare(const Settings &settings);
  void test_replay();
  void run_each();
  std::vector<uint32_t> checksums_of_a_run(bool replayed);
  template <class Work>
  void on_device(Work work);
  std::unique_ptr<Frame> new_frame() const;
  Flight &free_flight();
  void wait_for(Flight &flight, std::unique_lock<std::mutex> &turn, const imgconv_array *outputs);
  void check_outputs(const imgconv_array *outputs) const;

  Activity activity_;
  std::string description_;
  Context context_;
  Plan plan_;
  std::unique_ptr<DeviceMemory> memory_;
  std::unique_ptr<Programs> programs_;
  std::unique_ptr<FrameProgram> frame_program_;
  ExternalMemory external_;
  std::unique_ptr<Shared> shared_;
  std::unique_ptr<Frame> first_;  // of `run`
  std::vector<Flight> flights_;
  bool trusted_ = false;  // whether a replay was found to equal the launches
  bool has_run_ = false;  // whether each launch has ended once
  uint64_t submitted_ = 0;
  std::mutex lock_;
};

}  // namespace imgconv
