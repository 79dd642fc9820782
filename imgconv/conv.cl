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
//       for each input quad, window row:
//         read input texels
//         for each window column, a step:
//           read 4 x BLOCK_QUADS weight texels
//           sum += lane * weights  for every position, lane and output quad
//
// Weights of a quad block, in an image, and in a buffer in the order of reading, [step][n]:
//
//                 step 0    step 1   ...                     step = (quad * WINDOW_HEIGHT + ky) * TAPS + kx
//     n = 0     [4 outputs] [rgba]                           n = input lane * BLOCK_QUADS + output quad
//     n = 1     [rgba]      [rgba]
//
// One coordinate of a read of weights, or of rows of texels, stays the same at every step, and is made before them.
//
// KEEP says how long an input texel that was read is kept, and so how often it is read:
//
//     KEEP_TEXEL   for one window position          KEEP_WINDOW  for all of the window
//     KEEP_LINE    for one row of the window        KEEP_INPUT   for all passes: every texel is read once
//
// PARTS work items of a group share the sum of a block: each takes every PARTS-th input quad, the parts meet in local
// memory. Where HALF_QUADS > 0, multiply-adds are in half: HALF_QUADS input quads are summed in half, all in float.
//
// Where STAGED_QUADS > 0, a work group copies the weights of that many input quads into local memory, for all quad
// blocks that its items make, and with STAGED_INPUT the texels that its positions need. Items read them there;
// meanwhile the next are fetched into registers.
//
// WINOGRAD m is Winograd's minimal filtering F(m, 3) along the rows, in one dimension: m outputs in a row, of a window
// of 3 columns, take m + 2 multiply-adds instead of 3 m. The m + 2 texels d of a tile become as many taps, the weights
// were transformed when they were packed (kx counts taps), sums are kept of taps, and become m outputs at the end:
//
//     y = A ((B d) * (G g))       (A. Lavin, S. Gray: Fast Algorithms for Convolutional Neural Networks, 2015)
//
// F(2, 3) interpolates at 0, 1, -1 and infinity; F(4, 3) at 0, +-sqrt(1/2), +-sqrt(2) and infinity, where |A| |B| |G|
// sums to half of what it does at the usual +-1, +-2. Rows of G whose absolute values sum to more than 1 are halved and
// A is doubled there: weights that fit in half still do. F(2, 3) makes an output of the three texels of its window only.
// F(4, 3) makes it of all six of the tile: what does not belong to it cancels but for its rounding, and NaN and infinity
// spread over the tile. So F(4, 3) is for inputs of bounded values (Specialisation in imgconv/kernels/convolution.py).
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
#define PARTS 1                         // work items that share a sum, next to each other along y: a power of two
#endif
#ifndef GROUP_WIDTH
#define GROUP_WIDTH 1                   // work group's size along x, where its items share sums or weights
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
#ifndef STAGED_QUADS
#define STAGED_QUADS 0                  // input quads whose weights are put in local memory at once; 0: none are
#endif
#ifndef STAGED_INPUT
#define STAGED_INPUT 0                  // 1: the texels of these input quads are put in local memory too
#endif
#ifndef WINOGRAD
#define WINOGRAD 0                      // outputs of a tile, 2 or 4; 0: the window's columns are multiplied one by one
#endif
#ifndef WEIGHTS
#define WEIGHTS read_only image2d_t weights  // declaration of the weights: an image, or a __global pointer
#endif
#ifndef WEIGHTS_IN_IMAGE
#define WEIGHTS_IN_IMAGE 1              // 0: in a buffer
#endif
#ifndef READ_WEIGHT
#define READ_WEIGHT(first, step) read_imagef(weights, TEXEL, (int2)(step, first))  // first: a FIRST_WEIGHT
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
#ifndef START
#define START (0.0f)                    // what the sums of an output quad start with: its bias, or nothing
#endif
#ifndef START_LOADS
#define START_LOADS(quad) ;             // statements that load it
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
#define GROUP_ITEMS (GROUP_DEPTH * GROUP_HEIGHT * GROUP_WIDTH)
// Whether a store needs no test: no block reaches past the edge, and no work item without a block gets there.
#define TOGETHER (PARTS > 1 || STAGED_QUADS > 0)
#define WHOLE_GROUPS (!(GUARD && TOGETHER))
#define WHOLE_COLUMNS (WHOLE_GROUPS && COLUMN_BLOCKS * BLOCK_COLUMNS * PHASES_X == FULL_OUTPUT_WIDTH)
#define WHOLE_ROWS (WHOLE_GROUPS && ROW_BLOCKS * BLOCK_ROWS * PHASES_Y == FULL_OUTPUT_HEIGHT)
#define WHOLE_QUADS (WHOLE_GROUPS && QUAD_BLOCKS * BLOCK_QUADS == OUTPUT_QUADS)
#define ROW_OF(number) ((number) / BLOCK_QUADS / BLOCK_COLUMNS)
#define COLUMN_OF(number) ((number) / BLOCK_QUADS % BLOCK_COLUMNS)
#define NUMBER_OF(row, column, o) (((row) * BLOCK_COLUMNS + (column)) * BLOCK_QUADS + (o))
#if DEPTHWISE
#define WEIGHTS_OF_STEP 1
#else
#define WEIGHTS_OF_STEP (4 * BLOCK_VECTORS)
#endif

