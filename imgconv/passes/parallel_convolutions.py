"""Replace convolutions of one tensor whose results are added by one convolution."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import numpy

from imgconv.arrays import Array
from imgconv.graph.expression import Apply, Argument, Expression, apply, subexpressions
from imgconv.graph.nodes import IDENTITY, Convolution, Graph, Load, Node, Operand, Value, whole_operand
from imgconv.graph.view import identity
from imgconv.passes.dead_code import remove_dead_code
from imgconv.passes.scales import along_axis, by_channel

# A sum of operands, each times a factor for each channel (or one for all). The key None is that of a constant.
TermWeights = dict[Operand | None, Array]
MOST_TERMS = 64  # of a sum; a longer one is not looked at


@dataclass(frozen=True, eq=False)
class ConvolutionBranch:
    """A convolution: its weights (O, C/groups, KH, KW), and the names of its ONNX nodes."""

    operation: Convolution
    weights: Array
    origin: tuple[str, ...] = ()

    @property
    def taps(self) -> int:
        """Positions of the window."""
        return prod(self.weights.shape[2:])


def merge_parallel_convolutions(graph: Graph) -> Graph:
    """Replace convolutions whose results are added by one with the sum of their weights. If the tensor itself is added
    too, this is a convolution by ones.

    RepVGG and MobileOne are trained with such branches, each with a normalisation. The branches read one tensor with
    the same strides and groups. The weights of smaller windows are added to those of the largest, so there are no
    additional multiply-adds. Weights are added in float64 and rounded once.

    Given:   a = convolution(x, v);  b = convolution pads 1x1(x, w);  y = load(a) then add(add($0, $1), $2), $1=b, $2=x
    Result:  y.sum = convolution pads 1x1(x, y.weights);  y = load(y.sum)
    """
    sums, constants, made, joined = _find_sums(graph), dict(graph.constants), dict[str, tuple[Node, ...]](), set[str]()
    for node in reversed(graph.nodes):
        name, readers = node.output.name, graph.consumers[node.output.name]
        if name not in sums:
            continue
        if len(readers) == 1 and readers[0].output.name in joined and name not in graph.outputs:
            joined.add(name)  # a part of the sum that its reader is
            continue
        found = _merge_branches(graph, node, sums[name], constants)
        if found:
            made[name] = found
            joined.add(name)
    nodes = tuple(new for node in graph.nodes for new in made.get(node.output.name, (node,)))
    return remove_dead_code(replace(graph, nodes=nodes, constants=constants)) if made else graph


def _merge_branches(graph: Graph, node: Node, terms: TermWeights, constants: dict[str, Array]) -> tuple[Node, ...]:
    """The convolution of the branches among a node's terms, and the node that reads it. Empty if there are not two."""
    first = next((each for operand in terms if operand and (each := _convolution(graph, operand))), None)
    if first is None:
        return ()
    x, steps = first[0], replace(first[1].operation, pads=(0, 0), dilations=(1, 1))
    branches = {operand: made for operand in terms if operand and (made := _branch(graph, node, operand, x, steps))}
    if len(branches) < 2:  # most sums: their weights, which may be large, are not touched
        return ()
    largest = max(branches.values(), key=lambda branch: branch.taps)
    placed = {o: array for o, branch in branches.items() if (array := _weights_in_window(branch, largest)) is not None}
    others = [operand for operand in terms if operand and operand not in placed]
    if len(placed) < 2 or any(numpy.any(terms[operand] != 1) for operand in others):
        return ()
    weights = sum((terms[o].reshape(-1, 1, 1, 1) * array for o, array in placed.items()), numpy.zeros(1))
    bias = numpy.zeros(node.output.shape[1]) + terms.get(None, 0.0)
    value = Value(graph.unused_name(f"{node.output.name}.sum"), node.output.shape, node.output.dtype)
    names = graph.unused_name(f"{node.output.name}.weights"), graph.unused_name(f"{node.output.name}.bias")
    constants[names[0]] = weights.astype(numpy.float32)
    if numpy.any(bias):
        constants[names[1]] = bias.astype(numpy.float32)
        others.append(Operand(names[1], along_axis(node.output.shape, 1)))
    added: Expression = IDENTITY
    for number in range(1, len(others) + 1):
        added = apply("add", added, Argument(number))
    origin = tuple(dict.fromkeys(name for operand in placed for name in branches[operand].origin))
    operands = x, Operand(names[0], identity(weights.shape))
    return (
        Node(value, largest.operation, operands, origin=origin),
        replace(node, operands=(whole_operand(value),), epilogue=added, epilogue_operands=tuple(others)),
    )


