// A window that moves over the input texture, for conv.cl, depthwise.cl and separable.cl.
//
// The windows of a block's columns overlap. A row of the texels that they read together is a line:
//
//     column 0        [kx 0] [kx 1] [kx 2]                         BLOCK_COLUMNS 2, STRIDE_X 1, WINDOW_WIDTH 3
//     column 1               [kx 0] [kx 1] [kx 2]
//     line            [  0 ] [  1 ] [  2 ] [  3 ]                  LINE 4, COLUMN_STEP input columns apart

#pragma once
#include "kernels/lib/input.cl"

#ifndef WINDOW_WIDTH
#define WINDOW_WIDTH 3                  // window columns, of one phase if transposed
#endif
#ifndef WINDOW_HEIGHT
#define WINDOW_HEIGHT 3                 // window rows, of one phase if transposed
#endif
#ifndef STRIDE_X
#define STRIDE_X 1                      // input columns from one output column to the next
#endif
#ifndef STRIDE_Y
#define STRIDE_Y 1                      // input rows from one output row to the next
#endif
#ifndef DILATION_X
#define DILATION_X 1                    // input columns from one window column to the next
#endif
#ifndef DILATION_Y
#define DILATION_Y 1                    // input rows from one window row to the next
#endif
#ifndef BLOCK_COLUMNS
#define BLOCK_COLUMNS 2                 // output columns of a work item
#endif
#ifndef COLUMN_STEP
#define COLUMN_STEP 1                   // input columns from one that is read to the next: divides stride and dilation
#endif

#define LINE (((BLOCK_COLUMNS - 1) * STRIDE_X + (WINDOW_WIDTH - 1) * DILATION_X) / COLUMN_STEP + 1)
#define LINE_AT(column, kx) (((column) * STRIDE_X + (kx) * DILATION_X) / COLUMN_STEP)
