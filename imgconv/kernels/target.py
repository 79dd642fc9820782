"""A device as the compiler sees it: numbers."""

from __future__ import annotations

from dataclasses import dataclass

from imgconv.kernels.layout import Alignment, ImageLimits

# The largest number that half holds.
HALF_MAX = 65504.0


@dataclass(frozen=True)
class Target:
    """What the compiler needs to know of a device. kind: 'cpu' or 'gpu'.

    images_in_buffers: what images that are parts of a buffer are aligned to; None if the device has no such images.
    half_arithmetic: whether kernels may compute in half. local_memory_bytes: of a work group; max_work_group: the most
    work items of one.
    """

    limits: ImageLimits
    kind: str
    compute_units: int
    half_images: bool = True
    max_read_images: int = 128
    half_arithmetic: bool = True
    byte_images: bool = False
    local_memory_bytes: int = 1 << 15
    images_in_buffers: Alignment | None = None
    max_work_group: int = 256
