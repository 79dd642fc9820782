// The C interface: exceptions become a status and a text.
#include "imgconv.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>

#include "error.h"
#include "file.h"
#include "model.h"

struct imgconv_model {
  imgconv::Model model;
};

namespace {

using imgconv::Error;

imgconv_status report(imgconv_error *error, imgconv_status status, const char *message) {
  if (error) {
    error->status = status;
    const size_t length = std::min(std::strlen(message), sizeof error->message - 1);
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
  if (!pointer) throw Error(IMGCONV_ERROR_ARGUMENT, std::string(name) + " is NULL");
}

// An array for each value is there, or no value is.
void need_arrays(const imgconv_array *arrays, size_t count, const char *name) {
  if (count) need(arrays, name);
}

imgconv::Options options_of(const imgconv_options *given) {
  imgconv::Options options;
  if (!given) return options;
  options.has_device = given->device != nullptr;
  if (given->device) options.device = given->device;
  if (given->cache_folder) options.cache_folder = given->cache_folder;
  if (given->frames > 64) throw Error(IMGCONV_ERROR_ARGUMENT, "options.frames is over 64");
  if (given->frames) options.frames = given->frames;
  options.profile = given->profile != 0;
  return options;
}

imgconv_status describe(const imgconv::Value &value, imgconv_tensor *tensor) {
  if (!tensor) return IMGCONV_ERROR_ARGUMENT;
  *tensor = {value.name.c_str(), value.dtype, imgconv::dtype_name(value.dtype), value.shape.size(), value.shape.data(),
             value.bytes()};
  return IMGCONV_OK;
}

void give_text(const std::string &found, char *text, size_t size, size_t *needed) {
  if (size) {
    need(text, "text");
    const size_t length = std::min(found.size(), size - 1);
    std::memcpy(text, found.data(), length);
    text[length] = 0;
  }
  if (needed) *needed = found.size() + 1;
}

}  // namespace

extern "C" {

imgconv_status imgconv_open_file(
    const char *path, const imgconv_options *options, imgconv_model **model, imgconv_error *error) {
  return guarded(error, [&] {
    need(model, "model");
    *model = nullptr;
    need(path, "path");
    *model = new imgconv_model{{imgconv::File::map(path), options_of(options)}};
  });
}

imgconv_status imgconv_open_memory(
    const void *data, size_t bytes, const imgconv_options *options, imgconv_model **model, imgconv_error *error) {
  return guarded(error, [&] {
    need(model, "model");
    *model = nullptr;
    need(data, "data");
    const imgconv::Span content{static_cast<const uint8_t *>(data), bytes};
    *model = new imgconv_model{{imgconv::File::in_memory(content), options_of(options)}};
  });
}

void imgconv_close(imgconv_model *model) { delete model; }

size_t imgconv_input_count(const imgconv_model *model) { return model ? model->model.plan().inputs.size() : 0; }

size_t imgconv_output_count(const imgconv_model *model) { return model ? model->model.plan().outputs.size() : 0; }

imgconv_status imgconv_input(const imgconv_model *model, size_t number, imgconv_tensor *tensor) {
  if (number >= imgconv_input_count(model)) return IMGCONV_ERROR_ARGUMENT;
  return describe(model->model.plan().inputs[number].value, tensor);
}

imgconv_status imgconv_output(const imgconv_model *model, size_t number, imgconv_tensor *tensor) {
  if (number >= imgconv_output_count(model)) return IMGCONV_ERROR_ARGUMENT;
  return describe(model->model.plan().outputs[number].value, tensor);
}

imgconv_status imgconv_run(
    imgconv_model *model, const imgconv_array *inputs, const imgconv_array *outputs, imgconv_error *error) {
  return guarded(error, [&] {
    need(model, "model");
    need_arrays(inputs, imgconv_input_count(model), "inputs");
    need_arrays(outputs, imgconv_output_count(model), "outputs");
    model->model.run(inputs, outputs);
  });
}

imgconv_status imgconv_submit(
    imgconv_model *model, const imgconv_array *inputs, uint64_t *frame, imgconv_error *error) {
  return guarded(error, [&] {
    need(model, "model");
    need_arrays(inputs, imgconv_input_count(model), "inputs");
    need(frame, "frame");
    *frame = model->model.submit(inputs);
  });
}

imgconv_status imgconv_wait(
    imgconv_model *model, uint64_t frame, const imgconv_array *outputs, imgconv_error *error) {
  return guarded(error, [&] {
    need(model, "model");
    need_arrays(outputs, imgconv_output_count(model), "outputs");
    model->model.wait(frame, outputs);
  });
}

imgconv_status imgconv_reset(imgconv_model *model, imgconv_error *error) {
  return guarded(error, [&] {
    need(model, "model");
    model->model.reset();
  });
}

size_t imgconv_launch_count(const imgconv_model *model) { return model ? model->model.plan().launches.size() : 0; }

const char *imgconv_launch_name(const imgconv_model *model, size_t number) {
  return number < imgconv_launch_count(model) ? model->model.plan().launches[number].name.c_str() : "";
}

imgconv_status imgconv_profile(
    imgconv_model *model, const imgconv_array *inputs, double *seconds, imgconv_error *error) {
  return guarded(error, [&] {
    need(model, "model");
    need_arrays(inputs, imgconv_input_count(model), "inputs");
    if (imgconv_launch_count(model)) need(seconds, "seconds");
    model->model.profile(inputs, seconds);
  });
}

const char *imgconv_replay(const imgconv_model *model) { return model ? model->model.replay() : ""; }

void *imgconv_opencl_context(const imgconv_model *model) {
  return model ? model->model.context().handle.get() : nullptr;
}

void *imgconv_opencl_queue(const imgconv_model *model) { return model ? model->model.context().queue.get() : nullptr; }

imgconv_status imgconv_devices_json(char *text, size_t size, size_t *needed, imgconv_error *error) {
  return guarded(error, [&] {
    const auto cl = imgconv::Opencl::load();
    const auto devices = imgconv::list_devices(*cl);
    give_text(imgconv::to_json(devices, &imgconv::select_device(devices, nullptr)), text, size, needed);
  });
}

imgconv_status imgconv_device_json(
    const imgconv_model *model, char *text, size_t size, size_t *needed, imgconv_error *error) {
  return guarded(error, [&] {
    need(model, "model");
    const std::vector<imgconv::DeviceInfo> devices = {model->model.context().info};
    give_text(imgconv::to_json(devices, &devices[0]), text, size, needed);
  });
}

}  // extern "C"
