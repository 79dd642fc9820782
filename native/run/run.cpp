// imgconv-run: runs a compiled model, compares it with references, measures it.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "bench.h"
#include "call.h"
#include "camera.h"
#include "compare.h"
#include "imgconv.h"
#include "npy.h"

namespace {

const char *const USAGE =
    R"(imgconv-run MODEL [--input NAME=FILE] [--reference NAME=FILE [--tolerance T]] [--output NAME=FILE]
    [--bench [--seconds N] [--frames-in-flight K] [--json]] [--profile] [--device DEVICE] [--cache FOLDER]
    [--timeout S] [--unchecked] [--shape NAME=SIZES] [--tune MS] [--priority high|normal|low]
    [--frame NAME=FILE --size WxH --plane OFFSET,ROW_STRIDE[,PIXEL_STRIDE]... [--rotate DEGREES] [--mirror]
    [--region LEFT,TOP,WIDTH,HEIGHT]]
imgconv-run MODEL --check [--device DEVICE] [--cache FOLDER]
imgconv-run --devices
imgconv-run --help

FILE: .npy, or the raw content, row-major. Inputs that are not given are zeros. MODEL alone: opens the model, runs it
once, and prints its inputs and outputs. Of a detector with answers, class, score, left, top, right and bottom of each
box are printed. --reference: compares an output; exit status 1 if its bits differ, or, with --tolerance, if a number
differs by more than T times the largest of the reference. --bench: runs for N seconds (default 3), after a tenth of
them. --profile: the time of each launch. --device: an index, or a part of the name. --cache: a folder for compiled
programs. --timeout: gives up if opening, or a run, takes more than S seconds (default 600). --shape: which size of a
file that was compiled for several, as x=1,3,480,640. --check: opens the model unchecked, and prints JSON of which
launches are right; exit status 1 if one is wrong. --unchecked: opening checks nothing. --tune: opening spends so many
milliseconds to find faster kernels, once for each --cache; the forms in the report of --check show what it chose.
--priority: next to other programs, if the driver takes it. --frame: a camera's frame as it is in memory, for an input
of imgconv compile --picture; FILE is raw. --plane: where in FILE each plane begins, and its strides in bytes; a
stride of 0: without gaps. The frame, or a region of it, is rotated clockwise and then mirrored. --devices: prints a
JSON description of all devices, for `imgconv compile --target`.
Exit status 2: an argument, a file, the driver or a call failed.
)";

using Files = std::map<std::string, std::string>;

struct Arguments {
  std::string model, device, cache, shapes;
  Files inputs, references, outputs;
  bool bench = false, profile = false, devices = false, check = false, unchecked = false, help = false, json = false;
  double seconds = 3, tolerance = 0, timeout = 0, tune = 0;
  size_t frames = 1;
  imgconv_priority priority = IMGCONV_PRIORITY_DEFAULT;
  std::string frame_input;
  Camera camera;
};

void add_file(Files &files, const std::string &text) {
  const size_t at = text.find('=');
  if (at == std::string::npos) throw std::runtime_error("'" + text + "' is not NAME=FILE");
  files[text.substr(0, at)] = text.substr(at + 1);
}

double number_of(const std::string &name, const std::string &text) {
  char *end = nullptr;
  const double found = std::strtod(text.c_str(), &end);
  if (text.empty() || *end || !(found >= 0 && found < 1e6)) throw std::runtime_error(name + " takes a number");
  return found;
}

