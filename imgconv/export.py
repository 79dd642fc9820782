"""Graph -> ONNX file, so that any other engine can run what a pass made, or what the lazy front end recorded.

Every node becomes standard operators of opset 18 that keep the names of the Graph's values; ``doc_string`` holds the
node's origin. Floats are computed in float32 and integers in int64, whatever a value is stored as, with a Cast where a
value is read and where it is written. Along axes that a view only repeats, tensors keep the length 1 for as long as
operators broadcast.

A view becomes a Pad, or at most: Transpose and Reshape (axes that are read together side by side), a Slice or a Gather
of constant positions for each such group, Reshape and Transpose again, and a Where for each bound. Windows that ONNX
has a pooling for become that pooling; sums and extrema of whole axes become a reduction of these axes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, prod
from typing import Any, Union

import numpy
import onnx
import onnx.helper
import onnx.numpy_helper

from imgconv import view as views
from imgconv.expression import Apply, Argument, Expression, Literal, apply
from imgconv.files import written_whole
from imgconv.graph import IDENTITY, Concatenation, Convolution, Gather, Graph, Load, Node, Operand, Product
from imgconv.graph import Reduction, Value
from imgconv.index import Division, Index, Lookup, Variable
from imgconv.view import Shape, View

OPSET = 18
IR_VERSION = 8

# How each scalar function is written: (operator, what it takes, what it gives). NUMBER is int64 where every argument
# is whole, float32 otherwise; what gives NUMBER gives what it took.
NUMBER, FLOAT, TRUTH = "number", "float32", "bool"
OPERATORS: Mapping[str, tuple[str, str, str]] = {
    "add": ("Add", NUMBER, NUMBER),
    "subtract": ("Sub", NUMBER, NUMBER),
    "multiply": ("Mul", NUMBER, NUMBER),
    "divide": ("Div", NUMBER, NUMBER),
    "maximum": ("Max", NUMBER, NUMBER),
    "minimum": ("Min", NUMBER, NUMBER),
    "power": ("Pow", FLOAT, FLOAT),
    "modulo": ("Mod", NUMBER, NUMBER),
    "remainder": ("Mod", NUMBER, NUMBER),
    "quotient": ("Div", NUMBER, NUMBER),
    "bit_and": ("BitwiseAnd", "int64", "int64"),
    "bit_or": ("BitwiseOr", "int64", "int64"),
    "bit_xor": ("BitwiseXor", "int64", "int64"),
    "negative": ("Neg", NUMBER, NUMBER),
    "absolute": ("Abs", NUMBER, NUMBER),
    "sign": ("Sign", NUMBER, NUMBER),
    "floor": ("Floor", FLOAT, FLOAT),
    "ceil": ("Ceil", FLOAT, FLOAT),
    "round": ("Round", FLOAT, FLOAT),
    "reciprocal": ("Reciprocal", FLOAT, FLOAT),
    "sqrt": ("Sqrt", FLOAT, FLOAT),
    "exp": ("Exp", FLOAT, FLOAT),
    "log": ("Log", FLOAT, FLOAT),
    "sin": ("Sin", FLOAT, FLOAT),
    "cos": ("Cos", FLOAT, FLOAT),
    "tan": ("Tan", FLOAT, FLOAT),
    "asin": ("Asin", FLOAT, FLOAT),
    "acos": ("Acos", FLOAT, FLOAT),
    "atan": ("Atan", FLOAT, FLOAT),
    "sinh": ("Sinh", FLOAT, FLOAT),
    "cosh": ("Cosh", FLOAT, FLOAT),
    "tanh": ("Tanh", FLOAT, FLOAT),
    "asinh": ("Asinh", FLOAT, FLOAT),
    "acosh": ("Acosh", FLOAT, FLOAT),
    "atanh": ("Atanh", FLOAT, FLOAT),
    "erf": ("Erf", FLOAT, FLOAT),
    "sigmoid": ("Sigmoid", FLOAT, FLOAT),
    "less": ("Less", NUMBER, TRUTH),
    "less_equal": ("LessOrEqual", NUMBER, TRUTH),
    "equal": ("Equal", NUMBER, TRUTH),
    "not": ("Not", TRUTH, TRUTH),
    "and": ("And", TRUTH, TRUTH),
    "or": ("Or", TRUTH, TRUTH),
    "xor": ("Xor", TRUTH, TRUTH),
    "isnan": ("IsNaN", FLOAT, TRUTH),
    "isinf": ("IsInf", FLOAT, TRUTH),
    "where": ("Where", NUMBER, NUMBER),
}
_A, _B = Argument(0), Argument(1)
# What ONNX has no operator for; modulo and quotient only for floats, where Mod gives the sign of the dividend.
COMPOSED: Mapping[str, Expression] = {
    "modulo": apply("subtract", _A, apply("multiply", _B, apply("floor", apply("divide", _A, _B)))),
    "truncate": apply("where", apply("less", _A, 0), apply("ceil", _A), apply("floor", _A)),
    "quotient": apply("truncate", apply("divide", _A, _B)),
    "shift_left": apply("multiply", _A, apply("power", 2.0, _B)),
    "shift_right": apply("floor", apply("divide", _A, apply("power", 2.0, _B))),
    "expm1": apply("subtract", apply("exp", _A), 1),
    "log1p": apply("log", apply("add", _A, 1)),
}
REDUCTIONS = {"sum": "ReduceSum", "max": "ReduceMax", "min": "ReduceMin", "product": "ReduceProd"}


def export_onnx(graph: Graph, path: str | os.PathLike[str] | None = None) -> onnx.ModelProto:
    """The Graph as an ONNX model with its inputs, outputs and value names; also written to `path` where one is given.

    The file appears whole or not at all. Raises InputError where it cannot be written.
    """
    model = _Exporter(graph).run()
    if path is not None:
        with written_whole(path) as file:
            file.write(model.SerializeToString())
    return model


@dataclass(frozen=True)
class _Tensor:
    """A tensor of the ONNX graph; dtype is float32, int64 or bool, save where elements are only moved."""

    name: str
    dtype: str
    shape: Shape


_Number = Union[_Tensor, Literal]


class _Exporter:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: dict[str, Any] = {}
        self.contents: dict[Any, str] = {}
        self.used = set(graph.values)
        self.relus: set[str] = set()  # what cannot be negative
        self.reshaped: dict[str, _Tensor] = {}  # what each Reshape reads
        self.value = Value("", (), "float32")  # what is being made, and where it comes from
        self.origin = ""

    def run(self) -> onnx.ModelProto:
        for node in self.graph.nodes:
            self.value, self.origin = node.output, ", ".join(node.origin)
            before = len(self.nodes)
            self.finish(self.epilogue(node), before)
        known = self.graph.values
        self.initializers |= {name: array for name, array in self.graph.constants.items() if name in self.graph.outputs}
        read = {name for node in self.nodes for name in node.input} | set(self.graph.outputs)
        graph = onnx.helper.make_graph(
            self.nodes, self.graph.name or "model", [_declared(v) for v in self.graph.inputs],
            [_declared(known[name]) for name in self.graph.outputs],
            [onnx.numpy_helper.from_array(a, name) for name, a in self.initializers.items() if name in read],
            value_info=[_declared(n.output) for n in self.graph.nodes if n.output.name not in self.graph.outputs],
        )
        opsets = [onnx.helper.make_opsetid("", OPSET)]
        return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="imgconv")

    # What everything is made of

    def emit(self, operator: str, inputs: Sequence[_Tensor], dtype: str, shape: Shape, **attributes: Any) -> _Tensor:
        """One more operator; its result has a name of its own."""
        name = self.unused(f"{self.value.name}.{operator.lower()}")
        node = onnx.helper.make_node(
            operator, [t.name for t in inputs], [name], name, doc_string=self.origin or None, **attributes
        )
        self.nodes.append(node)
        return _Tensor(name, dtype, shape)

    def unused(self, wanted: str) -> str:
        name, count = wanted, 1
        while name in self.used:
            name, count = f"{wanted}{count}", count + 1
        self.used.add(name)
        return name

    def constant(self, array: Any) -> _Tensor:
        """A tensor of known content; equal ones are stored once."""
        key = (str(array.dtype), array.shape, array.tobytes())
        if key not in self.contents:
            self.contents[key] = self.unused(f"{self.value.name}.constant")
            self.initializers[self.contents[key]] = array
        return _Tensor(self.contents[key], str(array.dtype), array.shape)

    def integers(self, *numbers: int) -> _Tensor:
        return self.constant(numpy.asarray(numbers, numpy.int64))

    def finish(self, result: _Tensor, before: int) -> None:
        """Give the value that is being made its shape, dtype and name. before: how many operators came before it."""
        result = self.cast(self.expand(result, self.value.shape), self.value.dtype)
        if len(self.nodes) == before or self.nodes[-1].output[0] != result.name:
            result = self.emit("Identity", [result], result.dtype, result.shape)
        if result.name in self.relus:
            self.relus.add(self.value.name)
        self.nodes[-1].output[0] = self.nodes[-1].name = self.value.name

    def cast(self, tensor: _Tensor, dtype: str) -> _Tensor:
        if tensor.dtype == dtype:
            return tensor
        return self.emit("Cast", [tensor], dtype, tensor.shape, to=_element_type(dtype))

    def reshape(self, tensor: _Tensor, shape: Shape) -> _Tensor:
        source = self.reshaped.get(tensor.name)
        if source is not None and self.nodes[-1].output[0] == tensor.name:
            # Of two in a row the first is not needed.
            self.nodes.pop()
            tensor = source
        if tensor.shape == shape:
            return tensor
        made = self.emit("Reshape", [tensor, self.integers(*shape)], tensor.dtype, shape)
        self.reshaped[made.name] = tensor
        return made

    def transpose(self, tensor: _Tensor, order: Sequence[int]) -> _Tensor:
        """Axis a of the result is axis order[a]; a Reshape where only axes of length 1 change places."""
        shape = tuple(tensor.shape[a] for a in order)
        long = [a for a in order if tensor.shape[a] > 1]
        if long == sorted(long):
            return self.reshape(tensor, shape)
        return self.emit("Transpose", [tensor], tensor.dtype, shape, perm=list(order))

    def expand(self, tensor: _Tensor, shape: Shape) -> _Tensor:
        if tensor.shape == shape:
            return tensor
        return self.emit("Expand", [tensor, self.integers(*shape)], tensor.dtype, shape)

    def pad(self, tensor: _Tensor, before: Sequence[int], after: Sequence[int], fill: float = 0.0) -> _Tensor:
        """`fill` around each axis; negative amounts crop."""
        shape = tuple(b + n + a for b, n, a in zip(before, tensor.shape, after, strict=True))
        number = self.constant(_filling(fill, tensor.dtype))
        return self.emit("Pad", [tensor, self.integers(*before, *after), number], tensor.dtype, shape)

    def pick(self, tensor: _Tensor, axis: int, positions: Any) -> _Tensor:
        """The positions along an axis: a Slice where they are evenly spaced, a Gather otherwise."""
        count = len(positions)
        if tensor.shape[axis] == count and numpy.array_equal(positions, numpy.arange(count)):
            return tensor
        shape = (*tensor.shape[:axis], count, *tensor.shape[axis + 1 :])
        steps = set(numpy.diff(positions).tolist()) or {1}
        if len(steps) == 1 and steps != {0}:
            step = steps.pop()
            end = int(positions[-1]) + (1 if step > 0 else -1)
            bounds = (int(positions[0]), end if end >= 0 else -tensor.shape[axis] - 1, axis, step)
            inputs = [tensor, *(self.integers(n) for n in bounds)]
            return self.emit("Slice", inputs, tensor.dtype, shape)
        return self.emit("Gather", [tensor, self.integers(*positions)], tensor.dtype, shape, axis=axis)

    # Views

    def load(self, operand: Operand, fixed: int, moved_only: bool = False) -> _Tensor:
        """What the operand reads. Of its axes all but the last `fixed` have length 1 where they only repeat."""
        rank = len(operand.view.shape)
        indices = [*operand.view.index, *(b.index for b in operand.view.bounds)]
        loose = replace(operand.view, shape=_cut(operand.view.shape, _axes(indices)))
        shape = tuple(n if a >= rank - fixed else loose.shape[a] for a, n in enumerate(operand.view.shape))
        array = self.graph.constants.get(operand.value)
        if array is not None and not (loose.is_identity and shape == loose.shape):
            kind = str(array.dtype) if moved_only else _computed(str(array.dtype))
            return self.constant(replace(operand.view, shape=shape).evaluate(array.astype(kind), operand.fill))
        if array is not None:
            self.initializers[operand.value] = array
        value = self.graph.values[operand.value]
        tensor = _Tensor(value.name, value.dtype, value.shape)
        tensor = tensor if moved_only else self.cast(tensor, _computed(value.dtype))
        return self.expand(self.through(tensor, loose, operand.fill), shape)

    def through(self, tensor: _Tensor, view: View, fill: float) -> _Tensor:
        """The tensor read through a view that repeats nothing along a whole axis."""
        if view.is_identity:
            return tensor
        if 0 in view.source or 0 in view.shape:
            return self.constant(numpy.full(view.shape, _filling(fill, tensor.dtype)))
        fill = float(fill != 0) if tensor.dtype == "bool" else fill
        amounts = _padding(view)
        if amounts is not None:
            return self.pad(tensor, *amounts, fill)
        made = self.gather(tensor, replace(view, shape=_cut(view.shape, _axes(view.index)), bounds=()))
        for bound in view.bounds:
            position = numpy.asarray(bound.index.evaluate(_grids(view.shape, range(len(view.shape)))))
            valid = self.constant((position >= bound.low) & (position < bound.high))
            made = self.cast(made, "int64") if made.dtype == "bool" else made
            inputs = [valid, made, self.constant(_filling(fill, made.dtype))]
            made = self.emit("Where", inputs, made.dtype, numpy.broadcast_shapes(valid.shape, made.shape))
        return made

    def gather(self, tensor: _Tensor, view: View) -> _Tensor:
        """What a view without bounds reads, by groups of axes that are read together."""
        groups = _groups(view)
        made = self.transpose(tensor, [a for source, _ in groups for a in source])
        wanted = [_positions(view, source, axes) for source, axes in groups]
        if any(not _is_whole(p, view, source) for p, (source, _) in zip(wanted, groups, strict=True)):
            made = self.reshape(made, tuple(prod(view.source[a] for a in source) for source, _ in groups))
            for number, positions in enumerate(wanted):
                made = self.pick(made, number, positions)
        order = [a for _, axes in groups for a in axes]
        made = self.reshape(made, tuple(view.shape[a] for a in order))
        made = self.transpose(made, [order.index(a) for a in sorted(order)])
        return self.reshape(made, view.shape)

    # Operations

    def epilogue(self, node: Node) -> _Tensor:
        first = self.operation(node)
        if node.epilogue == IDENTITY:
            return first
        rest = [self.load(o, 0) for o in node.epilogue_operands]
        return self.compute(node.epilogue, [first, *rest])

    def operation(self, node: Node) -> _Tensor:
        operation, operands = node.operation, node.operands
        stored = {self.graph.values[o.value].dtype for o in operands} | {node.output.dtype}
        moved_only = node.epilogue == IDENTITY and len(stored) == 1 and not any(o.view.bounds for o in operands)
        if isinstance(operation, Load):
            return self.load(operands[0], 0, moved_only)
        if isinstance(operation, Gather):
            return self.choose(node)
        if isinstance(operation, Reduction) and operation.kind == "argmax":
            return self.argmax(operation, node)
        if isinstance(operation, Reduction):
            return self.pooling(operation, node) or self.reduction(operation, node)
        if isinstance(operation, Convolution):
            return self.convolution(operation, node)
        if isinstance(operation, Concatenation):
            parts = [self.load(o, len(node.output.shape), moved_only) for o in operands]
            dtype = parts[0].dtype if len({p.dtype for p in parts}) == 1 else _common(parts)
            parts = [self.cast(p, dtype) for p in parts]
            return self.emit("Concat", parts, dtype, node.output.shape, axis=operation.axis)
        assert isinstance(operation, Product)
        a, b = (self.load(o, 2) for o in operands)
        dtype = _common([a, b])
        batch = numpy.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        inputs = [self.cast(a, dtype), self.cast(b, dtype)]
        return self.emit("MatMul", inputs, dtype, (*batch, a.shape[-2], b.shape[-1]))

    def convolution(self, operation: Convolution, node: Node) -> _Tensor:
        """Conv or ConvTranspose with the pads that give exactly the output's size; Pad cuts what they cannot."""
        x, w, *factors = (self.cast(self.load(o, 4), "float32") for o in node.operands)
        for factor in factors:
            x = self.emit("Mul", [x, factor], "float32", x.shape)
        shape, before, strides = node.output.shape, operation.pads, operation.strides
        attributes = {"strides": strides, "dilations": operation.dilations, "group": operation.groups}
        reach = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], operation.dilations, strict=True)]
        sizes = list(zip(x.shape[2:], shape[2:], strides, reach, before, strict=True))
        if operation.transposed:
            # What is cut off after the whole result; zeros follow where it is too short.
            after = [(n - 1) * s + r - b - out for n, out, s, r, b in sizes]
            if min(before) < 0 or any(a <= -s for a, s in zip(after, strides, strict=True)):
                whole = (*shape[:2], *((n - 1) * s + r for n, _, s, r, _ in sizes))
                made = self.emit("ConvTranspose", [x, w], "float32", whole, **attributes)
                return self.pad(made, [0, 0, *(-b for b in before)], [0, 0, *(-a for a in after)])
            attributes |= {"pads": [*before, *(max(a, 0) for a in after)]}
            attributes |= {"output_padding": [max(-a, 0) for a in after]}
            return self.emit("ConvTranspose", [x, w], "float32", shape, **attributes)
        after = [(out - 1) * s + r - n - b for n, out, s, r, b in sizes]
        after = [0 if -s < a < 0 else a for a, s in zip(after, strides, strict=True)]
        if min(*before, *after) < 0:
            x = self.pad(x, [0, 0, *before], [0, 0, *after])
            return self.emit("Conv", [x, w], "float32", shape, **attributes)
        return self.emit("Conv", [x, w], "float32", shape, pads=[*before, *after], **attributes)

    def pooling(self, operation: Reduction, node: Node) -> _Tensor | None:
        """MaxPool, or AveragePool times the window's size; None where the reduction is neither."""
        view, fill = node.operands[0].view, node.operands[0].fill
        if operation not in (Reduction("max", IDENTITY), Reduction("sum", IDENTITY)) or len(node.output.shape) != 4:
            return None
        if view.bounds and fill != (-inf if operation.kind == "max" else 0):
            return None
        found = _windows(view)
        if found is None or not self.graph.values[node.operands[0].value].dtype.startswith("float"):
            return None
        window, dilated = view.shape[4:], found["dilations"] != [1, 1]
        # What ONNX refuses: pads as large as the window, and sums of dilated ones.
        if any(p >= k for p, k in zip(found["pads"], (*window, *window))) or (dilated and operation.kind == "sum"):
            return None
        # Where a window holds nothing but padding onnxruntime's MaxPool gives the least float, not -inf.
        if operation.kind == "max" and _only_padding(view, **found):
            return None
        x = self.load(Operand(node.operands[0].value, views.identity(view.source)), 4)
        if operation.kind == "max":
            return self.emit("MaxPool", [x], "float32", node.output.shape, kernel_shape=window, **found)
        del found["dilations"]
        mean = self.emit(
            "AveragePool", [x], "float32", node.output.shape, kernel_shape=window, count_include_pad=1, **found
        )
        return self.compute(apply("multiply", _A, prod(window)), [mean])

    def reduction(self, operation: Reduction, node: Node) -> _Tensor:
        shape, operands, kept = node.output.shape, node.operands, 0
        view = operands[0].view
        axes, whole = list(range(len(shape), len(view.shape))), view.shape
        source_axes = _reduced_axes(view, len(shape)) if len({o.view for o in operands}) == 1 else []
        if source_axes:
            # Whole axes, in their order: the reduction of the source itself.
            axes, whole, kept = source_axes, view.source, 1
            operands = tuple(replace(o, view=views.identity(whole)) for o in operands)
        body = self.compute(operation.body, [self.load(o, 0) for o in operands])
        body = self.expand(self.cast(body, "int64") if body.dtype == "bool" else body, whole)
        result = tuple(1 if a in axes else n for a, n in enumerate(whole)) if kept else shape
        inputs = [body, self.integers(*axes)]
        made = self.emit(REDUCTIONS[operation.kind], inputs, body.dtype, result, keepdims=kept)
        return self.reshape(made, shape)

    def argmax(self, operation: Reduction, node: Node) -> _Tensor:
        """The window as one axis, whose first largest element is looked for."""
        shape, seen = node.output.shape, node.operands[0].view.shape
        body = self.compute(operation.body, [self.load(o, 0) for o in node.operands])
        body = self.expand(self.cast(body, "int64") if body.dtype == "bool" else body, seen)
        flat = self.reshape(body, (*shape, prod(seen[len(shape) :])))
        return self.emit("ArgMax", [flat], "int64", shape, axis=len(shape), keepdims=0)

    def choose(self, node: Node) -> _Tensor:
        """A Gather of the flattened table at the row-major numbers that the indices give, and a Where for the fill."""
        table, *indices = node.operands
        view, rank = table.view, len(node.output.shape)
        grids = {f"i{a}": self.constant(grid) for a, grid in enumerate(_grids(view.shape[:rank], range(rank)).values())}
        tests = []
        for number, operand in enumerate(indices):
            index = self.load(operand, 0)
            index = index if index.dtype == "int64" else self.compute(apply("round", _A), [index])
            inside = apply("and", apply("less_equal", 0.0, _A), apply("less", _A, view.shape[rank + number]))
            tests.append(self.compute(inside, [index]))
            safe = self.compute(apply("where", _A, _B, 0.0), [tests[-1], index])
            grids[f"i{rank + number}"] = self.cast(safe, "int64")
        for bound in view.bounds:
            inside = apply("and", apply("less_equal", bound.low, _A), apply("less", _A, bound.high))
            tests.append(self.compute(inside, [self.whole_number(bound.index, grids)]))
        flat: Expression = Literal(0.0)
        places = [self.whole_number(e, grids) for e in view.index]
        for number, size in enumerate(view.source):
            clipped = apply("minimum", apply("maximum", Argument(number), 0.0), size - 1)
            flat = apply("add", apply("multiply", flat, size), clipped)
        position = self.typed(Literal(0.0), "int64") if not places else self.compute(flat, places)
        value = self.graph.values[table.value]
        if table.value in self.graph.constants:
            self.initializers[table.value] = self.graph.constants[table.value]
        source = self.cast(_Tensor(value.name, value.dtype, value.shape), _computed(value.dtype))
        source = self.cast(source, "int64") if source.dtype == "bool" else source
        flattened = self.reshape(source, (value.size,))
        read = self.emit("Gather", [flattened, position], source.dtype, position.shape, axis=0)
        for test in tests:
            read = self.compute(apply("where", _A, _B, table.fill), [test, read])
        return self.expand(read, node.output.shape)

    def whole_number(self, index: Index, values: Mapping[str, _Tensor]) -> _Tensor:
        """An index of variables that tensors hold."""
        total: Expression = Literal(float(index.constant))
        tensors = []
        for atom, factor in index.terms:
            if isinstance(atom, Variable):
                part = values[atom.name]
            else:
                part = self.whole_number(atom.value, values)
                if isinstance(atom, Lookup):
                    clipped = apply("minimum", apply("maximum", _A, 0.0), len(atom.table) - 1)
                    place = self.compute(clipped, [part])
                    part = self.emit("Gather", [self.integers(*atom.table), place], "int64", place.shape, axis=0)
                else:
                    rest = apply("modulo", _A, atom.divisor)
                    down = apply("quotient", apply("subtract", _A, rest), atom.divisor)
                    part = self.compute(down if isinstance(atom, Division) else rest, [part])
            tensors.append(part)
            total = apply("add", total, apply("multiply", Argument(len(tensors) - 1), factor))
        return self.compute(total, tensors) if tensors else self.typed(Literal(float(index.constant)), "int64")

    # Expressions

    def compute(self, expression: Expression, arguments: Sequence[_Tensor]) -> _Tensor:
        """The expression of the arguments, parts that are shared once."""
        done: dict[Expression, _Tensor] = {}

        def value(e: Expression) -> _Number:
            if isinstance(e, Literal):
                return e
            if isinstance(e, Argument):
                return arguments[e.number]
            if e not in done:
                done[e] = self.apply(e, [value(a) for a in e.arguments])
            return done[e]

        made = value(expression)
        return self.typed(made, "float32") if isinstance(made, Literal) else made

    def apply(self, e: Apply, arguments: Sequence[_Number]) -> _Tensor:
        number = _common(arguments[1:] if e.operation == "where" else arguments)
        if e.operation in COMPOSED and (e.operation not in OPERATORS or number == "float32"):
            tensors = [self.typed(a, "float32") for a in arguments]
            return self.compute(COMPOSED[e.operation], tensors)
        if number == "float32" and (made := self.bounded(e.operation, arguments)):
            return made
        operator, takes, gives = OPERATORS[e.operation]
        kinds = [number if takes == NUMBER else takes] * len(arguments)
        if e.operation == "where":
            kinds[0] = "bool"
        tensors = [self.typed(a, kind) for a, kind in zip(arguments, kinds, strict=True)]
        shape = tuple(numpy.broadcast_shapes(*(t.shape for t in tensors)))
        attributes = {"fmod": 1} if e.operation == "remainder" else {}
        return self.emit(operator, tensors, number if gives == NUMBER else gives, shape, **attributes)

    def bounded(self, operation: str, arguments: Sequence[_Number]) -> _Tensor | None:
        """max(x, 0) as Relu and the min(x, c) of a Relu as Clip, which other engines fuse; None for all else."""
        tensors = [a for a in arguments if isinstance(a, _Tensor)]
        limits = [a.value for a in arguments if isinstance(a, Literal)]
        if len(tensors) != 1 or len(limits) != 1:
            return None
        (x,), (limit,) = [self.cast(t, "float32") for t in tensors], limits
        if operation == "maximum" and limit == 0:
            made = self.emit("Relu", [x], "float32", x.shape)
            self.relus.add(made.name)
            return made
        if operation == "minimum" and limit > 0 and x.name in self.relus:
            bounds = [self.typed(Literal(number), "float32") for number in (0.0, limit)]
            return self.emit("Clip", [x, *bounds], "float32", x.shape)
        return None

    def typed(self, number: _Number, dtype: str) -> _Tensor:
        if isinstance(number, Literal):
            return self.constant(_filling(number.value, dtype))
        return self.cast(number, dtype)


