"""Reference semantics of every node, in numpy. Used to fold constants and to check passes.

Floats are computed in float64, uint64 in uint64 and other integers in int64. The result is then cast to the dtype of
the node's output: floats are rounded, integers wrap around.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy

from imgconv.arrays import Array, Arrays
from imgconv.graph import expression
from imgconv.graph.nodes import IDENTITY, Graph, Node
from imgconv.graph.view import Shape, View


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
        read, operands = [arrays[o.value] for o in node.operands], node.operands
        result = node.operation.evaluate(
            operands, read if _is_copy(node, read) else list(map(_to_64_bits, read)), node.output
        )
        extra = [o.read(_to_64_bits(arrays[o.value])) for o in node.epilogue_operands]
        value = numpy.asarray(expression.evaluate(node.epilogue, [result, *extra]))
        return numpy.broadcast_to(value, node.output.shape).astype(node.output.dtype)


def peak_elements(views: Sequence[View], shape: Shape) -> int:
    """The number of elements that `evaluate_node` holds at once: of the operands, and of a result of this shape."""
    return sum(prod(view.shape) for view in views) + prod(shape)


def _is_copy(node: Node, arrays: Sequence[Array]) -> bool:
    """Returns whether the elements stay as they are, so that wider ones would only take memory."""
    if not node.operation.copies or node.epilogue != IDENTITY or any(o.fill != 0 for o in node.operands):
        return False
    return all(array.dtype == node.output.dtype for array in arrays)


def _to_64_bits(array: Array) -> Array:
    if array.dtype.kind == "f":
        return array.astype(numpy.float64)
    return array.astype(numpy.int64) if array.dtype.kind in "iu" and array.dtype != numpy.uint64 else array
