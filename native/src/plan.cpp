#include "plan.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <sstream>
#include <string_view>

#include "error.h"
#include "model_generated.h"

namespace imgconv {
namespace {

// What a size_t holds, on 32 bits too.
constexpr uint64_t LARGEST = sizeof(size_t) > 4 ? uint64_t(1) << 40 : UINT32_MAX, LARGEST_IMAGE = 1 << 20;
constexpr size_t LANES = 4;

// Reads a plan's tables; every problem is an Error that names the file.
class Reader {
 public:
  // room: the bytes of texts and lists that may be copied. The tables of a made-up file may share a long one.
  Reader(const File &file, const stored::Plan &table, uint64_t &room) : file_(file), table_(table), room_(room) {}

  Plan read() {
    plan_.device = text(table_.device());
    plan_.common = text(table_.common());
    if (const stored::BuildOptions *options = table_.build_options()) plan_.build_options = read_options(*options);
    plan_.native_functions = table_.target() && table_.target()->native_functions();
    plan_.dot_product = table_.target() && table_.target()->dot_product() && table_.target()->dot_product()->size();
    plan_.local_memory_bytes = table_.target() ? table_.target()->local_memory_bytes() : 0;
    plan_.workspace_bytes = number(table_.workspace_bytes(), 0, LARGEST, "the workspace");
    each(table_.slots(), [&](const stored::Slot &slot) { plan_.slots.push_back(read_slot(slot)); });
    each(table_.storages(), [&](const stored::Storage &storage) { plan_.storages.push_back(read_storage(storage)); });
    each(table_.inputs(), [&](const stored::Input &input) { plan_.inputs.push_back(read_input(input)); });
    each(table_.outputs(), [&](const stored::Output &output) { plan_.outputs.push_back(read_output(output)); });
    each(table_.kernels(), [&](const stored::Kernel &kernel) { read_kernel(kernel); });
    read_programs();
    each(table_.launches(), [&](const stored::Launch &launch) {
      plan_.launches.push_back(read_launch(launch, static_cast<uint32_t>(plan_.launches.size())));
    });
    read_checks();
    if (table_.frame()) plan_.frame = read_frame(*table_.frame());
    return std::move(plan_);
  }

 private:
  template <class Vector, class Work>
  static void each(const Vector *items, Work work) {
    if (!items) return;
    for (flatbuffers::uoffset_t i = 0; i < items->size(); ++i) work(*items->Get(i));
  }

  template <class... Parts>
  [[noreturn]] void damaged(const Parts &...what) const {
    file_.refuse(what..., ": it is damaged, compile it again");
  }

  void take_room(size_t bytes) {
    if (bytes > room_) damaged("it has more text than it is long");
    room_ -= bytes;
  }

  std::string text(const flatbuffers::String *text) {
    take_room(text ? text->size() : 0);
    return text ? text->str() : std::string();
  }

  // FlatBuffers' verifier does not look at the alignment of a list's elements: a made-up file may have any.
  template <class T>
  std::vector<T> list(const flatbuffers::Vector<T> *items) {
    std::vector<T> made;
    if (!items || !items->size()) return made;
    take_room(items->size() * sizeof(T));
    made.resize(items->size());
    std::memcpy(made.data(), items->Data(), made.size() * sizeof(T));
    return made;
  }

  size_t number(uint64_t value, uint64_t low, uint64_t high, const std::string &what) const {
    if (value < low || value > high) damaged(what, " is ", value, ", outside of ", low, " to ", high);
    return static_cast<size_t>(value);
  }

  size_t product(size_t a, uint64_t b, const std::string &what) const {
    return a * number(b, 0, a ? LARGEST / a : LARGEST, what);
  }

  // A number that counts from 0 in a list of `count`.
  uint32_t index(uint64_t value, size_t count, const std::string &what) const {
    if (value >= count) damaged(what, " ", value, " is not there");
    return static_cast<uint32_t>(value);
  }

  // The number of a blob that has `bytes` bytes.
  uint32_t blob(uint64_t value, uint64_t bytes, const std::string &what) const {
    const uint32_t found = index(value, UINT32_MAX, "blob");
    number(file_.blob(found).bytes, bytes, bytes, what);
    return found;
  }

  imgconv_dtype dtype(const flatbuffers::String *name) {
    imgconv_dtype found{};
    const std::string wanted = text(name);
    if (!read_dtype(wanted, found)) damaged("dtype '", wanted, "' is unknown");
    return found;
  }

  size_t elements(const std::vector<int64_t> &shape) const {
    size_t count = 1;
    for (const int64_t size : shape) count = product(count, static_cast<uint64_t>(size), "a number of elements");
    return count;
  }

