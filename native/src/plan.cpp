#include "plan.h"

#include <algorithm>
#include <cstring>

#include "error.h"
#include "model_generated.h"

namespace imgconv {
namespace {

constexpr uint64_t LARGEST = uint64_t(1) << 40, LARGEST_IMAGE = 1 << 20;
constexpr size_t LANES = 4;

// The verifier of FlatBuffers does not look at the alignment of a list's elements: a made-up file may have any.
template <class T>
T element(const flatbuffers::Vector<T> &items, flatbuffers::uoffset_t number) {
  T value;
  std::memcpy(&value, items.Data() + number * sizeof value, sizeof value);
  return value;
}

// Reads a plan's tables; every problem is an Error that names the file.
class Reader {
 public:
  Reader(const File &file, const stored::Plan &table) : file_(file), table_(table) {}

  Plan read() {
    plan_.device = text(table_.device());
    plan_.common = text(table_.common());
    plan_.workspace_bytes = number(table_.workspace_bytes(), 0, LARGEST, "the workspace");
    each(table_.slots(), [&](const stored::Slot &slot) { plan_.slots.push_back(read_slot(slot)); });
    each(table_.storages(), [&](const stored::Storage &storage) { plan_.storages.push_back(read_storage(storage)); });
    each(table_.inputs(), [&](const stored::Input &input) { plan_.inputs.push_back(read_input(input)); });
    each(table_.outputs(), [&](const stored::Output &output) { plan_.outputs.push_back(read_output(output)); });
    each(table_.kernels(), [&](const stored::Kernel &kernel) { plan_.kernels.push_back(text(kernel.text())); });
    read_programs();
    each(table_.launches(), [&](const stored::Launch &launch) { plan_.launches.push_back(read_launch(launch)); });
    return std::move(plan_);
  }

 private:
  template <class Vector, class Work>
  static void each(const Vector *items, Work work) {
    if (!items) return;
    for (flatbuffers::uoffset_t i = 0; i < items->size(); ++i) work(*items->Get(i));
  }

  static std::string text(const flatbuffers::String *text) { return text ? text->str() : std::string(); }

  uint64_t number(uint64_t value, uint64_t low, uint64_t high, const std::string &what) const {
    if (value < low || value > high) {
      file_.refuse(what + " is " + std::to_string(value) + ", outside of " + std::to_string(low) + " to " +
                   std::to_string(high) + ": it is damaged, compile it again");
    }
    return value;
  }

  uint64_t product(uint64_t a, uint64_t b, const std::string &what) const {
    number(b, 0, a ? LARGEST / a : LARGEST, what);
    return a * b;
  }

  // A number that counts from 0 in a list of `count`.
  uint32_t index(uint64_t value, size_t count, const std::string &what) const {
    if (value >= count) file_.refuse(what + " " + std::to_string(value) + " is not there: it is damaged, compile it again");
    return static_cast<uint32_t>(value);
  }

  imgconv_dtype dtype(const flatbuffers::String *name) const {
    imgconv_dtype found{};
    if (!read_dtype(text(name), found)) file_.refuse("dtype '" + text(name) + "' is unknown: it is damaged, compile it again");
    return found;
  }

  size_t elements(const flatbuffers::Vector<int64_t> *shape) const {
    uint64_t count = 1;
    for (flatbuffers::uoffset_t i = 0; shape && i < shape->size(); ++i) {
      count = product(count, static_cast<uint64_t>(element(*shape, i)), "a number of elements");
    }
    return static_cast<size_t>(count);
  }

  Value read_value(const stored::Value *table) const {
    if (!table) file_.refuse("an input or output has no value: it is damaged, compile it again");
    Value value{text(table->name()), dtype(table->dtype()), {}, elements(table->shape())};
    for (flatbuffers::uoffset_t i = 0; table->shape() && i < table->shape()->size(); ++i) {
      value.shape.push_back(element(*table->shape(), i));
    }
    return value;
  }

