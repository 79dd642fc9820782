// PARTS work items of a group share the sums of a block of conv.cl: each adds up a part, they meet in local memory.
//
//     parts[number][item][part]           number = (row * BLOCK_COLUMNS + column) * BLOCK_QUADS + quad
//
// Item and part are those of the work group; the items of a block differ in their part alone.

#pragma once
#include "kernels/staging.cl"

#ifndef PARTS
#define PARTS 1                         // work items that share a sum, next to each other along y: a power of two
#endif

#define BLOCK (BLOCK_ROWS * BLOCK_COLUMNS * BLOCK_QUADS)
#define NUMBER_OF(row, column, o) (((row) * BLOCK_COLUMNS + (column)) * BLOCK_QUADS + (o))
#define ROW_OF(number) ((number) / BLOCK_QUADS / BLOCK_COLUMNS)
#define COLUMN_OF(number) ((number) / BLOCK_QUADS % BLOCK_COLUMNS)
#define QUAD_OF(number) ((number) % BLOCK_QUADS)

// Where an item's own part of a sum is: eight items of a wave, columns first, meet eight banks of 16 bytes, as they
// write and as they read.
inline int place_of_part(int part, int item) {
  return part ^ (item * min(PARTS, 8) / min(WORK_GROUP_WIDTH, 8) % PARTS);
}

// All parts of a sum, from the item's own on.
inline float4 total_of(__local const QUAD_SUM *parts, int own) {
  float4 total = TO_FLOAT(parts[own]);
#pragma unroll
  for (int other = 1; other < PARTS; other++) total += TO_FLOAT(parts[own ^ other]);
  return total;
}
