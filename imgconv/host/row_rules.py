"""ONNX operators on values whose number of rows depends on data: see rows.py.

Each rule takes a node and its inputs, and gives its outputs. It raises CannotOffloadError if what exists of the
result would depend on more than a mask, or if rows that do not exist would have a part in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf, prod
from typing import Any

import numpy

from imgconv.graph.onnx_nodes import HostNode
from imgconv.host.rows import Count, Given, PaddedRows, Rule, Space, CannotOffloadError, call
from imgconv.host.subgraphs import BY_ELEMENT_OF_A_BATCH
from imgconv.tensor import Tensor, concatenate, where

ELEMENTWISE = (
    "Abs", "Add", "And", "Ceil", "Clip", "Div", "Equal", "Exp", "Floor", "Greater", "GreaterOrEqual", "Less",
    "LessOrEqual", "Log", "Max", "Min", "Mul", "Neg", "Not", "Or", "Pow", "Reciprocal", "Relu", "Round", "Sigmoid",
    "Sqrt", "Sub", "Tanh", "Where",
)


def _first(given: Given) -> PaddedRows:
    """The first input, whose rows depend on data. The others must be known."""
    first, *others = given
    if first is None or first.space is None:
        raise CannotOffloadError
    if any(each is not None and not each.is_known for each in others):
        raise CannotOffloadError
    return first


def _places(node: HostNode, given: Given) -> list[PaddedRows]:
    """NonZero of one axis: each place is its own row."""
    (x,) = given
    if x is None or x.tensor.rank != 1:
        raise CannotOffloadError
    mask = x.tensor.cast("bool")
    space = Space(mask) if x.space is None else x.space.part(mask.apply("and", x.space.mask, dtype="bool"))
    return [PaddedRows(Tensor.constant(numpy.arange(mask.size).reshape(1, -1)), 1, space, x.space)]


def _elementwise(node: HostNode, given: Given) -> list[PaddedRows]:
    """Row by row: the rows of all inputs that have some lie side by side."""
    rows = [each for each in given if each is not None]
    found = {(each.space, each.tensor.rank - each.axis) for each in rows if each.space is not None}
    if len(found) != 1 or any(each.places_in is not None for each in rows):
        raise CannotOffloadError
    ((space, from_end),) = found
    for each in rows:
        if each.space is None and each.tensor.rank >= from_end and each.tensor.shape[-from_end] != 1:
            raise CannotOffloadError
    (made,) = call(node, given)
    return [PaddedRows(made, made.rank - from_end, space)]


def _unchanged(node: HostNode, given: Given) -> list[PaddedRows]:
    first = _first(given)
    return [replace(first, tensor=call(node, given)[0])]


def _axes(node: HostNode, given: Given, rank: int) -> list[int]:
    """The axes of Squeeze and Unsqueeze."""
    second = given[1] if len(given) > 1 else None
    axes = node.attributes.get("axes") if second is None else second.tensor.numpy().reshape(-1).tolist()
    if not isinstance(axes, (list, tuple)) or not axes:
        raise CannotOffloadError
    return sorted(int(axis) % rank for axis in axes)


def _squeezed(node: HostNode, given: Given) -> list[PaddedRows]:
    first = _first(given)
    axes = _axes(node, given, first.tensor.rank)
    if first.axis in axes:
        raise CannotOffloadError
    return [replace(first, tensor=call(node, given)[0], axis=first.axis - sum(axis < first.axis for axis in axes))]


def _unsqueezed(node: HostNode, given: Given) -> list[PaddedRows]:
    first = _first(given)
    (made,) = call(node, given)
    new = _axes(node, given, made.rank)
    old = [axis for axis in range(made.rank) if axis not in new]
    return [replace(first, tensor=made, axis=old[first.axis])]


def _transposed(node: HostNode, given: Given) -> list[PaddedRows]:
    first = _first(given)
    perm = node.attributes.get("perm", tuple(reversed(range(first.tensor.rank))))
    if not isinstance(perm, tuple):
        raise CannotOffloadError
    return [replace(first, tensor=call(node, given)[0], axis=perm.index(first.axis))]


def _split(node: HostNode, given: Given) -> list[PaddedRows]:
    first, axis = _first(given), node.attributes.get("axis", 0)
    if not isinstance(axis, int):
        raise CannotOffloadError
    if axis % first.tensor.rank == first.axis:
        raise CannotOffloadError
    return [replace(first, tensor=tensor) for tensor in call(node, given)]


def _sliced(node: HostNode, given: Given) -> list[PaddedRows]:
    """Other axes, or the first rows if those that exist come first."""
    first, *lists = given
    if first is None or first.space is None or len(lists) < 2 or any(each is None for each in lists):
        raise CannotOffloadError
    starts, ends, *rest = (each.numbers() for each in lists if each is not None)
    axes = rest[0] if rest else list(range(len(starts)))
    steps = rest[1] if len(rest) > 1 else [1] * len(starts)
    space, size = first.space, first.tensor.shape[first.axis]
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if axis % first.tensor.rank != first.axis:
            if isinstance(start, Count) or isinstance(end, Count):
                raise CannotOffloadError
        elif (start, step) != (0, 1):
            raise CannotOffloadError
        elif not (end.space is first.space if isinstance(end, Count) else end >= size):
            if isinstance(end, Count) or end <= 0 or not space.is_prefix:
                raise CannotOffloadError
            space = space.part(space.mask.slice(0, 0, end), is_prefix=True)
    return [replace(first, tensor=call(node, given)[0], space=space)]


def _concatenated(node: HostNode, given: Given) -> list[PaddedRows]:
    """Side by side, or the rows of one value behind those of another."""
    rows = [each for each in given if each is not None]
    axis = node.attributes.get("axis", 0)
    if not isinstance(axis, int):
        raise CannotOffloadError
    first = rows[0]
    if any((each.space is None, each.axis, each.places_in) != (False, first.axis, first.places_in) for each in rows):
        raise CannotOffloadError
    (made,) = call(node, given)
    spaces = [each.space for each in rows if each.space is not None]
    if axis % first.tensor.rank != first.axis:
        if any(space is not spaces[0] for space in spaces):
            raise CannotOffloadError
        return [replace(first, tensor=made)]
    space = spaces[0] if len(spaces) == 1 else Space(concatenate([space.mask for space in spaces], 0))
    return [replace(first, tensor=made, space=space)]


def _gathered(node: HostNode, given: Given) -> list[PaddedRows]:
    """Columns of rows; or rows at places, which are rows themselves."""
    table, index = given
    if table is None or index is None:
        raise CannotOffloadError
    axis = node.attributes.get("axis", 0)
    if not isinstance(axis, int):
        raise CannotOffloadError
    axis %= table.tensor.rank
    if index.space is None:
        if axis == table.axis or not index.is_known:
            raise CannotOffloadError
        if table.is_triple and (index.tensor.numpy() != 2).any():
            raise CannotOffloadError
        moved = index.tensor.rank - 1 if axis < table.axis else 0
        return [replace(table, tensor=call(node, given)[0], axis=table.axis + moved, is_triple=False)]
    if table.is_triple or index.is_triple or index.places_in is not table.space:
        raise CannotOffloadError
    if table.space is not None and axis != table.axis:
        raise CannotOffloadError
    return [PaddedRows(call(node, given)[0], axis + index.axis, index.space, table.places_in)]


def _extreme(node: HostNode, given: Given) -> list[PaddedRows]:
    """The largest or smallest over all rows that exist."""
    first = _first(given)
    axes = given[1].tensor.numpy().reshape(-1).tolist() if len(given) > 1 and given[1] is not None else None
    axes = node.attributes.get("axes") if axes is None else axes
    if first.space is None:
        raise CannotOffloadError
    if node.attributes.get("noop_with_empty_axes", 0) or first.places_in is not None or not first.tensor.is_float:
        raise CannotOffloadError
    if axes and first.axis not in [axis % first.tensor.rank for axis in axes]:  # type: ignore[union-attr]
        raise CannotOffloadError
    mask = first.space.mask.reshape(*(-1 if a == first.axis else 1 for a in range(first.tensor.rank)))
    seen = where(mask, first.tensor, -inf if node.op_type == "ReduceMax" else inf)
    return [PaddedRows(call(node, [PaddedRows(seen), *given[1:]])[0])]


def _shaped(node: HostNode, given: Given) -> list[PaddedRows]:
    """Reshape and Flatten: the axis of the rows stays, or takes in the axes behind it."""
    first = given[0]
    if first is None or first.space is None:
        raise CannotOffloadError
    (made,) = call(node, given)
    old, new, axis = first.tensor.shape, made.shape, first.axis
    if node.op_type == "Flatten":
        split = int(node.attributes.get("axis", 1)) % (len(old) + 1)  # type: ignore[arg-type]
        wanted: list[Any] = [-1, new[1]] if axis < split else [new[0], -1]
    else:
        if given[1] is None:
            raise CannotOffloadError
        wanted = given[1].numbers()
    follows = -1 if any(isinstance(each, Count) for each in wanted) or _copies(node, wanted, axis) else axis
    for place, each in enumerate(wanted):
        if isinstance(each, Count):
            is_rows = each.space is first.space
        elif each == 0 and not node.attributes.get("allowzero", 0):
            is_rows = place == axis
        else:
            is_rows = each == -1 and follows == axis
        if is_rows and prod(old[:axis]) == prod(new[:place]) and prod(old) > 0:
            count = new[place] // old[axis]
            if new[place] != count * old[axis] or count not in numpy.cumprod([1, *old[axis + 1 :]]):
                raise CannotOffloadError
            if count > 1 and (first.places_in is not None or isinstance(each, Count)):
                raise CannotOffloadError
            return [replace(first, tensor=made, axis=place, space=first.space.repeated(count))]
    raise CannotOffloadError


def _copies(node: HostNode, wanted: list[Any], axis: int) -> bool:
    """Returns whether a Reshape copies the number of rows by a 0."""
    return axis < len(wanted) and not node.attributes.get("allowzero", 0) and wanted[axis] == 0


def _expanded(node: HostNode, given: Given) -> list[PaddedRows]:
    """Rows of which all are the same, or rows with further axes."""
    x, target = given
    if x is None or target is None:
        raise CannotOffloadError
    (made,) = call(node, given)
    wanted: list[Any] = [1] * made.rank
    numbers = target.numbers()
    wanted[made.rank - len(numbers) :] = numbers
    spaces = {each.space: axis for axis, each in enumerate(wanted) if isinstance(each, Count)}
    if x.space is not None:
        axis = made.rank - x.tensor.rank + x.axis
        if spaces.setdefault(x.space, axis) != axis or not (isinstance(wanted[axis], Count) or wanted[axis] == 1):
            raise CannotOffloadError
    if len(spaces) != 1 or sum(isinstance(each, Count) for each in wanted) > 1:
        raise CannotOffloadError
    ((space, axis),) = spaces.items()
    own = axis - (made.rank - x.tensor.rank)
    if x.space is None and own >= 0 and x.tensor.shape[own] != 1:
        raise CannotOffloadError
    return [replace(x, tensor=made, axis=axis, space=space)]


def _filled(node: HostNode, given: Given) -> list[PaddedRows]:
    """ConstantOfShape."""
    (sizes,) = given
    if sizes is None:
        raise CannotOffloadError
    counts = [(axis, each.space) for axis, each in enumerate(sizes.numbers()) if isinstance(each, Count)]
    if len(counts) != 1:
        raise CannotOffloadError
    ((axis, space),) = counts
    return [PaddedRows(call(node, given)[0], axis, space)]


def _written(node: HostNode, given: Given) -> list[PaddedRows]:
    """ScatterElements and ScatterND of whole rows: those that exist of the updates, at their own places."""
    x, index, updates = given
    if x is None or index is None or updates is None:
        raise CannotOffloadError
    axis = 0 if node.op_type == "ScatterND" else int(node.attributes.get("axis", 0)) % x.tensor.rank  # type: ignore
    is_alone = node.attributes.get("reduction", "none") == "none" and x.axis in ((axis,) if x.space else (0, axis))
    if not is_alone or index.space is None or updates.space is not index.space or index.places_in is not x.space:
        raise CannotOffloadError
    own = numpy.arange(x.tensor.shape[axis]).reshape(-1, *[1] * (x.tensor.rank - 1 - axis))
    own = own.reshape(-1, 1) if node.op_type == "ScatterND" else own
    is_whole = updates.tensor.shape == x.tensor.shape and (
        index.tensor.shape == (own.shape if node.op_type == "ScatterND" else x.tensor.shape)
    )
    if not is_whole or (index.axis, updates.axis) != (axis, axis) or not index.tensor.is_constant:
        raise CannotOffloadError
    if (index.tensor.numpy() != own).any():
        raise CannotOffloadError
    mask = index.space.mask.reshape(*(-1 if a == axis else 1 for a in range(x.tensor.rank)))
    return [replace(x, tensor=where(mask, updates.tensor, x.tensor))]


def _aligned(node: HostNode, given: Given) -> list[PaddedRows]:
    """RoiAlign: a region a row."""
    features, regions, batch = given
    if features is None or regions is None or batch is None:
        raise CannotOffloadError
    if features.space is not None or regions.space is not batch.space or (regions.axis, batch.axis) != (0, 0):
        raise CannotOffloadError
    return [PaddedRows(call(node, given)[0], 0, regions.space)]


def _multiplied(node: HostNode, given: Given) -> list[PaddedRows]:
    """Gemm and MatMul of rows with a known matrix."""
    first, matrix = _first(given), given[1]
    if matrix is None:
        raise CannotOffloadError
    bias = given[2] if len(given) > 2 else None
    rank, axis = first.tensor.rank, first.axis
    if matrix.tensor.rank > 2 or axis == rank - 1 or node.attributes.get("transA", 0):
        raise CannotOffloadError
    if bias is not None and bias.tensor.rank == 2 and bias.tensor.shape[0] != 1:
        raise CannotOffloadError
    (made,) = call(node, given)
    return [PaddedRows(made, axis, first.space)]


def _normalised(node: HostNode, given: Given) -> list[PaddedRows]:
    """Softmax and LogSoftmax within a row. Before opset 13 they go over all axes from `axis` on."""
    first = _first(given)
    is_old = node.version < 13
    axis = int(node.attributes.get("axis", 1 if is_old else -1)) % first.tensor.rank  # type: ignore[arg-type]
    if first.axis >= axis if is_old else first.axis == axis:
        raise CannotOffloadError
    return [replace(first, tensor=call(node, given)[0])]


def _layer(node: HostNode, given: Given) -> list[PaddedRows]:
    """A layer that computes each element of a batch alone."""
    first = _first(given)
    made = call(node, given)
    if first.axis != 0 or len(made) != 1:
        raise CannotOffloadError
    return [PaddedRows(made[0], 0, first.space)]


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(ELEMENTWISE, _elementwise),
    "Cast": _unchanged, "Identity": _unchanged, "Squeeze": _squeezed, "Unsqueeze": _unsqueezed,
    "Transpose": _transposed, "Split": _split, "Slice": _sliced, "Concat": _concatenated, "Gather": _gathered,
    "ReduceMax": _extreme, "ReduceMin": _extreme, "NonZero": _places, "Reshape": _shaped, "Flatten": _shaped,
    "Expand": _expanded, "ConstantOfShape": _filled, "ScatterElements": _written, "ScatterND": _written,
}
# They take a list of sizes beside a value, or instead of one.
OF_SIZES = frozenset(("Reshape", "Expand", "ConstantOfShape", "Slice"))
# What takes long for rows that do not exist, too.
LAYERS: Mapping[str, Rule] = {
    **dict.fromkeys(BY_ELEMENT_OF_A_BATCH - set(ELEMENTWISE), _layer),
    "RoiAlign": _aligned, "Gemm": _multiplied, "MatMul": _multiplied, "Softmax": _normalised,
    "LogSoftmax": _normalised,
}