  void set_size(Storage &storage, uint64_t width, uint64_t height, uint64_t layers) const {
    const imgconv_dtype type = storage.dtype;
    if (type != IMGCONV_FLOAT32 && type != IMGCONV_FLOAT16 && type != IMGCONV_INT8 && type != IMGCONV_UINT8) {
      file_.refuse("there are no images of " + std::string(dtype_name(type)) + ": it is damaged, compile it again");
    }
    storage.width = number(width, 1, LARGEST_IMAGE, "an image's width");
    storage.height = number(height, 1, LARGEST_IMAGE, "an image's height");
    storage.layers = number(layers, 1, LARGEST_IMAGE, "an image's layers");
    storage.bytes = product(product(width * height, layers, "an image"), LANES * dtype_bytes(type), "an image");
  }

  Storage read_slot(const stored::Slot &table) const {
    Storage slot;
    slot.name = "slot " + std::to_string(plan_.slots.size());
    slot.place = Place::image;
    slot.dtype = dtype(table.dtype());
    slot.linear = table.linear();
    set_size(slot, table.width(), table.height(), table.layers());
    return slot;
  }

  Storage read_storage(const stored::Storage &table) const {
    Storage storage;
    storage.name = text(table.name());
    storage.dtype = dtype(table.dtype());
    storage.state = table.state();
    storage.place = static_cast<Place>(index(table.memory(), 4, "kind of memory"));
    storage.linear = table.linear() && storage.place != Place::buffer;
    if (storage.place != Place::buffer) {
      set_size(storage, table.width(), table.height(), table.layers());
    } else {
      storage.bytes = elements(table.shape()) * dtype_bytes(storage.dtype);
      number(table.bytes(), storage.bytes, storage.bytes, "the bytes of a buffer");
    }
    if (storage.place == Place::workspace) check_region(storage, table);
    if (storage.place == Place::slot) check_slot(storage, table);
    if (table.content()) {
      storage.content = index(table.content()->blob(), blob_count(), "blob");
      number(file_.blob(table.content()->blob()).bytes, storage.bytes, storage.bytes, "the bytes of a constant");
    }
    const bool fixed = storage.content >= 0 || storage.state;
    const bool shared = storage.place == Place::workspace || storage.place == Place::slot;
    if ((fixed && shared) || (storage.state && storage.place == Place::buffer)) {
      file_.refuse("'" + storage.name + "' cannot be kept there: it is damaged, compile it again");
    }
    return storage;
  }

  void check_region(Storage &storage, const stored::Storage &table) const {
    const uint64_t texel = LANES * dtype_bytes(storage.dtype);
    storage.offset = number(table.offset(), 0, plan_.workspace_bytes, "an offset in the workspace");
    if (storage.linear) {
      number(storage.bytes, 1, plan_.workspace_bytes - storage.offset, "texels in the workspace");
      return;
    }
    number(storage.layers, 1, 1, "the layers of an image in the workspace");
    storage.row_bytes = number(table.row_bytes(), storage.width * texel, LARGEST / LARGEST_IMAGE * texel, "a row");
    number(storage.row_bytes * storage.height, 1, plan_.workspace_bytes - storage.offset, "an image in the workspace");
  }

  void check_slot(Storage &storage, const stored::Storage &table) const {
    storage.slot = index(table.slot(), plan_.slots.size(), "slot");
    const Storage &slot = plan_.slots[storage.slot];
    const bool is_array = slot.layers > 1;
    if (slot.linear && storage.linear) {
      number(storage.bytes, 1, slot.bytes, "texels in a slot");
      return;
    }
    if (slot.linear != storage.linear || slot.dtype != storage.dtype || is_array != (storage.layers > 1)) {
      file_.refuse("'" + storage.name + "' does not fit its slot: it is damaged, compile it again");
    }
    number(storage.width, 1, slot.width, "an image's width");
    number(storage.height, 1, slot.height, "an image's height");
    number(storage.layers, 1, slot.layers, "an image's layers");
  }

  // The number of a storage that the host fills or reads.
  uint32_t exchanged(const Value &value, uint32_t number_of) const {
    const uint32_t found = index(number_of, plan_.storages.size(), "storage");
    const Storage &storage = plan_.storages[found];
    const bool apart = storage.place == Place::image || storage.place == Place::buffer;
    if (!apart || storage.content >= 0 || storage.state || !can_store(value.dtype, storage.dtype)) {
      file_.refuse("'" + value.name + "' cannot be exchanged with the host: it is damaged, compile it again");
    }
    const uint64_t bytes = value.elements * dtype_bytes(storage.dtype);
    number(storage.bytes, bytes, bytes, "the bytes of '" + value.name + "'");
    return found;
  }

