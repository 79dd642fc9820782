"""Target: a device as the compiler sees it, a set of numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from imgconv.dtype import DotProduct
from imgconv.kernels.layout import ImageAlignment, ImageLimits

TargetKind = Literal["cpu", "gpu"]  # an accelerator counts as a GPU
# The largest finite half.
HALF_MAX = 65504.0
# A GPU with at least this many compute units is a computer's, not a phone's.
LARGE_GPU = 16


@dataclass(frozen=True)
class Target:
    """The properties of a device that the compiler needs.

    half_images: whether there are RGBA fp16 images. half_arithmetic: whether kernels may compute in fp16. byte_images:
    whether images may hold signed bytes. local_memory_bytes: for a work group. max_work_group: the maximum number of
    work items in a work group. images_in_buffers: the alignment of images in a buffer; None if the device does not
    support them. linear: the alignment of linear textures in a buffer; None if textures are images. (CPU drivers
    emulate an image read with a function call, which takes several times as long as a memory read.) loop_rounds: the
    number of iterations after which the driver ends a work item's loops; None if it does not. vector_floats: floats in
    a register of a CPU; plans for other CPUs also run, but their sums may not fit into its registers. native_functions:
    whether native_exp and native_recip, measured on the device, are accurate enough for FLOAT16
    (loading/native_functions.py); False for a device that is not present. dot_product: the instruction with which
    kernels may sum products of bytes, as tested on the device (cl/dot_products.py); "" if it has none.
    """

    limits: ImageLimits
    kind: TargetKind
    compute_units: int
    half_images: bool = True
    max_read_images: int = 128
    half_arithmetic: bool = True
    byte_images: bool = False
    local_memory_bytes: int = 1 << 15
    images_in_buffers: ImageAlignment | None = None
    max_work_group: int = 256
    linear: ImageAlignment | None = None
    loop_rounds: int | None = None
    vector_floats: int = 16
    native_functions: bool = False
    dot_product: DotProduct = ""

    @property
    def is_mobile(self) -> bool:
        """Returns whether the device is a phone's GPU."""
        return self.kind == "gpu" and self.compute_units < LARGE_GPU

    @property
    def image_limits(self) -> ImageLimits | None:
        """The limits of a texture; None if textures are linear."""
        return None if self.linear else self.limits

    @property
    def workspace(self) -> ImageAlignment | None:
        """The alignment of textures in one buffer, the workspace; None if each needs an image."""
        return self.linear or self.images_in_buffers