  Value read_value(const stored::Value *table) {
    if (!table) damaged("an input or output has no value");
    Value value{text(table->name()), dtype(table->dtype()), list(table->shape()), 0};
    value.elements = elements(value.shape);
    product(value.elements, dtype_bytes(value.dtype), "the bytes of a value");
    return value;
  }

  // Texels of integers have a dtype that no array has.
  void read_type(Storage &storage, const flatbuffers::String *name) {
    storage.integers = text(name) == "unsigned_int8";
    storage.dtype = storage.integers ? IMGCONV_UINT8 : dtype(name);
  }

  // table: a Slot or a Storage.
  template <class Table>
  void read_image(Storage &storage, const Table &table) const {
    const imgconv_dtype type = storage.dtype;
    if (type != IMGCONV_FLOAT32 && type != IMGCONV_FLOAT16 && type != IMGCONV_INT8 && type != IMGCONV_UINT8 &&
        type != IMGCONV_UINT32) {
      damaged("there are no images of ", dtype_name(type));
    }
    storage.linear = table.linear();
    storage.width = number(table.width(), 1, LARGEST_IMAGE, "an image's width");
    storage.height = number(table.height(), 1, LARGEST_IMAGE, "an image's height");
    storage.layers = number(table.layers(), 1, LARGEST_IMAGE, "an image's layers");
    storage.bytes = product(product(storage.width, storage.height, "an image"), storage.layers, "an image");
    storage.bytes = product(storage.bytes, LANES * dtype_bytes(type), "an image");
  }

  Storage read_slot(const stored::Slot &table) {
    Storage slot;
    slot.name = join("slot ", plan_.slots.size());
    slot.place = Place::image;
    read_type(slot, table.dtype());
    read_image(slot, table);
    return slot;
  }

  Storage read_storage(const stored::Storage &table) {
    Storage storage;
    storage.name = text(table.name());
    read_type(storage, table.dtype());
    storage.state = table.state();
    storage.whole = table.whole();
    storage.place = static_cast<Place>(index(table.memory(), 4, "kind of memory"));
    if (storage.place != Place::buffer) {
      read_image(storage, table);
      storage.texels = read_texels(table);
    } else {
      storage.bytes = product(elements(list(table.shape())), dtype_bytes(storage.dtype), "a buffer");
      number(table.bytes(), storage.bytes, storage.bytes, "the bytes of a buffer");
    }
    if (storage.place == Place::workspace) check_region(storage, table);
    if (storage.place == Place::slot) check_slot(storage, table);
    if (table.content()) read_content(storage, *table.content());
    const bool fixed = storage.content >= 0 || storage.state;
    const bool shared = storage.place == Place::workspace || storage.place == Place::slot;
    if ((fixed && shared) || (storage.state && storage.place == Place::buffer)) {
      damaged("'" + storage.name + "' cannot be kept there");
    }
    return storage;
  }

  void read_content(Storage &storage, const stored::Array &table) {
    const bool is_converted = table.stored() && table.stored()->size();
    if (!is_converted && !table.taps() && !(table.tables() && table.tables()->size())) {
      storage.content = blob(table.blob(), storage.bytes, "the bytes of a constant");
      return;
    }
    storage.content = index(table.blob(), UINT32_MAX, "blob");
    storage.view.is_used = true;
    storage.view.tables = list(table.tables());
    storage.view.limits = list(table.limits());
    storage.view.counts = list(table.counts());
    storage.view.stored = is_converted ? dtype(table.stored()) : storage.dtype;
    storage.view.tile = 2 * number(table.taps(), 0, 2, "taps");
    size_t count = 1;
    for (const int64_t size : list(table.shape())) {
      count = product(count, static_cast<uint64_t>(size), "a number of elements");
      storage.view.sizes.push_back(static_cast<size_t>(size));
    }
    const size_t bytes = product(count, dtype_bytes(storage.dtype), "a constant");
    number(bytes, storage.bytes, storage.bytes, "the bytes of a constant");
    number(storage.view.sizes.size(), 1, 16, "the number of axes of a constant");
  }

  Texels read_texels(const stored::Storage &table) {
    const stored::Tiling *tiling = table.tiling();
    Texels texels;
    if (!tiling) return texels;
    const std::vector<int64_t> shape = list(table.shape());
    const bool is_packed = table.packed() >= 0;
    if (is_packed) index(static_cast<uint64_t>(table.packed()), shape.size(), "axis");
    const uint64_t channels = is_packed ? static_cast<uint64_t>(shape[static_cast<size_t>(table.packed())]) : 1;
    texels.channels = number(channels, 0, LARGEST, "the channels of a texture");
    texels.quads = std::max<size_t>(1, (texels.channels + LANES - 1) / LANES);
    texels.width = tiling->width();
    texels.height = tiling->height();
    texels.tile_width = number(tiling->tile_width(), 1, LARGEST_IMAGE, "the width of a tile");
    texels.tile_height = number(tiling->tile_height(), 1, LARGEST_IMAGE, "the height of a tile");
    texels.per_layer = number(tiling->per_layer(), 1, LARGEST_IMAGE, "the tiles of a layer");
    texels.along_y = tiling->along_y();
    return texels;
  }