  Input read_input(const stored::Input &table) const {
    Input input{read_value(table.value()), 0, table.exact()};
    input.storage = exchanged(input.value, table.storage());
    return input;
  }

  Output read_output(const stored::Output &table) {
    Output output;
    output.value = read_value(table.value());
    if (table.kind() == stored::OutputKind_moved) {
      plan_.unsupported = "output '" + output.value.name + "' is made of integers that the host moves, which this " +
                          "library does not do: run the model with Python, or leave the output out of the ONNX file";
    } else if (table.kind() == stored::OutputKind_storage) {
      output.storage = exchanged(output.value, table.storage());
    } else {
      if (!table.constant()) file_.refuse("a constant output is missing: it is damaged, compile it again");
      output.is_constant = true;
      output.blob = index(table.constant()->blob(), blob_count(), "blob");
      number(file_.blob(output.blob).bytes, output.value.bytes(), output.value.bytes(), "the bytes of an output");
    }
    return output;
  }

  void read_programs() {
    std::vector<bool> built(plan_.kernels.size());
    each(table_.programs(), [&](const stored::Program &table) {
      ProgramParts program;
      for (flatbuffers::uoffset_t i = 0; table.kernels() && i < table.kernels()->size(); ++i) {
        program.kernels.push_back(index(element(*table.kernels(), i), plan_.kernels.size(), "kernel"));
        built[program.kernels.back()] = true;
      }
      if (table.binary() >= 0) program.binary = index(table.binary(), blob_count(), "blob");
      plan_.programs.push_back(std::move(program));
    });
    if (std::find(built.begin(), built.end(), false) != built.end()) {
      file_.refuse("a kernel is in no program: it is damaged, compile it again");
    }
  }

  Launch read_launch(const stored::Launch &table) const {
    Launch launch;
    launch.name = text(table.name());
    launch.kernel = index(table.kernel(), plan_.kernels.size(), "kernel");
    for (flatbuffers::uoffset_t i = 0; table.arguments() && i < table.arguments()->size(); ++i) {
      launch.arguments.push_back(index(element(*table.arguments(), i), plan_.storages.size(), "storage"));
    }
    number(launch.arguments.size(), 1, 1024, "the number of a kernel's arguments");
    launch.global_size = sizes(table.global_size());
    launch.local_size = sizes(table.local_size());
    number(launch.global_size.size(), 1, 3, "the number of a launch's sizes");
    if (!launch.local_size.empty()) {
      number(launch.local_size.size(), launch.global_size.size(), launch.global_size.size(), "the number of local sizes");
    }
    return launch;
  }

  std::vector<size_t> sizes(const flatbuffers::Vector<uint64_t> *table) const {
    std::vector<size_t> made;
    uint64_t items = 1;
    for (flatbuffers::uoffset_t i = 0; table && i < table->size(); ++i) {
      made.push_back(static_cast<size_t>(number(element(*table, i), 1, LARGEST, "a launch's size")));
      items = product(items, made.back(), "a launch's size");
      number(made.size(), 1, 3, "the number of a launch's sizes");
    }
    return made;
  }

  size_t blob_count() const { return file_.model().blobs() ? file_.model().blobs()->size() : 0; }

