// The positions of the first elements of rows, in order of size: ORDER of each row, equal elements by position.
//
//     row of SIZE elements    [x0 x1 x2 x3] [x4 ...          a texel holds four of a row
//     output                  group 0: places 0 .. 4 * BLOCK_QUADS - 1    group 1: the next    ...    x = quad, y = row
//
// Elements are compared as pairs (key, position). The key is the float's bits, changed so that a smaller one is first.
// A work group makes BLOCK_QUADS quads of a row. It finds the pair at its first place and the pair behind its last one,
// digit by digit (radix selection: a histogram of the digits of those pairs that begin as the pair sought). It collects
// the pairs between them in local memory and sorts these (Batcher's bitonic network).

#include "kernels/output.cl"

#ifndef SIZE
#define SIZE 1000                       // elements of a row
#endif
#ifndef LARGEST
#define LARGEST 1                       // 1: the largest comes first, and NaN before it; 0: the smallest, and NaN last
#endif
#ifndef ITEMS
#define ITEMS 64                        // work items of a group
#endif
#ifndef STAGES
#define STAGES 3                        // of the network that sorts 2**n = 4 * BLOCK_QUADS pairs: n * (n + 1) / 2
#endif
#ifndef ROW_PARAMETERS
#define ROW_PARAMETERS , read_only image2d_t input  // ", declaration" for each image that rows are read from
#endif
#ifndef ROW_ARGUMENTS
#define ROW_ARGUMENTS , input           // ", name" of each of them
#endif
#ifndef READ_ROW
#define READ_ROW(row, quad) read_imagef(input, TEXEL, (int2)(quad, row))  // four elements of a row
#endif

#define DIGITS 256
#define PLACES (4 * BLOCK_QUADS)
#define ROW_QUADS ((SIZE + 3) / 4)
#define LAST 0xFFFFFFFFu  // the key and the position behind all others
// Work items of a group share what they count.
#if ITEMS > 1
#define INCREASE(counter) atomic_inc(counter)
#define WAIT barrier(CLK_LOCAL_MEM_FENCE);
#else
#define INCREASE(counter) ((*(counter))++)
#define WAIT
#endif

// A float as a whole number that is smaller if the float comes earlier. -0 is equal to 0.
inline uint4 keys_of(float4 x) {
  const uint4 bits = as_uint4(select(x, (float4)(0.0f), x == 0.0f));
  const uint4 rising = bits ^ select((uint4)(0x80000000u), (uint4)(LAST), bits >> 31 != 0u);
  const uint4 keys = select(rising, (uint4)(LAST), as_uint4(isnan(x)));
  return LARGEST ? ~keys : keys;
}

inline uint lane_of(uint4 keys, int lane) {
  return lane == 0 ? keys.x : lane == 1 ? keys.y : lane == 2 ? keys.z : keys.w;
}

// Whether a pair comes before another.
inline bool is_before(uint2 pair, uint2 other) { return pair.x < other.x || (pair.x == other.x && pair.y < other.y); }

// Does something with each pair of a work item's part of the row.
#define EACH_PAIR(what)                                      \
  for (int quad = item; quad < ROW_QUADS; quad += ITEMS) {   \
    const uint4 keys = keys_of(READ_ROW(row, quad));         \
    for (int lane = 0; lane < 4; lane++) {                   \
      const uint2 pair = (uint2)(lane_of(keys, lane), quad * 4 + lane); \
      if (pair.y < SIZE) what                                \
    }                                                        \
  }

// Finds, digit by digit, the number of `count` digits that has `rank` smaller ones among those of the pairs for which
// `of_them` holds: counts the digits of those that agree with `found` in the digits before, and adds the next one. The
// search for the digit has no early end: Mesa 22's llvmpipe ends such a loop of a single work item too soon.
#define FIND_DIGITS(number, count, of_them)                                                   \
  for (int place = 0; place < (count); place++) {                                             \
    const uint shift = 8 * ((count) - 1 - place), known = LAST << shift << 8;                \
    for (int digit = item; digit < DIGITS; digit += ITEMS) digits[digit] = 0;                 \
    WAIT                                                                                      \
    EACH_PAIR({                                                                               \
      if ((of_them) && (((number) ^ found) & known) == 0)                                     \
        INCREASE(&digits[(number) >> shift & DIGITS - 1]);                                    \
    })                                                                                        \
    WAIT                                                                                      \
    uint digit = 0;                                                                           \
    for (uint n = 0; n < DIGITS - 1; n++) {                                                   \
      const bool is_past = digit == n && rank >= digits[n];                                   \
      rank -= is_past ? digits[n] : 0;                                                        \
      digit += is_past;                                                                       \
    }                                                                                         \
    found |= digit << shift;                                                                  \
    WAIT                                                                                      \
  }

// The digits of a position.
#define POSITION_DIGITS (1 + (SIZE > 256) + (SIZE > 65536))

// The pair that has `rank` pairs before it.
inline uint2 pair_at(uint rank, int row, int item, __local uint *digits ROW_PARAMETERS) {
  uint found = 0;
  FIND_DIGITS(pair.x, 4, true)
  const uint key = found;
  found = 0;
  // Of pairs with this key, `rank` come before the pair. If none does, every position is at least 0.
  if (rank > 0) FIND_DIGITS(pair.y, POSITION_DIGITS, pair.x == key)
  return (uint2)(key, found);
}

// Global size: (groups of a row * ITEMS, rows). Local size: (ITEMS, 1).
WORK_GROUP __kernel void NAME(OUTPUT_IMAGE output ROW_PARAMETERS EPILOGUE_PARAMETERS) {
  const INDEX item = get_local_id(0), row = get_global_id(1);
  const int first = get_group_id(0) * PLACES, after = first + PLACES;
  __local uint digits[DIGITS], collected;
  __local uint2 pairs[PLACES];

  const uint2 least = first > 0 ? pair_at(first, row, item, digits ROW_ARGUMENTS) : (uint2)(0);
  const uint2 limit = after < SIZE ? pair_at(after, row, item, digits ROW_ARGUMENTS) : (uint2)(LAST);
  for (int place = item; place < PLACES; place += ITEMS) pairs[place] = (uint2)(LAST);
  if (item == 0) collected = 0;
  WAIT
  EACH_PAIR({
    if (!is_before(pair, least) && is_before(pair, limit)) pairs[INCREASE(&collected)] = pair;
  })
  WAIT

  for (int stage = 0, length = 2, distance = 1; stage < STAGES; stage++) {
    for (int n = item; n < PLACES / 2; n += ITEMS) {
      const int here = n / distance * 2 * distance + n % distance, there = here + distance;
      const uint2 a = pairs[here], b = pairs[there];
      if (is_before(b, a) == ((here & length) == 0)) {
        pairs[here] = b;
        pairs[there] = a;
      }
    }
    length = distance > 1 ? length : 2 * length;
    distance = distance > 1 ? distance / 2 : length / 2;
    WAIT
  }

  for (int n = item; n < BLOCK_QUADS; n += ITEMS) {
    const int quad = first / 4 + n;
    if (quad >= OUTPUT_QUADS) break;
    EPILOGUE_LOADS(quad)
    const float4 places = convert_float4(
        (uint4)(pairs[4 * n].y, pairs[4 * n + 1].y, pairs[4 * n + 2].y, pairs[4 * n + 3].y));
    write_texel(output, EPILOGUE(places, 0, row, quad), 0, row, quad);
  }
}
