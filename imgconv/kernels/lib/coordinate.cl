// Coordinates of the input's texels: integers, or floats at texel centres, which a phone's GPU reads without
// conversion.
//
//     int      0       1       2              COORDINATE int,   TEXEL_CENTRE 0
//              [rgba]  [rgba]  [rgba]
//     float    0.5     1.5     2.5            COORDINATE float, TEXEL_CENTRE 0.5f

#pragma once
#include "kernels/lib/input.cl"

#ifndef COORDINATE
#define COORDINATE int                  // type of the input's coordinates
#endif
#ifndef TEXEL_CENTRE
#define TEXEL_CENTRE 0                  // 0.5f if coordinates are float
#endif

// Where a row of an image is in the input texture.
inline COORDINATE row_coordinate(int image, int row) { return texture_row(image, row) + TEXEL_CENTRE; }
