// What running/numbers.py does to the numbers of a value that lies in a texture: it finds their largest magnitude, and
// puts other halves in their place.
//
//     texels    a tile of the texture, row after row, in a buffer; `size` texels in rows of `width`
//               x                     0         1         2         3         4    ...  width - 1
//               quad of channels    start   start + 1     0         1         2          (start + x) % quads
//                                              |_________________|
//     the value has `count` quads from `first` on; the others are those of other values in the same texture
//
// A work item takes `run` texels that lie one after another, then the next ones behind those of all work items. On a
// GPU that is one, so that neighbours read neighbours; on a CPU many, for its caches and vectors.
//
// The bits of a float without its sign are in the order of magnitudes, as integers; those of NaN are above all.

typedef struct {
  int size, run, width, start, quads, first, count;
} Tile;

#define EACH_TEXEL(n, tile)                                                                                 \
  for (int from = get_global_id(0) * tile.run; from < tile.size; from += get_global_size(0) * tile.run) \
    for (int n = from; n < min(from + tile.run, tile.size); ++n)
#define SIGN_OF_HALF 0x8000
#define LARGEST_HALF 0x7BFF  // 65504; above it are infinity and NaN

// Whether the n-th texel is the value's. Most values have a texture of their own, and divisions are slow.
inline bool is_of_value(int n, Tile tile) {
  if (tile.count == tile.quads) return true;
  const int quad = (tile.start + n % tile.width) % tile.quads;
  return quad >= tile.first && quad < tile.first + tile.count;
}

// Raises a number to the largest component. It only grows: if it is as large when it is read, it is later.
inline void raise(volatile __global uint *largest, uint4 found) {
  const uint most = max(max(found.x, found.y), max(found.z, found.w));
  if (most > *largest) atomic_max(largest, most);
}

// largest[at]: the bits of the largest magnitude, if they are more.
__kernel void largest_float(
    __global const uint4 *texels, __global const Tile *about, volatile __global uint *largest, int at) {
  const Tile tile = *about;
  uint4 found = 0;
  EACH_TEXEL(n, tile)
    if (is_of_value(n, tile)) found = max(found, texels[n] & 0x7FFFFFFF);
  raise(largest + at, found);
}

__kernel void largest_half(
    __global const ushort4 *texels, __global const Tile *about, volatile __global uint *largest, int at) {
  const Tile tile = *about;
  uint4 found = 0;
  EACH_TEXEL(n, tile)
    if (is_of_value(n, tile)) found = max(found, convert_uint4(texels[n]) & 0x7FFF);
  raise(largest + at, found);
}

// Moves each half by steps[begin + its bits] units in the last place. Zeros, infinities, NaN and signs stay.
__kernel void move(
    __global ushort4 *texels, __global const Tile *about, __global const short *steps, int begin) {
  const Tile tile = *about;
  EACH_TEXEL(n, tile) {
    if (!is_of_value(n, tile)) continue;
    const int4 bits = convert_int4(texels[n]), magnitude = bits & ~SIGN_OF_HALF, step = bits + begin;
    const int4 by = (int4)(steps[step.x], steps[step.y], steps[step.z], steps[step.w]);
    const int4 moved = clamp(magnitude + by, 0, LARGEST_HALF) | (bits & SIGN_OF_HALF);
    texels[n] = convert_ushort4(select(moved, bits, (magnitude == 0) | (magnitude > LARGEST_HALF)));
  }
}
