#include "camera.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <stdexcept>

namespace {

// The whole numbers of a text, between separators.
std::vector<int32_t> numbers_of(const std::string &option, const std::string &text, char separator, size_t least,
                                size_t most) {
  std::vector<int32_t> found;
  const char *at = text.c_str();
  while (true) {
    char *end = nullptr;
    const long number = std::strtol(at, &end, 10);
    const bool is_last = !*end;
    if (end == at || (!is_last && *end != separator) || number != static_cast<int32_t>(number)) break;
    found.push_back(static_cast<int32_t>(number));
    if (is_last && found.size() >= least && found.size() <= most) return found;
    if (is_last) break;
    at = end + 1;
  }
  throw std::runtime_error(option + " " + text + ": see imgconv-run --help");
}

// The same without a negative one.
std::vector<uint32_t> sizes_of(const std::string &option, const std::string &text, char separator, size_t count) {
  const std::vector<int32_t> found = numbers_of(option, text, separator, count, count);
  if (*std::min_element(found.begin(), found.end()) < 0) throw std::runtime_error(option + " " + text + " is negative");
  return {found.begin(), found.end()};
}

}  // namespace

void Camera::set_size(const std::string &text) {
  const std::vector<uint32_t> found = sizes_of("--size", text, 'x', 2);
  frame.width = found[0];
  frame.height = found[1];
}

void Camera::add_plane(const std::string &text) {
  if (frame.plane_count == 3) throw std::runtime_error("a frame has at most three --plane");
  const std::vector<int32_t> found = numbers_of("--plane", text, ',', 2, 3);
  if (found[0] < 0) throw std::runtime_error("--plane " + text + ": the offset is negative");
  imgconv_plane &plane = frame.planes[frame.plane_count++];
  plane.offset = static_cast<size_t>(found[0]);
  plane.row_stride = found[1];
  plane.pixel_stride = found.size() > 2 ? found[2] : 0;
}

void Camera::set_region(const std::string &text) {
  const std::vector<uint32_t> found = sizes_of("--region", text, ',', 4);
  frame.left = found[0];
  frame.top = found[1];
  frame.region_width = found[2];
  frame.region_height = found[3];
}

void Camera::set_rotation(const std::string &text) {
  frame.rotation = sizes_of("--rotate", text, ',', 1)[0];
  if (frame.rotation % 90) throw std::runtime_error("--rotate " + text + " is not a multiple of 90");
}

void Camera::read() {
  if (!frame.width || !frame.height) throw std::runtime_error("--frame needs --size WIDTHxHEIGHT");
  if (!frame.plane_count) throw std::runtime_error("--frame needs a --plane for each plane");
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read '" + path + "'");
  content.assign(std::istreambuf_iterator<char>(file), {});
  for (uint32_t i = 0; i < frame.plane_count; ++i) {
    frame.planes[i].data = content.data();
    frame.planes[i].bytes = content.size();
  }
}
