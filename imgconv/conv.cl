// Convolution of an RGBA texture: dense, grouped or transposed, with any window, stride, dilation, padding and batch.
//
// A tensor (N, C, H, W) is a grid of texels, four channels each, C4 = ceil(C/4):
//
//                column 0            column 1                x = column * PITCH + OFFSET + quad
//     row     quad 0  quad 1 ...  quad 0  quad 1 ...         y = image * HEIGHT + row
//      0      [rgba]  [rgba]      [rgba]  [rgba]
//      1      [rgba]  [rgba]      [rgba]  [rgba]
//
// A work item computes BLOCK_COLUMNS x BLOCK_ROWS positions of BLOCK_QUADS output quads, PASSES times:
//
//     for each pass (the next quad block):
//       for each input quad, window row:
//         read input texels
//         for each window column (a step):
//           read 4 x BLOCK_QUADS weight texels
//           sum += lane * weights  for every position, lane and output quad
//
// The code is divided into these files, each with its constants:
//
//     kernels/lib/output.cl    the output and the epilogue       kernels/conv/weights.cl   weights, vectors, sums
//     kernels/lib/window.cl    the input and its window          kernels/conv/block.cl     the sums of a block
//     kernels/lib/operands.cl  texels that are read and kept     kernels/conv/parts.cl     sums that work items share
//     kernels/lib/store.cl     blocks of outputs
//
// On desktop GPUs, work groups may read from local memory instead: kernels/conv/conv_tiled.cl.
//
// Each read of weights, or of a row of texels, has one coordinate that is the same in all steps. It is computed before
// the loops. Sums are float; or half in chunks of HALF_QUADS input quads; or half (HALF_SUMS); or int: see
// kernels/lib/sums.cl.
//
// A transposed convolution with stride S is S*S ordinary ones, one for each phase (the output position modulo S), each
// with its own weights: output column = PHASES_X * column + phase. One launch computes all phases.
//
// The engine defines each name below (kernels/conv/text.py). With the defaults this file compiles on its own: a 3x3
// convolution, 64 input and 64 output channels, 56x56.

#include "cl/common.cl"
#include "kernels/conv/parts.cl"

#ifndef GROUP_QUADS
#define GROUP_QUADS 16                  // output quads of one of the convolution's groups
#endif
#ifndef PHASE_SHIFT_X
#define PHASE_SHIFT_X 0                 // a transposed convolution's own padding: moves the phases' starts
#endif
#ifndef PHASE_SHIFT_Y
#define PHASE_SHIFT_Y 0                 // the same along y
#endif
#ifndef ZERO_POINT
#define ZERO_POINT 0                    // 1: level 0 of the input is no zero, and the padding is another level
#endif
#ifndef PASSES
#define PASSES 1                        // quad blocks of one group that a work item computes one after another
#endif

#define PASS_BLOCKS ((QUAD_BLOCKS + PASSES - 1) / PASSES)

// Input quads of a run, and their sums.
#if HALF_QUADS
#define CHUNK HALF_QUADS
#define PARTIAL partial
#else
#define CHUNK 1
#define PARTIAL sum
#endif

// Whether some parts of a sum have more chunks than others, and a chunk needs a loop. All work items then do the same
// number of iterations: PoCL 3.1 adds a barrier to the inner loop, which the items of the shorter parts would not
// reach.
#define UNEVEN (INPUT_QUADS % (PARTS * CHUNK) != 0 && PARTS > 1 && CHUNK * STEPS_OF_QUAD > 1)

#if KEEP_INPUT
#define TILE tile[quad]
#else
#define TILE tile
#endif
// Reads a quad's texels for a window position.
#define READ_TILE(ky, kx) read_tile(TILE, input, quad_x, rows_y, image, start_y, ky, kx, factor);
#if ORDERED
#define WEIGHT(n) READ_WEIGHT(weight_block, step * WEIGHTS_OF_STEP + (n))
#else
#define WEIGHT(n) READ_WEIGHT(first_weights[n], step)
#endif

