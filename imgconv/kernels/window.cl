// A window that moves over the input texture: conv.cl, depthwise.cl and separable.cl.
//
// The input (N, C, H, W) is a grid of texels as the output is: x = column * INPUT_PITCH + INPUT_OFFSET + quad,
// y = image * INPUT_HEIGHT + row. Reads outside of the image give zero, which is the padding. The windows of a block's
// columns overlap; a row of what they read together is a line of texels:
//
//     column 0        [kx 0] [kx 1] [kx 2]                         BLOCK_COLUMNS 2, STRIDE_X 1, WINDOW_WIDTH 3
//     column 1               [kx 0] [kx 1] [kx 2]
//     line            [  0 ] [  1 ] [  2 ] [  3 ]                  LINE 4, COLUMN_STEP input columns apart

#pragma once
#include "cl/common.cl"

#ifndef BATCH
#define BATCH 1                         // N
#endif
#ifndef INPUT_IMAGE
#define INPUT_IMAGE read_only image2d_t  // type of the input image
#endif
#ifndef READ_INPUT
#define READ_INPUT(x, y) read_imagef(input, TEXEL, (int2)(x, y))  // a texel; zero outside of the grid
#endif
#ifndef INPUT_HEIGHT
#define INPUT_HEIGHT 56                 // rows of one input image
#endif
#ifndef INPUT_PITCH
#define INPUT_PITCH 16                  // texels from one input column to the next
#endif
#ifndef INPUT_OFFSET
#define INPUT_OFFSET 0                  // first quad of the input inside a wider tensor
#endif
#ifndef INPUT_QUAD
#define INPUT_QUAD(quad) (quad)         // which texel of a column holds a quad of the input, from INPUT_OFFSET on
#endif
#ifndef OUTPUT_WIDTH
#define OUTPUT_WIDTH 56                 // columns of the output
#endif
#ifndef OUTPUT_HEIGHT
#define OUTPUT_HEIGHT 56                // rows of one output image
#endif
#ifndef WINDOW_WIDTH
#define WINDOW_WIDTH 3                  // window columns, of one phase if transposed
#endif
#ifndef WINDOW_HEIGHT
#define WINDOW_HEIGHT 3                 // window rows, of one phase if transposed
#endif
#ifndef STRIDE_X
#define STRIDE_X 1                      // input columns from one output column to the next
#endif
#ifndef STRIDE_Y
#define STRIDE_Y 1                      // input rows from one output row to the next
#endif
#ifndef DILATION_X
#define DILATION_X 1                    // input columns from one window column to the next
#endif
#ifndef DILATION_Y
#define DILATION_Y 1                    // input rows from one window row to the next
#endif
#ifndef PAD_X
#define PAD_X 1                         // columns of padding on the left
#endif
#ifndef PAD_Y
#define PAD_Y 1                         // rows of padding above
#endif
#ifndef BLOCK_COLUMNS
#define BLOCK_COLUMNS 2                 // output columns of a work item
#endif
#ifndef COLUMN_STEP
#define COLUMN_STEP 1                   // input columns from one that is read to the next: divides stride and dilation
#endif

#define LINE (((BLOCK_COLUMNS - 1) * STRIDE_X + (WINDOW_WIDTH - 1) * DILATION_X) / COLUMN_STEP + 1)
#define LINE_AT(column, kx) (((column) * STRIDE_X + (kx) * DILATION_X) / COLUMN_STEP)

// The row of the input texture where a row of an image is. In a batch another image lies above and below it.
inline int texture_row(int image, int row) {
#if BATCH > 1
  return row < 0 || row >= INPUT_HEIGHT ? -1 : image * INPUT_HEIGHT + row;
#else
  return row;
#endif
}
