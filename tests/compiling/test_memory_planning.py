"""The memory that textures share: slots of images, regions of one buffer. No device is needed."""

from __future__ import annotations

from dataclasses import replace

import numpy
from graphs import const, image, target
from hypothesis import given, settings
from hypothesis import strategies as st
from plans import branch, by_name, planned, rows

from imgconv.compiling.lower import lower
from imgconv.compiling.memory_planning import assign_regions, assign_slots, lifetimes, most_alive
from imgconv.compiling.plan import Launch, Plan
from imgconv.config import Config
from imgconv.dtype import FLOAT16, FLOAT32, DType
from imgconv.kernels.codegen.access import KernelArgument
from imgconv.kernels.kernel_source import KernelSource
from imgconv.kernels.layout import HostBuffer, ImageAlignment, ImageLimits, Texture, choose_tiling, image_layout
from imgconv.kernels.target import Target
from imgconv.passes import run_passes
from imgconv.tensor import build_graph

LIMITS = ImageLimits(64, 64, 1)


def texture(
    name: str, channels: int = 4, dtype: DType = FLOAT32, size: tuple[int, int] = (4, 4), bordered: bool = True
) -> Texture:
    """A texture of size[0] x size[1] positions."""
    shape, layout = (1, channels, *size), image_layout(4)
    tiling = choose_tiling(*layout.grid(shape), LIMITS, name, shape)
    return Texture(name, shape, layout, dtype, replace(tiling, bordered=bordered))


def launch(writes: Texture | HostBuffer, *reads: Texture | HostBuffer) -> Launch:
    arguments = (KernelArgument("output", writes, True), *(KernelArgument(f"i{n}", r) for n, r in enumerate(reads)))
    return Launch(writes.name, "compute", KernelSource("", "", arguments, (1,), None), "")


def test_a_chain_alternates_between_two_slots() -> None:
    a, b, c, d, e = map(texture, "abcde")
    x = HostBuffer("x", (1, 4, 4, 4), image_layout(4), FLOAT32)
    launches = [launch(a, x), launch(b, a), launch(c, b), launch(d, c), launch(e, d), launch(x, e)]
    slots = assign_slots(launches)
    assert [slots[t] for t in (a, b, c, d, e)] == [0, 1, 0, 1, 0]


def test_a_texture_lives_from_its_first_writer_to_its_last_reader() -> None:
    a, b, w = map(texture, "abw")
    x = HostBuffer("x", (1, 4, 4, 4), image_layout(4), FLOAT32)
    launches = [launch(a, x), launch(b, a, w), launch(b, a), launch(x, b)]
    assert lifetimes(launches) == {a: (0, 2), b: (1, 3)}, "w is a constant: no launch writes it"


def test_a_residual_keeps_its_slot_until_it_is_read() -> None:
    a, b, c, d = map(texture, "abcd")
    x = HostBuffer("x", (1, 4, 4, 4), image_layout(4), FLOAT32)
    slots = assign_slots([launch(a, x), launch(b, a), launch(c, b), launch(d, c, a), launch(x, d)])
    assert slots[a] not in (slots[b], slots[c], slots[d]) and slots[b] != slots[c]
    assert slots[d] == slots[b], "b is free again"


def test_a_kernel_never_writes_into_what_it_reads() -> None:
    a, b = texture("a"), texture("b")
    x = HostBuffer("x", (1, 4, 4, 4), image_layout(4), FLOAT32)
    slots = assign_slots([launch(a, x), launch(b, a), launch(x, b)])
    assert slots[a] != slots[b]


def in_turn(*textures: Texture) -> list[Launch]:
    """Each is written and read before the next is."""
    return [step for t in textures for step in (launch(t, X), launch(X, t))]


def test_slots_are_of_one_size_and_type() -> None:
    a, b, c, d = texture("a"), texture("b", 8), texture("c", 4, FLOAT16), texture("d")
    slots = assign_slots(in_turn(a, b, c, d))
    assert slots[d] == slots[a] and len({slots[t] for t in (a, b, c)}) == 3


def test_a_texture_whose_readers_test_their_position_lies_in_a_larger_image() -> None:
    a, b, c = (texture(n, channels, bordered=False) for n, channels in (("a", 4), ("b", 12), ("c", 8)))
    half, alone = texture("half", 4, FLOAT16, bordered=False), texture("alone")
    slots = assign_slots(in_turn(a, b, c, half, alone))
    assert slots[a] == slots[b] == slots[c] and len({slots[t] for t in (a, half, alone)}) == 3
    assert b.descriptor.holds(a) and not a.descriptor.holds(b)
    assert not b.descriptor.holds(alone) and not b.descriptor.holds(half)
    assert len(set(assign_slots(in_turn(alone, replace(alone, name="equal"), b)).values())) == 2


def test_an_image_grows_where_that_is_less_than_another_image() -> None:
    wide, tall = texture("wide", size=(12, 13), bordered=False), texture("tall", size=(13, 12), bordered=False)
    assert assign_slots(in_turn(wide, tall)) == {wide: 0, tall: 0}
    assert assign_slots(in_turn(replace(wide, tiling=replace(wide.tiling, bordered=True)), tall)) != {wide: 0, tall: 0}


