// Winograd's minimal filtering F(2x2, 3x3) in two dimensions: the launch before the products, or the one after them.
//
// A tile of 2x2 outputs of a 3x3 window takes 16 multiply-adds for each input channel instead of 36:
//
//     4x4 texels d          4x4 taps t           4x4 sums s           2x2 outputs y
//     [d00 d01 d02 d03]     [ 0  1  2  3]        [ 0  1  2  3]        [y00 y01]
//     [d10 d11 d12 d13]     [ 4  5  6  7]        [ 4  5  6  7]        [y10 y11]
//     [d20 d21 d22 d23]     [ 8  9 10 11]        [ 8  9 10 11]
//     [d30 d31 d32 d33]     [12 13 14 15]        [12 13 14 15]
//
//     this file, TO_OUTPUTS 0:       t = B d B'           the next tile begins 2 columns or rows later
//     conv.cl, 1x1, 16 groups:       s += t * weights     each tap has its own weights, w = G g G'
//     this file, TO_OUTPUTS 1:       y = A s A'           and the epilogue
//
// Taps and sums are tensors with a column and a row for each tile; the quads of one tap follow those of the previous
// one:
//
//     x = tile column * (16 * QUADS) + tap * QUADS + quad,  y = image * tile rows + tile row
//
// If this is too wide for an image, FOLDS rows of FOLD_COLUMNS tiles hold a row of tiles, one below the other.
//
// B = [1 0 -1 0; 0 1 1 0; 0 -1 1 0; 0 1 0 -1] / 2, A = [1 1 1 0; 0 1 -1 -1] * 2, and G is in template.py (A. Lavin, S.
// Gray: Fast Algorithms for Convolutional Neural Networks, 2015). The factor 2 is moved from B to A, so no tap is
// larger than the largest texel of its tile, and none overflows in half. An output is computed only from the texels of
// its own window, so NaN and infinity do not spread.
//
// Taps are stored in the input's type, sums in the output's. The arithmetic here is float: the launches wait for
// memory, so half would not be faster.
//
// The engine defines each name below (kernels/winograd/template.py). With the defaults this file compiles on its own.

#include "cl/common.cl"
#include "kernels/lib/coordinate.cl"
#include "kernels/lib/output.cl"

#ifndef TO_OUTPUTS
#define TO_OUTPUTS 0                    // 0: the input becomes taps, 1: sums become outputs
#endif
#ifndef TILE_COLUMNS
#define TILE_COLUMNS 28                 // tiles in a row of an image
#endif
#ifndef TILE_ROWS
#define TILE_ROWS 28                    // rows of tiles of an image
#endif
#ifndef FOLDS
#define FOLDS 1                         // rows of the texture of taps or sums for a row of tiles
#endif
#ifndef FOLD_COLUMNS
#define FOLD_COLUMNS 28                 // tiles in one of these rows
#endif
#ifndef QUADS
#define QUADS 16                        // quads of the input, or of the output
#endif
#ifndef GUARD
#define GUARD 0                         // 1: there are work items without a tile, which return
#endif

// Four texels in a row or in a column as taps: B d.
inline void to_taps(float4 *t, float4 d0, float4 d1, float4 d2, float4 d3) {
  t[0] = d0 - d2;
  t[1] = d1 + d2;
  t[2] = d2 - d1;
  t[3] = d1 - d3;
}

// Stores one of a tile's outputs, if the output has it. A macro, because EPILOGUE uses variables that EPILOGUE_LOADS
// defines.
#define STORE(y, x, sum)                                                                        \
  {                                                                                             \
    const int out_column = 2 * tile_column + (x), image_row = 2 * tile_row + (y);               \
    const int out_row = image * OUTPUT_HEIGHT + image_row;                                      \
    if (((x) == 0 || OUTPUT_WIDTH % 2 == 0 || out_column < OUTPUT_WIDTH) &&                     \
        ((y) == 0 || OUTPUT_HEIGHT % 2 == 0 || image_row < OUTPUT_HEIGHT))                      \
      write_texel(output, EPILOGUE(sum, out_column, out_row, quad), out_column, out_row, quad); \
  }
#define STORE_ROW(y)                                     \
  STORE(y, 0, 4.0f * (s[y][0] + s[y][1] + s[y][2]))      \
  STORE(y, 1, 4.0f * (s[y][1] - s[y][2] - s[y][3]))

// Global size: (tile columns, quads, N * tile rows), rounded up to whole work groups.
WORK_GROUP NOT_VECTORIZED __kernel void NAME(OUTPUT_IMAGE output, INPUT_IMAGE input EPILOGUE_PARAMETERS) {
  const INDEX tile_column = get_global_id(0), quad = get_global_id(1) * BLOCK_QUADS, row = get_global_id(2);
#if GUARD
  if (tile_column >= TILE_COLUMNS || quad >= QUADS || row >= BATCH * TILE_ROWS) return;
#endif
#if BATCH > 1
  const INDEX image = row / TILE_ROWS, tile_row = row % TILE_ROWS;
#else
  const INDEX image = 0, tile_row = row;
#endif
#if FOLDS > 1
  const INDEX fold_column = tile_column % FOLD_COLUMNS, fold_row = row * FOLDS + tile_column / FOLD_COLUMNS;
#else
  const INDEX fold_column = tile_column, fold_row = row;
#endif

#if TO_OUTPUTS
  const int first_x = fold_column * INPUT_PITCH + INPUT_OFFSET + INPUT_QUAD(quad);
  float4 s[2][4];
#pragma unroll
  for (int x = 0; x < 4; x++) {
    const float4 s0 = READ_INPUT(first_x + x * QUADS, fold_row);
    const float4 s1 = READ_INPUT(first_x + (4 + x) * QUADS, fold_row);
    const float4 s2 = READ_INPUT(first_x + (8 + x) * QUADS, fold_row);
    const float4 s3 = READ_INPUT(first_x + (12 + x) * QUADS, fold_row);
    s[0][x] = s0 + s1 + s2;
    s[1][x] = s1 - s2 - s3;
  }
  EPILOGUE_LOADS(quad)
  STORE_ROW(0)
  STORE_ROW(1)
#else
  const int start_y = 2 * tile_row - PAD_Y;
  const COORDINATE first_x = (2 * tile_column - PAD_X) * INPUT_PITCH + INPUT_OFFSET + INPUT_QUAD(quad) + TEXEL_CENTRE;
  float4 d[4][4];
#pragma unroll
  for (int y = 0; y < 4; y++) {
    const COORDINATE in_y = row_coordinate(image, start_y + y);
#pragma unroll
    for (int x = 0; x < 4; x++) d[y][x] = 0.25f * READ_INPUT(first_x + x * INPUT_PITCH, in_y);
  }
#pragma unroll
  for (int x = 0; x < 4; x++) {
    float4 t[4];
    to_taps(t, d[0][x], d[1][x], d[2][x], d[3][x]);
#pragma unroll
    for (int y = 0; y < 4; y++) d[y][x] = t[y];
  }
#pragma unroll
  for (int y = 0; y < 4; y++) {
    float4 t[4];
    to_taps(t, d[y][0], d[y][1], d[y][2], d[y][3]);
#pragma unroll
    for (int x = 0; x < 4; x++) write_texel(output, t[x], fold_column, fold_row, (4 * y + x) * QUADS + quad);
  }
#endif
}
