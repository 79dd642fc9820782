// Convolution of an RGBA texture on a desktop GPU: work groups copy tiles of weights and texels into local memory.
//
// Tensors and weights are stored as in conv.cl, for one image and one group, in float. A copy has LOCAL_QUADS input
// quads:
//
//     local_weights[quad block][weight]   local_texels[input quad][row][column]
//                                             |<-  block  ->| |<-  block  ->|       BLOCK_STEP columns each; one column
//                                             [ ] [ ] [ ] [ ] - [ ] [ ] [ ] [ ] -   is unused
//
//     for each copy:
//       store the fetched texels and weights in local memory, fetch the next ones
//       for each input quad, window row:
//         read a tile of texels
//         for each window column (a step):
//           sum += lane * weights  for every position, lane and output quad of a block
//
// Each work item fetches its share of texels and weights into registers. It stores them in local memory when the other
// items no longer need the previous copy.
//
// If BY_TAPS, a copy has one window position for each quad, and a texel for each output. So windows that share few
// texels, because of a large dilation or stride, need no more local memory than a 1x1 window. Quads are numbered on
// from one window position to the next. A window position at which the whole group reads padding is skipped.
//
// The code is divided into these files, each with its constants:
//
//     kernels/lib/output.cl    the output and the epilogue       kernels/conv/weights.cl   weights, vectors, sums
//     kernels/lib/window.cl    the input and its window          kernels/conv/block.cl     the sums of a block
//     kernels/lib/operands.cl  texels that are read and kept     kernels/lib/store.cl      blocks of outputs
//
// The engine defines each name below (kernels/conv/text.py). With the defaults this file compiles on its own: a 3x3
// convolution, 64 input and 64 output channels, 56x56.

#include "cl/common.cl"
#include "kernels/conv/block.cl"

#ifndef LOCAL_QUADS
#define LOCAL_QUADS 1                   // input quads that are in local memory at once
#endif
#ifndef BY_TAPS
#define BY_TAPS 0                       // 1: one position of the window is in local memory at once
#endif
#ifndef INPUT_WIDTH
#define INPUT_WIDTH 56                  // columns of the input
#endif

// ALL_QUADS: input quads that are summed. LOOP_ROWS, LOOP_TAPS: window positions that are multiplied for each quad.
// SKIP_X, SKIP_Y: distance in the input between texels of the copy. LOCAL_STRIDE_X, LOCAL_STRIDE_Y: distance in the
// copy between texels of neighbouring outputs.
#if BY_TAPS
#define ALL_QUADS (INPUT_QUADS * STEPS_OF_QUAD)
#define LOOP_ROWS 1
#define LOOP_TAPS 1
#define SKIP_X STRIDE_X
#define SKIP_Y STRIDE_Y
#define LOCAL_STRIDE_X 1
#define LOCAL_STRIDE_Y 1
#else
#define ALL_QUADS INPUT_QUADS
#define LOOP_ROWS WINDOW_HEIGHT
#define LOOP_TAPS WINDOW_WIDTH
#define SKIP_X 1
#define SKIP_Y 1
#define LOCAL_STRIDE_X STRIDE_X
#define LOCAL_STRIDE_Y STRIDE_Y
#endif

// The share of an item, in turns.
#define TURNS(total) (((total) + WORK_GROUP_ITEMS - 1) / WORK_GROUP_ITEMS)
#define LOCAL_WEIGHTS (LOCAL_QUADS * LOOP_ROWS * LOOP_TAPS * WEIGHTS_OF_STEP)
#define ALL_WEIGHTS (WORK_GROUP_HEIGHT * LOCAL_WEIGHTS)
#define LOCAL_COLUMNS ((WORK_GROUP_WIDTH * BLOCK_COLUMNS - 1) * LOCAL_STRIDE_X + (LOOP_TAPS - 1) * DILATION_X + 1)
#define LOCAL_ROWS ((WORK_GROUP_DEPTH * BLOCK_ROWS - 1) * LOCAL_STRIDE_Y + (LOOP_ROWS - 1) * DILATION_Y + 1)
#define ALL_TEXELS (LOCAL_QUADS * LOCAL_ROWS * LOCAL_COLUMNS)
// Neighbours in a wave then read from different banks: with other quad blocks, and with other columns.
#define WEIGHTS_PITCH (LOCAL_WEIGHTS + 1)
#define BLOCK_STEP (BLOCK_COLUMNS * LOCAL_STRIDE_X)
#define SPREAD(column) ((column) + (column) / BLOCK_STEP)
#define TEXELS_PITCH (SPREAD(LOCAL_COLUMNS - 1) + 1)

