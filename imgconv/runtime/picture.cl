// Converts a picture of any size to a model's input: resizes it, converts its channels, normalises. The arguments of
// the two launches are the same for all pictures, because the sizes are in the header of `packed`, which
// preprocessing/pixels.py makes:
//
//     packed    [header | row starts | row weights | column starts | column weights | R G B R G B ... 16 bytes more]
//                numbers of 4 bytes, int or float ------------------------------->| bytes, rows without gaps
//     middle    [R G B R G B ...      ]  floats; a row for each row of the result, as wide as the picture
//     result    floats, at steps for channel, row and column
//
// A row of the result is the sum of `taps` rows of the picture, from its start on, multiplied by their weights. Columns
// are computed in the same way. The weights of tap t of all rows are consecutive, so neighbouring items read
// neighbouring weights.

// Indices of the header's numbers.
#define WIDTH 0            // of the picture, in pixels
#define INNER_WIDTH 1      // of the part of the result that the picture fills, from the top left
#define INNER_HEIGHT 2
#define ROW_TAPS 3
#define COLUMN_TAPS 4
#define ROWS 5             // index of the first row start; the weights follow the starts
#define COLUMNS 6          // index of the first column start
#define PIXELS 7           // index of the first pixel, in numbers of 4 bytes
#define CHANNELS 8         // of the result: 1 or 3
#define CHANNEL_STEP 9     // in the result
#define ROW_STEP 10
#define COLUMN_STEP 11
#define PAD 12             // a float: red, green and blue outside of the inner part
#define MATRIX 13          // floats: for each channel of the result, the factors of red, green and blue, and an offset

#define BYTES 16           // that a work item processes at a time
#define STRIDE(width) ((3 * (width) + BYTES - 1) / BYTES * BYTES)  // floats from one row of `middle` to the next

// Global size: (any, rows of the result).
__kernel void picture_rows(__global const uchar *restrict packed, __global float *restrict middle) {
  __global const int *header = (__global const int *)packed;
  const int y = get_global_id(1), height = header[INNER_HEIGHT];
  if (y >= height) return;
  const int length = 3 * header[WIDTH], taps = header[ROW_TAPS], stride = STRIDE(header[WIDTH]);
  __global const int *starts = header + header[ROWS];
  __global const float *weights = (__global const float *)(starts + height) + y;
  __global const uchar *source = (__global const uchar *)(header + header[PIXELS]) + starts[y] * length;
  for (int x = BYTES * get_global_id(0); x < length; x += BYTES * get_global_size(0)) {
    float16 sum = 0.0f;
    for (int t = 0; t < taps; t++) sum = mad(convert_float16(vload16(0, source + t * length + x)), weights[t * height], sum);
    vstore16(sum, 0, middle + y * stride + x);
  }
}

// Global size: (columns, rows) of the result.
__kernel void picture_columns(__global const uchar *restrict packed, __global const float *restrict middle, __global float *restrict result) {
  __global const int *header = (__global const int *)packed;
  __global const float *numbers = (__global const float *)packed;
  const int x = get_global_id(0), y = get_global_id(1), width = header[INNER_WIDTH], taps = header[COLUMN_TAPS];
  float4 color = numbers[PAD];
  if (x < width && y < header[INNER_HEIGHT]) {
    __global const int *starts = header + header[COLUMNS];
    __global const float *weights = (__global const float *)(starts + width) + x;
    __global const float *source = middle + y * STRIDE(header[WIDTH]) + 3 * starts[x];
    color = 0.0f;
    for (int t = 0; t < taps; t++) color = mad(vload4(0, source + 3 * t), weights[t * width], color);
    color = clamp(color, 0.0f, 255.0f);  // a cubic filter overshoots
  }
  result += y * header[ROW_STEP] + x * header[COLUMN_STEP];
  for (int c = 0; c < header[CHANNELS]; c++) {
    __global const float *row = numbers + MATRIX + 4 * c;
    result[c * header[CHANNEL_STEP]] = mad(row[0], color.x, mad(row[1], color.y, mad(row[2], color.z, row[3])));
  }
}
