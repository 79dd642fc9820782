// Tiles of matmul.cl: a work group copies the parts of A and B that its items read into local memory.
//
//                        B   [   TILE_QUADS quads   ]              left[part][k quad][row of the tile]
//                            [     of 4 rows        ]              right[part][k][quad of the tile]
//     A  [ 1 quad of  ]      [ TILE_ROWS rows of    ]
//        [ TILE_ROWS  ]      [ the output           ]
//
// The sum is divided into PARTS, and PART_ITEMS items compute each part. They process TILE_DEPTH quads of k at a time,
// which are fetched into registers while the previous quads are used. Item (r, c) of a part computes rows r *
// BLOCK_ROWS + 0, 1, ... of the tile, and its quads c, c + WORK_GROUP_COLUMNS, ..., so neighbouring items read
// neighbouring texels. If B_TRANSPOSED, the four lanes of each texel of B are stored separately.

#pragma once
#include "kernels/lib/output.cl"

#ifndef ROWS
#define ROWS 1                          // M
#endif
#ifndef INNER
#define INNER 1024                      // K
#endif
#ifndef BLOCK_ROWS
#define BLOCK_ROWS 1                    // output rows of a work item
#endif
#ifndef PARTS
#define PARTS 32                        // work items that share a sum: a power of two
#endif
#ifndef WORK_GROUP_COLUMNS
#define WORK_GROUP_COLUMNS 4            // work items of a work group along the output's quads, if PARTS > 1 or tiled
#endif
#ifndef WORK_GROUP_ROWS
#define WORK_GROUP_ROWS 1               // work items of a work group along the output's rows, if tiled
#endif
#ifndef TILE_DEPTH
#define TILE_DEPTH 0                    // quads of k in a part's tile; 0: no tiles, items read the images themselves
#endif
#ifndef CHECK_INNER
#define CHECK_INNER 0                   // 1: K is not a multiple of four, and the texels after row K of B are not zero
#endif
#ifndef A_IMAGE
#define A_IMAGE read_only image2d_t     // type of A
#endif
#ifndef READ_A
#define READ_A(x, y) read_imagef(a, TEXEL, (int2)(x, y))
#endif
#ifndef A_X
#define A_X(batch, row, quad) (quad)    // texel x of A
#endif
#ifndef A_Y
#define A_Y(batch, row, quad) (row)     // texel y of A
#endif
#ifndef B_IMAGE
#define B_IMAGE read_only image2d_t     // type of B
#endif
#ifndef READ_B
#define READ_B(x, y) read_imagef(b, TEXEL, (int2)(x, y))
#endif
#ifndef B_X
#define B_X(batch, inner, quad) (quad)  // texel x of B
#endif
#ifndef B_Y
#define B_Y(batch, inner, quad) (inner)  // texel y of B
#endif
#ifndef B_TRANSPOSED
#define B_TRANSPOSED 0                  // 1: a texel of B has four of k, like one of A; B_X, B_Y are like A_X, A_Y
#endif

#define INNER_QUADS ((INNER + 3) / 4)

#if TILE_DEPTH
#define PART_ITEMS (WORK_GROUP_ROWS * WORK_GROUP_COLUMNS)
#define TILE_ROWS (WORK_GROUP_ROWS * BLOCK_ROWS)
#define TILE_QUADS (WORK_GROUP_COLUMNS * BLOCK_QUADS)
#define ROW_TILES ((ROWS + TILE_ROWS - 1) / TILE_ROWS)
#define ALL_LEFT (TILE_DEPTH * TILE_ROWS)
#define ALL_RIGHT (TILE_DEPTH * 4 * TILE_QUADS)
#define BLOCK (BLOCK_ROWS * BLOCK_QUADS)
// Texels of local memory: the copies of all parts, and after them their sums.
#define COPIED (PARTS * (ALL_LEFT + ALL_RIGHT))
#define SUMMED (PARTS > 1 ? PARTS * PART_ITEMS * BLOCK : 0)
#define LOCAL_TEXELS (COPIED > SUMMED ? COPIED : SUMMED)
// The share of an item of a part, in turns.
#define TURNS(total) (((total) + PART_ITEMS - 1) / PART_ITEMS)
// Whether all parts end with K.
#define WHOLE (INNER_QUADS % (PARTS * TILE_DEPTH) == 0)

