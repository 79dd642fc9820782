"""The Graph: named values, and nodes in topological order. Every node has the same form.

    output[i] = epilogue(reduce over r of body(load(view(i, r)) ...), load(view(i)) ...)

A node reads its `operands` through views. Its `operation` combines them: a load, a reduction, a convolution, a matrix
product, a concatenation, a gather, an order, a suppression or a recurrence. Its `epilogue` is an elementwise
expression. There, argument 0 is the operation's result and argument k is the k-th of the `epilogue_operands`. Graphs
are frozen; a pass returns a new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from math import prod
from textwrap import indent
from typing import Any, Literal, Union

import numpy

from imgconv.arrays import Array, Arrays
from imgconv.graph.check import check
from imgconv.graph.expression import Argument, Expression, argument_numbers
from imgconv.graph.onnx_nodes import HostGraph
from imgconv.graph.view import Shape, View, identity


@dataclass(frozen=True)
class Value:
    """A tensor's name, shape and numpy dtype name ('float32', 'float16', 'int64', 'bool' ...)."""

    name: str
    shape: Shape
    dtype: str

    @property
    def size(self) -> int:
        return prod(self.shape)

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}{list(self.shape)}"


@dataclass(frozen=True)
class Operand:
    """A value read through a view. Outside the view's bounds it reads `fill`."""

    value: str
    view: View
    fill: float = 0.0

    def __str__(self) -> str:
        if self.view.is_identity:
            return self.value
        filled = f" else {self.fill:g}" if self.view.bounds else ""
        shown = ", ".join(map(str, self.view.index))
        where = " where " + " and ".join(map(str, self.view.bounds)) if self.view.bounds else ""
        return f"{self.value}[{shown}{where}{filled}]"


@dataclass(frozen=True)
class Load:
    """The result is operand 0. Elementwise operators (in the epilogue) and movements (in the view) are loads."""

    def __str__(self) -> str:
        return "load"


ReductionKind = Literal["sum", "max", "min", "product", "argmax"]


@dataclass(frozen=True)
class Reduction:
    """A `body` of the operands, reduced over the last axes of their views.

    Each view has the shape output.shape + window, and the reduction runs over the window.
    kind: sum, max, min, product, or argmax. On a device, max and min ignore NaN. argmax gives the row-major position in
    the window of the largest element, the first if several are equal.
    """

    kind: ReductionKind
    body: Expression

    def __str__(self) -> str:
        return f"{self.kind} of {self.body}" if self.body != Argument(0) else self.kind


@dataclass(frozen=True)
class Convolution:
    """ONNX's Conv or, if transposed, ConvTranspose, without a bias.

    operands: x (N, C, H, W) and w (O, C/groups, KH, KW), or (C, O/groups, KH, KW) if transposed. A third operand,
    (N, C, 1, 1), is a factor for each channel of x. pads: top and left. The bottom and right pads follow from the
    output's shape.
    """

    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: tuple[int, int] = (0, 0)
    groups: int = 1
    transposed: bool = False

    def __str__(self) -> str:
        text = "transposed convolution" if self.transposed else "convolution"
        for name, value, usual in (
            ("strides", self.strides, (1, 1)), ("dilations", self.dilations, (1, 1)), ("pads", self.pads, (0, 0)),
        ):
            text += f" {name} {value[0]}x{value[1]}" if value != usual else ""
        return text + (f" groups {self.groups}" if self.groups > 1 else "")


@dataclass(frozen=True)
class Product:
    """Matrix product of a (B..., M, K) and b (B..., K, N), with equal batch axes, to (B..., M, N)."""

    def __str__(self) -> str:
        return "product"


@dataclass(frozen=True)
class Concatenation:
    """The operands concatenated along `axis`."""

    axis: int

    def __str__(self) -> str:
        return f"concatenation axis {self.axis}"


@dataclass(frozen=True)
class Gather:
    """The elements of operand 0, the table, at the indices that the next operands hold.

    operands: table, index_1 .. index_k. The table's view has the shape output.shape + (K_1, .., K_k). The view of each
    index has the output's shape. The result at i is the table's view at (i, index_1[i], .., index_k[i]). Indices are
    rounded to the nearest integer. If one is NaN or not in 0 .. K-1, the result is the table's fill value.

    reduction: of these elements, argument 0 of its body, and of further operands. All views then have the shape
    output.shape + window in place of output.shape.
    """

    reduction: Reduction | None = None

    def __str__(self) -> str:
        return "gather" if self.reduction is None else f"gather, {self.reduction}"