// Where a copy is in the window: its position, for the n-th of all quads, and the quad.
#define TAP_OF(n) (BY_TAPS ? (n) / INPUT_QUADS : 0)
#define QUAD_AT(n) (BY_TAPS ? (n) % INPUT_QUADS : (n))

#define TILE tile
#define WEIGHT(n) local_weights[get_local_id(1)][step * WEIGHTS_OF_STEP + (n)]

// The first of the copies from the n-th quad on that has more than padding. x, y: where the group's first window
// starts.
inline int next_copy(int n, int x, int y) {
#if BY_TAPS && INPUT_QUADS % LOCAL_QUADS == 0
  for (; n < ALL_QUADS; n += INPUT_QUADS) {
    const int column = x + TAP_OF(n) % WINDOW_WIDTH * DILATION_X, row = y + TAP_OF(n) / WINDOW_WIDTH * DILATION_Y;
    const bool beside = column >= INPUT_WIDTH || column + (LOCAL_COLUMNS - 1) * SKIP_X < 0;
    if (!beside && row < INPUT_HEIGHT && row + (LOCAL_ROWS - 1) * SKIP_Y >= 0) break;
  }
#endif
  return n;
}

// Fetches an item's share of the weights of input quads from `quad` on. first_block: the group's first quad block.
inline void fetch_weights(VECTOR *fetched, WEIGHTS, int item, int first_block, int quad) {
#pragma unroll
  for (int turn = 0; turn < TURNS(ALL_WEIGHTS); turn++) {
    const int n = min(item + turn * WORK_GROUP_ITEMS, ALL_WEIGHTS - 1);
    const int block = min(first_block + n / LOCAL_WEIGHTS, QUAD_BLOCKS - 1);
#if BY_TAPS
    const int all = quad + n % LOCAL_WEIGHTS / WEIGHTS_OF_STEP;
    const int step = QUAD_AT(all) * STEPS_OF_QUAD + TAP_OF(all);
    fetched[turn] = READ_WEIGHT(FIRST_WEIGHT(block, n % WEIGHTS_OF_STEP), step);
#else
    fetched[turn] = READ_WEIGHT(FIRST_WEIGHT(block, n % LOCAL_WEIGHTS), quad * STEPS_OF_QUAD);
#endif
  }
}

inline void put_weights(__local VECTOR (*weights)[WEIGHTS_PITCH], const VECTOR *fetched, int item) {
#pragma unroll
  for (int turn = 0; turn < TURNS(ALL_WEIGHTS); turn++) {
    const int n = item + turn * WORK_GROUP_ITEMS;
    if (n < ALL_WEIGHTS) weights[n / LOCAL_WEIGHTS][n % LOCAL_WEIGHTS] = fetched[turn];
  }
}

// Fetches an item's share of the texels. first_x, first_y: where the window of the group's first position starts.
// Neighbouring items read neighbouring quads, which are consecutive in the image.
inline void fetch_texels(QUAD *fetched, INPUT_IMAGE input, int item, int first_x, int first_y, int quad) {
#pragma unroll
  for (int turn = 0; turn < TURNS(ALL_TEXELS); turn++) {
    const int n = item + turn * WORK_GROUP_ITEMS, position = n / LOCAL_QUADS;
    const int all = quad + n % LOCAL_QUADS, tap = TAP_OF(all);
    const int column = first_x + position % LOCAL_COLUMNS * SKIP_X + tap % WINDOW_WIDTH * DILATION_X;
    const int row = first_y + position / LOCAL_COLUMNS * SKIP_Y + tap / WINDOW_WIDTH * DILATION_Y;
    const COORDINATE x = column * INPUT_PITCH + INPUT_OFFSET + INPUT_QUAD(QUAD_AT(all)) + TEXEL_CENTRE;
    const COORDINATE y = texture_row(0, row) + TEXEL_CENTRE;
    fetched[turn] = READ_INPUT(x, y);
  }
}

inline void put_texels(__local QUAD (*texels)[LOCAL_ROWS][TEXELS_PITCH], const QUAD *fetched, int item) {
#pragma unroll
  for (int turn = 0; turn < TURNS(ALL_TEXELS); turn++) {
    const int n = item + turn * WORK_GROUP_ITEMS, position = n / LOCAL_QUADS;
    if (n < ALL_TEXELS)
      texels[n % LOCAL_QUADS][position / LOCAL_COLUMNS][SPREAD(position % LOCAL_COLUMNS)] = fetched[turn];
  }
}

