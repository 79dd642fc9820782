"""Mark integers that a device's fp32 may not represent exactly."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy
from numpy.typing import ArrayLike

from imgconv.errors import UnsupportedError
from imgconv.graph import expression
from imgconv.graph.expression import Apply, Argument, Expression, Literal
from imgconv.graph.intervals import Range
from imgconv.graph.nodes import IDENTITY, Concatenation, Convolution, Gather, Graph, Load, Node, Operand, Order
from imgconv.graph.nodes import Product, Reduction, Value, whole_operand
from imgconv.graph.pass_through import EXACT, WIDE, pass_through_values
from imgconv.graph.value_ranges import ValueRanges
from imgconv.graph.view import expand, reshape

# If their operands are integers of at most 24 bits, so are their results.
_PRESERVING = frozenset(
    ("maximum", "minimum", "absolute", "negative", "where", "floor", "ceil", "round", "truncate", "sign", "modulo",
     "remainder", "less", "less_equal", "equal", "not", "and", "or", "xor", "isnan", "isinf")
)
# Operations that may give a number for NaN, on some devices or build options; `where` only for its condition.
_SILENT = frozenset(
    ("less", "less_equal", "equal", "not", "and", "or", "xor", "isnan", "isinf", "where", "maximum", "minimum", "sign",
     "bit_and", "bit_or", "bit_xor", "shift_left", "shift_right")
)


def mark_inexact_integers(graph: Graph) -> Graph:
    """Replace each element of a 32- or 64-bit integer result that reaches 2**24 by NaN, which later nodes propagate.

    The NaN is detected when an integer output is read. Inputs of these types are at most 2**24, which is checked when
    they are passed. A node is unchanged if interval arithmetic shows that its results are at most 2**24, or if it only
    selects among exact numbers. Raises UnsupportedError for arithmetic with constants that fp32 does not represent
    exactly.

    Given:   p = load(x) then multiply($0, $1), $1=y;  c = load(p) then less($0, 5)
    Result:  p = load(x) then where(less(absolute(multiply($0, $1)), 2**24), multiply($0, $1), nan), $1=y;
             c = load(p) then add(less($0, 5), multiply($0, 0))
    """
    guarding = _InexactIntegerMarker(graph, ValueRanges(graph, EXACT), pass_through_values(graph))
    for node in graph.nodes:
        guarding.add(node)
    return replace(graph, nodes=tuple(guarding.nodes)) if guarding.changed else graph


@dataclass
class _InexactIntegerMarker:
    graph: Graph
    bounds: ValueRanges
    moved: frozenset[str]
    nodes: list[Node] = field(default_factory=list)
    # poisoned: values that may be NaN; rounded: values with elements that a float does not hold exactly.
    poisoned: set[str] = field(default_factory=set)
    rounded: set[str] = field(default_factory=set)
    changed: bool = False

    def add(self, node: Node) -> None:
        made = self._propagate_nan(node)
        found = self._range(node)
        if node.output.name in self.moved:
            if not self._reads_exact(node):
                self.rounded.add(node.output.name)
        elif not node.output.dtype.startswith("float") and not (self._reads_exact(node) or _selects_elements(node)):
            raise UnsupportedError(
                "computes with a constant integer above 2**24 that fp32 cannot represent",
                node=", ".join(node.origin) or node.output.name,
            )
        elif node.output.dtype in WIDE and not (
            -EXACT <= found[0] and found[1] <= EXACT or self._keeps_exact(node)
        ):
            made, found = self._with_nan_where_inexact(made), (-EXACT, EXACT)
            self.poisoned.add(node.output.name)
        elif not node.output.dtype.startswith("float") and node.reads & self.poisoned:
            self.poisoned.add(node.output.name)
        self.changed = self.changed or made is not node
        self.bounds.known[node.output.name] = found
        self.nodes.append(made)

    def _range(self, node: Node) -> Range:
        """Bounds of the results; those of integer convolutions and products are computed from their weights."""
        if node.output.dtype.startswith("float") or not isinstance(node.operation, (Convolution, Product)):
            return self.bounds.of_node(node)
        (low, high), w = self.bounds.of_operand(node.operands[0]), node.operands[1]
        shape, is_product = w.view.shape, isinstance(node.operation, Product)
        if w.value in self.graph.constants:
            weights = w.view.evaluate(numpy.asarray(self.graph.constants[w.value], numpy.float64), w.fill)
        else:
            low = min(low, -high)
            low, high = low, -low
            weights = numpy.broadcast_to(numpy.float64(max(map(abs, self.bounds.of_operand(w)))), shape)
        one = 1 if isinstance(node.operation, Convolution) and node.operation.transposed else 0
        axes = -2 if is_product else tuple(axis for axis in range(4) if axis != one)
        ends = numpy.stack([weights * min(low, 0.0), weights * max(high, 0.0)])
        least, most = numpy.minimum(ends.min(0), 0).sum(axes), numpy.maximum(ends.max(0), 0).sum(axes)
        return float(least.min(initial=0)), float(most.max(initial=0))

    def _keeps_exact(self, node: Node) -> bool:
        """Returns whether the results are exact if the operands are: elements of them, positions, or small integers."""
        kept = _picks_elements(node) and set(expression.function_names(node.epilogue)) <= _PRESERVING
        read = {self.graph.values[name].dtype for name in node.reads} - {node.output.dtype}
        return kept and read.isdisjoint(WIDE) and self._reads_exact(node)

    def _reads_exact(self, node: Node) -> bool:
        """Returns whether floats hold all wide integers that a node reads; constants are those that they may not hold.

        The largest number of a type may be rounded up: it stays above all others, and no output can hold it.
        """
        known = [self.graph.constants[o.value] for o in node.all_operands if o.value in self.graph.constants]
        wide = [array for array in known if array.dtype in WIDE]
        types = {node.output.dtype, *(self.graph.values[name].dtype for name in node.reads)}
        largest = [numpy.float64(numpy.iinfo(dtype).max) for dtype in types.intersection(WIDE)]
        steps = expression.subexpressions(node.epilogue) if largest else ()
        numbers = [numpy.float64(e.value) for e in steps if isinstance(e, Literal)]
        return not node.reads & self.rounded and all(_is_exact(n, largest) for n in (*numbers, *wide))

    def _with_nan_where_inexact(self, node: Node) -> Node:
        """The node with NaN for each result that may not be exact, or that has a partial sum that may not be."""
        operation = node.operation
        size: Expression = expression.apply("absolute", node.epilogue)
        if isinstance(operation, Reduction) and operation.kind == "sum":
            if operation.body != IDENTITY or self.bounds.of_operand(node.operands[0])[0] < 0:
                # With terms of both signs, a partial sum may exceed 2**24 although the sum does not.
                node, number = self._window_sum(node, expression.apply("absolute", operation.body))
                size = Argument(number)
        within = expression.apply("less", size, EXACT)
        return replace(node, epilogue=expression.apply("where", within, node.epilogue, float("nan")))

    def _propagate_nan(self, node: Node) -> Node:
        """The node with NaN for each result that has a NaN operand, also if the operation alone would give a number."""
        if node.output.dtype.startswith("float") or not node.reads & self.poisoned:
            return node
        operands = (node.operands[0], *node.epilogue_operands)
        bad = {Argument(n) for n, o in enumerate(operands) if o.value in self.poisoned}
        silent = _operations_hiding_nan(node.epilogue) & bad
        if isinstance(node.operation, Reduction) and node.operation.kind != "sum":
            node, number = self._window_sum(node, node.operation.body)
            silent |= {Argument(number)}
        if isinstance(node.operation, Order):
            node, number = self._row_sum(node)
            silent |= {Argument(number)}
        made = node.epilogue
        for argument in sorted(silent, key=str):
            made = expression.apply("add", made, expression.apply("multiply", argument, 0.0))
        return node if made == node.epilogue else replace(node, epilogue=made)

    def _window_sum(self, node: Node, body: Expression) -> tuple[Node, int]:
        """(The node with one more epilogue operand, the sum of `body` over its window; that argument's number)."""
        value = Value(self.graph.unused_name(f"{node.output.name}.sum{len(self.nodes)}"), node.output.shape, "float32")
        self.nodes.append(Node(value, Reduction("sum", body), node.operands, origin=node.origin))
        made = replace(node, epilogue_operands=(*node.epilogue_operands, whole_operand(value)))
        return made, len(made.epilogue_operands)

    def _row_sum(self, node: Node) -> tuple[Node, int]:
        """(The Order with one more epilogue operand, the sum of its whole row; that argument's number)."""
        *lead, count = node.output.shape
        value = Value(self.graph.unused_name(f"{node.output.name}.sum{len(self.nodes)}"), tuple(lead), "float32")
        self.nodes.append(Node(value, Reduction("sum", IDENTITY), node.operands, origin=node.origin))
        kept = reshape(value.shape, (*lead, 1))
        seen = Operand(value.name, expand(kept.shape, node.output.shape).composed_with(kept))
        return replace(node, epilogue_operands=(*node.epilogue_operands, seen)), len(node.epilogue_operands) + 1


def _operations_hiding_nan(steps: Expression) -> set[Expression]:
    """The arguments inside operations that may give a number for NaN."""
    found: set[Expression] = set()
    for step in expression.subexpressions(steps):
        if isinstance(step, Apply) and step.function in _SILENT:
            for part in step.arguments[: 1 if step.function == "where" else None]:
                found |= {e for e in expression.subexpressions(part) if isinstance(e, Argument)}
    return found


def _picks_elements(node: Node) -> bool:
    """Returns whether a node's operation gives elements of its operands, or positions."""
    if isinstance(node.operation, Reduction):
        return node.operation.kind in ("max", "min", "argmax") and node.operation.body == IDENTITY
    return isinstance(node.operation, (Load, Concatenation, Gather))


def _selects_elements(node: Node) -> bool:
    """Returns whether the results are elements of the node's operands: a rounded operand shows in them."""
    return _picks_elements(node) and set(expression.function_names(node.epilogue)) <= {"maximum", "minimum", "where"}


def _is_exact(numbers: ArrayLike, largest: list[numpy.float64]) -> bool:
    """Returns whether floats hold the integers; those in `largest` may be rounded up."""
    wide = numpy.asarray(numbers)
    with numpy.errstate(over="ignore", invalid="ignore"):
        single = wide.astype(numpy.float32)
        same = single.astype(wide.dtype) == wide
    small = numpy.abs(wide.astype(numpy.float64)) < EXACT
    return bool(numpy.all(same | small | numpy.isin(wide.astype(numpy.float64), largest)))
