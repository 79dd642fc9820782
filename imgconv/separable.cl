// Depthwise separable convolution in one launch: a depthwise convolution, its epilogue, a 1x1 convolution of the result.
//
// Tensors are grids of texels as in conv.cl. A work group makes a tile of positions of one image, for some or all of the
// output quads. What lies between the two convolutions is never an image:
//
//     input image --depthwise, all quads--> local memory, float --1x1--> output image
//       tile and its margin                 [position][quad]              tile
//
// The tile is GROUP_ROWS rows of GROUP_COLUMNS blocks of BLOCK_COLUMNS columns. Both steps share it out in blocks:
//
//     for each (block, quad), shared out among all work items:          weights, in the order of reading
//       sum the windows of the block's columns, keep the epilogue's result   texel (tap, quad)
//     for the item's block, output quads and part of the quads:
//       sum += lane * weights                                           as in conv.cl: texel (quad, n)
//
// PARTS work items share a sum: each takes every PARTS-th quad, the parts meet in local memory. Work groups that make
// different output quads of one tile repeat its depthwise convolution.
//
// Each name below is defined by the engine (imgconv/kernels/separable.py); the defaults make this file compile alone:
// 3x3 depthwise of 96 channels, then 96 to 24 channels, at 14x14.

#ifndef IMGCONV_COMMON
#include "cl/common.cl"
#endif

#ifndef NAME
#define NAME separable                  // the kernel's name
#endif
#ifndef INDEX
#define INDEX short                     // type of sizes and positions: int where a short could overflow
#endif
#ifndef BATCH
#define BATCH 1                         // N
#endif
#ifndef INPUT_HEIGHT
#define INPUT_HEIGHT 14                 // rows of one input image
#endif
#ifndef INPUT_PITCH
#define INPUT_PITCH 24                  // texels from one input column to the next
#endif
#ifndef INPUT_OFFSET
#define INPUT_OFFSET 0                  // first quad of the input inside a wider tensor
#endif
#ifndef QUADS
#define QUADS 24                        // quads of the input and of the depthwise result
#endif
#ifndef QUAD_LANES
#define QUAD_LANES 4                    // channels in the last of them
#endif
#ifndef WIDTH
#define WIDTH 14                        // columns of the depthwise result and of the output
#endif
#ifndef HEIGHT
#define HEIGHT 14                       // rows of one image of them
#endif
#ifndef OUTPUT_PITCH
#define OUTPUT_PITCH 6                  // texels from one output column to the next
#endif
#ifndef OUTPUT_OFFSET
#define OUTPUT_OFFSET 0                 // first quad of the output inside a wider tensor
#endif
#ifndef OUTPUT_QUADS
#define OUTPUT_QUADS 6                  // quads of the output
#endif
#ifndef LAST_LANES
#define LAST_LANES 4                    // channels in the last output quad; lanes past them are stored as zero
#endif
#ifndef WINDOW_WIDTH
#define WINDOW_WIDTH 3                  // the depthwise convolution's window columns
#endif
#ifndef WINDOW_HEIGHT
#define WINDOW_HEIGHT 3                 // its window rows
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
#ifndef COLUMN_STEP
#define COLUMN_STEP 1                   // input columns from one that is read to the next: divides stride and dilation
#endif
#ifndef BLOCK_COLUMNS
#define BLOCK_COLUMNS 2                 // columns of a block
#endif
#ifndef BLOCK_QUADS
#define BLOCK_QUADS 1                   // output quads of a work item
#endif
#ifndef GROUP_COLUMNS
#define GROUP_COLUMNS 1                 // blocks in a row of a work group's tile
#endif
#ifndef GROUP_ROWS
#define GROUP_ROWS 2                    // rows of the tile
#endif
#ifndef GROUP_QUADS
#define GROUP_QUADS 6                   // blocks of output quads that a work group makes
#endif
#ifndef PARTS
#define PARTS 4                         // work items that share a sum
#endif
#ifndef GROUP_SIZE
#define GROUP_SIZE __attribute__((reqd_work_group_size(6, 2, 4)))  // GROUP_QUADS, the tile's blocks, PARTS
#endif
#ifndef EACH_SUM
#define EACH_SUM(act) act(0, 0) act(1, 0)  // act(column, o) for each sum of a work item
#endif
#ifndef INPUT_IMAGE
#define INPUT_IMAGE image2d_t           // type of the input image
#endif
#ifndef READ_INPUT
#define READ_INPUT(x, y) read_imagef(input, TEXEL, (int2)(x, y))  // a texel; zero outside of the grid
#endif
#ifndef CHECK_ROWS
#define CHECK_ROWS 0                    // 1: a row above or below its image is another image's row (a batch)
#endif
#ifndef WINDOWS_IMAGE
#define WINDOWS_IMAGE image2d_t         // type of the image of depthwise weights
#endif
#ifndef READ_WINDOW
#define READ_WINDOW(quad, tap) read_imagef(windows, TEXEL, (int2)(tap, quad))  // those of a quad for a window position
#endif
#ifndef WEIGHTS_IMAGE
#define WEIGHTS_IMAGE image2d_t         // type of the image of 1x1 weights
#endif
#ifndef READ_WEIGHT
#define READ_WEIGHT(n, quad) read_imagef(weights, TEXEL, (int2)(quad, n))  // for an input quad; zero past them
#endif
#ifndef OUTPUT_IMAGE
#define OUTPUT_IMAGE image2d_t          // type of the output image
#endif
#ifndef WRITE_OUTPUT
#define WRITE_OUTPUT(x, y, texel) write_imagef(output, (int2)(x, y), texel)
#endif
#ifndef DEPTHWISE_EPILOGUE
#define DEPTHWISE_EPILOGUE(sum, column, row, quad) (sum)  // elementwise work between the convolutions
#endif
#ifndef DEPTHWISE_LOADS
#define DEPTHWISE_LOADS(quad) ;         // statements that load what it needs of a quad
#endif
#ifndef EPILOGUE
#define EPILOGUE(sum, column, row, quad) (sum)  // elementwise work fused into the store
#endif
#ifndef EPILOGUE_LOADS
#define EPILOGUE_LOADS(quad) ;          // statements that load what it needs of an output quad
#endif
#ifndef EPILOGUE_PARAMETERS
#define EPILOGUE_PARAMETERS             // ", declaration" for each image that the epilogues read
#endif

