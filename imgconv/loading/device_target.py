"""Describes an opened device to the compiler."""

from __future__ import annotations

from imgconv.cl.device_info import DeviceInfo
from imgconv.kernels.layout import ImageAlignment, ImageLimits
from imgconv.kernels.target import Target, TargetKind


# Mesa's llvmpipe: LP_MAX_TGSI_LOOP_ITERATIONS. Results are wrong after that, and no error is reported.
LLVMPIPE_ROUNDS = 65_535


def target_of(info: DeviceInfo, native_functions: bool = False) -> Target:
    """The Target for a device: the properties that the compiler needs. native_functions: see Target."""
    limits = ImageLimits(info.max_image_width, info.max_image_height, info.max_image_layers)
    kind: TargetKind = "cpu" if info.kind == "cpu" else "gpu"
    smallest = 4 * 2  # bytes of a texel of half
    linear = None
    if kind == "cpu":
        linear = ImageAlignment(1, -(-info.buffer_alignment // smallest), info.max_allocation_bytes)
    row, base = info.image_row_alignment, info.image_base_alignment
    return Target(
        limits, kind, info.compute_units, info.half_images, info.max_read_images, info.fp16_arithmetic,
        info.byte_images, info.local_memory_bytes,
        ImageAlignment(row, base, info.max_allocation_bytes) if row else None, info.max_work_group_size, linear,
        LLVMPIPE_ROUNDS if "llvmpipe" in info.name else None, info.vector_floats, native_functions, info.dot_product,
    )