// Fetches an item's share of A's tile from k quad `first` on. Neighbours read neighbouring quads.
inline void fetch_left(float4 *fetched, A_IMAGE a, int item, int batch, int first_row, int first) {
#pragma unroll
  for (int turn = 0; turn < TURNS(ALL_LEFT); turn++) {
    const int n = min(item + turn * PART_ITEMS, ALL_LEFT - 1), quad = first + n % TILE_DEPTH;
    const int row = min(first_row + n / TILE_DEPTH, ROWS - 1);
    fetched[turn] = (float4)(0.0f);
    if (WHOLE || quad < INNER_QUADS) fetched[turn] = READ_A(A_X(batch, row, quad), A_Y(batch, row, quad));
  }
}

inline void put_left(__local float4 *left, const float4 *fetched, int item) {
#pragma unroll
  for (int turn = 0; turn < TURNS(ALL_LEFT); turn++) {
    const int n = item + turn * PART_ITEMS;
    if (n < ALL_LEFT) left[n % TILE_DEPTH * TILE_ROWS + n / TILE_DEPTH] = fetched[turn];
  }
}

#if B_TRANSPOSED
#define TILE_COLUMNS (4 * TILE_QUADS)
#define LAST_COLUMN (4 * (OUTPUT_QUADS - 1) + LAST_LANES - 1)

// The same of B's tile. Neighbours read neighbouring columns, and put numbers side by side.
inline void fetch_right(float4 *fetched, B_IMAGE b, int item, int batch, int first_quad, int first) {
#pragma unroll
  for (int turn = 0; turn < TURNS(ALL_RIGHT); turn++) {
    const int n = min(item + turn * PART_ITEMS, ALL_RIGHT - 1), quad = first + n / TILE_COLUMNS;
    const int column = min(4 * first_quad + n % TILE_COLUMNS, LAST_COLUMN);
    fetched[turn] = (float4)(0.0f);
    if (WHOLE || quad < INNER_QUADS) fetched[turn] = READ_B(B_X(batch, column, quad), B_Y(batch, column, quad));
  }
}

inline void put_right(__local float4 *right, const float4 *fetched, int item) {
  __local float *numbers = (__local float *)right;
#pragma unroll
  for (int turn = 0; turn < TURNS(ALL_RIGHT); turn++) {
    const int n = item + turn * PART_ITEMS, place = n / TILE_COLUMNS * 4 * TILE_COLUMNS + n % TILE_COLUMNS;
    if (n < ALL_RIGHT) {
      numbers[place] = fetched[turn].x;
      numbers[place + TILE_COLUMNS] = fetched[turn].y;
      numbers[place + 2 * TILE_COLUMNS] = fetched[turn].z;
      numbers[place + 3 * TILE_COLUMNS] = fetched[turn].w;
    }
  }
}
#else
// The same of B's tile.
inline void fetch_right(float4 *fetched, B_IMAGE b, int item, int batch, int first_quad, int first) {
#pragma unroll
  for (int turn = 0; turn < TURNS(ALL_RIGHT); turn++) {
    const int n = min(item + turn * PART_ITEMS, ALL_RIGHT - 1), inner = first * 4 + n / TILE_QUADS;
    const int column = min(first_quad + n % TILE_QUADS, OUTPUT_QUADS - 1);
    fetched[turn] = (float4)(0.0f);
    if ((WHOLE || inner < INNER_QUADS * 4) && (!CHECK_INNER || inner < INNER))
      fetched[turn] = READ_B(B_X(batch, inner, column), B_Y(batch, inner, column));
  }
}

inline void put_right(__local float4 *right, const float4 *fetched, int item) {
#pragma unroll
  for (int turn = 0; turn < TURNS(ALL_RIGHT); turn++) {
    const int n = item + turn * PART_ITEMS;
    if (n < ALL_RIGHT) right[n] = fetched[turn];
  }
}
#endif
#endif
