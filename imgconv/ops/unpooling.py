"""The inverses of sliding windows: every output position gathers from the windows that cover it."""

from __future__ import annotations

from math import prod

import numpy

from imgconv.graph.index import Index
from imgconv.graph.view import Bound, View, axis_variables, window_reaching
from imgconv.ops.registry import Call, operator
from imgconv.ops.window import read_numbers
from imgconv.tensor import EXACT, Tensor, elementwise, less, where


@operator("Col2Im")
def col2im(call: Call) -> Tensor:
    """(N, C*block, L) -> (N, C, image): each block placed at its position; overlapping elements are added."""
    x, image, block = call.input(0), call.integers(1, "image_shape") or [], call.integers(2, "block_shape") or []
    call.computes(x)
    count = len(image)
    strides, dilations = (read_numbers(call, name, count, 1, 1) for name in ("strides", "dilations"))
    pads = read_numbers(call, "pads", 2 * count, 0, 0)
    blocks = [
        (image[i] + pads[i] + pads[count + i] - (block[i] - 1) * dilations[i] - 1) // strides[i] + 1
        for i in range(count)
    ]
    if x.rank != 3 or len(block) != count or min(blocks) < 1 or x.shape[2] != prod(blocks) or x.shape[1] % prod(block):
        raise call.wrong(f"{list(x.shape)} has no {blocks} blocks of {block} for an image of {image}")
    channels = x.shape[1] // prod(block)
    split = x.reshape(x.shape[0], channels, *block, *blocks)
    shape = (x.shape[0], channels, *image, *block)
    axes = axis_variables(shape)
    places, bounds = _reached(axes[2 : 2 + count], axes[2 + count :], strides, dilations, pads, blocks)
    view = View(shape, split.shape, (*axes[:2], *axes[2 + count :], *places), bounds)
    return split.through(view).sum(range(2 + count, 2 + 2 * count))


@operator("MaxUnpool")
def max_unpool(call: Call) -> Tensor:
    """The inverse of MaxPool: each element placed at its index in the flattened output, zeros elsewhere.

    An element's index must lie in its own window, as MaxPool gives it. output_shape appends zeros to the result.
    """
    x, places, wanted = call.input(0), call.input(1), call.integers(2, "output_shape")
    kernel = tuple(call.attribute("kernel_shape", ()))
    count = x.rank - 2
    strides, pads = read_numbers(call, "strides", count, 1, 1), read_numbers(call, "pads", 2 * count, 0, 0)
    if len(kernel) != count or places.shape != x.shape:
        raise call.wrong(f"kernel_shape {list(kernel)} and indices of {list(places.shape)} for {list(x.shape)}")
    sizes = [(x.shape[2 + i] - 1) * strides[i] + kernel[i] - pads[i] - pads[count + i] for i in range(count)]
    shape = (*x.shape[:2], *sizes)
    if prod(shape) > EXACT:
        raise call.unsupported(f"{prod(shape)} elements, more than 2**24: integers are floats on a device")
    axes = axis_variables((*shape, *kernel))
    ones = (1,) * count
    reached, bounds = _reached(axes[2 : 2 + count], axes[2 + count :], strides, ones, pads, x.shape[2:])
    view = View((*shape, *kernel), x.shape, (*axes[:2], *reached), bounds)
    plane = Tensor.constant(numpy.arange(prod(shape[:2])).reshape(*shape[:2], *ones) * prod(sizes))
    here = Tensor.constant(numpy.arange(prod(sizes)).reshape(*sizes, *ones))
    hits = elementwise("equal", (places - plane).through(view, -1), here, dtype="bool")
    found = where(hits, x.through(view), -numpy.inf).max(range(2 + count, 2 + 2 * count))
    result = where(less(-numpy.inf, found), found, 0)
    if wanted is None:
        return result
    if len(wanted) != x.rank or any(n < m for n, m in zip(wanted, shape, strict=True)):
        raise call.wrong(f"output_shape {wanted} for a result of {list(shape)}")
    return result.pad([0] * x.rank, [n - m for n, m in zip(wanted, shape, strict=True)])


def _reached(
    at: tuple[Index, ...], taps: tuple[Index, ...], strides: tuple[int, ...], dilations: tuple[int, ...],
    pads: tuple[int, ...], sizes: list[int] | tuple[int, ...],
) -> tuple[list[Index], tuple[Bound, ...]]:
    """For each axis the window whose given tap lies at a position, and the bounds within which one exists."""
    found = [window_reaching(*row) for row in zip(at, taps, strides, dilations, pads, sizes)]
    return [place for place, _ in found], tuple(b for _, bounds in found for b in bounds if not b.always)
