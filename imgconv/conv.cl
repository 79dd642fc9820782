// Convolution of an RGBA texture: dense, grouped, depthwise, transposed; any window, stride, dilation, padding, batch.
//
// A tensor (N, C, H, W) is a grid of texels, four channels each, C4 = ceil(C/4):
//
//                column 0            column 1                x = column * PITCH + OFFSET + quad
//     row     quad 0  quad 1 ...  quad 0  quad 1 ...         y = image * HEIGHT + row
//      0      [rgba]  [rgba]      [rgba]  [rgba]
//      1      [rgba]  [rgba]      [rgba]  [rgba]
//
// PITCH > C4 where the tensor is a part of a wider one (a concatenation written in place). Reads outside of the image
// give zero, which is the padding; rows are tested where images of a batch lie below each other.
//
// A work item makes BLOCK_COLUMNS x BLOCK_ROWS positions of BLOCK_QUADS output quads:
//
//     for each input quad, window row:                       weights, in the order of reading, one row of texels
//       read a line of input texels                          (or one stretch of a buffer) for each quad block:
//       for each window column:                                [quad][ky][kx][input lane][BLOCK_QUADS] x 4 outputs
//         read 4 x BLOCK_QUADS weight texels
//         sum += lane * weights  for every position, lane and output quad
//
// A transposed convolution with stride S is S*S ordinary ones, one for each phase of the output position modulo S, each
// with its own weights: output column = PHASES_X * column + phase.
//
// Each name below is defined by the engine (imgconv/kernels/convolution.py); the defaults make this file compile alone:
// a 3x3 convolution, 64 to 64 channels, 56x56.

#ifndef IMGCONV_COMMON
#include "cl/common.cl"
#endif

#ifndef NAME
#define NAME convolution                // the kernel's name
#endif
#ifndef INDEX
#define INDEX short                     // type of sizes and positions: int where a short could overflow
#endif
#ifndef BATCH
#define BATCH 1                         // N
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
#ifndef INPUT_QUADS
#define INPUT_QUADS 16                  // input quads that one output depends on (those of one group)
#endif
#ifndef OUTPUT_WIDTH
#define OUTPUT_WIDTH 56                 // columns of the output, of one phase where transposed
#endif
#ifndef OUTPUT_HEIGHT
#define OUTPUT_HEIGHT 56                // rows of one output image, of one phase where transposed
#endif
#ifndef FULL_OUTPUT_WIDTH
#define FULL_OUTPUT_WIDTH 56            // columns of the output, all phases
#endif
#ifndef FULL_OUTPUT_HEIGHT
#define FULL_OUTPUT_HEIGHT 56           // rows of one output image, all phases
#endif
#ifndef OUTPUT_PITCH
#define OUTPUT_PITCH 16                 // texels from one output column to the next
#endif
#ifndef OUTPUT_OFFSET
#define OUTPUT_OFFSET 0                 // first quad of the output inside a wider tensor
#endif
#ifndef OUTPUT_QUADS
#define OUTPUT_QUADS 16                 // quads of the output
#endif
#ifndef GROUP_QUADS
#define GROUP_QUADS 16                  // output quads of one group
#endif
#ifndef DEPTHWISE
#define DEPTHWISE 0                     // 1: each channel has its own window, no sum over channels
#endif
#ifndef WINDOW_WIDTH
#define WINDOW_WIDTH 3                  // window columns, of one phase where transposed
#endif
#ifndef WINDOW_HEIGHT
#define WINDOW_HEIGHT 3                 // window rows, of one phase where transposed
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
#ifndef PHASES_X
#define PHASES_X 1                      // stride of a transposed convolution; 1 for an ordinary one
#endif
#ifndef PHASES_Y
#define PHASES_Y 1                      // the same along y
#endif
#ifndef PHASE_SHIFT_X
#define PHASE_SHIFT_X 0                 // a transposed convolution's own padding: moves the phases' starts
#endif
#ifndef PHASE_SHIFT_Y
#define PHASE_SHIFT_Y 0                 // the same along y
#endif
#ifndef BLOCK_COLUMNS
#define BLOCK_COLUMNS 4                 // output columns of a work item
#endif
#ifndef BLOCK_ROWS
#define BLOCK_ROWS 1                    // output rows of a work item
#endif
#ifndef BLOCK_QUADS
#define BLOCK_QUADS 2                   // output quads of a work item; divides GROUP_QUADS
#endif
#ifndef KEEP_LINE
#define KEEP_LINE 1                     // 1: an input line is read once for all window columns; 0: once for each
#endif
#ifndef WEIGHTS
#define WEIGHTS read_only image2d_t weights  // declaration of the weights: an image, or a __global pointer
#endif
#ifndef READ_WEIGHT
#define READ_WEIGHT(block, k) read_imagef(weights, TEXEL, (int2)(k, block))  // weight texel k of a quad block
#endif
#ifndef INPUT_IMAGE
#define INPUT_IMAGE image2d_t           // type of the input image
#endif
#ifndef READ_INPUT
#define READ_INPUT(x, y) read_imagef(input, TEXEL, (int2)(x, y))  // a texel; zero outside of the grid
#endif
#ifndef FACTORS
#define FACTORS 0                       // 1: the input's channels are multiplied by factors as they are read
#endif
#ifndef FACTORS_IMAGE
#define FACTORS_IMAGE image2d_t         // type of their image
#endif
#ifndef READ_FACTORS
#define READ_FACTORS(image, quad) read_imagef(factors, TEXEL, (int2)(quad, image))  // those of an input quad
#endif
#ifndef OUTPUT_IMAGE
#define OUTPUT_IMAGE image2d_t          // type of the output image
#endif
#ifndef WRITE_OUTPUT
#define WRITE_OUTPUT(x, y, texel) write_imagef(output, (int2)(x, y), texel)
#endif
#ifndef CHECK_ROWS
#define CHECK_ROWS 0                    // 1: a row above or below its image is another image's row (a batch)
#endif
#ifndef LAST_LANES
#define LAST_LANES 4                    // channels in the last output quad; lanes past them are stored as zero
#endif
#ifndef GUARD
#define GUARD 0                         // 1: the global size was rounded up to whole work groups
#endif
#ifndef GROUP_SIZE
#define GROUP_SIZE                      // the attribute that fixes the work group's size, where it is fixed
#endif
#ifndef EPILOGUE
#define EPILOGUE(sum, column, row, quad) (sum)  // elementwise work fused into the store
#endif
#ifndef EPILOGUE_PARAMETERS
#define EPILOGUE_PARAMETERS             // ", declaration" for each image that the epilogue reads
#endif

