"""Operators whose result is a constant, known when the model is loaded."""

from __future__ import annotations

from math import prod

import numpy

from imgconv.ops.registry import Call, operator
from imgconv.tensor import Tensor


@operator("Constant")
def constant(call: Call) -> Tensor:
    """The constant in whichever value attribute the node has."""
    forms = {
        "value": None, "value_float": "float32", "value_floats": "float32", "value_int": "int64", "value_ints": "int64"
    }
    stated = [name for name in call.attributes if name.startswith(("value", "sparse_value"))]
    if len(stated) != 1:
        raise call.wrong(f"needs one value attribute, not {len(stated)}")
    if stated[0] not in forms:
        raise call.unsupported(f"attribute {stated[0]}")
    return Tensor.constant(numpy.asarray(call.attributes[stated[0]], forms[stated[0]]))


@operator("ConstantOfShape")
def constant_of_shape(call: Call) -> Tensor:
    """A tensor of the given shape with every element equal to `value`, 0.0 by default."""
    value = numpy.asarray(call.attribute("value", numpy.zeros(1, numpy.float32)))
    shape = call.integers(0, "the shape") or []
    if value.size != 1 or any(n < 0 for n in shape):
        raise call.wrong(f"a shape {shape} filled with {value.size} values")
    call.check_length(prod(shape), "a tensor")
    return Tensor.constant(numpy.full(shape, value.item(), value.dtype))


@operator("Shape")
def shape(call: Call) -> Tensor:
    """The input's shape from axis `start` up to `end`, as in a Python slice."""
    start, end = call.attribute("start", 0), call.attribute("end", None)
    return Tensor.constant(numpy.array(call.input(0).shape[start:end], "int64"))


@operator("Size")
def size(call: Call) -> Tensor:
    """The number of elements."""
    return Tensor.constant(numpy.array(call.input(0).size, "int64"))


@operator("Range")
def range_(call: Call) -> Tensor:
    """start, start + delta, start + 2*delta, ... up to but not including limit."""
    start, limit, delta = (call.required_constant(i, name) for i, name in enumerate(("start", "limit", "delta")))
    if any(n.size != 1 for n in (start, limit, delta)) or delta.item() == 0:
        raise call.wrong("start, limit and delta must be scalars, and delta not zero")
    wide = start.dtype if start.dtype.kind in "iu" else numpy.float64
    first, last, step = (n.astype(wide).item() for n in (start, limit, delta))
    count = call.check_length(max(-int(-(last - first) // step), 0), "a range")
    return Tensor.constant((first + numpy.arange(count) * step).astype(start.dtype))


@operator("MelWeightMatrix")
def mel_weight_matrix(call: Call) -> Tensor:
    """(dft_length/2 + 1, num_mel_bins): for each band of the mel scale, a triangular weight over the spectrum's bins.

    mel = 2595 * log10(1 + hertz/700). The band edges are spaced evenly in mel and rounded down to bins.
    """
    names = "num_mel_bins", "dft_length", "sample_rate", "lower_edge_hertz", "upper_edge_hertz"
    bands, length, rate, low, high = (call.required_constant(i, name).item() for i, name in enumerate(names))
    call.check_length((length // 2 + 1) * bands, "a matrix")
    first, last = (2595 * numpy.log10(1 + hertz / 700) for hertz in (low, high))
    mel = first + numpy.arange(bands + 2) * (last - first) / (bands + 2)
    edges = ((length + 1) * 700 * (10 ** (mel / 2595) - 1) // rate).astype(int)
    if rate <= 0 or edges[0] < 0 or edges[-1] > length // 2:
        raise call.wrong(f"bands from {low} to {high} Hz of a spectrum that reaches {rate / 2} Hz")
    weights = numpy.zeros((length // 2 + 1, bands))
    for band in range(bands):
        start, centre, end = edges[band : band + 3]
        rises, falls = numpy.arange(start, centre + 1), numpy.arange(centre, end)
        weights[rises, band] = (rises - start) / (centre - start) if centre > start else 1
        weights[falls, band] = (end - falls) / (end - centre)
    return Tensor.constant(weights.astype(call.attribute("output_datatype", "float32")))


@operator("Dropout")
def dropout(call: Call) -> list[Tensor]:
    """Inference: the input itself, and a mask of ones. Raises UnsupportedError for training."""
    data = call.input(0)
    training = call.constant(2, "training_mode")
    ratio = call.constant(1, "ratio")
    if training is not None and training.item() and (ratio is None or ratio.item()):
        raise call.unsupported("training_mode")
    call.check_length(data.size if call.is_output_used(1) else 0, "a mask")
    mask = numpy.ones(data.shape if call.is_output_used(1) else (), data.dtype if call.version < 10 else "bool")
    return [data, Tensor.constant(mask)]
