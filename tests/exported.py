"""Checking an exported graph with onnxruntime, and the graphs of one node that such tests export."""

from __future__ import annotations

from typing import Any

import numpy
import onnx.checker

import imgconv
from imgconv.graph.evaluate import evaluate_graph
from imgconv.graph.nodes import Graph, Node, Operand, Operation, Value
from imgconv.graph.view import View
from support import assert_close, run_oracle


def check(graph: Graph, arrays: dict[str, Any], tolerance: float = 1e-5) -> onnx.ModelProto:
    """The exported graph is valid and gives in onnxruntime what the graph means in numpy."""
    model = imgconv.export_onnx(graph.validate())
    onnx.checker.check_model(model, full_check=True)
    assert_close(run_oracle(model, arrays), evaluate_graph(graph, arrays), tolerance)
    return model


def one_node(
    shape: tuple[int, ...], operation: Operation, operands: list[tuple[Any, View]], fill: float = 0.0,
    dtype: str = "float32", **rest: Any,
) -> tuple[Graph, dict[str, Any]]:
    """A graph of one node and its inputs: an array and a view of it for each operand."""
    arrays = {f"x{i}": array for i, (array, _) in enumerate(operands)}
    reads = tuple(Operand(name, seen, fill) for name, (_, seen) in zip(arrays, operands, strict=True))
    inputs = tuple(Value(name, array.shape, str(array.dtype)) for name, array in arrays.items())
    return Graph(inputs, ("y",), (Node(Value("y", shape, dtype), operation, reads, **rest),)), arrays


def operators(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


def counted(shape: tuple[int, ...], dtype: str) -> Any:
    return (1 + numpy.arange(numpy.prod(shape, dtype=int))).reshape(shape).astype(dtype)
