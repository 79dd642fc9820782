"""Frames in memory of chance's layouts, and the pictures that they show: numpy that shares no code with imgconv."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy

from imgconv import Plane, VideoFrame

# Of each plane: the components of a pixel, of 4:2:0 and 4:2:2 the color components as "uv".
PLANES = {
    "rgb": ("abc",), "bgr": ("abc",), "rgba": ("abcd",), "grey": ("y",), "nv12": ("y", "uv"), "nv21": ("y", "vu"),
    "p010": ("y", "uv"), "i420": ("y", "u", "v"),
}


@dataclass
class Memory:
    """A frame in memory, and its components: float64 (height, width), one number for each pixel."""

    frame: VideoFrame
    components: dict[str, Any]


def drawn(format: str, window: tuple[int, int], seed: int, spread: bool, **about: Any) -> Memory:
    """A frame that is larger than the window, which begins at even pixels if `about` has no region.

    spread: Y, U and V in planes of their own, whose samples are three apart. Rows have gaps, and all planes an offset.
    """
    random = numpy.random.default_rng(seed)
    width, height = window[0] + 6, window[1] + 4
    left, top = about.pop("at", (2, 2))
    planes, components = [], {}
    names = tuple("yuv") if spread else PLANES.get(format, ("yuyv",))
    for name in names:
        shared = 2 if format in ("nv12", "nv21", "p010", "i420") and name != "y" else 1
        columns, rows = width // shared, height // shared
        size, step = 2 if format == "p010" else 1, 2 if name == "yuyv" else len(name) + 2 * spread
        pitch, offset = (columns * step + 5) * size, 7 * size
        memory = random.integers(0, 256, offset + pitch * rows, numpy.uint8)
        planes.append(Plane(memory, pitch, step * size, offset))
        grid = memory[offset:].reshape(rows, pitch)[:, : columns * step * size].astype(numpy.float64)
        samples = grid[:, ::2] + 256 * grid[:, 1::2] if size == 2 else grid
        if name == "yuyv":
            components |= {"y": samples[:, ::2], "u": samples[:, 1::4].repeat(2, 1), "v": samples[:, 3::4].repeat(2, 1)}
            continue
        for number, each in enumerate(name):
            components[each] = samples[:, number::step].repeat(shared, 0).repeat(shared, 1)
    region = left, top, *window
    return Memory(VideoFrame(planes, width, height, region=region, **about), components)


def picture_of(format: str, memory: Memory) -> Any:
    """The array of the picture that a frame shows: cropped, rotated, mirrored, its shared colors averaged."""
    frame = memory.frame
    assert frame.region
    left, top, width, height = frame.region
    shown = {}
    for name, component in memory.components.items():
        turned = numpy.rot90(component[top : top + height, left : left + width], -frame.rotation // 90)
        shown[name] = turned[:, ::-1] if frame.mirror else turned
    if format not in ("nv12", "nv21", "p010", "i420", "yuyv"):
        made = numpy.stack(list(shown.values()), 2)
        return (made[..., 0] if format == "grey" else made).astype(numpy.uint8)
    y, down = shown["y"], 1 if format == "yuyv" else 2
    rows, columns = y.shape
    u, v = (
        numpy.floor(shown[name].reshape(rows // down, down, columns // 2, 2).mean((1, 3)) + 0.5) for name in "uv"
    )
    if format == "yuyv":
        return numpy.stack([numpy.stack([y[:, ::2], y[:, 1::2]], 2), numpy.stack([u, v], 2)], 3).reshape(
            rows, columns, 2
        ).astype(numpy.uint8)
    pairs = {"nv21": [v, u]}.get(format, [u, v])
    colors = numpy.concatenate([u.ravel(), v.ravel()]) if format == "i420" else numpy.stack(pairs, 2).ravel()
    made = numpy.concatenate([y.ravel(), colors]).reshape(rows * 3 // 2, columns)
    return made.astype(numpy.uint16 if format == "p010" else numpy.uint8)
