"""Reference semantics of every node, in numpy. Used to fold constants and to check passes.

Floats are computed in float64, uint64 in uint64 and other integers in int64. A result is then cast to the dtype of the
node's output: floats are rounded, integers wrap around.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod

import numpy

from imgconv.arrays import Array, Arrays
from imgconv.graph import expression
from imgconv.graph.nodes import (
    IDENTITY, Concatenation, Convolution, Gather, Graph, Load, Node, Operand, Operation, Order, Product, Recurrence,
    Reduction, ReductionKind, Suppression, Value, indices_of, neutral,
)
from imgconv.graph.view import Shape, View
from imgconv.suppression import suppress

_REDUCE: Mapping[str, Callable[..., Array]] = {
    "sum": numpy.sum, "max": numpy.max, "min": numpy.min, "product": numpy.prod
}


def evaluate_graph(graph: Graph, inputs: Arrays) -> dict[str, Array]:
    """The array of each output, by name. inputs: one array for each input of the graph."""
    arrays: dict[str, Array] = dict(graph.constants)
    arrays |= {v.name: numpy.asarray(inputs[v.name], v.dtype) for v in graph.inputs}
    for node in graph.nodes:
        arrays[node.output.name] = evaluate_node(node, arrays)
    return {name: arrays[name] for name in graph.outputs}


def evaluate_node(node: Node, arrays: Arrays) -> Array:
    """The node's output, as an array of the output's shape and dtype. arrays: the values that the node reads."""
    with numpy.errstate(all="ignore"):
        if isinstance(node.operation, Gather):
            result = _gather(node, arrays)
        else:
            wide = not _only_moves(node, arrays)
            result = _operate(node, [_read(o, arrays[o.value], wide) for o in node.operands])
        extra = [_read(o, arrays[o.value]) for o in node.epilogue_operands]
        value = numpy.asarray(expression.evaluate(node.epilogue, [result, *extra]))
        return numpy.broadcast_to(value, node.output.shape).astype(node.output.dtype)


def elements_read(operation: Operation, views: Sequence[View], shape: Shape) -> int:
    """Returns the number of elements that `evaluate_node` reads, at least one for each output: its time follows."""
    if isinstance(operation, Gather):
        return prod(views[-1].shape) * len(views)
    if isinstance(operation, Product):
        return prod(shape) * views[0].shape[-1]
    if isinstance(operation, Convolution):
        return prod(shape) * prod(views[1].shape[2:]) * min(views[1].shape[:2])
    return sum(prod(view.shape) for view in views)


def elements_held(views: Sequence[View], shape: Shape) -> int:
    """The number of elements that `evaluate_node` holds at once: of the operands, and of a result of this shape."""
    return sum(prod(view.shape) for view in views) + prod(shape)


def _end_of_range(kind: ReductionKind, dtype: str) -> float:
    """The max or min over no elements: the smallest or the largest number of the type."""
    if dtype == "bool":
        return kind == "min"
    if dtype.startswith("float"):
        return -numpy.inf if kind == "max" else numpy.inf
    return numpy.iinfo(dtype).min if kind == "max" else numpy.iinfo(dtype).max


def _only_moves(node: Node, arrays: Arrays) -> bool:
    """Returns whether the elements stay as they are, so that wider ones would only take memory."""
    if not isinstance(node.operation, (Load, Concatenation)) or node.epilogue != IDENTITY:
        return False
    return all(arrays[o.value].dtype == node.output.dtype and o.fill == 0 for o in node.operands)


def _read(operand: Operand, array: Array, wide: bool = True) -> Array:
    """The elements that an operand reads; the array itself if its view changes nothing."""
    array = _wide(array) if wide else array
    return array if operand.view.is_identity else operand.view.evaluate(array, operand.fill)


def _wide(array: Array) -> Array:
    if array.dtype.kind == "f":
        return array.astype(numpy.float64)
    return array.astype(numpy.int64) if array.dtype.kind in "iu" and array.dtype != numpy.uint64 else array


def _gather(node: Node, arrays: Arrays) -> Array:
    assert isinstance(node.operation, Gather)
    table, indices = node.operands[0], indices_of(node)
    shape, rest = indices[0].view.shape, node.operands[1 + len(indices) :]
    position = list(numpy.meshgrid(*(numpy.arange(n) for n in shape), indexing="ij", sparse=True))
    inside = numpy.ones((1,) * len(shape), bool)
    for operand, size in zip(indices, table.view.shape[len(shape) :], strict=True):
        chosen = numpy.rint(operand.view.evaluate(_wide(arrays[operand.value]), operand.fill))
        valid = (chosen >= 0) & (chosen < size)
        inside = inside & valid
        position.append(numpy.where(valid, chosen, 0).astype(numpy.int64))
    wide = _wide(arrays[table.value])
    read = table.view.evaluate_at(wide, position, shape, table.fill)
    chosen = numpy.where(inside, read, numpy.asarray(table.fill).astype(wide.dtype))
    if node.operation.reduction is None:
        return chosen
    others = [o.view.evaluate(_wide(arrays[o.value]), o.fill) for o in rest]
    return _reduced(node.operation.reduction, [chosen, *others], node.output)


def _operate(node: Node, loaded: Sequence[Array]) -> Array:
    operation = node.operation
    if isinstance(operation, Load):
        return loaded[0]
    if isinstance(operation, Reduction):
        return _reduced(operation, loaded, node.output)
    if isinstance(operation, Product):
        return numpy.asarray(numpy.matmul(loaded[0], loaded[1]))
    if isinstance(operation, Concatenation):
        return numpy.concatenate(loaded, axis=operation.axis)
    if isinstance(operation, Order):
        return _order(loaded[0], operation.largest)[..., : node.output.shape[-1]]
    if isinstance(operation, Suppression):
        boxes, most = loaded[0][: int(loaded[1].item())], node.output.shape[0]
        stay = suppress(boxes, -numpy.arange(len(boxes), dtype=numpy.float64), operation.overlap, most)
        return numpy.pad(stay, (0, most - len(stay)), constant_values=-1)
    if isinstance(operation, Recurrence):
        return _recur(operation, loaded, node.output.shape)
    assert isinstance(operation, Convolution)
    if not loaded[0].size:
        return numpy.zeros(node.output.shape)
    x = loaded[0] * loaded[2] if len(loaded) > 2 else loaded[0]
    return _convolve(operation, x, loaded[1], node.output.shape[2:])


def _reduced(operation: Reduction, loaded: Sequence[Array], output: Value) -> Array:
    body = numpy.asarray(expression.evaluate(operation.body, loaded))
    axes = tuple(range(len(output.shape), body.ndim))
    if operation.kind == "argmax":
        return numpy.asarray(numpy.argmax(body.reshape(*output.shape, -1), axis=-1))
    if not body.size and operation.kind in ("max", "min"):
        return numpy.full(output.shape, _end_of_range(operation.kind, output.dtype))
    if not body.size:
        return numpy.full(output.shape, neutral(operation.kind, output.dtype))
    return _REDUCE[operation.kind](body, axis=axes)


def _order(x: Array, largest: bool) -> Array:
    """The positions of all elements along the last axis, in order of size."""
    if not largest:
        return numpy.argsort(x, axis=-1, kind="stable")
    falling = -x if x.dtype.kind == "f" else ~x
    return numpy.asarray(numpy.lexsort((falling, ~numpy.isnan(x)), axis=-1))


def _recur(operation: Recurrence, loaded: Sequence[Array], shape: tuple[int, ...]) -> Array:
    """The states after each step, (S, T, N, D, H)."""
    x, weights, *rest = loaded
    count, gates = len(operation.states), weights.shape[2]
    states, others, out = rest[:count], rest[count:], numpy.zeros(shape)
    directions = numpy.arange(shape[3])
    for number in range(shape[1]):
        times = numpy.where(operation.reverse, shape[1] - 1 - number, number)
        given = [x[times, :, directions, gate].swapaxes(0, 1) for gate in range(gates)]
        products = [numpy.einsum("ndk,dkh->ndh", states[0], weights[:, :, gate]) for gate in range(gates)]
        arguments = [*given, *products, *states, *others, times[:, None].astype(numpy.float64)]
        if operation.inner is not None:
            inner = numpy.broadcast_to(expression.evaluate(operation.inner, arguments), states[0].shape)
            arguments[2 * gates - 1] = numpy.einsum("ndk,dkh->ndh", inner, weights[:, :, gates - 1])
        made = [expression.evaluate(each, arguments) for each in operation.states]
        states = [numpy.broadcast_to(each, shape[2:]) for each in made]
        for place, state in zip(out, states, strict=True):
            place[times, :, directions] = state.swapaxes(0, 1)
    return out


def _convolve(operation: Convolution, x: Array, w: Array, size: tuple[int, ...]) -> Array:
    strides, pads = operation.strides, operation.pads
    if operation.transposed:
        # A transposed convolution is a convolution over the input with zeros inserted between its elements.
        stretched = numpy.zeros((*x.shape[:2], *((n - 1) * s + 1 for n, s in zip(x.shape[2:], strides))), x.dtype)
        stretched[:, :, :: strides[0], :: strides[1]] = x
        grouped = w.reshape(operation.groups, -1, *w.shape[1:]).swapaxes(1, 2)
        x, w = stretched, grouped.reshape(-1, grouped.shape[2], *w.shape[2:])[:, :, ::-1, ::-1]
        pads = tuple((k - 1) * d - p for k, d, p in zip(w.shape[2:], operation.dilations, pads))
        strides = (1, 1)
    groups, (o, c) = operation.groups, w.shape[:2]
    out = numpy.zeros((x.shape[0], o, *size))
    for ky in range(w.shape[2]):
        for kx in range(w.shape[3]):
            rows = numpy.arange(size[0]) * strides[0] + ky * operation.dilations[0] - pads[0]
            columns = numpy.arange(size[1]) * strides[1] + kx * operation.dilations[1] - pads[1]
            inside = ((rows >= 0) & (rows < x.shape[2]))[:, None] & ((columns >= 0) & (columns < x.shape[3]))
            tap = x[:, :, numpy.clip(rows, 0, x.shape[2] - 1)][..., numpy.clip(columns, 0, x.shape[3] - 1)]
            tap = numpy.where(inside, tap, 0).reshape(x.shape[0], groups, c, *size)
            part = numpy.einsum("ngchw,goc->ngohw", tap, w[:, :, ky, kx].reshape(groups, o // groups, c))
            out += part.reshape(out.shape)
    return out
