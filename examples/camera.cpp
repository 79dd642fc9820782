// Prints the objects in a camera's NV12 frames: one after another in a file, rows padded, rotated by 90 degrees:
//     imgconv compile yolox_nano.onnx --picture nv12 480x640 --task detect --head yolox -o yolox_nano.imgconv
//     camera yolox_nano.imgconv FRAMES WIDTH HEIGHT ROW_STRIDE [DEVICE]
#include <imgconv.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

static int fail(const char *problem) { return std::fprintf(stderr, "camera: %s\n", problem), 1; }

int main(int count, char **given) {
  if (count < 6) return fail("MODEL FRAMES WIDTH HEIGHT ROW_STRIDE [DEVICE]");
  std::FILE *file = std::fopen(given[2], "rb");
  if (!file) return fail("cannot read the frames");
  const int width = std::atoi(given[3]), height = std::atoi(given[4]), stride = std::atoi(given[5]);
  imgconv_options options = {};
  options.device = count > 6 ? given[6] : nullptr;
  imgconv_error error;
  imgconv_model *model = nullptr;
  if (imgconv_open_file(given[1], &options, &model, &error)) return fail(error.message);
  imgconv_tensor tensor = {};
  const char *const names[] = {"boxes", "scores", "classes", "count"};
  for (size_t i = 0; i < 4; ++i) {
    if (!imgconv_output(model, i, &tensor) && !std::strcmp(tensor.name, names[i])) continue;
    return fail("the model has no boxes: compile it with --task detect --head");
  }
  imgconv_output(model, 0, &tensor);  // (most, 4)
  const size_t most = static_cast<size_t>(tensor.shape[0]);
  std::vector<float> boxes(4 * most), scores(most);
  std::vector<int32_t> classes(most), found(1);
  const imgconv_array outputs[] = {{boxes.data(), 16 * most, nullptr, nullptr},
                                   {scores.data(), 4 * most, nullptr, nullptr},
                                   {classes.data(), 4 * most, nullptr, nullptr},
                                   {found.data(), 4, nullptr, nullptr}};
  const size_t luma = size_t(stride) * height, bytes = luma * 3 / 2;
  std::vector<unsigned char> yuv(bytes);
  const imgconv_plane y = {&yuv[0], bytes, 0, stride, 1, nullptr}, uv = {&yuv[0], bytes, luma, stride, 2, nullptr};
  const imgconv_video_frame frame = {{y, uv}, 2, unsigned(width), unsigned(height), 90, 0, 0, 0, 0, 0};
  const imgconv_array input = {nullptr, 0, nullptr, &frame};
  for (int number = 0; std::fread(yuv.data(), bytes, 1, file); ++number) {
    if (imgconv_run(model, &input, 1, outputs, 4, &error)) return fail(error.message);
    for (int i = 0; i < found[0]; ++i) {
      const float *box = &boxes[4 * size_t(i)];  // left, top, right, bottom
      std::printf("%d %d %.4f %.2f %.2f %.2f %.2f\n", number, classes[i], scores[i], box[0], box[1], box[2], box[3]);
    }
  }
  imgconv_close(model);
}
