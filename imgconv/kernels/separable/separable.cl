// Depthwise separable convolution in one launch: a depthwise convolution, its epilogue, a 1x1 convolution of the
// result.
//
// Tensors are grids of texels (kernels/lib/window.cl, kernels/lib/output.cl). A work group computes a tile of positions
// of one image, for some or all output quads. The result of the depthwise convolution stays in local memory:
//
//     input image --depthwise, all quads--> local memory --1x1--> output image
//       tile and its margin                 [position][quad]       tile
//
// The tile is TILE_ROWS rows of TILE_BLOCKS blocks of BLOCK_COLUMNS columns. Both steps distribute the blocks among the
// work items:
//
//     for each (block, quad), distributed among all work items:         weights, in the order of reading
//       sum the windows of the block's columns, store the epilogue's result  texel (tap, quad)
//     for the item's block, output quads and part of the quads:
//       sum += lane * weights                                           as in conv.cl: texel (quad, n)
//
// PARTS work items share a sum: each takes every PARTS-th quad, and the parts are added in local memory. Work groups
// that compute different output quads of one tile repeat its depthwise convolution.
//
// kernels/lib/sums.cl explains how products are summed. A chunk of the depthwise convolution is its window. Parts of
// sums in half are added in float. With INTEGERS, the depthwise convolution multiplies integers one by one, and local
// memory holds its result as bytes, four in a uint, for the dot products of the 1x1 convolution.
//
// The engine defines each name below (kernels/separable/template.py). With the defaults this file compiles on its own:
// 3x3 depthwise of 64 channels, then 64 input and 64 output channels, at 56x56.

#include "cl/common.cl"
#include "kernels/lib/branch.cl"
#include "kernels/lib/dot.cl"
#include "kernels/lib/output.cl"
#include "kernels/lib/sums.cl"
#include "kernels/lib/window.cl"

#ifndef QUADS
#define QUADS 16                        // quads of the input and of the depthwise result
#endif
#ifndef QUAD_LANES
#define QUAD_LANES 4                    // channels in the last of them
#endif
#ifndef TILE_BLOCKS
#define TILE_BLOCKS 1                   // blocks in a row of a work group's tile
#endif
#ifndef TILE_ROWS
#define TILE_ROWS 2                     // rows of the tile
#endif
#ifndef WORK_GROUP_QUADS
#define WORK_GROUP_QUADS 16             // blocks of output quads that a work group computes
#endif
#ifndef PARTS
#define PARTS 4                         // work items that share a sum
#endif
#ifndef EACH_COLUMN
#define EACH_COLUMN(act) act(0) act(1)  // act(column) for each column of a block
#endif
#ifndef EACH_SUM
#define EACH_SUM(act) act(0, 0) act(1, 0)  // act(column, o) for each sum of a work item
#endif
#ifndef WINDOWS_IMAGE
#define WINDOWS_IMAGE read_only image2d_t  // type of the image of depthwise weights
#endif
#ifndef READ_WINDOW
#define READ_WINDOW(quad, tap) read_imagef(windows, TEXEL, (int2)(tap, quad))  // weights of a quad for a window position
#endif
#ifndef WEIGHTS_IMAGE
#define WEIGHTS_IMAGE read_only image2d_t  // type of the image of 1x1 weights
#endif
#ifndef READ_WEIGHT
#define READ_WEIGHT(n, quad) read_imagef(weights, TEXEL, (int2)(quad, n))  // for an input quad; zero past them
#endif
#ifndef DEPTHWISE_EPILOGUE
#define DEPTHWISE_EPILOGUE(sum, column, row, quad) (sum)  // elementwise work between the convolutions
#endif
#ifndef DEPTHWISE_LOADS
#define DEPTHWISE_LOADS(quad) ;         // statements that load its operands for a quad
#endif
#ifndef DEPTHWISE_HALF_EPILOGUE
#define DEPTHWISE_HALF_EPILOGUE 0       // type of this epilogue: 1: half4 to half4; 0: float4 to float4
#endif
#ifndef DEPTHWISE_START
#define DEPTHWISE_START (0.0f)          // start value of the sums of the depthwise convolution: a bias, or zero
#endif
#ifndef DEPTHWISE_START_LOADS
#define DEPTHWISE_START_LOADS(quad) ;   // statements that load it
#endif
#ifndef START
#define START (0.0f)                    // the same for the 1x1 convolution
#endif
#ifndef START_LOADS
#define START_LOADS(quad) ;             // statements that load it
#endif
#ifndef PACKED
#define PACKED(texel) packed_levels(convert_uint4(texel))  // with INTEGERS: the bytes of a depthwise result
#endif
#ifndef ZERO_POINT
#define ZERO_POINT 0                    // 1: with INTEGERS: the weights have a last step, the sums' start values
#endif
#ifndef DEPTHWISE_ZERO_POINT
#define DEPTHWISE_ZERO_POINT 0          // 1: the same for the depthwise weights, which have a last tap
#endif