  void check_region(Storage &storage, const stored::Storage &table) const {
    storage.offset = number(table.offset(), 0, plan_.workspace_bytes, "an offset in the workspace");
    const size_t room = plan_.workspace_bytes - storage.offset;
    number(storage.bytes, 1, room, "texels in the workspace");
    if (storage.linear) return;
    number(storage.layers, 1, 1, "the layers of an image in the workspace");
    const size_t texels = storage.bytes / storage.height;
    storage.row_bytes = number(table.row_bytes(), texels, room / storage.height, "a row of an image in the workspace");
  }

  void check_slot(Storage &storage, const stored::Storage &table) const {
    storage.slot = index(table.slot(), plan_.slots.size(), "slot");
    const Storage &slot = plan_.slots[storage.slot];
    const bool alike = slot.dtype == storage.dtype && (slot.layers > 1) == (storage.layers > 1);
    if (slot.linear != storage.linear || (!slot.linear && !alike)) damaged("'" + storage.name + "' is not as its slot");
    number(storage.bytes, 1, slot.bytes, "texels in a slot");
    if (slot.linear) return;
    number(storage.width, 1, slot.width, "an image's width");
    number(storage.height, 1, slot.height, "an image's height");
    number(storage.layers, 1, slot.layers, "an image's layers");
  }

  // The number of a storage that the host fills or reads.
  uint32_t exchanged(const Value &value, uint32_t wanted) {
    const uint32_t found = index(wanted, plan_.storages.size(), "storage");
    Storage &storage = plan_.storages[found];
    const bool apart = storage.place == Place::image || storage.place == Place::buffer;
    if (!apart || storage.content >= 0 || storage.state || !can_store(value.dtype, storage.dtype)) {
      damaged("'" + value.name + "' cannot be exchanged with the host");
    }
    const size_t bytes = product(value.elements, dtype_bytes(storage.dtype), "a value");
    number(storage.bytes, bytes, bytes, "the bytes of '" + value.name + "'");
    storage.exchanged = true;
    return found;
  }

  Input read_input(const stored::Input &table) {
    Input input{read_value(table.value()), 0, table.exact(), false};
    input.storage = exchanged(input.value, table.storage());
    input.converted = input.value.dtype != plan_.storages[input.storage].dtype;
    return input;
  }

  Output read_output(const stored::Output &table) {
    Output output;
    output.value = read_value(table.value());
    if (table.kind() == stored::OutputKind_moved) {
      read_moved(output, table);
    } else if (table.kind() == stored::OutputKind_storage) {
      output.is_stored = true;
      output.storage = exchanged(output.value, table.storage());
      output.converted = output.value.dtype != plan_.storages[output.storage].dtype;
      if (plan_.storages[output.storage].is_image()) damaged("an output is an image");
    } else {
      if (!table.constant()) damaged("a constant output is missing");
      output.blob = blob(table.constant()->blob(), output.value.bytes(), "the bytes of an output");
    }
    return output;
  }

  void read_moved(Output &output, const stored::Output &table) {
    const std::vector<int32_t> inputs = list(table.moved_inputs());
    const std::vector<int64_t> numbers = list(table.moved_elements());
    const size_t count = output.value.elements;
    if (count && inputs.empty()) {
      plan_.unsupported = join("output '", output.value.name, "' holds integers that the host chooses by other ",
                               "integers, which this library does not do: run the model with Python, or leave the ",
                               "output out");
      return;
    }
    if (is_float(output.value.dtype)) damaged("'" + output.value.name + "' is not of integers");
    number(inputs.size(), count, count, "the number of integers that are moved");
    number(numbers.size(), count, count, "the number of integers that are moved");
    for (size_t i = 0; i < count; ++i) {
      output.moved.push_back({inputs[i], numbers[i]});
      if (inputs[i] < 0) continue;
      const Value &source = plan_.inputs[index(static_cast<uint64_t>(inputs[i]), plan_.inputs.size(), "input")].value;
      index(static_cast<uint64_t>(numbers[i]), source.elements, "an integer of '" + source.name + "',");
      if (is_float(source.dtype)) damaged("'" + source.name + "' is not of integers");
    }
  }

