// The positions of the first elements of rows, sorted: ORDER elements of each row; equal elements by position.
//
//     row of SIZE elements    [x0 x1 x2 x3] [x4 ...          a texel holds four of a row
//     output                  group 0: places 0 .. 4 * BLOCK_QUADS - 1    RUNS: group 1: the next ...    x = quad, y = row
//
// Elements are compared as pairs (key, position), smaller ones first; kernels/order/keys.cl makes the keys. A work
// group computes BLOCK_QUADS quads of a row. It collects pairs in local memory and sorts them: several work items with
// Batcher's bitonic network, a single item by digits.
//
// If one group computes a whole row, it first finds the pair after the last place, digit by digit, and then collects
// the pairs before it. This is a radix selection: for each digit, it makes a histogram of the pairs whose earlier
// digits equal those found so far. With RUNS each group sorts the elements at its own places, and merge.cl merges these
// runs.

#include "kernels/lib/output.cl"
#include "kernels/order/keys.cl"

#ifndef SIZE
#define SIZE 1000                       // elements of a row
#endif
#ifndef RUNS
#define RUNS 0                          // 1: each group orders its own part of the row; 0: one group, the whole row
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
#define LAST 0xFFFFFFFFu  // a key or position greater than all others
// Work items of a group share their counts.
#if ITEMS > 1
#define INCREASE(counter) atomic_inc(counter)
#define WAIT barrier(CLK_LOCAL_MEM_FENCE);
#else
#define INCREASE(counter) ((*(counter))++)
#define WAIT
#endif

// Whether a pair comes before another.
inline bool is_before(uint2 pair, uint2 other) { return pair.x < other.x || (pair.x == other.x && pair.y < other.y); }

#if !RUNS
// Does something with each pair of a work item's part of the row.
#define EACH_PAIR(what)                                      \
  for (int quad = item; quad < ROW_QUADS; quad += ITEMS) {   \
    const uint4 keys = keys_of(READ_ROW(row, quad));         \
    for (int lane = 0; lane < 4; lane++) {                   \
      const uint2 pair = (uint2)(lane_of(keys, lane), quad * 4 + lane); \
      if (pair.y < SIZE) what                                \
    }                                                        \
  }

// Considers the pairs for which `of_them` holds. Finds, digit by digit, the number (of `count` digits) that has `rank`
// smaller ones among them. For each digit, it counts the digits of the pairs whose earlier digits equal `found`, and
// appends the next digit. The search for the digit does not stop early, because Mesa 22's llvmpipe ends such a loop of
// a single work item too soon.
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
#endif

// Global size: (groups of a row * ITEMS, rows). Local size: (ITEMS, 1).
WORK_GROUP NOT_VECTORIZED __kernel void NAME(OUTPUT_IMAGE output ROW_PARAMETERS EPILOGUE_PARAMETERS) {
  const INDEX item = get_local_id(0), row = get_global_id(1);
  const int first = get_group_id(0) * PLACES;
  __local uint digits[DIGITS];
  __local uint2 pairs[PLACES];

#if RUNS
  for (int n = item; n < BLOCK_QUADS; n += ITEMS) {
    const uint4 keys = first + 4 * n < SIZE ? keys_of(READ_ROW(row, first / 4 + n)) : (uint4)(LAST);
    for (int lane = 0; lane < 4; lane++) {
      const int position = first + 4 * n + lane;
      pairs[4 * n + lane] = position < SIZE ? (uint2)(lane_of(keys, lane), position) : (uint2)(LAST);
    }
  }
#else
  __local uint collected;
  const uint2 limit = PLACES < SIZE ? pair_at(PLACES, row, item, digits ROW_ARGUMENTS) : (uint2)(LAST);
  for (int place = item; place < PLACES; place += ITEMS) pairs[place] = (uint2)(LAST);
  if (item == 0) collected = 0;
  WAIT
  EACH_PAIR({
    if (is_before(pair, limit)) pairs[INCREASE(&collected)] = pair;
  })
#endif
  WAIT

#if ITEMS > 1
#define POSITION_AT(place) pairs[place].y
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
#else
  // The pairs lie in order of their positions: each pass keeps the order that the digits before gave.
#define POSITION_AT(place) pairs[from[place]].y
  __local ushort ordered[2][PLACES];
  __local ushort *from = ordered[0], *to = ordered[1];
  for (int n = 0; n < PLACES; n++) from[n] = n;
  for (int shift = 0; shift < 32; shift += 8) {
    for (int digit = 0; digit < DIGITS; digit++) digits[digit] = 0;
    for (int n = 0; n < PLACES; n++) digits[pairs[n].x >> shift & DIGITS - 1]++;
    uint before = 0;
    for (int digit = 0; digit < DIGITS; digit++) {
      const uint count = digits[digit];
      digits[digit] = before;
      before += count;
    }
    for (int n = 0; n < PLACES; n++) to[digits[pairs[from[n]].x >> shift & DIGITS - 1]++] = from[n];
    __local ushort *swapped = from;
    from = to;
    to = swapped;
  }
#endif

  for (int n = item; n < BLOCK_QUADS; n += ITEMS) {
    const int quad = first / 4 + n;
    if (quad >= OUTPUT_QUADS) break;
    EPILOGUE_LOADS(quad)
    const float4 places = convert_float4(
        (uint4)(POSITION_AT(4 * n), POSITION_AT(4 * n + 1), POSITION_AT(4 * n + 2), POSITION_AT(4 * n + 3)));
    write_texel(output, EPILOGUE(places, 0, row, quad), 0, row, quad);
  }
}
