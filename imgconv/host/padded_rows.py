"""Padded rows: values of the host partition on the device, padded to their maximum number of rows, with a mask.

The number of rows that exist is known only at run time. In a list of sizes, their Space stands for it:

    x                   float (N, 4)            (300, 4), and a mask of 300
    Shape(x)            int64 [N, 4]            [Space, 4]
    Reshape(x, [N, 1, 4])                       (300, 1, 4), with the same mask

To find the axis of the rows after an operator that moves elements, the same operator is applied to the row numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy

from imgconv.arrays import Array
from imgconv.graph.onnx_nodes import HostNode
from imgconv.host import registry, subgraphs
from imgconv.ops.indexing import take_along
from imgconv.tensor import Tensor, where

MOVES = frozenset((
    "Cast", "Concat", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Split", "Squeeze", "Transpose",
    "Unsqueeze",
))
ELEMENTWISE = subgraphs.ELEMENTWISE | {
    "And", "Ceil", "Clip", "Equal", "Floor", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Not", "Or",
    "Reciprocal", "Round", "Where",
}
OF_SIZES = MOVES | {"Equal", "Shape", "Where"}


class CannotOffloadError(Exception):
    """A node that stays with the host."""


@dataclass(frozen=True, eq=False)
class RowSpace:
    """Padded rows, some of which exist. mask: (rows), bool. is_prefix: whether those that exist come first.

    outer: the space that these rows were chosen from; without rows there, none exist here.
    """

    mask: Tensor
    is_prefix: bool = False
    outer: RowSpace | None = None

    def is_within(self, other: RowSpace) -> bool:
        """Returns whether the space has no rows if the other one has none."""
        return self is other or (self.outer is not None and self.outer.is_within(other))


@dataclass(frozen=True)
class PaddedRows:
    """A value on the device. space: which rows along `axis` exist; None: its shape does not depend on data.

    places_in: the space among whose rows the elements are places, if they are. is_triple: whether each row is
    (batch, class, place). is_suppressed: whether it depends on a suppression. sizes: integers of a shape, with a Space
    for each number of rows; `tensor` has the most that they may be.
    """

    tensor: Tensor
    axis: int = 0
    space: RowSpace | None = None
    places_in: RowSpace | None = None
    is_triple: bool = False
    is_suppressed: bool = False
    sizes: Array | None = None

    @property
    def is_constant(self) -> bool:
        """Returns whether it is a constant, and no list with a Space."""
        return self.sizes is None and self.space is None and self.tensor.is_constant

    def numbers(self) -> Array:
        """The number of each element's row; a constant itself."""
        if self.space is None:
            return self.tensor.numpy()
        own = numpy.arange(self.space.mask.size).reshape(-1, *[1] * (self.tensor.rank - 1 - self.axis))
        return numpy.broadcast_to(own, self.tensor.shape)


OptionalRows = Sequence["PaddedRows | None"]


def padded_outputs(node: HostNode, given: OptionalRows) -> list[PaddedRows]:
    """The outputs of a node of ONNX's own domain. Raises CannotOffloadError, and Error from the operator."""
    rows = [each for each in given if each is not None]
    if node.op_type == "NonZero":
        return _non_zero(rows[0])
    if all(each.space is None for each in rows):
        if any(each.sizes is not None for each in rows):
            return _outputs_of_sizes(node, given)
        return [PaddedRows(tensor) for tensor in call_operator(node, given)]
    if node.op_type == "Shape":
        sizes = numpy.array(rows[0].tensor.shape, object)
        sizes[rows[0].axis] = rows[0].space
        return [_with_sizes(sizes[node.attributes.get("start") : node.attributes.get("end")])]
    if node.op_type in ("Gather", "GatherND"):
        return _gather_rows(node, *rows)
    if any(each.is_triple for each in rows):
        raise CannotOffloadError
    if node.op_type in MOVES:
        return _move_rows(node, given)
    if node.op_type in ELEMENTWISE:
        return _elementwise(node, given)
    if node.op_type in ("ReduceMax", "ReduceMin"):
        return _extreme_over_rows(node, *rows)
    raise CannotOffloadError