  void read_kernel(const stored::Kernel &table) {
    KernelText kernel{text(table.text()), text(table.path()), table.base()};
    if (kernel.base >= 0) {
      const KernelText &base = plan_.kernels[index(static_cast<uint64_t>(kernel.base), plan_.kernels.size(), "kernel")];
      if (base.base >= 0) damaged("the base of a kernel has one itself");
      kernel.prefix = number(table.prefix(), 0, base.text.size(), "the start of a kernel");
      kernel.suffix = number(table.suffix(), 0, base.text.size(), "the end of a kernel");
    }
    plan_.kernels.push_back(std::move(kernel));
  }

  BuildOptions read_options(const stored::BuildOptions &table) const {
    index(table.wave_size(), stored::WaveSize_MAX + 1, "size of waves");
    index(table.accelerate_16_bit(), stored::Switch_MAX + 1, "switch");
    return {table.wave_size(), table.accelerate_16_bit(), table.one_kernel_a_program()};
  }

  void read_programs() {
    std::vector<int> programs_of(plan_.kernels.size());
    each(table_.programs(), [&](const stored::Program &table) {
      ProgramParts program{list(table.kernels()), -1};
      for (const uint32_t kernel : program.kernels) ++programs_of[index(kernel, plan_.kernels.size(), "kernel")];
      if (table.binary() >= 0) program.binary = index(static_cast<uint64_t>(table.binary()), UINT32_MAX, "blob");
      plan_.programs.push_back(std::move(program));
    });
    const bool each_once = std::all_of(programs_of.begin(), programs_of.end(), [](int count) { return count == 1; });
    if (!each_once) damaged("a kernel is in no program, or in several");
  }

  Launch read_launch(const stored::Launch &table, uint32_t place) {
    Launch launch;
    launch.name = text(table.name());
    launch.number = place;
    for (flatbuffers::uoffset_t i = 0; table.origin() && i < table.origin()->size(); ++i) {
      launch.origin += (i ? ", " : "") + text(table.origin()->Get(i));
    }
    launch.kernel = index(table.kernel(), plan_.kernels.size(), "kernel");
    launch.arguments = list(table.arguments());
    number(launch.arguments.size(), 1, 1024, "the number of a kernel's arguments");
    for (const uint32_t storage : launch.arguments) index(storage, plan_.storages.size(), "storage");
    launch.global_size = sizes(table.global_size());
    launch.local_size = sizes(table.local_size());
    number(launch.global_size.size(), 1, 3, "the number of a launch's sizes");
    if (!launch.local_size.empty() && launch.local_size.size() != launch.global_size.size()) {
      damaged("'" + launch.name + "' has another number of local sizes");
    }
    return launch;
  }

  FrameInput read_frame(const stored::FrameInput &table) {
    constexpr size_t MOST_COMPONENTS = 4, HEADER = (6 + 3 * MOST_COMPONENTS) * sizeof(int32_t);
    FrameInput frame;
    frame.input = index(table.input(), plan_.inputs.size(), "input");
    frame.format = text(table.format());
    frame.width = static_cast<uint32_t>(number(table.width(), 1, LARGEST_IMAGE, "a picture's width"));
    frame.height = static_cast<uint32_t>(number(table.height(), 1, LARGEST_IMAGE, "a picture's height"));
    frame.sample_bytes = static_cast<uint8_t>(number(table.sample_bytes(), 1, 2, "the bytes of a sample"));
    frame.shared_width = static_cast<uint8_t>(number(table.shared_width(), 1, 2, "pixels that share a color"));
    frame.shared_height = static_cast<uint8_t>(number(table.shared_height(), 1, 2, "pixels that share a color"));
    frame.header_bytes = static_cast<uint32_t>(number(table.header_bytes(), HEADER, 4096, "a frame's numbers"));
    frame.global_size = number(table.global_size(), 1, LARGEST, "the work items for a frame");
    if (!table.kernel()) damaged("a frame has no kernel");
    frame.kernel = {text(table.kernel()->text()), text(table.kernel()->path())};
    each(table.layouts(), [&](const stored::FrameLayout &layout) {
      frame.layouts.push_back({list(layout.pixel_strides()), {}});
      const size_t planes = number(frame.layouts.back().pixel_strides.size(), 1, 3, "the planes of a frame");
      std::vector<FrameComponent> &components = frame.layouts.back().components;
      each(layout.components(), [&](const stored::FrameComponent &component) {
        index(component.plane(), planes, "plane");
        components.push_back({component.plane(), component.offset(), component.pixels()});
      });
      number(components.size(), planes, MOST_COMPONENTS, "the components of a frame");
      for (size_t plane = 0; plane < planes; ++plane) {
        const auto is_there = [&](const FrameComponent &component) { return component.plane == plane; };
        if (std::none_of(components.begin(), components.end(), is_there)) damaged("a plane has no component");
      }
    });
    return frame;
  }

