"""Range analysis: bounds of the values of a graph, from interval arithmetic on its expressions.

The results of convolutions and matrix products are treated as unbounded. Activations such as Clip, Sigmoid and Tanh
bound the values after them. Integer types bound the values of inputs: uint8 is 0 to 255.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy

from imgconv.arrays import Array
from imgconv.graph.intervals import ANY, Range, range_of, union_of_ranges
from imgconv.graph.nodes import Graph, Node, Operand


@dataclass
class ValueRanges:
    """The ranges of a graph's values.

    known: the ranges found so far, by value name. The caller adds those of node outputs.
    integers: the largest absolute value that is assumed for integer inputs.
    """

    graph: Graph
    integers: float = math.inf
    known: dict[str, Range] = field(default_factory=dict)

    def of_operand(self, operand: Operand) -> Range:
        """The range of the elements that an operand reads. Its value must be in `known`, an input or a constant."""
        name = operand.value
        if name not in self.known:
            constant = self.graph.constants.get(name)
            self.known[name] = self._range_of_input(name) if constant is None else _range_of_array(constant)
        found = self.known[name]
        return union_of_ranges([found, (operand.fill, operand.fill)]) if operand.view.bounds else found

    def of_node(self, node: Node) -> Range:
        """The range of a node's output, from the ranges of its operands."""
        result = node.operation.bounds(node.operands, self.of_operand, node.output.shape)
        return range_of(node.epilogue, [result, *map(self.of_operand, node.epilogue_operands)])

    def _range_of_input(self, name: str) -> Range:
        low, high = _range_of_dtype(self.graph.values[name].dtype)
        return (low, high) if math.isinf(low) else (max(low, -self.integers), min(high, self.integers))


def _range_of_dtype(dtype: str) -> Range:
    if dtype.startswith("float"):
        return ANY
    return (0, 1) if dtype == "bool" else (float(numpy.iinfo(dtype).min), float(numpy.iinfo(dtype).max))


def _range_of_array(array: Array) -> Range:
    if not array.size or not numpy.all(numpy.isfinite(array)):
        return ANY
    return float(array.min()), float(array.max())
