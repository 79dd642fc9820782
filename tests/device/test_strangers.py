"""Compiled files of strangers: with trusted=False their graph is taken, not their kernels and programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest
from graphs import const

import imgconv
from imgconv.cl.device import DeviceInfo
from imgconv.config import Config
from imgconv.errors import ConfigError, ModelError, UnsupportedError
from imgconv.files.container import write_container
from imgconv.graph.evaluate import evaluate_graph
from imgconv.graph.nodes import Graph
from imgconv.limits import Limits
from imgconv.loading.plans import prepare_for
from imgconv.stored.compiled_file import DevicePlan, SizedModel, model_values, schema
from imgconv.tensor import Tensor, build_graph

X = numpy.random.default_rng(0).normal(size=(1, 3, 9, 7)).astype(numpy.float32)


@pytest.fixture(scope="module")
def graph() -> Graph:
    x = Tensor.input("x", X.shape)
    return build_graph({"y": x.conv2d(const(6, 3, 3, 3), const(6), padding=1).relu().sum([1])}, [x])


def crafted(path: Path, device: DeviceInfo, graph: Graph, **changes: Any) -> Path:
    """A compiled file whose plan is changed: by field of its first plan, a function of the field's value."""
    prepared = prepare_for(device, graph, Config())
    plan = DevicePlan(prepared.plan(), device.key, prepared.target)
    values, blobs = model_values([SizedModel(prepared.graph, Config(), [plan])])
    for name, change in changes.items():
        values["plans"][0][name] = change(values["plans"][0][name])
    write_container(path, schema().pack(values), blobs)
    return path




def test_kernels_of_a_stranger_are_not_run(device: DeviceInfo, graph: Graph, tmp_path: Path) -> None:
    path = crafted(tmp_path / "m", device, graph, kernels=lambda kernels: [
        {**each, "text": f"#error a stranger's\n{each['text']}"} for each in kernels
    ])
    with pytest.raises(imgconv.Error, match="a stranger's"):
        imgconv.load(path, device=device)
    found = imgconv.load(path, device=device, trusted=False).run({"x": X})["y"]
    numpy.testing.assert_allclose(found, evaluate_graph(graph, {"x": X})["y"], atol=1e-5)


def test_a_file_of_ones_own_is_the_same_either_way(device: DeviceInfo, graph: Graph, tmp_path: Path) -> None:
    path = crafted(tmp_path / "m", device, graph)
    own, stranger = (imgconv.load(path, device=device, trusted=trusted) for trusted in (True, False))
    numpy.testing.assert_allclose(own.run({"x": X})["y"], stranger.run({"x": X})["y"], atol=1e-5)
    assert not any(t.descriptor.linear for t in stranger.plan.textures)


@pytest.mark.parametrize("trusted", [True, False])
def test_limits_hold_for_compiled_files(trusted: bool, device: DeviceInfo, graph: Graph, tmp_path: Path) -> None:
    path = crafted(tmp_path / "m", device, graph)
    imgconv.load(path, device=device, limits=Limits(bytes=2**16), trusted=trusted)
    with pytest.raises(UnsupportedError, match="takes 756 bytes, more than 100") as caught:
        imgconv.load(path, device=device, limits=Limits(bytes=100), trusted=trusted)
    assert caught.value.file == str(path)
    with pytest.raises(ConfigError, match="is a compiled file: its settings"):
        imgconv.load(path, device=device, max_image=64, trusted=trusted)


CHANGES: dict[str, Any] = {
    "a launch of no kernel": {"launches": lambda found: [{**each, "kernel": 99} for each in found]},
    "arguments that are none": {"launches": lambda found: [{**each, "arguments": [99] * 9} for each in found]},
    "no work items": {"launches": lambda found: [{**each, "global_size": [0, 1, 1]} for each in found]},
    "no storages": {"storages": lambda found: []},
    "storages without a size": {"storages": lambda found: [{**each, "shape": [-5, 0]} for each in found]},
    "an input of another type": {"inputs": lambda found: [
        {**each, "value": {**each["value"], "dtype": "object"}} for each in found
    ]},
}


@pytest.mark.parametrize("change", CHANGES)
def test_plans_that_are_none(change: str, device: DeviceInfo, graph: Graph, tmp_path: Path) -> None:
    path = crafted(tmp_path / "m", device, graph, **CHANGES[change])
    with pytest.raises(imgconv.Error):
        imgconv.load(path, device=device).run({"x": X})
    imgconv.load(path, device=device, trusted=False).run({"x": X})


def with_index(values: dict[str, Any], levels: int) -> None:
    """Indices of which each holds the one before it twice."""
    for _ in range(levels):
        last = len(values["graph"]["indices"]) - 1
        term = {"coefficient": 1, "kind": "division", "size": 1, "index": last}
        values["graph"]["indices"].append({"constant": 0, "terms": [term, term]})


def rename(values: dict[str, Any]) -> None:
    for index in values["graph"]["indices"]:
        for term in index["terms"]:
            term["name"] = "i0); write_everything("


def grow(values: dict[str, Any]) -> None:
    for index in values["graph"]["indices"]:
        for term in index["terms"]:
            term["size"] = 2**40


def divide(values: dict[str, Any]) -> None:
    for index in values["graph"]["indices"]:
        for term in index["terms"]:
            term["kind"], term["size"], term["index"] = "division", 0, 0


GRAPHS: dict[str, Any] = {
    "an index that doubles 60 times": lambda values: with_index(values, 60), "text in a variable": rename,
    "variables that are larger than their axis": grow, "a division by zero": divide,
    "an operation that is none": lambda values: values["graph"]["expressions"].append(
        {"kind": "apply", "operation": "system", "arguments": []}),
    "a negative stride": lambda values: [
        node["operation"].update(strides=[-1, 0]) for node in values["graph"]["nodes"]
        if node["operation"]["kind"] == "convolution"],
}


@pytest.mark.parametrize("change", GRAPHS)
def test_graphs_that_are_none(change: str, device: DeviceInfo, graph: Graph, tmp_path: Path) -> None:
    prepared = prepare_for(device, graph, Config())
    values, blobs = model_values([SizedModel(prepared.graph, Config(), [])])
    GRAPHS[change](values)
    write_container(tmp_path / "m", schema().pack(values), blobs)
    with pytest.raises(ModelError) as caught:
        imgconv.load(tmp_path / "m", device=device, trusted=False)
    assert caught.value.file == str(tmp_path / "m")