  void read_checks() {
    const size_t storages = plan_.storages.size();
    each(table_.spare_storages(), [&](const stored::Storage &table) { plan_.storages.push_back(read_storage(table)); });
    for (size_t spare = storages; spare < plan_.storages.size(); ++spare) plan_.storages[spare].spare = true;
    each(table_.spare_kernels(), [&](const stored::Kernel &kernel) { read_kernel(kernel); });
    each(table_.checks(), [&](const stored::Check &check) { plan_.checks.push_back(read_check(check)); });
  }

  Check read_check(const stored::Check &table) {
    const uint32_t launch = index(table.launch(), plan_.launches.size(), "launch");
    Check check{launch, plan_.launches[launch].arguments[0], list(table.parts()), table.positive(),
                list(table.elements()), list(table.values()), list(table.bounds()), text(table.reason()), {}, {}};
    const Storage &written = plan_.storages[check.storage];
    const size_t count = check.elements.size(), room = written.bytes / dtype_bytes(written.dtype);
    for (const uint32_t part : check.parts) index(part, check.launch, "launch");
    for (const uint32_t element : check.elements) index(element, room, "element");
    number(check.values.size(), count, count, "the number of values");
    number(check.bounds.size(), count, count, "the number of bounds");
    each(table.plain(), [&](const stored::Replacement &plain) {
      const uint32_t replaced = index(plain.launch(), plan_.launches.size(), "launch");
      check.plain.push_back({replaced, {}});
      each(plain.launches(), [&](const stored::Launch &launch) {
        check.plain.back().launches.push_back(read_launch(launch, replaced));
      });
      number(check.plain.back().launches.size(), 1, LARGEST, "the number of launches in place of one");
    });
    each(table.alternatives(), [&](const stored::Launch &alternative) {
      const Launch &own = plan_.launches[launch];
      check.alternatives.push_back(read_launch(alternative, launch));
      Launch &made = check.alternatives.back();
      made.name = own.name;
      made.origin = own.origin;
      if (made.arguments != own.arguments) damaged("an alternative of '" + own.name + "' has other arguments");
    });
    check.fine = table.fine();
    return check;
  }

  std::vector<size_t> sizes(const flatbuffers::Vector<uint64_t> *table) {
    std::vector<size_t> made;
    size_t items = 1;
    for (const uint64_t size : list(table)) {
      made.push_back(number(size, 1, LARGEST, "a launch's size"));
      items = product(items, size, "a launch's size");
    }
    return made;
  }

