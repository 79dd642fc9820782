// The input and the output of a convolution, for winograd2d.cl and for kernels with a sliding window.
//
// The input (N, C, H, W), like the output, is a grid of texels, four channels each:
//
//                column 0            column 1                x = column * INPUT_PITCH + INPUT_OFFSET + INPUT_QUAD(quad)
//     row     quad 0  quad 1 ...  quad 0  quad 1 ...         y = image * INPUT_HEIGHT + row
//      0      [rgba]  [rgba]      [rgba]  [rgba]
//      1      [rgba]  [rgba]      [rgba]  [rgba]
//
// Reads outside the image return zero, which is the padding.

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
#define INPUT_QUAD(quad) (quad)         // the texel of a column that holds an input quad, from INPUT_OFFSET on
#endif
#ifndef OUTPUT_WIDTH
#define OUTPUT_WIDTH 56                 // columns of the output
#endif
#ifndef OUTPUT_HEIGHT
#define OUTPUT_HEIGHT 56                // rows of one output image
#endif
#ifndef PAD_X
#define PAD_X 1                         // columns of padding on the left
#endif
#ifndef PAD_Y
#define PAD_Y 1                         // rows of padding above
#endif

// The row of the input texture where a row of an image is. In a batch another image lies above and below it.
inline int texture_row(int image, int row) {
#if BATCH > 1
  return row < 0 || row >= INPUT_HEIGHT ? -1 : image * INPUT_HEIGHT + row;
#else
  return row;
#endif
}
