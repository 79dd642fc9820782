// Non-maximum suppression: writes the indices of the boxes that remain, the best first, and -1 after the last of them.
//
//     boxes     SIZE rows, the best first    [left top right bottom]    one texel each; the first `count` take part
//                                            [group]                    a second one if IS_GROUPED
//     output    MOST indices                 [p0 p1 p2 p3] [p4 ...      x = quad, y = 0
//
// One work group processes the boxes in order, ITEMS at a time. Each item first drops its box if a box that remains
// covers it. Of the boxes that are left, the first one remains, and each item compares its box with this one; then the
// next. Boxes that remain are stored in local memory. The loop ends after the last box, or when MOST boxes remain. Then
// the group writes all BLOCK_QUADS quads.

#include "kernels/lib/output.cl"

#ifndef SIZE
#define SIZE 1000                       // boxes
#endif
#ifndef MOST
#define MOST 4                          // places of the output: at most 4 * BLOCK_QUADS
#endif
#ifndef ITEMS
#define ITEMS 64                        // work items of the group
#endif
#ifndef OVERLAP
#define OVERLAP (0.5f)                  // maximum intersection over union of two boxes that both remain
#endif
#ifndef HALF_STEP
#define HALF_STEP (0x1p-25f)            // half the distance between OVERLAP and the next larger float
#endif
#ifndef ROW_PARAMETERS
#define ROW_PARAMETERS , read_only image2d_t boxes, read_only image2d_t candidates  // ", declaration" of the inputs
#endif
#ifndef READ_BOX
#define READ_BOX(row, quad) read_imagef(boxes, TEXEL, (int2)(quad, row))  // a box
#endif
#ifndef IS_GROUPED
#define IS_GROUPED 0                    // whether boxes of different groups do not touch each other
#endif
#ifndef READ_COUNT
#define READ_COUNT(row, quad) read_imagef(candidates, TEXEL, (int2)(quad, row))  // how many boxes take part
#endif

// A quotient as close to OVERLAP as this is compared anew: a device's division may be off by some units in the last
// place, and boxes of whole pixels often overlap by exactly a half.
#define DOUBT 1e-5f

#if ITEMS > 1
#define WAIT barrier(CLK_LOCAL_MEM_FENCE);
#else
#define WAIT
#endif

inline float area_of(float4 box) { return (box.z - box.x) * (box.w - box.y); }

// Whether two boxes overlap by more than OVERLAP, that is, whether the quotient, rounded to float, is larger. A box
// without an area (a side may have a negative length) neither covers a box nor is covered.
inline bool is_covered(float4 box, float4 other) {
  const float2 size = fmin(box.zw, other.zw) - fmax(box.xy, other.xy);
  const float area = area_of(box), other_area = area_of(other);
  const float both = fmax(size.x, 0.0f) * size.y, all = area + other_area - both;
  const float past = both / all - OVERLAP;
  if (!(area > 0.0f && other_area > 0.0f)) return false;
  return fabs(past) > DOUBT ? past > 0.0f : fma(-OVERLAP, all, both) > HALF_STEP * all;
}

#if IS_GROUPED
#define GROUP(row) (READ_BOX(row, 1).x)
#else
#define GROUP(row) 0.0f
#endif

// Global and local size: ITEMS.
WORK_GROUP NOT_VECTORIZED __kernel void NAME(OUTPUT_IMAGE output ROW_PARAMETERS EPILOGUE_PARAMETERS) {
  const INDEX item = get_local_id(0);
  const int count = min((int)(READ_COUNT(0, 0).x), SIZE);
  __local float4 chosen[MOST];
#if IS_GROUPED
  __local float groups[MOST];
#define IS_COVERED(box, group, n) (group == groups[n] && is_covered(box, chosen[n]))
#define CHOOSE(n, box, group) chosen[n] = box, groups[n] = group
#else
#define IS_COVERED(box, group, n) is_covered(box, chosen[n])
#define CHOOSE(n, box, group) chosen[n] = box
#endif
  __local int places[4 * BLOCK_QUADS];
  for (int n = item; n < 4 * BLOCK_QUADS; n += ITEMS) places[n] = -1;
  int staying = 0;

#if ITEMS > 1
  __local int next;
  for (int first = 0; first < count && staying < MOST; first += ITEMS) {
    const int place = first + item;
    const float4 box = READ_BOX(min(place, SIZE - 1), 0);
    const float group = GROUP(min(place, SIZE - 1));
    bool is_left = place < count;
    WAIT
    for (int n = 0; n < staying; n++) is_left = is_left && !IS_COVERED(box, group, n);
    while (staying < MOST) {
      if (item == 0) next = ITEMS;
      WAIT
      if (is_left) atomic_min(&next, item);
      WAIT
      const int found = next;
      if (found == ITEMS) break;
      if (item == found) {
        CHOOSE(staying, box, group);
        places[staying] = place;
      }
      WAIT
      is_left = is_left && item > found && !IS_COVERED(box, group, staying);
      staying++;
    }
    WAIT
  }
#else
  for (int place = 0; place < count; place++) {
    const float4 box = READ_BOX(place, 0);
    const float group = GROUP(place);
    bool stays = staying < MOST;
    for (int n = 0; n < staying; n++) {
      if (IS_COVERED(box, group, n)) {
        stays = false;
        break;
      }
    }
    if (stays) {
      CHOOSE(staying, box, group);
      places[staying++] = place;
    }
    if (staying == MOST) break;
  }
#endif

  WAIT
  for (int quad = item; quad < BLOCK_QUADS; quad += ITEMS) {
    EPILOGUE_LOADS(quad)
    const float4 found = convert_float4(vload4(quad, places));
    write_texel(output, EPILOGUE(found, 0, 0, quad), 0, 0, quad);
  }
}
