"""The player in native/: the same bits as Python on the same driver, and an error for what it cannot run."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy
import pytest
from graphs import Taking, const, numbers, prefer_large_tiles
from plans import rows
from played import SETTINGS, Play, assert_same_bits, check, loaded
from published import REAL, needs_models
from support import HANG_TIMEOUT

import imgconv
from imgconv.cl.device import DeviceInfo, list_devices
from imgconv.config import Precision
from imgconv.graph.nodes import Graph
from imgconv.kernels.winograd.problem import Specialisation
from imgconv.loading import compiled, file_plans, plans
from imgconv.loading.device_target import target_of
from imgconv.preprocessing.preparation import FORMATS, Format
from imgconv.stored.blobs import BlobWriter
from imgconv.stored.compiled_file import DevicePlan, SavedModel, save_model
from imgconv.tensor import Tensor, build_graph, concatenate, less
from models import build
from tests.host_fallback_models import CASES

ROOT = Path(__file__).parent.parent.parent
X = numbers(1, 3, 9, 7)
NETWORKS: dict[str, dict[str, Any]] = {
    "squeezenet": {"size": 64}, "mobilenet_v3_small": {"size": 64}, "conv_gru": {"size": 64},
}


def network() -> Graph:
    """Every kind of node, a constant output, an index output."""
    x = Tensor.input("x", X.shape)
    kept = x.conv2d(const(6, 3, 3, 3), const(6), padding=1).relu()
    pooled = concatenate([kept.max_pool(2, 2), kept.slice(2, 0, 4).slice(3, 0, 3).exp()], 1)
    scores = pooled.global_average_pool().flatten().linear(const(5, 12))
    return build_graph({"y": scores.softmax(1), "kept": kept, "labels": Tensor.constant(numpy.arange(5))}, [x])


@pytest.mark.parametrize(
    ("name", "settings"),
    [("squeezenet", {"max_image": 64}), ("mobilenet_v3_small", {}), ("conv_gru", {"float16": 1})],
)
def test_the_same_bits_as_python(
    device: DeviceInfo, play: Play, tmp_path: Path, name: str, settings: dict[str, Any]
) -> None:
    check(loaded(build(name, **NETWORKS[name]), device, settings), device, play, tmp_path / "m")


@pytest.mark.models
@needs_models
@pytest.mark.parametrize("settings", SETTINGS[:2], ids=str)
@pytest.mark.parametrize("path", sorted(REAL.glob("*/*.onnx")) if REAL.name else [], ids=lambda path: path.stem)
def test_real_models(device: DeviceInfo, play: Play, tmp_path: Path, path: Path, settings: dict[str, Any]) -> None:
    """tests/native/check_models.py runs more."""
    check(loaded(path, device, settings), device, play, tmp_path / "m")


@pytest.mark.parametrize("settings", [{}, {"float16": 1}, {"max_image": 8}], ids=str)
def test_every_kind_of_node(device: DeviceInfo, play: Play, tmp_path: Path, settings: dict[str, Any]) -> None:
    """In half from a file for the player only."""
    check(loaded(network(), device, settings), device, play, tmp_path / "m", player_only="float16" in settings)


def test_sums_in_half(device: DeviceInfo, play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All of a sum, and runs of it; the nodes are not measured for this, which takes half a minute for a network."""
    monkeypatch.setattr(compiled, "read_choice", lambda key, graph: sums_in_turn(graph))
    model = loaded(network(), device, {"float16": 2})
    assert {launch.sums for launch in model.plan.launches} >= {"half", "runs"}
    check(model, device, play, tmp_path / "m")


