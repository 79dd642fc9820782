#include "frame_check.h"

#include <algorithm>
#include <memory>
#include <random>

#include "error.h"

namespace imgconv {
namespace {

constexpr size_t GAP = 5;  // bytes before a plane and after each of its rows

// A frame of random bytes of which a region is the picture.
struct DrawnFrame {
  std::vector<std::vector<uint8_t>> memory;
  imgconv_video_frame frame{};
};

// The region of a mirrored frame begins between pixels that share a color, so that colors are averaged.
DrawnFrame draw(const FrameInput &input, uint32_t rotation, bool mirror) {
  std::minstd_rand random(rotation + 1);
  const bool turned = rotation % 180;
  const uint32_t width = turned ? input.height : input.width, height = turned ? input.width : input.height;
  const uint32_t all_columns = width + 4, all_rows = height + 2, begin = mirror ? 1 : 2;
  DrawnFrame drawn;
  for (const uint8_t stride : input.layouts.back().pixel_strides) {
    const uint32_t number = drawn.frame.plane_count++;
    const size_t columns = all_columns / (number ? input.shared_width : 1), pitch = columns * stride + GAP;
    std::vector<uint8_t> bytes(GAP + all_rows / (number ? input.shared_height : 1) * pitch);
    std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<uint8_t>(random() >> 8); });
    drawn.memory.push_back(std::move(bytes));
    imgconv_plane &plane = drawn.frame.planes[number];
    plane.data = drawn.memory.back().data();
    plane.bytes = drawn.memory.back().size();
    plane.offset = GAP;
    plane.row_stride = static_cast<decltype(plane.row_stride)>(pitch);
  }
  drawn.frame.width = all_columns;
  drawn.frame.height = all_rows;
  drawn.frame.rotation = rotation;
  drawn.frame.mirror = mirror;
  drawn.frame.left = drawn.frame.top = begin;
  drawn.frame.region_width = width;
  drawn.frame.region_height = height;
  return drawn;
}

// frame.cl on the host, by the numbers of the frame's header.
class Picture {
 public:
  Picture(const FrameInput &input, const PackedFrame &packed)
      : input_(input), n_(packed.header.data()), bytes_(packed.bytes) {
    for (const FramePart &each : packed.parts) std::copy_n(each.data, each.bytes, bytes_.data() + each.to);
  }

  int element(size_t number) const {
    const int width = static_cast<int>(input_.width), height = static_cast<int>(input_.height);
    const int at = static_cast<int>(number), colors = at - width * height, own = width / 2 * (height / 2);
    if (input_.shared_height == 2) {
      if (colors < 0) return sample(0, at % width, at / width);
      const bool apart = input_.format == "i420";  // U and V, which are in pairs otherwise
      const int component = 1 + (apart ? colors / own : colors % 2), pixel = apart ? colors % own : colors / 2;
      return shared(component, pixel % (width / 2), pixel / (width / 2));
    }
    if (input_.shared_width == 2) {
      const int y = at / (2 * width), pair = at % (2 * width) / 4, place = at % 4;  // Y U Y V
      return place % 2 ? shared(1 + place / 2, pair, y) : sample(0, 2 * pair + place / 2, y);
    }
    const int channels = static_cast<int>(input_.layouts[0].components.size());
    return sample(at % channels, at / channels % width, at / channels / width);
  }

 private:
  int sample(int component, int x, int y) const {
    const int32_t *const own = n_ + 6 + 3 * component;
    const int column = n_[0] + n_[1] * x + n_[2] * y, row = n_[3] + n_[4] * x + n_[5] * y;
    const int across = component ? input_.shared_width : 1, down = component ? input_.shared_height : 1;
    const uint8_t *const at = bytes_.data() + own[0] + row / down * own[1] + column / across * own[2];
    return input_.sample_bytes == 2 ? at[0] | at[1] << 8 : at[0];
  }

  int shared(int component, int x, int y) const {
    const int across = input_.shared_width, down = input_.shared_height;
    int sum = 0;
    for (int i = 0; i < across * down; ++i) sum += sample(component, x * across + i % across, y * down + i / across);
    return (sum + across * down / 2) / (across * down);
  }

  const FrameInput &input_;
  const int32_t *n_;
  std::vector<uint8_t> bytes_;
};

}  // namespace

std::string frame_launch_of(const Plan &plan) {
  return join("launch '", frame_launch_name(*plan.frame), "', kernel ", plan.frame->kernel.path);
}

std::string check_video_frames(const Shared &shared, const Frame &frame, const Activity &activity) {
  if (!shared.plan.frame) return "";
  const FrameInput &input = *shared.plan.frame;
  const Input &value = shared.plan.inputs[input.input];
  const Storage &storage = shared.plan.storages[value.storage];
  const Memory &memory = frame.memory(value.storage);
  const auto doing = activity.begin(frame_launch_of(shared.plan));
  FrameUpload upload(shared.context, shared.frame_program, memory);
  std::vector<uint8_t> content(storage.bytes);
  for (uint32_t rotation = 0; rotation < 360; rotation += 90) {
    const DrawnFrame drawn = draw(input, rotation, rotation % 180);
    const PackedFrame packed = pack(input, drawn.frame);
    const auto idle = shared.context.finish_at_release();
    shared.memory.fill(storage, memory, OVERWRITTEN);
    upload.enqueue(input, drawn.frame, false);
    shared.memory.download(storage, memory, content.data());
    shared.context.finish(frame_launch_of(shared.plan));
    const Picture picture(input, packed);
    for (size_t i = 0; i < value.value.elements; ++i) {
      const double found = number_at(storage.dtype, content.data(), i);
      if (found == picture.element(i)) continue;
      return join("element ", i, " is ", found, ", not ", picture.element(i), "; rotation ", rotation,
                  rotation % 180 ? ", mirrored" : "");
    }
  }
  return "";
}

}  // namespace imgconv
