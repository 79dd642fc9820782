// A recurrent layer, all its steps in one launch: states that depend on the previous states, as in RNN, GRU and LSTM.
//
//     step, direction     a work group keeps the states of one element of the batch in local memory
//
//     states    h [ quad 0 | quad 1 | ... ]    times the weights    sums    gate 0 [ quad 0 | quad 1 | ... ]
//               c [ quad 0 | quad 1 | ... ]    ----------------->           gate 1 [ quad 0 | quad 1 | ... ] ...
//
//     sums, x of the step, states    NEXT_STATES    states after the step, written to the output
//
//     weights   x = gate * OUTPUT_QUADS + quad, y = direction * WEIGHT_ROWS + k: four columns of row k
//     output    x = direction * OUTPUT_QUADS + quad, y = (state * STEPS + step) * BATCH + element
//
// The work items of the group multiply the state h, then compute the states after the step. If INNER, the last gate
// multiplies INNER_STATE instead of h, which needs the sums of the other gates: GRU's reset gate does this.

#include "kernels/lib/output.cl"

#ifndef STEPS
#define STEPS 80                        // steps of the sequence
#endif
#ifndef BATCH
#define BATCH 1                         // elements of the batch
#endif
#ifndef REVERSED
#define REVERSED(direction) ((direction) == 1)  // whether a direction goes from the last step to the first
#endif
#ifndef GATES
#define GATES 1                         // columns of the weights, in units of a state's size
#endif
#ifndef STATES
#define STATES 1                        // states of a layer; the first one is multiplied
#endif
#ifndef INNER
#define INNER 0                         // 1: the last gate multiplies INNER_STATE
#endif
#ifndef ITEMS
#define ITEMS 64                        // work items of a group
#endif
#ifndef WEIGHT_ROWS
#define WEIGHT_ROWS (4 * OUTPUT_QUADS)  // rows of a direction; if there are fewer than these, the others are zero
#endif
#ifndef WEIGHTS_IMAGE
#define WEIGHTS_IMAGE read_only image2d_t  // type of the image of the weights
#endif
#ifndef READ_WEIGHTS
#define READ_WEIGHTS(x, y) read_imagef(weights, TEXEL, (int2)(x, y))
#endif
#ifndef STEP_PARAMETERS
#define STEP_PARAMETERS , read_only image2d_t given  // ", declaration" for each image that the three below read
#endif
// Statements that write the states of a quad to `after`; `states` and `sums` have a state or a gate after the other.
#ifndef FIRST_STATES
#define FIRST_STATES(after, batch, direction, quad) (after)[0] = (float4)(0.0f)
#endif
#ifndef INNER_STATE
#define INNER_STATE(after, step, batch, direction, quad) (after)[0] = states[quad] * sums[quad]
#endif
#ifndef NEXT_STATES
#define NEXT_STATES(after, step, batch, direction, quad) (after)[0] = tanh(sums[quad])
#endif

// The sums of all gates, and of the gates that multiply the first state.
#define SUM_QUADS (GATES * OUTPUT_QUADS)
#define FIRST_SUMS (SUM_QUADS - INNER * OUTPUT_QUADS)
#if ITEMS > 1
#define WAIT barrier(CLK_LOCAL_MEM_FENCE);
#else
#define WAIT
#endif

#if WEIGHT_ROWS < 4 * OUTPUT_QUADS
#define ROW(k) ((k) < WEIGHT_ROWS ? READ_WEIGHTS(column, first_row + (k)) : (float4)(0.0f))
#else
#define ROW(k) READ_WEIGHTS(column, first_row + (k))
#endif

// A block of the sums before `end`, from `first` on: of a state times the weights.
inline void multiply(
    __local float4 *sums, __local const float4 *state, WEIGHTS_IMAGE weights, int direction, int first, int end) {
  const INDEX first_row = direction * WEIGHT_ROWS;
  float4 sum[BLOCK_QUADS];
#pragma unroll
  for (int o = 0; o < BLOCK_QUADS; o++) sum[o] = (float4)(0.0f);
  for (int k = 0; k < OUTPUT_QUADS; k++) {
    const float4 left = state[k];
#pragma unroll
    for (int o = 0; o < BLOCK_QUADS; o++) {
      const INDEX column = BLOCK_QUADS > 1 ? min(first + o, end - 1) : first;
      sum[o] = mad((float4)(left.x), ROW(4 * k), sum[o]);
      sum[o] = mad((float4)(left.y), ROW(4 * k + 1), sum[o]);
      sum[o] = mad((float4)(left.z), ROW(4 * k + 2), sum[o]);
      sum[o] = mad((float4)(left.w), ROW(4 * k + 3), sum[o]);
    }
  }
#pragma unroll
  for (int o = 0; o < BLOCK_QUADS; o++)
    if (first + o < end) sums[first + o] = sum[o];
}

// Lanes past the last element of a state stay zero: the weights have no rows for them.
inline float4 kept(float4 state, int quad) {
  return LAST_LANES < 4 && quad == OUTPUT_QUADS - 1 ? keep_lanes(state, LAST_LANES) : state;
}

// Global size: (ITEMS, BATCH, directions). Local size: (ITEMS, 1, 1).
WORK_GROUP NOT_VECTORIZED __kernel void NAME(
    OUTPUT_IMAGE output, WEIGHTS_IMAGE weights STEP_PARAMETERS EPILOGUE_PARAMETERS) {
  const int item = get_local_id(0), batch = get_global_id(1), direction = get_global_id(2);
  __local float4 states[STATES * OUTPUT_QUADS], sums[SUM_QUADS];
#if INNER
  __local float4 inner[OUTPUT_QUADS];
#endif

  for (int quad = item; quad < OUTPUT_QUADS; quad += ITEMS) {
    float4 after[STATES];
    FIRST_STATES(after, batch, direction, quad);
    for (int s = 0; s < STATES; s++) states[s * OUTPUT_QUADS + quad] = kept(after[s], quad);
  }
  WAIT
  for (int number = 0; number < STEPS; number++) {
    const int step = REVERSED(direction) ? STEPS - 1 - number : number;
    for (int quad = item * BLOCK_QUADS; quad < FIRST_SUMS; quad += ITEMS * BLOCK_QUADS)
      multiply(sums, states, weights, direction, quad, FIRST_SUMS);
    WAIT
#if INNER
    for (int quad = item; quad < OUTPUT_QUADS; quad += ITEMS) {
      float4 after[1];
      INNER_STATE(after, step, batch, direction, quad);
      inner[quad] = kept(after[0], quad);
    }
    WAIT
    for (int quad = item * BLOCK_QUADS; quad < OUTPUT_QUADS; quad += ITEMS * BLOCK_QUADS)
      multiply(sums, inner, weights, direction, FIRST_SUMS + quad, SUM_QUADS);
    WAIT
#endif
    for (int quad = item; quad < OUTPUT_QUADS; quad += ITEMS) {
      float4 after[STATES];
      NEXT_STATES(after, step, batch, direction, quad);
      EPILOGUE_LOADS(quad)
      for (int s = 0; s < STATES; s++) {
        const int row = (s * STEPS + step) * BATCH + batch;
        states[s * OUTPUT_QUADS + quad] = kept(after[s], quad);
        write_texel(output, EPILOGUE(after[s], direction, row, quad), direction, row, quad);
      }
    }
    WAIT
  }
}
