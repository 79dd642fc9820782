"""Operators on padded rows: what exists of the result is what numpy makes of the rows that exist."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

from imgconv.arrays import Array
from imgconv.graph.onnx_nodes import HostNode
from imgconv.host import registry
from imgconv.host.padded_rows import CannotOffloadError, PaddedRows, RowSpace, padded_outputs
from imgconv.tensor import Tensor

RANDOM = numpy.random.default_rng(3)
SOME, FIRST = numpy.array([0, 1, 1, 0, 1], bool), numpy.array([1, 1, 1, 0, 0], bool)


def case(op_type: str, shape: tuple[int, ...], *others: Any, rows: int = 0, **attributes: Any) -> Any:
    """An operator on a value of this shape. rows: its axis of rows; others: the node's other inputs."""
    return pytest.param((op_type, shape, others, rows, attributes), id=f"{op_type}-{shape}-{others}-{attributes}")


def check(given: Any, mask: Array) -> None:
    """Compares the rows that exist of an operator's outputs with what the host makes of those of its input."""
    op_type, shape, others, axis, attributes = given
    outputs = ("y", "z") if op_type == "Split" else ("y",)
    x, known = RANDOM.normal(size=shape).astype(numpy.float32), [numpy.array(each) for each in others]
    rows = PaddedRows(Tensor.constant(x), axis, RowSpace(Tensor.constant(mask), not (~mask[:-1] & mask[1:]).any()))
    node = HostNode("n", op_type, ("x", *map(str, range(len(known)))), outputs, attributes, 13)
    found = padded_outputs(node, [rows, *(PaddedRows(Tensor.constant(each)) for each in known)])
    call = registry.HostCall("n", op_type, 13, attributes, len(outputs))
    expected = registry.find(op_type)(call, numpy.compress(mask, x, axis), *known)
    for rows, wanted in zip(found, expected if isinstance(expected, tuple) else (expected,), strict=True):
        made = rows.tensor.numpy()
        made = made if rows.space is None else numpy.compress(rows.space.mask.numpy(), made, rows.axis)
        # The same function of each element, by numpy here and there; exp may differ in the last bit.
        numpy.testing.assert_allclose(made, wanted, 1e-6)


@pytest.mark.parametrize("mask", [SOME, FIRST], ids=["some", "first"])
@pytest.mark.parametrize("given", [
    case("Squeeze", (1, 5, 1, 4), [0, 2], rows=1), case("Squeeze", (5, 1), [-1]),
    case("Unsqueeze", (4, 5), [0, 1], rows=1), case("Transpose", (5, 3, 2), perm=(1, 2, 0)),
    case("Transpose", (2, 5), rows=1), case("Split", (5, 4), [1, 3], axis=1),
    case("Reshape", (5, 4), [-1, 1, 4]), case("Reshape", (5, 4), [0, 2, 2]), case("Reshape", (1, 5), [-1], rows=1),
    case("Flatten", (5, 2, 3)), case("Expand", (5, 1), [1, 1, 4]), case("Cast", (5, 2), to="int32"),
    case("Identity", (5, 4)), case("Slice", (5, 6), [1], [4], [1]), case("Slice", (5, 6), [0], [99], [0]),
    case("Gather", (5, 4), [2, 0], axis=1), case("Mul", (5, 4), numpy.float32([[2, 3, 4, 5]])),
    case("Exp", (2, 5), rows=1), case("ReduceMax", (5, 4), keepdims=0), case("ReduceMin", (3, 5), rows=1, axes=(1,)),
])
def test_rows_that_exist(given: Any, mask: Array) -> None:
    check(given, mask)


def test_the_first_rows() -> None:
    """A known number of rows from the start may be taken only if the rows that exist are the first ones."""
    first = case("Slice", (5, 4), [0], [2], [0]).values[0]
    check(first, FIRST)
    with pytest.raises(CannotOffloadError):
        check(first, SOME)


@pytest.mark.parametrize("given", [
    case("Reshape", (5, 4), [4, -1]), case("Reshape", (5, 4), [-1, 2]), case("Slice", (5, 4), [0], [-1], [0]),
    case("Slice", (5, 4), [1], [5], [0]), case("Slice", (5, 4), [4], [-6], [0], [-1]), case("Gather", (5, 4), [1, 2]),
    case("Split", (5, 4), [2, 3], axis=0), case("Concat", (5, 4), numpy.float32([[0], [1], [2], [3], [4]]), axis=1),
    case("Add", (5, 4), numpy.ones((5, 1), numpy.float32)), case("ReduceMax", (5, 4), axes=(1,)),
    case("Softmax", (5, 4), axis=0), case("Unsqueeze", (1, 4), [0]),
])
def test_what_stays_with_the_host(given: Any) -> None:
    """Results that depend on how many rows exist, not only on which. One row does not show its axis."""
    with pytest.raises(CannotOffloadError):
        check(given, FIRST[: given[1][given[3]]])
