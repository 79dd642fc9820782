// Winograd's minimal filtering F(2, 3) along rows, in one dimension, for conv_tiled.cl.
//
// For a window of 3 columns, 2 outputs in a row take 4 multiply-adds instead of 6:
//
//     line of texels    [d0 d1 d2 d3]d4 d5 ...               a tile, 4 texels; the next starts 2 columns later
//     taps              [t0 t1 t2 t3]                        t = B d;  sums of taps: s += t * weights, w = G g
//     outputs           [y0 y1]                              y = A s
//
// The weights were transformed when they were packed (A. Lavin, S. Gray: Fast Algorithms for Convolutional Neural
// Networks, 2015). The algorithm interpolates at 0, 1, -1 and infinity. If the absolute values of a row of G sum to
// more than 1, the row is halved and A is doubled there, so weights that fit in half still fit. An output is computed
// only from the three texels of its window. With larger tiles, NaN, infinity and the rounding of large values would
// spread.

#pragma once
#include "kernels/conv/weights.cl"

#if WINOGRAD
// The texels d of a tile as taps t: B d.
inline void to_taps(float4 *t, const float4 *d) {
  t[0] = d[0] - d[2];
  t[1] = d[1] + d[2];
  t[2] = d[2] - d[1];
  t[3] = d[1] - d[3];
}

// The sums s of a tile's taps as outputs of vector o, in place: A s.
inline void to_outputs(TOTAL (*s)[BLOCK_VECTORS], int o) {
  const TOTAL even = s[1][o] + s[2][o], odd = s[1][o] - s[2][o];
  s[0][o] = mad((TOTAL)(2.0f), even, s[0][o]);
  s[1][o] = mad((TOTAL)(2.0f), odd, -s[3][o]);
}
#endif

// What is kept of a line of texels, and where in it an output's texel for a tap is: the taps of tiles, or the texels.
#if WINOGRAD
#define TILE_LINE SUMS
#define TEXEL_AT(column, tap) SUM_AT(column, tap)
#else
#define TILE_LINE TILE_COLUMNS
#define TEXEL_AT(column, kx) COLUMN_AT(column, kx)
#endif
inline void keep_line(QUAD *kept, const QUAD *line) {
#if WINOGRAD
#pragma unroll
  for (int tile = 0; tile < TAP_COLUMNS; tile++) to_taps(kept + tile * TAPS, line + tile * WINOGRAD);
#else
#pragma unroll
  for (int n = 0; n < TILE_COLUMNS; n++) kept[n] = line[n];
#endif
}
