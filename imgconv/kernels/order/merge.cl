// Merges sorted runs of positions: two neighbouring runs become one of twice the length. Positions stand for elements.
//
//     positions    [run 0: RUN places | run 1: RUN places] [run 2 ...           a texel holds four; the last run of a
//     output       [run 0: 2 * RUN places                ] [run 1 ...           row may be shorter       x = quad, y = row
//
// A work item computes BLOCK_QUADS quads. With a bisection it finds how many of the places before its own come from the
// first of the two runs (Odeh and others, Merge Path, 2012). Then it repeatedly takes the smaller head of the two runs.
// Of equal elements, the one of the first run comes first, because its position is smaller.

#include "kernels/lib/output.cl"
#include "kernels/order/keys.cl"

#ifndef SIZE
#define SIZE 5000                       // elements of a row
#endif
#ifndef RUN
#define RUN 2048                        // positions of a run: a power of two, at least 2 * BLOCK_QUADS
#endif
#ifndef STEPS
#define STEPS 12                        // of the bisection: 2**STEPS > RUN
#endif
#ifndef ROW_PARAMETERS
#define ROW_PARAMETERS , read_only image2d_t positions, read_only image2d_t input  // ", declaration" of the inputs
#endif
#ifndef ROW_ARGUMENTS
#define ROW_ARGUMENTS , positions, input  // ", name" of each of them
#endif
#ifndef READ_POSITIONS
#define READ_POSITIONS(row, quad) read_imagef(positions, TEXEL, (int2)(quad, row))  // four positions of a row
#endif
#ifndef READ_ROW
#define READ_ROW(row, quad) read_imagef(input, TEXEL, (int2)(quad, row))  // four elements of a row
#endif

// A position and its element's key.
inline uint2 pair_of(int row, int place ROW_PARAMETERS) {
  const uint position = lane_of(convert_uint4(READ_POSITIONS(row, place / 4)), place & 3);
  return (uint2)(lane_of(keys_of(READ_ROW(row, position / 4)), position & 3), position);
}

// Global size: (blocks of a row, rows), rounded up to whole work groups.
WORK_GROUP NOT_VECTORIZED __kernel void NAME(OUTPUT_IMAGE output ROW_PARAMETERS EPILOGUE_PARAMETERS) {
  const INDEX block = get_global_id(0), row = get_global_id(1);
  const int first = block * 4 * BLOCK_QUADS;
  if (first >= 4 * OUTPUT_QUADS) return;
  // The runs are [start, middle) and [middle, end).
  const int start = first / (2 * RUN) * (2 * RUN);
  const int middle = min(start + RUN, SIZE), end = min(middle + RUN, SIZE);
  const int ahead = first - start;

  // Of the places ahead, at least `least` and at most `most` come from the first run.
  int least = max(0, ahead - (end - middle)), most = min(ahead, middle - start);
  for (int step = 0; step < STEPS; step++) {
    if (least < most) {
      const int half_way = (least + most) / 2;
      const uint2 of_first = pair_of(row, start + half_way ROW_ARGUMENTS);
      const uint2 of_second = pair_of(row, middle + ahead - 1 - half_way ROW_ARGUMENTS);
      if (of_second.x < of_first.x) most = half_way;
      else least = half_way + 1;
    }
  }

  int here = start + least, there = middle + ahead - least;
  uint2 head = here < middle ? pair_of(row, here ROW_ARGUMENTS) : (uint2)(0);
  uint2 other = there < end ? pair_of(row, there ROW_ARGUMENTS) : (uint2)(0);
  for (int n = 0; n < BLOCK_QUADS; n++) {
    const int quad = first / 4 + n;
    if (quad >= OUTPUT_QUADS) break;
    float places[4];
    for (int lane = 0; lane < 4; lane++) {
      const bool takes_first = here < middle && (there >= end || head.x <= other.x);
      places[lane] = takes_first ? head.y : other.y;
      if (takes_first) {
        here++;
        if (here < middle) head = pair_of(row, here ROW_ARGUMENTS);
      } else {
        there++;
        if (there < end) other = pair_of(row, there ROW_ARGUMENTS);
      }
    }
    EPILOGUE_LOADS(quad)
    const float4 found = (float4)(places[0], places[1], places[2], places[3]);
    write_texel(output, EPILOGUE(found, 0, row, quad), 0, row, quad);
  }
}