  const File &file_;
  const stored::Plan &table_;
  uint64_t &room_;
  Plan plan_;
};

// What a device lacks for a plan.
struct Misfit {
  std::string limit;
};

// The following throw Misfit.

void require(bool has, const char *what) {
  if (!has) throw Misfit{join("the device has no ", what, ", which the plan takes")};
}

void require_room(const char *what, uint64_t wanted, uint64_t limit) {
  if (wanted <= limit) return;
  throw Misfit{join(what, ": the plan takes ", wanted, ", the device has ", limit)};
}

void require_aligned(const char *what, uint64_t bytes, uint64_t alignment) {
  if (!alignment || bytes % alignment == 0) return;
  throw Misfit{join("alignment of ", what, ": the device takes multiples of ", alignment, " bytes, the plan has ",
                    bytes)};
}

void require_storage(const Storage &storage, const DeviceInfo &info) {
  const bool in_workspace = storage.place == Place::workspace;
  if (!storage.is_image()) {
    require_room("bytes in one allocation", storage.bytes, info.max_allocation_bytes);
    if (in_workspace) require_aligned("parts of buffers", storage.offset, info.buffer_alignment);
    return;
  }
  require_room("image width in texels", storage.width, info.max_image_width);
  require_room("image height in texels", storage.height, info.max_image_height);
  require_room("image layers", storage.layers, std::max<uint64_t>(info.max_image_layers, 1));
  require(storage.dtype != IMGCONV_FLOAT16 || info.half_images, "half images");
  require(storage.dtype != IMGCONV_INT8 || info.byte_images, "images of bytes");
  if (!in_workspace) return;
  require(info.image_row_alignment, "images in buffers");
  const uint64_t texel = LANES * dtype_bytes(storage.dtype);
  require_aligned("rows of images in buffers", storage.row_bytes, info.image_row_alignment * texel);
  require_aligned("images in buffers", storage.offset, info.image_base_alignment * texel);
}

void require_launch(const Plan &plan, const Launch &launch, const DeviceInfo &info) {
  uint64_t images = 0, items = 1;
  for (size_t i = 1; i < launch.arguments.size(); ++i) images += plan.storages[launch.arguments[i]].is_image();
  require_room("images that a kernel reads", images, info.max_read_images);
  for (size_t axis = 0; axis < launch.local_size.size(); ++axis) {
    const size_t limit = axis < info.max_work_item_sizes.size() ? info.max_work_item_sizes[axis] : 1;
    require_room("work items of a work group along an axis", launch.local_size[axis], limit);
    items *= launch.local_size[axis];
  }
  require_room("work items of a work group", items, info.max_work_group_size);
}

// The first limit of the device that the plan does not keep; empty if it fits.
std::string misfit(const Plan &plan, const DeviceInfo &info) {
  try {
    require(!plan.dot_product || plan.device == info.key(), "products of bytes as its own device has them");
    require(!plan.native_functions || plan.device == info.key(),
            "native functions as exact as those of its own device");
    require(!plan.computes_in_half || info.has("cl_khr_fp16"), "arithmetic in half (cl_khr_fp16)");
    require_room("bytes in one allocation", plan.workspace_bytes, info.max_allocation_bytes);
    for (const Storage &each : plan.slots) require_storage(each, info);
    for (const Storage &each : plan.storages) {
      if (!each.spare) require_storage(each, info);
    }
    for (const Launch &each : plan.launches) require_launch(plan, each, info);
    return "";
  } catch (const Misfit &found) {
    return found.limit;
  }
}

// When a plan is tried: first that of the device's key. Last those for a device with more local memory: whether they
// fit shows only when their kernels are compiled.
int turn_of(const stored::Plan &plan, const DeviceInfo &info) {
  const auto *device = plan.device();
  if (device && std::string_view(device->c_str(), device->size()) == info.key()) return 0;
  return plan.target() && plan.target()->local_memory_bytes() > info.local_memory_bytes ? 2 : 1;
}

std::string text_of(const std::vector<int64_t> &shape) {
  std::string text;
  for (const int64_t size : shape) text += join(text.empty() ? "" : ",", size);
  return text;
}

// The shapes of the inputs, "x=1,3,480,640 y=1,4".
using Shapes = std::map<std::string, std::string>;

Shapes shapes_of(const stored::Model &model) {
  Shapes found;
  const auto *plans = model.plans();
  const auto *inputs = plans && plans->size() ? plans->Get(0)->inputs() : nullptr;
  for (flatbuffers::uoffset_t i = 0; inputs && i < inputs->size(); ++i) {
    const stored::Value *value = inputs->Get(i)->value();
    if (!value || !value->name()) continue;
    std::vector<int64_t> shape(value->shape() ? value->shape()->size() : 0);
    if (!shape.empty()) std::memcpy(shape.data(), value->shape()->Data(), shape.size() * sizeof(int64_t));
    found[value->name()->str()] = text_of(shape);
  }
  return found;
}

std::string join_shapes(const Shapes &shapes) {
  std::string text;
  for (const auto &[name, shape] : shapes) text += join(text.empty() ? "" : " ", name, "=", shape);
  return text;
}

Shapes read_shapes(const std::string &text) {
  Shapes found;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const size_t at = word.rfind('=');
    if (at == std::string::npos) throw Error(IMGCONV_ERROR_ARGUMENT, "options.shapes: '", word, "' is not NAME=SIZES");
    found[word.substr(0, at)] = word.substr(at + 1);
  }
  return found;
}

// The first size of the file that has these shapes.
const stored::Model &model_for(const File &file, const std::string &text) {
  const Shapes wanted = read_shapes(text);
  std::vector<const stored::Model *> sizes{&file.model()};
  const auto *others = file.model().sizes();
  for (flatbuffers::uoffset_t i = 0; others && i < others->size(); ++i) sizes.push_back(others->Get(i));
  std::string known;
  for (const stored::Model *each : sizes) {
    const Shapes shapes = shapes_of(*each);
    const bool fits = std::all_of(wanted.begin(), wanted.end(), [&](const auto &input) {
      const auto found = shapes.find(input.first);
      return found != shapes.end() && found->second == input.second;
    });
    if (fits) return *each;
    known += "\n  " + join_shapes(shapes);
  }
  throw Error(IMGCONV_ERROR_ARGUMENT, "the file has no model for ", join_shapes(wanted), "; its sizes are:", known);
}

}  // namespace

bool Check::covers(uint32_t number) const {
  return number == launch || std::find(parts.begin(), parts.end(), number) != parts.end();
}

