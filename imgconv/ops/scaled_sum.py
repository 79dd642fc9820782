"""Sums of products of two quantised tensors, computed as sums of integers, which fp32 holds exactly, times their scale.

    sum of (n * x_scale) * (w * w_scale) + bias  =  (sum of n * w + bias / scale) * scale      scale = x_scale * w_scale

If a QuantizeLinear reads such a sum, onnxruntime computes it in int32 and multiplies once by scale / y_scale.
`requantised` does the same, so both round the same number to a quantised value.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import numpy

from imgconv.tensor import Tensor

BYTE = 255  # the largest difference of two levels


def scaled_sum(
    x: Tensor, weight: Tensor, bias: Tensor | None, compute: Callable[[Tensor, Tensor], Tensor], axis: int,
    by_output: tuple[int, ...],
) -> Tensor | None:
    """The sums of products of quantised tensors, plus a bias. None if they are not both quantised.

    compute: the sums of products of two tensors, in float. axis: of the weights, along which they have a scale for each
    output. by_output: the shape in which a vector, with an element for each output, broadcasts to the sums.
    """
    if x.quantised is None or weight.quantised is None or x.dtype != "float32" or x.is_constant:
        return None
    (levels, x_scale), (integers, w_scale) = x.quantised, weight.quantised
    outputs = tuple(size if a == axis % weight.rank else 1 for a, size in enumerate(weight.shape))
    by_weight = w_scale.size == 1 or (1,) * (weight.rank - w_scale.rank) + w_scale.shape == outputs
    if x_scale.size != 1 or not by_weight or numpy.abs(integers.numpy()).max(initial=0) > BYTE:
        return None
    scale = x_scale.reshape() * w_scale.reshape(*(() if w_scale.size == 1 else by_output))
    sums = compute(levels, integers)
    if bias is not None:
        whole = _integer_bias(bias, scale)
        if whole is None:
            return sums * scale + bias.reshape(*by_output)
        sums = sums + whole.cast("float32").reshape(*by_output)
    made = sums * scale
    made.scaled_sum = sums, scale, (-inf, inf)
    return made


def _integer_bias(bias: Tensor, scale: Tensor) -> Tensor | None:
    """The integers of a bias if their scale is that of the sums."""
    if bias.quantised is None:
        return None
    integers, steps = bias.quantised
    return integers if numpy.allclose(steps.numpy().reshape(-1), scale.numpy().reshape(-1), 1e-6, 0) else None


def clamped(x: Tensor, made: Tensor, low: Tensor | float, high: Tensor | float) -> Tensor:
    """Returns `made`, which is min(max(x, low), high), as a scaled sum within these limits if x is a scaled sum."""
    known = [each for each in (low, high) if not isinstance(each, Tensor) or each.is_constant]
    if x.scaled_sum is not None and len(known) == 2:
        sums, scale, (lowest, highest) = x.scaled_sum
        least, most = (float(each.numpy()) if isinstance(each, Tensor) else each for each in known)
        made.scaled_sum = sums, scale, (max(lowest, least), min(highest, most))
    return made


def requantised(x: Tensor, scale: Tensor, least: float, most: float) -> Tensor:
    """x / scale, before it is rounded to one of the integers from `least` to `most`."""
    if x.scaled_sum is None or not scale.is_constant or scale.size != 1:
        return x.cast("float32") / scale
    sums, own, limits = x.scaled_sum
    made = sums * (own / scale.reshape())
    low, high = (numpy.float32(limit) / scale.numpy().reshape(()) for limit in limits)
    made = made if low <= least else made.maximum(float(low))
    return made if high >= most else made.minimum(float(high))
