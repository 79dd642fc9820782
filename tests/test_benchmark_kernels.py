"""Analysis of kernels in the benchmarks, as OpenCL C and as Adreno's machine code; nothing here needs a device."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any

import pytest
from benchmark_graphs import CPU, GPU, small_plan, weights
from graphs import Taking

from benchmarks import adreno, adreno_mesa, measure
from benchmarks.adreno_mesa import Kernel
from benchmarks.adreno_rows import LAUNCH_COLUMNS, TOTAL_COLUMNS, Total, row_of, rows_of
from benchmarks.adreno_simulator.launches import Binary, run_kernel
from benchmarks.adreno_simulator.listing import parse
from benchmarks.kernel_text import evaluate, preprocess, read_kernel
from benchmarks.machine_code import Work, block_trips
from imgconv.compiling.lower import lower
from imgconv.config import Config
from imgconv.errors import Error
from imgconv.kernels.conv import candidates as conv_candidates, work as conv_work
from imgconv.kernels.conv.problem import Problem, Specialisation
from imgconv.kernels.device_model.adreno import A630
from imgconv.kernels.target import Target
from imgconv.passes import run_passes
from imgconv.tensor import Tensor, build_graph, convolution


# Reading kernels


@pytest.mark.parametrize(
    ("text", "value"), [("(56 + 4 - 1) / 4", 14), ("7 % 4", 3), ("1 && !0", 1), ("2 < 1 || 3 >= 3", 1), ("4 != 4", 0)]
)
def test_evaluate(text: str, value: int) -> None:
    tokens, _ = preprocess(text)
    assert evaluate(tokens) == value


def test_evaluate_refuses_what_is_not_constant() -> None:
    with pytest.raises(ValueError, match=r"not a constant: row \+ 1"):
        evaluate(["row", "+", "1"])


KERNEL = """
#define STEPS 6
#define HALF (STEPS / 2)
#define READ(x, y) read_imagef(a, TEXEL, (int2)(x, y))
#ifndef STEPS
#define STEPS 99
#endif
inline float4 twice(int x) { return READ(x, 0) + READ(x, 1); }
__kernel void k(__global float4 *o) {
  if (get_global_id(0) >= 30 || get_global_id(1) >= HALF) return;
  for (int r = get_local_id(0); r < 130; r += 64) {
#if HALF == 3 && defined(STEPS)
#pragma unroll
    for (int n = 0; n < HALF; n++)
      if (n > 0) sum = mad(READ(n, r), w, sum); else sum += twice(r);
#else
    for (int n = 0; n < 1000; n++) sum += READ(n, n);
#endif
  }
  for (int h = 32; h > 0; h /= 2) { part[h] = 0; }
  for (int n = 1; n <
       STEPS; n += 2) sum += twice(n);
}
#undef STEPS
"""


def test_blocks_of_a_long_sum() -> None:
    """A loop may count up to the end of a block, which is the shorter of its stride and what is left."""
    text = """