std::optional<uint32_t> Check::form_after(uint32_t form) const {
  if (form >= unoptimised_form()) return std::nullopt;
  if (form == 0 && !alternatives.empty()) return 1;
  return form < plain_form() && !plain.empty() ? plain_form() : unoptimised_form();
}

const char *Check::name_of(uint32_t form) const {
  if (form == 0) return "own";
  if (form < plain_form()) return "another specialisation";
  return form == plain_form() ? "plain" : "without optimisation";
}

void Plan::take(const Forms &taken) {
  forms = taken;
  for (const auto &[number, form] : forms) {
    const Check &check = checks[number];
    if (form && form < check.plain_form()) {
      put({check.launch, {check.alternatives[form - 1]}}, true);
    } else if (form >= check.plain_form()) {
      for (const Replacement &plain : check.plain) put(plain, plain.launch == check.launch);
    }
    if (form != check.unoptimised_form()) continue;
    for (Launch &each : launches) {
      if (check.covers(each.number)) each.kernel = unoptimised(each.kernel);
    }
  }
  if (!forms.empty()) choose_programs();
}

void Plan::take(const BuildOptions &options) {
  build_options = options;
  std::vector<ProgramParts> others;
  for (const ProgramParts &each : programs) {
    if (!options.one_kernel_a_program) others.push_back({each.kernels, -1});
    for (const uint32_t kernel : each.kernels) {
      if (options.one_kernel_a_program) others.push_back({{kernel}, -1});
    }
  }
  programs = std::move(others);
}

// Puts launches before the one that they are for, or in its place.
void Plan::put(const Replacement &given, bool in_its_place) {
  const auto is_replaced = [&](const Launch &each) { return each.number == given.launch; };
  const auto first = std::find_if(launches.begin(), launches.end(), is_replaced);
  const auto end = in_its_place ? std::find_if_not(first, launches.end(), is_replaced) : first;
  const auto place = launches.erase(first, end);
  launches.insert(place, given.launches.begin(), given.launches.end());
  for (const Launch &each : given.launches) {
    for (const uint32_t storage : each.arguments) storages[storage].spare = false;
  }
}

// Leaves out the programs of which no launch has a kernel, and adds one for each kernel that is in none.
void Plan::choose_programs() {
  std::set<uint32_t> used;
  for (const Launch &each : launches) used.insert(each.kernel);
  const auto is_used = [&](uint32_t kernel) { return used.count(kernel) > 0; };
  const auto is_spare = [&](const ProgramParts &each) {
    return std::none_of(each.kernels.begin(), each.kernels.end(), is_used);
  };
  programs.erase(std::remove_if(programs.begin(), programs.end(), is_spare), programs.end());
  for (const ProgramParts &each : programs) {
    for (const uint32_t kernel : each.kernels) used.erase(kernel);
  }
  for (const uint32_t kernel : used) programs.push_back({{kernel}, -1});
}

uint32_t Plan::unoptimised(uint32_t kernel) {
  const auto whole = static_cast<int64_t>(kernel);
  const KernelText copy{"", kernels[kernel].path, whole, 0, 0, true};
  const auto is_copy = [&](const KernelText &each) { return each.unoptimised && each.base == whole; };
  const auto found = std::find_if(kernels.begin(), kernels.end(), is_copy);
  const auto number = static_cast<uint32_t>(found - kernels.begin());
  if (found == kernels.end()) kernels.push_back(copy);
  return number;
}

bool Plan::is_covered() const {
  return std::all_of(launches.begin(), launches.end(), [&](const Launch &launch) {
    return std::any_of(checks.begin(), checks.end(), [&](const Check &each) {
      return !each.elements.empty() && each.covers(launch.number);
    });
  });
}

std::string Plan::source(const std::vector<uint32_t> &numbers) const {
  const bool unoptimised = kernels[numbers.front()].unoptimised;
  std::string made = (unoptimised ? "// -cl-opt-disable\n" : build_options.prelude()) + common;
  for (const uint32_t number : numbers) {
    made += join("#define NAME k", number, "\n", text_of(number), "#undef NAME\n");
  }
  return made;
}

std::string Plan::text_of(uint32_t kernel) const {
  const KernelText &each = kernels[kernel];
  if (each.base < 0) return each.text;
  const std::string base = text_of(static_cast<uint32_t>(each.base));
  return each.unoptimised ? base : base.substr(0, each.prefix) + each.text + base.substr(base.size() - each.suffix);
}

