"""Fourier transforms: products with matrices of cosines and sines. A complex number is two floats along the last axis.
"""

from __future__ import annotations

from math import prod

import numpy

from imgconv.arrays import Array
from imgconv.ops.registry import Call, operator
from imgconv.tensor import Tensor, convolution


@operator("DFT")
def dft(call: Call) -> Tensor:
    """The discrete Fourier transform along an axis: (..., n, ..., 1 or 2) -> (..., bins, ..., 2).

    Its inverse with onesided gives real numbers, (..., length, ..., 1).
    """
    x, parts = call.input(0), _parts_of_number(call, call.input(0))
    inverse, one_sided = call.flag("inverse"), call.flag("onesided")
    if one_sided and (parts == 2) != inverse:
        raise call.wrong(f"onesided {'from real' if inverse else 'of complex'} numbers")
    axis = _signal_axis(call, x.rank)
    given = call.integers(1, "the length")
    length = given[0] if given else 2 * (x.shape[axis] - 1) if one_sided and inverse else x.shape[axis]
    if length < 1:
        raise call.wrong(f"a transform of length {length}")
    rows = min(x.shape[axis], length // 2 + 1 if one_sided and inverse else length)
    order = [a for a in range(x.rank - 1) if a != axis]
    last = x.cast("float32").slice(axis, 0, rows).transpose(*order, axis, x.rank - 1)
    columns = length // 2 + 1 if one_sided and not inverse else length
    call.check_length(rows * columns, "a matrix")
    matrix = _dft_matrix(rows, columns, length, inverse, one_sided)[:, :parts]
    kept = 1 if one_sided and inverse else 2
    others = [x.shape[a] for a in order]
    flat = last.reshape(prod(others), rows * parts)
    made = flat.matmul(Tensor.constant(matrix[..., :kept].reshape(rows * parts, columns * kept)))
    back = numpy.argsort([*order, axis]).tolist()
    return made.reshape(*others, columns, kept).transpose(*back, x.rank - 1).cast(x.dtype)


@operator("STFT")
def stft(call: Call) -> Tensor:
    """The transforms of frames: (N, length, 1 or 2) -> (N, frames, bins, 2); a strided convolution with the window."""
    signal, parts = call.input(0), 1 if call.input(0).rank == 2 else _parts_of_number(call, call.input(0))
    step, window = call.integers(1, "frame_step"), call.optional(2)
    given = call.integers(3, "frame_length")
    size = given[0] if given else window.size if window is not None else signal.shape[1]
    one_sided = call.flag("onesided", True) and parts == 1
    if signal.rank > 3 or not step or step[0] < 1 or not 0 < size <= signal.shape[1]:
        raise call.wrong(f"frames of {size}, {step} apart, of {list(signal.shape)}")
    if window is not None and window.size != size:
        raise call.wrong(f"a window of {window.size} for frames of {size}")
    bins = size // 2 + 1 if one_sided else size
    call.check_length(size * bins, "a matrix")
    matrix = _dft_matrix(size, bins, size, False, one_sided)[:, :parts]  # (size, parts, bins, 2)
    weight = Tensor.constant(matrix.transpose(2, 3, 1, 0).reshape(bins * 2, parts, size))
    if window is not None:
        weight = weight * window.cast("float32").reshape(1, 1, size)
    x = signal.cast("float32").reshape(*signal.shape[:2], parts).transpose(0, 2, 1)
    made = convolution(x, weight, step, [0, 0], [1]).transpose(0, 2, 1)
    return made.reshape(*made.shape[:2], bins, 2).cast(signal.dtype)


def _parts_of_number(call: Call, x: Tensor) -> int:
    """1 for real numbers, 2 for complex ones."""
    call.refuse_integers(x)
    if x.rank < 2 or x.shape[-1] not in (1, 2):
        raise call.wrong(f"{list(x.shape)}: the last axis holds one part or two of a number")
    return x.shape[-1]


def _signal_axis(call: Call, rank: int) -> int:
    """The axis of the transform: an attribute before opset 20, an input since."""
    given = call.integers(2, "the axis") if call.version >= 20 else [int(call.attribute("axis", 1))]
    axis = call.axis(given[0] if given else -2, rank)
    if axis == rank - 1:
        raise call.wrong("the last axis holds the parts of a number")
    return axis


def _dft_matrix(rows: int, columns: int, length: int, inverse: bool, one_sided: bool) -> Array:
    """(rows, 2, columns, 2): what the real and the imaginary part of each input add to those of each output.

    A spectrum of one side stands for both: all but its first number, and the one at half an even length, count twice.
    """
    steps = numpy.outer(numpy.arange(rows), numpy.arange(columns)) % length
    angle = (2 if inverse else -2) * numpy.pi * steps / length
    # What is 0 is 1e-16 in numpy. A real signal's parts that are 0 shall be 0: their signs may be asked for.
    cosine, sine = numpy.cos(angle).round(15), numpy.sin(angle).round(15)
    matrix = numpy.stack([numpy.stack([cosine, sine], -1), numpy.stack([-sine, cosine], -1)], 1)
    if inverse:
        row = numpy.arange(rows)
        twice = one_sided & (row > 0) & (2 * row != length)
        matrix *= (numpy.where(twice, 2.0, 1.0) / length)[:, None, None, None]
    return matrix.astype(numpy.float32)