// A step of the window's row, a tap, adds to TAP_COLUMNS sums in a row. SUMS: the sums in a row, OUTPUT_AT: where the
// one of an output column is among them.
#if WINOGRAD
#define TAPS (WINOGRAD + 2)
#define TAP_COLUMNS (BLOCK_COLUMNS / WINOGRAD)
#define SUMS (TAP_COLUMNS * TAPS)
#define SUM_AT(column, tap) ((column) * TAPS + (tap))
#define OUTPUT_AT(column) ((column) / WINOGRAD * TAPS + (column) % WINOGRAD)
#else
#define TAPS WINDOW_WIDTH
#define TAP_COLUMNS BLOCK_COLUMNS
#define SUMS BLOCK_COLUMNS
#define SUM_AT(column, tap) (column)
#define OUTPUT_AT(column) (column)
#endif
#define STEPS_OF_QUAD (WINDOW_HEIGHT * TAPS)
#define WEIGHTS_OF_QUAD (STEPS_OF_QUAD * WEIGHTS_OF_STEP)
// Where the weights n of a quad block begin.
#if WEIGHTS_IN_IMAGE
#define FIRST_WEIGHT(block, n) ((block) * WEIGHTS_OF_STEP + (n))
#else
#define FIRST_WEIGHT(block, n) ((block) * (INPUT_QUADS * WEIGHTS_OF_QUAD) + (n))
#endif

// Kept texels: LINES x LINE of a quad, and where among them a position's texel for a window column or row is.
#if WINOGRAD
#define LINE SUMS
#define AT_COLUMN(column, tap) SUM_AT(column, tap)
#elif KEEP_TEXEL
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
// Whether all input quads read the same rows.
#define ROWS_AHEAD (WINDOW_HEIGHT == 1 || KEEP_WINDOW || KEEP_INPUT)
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
// The texels d of a tile as taps t: B d. And the sums s of taps as outputs, in place: A s.
#if WINOGRAD == 2
#define TO_TAPS(t, d)         \
  {                           \
    (t)[0] = (d)[0] - (d)[2]; \
    (t)[1] = (d)[1] + (d)[2]; \
    (t)[2] = (d)[2] - (d)[1]; \
    (t)[3] = (d)[1] - (d)[3]; \
  }
#define TO_OUTPUTS(s, o)                                                   \
  {                                                                        \
    const TOTAL even = (s)[1][o] + (s)[2][o], odd = (s)[1][o] - (s)[2][o]; \
    (s)[0][o] = mad((TOTAL)(2.0f), even, (s)[0][o]);                       \
    (s)[1][o] = mad((TOTAL)(2.0f), odd, -(s)[3][o]);                       \
  }
