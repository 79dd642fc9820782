// imgconv-run: runs a compiled model, compares it with references, measures it.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "imgconv.h"
#include "npy.h"

namespace {

const char *const USAGE =
    "imgconv-run MODEL [--input NAME=FILE] [--reference NAME=FILE] [--output NAME=FILE] [--bench [--seconds N]\n"
    "    [--frames-in-flight K]] [--profile] [--device DEVICE] [--cache FOLDER] [--json]\n"
    "imgconv-run --devices\n\n"
    "FILE: .npy, or the raw content, row-major. Inputs that are not given are zeros. --reference: compares the bits of\n"
    "an output, exit status 1 if they differ. --bench: runs for N seconds (default 3), after a tenth of them. --cache:\n"
    "a folder for compiled programs.\n";

using Clock = std::chrono::steady_clock;
using Files = std::map<std::string, std::string>;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

struct Arguments {
  std::string model, device, cache;
  Files inputs, references, outputs;
  bool bench = false, profile = false, devices = false, json = false;
  double seconds = 3;
  size_t frames = 1;
};

void add_file(Files &files, const std::string &text) {
  const size_t at = text.rfind('=');
  if (at == std::string::npos) throw std::runtime_error("'" + text + "' is not NAME=FILE");
  files[text.substr(0, at)] = text.substr(at + 1);
}

double number_of(const std::string &name, const std::string &text) {
  char *end = nullptr;
  const double found = std::strtod(text.c_str(), &end);
  if (text.empty() || *end || !(found >= 0 && found < 1e6)) throw std::runtime_error(name + " takes a number");
  return found;
}

Arguments read_arguments(const std::vector<std::string> &given) {
  Arguments made;
  for (size_t i = 0; i < given.size(); ++i) {
    const std::string &name = given[i];
    const auto value = [&]() -> const std::string & {
      if (i + 1 == given.size()) throw std::runtime_error(name + " needs a value");
      return given[++i];
    };
    if (name == "--input") add_file(made.inputs, value());
    else if (name == "--reference") add_file(made.references, value());
    else if (name == "--output") add_file(made.outputs, value());
    else if (name == "--bench") made.bench = true;
    else if (name == "--profile") made.profile = true;
    else if (name == "--devices") made.devices = true;
    else if (name == "--json") made.json = true;
    else if (name == "--device") made.device = value();
    else if (name == "--cache") made.cache = value();
    else if (name == "--seconds") made.seconds = number_of(name, value());
    else if (name == "--frames-in-flight") made.frames = std::max<size_t>(1, static_cast<size_t>(number_of(name, value())));
    else if (name[0] == '-' || !made.model.empty()) throw std::runtime_error("'" + name + "' is unknown\n" + USAGE);
    else made.model = name;
  }
  if (made.model.empty() && !made.devices) throw std::runtime_error(USAGE);
  return made;
}

// The library's functions, whose errors become exceptions.
template <class Function, class... Given>
void call(Function function, Given... given) {
  imgconv_error error;
  if (function(given..., &error)) throw std::runtime_error(error.message);
}

// All inputs, or all outputs, of a model.
struct Arrays {
  std::vector<imgconv_tensor> tensors;
  std::vector<std::vector<char>> contents;
  std::vector<imgconv_array> arrays;

  void add(const imgconv_tensor &tensor) {
    tensors.push_back(tensor);
    contents.emplace_back(tensor.bytes);
    arrays.push_back({contents.back().data(), tensor.bytes, nullptr});
  }

  size_t find(const std::string &name) const {
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (name == tensors[i].name) return i;
    }
    throw std::runtime_error("the model has no '" + name + "' there");
  }
};

void print_devices() {
  size_t needed = 0;
  call(imgconv_devices_json, static_cast<char *>(nullptr), size_t(0), &needed);
  std::vector<char> text(needed);
  call(imgconv_devices_json, text.data(), text.size(), &needed);
  std::fputs(text.data(), stdout);
}

// The elements whose bits differ.
size_t differing(const imgconv_tensor &tensor, const std::vector<char> &a, const std::vector<char> &b) {
  size_t elements = 1, count = 0;
  for (size_t axis = 0; axis < tensor.rank; ++axis) elements *= static_cast<size_t>(tensor.shape[axis]);
  const size_t bytes = tensor.bytes / std::max<size_t>(elements, 1);
  for (size_t at = 0; at < tensor.bytes; at += bytes) count += std::memcmp(&a[at], &b[at], bytes) != 0;
  return count;
}

// Whether all outputs that have a reference equal it.
bool compare(const Arguments &arguments, const Arrays &outputs) {
  bool equal = true;
  for (const auto &[name, path] : arguments.references) {
    const size_t number = outputs.find(name);
    const imgconv_tensor &tensor = outputs.tensors[number];
    const size_t count = differing(tensor, outputs.contents[number], read_array(path, tensor));
    std::fprintf(stderr, "%s: %zu elements differ from %s\n", name.c_str(), count, path.c_str());
    equal = equal && count == 0;
  }
  return equal;
}

