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
// A work item makes BLOCK_COLUMNS x BLOCK_ROWS positions of BLOCK_QUADS output quads, PASSES times:
//
//     for each pass (the next quad block):
//       for each input quad, window row:                     weights, in the order of reading, one row of texels
//         read input texels                                  (or one stretch of a buffer) for each quad block:
//         for each window column:                              [quad][ky][kx][input lane][BLOCK_QUADS] x 4 outputs
//           read 4 x BLOCK_QUADS weight texels
//           sum += lane * weights  for every position, lane and output quad
//
// KEEP says how long an input texel that was read is kept, and so how often it is read:
//
//     KEEP_TEXEL   for one window position          KEEP_WINDOW  for all of the window
//     KEEP_LINE    for one row of the window        KEEP_INPUT   for all passes: every texel is read once
//
// PARTS work items of a group share the sum of a block: each takes every PARTS-th input quad, the parts meet in local
// memory. Where HALF_QUADS > 0, multiply-adds are in half: HALF_QUADS input quads are summed in half, all in float.
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
#ifndef INPUT_LANES
#define INPUT_LANES 4                   // channels in each of them: fewer than 4 only where there is one quad
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
#define BLOCK_COLUMNS 2                 // output columns of a work item
#endif
#ifndef BLOCK_ROWS
#define BLOCK_ROWS 1                    // output rows of a work item
#endif
#ifndef BLOCK_QUADS
#define BLOCK_QUADS 2                   // output quads of a work item; divides GROUP_QUADS
#endif
#ifndef EACH_POSITION
#define EACH_POSITION(act, o) act(0, 0, o) act(0, 1, o)  // act(row, column, o) for each position of a block
#endif
#ifndef EACH_QUAD
#define EACH_QUAD(act) act(0) act(1)    // act(o) for each quad of a block
#endif
#ifndef COLUMN_STEP
#define COLUMN_STEP 1                   // input columns from one that is read to the next: divides stride and dilation
#endif
#ifndef ROW_STEP
#define ROW_STEP 1                      // the same along y
#endif
#ifndef KEEP
#define KEEP 1                          // 0: KEEP_TEXEL, 1: KEEP_LINE, 2: KEEP_WINDOW, 3: KEEP_INPUT
#endif
#ifndef PASSES
#define PASSES 1                        // quad blocks that a work item makes one after another, of one group
#endif
#ifndef PARTS
#define PARTS 1                         // work items that share a sum, next to each other along y
#endif
#ifndef GROUP_WIDTH
#define GROUP_WIDTH 1                   // work group's size along x, where PARTS > 1
#endif
#ifndef GROUP_HEIGHT
#define GROUP_HEIGHT 1                  // along y, without the parts
#endif
#ifndef GROUP_DEPTH
#define GROUP_DEPTH 1                   // along z
#endif
#ifndef VECTOR_QUADS
#define VECTOR_QUADS 1                  // output quads that one vector holds: 1 or 4
#endif
#ifndef HALF_QUADS
#define HALF_QUADS 0                    // input quads that are summed in half; 0: all arithmetic in float
#endif
#ifndef WEIGHTS
#define WEIGHTS read_only image2d_t weights  // declaration of the weights: an image, or a __global pointer
#endif
#ifndef READ_WEIGHT
#define READ_WEIGHT(block, k) read_imagef(weights, TEXEL, (int2)(k, block))  // vector k of a quad block's weights
#endif
#ifndef INPUT_IMAGE
#define INPUT_IMAGE image2d_t           // type of the input image
#endif
#ifndef COORDINATE
#define COORDINATE int                  // type of the input's coordinates
#endif
#ifndef TEXEL_CENTRE
#define TEXEL_CENTRE 0                  // 0.5f where coordinates are float
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
#ifndef EPILOGUE_LOADS
#define EPILOGUE_LOADS(quad) ;          // statements that load what the epilogue needs of an output quad
#endif
#ifndef EPILOGUE_PARAMETERS
#define EPILOGUE_PARAMETERS             // ", declaration" for each image that the epilogue reads
#endif

#define KEEP_TEXEL (KEEP == 0)
#define KEEP_LINE (KEEP == 1)
#define KEEP_WINDOW (KEEP == 2)
#define KEEP_INPUT (KEEP == 3)

