"""The cache of plans: later loads of a file plan nothing, and give the same model."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import onnx
import onnx.helper
import onnx.numpy_helper
import pytest
from graphs import numbers
from host_fallback_models import non_zero
from support import make_input

import imgconv
from imgconv.cl.device import DeviceInfo
from imgconv.cl.opencl_device import OpenCLDevice
from imgconv.config import Config, Precision
from imgconv.files.disk_cache import DiskCache
from imgconv.kernels.conv.problem import Problem
from imgconv.loading import compiled, plan_cache, plans
from imgconv.loading.compiled import ModelSource
from imgconv.loading.device_descriptions import read_device_description
from imgconv.limits import Limits
from imgconv.ops import registry
from imgconv.preprocessing.preparation import PictureInput, Preparation
from imgconv.preprocessing.stage import PictureStage
from imgconv.stored.precision_file import PrecisionFile
from imgconv.stored.tuning import TuningDatabase

WEIGHTS = numpy.random.default_rng(0).normal(size=(8, 3, 3, 3)).astype(numpy.float32)
PICTURE = numbers(1, 3, 12, 10)


def convolution(weights: Any = WEIGHTS) -> onnx.ModelProto:
    nodes = [
        onnx.helper.make_node("Conv", ["x", "w"], ["z"], pads=[1, 1, 1, 1]),
        onnx.helper.make_node("Sigmoid", ["z"], ["y"]),
    ]
    graph = onnx.helper.make_graph(
        nodes, "g", [make_input("x", "f4", (1, 3, "h", "w"))], [onnx.ValueInfoProto(name="y")],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a cache of plans."""
    monkeypatch.setattr(plan_cache, "PLANS", DiskCache(str(tmp_path / "plans"), 2**24))
    return tmp_path / "plans"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    onnx.save(convolution(), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The name of each graph for which a kernel is chosen from now on."""
    made: list[str] = []
    original = plans.prepare_for

    def counted(info: DeviceInfo, graph: Any, *others: Any) -> Any:
        made.append(graph.name)
        return original(info, graph, *others)

    monkeypatch.setattr(plans, "prepare_for", counted)
    return made


def entries(cache: Path) -> list[Path]:
    return sorted(cache.iterdir()) if cache.exists() else []


@pytest.mark.parametrize("float16", (0, 1))
def test_a_later_load_gives_the_same_model(
    device: DeviceInfo, cache: Path, file: Path, planned: list[str], float16: int
) -> None:
    def loaded() -> imgconv.Model:
        return imgconv.load(file, device=device, float16=float16, shapes={"h": 12, "w": 10})

    first = loaded()
    assert planned and len(entries(cache)) == 2
    planned.clear()
    later = loaded()
    assert not planned
    assert later.run({"x": PICTURE})["y"].tobytes() == first.run({"x": PICTURE})["y"].tobytes()
    assert str(later.graph) == str(first.graph) and later.config == first.config
    assert later.plan.launches == first.plan.launches and str(later.plan) == str(first.plan)
    assert repr(later) == repr(first)


def test_builders_start_before_a_first_load_plans(
    device: DeviceInfo, cache: Path, file: Path, planned: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not in a later load, nor for a graph, whose plan is in no cache though its programs may be."""
    started: list[tuple[bool, bool]] = []

    def start(opened: OpenCLDevice, kernels: int) -> None:
        started.append((bool(planned), opened.builders._inside > 0))

    monkeypatch.setattr(OpenCLDevice, "start_build_workers", start)
    for _ in range(2):
        graph = imgconv.load(file, device=device, shapes={"h": 12, "w": 10}).graph
        imgconv.load(graph, device=device)
    assert started == [(False, True)]
    monkeypatch.setattr(plan_cache, "LARGEST_PART", plan_cache.PLANS.limit // file.stat().st_size)  # for no plan
    for _ in range(2):
        imgconv.load(file, device=device, shapes={"h": 6, "w": 10})
    assert len(started) == 2, "a plan that is not stored"


def test_entries_have_no_hashes_of_this_process(device: DeviceInfo, cache: Path, file: Path) -> None:
    imgconv.load(file, device=device, shapes={"h": 12, "w": 10})
    contents = [entry.read_bytes() for entry in entries(cache)]
    assert len(contents) == 2 and not any(b"_hash" in content for content in contents)


def test_other_shapes_of_a_cached_model(device: DeviceInfo, cache: Path, file: Path, planned: list[str]) -> None:
    results = []
    for _ in range(2):
        model = imgconv.load(file, device=device)
        assert model.needs_content == ()
        planned.clear()
        results.append([model.run({"x": numbers(1, 3, *size)})["y"].tobytes() for size in ((12, 10), (7, 9))])
        assert model._source.packings  # type: ignore[union-attr]
    assert results[0] == results[1] and not planned and len(entries(cache)) == 4


def test_a_cached_model_is_saved_as_a_planned_one(
    device: DeviceInfo, cache: Path, file: Path, tmp_path: Path, planned: list[str]
) -> None:
    saved = []
    for _ in range(2):
        planned.clear()
        model = imgconv.load(file, device=device, shapes={"h": 12, "w": 10})
        is_planned = bool(planned)
        model.save(tmp_path / "saved.imgconv")
        saved.append((is_planned, (tmp_path / "saved.imgconv").read_bytes()))
    assert [is_planned for is_planned, _ in saved] == [True, False]
    assert saved[0][1] == saved[1][1]


def test_a_cached_model_whose_file_has_changed_is_not_saved(
    device: DeviceInfo, cache: Path, file: Path, tmp_path: Path
) -> None:
    for _ in range(2):
        model = imgconv.load(file, device=device, shapes={"h": 12, "w": 10})
    onnx.save(convolution(-WEIGHTS), file)
    with pytest.raises(imgconv.InputError, match="'model.onnx' has changed since it was loaded"):
        model.save(tmp_path / "saved.imgconv")
    assert not (tmp_path / "saved.imgconv").exists()


@pytest.mark.parametrize("change", ["removed", "other input", "no model"])
def test_a_cached_model_whose_file_cannot_be_read_again_is_not_saved(
    device: DeviceInfo, cache: Path, file: Path, tmp_path: Path, change: str
) -> None:
    for _ in range(2):
        model = imgconv.load(file, device=device, shapes={"h": 12, "w": 10})
    if change == "removed":
        file.unlink()
    elif change == "no model":
        file.write_bytes(b"?")
    else:
        onnx.save(non_zero()[0], file)
    with pytest.raises(imgconv.InputError, match="reads 'model.onnx' again, which was removed .* put it back"):
        model.save(tmp_path / "saved.imgconv")
    assert not (tmp_path / "saved.imgconv").exists()
    assert model.run({"x": PICTURE})["y"].shape == (1, 8, 12, 10)


def test_a_cached_graph_is_not_made_from_another_file(device: DeviceInfo, cache: Path, file: Path) -> None:
    models = [imgconv.load(file, device=device, shapes={"h": 12, "w": 10}) for _ in range(3)]
    for entry in entries(cache):
        entry.unlink()
    said = "'model.onnx', or what its plan depends on, was removed or has changed since it was loaded: load it"
    onnx.save(convolution(-WEIGHTS), file)
    with pytest.raises(imgconv.InputError, match=said):
        str(models[1].graph)
    file.unlink()
    with pytest.raises(imgconv.InputError, match=said):
        str(models[2].graph)


def test_a_cached_model_of_pictures(device: DeviceInfo, cache: Path, file: Path, planned: list[str]) -> None:
    picture, results = numbers(14, 10, 3, low=0, high=255).astype(numpy.uint8), []
    for _ in range(2):
        planned.clear()
        model = imgconv.load(file, device=device, shapes={"h": 12, "w": 10})
        results.append(model.preprocess((14, 10)).run({"picture": picture})["y"].tobytes())
    assert results[0] == results[1] and not planned and len(entries(cache)) == 4


def test_a_damaged_entry_is_ignored(device: DeviceInfo, cache: Path, file: Path, planned: list[str]) -> None:
    wanted = imgconv.load(file, device=device, shapes={"h": 12, "w": 10}).run({"x": PICTURE})["y"]
    for entry in entries(cache):
        content = bytearray(entry.read_bytes())
        content[len(content) // 2] ^= 1
        entry.write_bytes(content)
    planned.clear()
    found = imgconv.load(file, device=device, shapes={"h": 12, "w": 10}).run({"x": PICTURE})["y"]
    assert planned and found.tobytes() == wanted.tobytes()


def test_an_entry_that_cannot_be_unpickled_is_ignored(
    device: DeviceInfo, cache: Path, file: Path, planned: list[str]
) -> None:
    def loaded() -> imgconv.Model:
        return imgconv.load(file, device=device, shapes={"h": 12, "w": 10})

    wanted = loaded()
    for entry in entries(cache):
        plan_cache.PLANS.write(entry.name, b"cimgconv.loading.plan_cache\nRemovedClass\n.")
    planned.clear()
    found = loaded()
    assert planned and found.run({"x": PICTURE})["y"].tobytes() == wanted.run({"x": PICTURE})["y"].tobytes()
    later = loaded()
    for entry in entries(cache):
        plan_cache.PLANS.write(entry.name, pickle.dumps(None)[:-1])
    assert str(later.graph) == str(wanted.graph)


def test_the_graph_of_a_cached_model_is_made_again(device: DeviceInfo, cache: Path, file: Path) -> None:
    def loaded() -> imgconv.Model:
        return imgconv.load(file, device=device, shapes={"h": 12, "w": 10})

    wanted, later = str(loaded().graph), loaded()
    for entry in entries(cache):
        entry.unlink()
    assert str(later.graph) == wanted


@pytest.mark.filterwarnings("ignore:the results of this load cannot be cached:RuntimeWarning")
def test_a_folder_that_cannot_be_made(
    device: DeviceInfo, tmp_path: Path, file: Path, planned: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setattr(plan_cache, "PLANS", DiskCache(str(tmp_path / "file" / "plans"), 2**24))
    for _ in range(2):
        planned.clear()
        imgconv.load(file, device=device, shapes={"h": 12, "w": 10}).run({"x": PICTURE})
        assert planned


def test_a_file_that_changes_during_the_load(
    device: DeviceInfo, cache: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = plans.prepare_for

    def overwriting(*given: Any) -> Any:
        onnx.save(convolution(-WEIGHTS), file)
        return original(*given)

    monkeypatch.setattr(plans, "prepare_for", overwriting)
    imgconv.load(file, device=device, shapes={"h": 12, "w": 10})
    assert not entries(cache)


@pytest.mark.parametrize("kind", ("graph in memory", "host fallback", "external data", "own operator", "too large"))
def test_what_is_not_cached(
    device: DeviceInfo, cache: Path, file: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model: Any = file
    if kind == "graph in memory":
        model = convolution()
    elif kind == "host fallback":
        onnx.save(non_zero()[0], file)
    elif kind == "external data":
        onnx.save(convolution(), file, save_as_external_data=True, location="weights.bin", size_threshold=0)
    elif kind == "own operator":
        mine = registry.RegisteredOperator(lambda call: call.input(0))
        monkeypatch.setitem(registry._OPERATORS, ("my.domain", "Same"), mine)
    else:
        monkeypatch.setattr(plan_cache, "LARGEST_PART", plan_cache.PLANS.limit // file.stat().st_size)
    imgconv.load(model, device=device, **({} if kind == "host fallback" else {"shapes": {"h": 12, "w": 10}}))
    assert [each for each in entries(cache) if not each.name.endswith(plan_cache.PLANNED)] == []


STAGE = PictureStage(PictureInput("x", "float32", (1, 3, 12, 10)), Preparation())
PROBLEM = Problem(1, 3, (12, 10), 8, (12, 10), (3, 3), (1, 1), (1, 1), (1, 1), 1)
CHANGES: dict[str, Callable[[ModelSource], ModelSource]] = {
    "shapes": lambda source: replace(source, shapes={"h": 13, "w": 10}),
    "float16": lambda source: replace(source, config=Config(float16=1)),
    "native_explog": lambda source: replace(source, config=Config(native_explog=True)),
    "max_image": lambda source: replace(source, config=Config(max_image=64)),
    "driver": lambda source: replace(source, info=replace(source.info, driver_version="2")),
    "work groups": lambda source: replace(source, info=replace(source.info, max_work_group_size=64)),
    "outputs": lambda source: replace(source, outputs=("z",)),
    "picture": lambda source: replace(source, picture=STAGE),
    "preparation": lambda source: replace(source, picture=replace(STAGE, how=Preparation(scale=0.5))),
    "states": lambda source: replace(source, states={"y": "x"}),
    "limits": lambda source: replace(source, limits=Limits(nodes=3)),
    "packings": lambda source: replace(source, packings={PROBLEM: {(1, 0, False, False)}}),
    "gated": lambda source: replace(source, packings={replace(PROBLEM, gated=True): {(1, 0, False, False)}}),
    "more packings": lambda source: replace(source, packings={PROBLEM: {(1, 0, False, False), (2, 0, False, False)}}),
    "precision": lambda source: replace(source, precision=PrecisionFile("m", 1, 0.1, 0.1, Precision())),
    "values": lambda source: replace(source, precision=PrecisionFile("m", 1, 0.1, 0.1, Precision(frozenset({"z"})))),
    "version": lambda source: replace(source, precision=PrecisionFile("m", 1, 0.1, 0.1, Precision(), version=1)),
}


@pytest.fixture
def source(file: Path, cache: Path) -> ModelSource:
    context: Any = None
    return ModelSource(file, {"h": 12, "w": 10}, Config(), read_device_description("generic"), context, None)


@pytest.fixture
def no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "native_functions_fit", lambda device, config: False)


def key_of(source: ModelSource) -> str:
    found = source._key(source.shapes, source.packings)
    assert found is not None
    return found


@pytest.mark.usefixtures("no_measurement")
def test_every_argument_has_its_key(source: ModelSource) -> None:
    keys = {name: key_of(change(source)) for name, change in CHANGES.items()} | {"": key_of(source)}
    assert len(set(keys.values())) == len(keys)
    assert key_of(replace(source, shapes={"w": 10, "h": 12}, check=False, strict=True)) == keys[""]


@pytest.mark.usefixtures("no_measurement")
def test_a_large_file_has_no_key(source: ModelSource, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_cache, "LARGEST_PART", plan_cache.PLANS.limit // file.stat().st_size + 1)
    assert source._key(source.shapes, source.packings) is None


@pytest.mark.usefixtures("no_measurement")
def test_every_surrounding_has_its_key(
    source: ModelSource, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [key_of(source)]

    def changed(module: Any, name: str, value: Any) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(module, name, value)
            keys.append(key_of(source))

    changed(compiled, "native_functions_fit", lambda device, config: True)
    changed(compiled, "refused_kernels", lambda info: frozenset({"k"}))
    changed(compiled, "miscompiled_patterns", lambda info: ("p",))
    changed(plan_cache, "_versions", lambda: ("another",))
    database = TuningDatabase(tmp_path / "tuning", new=True)
    tuned = replace(source, tuning=database)
    keys.append(key_of(tuned))
    database.record("device", "problem", [])
    assert key_of(tuned) == keys[-1]
    with database._open() as connection:
        connection.execute("INSERT INTO measured VALUES ('d', 'p', 's', 1.0)")
    keys.append(key_of(tuned))
    onnx.save(convolution(-WEIGHTS), file)
    keys.append(key_of(source))
    assert len(set(keys)) == len(keys)


def test_a_changed_file_of_imgconv_changes_the_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kernels").mkdir()
    file = tmp_path / "kernels" / "conv.cl"
    monkeypatch.setattr(plan_cache, "PACKAGE", tmp_path)
    found = []
    for text in ("one", "three"):
        file.write_text(text)
        plan_cache._versions.cache_clear()
        found.append(plan_cache._versions())
    plan_cache._versions.cache_clear()
    assert found[0] != found[1]


def test_bytecode_that_another_process_writes_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python writes bytecode to a file with a temporary name, which it renames."""
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "load.pyc.1").symlink_to("renamed")
    monkeypatch.setattr(plan_cache, "PACKAGE", tmp_path)
    plan_cache._versions.cache_clear()
    assert not [each for each in plan_cache._versions() if "load" in each]
    plan_cache._versions.cache_clear()
