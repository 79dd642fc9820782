// A work group of conv.cl copies what its items read into local memory: weights of STAGED_QUADS input quads for all
// quad blocks that they make, and the texels that their positions need.
//
//     staged[quad block][weight]          texels[input quad][row][column]
//                                             |<-  block  ->| |<-  block  ->|       BLOCK_STEP columns each, and one
//                                             [ ] [ ] [ ] [ ] - [ ] [ ] [ ] [ ] -   that is left free
//
// Each item fetches its share of both into registers, and puts it there when the others have used what came before.
//
// If BY_TAPS, a copy has one position of the window for each quad, and a texel for each output: windows that share few
// texels, of large dilations or strides, need no more local memory than a 1x1 window. Quads count on from one position
// of the window to the next; a position where the whole group reads padding is left out.

#pragma once
#include "kernels/conv/winograd.cl"

#ifndef STAGED_QUADS
#define STAGED_QUADS 0                  // input quads that are copied at once; 0: none are
#endif
#ifndef WORK_GROUP_WIDTH
#define WORK_GROUP_WIDTH 1              // the work group's size along x, if its items share sums or what they read
#endif
#ifndef WORK_GROUP_HEIGHT
#define WORK_GROUP_HEIGHT 1             // along y, without the parts of a sum
#endif
#ifndef WORK_GROUP_DEPTH
#define WORK_GROUP_DEPTH 1              // along z
#endif

#ifndef BY_TAPS
#define BY_TAPS 0                       // 1: one position of the window is copied at once
#endif
#ifndef INPUT_WIDTH
#define INPUT_WIDTH 56                  // columns of the input
#endif

// Input quads that are summed up, and positions of the window that are multiplied for each.
#if BY_TAPS
#define ALL_QUADS (INPUT_QUADS * STEPS_OF_QUAD)
#define LOOP_ROWS 1
#define LOOP_TAPS 1
#else
#define ALL_QUADS INPUT_QUADS
#define LOOP_ROWS WINDOW_HEIGHT
#define LOOP_TAPS TAPS
#endif

#define WORK_GROUP_ITEMS (WORK_GROUP_DEPTH * WORK_GROUP_HEIGHT * WORK_GROUP_WIDTH)

#if STAGED_QUADS
// The share of an item, in turns.
#define TURNS(total) (((total) + WORK_GROUP_ITEMS - 1) / WORK_GROUP_ITEMS)
#define STAGED_WEIGHTS (STAGED_QUADS * LOOP_ROWS * LOOP_TAPS * WEIGHTS_OF_STEP)
#define ALL_WEIGHTS (WORK_GROUP_HEIGHT * STAGED_WEIGHTS)
// How far apart the texels of a copy are in the input, and those of neighbouring outputs in the copy.
#if BY_TAPS
#define SKIP_X STRIDE_X
#define SKIP_Y STRIDE_Y
#define STAGED_STRIDE_X 1
#define STAGED_STRIDE_Y 1
#else
#define SKIP_X 1
#define SKIP_Y 1
#define STAGED_STRIDE_X STRIDE_X
#define STAGED_STRIDE_Y STRIDE_Y
#endif
#define STAGED_COLUMNS ((WORK_GROUP_WIDTH * BLOCK_COLUMNS - 1) * STAGED_STRIDE_X + (LOOP_TAPS - 1) * DILATION_X + 1)
#define STAGED_ROWS ((WORK_GROUP_DEPTH * BLOCK_ROWS - 1) * STAGED_STRIDE_Y + (LOOP_ROWS - 1) * DILATION_Y + 1)
#define ALL_TEXELS (STAGED_QUADS * STAGED_ROWS * STAGED_COLUMNS)
// Neighbours in a wave then read from different banks: with other quad blocks, and with other columns.
#define WEIGHTS_PITCH (STAGED_WEIGHTS + 1)
#define BLOCK_STEP (BLOCK_COLUMNS * STAGED_STRIDE_X)
#define SPREAD(column) ((column) + (column) / BLOCK_STEP)
#define TEXELS_PITCH (SPREAD(STAGED_COLUMNS - 1) + 1)

// Where a copy is in the window: its position, for the n-th of all quads, and the quad.
#define TAP_OF(n) (BY_TAPS ? (n) / INPUT_QUADS : 0)
#define QUAD_AT(n) (BY_TAPS ? (n) % INPUT_QUADS : (n))

