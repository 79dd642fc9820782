"""Plans for made-up devices: launches, textures, bytes, slots, concatenations in place. No device is needed."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from math import prod
from typing import Any

import numpy
import pytest
from graphs import Network, Taking, check_plan, const, networks, numbers, target
from hypothesis import given, settings
from hypothesis import strategies as st

from imgconv.compiling.compiler import compile_graph
from imgconv.compiling.emit import Emitter
from imgconv.compiling.lower import lower
from imgconv.compiling.memory_planning import assign_regions, assign_slots, lifetimes, most_alive
from imgconv.compiling.plan import Launch, Plan
from imgconv.compiling.textures import choose_layouts, concatenations_in_place, widened
from imgconv.config import Config
from imgconv.errors import ResourceError
from imgconv.graph.nodes import Graph
from imgconv.graph.view import View, axis_variables
from imgconv.kernels import conv_weights
from imgconv.kernels.access import KernelArgument
from imgconv.kernels.conv import Specialisation
from imgconv.kernels.conv_candidates import default_specialisation
from imgconv.kernels.conv_template import TEMPLATE
from imgconv.kernels.layout import (
    Alignment, HostBuffer, ImageLimits, Layout, Texture, choose_tiling, image_layout, matrix_layout,
)
from imgconv.kernels.source import KernelSource
from imgconv.kernels.target import Target
from imgconv.passes import run_passes
from imgconv.tensor import Tensor, build_graph, concatenate, convolution, gather


def image(*shape: int, name: str = "x") -> Tensor:
    return Tensor.input(name, shape or (1, 8, 6, 6))


def planned(config: Config | None = None, on: Target | None = None, **outputs: Tensor) -> Plan:
    """The checked plan of a graph after its passes."""
    on = on or target()
    plan = lower(run_passes(build_graph(outputs)), config or Config(), on)
    check_plan(plan, on.limits)
    return plan


def kinds(plan: Plan) -> list[str]:
    return [launch.kind for launch in plan.launches]


def by_name(plan: Plan, name: str) -> Texture:
    (found,) = [t for t in plan.textures if t.name == name]
    return found


# Gathers

def rows(table: Tensor, index: Tensor) -> Tensor:
    """table[index] of a matrix and a vector."""
    axes = axis_variables((index.shape[0], table.shape[1], table.shape[0]))
    seen = View((index.shape[0], table.shape[1], table.shape[0]), table.shape, (axes[2], axes[1]))
    return gather(table, seen, [index.reshape(-1, 1)])


def test_what_chooses_elements_is_never_half() -> None:
    """Half holds no position past 2048 exactly."""
    x, y = image(5000, 4), image(700, name="y")
    position = ((y * 2 + 1) * 2500).named("position")
    plan = planned(Config(float16=1), out=rows((x + x.exp()).named("table"), position), more=y.exp() + position.sum())
    dtypes = {name: by_name(plan, name).dtype for name in ("y", "position", "table")}
    assert dtypes == {"y": "float32", "position": "float32", "table": "float16"}


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
    assert lines[0] == "plan: 1 launches, 0.0 M multiply-adds, 2 to pack inputs and unpack outputs"
    assert len(lines) == 2 + len(plan.launches)
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


# Slots

LIMITS = ImageLimits(64, 64, 1)


def texture(
    name: str, channels: int = 4, dtype: str = "float32", size: tuple[int, int] = (4, 4), bordered: bool = True
) -> Texture:
    """A texture of size[0] x size[1] positions."""
    shape, layout = (1, channels, *size), image_layout(4)
    tiling = choose_tiling(*layout.grid(shape), LIMITS, name, shape)
    return Texture(name, shape, layout, dtype, replace(tiling, bordered=bordered))


def slots_of(launches: list[Launch], lasting: frozenset[Texture] = frozenset()) -> dict[Texture, int]:
    return {t: number for t, (number, _) in assign_slots(launches, lasting, LIMITS).items()}


def launch(writes: Texture | HostBuffer, *reads: Texture | HostBuffer) -> Launch:
    arguments = (KernelArgument("output", writes, True), *(KernelArgument(f"i{n}", r) for n, r in enumerate(reads)))
    return Launch(writes.name, "compute", KernelSource("", "", arguments, (1,), None), "")


def test_a_chain_alternates_between_two_slots() -> None:
    a, b, c, d, e = map(texture, "abcde")
    x = HostBuffer("x", (1, 4, 4, 4), image_layout(4), "float32")
    launches = [launch(a, x), launch(b, a), launch(c, b), launch(d, c), launch(e, d), launch(x, e)]
    slots = slots_of(launches)
    assert [slots[t] for t in (a, b, c, d, e)] == [0, 1, 0, 1, 0]


def test_a_texture_lives_from_its_first_writer_to_its_last_reader() -> None:
    a, b, w = map(texture, "abw")
    x = HostBuffer("x", (1, 4, 4, 4), image_layout(4), "float32")
    launches = [launch(a, x), launch(b, a, w), launch(b, a), launch(x, b)]
    assert lifetimes(launches) == {a: (0, 2), b: (1, 3)}, "w is a constant: no launch writes it"


def test_a_residual_keeps_its_slot_until_it_is_read() -> None:
    a, b, c, d = map(texture, "abcd")
    x = HostBuffer("x", (1, 4, 4, 4), image_layout(4), "float32")
    slots = slots_of([launch(a, x), launch(b, a), launch(c, b), launch(d, c, a), launch(x, d)])
    assert slots[a] not in (slots[b], slots[c], slots[d]) and slots[b] != slots[c]
    assert slots[d] == slots[b], "b is free again"


def test_a_kernel_never_writes_into_what_it_reads() -> None:
    a, b = texture("a"), texture("b")
    x = HostBuffer("x", (1, 4, 4, 4), image_layout(4), "float32")
    slots = slots_of([launch(a, x), launch(b, a), launch(x, b)])
    assert slots[a] != slots[b]


def in_turn(*textures: Texture) -> list[Launch]:
    """Each is written and read before the next is."""
    return [step for t in textures for step in (launch(t, X), launch(X, t))]


def test_slots_are_of_one_size_and_type() -> None:
    a, b, c, d = texture("a"), texture("b", 8), texture("c", 4, "float16"), texture("d")
    slots = slots_of(in_turn(a, b, c, d))
    assert slots[d] == slots[a] and len({slots[t] for t in (a, b, c)}) == 3


def test_a_texture_whose_readers_test_their_position_lies_in_a_larger_image() -> None:
    a, b, c = (texture(n, channels, bordered=False) for n, channels in (("a", 4), ("b", 12), ("c", 8)))
    half, alone = texture("half", 4, "float16", bordered=False), texture("alone")
    slots = slots_of(in_turn(a, b, c, half, alone))
    assert slots[a] == slots[b] == slots[c] and len({slots[t] for t in (a, half, alone)}) == 3
    assert not b.form.holds(alone) and b.form.holds(a) and not a.form.holds(b) and not b.form.holds(half)
    assert len(set(slots_of(in_turn(alone, replace(alone, name="equal"), b)).values())) == 2


def test_an_image_grows_where_that_is_less_than_another_image() -> None:
    wide, tall = texture("wide", size=(12, 13), bordered=False), texture("tall", size=(13, 12), bordered=False)
    assert slots_of(in_turn(wide, tall)) == {wide: 0, tall: 0}
    assert slots_of(in_turn(replace(wide, tiling=replace(wide.tiling, bordered=True)), tall)) != {wide: 0, tall: 0}


def test_a_tall_texture_is_folded_into_a_wide_image() -> None:
    wide, tall = texture("wide", size=(4, 60), bordered=False), texture("tall", size=(16, 9), bordered=False)
    slots = assign_slots(in_turn(wide, tall), frozenset(), LIMITS)
    assert [number for number, _ in slots.values()] == [0, 0]
    assert slots[wide][1] == wide.tiling and slots[tall][1].image_size == (36, 4)
    narrow = ImageLimits(60, 64, 1)
    tall = texture("tall", size=(8, 31), bordered=False)
    (_, folded), _ = assign_slots(in_turn(tall, wide), frozenset(), narrow).values()
    assert folded == tall.tiling, "folded it would be 62 texels wide"


def test_a_bordered_texture_is_never_folded() -> None:
    wide, tall = texture("wide", size=(4, 60)), texture("tall", size=(16, 9))
    slots = assign_slots(in_turn(wide, tall), frozenset(), LIMITS)
    assert list(slots.values()) == [(0, wide.tiling), (1, tall.tiling)]


def test_constants_take_no_slot() -> None:
    a, w = texture("a"), texture("w")
    x = HostBuffer("x", (1, 4, 4, 4), image_layout(4), "float32")
    assert slots_of([launch(a, x, w), launch(x, a)], frozenset({w})) == {a: 0}


def test_a_deep_network_needs_few_images() -> None:
    t = image(1, 8, 16, 16)
    for number in range(20):
        t = t.conv2d(const(8, 8, 3, 3, seed=number), padding=1).relu()
    plan = planned(y=t)
    assert len(plan.slots) == 21 and len(set(plan.slots.values())) == 2
    assert plan.activation_bytes == 2 * by_name(plan, "x").bytes


X = HostBuffer("x", (1, 4, 4, 4), image_layout(4), "float32")


@st.composite
def launch_lists(draw: st.DrawFn) -> list[Launch]:
    """Each launch makes a new texture from some of those before it."""
    made: list[Texture] = []
    launches = []
    for number in range(draw(st.integers(1, 12))):
        reads = draw(st.lists(st.sampled_from(made), max_size=3)) if made else []
        made.append(texture(f"t{number}", draw(st.integers(1, 70)), draw(st.sampled_from(["float32", "float16"]))))
        launches.append(launch(made[-1], *reads))
    return [*launches, launch(X, made[-1])]


@given(launch_lists(), st.sampled_from([1, 8, 64]), st.sampled_from([1, 64]))
def test_regions_that_are_alive_together_are_apart(launches: list[Launch], row: int, base: int) -> None:
    alive = lifetimes(launches)
    regions = assign_regions(launches, frozenset(), Alignment(row, base, 1 << 30))
    assert regions.keys() == alive.keys()
    for t, region in regions.items():
        texel = 4 * numpy.dtype(t.dtype).itemsize
        width, height = t.tiling.image_size
        assert region.row_bytes >= width * texel and region.bytes == height * region.row_bytes
        assert region.row_bytes % (row * texel) == region.offset % (base * texel) == 0
        for u, other in regions.items():
            together = alive[t][0] <= alive[u][1] and alive[u][0] <= alive[t][1]
            apart = region.offset + region.bytes <= other.offset or other.offset + other.bytes <= region.offset
            assert t is u or not together or apart
    bytes_now = [sum(t.bytes for t, (a, b) in alive.items() if a <= n <= b) for n in range(len(launches))]
    assert most_alive(launches) == max(bytes_now)


@st.composite
def shapes_in_turn(draw: st.DrawFn) -> list[Launch]:
    """As `launch_lists`, with textures of many shapes; some are bordered."""
    sizes, made = st.tuples(st.integers(1, 20), st.integers(1, 12)), []
    for number in range(draw(st.integers(1, 14))):
        dtype, bordered = draw(st.sampled_from(["float32", "float16"])), draw(st.integers(0, 4)) == 0
        made.append(texture(f"t{number}", draw(st.integers(1, 17)), dtype, draw(sizes), bordered))
    reads = [draw(st.lists(st.sampled_from(made[:at]), max_size=3)) if at else [] for at in range(len(made))]
    return [*(launch(t, *read) for t, read in zip(made, reads, strict=True)), launch(X, made[-1])]


@given(shapes_in_turn())
@settings(max_examples=200, deadline=None)
def test_images_hold_their_textures_one_at_a_time(launches: list[Launch]) -> None:
    alive = lifetimes(launches)
    slots = assign_slots(launches, frozenset(), LIMITS)
    assert slots.keys() == alive.keys()
    found = {replace(t, tiling=tiling): (number, t) for t, (number, tiling) in slots.items()}
    images = Plan((), (), (), {}, {}, {}, {t: number for t, (number, _) in found.items()}).images
    for t, (number, whole) in found.items():
        image = images[number]
        assert image.holds(t) and image.width <= LIMITS.width and image.height <= LIMITS.height
        assert t == whole or not whole.tiling.bordered
        for u, (other, its_whole) in found.items():
            together = alive[whole][0] <= alive[its_whole][1] and alive[its_whole][0] <= alive[whole][1]
            assert t is u or number != other or not together
    assert most_alive(launches) <= sum(i.bytes for i in images.values()) <= sum(t.bytes for t in alive)


def test_a_chain_takes_what_is_alive_at_once() -> None:
    a, b, c = texture("a", 8), texture("b", 4), texture("c", 16)
    launches = [launch(a, X), launch(b, a), launch(c, b), launch(X, c)]
    regions = assign_regions(launches, frozenset(), Alignment(1, 1, 1 << 20))
    assert max(r.offset + r.bytes for r in regions.values()) == most_alive(launches) == b.bytes + c.bytes
    assert assign_regions(launches, frozenset(), Alignment(1, 1, b.bytes + c.bytes - 1)) == {}, "no buffer is as large"


def test_what_lasts_has_no_region() -> None:
    a, state = texture("a"), texture("state")
    launches = [launch(a, state), launch(state, a)]
    assert list(assign_regions(launches, frozenset({state}), Alignment(1, 1, 1 << 20))) == [a]
    assert most_alive(launches, frozenset({state})) == a.bytes


def test_memory_is_known_from_the_plan() -> None:
    x = image()
    shared = Target(target().limits, "gpu", 8, images_in_buffers=Alignment(8, 8, 1 << 30))
    graph = run_passes(build_graph({"y": branch(branch(x, 8, 0), 12, 1)}, [x]))
    for chosen in (target(), shared):
        plan = lower(graph, Config(), chosen)
        memory = plan.memory
        assert memory.lower_bound <= memory.activations
        assert memory.peak == plan.bytes == memory.weights + memory.activations + memory.states + memory.buffers
        assert set(plan.regions if chosen is shared else plan.slots) == set(lifetimes(plan.launches))
    assert plan.activation_places == "one workspace" and "one workspace" in str(plan)


# Narrow textures

@pytest.mark.parametrize(
    "shape, layout, expected",
    [
        ((1, 1, 90, 2), image_layout(4), Layout((0,), (2, 3), 1)),
        ((3, 1, 5, 2), image_layout(4), Layout((), (0, 2, 3), 1)),
        ((2, 1, 7, 9, 2, 3), image_layout(6), Layout((0,), (2, 3, 4, 5), 1)),
        ((5184, 1), matrix_layout(2), Layout((), (0,), 1)),
        ((1, 4, 90, 16), image_layout(4), Layout((0,), (2, 3), 1)),
        ((1, 4, 90, 17), image_layout(4), image_layout(4)),
        ((90, 68), matrix_layout(2), matrix_layout(2)),
    ],
)
def test_widened_layouts_have_rows_beside_each_other(shape: Any, layout: Layout, expected: Layout) -> None:
    assert widened(layout, shape) == expected


def test_a_narrow_texture_is_widened_where_only_generated_kernels_touch_it() -> None:
    """A convolution wants the rows of an image below each other."""
    narrow = image(1, 8, 90, 2).sum([1], keepdims=True).named("narrow")
    read = {"y": narrow.sum([2]), "z": narrow.sum([3])}
    convolved = narrow.conv2d(const(4, 1, 1, 1))
    for outputs, size in ((read, (180, 1)), ({**read, "c": convolved}, (2, 90))):
        texture = by_name(planned(**outputs), "narrow")
        assert (texture.tiling.width, texture.tiling.height) == size


def test_the_gaps_between_rows_of_a_narrow_texture_take_no_memory() -> None:
    """What 2000 computed indices choose is one texel wide, and rows begin at every 64th."""
    chosen = rows(image(64, 3), image(2000, name="index").apply("floor"))
    shared = replace(target(), images_in_buffers=Alignment(64, 64, 1 << 30))
    graph = run_passes(build_graph({"y": chosen.sum([1]), "z": chosen.sum([0])}))
    plan = lower(graph, Config(), shared)
    assert plan.workspace_bytes < 1.5 * plan.most_alive


# Concatenations

def written_parts(plan: Plan, whole: str) -> list[str]:
    """The names of the launches that write into the texture of a concatenation."""
    return [launch.name for launch in plan.launches if launch.writes.name == whole]


def branch(x: Tensor, channels: int, seed: int) -> Tensor:
    return x.conv2d(const(channels, x.shape[1], 1, 1, seed=seed)).relu()


def in_place(**outputs: Tensor) -> dict[str, tuple[str, int]]:
    graph = run_passes(build_graph(outputs))
    return concatenations_in_place(graph, choose_layouts(graph))


def test_parts_of_whole_texels_are_written_in_place() -> None:
    x = image()
    parts = [branch(x, n, i).named(f"p{i}") for i, n in enumerate((8, 4, 12))]
    whole = concatenate(parts, 1).named("whole")
    y = whole.conv2d(const(4, 24, 1, 1))
    assert in_place(y=y) == {"p0": ("whole", 0), "p1": ("whole", 8), "p2": ("whole", 12)}
    plan = planned(y=y)
    assert kinds(plan) == ["pack", *["compute"] * 4, "unpack"]
    assert written_parts(plan, "whole") == ["p0", "p1", "p2"]
    texts = [n.source.text for n in plan.launches if n.writes.name == "whole"]
    for name, values in (("OFFSET", ["0", "2", "3"]), ("PITCH", ["6", "6", "6"])):
        assert [re.findall(rf"#define OUTPUT_{name} (\d+)\n(?!#endif)", text)[0] for text in texts] == values


def test_each_part_of_a_dense_block_is_read_only_where_it_is_not_written() -> None:
    """Each layer reads all that came before: in place would read and write one image."""
    x = branch(image(), 8, 0)
    for number in range(1, 4):
        x = concatenate([x, branch(x, 4, number)], 1)
    plan = planned(y=x.conv2d(const(4, 20, 1, 1)))
    assert all(n.kind != "copy" or n.reason for n in plan.launches)


def test_a_part_read_by_its_neighbours_kernel_is_copied() -> None:
    x = image()
    a = branch(x, 4, 0).named("a")
    b = branch(a, 4, 1).named("b")
    y = concatenate([a, b], 1).named("whole").conv2d(const(4, 8, 1, 1))
    assert len(in_place(y=y)) == 1
    assert kinds(planned(y=y)).count("copy") == 1


def test_concatenations_in_concatenations() -> None:
    x = image()
    a, b = branch(x, 4, 0).named("a"), branch(x, 4, 1).named("b")
    inner = concatenate([a, b], 1).named("inner")
    free = concatenate([inner, branch(x, 4, 2).named("c")], 1).named("outer")
    found = in_place(y=free.conv2d(const(4, 12, 1, 1)), z=inner.conv2d(const(4, 8, 1, 1)))
    assert found == {"a": ("inner", 0), "b": ("inner", 4), "inner": ("outer", 0), "c": ("outer", 8)}
    # c's kernel reads a, which would lie in the image that c is written into.
    bound = concatenate([inner, branch(a, 4, 2).named("c")], 1).named("outer")
    y, z = bound.conv2d(const(4, 12, 1, 1)), inner.conv2d(const(4, 8, 1, 1))
    found = in_place(y=y, z=z)
    assert not ({"inner", "c"} <= found.keys()), found
    planned(y=y, z=z)


@pytest.mark.parametrize("twice", ["the same", "flipped", "a slice"])
def test_a_value_that_is_a_part_twice(twice: str) -> None:
    s = branch(image(), 8, 0)
    other = {"the same": s, "flipped": s.slice(3, 5, -1, -1), "a slice": s.slice(1, 4, 8)}[twice]
    planned(y=concatenate([s, other], 1).conv2d(const(4, 8 + other.shape[1], 1, 1)))


def test_outputs_and_inputs_as_parts() -> None:
    x, z = image(), image(name="z")
    a = branch(x, 4, 0)
    plan = planned(y=concatenate([a, z], 1).conv2d(const(4, 12, 1, 1)), a=a)
    # The input is packed into its place; the output keeps a texture of its own.
    assert "pack" in {n.kind for n in plan.launches if n.name == "z"}
    planned(y=concatenate([x, z], 1), a=x.relu())


def test_a_part_goes_into_one_concatenation_only() -> None:
    x = image()
    a, b, c = (branch(x, 4, i).named(n) for i, n in enumerate("abc"))
    one, two = concatenate([a, b], 1).named("one"), concatenate([a, c], 1).named("two")
    found = in_place(y=one.conv2d(const(4, 8, 1, 1)), z=two.conv2d(const(4, 8, 1, 1, seed=1)))
    assert found == {"a": ("one", 0), "b": ("one", 4), "c": ("two", 4)}


# short or int

def index_types(plan: Plan) -> dict[str, str]:
    found = {}
    for launch_ in plan.launches:
        match = re.search(r"#define INDEX (\w+)", launch_.source.text)
        assert match
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


def test_flat_buffer_positions_need_ints() -> None:
    """A texture of 100 x 100 texels fits a short, the 40000 numbers of the host buffer do not."""
    plan = planned(y=image(1, 4, 100, 100).conv2d(const(4, 4, 1, 1)))
    types = index_types(plan)
    assert types["x pack"] == types["y unpack"] == "int" and types["y compute"] == "short"


@given(networks())
@settings(max_examples=40, deadline=None)
def test_no_short_kernel_has_a_number_that_no_short_holds(network: Network) -> None:
    plan = lower(run_passes(network.graph), Config(), target())
    for launch_ in plan.launches:
        if "#define INDEX short" in launch_.source.text and launch_.source.path == "generated":
            assert all(int(n) <= 32767 for n in re.findall(r"(?<![\w.])\d+(?![\w.])", launch_.source.text))
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
    convolutions = [launch for launch in plan.launches if launch.choice]
    assert [launch.values for launch in convolutions] == [(launch.name,) for launch in convolutions]
    for launch in convolutions:
        chosen = launch.choice
        assert chosen is not None and chosen.template == "convolution" and chosen.seconds is None
        assert chosen.problem.multiply_adds == launch.multiply_adds > 0
        assert str(chosen.specialisation) == launch.specialisation
        assert chosen.predicted == TEMPLATE.cost(chosen.problem, chosen.specialisation, target())
    assert convolutions[0].choice == convolutions[1].choice != convolutions[2].choice


def test_weights_are_packed_once_and_choices_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where textures fold, so that launches are made again."""
    packed, asked = [], []
    pack = conv_weights.pack_weights

    def counting(*arguments: Any) -> Any:
        packed.append(arguments)
        return pack(*arguments)

    def choosing(problem: Any, kind: str, units: int) -> Any:
        asked.append(problem)
        return default_specialisation(problem, kind, units)

    def folding(self: Emitter, made: Any, folded: Any) -> Any:
        folds.append(len(folded))
        return again(self, made, folded)

    again, folds = Emitter.again, []
    monkeypatch.setattr(conv_weights, "pack_weights", counting)
    monkeypatch.setattr(Emitter, "again", folding)
    lower(three_layers(), Config(), target(), chooser=Taking(convolution=choosing))
    assert folds and folds[0] > 0, "nothing folds: another network is needed"
    assert len(packed) == len(asked) == 3


