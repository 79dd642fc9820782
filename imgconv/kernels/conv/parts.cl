// Sums that PARTS work items of a group share: each item adds up a part, and the parts are added in local memory.
//
//     parts[n][item][part]       n-th of TOGETHER sums; first + n = (row * BLOCK_COLUMNS + column) * BLOCK_QUADS + quad
//
// `item` and `part` are numbers within the work group; the items that share a block differ only in `part`. Local memory
// holds the parts of TOGETHER sums per item at a time. This is little memory, so a GPU can run many groups at once.

#pragma once
#include "kernels/conv/block.cl"

#ifndef PARTS
#define PARTS 1                         // work items that share a sum, next to each other along y: a power of two
#endif
#ifndef TOGETHER
#define TOGETHER 1                      // sums of a block whose parts are in local memory at once
#endif
#ifndef EACH_MEETING
#define EACH_MEETING(act, put) act(0, put(0, 0, 0, 0)) act(1, put(0, 0, 1, 0))  // put(n, row, column, quad)
#endif

#define BLOCK (BLOCK_ROWS * BLOCK_COLUMNS * BLOCK_QUADS)
#define NUMBER_OF(row, column, o) (((row) * BLOCK_COLUMNS + (column)) * BLOCK_QUADS + (o))
// A number of a block divided by a constant. Adreno's compilers divide with up to 50 instructions. Exact for numbers
// and divisors up to 256, the most sums of a block that items share: number * by < 65536.
#define QUOTIENT(number, by) ((by) == 1 ? (number) : mul24(number, 65536 / (by) + 1) >> 16)
#define ROW_OF(number) QUOTIENT(number, BLOCK_COLUMNS * BLOCK_QUADS)
#define COLUMN_OF(number) (QUOTIENT(number, BLOCK_QUADS) - ROW_OF(number) * BLOCK_COLUMNS)
#define QUAD_OF(number) ((number) - QUOTIENT(number, BLOCK_QUADS) * BLOCK_QUADS)

// Where an item's own part of a sum is: eight items of a wave, columns first, meet eight banks of 16 bytes, as they
// write and as they read.
inline int place_of_part(uint part, uint item) {
  return part ^ (item * min(PARTS, 8) / min(WORK_GROUP_WIDTH, 8) % PARTS);
}

// All parts of a sum, from the item's own on.
inline float4 total_of(__local const QUAD_SUM *parts, int own) {
#if INTEGERS
  int4 total = parts[own];
#pragma unroll
  for (int other = 1; other < PARTS; other++) total += parts[own ^ other];
  return convert_float4(total);
#else
  float4 total = TO_FLOAT(parts[own]);
#pragma unroll
  for (int other = 1; other < PARTS; other++) total += TO_FLOAT(parts[own ^ other]);
  return total;
#endif
}