#define COLUMN_BLOCKS ((OUTPUT_WIDTH + BLOCK_COLUMNS - 1) / BLOCK_COLUMNS)
#define ROW_BLOCKS ((OUTPUT_HEIGHT + BLOCK_ROWS - 1) / BLOCK_ROWS)
#define QUAD_BLOCKS ((OUTPUT_QUADS + BLOCK_QUADS - 1) / BLOCK_QUADS)
#define PASS_BLOCKS ((QUAD_BLOCKS + PASSES - 1) / PASSES)
#define BLOCK_VECTORS (BLOCK_QUADS / VECTOR_QUADS)
#define BLOCK (BLOCK_ROWS * BLOCK_COLUMNS * BLOCK_QUADS)
// Whether a store needs no test: no block reaches past the edge, and no work item without a block gets there.
#define WHOLE_GROUPS (!(GUARD && PARTS > 1))
#define WHOLE_COLUMNS (WHOLE_GROUPS && COLUMN_BLOCKS * BLOCK_COLUMNS * PHASES_X == FULL_OUTPUT_WIDTH)
#define WHOLE_ROWS (WHOLE_GROUPS && ROW_BLOCKS * BLOCK_ROWS * PHASES_Y == FULL_OUTPUT_HEIGHT)
#define WHOLE_QUADS (WHOLE_GROUPS && QUAD_BLOCKS * BLOCK_QUADS == OUTPUT_QUADS)
#define ROW_OF(number) ((number) / BLOCK_QUADS / BLOCK_COLUMNS)
#define COLUMN_OF(number) ((number) / BLOCK_QUADS % BLOCK_COLUMNS)
#define NUMBER_OF(row, column, o) (((row) * BLOCK_COLUMNS + (column)) * BLOCK_QUADS + (o))
#if DEPTHWISE
#define WEIGHTS_OF_TAP 1
#else
#define WEIGHTS_OF_TAP (4 * BLOCK_VECTORS)
#endif

// Kept texels: LINES x LINE of a quad, and where among them a position's texel for a window column or row is.
#if KEEP_TEXEL
#define LINE BLOCK_COLUMNS
#define AT_COLUMN(column, kx) (column)
#define READ_COLUMN(column, kx) ((column) * STRIDE_X + (kx) * DILATION_X)
#else
#define LINE (((BLOCK_COLUMNS - 1) * STRIDE_X + (WINDOW_WIDTH - 1) * DILATION_X) / COLUMN_STEP + 1)
#define AT_COLUMN(column, kx) (((column) * STRIDE_X + (kx) * DILATION_X) / COLUMN_STEP)
#define READ_COLUMN(column, kx) ((column) * COLUMN_STEP)
#endif
#if KEEP_WINDOW || KEEP_INPUT
#define LINES (((BLOCK_ROWS - 1) * STRIDE_Y + (WINDOW_HEIGHT - 1) * DILATION_Y) / ROW_STEP + 1)
#define AT_ROW(row, ky) (((row) * STRIDE_Y + (ky) * DILATION_Y) / ROW_STEP)
#define READ_ROW(row, ky) ((row) * ROW_STEP)
#else
#define LINES BLOCK_ROWS
#define AT_ROW(row, ky) (row)
#define READ_ROW(row, ky) ((row) * STRIDE_Y + (ky) * DILATION_Y)
#endif
#if KEEP_INPUT
#define KEPT tile[quad]
#else
#define KEPT tile
#endif
#if CHECK_ROWS
#define IMAGE_ROW(row) ((row) < 0 || (row) >= INPUT_HEIGHT ? -1 : image * INPUT_HEIGHT + (row))
#else
#define IMAGE_ROW(row) (image * INPUT_HEIGHT + (row))
#endif
#if FACTORS
#define FACTOR * factors_of_quad
#else
#define FACTOR
#endif
// Read the texels of an input quad for a window position, and all that are kept with them.
#define FILL(ky, kx)                                                                                \
  _Pragma("unroll") for (int row = 0; row < LINES; row++) {                                         \
    const int input_row = start_y + READ_ROW(row, ky);                                              \
    const COORDINATE y = IMAGE_ROW(input_row) + TEXEL_CENTRE;                                       \
    _Pragma("unroll") for (int column = 0; column < LINE; column++)                                 \
      KEPT[row][column] = READ_INPUT(quad_x + READ_COLUMN(column, kx) * INPUT_PITCH, y) FACTOR;     \
  }

