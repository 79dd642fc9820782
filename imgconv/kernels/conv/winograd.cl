// Winograd's minimal filtering F(m, 3) along rows, in one dimension; m is WINOGRAD, 2 or 4.
//
// For a window of 3 columns, m outputs in a row take m + 2 multiply-adds instead of 3 m:
//
//     line of texels    [d0 d1 d2 d3]d4 d5 ...               a tile, m + 2 texels; the next starts m columns later
//     taps              [t0 t1 t2 t3]                        t = B d;  sums of taps: s += t * weights, w = G g
//     outputs           [y0 y1]                              y = A s
//
// The weights were transformed when they were packed (A. Lavin, S. Gray: Fast Algorithms for Convolutional Neural
// Networks, 2015). F(2, 3) interpolates at 0, 1, -1 and infinity; F(4, 3) at 0, +-sqrt(1/2), +-sqrt(2) and infinity,
// where |A| |B| |G| sums to half of its value for the usual +-1, +-2. If the absolute values of a row of G sum to more
// than 1, the row is halved and A is doubled there, so weights that fit in half still fit after the transformation.
//
// F(2, 3) computes an output only from the three texels of its window. F(4, 3) uses all six texels of the tile: the
// texels outside the window cancel except for rounding errors, and NaN and infinity spread over the tile. So F(4, 3) is
// used only for inputs with bounded values (Specialisation in kernels/conv/problem.py).

#pragma once
#include "kernels/conv/weights.cl"

// The texels d of a tile as taps t: B d.
inline void to_taps(float4 *t, const float4 *d) {
#if WINOGRAD == 2
  t[0] = d[0] - d[2];
  t[1] = d[1] + d[2];
  t[2] = d[2] - d[1];
  t[3] = d[1] - d[3];
#elif WINOGRAD == 4
  const float4 near = mad(d[2], (float4)(-2.0f), d[4]), near_odd = mad(d[1], (float4)(-2.0f), d[3]);
  const float4 far = mad(d[2], (float4)(-0.5f), d[4]), far_odd = mad(d[1], (float4)(-0.5f), d[3]);
  t[0] = mad(d[2], (float4)(-2.5f), d[0] + d[4]);
  t[1] = mad(near_odd, (float4)(0.70710678f), near);
  t[2] = mad(near_odd, (float4)(-0.70710678f), near);
  t[3] = mad(far_odd, (float4)(1.41421356f), far);
  t[4] = mad(far_odd, (float4)(-1.41421356f), far);
  t[5] = mad(d[3], (float4)(-2.5f), d[1] + d[5]);
#endif
}

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

// The sums s of a tile's taps as outputs of vector o, in place: A s.
inline void to_outputs(TOTAL (*s)[BLOCK_VECTORS], int o) {
#if WINOGRAD == 2
  const TOTAL even = s[1][o] + s[2][o], odd = s[1][o] - s[2][o];
  s[0][o] = mad((TOTAL)(2.0f), even, s[0][o]);
  s[1][o] = mad((TOTAL)(2.0f), odd, -s[3][o]);
#elif WINOGRAD == 4
  const TOTAL near = s[1][o] + s[2][o], near_odd = s[1][o] - s[2][o];
  const TOTAL far = s[3][o] + s[4][o], far_odd = s[3][o] - s[4][o];
  s[0][o] = mad((TOTAL)(2.0f), near, s[0][o] + far);
  s[1][o] = 1.41421356f * (near_odd + far_odd);
  s[2][o] = mad((TOTAL)(2.0f), far, near);
  s[3][o] = mad((TOTAL)(0.70710678f), near_odd, mad((TOTAL)(2.82842712f), far_odd, s[5][o]));
#endif
}
