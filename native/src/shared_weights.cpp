#include "shared_weights.h"

#include <algorithm>
#include <cstring>

namespace imgconv {
namespace {

constexpr int64_t ZERO = -(int64_t(1) << 62);  // as in imgconv/stored/blobs.py
constexpr size_t MOST_PADS = 64;               // the same there
constexpr int64_t LARGEST = int64_t(1) << 48;  // of an entry

// Copies element `place` of a blob to element `at`.
struct Copying {
  const uint8_t *blob;
  imgconv_dtype stored, dtype;
  uint8_t *made;

  void operator()(size_t place, size_t at) const {
    const size_t bytes = dtype_bytes(dtype);
    if (stored == dtype) {
      std::memcpy(made + at * bytes, blob + place * bytes, bytes);
      return;
    }
    const float number = static_cast<float>(number_at(stored, blob, place));
    const uint16_t half = to_half(number);
    std::memcpy(made + at * bytes, dtype == IMGCONV_FLOAT16 ? static_cast<const void *>(&half) : &number, bytes);
  }
};

// G g of three numbers g, which are `step` apart as those that are made: see Array in model.fbs.
void transform(const double *g, size_t step, size_t tile, double *made) {
  double point = tile == 2 ? 1 : 0.75;
  const double divisor = tile == 2 ? 2 : 1;
  made[0] = g[0];
  for (size_t row = 1; row < tile; row += 2, point *= 2) {
    const double ends = g[0] + point * point * g[2 * step], between = point * g[step];
    made[row * step] = (ends + between) / divisor;
    made[(row + 1) * step] = (ends - between) / divisor;
  }
  made[(tile + 1) * step] = g[2 * step];
}

// The taps of all windows of a blob, as imgconv/kernels/winograd/taps.py has them.
std::vector<float> taps_of(Span blob, imgconv_dtype stored, size_t tile) {
  constexpr size_t WINDOW = 9, LONGEST = 6;
  const size_t side = tile + 2, count = side * side;
  std::vector<float> made(blob.bytes / dtype_bytes(stored) / WINDOW * count);
  for (size_t at = 0, first = 0; at < made.size(); at += count, first += WINDOW) {
    double window[WINDOW], columns[LONGEST * 3], taps[LONGEST * LONGEST];
    for (size_t i = 0; i < WINDOW; ++i) window[i] = number_at(stored, blob.data, first + i);
    for (size_t column = 0; column < 3; ++column) transform(window + column, 3, tile, columns + column);
    for (size_t row = 0; row < side; ++row) transform(columns + row * 3, 1, tile, taps + row * side);
    std::copy(taps, taps + count, made.begin() + static_cast<ptrdiff_t>(at));
  }
  return made;
}

// The tables of a view, or the counts of one of its limits, at a position of all axes but the last.
class Line {
 public:
  Line(const View &view, const int64_t *tables) : view_(view), tables_(tables) {}

  // Moves to a position. Returns false if an entry is no place.
  bool move(const std::vector<size_t> &position) {
    last_ = tables_;
    start_ = 0;
    is_zero_ = false;
    for (size_t axis = 0; axis + 1 < view_.sizes.size(); last_ += view_.sizes[axis++]) {
      if (!add(last_[position[axis]], start_)) return false;
    }
    return true;
  }

  // The sum at element i of the last axis, or ZERO. Returns false if an entry is no place.
  bool at(size_t i, int64_t &sum) {
    sum = start_;
    const bool was_zero = is_zero_;
    const bool fits = add(last_[i], sum);
    if (is_zero_) sum = ZERO;
    is_zero_ = was_zero;
    return fits;
  }

 private:
  bool add(int64_t entry, int64_t &sum) {
    if (entry == ZERO) {
      is_zero_ = true;
      return true;
    }
    if (entry <= -LARGEST || entry >= LARGEST) return false;
    sum += entry;
    return true;
  }

  const View &view_;
  const int64_t *tables_, *last_ = nullptr;
  int64_t start_ = 0;
  bool is_zero_ = false;
};

// The number of elements; 0 if the tables do not fit, or have more than weights with pads.
size_t elements_of(const View &view, size_t stored) {
  size_t elements = 1, length = 0;
  for (const size_t size : view.sizes) {
    length += size;
    if (!size || elements > MOST_PADS * stored / size) return 0;
    elements *= size;
  }
  const bool fits = view.tables.empty() ? elements == stored && !view.tile : view.tables.size() == length;
  return fits && view.counts.size() == view.limits.size() * length ? elements : 0;
}

}  // namespace

bool gather(const View &view, Span blob, imgconv_dtype dtype, std::vector<uint8_t> &made) {
  std::vector<float> taps;
  imgconv_dtype type = view.stored;
  if (view.tile) {
    taps = taps_of(blob, type, view.tile);
    blob = {reinterpret_cast<const uint8_t *>(taps.data()), taps.size() * sizeof(float)};
    type = IMGCONV_FLOAT32;
  }
  const size_t stored = blob.bytes / dtype_bytes(type), elements = elements_of(view, stored);
  const bool is_half = view.tile && dtype == IMGCONV_FLOAT16;
  if (!elements || (type != dtype && dtype != IMGCONV_FLOAT32 && !is_half)) return false;
  made.assign(elements * dtype_bytes(dtype), 0);
  const Copying copy{blob.data, type, dtype, made.data()};
  if (view.tables.empty()) {
    for (size_t at = 0; at < elements; ++at) copy(at, at);
    return true;
  }
  Line places(view, view.tables.data());
  std::vector<Line> counts;
  for (size_t n = 0; n < view.limits.size(); ++n) {
    counts.emplace_back(view, view.counts.data() + n * view.tables.size());
  }
  std::vector<size_t> position(view.sizes.size());
  for (size_t at = 0; at < elements; at += view.sizes.back()) {
    bool fits = places.move(position);
    for (Line &each : counts) fits = each.move(position) && fits;
    for (size_t i = 0; i < view.sizes.back(); ++i) {
      int64_t place = 0, count = 0;
      fits = places.at(i, place) && fits;
      bool is_zero = place == ZERO;
      for (size_t n = 0; n < counts.size(); ++n) {
        fits = counts[n].at(i, count) && fits;
        is_zero = is_zero || count >= view.limits[n];
      }
      if (!fits) return false;
      if (is_zero) continue;
      if (place < 0 || static_cast<uint64_t>(place) >= stored) return false;
      copy(static_cast<size_t>(place), at + i);
    }
    for (size_t axis = position.size() - 1; axis-- > 0;) {
      if (++position[axis] < view.sizes[axis]) break;
      position[axis] = 0;
    }
  }
  return true;
}

}  // namespace imgconv