@dataclass(frozen=True)
class Order:
    """The positions of the first elements of operand 0 along its last axis, in order of size.

    The operand's view has the shape (..., N), the output (..., K) with K <= N. Equal elements are in order of position.
    largest: whether the largest comes first. NaN counts as larger than every number.
    """

    largest: bool

    def __str__(self) -> str:
        return f"order of the {'largest' if self.largest else 'smallest'}"


@dataclass(frozen=True)
class Suppression:
    """The positions of the boxes that stay if boxes overlap, in order, and -1 behind the last of them.

    operands: boxes (N, 4), left, top, right, bottom, the best first, and how many of them take part, (1). A box
    stays if its intersection over union with each better one that stays is at most `overlap`. The output has the shape
    (K), and no more than K stay. A box without an area touches none.
    """

    overlap: float

    def __str__(self) -> str:
        return f"suppression over {self.overlap:g}"


@dataclass(frozen=True)
class Recurrence:
    """States of which each follows from those before it, step by step, as in RNN, GRU and LSTM.

    operands: x (T, N, D, G, H), what is given for each of T steps and of G gates; weights (D, H, G, H); the initial
    states, (N, D, H) each; then any others of that shape. D directions are independent of each other.
    states: the states after a step, as expressions. Their arguments are, in this order: x of each gate, for each gate
    the product of the first state and the weights, each state before the step, the others, the number of the step.
    inner: if there is one, the weights of the last gate are multiplied by it instead of the first state.
    reverse: for each direction whether its first step is the last of x. The output is (S, T, N, D, H): each state after
    each step.
    """

    states: tuple[Expression, ...]
    inner: Expression | None = None
    reverse: tuple[bool, ...] = (False,)

    @property
    def ways(self) -> str:
        """The directions, such as "forward and backward"."""
        return " and ".join("backward" if each else "forward" for each in self.reverse)

    def __str__(self) -> str:
        inner = f" with {self.inner}" if self.inner is not None else ""
        return f"recurrence {self.ways} of {', '.join(map(str, self.states))}{inner}"


Operation = Union[Load, Reduction, Convolution, Product, Concatenation, Gather, Order, Suppression, Recurrence]
IDENTITY = Argument(0)


@dataclass(frozen=True)
class Node:
    """An operation on `operands`, then `epilogue`. origin: the names of the ONNX nodes that it came from."""

    output: Value
    operation: Operation
    operands: tuple[Operand, ...]
    epilogue: Expression = IDENTITY
    epilogue_operands: tuple[Operand, ...] = ()
    origin: tuple[str, ...] = ()

    @property
    def all_operands(self) -> tuple[Operand, ...]:
        return self.operands + self.epilogue_operands

    @cached_property
    def reads(self) -> frozenset[str]:
        """The names of the values that the node reads."""
        return frozenset(o.value for o in self.all_operands)

    @cached_property
    def is_consistent(self) -> bool:
        """True, if the shapes of the operands give that of the output. Else a GraphError names the node."""
        _check_shapes(self)
        return True

    def __str__(self) -> str:
        text = f"{self.output} = {self.operation}({', '.join(map(str, self.operands))})"
        if self.epilogue != IDENTITY:
            extra = "".join(f", ${i}={o}" for i, o in enumerate(self.epilogue_operands, 1))
            text += f" then {self.epilogue}{extra}"
        return text


@dataclass(frozen=True)
class HostPartition:
    """The part of a model that the host computes.

    graph: its inputs are outputs of the device's graph and inputs of the model, its outputs those of the model that the
    device does not make. outputs: every output of the model, in order; a size that depends on data is -1.
    node, reason: the first node that the host computes, and why the device does not.
    """

    graph: HostGraph
    outputs: tuple[Value, ...]
    node: str
    reason: str

    def __str__(self) -> str:
        lines = [f"on the host, because of node {self.node!r}: {self.reason}"]
        lines.append(indent(str(self.graph), "  "))
        return "\n".join([*lines, *(f"  output {value}" for value in self.outputs)])


