"""The compiled file without a device: a plan and a graph are read as they were written, and damage is refused."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy
import pytest
from fuzz import files
from fuzz.case import Draw
from snapshots import DEVICES, Case, graph_of, plan_of

from imgconv.build_options import BuildOptions
from imgconv.compiling.lower import lower
from imgconv.compiling.plan import Plan
from imgconv.config import Config, Precision
from imgconv.errors import Error, ModelError
from imgconv.files import container
from imgconv.files.container import ContainerFile, write_container
from imgconv.graph.expression import Argument, apply
from imgconv.graph.nodes import Graph, HostPartition, Value
from imgconv.graph.onnx_nodes import Attribute, HostGraph, HostNode
from imgconv.kernels.layout import ImageAlignment, Texture
from imgconv.stored import compiled_file, tables
from imgconv.stored.compiled_file import DevicePlan, SavedModel, save_model
from imgconv.tensor import Tensor, build_graph, order, recurrence

CONFIG = Config(2, True, 256, "a device", Precision(frozenset({"a", "b"}), *map(frozenset, "cde")))
CASES = [
    Case("attention", "cpu", 0), Case("attention", "small gpu", 2, 24), Case("mobilenet_v2", "large gpu", 1),
    Case("conv_gru", "small gpu", 0),
]


def saved(path: Path, case: Case) -> tuple[Graph, Plan]:
    graph, plan = graph_of(case.network, case.full), plan_of(case)
    save_model(path, graph, CONFIG, [DevicePlan(plan, "the device", DEVICES[case.device], (b"first", b"second"))])
    return graph, plan


def test_compressed_blobs_are_small_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them may be: the limit of their sum bounds the memory that a made-up file takes."""
    with monkeypatch.context() as larger:
        larger.setattr(container, "MOST_COMPRESSED", 2**23)
        saved(tmp_path / "m", Case("attention", "small gpu", 2, 24))
    size = sum(blob.content_bytes for blob in SavedModel.open(tmp_path / "m").root.blobs)
    monkeypatch.setattr(compiled_file, "MOST_COMPRESSED", size - 1)
    with pytest.raises(ModelError, match="its blobs are too long"):
        SavedModel.open(tmp_path / "m")


def same(found: Any, expected: Any) -> bool:
    """Equality, also of arrays in mappings, with equal types."""
    if isinstance(expected, numpy.ndarray):
        return found.dtype == expected.dtype and found.tobytes() == expected.tobytes() and found.shape == expected.shape
    if hasattr(expected, "items"):
        return list(found) == list(expected) and all(same(found[name], expected[name]) for name in expected)
    return type(found) is type(expected) and found == expected


def test_a_description_is_kept(tmp_path: Path) -> None:
    graph, plan = saved(tmp_path / "without", CASES[0])
    save_model(tmp_path / "with", graph, CONFIG, [DevicePlan(plan, "d", DEVICES["cpu"])], '{"task": "pose"}')
    assert SavedModel.open(tmp_path / "without").description == ""
    assert SavedModel.open(tmp_path / "with").description == '{"task": "pose"}'


@pytest.mark.parametrize("case", CASES, ids=str)
def test_what_is_saved_is_read(case: Case, tmp_path: Path) -> None:
    graph, plan = saved(tmp_path / "m", case)
    model = SavedModel.open(tmp_path / "m")
    assert model.config == CONFIG
    found = model.read_graph()
    for field in fields(Graph):
        if field.name != "constants":
            assert same(getattr(found, field.name), getattr(graph, field.name)), field.name
    for name, array in graph.constants.items():
        # Those that the plan keeps as halves are halves in the file.
        halves = array.astype("float16").astype(array.dtype) if plan.content and case.float16 else array
        assert same(found.constants[name], array) or same(found.constants[name], halves), name
    read = model.plan_for("the device", DEVICES[case.device])
    assert read is not None
    again = read.plan
    for field in fields(Plan):
        if field.name in ("content", "slots", "regions"):  # in another order
            assert len(getattr(again, field.name)) == len(getattr(plan, field.name))
            assert all(same(getattr(again, field.name)[k], v) for k, v in getattr(plan, field.name).items())
        else:
            assert same(getattr(again, field.name), getattr(plan, field.name)), field.name
    assert model.inputs == {value.name: (value.dtype, list(value.shape)) for value in graph.inputs}


