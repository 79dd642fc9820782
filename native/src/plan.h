// A plan of a compiled file, with every number checked, and the choice of the plan for a device.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "device.h"
#include "dtype.h"
#include "error.h"
#include "file.h"
#include "shared_weights.h"

namespace imgconv {

enum class Place { image, workspace, slot, buffer };

// Where the texels of a tensor are in its image: see Layout and Tiling in imgconv/kernels/layout.py. All 0 for a
// buffer.
struct Texels {
  size_t channels = 0, quads = 0;  // of the axis of which a texel holds four
  size_t width = 0, height = 0, tile_width = 0, tile_height = 0, per_layer = 0;
  bool along_y = false;
};

// What an argument of a kernel is: see Storage in imgconv/stored/model.fbs.
struct Storage {
  std::string name;
  imgconv_dtype dtype = IMGCONV_FLOAT32;
  Place place = Place::buffer;
  size_t width = 0, height = 0, layers = 0;  // of an image, in texels
  size_t offset = 0, row_bytes = 0;          // in the workspace
  size_t bytes = 0;                          // of the texels, or of the buffer
  uint32_t slot = 0;
  int64_t content = -1;  // the number of a blob; -1: none
  View view;             // of the blob
  bool state = false;
  bool linear = false;     // its texels are in a buffer, row by row
  bool exchanged = false;  // an input or an output
  bool whole = false;      // see Check in model.fbs
  bool integers = false;   // kernels read its texels as integers
  bool spare = false;      // no launch uses it
  Texels texels;

  bool is_image() const { return place != Place::buffer && !linear; }
};

struct Input {
  Value value;
  uint32_t storage = 0;
  bool exact = false;
  bool converted = false;  // whether the device keeps it in another dtype
};

// An integer of an output that the host moves: an element of an input, or, if `input` is -1, `element` itself.
struct Moved {
  int32_t input;
  int64_t element;
};

// What a storage holds after a run; else what the host moves from inputs; else a constant.
struct Output {
  Value value;
  bool is_stored = false, converted = false;
  uint32_t storage = 0;
  uint32_t blob = 0;              // of a constant
  std::vector<Moved> moved;
  std::vector<uint8_t> constant;  // its content, once the model is open

  bool is_constant() const { return !is_stored && moved.empty() && value.elements; }
};

// path: the file of its template. base: the number of a kernel, with whose first `prefix` bytes the text begins and
// with whose last `suffix` bytes it ends; -1: `text` is all of it. unoptimised: whether it is built with
// -cl-opt-disable.
struct KernelText {
  std::string text, path;
  int64_t base = -1;
  size_t prefix = 0, suffix = 0;
  bool unoptimised = false;
};

// number: in the plan of the file, also of a launch that replaces it. origin: the ONNX nodes that it came from.
struct Launch {
  std::string name, origin;
  uint32_t number = 0;
  uint32_t kernel = 0;
  std::vector<uint32_t> arguments;
  std::vector<size_t> global_size, local_size;
};

// Launches in place of the one that is checked, or before one that does a part of its work.
struct Replacement {
  uint32_t launch = 0;
  std::vector<Launch> launches;
};

// What a launch writes if its inputs hold drawn numbers: see Check in model.fbs.
// storage: what the launch writes.
// The launch has several forms, by number: 0 is its own, then come its alternatives, then the plain form, then that,
// or its own if it has none, built without optimisation.
struct Check {
  uint32_t launch = 0, storage = 0;
  std::vector<uint32_t> parts;
  bool positive = false;
  std::vector<uint32_t> elements;
  std::vector<float> values, bounds;
  std::string reason;
  std::vector<Replacement> plain;
  std::vector<Launch> alternatives;
  bool fine = false;

