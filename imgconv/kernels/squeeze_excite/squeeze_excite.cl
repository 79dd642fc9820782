// Squeeze-and-excitation in one launch: the sums of all channels, a product, and another product of its result.
//
//     input (N, C, H, W)  --sum over the map, epilogue-->   squeezed: C numbers    local memory, float
//     squeezed            --first product, epilogue-->      hidden: some numbers   local memory, float
//     hidden              --second product, epilogue-->     output: a row of texels for each image
//
// A work group computes the output of one image. Each of the three steps computes quads of sums. Its tasks are
// distributed among the ITEMS work items; PARTS tasks compute one quad, each a part of every sum of it:
//
//     task = part * quads + quad        the pooling:   part p adds rows p, p + PARTS ... of the map
//                                       a product:     part p adds input quads p, p + PARTS ...
//
// The parts are added in local memory. Both matrices are textures with a row for each input channel: x = output quad, y
// = k. Rows past the last channel are zero.
//
// Loops have the same number of iterations in all work items, because PoCL 3.1 otherwise loses iterations
// (docs/drivers.md).
//
// The engine defines each name below (kernels/squeeze_excite/template.py). With the defaults this file compiles on its
// own: 96 channels of 14x14, 24 hidden ones.

#include "kernels/lib/output.cl"

#ifndef ITEMS
#define ITEMS 128                       // work items of a group
#endif
#ifndef INPUT_IMAGE
#define INPUT_IMAGE read_only image2d_t  // type of the input image
#endif
#ifndef READ_INPUT
#define READ_INPUT(x, y) read_imagef(input, TEXEL, (int2)(x, y))  // a texel; zero outside of the grid
#endif
#ifndef INPUT_X
#define INPUT_X(image, quad, row, column) ((column) * INPUT_QUADS + (quad))  // where a texel of the map lies
#endif
#ifndef INPUT_Y
#define INPUT_Y(image, quad, row, column) ((image) * MAP_HEIGHT + (row))
#endif
#ifndef MAP_HEIGHT
#define MAP_HEIGHT 14                   // rows of the map; 1 if the input is squeezed already
#endif
#ifndef MAP_WIDTH
#define MAP_WIDTH 14                    // columns of the map
#endif
#ifndef INPUT_QUADS
#define INPUT_QUADS 24                  // quads of the input
#endif
#ifndef INPUT_LANES
#define INPUT_LANES 4                   // channels in the last of them
#endif
#ifndef HIDDEN_QUADS
#define HIDDEN_QUADS 6                  // quads of the first product
#endif
#ifndef HIDDEN_LANES
#define HIDDEN_LANES 4                  // numbers in the last of them
#endif
#ifndef POOL_PARTS
#define POOL_PARTS 5                    // work items that share a quad of the pooling
#endif
#ifndef FIRST_PARTS
#define FIRST_PARTS 21                  // the same of the first product
#endif
#ifndef SECOND_PARTS
#define SECOND_PARTS 5                  // the same of the second product
#endif
#ifndef FIRST_IMAGE
#define FIRST_IMAGE read_only image2d_t  // type of the first matrix
#endif
#ifndef READ_FIRST
#define READ_FIRST(x, y) read_imagef(first, TEXEL, (int2)(x, y))  // four columns of its row y
#endif
#ifndef SECOND_IMAGE
#define SECOND_IMAGE read_only image2d_t  // type of the second matrix
#endif
#ifndef READ_SECOND
#define READ_SECOND(x, y) read_imagef(second, TEXEL, (int2)(x, y))
#endif
#ifndef POOL_EPILOGUE
#define POOL_EPILOGUE(sum, column, row, quad) (sum)  // elementwise work on the sum of the map
#endif
#ifndef POOL_LOADS
#define POOL_LOADS(quad) ;              // statements that load its operands for a quad
#endif
#ifndef HIDDEN_EPILOGUE
#define HIDDEN_EPILOGUE(sum, column, row, quad) (sum)  // elementwise work between the products
#endif
#ifndef HIDDEN_LOADS
#define HIDDEN_LOADS(quad) ;            // statements that load its operands for a quad
#endif

// Iterations in which `items` work items complete `tasks`.
#define ROUNDS(tasks, items) (((tasks) + (items) - 1) / (items))
// Local memory for the parts of all sums of a step.
#define LARGER(a, b) ((a) > (b) ? (a) : (b))
#define PARTS_OF_PRODUCTS LARGER(HIDDEN_QUADS * FIRST_PARTS, OUTPUT_QUADS * SECOND_PARTS)
#define SHARED LARGER(INPUT_QUADS * POOL_PARTS, PARTS_OF_PRODUCTS)

