"""Exports each kind of node as ONNX operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf, prod
from typing import Any

import numpy

from imgconv.graph import view as views
from imgconv.graph.expression import Argument, Expression, Literal, apply
from imgconv.graph.index import Division, Index, Lookup, Variable
from imgconv.graph.nodes import IDENTITY, Concatenation, Convolution, Gather, Graph, Load, Node, Operand, Operation
from imgconv.graph.nodes import Order, Product, Recurrence, Reduction, Suppression, index_operands_of
from imgconv.graph.view import Shape
from imgconv.onnx_export.recurrences import recurrence
from imgconv.onnx_export.views import (
    axes_of, axis_index_arrays, export_view, has_window_in_padding, keep_only_axes, reduced_axes, windows,
)
from imgconv.onnx_export.writer import OnnxTensor, OnnxWriter, common_dtype, compute_dtype

REDUCTIONS = {"sum": "ReduceSum", "max": "ReduceMax", "min": "ReduceMin", "product": "ReduceProd"}
_A, _B = Argument(0), Argument(1)


class NodeExporter:
    """Writes the nodes of a graph as ONNX operators."""

    def __init__(self, graph: Graph, writer: OnnxWriter) -> None:
        self.graph = graph
        self.writer = writer

    def load(self, operand: Operand, full_axes: int, keeps_dtype: bool = False) -> OnnxTensor:
        """Exports what the operand reads. Axes along which it only repeats get length 1, except the last `full_axes`.

        keeps_dtype: without the cast to the type in which a node computes.
        """
        rank = len(operand.view.shape)
        indices = [*operand.view.index, *(b.index for b in operand.view.bounds)]
        loose = replace(operand.view, shape=keep_only_axes(operand.view.shape, axes_of(indices)))
        shape = tuple(n if a >= rank - full_axes else loose.shape[a] for a, n in enumerate(operand.view.shape))
        array = self.graph.constants.get(operand.value)
        if array is not None and not (loose.is_identity and shape == loose.shape):
            kind = str(array.dtype) if keeps_dtype else compute_dtype(str(array.dtype))
            return self.writer.constant(replace(operand.view, shape=shape).evaluate(array.astype(kind), operand.fill))
        if array is not None:
            self.writer.initializers[operand.value] = array
        value = self.graph.values[operand.value]
        tensor = OnnxTensor(value.name, value.dtype, value.shape)
        tensor = tensor if keeps_dtype else self.writer.cast(tensor, compute_dtype(value.dtype))
        return self.writer.expand(export_view(self.writer, tensor, loose, operand.fill), shape)

    # Operations

    def epilogue(self, node: Node) -> OnnxTensor:
        first = self.operation(node)
        if node.epilogue == IDENTITY:
            return first
        rest = [self.load(o, 0) for o in node.epilogue_operands]
        return self.writer.compute(node.epilogue, [first, *rest])

    def operation(self, node: Node) -> OnnxTensor:
        return EXPORTS[type(node.operation)](self, node.operation, node)

    def is_pure_movement(self, node: Node) -> bool:
        """Returns whether elements of one type are only moved, which needs no Cast."""
        stored = {self.graph.values[o.value].dtype for o in node.operands} | {node.output.dtype}
        return node.epilogue == IDENTITY and len(stored) == 1 and not any(o.view.bounds for o in node.operands)

    def movement(self, _: Load, node: Node) -> OnnxTensor:
        return self.load(node.operands[0], 0, self.is_pure_movement(node))

    def concatenation(self, operation: Concatenation, node: Node) -> OnnxTensor:
        parts = [self.load(o, len(node.output.shape), self.is_pure_movement(node)) for o in node.operands]
        dtype = parts[0].dtype if len({p.dtype for p in parts}) == 1 else common_dtype(parts)
        parts = [self.writer.cast(p, dtype) for p in parts]
        return self.writer.emit("Concat", parts, dtype, node.output.shape, axis=operation.axis)

    def recurrence(self, operation: Recurrence, node: Node) -> OnnxTensor:
        given = [self.writer.cast(self.load(o, len(o.view.shape)), "float32") for o in node.operands]
        return recurrence(self.writer, operation, given, node.output.shape)

    def product(self, _: Product, node: Node) -> OnnxTensor:
        a, b = (self.load(o, 2) for o in node.operands)
        dtype = common_dtype([a, b])
        batch = numpy.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        inputs = [self.writer.cast(a, dtype), self.writer.cast(b, dtype)]
        return self.writer.emit("MatMul", inputs, dtype, (*batch, a.shape[-2], b.shape[-1]))

    def convolution(self, operation: Convolution, node: Node) -> OnnxTensor:
        """Conv or ConvTranspose with pads that give the output's size; a Pad crops if pads cannot express it."""
        x, w, *factors = (self.writer.cast(self.load(o, 4), "float32") for o in node.operands)
        for factor in factors:
            x = self.writer.emit("Mul", [x, factor], "float32", x.shape)
        shape, before, strides = node.output.shape, operation.pads, operation.strides
        attributes = {"strides": strides, "dilations": operation.dilations, "group": operation.groups}
        reach = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], operation.dilations, strict=True)]
        sizes = list(zip(x.shape[2:], shape[2:], strides, reach, before, strict=True))
        if operation.transposed:
            # The elements to crop at the end of the full result; a negative number of them means zeros to append.
            after = [(n - 1) * s + r - b - out for n, out, s, r, b in sizes]
            if min(before) < 0 or any(a <= -s for a, s in zip(after, strides, strict=True)):
                whole = (*shape[:2], *((n - 1) * s + r for n, _, s, r, _ in sizes))
                made = self.writer.emit("ConvTranspose", [x, w], "float32", whole, **attributes)
                return self.writer.pad(made, [0, 0, *(-b for b in before)], [0, 0, *(-a for a in after)])
            attributes |= {"pads": [*before, *(max(a, 0) for a in after)]}
            attributes |= {"output_padding": [max(-a, 0) for a in after]}
            return self.writer.emit("ConvTranspose", [x, w], "float32", shape, **attributes)
        after = [(out - 1) * s + r - n - b for n, out, s, r, b in sizes]
        after = [0 if -s < a < 0 else a for a, s in zip(after, strides, strict=True)]
        if min(*before, *after) < 0:
            x = self.writer.pad(x, [0, 0, *before], [0, 0, *after])
            return self.writer.emit("Conv", [x, w], "float32", shape, **attributes)
        return self.writer.emit("Conv", [x, w], "float32", shape, pads=[*before, *after], **attributes)

    def pooling(self, operation: Reduction, node: Node) -> OnnxTensor | None:
        """MaxPool, or AveragePool times the window's size; None if neither can express the reduction."""
        view, fill = node.operands[0].view, node.operands[0].fill
        if operation not in (Reduction("max", IDENTITY), Reduction("sum", IDENTITY)) or len(node.output.shape) != 4:
            return None
        if view.bounds and fill != (-inf if operation.kind == "max" else 0):
            return None
        found = windows(view)
        if found is None or not self.graph.values[node.operands[0].value].dtype.startswith("float"):
            return None
        window, dilated = view.shape[4:], found["dilations"] != [1, 1]
        # ONNX does not allow pads as large as the window, nor dilated windows in AveragePool of opset 18.
        if any(p >= k for p, k in zip(found["pads"], (*window, *window))) or (dilated and operation.kind == "sum"):
            return None
        # If a window lies in the padding only, onnxruntime's MaxPool gives the least finite float, not -inf.
        if operation.kind == "max" and has_window_in_padding(view, **found):
            return None
        x = self.load(Operand(node.operands[0].value, views.identity(view.source)), 4)
        if operation.kind == "max":
            return self.writer.emit("MaxPool", [x], "float32", node.output.shape, kernel_shape=window, **found)
        del found["dilations"]
        mean = self.writer.emit(
            "AveragePool", [x], "float32", node.output.shape, kernel_shape=window, count_include_pad=1, **found
        )
        return self.writer.compute(apply("multiply", _A, prod(window)), [mean])

    def reduction(self, operation: Reduction, node: Node) -> OnnxTensor:
        if operation.kind == "argmax":
            return self.argmax(operation, node)
        return self.pooling(operation, node) or self.reduce(operation, node)

    def reduce(self, operation: Reduction, node: Node) -> OnnxTensor:
        shape, operands, kept = node.output.shape, node.operands, 0
        view = operands[0].view
        axes, whole = list(range(len(shape), len(view.shape))), view.shape
        source_axes = reduced_axes(view, len(shape)) if len({o.view for o in operands}) == 1 else []
        if source_axes:
            # The window is whole axes of the source: reduce the source itself along them.
            axes, whole, kept = source_axes, view.source, 1
            operands = tuple(replace(o, view=views.identity(whole)) for o in operands)
        body = self.reduction_input(operation, [self.load(o, 0) for o in operands], whole)
        result = tuple(1 if a in axes else n for a, n in enumerate(whole)) if kept else shape
        inputs = [body, self.writer.integers(*axes)]
        made = self.writer.emit(REDUCTIONS[operation.kind], inputs, body.dtype, result, keepdims=kept)
        return self.writer.reshape(made, shape)

    def reduction_input(self, operation: Reduction, loaded: list[OnnxTensor], seen: Shape) -> OnnxTensor:
        """Returns the tensor that a reduction runs over, in the shape of its views."""
        body = self.writer.compute(operation.body, loaded)
        return self.writer.expand(self.writer.cast(body, "int64") if body.dtype == "bool" else body, seen)

    def argmax(self, operation: Reduction, node: Node) -> OnnxTensor:
        """ArgMax along the window, reshaped to one axis."""
        seen = node.operands[0].view.shape
        body = self.reduction_input(operation, [self.load(o, 0) for o in node.operands], seen)
        return self.argmax_over_trailing_axes(body, node.output.shape)

    def argmax_over_trailing_axes(self, body: OnnxTensor, shape: Shape) -> OnnxTensor:
        """ArgMax over all axes after those of a shape."""
        flat = self.writer.reshape(body, (*shape, prod(body.shape[len(shape) :])))
        return self.writer.emit("ArgMax", [flat], "int64", shape, axis=len(shape), keepdims=0)

    def order(self, operation: Order, node: Node) -> OnnxTensor:
        """The positions that TopK returns with the elements."""
        x = self.load(node.operands[0], 1)
        x = self.writer.expand(self.writer.cast(x, "int64") if x.dtype == "bool" else x, node.operands[0].view.shape)
        inputs = [x, self.writer.integers(node.output.shape[-1])]
        made = self.writer.emit("TopK", inputs, "int64", node.output.shape, largest=int(operation.largest))
        values = self.writer.unused(f"{made.name}.values")
        self.writer.nodes[-1].output[:] = [values, made.name]
        return made

    def suppression(self, operation: Suppression, node: Node) -> OnnxTensor:
        """The places that NonMaxSuppression finds, for descending scores, then -1."""
        boxes, count = self.load(node.operands[0], 2), self.load(node.operands[1], 1)
        (size, _), (most,) = node.operands[0].view.shape, node.output.shape
        boxes = self.writer.reshape(self.writer.cast(boxes, "float32"), (1, size, 4))
        numbers = self.writer.constant(numpy.arange(size, dtype=numpy.float32).reshape(1, 1, size))
        falling = apply("where", apply("less", _A, _B), apply("subtract", float(size), _A), -1.0)
        scores = self.writer.compute(falling, [numbers, self.writer.cast(count, "float32")])
        inputs = [boxes, scores, self.writer.integers(most), *(
            self.writer.constant(numpy.array([limit], numpy.float32)) for limit in (operation.overlap, 0.0)
        )]
        chosen = self.writer.emit("NonMaxSuppression", inputs, "int64", (most, 3))
        column = self.writer.emit("Gather", [chosen, self.writer.constant(numpy.array(2))], "int64", (most,), axis=1)
        rest = self.writer.constant(numpy.full(most, -1))
        padded = self.writer.emit("Concat", [column, rest], "int64", (2 * most,), axis=0)
        return self.writer.emit(
            "Slice", [padded, self.writer.integers(0), self.writer.integers(most)], "int64", (most,)
        )

    def gather(self, operation: Gather, node: Node) -> OnnxTensor:
        """Exports a gather, and the reduction of what it chooses if there is one."""
        indices, reduction, shape = index_operands_of(node), operation.reduction, node.output.shape
        chosen = self.gathered_elements(node.operands[0], indices)
        if reduction is None:
            return chosen
        rest = [self.load(o, 0) for o in node.operands[1 + len(indices) :]]
        body = self.reduction_input(reduction, [chosen, *rest], chosen.shape)
        if reduction.kind == "argmax":
            return self.argmax_over_trailing_axes(body, shape)
        axes = self.writer.integers(*range(len(shape), len(chosen.shape)))
        return self.writer.emit(REDUCTIONS[reduction.kind], [body, axes], body.dtype, shape, keepdims=0)

    def gathered_elements(self, table: Operand, indices: Sequence[Operand]) -> OnnxTensor:
        """A Gather from the flattened table at row-major positions, and a Where for each test that selects the fill."""
        view, rank = table.view, len(indices[0].view.shape)
        counted = axis_index_arrays(view.shape[:rank], range(rank))
        grids = {name: self.writer.constant(grid) for name, grid in counted.items()}
        tests = []
        for number, operand in enumerate(indices):
            index = self.load(operand, 0)
            index = index if index.dtype == "int64" else self.writer.compute(apply("round", _A), [index])
            inside = apply("and", apply("less_equal", 0.0, _A), apply("less", _A, view.shape[rank + number]))
            tests.append(self.writer.compute(inside, [index]))
            safe = self.writer.compute(apply("where", _A, _B, 0.0), [tests[-1], index])
            grids[f"i{rank + number}"] = self.writer.cast(safe, "int64")
        for bound in view.bounds:
            inside = apply("and", apply("less_equal", bound.low, _A), apply("less", _A, bound.high))
            tests.append(self.writer.compute(inside, [self.index_value(bound.index, grids)]))
        flat: Expression = Literal(0.0)
        places = [self.index_value(e, grids) for e in view.index]
        for number, size in enumerate(view.source):
            clipped = apply("minimum", apply("maximum", Argument(number), 0.0), size - 1)
            flat = apply("add", apply("multiply", flat, size), clipped)
        position = self.writer.as_tensor(Literal(0.0), "int64") if not places else self.writer.compute(flat, places)
        value = self.graph.values[table.value]
        if table.value in self.graph.constants:
            self.writer.initializers[table.value] = self.graph.constants[table.value]
        source = self.writer.cast(OnnxTensor(value.name, value.dtype, value.shape), compute_dtype(value.dtype))
        source = self.writer.cast(source, "int64") if source.dtype == "bool" else source
        flattened = self.writer.reshape(source, (value.size,))
        read = self.writer.emit("Gather", [flattened, position], source.dtype, position.shape, axis=0)
        for test in tests:
            read = self.writer.compute(apply("where", _A, _B, table.fill), [test, read])
        return self.writer.expand(read, indices[0].view.shape)

    def index_value(self, index: Index, values: Mapping[str, OnnxTensor]) -> OnnxTensor:
        """The value of an index expression, given tensors for its variables."""
        total: Expression = Literal(float(index.constant))
        tensors = []
        for atom, factor in index.terms:
            if isinstance(atom, Variable):
                part = values[atom.name]
            else:
                part = self.index_value(atom.value, values)
                if isinstance(atom, Lookup):
                    clipped = apply("minimum", apply("maximum", _A, 0.0), len(atom.table) - 1)
                    place = self.writer.compute(clipped, [part])
                    table = self.writer.integers(*atom.table)
                    part = self.writer.emit("Gather", [table, place], "int64", place.shape, axis=0)
                else:
                    rest = apply("modulo", _A, atom.divisor)
                    down = apply("quotient", apply("subtract", _A, rest), atom.divisor)
                    part = self.writer.compute(down if isinstance(atom, Division) else rest, [part])
            tensors.append(part)
            total = apply("add", total, apply("multiply", Argument(len(tensors) - 1), factor))
        if not tensors:
            return self.writer.as_tensor(Literal(float(index.constant)), "int64")
        return self.writer.compute(total, tensors)


# The export of each operation.
EXPORTS: Mapping[type[Operation], Callable[[NodeExporter, Any, Node], OnnxTensor]] = {
    Load: NodeExporter.movement, Reduction: NodeExporter.reduction, Convolution: NodeExporter.convolution,
    Product: NodeExporter.product, Concatenation: NodeExporter.concatenation, Gather: NodeExporter.gather,
    Order: NodeExporter.order, Suppression: NodeExporter.suppression, Recurrence: NodeExporter.recurrence,
}
