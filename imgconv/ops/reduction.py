"""Reductions over axes, and Softmax."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from imgconv.graph.expression import Argument, Expression, apply
from imgconv.graph.nodes import ReductionKind
from imgconv.ops.integers import integer_root
from imgconv.ops.registry import Call, operator
from imgconv.tensor import Tensor

_ITSELF = Argument(0)
_SQUARE = apply("multiply", _ITSELF, _ITSELF)

# (kind of reduction, function of each element before it, function of the result)
_REDUCTIONS: Mapping[str, tuple[ReductionKind, Expression, Expression]] = {
    "ReduceSum": ("sum", _ITSELF, _ITSELF),
    "ReduceProd": ("product", _ITSELF, _ITSELF),
    "ReduceMax": ("max", _ITSELF, _ITSELF),
    "ReduceMin": ("min", _ITSELF, _ITSELF),
    "ReduceL1": ("sum", apply("absolute", _ITSELF), _ITSELF),
    "ReduceL2": ("sum", _SQUARE, apply("sqrt", _ITSELF)),
    "ReduceSumSquare": ("sum", _SQUARE, _ITSELF),
    "ReduceLogSum": ("sum", _ITSELF, apply("log", _ITSELF)),
}
# The first opset whose axes are an input instead of an attribute.
_AXES_INPUT = {"ReduceSum": 13}


@operator(*_REDUCTIONS)
def reduction(call: Call) -> Tensor:
    """The sum, product, maximum or minimum of the elements, or of a function of each element."""
    x, axes, keepdims = _reduction_arguments(call)
    kind, body, epilogue = _REDUCTIONS[call.op_type]
    if call.op_type == "ReduceL2" and not x.is_float:
        return integer_root(x.reduce(kind, axes, keepdims, body))
    return x.reduce(kind, axes, keepdims, body, epilogue)


@operator("ReduceMean")
def mean(call: Call) -> Tensor:
    """sum / count."""
    x, axes, keepdims = _reduction_arguments(call)
    if x.is_float:
        return x.mean(axes, keepdims)
    total = x.sum(axes, keepdims)
    return total.apply("quotient", x.size // max(total.size, 1))


@operator("ReduceLogSumExp")
def log_sum_exp(call: Call) -> Tensor:
    """m + log(sum(exp(x - m))), where m is the largest element, or the nearest finite number."""
    x, axes, keepdims = _reduction_arguments(call)
    wide = x.cast("float32")
    largest = wide.max(axes, keepdims=True).clip(-3e38, 3e38)
    total = (wide - largest).exp().sum(axes, keepdims)
    return (total.log() + largest.reshape(*total.shape)).cast(x.dtype)


@operator("Softmax")
def softmax(call: Call) -> Tensor:
    """exp(x - m) / sum(exp(x - m)), where m is the largest element."""
    return _normalised_exponentials(call, lambda powers, total, _: powers / total)


@operator("LogSoftmax")
def log_softmax(call: Call) -> Tensor:
    """x - m - log(sum(exp(x - m))), where m is the largest element."""
    return _normalised_exponentials(call, lambda _, total, shifted: shifted - total.log())


def _normalised_exponentials(call: Call, finish: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Tensor:
    """Normalises along `axis` since opset 13; before, over all axes from `axis` on."""
    x = call.input(0)
    if call.version >= 13:
        axes = [call.axis(call.attribute("axis", -1), x.rank)]
    else:
        axes = list(range(call.axis(call.attribute("axis", 1), x.rank), x.rank))
    wide = x.cast("float32")
    shifted = wide - wide.max(axes, keepdims=True)
    powers = shifted.exp()
    return finish(powers, powers.sum(axes, keepdims=True), shifted).cast(x.dtype)


def _reduction_arguments(call: Call) -> tuple[Tensor, list[int], bool]:
    """(the input, the axes to reduce, whether they keep length 1)."""
    x = call.input(0)
    if call.op_type in ("ReduceLogSum", "ReduceLogSumExp"):
        call.refuse_integers(x)
    elif call.op_type not in ("ReduceMax", "ReduceMin"):
        call.refuse_narrow_integers(x)
    if call.version < _AXES_INPUT.get(call.op_type, 18):
        stated = call.attribute("axes", None)
    else:
        stated = call.integers(1, "axes")
    if not stated:
        stated = [] if call.flag("noop_with_empty_axes") else range(x.rank)
    return x, call.axes(stated, x.rank), call.flag("keepdims", True)