#elif WINOGRAD == 4
#define TO_TAPS(t, d)                                                                                    \
  {                                                                                                      \
    const QUAD near = mad((d)[2], (QUAD)(-2.0f), (d)[4]), near_odd = mad((d)[1], (QUAD)(-2.0f), (d)[3]); \
    const QUAD far = mad((d)[2], (QUAD)(-0.5f), (d)[4]), far_odd = mad((d)[1], (QUAD)(-0.5f), (d)[3]);   \
    (t)[0] = mad((d)[2], (QUAD)(-2.5f), (d)[0] + (d)[4]);                                                \
    (t)[1] = mad(near_odd, (QUAD)(0.70710678f), near);                                                   \
    (t)[2] = mad(near_odd, (QUAD)(-0.70710678f), near);                                                  \
    (t)[3] = mad(far_odd, (QUAD)(1.41421356f), far);                                                     \
    (t)[4] = mad(far_odd, (QUAD)(-1.41421356f), far);                                                    \
    (t)[5] = mad((d)[3], (QUAD)(-2.5f), (d)[1] + (d)[5]);                                                \
  }
#define TO_OUTPUTS(s, o)                                                                            \
  {                                                                                                 \
    const TOTAL near = (s)[1][o] + (s)[2][o], near_odd = (s)[1][o] - (s)[2][o];                     \
    const TOTAL far = (s)[3][o] + (s)[4][o], far_odd = (s)[3][o] - (s)[4][o];                       \
    (s)[0][o] = mad((TOTAL)(2.0f), near, (s)[0][o] + far);                                          \
    (s)[1][o] = 1.41421356f * (near_odd + far_odd);                                                 \
    (s)[2][o] = mad((TOTAL)(2.0f), far, near);                                                      \
    (s)[3][o] = mad((TOTAL)(0.70710678f), near_odd, mad((TOTAL)(2.82842712f), far_odd, (s)[5][o])); \
  }
#endif

// The texels of a quad that a group's positions need. A column more for each block: neighbours in a wave then read from
// different banks. Neighbours in the copy read neighbouring quads, which lie side by side.
#if STAGED_INPUT
#define BLOCK_STEP (BLOCK_COLUMNS * STRIDE_X)
#define GROUP_COLUMNS ((GROUP_WIDTH * BLOCK_COLUMNS - 1) * STRIDE_X + (WINDOW_WIDTH - 1) * DILATION_X + 1)
#define GROUP_ROWS ((GROUP_DEPTH * BLOCK_ROWS - 1) * STRIDE_Y + (WINDOW_HEIGHT - 1) * DILATION_Y + 1)
#define SPREAD(column) ((column) + (column) / BLOCK_STEP)
#define READ_AT(column, row)                                   \
  texels[n][get_local_id(2) * (BLOCK_ROWS * STRIDE_Y) + (row)] \
        [get_local_id(0) * (BLOCK_STEP + 1) + SPREAD(column)] FACTOR
#define ROW_Y(row, ky)
#else
#define READ_AT(column, row) READ_INPUT(quad_x + (column) * INPUT_PITCH, y) FACTOR
#if ROWS_AHEAD
#define ROW_Y(row, ky) const COORDINATE y = rows_y[row];
#else
#define ROW_Y(row, ky)                                 \
  const int input_row = start_y + (READ_ROW(row, ky)); \
  const COORDINATE y = IMAGE_ROW(input_row) + TEXEL_CENTRE;
#endif
#endif

// Read the texels of an input quad for a window position, and all that are kept with them.
#if WINOGRAD
#define FILL(ky, kx)                                                             \
  _Pragma("unroll") for (int row = 0; row < LINES; row++) {                      \
    ROW_Y(row, ky)                                                               \
    QUAD line[BLOCK_COLUMNS + 2];                                                \
    _Pragma("unroll") for (int column = 0; column < BLOCK_COLUMNS + 2; column++) \
      line[column] = READ_AT(column, READ_ROW(row, ky));                         \
    _Pragma("unroll") for (int column = 0; column < TAP_COLUMNS; column++)       \
      TO_TAPS(KEPT[row] + column * TAPS, line + column * WINOGRAD)               \
  }
#else
#define FILL(ky, kx)                                                           \
  _Pragma("unroll") for (int row = 0; row < LINES; row++) {                    \
    ROW_Y(row, ky)                                                             \
    _Pragma("unroll") for (int column = 0; column < LINE; column++)            \
      KEPT[row][column] = READ_AT(READ_COLUMN(column, kx), READ_ROW(row, ky)); \
  }
#endif

// The sums of a work item one after another: `columns` in a row.
#define FOR_EACH(columns)                                              \
  _Pragma("unroll") for (int row = 0; row < BLOCK_ROWS; row++)         \
    _Pragma("unroll") for (int column = 0; column < columns; column++) \
      _Pragma("unroll") for (int o = 0; o < BLOCK_VECTORS; o++)