@pytest.mark.parametrize("tile", [2, 4])
@pytest.mark.parametrize("kept", [frozenset(), frozenset({"y"})], ids=["half", "float"])
def test_winograd_on_a_phone(
    device: DeviceInfo, play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: frozenset[str], tile: int
) -> None:
    """The file has windows, of which the player makes the taps."""
    if not device.half_images:
        pytest.skip("the device has no textures of halves")
    taking = Taking(winograd2d=lambda *_: Specialisation((8, 4, 1)))
    large = frozenset("y" if tile == 4 else "")
    prefer_large_tiles(monkeypatch)
    monkeypatch.setattr(compiled, "read_choice", lambda key, graph: Precision(kept, large_tiles=large))
    for module in plans, file_plans:
        monkeypatch.setattr(module, "chooser_for", lambda *_: taking)
    scale = numpy.float32(10) ** -(numpy.arange(30) % 9).astype(numpy.float32)  # some weights are no normal halves
    weights = const(30, 32, 3, 3).numpy() * scale.reshape(30, 1, 1, 1)
    graph = build_graph({"y": Tensor.input("x", (1, 32, 12, 12)).conv2d(Tensor.constant(weights), padding=1)})
    model = loaded(graph, replace(device, kind="gpu", compute_units=2), {"float16": 1})
    assert any(launch.source.path.endswith("winograd2d.cl") for launch in model.plan.launches)
    check(model, device, play, tmp_path / "m")
    taps = [each.content.taps for each in first_plan(tmp_path / "m").storages if each.content]
    assert max(taps) == tile // 2


