// How conv.cl, depthwise.cl and separable.cl sum products, from the widest type to the narrowest:
//
//     neither         texels, weights and sums are float
//     HALF_QUADS > 0  texels and weights are half; chunks of products are summed in half, the chunks in float
//     HALF_SUMS       texels, weights and sums are half, from the first product to the last
//     INTEGERS        texels are the bytes of a quantised tensor, four in a uint, and so are weights; sums are int

#pragma once
#include "kernels/lib/output.cl"

#ifndef HALF_QUADS
#define HALF_QUADS 0                    // input quads of a chunk that is summed in half; 0: no chunks
#endif
#ifndef HALF_SUMS
#define HALF_SUMS 0                     // 1: sums are half, from the first product to the last
#endif

#ifndef INTEGERS
#define INTEGERS 0                      // 1: levels are summed in int
#endif

// QUAD: a texel or four weights. QUAD_SUM: four sums, which begin as floats and end as floats.
#if INTEGERS
#define QUAD uint
#elif HALF_QUADS || HALF_SUMS
#define QUAD half4
#define TO_QUAD(x) convert_half4(x)
#else
#define QUAD float4
#define TO_QUAD(x) (x)
#endif
#if INTEGERS
#define QUAD_SUM int4
#define FROM_FLOAT(x) convert_int4((float4)(x))
#define TO_FLOAT(x) convert_float4(x)
#elif HALF_SUMS
#define QUAD_SUM half4
#define FROM_FLOAT(x) convert_half4((float4)(x))
#define TO_FLOAT(x) convert_float4(x)
#else
#define QUAD_SUM float4
#define FROM_FLOAT(x) (x)
#define TO_FLOAT(x) (x)
#endif

// A sum in the epilogue's type.
#if HALF_EPILOGUE
#define FOR_EPILOGUE(sum) (sum)
#else
#define FOR_EPILOGUE(sum) TO_FLOAT(sum)
#endif
