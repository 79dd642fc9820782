"""The table FrameInput of model.fbs: the kernel and the frame layouts with which the player reads camera frames."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from imgconv.compiling.plan import Plan, Storage
from imgconv.dtype import FLOAT32
from imgconv.kernels.layout import Texture
from imgconv.kernels.specialise import without_comments
from imgconv.preprocessing.preparation import Format
from imgconv.preprocessing.stage import PICTURE, chroma_block, size_of_array
from imgconv.preprocessing.video_frame import FILE, HEADER, LAYOUTS, FrameKernel, sample_bytes


def frame_kernel(format: Format, shape: tuple[int, ...], place: Storage) -> FrameKernel:
    """The kernel that makes an input of frames of a format."""
    texels = place.tiling.width if isinstance(place, Texture) and not place.tiling.linear else 0
    return FrameKernel(format, shape, texels, place.dtype == FLOAT32)


def takes_frames(plan: Plan, format: Format | None) -> bool:
    """Returns whether a plan has a picture of a format, and the host does not read it."""
    on_host = {value.name for value in plan.moved.inputs} if plan.moved else set[str]()
    return format is not None and PICTURE in {value.name for value in plan.inputs} - on_host


def frame_values(plan: Plan, format: Format | None) -> dict[str, Any] | None:
    """The values of the table; None if the plan takes no frames. format: of the picture."""
    if format is None or not takes_frames(plan, format):
        return None
    number = [value.name for value in plan.inputs].index(PICTURE)
    width, height = size_of_array(format, plan.inputs[number].shape)
    shared, kernel = chroma_block(format), frame_kernel(format, plan.inputs[number].shape, plan.input_buffers[PICTURE])
    return {
        "input": number, "format": format, "width": width, "height": height, "sample_bytes": sample_bytes(format),
        "shared_width": shared[0], "shared_height": shared[1], "header_bytes": HEADER,
        "layouts": [asdict(layout) for layout in LAYOUTS[format]],
        "kernel": {"text": without_comments(kernel.text), "path": FILE.name}, "global_size": kernel.items,
    }
