#include "video_frame.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include "error.h"

namespace imgconv {
namespace {

constexpr uint32_t LARGEST_SIDE = 1 << 20;
constexpr int64_t LIMIT = int64_t(1) << 31;  // of a frame's bytes: the kernel computes addresses as int

struct Region {
  int64_t left, top, width, height;
};

// The samples of a component in its plane, from byte `first` to `end`. base: that of pixel (0, 0).
struct Samples {
  uint8_t plane;
  int64_t base, row_stride, pixel_stride, first, end;
};

template <class... Parts>
[[noreturn]] void refuse(const Parts &...what) {
  throw Error(IMGCONV_ERROR_ARGUMENT, what...);
}

// The part of the frame that is shown, which has the picture's size after the rotation.
Region region_of(const FrameInput &input, const imgconv_video_frame &frame) {
  if (std::max(frame.width, frame.height) > LARGEST_SIDE) refuse("the frame is larger than ", LARGEST_SIDE);
  if (frame.rotation % 90) refuse("rotation is ", frame.rotation, "; it is a multiple of 90 degrees");
  const bool whole = !frame.region_width && !frame.region_height;
  const Region region = whole ? Region{0, 0, frame.width, frame.height}
                              : Region{frame.left, frame.top, frame.region_width, frame.region_height};
  if (region.left + region.width > frame.width || region.top + region.height > frame.height) {
    refuse("the region of ", region.width, "x", region.height, " at (", region.left, ", ", region.top,
           ") is not inside the frame of ", frame.width, "x", frame.height);
  }
  const bool turned = frame.rotation % 180;
  const int64_t width = turned ? region.height : region.width, height = turned ? region.width : region.height;
  if (width != input.width || height != input.height) {
    refuse("the model takes ", input.width, "x", input.height, "; the frame's region, after its rotation, is ", width,
           "x", height);
  }
  return region;
}

const FrameLayout &layout_of(const FrameInput &input, const imgconv_video_frame &frame) {
  std::string counts;
  for (const FrameLayout &each : input.layouts) {
    if (each.pixel_strides.size() == frame.plane_count) return each;
    counts += (counts.empty() ? "" : " or ") + join(each.pixel_strides.size());
  }
  refuse("a frame of ", input.format, " has ", counts, " planes, not ", frame.plane_count,
         ": give each plane its memory (imgconv-run: one --plane each)");
}

// Pixel (x, y) of the picture is pixel (n[0] + n[1] x + n[2] y, n[3] + n[4] x + n[5] y) of the frame.
std::array<int64_t, 6> pixel_numbers(const FrameInput &input, const imgconv_video_frame &frame, const Region &region) {
  const int64_t left = region.left, top = region.top, right = left + region.width - 1, bottom = top + region.height - 1;
  const std::array<int64_t, 6> turned[4] = {{left, 1, 0, top, 0, 1}, {left, 0, 1, bottom, -1, 0},
                                            {right, -1, 0, bottom, 0, -1}, {right, 0, -1, top, 1, 0}};
  std::array<int64_t, 6> n = turned[frame.rotation / 90 % 4];
  if (!frame.mirror) return n;
  for (const size_t first : {0, 3}) {
    n[first] += n[first + 1] * (int64_t(input.width) - 1);
    n[first + 1] = -n[first + 1];
  }
  return n;
}

Samples samples_of(const FrameInput &input, const FrameLayout &layout, const imgconv_video_frame &frame,
                   const Region &region, size_t number) {
  const FrameComponent &component = layout.components[number];
  const imgconv_plane &plane = frame.planes[component.plane];
  const int64_t pixel = plane.pixel_stride ? plane.pixel_stride : layout.pixel_strides[component.plane];
  const int64_t shared = component.plane ? input.shared_width : 1;
  const int64_t width = (frame.width + shared - 1) / shared;
  const int64_t row = plane.row_stride ? plane.row_stride : width * pixel;
  const int64_t least = (width - 1) * std::abs(pixel) + layout.pixel_strides[component.plane];
  if (std::abs(row) < least) {
    refuse("plane ", int(component.plane), " has a row stride of ", row, " bytes; ", width,
           " pixels with a pixel stride of ", pixel, " take ", least);
  }
  const int64_t across = number ? input.shared_width : 1, down = number ? input.shared_height : 1;
  const int64_t own = pixel * component.pixels, base = static_cast<int64_t>(plane.offset) + component.offset;
  const auto columns = std::minmax({own * (region.left / across), own * ((region.left + region.width - 1) / across)});
  const auto rows = std::minmax({row * (region.top / down), row * ((region.top + region.height - 1) / down)});
  return {component.plane, base, row, own, base + columns.first + rows.first,
          base + columns.second + rows.second + input.sample_bytes};
}

// The bytes of a plane that are read. Throws Error if the plane does not have them.
FramePart span_of(const imgconv_video_frame &frame, const std::vector<Samples> &samples, size_t plane) {
  int64_t first = INT64_MAX, end = INT64_MIN;
  for (const Samples &each : samples) {
    if (each.plane != plane) continue;
    first = std::min(first, each.first);
    end = std::max(end, each.end);
  }
  const imgconv_plane &given = frame.planes[plane];
  if (given.memory != frame.planes[0].memory) refuse("the planes are in several OpenCL buffers: use one");
  if (!given.data && !given.memory) refuse("plane ", plane, " has no data");
  if (given.offset > given.bytes) refuse("plane ", plane, " has ", given.bytes, " bytes; its offset is ", given.offset);
  if (first < 0 || static_cast<uint64_t>(end) > given.bytes) {
    refuse("plane ", plane, " has ", given.bytes, " bytes; by offset, strides and the frame's size, its pixels are in ",
           "bytes ", first, " to ", end);
  }
  const uint8_t *data = given.memory ? nullptr : static_cast<const uint8_t *>(given.data) + first;
  return {0, data, static_cast<size_t>(end - first)};
}

// The memory to upload, once where planes overlap, from the byte `to` on.
std::vector<FramePart> merged(std::vector<FramePart> spans, size_t to) {
  const auto before = [](const FramePart &a, const FramePart &b) { return std::less<>()(a.data, b.data); };
  std::sort(spans.begin(), spans.end(), before);
  std::vector<FramePart> parts;
  for (const FramePart &each : spans) {
    FramePart *last = parts.empty() ? nullptr : &parts.back();
    if (last && !std::less<>()(last->data + last->bytes, each.data)) {
      last->bytes = std::max(last->bytes, static_cast<size_t>(each.data - last->data) + each.bytes);
    } else {
      parts.push_back({last ? last->to + last->bytes : to, each.data, each.bytes});
    }
  }
  return parts;
}

// Where byte 0 of a component's plane is in the device's copy of the frame, whose parts these are.
int64_t start_of(const std::vector<FramePart> &parts, const FramePart &span, const imgconv_plane &plane) {
  if (plane.memory) return 0;
  const auto begins_after = [&](const FramePart &part) { return std::less<>()(span.data, part.data); };
  const FramePart &part = *std::prev(std::find_if(parts.begin(), parts.end(), begins_after));
  return static_cast<int64_t>(part.to) + (static_cast<const uint8_t *>(plane.data) - part.data);
}

}  // namespace

PackedFrame pack(const FrameInput &input, const imgconv_video_frame &frame) {
  const Region region = region_of(input, frame);
  const FrameLayout &layout = layout_of(input, frame);
  std::vector<Samples> samples;
  for (size_t i = 0; i < layout.components.size(); ++i) samples.push_back(samples_of(input, layout, frame, region, i));
  std::vector<FramePart> spans;
  for (size_t plane = 0; plane < frame.plane_count; ++plane) spans.push_back(span_of(frame, samples, plane));
  PackedFrame packed{std::vector<int32_t>(input.header_bytes / sizeof(int32_t)), {}, input.header_bytes};
  if (!frame.planes[0].memory) {
    packed.parts = merged(spans, input.header_bytes);
    packed.bytes = packed.parts.back().to + packed.parts.back().bytes;
  }
  const std::array<int64_t, 6> pixel = pixel_numbers(input, frame, region);
  std::vector<int64_t> numbers(pixel.begin(), pixel.end());
  for (const Samples &each : samples) {
    const int64_t start = start_of(packed.parts, spans[each.plane], frame.planes[each.plane]);
    numbers.insert(numbers.end(), {start + each.base, each.row_stride, each.pixel_stride});
  }
  const auto is_large = [](int64_t number) { return number >= LIMIT || number <= -LIMIT; };
  if (packed.bytes >= LIMIT || std::any_of(numbers.begin(), numbers.end(), is_large)) {
    refuse("the frame has ", packed.bytes, " bytes, or strides, of 2 GB or more");
  }
  const auto as_int = [](int64_t number) { return static_cast<int32_t>(number); };
  std::transform(numbers.begin(), numbers.end(), packed.header.begin(), as_int);
  return packed;
}

std::string frame_launch_name(const FrameInput &input) { return "frames of " + input.format; }

FrameProgram::FrameProgram(
    const Context &context, const Plan &plan, const std::string &cache_folder, const Activity &activity)
    : context_(context), cache_folder_(cache_folder), activity_(activity) {
  if (!plan.frame) return;
  plan_.kernels.push_back(plan.frame->kernel);
  plan_.programs.emplace_back();
  plan_.programs.back().kernels.push_back(0);
  plan_.launches.emplace_back();
  plan_.launches.back().name = frame_launch_name(*plan.frame);
}

Kernel FrameProgram::new_kernel() {
  if (!programs_) {
    programs_ = std::make_unique<Programs>(
        context_, nullptr, plan_, true, cache_folder_, activity_, std::vector<BuiltProgram>());
  }
  return programs_->new_kernel(0);
}

void FrameProgram::keep() {
  if (kept_ || !programs_->have_new()) return;
  kept_ = true;
  context_.finish("the first video frame");
  programs_->keep();
}

void FrameUpload::enqueue(const FrameInput &input, const imgconv_video_frame &frame, bool copy) {
  packed_ = pack(input, frame);
  const cl_mem given = static_cast<cl_mem>(frame.planes[0].memory);
  if (given) check_buffer(frame, given);
  reserve(packed_.bytes);
  const cl_mem arguments[] = {result_.get(), memory_.get(), given ? given : memory_.get()};
  for (cl_uint i = 0; i < 3; ++i) {
    check(context_.cl->clSetKernelArg(kernel_.get(), i, sizeof arguments[i], &arguments[i]), "argument ", i,
          " of the kernel that reads video frames");
  }
  write(0, packed_.header.data(), input.header_bytes);
  if (copy && !given) {
    copied_.resize(packed_.bytes);
    for (const FramePart &each : packed_.parts) std::memcpy(copied_.data() + each.to, each.data, each.bytes);
    write(input.header_bytes, copied_.data() + input.header_bytes, packed_.bytes - input.header_bytes);
  } else {
    for (const FramePart &each : packed_.parts) write(each.to, each.data, each.bytes);
  }
  const auto launch = context_.cl->clEnqueueNDRangeKernel;
  check(launch(context_.queue.get(), kernel_.get(), 1, nullptr, &input.global_size, nullptr, 0, nullptr, nullptr),
        "launching the kernel that reads video frames");
  program_.keep();
}

// Throws Error if a plane says of a buffer that it is larger.
void FrameUpload::check_buffer(const imgconv_video_frame &frame, cl_mem buffer) const {
  size_t size = 0;
  check(context_.cl->clGetMemObjectInfo(buffer, CL_MEM_SIZE, sizeof size, &size, nullptr), "the frame's buffer");
  for (size_t i = 0; i < frame.plane_count; ++i) {
    if (frame.planes[i].bytes > size) refuse("the buffer of plane ", i, " has ", size, " bytes");
  }
}

void FrameUpload::reserve(size_t bytes) {
  if (bytes <= capacity_) return;
  const Opencl &cl = *context_.cl;
  memory_ = own(join("a buffer of ", bytes, " bytes for a video frame"), cl.clReleaseMemObject, cl.clCreateBuffer,
                context_.handle.get(), cl_mem_flags(CL_MEM_READ_WRITE), bytes, nullptr);
  if (!kernel_) kernel_ = program_.new_kernel();
  capacity_ = bytes;
}

void FrameUpload::write(size_t to, const void *data, size_t bytes) const {
  check(context_.cl->clEnqueueWriteBuffer(context_.queue.get(), memory_.get(), CL_FALSE, to, bytes, data, 0, nullptr,
                                          nullptr), "uploading a video frame");
}

}  // namespace imgconv
