"""Export to ONNX after each pass, judged by onnxruntime: networks, whole models, and passes broken on purpose."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import given, settings

from graphs import Network, Pass, const, inputs_of, networks, small_networks
from imgconv.graph.expression import Argument, apply
from imgconv.graph.nodes import IDENTITY, Concatenation, Convolution, Graph, Node, Operand
from imgconv.onnx_import import import_onnx
from imgconv.passes import PIPELINE
from imgconv.tensor import Tensor, build_graph, concatenate
from models import MODELS
from pass_by_pass import check_pass_by_pass


@pytest.mark.parametrize("name", small_networks())
def test_small_networks_pass_by_pass(name: str) -> None:
    graph = small_networks()[name]
    check_pass_by_pass(graph, inputs_of(graph))


def test_a_reduction_that_is_split_pass_by_pass() -> None:
    x = Tensor.input("x", (1, 2, 600, 500))
    graph = build_graph({"y": (x - x.mean([2, 3], keepdims=True)).max([2, 3])})
    assert "y.rows" in check_pass_by_pass(graph, inputs_of(graph)).values


@given(networks())
@settings(max_examples=40, deadline=None)
def test_random_networks_pass_by_pass(network: Network) -> None:
    graph = network.graph
    # A gather that no output needs has left its indices without a reader.
    check_pass_by_pass(graph, {value.name: network.inputs[value.name] for value in graph.inputs})


def drop_bias(graph: Graph) -> Graph:
    """A pass broken on purpose: what is added by channel is forgotten."""
    added = apply("add", IDENTITY, Argument(1))
    without = (replace(n, epilogue=IDENTITY, epilogue_operands=()) if n.epilogue == added else n for n in graph.nodes)
    return replace(graph, nodes=tuple(without))


def shift_views(graph: Graph) -> Graph:
    """A pass broken on purpose: views with bounds read one position further along their last axis."""
    def shifted(operand: Operand) -> Operand:
        index = operand.view.index
        moved = replace(operand.view, index=(*index[:-1], index[-1] + 1))
        return replace(operand, view=moved) if operand.view.bounds else operand

    return replace(graph, nodes=tuple(replace(n, operands=tuple(map(shifted, n.operands))) for n in graph.nodes))


def swap_parts(graph: Graph) -> Graph:
    """A pass broken on purpose: concatenations turn round parts of equal shape."""
    swapped = (
        replace(n, operands=n.operands[::-1]) if isinstance(n.operation, Concatenation) else n for n in graph.nodes
    )
    return replace(graph, nodes=tuple(swapped))


def double_pads(graph: Graph) -> Graph:
    """A pass broken on purpose: convolutions pad twice as much before their input."""
    def padded(node: Node) -> Node:
        if not isinstance(node.operation, Convolution):
            return node
        top, left = node.operation.pads
        return replace(node, operation=replace(node.operation, pads=(2 * top, 2 * left)))

    return replace(graph, nodes=tuple(map(padded, graph.nodes)))


@pytest.mark.parametrize("broken", [drop_bias, shift_views, swap_parts, double_pads], ids=lambda f: f.__name__)
@pytest.mark.parametrize("place", [0, 6])
def test_a_broken_pass_is_named(broken: Pass, place: int) -> None:
    x = Tensor.input("x", (1, 4, 8, 8))
    made = x.conv2d(const(4, 4, 3, 3), const(4), padding=1)
    graph = build_graph({"y": concatenate([made, x], 1).max_pool(3, 2, 1)})
    passes = (*PIPELINE[:place], broken, *PIPELINE[place:])
    with pytest.raises(AssertionError, match=rf"after pass {place + 1} of {len(passes)}, {broken.__name__}: "):
        check_pass_by_pass(graph, inputs_of(graph), passes)


# Whole models

# The largest: they run with -m models.
SLOW = ("yolo", "supercombo", "efficientnet_b0", "resnet50")


def marked(name: str) -> Any:
    return pytest.param(name, marks=pytest.mark.models) if name in SLOW else name


@pytest.mark.parametrize("name", [marked(name) for name in MODELS])
def test_models_pass_by_pass(name: str) -> None:
    """Narrow and at a reduced size, so that this is quick; batch 2, so that nothing relies on one."""
    graph = MODELS[name](width=0.25, size=64, batch=2)
    check_pass_by_pass(graph, inputs_of(graph))


@pytest.mark.models
@pytest.mark.parametrize("name", MODELS)
def test_models_of_full_size_pass_by_pass(name: str) -> None:
    graph = MODELS[name]()
    check_pass_by_pass(graph, inputs_of(graph))


FILES = sorted(Path(os.environ.get("IMGCONV_MODELS", os.devnull)).glob("*/*.onnx"))


@pytest.mark.models
@pytest.mark.skipif(not FILES, reason="IMGCONV_MODELS is not set: give the folder with the real models")
@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_real_models_pass_by_pass(path: Path) -> None:
    cases = (numpy.load(p) for p in sorted(path.parent.glob("case_*.npz")))
    graph = import_onnx(path)
    known = {v.name: (v.shape, v.dtype) for v in graph.inputs}
    given = ({key[3:]: case[key] for key in case.files if key.startswith("in:")} for case in cases)
    fits = (arrays for arrays in given if {n: (a.shape, str(a.dtype)) for n, a in arrays.items()} == known)
    arrays = next(fits, None)
    assert arrays is not None, f"no case fits {path}"
    half = "float16" in {v.dtype for v in graph.values.values()}
    check_pass_by_pass(graph, arrays, tolerance=3e-2 if half else 1e-4)
