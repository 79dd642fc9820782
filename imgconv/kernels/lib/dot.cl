// Products of quantised values, four at once. DOT(sum, w, x) adds to `sum` the products of the signed bytes of w and
// the unsigned bytes of x. DOT_PRODUCT selects the extension whose instruction does this. The engine selects one only
// if its instruction passed a test on the device (cl/dot_products.py), because some drivers list extensions that their
// compilers lack.

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
