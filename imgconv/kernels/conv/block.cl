// The sums of a block of conv.cl and conv_tiled.cl: their start values, the additions of a step, and storing them.
//
//     sum[row][column][vector]       BLOCK_ROWS x BLOCK_COLUMNS x BLOCK_VECTORS; see weights.cl
//
// Both kernels define TILE, the texels of an input quad that a work item keeps, and WEIGHT(n), weight n of the step.

#pragma once
#include "kernels/lib/branch.cl"
#include "kernels/lib/dot.cl"
#include "kernels/conv/weights.cl"

#ifndef EACH_LANE
#define EACH_LANE(act) act(0, x) act(1, y) act(2, z) act(3, w)  // for each channel of an input quad
#endif
#ifndef EACH_QUAD
#define EACH_QUAD(act) act(0)           // act(o) for each quad of a block
#endif
#ifndef WORK_GROUP_WIDTH
#define WORK_GROUP_WIDTH 1              // the work group's size along x, if its items share sums or reads
#endif
#ifndef WORK_GROUP_HEIGHT
#define WORK_GROUP_HEIGHT 1             // along y, without the parts of a sum
#endif
#ifndef WORK_GROUP_DEPTH
#define WORK_GROUP_DEPTH 1              // along z
#endif

#define WORK_GROUP_ITEMS (WORK_GROUP_DEPTH * WORK_GROUP_HEIGHT * WORK_GROUP_WIDTH)

// The sums of a work item one after another: `columns` in a row.
#define FOR_EACH(columns)                                              \
  _Pragma("unroll") for (int row = 0; row < BLOCK_ROWS; row++)         \
    _Pragma("unroll") for (int column = 0; column < columns; column++) \
      _Pragma("unroll") for (int o = 0; o < BLOCK_VECTORS; o++)

#define START_SUMS                                                                                           \
  _Pragma("unroll") for (int o = 0; o < BLOCK_VECTORS; o++) {                                                \
    const int loaded_quad = LOADED_QUAD(first_quad + o);                                                     \
    START_LOADS(loaded_quad)                                                                                 \
    const TOTAL start = (TOTAL)(FROM_FLOAT(START));                                                          \
    _Pragma("unroll") for (int row = 0; row < BLOCK_ROWS; row++)                                             \
      _Pragma("unroll") for (int column = 0; column < BLOCK_COLUMNS; column++) sum[row][column][o] = start;  \
  }

// Adds to the sums the products with the texels of window position (ky, kx). Weights are variables, not an array:
// Intel's CPU compiler then generates faster code.
#define LANE_WEIGHT(n, channel) const VECTOR weight_##channel = WEIGHT((n) * BLOCK_VECTORS + o);
#define ADD_LANE(n, channel) total = mad((VECTOR)(texel.channel), weight_##channel, total);
#if INTEGERS
#define ADD_STEP(sum)                                                                            \
  _Pragma("unroll") for (int o = 0; o < BLOCK_VECTORS; o++) {                                    \
    const uint4 weight = WEIGHT(o);                                                              \
    _Pragma("unroll") for (int row = 0; row < BLOCK_ROWS; row++)                                 \
      _Pragma("unroll") for (int column = 0; column < BLOCK_COLUMNS; column++) {                 \
        const uint texel = TILE[ROW_AT(row, ky)][COLUMN_AT(column, kx)];                         \
        const int4 total = sum[row][column][o];                                                  \
        sum[row][column][o] = (int4)(                                                            \
            DOT(total.x, weight.x, texel), DOT(total.y, weight.y, texel),                        \
            DOT(total.z, weight.z, texel), DOT(total.w, weight.w, texel));                       \
      }                                                                                          \
  }
#else
#define ADD_STEP(sum)                                                            \
  _Pragma("unroll") for (int o = 0; o < BLOCK_VECTORS; o++) {                    \
    EACH_LANE(LANE_WEIGHT)                                                       \
    _Pragma("unroll") for (int row = 0; row < BLOCK_ROWS; row++)                 \
      _Pragma("unroll") for (int column = 0; column < BLOCK_COLUMNS; column++) { \
        const QUAD texel = TILE[ROW_AT(row, ky)][COLUMN_AT(column, kx)];         \
        VECTOR total = sum[row][column][o];                                      \
        EACH_LANE(ADD_LANE)                                                      \
        sum[row][column][o] = total;                                             \
      }                                                                          \
  }
#endif

// Stores quad o of the block. Not in a loop: compilers give up unrolling one over long epilogues, and then keep all
// sums in memory.
#define STORE_SUM(row, column, o) STORE(row, column, first_quad + (o), FOR_EPILOGUE(sum[row][column][o]))
#define STORE_QUAD(o) if ((o) == 0 || ALWAYS(o)) { LOADS(first_quad + (o)) EACH_POSITION(STORE_SUM, o) }
