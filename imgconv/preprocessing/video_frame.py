"""VideoFrame: a camera frame in any memory layout: its bytes, and numbers that locate its samples.

frame.cl converts both to the array of a picture. native/src/video_frame.cpp does the same for the player.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ctypes import c_uint8
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy

from imgconv.arrays import Array
from imgconv.errors import InputError
from imgconv.preprocessing.preparation import Format, Size
from imgconv.preprocessing.stage import array_dtype, array_shape, chroma_block, size_of_array

FILE = Path(__file__).with_name("frame.cl")
HEADER = 128  # bytes of the numbers in front of the frame's
LIMIT = 1 << 31  # of a frame's bytes: the kernel computes addresses as int


@dataclass(frozen=True)
class Plane:
    """A plane of a frame, like Android's Image.Plane or a V4L2 plane. Strides and offset are in bytes.

    data: any contiguous buffer of bytes, which planes may share; or an OpenCL buffer, the same for all planes, from
    model.queue.context or Model.import_dma_buf. row_stride: from one row to the next. pixel_stride: from one pixel to
    the next in a row. 0 stands for the format's own stride, without gaps. offset: of the first pixel.
    """

    data: Any
    row_stride: int = 0
    pixel_stride: int = 0
    offset: int = 0

    @property
    def memory(self) -> Any:
        """The OpenCL buffer of the data; None if it is the host's."""
        return self.data if hasattr(self.data, "int_ptr") else None

    def bytes(self) -> Array:
        """All of its memory as an array of uint8. Raises InputError."""
        try:
            return numpy.frombuffer(self.data, numpy.uint8)
        except (TypeError, ValueError, BufferError) as error:
            raise InputError(f"a plane's data is not a contiguous buffer of bytes: {error}") from error

    def extent(self) -> tuple[int, int]:
        """The address of its memory, 0 in an OpenCL buffer, and the size in bytes. Raises InputError."""
        if self.memory is not None:
            return 0, self.memory.size
        array = self.bytes()
        return array.ctypes.data, array.nbytes


@dataclass(frozen=True)
class VideoFrame:
    """A camera or video frame as it is in memory. Model.run accepts it instead of the picture's array.

        y, uv = Plane(y_bytes, row_stride=704), Plane(uv_bytes, row_stride=704)
        model.run({"picture": VideoFrame([y, uv], 640, 480, rotation=90)})      # a picture of 480x640

    The host copies nothing: the planes are uploaded as they are, and the device reads them with their strides.

    planes: one for rgb, bgr, rgba, grey and yuyv; for nv12, nv21 and p010 two, Y and the pairs, or three, Y, U and V,
    as Android's YUV_420_888 has them; for i420 three. width and height: of the frame, as it is in memory. region: the
    left, top, width and height of the visible part (default: all). rotation: of the region, in degrees clockwise, a
    multiple of 90. mirror: swaps left and right after the rotation. The resulting picture must have the size that the
    model expects. If pixels share U and V in the picture but not in the frame, U and V are averaged.
    """

    planes: Sequence[Plane]
    width: int
    height: int
    rotation: int = 0
    mirror: bool = False
    region: tuple[int, int, int, int] | None = None

    def __post_init__(self) -> None:
        """Raises InputError for another rotation, and for a region that is not inside the frame."""
        if self.rotation % 90:
            raise InputError(f"rotation is {self.rotation}; it has to be a multiple of 90 degrees")
        left, top, width, height = self.window
        if min(left, top) < 0 or min(width, height) < 1 or left + width > self.width or top + height > self.height:
            raise InputError(
                f"the region of {width}x{height} at ({left}, {top}) is not inside the frame of "
                f"{self.width}x{self.height}"
            )

    @property
    def window(self) -> tuple[int, int, int, int]:
        """The region."""
        return self.region or (0, 0, self.width, self.height)

    @property
    def picture_size(self) -> Size:
        """Width and height of the picture: of the region after the rotation."""
        _, _, width, height = self.window
        return (height, width) if self.rotation % 180 else (width, height)

    def pixel(self) -> list[int]:
        """The six numbers by which frame.cl finds a pixel of the picture in the frame: see there."""
        left, top, width, height = self.window
        turns = self.rotation // 90 % 4
        column, row = (
            ([left, 1, 0], [top, 0, 1]), ([left, 0, 1], [top + height - 1, -1, 0]),
            ([left + width - 1, -1, 0], [top + height - 1, 0, -1]), ([left + width - 1, 0, -1], [top, 1, 0]),
        )[turns]
        if self.mirror:
            for numbers in (column, row):
                numbers[:2] = numbers[0] + numbers[1] * (self.picture_size[0] - 1), -numbers[1]
        return [*column, *row]


