"""Export to ONNX: the model as a whole, its names, and its file."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import onnx.checker
import pytest

import imgconv
from exported import check
from graphs import const, inputs_of, numbers, small_networks
from imgconv.graph.evaluate import evaluate_graph
from imgconv.graph.nodes import Graph, Value
from imgconv.onnx_import import import_onnx
from imgconv.tensor import Tensor, build_graph, origin
from support import assert_close


def test_names_and_origins_are_kept() -> None:
    x = Tensor.input("pixels", (1, 3, 4, 4))
    with origin("stem/Conv"):
        stem = x.conv2d(const(8, 3, 3, 3, name="stem.weight")).named("stem")
    graph = build_graph({"scores": stem.relu()}, name="tiny")
    model = check(graph, inputs_of(graph))
    assert model.graph.name == "tiny"
    assert [i.name for i in model.graph.input] == ["pixels"]
    assert [o.name for o in model.graph.output] == ["scores"]
    assert [(n.op_type, *n.input, *n.output) for n in model.graph.node] == [
        ("Conv", "pixels", "stem.weight", "stem"), ("Relu", "stem", "scores")
    ]
    assert [n.doc_string for n in model.graph.node] == ["stem/Conv", ""]
    assert [i.name for i in model.graph.initializer] == ["stem.weight"]


def test_names_that_the_exporter_would_choose_itself() -> None:
    x = Tensor.input("y.reshape", (2, 3))
    graph = build_graph({"y": (x.reshape(3, 2) + 1).transpose(), "y.constant": x * 2, "y.add": x + 3})
    check(graph, inputs_of(graph))


def test_inputs_and_constants_may_be_outputs() -> None:
    x = Value("x", (2,), "float32")
    graph = Graph((x,), ("x", "c"), (), {"c": numbers(3)})
    check(graph, {"x": numbers(2)})


def test_unused_constants_are_left_out() -> None:
    graph = build_graph({"y": Tensor.input("x", (2,)) + 1})
    model = check(replace(graph, constants={"unused": numbers(9)}), inputs_of(graph))
    assert "unused" not in {i.name for i in model.graph.initializer}


def test_what_is_exported_can_be_imported() -> None:
    graph = small_networks()["squeeze and excite"]
    again = import_onnx(imgconv.export_onnx(graph))
    assert again.inputs == graph.inputs
    arrays = inputs_of(graph)
    assert_close(evaluate_graph(again, arrays), evaluate_graph(graph, arrays), 1e-5)


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "model.onnx"
    graph = build_graph({"y": Tensor.input("x", (2,)) + 1})
    model = imgconv.export_onnx(graph, path)
    assert onnx.load(path) == model

    def fail(number: int) -> None:
        raise OSError(errno.ENOSPC, "the disk is full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(imgconv.InputError, match="cannot write .*full"):
        imgconv.export_onnx(build_graph({"y": Tensor.input("x", (2,)) * 2}), str(path))
    assert onnx.load(path) == model
    assert list(tmp_path.iterdir()) == [path]
