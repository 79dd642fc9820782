"""Normalisations. Means and variances are float32 even in fp16 models; a variance is mean((x - mean)**2)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy

from imgconv.arrays import Array
from imgconv.ops.registry import FLOATS, MICROSOFT, Call, Signature, operator
from imgconv.tensor import Tensor, elementwise, where

FEW = 1024  # numbers that one more reduction costs little
# Each leaves the rounding error of a mean, in parts of what was left before. A GPU's division rounds even the mean of
# equal numbers, whose deviation is then not small against the 1e-9 of the formula.
CENTRINGS = 2


@operator("BatchNormalization")
def batch_normalization(call: Call) -> Tensor:
    """x*scale' + shift' with scale' = scale / sqrt(var + epsilon) and shift' = bias - mean*scale', per channel.

    scale' and shift' are computed in float64 and rounded once: a variance may be too small or too large for half.
    """
    if call.flag("training_mode") or any(call.is_output_used(i) for i in range(1, 5)):
        raise call.unsupported("training mode; export the model for inference")
    x = call.input(0)
    channels = x.shape[1] if x.rank > 1 else 1
    by_element = call.version < 9 and not call.flag("spatial", True)
    of, shape = (x.shape[1:], x.shape[1:]) if by_element else ((channels,), (channels, *[1] * (x.rank - 2)))
    parts = [call.input(i) for i in range(1, 5)]
    if any(p.shape != of for p in parts):
        raise call.wrong(f"parameters of shapes {[list(p.shape) for p in parts]} for input {list(x.shape)}")
    scale, bias, mean, var = (p.reshape(*shape) for p in parts)
    epsilon = call.number("epsilon", 1e-5)
    if all(p.is_constant for p in parts):
        factor, shift = _factor_and_shift(scale, bias, mean, var, epsilon)
    else:
        factor = scale.cast("float32") / (var.cast("float32") + epsilon).sqrt()
        shift = bias.cast("float32") - mean.cast("float32") * factor
    return elementwise("add", elementwise("multiply", x, factor, dtype="float32"), shift, dtype=x.dtype)


def _factor_and_shift(scale: Tensor, bias: Tensor, mean: Tensor, var: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    factor = _to_float64(scale) / numpy.sqrt(_to_float64(var) + epsilon)
    shift = _to_float64(bias) - _to_float64(mean) * factor
    return Tensor.constant(factor.astype(numpy.float32)), Tensor.constant(shift.astype(numpy.float32))


def _to_float64(tensor: Tensor) -> Array:
    return tensor.numpy().astype(numpy.float64)


@operator("InstanceNormalization")
def instance_normalization(call: Call) -> Tensor:
    """(x - mean) / sqrt(var + epsilon) * scale + bias over the spatial axes, for each batch element and channel."""
    x, scale, bias = call.input(0), call.input(1), call.input(2)
    if x.rank < 3:
        raise call.wrong(f"input of shape {list(x.shape)} has no spatial axis")
    if not scale.shape == bias.shape == (x.shape[1],):
        raise call.wrong(f"scale {list(scale.shape)} and bias {list(bias.shape)} for {x.shape[1]} channels")
    ones = [1] * (x.rank - 2)
    centred, inverse, _ = _standardise(x, range(2, x.rank), call.number("epsilon", 1e-5))
    return _scale_and_shift(x, centred, inverse, scale.reshape(-1, *ones), bias.reshape(-1, *ones))


_LAYER_TYPES = {"T": FLOATS, "V": FLOATS}
_LAYER_ATTRIBUTES = ("axis", "epsilon", "stash_type")
# onnxruntime has it at every opset, ONNX since 17.
_LAYER = Signature({"X": "T", "Scale": "V", "B": "V?"}, _LAYER_TYPES, _LAYER_ATTRIBUTES)


@operator("LayerNormalization", signature=_LAYER)
def layer_normalization(call: Call) -> list[Tensor]:
    """(x - mean) / sqrt(var + epsilon) * scale + bias over all axes from `axis` on, in the type of the scale."""
    x, scale, bias = call.input(0), call.input(1), call.optional(2)
    axes = range(call.axis(call.attribute("axis", -1), x.rank), x.rank)
    _check_stash_type(call)
    centred, inverse, mean = _standardise(x, axes, call.number("epsilon", 1e-5))
    return [_with_shape_of(call, x, _scale_and_shift(scale, centred, inverse, scale, bias)), mean, inverse]


@operator("RMSNormalization")
def rms_normalization(call: Call) -> Tensor:
    """x / sqrt(mean(x**2) + epsilon) * scale over all axes from `axis` on; Zhang and Sennrich, arXiv:1910.07467."""
    return simplified_layer_normalization(call)[0]


@operator("SimplifiedLayerNormalization", signature=Signature(
    {"X": "T", "scale": "V"}, _LAYER_TYPES, _LAYER_ATTRIBUTES))
def simplified_layer_normalization(call: Call) -> list[Tensor]:
    """RMSNormalization, and its factor 1 / sqrt(mean(x**2) + epsilon); onnxruntime has it in ONNX's own domain."""
    x, scale = call.input(0), call.input(1)
    axes = range(call.axis(call.attribute("axis", -1), x.rank), x.rank)
    _check_stash_type(call)
    inverse = _inverse_root_mean_square(x, axes, call.number("epsilon", 1e-5))
    return [_with_shape_of(call, x, _scale_and_shift(scale, x.cast("float32"), inverse, scale, None)), inverse]