def _convolution(graph: Graph, operand: Operand) -> tuple[Operand, ConvolutionBranch] | None:
    """The ordinary convolution by constant weights of floats that an operand is if nothing else reads it: x, and it."""
    node = graph.producers.get(operand.value)
    if node is None or not isinstance(node.operation, Convolution) or node.operation.transposed:
        return None
    known, view = graph.constants.get(node.operands[1].value), node.operands[1].view
    if known is None or known.dtype.kind != "f" or not view.is_identity or len(node.operands) != 2:
        return None
    is_branch = node.epilogue == IDENTITY and _is_read_nowhere_else(graph, operand)
    return (node.operands[0], ConvolutionBranch(node.operation, known, node.origin)) if is_branch else None


def _is_read_nowhere_else(graph: Graph, operand: Operand) -> bool:
    """Returns whether an operand is the whole result of a node that has no other reader."""
    alone = len(graph.consumers[operand.value]) == 1 and operand.value not in graph.outputs
    return alone and operand.view.is_identity and graph.values[operand.value].dtype.startswith("float")


def _branch(graph: Graph, node: Node, operand: Operand, x: Operand, steps: Convolution) -> ConvolutionBranch | None:
    """An operand as a convolution of x, with the strides and groups of `steps`."""
    if operand == x:
        same = operand.view.shape == node.output.shape and steps.strides == (1, 1)
        return _identity_convolution(steps, operand.view.shape[1]) if same else None
    read, made = _convolution(graph, operand) or (None, None)
    is_like = made is not None and replace(made.operation, pads=(0, 0), dilations=(1, 1)) == steps
    return made if is_like and read == x else None


def _identity_convolution(operation: Convolution, channels: int) -> ConvolutionBranch:
    """The 1x1 convolution that gives its input."""
    weights, each = numpy.zeros((channels, channels // operation.groups, 1, 1)), numpy.arange(channels)
    weights[each, each % weights.shape[1]] = 1.0
    return ConvolutionBranch(operation, weights)


def _weights_in_window(branch: ConvolutionBranch, largest: ConvolutionBranch) -> Array | None:
    """The weights of a branch in the window of another one, in float64. None if a position is none of that window."""
    made = numpy.zeros((*branch.weights.shape[:2], *largest.weights.shape[2:]))
    positions = []
    for axis in (0, 1):
        taps = numpy.arange(branch.weights.shape[2 + axis]) * branch.operation.dilations[axis]
        taps += largest.operation.pads[axis] - branch.operation.pads[axis]
        step = largest.operation.dilations[axis]
        if numpy.any(taps % step) or taps[0] < 0 or taps[-1] // step >= made.shape[2 + axis]:
            return None
        positions.append(taps // step)
    made[:, :, positions[0][:, None], positions[1]] = branch.weights
    return made


def _find_sums(graph: Graph) -> dict[str, TermWeights]:
    """The loads of images that are Sums, by name. A sum that only another one reads is a part of that one."""
    found: dict[str, TermWeights] = {}
    for node in graph.nodes:
        if isinstance(node.operation, Load) and len(node.output.shape) == 4 and node.output.dtype.startswith("float"):
            made = _sum_of(graph, node, found)
            finite = made is not None and all(bool(numpy.all(numpy.isfinite(each))) for each in made.values())
            if made is not None and finite and len(made) <= MOST_TERMS:
                found[node.output.name] = made
    return found


def _sum_of(graph: Graph, node: Node, found: dict[str, TermWeights]) -> TermWeights | None:
    """A load's expression as a Sum; None if it is none. found: the sums before it."""
    known: dict[Expression, TermWeights] = {}
    for part in subexpressions(node.epilogue):
        constant = by_channel(node, part, 1, graph.constants)
        made: TermWeights | None = {None: constant} if constant is not None else None
        if made is None and isinstance(part, Argument):
            operand = node.all_operands[part.number]
            inner = found.get(operand.value) if _is_read_nowhere_else(graph, operand) else None
            made = {operand: numpy.ones(1)} if inner is None else inner
        elif made is None and isinstance(part, Apply) and all(each in known for each in part.arguments):
            made = _combine_sums(part.function, [known[each] for each in part.arguments])
        if made is not None:
            known[part] = made
    return known.get(node.epilogue)


def _combine_sums(operation: str, sums: list[TermWeights]) -> TermWeights | None:
    """The result of a scalar function of sums; None if it is no sum."""
    zero = numpy.zeros(1)
    if operation in ("add", "subtract"):
        sign = 1.0 if operation == "add" else -1.0
        return {n: sums[0].get(n, zero) + sign * sums[1].get(n, zero) for n in {**sums[0], **sums[1]}}
    factors = [each[None] if each.keys() == {None} else None for each in sums]
    with numpy.errstate(all="ignore"):
        if operation == "multiply" and factors[0] is not None:
            return {n: each * factors[0] for n, each in sums[1].items()}
        if operation == "multiply" and factors[1] is not None:
            return {n: each * factors[1] for n, each in sums[0].items()}
        if operation == "divide" and factors[1] is not None:
            return {n: each / factors[1] for n, each in sums[0].items()}
    return None