def call_operator(node: HostNode, given: OptionalRows) -> list[Tensor]:
    """The outputs of the operator's own function."""
    return registry.compose(node, [None if each is None else each.tensor for each in given])


def take_rows(x: Tensor, places: Tensor) -> Tensor:
    """The rows of x (N, C) at places (M): (M, C)."""
    return take_along(x, 0, places.reshape(-1, 1), (places.shape[0], x.shape[1]))


def _run_on_host(node: HostNode, arrays: Sequence[Array | None]) -> list[Array]:
    """The outputs of the host's function, which may move objects, but not compute with them."""
    asked = registry.HostCall(node.name, node.op_type, node.version, node.attributes, len(node.outputs))
    try:
        made = registry.find(node.op_type)(asked, *arrays)
    except (TypeError, ValueError, AttributeError) as error:
        raise CannotOffloadError from error
    return [numpy.asarray(each) for each in (made if isinstance(made, tuple) else (made,))]


def _with_sizes(sizes: Array) -> PaddedRows:
    """A list of sizes, or one. sizes: of objects, integers and Spaces."""
    flat = sizes.reshape(-1)
    most = [each.mask.size if isinstance(each, RowSpace) else int(each) for each in flat]
    known = Tensor.constant(numpy.array(most, numpy.int64).reshape(sizes.shape))
    return PaddedRows(known, sizes=sizes if any(isinstance(each, RowSpace) for each in flat) else None)


def _outputs_of_sizes(node: HostNode, given: OptionalRows) -> list[PaddedRows]:
    """The outputs of an operator that moves sizes, or compares them with negative numbers."""
    rows = [each for each in given if each is not None]
    known = [each.tensor.numpy() for each in rows if each.is_constant]
    if node.op_type not in OF_SIZES or any(each.sizes is None and not each.is_constant for each in rows):
        raise CannotOffloadError
    if node.op_type == "Equal" and not (known and (known[0] < 0).all()):
        raise CannotOffloadError
    if node.op_type == "Cast" and node.attributes["to"] in ("int32", "int64"):
        return rows
    arrays = [None if each is None else each.tensor.numpy() if each.sizes is None else each.sizes for each in given]
    made = _run_on_host(node, arrays)
    return [_with_sizes(each) if each.dtype == object else PaddedRows(Tensor.constant(each)) for each in made]


def _non_zero(x: PaddedRows) -> list[PaddedRows]:
    """NonZero of one axis: each place is its own row."""
    if x.tensor.rank != 1:
        raise CannotOffloadError
    mask = x.tensor.cast("bool")
    mask = mask if x.space is None else mask.apply("and", x.space.mask, dtype="bool")
    numbers = Tensor.constant(numpy.arange(mask.size).reshape(1, -1))
    return [PaddedRows(numbers, 1, RowSpace(mask, outer=x.space), x.space)]


def _elementwise(node: HostNode, given: OptionalRows) -> list[PaddedRows]:
    """Row by row: the rows of all inputs that have some lie side by side."""
    rows = [each for each in given if each is not None]
    found = {(each.space, each.tensor.rank - each.axis) for each in rows if each.space is not None}
    if len(found) != 1 or any(each.places_in is not None or each.sizes is not None for each in rows):
        raise CannotOffloadError
    ((space, from_end),) = found
    for each in rows:
        if each.space is None and each.tensor.rank >= from_end and each.tensor.shape[-from_end] != 1:
            raise CannotOffloadError
    (made,) = call_operator(node, given)
    return [PaddedRows(made, made.rank - from_end, space)]