// Makes the tile of an input quad from its texels. row, column: where the window of the item's first position starts.
inline void take_tile(
    QUAD (*tile)[TILE_COLUMNS], __local QUAD (*texels)[TEXELS_PITCH],
    int row, int column, int ky, int kx, QUAD factor) {
#pragma unroll
  for (int r = 0; r < TILE_ROWS; r++) {
#pragma unroll
    for (int n = 0; n < TILE_COLUMNS; n++) {
      const int own_row = BY_TAPS ? r : READ_ROW(r, ky), own_column = BY_TAPS ? n : READ_COLUMN(n, kx);
      const QUAD texel = texels[row + own_row][column + SPREAD(own_column)];
      tile[r][n] = FACTORS ? texel * factor : texel;
    }
  }
}

// Global size: (column blocks, quad blocks, row blocks).
WORK_GROUP NOT_VECTORIZED __kernel void NAME(PARAMETERS) {
  const INDEX quad_block = get_global_id(1), first_quad = quad_block * BLOCK_QUADS;
  const INDEX first_column = get_global_id(0) * BLOCK_COLUMNS, first_row = get_global_id(2) * BLOCK_ROWS;
  const INDEX image = 0, phase_x = 0, phase_y = 0;
  // Where the windows of the group's first position start, and in local memory that of the item's.
  const int group_x = (first_column - get_local_id(0) * BLOCK_COLUMNS) * STRIDE_X - PAD_X;
  const int group_y = (first_row - get_local_id(2) * BLOCK_ROWS) * STRIDE_Y - PAD_Y;
  const int group_block = quad_block - get_local_id(1);
  const int local_column = get_local_id(0) * (BLOCK_STEP + 1), local_row = get_local_id(2) * (BLOCK_ROWS * LOCAL_STRIDE_Y);
  const int item = (get_local_id(2) * WORK_GROUP_HEIGHT + get_local_id(1)) * WORK_GROUP_WIDTH + get_local_id(0);
  __local VECTOR local_weights[WORK_GROUP_HEIGHT][WEIGHTS_PITCH];
  __local QUAD local_texels[LOCAL_QUADS][LOCAL_ROWS][TEXELS_PITCH];
  VECTOR fetched_weights[TURNS(ALL_WEIGHTS)];
  QUAD fetched_texels[TURNS(ALL_TEXELS)];

  TOTAL sum[BLOCK_ROWS][BLOCK_COLUMNS][BLOCK_VECTORS];
  START_SUMS
  int quads = next_copy(0, group_x, group_y);
  if (quads < ALL_QUADS) {
    fetch_weights(fetched_weights, weights, item, group_block, quads);
    fetch_texels(fetched_texels, input, item, group_x, group_y, quads);
  }
  while (quads < ALL_QUADS) {
    barrier(CLK_LOCAL_MEM_FENCE);
    put_weights(local_weights, fetched_weights, item);
    put_texels(local_texels, fetched_texels, item);
    barrier(CLK_LOCAL_MEM_FENCE);
    const int next = next_copy(quads + LOCAL_QUADS, group_x, group_y);
    if (next < ALL_QUADS) {
      fetch_weights(fetched_weights, weights, item, group_block, next);
      fetch_texels(fetched_texels, input, item, group_x, group_y, next);
    }
    for (int n = 0; n < LOCAL_QUADS; n++) {
      const QUAD factor = READ_FACTORS(image, QUAD_AT(quads + n));
      int step = n * (LOOP_ROWS * LOOP_TAPS);
      for (int ky = 0; ky < LOOP_ROWS; ky++) {
        QUAD tile[TILE_ROWS][TILE_COLUMNS];
#if KEEP_LINE
        take_tile(tile, local_texels[n], local_row, local_column, ky, 0, factor);
#pragma unroll
#endif
        for (int kx = 0; kx < LOOP_TAPS; kx++) {
#if KEEP_TEXEL
          take_tile(tile, local_texels[n], local_row, local_column, ky, kx, factor);
#endif
          ADD_STEP(sum)
          step++;
        }
      }
    }
    quads = next;
  }

  EACH_QUAD(STORE_QUAD)
}