// The parts of all sums of a product go into `shared`: input quads part, part + parts ... of a vector times the matrix.
#define MULTIPLY(vector, input_quads, read, quads, parts)                               \
  for (int round = 0; round < ROUNDS((quads) * (parts), ITEMS); round++) {              \
    const int task = round * ITEMS + item, quad = task % (quads), part = task / (quads);\
    if (part < (parts)) {                                                               \
      float4 sum = (float4)(0.0f);                                                      \
      for (int n = 0; n < ROUNDS(input_quads, parts); n++) {                            \
        const int inner = n * (parts) + part;                                           \
        if (inner < (input_quads)) {                                                    \
          const float4 left = vector[inner];                                            \
          sum = mad((float4)(left.x), read(quad, 4 * inner), sum);                      \
          sum = mad((float4)(left.y), read(quad, 4 * inner + 1), sum);                  \
          sum = mad((float4)(left.z), read(quad, 4 * inner + 2), sum);                  \
          sum = mad((float4)(left.w), read(quad, 4 * inner + 3), sum);                  \
        }                                                                               \
      }                                                                                 \
      shared[task] = sum;                                                               \
    }                                                                                   \
  }

// Adds up the parts of a quad's sum.
#define JOIN(sum, quad, quads, parts) \
  float4 sum = shared[quad];          \
  for (int part = 1; part < (parts); part++) sum += shared[part * (quads) + quad];

// A quad as the next product reads it: zero in the lanes past the last channel.
inline float4 kept(float4 texel, int quad, int quads, int lanes) {
  return lanes < 4 && quad == quads - 1 ? keep_lanes(texel, lanes) : texel;
}

// Global size: (ITEMS, N). Local size: (ITEMS, 1).
WORK_GROUP NOT_VECTORIZED __kernel void NAME(
    OUTPUT_IMAGE output, INPUT_IMAGE input, FIRST_IMAGE first, SECOND_IMAGE second EPILOGUE_PARAMETERS) {
  __local float4 squeezed[INPUT_QUADS], hidden[HIDDEN_QUADS], shared[SHARED];
  const INDEX item = get_local_id(0), image = get_global_id(1);

  for (int round = 0; round < ROUNDS(INPUT_QUADS * POOL_PARTS, ITEMS); round++) {
    const int task = round * ITEMS + item, quad = task % INPUT_QUADS, part = task / INPUT_QUADS;
    if (part < POOL_PARTS) {
      float4 sum = (float4)(0.0f);
      for (int n = 0; n < ROUNDS(MAP_HEIGHT, POOL_PARTS); n++) {
        const int row = n * POOL_PARTS + part;
        if (row < MAP_HEIGHT)
          for (int column = 0; column < MAP_WIDTH; column++)
            sum += READ_INPUT(INPUT_X(image, quad, row, column), INPUT_Y(image, quad, row, column));
      }
      shared[task] = sum;
    }
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int quad = item; quad < INPUT_QUADS; quad += ITEMS) {
    POOL_LOADS(quad)
    JOIN(sum, quad, INPUT_QUADS, POOL_PARTS)
    squeezed[quad] = kept(POOL_EPILOGUE(sum, 0, image, quad), quad, INPUT_QUADS, INPUT_LANES);
  }
  barrier(CLK_LOCAL_MEM_FENCE);

  MULTIPLY(squeezed, INPUT_QUADS, READ_FIRST, HIDDEN_QUADS, FIRST_PARTS)
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int quad = item; quad < HIDDEN_QUADS; quad += ITEMS) {
    HIDDEN_LOADS(quad)
    JOIN(sum, quad, HIDDEN_QUADS, FIRST_PARTS)
    hidden[quad] = kept(HIDDEN_EPILOGUE(sum, 0, image, quad), quad, HIDDEN_QUADS, HIDDEN_LANES);
  }
  barrier(CLK_LOCAL_MEM_FENCE);

  MULTIPLY(hidden, HIDDEN_QUADS, READ_SECOND, OUTPUT_QUADS, SECOND_PARTS)
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int quad = item * BLOCK_QUADS; quad < OUTPUT_QUADS; quad += ITEMS * BLOCK_QUADS) {
    EPILOGUE_LOADS(quad)
    JOIN(sum, quad, OUTPUT_QUADS, SECOND_PARTS)
    write_texel(output, EPILOGUE(sum, 0, image, quad), 0, image, quad);
  }
}