def test_every_operation_is_read_as_it_was(tmp_path: Path) -> None:
    tanh = apply("tanh", apply("add", Argument(0), Argument(1)))
    x, w = Tensor.input("x", (3, 1, 2, 1, 4)), Tensor.input("w", (2, 4, 1, 4))
    h = x.slice(0, 0, 1).reshape(1, 2, 4)
    made = {
        "r": recurrence(x, w, [h], [], [tanh], apply("multiply", Argument(2), 0.5), (False, True)),
        "s": recurrence(x, w, [h, h], [], [tanh, Argument(3)], None, (True, True)),
        "o": order(x, 3, largest=False), "p": order(x, 2),
    }
    graph = build_graph(made)
    save_model(tmp_path / "m", graph, CONFIG, [])
    assert SavedModel.open(tmp_path / "m").read_graph() == graph


def test_a_host_partition_is_read_as_it_was(tmp_path: Path) -> None:
    """Attributes of every kind, a body, an output whose size depends on data."""
    x = Tensor.input("x", (1, 3))
    body = HostGraph(("a",), ("b",), (HostNode("inner", "Relu", ("a",), ("b",)),), {"c": numpy.ones((2, 2), "int64")})
    attributes: dict[str, Attribute] = {
        "axis": -1, "alpha": 0.5, "mode": "nearest", "axes": (0, 2), "scales": (1.0, 2.0), "none": (),
        "names": ("p", "q"), "value": numpy.arange(3.0), "body": body,
    }
    node = HostNode("n", "Some", ("y", ""), ("z", ""), attributes, 13, "a.domain")
    partition = HostPartition(HostGraph(("y",), ("z",), (node,)), (Value("z", (-1, 4), "float32"),), "n", "data")
    graph = replace(build_graph({"y": x.relu()}), host_partition=partition)
    save_model(tmp_path / "m", graph, CONFIG, [])
    found = SavedModel.open(tmp_path / "m").read_graph().host_partition
    assert found is not None and replace(found, graph=partition.graph) == partition
    (again,) = found.graph.nodes
    assert replace(again, attributes={}) == replace(node, attributes={})
    inner = again.attributes["body"]
    assert isinstance(inner, HostGraph) and replace(inner, constants={}) == replace(body, constants={})
    assert same(inner.constants, body.constants)
    for name in attributes.keys() - {"body"}:
        assert same(again.attributes[name], attributes[name]), name


def test_the_cases_have_everything() -> None:
    plans = [plan_of(case) for case in CASES]
    assert any(plan.slots for plan in plans) and any(plan.regions for plan in plans)
    assert any(isinstance(s, Texture) and s.tiling.layers > 1 for plan in plans for s in plan.textures)
    assert any(launch.choice for plan in plans for launch in plan.launches)
    assert any(launch.source.local_size for plan in plans for launch in plan.launches)


def test_what_a_reader_without_python_needs(tmp_path: Path) -> None:
    """The parts of the plan that say what to allocate and what to launch, by the plan's own properties."""
    _, plan = saved(tmp_path / "m", CASES[1])
    model = SavedModel.open(tmp_path / "m")
    (table,) = model.table.plans
    by_name = {each.name: each for each in table.storages}
    for texture in plan.textures:
        each = by_name[texture.name]
        form = plan.images[plan.slots[texture]] if each.memory == "slot" else texture.descriptor
        place = table.slots[each.slot] if each.memory == "slot" else each
        assert (place.width, place.height, place.layers, each.dtype) == (
            form.width, form.height, form.layers, texture.dtype
        )
    assert [k for program in table.programs for k in program.kernels] == list(range(len(table.kernels)))
    for launch, each in zip(plan.launches, table.launches, strict=True):
        assert table.kernels[each.kernel].text == launch.source.text
        assert [table.storages[n].name for n in each.arguments] == [a.storage.name for a in launch.source.arguments]