#define BLOCKS (GROUP_COLUMNS * GROUP_ROWS)
#define TILE_COLUMNS (GROUP_COLUMNS * BLOCK_COLUMNS)
#define COLUMN_TILES ((WIDTH + TILE_COLUMNS - 1) / TILE_COLUMNS)
#define ROW_TILES ((HEIGHT + GROUP_ROWS - 1) / GROUP_ROWS)
#define ITEMS (BLOCKS * GROUP_QUADS * PARTS)
#define SUMS (BLOCK_COLUMNS * BLOCK_QUADS)
#define WHOLE_COLUMNS (COLUMN_TILES * TILE_COLUMNS == WIDTH)
#define WHOLE_ROWS (ROW_TILES * GROUP_ROWS == HEIGHT)
#define WHOLE_QUADS (OUTPUT_QUADS % (GROUP_QUADS * BLOCK_QUADS) == 0)
// Local memory: the depthwise result of the tile, and after it, where PARTS > 1, the parts of the sums.
#define BETWEEN (BLOCKS * BLOCK_COLUMNS * QUADS)
#define SHARED (PARTS > 1 && ITEMS * SUMS > BETWEEN ? ITEMS * SUMS : BETWEEN)
// Input texels of a row of the window that a block's columns share, and where among them a column's is.
#define LINE (((BLOCK_COLUMNS - 1) * STRIDE_X + (WINDOW_WIDTH - 1) * DILATION_X) / COLUMN_STEP + 1)
#define AT_COLUMN(column, kx) (((column) * STRIDE_X + (kx) * DILATION_X) / COLUMN_STEP)
#if CHECK_ROWS
#define IMAGE_ROW(row) ((row) < 0 || (row) >= INPUT_HEIGHT ? -1 : image * INPUT_HEIGHT + (row))
#else
#define IMAGE_ROW(row) (row)
#endif
#if QUAD_LANES < 4
#define LANES_BETWEEN(quad, texel) ((quad) == QUADS - 1 ? keep_lanes(texel, QUAD_LANES) : (texel))
#else
#define LANES_BETWEEN(quad, texel) (texel)
#endif
#if LAST_LANES < 4
#define LANES_OF(quad, texel) ((quad) == OUTPUT_QUADS - 1 ? keep_lanes(texel, LAST_LANES) : (texel))
#else
#define LANES_OF(quad, texel) (texel)
#endif
#define LOADS(o)                                                                                    \
  const int loaded_quad = WHOLE_QUADS ? first_quad + (o) : min(first_quad + (o), OUTPUT_QUADS - 1); \
  EPILOGUE_LOADS(loaded_quad)