# Limits

def test_a_tensor_that_no_image_holds_is_named() -> None:
    y = image(1, 8, 20, 20).conv2d(const(8, 8, 1, 1)).relu()
    with pytest.raises(ResourceError) as raised:
        planned(on=target(limit=8, layers=2), y=y)
    assert raised.value.tensor == "x" and raised.value.shape == (1, 8, 20, 20)
    assert "'x'" in str(raised.value) and "2 layers" in str(raised.value)


def test_weights_that_no_image_holds_are_named() -> None:
    with pytest.raises(ResourceError) as raised:
        planned(on=target(limit=32, layers=1), y=image(1, 32, 4, 4).conv2d(const(32, 32, 3, 3)))
    assert raised.value.tensor == "y.weights"


def test_a_kernel_of_too_many_images_is_refused() -> None:
    """The input, the weights and two images for the epilogue."""
    y = image().conv2d(const(8, 8, 1, 1)) + image(name="a") + image(name="b")
    graph, in_image = run_passes(build_graph({"y": y})), Taking(convolution=lambda *_: Specialisation(weights="image"))
    lower(graph, Config(), target(max_read_images=4), chooser=in_image)
    with pytest.raises(ResourceError, match="reads 4 images, this device takes 3") as raised:
        lower(graph, Config(), target(max_read_images=3), chooser=in_image)
    assert raised.value.tensor == "y"