def test_the_plan_that_fits(tmp_path: Path) -> None:
    """Only for the very limits that it was planned for, with binaries only for the very device."""
    _, plan = saved(tmp_path / "m", CASES[0])
    model, target = SavedModel.open(tmp_path / "m"), DEVICES["cpu"]
    found, elsewhere = model.plan_for("the device", target), model.plan_for("another device", target)
    assert found and found.binaries == (b"first", b"second")
    assert elsewhere and elsewhere.plan.launches == found.plan.launches and not elsewhere.binaries
    others = [replace(target, half_images=False), replace(target, images_in_buffers=ImageAlignment(1, 2, 3))]
    others += [replace(target, limits=replace(target.limits, width=3)), replace(target, max_work_group=1)]
    others += [replace(target, loop_rounds=65535)]
    assert not any(model.plan_for("the device", other) for other in others)
    assert model.plan_for("the device", replace(target, vector_floats=8))  # only kernels are chosen by it
    # A field that is added has to be compared too.
    assert {f.name for f in fields(target)} - {"vector_floats", "native_functions", "dot_product"} == {
        "limits", "kind", "compute_units", "half_images", "max_read_images", "half_arithmetic", "byte_images",
        "local_memory_bytes", "images_in_buffers", "max_work_group", "linear", "loop_rounds",
    }


def test_a_plan_with_native_functions_is_for_the_device_on_which_they_were_measured(tmp_path: Path) -> None:
    graph, target, config = graph_of("conv_gru", False), DEVICES["small gpu"], Config(float16=1)
    made = {native: lower(graph, config, replace(target, native_functions=native)) for native in (True, False)}
    plans = [DevicePlan(plan, "own", replace(target, native_functions=native)) for native, plan in made.items()]
    save_model(tmp_path / "both", graph, config, plans)
    save_model(tmp_path / "one", graph, config, plans[:1])
    both, one = SavedModel.open(tmp_path / "both"), SavedModel.open(tmp_path / "one")
    for measured in (True, False):
        there = replace(target, native_functions=measured)
        own, other = both.plan_for("own", there), both.plan_for("other", there)
        assert own and own.plan.launches == made[True].launches
        assert other and other.plan.launches == made[False].launches
        assert one.plan_for("own", there) and not one.plan_for("other", there)


def test_a_plan_that_sums_integers_is_for_the_device_on_which_their_instruction_was_tried(tmp_path: Path) -> None:
    graph, target = graph_of("conv_gru", False), DEVICES["small gpu"]
    tried = replace(target, dot_product="qcom")
    plans = [DevicePlan(lower(graph, CONFIG, each), "own", each) for each in (tried, target)]
    save_model(tmp_path / "both", graph, CONFIG, plans)
    save_model(tmp_path / "one", graph, CONFIG, plans[:1])
    both, one = SavedModel.open(tmp_path / "both"), SavedModel.open(tmp_path / "one")
    assert [each.target.dot_product for each in both.read_plans()] == ["qcom", ""]
    assert one.plan_for("own", target) and not one.plan_for("other", target)
    assert both.plan_for("other", target)


def test_build_options_are_for_the_device_on_which_they_were_measured(tmp_path: Path) -> None:
    graph, target = graph_of("conv_gru", False), DEVICES["small gpu"]
    options = [BuildOptions("half", "off"), BuildOptions("full", one_kernel_a_program=True), BuildOptions()]
    plan = lower(graph, CONFIG, target)
    for option in options:
        save_model(tmp_path / "m", graph, CONFIG, [DevicePlan(replace(plan, build_options=option), "own", target)])
        model = SavedModel.open(tmp_path / "m")
        own, other = model.plan_for("own", target), model.plan_for("other", target)
        assert own and own.plan.build_options == option and str(option) in f"{own.plan}, the driver's defaults"
        assert other and other.plan.build_options == BuildOptions()
        (table,) = model.table.plans
        programs, kernels = len(table.programs), len(table.kernels) - len(table.spare_kernels)
        assert (programs == kernels > 1) if option.one_kernel_a_program else programs < kernels


