"""Replace a depthwise convolution that is concatenated with its own input by one convolution."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy

from imgconv.arrays import Array
from imgconv.graph.expression import Argument, apply
from imgconv.graph.index import variable
from imgconv.graph.nodes import IDENTITY, Concatenation, Convolution, Graph, Load, Node, Operand, Value, whole_operand
from imgconv.graph.view import View, axis_variables, identity
from imgconv.kernels.layout import LANES
from imgconv.passes.channel_orders import elementwise_of

MOST_TAPS = 9  # of the window: each adds a zero weight for the tensor's own channels


def fuse_ghost_convolutions(graph: Graph) -> Graph:
    """Let the depthwise convolution of a tensor also write the tensor itself, if the two are concatenated.

    This is GhostNet's module. A kernel cannot read and write the same image, so otherwise the tensor would be copied
    into the result. The new convolution reads the tensor's channels twice; its epilogue returns the first half
    unchanged.

    Given:   d = convolution groups 8(x, w);  y = concatenation axis 1(x, d)
    Result:  d.joined = convolution groups 16(x[0, i1%8, i2, i3], d.weights)
             y = load(d.joined) then where($1, $2, $0), $1=y.own[i1], $2=x[0, i1%8, i2, i3]
    """
    made: dict[str, list[Node]] = {}
    constants = dict(graph.constants)
    for node in graph.nodes:
        found = _match(graph, node)
        if found:
            made |= _replacements(graph, node, found, constants)
    nodes = [new for node in graph.nodes for new in made.get(node.output.name, [node])]
    return replace(graph, nodes=tuple(nodes), constants=constants)


def _match(graph: Graph, node: Node) -> tuple[Node, ...]:
    """The depthwise convolution of a concatenation's first part, and the work on it that makes the second; or empty."""
    if not isinstance(node.operation, Concatenation) or node.operation.axis != 1 or len(node.operands) != 2:
        return ()
    first, second = node.operands
    if not first.view.is_identity or first.value in graph.constants or first.view.shape != second.view.shape:
        return ()
    made = elementwise_of(graph, second, _is_depthwise)
    whole = made and made[0].operands[0] == first and first.view.shape[1] % LANES == 0
    return made if whole and graph.values[first.value].dtype == node.output.dtype else ()


def _is_depthwise(graph: Graph, node: Node) -> bool:
    """Returns whether the node is a depthwise convolution with a small window and an output for each input."""
    operation = node.operation
    if not isinstance(operation, Convolution) or operation.transposed or len(node.operands) > 2:
        return False
    x, weights = (operand.view for operand in node.operands)
    depthwise = operation.groups == x.shape[1] == weights.shape[0] and x.shape == node.output.shape
    known = graph.constants.get(node.operands[1].value)
    floats = known is not None and weights.is_identity and known.dtype.kind == "f"
    return depthwise and floats and prod(weights.shape[2:]) <= MOST_TAPS


def _replacements(
    graph: Graph, node: Node, found: tuple[Node, ...], constants: dict[str, Array]
) -> dict[str, list[Node]]:
    """The nodes that replace the concatenation and what makes its second part, by name."""
    shape, own = node.output.shape, axis_variables(node.output.shape)
    half = shape[1] // 2
    channel = own[1] % half
    x = found[0].operands[0]
    twice = Operand(x.value, View(shape, x.view.source, (own[0], channel, own[2], own[3])))
    made: dict[str, list[Node]] = {}
    joined: dict[str, Operand] = {}
    for old in found:
        value = Value(graph.unused_name(f"{old.output.name}.joined"), shape, old.output.dtype)
        extra = tuple(joined.get(o.value) or _for_both_halves(o, shape) for o in old.epilogue_operands)
        if isinstance(old.operation, Convolution):
            weights = constants[old.operands[1].value]
            name = graph.unused_name(f"{old.output.name}.weights")
            constants[name] = numpy.concatenate([numpy.zeros_like(weights), weights])
            operands = (twice, Operand(name, identity(constants[name].shape)))
            new = replace(old, output=value, operation=replace(old.operation, groups=shape[1]), operands=operands)
        else:
            first = old.operands[0]
            new = replace(old, output=value, operands=(joined.get(first.value) or _for_both_halves(first, shape),))
        joined[old.output.name] = whole_operand(value)
        made[old.output.name] = [replace(new, epilogue_operands=extra)]
    name = graph.unused_name(f"{node.output.name}.own")
    constants[name] = (numpy.arange(shape[1]) < half).astype(numpy.float32)
    is_own = Operand(name, View(shape, (shape[1],), (variable("i1", shape[1]),)))
    chosen = apply("where", Argument(1), Argument(2), IDENTITY)
    made[node.output.name] = [
        replace(
            node, operation=Load(), operands=(whole_operand(value),), epilogue=chosen, epilogue_operands=(is_own, twice)
        )
    ]
    return made


def _for_both_halves(operand: Operand, shape: tuple[int, ...]) -> Operand:
    """A constant of the second half's channels, read for both halves."""
    half = shape[1] // 2
    channel = variable("i1", shape[1]) % half
    index = tuple(e.substitute(dict.fromkeys(e.variables(), channel)) for e in operand.view.index)
    return Operand(operand.value, View(shape, operand.view.source, index))
