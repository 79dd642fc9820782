// The C interface: exceptions become a status and a text.
#include "imgconv.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "error.h"
#include "file.h"
#include "model.h"
#include "watchdog.h"

struct imgconv_model {
  explicit imgconv_model(std::chrono::milliseconds timeout) : watchdog(timeout) {}

  imgconv::Watchdog watchdog;
  std::unique_ptr<imgconv::Model> opened;
  std::string report;
};

namespace {

using imgconv::Error;

imgconv_status report(imgconv_error *error, imgconv_status status, const char *message) {
  if (error) {
    error->status = status;
    size_t length = std::strlen(message);
    if (length >= sizeof error->message) {
      length = sizeof error->message - 1;
      while ((message[length] & 0xC0) == 0x80) --length;  // not within a character of UTF-8
    }
    std::memcpy(error->message, message, length);
    error->message[length] = 0;
  }
  return status;
}

template <class Work>
imgconv_status guarded(imgconv_error *error, Work work) noexcept {
  try {
    work();
    return report(error, IMGCONV_OK, "");
  } catch (const Error &problem) {
    return report(error, problem.status(), problem.what());
  } catch (const std::bad_alloc &) {
    return report(error, IMGCONV_ERROR_MEMORY, "the host has no memory for it");
  } catch (const std::exception &problem) {
    return report(error, IMGCONV_ERROR_DEVICE, problem.what());
  } catch (...) {
    return report(error, IMGCONV_ERROR_DEVICE, "an unknown failure");
  }
}

// Throws Error if a pointer that must not be is NULL.
void need(const void *pointer, const char *name) {
  if (!pointer) throw Error(IMGCONV_ERROR_ARGUMENT, name, " is NULL");
}

std::chrono::milliseconds timeout_of(uint32_t milliseconds) {
  return std::chrono::milliseconds(milliseconds ? milliseconds : 600'000);
}

// read: makes the File.
template <class Read>
imgconv_status open(imgconv_model **model, const imgconv_options *options, imgconv_error *error, Read read) {
  return guarded(error, [&] {
    need(model, "model");
    *model = nullptr;
    const imgconv_options given = options ? *options : imgconv_options{};
    auto made = std::make_unique<imgconv_model>(timeout_of(given.timeout_ms));
    const auto file = std::make_shared<imgconv::File>(read());
    const imgconv::Settings settings(given);
    const imgconv::Activity activity = made->watchdog.activity();
    std::function<void()> look;
    if (given.progress) look = [&] { activity.tell(given.progress, given.progress_data); };
    made->opened = made->watchdog.get("opening the model", [file, settings, activity] {
      return std::make_unique<imgconv::Model>(*file, settings, activity);
    }, look);
    if (activity.is_cancelled()) imgconv_close(made.release());
    activity.check();
    *model = made.release();
  });
}

// Calls `work` with a model that is there.
template <class Work>
imgconv_status with(imgconv_model *model, imgconv_error *error, Work work) {
  return guarded(error, [&] {
    need(model, "model");
    work(model->watchdog, model->opened.get());
  });
}

// Throws Error unless `given`, the length of an array of the caller, is `count`. kind: what the model has of them.
void check_count(size_t given, size_t count, const char *kind) {
  if (given == count) return;
  throw Error(IMGCONV_ERROR_ARGUMENT, "the number of ", kind, " given is ", given, "; the model has ", count);
}

// A copy of what the caller gave, for a call that may go on after the caller does; null stays null.
class Arrays {
 public:
  // values: the inputs or the outputs of a model; kind: which of both. Throws Error unless there is an array for each.
  template <class Values>
  Arrays(const imgconv_array *given, size_t count, const Values &values, const char *kind) : is_null_(!given) {
    check_count(count, values.size(), kind);
    if (!given) return;
    arrays_.assign(given, given + count);
    for (imgconv_array &each : arrays_) {
      if (!each.video_frame) continue;
      frames_.push_back(std::make_shared<imgconv_video_frame>(*each.video_frame));
      each.video_frame = frames_.back().get();
    }
  }
  const imgconv_array *get() const { return is_null_ ? nullptr : arrays_.data(); }

 private:
  bool is_null_;
  std::vector<imgconv_array> arrays_;
  std::vector<std::shared_ptr<imgconv_video_frame>> frames_;  // which copies of this share
};

Arrays inputs_of(const imgconv::Model &model, const imgconv_array *given, size_t count) {
  return Arrays(given, count, model.plan().inputs, "inputs");
}

Arrays outputs_of(const imgconv::Model &model, const imgconv_array *given, size_t count) {
  return Arrays(given, count, model.plan().outputs, "outputs");
}

// values: the inputs or the outputs of a model.
template <class Values>
imgconv_status describe(const Values &values, size_t number, imgconv_tensor *tensor) {
  if (number >= values.size() || !tensor) return IMGCONV_ERROR_ARGUMENT;
  const imgconv::Value &value = values[number].value;
  *tensor = {value.name.c_str(), value.dtype, imgconv::dtype_name(value.dtype), value.shape.size(), value.shape.data(),
             value.bytes()};
  return IMGCONV_OK;
}

}  // namespace

extern "C" {

#define IMGCONV_TEXT(number) #number
#define IMGCONV_DOTTED(major, minor, patch) IMGCONV_TEXT(major) "." IMGCONV_TEXT(minor) "." IMGCONV_TEXT(patch)

const char *imgconv_version(void) {
  return IMGCONV_DOTTED(IMGCONV_VERSION_MAJOR, IMGCONV_VERSION_MINOR, IMGCONV_VERSION_PATCH);
}

imgconv_status imgconv_open_file(
    const char *path, const imgconv_options *options, imgconv_model **model, imgconv_error *error) {
  return open(model, options, error, [&] {
    need(path, "path");
    return imgconv::File::map(path);
  });
}

imgconv_status imgconv_open_memory(
    const void *data, size_t bytes, const imgconv_options *options, imgconv_model **model, imgconv_error *error) {
  return open(model, options, error, [&] {
    need(data, "data");
    return imgconv::File::in_memory({static_cast<const uint8_t *>(data), bytes});
  });
}

void imgconv_close(imgconv_model *model) {
  if (!model) return;
  imgconv::Model *const opened = model->opened.release();
  // Nothing is freed if a call took too long: a driver that hangs may wait for ever if anything of it is released.
  guarded(nullptr, [&] { model->watchdog.call("closing the model", [opened] { delete opened; }); });
  delete model;
}

size_t imgconv_input_count(const imgconv_model *model) { return model ? model->opened->plan().inputs.size() : 0; }

size_t imgconv_output_count(const imgconv_model *model) { return model ? model->opened->plan().outputs.size() : 0; }

imgconv_status imgconv_input(const imgconv_model *model, size_t number, imgconv_tensor *tensor) {
  return model ? describe(model->opened->plan().inputs, number, tensor) : IMGCONV_ERROR_ARGUMENT;
}

imgconv_status imgconv_output(const imgconv_model *model, size_t number, imgconv_tensor *tensor) {
  return model ? describe(model->opened->plan().outputs, number, tensor) : IMGCONV_ERROR_ARGUMENT;
}

const char *imgconv_description(const imgconv_model *model) { return model ? model->opened->description() : ""; }

imgconv_status imgconv_map_input(imgconv_model *model, size_t number, void **data, imgconv_error *error) {
  return with(model, error, [&](imgconv::Watchdog &watchdog, imgconv::Model *opened) {
    need(data, "data");
    *data = watchdog.get("mapping an input", [=] { return opened->map_input(number); });
  });
}

imgconv_status imgconv_import_dma_buf(
    imgconv_model *model, int descriptor, size_t bytes, void **memory, imgconv_error *error) {
  return with(model, error, [&](imgconv::Watchdog &watchdog, imgconv::Model *opened) {
    need(memory, "memory");
    *memory = watchdog.get("importing a dma-buf", [=] { return opened->import_dma_buf(descriptor, bytes); });
  });
}

imgconv_status imgconv_import_hardware_buffer(
    imgconv_model *model, void *buffer, size_t bytes, void **memory, imgconv_error *error) {
  return with(model, error, [&](imgconv::Watchdog &watchdog, imgconv::Model *opened) {
    need(buffer, "buffer");
    need(memory, "memory");
    const auto import = [=] { return opened->import_hardware_buffer(buffer, bytes); };
    *memory = watchdog.get("importing an AHardwareBuffer", import);
  });
}

imgconv_status imgconv_release_memory(imgconv_model *model, void *memory, imgconv_error *error) {
  return with(model, error, [&](imgconv::Watchdog &watchdog, imgconv::Model *opened) {
    watchdog.call("releasing memory", [=] { opened->release_memory(static_cast<cl_mem>(memory)); });
  });
}

imgconv_status imgconv_run(
    imgconv_model *model, const imgconv_array *inputs, size_t input_count, const imgconv_array *outputs,
    size_t output_count, imgconv_error *error) {
  return with(model, error, [&](imgconv::Watchdog &watchdog, imgconv::Model *opened) {
    const Arrays given = inputs_of(*opened, inputs, input_count), wanted = outputs_of(*opened, outputs, output_count);
    watchdog.call("running", [=] { opened->run(given.get(), wanted.get()); });
  });
}

imgconv_status imgconv_submit(
    imgconv_model *model, const imgconv_array *inputs, size_t input_count, uint64_t *frame, imgconv_error *error) {
  return with(model, error, [&](imgconv::Watchdog &watchdog, imgconv::Model *opened) {
    need(frame, "frame");
    const Arrays given = inputs_of(*opened, inputs, input_count);
    *frame = watchdog.get("starting a frame", [=] { return opened->submit(given.get(), nullptr); });
  });
}

imgconv_status imgconv_submit_tagged(
    imgconv_model *model, const imgconv_array *inputs, size_t input_count, uint64_t tag, imgconv_error *error) {
  return with(model, error, [&](imgconv::Watchdog &watchdog, imgconv::Model *opened) {
    const Arrays given = inputs_of(*opened, inputs, input_count);
    watchdog.call("starting a frame", [=] { opened->submit(given.get(), &tag); });
  });
}

imgconv_status imgconv_wait(
    imgconv_model *model, uint64_t frame, const imgconv_array *outputs, size_t output_count, imgconv_error *error) {
  return with(model, error, [&](imgconv::Watchdog &watchdog, imgconv::Model *opened) {
    const Arrays wanted = outputs_of(*opened, outputs, output_count);
    watchdog.call("waiting for a frame", [=] { opened->wait(frame, wanted.get()); });
  });
}

imgconv_status imgconv_wait_next(
    imgconv_model *model, uint64_t *tag, const imgconv_array *outputs, size_t output_count, imgconv_error *error) {
  return with(model, error, [&](imgconv::Watchdog &watchdog, imgconv::Model *opened) {
    need(tag, "tag");
    const Arrays wanted = outputs_of(*opened, outputs, output_count);
    const auto found = std::make_shared<std::atomic<uint64_t>>(0);  // of a frame that fails too
    const std::shared_ptr<void> copied(nullptr, [=](void *) { *tag = *found; });
    watchdog.call("waiting for a frame", [=] { opened->wait_next(*found, wanted.get()); });
  });
}

imgconv_status imgconv_reset(imgconv_model *model, imgconv_error *error) {
  return with(model, error, [](imgconv::Watchdog &watchdog, imgconv::Model *opened) {
    watchdog.call("clearing the states", [=] { opened->reset(); });
  });
}

size_t imgconv_launch_count(const imgconv_model *model) { return model ? model->opened->plan().launches.size() : 0; }

const char *imgconv_launch_name(const imgconv_model *model, size_t number) {
  return number < imgconv_launch_count(model) ? model->opened->plan().launches[number].name.c_str() : "";
}

imgconv_status imgconv_profile(
    imgconv_model *model, const imgconv_array *inputs, size_t input_count, double *seconds, size_t launch_count,
    imgconv_error *error) {
  return with(model, error, [&](imgconv::Watchdog &watchdog, imgconv::Model *opened) {
    check_count(launch_count, opened->plan().launches.size(), "launches");
    if (launch_count) need(seconds, "seconds");
    const Arrays given = inputs_of(*opened, inputs, input_count);
    const std::vector<double> found = watchdog.get("running", [=] { return opened->profile(given.get()); });
    std::copy(found.begin(), found.end(), seconds);
  });
}

imgconv_status imgconv_check(imgconv_model *model, const char **report, size_t *wrong, imgconv_error *error) {
  return with(model, error, [&](imgconv::Watchdog &watchdog, imgconv::Model *opened) {
    need(report, "report");
    using Made = std::pair<std::string, size_t>;
    Made made = watchdog.get("checking the launches", [=] {
      Made found;
      found.first = opened->check_all(found.second);
      return found;
    });
    model->report = std::move(made.first);
    *report = model->report.c_str();
    if (wrong) *wrong = made.second;
  });
}

const char *imgconv_replay(const imgconv_model *model) { return model ? model->opened->replay() : ""; }

void *imgconv_opencl_context(const imgconv_model *model) {
  return model ? model->opened->context().handle.get() : nullptr;
}

void *imgconv_opencl_queue(const imgconv_model *model) {
  return model ? model->opened->context().queue.get() : nullptr;
}

imgconv_status imgconv_devices_json(char *text, size_t size, size_t *needed, imgconv_error *error) {
  return guarded(error, [&] {
    imgconv::Watchdog watchdog(timeout_of(0));
    const std::string found = watchdog.get("describing the devices", [] {
      const auto cl = imgconv::Opencl::load();
      const auto devices = imgconv::list_devices(*cl);
      return imgconv::to_json(devices, &imgconv::select_device(devices, nullptr));
    });
    if (needed) *needed = found.size() + 1;
    if (!size) return;
    need(text, "text");
    text[found.copy(text, size - 1)] = 0;
  });
}

}  // extern "C"