__kernel void NAME(read_only image2d_t x) {
  const int begin = get_global_id(2) * 500, last = min(begin + 500, 1200);
  for (int b = begin; b < last; b += 64) {
    const int end = min(b + 64, last);
    for (int r = b; r < end; r += 2) sum += read_imagef(x, (int2)(r, 0));
  }
}
"""
    (blocks,) = read_kernel(text).loops.loops
    assert (blocks.trips, blocks.loops[0].trips, blocks.total_reads) == (8, 32, 256)


def test_loops_trips_reads_and_multiply_adds() -> None:
    found = read_kernel(KERNEL)
    outer, halving, last = found.loops.loops
    (inner,) = outer.loops
    assert (outer.trips, inner.trips, halving.trips, last.trips) == (3, 3, 6, 3)
    assert (inner.reads, inner.multiply_adds, last.reads) == (3, 4, 2)
    assert found.loops.total_reads == 3 * 3 * 3 + 3 * 2
    assert found.loops.total_multiply_adds == 3 * 3 * 4
    assert found.limits == (30, 3)
    assert found.items((32, 4)) == 90 and found.items((16, 2)) == 32


def one_by_one(problem: Problem, kind: str, units: int) -> Specialisation:
    """The best that shares no sums."""
    made = [c for c in conv_candidates.candidates(problem, kind, units) if c.parts == 1]
    return min(made, key=lambda c: conv_work.predicted_time(problem, c, kind, units))


@pytest.mark.parametrize("target", [GPU, CPU], ids=["gpu", "cpu"])
@pytest.mark.parametrize(
    ("channels", "filters", "window", "groups", "transposed"),
    [(16, 32, 3, 1, False), (16, 16, 1, 1, False), (16, 16, 3, 16, False), (3, 8, 5, 1, False), (16, 8, 2, 1, True)],
)
def test_the_text_says_what_a_convolution_costs(
    target: Target, channels: int, filters: int, window: int, groups: int, transposed: bool
) -> None:
    x = Tensor.input("x", (1, channels, 16, 16))
    shape = (channels, filters) if transposed else (filters, channels // groups)
    w, pads = weights(*shape, window, window), [0 if transposed else window // 2] * 4
    strides = [2, 2] if transposed else [1, 1]
    y = convolution(x, w, strides, pads, [1, 1], groups, None, transposed)
    plan = lower(run_passes(build_graph({"y": y}, [x])), Config(), target, chooser=Taking(convolution=one_by_one))
    (launch,) = (launch for launch in plan.launches if launch.multiply_adds)
    text = read_kernel(launch.source.text)
    items = text.items(launch.source.global_size)
    made = text.loops.total_multiply_adds * items
    whole = ceil(channels / 4) * 4 / channels if groups == 1 and channels > 4 else 1
    assert launch.multiply_adds <= made <= launch.multiply_adds * whole * 2
    block = [int(n) for n in launch.specialisation.split()[1].strip(",").split("x")]
    taps = 1 if transposed else window
    quads = 1 if groups > 1 else ceil(channels / 4)
    passes = re.search(r"(\d+) passes", launch.specialisation)
    sums = math.prod(block) * (int(passes[1]) if passes else 1)
    lanes = min(4, channels) if groups == 1 else 1
    assert text.loops.total_multiply_adds == sums * 4 * quads * taps**2 * lanes


def test_every_launch_is_read() -> None:
    for target in (GPU, CPU):
        for launch in small_plan(target).launches:
            text = read_kernel(launch.source.text)
            assert text.items(launch.source.global_size) > 0
            assert bool(text.loops.total_multiply_adds) == bool(launch.multiply_adds)


# Machine code


def block(issue: int, half: int = 0, waits: int = 0) -> dict[str, Any]:
    return {"n": issue, "half_alu": half, "sstall": waits // 3, "systall": waits - waits // 3}


def kernel_of(listing: str, blocks: list[dict[str, Any]], **statistics: Any) -> Kernel:
    """A kernel with some code."""
    made = {"full_regs": 24, "max_waves": 8, "stp": 0, "ldp": 1, "subgroup": 64, "shared": 0, "blocks": blocks}
    return Kernel(made | statistics, f"code\n{listing}end\n")


# Five trips for lanes with four or more in r0.x: a preamble, what is before the loop, the loop, and the end.
LOOP = """shps #l1
getone #l1
add.u r48.x, r48.x, 0
(sy)(ss)shpe
l1:
mov.u32u32 r1.x, 0
(nop2) min.u r1.y, r0.x, 4
l2:
(rpt2)nop
cmps.u.lt p0.x, r1.x, r1.y
(nop3) add.u r1.x, r1.x, 1
br p0.x, #l2
"""


def test_trips_of_blocks() -> None:
    """A wave runs a loop as often as the lane that stays the longest; the preamble counts for nothing."""
    code = parse(f"code\n{LOOP}end\n")
    counts = run_kernel(Binary(code, 64), [], (128, 3), (64, 1))
    blocks = [block(4), block(4), block(0), block(9), block(1)]
    assert block_trips(blocks, code, counts) == [0, 6, 0, 6 * 5, 6]
    assert (counts.slots, counts.waves) == (6 * (4 + 5 * 9 + 1), 6)
    with pytest.raises(AssertionError, match="another kernel"):
        block_trips([block(4), block(5)], code, counts)


def test_issue_slots_of_an_instruction() -> None:
    text = "nop\n(rpt3)nop\n(nop2) add.u r1.x, r1.x, 1\n(rpt1)mov.u32u32 r1.x, 0\nswz.u32u32 r0.x, r1.x, r1.x, r0.x\n"
    assert [each.slots for each in parse(f"code\n{text}").instructions] == [1, 4, 3, 2, 2]


def test_a_sample_of_the_work_groups_counts_as_all_do() -> None:
    """A kernel that leaves out the last group of each row and column of groups, and one column of each group."""
    text = """cmps.u.ge p0.x, r48.x, 4
cmps.u.ge p0.y, r48.y, 5
brao p0.x, p0.y, #l9
cmps.u.lt p0.x, r0.x, 7
predt
ldl.u32 r1.x, l[r2.x], 1
prede
(nop1) add.u r1.x, r1.x, 1
l9:
"""
    binary = Binary(parse(f"code\nmov.u32u32 r2.x, 0\n{text}end\n"), 8)
    every, sample = (run_kernel(binary, [], (40, 12), (8, 2), sampled=sampled) for sampled in (False, True))
    assert every == sample
    assert (every.waves, every.local) == (5 * 6 * 2, 4 * 5 * 7 * 2)
    assert every.busy == 8 * every.slots - 2 * 4 * 5 * 2  # of the predicated block and its end


def code_of(text: str) -> Kernel:
    """Code that reads as many texels as a kernel's source, one after another."""
    reads = read_kernel(text).loops.total_reads
    return kernel_of("isam (f32)(xyzw)r4.x, r0.x, s#0, t#0\n" * reads, [block(reads + 1)])


