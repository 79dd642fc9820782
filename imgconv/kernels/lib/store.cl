// The parameters of conv.cl and depthwise.cl, the start values of a block's sums, and storing them after the epilogue.
//
//                         BLOCK_COLUMNS
//                      sum  sum  sum  sum          of one output quad; if transposed, the positions
//     BLOCK_ROWS       sum  sum  sum  sum          are PHASES_X and PHASES_Y apart

#pragma once
#include "kernels/lib/operands.cl"
#include "kernels/lib/output.cl"

#ifndef PHASES_X
#define PHASES_X 1                      // stride of a transposed convolution; 1 for an ordinary one
#endif
#ifndef PHASES_Y
#define PHASES_Y 1                      // the same along y
#endif
#ifndef EACH_POSITION
#define EACH_POSITION(act, o) act(0, 0, o) act(0, 1, o)  // act(row, column, o) for each position of a block
#endif
#ifndef GUARD
#define GUARD 0                         // work items without outputs: 0: none, 1: they return, 2: they wait for others
#endif
#ifndef START
#define START (0.0f)                    // start value of the sums of an output quad: its bias, or zero
#endif
#ifndef START_LOADS
#define START_LOADS(quad) ;             // statements that load it
#endif

// What the kernel is given.
#if FACTORS
#define FACTORS_PARAMETER , FACTORS_IMAGE factors
#else
#define FACTORS_PARAMETER
#endif
#define PARAMETERS \
  OUTPUT_IMAGE output, INPUT_IMAGE input, WEIGHTS FACTORS_PARAMETER EPILOGUE_PARAMETERS

// Blocks along each axis, of one phase, and whether none of them reaches past the edge: stores then need no test.
#define COLUMN_BLOCKS (((OUTPUT_WIDTH + PHASES_X - 1) / PHASES_X + BLOCK_COLUMNS - 1) / BLOCK_COLUMNS)
#define ROW_BLOCKS (((OUTPUT_HEIGHT + PHASES_Y - 1) / PHASES_Y + BLOCK_ROWS - 1) / BLOCK_ROWS)
#define QUAD_BLOCKS ((OUTPUT_QUADS + BLOCK_QUADS - 1) / BLOCK_QUADS)
#define WHOLE_COLUMNS (GUARD < 2 && COLUMN_BLOCKS * BLOCK_COLUMNS * PHASES_X == OUTPUT_WIDTH)
#define WHOLE_ROWS (GUARD < 2 && ROW_BLOCKS * BLOCK_ROWS * PHASES_Y == OUTPUT_HEIGHT)
#define WHOLE_QUADS (GUARD < 2 && QUAD_BLOCKS * BLOCK_QUADS == OUTPUT_QUADS)

// Whether a position is one of the output.
inline bool is_output(int image, int row, int column, int quad) {
  return (WHOLE_COLUMNS || column < OUTPUT_WIDTH) && (WHOLE_ROWS || row < OUTPUT_HEIGHT) &&
         (WHOLE_QUADS || quad < OUTPUT_QUADS) && (GUARD < 2 || image < BATCH);
}

// What stands before the stores of an output quad: the epilogue's loads, of a quad that there is.
#define LOADED_QUAD(quad) (WHOLE_QUADS ? (quad) : min((int)(quad), OUTPUT_QUADS - 1))
#define LOADS(quad)                          \
  const int loaded_quad = LOADED_QUAD(quad); \
  EPILOGUE_LOADS(loaded_quad)
// Stores a sum at a position of the block. A macro, because EPILOGUE uses variables that EPILOGUE_LOADS defines.
#define STORE(row, column, quad, sum)                                                                      \
  {                                                                                                        \
    const int out_column = (first_column + (column)) * PHASES_X + phase_x, out_quad = (quad);              \
    const int image_row = (first_row + (row)) * PHASES_Y + phase_y;                                        \
    const int out_row = image * OUTPUT_HEIGHT + image_row;                                                 \
    if (is_output(image, image_row, out_column, out_quad))                                                 \
      write_texel(output, EPILOGUE(sum, out_column, out_row, out_quad), out_column, out_row, out_quad);    \
  }
