// Matrix product of RGBA textures: A (M x K) times B (K x N), in batches; also a vector times a matrix.
//
//     A: four of k to a texel         B: four of n to a texel         output: four of n to a texel
//         [a00 a01 a02 a03] ...           [b00 b01 b02 b03] ...           [c00 c01 c02 c03] ...
//         [a10 a11 a12 a13] ...           [b10 b11 b12 b13] ...           [c10 c11 c12 c13] ...
//
// A work item computes BLOCK_ROWS rows of BLOCK_QUADS quads of the output, from the k quads part, part + PARTS, ... If
// the output is too small to occupy the device (mostly if M = 1), PARTS items of a work group share a sum and add their
// parts in local memory. With TILE_DEPTH, work groups also read their inputs through tiles in local memory:
// kernels/matmul/tiles.cl.
//
// A_X, A_Y, B_X and B_Y define the positions of the texels of A and B. So transposed, sliced, broadcast and batched
// operands need no copy, as long as four of k (of n) share a texel.
//
// The engine defines each name below (kernels/matmul/template.py). With the defaults this file compiles on its own: a
// vector of 1024 times a matrix of 1024 x 64.

#include "cl/common.cl"
#include "kernels/lib/output.cl"
#include "kernels/matmul/tiles.cl"

#define ROW_BLOCKS ((ROWS + BLOCK_ROWS - 1) / BLOCK_ROWS)

// To a sum, four of k times a texel of B for each.
inline float4 add_products(float4 sum, float4 left, float4 right_x, float4 right_y, float4 right_z, float4 right_w) {
  sum = mad((float4)(left.x), right_x, sum);
  sum = mad((float4)(left.y), right_y, sum);
  sum = mad((float4)(left.z), right_z, sum);
  return mad((float4)(left.w), right_w, sum);
}

// Stores a sum, if there is such an output. A macro, because EPILOGUE uses variables that EPILOGUE_LOADS defines.
#define STORE(row, quad, sum)                                                      \
  {                                                                                \
    const int out_quad = (quad), out_row = batch * ROWS + (row);                   \
    if ((row) < ROWS && out_quad < OUTPUT_QUADS) {                                 \
      EPILOGUE_LOADS(out_quad)                                                     \
      write_texel(output, EPILOGUE(sum, 0, out_row, out_quad), 0, out_row, out_quad); \
    }                                                                              \
  }

#if TILE_DEPTH
// Global size: (quad tiles * work group, 1, batch * row tiles).
WORK_GROUP NOT_VECTORIZED __kernel void NAME(
    OUTPUT_IMAGE output, A_IMAGE a, B_IMAGE b EPILOGUE_PARAMETERS) {
  const int part = get_local_id(0) / PART_ITEMS, item = get_local_id(0) % PART_ITEMS;
  const int tile_quad = get_group_id(0) * TILE_QUADS, tile_row = get_group_id(2) % ROW_TILES * TILE_ROWS;
  const int batch = get_group_id(2) / ROW_TILES;
  const int own_row = item / WORK_GROUP_COLUMNS * BLOCK_ROWS, own_quad = item % WORK_GROUP_COLUMNS;
  __local float4 texels[LOCAL_TEXELS];
  __local float4 *left = texels + part * (ALL_LEFT + ALL_RIGHT), *right = left + ALL_LEFT;

  float4 sum[BLOCK_ROWS][BLOCK_QUADS], fetched_left[TURNS(ALL_LEFT)], fetched_right[TURNS(ALL_RIGHT)];
#pragma unroll
  for (int r = 0; r < BLOCK_ROWS; r++)
#pragma unroll
    for (int o = 0; o < BLOCK_QUADS; o++) sum[r][o] = (float4)(0.0f);

  fetch_left(fetched_left, a, item, batch, tile_row, part * TILE_DEPTH);
  fetch_right(fetched_right, b, item, batch, tile_quad, part * TILE_DEPTH);
  for (int first = 0; first < INNER_QUADS; first += PARTS * TILE_DEPTH) {
    barrier(CLK_LOCAL_MEM_FENCE);
    put_left(left, fetched_left, item);
    put_right(right, fetched_right, item);
    barrier(CLK_LOCAL_MEM_FENCE);
    const int next = first + (PARTS + part) * TILE_DEPTH;
    if (first + PARTS * TILE_DEPTH < INNER_QUADS) {
      fetch_left(fetched_left, a, item, batch, tile_row, next);
      fetch_right(fetched_right, b, item, batch, tile_quad, next);
    }
#pragma unroll
    for (int k = 0; k < TILE_DEPTH; k++) {
      float4 rows[BLOCK_ROWS];
#pragma unroll
      for (int r = 0; r < BLOCK_ROWS; r++) rows[r] = left[k * TILE_ROWS + own_row + r];
#pragma unroll
      for (int o = 0; o < BLOCK_QUADS; o++) {
        __local const float4 *columns = right + k * 4 * TILE_QUADS + own_quad + o * WORK_GROUP_COLUMNS;
        const float4 right_x = columns[0], right_y = columns[TILE_QUADS];
        const float4 right_z = columns[2 * TILE_QUADS], right_w = columns[3 * TILE_QUADS];
#pragma unroll
        for (int r = 0; r < BLOCK_ROWS; r++)
          sum[r][o] = add_products(sum[r][o], rows[r], right_x, right_y, right_z, right_w);
      }
    }
  }

#if PARTS > 1
  barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
  for (int r = 0; r < BLOCK_ROWS; r++)
#pragma unroll
    for (int o = 0; o < BLOCK_QUADS; o++)
      texels[((r * BLOCK_QUADS + o) * PARTS + part) * PART_ITEMS + item] = sum[r][o];
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int number = part; number < BLOCK; number += PARTS) {
    float4 total = texels[number * PARTS * PART_ITEMS + item];
    for (int other = 1; other < PARTS; other++) total += texels[(number * PARTS + other) * PART_ITEMS + item];
    STORE(tile_row + own_row + number / BLOCK_QUADS,
          tile_quad + own_quad + number % BLOCK_QUADS * WORK_GROUP_COLUMNS, total)
  }
#else
#pragma unroll
  for (int r = 0; r < BLOCK_ROWS; r++)
#pragma unroll
    for (int o = 0; o < BLOCK_QUADS; o++)
      STORE(tile_row + own_row + r, tile_quad + own_quad + o * WORK_GROUP_COLUMNS, sum[r][o])
#endif
}
#else
// Global size: (quad blocks, PARTS, batch * row blocks), rounded up to whole work groups.
WORK_GROUP NOT_VECTORIZED __kernel void NAME(
    OUTPUT_IMAGE output, A_IMAGE a, B_IMAGE b EPILOGUE_PARAMETERS) {
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
      for (int r = 0; r < BLOCK_ROWS; r++)
        sum[r][o] = add_products(sum[r][o], left[r], right[0], right[1], right[2], right[3]);
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
    for (int o = 0; o < BLOCK_QUADS; o++) STORE(first_row + r, first_quad + o, sum[r][o])
}
#endif