  uint32_t plain_form() const { return static_cast<uint32_t>(alternatives.size()) + 1; }
  uint32_t unoptimised_form() const { return plain_form() + 1; }
  // What to take in place of a form that is wrong; none is left after the unoptimised one.
  std::optional<uint32_t> form_after(uint32_t form) const;
  // "own", "another specialisation", "plain" or "without optimisation".
  const char *name_of(uint32_t form) const;
  // Whether a launch of the plan does a part of the work that is checked.
  bool covers(uint32_t number) const;
};

// A component of a pixel in its plane: `offset` bytes after the start of a pixel, at every so many pixels.
struct FrameComponent {
  uint8_t plane, offset, pixels;
};

// pixel_strides: of each plane without gaps.
struct FrameLayout {
  std::vector<uint8_t> pixel_strides;
  std::vector<FrameComponent> components;
};

// An input that is a picture: see FrameInput in imgconv/stored/model.fbs.
struct FrameInput {
  uint32_t input = 0, width = 0, height = 0, header_bytes = 0;
  std::string format;
  uint8_t sample_bytes = 1, shared_width = 1, shared_height = 1;
  std::vector<FrameLayout> layouts;
  KernelText kernel;
  size_t global_size = 0;
};

// By the number of a check, the form of its launch, if it is not its own.
using Forms = std::map<uint32_t, uint32_t>;

struct ProgramParts {
  std::vector<uint32_t> kernels;
  int64_t binary = -1;  // the number of a blob; -1: none
};

// Options for all programs of a plan: see imgconv/build_options.py. wave_size, accelerate_16_bit: numbers of the enums
// WaveSize and Switch in imgconv/stored/model.fbs; 0: unset.
struct BuildOptions {
  uint8_t wave_size = 0, accelerate_16_bit = 0;
  bool one_kernel_a_program = false;

  bool operator==(const BuildOptions &other) const;
  bool operator!=(const BuildOptions &other) const { return !(*this == other); }
  // These options, replaced by those that are set in `other`.
  BuildOptions overridden_by(const BuildOptions &other) const;
  // "half waves, one kernel per program", or "the driver's defaults".
  std::string text() const;
  // The option of the compiler; "" for none.
  std::string flag() const;
  // The text before that of a program. It names all that changes what the compiler makes of the text.
  std::string prelude() const;
};

struct Plan {
  uint32_t number = 0;  // in the file
  std::string device;
  std::vector<Input> inputs;
  std::vector<Output> outputs;
  std::vector<Storage> storages, slots;
  size_t workspace_bytes = 0;
  std::string common;
  std::vector<KernelText> kernels;
  std::vector<ProgramParts> programs;
  std::vector<Launch> launches;
  std::vector<Check> checks;
  std::optional<FrameInput> frame;
  Forms forms;  // that it takes
  BuildOptions build_options;  // those of the file are for `device` only
  bool computes_in_half = false;
  bool native_functions = false;  // they were measured on `device` only
  bool dot_product = false;       // its instruction was tried there only
  uint64_t local_memory_bytes = 0;  // of the device that it was made for; 0: not known
  std::string unsupported;  // what of it this library does not do; empty: nothing

  // Takes these forms of launches in place of their own.
  void take(const Forms &forms);
  // Builds with other options, without the binaries of the file.
  void take(const BuildOptions &options);
  // Whether a check runs each launch.
  bool is_covered() const;
  // Returns the source of a program with these kernels, like imgconv/kernels/kernel_source.py. Either all or none of
  // them are built unoptimised.
  std::string source(const std::vector<uint32_t> &numbers) const;
  // "conv.cl, launch 'conv1'": the template of a kernel, and the first launch of it.
  std::string origin(uint32_t kernel) const;

 private:
  void put(const Replacement &given, bool in_its_place);
  void choose_programs();
  // The number of a kernel that is the same built without optimisation.
  uint32_t unoptimised(uint32_t kernel);
  std::string text_of(uint32_t kernel) const;
};

// The plans of a file that a device can hold: first that of its key, then the others in their order.
class PlanChoice {
 public:
  // shapes: "x=1,3,480,640 y=1,4", which of the file's sizes; "": the first. Throws Error if none fits.
  PlanChoice(const File &file, const DeviceInfo &info, const std::string &shapes);

  // The next plan. If there is none, throws Error, which names what each plan lacks.
  Plan next();
  // Notes why the last plan does not run after all. Throws the problem if another plan does not help.
  void reject(const Error &problem);
  // Whether no other plan of the file is left to try.
  bool none_waits() const;

 private:
  void note(const char *problem);

  const File &file_;
  const DeviceInfo &info_;
  const stored::Model &sized_;
  std::vector<uint32_t> waiting_;  // numbers of plans
  uint64_t room_;
  std::string device_, problems_;  // of the last plan, and of all
  size_t noted_ = 0;
  std::optional<Error> rejected_;  // the first one
};

}  // namespace imgconv