@dataclass(frozen=True)
class Graph:
    """Inputs, names of outputs, nodes in topological order, and constants as arrays by name.

    reasons: why passes changed or kept something, by the name of the value concerned.
    host_partition: what the host computes of the outputs; None if they are the model's.
    """

    inputs: tuple[Value, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    constants: Arrays = field(default_factory=dict)
    name: str = "model"
    reasons: Mapping[str, str] = field(default_factory=dict, compare=False)
    host_partition: HostPartition | None = field(default=None, compare=False)

    @cached_property
    def values(self) -> dict[str, Value]:
        """Every value by name: inputs, constants and outputs of nodes."""
        made = {node.output.name: node.output for node in self.nodes}
        return {v.name: v for v in self.inputs} | self._known_constants() | made

    @cached_property
    def producers(self) -> dict[str, Node]:
        """The node that computes each value, by the value's name. Inputs and constants have none."""
        return {n.output.name: n for n in self.nodes}

    @cached_property
    def consumers(self) -> dict[str, tuple[Node, ...]]:
        """The nodes that read each value, by the value's name, in order and each once."""
        names = (*(v.name for v in self.inputs), *self.constants, *(n.output.name for n in self.nodes))
        found: dict[str, list[Node]] = {name: [] for name in names}
        for node in self.nodes:
            for name in node.reads:
                found[name].append(node)
        return {name: tuple(nodes) for name, nodes in found.items()}

    @cached_property
    def order(self) -> dict[str, int]:
        """A number for each node, by its output's name. Later nodes have larger numbers."""
        return {node.output.name: number for number, node in enumerate(self.nodes)}

    def unused(self, name: str) -> str:
        """A name that no value has: `name`, with underscores added if it is taken."""
        while name in self.values:
            name += "_"
        return name

    def validate(self) -> Graph:
        """The graph itself, if names, order and shapes are consistent. Else a GraphError names the node."""
        known = {v.name: v for v in self.inputs} | self._known_constants()
        check(len(known) == len(self.inputs) + len(self.constants), "an input and a constant share a name")
        for node in self.nodes:
            for operand in node.all_operands:
                check(operand.value in known, node, "reads", operand.value, "before it is made")
                check(operand.view.source == known[operand.value].shape, node, "has another view of", operand.value)
            check(node.is_consistent)
            check(node.output.name not in known, node.output.name, "is made twice")
            known[node.output.name] = node.output
        missing = [name for name in self.outputs if name not in known]
        check(not missing, "outputs that are not made", missing)
        return self

    def _known_constants(self) -> dict[str, Value]:
        return {name: Value(name, array.shape, _text(array.dtype)) for name, array in self.constants.items()}

    def __str__(self) -> str:
        lines = [f"graph {self.name}"]
        lines += [f"  input  {v}" for v in self.inputs]
        lines += [f"  constant {value}" for value in self._known_constants().values()]
        lines += [f"  {node}" for node in self.nodes]
        lines += [f"  output {self.values[name]}" for name in self.outputs]
        return "\n".join(lines if self.host_partition is None else [*lines, str(self.host_partition)])


@cache
def _text(dtype: numpy.dtype[Any]) -> str:
    """A dtype's name. numpy makes it anew each time, which is most of a pass over many constants."""
    return str(dtype)


def _check_shapes(node: Node) -> None:
    shape = node.output.shape
    for operand in node.epilogue_operands:
        check(operand.view.shape == shape, node, "epilogue operand of shape", operand.view.shape)
    numbers = argument_numbers(node.epilogue)
    check(all(n <= len(node.epilogue_operands) for n in numbers), node, "epilogue arguments")
    views = [o.view.shape for o in node.operands]
    operation = node.operation
    if isinstance(operation, Load):
        ok = views == [shape]
    elif isinstance(operation, Reduction):
        ok = len(set(views)) == 1 and views[0][: len(shape)] == shape
    elif isinstance(operation, Product):
        ok = len(views) == 2 and views[0][:-2] == views[1][:-2] == shape[:-2]
        ok = ok and (views[0][-2], views[1][-1]) == shape[-2:] and views[0][-1] == views[1][-2]
    elif isinstance(operation, Concatenation):
        a = operation.axis
        ok = all(v[:a] + v[a + 1 :] == shape[:a] + shape[a + 1 :] for v in views)
        ok = ok and sum(v[a] for v in views) == shape[a]
    elif isinstance(operation, Gather):
        table, *rest = views
        lead = rest[-1] if rest else ()
        count = len(rest) if operation.reduction is None else len(table) - len(lead)
        ok = 0 < count <= len(rest) and len(table) == len(lead) + count and all(v == lead for v in rest)
        ok = ok and table[: len(lead)] == lead and lead[: len(shape)] == shape
        ok = ok and (lead == shape or operation.reduction is not None)
    elif isinstance(operation, Order):
        ok = len(views) == 1 and views[0][:-1] == shape[:-1] and shape[-1] <= views[0][-1]
    elif isinstance(operation, Suppression):
        ok = len(views) == 2 and views[0][1:] == (4,) and views[1] == (1,) and len(shape) == 1
    elif isinstance(operation, Recurrence):
        ok = _fits(operation, shape, views)
    else:
        (n, c, *_), w, *factors = views
        out, each = (w[1] * operation.groups, w[0]) if operation.transposed else (w[0], w[1] * operation.groups)
        ok = len(views[0]) == len(w) == len(shape) == 4 and (n, out, c) == (*shape[:2], each)
        ok = ok and factors in ([], [(n, c, 1, 1)])
    check(ok, node, f"operands {views} do not give {shape}")


def _fits(operation: Recurrence, shape: Shape, views: list[Shape]) -> bool:
    """Returns whether a Recurrence makes a result of this shape from operands of those."""
    if len(shape) != 5 or len(views) < 2 + len(operation.states) or len(views[1]) != 4:
        return False
    states, steps, batch, directions, hidden = shape
    gates = views[1][2]
    wanted = [(steps, batch, directions, gates, hidden), (directions, hidden, gates, hidden)]
    counts = (len(operation.states), len(operation.reverse)) == (states, directions)
    steps_read = (*operation.states, *([operation.inner] if operation.inner is not None else []))
    known = 2 * gates + len(views) - 2
    return counts and views[:2] == wanted and all(v == (batch, directions, hidden) for v in views[2:]) and all(
        number <= known for each in steps_read for number in argument_numbers(each)
    )


def indices_of(node: Node) -> tuple[Operand, ...]:
    """The operands of a Gather that hold indices."""
    table, first = node.operands[:2]
    return node.operands[1 : 1 + len(table.view.shape) - len(first.view.shape)]


class Editing:
    """A graph whose nodes a pass merges one by one; it has the graph's `producers`, `consumers` and so on.

    A merge takes as long as the nodes that it touches have readers, so that thousands of them are quick.

        editing = Editing(graph)
        editing.merge("e", {"y": node_that_computes_e_too})
        merged = editing.graph()
    """

    def __init__(self, graph: Graph) -> None:
        self._before = graph
        self.outputs, self.constants, self.order = frozenset(graph.outputs), graph.constants, graph.order
        self.producers, self.consumers = dict(graph.producers), dict(graph.consumers)

    def merge(self, gone: str, changed: Mapping[str, Node]) -> None:
        """Drops the node that computes `gone`, and replaces the nodes in `changed`, by output name."""
        dropped = self.producers.pop(gone)
        affected = dropped.reads.union(*(self.producers[n].reads | changed[n].reads for n in changed)) - {gone}
        self.producers.update(changed)
        del self.consumers[gone]
        for name in affected:
            readers = {n.output.name for n in self.consumers[name]} | changed.keys()
            found = [self.producers[n] for n in sorted(readers - {gone}, key=self.order.__getitem__)]
            self.consumers[name] = tuple(n for n in found if name in n.reads)

    def graph(self) -> Graph:
        """The graph as it is now."""
        return replace(self._before, nodes=tuple(self.producers.values()))


def neutral(kind: ReductionKind, dtype: str) -> float:
    """The neutral element of a reduction, such as 0 for a sum. Also the reduction over no elements."""
    kinds = {"sum": 0.0, "max": -numpy.inf, "argmax": -numpy.inf, "min": numpy.inf, "product": 1.0}
    if kind in ("max", "argmax", "min") and not dtype.startswith("float"):
        low, high = (0, 1) if dtype == "bool" else (numpy.iinfo(dtype).min, numpy.iinfo(dtype).max)
        if kind == "argmax":
            return min(low - 1, -1)  # less than every number of the type, which then wins
        return high if kind == "min" else low
    return kinds[kind]


def plain(value: Value) -> Operand:
    """An operand that reads a whole value, through the identity view."""
    return Operand(value.name, identity(value.shape))


def array_value(name: str, array: Array) -> Value:
    """The Value of a constant array."""
    return Value(name, array.shape, str(array.dtype))