def _declared(value: Value) -> onnx.ValueInfoProto:
    return onnx.helper.make_tensor_value_info(value.name, _element_type(value.dtype), value.shape)


def _element_type(dtype: str) -> int:
    return onnx.helper.np_dtype_to_tensor_dtype(numpy.dtype(dtype))


def _computed(dtype: str) -> str:
    """What a value of that dtype is computed in."""
    if dtype == "bool":
        return dtype
    return "float32" if dtype.startswith("float") else "int64"


def _common(numbers: Sequence[_Number]) -> str:
    """int64 where all are whole, float32 otherwise."""
    whole = [n.value.is_integer() if isinstance(n, Literal) else n.dtype != "float32" for n in numbers]
    tensors = any(isinstance(n, _Tensor) for n in numbers)
    return "int64" if all(whole) and tensors else "float32"


def _filling(number: float, dtype: str) -> Any:
    """The number as an array without axes."""
    if dtype == "int64":
        limits = numpy.iinfo(numpy.int64)
        return numpy.asarray(min(max(int(number), limits.min), limits.max), dtype)
    with numpy.errstate(over="ignore"):
        return numpy.asarray(number).astype(dtype)


def _axes(indices: Sequence[Index]) -> frozenset[int]:
    """The axes of a view that the expressions depend on."""
    return frozenset(int(v.name[1:]) for e in indices for v in e.variables())


