// Products of levels, four at once: DOT(sum, w, x) adds to a sum those of the signed bytes of w and the unsigned ones of
// x. A device's instruction for it has the name of an extension; drivers may list one that their compilers lack, so that
// the engine takes what it tried (cl/dot_products.py).

#pragma once

#ifndef DOT_PRODUCT
#define DOT_PRODUCT 0                   // 0: plain products, 1: cl_khr_integer_dot_product, 2: cl_qcom_dot_product8
#endif

#if DOT_PRODUCT == 1
#define DOT(sum, w, x) ((sum) + dot_4x8packed_su_int(w, x))
#elif DOT_PRODUCT == 2
#pragma OPENCL EXTENSION cl_qcom_dot_product8 : enable
#define DOT(sum, w, x) qcom_dot8_acc(w, x, sum)
#else
inline int dot_of_bytes(int sum, uint w, uint x) {
  const int4 products = convert_int4(as_char4(w)) * convert_int4(as_uchar4(x));
  return sum + products.x + products.y + products.z + products.w;
}
#define DOT(sum, w, x) dot_of_bytes(sum, w, x)
#endif

// Four levels of a texel as bytes.
inline uint packed_levels(uint4 texel) { return texel.x | texel.y << 8 | texel.z << 16 | texel.w << 24; }