// Write one of them, after the epilogue.
#if LAST_LANES < 4
#define LANES_OF(out_quad, texel) ((out_quad) == OUTPUT_QUADS - 1 ? keep_lanes(texel, LAST_LANES) : (texel))
#else
#define LANES_OF(out_quad, texel) (texel)
#endif
#define LOADED_QUAD(o) (WHOLE_QUADS ? first_quad + (o) : min(first_quad + (o), OUTPUT_QUADS - 1))
#define LOADS(o)                          \
  const int loaded_quad = LOADED_QUAD(o); \
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
#define STORE_SUM(row, column, o) STORE(row, column, o, sum[row][OUTPUT_AT(column)][o])
#define STORE_QUAD(o) { LOADS(o) EACH_POSITION(STORE_SUM, o) }

// What a group has in local memory at once, and how an item fetches its share and puts it there.
#if STAGED_QUADS
#define STAGED_WEIGHTS (STAGED_QUADS * WEIGHTS_OF_QUAD)
#define SHARE(total) (((total) + GROUP_ITEMS - 1) / GROUP_ITEMS)
#define FETCH_WEIGHTS(quad)                                                                               \
  _Pragma("unroll") for (int turn = 0; turn < SHARE(GROUP_HEIGHT * STAGED_WEIGHTS); turn++) {             \
    const int n = min(item + turn * GROUP_ITEMS, GROUP_HEIGHT * STAGED_WEIGHTS - 1);                      \
    const int block = min(group_block + n / STAGED_WEIGHTS, QUAD_BLOCKS - 1);                             \
    fetched_weights[turn] = READ_WEIGHT(FIRST_WEIGHT(block, n % STAGED_WEIGHTS), (quad) * STEPS_OF_QUAD); \
  }
#define PUT_WEIGHTS                                                                                                \
  _Pragma("unroll") for (int turn = 0; turn < SHARE(GROUP_HEIGHT * STAGED_WEIGHTS); turn++) {                      \
    const int n = item + turn * GROUP_ITEMS;                                                                       \
    if (n < GROUP_HEIGHT * STAGED_WEIGHTS) staged[n / STAGED_WEIGHTS][n % STAGED_WEIGHTS] = fetched_weights[turn]; \
  }
#if STAGED_INPUT
#define STAGED_TEXELS (STAGED_QUADS * GROUP_ROWS * GROUP_COLUMNS)
#define FETCH_STAGED(quad)                                                                                 \
  {                                                                                                        \
    FETCH_WEIGHTS(quad)                                                                                    \
    _Pragma("unroll") for (int turn = 0; turn < SHARE(STAGED_TEXELS); turn++) {                            \
      const int n = item + turn * GROUP_ITEMS, position = n / STAGED_QUADS;                                \
      const int column = group_x + position % GROUP_COLUMNS, row = group_y + position / GROUP_COLUMNS;     \
      const COORDINATE x = column * INPUT_PITCH + group_offset + (quad) + n % STAGED_QUADS + TEXEL_CENTRE; \
      const COORDINATE y = IMAGE_ROW(row) + TEXEL_CENTRE;                                                  \
      fetched_texels[turn] = READ_INPUT(x, y);                                                             \
    }                                                                                                      \
  }
#define PUT_STAGED                                                                                                 \
  PUT_WEIGHTS                                                                                                      \
  _Pragma("unroll") for (int turn = 0; turn < SHARE(STAGED_TEXELS); turn++) {                                      \
    const int n = item + turn * GROUP_ITEMS, position = n / STAGED_QUADS;                                          \
    if (n < STAGED_TEXELS)                                                                                         \
      texels[n % STAGED_QUADS][position / GROUP_COLUMNS][SPREAD(position % GROUP_COLUMNS)] = fetched_texels[turn]; \
  }
#else
#define FETCH_STAGED(quad) { FETCH_WEIGHTS(quad) }
#define PUT_STAGED PUT_WEIGHTS
#endif
#endif

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
#if STAGED_QUADS
#define CHUNK STAGED_QUADS
#else
#define CHUNK 1
#endif
#define PARTIAL sum
#endif
#if STAGED_QUADS
#define WEIGHT(n) staged[get_local_id(1)][step * WEIGHTS_OF_STEP + (n)]
#else
#define WEIGHT(n) READ_WEIGHT(first_weights[n], step)
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
#if GUARD && !TOGETHER
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
  __local float4 parts[BLOCK][GROUP_ITEMS][PARTS];
