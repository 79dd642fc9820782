"""RGBA images and plain buffers on a device.

An image is ``height`` rows of ``width`` texels of four channels, float32, float16, int8 or uint8: on the host an array
of shape (height, width, 4). A kernel reads an int8 as itself / 127 and a uint8 as itself / 255. An image array has
``layers`` of them: (layers, height, width, 4). Origins and regions are counted in texels, in OpenCL's order: (x, y) and
(width, height), with the layer third in an image array.

Everything goes through the context's in-order queue; copies to or from the host wait for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyopencl as cl

from imgconv.arrays import Array
from imgconv.cl.device import Context, DeviceInfo, refusal
from imgconv.cl.queue import finish_queue
from imgconv.errors import InputError, ResourceError

Image = cl.Image
Buffer = cl.Buffer
Texels = tuple[int, ...]


def create_image(
    context: Context, width: int, height: int, layers: int, dtype: npt.DTypeLike, tensor: str = ""
) -> cl.Image:
    """An image2d (``layers`` 0 or 1) or an image2d_array of RGBA texels, readable and writable.

    Its content is undefined. ``tensor`` is the name in errors. Raises ResourceError if the size is past the device's
    limits, the device lacks the dtype, or there is no memory. Most drivers allocate at the first use: see ``allocate``.
    """
    info = context.info
    size = (width, height, layers) if layers > 1 else (width, height)
    shape = (*reversed(size), 4)
    texel_format = _texel_format(info, np.dtype(dtype), shape, tensor)
    what = f"an image of {'x'.join(map(str, size))} texels, {np.dtype(dtype)}"
    limits = (info.max_image_width, info.max_image_height, info.max_image_layers)
    if any(not 1 <= asked <= limit for asked, limit in zip(size, limits, strict=False)):
        limit_text = f"1x1 to {limits[0]}x{limits[1]} texels, {limits[2]} layers"
        raise ResourceError(f"{what}, is not possible on {info.name}", tensor, shape, limit_text)
    with _driver_errors(context, what, tensor, shape):
        flags = cl.mem_flags.READ_WRITE
        return cl.create_image(context.handle, flags, texel_format, shape=size, is_array=layers > 1)


def create_image_in(
    context: Context, buffer: cl.Buffer, offset: int, row_bytes: int, width: int, height: int, dtype: npt.DTypeLike,
    tensor: str = "",
) -> cl.Image:
    """An image2d whose memory is a part of a buffer, from `offset` on, with `row_bytes` from row to row.

    DeviceInfo has the alignment of offset and rows. Raises ResourceError if the driver refuses it.
    """
    shape = (height, width, 4)
    what = f"an image of {width}x{height} texels, {np.dtype(dtype)}, in a buffer"
    with _driver_errors(context, what, tensor, shape):
        # The image description does not keep its buffer alive.
        part = buffer[offset : offset + row_bytes * height]
        description = cl.ImageDescriptor()
        description.image_type = cl.mem_object_type.IMAGE2D
        description.shape = (width, height, 1)
        description.pitches = (row_bytes, 0)
        description.buffer = part
        texel_format = _texel_format(context.info, np.dtype(dtype), shape, tensor)
        return cl.Image(context.handle, cl.mem_flags.READ_WRITE, texel_format, desc=description)


def part_of(context: Context, buffer: cl.Buffer, offset: int, size: int, tensor: str = "") -> cl.Buffer:
    """The buffer of `size` bytes that is a part of another, from `offset` on. DeviceInfo has the offset's alignment.

    Raises ResourceError if the driver refuses it.
    """
    with _driver_errors(context, f"a buffer of {size} bytes in another", tensor, (size,)):
        return buffer[offset : offset + size]


def fill_buffer(context: Context, buffer: cl.Buffer, value: float, tensor: str = "") -> None:
    """Enqueues setting a buffer of whole 32-bit words to a float."""
    with _driver_errors(context, f"a buffer of {buffer.size} bytes", tensor, (buffer.size,)):
        cl.enqueue_fill_buffer(context.queue, buffer, np.float32(value), 0, buffer.size - buffer.size % 4)


def allocate_buffer(context: Context, buffer: cl.Buffer, tensor: str = "") -> None:
    """Like `allocate`, for a buffer."""
    fill_buffer(context, buffer, 0.0, tensor)
    with _driver_errors(context, f"a buffer of {buffer.size} bytes", tensor, (buffer.size,)):
        finish_queue(context, context.queue)


def allocate(context: Context, image: cl.Image, tensor: str = "") -> None:
    """Fills the image with zeros and waits, so that a driver that allocates late fails here: ResourceError."""
    with _driver_errors(context, f"an image of {_size_text(image)}", tensor, image_shape(image)):
        _enqueue_fill(context, image, (0.0, 0.0, 0.0, 0.0), (0, 0, 0), _whole_region(image))
        finish_queue(context, context.queue)


def image_shape(image: cl.Image) -> tuple[int, ...]:
    """The shape of the image's host array: (height, width, 4), or (layers, height, width, 4)."""
    plain = (image.height, image.width, 4)
    return (image.array_size, *plain) if _is_array(image) else plain


