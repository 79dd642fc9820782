// Winograd's minimal filtering in two dimensions: the launch before the products, or the one after them.
//
// With F(2x2, 3x3) a tile of 2x2 outputs of a 3x3 window takes 16 multiply-adds for each input channel instead of 36:
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
// With F(4x4, 3x3) a tile of 4x4 outputs takes 36 multiply-adds instead of 144: 6x6 texels, 6x6 taps, 6x6 sums.
//
// Taps and sums are tensors with a column and a row for each tile; the quads of one tap follow those of the previous
// one:
//
//     x = tile column * (TAPS * QUADS) + tap * QUADS + quad,  y = image * tile rows + tile row
//
// If this is too wide for an image, FOLDS rows of FOLD_COLUMNS tiles hold a row of tiles, one below the other.
//
// F(2, 3) interpolates at 0, 1, -1 and infinity: B = [1 0 -1 0; 0 1 1 0; 0 -1 1 0; 0 1 0 -1], A = [1 1 1 0; 0 1 -1 -1].
// F(4, 3) does at 0, 3/4, -3/4, 3/2, -3/2 and infinity. G is in taps.py (A. Lavin, S. Gray: Fast Algorithms for
// Convolutional Neural Networks, 2015). B is divided by ROOM in two dimensions and A multiplied by it, so no tap is
// larger than the largest texel of its tile, and none overflows in half.
//
// With F(2x2, 3x3) an output is computed only from the texels of its own window, so NaN and infinity do not spread. With
// F(4x4, 3x3) they reach every output of a tile that reads them, and large values round the others.
//
// Taps are stored in the input's type, sums in the output's. The arithmetic here is float: the launches wait for
// memory, so half would not be faster.
//
// The engine defines each name below (kernels/winograd/template.py). With the defaults this file compiles on its own.

#include "cl/common.cl"
#include "kernels/lib/branch.cl"
#include "kernels/lib/coordinate.cl"
#include "kernels/lib/output.cl"

#ifndef TO_OUTPUTS
#define TO_OUTPUTS 0                    // 0: the input becomes taps, 1: sums become outputs
#endif
#ifndef TILE
#define TILE 2                          // outputs of a tile in a row and in a column: 2 or 4
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

#define SIDE (TILE + 2)                 // texels, taps and sums of a tile in a row and in a column
#define TAPS (SIDE * SIDE)
#define ROOM (TILE == 2 ? 4.0f : 64.0f)

// Rows or columns of a tile. Not in loops: if compilers do not unroll them, they keep the tile in memory.
#if TILE == 2
#define EACH_OUTPUT(act) act(0) act(1)
#define EACH_TAP(act) act(0) act(1) act(2) act(3)
#else
#define EACH_OUTPUT(act) act(0) act(1) act(2) act(3)
#define EACH_TAP(act) act(0) act(1) act(2) act(3) act(4) act(5)
#endif

// SIDE texels in a row or in a column as taps: B d.
inline void to_taps(float4 *t, const float4 *d) {
#if TILE == 2
  t[0] = d[0] - d[2];
  t[1] = d[1] + d[2];
  t[2] = d[2] - d[1];
  t[3] = d[1] - d[3];
#else
  const float4 even = d[4] - 2.25f * d[2], odd = 0.75f * (d[3] - 2.25f * d[1]);
  const float4 far_even = d[4] - 0.5625f * d[2], far_odd = 1.5f * (d[3] - 0.5625f * d[1]);
  t[0] = 1.265625f * d[0] - 2.8125f * d[2] + d[4];
  t[1] = even + odd;
  t[2] = even - odd;
  t[3] = far_even + far_odd;
  t[4] = far_even - far_odd;
  t[5] = 1.265625f * d[1] - 2.8125f * d[3] + d[5];
#endif
}