def test_constants_take_no_slot() -> None:
    a, w = texture("a"), texture("w")
    x = HostBuffer("x", (1, 4, 4, 4), image_layout(4), FLOAT32)
    assert assign_slots([launch(a, x, w), launch(x, a)], frozenset({w})) == {a: 0}


def test_a_deep_network_needs_few_images() -> None:
    t = image(1, 8, 16, 16)
    for number in range(20):
        t = t.conv2d(const(8, 8, 3, 3, seed=number), padding=1).relu()
    plan = planned(y=t)
    assert len(plan.slots) == 21 and len(set(plan.slots.values())) == 2
    assert plan.activation_bytes == 2 * by_name(plan, "x").bytes


X = HostBuffer("x", (1, 4, 4, 4), image_layout(4), FLOAT32)


@st.composite
def launch_lists(draw: st.DrawFn) -> list[Launch]:
    """Each launch makes a new texture from some of those before it."""
    made: list[Texture] = []
    launches = []
    for number in range(draw(st.integers(1, 12))):
        reads = draw(st.lists(st.sampled_from(made), max_size=3)) if made else []
        made.append(texture(f"t{number}", draw(st.integers(1, 70)), draw(st.sampled_from([FLOAT32, FLOAT16]))))
        launches.append(launch(made[-1], *reads))
    return [*launches, launch(X, made[-1])]


@given(launch_lists(), st.sampled_from([1, 8, 64]), st.sampled_from([1, 64]))
def test_regions_that_are_alive_together_are_apart(launches: list[Launch], row: int, base: int) -> None:
    alive = lifetimes(launches)
    regions = assign_regions(launches, frozenset(), ImageAlignment(row, base, 1 << 30))
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
    """Launch lists like those of `launch_lists`, with textures of many shapes; some are bordered."""
    sizes, made = st.tuples(st.integers(1, 20), st.integers(1, 12)), []
    for number in range(draw(st.integers(1, 14))):
        dtype, bordered = draw(st.sampled_from([FLOAT32, FLOAT16])), draw(st.integers(0, 4)) == 0
        made.append(texture(f"t{number}", draw(st.integers(1, 17)), dtype, draw(sizes), bordered))
    reads = [draw(st.lists(st.sampled_from(made[:at]), max_size=3)) if at else [] for at in range(len(made))]
    return [*(launch(t, *read) for t, read in zip(made, reads, strict=True)), launch(X, made[-1])]


@given(shapes_in_turn())
@settings(max_examples=200, deadline=None)
def test_images_hold_their_textures_one_at_a_time(launches: list[Launch]) -> None:
    alive = lifetimes(launches)
    slots = assign_slots(launches)
    assert slots.keys() == alive.keys()
    images = Plan((), (), (), {}, {}, {}, slots).images
    for t, number in slots.items():
        image = images[number]
        assert image.holds(t) and image.width <= LIMITS.width and image.height <= LIMITS.height
        for u, other in slots.items():
            together = alive[t][0] <= alive[u][1] and alive[u][0] <= alive[t][1]
            assert t is u or number != other or not together
    assert most_alive(launches) <= sum(i.bytes for i in images.values()) <= sum(t.bytes for t in alive)


def test_a_chain_takes_what_is_alive_at_once() -> None:
    a, b, c = texture("a", 8), texture("b", 4), texture("c", 16)
    launches = [launch(a, X), launch(b, a), launch(c, b), launch(X, c)]
    regions = assign_regions(launches, frozenset(), ImageAlignment(1, 1, 1 << 20))
    assert max(r.offset + r.bytes for r in regions.values()) == most_alive(launches) == b.bytes + c.bytes
    too_small = ImageAlignment(1, 1, b.bytes + c.bytes - 1)
    assert assign_regions(launches, frozenset(), too_small) == {}, "no buffer is as large"


def test_what_lasts_has_no_region() -> None:
    a, state = texture("a"), texture("state")
    launches = [launch(a, state), launch(state, a)]
    assert list(assign_regions(launches, frozenset({state}), ImageAlignment(1, 1, 1 << 20))) == [a]
    assert most_alive(launches, frozenset({state})) == a.bytes


def test_memory_is_known_from_the_plan() -> None:
    x = image()
    shared = Target(target().limits, "gpu", 8, images_in_buffers=ImageAlignment(8, 8, 1 << 30))
    graph = run_passes(build_graph({"y": branch(branch(x, 8, 0), 12, 1)}, [x]))
    for chosen in (target(), shared):
        plan = lower(graph, Config(), chosen)
        memory = plan.memory
        assert memory.lower_bound <= memory.activations
        assert memory.peak == plan.bytes == memory.weights + memory.activations + memory.states + memory.buffers
        assert set(plan.regions if chosen is shared else plan.slots) == set(lifetimes(plan.launches))
    assert plan.activation_places == "one workspace" and "one workspace" in str(plan)


def test_the_gaps_between_rows_of_a_narrow_texture_take_no_memory() -> None:
    """Elements that 2000 computed indices choose are one texel wide, and rows begin at every 64th."""
    chosen = rows(image(64, 3), image(2000, name="index").apply("floor"))
    shared = replace(target(), images_in_buffers=ImageAlignment(64, 64, 1 << 30))
    graph = run_passes(build_graph({"y": chosen.sum([1]), "z": chosen.sum([0])}))
    plan = lower(graph, Config(), shared)
    assert plan.workspace_bytes < 1.5 * plan.most_alive