  const File &file_;
  const stored::Plan &table_;
  Plan plan_;
};

std::string beyond(const std::string &what, uint64_t wanted, uint64_t limit) {
  return what + ": the plan takes " + std::to_string(wanted) + ", the device has " + std::to_string(limit);
}

std::string image_misfit(const Storage &image, const DeviceInfo &info) {
  if (image.width > info.max_image_width) return beyond("image width in texels", image.width, info.max_image_width);
  if (image.height > info.max_image_height) {
    return beyond("image height in texels", image.height, info.max_image_height);
  }
  if (image.layers > 1 && image.layers > info.max_image_layers) {
    return beyond("image layers", image.layers, info.max_image_layers);
  }
  if (image.dtype == IMGCONV_FLOAT16 && !info.half_images) return "the device has no half images, which the plan takes";
  if (image.dtype == IMGCONV_INT8 && !info.byte_images) return "the device has no images of bytes, which the plan takes";
  if (image.place != Place::workspace) return "";
  if (!info.image_row_alignment) return "the device has no images in buffers, which the plan takes";
  const uint64_t texel = LANES * dtype_bytes(image.dtype);
  const uint64_t row = info.image_row_alignment * texel, base = info.image_base_alignment * texel;
  if (image.row_bytes % row) return "alignment of rows of images in buffers: the device takes multiples of " +
                                    std::to_string(row) + " bytes, the plan has " + std::to_string(image.row_bytes);
  if (base && image.offset % base) return "alignment of images in buffers: the device takes multiples of " +
                                          std::to_string(base) + " bytes, the plan has " + std::to_string(image.offset);
  return "";
}

std::string launch_misfit(const Plan &plan, const Launch &launch, const DeviceInfo &info) {
  const size_t images = static_cast<size_t>(std::count_if(
      launch.arguments.begin() + 1, launch.arguments.end(), [&](uint32_t each) { return plan.storages[each].is_image(); }));
  if (images > info.max_read_images) return beyond("images that a kernel reads", images, info.max_read_images);
  uint64_t items = 1;
  for (size_t axis = 0; axis < launch.local_size.size(); ++axis) {
    const size_t limit = axis < info.max_work_item_sizes.size() ? info.max_work_item_sizes[axis] : 1;
    if (launch.local_size[axis] > limit) return beyond("work items of a work group along an axis", launch.local_size[axis], limit);
    items *= launch.local_size[axis];
  }
  return items > info.max_work_group_size ? beyond("work items of a work group", items, info.max_work_group_size) : "";
}

}  // namespace

std::string Plan::source(const ProgramParts &program) const {
  std::string made = common;
  for (uint32_t number : program.kernels) {
    made += "#define NAME k" + std::to_string(number) + "\n" + kernels[number] + "#undef NAME\n";
  }
  return made;
}

std::string misfit(const Plan &plan, const DeviceInfo &info) {
  if (plan.computes_in_half && !info.has("cl_khr_fp16")) {
    return "the device does not compute in half (cl_khr_fp16), which the plan does";
  }
  if (plan.workspace_bytes > info.max_allocation_bytes) {
    return beyond("bytes in one allocation", plan.workspace_bytes, info.max_allocation_bytes);
  }
  for (const auto *images : {&plan.storages, &plan.slots}) {
    for (const Storage &each : *images) {
      if (!each.is_image() && each.bytes > info.max_allocation_bytes) {
        return beyond("bytes in one allocation", each.bytes, info.max_allocation_bytes);
      }
      if (each.linear && each.place == Place::workspace && each.offset % info.buffer_alignment) {
        return "alignment of parts of buffers: the device takes multiples of " + std::to_string(info.buffer_alignment) +
               " bytes, the plan has " + std::to_string(each.offset);
      }
      const std::string problem = each.is_image() ? image_misfit(each, info) : "";
      if (!problem.empty()) return problem;
    }
  }
  for (const Launch &each : plan.launches) {
    const std::string problem = launch_misfit(plan, each, info);
    if (!problem.empty()) return problem;
  }
  return "";
}

Plan choose_plan(const File &file, const DeviceInfo &info) {
  const auto *tables = file.model().plans();
  const auto *config = file.model().config();
  std::vector<Plan> fitting;
  std::string problems;
  for (flatbuffers::uoffset_t i = 0; tables && i < tables->size(); ++i) {
    Plan plan = Reader(file, *tables->Get(i)).read();
    plan.computes_in_half = config && config->float16() == 2;
    const std::string problem = misfit(plan, info);
    if (problem.empty()) {
      fitting.push_back(std::move(plan));
    } else {
      problems += "\n  plan for " + plan.device + ": " + problem;
    }
  }
  if (fitting.empty()) {
    throw Error(IMGCONV_ERROR_UNFIT, "no plan of the file fits " + info.key() + ":" + problems +
                                         "\ncompile it for this device: `imgconv compile --target FILE.json`");
  }
  const auto same = std::find_if(fitting.begin(), fitting.end(), [&](const Plan &each) { return each.device == info.key(); });
  Plan &chosen = same == fitting.end() ? fitting.front() : *same;
  if (!chosen.unsupported.empty()) throw Error(IMGCONV_ERROR_UNSUPPORTED, chosen.unsupported);
  return std::move(chosen);
}

}  // namespace imgconv
