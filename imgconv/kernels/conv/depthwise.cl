// Depthwise convolution of an RGBA texture: each channel has its own window, and there are no sums over channels.
//
// A work item computes BLOCK_COLUMNS x BLOCK_ROWS positions of a quad:
//
//     for each window row:                             weights: texel (tap, quad) of an image, or a buffer in the
//       read input texels                              order of reading, [quad][tap]:
//       for each window column (a tap):
//         read a weight texel                                      tap 0   tap 1  ...    tap = ky * WINDOW_WIDTH + kx
//         sum += texel * weight  for every position    quad 0     [rgba]  [rgba]
//
// The code is divided into these files, each with its constants:
//
//     kernels/lib/output.cl    the output and the epilogue       kernels/lib/operands.cl  texels that are read and kept
//     kernels/lib/window.cl    the input and its window          kernels/lib/store.cl     blocks of outputs
//
// The engine defines each name below (kernels/conv/text.py). With the defaults this file compiles on its own: a 3x3
// convolution of 64 channels, 56x56.

#include "cl/common.cl"
#include "kernels/lib/output.cl"
#include "kernels/lib/window.cl"
#include "kernels/lib/operands.cl"
#include "kernels/lib/store.cl"

#if HALF_QUADS
#define PARTIAL partial
#else
#define PARTIAL sum
#endif

// The sums of a work item one after another.
#define FOR_EACH                                               \
  _Pragma("unroll") for (int row = 0; row < BLOCK_ROWS; row++) \
    _Pragma("unroll") for (int column = 0; column < BLOCK_COLUMNS; column++)
// Stores a sum. Not in a loop: compilers give up unrolling one over long epilogues, and then keep all sums in memory.
#define STORE_SUM(row, column, o) STORE(row, column, quad, FOR_EPILOGUE(sum[row][column]))

// Reads the tile for a window position.
inline void read_tile(
    QUAD (*tile)[TILE_COLUMNS], INPUT_IMAGE input, COORDINATE x, int image, int start_y, int ky, int kx,
    QUAD factor) {
#pragma unroll
  for (int n = 0; n < TILE_ROWS; n++)
    read_line(tile[n], input, x, row_coordinate(image, start_y + READ_ROW(n, ky)), kx, factor);
}

// Global size: (column blocks, quads, N * row blocks).
WORK_GROUP NOT_VECTORIZED __kernel void NAME(PARAMETERS) {
  const INDEX item_x = get_global_id(0), item_y = get_global_id(1), item_z = get_global_id(2);
#if GUARD
  if (item_x >= COLUMN_BLOCKS || item_y >= QUAD_BLOCKS || item_z >= BATCH * ROW_BLOCKS) return;
#endif
  const INDEX first_column = item_x * BLOCK_COLUMNS, quad = item_y * BLOCK_QUADS;
#if BATCH > 1
  const INDEX image = item_z / ROW_BLOCKS, first_row = item_z % ROW_BLOCKS * BLOCK_ROWS;
#else
  const INDEX image = 0, first_row = item_z * BLOCK_ROWS;
#endif
  const INDEX phase_x = 0, phase_y = 0;
  // Where the window of the block's first position starts.
  const INDEX start_x = first_column * STRIDE_X - PAD_X, start_y = first_row * STRIDE_Y - PAD_Y;

  // The sums before the coordinates: after them Mesa's Adreno code is a few instructions longer.
  START_LOADS(quad)
  QUAD_SUM sum[BLOCK_ROWS][BLOCK_COLUMNS];
  FOR_EACH sum[row][column] = (QUAD_SUM)(FROM_FLOAT(START));
  const COORDINATE first_x = start_x * INPUT_PITCH + INPUT_OFFSET + INPUT_QUAD(quad) + TEXEL_CENTRE;
  const int first_weight = WEIGHTS_IN_IMAGE ? quad : quad * (WINDOW_WIDTH * WINDOW_HEIGHT);
  const QUAD factor = READ_FACTORS(image, quad);
#if HALF_QUADS
  half4 partial[BLOCK_ROWS][BLOCK_COLUMNS];
  FOR_EACH partial[row][column] = (half4)(0.0h);
#endif
  QUAD tile[TILE_ROWS][TILE_COLUMNS];
  int tap = 0;
#if KEEP_WINDOW
  read_tile(tile, input, first_x, image, start_y, 0, 0, factor);
#pragma unroll
#endif
  for (int ky = 0; ky < WINDOW_HEIGHT; ky++) {
#if KEEP_LINE
    read_tile(tile, input, first_x, image, start_y, ky, 0, factor);
#endif
#if KEEP_LINE || KEEP_WINDOW
#pragma unroll
#endif
    for (int kx = 0; kx < WINDOW_WIDTH; kx++) {
#if KEEP_TEXEL
      read_tile(tile, input, first_x, image, start_y, ky, kx, factor);
#endif
      const QUAD weight = READ_WEIGHT(first_weight, tap);
      FOR_EACH PARTIAL[row][column] = mad(tile[ROW_AT(row, ky)][COLUMN_AT(column, kx)], weight, PARTIAL[row][column]);
      tap++;
    }
  }
#if HALF_QUADS
  FOR_EACH sum[row][column] += convert_float4(partial[row][column]);
#endif
  LOADS(quad)
  EACH_POSITION(STORE_SUM, 0)
}