// The sums of a work item one after another.
#define FOR_BLOCK                                                            \
  _Pragma("unroll") for (int row = 0; row < BLOCK_ROWS; row++)               \
    _Pragma("unroll") for (int column = 0; column < BLOCK_COLUMNS; column++) \
      _Pragma("unroll") for (int o = 0; o < BLOCK_VECTORS; o++)
// Write one of them, after the epilogue.
#if LAST_LANES < 4
#define LANES_OF(out_quad, texel) ((out_quad) == OUTPUT_QUADS - 1 ? keep_lanes(texel, LAST_LANES) : (texel))
#else
#define LANES_OF(out_quad, texel) (texel)
#endif
#define LOADS(o)                                                                                    \
  const int loaded_quad = WHOLE_QUADS ? first_quad + (o) : min(first_quad + (o), OUTPUT_QUADS - 1); \
  EPILOGUE_LOADS(loaded_quad)
#define STORE(row, column, o, total)                                                                           \
  {                                                                                                            \
    const int out_column = (first_column + (column)) * PHASES_X + phase_x, out_quad = first_quad + (o);        \
    const int image_row = (first_row + (row)) * PHASES_Y + phase_y;                                            \
    if ((WHOLE_COLUMNS || out_column < FULL_OUTPUT_WIDTH) && (WHOLE_ROWS || image_row < FULL_OUTPUT_HEIGHT) && \
        (WHOLE_QUADS || out_quad < OUTPUT_QUADS) && (WHOLE_GROUPS || image < BATCH)) {                         \
      const int out_row = image * FULL_OUTPUT_HEIGHT + image_row;                                              \
      const float4 texel = EPILOGUE(total, out_column, out_row, out_quad);                                     \
      WRITE_OUTPUT(out_column * OUTPUT_PITCH + OUTPUT_OFFSET + out_quad, out_row, LANES_OF(out_quad, texel));  \
    }                                                                                                          \
  }

// Not a loop: compilers give up unrolling one over long epilogues, and then keep all sums in memory.
#define STORE_SUM(row, column, o) STORE(row, column, o, sum[row][column][o])
#define STORE_QUAD(o) { LOADS(o) EACH_POSITION(STORE_SUM, o) }

// QUAD: a texel. VECTOR: weights, and sums of CHUNK input quads. TOTAL: the sums over all of them.
#if HALF_QUADS
#define QUAD half4
#define VECTOR half4
#define TOTAL float4
#define CHUNK HALF_QUADS
#define PARTIAL partial
#else
#define QUAD float4
#if VECTOR_QUADS == 4
#define VECTOR float16
#else
#define VECTOR float4
#endif
#define TOTAL VECTOR
#define CHUNK 1
#define PARTIAL sum
#endif