def _cut(shape: Shape, axes: frozenset[int]) -> Shape:
    """The shape with length 1 along all other axes."""
    return tuple(n if a in axes else 1 for a, n in enumerate(shape))


def _grids(shape: Shape, axes: Sequence[int]) -> dict[str, Any]:
    """The variables of some axes as arrays that broadcast to the lengths of these axes."""
    arrays = numpy.meshgrid(*(numpy.arange(shape[a]) for a in axes), indexing="ij", sparse=True)
    return {f"i{a}": array for a, array in zip(axes, arrays, strict=True)}


def _padding(view: View) -> tuple[list[int], list[int]] | None:
    """The amounts before and after each axis where the view is its source with the fill value around it."""
    if len(view.shape) != len(view.source) or not view.bounds:
        return None
    before = [-e.constant for e in view.index]
    after = [n - m - b for n, m, b in zip(view.shape, view.source, before, strict=True)]
    return (before, after) if min(*before, *after) >= 0 and views.pad(view.source, before, after) == view else None


def _windows(view: View) -> dict[str, list[int]] | None:
    """strides, dilations and pads where the view is sliding windows over the last two of four axes."""
    if len(view.source) != 4 or len(view.shape) != 6 or 0 in view.shape:
        return None
    factors = [{str(atom): k for atom, k in e.terms} for e in view.index]
    strides = [factors[2].get("i2", 1), factors[3].get("i3", 1)]
    dilations = [factors[2].get("i4", 1), factors[3].get("i5", 1)]
    before = [-view.index[2].constant, -view.index[3].constant]
    if min(*strides, *dilations) < 1 or min(before) < 0:
        return None
    if views.windows(view.source, view.shape[2:4], view.shape[4:], strides, dilations, before) != view:
        return None
    after = []
    for n, out, k, s, d, b in zip(view.source[2:], view.shape[2:4], view.shape[4:], strides, dilations, before):
        reach = (k - 1) * d + 1
        after.append(max((out - 1) * s + reach - n - b, 0))
        if (n + b + after[-1] - reach) // s + 1 != out:
            return None
    return {"strides": strides, "dilations": dilations, "pads": [*before, *after]}


