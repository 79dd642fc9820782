"""Target: a device as the compiler sees it, a set of numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from imgconv.dtype import DotProduct
from imgconv.kernels.layout import Alignment, ImageLimits

TargetKind = Literal["cpu", "gpu"]  # an accelerator counts as a GPU
# The largest finite half.
HALF_MAX = 65504.0
# A GPU with at least this many compute units is a computer's, not a phone's.
LARGE_GPU = 16


@dataclass(frozen=True)
class Target:
    """The properties of a device that the compiler needs.

    half_images: whether there are RGBA half images. half_arithmetic: whether kernels may compute in half.
    byte_images: whether images may hold signed bytes. local_memory_bytes: of a work group. max_work_group: the most
    work items of a work group. images_in_buffers: the alignment of images in a buffer; None if the device has none.
    linear: the alignment of linear textures in a buffer, if textures are linear; None if they are images. CPU drivers
    emulate image reads by calls of functions, which take several times as long as reads of memory. loop_rounds:
    the driver ends a work item's loops after this many rounds in all; None if it does not. vector_floats: in a
    register of a CPU; plans of other CPUs run too, but their sums may not fit into its registers. native_functions:
    whether native_exp and native_recip, measured on the device, are exact enough for FLOAT16
    (loading/native_functions.py); False for a device that is not present. dot_product: the instruction by
    which kernels may sum products of bytes, as tried on the device (cl/dot_products.py); "" if it has none.
    """

    limits: ImageLimits
    kind: TargetKind
    compute_units: int
    half_images: bool = True
    max_read_images: int = 128
    half_arithmetic: bool = True
    byte_images: bool = False
    local_memory_bytes: int = 1 << 15
    images_in_buffers: Alignment | None = None
    max_work_group: int = 256
    linear: Alignment | None = None
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
    def workspace(self) -> Alignment | None:
        """The alignment of textures in one buffer, the workspace; None if each needs an image."""
        return self.linear or self.images_in_buffers
