// Weights that are a view of a blob: see Array in imgconv/stored/model.fbs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "dtype.h"
#include "file.h"

namespace imgconv {

// sizes: of the axes. is_used: whether the blob is not the content itself, but halves, or what the tables are of.
// tile: if it is not 0, the tables are of the taps of the blob's windows, for tiles with this many outputs in a row.
struct View {
  std::vector<size_t> sizes;
  std::vector<int64_t> tables, limits, counts;
  imgconv_dtype stored = IMGCONV_FLOAT32;
  bool is_used = false;
  size_t tile = 0;
};

// The content of a view in `dtype`, which is that of the blob; float32 for halves; either for taps. Returns false if
// the view leads out of the blob.
bool gather(const View &view, Span blob, imgconv_dtype dtype, std::vector<uint8_t> &made);

}  // namespace imgconv