def _only_padding(view: View, strides: list[int], dilations: list[int], pads: list[int]) -> bool:
    """Whether some of the windows that `_windows` found lie outside of the source."""
    axes = zip(view.source[2:], view.shape[2:4], view.shape[4:], strides, dilations, pads)
    return any(
        not any(0 <= o * stride - pad + k * dilation < size for k in range(window))
        for size, outputs, window, stride, dilation, pad in axes
        for o in range(outputs)
    )


def _reduced_axes(view: View, rank: int) -> list[int]:
    """The axes of the source that the axes from `rank` on are; none where they are not whole, or change places."""
    own = [str(e) for e in view.index]
    long = [axis for axis, n in enumerate(view.source) if n > 1]
    if view.bounds or sorted(own[a] for a in long) != sorted(f"i{a}" for a, n in enumerate(view.shape) if n > 1):
        return []
    if 0 in view.source or any(view.shape[int(own[a][1:])] != view.source[a] for a in long):
        return []
    kept = [int(own[a][1:]) for a in long if int(own[a][1:]) < rank]
    return [a for a in long if int(own[a][1:]) >= rank] if kept == sorted(kept) else []


def _groups(view: View) -> list[tuple[list[int], list[int]]]:
    """(axes of the source, axes of the view) that are read together, in the order of the source.

    An axis of the source that is read at one position goes with an axis of length 1 of the view while there is one.
    """
    groups: list[tuple[set[int], set[int]]] = []
    for axis, index in enumerate(view.index):
        source, axes = {axis}, set(_axes([index]))
        for other in [g for g in groups if g[1] & axes]:
            source, axes = source | other[0], axes | other[1]
            groups.remove(other)
        groups.append((source, axes))
    free = [a for a, n in enumerate(view.shape) if n == 1]
    found = []
    for source, axes in sorted(groups, key=lambda g: min(g[0])):
        found.append((sorted(source), sorted(axes) if axes or not free else [free.pop(0)]))
    return found


def _positions(view: View, source: Sequence[int], axes: Sequence[int]) -> Any:
    """The row-major position in the source axes for each position of the view axes, as a vector."""
    grids = _grids(view.shape, axes)
    flat: Any = 0
    for axis in source:
        flat = flat * view.source[axis] + numpy.clip(view.index[axis].evaluate(grids), 0, view.source[axis] - 1)
    return numpy.broadcast_to(flat, tuple(view.shape[a] for a in axes)).ravel()


def _is_whole(positions: Any, view: View, source: Sequence[int]) -> bool:
    """Whether the positions are those of the source axes, each once and in order."""
    size = prod(view.source[a] for a in source)
    return len(positions) == size and numpy.array_equal(positions, numpy.arange(size))


__all__ = ["export_onnx"]
