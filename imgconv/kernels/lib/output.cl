// The output of every hand-written kernel: a grid of texels, four channels each, stored after the epilogue.
//
//                column 0            column 1                x = column * OUTPUT_PITCH + OUTPUT_OFFSET + quad
//     row     quad 0  quad 1 ...  quad 0  quad 1 ...         y = image * OUTPUT_HEIGHT + row
//      0      [rgba]  [rgba]      [rgba]  [rgba]
//      1      [rgba]  [rgba]      [rgba]  [rgba]
//
// OUTPUT_PITCH > OUTPUT_QUADS if the tensor is a part of a wider one (a concatenation written in place). A work item
// computes several neighbouring texels at once, a block. PARTS work items of a work group may share the block's sums.

#pragma once
#include "cl/common.cl"

#ifndef NAME
#define NAME compiled_alone             // the kernel's name
#endif
#ifndef INDEX
#define INDEX short                     // type of sizes and positions: int if a short could overflow
#endif
#ifndef WORK_GROUP
#define WORK_GROUP                      // the attribute that fixes the work group's size, if it is fixed
#endif
#ifndef BLOCK_QUADS
#define BLOCK_QUADS 1                   // output quads of a work item
#endif
#ifndef OUTPUT_IMAGE
#define OUTPUT_IMAGE write_only image2d_t  // type of the output image
#endif
#ifndef WRITE_OUTPUT
#define WRITE_OUTPUT(x, y, texel) write_imagef(output, (int2)(x, y), texel)
#endif
#ifndef OUTPUT_PITCH
#define OUTPUT_PITCH 16                 // texels from one output column to the next
#endif
#ifndef OUTPUT_OFFSET
#define OUTPUT_OFFSET 0                 // first quad of the output inside a wider tensor
#endif
#ifndef OUTPUT_QUADS
#define OUTPUT_QUADS 16                 // quads of the output
#endif
#ifndef LAST_LANES
#define LAST_LANES 4                    // channels in the last output quad; lanes past them are stored as zero
#endif
#ifndef HALF_EPILOGUE
#define HALF_EPILOGUE 0                 // type of the epilogue: 1: half4 to half4, stored as it is; 0: float4 to float4
#endif
#ifndef EPILOGUE
#define EPILOGUE(sum, column, row, quad) (sum)  // elementwise work fused into the store
#endif
#ifndef EPILOGUE_LOADS
#define EPILOGUE_LOADS(quad) ;          // statements that load the epilogue's operands for an output quad
#endif
#ifndef EPILOGUE_PARAMETERS
#define EPILOGUE_PARAMETERS             // ", declaration" for each image that the epilogue reads
#endif

#if HALF_EPILOGUE
#define RESULT half4
#else
#define RESULT float4
#endif

// Writes a texel at a column and a row of the texture. Lanes past the last channel become zero.
inline void write_texel(OUTPUT_IMAGE output, RESULT texel, int column, int row, int quad) {
  // Ahead of the lanes: after them Mesa's Adreno code selects with more instructions.
  const int x = column * OUTPUT_PITCH + OUTPUT_OFFSET + quad;
#if LAST_LANES < 4
  if (quad == OUTPUT_QUADS - 1) texel = keep_lanes(texel, LAST_LANES);
#endif
  WRITE_OUTPUT(x, row, texel);
}
