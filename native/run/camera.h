// Options that describe a frame in memory, for a model that takes a camera's frames.
#pragma once

#include <string>
#include <vector>

#include "imgconv.h"

// A frame from a file. It is not copied: `content` holds the planes.
struct Camera {
  std::string path;
  std::vector<char> content;
  imgconv_video_frame frame{};

  bool is_given() const { return !path.empty(); }
  // "640x480".
  void set_size(const std::string &text);
  // "OFFSET,ROW_STRIDE[,PIXEL_STRIDE]" of the next plane.
  void add_plane(const std::string &text);
  // "LEFT,TOP,WIDTH,HEIGHT".
  void set_region(const std::string &text);
  void set_rotation(const std::string &text);
  // Reads the file. All of these throw std::runtime_error; this one also if size or planes are not given.
  void read();
};