def test_plans_for_several_devices(tmp_path: Path) -> None:
    graph, made = graph_of("conv_gru", False), {name: plan_of(Case("conv_gru", name, 0)) for name in DEVICES}
    plans = [DevicePlan(plan, name, DEVICES[name]) for name, plan in made.items()]
    save_model(tmp_path / "m", graph, CONFIG, plans)
    model = SavedModel.open(tmp_path / "m")
    for name, target in DEVICES.items():
        found = model.plan_for(name, target)
        assert found and found.plan.launches == made[name].launches


def test_plans_share_their_weights(tmp_path: Path) -> None:
    """A second plan that packs them alike adds no blob; what is written twice is read twice."""
    graph, plan = graph_of("mobilenet_v2", False), plan_of(Case("mobilenet_v2", "large gpu", 0))
    again = plan_of(Case("mobilenet_v2", "large gpu", 0))
    counts = []
    for plans in ((plan,), (plan, again)):
        save_model(tmp_path / "m", graph, CONFIG, [
            DevicePlan(each, f"device {number}", DEVICES["large gpu"]) for number, each in enumerate(plans)
        ])
        counts.append(len(SavedModel.open(tmp_path / "m").table.blobs))
    assert counts[0] == counts[1]
    found = SavedModel.open(tmp_path / "m").plan_for("device 1", DEVICES["large gpu"])
    assert found and same(found.plan.content, again.content)


def test_made_up_files(tmp_path: Path) -> None:
    """Heads with good checksums and wrong content: read, or refused with the file's name."""
    saved(tmp_path / "m", CASES[0])
    container, generator, refused = ContainerFile(tmp_path / "m"), random.Random(0), 0
    for _ in range(75):
        head = bytearray(container.head)
        for _ in range(generator.randrange(1, 9)):
            head[generator.randrange(8, len(head))] = generator.choice([0, 1, 255, generator.randrange(256)])
        write_container(tmp_path / "x", bytes(head), [])
        try:
            model = SavedModel.open(tmp_path / "x")
            assert model.config
            model.plan_for("", DEVICES["cpu"])
            model.read_graph()
        except ModelError as error:
            assert str(tmp_path / "x") in str(error)
            refused += 1
    assert refused > 50


ALTERED = 25


def outcomes(folder: Path) -> list[str]:
    """Returns the outcome of each of ALTERED files with altered tables: "read", or the error and its cause."""
    found = []
    for seed in range(ALTERED):
        draw = Draw(seed)
        files.compiled_file(draw, folder / "altered")
        try:
            files.read_compiled(draw, folder / "altered")
            found.append("read")
        except Error as error:
            found.append(f"{type(error).__name__} {type(error.__cause__).__name__}")
    return found


def test_python_without_asserts_refuses_the_same_files(tmp_path: Path) -> None:
    """`python -O` runs no assert: what a file says is not checked by any."""
    own, other = tmp_path / "own", tmp_path / "other"
    own.mkdir()
    other.mkdir()
    code = f"import json, pathlib, test_model_file as t; print(json.dumps(t.outcomes(pathlib.Path({str(other)!r}))))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    command = [sys.executable, "-O", "-c", code]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        expected = outcomes(own)
        said, error = child.communicate()
    assert child.returncode == 0, error.decode()
    assert json.loads(said) == expected
    assert "ModelError GraphError" in expected, "no file reaches the checks of the graph"


def test_a_template_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A launch of a template that this imgconv does not have keeps its kernel, and has no choice."""
    _, plan = saved(tmp_path / "m", CASES[0])
    monkeypatch.setattr(tables, "TEMPLATES", ())
    found = SavedModel.open(tmp_path / "m").plan_for("the device", DEVICES["cpu"])
    assert found is not None
    launches = found.plan.launches
    assert [launch.source for launch in launches] == [launch.source for launch in plan.launches]
    assert any(launch.choice for launch in plan.launches) and not any(launch.choice for launch in launches)
