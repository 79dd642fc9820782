// Finds objects in a camera's NV12 frames, which lie in a file one after another, rows padded, turned by 90 degrees:
//     imgconv compile yolox_nano.onnx --picture nv12 480x640 && camera yolox_nano.imgconv FILE WIDTH HEIGHT ROW_STRIDE
#include <imgconv.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

struct Box { float left, top, right, bottom, score; long kind; };
static bool covers(const Box &a, const Box &b) {
  const float width = std::max(std::min(a.right, b.right) - std::max(a.left, b.left), 0.0f);
  const float both = std::max(std::min(a.bottom, b.bottom) - std::max(a.top, b.top), 0.0f) * width;
  const float all = (a.right - a.left) * (a.bottom - a.top) + (b.right - b.left) * (b.bottom - b.top) - both;
  return a.kind == b.kind && both > 0.45f * all;
}

// YOLOX: 85 numbers for each cell of three grids. scale: pixels of the picture to one of the model's 416 x 416.
static std::vector<Box> decode(const float *row, float scale) {
  std::vector<Box> found, kept;
  for (int stride = 8; stride <= 32; stride *= 2) {
    const float step = static_cast<float>(stride) * scale;
    for (int cell = 0, side = 416 / stride; cell < side * side; ++cell, row += 85) {
      const float *best = std::max_element(row + 5, row + 85), score = row[4] * *best;
      const float x = (row[0] + cell % side) * step, y = (row[1] + cell / side) * step;
      const float half = std::exp(row[2]) * step / 2, down = std::exp(row[3]) * step / 2;
      if (score > 0.5f) found.push_back({x - half, y - down, x + half, y + down, score, best - row - 5});
    }
  }
  std::stable_sort(found.begin(), found.end(), [](const Box &a, const Box &b) { return a.score > b.score; });
  for (const Box &each : found) {
    if (std::none_of(kept.begin(), kept.end(), [&](const Box &a) { return covers(a, each); })) kept.push_back(each);
  }
  return kept;
}

int main(int count, char **given) {
  std::FILE *file = count < 6 ? nullptr : std::fopen(given[2], "rb");
  if (!file) return std::puts("camera MODEL FRAMES WIDTH HEIGHT ROW_STRIDE [DEVICE]"), 1;
  const int width = std::atoi(given[3]), height = std::atoi(given[4]), pitch = std::atoi(given[5]);
  imgconv_options options = {};
  options.device = count > 6 ? given[6] : nullptr;
  imgconv_error error;
  imgconv_model *model = nullptr;
  if (imgconv_open_file(given[1], &options, &model, &error)) return std::puts(error.message), 1;
  const size_t luma = size_t(pitch) * height, bytes = luma * 3 / 2;
  std::vector<unsigned char> yuv(bytes);
  std::vector<float> rows(3549 * 85);
  const imgconv_plane y = {&yuv[0], bytes, 0, pitch, 1, nullptr}, uv = {&yuv[0], bytes, luma, pitch, 2, nullptr};
  const imgconv_video_frame frame = {{y, uv}, 2, unsigned(width), unsigned(height), 90, 0, 0, 0, 0, 0};
  const imgconv_array in = {nullptr, 0, nullptr, &frame}, out = {rows.data(), rows.size() * 4, nullptr, nullptr};
  for (int n = 0; std::fread(yuv.data(), bytes, 1, file); ++n) {
    if (imgconv_run(model, &in, &out, &error)) return std::puts(error.message), 1;
    for (const Box &b : decode(rows.data(), std::max(width, height) / 416.0f)) {
      std::printf("%d %ld %.4f %.2f %.2f %.2f %.2f\n", n, b.kind, b.score, b.left, b.top, b.right, b.bottom);
    }
  }
  imgconv_close(model);
}