std::string Plan::origin(uint32_t kernel) const {
  const auto is_its = [&](const Launch &each) { return each.kernel == kernel; };
  const auto first = std::find_if(launches.begin(), launches.end(), is_its);
  return join(kernels[kernel].path, ", launch '", first == launches.end() ? "" : first->name, "'");
}

bool BuildOptions::operator==(const BuildOptions &other) const {
  return wave_size == other.wave_size && accelerate_16_bit == other.accelerate_16_bit &&
         one_kernel_a_program == other.one_kernel_a_program;
}

BuildOptions BuildOptions::overridden_by(const BuildOptions &other) const {
  return {other.wave_size ? other.wave_size : wave_size,
          other.accelerate_16_bit ? other.accelerate_16_bit : accelerate_16_bit,
          other.one_kernel_a_program || one_kernel_a_program};
}

std::string BuildOptions::text() const {
  std::string made;
  const auto add = [&](const std::string &part) { made += (made.empty() ? "" : ", ") + part; };
  if (wave_size) add(join(stored::EnumNameWaveSize(stored::WaveSize(wave_size)), " waves"));
  if (accelerate_16_bit) add(flag());
  if (one_kernel_a_program) add("one kernel per program");
  return made.empty() ? "the driver's defaults" : made;
}

std::string BuildOptions::flag() const {
  if (accelerate_16_bit == stored::Switch_unset) return "";
  return join("-qcom-accelerate-16-bit=", accelerate_16_bit == stored::Switch_on ? "true" : "false");
}

std::string BuildOptions::prelude() const {
  const std::string comment = flag().empty() ? "" : join("// ", flag(), "\n");
  if (wave_size == stored::WaveSize_unset) return comment;
  return join(comment, "#ifdef cl_qcom_reqd_sub_group_size\n",
              "#pragma OPENCL EXTENSION cl_qcom_reqd_sub_group_size : enable\n#endif\n",
              "#define __kernel __attribute__((qcom_reqd_sub_group_size(\"",
              stored::EnumNameWaveSize(stored::WaveSize(wave_size)), "\"))) __kernel\n");
}

PlanChoice::PlanChoice(const File &file, const DeviceInfo &info, const std::string &shapes)
    : file_(file), info_(info), sized_(model_for(file, shapes)), room_(4 * uint64_t(file.bytes()) + 4096) {
  if (const stored::HostPartition *partition = sized_.host_partition()) {
    throw Error(IMGCONV_ERROR_UNSUPPORTED, "node '", partition->node() ? partition->node()->str() : "?",
                "' and what follows it depend on data: the host computes them, which this library does not do: run ",
                "the model with Python, or end the ONNX file before them");
  }
  const auto *tables = sized_.plans();
  for (flatbuffers::uoffset_t i = 0; tables && i < tables->size(); ++i) waiting_.push_back(i);
  std::stable_sort(waiting_.begin(), waiting_.end(), [&](uint32_t a, uint32_t b) {
    return turn_of(*tables->Get(a), info) < turn_of(*tables->Get(b), info);
  });
}

Plan PlanChoice::next() {
  const auto *config = sized_.config();
  while (!waiting_.empty()) {
    Plan plan = Reader(file_, *sized_.plans()->Get(waiting_.front()), room_).read();
    plan.number = waiting_.front();
    if (plan.device != info_.key()) plan.build_options = {};
    waiting_.erase(waiting_.begin());
    plan.computes_in_half = config && config->float16() == 2;
    device_ = plan.device;
    const std::string problem = misfit(plan, info_);
    if (problem.empty() && !plan.unsupported.empty()) throw Error(IMGCONV_ERROR_UNSUPPORTED, plan.unsupported);
    if (problem.empty()) return plan;
    note(problem.c_str());
  }
  if (rejected_ && noted_ == 1) throw *rejected_;
  throw Error(rejected_ ? rejected_->status() : IMGCONV_ERROR_UNFIT, "no plan of the file fits ", info_.key(), ":",
              problems_, "\ncompile it for this device: `imgconv compile --target FILE.json`, a file that ",
              "`imgconv-run --devices` or Model.devices() in Java prints");
}

void PlanChoice::reject(const Error &problem) {
  const imgconv_status status = problem.status();
  const bool of_the_plan = status == IMGCONV_ERROR_UNFIT || status == IMGCONV_ERROR_BUILD ||
                           status == IMGCONV_ERROR_CRASH || status == IMGCONV_ERROR_WRONG;
  if (!of_the_plan) throw problem;
  if (!rejected_) rejected_ = problem;
  note(problem.what());
}

bool PlanChoice::none_waits() const { return waiting_.empty(); }

void PlanChoice::note(const char *problem) {
  problems_ += join("\n  plan for ", device_, ": ", problem);
  ++noted_;
}

}  // namespace imgconv