def _move_rows(node: HostNode, given: OptionalRows) -> list[PaddedRows]:
    """The operator applied to the rows, and to their numbers."""
    rows = [each for each in given if each is not None]
    first, space = rows[0], rows[0].space
    if space is None or any(not _goes_with(node, each, first) for each in rows[1:]):
        raise CannotOffloadError
    numbers = [None if each is None else each.numbers() for each in given]
    moved = numbers if node.op_type in ("Cast", "Identity") else _run_on_host(node, numbers)
    results = []
    for tensor, each in zip(call_operator(node, given), moved):
        assert each is not None
        axis = _axis_of_row_numbers(each)
        part = _space_of_first_rows(node, rows, space, each.shape[axis])
        results.append(replace(first, tensor=tensor, axis=axis, space=part))
    return results


def _goes_with(node: HostNode, other: PaddedRows, first: PaddedRows) -> bool:
    """Returns whether an operator that moves rows may read another input: rows of the same space, or known numbers."""
    if node.op_type == "Concat":
        return (other.space, other.places_in) == (first.space, first.places_in)
    return other.is_constant or (other.sizes is not None and all(
        each is first.space for each in other.sizes.reshape(-1) if isinstance(each, RowSpace)
    ))


def _axis_of_row_numbers(numbers: Array) -> int:
    """The axis along which the numbers are 0, 1, 2 ..., and equal along all others. One row does not show its axis."""
    for axis, count in enumerate(numbers.shape):
        own = numpy.arange(count).reshape(-1, *[1] * (numbers.ndim - 1 - axis))
        if count > 1 and numbers.size and (numbers == own).all():
            return axis
    raise CannotOffloadError


def _space_of_first_rows(node: HostNode, rows: Sequence[PaddedRows], space: RowSpace, count: int) -> RowSpace:
    """The space of the first rows: all of them, or, if those that exist come first, up to a known end."""
    if count == space.mask.size:
        return space
    ends = rows[2].tensor.numpy() if node.op_type == "Slice" and len(rows) > 2 else None
    if ends is None or (ends < 0).any() or not space.is_prefix:
        raise CannotOffloadError
    return RowSpace(space.mask.slice(0, 0, count), True, space)


def _gather_rows(node: HostNode, table: PaddedRows, index: PaddedRows) -> list[PaddedRows]:
    """Columns of rows; or rows at places, which are rows themselves."""
    if index.space is None:
        if table.is_triple and not (index.is_constant and (index.tensor.numpy() == 2).all()):
            raise CannotOffloadError
        return [replace(each, is_triple=False) for each in _move_rows(node, [table, index])]
    axis = int(node.attributes.get("axis", 0)) % table.tensor.rank  # type: ignore[arg-type]
    if node.op_type == "GatherND" and (index.tensor.shape[-1] != 1 or index.axis == index.tensor.rank - 1):
        raise CannotOffloadError
    if table.is_triple or index.is_triple or table.sizes is not None or index.places_in is not table.space:
        raise CannotOffloadError
    if table.space is not None and axis != table.axis or node.attributes.get("batch_dims", 0):
        raise CannotOffloadError
    return [PaddedRows(call_operator(node, [table, index])[0], axis + index.axis, index.space, table.places_in)]


def _extreme_over_rows(node: HostNode, x: PaddedRows, axes: PaddedRows | None = None) -> list[PaddedRows]:
    """The largest or smallest over all rows that exist."""
    given: Any = axes.tensor.numpy().reshape(-1).tolist() if axes else node.attributes.get("axes")
    if x.space is None or x.places_in is not None or not x.tensor.is_float:
        raise CannotOffloadError
    if x.axis not in [axis % x.tensor.rank for axis in given or range(x.tensor.rank)]:
        raise CannotOffloadError
    if not given and node.attributes.get("noop_with_empty_axes", 0):
        raise CannotOffloadError
    mask = x.space.mask.reshape(*(-1 if a == x.axis else 1 for a in range(x.tensor.rank)))
    seen = where(mask, x.tensor, -inf if node.op_type == "ReduceMax" else inf)
    return [PaddedRows(call_operator(node, [PaddedRows(seen), *([axes] if axes else [])])[0])]
