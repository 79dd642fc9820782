"""Reduces a wrong convolution or product to the smallest sizes at which the device still computes it incorrectly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy

from imgconv.graph.expression import Apply, fold
from imgconv.graph.lazy import elementwise
from imgconv.graph.nodes import Convolution, Graph, Node, Operand, Product
from imgconv.graph.view import Shape
from imgconv.tensor import Tensor, build_graph, convolution

T = TypeVar("T")
TRIES = 40  # graphs of one node, at most


def shrink_failing_node(node: Node, graph: Graph, failure: Callable[[Graph], T | None]) -> T | None:
    """The failure of the smallest graph of a node alone. None if the node alone is right, or no convolution or product.

    Each size is halved as long as there is a failure. graph: has the node.
    """
    if not isinstance(node.operation, (Convolution, Product)):
        return None
    sizes, axis, since = _problem_sizes(node), 0, 0
    best = failure(isolated_node(node, graph, sizes))
    for _ in range(TRIES):
        if best is None or since == len(sizes):  # none of the sizes can be halved
            break
        halved = (*sizes[:axis], (sizes[axis] + 1) // 2, *sizes[axis + 1 :])
        found = failure(isolated_node(node, graph, halved)) if halved != sizes else None
        if found is not None:
            sizes, best, since = halved, found, 0
        else:
            axis, since = (axis + 1) % len(sizes), since + 1
    return best


def _problem_sizes(node: Node) -> Shape:
    """Returns N, groups, C and F of a group, H, W of a convolution; the leading axes, then M, K, N of a product."""
    x, w = (operand.view.shape for operand in node.operands[:2])
    if isinstance(node.operation, Convolution):
        groups = node.operation.groups
        return x[0], groups, x[1] // groups, node.output.shape[1] // groups, *x[2:]
    return *x, w[-1]


def isolated_node(node: Node, graph: Graph, sizes: Shape) -> Graph:
    """A graph of the node with random constants, and inputs in place of all else that it reads."""
    inputs: list[Tensor] = []

    def operand(of: Operand, *shape: int) -> Tensor:
        if of.value in graph.constants:
            random = numpy.random.default_rng(0)
            return Tensor.constant(random.uniform(-0.5, 0.5, shape).astype(numpy.float32))
        inputs.append(Tensor.input(f"x{len(inputs)}", shape))
        return inputs[-1]

    made = _convolution_or_product(node, sizes, operand)
    others = []
    for each in node.epilogue_operands:
        axes = {v.name for e in (*each.view.index, *(b.index for b in each.view.bounds)) for v in e.variables()}
        others.append(operand(each, *(size if f"i{axis}" in axes else 1 for axis, size in enumerate(made.shape))))

    def literal(value: float) -> Tensor:
        return Tensor.constant(numpy.float32(value))

    def applied(part: Apply, given: Sequence[Tensor]) -> Tensor:
        return elementwise(part.function, *given)

    result = fold(node.epilogue, literal, [made, *others], applied)
    given = ", ".join(map(str, (each.shape for each in inputs)))
    return build_graph({"y": result}, inputs, f"{node.operation} alone, of {given}, gives {result.shape}")


def _convolution_or_product(node: Node, sizes: Shape, operand: Callable[..., Tensor]) -> Tensor:
    x, w, *factors = node.operands
    operation = node.operation
    if not isinstance(operation, Convolution):
        *lead, rows, inner, columns = sizes
        return operand(x, *lead, rows, inner) @ operand(w, *lead, inner, columns)
    n, groups, c, f, *spatial = sizes
    channels, window = (groups * c, f) if operation.transposed else (groups * f, c), w.view.shape[2:]
    read = operand(x, n, groups * c, *spatial)
    for factor in factors:
        read = read * operand(factor, n, groups * c, 1, 1)
    output = [max(1, now * made // was) for now, made, was in zip(spatial, node.output.shape[2:], x.view.shape[2:])]
    return convolution(
        read, operand(w, *channels, *window), operation.strides, [*operation.pads, *operation.pads],
        operation.dilations, groups, output, operation.transposed,
    )