imgconv_priority priority_of(const std::string &text) {
  if (text == "high") return IMGCONV_PRIORITY_HIGH;
  if (text == "normal") return IMGCONV_PRIORITY_NORMAL;
  if (text == "low") return IMGCONV_PRIORITY_LOW;
  throw std::runtime_error("--priority takes high, normal or low");
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
    else if (name == "--frame") {
      Files file;
      add_file(file, value());
      std::tie(made.frame_input, made.camera.path) = *file.begin();
    } else if (name == "--size") made.camera.set_size(value());
    else if (name == "--plane") made.camera.add_plane(value());
    else if (name == "--rotate") made.camera.set_rotation(value());
    else if (name == "--region") made.camera.set_region(value());
    else if (name == "--mirror") made.camera.frame.mirror = 1;
    else if (name == "--bench") made.bench = true;
    else if (name == "--profile") made.profile = true;
    else if (name == "--check") made.check = made.unchecked = true;
    else if (name == "--unchecked") made.unchecked = true;
    else if (name == "--devices") made.devices = true;
    else if (name == "--json") made.json = true;
    else if (name == "--help" || name == "-h") made.help = true;
    else if (name == "--device") made.device = value();
    else if (name == "--cache") made.cache = value();
    else if (name == "--shape") made.shapes += value() + " ";
    else if (name == "--tolerance") made.tolerance = number_of(name, value());
    else if (name == "--timeout") made.timeout = number_of(name, value());
    else if (name == "--tune") made.tune = number_of(name, value());
    else if (name == "--priority") made.priority = priority_of(value());
    else if (name == "--seconds") made.seconds = number_of(name, value());
    else if (name == "--frames-in-flight") made.frames = static_cast<size_t>(std::max(1.0, number_of(name, value())));
    else if (name[0] == '-' || !made.model.empty()) throw std::runtime_error("'" + name + "' is unknown\n" + USAGE);
    else made.model = name;
  }
  if (made.model.empty() && !made.devices && !made.help) throw std::runtime_error(USAGE);
  return made;
}

// All inputs, or all outputs, of a model.
struct Arrays {
  std::vector<imgconv_tensor> tensors;
  std::vector<std::vector<char>> contents;
  std::vector<imgconv_array> arrays;

  const char *kind;

  void add(const imgconv_tensor &tensor) {
    tensors.push_back(tensor);
    contents.emplace_back(tensor.bytes);
    arrays.push_back({contents.back().data(), tensor.bytes, nullptr, nullptr});
  }

  size_t find(const std::string &name) const {
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (name == tensors[i].name) return i;
    }
    std::string names;
    for (const imgconv_tensor &each : tensors) names += std::string(names.empty() ? "" : ", ") + each.name;
    throw std::runtime_error(std::string("the model has no ") + kind + " '" + name + "'; it has " + names);
  }
};

void print_devices() {
  size_t needed = 0;
  call(imgconv_devices_json, static_cast<char *>(nullptr), size_t(0), &needed);
  std::vector<char> text(needed);
  call(imgconv_devices_json, text.data(), text.size(), &needed);
  std::fputs(text.data(), stdout);
}

// Whether all outputs that have a reference equal it, or are within the tolerance.
bool compare(const Arguments &arguments, const Arrays &outputs) {
  bool equal = true;
  for (const auto &[name, path] : arguments.references) {
    const size_t number = outputs.find(name);
    const imgconv_tensor &tensor = outputs.tensors[number];
    const Difference found = difference_of(tensor, outputs.contents[number], read_array(path, tensor));
    std::fprintf(stderr, "%s: %zu elements differ from %s, by at most %.3g of its largest number\n", name.c_str(),
                 found.elements, path.c_str(), found.largest);
    equal = equal && (arguments.tolerance > 0 ? found.largest <= arguments.tolerance : found.elements == 0);
  }
  return equal;
}

// Throws std::runtime_error for files that cannot be read or written, which the opening of a model would only delay.
void check_files(const Arguments &arguments) {
  for (const Files *files : {&arguments.inputs, &arguments.references}) {
    for (const auto &[name, path] : *files) {
      if (access(path.c_str(), R_OK)) throw std::runtime_error("cannot read " + path);
    }
  }
  for (const auto &[name, path] : arguments.outputs) {
    const size_t slash = path.rfind('/');
    const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
    const bool exists = !access(path.c_str(), F_OK);  // such as /dev/stdout, in a folder of the system's
    if (access((exists ? path : folder).c_str(), W_OK)) throw std::runtime_error("cannot write " + path);
  }
}

// Whether only a model was named, and perhaps where it runs.
bool is_only_named(const Arguments &given) {
  const bool has_files = !given.inputs.empty() || !given.references.empty() || !given.outputs.empty();
  return !has_files && !given.camera.is_given() && !given.bench && !given.profile;
}

