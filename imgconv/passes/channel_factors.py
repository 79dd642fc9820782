"""Let convolutions multiply the channels of their input as they read it."""

from __future__ import annotations

from dataclasses import replace

from imgconv.graph.expression import Apply, Argument
from imgconv.graph.index import constant
from imgconv.graph.nodes import Convolution, Graph, Load, Node, Operand
from imgconv.graph.view import View
from imgconv.passes.materialise import reorders_texels


def fuse_channel_factors(graph: Graph) -> Graph:
    """Move the product of a tensor and a computed factor per channel into the 1x1 convolutions that read it.

    This is the last step of squeeze-and-excitation. In a 1x1 convolution a work item reads each texel of its input
    once. So the product costs one more read for each four input channels, and saves a launch and a texture.

    Given:   m = load(x) then multiply($0, $1), $1=s[i0, i1];  y = convolution(m, w)
    Result:  y = convolution(x, w, s[i0, i1])
    """
    made: dict[str, Node] = {}
    gone = set()
    for node in graph.nodes:
        readers = graph.consumers[node.output.name]
        found = _match_tensor_times_factors(graph, node)
        if found is None or not readers or not all(_can_take_factors(r, node.output.name) for r in readers):
            continue
        gone.add(node.output.name)
        for reader in readers:
            made[reader.output.name] = replace(
                reader, operands=_factored_operands(reader.operands[0], *found, reader.operands[1]),
                origin=tuple(dict.fromkeys((*node.origin, *reader.origin))),
            )
    kept = (made.get(n.output.name, n) for n in graph.nodes if n.output.name not in gone)
    return replace(graph, nodes=tuple(kept))


def _match_tensor_times_factors(graph: Graph, node: Node) -> tuple[Operand, Operand] | None:
    """(The tensor, the factors (N, C, 1, 1) of its channels) if the node is their product, else None."""
    expression = node.epilogue
    if not isinstance(node.operation, Load) or len(node.output.shape) != 4 or node.output.name in graph.outputs:
        return None
    if not isinstance(expression, Apply) or expression.function != "multiply" or len(node.epilogue_operands) != 1:
        return None
    if set(expression.arguments) != {Argument(0), Argument(1)}:
        return None
    for x, factors in (node.all_operands, tuple(reversed(node.all_operands))):
        varies = {v.name for e in factors.view.index for v in e.variables()}
        computed = factors.value not in graph.constants and x.value not in graph.constants
        if computed and x.view.is_identity and not factors.view.bounds and varies <= {"i0", "i1"}:
            shape = (*node.output.shape[:2], 1, 1)
            return x, Operand(factors.value, View(shape, factors.view.source, factors.view.index))
    return None


def _factored_operands(
    read: Operand, x: Operand, factors: Operand, weights: Operand
) -> tuple[Operand, Operand, Operand]:
    """The operands of a convolution that reads channels of the product of x and the factors."""
    view = read.view
    taken = View((*view.shape[:2], 1, 1), factors.view.shape, (*view.index[:2], constant(0), constant(0)))
    return Operand(x.value, view), weights, Operand(factors.value, taken.composed_with(factors.view))


def _can_take_factors(reader: Node, name: str) -> bool:
    """Returns whether the reader is a 1x1 convolution of the named value, or of whole texels of it, and reads nothing
    else of it."""
    operation, operands = reader.operation, reader.operands
    return (
        isinstance(operation, Convolution) and not operation.transposed and operation.groups == 1
        and operation.pads == (0, 0) and operands[1].view.shape[2:] == (1, 1) and len(operands) == 2
        and operands[0].value == name and not reorders_texels(operands[0])
        and all(o.value != name for o in (operands[1], *reader.epilogue_operands))
    )
