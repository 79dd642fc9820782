// Converts a camera frame in any memory layout to the array of a picture: a region of it, rotated and mirrored. Numbers
// describe the layout (preprocessing/video_frame.py makes them), so one kernel reads all frames of a format:
//
//     numbers  [pixel | component 0 | component 1 ...]
//     frame    the bytes of the planes; the numbers may be stored before them in the same buffer
//
// Pixel (x, y) of the picture is pixel (n[0] + n[1] x + n[2] y, n[3] + n[4] x + n[5] y) of the frame. Each component
// has three numbers: the position of its first sample in bytes from the start of `frame`, its row stride and its pixel
// stride. The components are those of a pixel in the order of the picture's array: R, G, B; or Y, U, V, and Y, V, U for
// nv21.
//
// preprocessing/video_frame.py defines these names; the defaults are those of an NV12 frame.
#ifndef NAME
#define NAME frame_array                // of the kernel
#endif
#ifndef WIDTH
#define WIDTH 640                       // of the picture, in pixels
#endif
#ifndef HEIGHT
#define HEIGHT 480                      // of the picture, in pixels
#endif
#ifndef SHARED_X
#define SHARED_X 2                      // adjacent pixels in a row that share U and V; 1: each pixel has its own
#endif
#ifndef SHARED_Y
#define SHARED_Y 2                      // pixels above each other that do
#endif
#ifndef PAIRS
#define PAIRS 1                         // U and V lie in pairs after Y, not one after the other; for SHARED_Y of 2
#endif
#ifndef CHANNELS
#define CHANNELS 3                      // components of a pixel, for SHARED_X of 1
#endif
#ifndef SAMPLE_BYTES
#define SAMPLE_BYTES 1                  // 1 or 2; the latter with the lower byte first
#endif
#ifndef COUNT
#define COUNT 460800                    // elements of the array
#endif
#ifndef RESULT
#define RESULT __global uchar *restrict // type of the result: a buffer, or an image
#endif
#ifndef CONVERT
#define CONVERT convert_uchar4          // converts four ints to four elements of a buffer
#endif
#ifndef TEXELS
#define TEXELS 0                        // texels in a row of the result, if it is an image; 0: a buffer
#endif

// Of a component, at pixel (x, y) of the picture.
int sample_at(__global const int *n, __global const uchar *frame, const int component, const int x, const int y) {
  __global const int *own = n + 6 + 3 * component;
  const int column = n[0] + n[1] * x + n[2] * y, row = n[3] + n[4] * x + n[5] * y;
  const int down = component ? SHARED_Y : 1, across = component ? SHARED_X : 1;
  frame += own[0] + row / down * own[1] + column / across * own[2];
#if SAMPLE_BYTES == 2
  return frame[0] | frame[1] << 8;
#else
  return frame[0];
#endif
}

// Of U or V, for all pixels that share one in the picture. In the frame they may have several: of a row that becomes a
// column in yuyv, or if the region begins between two pixels that share one. Then it is their mean.
int shared_at(__global const int *n, __global const uchar *frame, const int component, const int x, const int y) {
  int sum = 0;
  for (int down = 0; down < SHARED_Y; down++) {
    for (int across = 0; across < SHARED_X; across++) {
      sum += sample_at(n, frame, component, x * SHARED_X + across, y * SHARED_Y + down);
    }
  }
  return (sum + SHARED_X * SHARED_Y / 2) / (SHARED_X * SHARED_Y);
}

int element(__global const int *n, __global const uchar *frame, int number) {
#if SHARED_Y == 2
  if (number < WIDTH * HEIGHT) return sample_at(n, frame, 0, number % WIDTH, number / WIDTH);
  number -= WIDTH * HEIGHT;
#if PAIRS
  const int component = 1 + number % 2;
  number /= 2;
#else
  const int component = 1 + number / (WIDTH / 2 * (HEIGHT / 2));
  number %= WIDTH / 2 * (HEIGHT / 2);
#endif
  return shared_at(n, frame, component, number % (WIDTH / 2), number / (WIDTH / 2));
#elif SHARED_X == 2
  const int y = number / (2 * WIDTH), pair = number % (2 * WIDTH) / 4, place = number % 4;  // Y U Y V
  return place % 2 ? shared_at(n, frame, 1 + place / 2, pair, y) : sample_at(n, frame, 0, 2 * pair + place / 2, y);
#else
  return sample_at(n, frame, number % CHANNELS, number / CHANNELS % WIDTH, number / CHANNELS / WIDTH);
#endif
}

// Global size: elements / 4, rounded up.
__kernel void NAME(RESULT result, __global const int *restrict n, __global const uchar *restrict frame) {
  const int texel = get_global_id(0), first = 4 * texel, last = COUNT - 1;
  const int4 elements = (int4)(
      element(n, frame, first), element(n, frame, min(first + 1, last)), element(n, frame, min(first + 2, last)),
      element(n, frame, min(first + 3, last)));
#if TEXELS
  write_imagef(result, (int2)(texel % TEXELS, texel / TEXELS), convert_float4(elements) / 255.0f);
#else
  if (first + 3 <= last) {
    vstore4(CONVERT(elements), texel, result);
    return;
  }
  result[first] = elements.x;
  if (first + 1 <= last) result[first + 1] = elements.y;
  if (first + 2 <= last) result[first + 2] = elements.z;
#endif
}