@dataclass(frozen=True)
class Component:
    """The place of a component: its plane, its byte in a pixel, and the pixels from one sample to the next."""

    plane: int
    offset: int = 0
    pixels: int = 1


@dataclass(frozen=True)
class PlaneLayout:
    """The planes of a format. pixel_strides: of each plane without gaps. components: in the order of frame.cl."""

    pixel_strides: tuple[int, ...]
    components: tuple[Component, ...]


def _interleaved(channels: int) -> PlaneLayout:
    return PlaneLayout((channels,), tuple(Component(0, offset) for offset in range(channels)))


def _semi_planar(sample: int) -> PlaneLayout:
    return PlaneLayout((sample, 2 * sample), (Component(0), Component(1), Component(1, sample)))


_YUV_PLANES, _YVU = (Component(0), Component(1), Component(2)), (Component(0), Component(2), Component(1))
# The layouts that each format may have, which differ in the number of planes.
LAYOUTS: Mapping[Format, tuple[PlaneLayout, ...]] = {
    "rgb": (_interleaved(3),), "bgr": (_interleaved(3),), "rgba": (_interleaved(4),), "grey": (_interleaved(1),),
    "nv12": (_semi_planar(1), PlaneLayout((1, 1, 1), _YUV_PLANES)),
    "nv21": (_semi_planar(1), PlaneLayout((1, 1, 1), _YVU)),
    "p010": (_semi_planar(2), PlaneLayout((2, 2, 2), _YUV_PLANES)),
    "i420": (PlaneLayout((1, 1, 1), _YUV_PLANES),),
    "yuyv": (PlaneLayout((2,), (Component(0), Component(0, 1, 2), Component(0, 3, 2))),),
}


def sample_bytes(format: Format) -> int:
    return numpy.dtype(array_dtype(format)).itemsize