// Seconds from the start of each frame to its outputs, for `seconds`.
std::vector<double> measure(imgconv_model *model, const Arguments &arguments, Arrays &inputs, Arrays &outputs, double seconds) {
  std::vector<double> found;
  std::deque<std::pair<uint64_t, Clock::time_point>> flying;
  const Clock::time_point begin = Clock::now();
  while (found.empty() || seconds_since(begin) < seconds || !flying.empty()) {
    const Clock::time_point start = Clock::now();
    if (arguments.frames == 1) {
      call(imgconv_run, model, inputs.arrays.data(), outputs.arrays.data());
      found.push_back(seconds_since(start));
      continue;
    }
    if (flying.size() < arguments.frames && (flying.empty() || seconds_since(begin) < seconds)) {
      uint64_t frame = 0;
      call(imgconv_submit, model, inputs.arrays.data(), &frame);
      flying.emplace_back(frame, start);
      continue;
    }
    call(imgconv_wait, model, flying.front().first, outputs.arrays.data());
    found.push_back(seconds_since(flying.front().second));
    flying.pop_front();
  }
  return found;
}

void bench(imgconv_model *model, const Arguments &arguments, Arrays &inputs, Arrays &outputs) {
  measure(model, arguments, inputs, outputs, arguments.seconds / 10);
  const Clock::time_point begin = Clock::now();
  std::vector<double> found = measure(model, arguments, inputs, outputs, arguments.seconds);
  const double rate = static_cast<double>(found.size()) / seconds_since(begin);
  std::sort(found.begin(), found.end());
  const auto at = [&](double part) { return 1e3 * found[static_cast<size_t>(part * static_cast<double>(found.size() - 1))]; };
  std::printf(arguments.json ? "{\"frames\": %zu, \"frames_per_second\": %.6g, \"milliseconds\": {\"least\": %.6g, "
                               "\"p50\": %.6g, \"p90\": %.6g, \"p99\": %.6g, \"most\": %.6g}, \"replay\": \"%s\"}\n"
                             : "%zu frames, %.1f a second; ms: least %.3f, p50 %.3f, p90 %.3f, p99 %.3f, most %.3f %s\n",
              found.size(), rate, at(0), at(0.5), at(0.9), at(0.99), at(1), imgconv_replay(model));
}

void print_profile(imgconv_model *model, Arrays &inputs) {
  std::vector<double> seconds(imgconv_launch_count(model));
  call(imgconv_profile, model, inputs.arrays.data(), seconds.data());
  for (size_t i = 0; i < seconds.size(); ++i) {
    std::printf("%10.1f us  %s\n", 1e6 * seconds[i], imgconv_launch_name(model, i));
  }
}

int run(const Arguments &arguments) {
  if (arguments.devices) {
    print_devices();
    return 0;
  }
  const Clock::time_point start = Clock::now();
  imgconv_options options{};
  options.device = arguments.device.empty() ? nullptr : arguments.device.c_str();
  options.cache_folder = arguments.cache.empty() ? nullptr : arguments.cache.c_str();
  options.frames = static_cast<uint32_t>(arguments.frames);
  options.profile = arguments.profile;
  imgconv_model *model = nullptr;
  call(imgconv_open_file, arguments.model.c_str(), static_cast<const imgconv_options *>(&options), &model);
  const std::unique_ptr<imgconv_model, decltype(&imgconv_close)> closed_at_the_end(model, imgconv_close);
  const double opened = seconds_since(start);
  Arrays inputs, outputs;
  imgconv_tensor tensor;
  for (size_t i = 0; imgconv_input(model, i, &tensor) == IMGCONV_OK; ++i) inputs.add(tensor);
  for (size_t i = 0; imgconv_output(model, i, &tensor) == IMGCONV_OK; ++i) outputs.add(tensor);
  for (const auto &[name, path] : arguments.inputs) {
    const size_t number = inputs.find(name);
    const std::vector<char> content = read_array(path, inputs.tensors[number]);
    std::copy(content.begin(), content.end(), inputs.contents[number].begin());
  }
  call(imgconv_run, model, inputs.arrays.data(), outputs.arrays.data());
  std::fprintf(stderr, "opened in %.4f s, first result after %.4f s\n", opened, seconds_since(start));
  for (const auto &[name, path] : arguments.outputs) {
    const size_t number = outputs.find(name);
    write_array(path, outputs.tensors[number], outputs.contents[number]);
  }
  const bool equal = compare(arguments, outputs);
  if (arguments.profile) print_profile(model, inputs);
  if (arguments.bench) bench(model, arguments, inputs, outputs);
  return equal ? 0 : 1;
}

}  // namespace

int main(int count, char **given) {
  try {
    return run(read_arguments({given + 1, given + count}));
  } catch (const std::exception &error) {
    std::fprintf(stderr, "imgconv-run: %s\n", error.what());
    return 2;
  }
}
