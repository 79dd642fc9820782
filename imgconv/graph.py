"""The Graph: named values and nodes in topological order, every node in the one kernel form.

    output[i] = epilogue(reduce over r of body(load(view(i, r)) ...), load(view(i)) ...)

A node reads its `operands` through views; its `operation` combines them (a plain load, a reduction, a convolution, a
matrix product, a concatenation) and its `epilogue` is an elementwise expression in which argument 0 is the result of
the operation and argument k is the k-th of the `epilogue_operands`. Graphs are frozen; a pass makes a new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any, Union

import numpy

from imgconv.expression import Argument, Expression, argument_numbers
from imgconv.view import Shape, View, identity


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
    """A value read through a view; positions outside of the view's bounds read `fill`."""

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
    """The result is operand 0: elementwise work (the epilogue) and movements (the view) need no more."""

    def __str__(self) -> str:
        return "load"


@dataclass(frozen=True)
class Reduction:
    """A `body` of the operands, reduced over the last axes of their views. kind: sum, max, min or product.

    Each view has the shape output.shape + window; the reduction runs over the window.
    """

    kind: str
    body: Expression

    def __str__(self) -> str:
        return f"{self.kind} of {self.body}" if self.body != Argument(0) else self.kind


@dataclass(frozen=True)
class Convolution:
    """operands: x (N, C, H, W) and w (O, C/groups, KH, KW), or (C, O/groups, KH, KW) where transposed; ONNX semantics.

    pads are top, left; the output's shape holds what the bottom and right pads give. A third operand, (N, C, 1, 1),
    is a factor for each channel of x.
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
    """Matrix product: operands a (B..., M, K) and b (B..., K, N) with equal batch axes; output (B..., M, N)."""

    def __str__(self) -> str:
        return "product"


@dataclass(frozen=True)
class Concatenation:
    """The operands one after another along `axis`."""

    axis: int

    def __str__(self) -> str:
        return f"concatenation axis {self.axis}"


Operation = Union[Load, Reduction, Convolution, Product, Concatenation]
IDENTITY = Argument(0)


@dataclass(frozen=True)
class Node:
    """One kernel's work: an operation on `operands`, then `epilogue`; `origin` names the ONNX nodes it came from."""

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

    def __str__(self) -> str:
        text = f"{self.output} = {self.operation}({', '.join(map(str, self.operands))})"
        if self.epilogue != IDENTITY:
            extra = "".join(f", ${i}={o}" for i, o in enumerate(self.epilogue_operands, 1))
            text += f" then {self.epilogue}{extra}"
        return text


@dataclass(frozen=True)
class Graph:
    """inputs and outputs by name, nodes in an order in which each reads only what is there, constants as arrays."""

    inputs: tuple[Value, ...]
    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    constants: Mapping[str, Any] = field(default_factory=dict)
    name: str = "model"

    @cached_property
    def values(self) -> dict[str, Value]:
        """Every value by name: inputs, constants, node outputs."""
        found = {v.name: v for v in self.inputs}
        found |= {name: Value(name, array.shape, str(array.dtype)) for name, array in self.constants.items()}
        return found | {n.output.name: n.output for n in self.nodes}

    @cached_property
    def producers(self) -> dict[str, Node]:
        """The node that makes each value; inputs and constants have none."""
        return {n.output.name: n for n in self.nodes}

    @cached_property
    def consumers(self) -> dict[str, tuple[Node, ...]]:
        """The nodes that read each value, each once, in order."""
        names = (*(v.name for v in self.inputs), *self.constants, *(n.output.name for n in self.nodes))
        found: dict[str, list[Node]] = {name: [] for name in names}
        for node in self.nodes:
            for name in node.reads:
                found[name].append(node)
        return {name: tuple(nodes) for name, nodes in found.items()}

    def unused(self, name: str) -> str:
        """The name, with underscores added until no value has it: models may use any name."""
        while name in self.values:
            name += "_"
        return name

    def validate(self) -> Graph:
        """The graph itself, when names, order and shapes are consistent; AssertionError names the node otherwise."""
        known = {v.name: v for v in self.inputs}
        known |= {name: Value(name, array.shape, str(array.dtype)) for name, array in self.constants.items()}
        assert len(known) == len(self.inputs) + len(self.constants), "an input and a constant share a name"
        for node in self.nodes:
            for operand in node.all_operands:
                assert operand.value in known, f"{node} reads {operand.value} before it is made"
                assert operand.view.source == known[operand.value].shape, f"{node}: view of {operand.value}"
            _check_shapes(node)
            assert node.output.name not in known, f"{node.output.name} is made twice"
            known[node.output.name] = node.output
        missing = [name for name in self.outputs if name not in known]
        assert not missing, f"outputs {missing} are not made"
        return self

    def __str__(self) -> str:
        lines = [f"graph {self.name}"]
        lines += [f"  input  {v}" for v in self.inputs]
        lines += [f"  constant {Value(n, a.shape, str(a.dtype))}" for n, a in self.constants.items()]
        lines += [f"  {node}" for node in self.nodes]
        return "\n".join([*lines, *(f"  output {self.values[name]}" for name in self.outputs)])


def _check_shapes(node: Node) -> None:
    shape = node.output.shape
    for operand in node.epilogue_operands:
        assert operand.view.shape == shape, f"{node}: epilogue operand of shape {operand.view.shape}"
    numbers = argument_numbers(node.epilogue)
    assert all(n <= len(node.epilogue_operands) for n in numbers), f"{node}: epilogue arguments"
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
    else:
        (n, c, *_), w, *factors = views
        out, each = (w[1] * operation.groups, w[0]) if operation.transposed else (w[0], w[1] * operation.groups)
        ok = len(views[0]) == len(w) == len(shape) == 4 and (n, out, c) == (*shape[:2], each)
        ok = ok and factors in ([], [(n, c, 1, 1)])
    assert ok, f"{node}: operands {views} do not give {shape}"


def plain(value: Value) -> Operand:
    """The operand that reads a whole value as it is."""
    return Operand(value.name, identity(value.shape))


def array_value(name: str, array: numpy.ndarray[Any, Any]) -> Value:
    """The Value of a constant array."""
    return Value(name, array.shape, str(array.dtype))
