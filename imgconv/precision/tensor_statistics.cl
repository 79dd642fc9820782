// The kernels of precision/statistics.py, for a texture of floats: one finds the largest magnitude, one rounds to half.
//
//     texels    a tile of the texture, row after row, in a buffer: `size` texels
//
// A work item processes `run` consecutive texels, and then continues after the texels of all other work items. On a GPU
// `run` is 1, so neighbouring items read neighbouring texels; on a CPU it is large, for its caches and vectors.
//
// The bits of a float without its sign, as an integer, are ordered like its magnitude; those of NaN are above all
// others.

#define EACH_TEXEL(n)                                                                       \
  for (int from = get_global_id(0) * run; from < size; from += get_global_size(0) * run) \
    for (int n = from; n < min(from + run, size); ++n)
#define SIGN 0x80000000u
#define INFINITE 0x7F800000u
#define LARGEST_HALF 0x477FE000u   // 65504
#define SMALLEST_NORMAL 0x38800000u  // 2^-14: below it halves are 2^-24 apart

// most[at]: the bits of the largest magnitude, if they are more. They only grow: if they are as large when they are
// read, they are later.
__kernel void largest(__global const uint4 *texels, int size, int run, volatile __global uint *most, int at) {
  uint4 found = 0;
  EACH_TEXEL(n) found = max(found, texels[n] & ~SIGN);
  const uint bits = max(max(found.x, found.y), max(found.z, found.w));
  if (bits > most[at]) atomic_max(most + at, bits);
}

// Rounds each float to the nearest half, to even between two; past 65504 to infinity. NaN stays.
__kernel void round_to_half(__global uint4 *texels, int size, int run) {
  EACH_TEXEL(n) {
    const uint4 bits = texels[n] & ~SIGN;
    const uint4 normal = (bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFFu;
    const uint4 small = as_uint4(rint(as_float4(bits) * 0x1p24f) * 0x1p-24f);
    uint4 rounded = select(normal, small, bits < SMALLEST_NORMAL);
    rounded = select(rounded, (uint4)(INFINITE), rounded > LARGEST_HALF);
    texels[n] = select(rounded, bits, bits > INFINITE) | (texels[n] & SIGN);
  }
}