// Reads the tile of an input quad for a window position. x, start_y: where the window of the first output starts;
// rows_y: of the tile's rows, if they are made ahead.
inline void read_tile(
    QUAD (*tile)[TILE_COLUMNS], INPUT_IMAGE input, COORDINATE x, const COORDINATE *rows_y, int image,
    int start_y, int ky, int kx, QUAD factor) {
#pragma unroll
  for (int row = 0; row < TILE_ROWS; row++) {
    const COORDINATE y = ROWS_AHEAD ? rows_y[row] : row_coordinate(image, start_y + READ_ROW(row, ky));
    read_line(tile[row], input, x, y, kx, factor);
  }
}

// Adds to all sums the products with one channel of the texels: lane n, `channel`. Channel by channel few weights are
// held at a time. With sums in half, Mesa's Adreno code otherwise runs out of half registers.
#define ADD_CHANNEL(n, channel)                                                            \
  _Pragma("unroll") for (int o = 0; o < BLOCK_VECTORS; o++) {                              \
    const VECTOR weight = WEIGHT((n) * BLOCK_VECTORS + o);                                 \
    _Pragma("unroll") for (int row = 0; row < BLOCK_ROWS; row++)                           \
      _Pragma("unroll") for (int column = 0; column < BLOCK_COLUMNS; column++) {           \
        const QUAD texel = TILE[ROW_AT(row, ky)][COLUMN_AT(column, kx)];                   \
        sum[row][column][o] = mad((VECTOR)(texel.channel), weight, sum[row][column][o]);   \
      }                                                                                    \
  }
// The same with ORDERED: reads the weights of a 1x1 window for two channels at a time, those of a wider window for one
// column at a time.
#define ADD_IN_ORDER(n, channel) \
  if ((WINDOW_WIDTH == 1 ? (n) < 2 : kx == 0) || ALWAYS(kx)) { ADD_CHANNEL(n, channel) }

// Stores an item's part of a sum in local memory. n: the number of the sum among the TOGETHER sums stored at once.
#define PUT_PART(n, row, column, o) parts[n][item][own] = sum[row][column][o];
// Adds the parts of the sums first, first + 1 ... of a block; each item computes the outputs of some. puts: PUT_PARTs.
#define MEET(first, puts)                                                           \
  if ((first) > 0) barrier(CLK_LOCAL_MEM_FENCE);                                    \
  puts                                                                              \
  barrier(CLK_LOCAL_MEM_FENCE);                                                     \
  _Pragma("unroll") for (int round = 0; round < TOGETHER; round += PARTS) {         \
    const int n = round + part, number = (first) + n;                               \
    const bool together = round + PARTS <= TOGETHER || n < TOGETHER;                \
    const bool inside = (first) + round + PARTS <= BLOCK || number < BLOCK;         \
    if (((first) == 0 || ALWAYS(first)) && together && inside) {                    \
      const float4 total = total_of(parts[n][item], own);                           \
      LOADS(first_quad + QUAD_OF(number))                                           \
      STORE(ROW_OF(number), COLUMN_OF(number), first_quad + QUAD_OF(number), total) \
    }                                                                               \
  }

