// Converts floats to integer keys with the same order, for order.cl and merge.cl.

#pragma once
#include "cl/common.cl"

#ifndef LARGEST
#define LARGEST 1                       // 1: the largest comes first, and NaN before it; 0: the smallest, and NaN last
#endif

// A float as a whole number that is smaller if the float comes earlier. -0 is equal to 0.
inline uint4 keys_of(float4 x) {
  const uint4 bits = as_uint4(select(x, (float4)(0.0f), x == 0.0f));
  const uint4 rising = bits ^ select((uint4)(0x80000000u), (uint4)(0xFFFFFFFFu), bits >> 31 != 0u);
  const uint4 keys = select(rising, (uint4)(0xFFFFFFFFu), as_uint4(isnan(x)));
  return LARGEST ? ~keys : keys;
}

inline uint lane_of(uint4 keys, int lane) {
  return lane == 0 ? keys.x : lane == 1 ? keys.y : lane == 2 ? keys.z : keys.w;
}
