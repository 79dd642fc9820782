"""Cases of operators: models of one node, each beside its inputs. A file for each family of imgconv/ops.

onnxruntime 1.31 knows opsets up to 26, so nothing newer is compared with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy
import onnx
import onnx.helper
import pytest
from support import OLD_ORACLE, OLD_ORACLE_REASON, assert_close, make_model, run_model, run_oracle

from imgconv.cl.device import DeviceInfo

Input = Any  # a shape (random floats), an array, a Constant or None where the input is absent


@dataclass(frozen=True)
class Constant:
    """An input that the model holds as an initializer."""

    array: Any


@dataclass(frozen=True)
class Case:
    """A model of one node. outputs: how many of its outputs are compared; low: the least random input.

    opset: of ONNX's own operators; one of another domain is of that domain's version 1.
    """

    op_type: str
    opset: int
    inputs: tuple[Input, ...]
    attributes: dict[str, Any]
    outputs: int = 1
    low: float = -2.0
    tolerance: float = 2e-6
    domain: str = ""

    def __str__(self) -> str:
        return f"{self.op_type}-{self.opset}"


def ints(*values: int) -> Constant:
    """A constant int64 vector."""
    return Constant(numpy.array(values, numpy.int64))


def floats(*values: float) -> Constant:
    """A constant float vector."""
    return Constant(numpy.array(values, numpy.float32))


def scalar(value: float) -> Constant:
    """A constant float of rank 0."""
    return Constant(numpy.array(value, numpy.float32))


def half(*shape: int) -> Any:
    """Random half values."""
    return numpy.random.default_rng(7).uniform(-2, 2, shape).astype(numpy.float16)


def several(
    op_type: str, opsets: Sequence[int], inputs: Sequence[Sequence[Input]],
    attributes: Sequence[dict[str, Any]] = ({},),
    outputs: int = 1, low: float = -2.0, tolerance: float = 2e-6,
) -> Iterator[Case]:
    """Each opset with each inputs and each attributes."""
    for opset in opsets:
        for row in inputs:
            for settings in attributes:
                yield Case(op_type, opset, tuple(row), settings, outputs, low, tolerance)


def model_of(case: Case) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """The case's model, and arrays for its inputs."""
    random = numpy.random.default_rng(1)
    feeds: dict[str, Any] = {}
    constants: dict[str, Any] = {}
    names = []
    for number, given in enumerate(case.inputs):
        name = "" if given is None else f"x{number}"
        names.append(name)
        if isinstance(given, Constant):
            constants[name] = given.array
        elif isinstance(given, tuple):
            feeds[name] = random.uniform(case.low, 2, given).astype(numpy.float32)
        elif given is not None:
            feeds[name] = given
    outputs = [f"y{i}" for i in range(case.outputs)]
    node = onnx.helper.make_node(case.op_type, names, outputs, name="node", domain=case.domain, **case.attributes)
    model = make_model([node], feeds, outputs, case.opset, constants)
    if case.domain:
        model.opset_import.append(onnx.helper.make_opsetid(case.domain, 1))
    return model, feeds


# Where OLD_ORACLE is no oracle: operator, opset and number of outputs.
NEW_ORACLE_ONLY = {
    ("AveragePool", 19, 1), ("AveragePool", 22, 1), ("LpNormalization", 22, 1), ("Resize", 18, 1), ("MaxPool", 12, 2),
    ("QuantizeLinear", 21, 1),
}


def has_oracle(case: Case) -> bool:
    """Returns whether this onnxruntime is right in a case."""
    return not (OLD_ORACLE and ((case.op_type, case.opset, case.outputs) in NEW_ORACLE_ONLY or needs_new_oracle(case)))


def needs_new_oracle(case: Case) -> bool:
    """Returns whether OLD_ORACLE is wrong with its inputs, though not in other cases of the operator."""
    given = [each.array if isinstance(each, Constant) else each for each in case.inputs]
    if case.op_type == "TopK":  # leaves NaN unsorted
        return any(isinstance(a, numpy.ndarray) and a.dtype.kind == "f" and bool(numpy.isnan(a).any()) for a in given)
    if case.op_type == "QLinearSoftmax":  # wraps around instead of saturating
        return bool(given[-1].dtype == numpy.int8)
    if case.op_type == "Resize":  # rounds where a pixel is as near as another
        return isinstance(given[0], tuple) and given[0] == (1, 1, 1, 20)
    return case.op_type == "Attention" and len(given) == 2  # ends the process without a bias


def check(case: Case, engine: str | DeviceInfo) -> None:
    if not has_oracle(case):
        pytest.skip(OLD_ORACLE_REASON)
    model, feeds = model_of(case)
    expected = run_oracle(model, feeds)
    assert_close(run_model(model, feeds, engine), expected, case.tolerance)


AUTO_PADS = ({"auto_pad": "SAME_UPPER"}, {"auto_pad": "SAME_LOWER"}, {"auto_pad": "VALID"})
SHAPES = (((),), ((3,),), ((2, 3),), ((1, 5, 4, 3),), ((2, 1, 3, 2, 2),))
PAIRS = (((2, 3, 4), (3, 1)), ((4,), (2, 3, 4)), ((2, 1), (1, 3)), ((), (2, 2)),
    ((1, 4, 3, 3), Constant(numpy.float32([3.5]))))


def whole(*shape: int, low: int = -9, high: int = 10, dtype: Any = numpy.int64, seed: int = 3) -> Any:
    """Random integers."""
    return numpy.random.default_rng(seed).integers(low, high, shape).astype(dtype)


def either(*inputs: Input) -> list[tuple[Input, ...]]:
    """The inputs, and the same with every integer array a constant of the model."""
    fixed = tuple(Constant(x) if isinstance(x, numpy.ndarray) and x.dtype.kind == "i" else x for x in inputs)
    return [inputs, fixed]


def different(*shape: int) -> Any:
    """Integers as floats, each once, in disorder."""
    values = numpy.random.default_rng(5).permutation(int(numpy.prod(shape)))
    return values.reshape(shape).astype(numpy.float32)
