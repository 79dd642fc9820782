// Code shared by every kernel: the sampler, and some float4 functions.
//
// A texel outside an image reads as zero (CLK_ADDRESS_CLAMP on RGBA): this is the padding of convolutions.

#ifndef IMGCONV_COMMON
#define IMGCONV_COMMON

// A compiler may call an `inline` function instead of inlining it, as Mesa's llvmpipe does. C then requires a
// definition elsewhere, which does not exist. llvmpipe 25.0 crashes if such a function has an image parameter.
#define inline inline __attribute__((always_inline))

// Intel's compiler for CPUs (2026.22) tries to vectorise across work items. It fails for the hand-written kernels,
// whose items use vectors themselves. The attempt takes a quarter to a half of their build time, so this attribute
// prevents it.
#define NOT_VECTORIZED
#ifdef __has_attribute
#if __has_attribute(intel_vec_len_hint)
#undef NOT_VECTORIZED
#define NOT_VECTORIZED __attribute__((intel_vec_len_hint(1)))
#endif
#endif

#ifdef cl_khr_fp16
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#endif

// OpenCL does not define how write_imagef rounds to half. NVIDIA's driver (580) rounds toward zero, so all errors have
// the same sign, and stores 65504 for larger values. So texels are rounded to the nearest half before they are written.
#ifdef __NV_CL_C_VERSION
inline float4 stored_in(int channel_type, float4 texel) {
  ushort4 bits;
  vstore_half4_rte(texel, 0, (__private half *)&bits);
  return channel_type == CLK_HALF_FLOAT ? vload_half4(0, (__private half *)&bits) : texel;
}
#define write_imagef(image, position, texel) \
  write_imagef(image, position, stored_in(get_image_channel_data_type(image), texel))
#endif

__constant sampler_t TEXEL = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP | CLK_FILTER_NEAREST;

// The lane of a texel that is known only at run time.
inline float component(float4 texel, int lane) {
  const float2 half_texel = lane < 2 ? texel.xy : texel.zw;
  return (lane & 1) ? half_texel.y : half_texel.x;
}

// a / b rounded towards zero, exact for integers up to 2^24. fmod is exact, so `multiple` is a multiple of b. The
// division may have an error of a few units in the last place; the remainder corrects it.
inline float4 quotient(float4 a, float4 b) {
  const float4 multiple = a - fmod(a, b);
  const float4 near = rint(multiple / b);
  return near + rint(fma(-near, b, multiple) / b);
}

// Bitwise operations and shifts on integers that are stored as floats; exact, like these floats.
inline float4 bit_and(float4 a, float4 b) { return convert_float4(convert_int4(a) & convert_int4(b)); }
inline float4 bit_or(float4 a, float4 b) { return convert_float4(convert_int4(a) | convert_int4(b)); }
inline float4 bit_xor(float4 a, float4 b) { return convert_float4(convert_int4(a) ^ convert_int4(b)); }
inline float4 shift_left(float4 a, float4 count) { return ldexp(a, convert_int4(count)); }
inline float4 shift_right(float4 a, float4 count) { return floor(ldexp(a, -convert_int4(count))); }

// exp(x) and exp(x) - 1 within 2 units in the last place, in few registers: x = n ln 2 + r, and exp(r) - 1 by the
// polynomial of Cephes' expf (Moshier), |r| <= ln 2 / 2. The power of two is two factors, for one may be too large.
inline float4 exp_parts(float4 x, float4 *first, float4 *second) {
  const float4 within = fmin(fmax(x, -104.0f), 89.0f);
  const float4 n = rint(within * 1.44269504f);
  const float4 r = (within - n * 0.693359375f) + n * 2.12194440e-4f;
  const float4 tail = ((1.9875691500e-4f * r + 1.3981999507e-3f) * r + 8.3334519073e-3f) * r + 4.1665795894e-2f;
  const float4 series = (tail * r + 1.6666665459e-1f) * r + 5.0000001201e-1f;
  const int4 whole = convert_int4(n), low = whole >> 1;
  *first = as_float4((low + 127) << 23);
  *second = as_float4((whole - low + 127) << 23);
  return series * r * r + r;
}
inline float4 exp_of(float4 x) {
  float4 first, second;
  const float4 less_one = exp_parts(x, &first, &second);
  return select((less_one + 1.0f) * first * second, x, isnan(x));
}
inline float4 expm1_of(float4 x) {
  float4 first, second;
  const float4 less_one = exp_parts(x, &first, &second), scale = first * second;
  const float4 power = (less_one + 1.0f) * first * second;
  return select(select(less_one * scale + (scale - 1.0f), power, x > 40.0f), x, isnan(x));
}

// 1 / (1 + exp(-level * scale)), 1.1e-7 off at most, for what is rounded to 256 levels; |level * scale| <= 40. With
// -level * scale = (n + r) ln 2, 2**r is a polynomial of least maximum error, |r| <= 1 / 2.
inline float4 level_sigmoid(float4 level, float4 scale) {
  const float4 t = level * (scale * -1.44269504f), n = rint(t), r = t - n;
  float4 p = mad(r, 1.32764573e-3f, 9.67554189e-3f);
  p = mad(r, p, 5.55071346e-2f);
  p = mad(r, p, 2.40221202e-1f);
  p = mad(r, p, 6.93146944e-1f);
  p = mad(r, p, 1.00000012f);
  const float4 whole = 1.0f + as_float4(as_int4(p) + (convert_int4(n) << 23)), near = native_recip(whole);
  return near * (2.0f - whole * near);  // a step of Newton's: native_recip may be 2**-12 off
}

// exp(x) - 1 with the device's own exp, near zero by its series.
inline float4 native_expm1(float4 x) {
  const float4 series = x * (1.0f + x * (0.5f + x * (1.0f / 6.0f + x * (1.0f / 24.0f))));
  return select(native_exp(x) - 1.0f, series, fabs(x) < 0.25f);
}

// erf(x) without branches, with an error of at most 2.5 units in the last place (4.8 million arguments, Intel's
// driver). If |x| < 0.9, it is x times a polynomial in x * x (relative error 1.2e-8); otherwise 1 - exp(a polynomial in
// |x|) (2e-9), which is 1 from 4 on. The polynomials are minimax fits in double. native_erf has the error of
// native_exp.
inline float4 erf_near_zero(float4 x) {
  const float4 s = x * x;
  float4 p = mad(s, -6.09035818e-4f, 5.01196259e-3f);
  p = mad(s, p, -2.67789089e-2f);
  p = mad(s, p, 1.12821408e-1f);
  p = mad(s, p, -3.76125233e-1f);
  return x * mad(s, p, 1.12837915f);
}
inline float4 log_erfc(float4 x) {
  const float4 t = fmin(fabs(x), 4.0f);
  float4 p = mad(t, 1.98220973e-4f, -3.06550240e-3f);
  p = mad(t, p, 2.23152582e-2f);
  p = mad(t, p, -1.04113766e-1f);
  p = mad(t, p, -6.36975990e-1f);
  p = mad(t, p, -1.12779729f);
  return mad(t, p, -1.66435795e-4f);
}
inline float4 erf_of(float4 x) {
  return select(erf_near_zero(x), copysign(1.0f - exp_of(log_erfc(x)), x), isgreaterequal(fabs(x), (float4)(0.9f)));
}
inline float4 native_erf(float4 x) {
  return select(erf_near_zero(x), copysign(1.0f - native_exp(log_erfc(x)), x), isgreaterequal(fabs(x), (float4)(0.9f)));
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
