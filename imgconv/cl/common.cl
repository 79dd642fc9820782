// What every kernel shares: the sampler and a few float4 helpers.
//
// A texel outside of an image reads as zero (CLK_ADDRESS_CLAMP on RGBA): that is the padding of convolutions.

#ifndef IMGCONV_COMMON
#define IMGCONV_COMMON

__constant sampler_t TEXEL = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP | CLK_FILTER_NEAREST;

// The lane of a texel that is known only at run time.
inline float component(float4 texel, int lane) {
  const float2 half_texel = lane < 2 ? texel.xy : texel.zw;
  return (lane & 1) ? half_texel.y : half_texel.x;
}

// The first `count` lanes; the others zero.
inline float4 keep_lanes(float4 texel, int count) {
  return select((float4)(0.0f), texel, (int4)(0, 1, 2, 3) < (int4)(count));
}

// The first `count` lanes; the others `neutral`.
inline float4 fill_lanes(float4 texel, int count, float neutral) {
  return select((float4)(neutral), texel, (int4)(0, 1, 2, 3) < (int4)(count));
}

#endif
