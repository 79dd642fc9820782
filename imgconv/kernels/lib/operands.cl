// The operands of conv.cl and depthwise.cl: texels of the input, factors for them, and weights.
//
// For BLOCK_ROWS rows of outputs, a work item keeps a tile of an input quad: TILE_ROWS lines of TILE_COLUMNS texels.
// KEEP determines how long it keeps the tile, and so how often it reads an input texel:
//
//     KEEP_TEXEL   for one window position: a texel for each output
//     KEEP_LINE    for one row of the window: a line for each row of outputs
//     KEEP_WINDOW  for the whole window, whose rows overlap as its columns do
//     KEEP_INPUT   the same for all quads at once

#pragma once
#include "kernels/lib/coordinate.cl"
#include "kernels/lib/sums.cl"
#include "kernels/lib/window.cl"

#ifndef BLOCK_ROWS
#define BLOCK_ROWS 1                    // output rows of a work item
#endif
#ifndef ROW_STEP
#define ROW_STEP 1                      // input rows from one that is read to the next: divides stride and dilation
#endif
#ifndef KEEP
#define KEEP 1                          // 0: KEEP_TEXEL, 1: KEEP_LINE, 2: KEEP_WINDOW, 3: KEEP_INPUT
#endif
#ifndef FACTORS
#define FACTORS 0                       // 1: the input's channels are multiplied by factors from an image
#endif
#ifndef FACTORS_IMAGE
#define FACTORS_IMAGE read_only image2d_t  // type of their image
#endif
#ifndef READ_FACTORS
#define READ_FACTORS(image, quad) ((QUAD)(1.0f))  // the factors of an input quad, for an image of the batch
#endif
#ifndef WEIGHTS
#define WEIGHTS read_only image2d_t weights  // declaration of the weights: an image, or a __global pointer
#endif
#ifndef WEIGHTS_IN_IMAGE
#define WEIGHTS_IN_IMAGE 1              // 0: in a buffer
#endif
#ifndef READ_WEIGHT
#define READ_WEIGHT(first, step) read_imagef(weights, TEXEL, (int2)(step, first))  // first: of the weights of a step
#endif

#define KEEP_TEXEL (KEEP == 0)
#define KEEP_LINE (KEEP == 1)
#define KEEP_WINDOW (KEEP == 2)
#define KEEP_INPUT (KEEP == 3)

// The tile, and where in it an output's texel for a window row or column is.
#if KEEP_TEXEL
#define TILE_COLUMNS BLOCK_COLUMNS
#define READ_COLUMN(n, kx) ((n) * STRIDE_X + (kx) * DILATION_X)
#define COLUMN_AT(column, kx) (column)
#else
#define TILE_COLUMNS LINE
#define READ_COLUMN(n, kx) ((n) * COLUMN_STEP)
#define COLUMN_AT(column, kx) LINE_AT(column, kx)
#endif
#if KEEP_TEXEL || KEEP_LINE
#define TILE_ROWS BLOCK_ROWS
#define READ_ROW(n, ky) ((n) * STRIDE_Y + (ky) * DILATION_Y)
#define ROW_AT(row, ky) (row)
#else
#define TILE_ROWS (((BLOCK_ROWS - 1) * STRIDE_Y + (WINDOW_HEIGHT - 1) * DILATION_Y) / ROW_STEP + 1)
#define READ_ROW(n, ky) ((n) * ROW_STEP)
#define ROW_AT(row, ky) (((row) * STRIDE_Y + (ky) * DILATION_Y) / ROW_STEP)
#endif

// Whether all input quads and window rows read the same rows, whose coordinates are then made before them.
#define ROWS_AHEAD (WINDOW_HEIGHT == 1 || KEEP_WINDOW || KEEP_INPUT)

// Reads a line of the tile for window column kx. x: of the window of the first output.
inline void read_line(QUAD *line, INPUT_IMAGE input, COORDINATE x, COORDINATE y, int kx, QUAD factor) {
#pragma unroll
  for (int n = 0; n < TILE_COLUMNS; n++) {
    const QUAD texel = READ_INPUT(x + READ_COLUMN(n, kx) * INPUT_PITCH, y);
    line[n] = FACTORS ? texel * factor : texel;
  }
}