// SIDE sums in a row or in a column as TILE outputs: A s.
inline void to_outputs(float4 *y, const float4 *s) {
#if TILE == 2
  y[0] = s[0] + s[1] + s[2];
  y[1] = s[1] - s[2] - s[3];
#else
  const float4 even = s[1] + s[2], odd = s[1] - s[2], far_even = s[3] + s[4], far_odd = s[3] - s[4];
  y[0] = (192.0f * s[0] - 128.0f * even + 32.0f * far_even) * (1.0f / 243.0f);
  y[1] = (16.0f * far_odd - 32.0f * odd) * (1.0f / 81.0f);
  y[2] = (far_even - even) * (8.0f / 27.0f);
  y[3] = (4.0f * far_odd - 2.0f * odd) * (1.0f / 9.0f) + s[5];
#endif
}

// Column x of the sums, as outputs.
#define SUMS_OF_COLUMN(x)                                                                        \
  {                                                                                              \
    float4 s[SIDE], y[TILE];                                                                     \
    _Pragma("unroll") for (int tap = 0; tap < SIDE; tap++)                                       \
      s[tap] = READ_INPUT(first_x + (SIDE * tap + (x)) * QUADS, fold_row);                       \
    to_outputs(y, s);                                                                            \
    _Pragma("unroll") for (int n = 0; n < TILE; n++) columns[n][x] = y[n];                       \
  }
// Stores row y of the outputs.
#define STORE_OUTPUTS(y)                                                                         \
  {                                                                                              \
    const int image_row = TILE * tile_row + (y), out_row = image * OUTPUT_HEIGHT + image_row;    \
    float4 outputs[TILE];                                                                        \
    to_outputs(outputs, columns[y]);                                                             \
    _Pragma("unroll") for (int x = 0; x < TILE; x++) {                                           \
      const int out_column = TILE * tile_column + x;                                             \
      if ((x == 0 || OUTPUT_WIDTH % TILE == 0 || out_column < OUTPUT_WIDTH) &&                   \
          ((y) == 0 || OUTPUT_HEIGHT % TILE == 0 || image_row < OUTPUT_HEIGHT))                  \
        write_texel(output, EPILOGUE(ROOM * outputs[x], out_column, out_row, quad), out_column, out_row, quad); \
    }                                                                                            \
  }
// Column x of the input, as taps. A tile takes up to 36 registers, so its columns are read one after another.
#define TAPS_OF_COLUMN(x)                                                                        \
  if ((x) == 0 || ALWAYS(x)) {                                                                   \
    float4 d[SIDE];                                                                              \
    _Pragma("unroll") for (int y = 0; y < SIDE; y++)                                             \
      d[y] = (1.0f / ROOM) * READ_INPUT(first_x + (x) * INPUT_PITCH, row_coordinate(image, start_y + y)); \
    to_taps(columns[x], d);                                                                      \
  }
// Stores row y of the taps.
#define STORE_TAPS(y)                                                                            \
  {                                                                                              \
    float4 d[SIDE], t[SIDE];                                                                     \
    _Pragma("unroll") for (int x = 0; x < SIDE; x++) d[x] = columns[x][y];                       \
    to_taps(t, d);                                                                               \
    _Pragma("unroll") for (int x = 0; x < SIDE; x++)                                             \
      write_texel(output, t[x], fold_column, fold_row, (SIDE * (y) + x) * QUADS + quad);         \
  }

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
  float4 columns[TILE][SIDE];
  EACH_TAP(SUMS_OF_COLUMN)
  EPILOGUE_LOADS(quad)
  EACH_OUTPUT(STORE_OUTPUTS)
#else
  const int start_y = TILE * tile_row - PAD_Y;
  const COORDINATE first_x = (TILE * tile_column - PAD_X) * INPUT_PITCH + INPUT_OFFSET + INPUT_QUAD(quad) + TEXEL_CENTRE;
  float4 columns[SIDE][SIDE];
  EACH_TAP(TAPS_OF_COLUMN)
  EACH_TAP(STORE_TAPS)
#endif
}