// "input   x: float32 1x3x8x8" for each.
void print_tensors(const char *kind, const std::vector<imgconv_tensor> &tensors) {
  for (const imgconv_tensor &each : tensors) {
    std::printf("%-7s %s: %s ", kind, each.name, each.dtype_name);
    for (size_t axis = 0; axis < each.rank; ++axis) {
      std::printf("%s%lld", axis ? "x" : "", static_cast<long long>(each.shape[axis]));
    }
    std::puts(each.rank ? "" : "scalar");
  }
}

// Class, score, left, top, right and bottom of each box, if the outputs are those of a detector with answers.
void print_boxes(const Arrays &outputs) {
  const char *const expected[][2] = {
      {"boxes", "float32"}, {"scores", "float32"}, {"classes", "int32"}, {"count", "int32"}};
  for (size_t i = 0; i < 4; ++i) {
    if (i >= outputs.tensors.size() || std::strcmp(outputs.tensors[i].name, expected[i][0])) return;
    if (std::strcmp(outputs.tensors[i].dtype_name, expected[i][1])) return;
  }
  const float *box = reinterpret_cast<const float *>(outputs.contents[0].data());
  const float *score = reinterpret_cast<const float *>(outputs.contents[1].data());
  const int32_t *kind = reinterpret_cast<const int32_t *>(outputs.contents[2].data());
  const auto most = int32_t(outputs.contents[1].size() / sizeof(float));
  const int32_t count = std::min(*reinterpret_cast<const int32_t *>(outputs.contents[3].data()), most);
  for (int32_t i = 0; i < count; ++i, box += 4) {
    std::printf("%d %.4f %.2f %.2f %.2f %.2f\n", kind[i], score[i], box[0], box[1], box[2], box[3]);
  }
}

void bench(imgconv_model *model, const Arguments &arguments, const Arrays &inputs, const Arrays &outputs) {
  const auto run = [&](double seconds) {
    return measure(model, inputs.arrays, outputs.arrays, arguments.frames, seconds);
  };
  run(arguments.seconds / 10);
  std::puts(figures(run(arguments.seconds), imgconv_replay(model), arguments.json).c_str());
}

void print_profile(imgconv_model *model, Arrays &inputs) {
  std::vector<double> seconds(imgconv_launch_count(model));
  call(imgconv_profile, model, inputs.arrays.data(), inputs.arrays.size(), seconds.data(), seconds.size());
  for (size_t i = 0; i < seconds.size(); ++i) {
    std::printf("%10.1f us  %s\n", 1e6 * seconds[i], imgconv_launch_name(model, i));
  }
}

// The exit status.
int print_check(imgconv_model *model) {
  const char *report = nullptr;
  size_t wrong = 0;
  call(imgconv_check, model, &report, &wrong);
  std::fputs(report, stdout);
  return wrong ? 1 : 0;
}

// A line on the terminal that tells how far the opening of a model is, once it takes a second. As Python's.
class ProgressLine {
 public:
  ~ProgressLine() {
    if (is_shown_) std::fputs(CLEAR, stderr);
  }
  void show(imgconv_phase phase, size_t done, size_t total) {
    constexpr const char *NAMES[] = {
        "opening", "compiling kernels", "checking launches", "tuning launches", "first run"};
    if (!isatty(STDERR_FILENO) || seconds_since(begun_) < 1) return;
    is_shown_ = true;
    std::fprintf(stderr, "%simgconv: %s", CLEAR, NAMES[std::min(phase, IMGCONV_PHASE_RUN)]);
    if (total) std::fprintf(stderr, ", %zu of %zu", done, total);
  }

 private:
  static constexpr const char *CLEAR = "\r\x1b[2K";

  const Clock::time_point begun_ = Clock::now();
  bool is_shown_ = false;
};