#define BLOCKS (TILE_BLOCKS * TILE_ROWS)
#define TILE_COLUMNS (TILE_BLOCKS * BLOCK_COLUMNS)
#define COLUMN_TILES ((OUTPUT_WIDTH + TILE_COLUMNS - 1) / TILE_COLUMNS)
#define ROW_TILES ((OUTPUT_HEIGHT + TILE_ROWS - 1) / TILE_ROWS)
#define ITEMS (BLOCKS * WORK_GROUP_QUADS * PARTS)
#define SUMS (BLOCK_COLUMNS * BLOCK_QUADS)
#define WHOLE_COLUMNS (COLUMN_TILES * TILE_COLUMNS == OUTPUT_WIDTH)
#define WHOLE_ROWS (ROW_TILES * TILE_ROWS == OUTPUT_HEIGHT)
#define WHOLE_QUADS (OUTPUT_QUADS % (WORK_GROUP_QUADS * BLOCK_QUADS) == 0)
// Local memory, in bytes: the depthwise result of the tile, and later, if PARTS > 1, the parts of the sums.
#define BETWEEN (BLOCKS * BLOCK_COLUMNS * QUADS * sizeof(QUAD))
#define SHARED (PARTS > 1 && ITEMS * SUMS * sizeof(QUAD_SUM) > BETWEEN ? ITEMS * SUMS * sizeof(QUAD_SUM) : BETWEEN)
#define LOADED_QUAD(quad) (WHOLE_QUADS ? (quad) : min((quad), OUTPUT_QUADS - 1))
// Stores a sum. A macro, because EPILOGUE uses variables that EPILOGUE_LOADS defines.
#define STORE(column, o, total)                                                                     \
  {                                                                                                 \
    const int out_column = block_column + (column), out_quad = first_quad + (o);                    \
    const int loaded_quad = LOADED_QUAD(out_quad), out_row = image * OUTPUT_HEIGHT + block_row;     \
    EPILOGUE_LOADS(loaded_quad)                                                                     \
    if ((WHOLE_COLUMNS || out_column < OUTPUT_WIDTH) && (WHOLE_ROWS || block_row < OUTPUT_HEIGHT) && \
        (WHOLE_QUADS || out_quad < OUTPUT_QUADS))                                                   \
      write_texel(output, EPILOGUE(total, out_column, out_row, out_quad), out_column, out_row, out_quad); \
  }
// Not a loop: compilers give up unrolling one over long epilogues, and then keep all sums in memory.
#define STORE_SUM(column, o) STORE(column, o, FOR_EPILOGUE(sum[column][o]))

// Stores the depthwise result of a block's column in local memory. Not in a loop, as STORE_SUM.
#define PUT_BETWEEN(c)                                                                                    \
  {                                                                                                       \
    const int column_between = WHOLE_COLUMNS ? column + (c) : min(column + (c), OUTPUT_WIDTH - 1);        \
    const DEPTHWISE_RESULT texel =                                                                        \
        DEPTHWISE_EPILOGUE(FOR_DEPTHWISE_EPILOGUE(total[c]), column_between, row_between, quad);          \
    between[(block * BLOCK_COLUMNS + (c)) * QUADS + quad] = TO_LOCAL(texel, quad);                        \
  }