def test_constants_stored_as_bytes(
    device: DeviceInfo, play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file may store a constant in any type: the player reads as many bytes as that type has."""
    plain = BlobWriter.array

    def stored_as_bytes(blobs: BlobWriter, array: Any, rounded: bool = False) -> dict[str, Any]:
        as_bytes = array.astype(numpy.int8)
        if array.dtype != numpy.float32 or (as_bytes != array).any():
            return plain(blobs, array, rounded)
        return blobs.whole(as_bytes) | {"dtype": "float32", "shape": array.shape, "stored": "int8"}

    monkeypatch.setattr(BlobWriter, "array", stored_as_bytes)
    weights = numpy.arange(6 * 3 * 9, dtype=numpy.float32).reshape(6, 3, 3, 3) - 80
    graph = build_graph({"y": Tensor.input("x", X.shape).conv2d(Tensor.constant(weights), padding=1)})
    check(imgconv.load(graph, device=device), device, play, tmp_path / "m")
    assert any(each.content and each.content.stored == "int8" for each in first_plan(tmp_path / "m").storages)


def first_plan(path: Path) -> Any:
    return SavedModel.open(path).table.plans[0]


def sums_in_turn(graph: Graph) -> Precision:
    """In half, in runs and in float."""
    names = [node.output.name for node in graph.nodes]
    return Precision(runs=frozenset(names[1::3]), arithmetic=frozenset(names[2::3]))


@pytest.mark.parametrize("format", FORMATS)
def test_a_picture(device: DeviceInfo, play: Play, tmp_path: Path, format: Format) -> None:
    """The bytes of a camera's frame, in each format."""
    model = imgconv.load(network(), device=device).preprocess((50, 70), format, scale=1 / 255)
    check(model, device, play, tmp_path / "m")


def test_states_over_100_frames(device: DeviceInfo, play: Play, tmp_path: Path) -> None:
    """A recurrent network, in order; after a reset by frames in flight, which carry tags."""
    graph = build("conv_gru", size=32, width=0.5)
    stream = imgconv.load(graph, device=device).stream({"state_out": "state_in"})
    frames = numpy.random.default_rng(0).random((100, 1, 3, 32, 32), numpy.float32)
    expected = numpy.stack([stream.run({"frame": frame})["mask"] for frame in frames])
    assert not numpy.array_equal(expected[0], stream.run({"frame": frames[0]})["mask"])  # the state matters
    stream.save(tmp_path / "m")
    lines = f"""
        model = Player({str(tmp_path / "m")!r}, "{device.index}", frames=3)
        results["run"] = numpy.stack([model.run(dict(frame=frame))["mask"] for frame in given["x"]])
        model.reset()
        waiting, found = [], []
        for frame in given["x"]:
            if len(waiting) == 3:
                found.append(model.wait(waiting.pop(0))["mask"])
            waiting.append(model.submit(dict(frame=frame)))
        results["submit"] = numpy.stack(found + [model.wait(each)["mask"] for each in waiting])
        model.reset()
        tags, found = range(2**64 - 100, 2**64), []
        for number in range(103):
            if number >= 3:
                tag, made = model.wait_next()
                assert tag == tags[number - 3]
                found.append(made["mask"])
            if number < 100:
                model.submit_tagged(dict(frame=given["x"][number]), tags[number])
        results["tagged"] = numpy.stack(found)
        frame = model.submit(dict(frame=given["x"][0]))
        assert model.wait_next()[0] == frame
        assert list(model.inputs) == ["frame"] and list(model.outputs) == ["mask"]
        model.close()
    """
    found = play(lines, {"x": frames})
    assert_same_bits(found, {"run": expected, "submit": expected, "tagged": expected})


def test_native_functions_are_those_of_the_device_on_which_they_were_measured(
    device: DeviceInfo, play: Play, tmp_path: Path
) -> None:
    model = imgconv.load(build_graph({"y": Tensor.input("x", (1, 4, 5, 5)).sigmoid()}), device=device)
    measured, plain = (replace(target_of(device), native_functions=native) for native in (True, False))
    plans = {
        "own": [DevicePlan(model.plan, device.key, measured)],
        "other": [DevicePlan(model.plan, "another device", measured)],
        "both": [DevicePlan(model.plan, "another device", measured), DevicePlan(model.plan, "another device", plain)],
    }
    for name, made in plans.items():
        save_model(tmp_path / name, model._last.graph, model.config, made)
    lines = f"""
        for name in ("own", "both"):
            results[name] = Player({str(tmp_path)!r} + "/" + name, "{device.index}").run(given)["y"]
        try:
            Player({str(tmp_path / "other")!r}, "{device.index}")
        except PlayerError as error:
            assert error.status == "UNFIT" and "native functions" in error.message, error
        else:
            assert False
    """
    x = numbers(1, 4, 5, 5)
    expected = model.run({"x": x})["y"]
    assert_same_bits(play(lines, {"x": x}), {"own": expected, "both": expected})


def test_integers(device: DeviceInfo, play: Play, tmp_path: Path) -> None:
    """Converted as Python converts them; refused where a float does not hold them."""
    i, f, b = Tensor.input("i", (4,), "int64"), Tensor.input("f", (4,)), Tensor.input("b", (4,), "bool")
    outputs = {
        "sum": i + i, "whole": f.cast("int32"), "both": b.cast("float32") + f, "less": less(f, 1.0),
        "small": f.cast("int8"),
    }
    model = imgconv.load(build_graph(outputs, [i, f, b]), device=device)
    inputs = {
        "i": numpy.array([-3, 0, 7, 2**20]), "f": numpy.array([-2.5, 0, 1.5, 100], "f4"),
        "b": numpy.array([1, 0, 0, 1], bool),
    }
    expected = model.run(inputs)
    model.save(tmp_path / "m")
    lines = f"""
        model = Player({str(tmp_path / "m")!r}, "{device.index}")
        results.update(model.run(given))
        for name, wrong in (("i", 2**24 + 1), ("i", -2**24 - 1), ("i", -2**63)):
            try:
                model.run({{**given, name: numpy.full(4, wrong)}})
            except PlayerError as error:
                assert error.status == "RANGE" and str(wrong) in error.message, error
            else:
                assert False, wrong
        try:
            model.run({{**given, "f": numpy.full(4, numpy.nan, "f4")}})
        except PlayerError as error:
            assert error.status == "RANGE", error
        else:
            assert False, "NaN is no integer"
    """
    assert_same_bits(play(lines, inputs), expected)


def test_what_the_host_moves(device: DeviceInfo, play: Play, tmp_path: Path) -> None:
    """Integers past 2**24, beside ones that are computed with; by `run` and by `submit`, whose arrays may change."""
    i, j = Tensor.input("i", (2, 3), "int64"), Tensor.input("j", (2,), "int32")
    constant = Tensor.constant(numpy.array([2**40, -1]))
    outputs = {
        "turned": i.transpose(1, 0).slice(0, 1, 3), "joined": concatenate([i.flatten().reshape(6), constant], 0),
        "cast": j.cast("int64"), "taken": i.take(1, [2, 0, 2]), "padded": j.pad([1], [2]), "computed": j * 2,
    }
    model = imgconv.load(build_graph(outputs, [i, j]), device=device)
    assert model.plan.moved is not None and len(model.plan.moved.outputs) == 5
    inputs = {"i": numpy.array([[2**62, -(2**62), 3], [4, 2**33 + 1, -6]]), "j": numpy.array([2**22, -7], "i4")}
    expected = model.run(inputs)
    model.save(tmp_path / "m")
    lines = f"""
        model = Player({str(tmp_path / "m")!r}, "{device.index}")
        results.update(model.run(given))
        frame = model.submit(given)
        for array in model._kept:
            array[...] = 0
        results.update({{"later " + name: array for name, array in model.wait(frame).items()}})
    """
    assert_same_bits(play(lines, inputs), expected | {"later " + name: array for name, array in expected.items()})


def test_an_integer_that_chooses_another_is_refused(device: DeviceInfo, play: Play, tmp_path: Path) -> None:
    i, k = Tensor.input("i", (4,), "int64"), Tensor.input("k", (2,), "int64")
    imgconv.load(build_graph({"o": rows(i.reshape(4, 1), k), "p": i * 2}, [i, k]), device=device).save(tmp_path / "m")
    assert_refused(play, tmp_path / "m", device.index, "UNSUPPORTED", "output 'o' holds integers that the host chooses")


def test_mapped_inputs(device: DeviceInfo, play: Play, tmp_path: Path) -> None:
    """Filled in place, run after run; what the device keeps in another dtype cannot be mapped."""
    x, i = Tensor.input("x", X.shape), Tensor.input("i", (4,), "int64")
    model = imgconv.load(build_graph({"y": x.conv2d(const(6, 3, 3, 3)).relu(), "j": i * 2}, [x, i]), device=device)
    model.save(tmp_path / "m")
    i_values = numpy.arange(4)
    expected = {f"y{n}": model.run({"x": X * n, "i": i_values})["y"] for n in range(4)}
    lines = f"""
        model = Player({str(tmp_path / "m")!r}, "{device.index}")
        for n in range(4):
            mapped = model.map_input("x")
            assert mapped.ctypes.data == model.map_input("x").ctypes.data
            mapped[...] = given["x"] * n
            inputs = dict(given, x=mapped if n != 2 else given["x"] * 2)  # once something else is given
            results[f"y{{n}}"] = model.run(inputs)["y"]
        model.map_input("x")  # closing unmaps
        try:
            model.map_input("i")
        except PlayerError as error:
            assert error.status == "UNSUPPORTED" and "'i' is kept in an image, or in" in error.message, error
        else:
            assert False
        model.close()
    """
    assert_same_bits(play(lines, {"x": X, "i": i_values}), expected)


def test_opencl_buffers(device: DeviceInfo, play: Play, tmp_path: Path) -> None:
    """Inputs and outputs in buffers of the caller; what the device keeps in another dtype cannot be in one."""
    x, i = Tensor.input("x", X.shape), Tensor.input("i", (4,), "int64")
    half = Tensor.input("half", (1, 2, 3, 4), "float16")
    outputs = {"y": x.conv2d(const(6, 3, 3, 3)).relu(), "z": half * 2, "j": i * 2, "same": Tensor.constant(X)}
    model = imgconv.load(build_graph(outputs, [x, half, i]), device=device)
    model.save(tmp_path / "m")
    inputs = {"x": X, "half": numbers(1, 2, 3, 4).astype("f2"), "i": numpy.arange(4)}
    lines = f"""
        model = Player({str(tmp_path / "m")!r}, "{device.index}")
        results.update(model.run_with_buffers(given, ("x", "half", "y", "z")))
        for name in ("i", "j", "same"):
            try:
                model.run_with_buffers(given, (name,))
            except PlayerError as error:
                assert error.status == "ARGUMENT" and f"'{{name}}' can" in error.message, error
            else:
                assert False, name
        short = Buffer(model._model, given["x"][:, :2])
        try:
            arrays = model._given(given)
            arrays[0] = Array(None, given["x"].nbytes, short.memory)
            call("imgconv_submit", model._model, *counted(arrays), ctypes.byref(ctypes.c_uint64()))
        except PlayerError as error:
            assert error.status == "ARGUMENT" and "the buffer of 'x' has" in error.message, error
        else:
            assert False
    """
    assert_same_bits(play(lines, inputs), model.run(inputs))


def test_what_the_host_computes_is_refused(device: DeviceInfo, play: Play, tmp_path: Path) -> None:
    imgconv.load(CASES["detector"]()[0], device=device).save(tmp_path / "m")
    assert_refused(play, tmp_path / "m", device.index, "UNSUPPORTED", "node 'picked' and what follows it")


def assert_refused(play: Play, path: Path, device: int, status: str, message: str, **changed: str) -> None:
    lines = f"""
        try:
            Player({str(path)!r}, "{device}")
        except PlayerError as error:
            assert error.status == {status!r} and {message!r} in error.message, error
        else:
            assert False, "it was not refused"
    """
    play(lines, **changed)


def test_arguments_that_do_not_fit(device: DeviceInfo, play: Play, tmp_path: Path) -> None:
    model = imgconv.load(network(), device=device)
    model.save(tmp_path / "m")
    lines = f"""
        def refused(status, work, message=""):
            try:
                work()
            except PlayerError as error:
                assert error.status == status and message in error.message, error
            else:
                assert False
        model = Player({str(tmp_path / "m")!r}, "{device.index}", frames=1)
        refused("ARGUMENT", lambda: model.run(dict(x=given["x"][:, :2])))
        refused("ARGUMENT", lambda: model.wait(1))
        x, two, none = counted(model._given(given)), counted((Array * 2)()), (None, ctypes.c_size_t(0))
        number = ctypes.byref(ctypes.c_uint64())
        for name, arguments, problem in (
            ("run", (*none, *two), "inputs given is 0; the model has 1"),
            ("run", (*x, *two), "outputs given is 2; the model has 3"),
            ("run", (None, x[1], *two), "outputs given is 2"),
            ("run", (None, x[1], None, ctypes.c_size_t(3)), "outputs is NULL"),
            ("submit", (*two, number), "inputs given is 2; the model has 1"),
            ("submit_tagged", (*two, ctypes.c_uint64(1)), "inputs given is 2"),
            ("wait", (ctypes.c_uint64(1), *two), "outputs given is 2"),
            ("wait_next", (number, *two), "outputs given is 2"),
            ("profile", (*x, *none), "launches given is 0"),
        ):
            refused("ARGUMENT", lambda: call("imgconv_" + name, model._model, *arguments), problem)
        refused("ARGUMENT", lambda: call("imgconv_run", None, *none, *none))
        refused("ARGUMENT", lambda: model.profile(given))
        frame = model.submit(given)
        refused("BUSY", lambda: model.submit(given))
        results.update(model.wait(frame))
        refused("ARGUMENT", lambda: model.wait(frame))
        refused("ARGUMENT", lambda: model.wait_next())
        refused("FILE", lambda: Player("/dev/null"))
        refused("FILE", lambda: Player("no/such/file"))
        timed = Player({str(tmp_path / "m")!r}, "{device.index}", profile=True).profile(given)
        assert len(timed) == {len(model.plan.launches)} and min(seconds for _, seconds in timed) >= 0
    """
    assert_same_bits(play(lines, {"x": X}), model.run({"x": X}))


def test_the_devices(play: Play) -> None:
    found = play("results['json'] = numpy.array(devices_json())")
    listed = json.loads(str(found["json"]))["devices"]
    defaults = [each.pop("default") for each in listed]
    expected = json.loads(json.dumps([asdict(each) for each in list_devices()]))
    for each in expected:
        del each["dot_product"]  # only Python tries the instruction
    assert expected == listed
    assert sum(defaults) == 1


# Devices that do not fit

def test_no_library(device: DeviceInfo, play: Play, tmp_path: Path) -> None:
    """A dlopen that finds no OpenCL."""
    imgconv.load(network(), device=device).save(tmp_path / "m")
    (tmp_path / "none.c").write_text(
        "void *dlopen(const char *name, int flags) { (void)name; (void)flags; return 0; }\n"
    )
    command = ["c++", "-x", "c", "-shared", "-fPIC", "-o", tmp_path / "none.so", tmp_path / "none.c"]
    subprocess.run(command, check=True)
    lines = f"import subprocess, os; subprocess.run([{str(ROOT / 'build/native/imgconv-run')!r}, 'm']," + (
        " env={**os.environ, 'LD_PRELOAD': './none.so'}, check=False, stderr=open('log', 'w'))"
    )
    play(lines)
    assert "no OpenCL 1.2 library is found" in (tmp_path / "log").read_text()


def test_no_device(device: DeviceInfo, play: Play, tmp_path: Path) -> None:
    imgconv.load(network(), device=device).save(tmp_path / "m")
    (tmp_path / "none").mkdir()
    changed = {"OCL_ICD_VENDORS": str(tmp_path / "none"), "OCL_ICD_FILENAMES": ""}
    assert_refused(play, tmp_path / "m", 0, "DEVICE", "no OpenCL device is found", **changed)


def test_a_device_with_smaller_images(device: DeviceInfo, play: Play, tmp_path: Path) -> None:
    width = device.max_image_width
    large = replace(device, kind="gpu", max_image_width=4 * width, image_row_alignment=0, driver_version="theirs")
    x = Tensor.input("x", (1, 4, 2, 2 * width))
    graph = build_graph({"y": x.conv2d(const(4, 4, 1, 1)).max_pool(2, 2)}, [x])
    imgconv.load(graph, device=device).save(tmp_path / "m", targets=[large])
    wanted = f"image width in texels: the plan takes {2 * width}, the device has {width}"
    assert_refused(play, tmp_path / "m", device.index, "UNFIT", wanted)


def test_a_device_with_other_alignment(device: DeviceInfo, play: Play, tmp_path: Path) -> None:
    """A plan for images anywhere in a buffer, on a device that has them at some places, or none."""
    other = replace(device, kind="gpu", image_row_alignment=1, image_base_alignment=1, driver_version="theirs")
    x = Tensor.input("x", (1, 8, 5, 5))
    graph = build_graph({"y": x.conv2d(const(8, 8, 3, 3)).relu().conv2d(const(3, 8, 3, 3)).sigmoid()}, [x])
    imgconv.load(graph, device=device).save(tmp_path / "m", targets=[other])
    taken = 16 * device.image_row_alignment
    wanted = f"alignment of rows of images in buffers: the device takes multiples of {taken} bytes, the plan has "
    if not taken:
        wanted = "the device has no images in buffers, which the plan takes"
    assert_refused(play, tmp_path / "m", device.index, "UNFIT", wanted)


def test_a_plan_for_each_of_two_devices(device: DeviceInfo, play: Play, tmp_path: Path) -> None:
    """The plan of another device of the same limits runs, and the device's own one is preferred."""
    other = replace(device, driver_version="theirs")
    model = imgconv.load(network(), device=device)
    model.save(tmp_path / "m", targets=[other])
    found = play(f"results.update(Player({str(tmp_path / 'm')!r}, '{device.index}').run(given))", {"x": X})
    assert_same_bits(found, model.run({"x": X}))


def test_a_plan_for_any_phone(device: DeviceInfo, play: Play, tmp_path: Path) -> None:
    """Float sums in another order: 5e-6 is 20 of their roundings."""
    model = imgconv.load(network(), device=device)
    model.save(tmp_path / "m", targets=["generic"])
    found = play(f"results.update(Player({str(tmp_path / 'm')!r}, '{device.index}').run(given))", {"x": X})
    for name, array in model.run({"x": X}).items():
        numpy.testing.assert_allclose(found[name], array, rtol=5e-6, atol=5e-6)


# The folder of programs

def test_programs_are_kept(device: DeviceInfo, play: Play, tmp_path: Path) -> None:
    """A second open compiles nothing; damaged entries, and folders that cannot be used, only cost time."""
    model = imgconv.load(network(), device=device)
    model.save(tmp_path / "m", targets=[device])  # without the driver's programs
    expected, folder = model.run({"x": X}), tmp_path / "programs"
    folder.mkdir()
    start = f"results.update(Player({str(tmp_path / 'm')!r}, '{device.index}', cache=CACHE).run(given))"

    def run(cache: object) -> None:
        assert_same_bits(play(start.replace("CACHE", repr(str(cache))), {"x": X}), expected)

    run(folder)
    kept = {path: path.read_bytes() for path in folder.iterdir()}
    written = {path: path.stat().st_mtime_ns for path in kept}
    assert kept and all(path.suffix == ".program" for path in kept)
    run(folder)
    assert written == {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    for damage in (lambda c: c[: len(c) // 2], lambda c: c[:-1] + bytes([c[-1] ^ 1]), lambda c: b""):
        for path, content in kept.items():
            path.write_bytes(damage(content))
        run(folder)
        assert {path.read_bytes()[:12] for path in folder.iterdir()} == {c[:12] for c in kept.values()}
    for unusable in (tmp_path / "m", tmp_path / "no" / "folder", "/proc", "/dev/null"):
        run(unusable)


def test_a_full_disk(device: DeviceInfo, play: Play, tmp_path: Path) -> None:
    """Files may have 1000 bytes: no program is kept, and nothing half-written stays."""
    if device.platform == "Portable Computing Language":
        pytest.skip("its compiler fails itself if it cannot write files")
    model = imgconv.load(network(), device=device)
    model.save(tmp_path / "m", targets=[device])
    (tmp_path / "programs").mkdir()
    limit = (1000, resource.getrlimit(resource.RLIMIT_FSIZE)[1])
    lines = f"""
        import resource, signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, {limit})
        model = Player({str(tmp_path / "m")!r}, "{device.index}", cache="programs")
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        results.update(model.run(given))
    """
    assert_same_bits(play(lines, {"x": X}), model.run({"x": X}))
    assert not list((tmp_path / "programs").iterdir())


def test_two_processes_at_once(
    device: DeviceInfo, environment: dict[str, str], built: Path, tmp_path: Path
) -> None:
    model = imgconv.load(network(), device=device)
    model.save(tmp_path / "m", targets=[device])
    numpy.save(tmp_path / "x.npy", X)
    for name, array in model.run({"x": X}).items():
        numpy.save(tmp_path / f"{name}.npy", array)
    (tmp_path / "programs").mkdir()
    command = [built / "imgconv-run", "m", "--device", str(device.index), "--cache", "programs", "--input", "x=x.npy"]
    command += [text for name in model.outputs for text in ("--reference", f"{name}={name}.npy")]
    started = [subprocess.Popen(command, cwd=tmp_path, env=environment) for _ in range(2)]
    assert [process.wait(HANG_TIMEOUT) for process in started] == [0, 0]


def test_two_threads_and_two_models(device: DeviceInfo, play: Play, tmp_path: Path) -> None:
    model = imgconv.load(network(), device=device)
    model.save(tmp_path / "m", targets=[device])
    lines = f"""
        from concurrent.futures import ThreadPoolExecutor
        def work(number):
            model = Player({str(tmp_path / "m")!r}, "{device.index}")
            return [model.run(given)["y"] for _ in range(10)] + [shared.wait(shared.submit(given))["y"]]
        shared = Player({str(tmp_path / "m")!r}, "{device.index}", frames=4)
        with ThreadPoolExecutor(4) as pool:
            results["y"] = numpy.concatenate([numpy.stack(each) for each in pool.map(work, range(4))])
    """
    expected = model.run({"x": X})["y"]
    assert_same_bits(play(lines, {"x": X}), {"y": numpy.stack([expected] * 44)})


def test_the_header_is_made_from_the_schema(tmp_path: Path) -> None:
    flatc = shutil.which("flatc")
    if flatc is None or "2.0.8" not in subprocess.run([flatc, "--version"], capture_output=True, text=True).stdout:
        pytest.skip("it was made by flatc 2.0.8")
    schema = ROOT / "imgconv" / "stored" / "model.fbs"
    subprocess.run([flatc, "--cpp", "-o", tmp_path, schema], check=True)
    made = (tmp_path / "model_generated.h").read_text()
    begin, end = made.index("// Ensure the included"), made.index('"Non-compatible')
    made = made[:begin] + made[made.index("\n", end) + 1 :]
    assert made == (ROOT / "native" / "generated" / "model_generated.h").read_text()


