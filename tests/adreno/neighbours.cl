// neighbours_a630.ir3 and neighbours_a740.ir3 are what Mesa 25.0.7 makes of this, with whole coordinates of reads:
// local memory behind a barrier, a loop whose rounds differ by lane, a branch, and a read outside of the image.
#pragma OPENCL EXTENSION cl_khr_fp16 : enable

__constant sampler_t TEXEL = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP | CLK_FILTER_NEAREST;

__kernel __attribute__((reqd_work_group_size(64, 4, 1))) void k(
    __write_only image2d_t output, __read_only image2d_t input, __global const float *weights) {
  __local float4 tile[256];
  const int x = get_global_id(0), y = get_global_id(1);
  const int item = get_local_id(1) * 64 + get_local_id(0);
  tile[item] = read_imagef(input, TEXEL, (int2)(x - 3, y));
  barrier(CLK_LOCAL_MEM_FENCE);
  float4 sum = (float4)(0.0f);
  for (int n = 0; n <= (item & 7); n++) sum = mad(tile[(item + 77 * n) & 255], (float4)(weights[n]), sum);
  if (x > y) {
    sum = fabs(sum) * weights[8];
    for (int n = 0; n < x % 5; n++) sum += convert_float4(convert_half4(sum)) * 0.125f;
  }
  write_imagef(output, (int2)(x, y), sum);
}
