"""Products, convolutions and crops, for what stands behind a shape that depends on data."""

from __future__ import annotations

from typing import Any

import numpy

from imgconv.arrays import Array
from imgconv.host.registry import Call, host


@host("MatMul")
def matmul(call: Call, a: Array, b: Array) -> Any:
    """The matrix product, as in numpy."""
    return numpy.matmul(a, b)


@host("Gemm")
def gemm(call: Call, a: Array, b: Array, c: Array | None = None) -> Any:
    """alpha * A * B + beta * C, each transposed if asked for."""
    a, b = a.T if call.flag("transA") else a, b.T if call.flag("transB") else b
    made = a.dtype.type(call.attribute("alpha", 1.0)) * (a @ b)
    return made if c is None else made + a.dtype.type(call.attribute("beta", 1.0)) * c


@host("Conv")
def conv(call: Call, x: Array, w: Array, bias: Array | None = None) -> Any:
    """A convolution as a product: the windows of each group, laid out as columns, times its weights."""
    rank, groups = x.ndim - 2, call.attribute("group", 1)
    window = w.shape[2:]
    strides, spread = (tuple(call.attribute(name, [1] * rank)) for name in ("strides", "dilations"))
    reach = [(k - 1) * d + 1 for k, d in zip(window, spread)]
    pads = _pads(call, x.shape[2:], reach, strides)
    padded = numpy.pad(x, [(0, 0), (0, 0), *pads])
    if any(n < r for n, r in zip(padded.shape[2:], reach)):
        return numpy.zeros((len(x), len(w), *(max((n - r) // s + 1, 0) for n, r, s in zip(
            padded.shape[2:], reach, strides
        ))), x.dtype)
    windows = numpy.lib.stride_tricks.sliding_window_view(padded, reach, tuple(range(2, x.ndim)))
    taken = (slice(None), slice(None), *(slice(None, None, step) for step in (*strides, *spread)))
    seen = windows[taken]
    sizes = seen.shape[2 : 2 + rank]
    call.allow(seen.shape, x.dtype)
    # (n, c, sizes, window) -> (n, group, c/group * window, sizes)
    moved = numpy.moveaxis(seen, range(2, 2 + rank), range(x.ndim, x.ndim + rank))
    columns = moved.reshape(len(x), groups, -1, int(numpy.prod(sizes)))
    made = numpy.matmul(w.reshape(groups, len(w) // groups, -1), columns).reshape(len(x), len(w), *sizes)
    return made if bias is None else made + bias.reshape(-1, *[1] * rank)


def _pads(call: Call, sizes: Any, reach: list[int], strides: tuple[int, ...]) -> list[tuple[int, int]]:
    """(before, after) of each spatial axis."""
    rank, mode = len(sizes), call.attribute("auto_pad", "NOTSET")
    if mode in ("NOTSET", "VALID"):
        given = call.attribute("pads", [0] * 2 * rank) if mode == "NOTSET" else [0] * 2 * rank
        return [(given[a], given[rank + a]) for a in range(rank)]
    totals = [max((-(-n // s) - 1) * s + r - n, 0) for n, r, s in zip(sizes, reach, strides)]
    return [(t - t // 2, t // 2) if mode == "SAME_LOWER" else (t // 2, t - t // 2) for t in totals]
