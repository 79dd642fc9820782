"""Export of views to ONNX, judged by onnxruntime: any view is right, and the usual ones are few operators."""

from __future__ import annotations

from dataclasses import replace

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exported import check, counted, one_node, operators
from graphs import inputs_of, numbers
from imgconv.graph import view
from imgconv.graph.expression import Argument, apply
from imgconv.graph.nodes import IDENTITY, Load, Operand, Value
from imgconv.graph.view import View
from imgconv.tensor import Tensor, build_graph
from test_view import CONSTRUCTORS


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_any_view(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4)))
    dtype = data.draw(st.sampled_from(["float32", "float32", "float16", "int64", "bool", "uint8"]))
    source = counted(shape, dtype)
    seen, moved = view.identity(shape), source
    for _ in range(data.draw(st.integers(1, 4))):
        made, moved = data.draw(data.draw(st.sampled_from(CONSTRUCTORS))(moved))
        seen = made.composed_with(seen)
        if moved.size > 3000 or moved.ndim > 7:
            break
    fill = data.draw(st.sampled_from([0.0, 1.0, 7.0]))
    graph, arrays = one_node(seen.shape, Load(), [(source, seen)], fill, dtype)
    check(graph, arrays, 0)
    # The same of a constant, beside something that broadcasts.
    constant = Operand("c", seen, fill)
    joined = replace(
        graph.nodes[0], epilogue=apply("add", IDENTITY, Argument(1)), epilogue_operands=(constant,),
        output=Value("y", seen.shape, "float32"),
    )
    check(replace(graph, nodes=(joined,), constants={"c": numbers(*shape)}), arrays, 1e-6)


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (view.identity((2, 3)), ["Identity"]),
        (view.reshape((2, 6), (3, 4)), ["Reshape"]),
        (view.reshape((1, 6, 1), (6,)), ["Reshape"]),
        (view.transpose((2, 3, 4), (2, 0, 1)), ["Transpose"]),
        (view.transpose((1, 3, 4, 5), (0, 2, 3, 1)), ["Transpose"]),
        (view.transpose((1, 3, 1, 4), (2, 1, 3, 0)), ["Reshape"]),
        (view.expand((3, 1), (2, 3, 4)), ["Reshape", "Expand"]),
        (view.slice_((5, 6), (1, 5), (2, 6), (2, -1)), ["Slice", "Slice"]),
        (view.pad((2, 3), (1, 0), (0, 2)), ["Pad"]),
        (view.pad((4, 5), (-1, 2), (0, 0)), ["Slice", "Gather", "Where"]),
        (view.take((2, 5), 1, (4, 0, 1)), ["Gather"]),
        (view.windows((1, 2, 9), (4,), (3,), (2,), (1,), (0,)), ["Gather", "Reshape"]),
        (view.windows((2, 8, 8), (3, 3), (3, 3), (2, 2), (1, 1), (0, 0)), ["Gather", "Gather", "Reshape", "Transpose"]),
    ],
)
def test_views_of_one_kind_are_few_operators(seen: View, expected: list[str]) -> None:
    graph, arrays = one_node(seen.shape, Load(), [(counted(seen.source, "float32"), seen)])
    assert operators(check(graph, arrays, 0)) == expected


def test_depth_to_space_is_three_operators() -> None:
    graph = build_graph({"y": Tensor.input("x", (1, 8, 3, 5)).depth_to_space(2)})
    assert operators(check(graph, inputs_of(graph), 0)) == ["Reshape", "Transpose", "Reshape"]


def test_empty_and_scalar_tensors() -> None:
    x, s = Tensor.input("x", (2, 0, 3)), Tensor.input("s", ())
    outputs = {
        "flat": x.reshape(0, 6), "zero": x.sum([1]), "padded": x.pad([0, 1, 0], [0, 1, 0], 3.0),
        "wide": s.expand(2, 3), "twice": s * 2, "row": s.reshape(1, 1),
    }
    check(build_graph(outputs), {"x": numpy.zeros((2, 0, 3), "float32"), "s": numpy.array(1.5, "float32")})