@dataclass(frozen=True)
class PackedFrame:
    """A VideoFrame as frame.cl reads it. parts: arrays of bytes, and where each goes. bytes: of all.

    memory: the OpenCL buffer that contains the frame; then there are no parts. None if the parts contain it.
    """

    format: Format
    size: Size
    parts: Sequence[tuple[int, Array]]
    bytes: int
    stays_unchanged: bool = False  # see Pixels
    memory: Any = None

    @staticmethod
    def from_frame(frame: VideoFrame, format: Format) -> PackedFrame:
        """Raises InputError for another format's planes, and for a plane that is too small or whose rows overlap."""
        array_shape(format, frame.picture_size)  # raises for pixels that share no color
        layout = next((each for each in LAYOUTS[format] if len(each.pixel_strides) == len(frame.planes)), None)
        if layout is None:
            counts = " or ".join(str(len(each.pixel_strides)) for each in LAYOUTS[format])
            raise InputError(f"a frame of {format} has {counts} planes, not {len(frame.planes)}: give a Plane for each")
        memory, extents = frame.planes[0].memory, [plane.extent() for plane in frame.planes]
        if any(plane.memory is not memory for plane in frame.planes):
            raise InputError("the planes are in several OpenCL buffers, or some on the host: use one buffer")
        places = [_Samples.from_frame(frame, format, layout, number) for number in range(len(layout.components))]
        spans = []
        for number, (address, size) in enumerate(extents):
            own = [place for place in places if place.plane == number]
            first, end = min(place.first for place in own), max(place.end for place in own)
            if first < 0 or end > size:
                raise InputError(
                    f"plane {number} has {size} bytes; by offset, strides and the frame's size, its pixels "
                    f"are in bytes {first} to {end}"
                )
            spans.append((address + first, address + end))
        parts = _merged_spans(spans) if memory is None else []
        total = parts[-1][0] + parts[-1][2] - parts[-1][1] if parts else HEADER
        numbers = frame.pixel()
        for place in places:
            start = extents[place.plane][0]
            if parts:
                to, begin, _ = next(part for part in reversed(parts) if part[1] <= spans[place.plane][0])
                start += to - begin
            numbers += [start + place.base, place.row_stride, place.pixel_stride]
        if max(total, *map(abs, numbers)) >= LIMIT:
            raise InputError(f"the frame has {total} bytes, or strides, of 2 GB or more")
        header = numpy.zeros(HEADER // 4, numpy.int32)
        header[: len(numbers)] = numbers
        arrays = [(to, _bytes_at(begin, end, frame)) for to, begin, end in parts]
        parts_and_header = [(0, header.view(numpy.uint8)), *arrays]
        return PackedFrame(format, frame.picture_size, parts_and_header, total, memory=memory)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the picture's array."""
        return array_shape(self.format, self.size)

    def write(self, memory: Array) -> None:
        """Copies the parts to an array of bytes."""
        for start, part in self.parts:
            memory[start : start + len(part)] = part


@dataclass(frozen=True)
class _Samples:
    """The samples of one component in its plane, from byte `first` to `end`. base: that of pixel (0, 0)."""

    plane: int
    base: int
    row_stride: int
    pixel_stride: int
    first: int
    end: int

    @staticmethod
    def from_frame(frame: VideoFrame, format: Format, layout: PlaneLayout, number: int) -> _Samples:
        component = layout.components[number]
        plane, stride = frame.planes[component.plane], layout.pixel_strides[component.plane]
        pixel_stride = plane.pixel_stride or stride
        width = -(-frame.width // (chroma_block(format)[0] if component.plane else 1))
        row_stride, own = plane.row_stride or width * pixel_stride, pixel_stride * component.pixels
        least = (width - 1) * abs(pixel_stride) + stride
        if abs(row_stride) < least:
            raise InputError(
                f"plane {component.plane} has a row stride of {row_stride} bytes; {width} pixels with a pixel "
                f"stride of {pixel_stride} take {least}"
            )
        across, down = chroma_block(format) if number else (1, 1)
        left, top, width, height = frame.window
        columns = own * (left // across), own * ((left + width - 1) // across)
        rows = row_stride * (top // down), row_stride * ((top + height - 1) // down)
        base = plane.offset + component.offset
        first, end = base + min(columns) + min(rows), base + max(columns) + max(rows) + sample_bytes(format)
        return _Samples(component.plane, base, row_stride, own, first, end)


def _merged_spans(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """The memory to upload, once where planes overlap: where each part goes, its first address, and its end."""
    parts: list[tuple[int, int, int]] = []
    for begin, end in sorted(spans):
        if parts and begin <= parts[-1][2]:
            to, first, last = parts.pop()
            parts.append((to, first, max(last, end)))
        else:
            to = parts[-1][0] + parts[-1][2] - parts[-1][1] if parts else HEADER
            parts.append((to, begin, end))
    return parts


def _bytes_at(begin: int, end: int, frame: VideoFrame) -> Array:
    """The bytes at addresses of a frame's planes, which it keeps."""
    view: Any = (c_uint8 * (end - begin)).from_address(begin)
    view.frame = frame
    made: Array = numpy.frombuffer(view, numpy.uint8)
    return made


@dataclass(frozen=True)
class FrameKernel:
    """The kernel of frame.cl that makes an array of this shape. texels: of a row, if it is an image; 0: a buffer.

    floats: whether the buffer is of float32.
    """

    format: Format
    shape: tuple[int, ...]
    texels: int = 0
    floats: bool = False

    @property
    def items(self) -> int:
        """The global size."""
        return -(-prod(self.shape) // 4)

    @property
    def text(self) -> str:
        """Its OpenCL text, in which NAME stands for its name."""
        width, height = size_of_array(self.format, self.shape)
        shared = chroma_block(self.format)
        element = "float" if self.floats else "uchar"
        defines = {
            "WIDTH": width, "HEIGHT": height, "SHARED_X": shared[0], "SHARED_Y": shared[1],
            "PAIRS": int(self.format != "i420"), "CHANNELS": len(LAYOUTS[self.format][0].components),
            "SAMPLE_BYTES": sample_bytes(self.format), "COUNT": prod(self.shape), "TEXELS": self.texels,
            "RESULT": "__write_only image2d_t" if self.texels else f"__global {element} *restrict",
            "CONVERT": f"convert_{element}4",
        }
        lines = (f"#define {name} {value}\n" for name, value in defines.items())
        return "".join(lines) + FILE.read_text(encoding="utf-8")
