"""The inverses of sliding windows: every output position gathers from the windows that cover it."""

from __future__ import annotations

import math
from math import prod

import numpy

from imgconv.arrays import Array
from imgconv.graph.index import Index
from imgconv.graph.view import Bound, Shape, View, axis_variables, window_reaching
from imgconv.ops.registry import Call, operator
from imgconv.ops.window import read_numbers
from imgconv.tensor import EXACT, Tensor, elementwise, gather, less, where


@operator("Col2Im")
def col2im(call: Call) -> Tensor:
    """(N, C*block, L) -> (N, C, image): each block placed at its position; overlapping elements are added."""
    x, image, block = call.input(0), call.integers(1, "image_shape") or [], call.integers(2, "block_shape") or []
    call.refuse_narrow_integers(x)
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
    places, bounds = _windows_reaching(axes[2 : 2 + count], axes[2 + count :], strides, dilations, pads, blocks)
    view = View(shape, split.shape, (*axes[:2], *axes[2 + count :], *places), bounds)
    return split.read_through(view).sum(range(2 + count, 2 + 2 * count))


@operator("MaxUnpool")
def max_unpool(call: Call) -> Tensor:
    """The inverse of MaxPool: each element placed at its index in the flattened output, zeros elsewhere.

    Of several elements with one index the last one stays. output_shape appends zeros to the result. Indices that depend
    on an input lie in their elements' windows, as MaxPool gives them; where one does not, its window is NaN.
    """
    x, places, wanted = call.input(0), call.input(1), call.integers(2, "output_shape")
    kernel = tuple(call.attribute("kernel_shape", ()))
    count = x.rank - 2
    strides, pads = read_numbers(call, "strides", count, 1, 1), read_numbers(call, "pads", 2 * count, 0, 0)
    if len(kernel) != count or min(kernel, default=1) < 1 or places.shape != x.shape:
        raise call.wrong(f"kernel_shape {list(kernel)} and indices of {list(places.shape)} for {list(x.shape)}")
    sizes = [(x.shape[2 + i] - 1) * strides[i] + kernel[i] - pads[i] - pads[count + i] for i in range(count)]
    shape = (*x.shape[:2], *sizes)
    if min(shape) < 1:
        raise call.wrong(f"pads {list(pads)} leave nothing of the output")
    if prod(shape) > EXACT:
        raise call.unsupported(f"{prod(shape)} elements, more than 2**24: integers are fp32 values on the device")
    if places.is_constant:
        result = _scatter_at_known_indices(call, x, places.numpy(), shape)
    else:
        result = _search_for_index(x, places, shape, kernel, strides, pads)
    if wanted is None:
        return result
    if len(wanted) != x.rank or any(n < m for n, m in zip(wanted, shape, strict=True)):
        raise call.wrong(f"output_shape {wanted} for a result of {list(shape)}")
    return result.pad([0] * x.rank, [n - m for n, m in zip(wanted, shape, strict=True)])


def _scatter_at_known_indices(call: Call, x: Tensor, places: Array, shape: Shape) -> Tensor:
    """Places each element at its index, which is known."""
    size = prod(shape)
    flat = places.ravel()
    if numpy.any((flat < 0) | (flat >= size)):
        raise call.wrong(f"an index is outside of a result of {list(shape)}")
    found = numpy.full(size, x.size)
    found[flat] = numpy.arange(x.size)  # the last one of several stays
    return x.reshape(-1).pad([0], [1]).take(0, found.tolist()).reshape(*shape)


def _search_for_index(
    x: Tensor, places: Tensor, shape: Shape, kernel: tuple[int, ...], strides: tuple[int, ...], pads: tuple[int, ...]
) -> Tensor:
    """Looks at each output position for the element with its index, among those whose windows cover it."""
    count, sizes = len(kernel), shape[2:]
    axes = axis_variables((*shape, *kernel))
    reached, bounds = _windows_reaching(
        axes[2 : 2 + count], axes[2 + count :], strides, (1,) * count, pads, x.shape[2:]
    )
    view = View((*shape, *kernel), x.shape, (*axes[:2], *reached), bounds)
    ones, taps = (1,) * count, range(2 + count, 2 + 2 * count)
    planes = Tensor.constant(numpy.arange(prod(shape[:2])).reshape(*shape[:2], *ones) * prod(sizes))
    inside = places - planes
    stray = less(inside, 0).apply("or", less(inside, prod(sizes)).apply("not"))
    for axis, size in enumerate(sizes):
        at = inside.apply("quotient", prod(sizes[axis + 1 :])).apply("modulo", size)
        begins = numpy.arange(x.shape[2 + axis]) * strides[axis] - pads[axis]
        begin = Tensor.constant(begins.reshape([-1 if a == axis else 1 for a in range(count)]))
        stray = stray.apply("or", less(at, begin)).apply("or", less(at, begin + kernel[axis]).apply("not"))
    here = Tensor.constant(numpy.arange(prod(sizes)).reshape(*sizes, *ones))
    hits = elementwise("equal", inside.read_through(view, -1), here, dtype="bool")
    number = Tensor.constant(numpy.arange(x.size).reshape(x.shape))
    last = where(hits, number.read_through(view, -1), -1).max(taps)
    flat = gather(x.reshape(-1), View((*shape, x.size), (x.size,), axis_variables((*shape, x.size))[-1:]), [last])
    found = where(less(last, 0), 0, flat)
    lost = where(stray.cast("float32").read_through(view).max(taps).cast("bool"), math.nan, found)
    return lost.cast(x.dtype)


def _windows_reaching(
    at: tuple[Index, ...], taps: tuple[Index, ...], strides: tuple[int, ...], dilations: tuple[int, ...],
    pads: tuple[int, ...], sizes: list[int] | tuple[int, ...],
) -> tuple[list[Index], tuple[Bound, ...]]:
    """Returns for each axis the window whose given tap lies at a position, and the bounds within which one exists."""
    found = [window_reaching(*row) for row in zip(at, taps, strides, dilations, pads, sizes)]
    return [place for place, _ in found], tuple(b for _, bounds in found for b in bounds if not b.always)