#define STORE(column, o, total)                                                                               \
  {                                                                                                           \
    const int out_column = block_column + (column), out_quad = first_quad + (o);                              \
    if ((WHOLE_COLUMNS || out_column < WIDTH) && (WHOLE_ROWS || block_row < HEIGHT) &&                        \
        (WHOLE_QUADS || out_quad < OUTPUT_QUADS)) {                                                           \
      const int out_row = image * HEIGHT + block_row;                                                         \
      const float4 texel = EPILOGUE(total, out_column, out_row, out_quad);                                    \
      WRITE_OUTPUT(out_column * OUTPUT_PITCH + OUTPUT_OFFSET + out_quad, out_row, LANES_OF(out_quad, texel)); \
    }                                                                                                         \
  }
// Not a loop: compilers give up unrolling one over long epilogues, and then keep all sums in memory.
#define STORE_SUM(column, o) { LOADS(o) STORE(column, o, sum[column][o]) }

// Groups: (blocks of GROUP_QUADS quad blocks, column tiles, N * row tiles).
GROUP_SIZE __kernel void NAME(
    write_only OUTPUT_IMAGE output, read_only INPUT_IMAGE input, read_only WINDOWS_IMAGE windows,
    read_only WEIGHTS_IMAGE weights EPILOGUE_PARAMETERS) {
  __local float4 shared[SHARED];
  const INDEX item = (get_local_id(2) * BLOCKS + get_local_id(1)) * GROUP_QUADS + get_local_id(0);
  const INDEX first_column = get_group_id(1) * TILE_COLUMNS;
#if BATCH > 1
  const INDEX image = get_group_id(2) / ROW_TILES, first_row = get_group_id(2) % ROW_TILES * GROUP_ROWS;
#else
  const INDEX image = 0, first_row = get_group_id(2) * GROUP_ROWS;
#endif

  for (int task = item; task < BLOCKS * QUADS; task += ITEMS) {
    const int quad = task % QUADS, block = task / QUADS;
    const int column = first_column + block % GROUP_COLUMNS * BLOCK_COLUMNS, row = first_row + block / GROUP_COLUMNS;
    const int x = (column * STRIDE_X - PAD_X) * INPUT_PITCH + INPUT_OFFSET + quad;
    float4 total[BLOCK_COLUMNS];
#pragma unroll
    for (int c = 0; c < BLOCK_COLUMNS; c++) total[c] = (float4)(0.0f);
#pragma unroll
    for (int ky = 0; ky < WINDOW_HEIGHT; ky++) {
      const int input_row = row * STRIDE_Y - PAD_Y + ky * DILATION_Y;
      const int y = IMAGE_ROW(input_row);
      float4 line[LINE];
#pragma unroll
      for (int n = 0; n < LINE; n++) line[n] = READ_INPUT(x + n * (COLUMN_STEP * INPUT_PITCH), y);
#pragma unroll
      for (int kx = 0; kx < WINDOW_WIDTH; kx++) {
        const float4 weight = READ_WINDOW(quad, ky * WINDOW_WIDTH + kx);
#pragma unroll
        for (int c = 0; c < BLOCK_COLUMNS; c++) total[c] = mad(line[AT_COLUMN(c, kx)], weight, total[c]);
      }
    }
    // Past the edge nothing is stored, but an epilogue must not read there.
    const int row_between = image * HEIGHT + (WHOLE_ROWS ? row : min(row, HEIGHT - 1));
    DEPTHWISE_LOADS(quad)
#pragma unroll
    for (int c = 0; c < BLOCK_COLUMNS; c++) {
      const int column_between = WHOLE_COLUMNS ? column + c : min(column + c, WIDTH - 1);
      const float4 texel = DEPTHWISE_EPILOGUE(total[c], column_between, row_between, quad);
      shared[(block * BLOCK_COLUMNS + c) * QUADS + quad] = LANES_BETWEEN(quad, texel);
    }
  }
  barrier(CLK_LOCAL_MEM_FENCE);

  const INDEX part = get_local_id(2), block = get_local_id(1), quad_block = get_global_id(0);
  const INDEX first_quad = quad_block * BLOCK_QUADS;
  const int first_weight = quad_block * (4 * BLOCK_QUADS);
  const INDEX block_column = first_column + block % GROUP_COLUMNS * BLOCK_COLUMNS;
  const INDEX block_row = first_row + block / GROUP_COLUMNS;
  float4 sum[BLOCK_COLUMNS][BLOCK_QUADS];
#pragma unroll
  for (int c = 0; c < BLOCK_COLUMNS; c++)
#pragma unroll
    for (int o = 0; o < BLOCK_QUADS; o++) sum[c][o] = (float4)(0.0f);

  for (int quad = part; quad < QUADS; quad += PARTS) {
    float4 texels[BLOCK_COLUMNS];
#pragma unroll
    for (int c = 0; c < BLOCK_COLUMNS; c++) texels[c] = shared[(block * BLOCK_COLUMNS + c) * QUADS + quad];
#pragma unroll
    for (int o = 0; o < BLOCK_QUADS; o++) {
      const float4 weight_x = READ_WEIGHT(first_weight + o, quad);
      const float4 weight_y = READ_WEIGHT(first_weight + BLOCK_QUADS + o, quad);
      const float4 weight_z = READ_WEIGHT(first_weight + 2 * BLOCK_QUADS + o, quad);
      const float4 weight_w = READ_WEIGHT(first_weight + 3 * BLOCK_QUADS + o, quad);
#pragma unroll
      for (int c = 0; c < BLOCK_COLUMNS; c++) {
        float4 sum_of_lanes = sum[c][o];
        sum_of_lanes = mad((float4)(texels[c].x), weight_x, sum_of_lanes);
        sum_of_lanes = mad((float4)(texels[c].y), weight_y, sum_of_lanes);
        sum_of_lanes = mad((float4)(texels[c].z), weight_z, sum_of_lanes);
        sum[c][o] = mad((float4)(texels[c].w), weight_w, sum_of_lanes);
      }
    }
  }

#if PARTS > 1
  // A sum by number: column * BLOCK_QUADS + quad; of a work item without its part: `item_of_part`.
  const int item_of_part = block * GROUP_QUADS + get_local_id(0);
  barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
  for (int c = 0; c < BLOCK_COLUMNS; c++)
#pragma unroll
    for (int o = 0; o < BLOCK_QUADS; o++)
      shared[(part * SUMS + c * BLOCK_QUADS + o) * (BLOCKS * GROUP_QUADS) + item_of_part] = sum[c][o];
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int number = part; number < SUMS; number += PARTS) {
    float4 total = shared[number * (BLOCKS * GROUP_QUADS) + item_of_part];
    for (int other = 1; other < PARTS; other++)
      total += shared[(other * SUMS + number) * (BLOCKS * GROUP_QUADS) + item_of_part];
    LOADS(number % BLOCK_QUADS)
    STORE(number / BLOCK_QUADS, number % BLOCK_QUADS, total)
  }
#else
  EACH_SUM(STORE_SUM)
#endif
}

#undef BLOCKS
#undef TILE_COLUMNS
#undef COLUMN_TILES
#undef ROW_TILES
#undef ITEMS
#undef SUMS
#undef WHOLE_COLUMNS
#undef WHOLE_ROWS
#undef WHOLE_QUADS
#undef BETWEEN
#undef SHARED
#undef LINE
#undef AT_COLUMN
#undef IMAGE_ROW
#undef LANES_BETWEEN
#undef LANES_OF
#undef LOADS
#undef STORE
#undef STORE_SUM