_SKIP_TYPES = {"T": FLOATS}


@operator("SkipLayerNormalization", domain=MICROSOFT, signature=Signature(
    {"input": "T", "skip": "T", "gamma": "T", "beta": "T?", "bias": "T?"}, _SKIP_TYPES, ("epsilon",)))
def skip_layer_normalization(call: Call) -> list[Tensor]:
    """LayerNormalization over the last axis of s = input + skip + bias; also its mean, its factor, and s."""
    total = _add_skip(call, 4)
    centred, inverse, mean = _standardise(total, [total.rank - 1], call.number("epsilon", 1e-12))
    made = _scale_and_shift(total, centred, inverse, call.input(2), call.optional(3))
    return [_with_shape_of(call, total, made), mean, inverse, total]


@operator("SkipSimplifiedLayerNormalization", domain=MICROSOFT, signature=Signature(
    {"input": "T", "skip": "T", "gamma": "T", "bias": "T?"}, _SKIP_TYPES, ("epsilon",)))
def skip_simplified_layer_normalization(call: Call) -> list[Tensor]:
    """RMSNormalization over the last axis of s = input + skip + bias; also no mean, its factor, and s."""
    if call.is_output_used(1):
        raise call.unsupported("its second output, a mean that it does not compute")
    total = _add_skip(call, 3)
    inverse = _inverse_root_mean_square(total, [total.rank - 1], call.number("epsilon", 1e-12))
    made = _scale_and_shift(total, total.cast("float32"), inverse, call.input(2), None)
    return [_with_shape_of(call, total, made), inverse, inverse, total]


def _add_skip(call: Call, position: int) -> Tensor:
    """input + skip + bias, in float rounded once; the bias is the input at `position`."""
    x, skip, bias = call.input(0), call.input(1), call.optional(position)
    total = x.cast("float32") + skip.cast("float32")
    return _with_shape_of(call, x, (total if bias is None else total + bias.cast("float32")).cast(x.dtype))