#define COLUMN_BLOCKS ((OUTPUT_WIDTH + BLOCK_COLUMNS - 1) / BLOCK_COLUMNS)
#define ROW_BLOCKS ((OUTPUT_HEIGHT + BLOCK_ROWS - 1) / BLOCK_ROWS)
#define QUAD_BLOCKS ((OUTPUT_QUADS + BLOCK_QUADS - 1) / BLOCK_QUADS)
#if KEEP_LINE
#define LINE ((BLOCK_COLUMNS - 1) * STRIDE_X + (WINDOW_WIDTH - 1) * DILATION_X + 1)
#define AT(column, kx) ((column) * STRIDE_X + (kx) * DILATION_X)
#else
#define LINE BLOCK_COLUMNS
#define AT(column, kx) (column)
#endif

// Global size: (column blocks * PHASES_X, quad blocks, N * row blocks * PHASES_Y).
GROUP_SIZE __kernel void NAME(
    write_only OUTPUT_IMAGE output, read_only INPUT_IMAGE input, WEIGHTS
#if FACTORS
    , read_only FACTORS_IMAGE factors
#endif
    EPILOGUE_PARAMETERS) {
  const INDEX item_x = get_global_id(0), quad_block = get_global_id(1), item_y = get_global_id(2);
#if GUARD
  if (item_x >= COLUMN_BLOCKS * PHASES_X || quad_block >= QUAD_BLOCKS || item_y >= BATCH * ROW_BLOCKS * PHASES_Y) return;
#endif
  const INDEX phase_x = item_x % PHASES_X, phase_y = item_y % PHASES_Y;
  const INDEX first_column = item_x / PHASES_X * BLOCK_COLUMNS;
  const INDEX image = item_y / PHASES_Y / ROW_BLOCKS, first_row = item_y / PHASES_Y % ROW_BLOCKS * BLOCK_ROWS;
  const INDEX first_quad = quad_block * BLOCK_QUADS;
  const INDEX weight_block = (phase_y * PHASES_X + phase_x) * QUAD_BLOCKS + quad_block;
  // Where the window of the block's first position starts.
  const INDEX start_x = first_column * STRIDE_X - PAD_X + (phase_x + PHASE_SHIFT_X) / PHASES_X;
  const INDEX start_y = first_row * STRIDE_Y - PAD_Y + (phase_y + PHASE_SHIFT_Y) / PHASES_Y;
#if DEPTHWISE
  const INDEX group_offset = INPUT_OFFSET + first_quad;
#else
  const INDEX group_offset = INPUT_OFFSET + first_quad / GROUP_QUADS * INPUT_QUADS;
#endif

  float4 sum[BLOCK_ROWS][BLOCK_COLUMNS][BLOCK_QUADS];
#pragma unroll
  for (int row = 0; row < BLOCK_ROWS; row++)
#pragma unroll
    for (int column = 0; column < BLOCK_COLUMNS; column++)
#pragma unroll
      for (int o = 0; o < BLOCK_QUADS; o++) sum[row][column][o] = (float4)(0.0f);

  int k = 0;
#if DEPTHWISE
  for (INDEX ky = 0; ky < WINDOW_HEIGHT; ky++) {
#else
  for (INDEX quad = 0; quad < INPUT_QUADS; quad++)
  for (INDEX ky = 0; ky < WINDOW_HEIGHT; ky++) {
#endif
#if FACTORS
    const float4 factors_of_quad = READ_FACTORS(image, quad);
#endif
    float4 line[BLOCK_ROWS][LINE];
#if KEEP_LINE
    const INDEX kx_start = 0;
#else
    for (INDEX kx_start = 0; kx_start < WINDOW_WIDTH; kx_start++)
#endif
    {
#pragma unroll
      for (int row = 0; row < BLOCK_ROWS; row++) {
        const int input_row = start_y + row * STRIDE_Y + ky * DILATION_Y;
#if CHECK_ROWS
        const int y = input_row < 0 || input_row >= INPUT_HEIGHT ? -1 : image * INPUT_HEIGHT + input_row;
#else
        const int y = image * INPUT_HEIGHT + input_row;
#endif
#pragma unroll
        for (int column = 0; column < LINE; column++) {
#if KEEP_LINE
          const int x = start_x + column;
#else
          const int x = start_x + column * STRIDE_X + kx_start * DILATION_X;
#endif
#if DEPTHWISE
          line[row][column] = READ_INPUT(x * INPUT_PITCH + group_offset, y);
#else
          line[row][column] = READ_INPUT(x * INPUT_PITCH + group_offset + quad, y);
#endif
#if FACTORS
          line[row][column] *= factors_of_quad;
#endif
        }
      }
#if KEEP_LINE
#pragma unroll
      for (int kx = 0; kx < WINDOW_WIDTH; kx++)
#else
      const int kx = kx_start;
#endif
      {
#if DEPTHWISE
        const float4 weight = READ_WEIGHT(weight_block, k);
        k += 1;
#pragma unroll
        for (int row = 0; row < BLOCK_ROWS; row++)
#pragma unroll
          for (int column = 0; column < BLOCK_COLUMNS; column++)
            sum[row][column][0] = mad(line[row][AT(column, kx)], weight, sum[row][column][0]);
#else
#pragma unroll
        for (int o = 0; o < BLOCK_QUADS; o++) {
          const float4 weight_x = READ_WEIGHT(weight_block, k + o), weight_y = READ_WEIGHT(weight_block, k + BLOCK_QUADS + o);
          const float4 weight_z = READ_WEIGHT(weight_block, k + 2 * BLOCK_QUADS + o);
          const float4 weight_w = READ_WEIGHT(weight_block, k + 3 * BLOCK_QUADS + o);
#pragma unroll
          for (int row = 0; row < BLOCK_ROWS; row++)
#pragma unroll
            for (int column = 0; column < BLOCK_COLUMNS; column++) {
              const float4 texel = line[row][AT(column, kx)];
              float4 part = sum[row][column][o];
              part = mad((float4)(texel.x), weight_x, part);
              part = mad((float4)(texel.y), weight_y, part);
              part = mad((float4)(texel.z), weight_z, part);
              sum[row][column][o] = mad((float4)(texel.w), weight_w, part);
            }
        }
        k += 4 * BLOCK_QUADS;
#endif
      }
    }
  }

#pragma unroll
  for (int row = 0; row < BLOCK_ROWS; row++)
#pragma unroll
    for (int column = 0; column < BLOCK_COLUMNS; column++)
#pragma unroll
      for (int o = 0; o < BLOCK_QUADS; o++) {
        const int out_column = (first_column + column) * PHASES_X + phase_x;
        const int image_row = (first_row + row) * PHASES_Y + phase_y;
        const int out_quad = first_quad + o;
        if (out_column < FULL_OUTPUT_WIDTH && image_row < FULL_OUTPUT_HEIGHT && out_quad < OUTPUT_QUADS) {
          const int out_row = image * FULL_OUTPUT_HEIGHT + image_row;
          float4 texel = EPILOGUE(sum[row][column][o], out_column, out_row, out_quad);
#if LAST_LANES < 4
          if (out_quad == OUTPUT_QUADS - 1) texel = keep_lanes(texel, LAST_LANES);
#endif
          WRITE_OUTPUT(out_column * OUTPUT_PITCH + OUTPUT_OFFSET + out_quad, out_row, texel);
        }
      }
}

#undef COLUMN_BLOCKS
#undef ROW_BLOCKS
#undef QUAD_BLOCKS
#undef LINE
#undef AT