imgconv_model *open(const Arguments &arguments) {
  imgconv_options options{};
  options.device = arguments.device.empty() ? nullptr : arguments.device.c_str();
  options.cache_folder = arguments.cache.empty() ? nullptr : arguments.cache.c_str();
  options.frames = arguments.frames > 1 ? static_cast<uint32_t>(arguments.frames) : 0;
  options.shapes = arguments.shapes.c_str();
  options.profile = arguments.profile;
  options.timeout_ms = static_cast<uint32_t>(1e3 * arguments.timeout);
  options.tune_ms = static_cast<uint32_t>(arguments.tune);
  options.priority = arguments.priority;
  options.check = arguments.unchecked ? IMGCONV_CHECK_OFF : IMGCONV_CHECK_ONCE;
  ProgressLine line;
  options.progress = [](void *data, imgconv_phase phase, size_t done, size_t total) {
    static_cast<ProgressLine *>(data)->show(phase, done, total);
    return 0;
  };
  options.progress_data = &line;
  imgconv_model *model = nullptr;
  call(imgconv_open_file, arguments.model.c_str(), static_cast<const imgconv_options *>(&options), &model);
  return model;
}

int run(const Arguments &arguments) {
  if (arguments.help) {
    std::fputs(USAGE, stdout);
    return 0;
  }
  if (arguments.devices) {
    print_devices();
    return 0;
  }
  check_files(arguments);
  Camera camera = arguments.camera;
  if (camera.is_given()) camera.read();
  const Clock::time_point start = Clock::now();
  imgconv_model *const model = open(arguments);
  const std::unique_ptr<imgconv_model, decltype(&imgconv_close)> closed_at_the_end(model, imgconv_close);
  const double opened = seconds_since(start);
  if (arguments.check) return print_check(model);
  Arrays inputs{{}, {}, {}, "input"}, outputs{{}, {}, {}, "output"};
  imgconv_tensor tensor;
  for (size_t i = 0; imgconv_input(model, i, &tensor) == IMGCONV_OK; ++i) inputs.add(tensor);
  for (size_t i = 0; imgconv_output(model, i, &tensor) == IMGCONV_OK; ++i) outputs.add(tensor);
  if (is_only_named(arguments)) {
    print_tensors("input", inputs.tensors);
    print_tensors("output", outputs.tensors);
  }
  for (const auto &[name, path] : arguments.inputs) {
    const size_t number = inputs.find(name);
    const std::vector<char> content = read_array(path, inputs.tensors[number]);
    std::copy(content.begin(), content.end(), inputs.contents[number].begin());
  }
  if (camera.is_given()) inputs.arrays[inputs.find(arguments.frame_input)] = {nullptr, 0, nullptr, &camera.frame};
  for (const Files *files : {&arguments.outputs, &arguments.references}) {
    for (const auto &[name, path] : *files) outputs.find(name);
  }
  call(imgconv_run, model, inputs.arrays.data(), inputs.arrays.size(), outputs.arrays.data(), outputs.arrays.size());
  std::fprintf(stderr, "opened in %.4f s, first result after %.4f s\n", opened, seconds_since(start));
  for (const auto &[name, path] : arguments.outputs) {
    const size_t number = outputs.find(name);
    write_array(path, outputs.tensors[number], outputs.contents[number]);
  }
  const bool equal = compare(arguments, outputs);
  const bool is_of_an_input = !arguments.inputs.empty() || camera.is_given();
  if (is_of_an_input && !arguments.bench && !arguments.profile) print_boxes(outputs);
  if (arguments.profile) print_profile(model, inputs);
  if (arguments.bench) bench(model, arguments, inputs, outputs);
  return equal ? 0 : 1;
}

}  // namespace

int main(int count, char **given) {
  try {
    return run(read_arguments({given + 1, given + count}));
  } catch (const CallError &error) {
    std::fprintf(stderr, "imgconv-run: %s\n", error.what());
    // A driver that hangs may wait for its device when the process ends.
    if (error.status == IMGCONV_ERROR_TIMEOUT) std::_Exit(2);
    return 2;
  } catch (const std::exception &error) {
    std::fprintf(stderr, "imgconv-run: %s\n", error.what());
    return 2;
  }
}
