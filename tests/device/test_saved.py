"""Model.save and what load makes of the file: the same results, or an error, whatever happens to the file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections import OrderedDict
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy
import onnx
import pytest
from graphs import const
from kept import KEPT, assert_close, runs_of, weighed, weights_of
from support import damaged, make_input

import imgconv
from imgconv.cl.building import program
from imgconv.cl.device import DeviceInfo
from imgconv.files.container import PLAIN, START, VERSION
from imgconv.graph.evaluate import evaluate_graph
from imgconv.graph.nodes import Graph
from imgconv.kernels import kernel_source
from imgconv.loading.device_descriptions import read_device_description
from imgconv.loading.device_target import target_of
from imgconv.stored import compiled_file
from imgconv.tensor import Tensor, build_graph, concatenate

ROOT = Path(__file__).parent.parent.parent
X = numpy.random.default_rng(0).normal(size=(1, 3, 9, 7)).astype(numpy.float32)


def network() -> Graph:
    """Every kind of node, a constant output, an index output."""
    x = Tensor.input("x", X.shape)
    kept = x.conv2d(const(6, 3, 3, 3), const(6), padding=1).relu()
    pooled = concatenate([kept.max_pool(2, 2), kept.slice(2, 0, 4).slice(3, 0, 3).exp()], 1)
    scores = pooled.global_average_pool().flatten().linear(const(5, 12))
    return build_graph({"y": scores.softmax(1), "kept": kept, "labels": Tensor.constant(numpy.arange(5))}, [x])


def outputs(model: imgconv.Model) -> dict[str, Any]:
    return model.run({"x": X})


def same(found: dict[str, Any], expected: dict[str, Any], tolerance: float = 0.0) -> bool:
    return found.keys() == expected.keys() and all(
        numpy.allclose(found[n], expected[n], rtol=0, atol=tolerance) for n in expected
    )


@pytest.fixture(scope="module")
def graph() -> Graph:
    return network()


@pytest.fixture(scope="module")
def path(device: DeviceInfo, graph: Graph, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "m.imgconv"
    imgconv.load(graph, device=device).save(path)
    return path


def test_programs_hold_what_a_launch_compiles(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    """PoCL compiles a kernel when it is launched: what is saved before a run is what is saved after one."""
    x = y = Tensor.input("x", X.shape)
    for unknown in numpy.random.default_rng().random(8):  # no driver's cache has these kernels
        y = y.max_pool(3, 1, 1) * float(unknown)
    network = build_graph({"y": y}, [x])
    fresh = [len(each) for each in imgconv.load(network, device)._last.session.binaries()]
    monkeypatch.setattr(program, "_built", OrderedDict())
    model = imgconv.load(network, device)
    outputs(model)
    assert [len(each) for each in model._last.session.binaries()] == fresh


@pytest.mark.parametrize("settings", [{}, {"float16": 1}, {"max_image": 8}, {"native_explog": True}], ids=str)
def test_the_same_results(device: DeviceInfo, graph: Graph, tmp_path: Path, settings: dict[str, Any]) -> None:
    model = imgconv.load(graph, device=device, **settings)
    expected = outputs(model)
    model.save(tmp_path / "m")
    again = imgconv.load(tmp_path / "m", device=device)
    assert same(outputs(again), expected)
    assert str(again.plan) == str(model.plan)
    assert str(again.graph) == str(model.graph)
    assert again.config == model.config
    assert same(expected, evaluate_graph(graph, {"x": X}), 1e-2)


def test_nothing_is_compiled_planned_or_imported(device: DeviceInfo, path: Path) -> None:
    """In a process of its own: no package but numpy and pyopencl, no pass, no lowering, no kernel source built."""
    script = f"""
        import sys, numpy, pyopencl, imgconv
        import imgconv.loading.compiled, imgconv.compiling.compiler, imgconv.cl.building.program
        def refuse(*arguments, **options):
            raise AssertionError("this is not wanted")
        imgconv.compiling.compiler.run_passes = imgconv.compiling.compiler.lower = refuse
        imgconv.cl.building.program._load_or_compile = refuse
        model = imgconv.load({str(path)!r}, device={device.index})
        model.run({{"x": numpy.zeros({X.shape}, "f4")}})
        assert not {{"onnx", "PIL", "rich", "flatbuffers"}} & set(sys.modules)
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(script)], check=True, cwd=ROOT)


