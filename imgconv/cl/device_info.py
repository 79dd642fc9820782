"""DeviceInfo: the properties of an OpenCL device, as numbers and names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from imgconv.dtype import DotProduct

DeviceKind = Literal["gpu", "accelerator", "cpu"]  # the best first


@dataclass(frozen=True)
class DeviceInfo:
    """The properties of an OpenCL device. Image sizes are in texels, memory in bytes, work sizes in work items."""

    index: int
    platform: str
    name: str
    vendor: str
    kind: DeviceKind
    driver_version: str
    opencl_version: str
    opencl_c_version: str
    max_image_width: int
    max_image_height: int
    max_image_layers: int
    max_read_images: int
    """Images that one kernel may read."""
    max_write_images: int
    """Images that one kernel may write."""
    compute_units: int
    max_work_group_size: int
    max_work_item_sizes: tuple[int, ...]
    local_memory_bytes: int
    global_memory_bytes: int
    max_allocation_bytes: int
    float_images: bool
    """RGBA float can be read and written, as image2d and as image2d_array."""
    half_images: bool
    """RGBA half can be read and written, as image2d and as image2d_array."""
    fp16_arithmetic: bool
    command_buffer: bool
    extensions: tuple[str, ...]
    byte_images: bool = False
    """RGBA of normalised signed bytes can be read and written, as image2d and as image2d_array."""
    image_row_alignment: int = 0
    """The pitch, in texels, of images in a part of a buffer is a multiple of this; 0 if there are no such images."""
    image_base_alignment: int = 0
    """The start of such an image is a multiple of this, in texels."""
    buffer_alignment: int = 128
    """The start of a sub-buffer is a multiple of this many bytes."""
    shares_memory: bool = False
    """Its memory is the host's: CL_DEVICE_HOST_UNIFIED_MEMORY."""
    vector_floats: int = 16
    """Floats in a register of vectors, if it is a CPU: CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT."""
    instruction_set: str = ""
    """The instruction set that the driver compiles for, of a CPU: see cl/instruction_set.py."""
    dot_product: DotProduct = ""
    """The instruction for products of bytes, of a GPU, that was tried and is right: see cl/dot_products.py."""
    problem: str = ""
    """The reason why it cannot be opened, with OpenCL's status; empty if it can."""

    @property
    def full_name(self) -> str:
        """Platform, name, OpenCL C version and driver version in one line.

        All Adrenos share one name and differ only in their OpenCL C version.
        """
        return " | ".join((self.platform, self.name, self.opencl_c_version, self.driver_version))

    @property
    def key(self) -> str:
        """One line that identifies device and driver, for stored tuning and caches: a CPU's has its instruction set."""
        return f"{self.full_name} | {self.instruction_set}" if self.instruction_set else self.full_name

    def __str__(self) -> str:
        return f"[{self.index}] {self.name} ({self.kind}, {self.platform}, {self.opencl_version})"