// The first of the copies from the n-th quad on that has more than padding. x, y: where the group's first window starts.
inline int next_copy(int n, int x, int y) {
#if BY_TAPS && INPUT_QUADS % STAGED_QUADS == 0
  for (; n < ALL_QUADS; n += INPUT_QUADS) {
    const int column = x + TAP_OF(n) % TAPS * DILATION_X, row = y + TAP_OF(n) / TAPS * DILATION_Y;
    const bool beside = column >= INPUT_WIDTH || column + (STAGED_COLUMNS - 1) * SKIP_X < 0;
    if (!beside && row < INPUT_HEIGHT && row + (STAGED_ROWS - 1) * SKIP_Y >= 0) break;
  }
#endif
  return n;
}

// Fetches an item's share of the weights of input quads from `quad` on. first_block: the group's first quad block.
inline void fetch_weights(VECTOR *fetched, WEIGHTS, int item, int first_block, int quad) {
#pragma unroll
  for (int turn = 0; turn < TURNS(ALL_WEIGHTS); turn++) {
    const int n = min(item + turn * WORK_GROUP_ITEMS, ALL_WEIGHTS - 1);
    const int block = min(first_block + n / STAGED_WEIGHTS, QUAD_BLOCKS - 1);
#if BY_TAPS
    const int all = quad + n % STAGED_WEIGHTS / WEIGHTS_OF_STEP;
    const int step = QUAD_AT(all) * STEPS_OF_QUAD + TAP_OF(all);
    fetched[turn] = READ_WEIGHT(FIRST_WEIGHT(block, n % WEIGHTS_OF_STEP), step);
#else
    fetched[turn] = READ_WEIGHT(FIRST_WEIGHT(block, n % STAGED_WEIGHTS), quad * STEPS_OF_QUAD);
#endif
  }
}

inline void put_weights(__local VECTOR (*staged)[WEIGHTS_PITCH], const VECTOR *fetched, int item) {
#pragma unroll
  for (int turn = 0; turn < TURNS(ALL_WEIGHTS); turn++) {
    const int n = item + turn * WORK_GROUP_ITEMS;
    if (n < ALL_WEIGHTS) staged[n / STAGED_WEIGHTS][n % STAGED_WEIGHTS] = fetched[turn];
  }
}

// Fetches an item's share of the texels. first_x, first_y: where the window of the group's first position starts.
// Neighbours in the copy read neighbouring quads, which lie side by side.
inline void fetch_texels(QUAD *fetched, INPUT_IMAGE input, int item, int first_x, int first_y, int quad) {
#pragma unroll
  for (int turn = 0; turn < TURNS(ALL_TEXELS); turn++) {
    const int n = item + turn * WORK_GROUP_ITEMS, position = n / STAGED_QUADS;
    const int all = quad + n % STAGED_QUADS, tap = TAP_OF(all);
    const int column = first_x + position % STAGED_COLUMNS * SKIP_X + tap % TAPS * DILATION_X;
    const int row = first_y + position / STAGED_COLUMNS * SKIP_Y + tap / TAPS * DILATION_Y;
    const COORDINATE x = column * INPUT_PITCH + INPUT_OFFSET + INPUT_QUAD(QUAD_AT(all)) + TEXEL_CENTRE;
    const COORDINATE y = texture_row(0, row) + TEXEL_CENTRE;
    fetched[turn] = READ_INPUT(x, y);
  }
}

inline void put_texels(__local QUAD (*texels)[STAGED_ROWS][TEXELS_PITCH], const QUAD *fetched, int item) {
#pragma unroll
  for (int turn = 0; turn < TURNS(ALL_TEXELS); turn++) {
    const int n = item + turn * WORK_GROUP_ITEMS, position = n / STAGED_QUADS;
    if (n < ALL_TEXELS)
      texels[n % STAGED_QUADS][position / STAGED_COLUMNS][SPREAD(position % STAGED_COLUMNS)] = fetched[turn];
  }
}

// Makes the tile of an input quad from its texels. row, column: where the window of the item's first position starts.
inline void copy_tile(
    QUAD (*tile)[TILE_LINE], __local QUAD (*texels)[TEXELS_PITCH], int row, int column, int ky, int kx, QUAD factor) {
#pragma unroll
  for (int r = 0; r < TILE_ROWS; r++) {
    QUAD line[TILE_COLUMNS];
#pragma unroll
    for (int n = 0; n < TILE_COLUMNS; n++) {
      const int own_row = BY_TAPS ? r : READ_ROW(r, ky), own_column = BY_TAPS ? n : READ_COLUMN(n, kx);
      const QUAD texel = texels[row + own_row][column + SPREAD(own_column)];
      line[n] = FACTORS ? texel * factor : texel;
    }
    keep_line(tile[r], line);
  }
}
#endif
