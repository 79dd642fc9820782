"""Fold constant scales and shifts per channel into the weights and the bias, in float64."""

from __future__ import annotations

from dataclasses import replace

import numpy

from imgconv.arrays import Array, Arrays
from imgconv.graph.expression import Argument, Expression, Literal, apply, replace_subexpression, users
from imgconv.graph.index import Variable
from imgconv.graph.nodes import IDENTITY, Convolution, Graph, Node, Operand, Product
from imgconv.graph.view import Shape, View, axis_variables
from imgconv.passes.literals import without_redundant_epilogue_operands


def fold_scales(graph: Graph) -> Graph:
    """Multiply the weights by constant factors of the epilogue, one per channel; add up constant addends as one bias.

    This removes BatchNormalization after a convolution. Weights and bias are rounded once, at the end.

    Given:   y = convolution(x, w) then relu(add(multiply(add($0, $1), $2), $3)), $1=b[i1], $2=s[i1], $3=t[i1]
    Result:  y = convolution(x, w*s) then relu(add($0, $1)), $1=(b*s + t)[i1]
    """
    constants = dict(graph.constants)
    nodes = tuple(_rewrite(graph, node, constants) for node in graph.nodes)
    return replace(graph, nodes=nodes, constants=constants)


def _rewrite(graph: Graph, node: Node, constants: dict[str, Array]) -> Node:
    if not isinstance(node.operation, (Convolution, Product)) or node.operands[1].value not in constants:
        return node
    weights = node.operands[1]
    if constants[weights.value].dtype.kind != "f":
        # Sums of integers are exact; scaled weights would not be integers.
        return node
    axis = 1 if isinstance(node.operation, Convolution) else len(node.output.shape) - 1
    if not weights.view.is_identity and (isinstance(node.operation, Convolution) or constants[weights.value].ndim != 2):
        return node
    scale, shift, rest, steps = _split_scale_and_shift(node, axis, constants)
    if steps == 0 or (steps == 1 and numpy.all(scale == 1)):
        return node
    made = node
    if not numpy.all(scale == 1):
        name = graph.unused_name(f"{node.output.name}.weights")
        scaled, view = _scaled(node, constants[weights.value], weights.view, scale)
        constants[name] = scaled
        made = replace(made, operands=(made.operands[0], Operand(name, view)))
    if not numpy.any(shift):
        return without_redundant_epilogue_operands(replace(made, epilogue=rest))
    bias = graph.unused_name(f"{node.output.name}.bias")
    constants[bias] = shift.astype(numpy.float32)
    added = apply("add", IDENTITY, Argument(len(made.epilogue_operands) + 1))
    operand = Operand(bias, along_axis(node.output.shape, axis))
    return without_redundant_epilogue_operands(
        replace(
            made, epilogue=replace_subexpression(rest, IDENTITY, added),
            epilogue_operands=(*made.epilogue_operands, operand),
        )
    )


def _split_scale_and_shift(node: Node, axis: int, constants: dict[str, Array]) -> tuple[Array, Array, Expression, int]:
    """(scale, shift, rest of the epilogue, steps removed): the removed innermost steps compute sum*scale + shift."""
    size = node.output.shape[axis]
    scale, shift, rest, steps = numpy.ones(size), numpy.zeros(size), node.epilogue, 0
    while True:
        found = users(rest, IDENTITY)
        if len(found) != 1:
            return scale, shift, rest, steps
        (user,) = found
        if user.function not in ("add", "subtract", "multiply", "divide") or user.arguments.count(IDENTITY) != 1:
            return scale, shift, rest, steps
        first = user.arguments[0] == IDENTITY
        other = by_channel(node, user.arguments[1 if first else 0], axis, constants)
        if other is None or (user.function == "divide" and not first):
            return scale, shift, rest, steps
        if user.function == "add":
            shift = shift + other
        elif user.function == "subtract":
            scale, shift = (scale, shift - other) if first else (-scale, other - shift)
        else:
            with numpy.errstate(all="ignore"):
                factor = other if user.function == "multiply" else 1 / other
            if not numpy.all(numpy.isfinite(factor)):
                return scale, shift, rest, steps
            scale, shift = scale * factor, shift * factor
        rest, steps = replace_subexpression(rest, user, IDENTITY), steps + 1


def by_channel(node: Node, expression: Expression, axis: int, constants: Arrays) -> Array | None:
    """The constant as a float64 vector along the axis; None if it is not constant or varies along another axis."""
    size = node.output.shape[axis]
    if isinstance(expression, Literal):
        return numpy.full(size, expression.value)
    if not isinstance(expression, Argument) or expression.number == 0:
        return None
    operand = node.epilogue_operands[expression.number - 1]
    along = Variable(f"i{axis}", size)
    if operand.value not in constants or operand.view.bounds:
        return None
    if any(e.variables() - {along} for e in operand.view.index):
        return None
    places = {along.name: numpy.arange(size)}
    where = tuple(numpy.broadcast_to(e.evaluate(places), size) for e in operand.view.index)
    array = constants[operand.value].astype(numpy.float64)
    return array[where] if where else numpy.full(size, array)


def _scaled(node: Node, weights: Array, view: View, scale: Array) -> tuple[Array, View]:
    """The weights times the scale of their output channel, in the same dtype, and the view that reads them."""
    wide = weights.astype(numpy.float64)
    if isinstance(node.operation, Convolution) and node.operation.transposed:
        groups = node.operation.groups
        by_group = wide.reshape(groups, -1, *wide.shape[1:])
        scaled = by_group * scale.reshape(groups, 1, -1, *[1] * (wide.ndim - 2))
        return scaled.reshape(wide.shape).astype(numpy.float32), view
    if isinstance(node.operation, Convolution):
        return (wide * scale.reshape(-1, *[1] * (wide.ndim - 1))).astype(numpy.float32), view
    if view.is_identity:
        return (wide * scale).astype(numpy.float32), view
    matrix = view.evaluate(wide)
    kept = matrix[(0,) * (matrix.ndim - 2)]
    axes = axis_variables(view.shape)
    return (kept * scale).astype(numpy.float32), View(view.shape, kept.shape, axes[-2:])


def along_axis(shape: Shape, axis: int) -> View:
    """The view that reads a vector along `axis` and repeats it along all other axes."""
    return View(shape, (shape[axis],), (axis_variables(shape)[axis],))