def test_adreno_rows_and_totals() -> None:
    plan = small_plan()
    compiled = {launch.source.text: code_of(launch.source.text) for launch in plan.launches}
    compiled[plan.launches[-1].source.text] = Kernel(error="no luck")
    total = Total("small", A630, rows_of(plan, A630, compiled))
    content = json.loads(json.dumps(total.to_json()))
    assert content["not_compiled"] == 1 and content["launches"] == len(plan.launches) == len(content["rows"])
    assert content["predicted_seconds"] == pytest.approx(sum(content["seconds_by_bound"].values()))
    assert content["slots_per_frame"] == sum(row["slots"] for row in content["rows"])
    row = next(row for row in total.rows if row.launch.multiply_adds)
    size, reads = math.prod(row.launch.source.global_size), row.text.loops.total_reads
    assert row.check == pytest.approx(size / row.items) and row.spills == 1 and row.lanes % 64 == 0
    assert row.work.reads == size * reads and row.issue == reads + 1 and row.slots == (reads + 1) * row.lanes
    assert row.slots_per_multiply_add == pytest.approx(row.slots / row.launch.multiply_adds)
    assert measure.make_table("t", LAUNCH_COLUMNS, total.rows).row_count == len(plan.launches)
    assert measure.make_table("t", TOTAL_COLUMNS, [total]).row_count == 1


def test_a_row_has_the_time_of_its_machine_code() -> None:
    """A loop of 16 trips: 30 of its 50 slots are in half; 4 work groups of two full waves. An access to local memory in
    the loop, and one before it."""
    launch = next(launch for launch in small_plan().launches if launch.multiply_adds)
    source = replace(launch.source, text="__kernel void NAME() {}", global_size=(256, 4), local_size=(256, 1))
    launch = replace(launch, source=source, moved_bytes=1000, multiply_adds=51200)
    code = """mov.u32u32 r1.x, 0
mov.u32u32 r1.y, 0
stl.u32 l[r1.y], r1.x, 1
""" + "(rpt5)nop\n" * 6 + """nop
l9:
isam (f32)(x)r2.x, r0.x, s#0, t#0
ldl.u32 r2.x, l[r1.y], 1
add.u r1.x, r1.x, 1
cmps.u.lt p0.x, r1.x, 16
""" + "(rpt4)nop\n" * 9 + "br p0.x, #l9\n"
    blocks = [block(40, waits=10), block(50, half=30, waits=25), block(1)]
    kernel = kernel_of(code, blocks, subgroup=128)
    row = row_of(launch, A630, kernel)
    assert row.work == Work(8 * 841, 1024 * 841, 8 * 480, 8 * 410, 1024 * 16, 1024 * 17, 8)
    assert (row.launch_waves, row.lanes, row.items, row.idle) == (8, 1024, 1024, 0)
    assert (row.half, row.waiting) == (480 / 841, 410 / 1251)
    assert row.time.arithmetic == pytest.approx(1024 * (480 / 345e9 + 361 / 234e9))
    assert row.time.texture == pytest.approx(1024 * 16 / 11e9)
    assert row.time.memory == pytest.approx(1000 / 20.86e9)
    assert (row.seconds, row.time.bottleneck) == (row.time.arithmetic + 10e-6, "launch")
    assert row.multiply_adds_per_read == 51200 / (1024 * 16)
    sharing = row_of(launch, A630, replace(kernel, statistics={**kernel.statistics, "shared": 1 << 15}))
    assert (row.local, sharing.local, sharing.group_waves) == (0, 17, 2)
    assert sharing.time.texture == pytest.approx(1024 * (16 + 17) / 11e9)
    assert sharing.time.arithmetic == pytest.approx(2 * row.time.arithmetic)  # a group at once on each of two cores
    total = Total("one", A630, [row, row])
    assert total.bounds == pytest.approx({"arithmetic": 0, "texture": 0, "memory": 0, "launch": 2 * row.seconds})
    assert (total.few_waves, total.half, total.idle) == (2, row.half, 0)


def test_bare_kernels_multiply_as_much_and_store_their_sums() -> None:
    plan, call = small_plan(), "#define EPILOGUE(sum, column, row, quad) epilogue"
    pairs = list(zip(plan.launches, adreno.without_epilogues(plan).launches, strict=True))
    assert any(call in fused.source.text for fused, _ in pairs)
    for fused, bare in pairs:
        assert call not in bare.source.text
        loops, rest = read_kernel(fused.source.text).loops, read_kernel(bare.source.text).loops
        assert loops.total_multiply_adds == rest.total_multiply_adds


def test_work_groups_are_filled_up_to_waves() -> None:
    launch = small_plan().launches[0]
    sized = replace(launch, source=replace(launch.source, global_size=(8, 8, 4), local_size=(4, 4, 2)))
    for subgroup in (64, 128):
        row = row_of(sized, A630, kernel_of("", [block(1)], subgroup=subgroup))
        assert row.lanes == 2 * 2 * 2 * subgroup and row.idle == 1 - 32 / subgroup
    free = replace(launch, source=replace(launch.source, global_size=(10, 10), local_size=None))
    assert row_of(free, A630, kernel_of("", [block(1)])).lanes == 128


def test_without_mesa_it_says_how(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ADRENO_MESA", str(tmp_path))
    with pytest.raises(Error, match="IR3_STATS_FILE") as caught:
        adreno_mesa.find_mesa(False)
    assert str(tmp_path) in str(caught.value)