// Global size: (column blocks * PHASES_X, pass blocks * PARTS, N * row blocks * PHASES_Y).
WORK_GROUP NOT_VECTORIZED __kernel void NAME(PARAMETERS) {
  const INDEX item_x = get_global_id(0), item_z = get_global_id(2);
  const INDEX pass_block = get_global_id(1) / PARTS, part = get_local_id(1) % PARTS;
#if GUARD == 1
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
  const int item = (get_local_id(2) * WORK_GROUP_HEIGHT + get_local_id(1) / PARTS) * WORK_GROUP_WIDTH + get_local_id(0);
  __local QUAD_SUM parts[TOGETHER][WORK_GROUP_ITEMS][PARTS];
#endif
#if KEEP_INPUT
  QUAD tile[INPUT_QUADS][TILE_ROWS][TILE_COLUMNS];
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
    TOTAL sum[BLOCK_ROWS][BLOCK_COLUMNS][BLOCK_VECTORS];
    START_SUMS
    // Work items without outputs read the last block's weights: no read is outside of their image.
    const INDEX own_block = GUARD < 2 ? quad_block : min(quad_block, (INDEX)(QUAD_BLOCKS - 1));
    const INDEX weight_block = (phase_y * PHASES_X + phase_x) * QUAD_BLOCKS + own_block;
#if !ORDERED
    int first_weights[WEIGHTS_OF_STEP];
#pragma unroll
    for (int n = 0; n < WEIGHTS_OF_STEP; n++) first_weights[n] = FIRST_WEIGHT(weight_block, n);
#endif
#if ZERO_POINT
    const int step = INPUT_QUADS * STEPS_OF_QUAD;
    FOR_EACH(BLOCK_COLUMNS) sum[row][column][o] = part == 0 ? as_int4(WEIGHT(o)) : (int4)(0);
#endif
#if GROUP_QUADS == OUTPUT_QUADS
    const INDEX group_offset = INPUT_OFFSET;
#else
    const INDEX group_offset = INPUT_OFFSET + first_quad / GROUP_QUADS * INPUT_QUADS;
#endif
    const COORDINATE first_x = start_x * INPUT_PITCH + group_offset + TEXEL_CENTRE;
    COORDINATE rows_y[TILE_ROWS];
#if ROWS_AHEAD
#pragma unroll
    for (int row = 0; row < TILE_ROWS; row++) rows_y[row] = row_coordinate(image, start_y + READ_ROW(row, 0));
#endif
#if UNEVEN
    for (int round = 0; round < INPUT_QUADS; round += PARTS * CHUNK) {
      const int chunk = round + part * CHUNK;
      if (chunk >= INPUT_QUADS) break;
#else
    for (int chunk = part * CHUNK; chunk < INPUT_QUADS; chunk += PARTS * CHUNK) {
#endif
#if HALF_QUADS
      VECTOR partial[BLOCK_ROWS][BLOCK_COLUMNS][BLOCK_VECTORS];
      FOR_EACH(BLOCK_COLUMNS) partial[row][column][o] = (VECTOR)(0.0h);
#endif
#if HALF_QUADS > 1
#pragma nounroll
#endif
      for (int n = 0; n < CHUNK; n++) {
        const int quad = chunk + n;
        const COORDINATE quad_x = first_x + INPUT_QUAD(quad);
        const QUAD factor = READ_FACTORS(image, quad);
        int step = quad * STEPS_OF_QUAD;
#if !KEEP_INPUT
        QUAD tile[TILE_ROWS][TILE_COLUMNS];
#endif
#if KEEP_WINDOW || KEEP_INPUT
        if (pass == 0) READ_TILE(0, 0)
#endif
#if KEEP_WINDOW
#pragma unroll
#endif
        for (int ky = 0; ky < WINDOW_HEIGHT; ky++) {
#if KEEP_LINE
          READ_TILE(ky, 0)
#endif
#if KEEP_LINE || KEEP_WINDOW
#pragma unroll
#endif
          for (int kx = 0; kx < WINDOW_WIDTH; kx++) {
#if KEEP_TEXEL
            READ_TILE(ky, kx)
#endif
#if ORDERED
            EACH_LANE(ADD_IN_ORDER)
#elif HALF_SUMS
            EACH_LANE(ADD_CHANNEL)
#else
            ADD_STEP(PARTIAL)
#endif
            step++;
          }
        }
      }
#if HALF_QUADS
      FOR_EACH(BLOCK_COLUMNS) sum[row][column][o] += convert_float4(partial[row][column][o]);
#endif
    }

#if PARTS > 1
    const int own = place_of_part(part, item);
    EACH_MEETING(MEET, PUT_PART)
#elif VECTOR_QUADS > 1
    TOTAL made[BLOCK_ROWS * BLOCK_COLUMNS * BLOCK_VECTORS];
    FOR_EACH(BLOCK_COLUMNS)
      made[(row * BLOCK_COLUMNS + column) * BLOCK_VECTORS + o] = sum[row][column][o];
    for (int o = 0; o < BLOCK_QUADS; o++) {
      LOADS(first_quad + o)
      for (int row = 0; row < BLOCK_ROWS; row++)
        for (int column = 0; column < BLOCK_COLUMNS; column++)
          STORE(row, column, first_quad + o, ((const float4 *)made)[NUMBER_OF(row, column, o)])
    }
#else
    EACH_QUAD(STORE_QUAD)
#endif
  }
}