def image_dtype(image: cl.Image) -> np.dtype[Any]:
    """float32, float16, int8 or uint8."""
    types: dict[int, type[np.generic]] = {
        cl.channel_type.HALF_FLOAT: np.float16, cl.channel_type.SNORM_INT8: np.int8,
        cl.channel_type.UNORM_INT8: np.uint8,
    }
    return np.dtype(types.get(image.format.channel_data_type, np.float32))


def upload(context: Context, image: cl.Image, array: Array) -> cl.Event:
    """Copies a host array to the whole image; the event is for ``spans``.

    Raises InputError unless the array has the image's shape and dtype.
    """
    shape, dtype = image_shape(image), image_dtype(image)
    if array.shape != shape or array.dtype != dtype:
        raise InputError(f"an array of {array.shape}, {array.dtype}, does not fit an image of {shape}, {dtype}")
    with _driver_errors(context, f"an upload to an image of {_size_text(image)}", "", image_shape(image)):
        return _copy(context, image, np.ascontiguousarray(array), origin=(0, 0, 0), region=_whole_region(image))


def download(context: Context, image: cl.Image, region: Texels | None = None) -> Array:
    """The texels of ``region``, which starts at (0, 0), as a new host array (default: the whole image).

    Its shape is (height, width, 4), or (layers, height, width, 4).
    """
    width, height, layers = _three(_whole_region(image) if region is None else region, 1)
    shape = (layers, height, width, 4) if _is_array(image) else (height, width, 4)
    array = np.empty(shape, image_dtype(image))
    with _driver_errors(context, f"a download of an image of {_size_text(image)}", "", image_shape(image)):
        _copy(context, array, image, origin=(0, 0, 0), region=(width, height, layers))
    return array


def fill(
    context: Context,
    image: cl.Image,
    rgba: tuple[float, float, float, float],
    origin: Texels = (0, 0, 0),
    region: Texels | None = None,
) -> None:
    """Enqueues setting every texel of ``region`` (default: the whole image) to ``rgba``."""
    box = _three(_whole_region(image) if region is None else region, 1)
    with _driver_errors(context, f"a fill of an image of {_size_text(image)}", "", image_shape(image)):
        _enqueue_fill(context, image, rgba, _three(origin, 0), box)


def _enqueue_fill(context: Context, image: cl.Image, rgba: tuple[float, ...], origin: Texels, box: Texels) -> None:
    cl.enqueue_fill_image(context.queue, image, np.array(rgba, np.float32), origin, box)


def copy_region(
    context: Context,
    source: cl.Image,
    destination: cl.Image,
    source_origin: Texels,
    destination_origin: Texels,
    region: Texels,
) -> None:
    """Enqueues a copy of texels between two images of the same dtype, or within one if the regions do not overlap."""
    with _driver_errors(context, f"a copy to an image of {_size_text(destination)}", "", image_shape(destination)):
        cl.enqueue_copy(
            context.queue,
            destination,
            source,
            src_origin=_three(source_origin, 0),
            dest_origin=_three(destination_origin, 0),
            region=_three(region, 1),
        )


def copy_texels(
    context: Context, destination: cl.Image | cl.Buffer, source: cl.Image | cl.Buffer, origin: Texels, region: Texels
) -> None:
    """Enqueues a copy of the texels of an image's region to the start of a buffer, row by row, or back."""
    with _driver_errors(context, f"a copy of {'x'.join(map(str, region))} texels", "", region):
        extent: dict[str, Any] = {"offset": 0, "origin": origin, "region": region}
        cl.enqueue_copy(context.queue, destination, source, **extent)


def copy_through_host(context: Context, destination: cl.Image | cl.Buffer, source: cl.Image | cl.Buffer) -> None:
    """Copies all texels between an image and a buffer of them, row by row; waits.

    PoCL (3.1) crashes in OpenCL's own copies between an image and a part of a buffer.
    """
    if isinstance(destination, cl.Image):
        assert isinstance(source, cl.Buffer)
        texels = download_buffer(context, source, image_shape(destination), image_dtype(destination))
        upload(context, destination, texels)
        return
    assert isinstance(source, cl.Image)
    with _driver_errors(context, f"an upload to a buffer of {destination.size} bytes", "", (destination.size,)):
        _copy(context, destination, download(context, source))


