"""Exports a Recurrence as an ONNX Scan for each direction."""

from __future__ import annotations

from collections.abc import Sequence

import numpy
import onnx
import onnx.helper
import onnx.numpy_helper

from imgconv.graph.nodes import Recurrence
from imgconv.graph.view import Shape
from imgconv.onnx_export.writer import OnnxTensor, OnnxWriter, element_type


def recurrence(writer: OnnxWriter, operation: Recurrence, operands: Sequence[OnnxTensor], shape: Shape) -> OnnxTensor:
    """The states (S, T, N, D, H) of a Recurrence. operands: its operands in full, as float32."""
    made = [_direction(writer, operation, operands, direction) for direction in range(shape[3])]
    whole = []
    for number in range(shape[0]):
        parts = [writer.reshape(states[number], (1, *shape[1:3], 1, shape[4])) for states in made]
        whole.append(writer.emit("Concat", parts, "float32", (1, *shape[1:]), axis=3))
    return writer.emit("Concat", whole, "float32", shape, axis=0)


def _direction(
    writer: OnnxWriter, operation: Recurrence, operands: Sequence[OnnxTensor], direction: int
) -> list[OnnxTensor]:
    """Each state of one direction after each step, (T, N, H)."""
    x, weights, *rest = operands
    steps, batch, _, gates, hidden = x.shape
    picked = numpy.array([direction])
    given = writer.reshape(writer.pick(x, 2, picked), (steps, batch, gates, hidden))
    own = writer.pick(weights, 0, picked)
    matrices = [writer.reshape(writer.pick(own, 2, numpy.array([g])), (hidden, hidden)) for g in range(gates)]
    constant = [writer.reshape(writer.pick(t, 1, picked), (batch, hidden)) for t in rest]
    numbers = writer.constant(numpy.arange(steps, dtype=numpy.float32))
    count, back = len(operation.states), int(operation.reverse[direction])
    body = _scan_body(writer, operation, matrices, constant)
    made = writer.emit(
        "Scan", [*constant[:count], given, numbers], "float32", (steps, batch, hidden), body=body, num_scan_inputs=2,
        scan_input_directions=[back, back], scan_output_directions=[back] * count,
    )
    names = [writer.unused(f"{made.name}.{n}") for n in range(2 * count)]
    writer.nodes[-1].output[:] = names
    return [OnnxTensor(name, "float32", made.shape) for name in names[count:]]


def _scan_body(
    outer: OnnxWriter, operation: Recurrence, matrices: Sequence[OnnxTensor], constant: Sequence[OnnxTensor]
) -> onnx.GraphProto:
    """One step: the states, x of the step and its number to the states after it, given twice."""
    writer = OnnxWriter(())
    writer.used, writer.value = outer.used, outer.value
    (batch, hidden), count = constant[0].shape, len(operation.states)

    def declared(name: str, shape: Shape) -> OnnxTensor:
        return OnnxTensor(writer.unused(f"{outer.value.name}.{name}"), "float32", shape)

    states = [declared("state", (batch, hidden)) for _ in range(count)]
    given, number = declared("given", (batch, len(matrices), hidden)), declared("number", ())
    xs = [writer.reshape(writer.pick(given, 1, numpy.array([g])), (batch, hidden)) for g in range(len(matrices))]
    products = [writer.emit("MatMul", [states[0], matrix], "float32", (batch, hidden)) for matrix in matrices]
    arguments = [*xs, *products, *states, *constant[count:], number]
    if operation.inner is not None:
        inner = writer.expand(writer.compute(operation.inner, arguments), (batch, hidden))
        arguments[2 * len(matrices) - 1] = writer.emit("MatMul", [inner, matrices[-1]], "float32", (batch, hidden))
    made = [writer.cast(writer.compute(each, arguments), "float32") for each in operation.states]
    made = [writer.expand(each, (batch, hidden)) for each in made]
    outputs = [writer.emit("Identity", [each], "float32", each.shape) for _ in range(2) for each in made]

    def proto(tensor: OnnxTensor) -> onnx.ValueInfoProto:
        return onnx.helper.make_tensor_value_info(tensor.name, element_type("float32"), tensor.shape)

    return onnx.helper.make_graph(
        writer.nodes, "step", [proto(t) for t in (*states, given, number)], list(map(proto, outputs)),
        [onnx.numpy_helper.from_array(array, name) for name, array in writer.initializers.items()],
    )