#endif
#if STAGED_QUADS
  // One more: neighbours in a wave with other quad blocks then read from different banks.
  __local VECTOR staged[GROUP_HEIGHT][STAGED_WEIGHTS + 1];
  VECTOR fetched_weights[SHARE(GROUP_HEIGHT * STAGED_WEIGHTS)];
  const int group_block = pass_block - get_local_id(1);
#endif
#if STAGED_INPUT
  __local QUAD texels[STAGED_QUADS][GROUP_ROWS][SPREAD(GROUP_COLUMNS - 1) + 1];
  QUAD fetched_texels[SHARE(STAGED_TEXELS)];
  const int group_x = start_x - get_local_id(0) * BLOCK_STEP;
  const int group_y = start_y - get_local_id(2) * (BLOCK_ROWS * STRIDE_Y);
#endif
#if TOGETHER
  const int item = (get_local_id(2) * GROUP_HEIGHT + get_local_id(1) / PARTS) * GROUP_WIDTH + get_local_id(0);
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

    TOTAL sum[BLOCK_ROWS][SUMS][BLOCK_VECTORS];
#pragma unroll
    for (int o = 0; o < BLOCK_VECTORS; o++) {
      const int loaded_quad = LOADED_QUAD(o);
      START_LOADS(loaded_quad)
#pragma unroll
      for (int row = 0; row < BLOCK_ROWS; row++)
#pragma unroll
        for (int column = 0; column < SUMS; column++) sum[row][column][o] = (TOTAL)(START);
    }

#if STAGED_QUADS
    FETCH_STAGED(0)
#else
    int first_weights[WEIGHTS_OF_STEP];
#pragma unroll
    for (int n = 0; n < WEIGHTS_OF_STEP; n++) first_weights[n] = FIRST_WEIGHT(weight_block, n);
#endif
#if !STAGED_INPUT
    const COORDINATE first_x = start_x * INPUT_PITCH + group_offset + TEXEL_CENTRE;
#if ROWS_AHEAD
    COORDINATE rows_y[LINES];
#pragma unroll
    for (int row = 0; row < LINES; row++) {
      const int input_row = start_y + READ_ROW(row, 0);
      rows_y[row] = IMAGE_ROW(input_row) + TEXEL_CENTRE;
    }
#endif
#endif
    for (int chunk = part * CHUNK; chunk < INPUT_QUADS; chunk += PARTS * CHUNK) {
#if HALF_QUADS
      VECTOR partial[BLOCK_ROWS][SUMS][BLOCK_VECTORS];
      FOR_EACH(SUMS) partial[row][column][o] = (VECTOR)(0.0h);
#endif
#if STAGED_QUADS
      // What was fetched goes into local memory, and while it is used there, the next is fetched.
      barrier(CLK_LOCAL_MEM_FENCE);
      PUT_STAGED
      barrier(CLK_LOCAL_MEM_FENCE);
      if (chunk + CHUNK < INPUT_QUADS) FETCH_STAGED(chunk + CHUNK)
#endif
#if HALF_QUADS > 1
#pragma nounroll
#endif
      for (int n = 0; n < CHUNK; n++) {
        const int quad = chunk + n;
#if !STAGED_INPUT
        const COORDINATE quad_x = first_x + quad;
#endif
        int step = (STAGED_QUADS ? n : quad) * STEPS_OF_QUAD;
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
          for (int kx = 0; kx < TAPS; kx++) {
#if KEEP_TEXEL
            FILL(ky, kx)
#endif
#if DEPTHWISE
            const VECTOR weight = WEIGHT(0);
#pragma unroll
            for (int row = 0; row < BLOCK_ROWS; row++)
#pragma unroll
              for (int column = 0; column < BLOCK_COLUMNS; column++)
                PARTIAL[row][column][0] =
                    mad(KEPT[AT_ROW(row, ky)][AT_COLUMN(column, kx)], weight, PARTIAL[row][column][0]);
#else
#pragma unroll
            for (int o = 0; o < BLOCK_VECTORS; o++) {
              const VECTOR weight_x = WEIGHT(o);
#if INPUT_LANES > 1
              const VECTOR weight_y = WEIGHT(BLOCK_VECTORS + o);
#endif
#if INPUT_LANES > 2
              const VECTOR weight_z = WEIGHT(2 * BLOCK_VECTORS + o);
#endif
#if INPUT_LANES > 3
              const VECTOR weight_w = WEIGHT(3 * BLOCK_VECTORS + o);
#endif
#pragma unroll
              for (int row = 0; row < BLOCK_ROWS; row++)
#pragma unroll
                for (int column = 0; column < TAP_COLUMNS; column++) {
                  const QUAD texel = KEPT[AT_ROW(row, ky)][AT_COLUMN(column, kx)];
                  VECTOR sum_of_lanes = PARTIAL[row][SUM_AT(column, kx)][o];
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
                  PARTIAL[row][SUM_AT(column, kx)][o] = sum_of_lanes;
                }
            }
#endif
            step++;
          }
        }
      }
