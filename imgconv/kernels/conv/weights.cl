// Weights of conv.cl, packed for blocks of output quads, and the vectors in which they are multiplied.
//
// Weights of a quad block, in an image, or in a buffer in the order of reading, [step][n]:
//
//                 step 0    step 1   ...                     step = (quad * WINDOW_HEIGHT + ky) * WINDOW_WIDTH + kx
//     n = 0     [4 outputs] [rgba]                           n = input lane * BLOCK_QUADS + output quad
//     n = 1     [rgba]      [rgba]
//
// ORDERED: a row of the image holds the texels of a block in the order of reading, [step][n].
//
// INTEGERS: each number of a texel holds the weights of four input lanes, and n is the output quad. If there is a
// ZERO_POINT, one more step holds the start values of the sums.
//
// A block has BLOCK_ROWS rows of BLOCK_COLUMNS columns of BLOCK_VECTORS vectors of sums.

#pragma once
#include "kernels/lib/store.cl"

#ifndef INPUT_QUADS
#define INPUT_QUADS 16                  // input quads that one output depends on (the quads of one group)
#endif
#ifndef VECTOR_QUADS
#define VECTOR_QUADS 1                  // output quads that one vector holds: 1 or 4
#endif

// VECTOR: weights, and sums of a run of input quads. TOTAL: the sums over all of them.
#define BLOCK_VECTORS (BLOCK_QUADS / VECTOR_QUADS)
#if VECTOR_QUADS == 4
#define VECTOR float16
#define TOTAL float16
#elif INTEGERS
#define VECTOR uint4
#define TOTAL QUAD_SUM
#else
#define VECTOR QUAD
#define TOTAL QUAD_SUM
#endif

// Weights, in vectors, of a step and of an input quad, and where weight n of a block begins.
#if INTEGERS
#define WEIGHTS_OF_STEP BLOCK_VECTORS
#else
#define WEIGHTS_OF_STEP (4 * BLOCK_VECTORS)
#endif
#define STEPS_OF_QUAD (WINDOW_HEIGHT * WINDOW_WIDTH)
#define WEIGHTS_OF_QUAD (STEPS_OF_QUAD * WEIGHTS_OF_STEP)
#if WEIGHTS_IN_IMAGE
#define FIRST_WEIGHT(block, n) ((block) * WEIGHTS_OF_STEP + (n))
#else
#define FIRST_WEIGHT(block, n) ((block) * (INPUT_QUADS * WEIGHTS_OF_QUAD) + (n))
#endif
