"""Apply constant factors of a matrix product's operands to its result."""

from __future__ import annotations

from dataclasses import replace

from imgconv.graph.expression import Apply, Argument, Expression, Literal, apply, substitute
from imgconv.graph.nodes import Graph, Load, Node, Operand, Product
from imgconv.passes.views import compose_if_short

# A factor in this range, or the inverse of one, makes no sum overflow or vanish that did not before.
LARGEST_FACTOR = 1024.0


def sink_product_scales(graph: Graph) -> Graph:
    """Multiply or divide the result of a product by a number, instead of one of its operands.

    In attention both operands of the first product are divided by the square root of the width. After the product, the
    division becomes part of the epilogue, which saves a launch and a texture for each operand.

    Given:   s = load(x) then multiply($0, 0.25);  y = product(s[i1, i0], z)
    Result:  y = product(x[i1, i0], z) then multiply($0, 0.25)
    """
    gone: set[str] = set()
    nodes = [_rewrite(graph, node, gone) for node in graph.nodes]
    return replace(graph, nodes=tuple(n for n in nodes if n.output.name not in gone))


def _rewrite(graph: Graph, node: Node, gone: set[str]) -> Node:
    """The node with the factors of its operands in its epilogue. gone: gets the names of the values left out."""
    if not isinstance(node.operation, Product):
        return node
    operands: list[Operand] = []
    scaled: Expression = Argument(0)
    for operand in node.operands:
        found = _operand_without_factor(graph, graph.producers.get(operand.value), operand)
        if found is not None:
            gone.add(operand.value)
            operand, scaled = found[0], apply(found[1], scaled, found[2])
        operands.append(operand)
    if scaled == Argument(0):
        return node
    arguments: dict[int, Expression] = {n: Argument(n) for n in range(1, len(node.epilogue_operands) + 1)}
    return replace(node, operands=tuple(operands), epilogue=substitute(node.epilogue, {**arguments, 0: scaled}))


def _operand_without_factor(graph: Graph, made: Node | None, operand: Operand) -> tuple[Operand, str, Literal] | None:
    """Returns the operand without its factor, "multiply" or "divide", and the factor, if only this operand reads it."""
    if made is None or not isinstance(made.operation, Load) or made.epilogue_operands:
        return None
    expression, name = made.epilogue, made.output.name
    if not isinstance(expression, Apply) or expression.function not in ("multiply", "divide"):
        return None
    number = _literal_factor(expression)
    if number is None or not 1 / LARGEST_FACTOR <= abs(number.value) <= LARGEST_FACTOR:
        return None
    readers = graph.consumers[name]
    alone = len(readers) == 1 and sum(o.value == name for o in readers[0].all_operands) == 1
    source = made.operands[0]
    if not alone or name in graph.outputs or graph.values[source.value].dtype != made.output.dtype:
        return None
    if operand.view.bounds and operand.fill:  # a fill of zero is zero times the factor too
        return None
    through = compose_if_short(operand, source)
    return None if through is None else (through, expression.function, number)


def _literal_factor(expression: Apply) -> Literal | None:
    """The literal by which $0 is multiplied or divided; None if it is another expression."""
    first, second = expression.arguments
    if first == Argument(0) and isinstance(second, Literal):
        return second
    multiplies = expression.function == "multiply" and second == Argument(0)
    return first if multiplies and isinstance(first, Literal) else None