@contextmanager
def mapped(context: Context, image: cl.Image, write: bool = False) -> Iterator[Array]:
    """The image's memory as a host array, valid inside the ``with`` block only; read-only unless ``write``.

    Rows may be further apart than their length: do not assume that the array is contiguous. With ``write``, the image
    holds the new values after the block; texels that the block does not write keep theirs.
    """
    shape, dtype = image_shape(image), image_dtype(image)
    flags = cl.map_flags.READ | cl.map_flags.WRITE if write else cl.map_flags.READ
    with _driver_errors(context, f"mapping an image of {_size_text(image)}", "", shape):
        packed, _, row_bytes, layer_bytes = context.within(partial(
            cl.enqueue_map_image, context.queue, image, flags, (0, 0, 0), _whole_region(image), shape, dtype
        ))
    texel_strides = (row_bytes, 4 * dtype.itemsize, dtype.itemsize)
    strides = (layer_bytes, *texel_strides) if len(shape) == 4 else texel_strides
    memory_map = packed.base
    assert isinstance(memory_map, cl.MemoryMap)
    try:
        yield np.lib.stride_tricks.as_strided(packed, shape, strides, writeable=write)
    finally:
        context.within(lambda: memory_map.release(context.queue).wait())


def create_buffer(context: Context, content: int | Array, tensor: str = "") -> cl.Buffer:
    """A buffer of ``content`` bytes of undefined content, or one that holds a copy of the array ``content``.

    Raises ResourceError if there is no such memory.
    """
    size = content if isinstance(content, int) else content.nbytes
    limit = context.info.max_allocation_bytes
    if not 1 <= size <= limit:
        raise ResourceError(
            f"a buffer of {size} bytes is not possible on {context.info.name}", tensor, (size,), f"1 to {limit} bytes"
        )
    with _driver_errors(context, f"a buffer of {size} bytes", tensor, (size,)):
        buffer = cl.Buffer(context.handle, cl.mem_flags.READ_WRITE, size)
        if not isinstance(content, int):
            _copy(context, buffer, np.ascontiguousarray(content))
    return buffer


def download_buffer(context: Context, buffer: cl.Buffer, shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
    """The start of the buffer as a new array. Raises InputError if the array is longer than the buffer."""
    array = np.empty(shape, dtype)
    if array.nbytes > buffer.size:
        raise InputError(f"an array of {array.nbytes} bytes cannot be read from a buffer of {buffer.size} bytes")
    with _driver_errors(context, f"a download of a buffer of {buffer.size} bytes", "", (buffer.size,)):
        _copy(context, array, buffer)
    return array


def _copy(context: Context, destination: Any, source: Any, **extent: Any) -> cl.Event:
    """Copies between host and device, and waits."""
    return context.within(partial(cl.enqueue_copy, context.queue, destination, source, **extent))


def _texel_format(info: DeviceInfo, dtype: np.dtype[Any], shape: tuple[int, ...], tensor: str) -> cl.ImageFormat:
    channels = {
        np.dtype(np.float32): (cl.channel_type.FLOAT, info.float_images),
        np.dtype(np.float16): (cl.channel_type.HALF_FLOAT, info.half_images),
        np.dtype(np.int8): (cl.channel_type.SNORM_INT8, info.byte_images),
        np.dtype(np.uint8): (cl.channel_type.UNORM_INT8, True),  # OpenCL requires it of every device with images
    }
    channel_type, offered = channels.get(dtype, (0, False))
    if not offered:
        names = ", ".join(str(each) for each, (_, is_offered) in channels.items() if is_offered)
        raise ResourceError(f"{info.name} has no RGBA images of {dtype}", tensor, shape, names or "no images")
    return cl.ImageFormat(cl.channel_order.RGBA, channel_type)


@contextmanager
def _driver_errors(context: Context, what: str, tensor: str, shape: tuple[int, ...]) -> Iterator[None]:
    try:
        yield
    except cl.Error as error:
        raise refusal(context.info, what, error, tensor, shape) from error


def _size_text(image: cl.Image) -> str:
    size = _whole_region(image) if _is_array(image) else (image.width, image.height)
    return f"{'x'.join(map(str, size))} texels, {image_dtype(image)}"


def _is_array(image: cl.Image) -> bool:
    """Asks for the type: CL_IMAGE_ARRAY_SIZE of a plain image is 0 in OpenCL, but 1 in Mesa's rusticl."""
    return bool(image.type == cl.mem_object_type.IMAGE2D_ARRAY)


def _whole_region(image: cl.Image) -> tuple[int, int, int]:
    return (image.width, image.height, max(1, image.array_size))


def _three(texels: Texels, last: int) -> tuple[int, ...]:
    return (*texels, last) if len(texels) == 2 else texels