@operator("GroupNormalization")
def group_normalization(call: Call) -> Tensor:
    """(x - mean) / sqrt(var + epsilon) * scale + bias over each group of channels, for each batch element.

    scale and bias have one element per group before opset 21 and one per channel since. Wu and He, arXiv:1803.08494.
    """
    x, scale, bias, groups = call.input(0), call.input(1), call.input(2), int(call.attribute("num_groups", 0))
    _check_stash_type(call)
    if x.rank < 2 or groups < 1 or x.shape[1] % groups:
        raise call.wrong(f"{groups} groups of the channels of {list(x.shape)}")
    count = groups if call.version < 21 else x.shape[1]
    if not scale.shape == bias.shape == (count,):
        raise call.wrong(f"scale {list(scale.shape)} and bias {list(bias.shape)} need shape [{count}]")
    each = x.shape[1] // groups if count == groups else 1
    by_group = [t.take(0, [i // each for i in range(x.shape[1])]) for t in (scale, bias)]
    shape = (groups, x.shape[1] // groups, *[1] * (x.rank - 2))
    split = x.reshape(x.shape[0], groups, -1, *x.shape[2:])
    centred, inverse, _ = _standardise(split, range(2, split.rank), call.number("epsilon", 1e-5))
    return _scale_and_shift(split, centred, inverse, *(t.reshape(*shape) for t in by_group)).reshape(*x.shape)


_GROUPS = Signature(
    {"X": "T", "gamma": "M", "beta": "M", "skip": "T?", "bias": "T?"}, {"T": FLOATS, "M": FLOATS},
    ("activation", "channels_last", "epsilon", "groups"),
)


@operator("GroupNorm", "SkipGroupNorm", domain=MICROSOFT, signature=_GROUPS)
def group_norm(call: Call) -> list[Tensor]:
    """GroupNormalization of s = X + skip + bias, then x * sigmoid(x) if activation is 1; also s. By default NHWC."""
    x, skip, bias, groups = call.input(0), call.optional(3), call.optional(4), int(call.attribute("groups", 0))
    last, scale, shift = call.flag("channels_last", True), call.input(1), call.input(2)
    channels = x.shape[-1 if last else 1] if x.rank == 4 else 0
    if groups < 1 or not channels or channels % groups or not scale.shape == shift.shape == (channels,):
        raise call.wrong(f"{groups} groups of {list(x.shape)} with gamma {list(scale.shape)} and {list(shift.shape)}")
    total = x.transpose(0, 3, 1, 2) if last else x
    if skip is not None:
        flat = skip.reshape(*skip.shape, 1, 1) if skip.rank == 2 else skip
        total = total + (flat.transpose(0, 3, 1, 2) if last and skip.rank == 4 else flat)
    total = total if bias is None else total + bias.reshape(-1, 1, 1)
    split = total.reshape(total.shape[0], groups, channels // groups, *total.shape[2:])
    centred, inverse, _ = _standardise(split, [2, 3, 4], call.number("epsilon", 1e-5))
    factors = (t.cast("float32").reshape(groups, channels // groups, 1, 1) for t in (scale, shift))
    made = _scale_and_shift(centred, centred, inverse, *factors).reshape(*total.shape)
    made = (made.silu() if call.flag("activation") else made).cast(x.dtype)
    return [t.transpose(0, 2, 3, 1) if last else t for t in (made, total)]


@operator("MeanVarianceNormalization")
def mean_variance_normalization(call: Call) -> Tensor:
    """(x - mean) / (standard deviation + 1e-9) over `axes`.

    A mean is rounded to float. If few numbers are nearly equal, the rounding is as large as their differences: their
    mean is subtracted too.
    """
    x = call.input(0)
    axes = call.axes(call.attribute("axes", (0, 2, 3)), x.rank)
    wide = x.cast("float32")
    centred = wide - wide.mean(axes, keepdims=True)
    if prod(x.shape[a] for a in axes) <= FEW:
        for _ in range(CENTRINGS):
            centred = centred - centred.mean(axes, keepdims=True)
    deviation = (centred * centred).mean(axes, keepdims=True).sqrt()
    return (centred / (deviation + 1e-9)).cast(x.dtype)


@operator("LpNormalization")
def lp_normalization(call: Call) -> Tensor:
    """x / norm of x along `axis`, with the norm sum(|x|) for p=1 and sqrt(sum(x**2)) for p=2; 0 if the norm is 0."""
    x, p = call.input(0), call.attribute("p", 2)
    axis = call.axis(call.attribute("axis", -1), x.rank)
    if p not in (1, 2):
        raise call.wrong(f"p is {p}, which is neither 1 nor 2")
    wide = x.cast("float32")
    norm = wide.apply("absolute").sum([axis], True) if p == 1 else (wide * wide).sum([axis], True).sqrt()
    return (wide / where(norm.apply("equal", 0, dtype="bool"), 1.0, norm)).cast(x.dtype)


@operator("LRN")
def local_response_normalization(call: Call) -> Tensor:
    """x / (bias + alpha/size * sum of x**2 over `size` neighbouring channels) ** beta."""
    x, size = call.input(0), int(call.attribute("size", 0))
    if x.rank < 2 or size < 1:
        raise call.wrong(f"size is {size} for input {list(x.shape)}")
    wide, others = x.cast("float32"), x.rank - 2
    before, after = min((size - 1) // 2, x.shape[1]), min(size // 2, x.shape[1])  # further away is nothing
    pads = [before, *[0] * others, after, *[0] * others]
    squares = (wide * wide).pool("sum", [before + 1 + after, *[1] * others], pads=pads)
    base = squares * (call.number("alpha", 1e-4) / size) + call.number("bias", 1.0)
    return (wide / base ** call.number("beta", 0.75)).cast(x.dtype)


def _standardise(x: Tensor, axes: Sequence[int], epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    """x - mean, 1 / sqrt(var + epsilon) and mean, in float32; reduced axes keep length 1."""
    wide = x.cast("float32")
    mean = wide.mean(axes, keepdims=True)
    centred = wide - mean
    var = (centred * centred).mean(axes, keepdims=True)
    return centred, (var + epsilon).sqrt().apply("reciprocal"), mean


def _inverse_root_mean_square(x: Tensor, axes: Sequence[int], epsilon: float) -> Tensor:
    """1 / sqrt(mean(x**2) + epsilon) in float32; reduced axes keep length 1."""
    wide = x.cast("float32")
    return ((wide * wide).mean(axes, keepdims=True) + epsilon).sqrt().apply("reciprocal")


def _with_shape_of(call: Call, x: Tensor, result: Tensor) -> Tensor:
    """The result. Raises ModelError if it does not have the shape of x."""
    if result.shape != x.shape:
        raise call.wrong(f"a parameter does not broadcast to {list(x.shape)}")
    return result


def _scale_and_shift(x: Tensor, centred: Tensor, inverse: Tensor, scale: Tensor, bias: Tensor | None) -> Tensor:
    product = centred * inverse.apply("multiply", scale, dtype=inverse.dtype)
    return (product if bias is None else product.apply("add", bias, dtype=product.dtype)).cast(x.dtype)


def _check_stash_type(call: Call) -> None:
    if call.attribute("stash_type", 1) not in (1, 10):
        raise call.unsupported(f"stash_type {call.attribute('stash_type', 1)}; the statistics are float")