// Global size: (column blocks * PHASES_X, pass blocks * PARTS, N * row blocks * PHASES_Y).
GROUP_SIZE __kernel void NAME(
    write_only OUTPUT_IMAGE output, read_only INPUT_IMAGE input, WEIGHTS
#if FACTORS
    , read_only FACTORS_IMAGE factors
#endif
    EPILOGUE_PARAMETERS) {
  const INDEX item_x = get_global_id(0), item_z = get_global_id(2);
  const INDEX pass_block = get_global_id(1) / PARTS, part = get_local_id(1) % PARTS;
#if GUARD && PARTS == 1
  if (item_x >= COLUMN_BLOCKS * PHASES_X || pass_block >= PASS_BLOCKS || item_z >= BATCH * ROW_BLOCKS * PHASES_Y)
    return;
#endif
  const INDEX phase_x = item_x % PHASES_X, phase_y = item_z % PHASES_Y;
  const INDEX first_column = item_x / PHASES_X * BLOCK_COLUMNS;
#if BATCH > 1
  const INDEX image = item_z / PHASES_Y / ROW_BLOCKS, first_row = item_z / PHASES_Y % ROW_BLOCKS * BLOCK_ROWS;
#else
  const INDEX image = 0, first_row = item_z / PHASES_Y * BLOCK_ROWS;
#endif
  // Where the window of the block's first position starts.
  const INDEX start_x = first_column * STRIDE_X - PAD_X + (phase_x + PHASE_SHIFT_X) / PHASES_X;
  const INDEX start_y = first_row * STRIDE_Y - PAD_Y + (phase_y + PHASE_SHIFT_Y) / PHASES_Y;
#if PARTS > 1
  __local float4 parts[PARTS][BLOCK][GROUP_DEPTH * GROUP_HEIGHT * GROUP_WIDTH];
#endif

#if KEEP_INPUT
  QUAD tile[INPUT_QUADS][LINES][LINE];
#endif

#if PASSES > 1
  for (int pass = 0; pass < PASSES; pass++) {
#else
  {
    const int pass = 0;
#endif
    const INDEX quad_block = pass_block * PASSES + pass;
    const INDEX first_quad = quad_block * BLOCK_QUADS;
#if PASSES > 1
    if (first_quad >= OUTPUT_QUADS) break;
#endif
    const INDEX weight_block = (phase_y * PHASES_X + phase_x) * QUAD_BLOCKS + quad_block;
#if DEPTHWISE
    const INDEX group_offset = INPUT_OFFSET + first_quad;
#elif GROUP_QUADS == OUTPUT_QUADS
    const INDEX group_offset = INPUT_OFFSET;
#else
    const INDEX group_offset = INPUT_OFFSET + first_quad / GROUP_QUADS * INPUT_QUADS;
#endif

    TOTAL sum[BLOCK_ROWS][BLOCK_COLUMNS][BLOCK_VECTORS];
    FOR_BLOCK sum[row][column][o] = (TOTAL)(0.0f);

    for (int chunk = part * CHUNK; chunk < INPUT_QUADS; chunk += PARTS * CHUNK) {
#if HALF_QUADS
      VECTOR partial[BLOCK_ROWS][BLOCK_COLUMNS][BLOCK_VECTORS];
      FOR_BLOCK partial[row][column][o] = (VECTOR)(0.0h);
#endif
#if CHUNK > 1
#pragma nounroll
#endif
      for (int n = 0; n < CHUNK; n++) {
        const int quad = chunk + n;
        const COORDINATE quad_x = start_x * INPUT_PITCH + group_offset + quad + TEXEL_CENTRE;
        int k = quad * (WINDOW_HEIGHT * WINDOW_WIDTH * WEIGHTS_OF_TAP);
#if FACTORS
        const QUAD factors_of_quad = READ_FACTORS(image, quad);
#endif
#if !KEEP_INPUT
        QUAD tile[LINES][LINE];
#endif
#if KEEP_WINDOW || KEEP_INPUT
        if (pass == 0) FILL(0, 0)
#endif
#if KEEP_WINDOW
#pragma unroll
#endif
        for (int ky = 0; ky < WINDOW_HEIGHT; ky++) {
#if KEEP_LINE
          FILL(ky, 0)
#endif
#if KEEP_LINE || KEEP_WINDOW
#pragma unroll
#endif
          for (int kx = 0; kx < WINDOW_WIDTH; kx++) {
#if KEEP_TEXEL
            FILL(ky, kx)
#endif
#if DEPTHWISE
            const VECTOR weight = READ_WEIGHT(weight_block, k);
#pragma unroll
            for (int row = 0; row < BLOCK_ROWS; row++)
#pragma unroll
              for (int column = 0; column < BLOCK_COLUMNS; column++)
                PARTIAL[row][column][0] =
                    mad(KEPT[AT_ROW(row, ky)][AT_COLUMN(column, kx)], weight, PARTIAL[row][column][0]);
#else
#pragma unroll
            for (int o = 0; o < BLOCK_VECTORS; o++) {
              const VECTOR weight_x = READ_WEIGHT(weight_block, k + o);
#if INPUT_LANES > 1
              const VECTOR weight_y = READ_WEIGHT(weight_block, k + BLOCK_VECTORS + o);
#endif
#if INPUT_LANES > 2
              const VECTOR weight_z = READ_WEIGHT(weight_block, k + 2 * BLOCK_VECTORS + o);
#endif
#if INPUT_LANES > 3
              const VECTOR weight_w = READ_WEIGHT(weight_block, k + 3 * BLOCK_VECTORS + o);
#endif
#pragma unroll
              for (int row = 0; row < BLOCK_ROWS; row++)
#pragma unroll
                for (int column = 0; column < BLOCK_COLUMNS; column++) {
                  const QUAD texel = KEPT[AT_ROW(row, ky)][AT_COLUMN(column, kx)];
                  VECTOR sum_of_lanes = PARTIAL[row][column][o];
                  sum_of_lanes = mad((VECTOR)(texel.x), weight_x, sum_of_lanes);
#if INPUT_LANES > 1
                  sum_of_lanes = mad((VECTOR)(texel.y), weight_y, sum_of_lanes);
#endif
#if INPUT_LANES > 2
                  sum_of_lanes = mad((VECTOR)(texel.z), weight_z, sum_of_lanes);
#endif
#if INPUT_LANES > 3
                  sum_of_lanes = mad((VECTOR)(texel.w), weight_w, sum_of_lanes);
#endif
                  PARTIAL[row][column][o] = sum_of_lanes;
                }
            }
#endif
            k += WEIGHTS_OF_TAP;
          }
        }
      }
#if HALF_QUADS
      FOR_BLOCK sum[row][column][o] += convert_float4(partial[row][column][o]);
#endif
    }

#if PARTS > 1
    // The block's texels by number: (row * BLOCK_COLUMNS + column) * BLOCK_QUADS + quad.
    const int item = (get_local_id(2) * GROUP_HEIGHT + get_local_id(1) / PARTS) * GROUP_WIDTH + get_local_id(0);
    FOR_BLOCK parts[part][NUMBER_OF(row, column, o)][item] = sum[row][column][o];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int number = part; number < BLOCK; number += PARTS) {
      float4 total = parts[0][number][item];
      for (int other = 1; other < PARTS; other++) total += parts[other][number][item];
      LOADS(number % BLOCK_QUADS)
      STORE(ROW_OF(number), COLUMN_OF(number), number % BLOCK_QUADS, total)
    }
#elif VECTOR_QUADS > 1
    TOTAL made[BLOCK_ROWS * BLOCK_COLUMNS * BLOCK_VECTORS];
    FOR_BLOCK made[(row * BLOCK_COLUMNS + column) * BLOCK_VECTORS + o] = sum[row][column][o];
    for (int o = 0; o < BLOCK_QUADS; o++) {
      LOADS(o)
      for (int row = 0; row < BLOCK_ROWS; row++)
        for (int column = 0; column < BLOCK_COLUMNS; column++)
          STORE(row, column, o, ((const float4 *)made)[NUMBER_OF(row, column, o)])
    }
#else
    EACH_QUAD(STORE_QUAD)
#endif
  }
}

#undef KEEP_TEXEL
#undef KEEP_LINE
#undef KEEP_WINDOW
#undef KEEP_INPUT
#undef COLUMN_BLOCKS
#undef ROW_BLOCKS
#undef QUAD_BLOCKS
#undef PASS_BLOCKS
#undef BLOCK_VECTORS
#undef BLOCK
#undef WHOLE_GROUPS
#undef WHOLE_COLUMNS
#undef WHOLE_ROWS
#undef WHOLE_QUADS
#undef ROW_OF
#undef COLUMN_OF
#undef NUMBER_OF
#undef WEIGHTS_OF_TAP
#undef LINE
#undef AT_COLUMN
#undef READ_COLUMN
#undef LINES
#undef AT_ROW
#undef READ_ROW
#undef KEPT
#undef IMAGE_ROW
#undef FACTOR
#undef FILL
#undef FOR_BLOCK
#undef LANES_OF
#undef STORE
#undef STORE_SUM
#undef STORE_QUAD
#undef LOADS
#undef QUAD
#undef VECTOR
#undef TOTAL
#undef CHUNK
#undef PARTIAL