// QUAD_TOTAL: the total of the parts of a sum.
#if INTEGERS
#define QUAD_TOTAL int4
#define TO_TOTAL(sum) (sum)
#else
#define QUAD_TOTAL float4
#define TO_TOTAL(sum) TO_FLOAT(sum)
#endif
// DEPTHWISE_QUAD: texels, weights and sums of the depthwise convolution.
#if INTEGERS
#define DEPTHWISE_QUAD int4
#define MULTIPLY_ADD(a, b, sum) mad24(a, b, sum)
#else
#define DEPTHWISE_QUAD QUAD
#define MULTIPLY_ADD(a, b, sum) mad(a, b, sum)
#endif
// The types of the depthwise sums in their epilogue, of its result, and of the result in local memory. Lanes past the
// last channel become zero. A half epilogue has no such lanes (imgconv/kernels/separable/template.py), because
// keep_lanes needs floats. Bytes need no zeros: they are finite, and the weights of those lanes are zero.
#if DEPTHWISE_HALF_EPILOGUE
#define DEPTHWISE_RESULT half4
#define FOR_DEPTHWISE_EPILOGUE(sum) (sum)
#define TO_LOCAL(texel, quad) (texel)
#else
#define DEPTHWISE_RESULT float4
#define FOR_DEPTHWISE_EPILOGUE(sum) convert_float4(sum)
#if INTEGERS
#define TO_LOCAL(texel, quad) PACKED(texel)
#else
#define TO_LOCAL(texel, quad) TO_QUAD(QUAD_LANES < 4 && quad == QUADS - 1 ? keep_lanes(texel, QUAD_LANES) : texel)
#endif
#endif

// Input quads of a run, and their sums.
#if HALF_QUADS
#define CHUNK HALF_QUADS
#define PARTIAL partial
#else
#define CHUNK 1
#define PARTIAL sum
#endif
// Of integers, the quads that a work item reads from local memory at once, and what it does with each of them.
#if QUADS % 4 == 0
#define QUADS_AT_ONCE 4
#define LOCAL_QUADS uint4
#define EACH_QUAD(act) act(0, .x) act(1, .y) act(2, .z) act(3, .w)
#else
#define QUADS_AT_ONCE 1
#define LOCAL_QUADS uint
#define EACH_QUAD(act) act(0, )
#endif

// Adds to all sums the products with one channel of the texels: lane n, `channel`. Channel by channel few weights are
// held at a time.
#define ADD_CHANNEL(n, channel)                                                                         \
  _Pragma("unroll") for (int o = 0; o < BLOCK_QUADS; o++) {                                             \
    const QUAD weight = READ_WEIGHT(first_weight + (n) * BLOCK_QUADS + o, quad);                        \
    _Pragma("unroll") for (int c = 0; c < BLOCK_COLUMNS; c++)                                           \
      PARTIAL[c][o] = mad((QUAD)(texels[c].channel), weight, PARTIAL[c][o]);                            \
  }

// Adds to all sums the products with the n-th of these quads, a component of `texels`.
#define ADD_QUAD(n, component)                                                                          \
  _Pragma("unroll") for (int o = 0; o < BLOCK_QUADS; o++) {                                             \
    const uint4 weight = READ_WEIGHT(first_weight + o, quad + (n));                                     \
    _Pragma("unroll") for (int c = 0; c < BLOCK_COLUMNS; c++) {                                         \
      const uint texel = texels[c]component;                                                            \
      const int4 total = sum[c][o];                                                                     \
      sum[c][o] = (int4)(DOT(total.x, weight.x, texel), DOT(total.y, weight.y, texel),                  \
                         DOT(total.z, weight.z, texel), DOT(total.w, weight.w, texel));                 \
    }                                                                                                   \
  }

