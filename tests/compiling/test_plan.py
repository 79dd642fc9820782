"""Plans for made-up devices: launches, bytes, types, choices, limits. No device is needed."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

import numpy
import pytest
from graphs import Network, Taking, check_plan, const, image, networks, numbers, target
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import by_name, kinds, planned, rows
from snapshots import DEVICES, NETWORKS

from imgconv.compiling.compiler import prepare
from imgconv.compiling.lower import lower
from imgconv.compiling.plan import Plan
from imgconv.config import Config, Precision
from imgconv.errors import ResourceError
from imgconv.graph.nodes import Graph
from imgconv.kernels.conv import weights as conv_weights
from imgconv.kernels.conv.candidates import default_specialisation
from imgconv.kernels.conv.problem import Specialisation
from imgconv.kernels.conv.template import TEMPLATE
from imgconv.kernels.layout import HostBuffer, ImageLimits, Texture
from imgconv.passes import run_passes
from imgconv.tensor import Tensor, build_graph, concatenate, convolution
from models import build

# Gathers

def test_what_chooses_elements_is_never_half() -> None:
    """Half holds no position past 2048 exactly."""
    x, y = image(5000, 4), image(700, name="y")
    position = ((y * 2 + 1) * 2500).named("position")
    plan = planned(Config(float16=1), out=rows((x + x.exp()).named("table"), position), more=y.exp() + position.sum())
    dtypes = {name: by_name(plan, name).dtype for name in ("y", "position", "table")}
    assert dtypes == {"y": "float32", "position": "float32", "table": "float16"}


@pytest.mark.parametrize(
    ("make", "dtype"),
    [
        (lambda x: x * x, "float32"),
        (lambda x: x**2.0, "float32"),
        (lambda x: (x * x).mean([1], keepdims=True) + 1e-5, "float32"),
        (lambda x: 1.0 / ((x * x).mean([1], keepdims=True) + 1e-5), "float32"),
        (lambda x: x.sum([2, 3], keepdims=True) + 1, "float32"),
        (lambda x: (x * x).mean([1], keepdims=True).sqrt() + 1e-5, "float16"),
        (lambda x: x.sigmoid() * x.sigmoid(), "float16"),
        (lambda x: x * x.sigmoid(), "float16"),
    ],
)
def test_squares_and_long_sums_are_half_only_where_they_are_bounded(
    make: Callable[[Tensor], Tensor], dtype: str
) -> None:
    """A square passes 65504 where no other value is near it."""
    value = make(image(2, 20, 9, 8).relu().conv2d(const(20, 20, 1, 1))).named("value")
    plan = planned(Config(float16=1), y=value * 2 + value.exp(), z=value.max([2], keepdims=True))
    assert by_name(plan, "value").dtype == dtype


@pytest.mark.parametrize(
    ("read", "dtype"),
    [
        (lambda x: x.log(), "float32"),
        (lambda x: (x + 1e-10).log(), "float32"),
        (lambda x: x.sum([2, 3], keepdims=True).log(), "float32"),
        (lambda x: x.log() * x.exp(), "float32"),
        (lambda x: (x.exp() + 1).log(), "float16"),
        (lambda x: x.exp().sum([2, 3], keepdims=True).log(), "float16"),
        (lambda x: x.sqrt(), "float16"),
    ],
)
def test_what_a_logarithm_reads_is_half_only_behind_an_exponential(
    read: Callable[[Tensor], Tensor], dtype: str
) -> None:
    """The power of a sound reaches 1e-10, which is 0 in half; log(1 + exp(x)) of such an x is log(2)."""
    power = image(1, 4, 9, 7).conv2d(const(4, 4, 1, 1)).named("power")
    graph = {"out": read(power), "more": power.max_pool(3, 1)}
    assert by_name(planned(Config(float16=1), **graph), "power").dtype == dtype


def test_constant_indices_are_never_half() -> None:
    index = Tensor.constant(numpy.arange(40000) % 5000)
    plan = planned(Config(float16=1), out=rows(image(5000, 4).exp(), index))
    assert [t.dtype for t in plan.textures if t.shape == (40000, 1)] == ["float32"]


# Whatever the network

@given(networks(), st.sampled_from([16384, 40, 24]), st.sampled_from([0, 1]), st.sampled_from(["cpu", "gpu"]))
@settings(max_examples=100, deadline=None)
def test_plans_of_random_networks_are_sound(network: Network, limit: int, float16: int, kind: str) -> None:
    on = target(limit, kind=kind)
    check_plan(lower(run_passes(network.graph), Config(float16), on), on.limits)


@given(networks())
@settings(max_examples=30, deadline=None)
def test_planning_is_deterministic(network: Network) -> None:
    graph = run_passes(network.graph)
    one, two = (lower(graph, Config(), target()) for _ in range(2))
    assert [launch.source for launch in one.launches] == [launch.source for launch in two.launches]
    assert str(one) == str(two) and one.slots == two.slots


@given(networks())
@settings(max_examples=30, deadline=None)
def test_constants_hold_what_is_computed_from_them(network: Network) -> None:
    """Every element that a constant texture holds is a number of the graph, or zero in the lanes past the last one."""
    graph = run_passes(network.graph)
    plan = lower(graph, Config(), target())
    for storage, content in plan.content.items():
        if storage.name in graph.constants and isinstance(storage, Texture):
            array = numpy.asarray(graph.constants[storage.name])
            assert numpy.count_nonzero(content) == numpy.count_nonzero(array)
            assert numpy.sort(content[content != 0].ravel()).tolist() == numpy.sort(array[array != 0].ravel()).tolist()


# Launches

def test_a_convolution_is_packed_run_and_unpacked() -> None:
    plan = planned(y=image().conv2d(const(4, 8, 3, 3), const(4), padding=1).relu())
    assert kinds(plan) == ["pack", "compute", "unpack"]
    pack, compute, unpack = plan.launches
    assert isinstance(pack.reads[0], HostBuffer) and isinstance(pack.writes, Texture)
    assert compute.reads[0] == pack.writes and compute.writes == unpack.reads[0]
    assert unpack.writes == plan.output_buffers["y"]
    assert compute.description == "convolution pads 1x1 + add maximum"
    assert plan.multiply_adds == compute.multiply_adds == 4 * 6 * 6 * 8 * 9
    assert plan.compute_launches == (compute,)


@pytest.mark.parametrize(("size", "packs"), [(16, 0), (17, 1)])
def test_a_few_numbers_that_several_kernels_read_are_not_packed(size: int, packs: int) -> None:
    x = image(1, size)
    plan = planned(y=x.exp(), z=x.tanh())
    assert [launch.description for launch in plan.launches].count("pack x") == packs
    assert sum(plan.input_buffers["x"] in launch.reads for launch in plan.launches) == 2 - packs


def test_elementwise_work_alone_is_one_launch_between_buffers() -> None:
    plan = planned(y=image().relu().exp())
    assert kinds(plan) == ["pack"] and plan.slots == {}
    (launch,) = plan.launches
    assert launch.reads == (plan.input_buffers["x"],) and launch.writes == plan.output_buffers["y"]


def test_inputs_that_pass_through_and_constant_outputs() -> None:
    x = image()
    plan = planned(x=x, y=x * 2, k=Tensor.constant(numbers(2, 3)) * 2)
    assert (set(plan.output_buffers), set(plan.constant_outputs)) == ({"x", "y"}, {"k"})
    assert [v.name for v in plan.outputs] == ["x", "y", "k"]
    numpy.testing.assert_allclose(plan.constant_outputs["k"], numbers(2, 3) * 2)


def test_an_input_without_elements_passes_through_without_a_launch() -> None:
    plan = planned(x=Tensor.input("x", (0, 3)))
    assert not plan.launches and plan.constant_outputs["x"].shape == (0, 3)


def test_a_launch_that_only_moves_says_why() -> None:
    x = image()
    c = x.conv2d(const(8, 8, 1, 1))
    plan = planned(y=c.transpose(0, 1, 3, 2).conv2d(const(4, 8, 1, 1)))
    copies = [launch for launch in plan.launches if launch.kind == "copy"]
    assert len(copies) == 1 and copies[0].reason and copies[0].reason in str(copies[0])
    assert all(not launch.reason for launch in plan.launches if launch.kind != "copy")


def test_the_dump_lists_every_launch_and_the_bytes() -> None:
    plan = planned(y=image().conv2d(const(4, 8, 3, 3)).relu())
    lines = str(plan).splitlines()
    assert lines[0] == "plan: 3 launches, 2 of them to pack inputs and unpack outputs, 0.0 M multiply-adds"
    assert len(lines) == 2 + len(plan.launches) == 2 + 3
    for number, launch in enumerate(plan.launches):
        assert lines[1 + number].split()[:2] == [str(number), launch.kind] and launch.name in lines[1 + number]
    assert lines[-1].strip().startswith("weights ") and "images" in lines[-1]


# Bytes

@pytest.mark.parametrize("float16, each", [(0, 4), (1, 2)])
def test_bytes_are_those_of_the_images(float16: int, each: int) -> None:
    x = image(1, 5, 6, 7)
    plan = planned(Config(float16), y=x.conv2d(const(9, 5, 1, 1)).relu().conv2d(const(3, 9, 1, 1)))
    # Texels: W * ceil(C/4) x H.
    assert by_name(plan, "x").bytes == 7 * 2 * 6 * 4 * each
    assert sorted(t.bytes for t in plan.slots) == sorted(7 * q * 6 * 4 * each for q in (2, 3, 1))
    # The output's texture lies where the input's was.
    assert plan.activation_bytes == 7 * (3 + 2) * 6 * 4 * each == plan.memory.lower_bound
    assert plan.buffer_bytes == (5 + 3) * 6 * 7 * 4
    # Small weights stay float: quads of outputs x quads of inputs x 4 lanes x 4 outputs.
    assert plan.weight_bytes == (3 * 2 + 1 * 3) * 16 * 4
    assert plan.bytes == plan.weight_bytes + plan.activation_bytes + plan.buffer_bytes


def test_half_is_for_large_weights_that_fit_and_never_for_long_sums_and_integers() -> None:
    x = image(1, 64, 6, 6)
    large = numbers(64, 64, 3, 3)
    huge = large.copy()
    huge[0, 0, 0, 0] = 1e5
    def dtypes(w: Any) -> set[str]:
        plan = planned(Config(1), y=x.conv2d(Tensor.constant(w)).relu())
        return {s.dtype for s in plan.content}
    assert dtypes(large) == {"float16"} and dtypes(huge) == {"float32"} and dtypes(large[:8, :, :1, :1]) == {"float32"}
    plan = planned(Config(1), y=x - image(1, 64, 8, 8, name="z").sum([2, 3], keepdims=True))
    (sums,) = [t for t in plan.slots if t.shape == (1, 64, 1, 1)]
    assert sums.dtype == "float32"
    index = Tensor.input("i", (1, 8, 4, 4), "int64")
    plan = planned(Config(1), y=index + index.max([1], keepdims=True))
    assert {t.dtype for t in plan.slots} == {"float32"}
    assert {s.dtype for s in planned(Config(0), y=x.conv2d(Tensor.constant(large))).content} == {"float32"}


def test_half_inputs_cross_as_half() -> None:
    plan = planned(y=Tensor.input("x", (1, 4, 3, 3), "float16").relu())
    assert plan.input_buffers["x"].dtype == plan.output_buffers["y"].dtype == "float16"
    assert "vload_half" in plan.launches[0].source.text and "vstore_half" in plan.launches[0].source.text


def test_moved_bytes_count_each_value_once_and_only_the_parts_of_a_concatenation_that_are_touched() -> None:
    x = image(1, 4, 8, 8)
    narrow, wide = (x.conv2d(const(n, 4, 1, 1, seed=n)).relu() for n in (4, 12))
    plan = planned(y=concatenate([narrow, wide], 1).conv2d(const(4, 16, 1, 1)), z=(narrow * narrow).sigmoid())
    texel_column = 8 * 8 * 16  # bytes of four channels at 8x8
    moved = {launch.description.partition(" ")[0]: 0 for launch in plan.launches}
    for launch in plan.launches:
        weights = sum(s.bytes for s in dict.fromkeys(launch.reads) if s in plan.content)
        moved[launch.description.partition(" ")[0]] += launch.moved_bytes - weights
    # Convolutions: x and one part, x and three parts, all four parts and y.
    assert moved["convolution"] == (1 + 1 + 1 + 3 + 4 + 1) * texel_column
    assert moved["multiply"] == 2 * texel_column, "z reads one part of the concatenation, and reads it once"
    assert moved["pack"] == 2 * texel_column, "the host's array has as many bytes: four channels of float"


def test_a_launch_says_its_sort_of_work() -> None:
    x = image(1, 8, 6, 6)
    deep = x.conv2d(const(8, 1, 3, 3), groups=8).conv2d(const(16, 8, 1, 1))
    wide = image(1, 64, 6, 6, name="w").conv2d(const(64, 1, 3, 3), groups=64).conv2d(const(64, 64, 1, 1))
    plan = planned(
        y=deep.reduce("max", (2, 3), True), z=(deep.exp() + 1.0).transpose(0, 2, 3, 1),
        d=x.conv2d(const(8, 1, 2, 2), groups=8).conv2d(const(8, 8, 2, 2)), s=wide,
    )
    found = {each.operation for each in plan.launches}
    assert {"movement", "depthwise convolution", "convolution", "separable convolution", "reduction"} <= found


# short or int

def index_types(plan: Plan) -> dict[str, str]:
    found = {}
    for launch_ in plan.launches:
        if match := re.search(r"#define INDEX (\w+)", launch_.source.text):
            found[launch_.name + " " + launch_.kind] = match[1]
    return found


def test_small_kernels_count_in_shorts() -> None:
    plan = planned(y=image().conv2d(const(4, 8, 3, 3)).relu())
    assert set(index_types(plan).values()) == {"short"}


@pytest.mark.parametrize("columns, kind", [(4000, "short"), (8185, "int"), (9000, "int")])
def test_wide_textures_need_ints(columns: int, kind: str) -> None:
    """16 channels: four texels to a column. What is read past the edge counts too."""
    on = target(limit=65536)
    plan = planned(on=on, y=image(1, 16, 2, columns).conv2d(const(16, 16, 1, 3)).relu())
    assert index_types(plan)["y compute"] == kind


@given(networks())
@settings(max_examples=40, deadline=None)
def test_generated_kernels_count_in_ints(network: Network) -> None:
    """Shorts would be converted at every step of a loop."""
    plan = lower(run_passes(network.graph), Config(), target())
    for launch_ in plan.launches:
        if launch_.source.path == "generated":
            assert not re.search(r"\bshort \w+ =", launch_.source.text)
        assert max(launch_.source.global_size) < 2**31


def test_work_groups_divide_the_global_size() -> None:
    for kind, size in itertools.product(("cpu", "gpu"), (5, 16, 33)):
        x = image(1, 12, size, size)
        y, z = x.conv2d(const(20, 12, 3, 3)).softmax(1), x.mean([2, 3]) @ const(12, 7)
        plan = planned(on=target(kind=kind), y=y, z=z)
        for launch_ in plan.launches:
            local = launch_.source.local_size
            if local is not None:
                assert all(g % n == 0 for g, n in zip(launch_.source.global_size, local, strict=True))
                assert numpy.prod(local) <= 256


# Choices

def three_layers() -> Graph:
    """Two convolutions of one problem and another one, at sizes that fold where textures take turns."""
    x = image(1, 8, 20, 20)
    y = x.conv2d(const(8, 8, 3, 3), padding=1).relu().conv2d(const(8, 8, 3, 3, seed=1), padding=1)
    return run_passes(build_graph({"y": y.conv2d(const(40, 8, 1, 1), stride=2).mean([2, 3])}))


def test_launches_keep_what_was_chosen() -> None:
    plan = lower(three_layers(), Config(), target())
    convolutions = [launch for launch in plan.launches if launch.specialisation]
    assert [launch.values for launch in convolutions] == [(launch.name,) for launch in convolutions]
    for launch in convolutions:
        chosen = launch.choice
        assert chosen is not None and chosen.template == "convolution" and chosen.seconds is None
        assert chosen.problem.multiply_adds == launch.multiply_adds > 0
        assert str(chosen.specialisation) == launch.specialisation
        assert chosen.predicted == TEMPLATE.predict(chosen.problem, chosen.specialisation, target())
    assert convolutions[0].choice == convolutions[1].choice != convolutions[2].choice


def test_weights_are_packed_once_and_choices_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    packed, asked = [], []
    pack = conv_weights.pack_weights

    def counting(*arguments: Any) -> Any:
        packed.append(arguments)
        return pack(*arguments)

    def choosing(problem: Any, kind: str, units: int) -> Any:
        asked.append(problem)
        return default_specialisation(problem, kind, units)

    monkeypatch.setattr(conv_weights, "pack_weights", counting)
    content = lower(three_layers(), Config(), target(), chooser=Taking(convolution=choosing)).content
    assert not packed, "packing waits for the first use"
    assert [*map(id, content.values())] == [*map(id, content.values())]
    assert len(packed) == len(asked) == 3


# Limits

def test_a_tensor_that_no_image_holds_is_named() -> None:
    y = image(1, 8, 20, 20).conv2d(const(8, 8, 1, 1)).relu()
    with pytest.raises(ResourceError) as raised:
        planned(on=target(limit=8, layers=2), y=y)
    assert raised.value.tensor == "x" and raised.value.shape == (1, 8, 20, 20)
    assert "'x'" in str(raised.value) and "2 layers" in str(raised.value)


@pytest.mark.parametrize(("name", "native", "in_buffers"), [
    ("squeezenet", True, False), ("yolo", False, True), ("yolo", True, True), ("efficientnet_b0", False, False),
])
def test_kernels_of_a_plan_in_half_serve_those_that_keep_some_values_in_float(
    name: str, native: bool, in_buffers: bool
) -> None:
    """Reads and writes of images are the same for half and float, and so are sigmoids."""
    device = replace(DEVICES["small gpu"], native_functions=native)
    device = device if in_buffers else replace(device, images_in_buffers=None)
    prepared = prepare(build(name), Config(float16=1), device)
    of_half = {launch.source.text for launch in prepared.plan().launches}
    for first in 2, 16:
        wide = frozenset(list(prepared.graph.producers)[first : first + 6])
        mixed = prepared.plan(Config(float16=1, precision=Precision(wide)))
        assert {mixed.placements[name].storage.dtype for name in wide & mixed.placements.keys()} == {"float32"}
        assert {launch.source.text for launch in mixed.launches} <= of_half


@pytest.mark.parametrize("name", ["yolo", "attention"])
def test_native_functions_are_used_where_they_were_measured_or_asked_for(name: str) -> None:
    """Never in a plan for a device that is not at hand, unless NATIVE_EXPLOG=1 asks for them."""
    graph = NETWORKS[name]()

    def uses_native(native_functions: bool, **settings: Any) -> bool:
        device = replace(DEVICES["small gpu"], native_functions=native_functions)
        plan = prepare(graph, Config(**settings), device).plan()
        return any("native_" in launch.source.text for launch in plan.launches)

    assert not DEVICES["small gpu"].native_functions
    for float16 in 1, 2:
        assert not uses_native(False, float16=float16) and uses_native(True, float16=float16)
    assert uses_native(False, float16=1, native_explog=True)
    assert not uses_native(True, float16=0)


def test_weights_that_no_image_holds_are_named() -> None:
    with pytest.raises(ResourceError) as raised:
        planned(on=target(limit=32, layers=1), y=image(1, 32, 4, 4).conv2d(const(32, 32, 3, 3)))
    assert raised.value.tensor == "y.weights"


def test_a_kernel_of_too_many_images_is_refused() -> None:
    """The input, the weights and two images for the epilogue."""
    y = image().conv2d(const(8, 8, 1, 1)) + image(name="a") + image(name="b")
    graph, in_image = run_passes(build_graph({"y": y})), Taking(convolution=lambda *_: Specialisation(weights="image"))
    lower(graph, Config(), target(max_read_images=4), chooser=in_image)
    with pytest.raises(ResourceError, match="reads 4 images, this device allows 3") as raised:
        lower(graph, Config(), target(max_read_images=3), chooser=in_image)
    assert raised.value.tensor == "y"


def test_a_lower_limit_gives_the_same_launches_on_smaller_images() -> None:
    graph: Graph = build_graph({"y": image(1, 8, 50, 50).conv2d(const(8, 8, 3, 3), padding=1).relu()})
    whole = prepare(graph, Config(), target()).plan()
    tiled = prepare(graph, Config(max_image=32), target()).plan()
    check_plan(tiled, ImageLimits(32, 32, 2048))
    assert kinds(whole) == kinds(tiled)
    assert max(t.tiling.tiles for t in whole.textures) == 1 < max(t.tiling.tiles for t in tiled.textures)
    assert "read_tiled" in tiled.launches[1].source.text and "read_tiled" not in whole.launches[1].source.text
    # The configured limit never raises the device's own.
    small = prepare(graph, Config(max_image=10**6), target(limit=64)).plan()
    check_plan(small, ImageLimits(64, 64, 2048))


def test_work_groups_that_a_device_does_not_take() -> None:
    mean = image(1, 8, 64, 64).mean([2, 3])
    for kind in ("gpu", "cpu"):
        on = replace(target(), kind=kind)
        plan = planned(on=on, y=mean)
        items = max(prod(launch.source.local_size or ()) for launch in plan.launches)
        assert items > 1 and planned(on=replace(on, max_work_group=items), y=mean) == plan
        smaller = planned(on=replace(on, max_work_group=items - 1), y=mean)
        assert all(prod(launch.source.local_size or ()) < items for launch in smaller.launches)
    # A work group has a work item for each of the five quads.
    x = image(1, 20, 33, 36)
    difference = x - x.mean([2, 3], keepdims=True)
    variance = (difference * difference).mean([2, 3], keepdims=True)
    with pytest.raises(ResourceError, match=r"work groups of \d+ work items, this device allows 3") as raised:
        planned(on=replace(target(), max_work_group=3), y=difference / (variance + 1e-5).sqrt())
    assert raised.value.tensor


def test_coordinates_that_run_backwards_are_bounded() -> None:
    """NVIDIA's compiler reads zero where a coordinate is a constant less a variable."""

    def texts(*flipped: int) -> list[str]:
        made = convolution(image(1, 8, 6, 5), const(8, 8, 1, 1), (1, 1), (0, 0, 0, 0), (1, 1))
        other = Tensor.input("other", (1, 8, 6, 5))
        for axis in flipped:
            other = other.slice(axis, other.shape[axis] - 1, -1, -1)
        return [launch.source.text for launch in planned(y=made + other).launches if launch.kind == "compute"]

    backwards = r"read_imagef\(e_input0, .*max\(- ?(row|column)"
    assert any(re.search(backwards, text) for text in texts(2)), texts(2)
    assert not any(re.search(backwards, text) for text in texts())