def test_another_driver_builds_again(device: DeviceInfo, graph: Graph, path: Path) -> None:
    other = replace(device, driver_version="another")
    assert same(outputs(imgconv.load(path, device=other)), outputs(imgconv.load(graph, device=device)), 1e-6)


def test_another_device_plans_again(device: DeviceInfo, graph: Graph, path: Path) -> None:
    other = replace(device, max_image_width=64, max_image_height=32, compute_units=1)
    model = imgconv.load(path, device=other)
    # Its kernels add in another order, or by Winograd's filtering: 27 terms that are 10 together, each off by 2**-24.
    assert same(outputs(model), outputs(imgconv.load(graph, device=device)), 2e-5)
    assert all(max(t.tiling.image_size) <= 64 for t in model.plan.textures)


def test_a_device_that_is_not_at_hand(
    device: DeviceInfo, graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planned here from its description; there nothing is planned. The description is what `devices --json` prints."""
    phone = replace(device, kind="gpu", max_image_width=32, driver_version="theirs")
    description = {**asdict(phone), "default": True, "sources": {}}
    (tmp_path / "phone.json").write_text(json.dumps({"devices": [description]}))
    (tmp_path / "alone.json").write_text(json.dumps(description))
    assert read_device_description(tmp_path / "phone.json") == read_device_description(tmp_path / "alone.json") == phone
    model = imgconv.load(graph, device=device)
    model.save(tmp_path / "m", targets=[tmp_path / "phone.json", device])
    monkeypatch.setattr("imgconv.compiling.compiler.lower", None)
    for there in (phone, replace(phone, driver_version="newer"), device):
        again = imgconv.load(tmp_path / "m", device=there)
        assert same(outputs(again), evaluate_graph(graph, {"x": X}), 1e-4)
        assert (max(t.tiling.image_size[0] for t in again.plan.textures) <= 32) == (there.max_image_width == 32)


def test_a_binary_that_the_driver_refuses(device: DeviceInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = imgconv.load(network(), device=device)
    monkeypatch.setattr(type(model._last.session), "binaries", lambda self: (b"no program",) * 9)
    model.save(tmp_path / "m")
    assert same(outputs(imgconv.load(tmp_path / "m", device=device)), outputs(model))


def test_a_file_that_needs_a_newer_reader(device: DeviceInfo, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_file, "READS", 0)
    message = "imgconv .* compiled it for readers of version [0-9], imgconv .* reads 0: compile it again"
    with pytest.raises(imgconv.ModelError, match=f"file '.*m.imgconv': {message}"):
        imgconv.load(path, device=device)


def test_other_helper_functions(
    device: DeviceInfo, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of an imgconv whose common.cl differs: its kernels may call what is not there, so they are made anew."""
    other = tmp_path / "common.cl"
    other.write_text(kernel_source.COMMON.read_text() + "#define CHANGED\n")
    monkeypatch.setattr(kernel_source, "COMMON", other)
    assert compiled_file.SavedModel.open(path).plan_for(device.key, target_of(device)) is None
    assert same(outputs(imgconv.load(path, device=device)), evaluate_graph(network(), {"x": X}), 1e-4)


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_a_file_of_an_earlier_format(path: Path, device: DeviceInfo) -> None:
    model = imgconv.load(path, device=device)
    for given, expected in runs_of(path):
        assert_close(path, model.run(given), expected)
    plans = [each.plan for saved in compiled_file.SavedModel.open(path).sizes for each in saved.read_plans()]
    assert all(plan.launches for plan in plans)
    weights = [[weighed(content) for content in plan.content.values()] for plan in plans]
    numpy.testing.assert_allclose(weights, weights_of(path), rtol=1e-12)


def test_every_format_of_containers_is_kept() -> None:
    assert {START.unpack(path.read_bytes()[: START.size])[1] for path in KEPT} == {PLAIN, VERSION}


def test_settings_are_in_the_file(device: DeviceInfo, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for settings in ({"float16": 1}, {"shapes": {"x": (1, 3, 4, 4)}}, {"max_image": 64}, {"native_explog": False}):
        with pytest.raises(imgconv.ConfigError, match="is a compiled file: its settings and shapes cannot be changed"):
            imgconv.load(path, device=device, **settings)
    monkeypatch.setenv("FLOAT16", "1")
    assert imgconv.load(path, device=device).config.float16 == 0
    with pytest.raises(imgconv.InputError, match="has shape"):
        imgconv.load(path, device=device).run({"x": X[:, :, :4]})


def test_a_saved_model_streams(device: DeviceInfo, tmp_path: Path) -> None:
    x, total = Tensor.input("x", (1, 4)), Tensor.input("total", (1, 4))
    imgconv.load(build_graph({"sum": total + x, "y": total * 2}, [x, total]), device=device).save(tmp_path / "m")
    stream = imgconv.load(tmp_path / "m", device=device).stream({"sum": "total"})
    assert [stream.run({"x": numpy.ones((1, 4))})["y"][0, 0] for _ in range(3)] == [0, 2, 4]


def test_damage_is_found(device: DeviceInfo, path: Path, tmp_path: Path) -> None:
    expected, refused = outputs(imgconv.load(path, device=device)), 0
    for content in damaged(path.read_bytes()):
        (tmp_path / "m").write_bytes(content)
        try:
            found = outputs(imgconv.load(tmp_path / "m", device=device))
        except imgconv.ModelError as error:
            assert str(tmp_path / "m") in str(error)
            refused += 1
        else:
            # Between sections, or in the graph, which nobody read.
            assert same(found, expected)
    assert refused > 200


def test_a_kill_while_saving_leaves_the_old_file(device: DeviceInfo, path: Path, tmp_path: Path) -> None:
    target = tmp_path / "m"
    target.write_bytes(path.read_bytes())
    script = f"""
        import imgconv
        model = imgconv.load({str(path)!r}, device={device.index})
        model.save({str(target)!r})
        print("ready", flush=True)
        while True:
            model.save({str(target)!r})
    """
    expected = outputs(imgconv.load(path, device=device))
    for delay in (0.0, 0.003, 0.01, 0.02):
        with subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, cwd=ROOT
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(delay)
            os.kill(process.pid, signal.SIGKILL)
        assert same(outputs(imgconv.load(target, device=device)), expected)


def several_sizes() -> onnx.ModelProto:
    """A convolution with many weights, for pictures of any size."""
    weights = numpy.random.default_rng(0).random((64, 64, 3, 3), numpy.float32)
    nodes = [onnx.helper.make_node("Conv", ["x", "w"], ["y"])]
    graph = onnx.helper.make_graph(
        nodes, "g", [make_input("x", "f4", (1, 64, "h", "w_"))], [onnx.ValueInfoProto(name="y")],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)])


