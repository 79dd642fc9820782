"""Conv and ConvTranspose, with one, two or three spatial axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from imgconv.ops.registry import Call, operator
from imgconv.ops.scaled_sum import scaled_sum
from imgconv.ops.window import AUTO_PADS, read_numbers, read_window, split_padding
from imgconv.tensor import Tensor, convolution


@operator("Conv")
def conv(call: Call) -> Tensor:
    """x (N, C, spatial...) with weight (O, C/group, kernel...), plus bias (O)."""
    x, weight = call.input(0), call.input(1)
    compute = convolution_of(call, x, weight)
    made = scaled_sum(x, weight, call.optional(2), partial(compute, dtype="float32"), 0, (-1, *[1] * (x.rank - 2)))
    if made is not None:
        return made
    if weight.quantised is not None and x.dtype == "float32":
        integers, scale = weight.quantised
        by_filter = scale.size == 1 or scale.shape == (weight.shape[0], *[1] * (weight.rank - 1))
        if integers.dtype == "int8" and by_filter:
            # The weights stay integers of one byte each; the sum is multiplied by their scale.
            return with_bias(call, compute(x, integers) * scale.reshape(-1, *[1] * (x.rank - 2)))
    return with_bias(call, compute(x, weight))


def convolution_of(call: Call, x: Tensor, weight: Tensor) -> Callable[..., Tensor]:
    """The node's convolution as a function of an input and weights: of these shapes, or with fewer input channels.

    Its argument `dtype` is that of the result, by default that of the input.
    """
    groups = groups_of(call, x, weight)
    if weight.shape[1] * groups != x.shape[1] or weight.shape[0] % groups:
        raise call.wrong(f"weight {list(weight.shape)} in {groups} groups does not match input {list(x.shape)}")
    window = read_window(call, x.shape[2:], weight.shape[2:])

    def compute(x: Tensor, weight: Tensor, dtype: str | None = None) -> Tensor:
        return convolution(
            x, weight, window.strides, window.pads, window.dilations, groups, window.sizes, dtype=dtype
        )

    return compute


@operator("ConvTranspose")
def conv_transpose(call: Call) -> Tensor:
    """The gradient of Conv: x (N, C, spatial...) with weight (C, O/group, kernel...), plus bias (O)."""
    x, weight = call.input(0), call.input(1)
    groups = groups_of(call, x, weight)
    if weight.shape[0] != x.shape[1] or x.shape[1] % groups:
        raise call.wrong(f"weight {list(weight.shape)} in {groups} groups does not match input {list(x.shape)}")
    count = x.rank - 2
    strides = read_numbers(call, "strides", count, 1, 1)
    dilations = read_numbers(call, "dilations", count, 1, 1)
    pads, sizes = _transposed_sizes(call, x.shape[2:], weight.shape[2:], strides, dilations)
    if min(sizes) < 1:
        raise call.wrong(f"pads {list(pads)} leave nothing of the output")
    return with_bias(call, convolution(x, weight, strides, pads, dilations, groups, sizes, transposed=True))


def groups_of(call: Call, x: Tensor, weight: Tensor) -> int:
    """The number of groups. Raises ModelError if the ranks or kernel_shape do not fit."""
    groups = int(call.attribute("group", 1))
    if x.rank < 3 or weight.rank != x.rank:
        raise call.wrong(f"input {list(x.shape)} and weight {list(weight.shape)} need equal ranks of at least 3")
    if x.rank > 5:
        raise call.unsupported(f"{x.rank - 2} spatial axes; at most three are supported")
    if groups < 1:
        raise call.wrong(f"group is {groups}")
    kernel = call.attribute("kernel_shape", None)
    if kernel is not None and tuple(kernel) != weight.shape[2:]:
        raise call.wrong(f"kernel_shape is {list(kernel)}, but the weight has shape {list(weight.shape)}")
    return groups


def with_bias(call: Call, result: Tensor, position: int = 2) -> Tensor:
    """The result plus a bias per channel, if the node has one at input `position`."""
    bias = call.optional(position)
    if bias is None:
        return result
    if bias.shape != (result.shape[1],):
        raise call.wrong(f"bias {list(bias.shape)} for {result.shape[1]} channels")
    return result + bias.reshape(-1, *[1] * (result.rank - 2))


def _transposed_sizes(
    call: Call, spatial: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[Sequence[int], Sequence[int]]:
    """Pads and output sizes: pads = stride*(n - 1) + output_padding + (kernel - 1)*dilation + 1 - size."""
    count = len(spatial)
    extra = read_numbers(call, "output_padding", count, 0, 0)
    full = [
        s * (n - 1) + e + (k - 1) * d + 1
        for s, n, e, k, d in zip(strides, spatial, extra, kernel, dilations, strict=True)
    ]
    auto_pad = call.choice("auto_pad", "NOTSET", AUTO_PADS)
    wanted = call.attribute("output_shape", None)
    if wanted is None and auto_pad.startswith("SAME"):
        # A kernel shorter than the stride gives a smaller size; ONNX's shape rule does not enlarge it.
        wanted = [min(n * s, f) for n, s, f in zip(spatial, strides, full, strict=True)]
    if wanted is not None:
        if len(wanted) != count:
            raise call.wrong(f"output_shape is {list(wanted)} for {count} spatial axes")
        totals = [max(f - w, 0) for f, w in zip(full, wanted, strict=True)]
        return split_padding(totals, odd_first=auto_pad != "SAME_UPPER"), list(wanted)
    pads = read_numbers(call, "pads", 2 * count, 0, 0) if auto_pad == "NOTSET" else (0,) * (2 * count)
    return pads, [f - pads[i] - pads[count + i] for i, f in enumerate(full)]
