"""DeformConv: a convolution whose window positions are displaced by an offset input; Dai et al., arXiv:1703.06211."""

from __future__ import annotations

import numpy

from imgconv.ops.convolution import groups_of, with_bias
from imgconv.ops.registry import Call, operator
from imgconv.ops.sampling import tap_weight, weighted_sum
from imgconv.ops.window import Window, read_window
from imgconv.tensor import Tensor


@operator("DeformConv")
def deform_conv(call: Call) -> Tensor:
    """x (N, C, H, W) with weight (O, C/group, KH, KW); each tap reads x at its offset position, times the mask.

    offset: (N, offset_group*KH*KW*2, OH, OW), the rows and columns that each tap moves down and right.
    mask: (N, offset_group*KH*KW, OH, OW). x is interpolated linearly between elements and is zero outside.
    """
    x, weight, offset, mask = call.input(0), call.input(1), call.input(2), call.optional(4)
    groups, parts = groups_of(call, x, weight), int(call.attribute("offset_group", 1))
    if x.rank != 4 or weight.rank != 4:
        raise call.unsupported(f"input {list(x.shape)} and weight {list(weight.shape)}; two spatial axes are supported")
    if weight.shape[1] * groups != x.shape[1] or weight.shape[0] % groups or x.shape[1] % parts:
        raise call.wrong(
            f"weight {list(weight.shape)} in {groups} groups and offsets in {parts} do not match input {list(x.shape)}"
        )
    window = read_window(call, x.shape[2:], weight.shape[2:])
    (height, width), (rows, columns) = window.sizes, window.kernel
    taps = rows * columns
    for name, tensor, channels in (("offset", offset, 2 * parts * taps), ("mask", mask, parts * taps)):
        wanted = (x.shape[0], channels, height, width)
        if tensor is not None and tensor.shape != wanted:
            raise call.wrong(f"{name} {list(tensor.shape)}; {list(wanted)} is needed")
    # Channels that share offsets become one batch element: (N, C, H, W) -> (N*offset_group, C/offset_group, H, W).
    split = x.reshape(x.shape[0] * parts, x.shape[1] // parts, *x.shape[2:])
    moved = offset.reshape(split.shape[0], 1, taps, 2, height * width)
    indices, weights = [], []
    for axis in (0, 1):
        centre = moved.take(3, [axis]).reshape(split.shape[0], 1, taps, height * width, 1, 1)
        centre = centre.cast("float32") + Tensor.constant(_tap_positions(window, axis))
        both = numpy.arange(2, dtype=numpy.float32).reshape((2, 1) if axis == 0 else 2)
        position = centre.apply("floor") + Tensor.constant(both)
        weights.append(tap_weight((centre - position).apply("absolute"), "linear"))
        indices.append(position)
    read = weighted_sum(split, indices, weights)
    if mask is not None:
        read = read * mask.reshape(split.shape[0], 1, taps, height * width)
    columns_of = read.reshape(x.shape[0], groups, weight.shape[1] * taps, height * width)
    product = weight.reshape(groups, weight.shape[0] // groups, -1).matmul(columns_of)
    return with_bias(call, product.reshape(x.shape[0], weight.shape[0], height, width), 3)


def _tap_positions(window: Window, axis: int) -> numpy.ndarray:
    """The position along an axis that each tap reads for each output, before offsets: (taps, outputs, 1, 1)."""
    at = numpy.arange(window.sizes[axis])[None] * window.strides[axis] - window.pads[axis]
    place = numpy.arange(window.kernel[axis])[:, None] * window.dilations[axis] + at
    shape = (*window.kernel, *window.sizes)
    spread = place[:, None, :, None] if axis == 0 else place[None, :, None, :]
    full = numpy.broadcast_to(spread, shape).reshape(shape[0] * shape[1], -1, 1, 1)
    return full.astype(numpy.float32)