#if HALF_QUADS
      FOR_EACH(SUMS) sum[row][column][o] += convert_float4(partial[row][column][o]);
#endif
    }

#if WINOGRAD
    FOR_EACH(TAP_COLUMNS) TO_OUTPUTS(sum[row] + column * TAPS, o)
#endif
#if PARTS > 1
    // The block's texels by number: (row * BLOCK_COLUMNS + column) * BLOCK_QUADS + quad. Where an item's own part of one
    // is: eight items of a wave, columns first, meet eight banks of 16 bytes, as they write and as they read.
    const int own = part ^ (item * min(PARTS, 8) / min(GROUP_WIDTH, 8) % PARTS);
    FOR_EACH(BLOCK_COLUMNS) parts[NUMBER_OF(row, column, o)][item][own] = sum[row][OUTPUT_AT(column)][o];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int number = part; number < BLOCK; number += PARTS) {
      float4 total = parts[number][item][own];
#pragma unroll
      for (int other = 1; other < PARTS; other++) total += parts[number][item][own ^ other];
      LOADS(number % BLOCK_QUADS)
      STORE(ROW_OF(number), COLUMN_OF(number), number % BLOCK_QUADS, total)
    }
#elif VECTOR_QUADS > 1
    TOTAL made[BLOCK_ROWS * BLOCK_COLUMNS * BLOCK_VECTORS];
    FOR_EACH(BLOCK_COLUMNS)
      made[(row * BLOCK_COLUMNS + column) * BLOCK_VECTORS + o] = sum[row][OUTPUT_AT(column)][o];
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
#undef GROUP_ITEMS
#undef TOGETHER
#undef WHOLE_GROUPS
#undef WHOLE_COLUMNS
#undef WHOLE_ROWS
#undef WHOLE_QUADS
#undef ROW_OF
#undef COLUMN_OF
#undef NUMBER_OF
#undef WEIGHTS_OF_STEP
#undef TAPS
#undef TAP_COLUMNS
#undef SUMS
#undef SUM_AT
#undef OUTPUT_AT
#undef STEPS_OF_QUAD
#undef WEIGHTS_OF_QUAD
#undef FIRST_WEIGHT
#undef ROWS_AHEAD
#undef LINE
#undef AT_COLUMN
#undef READ_COLUMN
#undef LINES
#undef AT_ROW
#undef READ_ROW
#undef KEPT
#undef IMAGE_ROW
#undef FACTOR
#undef STAGED_WEIGHTS
#undef SHARE
#undef FETCH_WEIGHTS
#undef PUT_WEIGHTS
#undef STAGED_TEXELS
#undef FETCH_STAGED
#undef PUT_STAGED
#undef BLOCK_STEP
#undef GROUP_COLUMNS
#undef GROUP_ROWS
#undef SPREAD
#undef READ_AT
#undef ROW_Y
#undef TO_TAPS
#undef TO_OUTPUTS
#undef FILL
#undef FOR_EACH
#undef LANES_OF
#undef STORE
#undef STORE_SUM
#undef STORE_QUAD
#undef LOADED_QUAD
#undef LOADS
#undef QUAD
#undef VECTOR
#undef TOTAL
#undef CHUNK
#undef PARTIAL
#undef WEIGHT
