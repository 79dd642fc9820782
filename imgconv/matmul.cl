// Matrix product of RGBA textures: A (M x K) times B (K x N), in batches; also a vector times a matrix.
//
//     A: four of k to a texel         B: four of n to a texel         output: four of n to a texel
//         [a00 a01 a02 a03] ...           [b00 b01 b02 b03] ...           [c00 c01 c02 c03] ...
//         [a10 a11 a12 a13] ...           [b10 b11 b12 b13] ...           [c10 c11 c12 c13] ...
//
// A work item makes BLOCK_ROWS rows of BLOCK_QUADS quads of the output, from the k quads  part, part + PARTS, ...
// Where the output is too small to fill the device (M = 1 above all), PARTS items of a work group share the sum and add
// their parts in local memory.
//
// Where a texel of A and B lies is given by A_X, A_Y, B_X and B_Y, so that transposed, sliced, broadcast and batched
// operands need no copy as long as four of k (of n) share a texel.
//
// Each name below is defined by the engine (imgconv/kernels/matmul.py); the defaults make this file compile alone: a
// vector of 1024 times a matrix of 1024 x 64.

#include "cl/common.cl"
#include "kernels/output.cl"

#ifndef ROWS
#define ROWS 1                          // M
#endif
#ifndef INNER
#define INNER 1024                      // K
#endif
#ifndef BLOCK_ROWS
#define BLOCK_ROWS 1                    // output rows of a work item
#endif
#ifndef PARTS
#define PARTS 32                        // work items that share a sum
#endif
#ifndef WORK_GROUP_COLUMNS
#define WORK_GROUP_COLUMNS 4            // work items of a work group along the output's quads, if PARTS > 1
#endif
#ifndef CHECK_INNER
#define CHECK_INNER 0                   // 1: K is not a multiple of four, and what lies below row K of B is not zero
#endif
#ifndef A_IMAGE
#define A_IMAGE image2d_t               // type of A
#endif
#ifndef READ_A
#define READ_A(x, y) read_imagef(a, TEXEL, (int2)(x, y))
#endif
#ifndef A_X
#define A_X(batch, row, quad) (quad)    // texel x of A
#endif
#ifndef A_Y
#define A_Y(batch, row, quad) (row)     // texel y of A
#endif
#ifndef B_IMAGE
#define B_IMAGE image2d_t               // type of B
#endif
#ifndef READ_B
#define READ_B(x, y) read_imagef(b, TEXEL, (int2)(x, y))
#endif
#ifndef B_X
#define B_X(batch, inner, quad) (quad)  // texel x of B
#endif
#ifndef B_Y
#define B_Y(batch, inner, quad) (inner)  // texel y of B
#endif

#define ROW_BLOCKS ((ROWS + BLOCK_ROWS - 1) / BLOCK_ROWS)
#define INNER_QUADS ((INNER + 3) / 4)

// Global size: (quad blocks, PARTS, batch * row blocks), rounded up to whole work groups.
WORK_GROUP __kernel void NAME(
    write_only OUTPUT_IMAGE output, read_only A_IMAGE a, read_only B_IMAGE b EPILOGUE_PARAMETERS) {
  const INDEX first_quad = get_global_id(0) * BLOCK_QUADS, part = get_local_id(1);
  const INDEX batch = get_global_id(2) / ROW_BLOCKS, first_row = get_global_id(2) % ROW_BLOCKS * BLOCK_ROWS;

  float4 sum[BLOCK_ROWS][BLOCK_QUADS];
#pragma unroll
  for (int r = 0; r < BLOCK_ROWS; r++)
#pragma unroll
    for (int o = 0; o < BLOCK_QUADS; o++) sum[r][o] = (float4)(0.0f);

  for (INDEX quad = part; quad < INNER_QUADS; quad += PARTS) {
    float4 left[BLOCK_ROWS];
#pragma unroll
    for (int r = 0; r < BLOCK_ROWS; r++) {
      const int row = min(first_row + r, ROWS - 1);
      left[r] = READ_A(A_X(batch, row, quad), A_Y(batch, row, quad));
    }
#pragma unroll
    for (int o = 0; o < BLOCK_QUADS; o++) {
      const int column = min(first_quad + o, OUTPUT_QUADS - 1);
      float4 right[4];
#pragma unroll
      for (int lane = 0; lane < 4; lane++) {
        const int inner = quad * 4 + lane;
#if CHECK_INNER
        right[lane] = inner < INNER ? READ_B(B_X(batch, inner, column), B_Y(batch, inner, column)) : (float4)(0.0f);
#else
        right[lane] = READ_B(B_X(batch, inner, column), B_Y(batch, inner, column));
#endif
      }
#pragma unroll
      for (int r = 0; r < BLOCK_ROWS; r++) {
        float4 total = sum[r][o];
        total = mad((float4)(left[r].x), right[0], total);
        total = mad((float4)(left[r].y), right[1], total);
        total = mad((float4)(left[r].z), right[2], total);
        sum[r][o] = mad((float4)(left[r].w), right[3], total);
      }
    }
  }

#if PARTS > 1
  __local float4 parts[PARTS][WORK_GROUP_COLUMNS][BLOCK_ROWS * BLOCK_QUADS];
  const int item = get_local_id(0);
  for (int r = 0; r < BLOCK_ROWS; r++)
    for (int o = 0; o < BLOCK_QUADS; o++) parts[part][item][r * BLOCK_QUADS + o] = sum[r][o];
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int half_way = PARTS / 2; half_way > 0; half_way /= 2) {
    if (part < half_way)
      for (int r = 0; r < BLOCK_ROWS * BLOCK_QUADS; r++) parts[part][item][r] += parts[part + half_way][item][r];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (part != 0) return;
  for (int r = 0; r < BLOCK_ROWS; r++)
    for (int o = 0; o < BLOCK_QUADS; o++) sum[r][o] = parts[0][item][r * BLOCK_QUADS + o];
#endif

#pragma unroll
  for (int r = 0; r < BLOCK_ROWS; r++)
#pragma unroll
    for (int o = 0; o < BLOCK_QUADS; o++) {
      const int out_quad = first_quad + o;
      if (first_row + r < ROWS && out_quad < OUTPUT_QUADS) {
        const int out_row = batch * ROWS + first_row + r;
        EPILOGUE_LOADS(out_quad)
        write_texel(output, EPILOGUE(sum[r][o], 0, out_row, out_quad), 0, out_row, out_quad);
      }
    }
}
