"""A Graph as the table of model.fbs, and back.

Index forms and expressions are shared by many nodes: each is written once, and referred to by its number. An entry
refers to lower numbers only, so reading ends.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, get_args

from imgconv.graph.expression import OPERATIONS, Apply, Argument, Expression, Literal, arity
from imgconv.graph.index import Atom, Division, Index, Lookup, Modulo, Variable
from imgconv.graph.nodes import (
    Concatenation, Convolution, Gather, Graph, Load, Node, Operand, Operation, Order, Product, Recurrence, Reduction,
    ReductionKind, Suppression, Value,
)
from imgconv.graph.view import Bound, View
from imgconv.limits import budget
from imgconv.stored.blobs import BlobWriter, ReadBlob, read_array

KINDS: dict[type, str] = {
    Load: "load", Reduction: "reduction", Convolution: "convolution", Product: "product",
    Concatenation: "concatenation", Gather: "gather", Order: "order", Suppression: "suppression",
    Recurrence: "recurrence",
}
VARIABLE = re.compile("i[0-9]{1,3}")
MOST_ATOMS = 10_000  # of one index
DTYPES = (
    "float32", "float64", "float16", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
)
ATOMS: dict[type, str] = {Variable: "variable", Division: "division", Modulo: "modulo", Lookup: "lookup"}


def graph_values(graph: Graph, blobs: BlobWriter) -> dict[str, Any]:
    """The values of a Graph table. The arrays of its constants go to `blobs`."""
    writer = _Writer()
    return {
        "name": graph.name, "inputs": list(map(value_values, graph.inputs)), "outputs": graph.outputs,
        "nodes": [writer.node(node) for node in graph.nodes],
        "constants": [{"name": name, "array": blobs.array(array)} for name, array in graph.constants.items()],
        "reasons": [{"name": name, "text": text} for name, text in graph.reasons.items()],
        "indices": writer.indices, "expressions": writer.expressions,
    }


def value_values(value: Value) -> dict[str, Any]:
    """The values of a Value table."""
    return {"name": value.name, "shape": value.shape, "dtype": value.dtype}


def read_value(table: Any) -> Value:
    """The Value of a table. Raises ValueError for another type, UnsupportedError if it is too large."""
    if table.dtype not in DTYPES or min(table.shape, default=0) < 0:
        raise ValueError(f"{table.name!r} is {table.dtype} {list(table.shape)}")
    budget().check_tensor(table.shape, table.dtype)
    return Value(table.name, table.shape, table.dtype)


class _Writer:
    """The index forms and the expressions of a graph, in the order of their numbers."""

    def __init__(self) -> None:
        self.indices: list[dict[str, Any]] = []
        self.expressions: list[dict[str, Any]] = []
        self._numbers: dict[Index, int] = {}
        self._expression_numbers: dict[Expression, int] = {}

    def node(self, node: Node) -> dict[str, Any]:
        return {
            "output": value_values(node.output), "operation": self.operation(node.operation),
            "operands": list(map(self.operand, node.operands)), "epilogue": self.expression(node.epilogue),
            "epilogue_operands": list(map(self.operand, node.epilogue_operands)), "origin": node.origin,
        }

    def operation(self, operation: Operation) -> dict[str, Any]:
        values: dict[str, Any] = {"kind": KINDS[type(operation)]}
        reduction = operation.reduction if isinstance(operation, Gather) else operation
        if isinstance(reduction, Reduction):
            values |= {"reduction": reduction.kind, "body": self.expression(reduction.body)}
        elif isinstance(operation, Concatenation):
            values["axis"] = operation.axis
        elif isinstance(operation, Order):
            values["largest"] = operation.largest
        elif isinstance(operation, Suppression):
            values["overlap"] = operation.overlap
        elif isinstance(operation, Recurrence):
            inner = [] if operation.inner is None else [self.expression(operation.inner)]
            values |= {"states": list(map(self.expression, operation.states)), "inner": inner}
            values["reverse"] = operation.reverse
        elif isinstance(operation, Convolution):
            values |= {
                "strides": operation.strides, "dilations": operation.dilations, "pads": operation.pads,
                "groups": operation.groups, "transposed": operation.transposed,
            }
        return values

    def operand(self, operand: Operand) -> dict[str, Any]:
        view = operand.view
        bounds = [{"index": self.index(b.index), "low": b.low, "high": b.high} for b in view.bounds]
        read = {
            "shape": view.shape, "source": view.source, "index": list(map(self.index, view.index)), "bounds": bounds,
        }
        return {"value": operand.value, "view": read, "fill": float(operand.fill)}

    def index(self, index: Index) -> int:
        if index not in self._numbers:
            terms = [self.term(atom, factor) for atom, factor in index.terms]
            self.indices.append({"constant": index.constant, "terms": terms})
            self._numbers[index] = len(self.indices) - 1
        return self._numbers[index]

    def term(self, atom: Atom, coefficient: int) -> dict[str, Any]:
        values: dict[str, Any] = {"coefficient": coefficient, "kind": ATOMS[type(atom)]}
        if isinstance(atom, Variable):
            return values | {"name": atom.name, "size": atom.size}
        values["index"] = self.index(atom.value)
        return values | ({"table": atom.table} if isinstance(atom, Lookup) else {"size": atom.divisor})

    def expression(self, expression: Expression) -> int:
        if expression not in self._expression_numbers:
            values: dict[str, Any]
            if isinstance(expression, Literal):
                values = {"kind": "literal", "value": float(expression.value)}
            elif isinstance(expression, Argument):
                values = {"kind": "argument", "number": expression.number}
            else:
                arguments = list(map(self.expression, expression.arguments))
                values = {"kind": "apply", "operation": expression.operation, "arguments": arguments}
            self.expressions.append(values)
            self._expression_numbers[expression] = len(self.expressions) - 1
        return self._expression_numbers[expression]


def read_graph(table: Any, blob: ReadBlob) -> Graph:
    """The Graph of a table. Raises ValueError for what no graph has, UnsupportedError for what passes the limits."""
    budget().count_nodes(len(table.nodes))
    reader = _Reader(table)
    return Graph(
        tuple(map(read_value, table.inputs)), table.outputs, tuple(map(reader.node, table.nodes)),
        {each.name: read_array(each.array, blob) for each in table.constants}, table.name,
        {each.name: each.text for each in table.reasons},
    ).validate()


class _Reader:
    def __init__(self, table: Any) -> None:
        self._indices: list[Index] = []
        self._atoms: list[int] = []  # of each index, with those of the indices that it is made of
        for each in table.indices:
            self._atoms.append(sum(1 + self._atoms_of(term) for term in each.terms))
            if self._atoms[-1] > MOST_ATOMS:
                raise ValueError(f"an index of {self._atoms[-1]} terms")
            self._indices.append(Index(tuple(map(self.term, each.terms)), each.constant))
        self._expressions: list[Expression] = []
        for each in table.expressions:
            self._expressions.append(self.expression(each))

    def _atoms_of(self, term: Any) -> int:
        return 0 if term.kind == "variable" else int(_at(self._atoms, term.index))

    def term(self, table: Any) -> tuple[Atom, int]:
        atom: Atom
        if table.size < (table.kind != "lookup"):
            raise ValueError(f"a {table.kind} of size {table.size}")
        if table.kind == "variable":
            if not VARIABLE.fullmatch(table.name):
                raise ValueError(f"a variable {table.name!r}")
            atom = Variable(table.name, table.size)
        elif table.kind == "lookup":
            if not table.table:
                raise ValueError("a list without entries")
            atom = Lookup(table.table, _at(self._indices, table.index))
        else:
            made = Division if table.kind == "division" else Modulo
            atom = made(_at(self._indices, table.index), table.size)
        return atom, table.coefficient

    def expression(self, table: Any) -> Expression:
        if table.kind == "literal":
            return Literal(table.value)
        if table.kind == "argument":
            return Argument(table.number)
        arguments = tuple(_at(self._expressions, number) for number in table.arguments)
        if table.operation not in OPERATIONS or len(arguments) != arity(table.operation):
            raise ValueError(f"{table.operation!r} of {len(arguments)} arguments")
        return Apply(table.operation, arguments)

    def node(self, table: Any) -> Node:
        return Node(
            read_value(table.output), self.operation(table.operation), self.operands(table.operands),
            _at(self._expressions, table.epilogue), self.operands(table.epilogue_operands), table.origin,
        )

    def operation(self, table: Any) -> Operation:
        if table.kind == "reduction":
            return self.reduction(table)
        if table.kind == "gather":
            return Gather(self.reduction(table) if table.reduction else None)
        if table.kind == "concatenation":
            return Concatenation(table.axis)
        if table.kind == "convolution":
            pairs = table.strides, table.dilations, table.pads
            if any(len(pair) != 2 for pair in pairs) or min(*table.strides, *table.dilations, table.groups) < 1:
                raise ValueError(f"a convolution of strides, dilations and pads {pairs} in {table.groups} groups")
            return Convolution(*pairs, table.groups, table.transposed)
        if table.kind == "order":
            return Order(table.largest)
        if table.kind == "suppression":
            return Suppression(table.overlap)
        if table.kind == "recurrence":
            states, inner = ([_at(self._expressions, n) for n in part] for part in (table.states, table.inner))
            return Recurrence(tuple(states), inner[0] if inner else None, tuple(map(bool, table.reverse)))
        return Product() if table.kind == "product" else Load()

    def reduction(self, table: Any) -> Reduction:
        if table.reduction not in get_args(ReductionKind):
            raise ValueError(f"a reduction {table.reduction!r}")
        return Reduction(table.reduction, _at(self._expressions, table.body))

    def operands(self, tables: Sequence[Any]) -> tuple[Operand, ...]:
        return tuple(Operand(each.value, self.view(each.view), each.fill) for each in tables)

    def view(self, table: Any) -> View:
        bounds = tuple(Bound(_at(self._indices, b.index), b.low, b.high) for b in table.bounds)
        index = tuple(_at(self._indices, n) for n in table.index)
        if len(index) != len(table.source) or min((*table.shape, *table.source, 0)) < 0:
            raise ValueError(f"a view of {len(index)} positions in {list(table.source)}")
        sizes = {f"i{axis}": size for axis, size in enumerate(table.shape)}
        for variable in (v for each in (*index, *(b.index for b in bounds)) for v in each.variables()):
            if sizes.get(variable.name) != variable.size:
                raise ValueError(f"a variable {variable.name} of {variable.size} in a view of {list(table.shape)}")
        return View(table.shape, table.source, index, bounds)


def _at(found: Sequence[Any], number: int) -> Any:
    if number >= len(found):
        raise ValueError(f"{number} is not one of the {len(found)} entries before it")
    return found[number]