// Groups: (blocks of WORK_GROUP_QUADS quad blocks, column tiles, N * row tiles).
WORK_GROUP NOT_VECTORIZED __kernel void NAME(
    OUTPUT_IMAGE output, INPUT_IMAGE input, WINDOWS_IMAGE windows,
    WEIGHTS_IMAGE weights EPILOGUE_PARAMETERS) {
  __local float4 shared[(SHARED + sizeof(float4) - 1) / sizeof(float4)];
  __local QUAD *between = (__local QUAD *)shared;
  const INDEX item = (get_local_id(2) * BLOCKS + get_local_id(1)) * WORK_GROUP_QUADS + get_local_id(0);
  const INDEX first_column = get_group_id(1) * TILE_COLUMNS;
#if BATCH > 1
  const INDEX image = get_group_id(2) / ROW_TILES, first_row = get_group_id(2) % ROW_TILES * TILE_ROWS;
#else
  const INDEX image = 0, first_row = get_group_id(2) * TILE_ROWS;
#endif

  // The quad and the block of the next task are sums, because a division takes tens of instructions.
  uint task_quad = (uint)item % QUADS, task_block = (uint)item / QUADS;
  for (int task = item; task < BLOCKS * QUADS; task += ITEMS) {
    const uint quad = task_quad, block = task_block;
    const int column = first_column + block % TILE_BLOCKS * BLOCK_COLUMNS, row = first_row + block / TILE_BLOCKS;
    const int x = (column * STRIDE_X - PAD_X) * INPUT_PITCH + INPUT_OFFSET + INPUT_QUAD(quad);
    DEPTHWISE_START_LOADS(quad)
#if DEPTHWISE_ZERO_POINT
    const DEPTHWISE_QUAD first = READ_WINDOW(quad, WINDOW_WIDTH * WINDOW_HEIGHT);
#elif INTEGERS
    const DEPTHWISE_QUAD first = (int4)(0);
#else
    const DEPTHWISE_QUAD first = TO_QUAD((float4)(DEPTHWISE_START));
#endif
    DEPTHWISE_QUAD total[BLOCK_COLUMNS];
#pragma unroll
    for (int c = 0; c < BLOCK_COLUMNS; c++) total[c] = first;
#pragma unroll
    for (int ky = 0; ky < WINDOW_HEIGHT; ky++) if (ky == 0 || ALWAYS(ky)) {
      const int input_row = row * STRIDE_Y - PAD_Y + ky * DILATION_Y;
      const int y = texture_row(image, input_row);
      DEPTHWISE_QUAD line[LINE];
#pragma unroll
      for (int n = 0; n < LINE; n++) line[n] = READ_INPUT(x + n * (COLUMN_STEP * INPUT_PITCH), y);
#pragma unroll
      for (int kx = 0; kx < WINDOW_WIDTH; kx++) {
        const DEPTHWISE_QUAD weight = READ_WINDOW(quad, ky * WINDOW_WIDTH + kx);
#pragma unroll
        for (int c = 0; c < BLOCK_COLUMNS; c++) total[c] = MULTIPLY_ADD(line[LINE_AT(c, kx)], weight, total[c]);
      }
    }
    // Past the edge nothing is stored, but an epilogue must not read there.
    const int row_between = image * OUTPUT_HEIGHT + (WHOLE_ROWS ? row : min(row, OUTPUT_HEIGHT - 1));
    DEPTHWISE_LOADS(quad)
    EACH_COLUMN(PUT_BETWEEN)
    task_quad += ITEMS % QUADS;
    task_block += ITEMS / QUADS;
    if (task_quad >= QUADS) {
      task_quad -= QUADS;
      task_block++;
    }
  }
  barrier(CLK_LOCAL_MEM_FENCE);

  const uint block = get_local_id(1);
  const INDEX part = get_local_id(2), quad_block = get_global_id(0);
  const INDEX first_quad = quad_block * BLOCK_QUADS;
  const int first_weight = quad_block * ((INTEGERS ? 1 : 4) * BLOCK_QUADS);
  const INDEX block_column = first_column + block % TILE_BLOCKS * BLOCK_COLUMNS;
  const INDEX block_row = first_row + block / TILE_BLOCKS;
  QUAD_SUM sum[BLOCK_COLUMNS][BLOCK_QUADS];
#pragma unroll
  for (int o = 0; o < BLOCK_QUADS; o++) {
    const int loaded_quad = LOADED_QUAD(first_quad + o);
    START_LOADS(loaded_quad)
#if ZERO_POINT
    const int4 start = part == 0 ? as_int4(READ_WEIGHT(first_weight + o, QUADS)) : (int4)(0);
#else
    const QUAD_SUM start = (QUAD_SUM)(FROM_FLOAT(START));
#endif
#pragma unroll
    for (int c = 0; c < BLOCK_COLUMNS; c++) sum[c][o] = start;
  }

#if INTEGERS
  for (int quad = part * QUADS_AT_ONCE; quad < QUADS; quad += PARTS * QUADS_AT_ONCE) {
    LOCAL_QUADS texels[BLOCK_COLUMNS];
#pragma unroll
    for (int c = 0; c < BLOCK_COLUMNS; c++)
      texels[c] = *(__local const LOCAL_QUADS *)(between + (block * BLOCK_COLUMNS + c) * QUADS + quad);
    EACH_QUAD(ADD_QUAD)
  }
#else
  for (int chunk = part * CHUNK; chunk < QUADS; chunk += PARTS * CHUNK) {
#if HALF_QUADS
    QUAD partial[BLOCK_COLUMNS][BLOCK_QUADS];
#pragma unroll
    for (int c = 0; c < BLOCK_COLUMNS; c++)
#pragma unroll
      for (int o = 0; o < BLOCK_QUADS; o++) partial[c][o] = (QUAD)(0.0f);
#endif
    for (int n = 0; n < CHUNK; n++) {
      const int quad = chunk + n;
      QUAD texels[BLOCK_COLUMNS];
#pragma unroll
      for (int c = 0; c < BLOCK_COLUMNS; c++) texels[c] = between[(block * BLOCK_COLUMNS + c) * QUADS + quad];
      ADD_CHANNEL(0, x)
      ADD_CHANNEL(1, y)
      ADD_CHANNEL(2, z)
      ADD_CHANNEL(3, w)
    }
#if HALF_QUADS
#pragma unroll
    for (int c = 0; c < BLOCK_COLUMNS; c++)
#pragma unroll
      for (int o = 0; o < BLOCK_QUADS; o++) sum[c][o] += convert_float4(partial[c][o]);
#endif
  }
#endif

#if PARTS > 1
  // A sum by number: column * BLOCK_QUADS + quad; of a work item without its part: `item_of_part`.
  const int item_of_part = block * WORK_GROUP_QUADS + get_local_id(0);
  __local QUAD_SUM *parts = (__local QUAD_SUM *)shared;
  barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
  for (int c = 0; c < BLOCK_COLUMNS; c++)
#pragma unroll
    for (int o = 0; o < BLOCK_QUADS; o++)
      parts[(part * SUMS + c * BLOCK_QUADS + o) * (BLOCKS * WORK_GROUP_QUADS) + item_of_part] = sum[c][o];
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint number = part; number < SUMS; number += PARTS) {
    QUAD_TOTAL total = TO_TOTAL(parts[number * (BLOCKS * WORK_GROUP_QUADS) + item_of_part]);
    for (int other = 1; other < PARTS; other++)
      total += TO_TOTAL(parts[(other * SUMS + number) * (BLOCKS * WORK_GROUP_QUADS) + item_of_part]);
    STORE(number / BLOCK_QUADS, number % BLOCK_QUADS, convert_float4(total))
  }
#else
  EACH_SUM(STORE_SUM)
#endif
}