def test_a_lower_limit_gives_the_same_launches_on_smaller_images() -> None:
    graph: Graph = build_graph({"y": image(1, 8, 50, 50).conv2d(const(8, 8, 3, 3), padding=1).relu()})
    _, whole = compile_graph(graph, Config(), target())
    _, tiled = compile_graph(graph, Config(max_image=32), target())
    check_plan(tiled, ImageLimits(32, 32, 2048))
    assert kinds(whole) == kinds(tiled)
    assert max(t.tiling.tiles for t in whole.textures) == 1 < max(t.tiling.tiles for t in tiled.textures)
    assert "read_tiled" in tiled.launches[1].source.text and "read_tiled" not in whole.launches[1].source.text
    # The configured limit never raises the device's own.
    _, small = compile_graph(graph, Config(max_image=10**6), target(limit=64))
    check_plan(small, ImageLimits(64, 64, 2048))


def test_work_groups_that_a_device_does_not_take() -> None:
    mean = image(1, 8, 64, 64).mean([2, 3])
    plan = planned(y=mean)
    (size,) = {launch.source.local_size or () for launch in plan.launches if "__local" in launch.source.text}
    items = prod(size)
    assert planned(on=replace(target(), max_work_group=items), y=mean) == plan
    refused = f"work groups of {items} work items, this device takes {items - 1}"
    with pytest.raises(ResourceError, match=refused) as raised:
        planned(on=replace(target(), max_work_group=items - 1), y=mean)
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