def test_a_file_for_several_sizes(device: DeviceInfo, tmp_path: Path) -> None:
    """Each run takes the plan of its shapes; the weights are in the file once."""
    small, large = (numpy.random.default_rng(0).random((1, 64, *size), numpy.float32) for size in ((6, 8), (12, 9)))
    model = imgconv.load(several_sizes(), device=device, shapes={"x": small.shape})
    model.save(tmp_path / "one", targets=["generic"])  # without the driver's programs
    model.save(tmp_path / "two", targets=["generic"], sizes=[{"x": large.shape}])
    added = (tmp_path / "two").stat().st_size - (tmp_path / "one").stat().st_size
    assert 0 < added < model.plan.weight_bytes
    model.save(tmp_path / "both", sizes=[{"x": large.shape}])
    both = imgconv.load(tmp_path / "both", device=device)
    for x in (small, large, small):
        assert both.run({"x": x})["y"].tobytes() == model.run({"x": x})["y"].tobytes()
        assert both.inputs["x"].shape == x.shape
    assert len(both._plans) == 2
    chosen = imgconv.load(tmp_path / "both", device=device, shapes={"x": large.shape})
    assert chosen.inputs["x"].shape == large.shape
    with pytest.raises(imgconv.InputError, match=r"compiled for x \[1, 64, 6, 8\]; or x \[1, 64, 12, 9\]; not for"):
        both.run({"x": large[..., :-1]})
    with pytest.raises(imgconv.ConfigError, match=r"x \[1, 64, 12, 9\]; not for x \[1, 64, 5, 5\]"):
        imgconv.load(tmp_path / "both", device=device, shapes={"x": (1, 64, 5, 5)})
    both.save(tmp_path / "again", sizes=[{"x": small.shape}])
    again = imgconv.load(tmp_path / "again", device=device)
    assert again.inputs["x"].shape == small.shape  # that of the last run
