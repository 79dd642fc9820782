"""Measures the peak rates of a device with three small kernels: multiply-adds, texture reads and a copy."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy

from imgconv.cl.context import Buffer, Context
from imgconv.cl.building.program import Kernel, Program, build, new_kernel
from imgconv.dtype import DType
from imgconv.errors import Error

ACCUMULATORS = 8
ROUNDS = 512
VECTORS = (4, 16)  # floats of one accumulator: GPUs work on scalars anyway, CPU compilers use the given width
READS = 64
READ_SIZE = 256
COPY_WIDTH = 4096
FEWEST_RUNS = 5
MEASURED_SECONDS = 0.5  # for each kernel; on a shared device, some of many short runs are undisturbed

SOURCE = f"""
__constant sampler_t TEXEL = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP | CLK_FILTER_NEAREST;

#define MULTIPLY_ADD(NAME, VECTOR) \\
  __kernel void NAME(__global VECTOR *output, const float a, const float b) {{ \\
    VECTOR sum[{ACCUMULATORS}]; \\
    for (int n = 0; n < {ACCUMULATORS}; n++) sum[n] = (VECTOR)(get_global_id(0) + n); \\
    for (int round = 0; round < {ROUNDS}; round++) {{ \\
      {" ".join(f"sum[{n}] = mad(sum[{n}], (VECTOR)(a), (VECTOR)(b));" for n in range(ACCUMULATORS))} \\
    }} \\
    output[get_global_id(0) & 255] = {" + ".join(f"sum[{n}]" for n in range(ACCUMULATORS))}; \\
  }}
MULTIPLY_ADD(multiply_add_4, float4)
MULTIPLY_ADD(multiply_add_16, float16)

__kernel void read_texture(__global float4 *output, read_only image2d_t input) {{
  const int x = get_global_id(0) & {READ_SIZE - 1}, y = get_global_id(1) & {READ_SIZE - 1};
  float4 sum = (float4)(0.0f);
#pragma unroll 8
  for (int n = 0; n < {READS}; n++) sum += read_imagef(input, TEXEL, (int2)(x + n, y));
  output[x] = sum;
}}

__kernel void copy(write_only image2d_t output, read_only image2d_t input) {{
  const int2 at = (int2)(get_global_id(0), get_global_id(1));
  write_imagef(output, at, read_imagef(input, TEXEL, at));
}}
"""


@dataclass(frozen=True)
class Peaks:
    """The highest rates seen, each in units of one a second."""

    operations: float
    """Float additions and multiplications, two for each multiply-add."""
    reads: float
    """Reads of RGBA texels from the cache."""
    bytes: float
    """Bytes read and written by a copy of a texture that is too large for any cache."""

    def least_seconds(self, operations: float, reads: float, moved: float) -> dict[str, float]:
        """The least seconds that each of the three peaks allows for a kernel's work."""
        return {
            "multiply-adds": operations / self.operations, "texture reads": reads / self.reads,
            "bandwidth": moved / self.bytes,
        }

    def to_json(self) -> dict[str, float]:
        return {"flops": self.operations, "texture_reads_per_second": self.reads, "copy_bytes_per_second": self.bytes}


def measure_peaks(context: Context, dtype: DType) -> Peaks:
    """Runs the three kernels. dtype: of the textures. Raises Error if a result is wrong, and DeviceError."""
    program = build(context, SOURCE, "imgconv/reports/peaks.py")
    return Peaks(
        max(_measure_multiply_adds(context, program, floats) for floats in VECTORS),
        _measure_texel_reads(context, program, dtype), _measure_copy_bandwidth(context, program, dtype),
    )


def _measure_multiply_adds(context: Context, program: Program, floats: int) -> float:
    items = 1 << (20 if context.info.kind == "gpu" else 12)
    output = context.buffer(256 * floats * 4)
    bound = new_kernel(program, f"multiply_add_{floats}")
    bound.set_args(output, numpy.float32(0.5), numpy.float32(1))
    seconds = _fastest_launch(context, bound, (items,))
    _check(context, output, 2.0 * ACCUMULATORS)  # x = x / 2 + 1 ends at 2
    return 2 * items * ROUNDS * ACCUMULATORS * floats / seconds


def _measure_texel_reads(context: Context, program: Program, dtype: DType) -> float:
    size = (4096, 1024) if context.info.kind == "gpu" else (READ_SIZE, 64)
    texels = context.image(READ_SIZE + READS, READ_SIZE, 0, dtype)
    context.write(texels, numpy.ones((READ_SIZE, READ_SIZE + READS, 4), dtype))
    output = context.buffer(READ_SIZE * 16)
    bound = new_kernel(program, "read_texture")
    bound.set_args(output, texels)
    seconds = _fastest_launch(context, bound, size)
    _check(context, output, float(READS))
    return size[0] * size[1] * READS / seconds


def _measure_copy_bandwidth(context: Context, program: Program, dtype: DType) -> float:
    info, texel = context.info, numpy.dtype(dtype).itemsize * 4
    width = min(COPY_WIDTH, info.max_image_width)
    rows = 4096 if info.kind == "gpu" else 1024
    height = min(rows, info.max_image_height, info.max_allocation_bytes // (width * texel))
    source, target = (context.image(width, height, 0, dtype) for _ in range(2))
    context.write(source, numpy.ones((height, width, 4), dtype))
    bound = new_kernel(program, "copy")
    bound.set_args(target, source)
    return 2 * width * height * texel / _fastest_launch(context, bound, (width, height))


def _fastest_launch(context: Context, bound: Kernel, size: tuple[int, ...]) -> float:
    """Returns the shortest time of a launch, measured for MEASURED_SECONDS and at least FEWEST_RUNS times."""
    start = time.perf_counter()
    seconds: list[float] = []
    while len(seconds) < FEWEST_RUNS or time.perf_counter() - start < MEASURED_SECONDS:
        seconds += context.durations([context.enqueue(bound, size)])
    return min(seconds)


def _check(context: Context, output: Buffer, expected: float) -> None:
    found = context.read(output, (output.size // 4,), numpy.float32)
    if not numpy.allclose(found, expected):
        raise Error(f"{context.info.name}: a kernel that measures peaks returned {found[0]:g} instead of {expected:g}")
