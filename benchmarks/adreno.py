"""A network's kernels as machine code for Adreno GPUs, by Mesa's compiler; no Adreno is needed, and nothing is run.

    python -m benchmarks.adreno [NAME or FILE.onnx ...] [--gpu 630,650,740] [--bare] [--summary] [--json FILE]

The network is planned for a GPU of that size; no device is used. Each kernel is compiled once by Mesa's freedreno
compiler, which is not Qualcomm's. Its instructions are weighted by the trip counts of its loops.

    issue/MAC   issue slots of a work item for each multiply-add that it makes; 1.0 is the floor
    slots/MAC   issue slots of the launch, for every lane of every wave, idle ones too, for each multiply-add that the
                network asks for: adds the rounding up to blocks, work groups and waves
    MAC/read    multiply-adds for each texture read
    regs        registers of four floats; waves: how many a core holds at once; spills: to memory
    check       texture reads by the weighted machine code, divided by those by the kernel's source: 1 if the loops of
                both were matched and the compiler merged no reads
    slots       issue slots of all launches of a frame, in millions

Loops that the compiler unrolled are not in the machine code. The others are matched with the source's loops, in order,
so that the texture reads and multiply-adds of both agree best. Both arms of a branch count.

ADRENO_MESA names the folder of a Mesa build with its freedreno no-op device, default ~/.cache/adreno-mesa.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, prod
from pathlib import Path
from typing import Any

from benchmarks.adreno_mesa import INTEGER_COORDINATES, Mesa, find_mesa
from benchmarks.kernel_text import KernelText, Loop, read_kernel
from benchmarks.measure import (
    Column, add_output_argument, digits, environment, environment_line, make_table, positives, publish,
    run_main,
)
from benchmarks.networks import DEFAULT, Network, open_network
from imgconv.commands.arguments import positive
from imgconv.compiling.compiler import prepare
from imgconv.compiling.plan import Launch, Plan
from imgconv.config import read_config
from imgconv.kernels.layout import Alignment, ImageLimits
from imgconv.kernels.target import Target

LIMITS = ImageLimits(16384, 16384, 2048)
# Adreno makes images from parts of buffers; their rows have multiples of 64 texels.
ALIGNMENT = Alignment(64, 64, 1 << 30)
GPUS = (630, 650, 740)
# The convolution of the 2023 engine, compiled by the same Mesa for a630: problem, issue/MAC, MAC/read, regs, waves.
KERNEL_OF_2023 = (("1x1, 256 to 256 channels", 1.67, 8.0, 16, 6), ("3x3, 64 to 64 channels", 1.46, 10.7, 24, 6))


@dataclass
class MachineLoop:
    """A loop of the machine code, or the whole kernel. The counts are of one trip, without inner loops."""

    issue: int = 0
    reads: int = 0
    multiply_adds: int = 0
    loops: list[MachineLoop] = field(default_factory=list)


@dataclass(frozen=True)
class Work:
    """The instructions of a work item. multiply_adds: all of that class, with those of address arithmetic."""

    issue: float
    reads: float
    multiply_adds: float

    def __add__(self, other: Work) -> Work:
        return Work(self.issue + other.issue, self.reads + other.reads, self.multiply_adds + other.multiply_adds)


@dataclass(frozen=True)
class Row:
    """One launch on one GPU. error: why it has no code; every figure is zero then."""

    launch: Launch
    gpu: int
    text: KernelText
    issue: float = 0
    reads: float = 0
    registers: int = 0
    waves: int = 0
    spills: int = 0
    subgroup: int = 64
    error: str = ""

    @property
    def lanes(self) -> int:
        """Lanes of all waves of the launch: work groups are filled up to whole waves."""
        size, local = self.launch.source.global_size, self.launch.source.local_size
        if local is None:
            return ceil(prod(size) / self.subgroup) * self.subgroup
        return prod(size) // prod(local) * ceil(prod(local) / self.subgroup) * self.subgroup

    @property
    def slots(self) -> float:
        return self.issue * self.lanes

    @property
    def item_multiply_adds(self) -> int:
        return self.text.loops.total_multiply_adds

    @property
    def issue_per_multiply_add(self) -> float | None:
        return self.issue / self.item_multiply_adds if self.item_multiply_adds and not self.error else None

    @property
    def slots_per_multiply_add(self) -> float | None:
        return self.slots / self.launch.multiply_adds if self.launch.multiply_adds and not self.error else None

    @property
    def multiply_adds_per_read(self) -> float | None:
        return self.item_multiply_adds / self.reads if self.item_multiply_adds and self.reads else None

    @property
    def check(self) -> float | None:
        wanted = self.text.loops.total_reads
        return self.reads / wanted if wanted and not self.error else None

    def to_json(self) -> dict[str, Any]:
        launch = self.launch
        return {
            "launch": launch.name, "kind": launch.kind, "description": launch.description, "gpu": self.gpu,
            "specialisation": launch.specialisation, "global_size": launch.source.global_size,
            "local_size": launch.source.local_size, "multiply_adds": launch.multiply_adds, "error": self.error,
            "issue_per_item": self.issue, "reads_per_item": self.reads, "lanes": self.lanes, "slots": self.slots,
            "issue_per_multiply_add": self.issue_per_multiply_add,
            "slots_per_multiply_add": self.slots_per_multiply_add,
            "multiply_adds_per_read": self.multiply_adds_per_read, "registers": self.registers, "waves": self.waves,
            "spills": self.spills, "check": self.check,
        }


@dataclass(frozen=True)
class Total:
    """All launches of a network on one GPU."""

    network: str
    gpu: int
    rows: Sequence[Row]

    @property
    def slots(self) -> float:
        return sum(row.slots for row in self.rows)

    @property
    def multiply_adds(self) -> int:
        return sum(row.launch.multiply_adds for row in self.rows)

    @property
    def issue_per_multiply_add(self) -> float:
        """The mean over launches with multiply-adds, weighted by their lanes."""
        rows = [row for row in self.rows if row.item_multiply_adds and not row.error]
        made = sum(row.item_multiply_adds * row.lanes for row in rows)
        return sum(row.slots for row in rows) / made if made else 0.0

    @property
    def multiply_adds_per_read(self) -> float:
        rows = [row for row in self.rows if row.item_multiply_adds and not row.error]
        reads = sum(row.reads * row.lanes for row in rows)
        return sum(row.item_multiply_adds * row.lanes for row in rows) / reads if reads else 0.0

    @property
    def other_slots(self) -> float:
        """The share of slots of the launches without multiply-adds."""
        return sum(row.slots for row in self.rows if not row.item_multiply_adds) / self.slots if self.slots else 0.0

    @property
    def spilling(self) -> int:
        return sum(row.spills > 0 for row in self.rows)

    @property
    def failed(self) -> int:
        return sum(bool(row.error) for row in self.rows)

    def to_json(self) -> dict[str, Any]:
        return {
            "network": self.network, "gpu": self.gpu, "launches": len(self.rows), "multiply_adds": self.multiply_adds,
            "slots_per_frame": self.slots, "slots_per_multiply_add": self.slots / max(1, self.multiply_adds),
            "issue_per_multiply_add": self.issue_per_multiply_add,
            "multiply_adds_per_read": self.multiply_adds_per_read, "other_slots": self.other_slots,
            "spilling_launches": self.spilling, "not_compiled": self.failed,
            "rows": [row.to_json() for row in self.rows],
        }


LAUNCH_COLUMNS = (
    Column("launch", lambda r: r.launch.name[:32]), Column("MMAC", lambda r: digits(r.launch.multiply_adds / 1e6)),
    Column("issue/MAC", lambda r: digits(r.issue_per_multiply_add)),
    Column("slots/MAC", lambda r: digits(r.slots_per_multiply_add)),
    Column("MAC/read", lambda r: digits(r.multiply_adds_per_read)), Column("regs", lambda r: str(r.registers)),
    Column("waves", lambda r: str(r.waves)), Column("spills", lambda r: str(r.spills)),
    Column("check", lambda r: digits(r.check)), Column("slots M", lambda r: digits(r.slots / 1e6)),
    Column("kernel", lambda r: r.error or r.launch.specialisation or r.launch.description[:40], True),
)
TOTAL_COLUMNS = (
    Column("network", lambda t: t.network), Column("code for", lambda t: f"a{t.gpu}"),
    Column("launches", lambda t: str(len(t.rows))), Column("MMAC", lambda t: digits(t.multiply_adds / 1e6)),
    Column("issue/MAC", lambda t: digits(t.issue_per_multiply_add)),
    Column("slots/MAC", lambda t: digits(t.slots / t.multiply_adds) if t.multiply_adds else "-"),
    Column("MAC/read", lambda t: digits(t.multiply_adds_per_read)),
    Column("slots without MAC", lambda t: f"{t.other_slots:.0%}"),
    Column("spilling", lambda t: str(t.spilling)), Column("not compiled", lambda t: str(t.failed)),
    Column("Mslots/frame", lambda t: digits(t.slots / 1e6)),
)


# Machine code and loops


def machine_loops(blocks: Sequence[Mapping[str, Any]]) -> MachineLoop:
    """The blocks of a kernel as a tree, by their loop depth. Code that runs before the waves is left out."""
    open_loops = [MachineLoop()]
    for block in blocks:
        if block["preamble"]:
            continue
        depth = block["depth"]
        del open_loops[depth + 1 :]
        while len(open_loops) <= depth:
            open_loops[-1].loops.append(MachineLoop())
            open_loops.append(open_loops[-1].loops[-1])
        loop = open_loops[depth]
        loop.issue += block["n"]
        loop.reads += block["tex"]
        loop.multiply_adds += block["cat"][3]
    return open_loops[0]


# A loop that the source asks to unroll is less likely in the machine code than a loop whose reads were moved out of it,
# which disagrees by 1.
UNROLLED = 1.25


def item_work(machine: MachineLoop, source: Loop) -> Work:
    """The instructions of one work item, by the matching of both trees of loops whose counts agree best."""
    return min(_matched(machine, source), key=lambda way: way[1])[0]


def _matched(machine: MachineLoop, source: Loop) -> Iterator[tuple[Work, float]]:
    """The work of one trip, for every matching of the machine's inner loops, in order, with the source's.

    Second, the disagreement of the counts of reads and multiply-adds, of the loop and its inner loops.
    """
    candidates = _real_loops(source)
    if len(machine.loops) > len(candidates):  # the compiler added loops: each runs at least once
        candidates += [Loop()] * (len(machine.loops) - len(candidates))
    for chosen in itertools.combinations(candidates, len(machine.loops)):
        pairs = list(zip(machine.loops, chosen, strict=True))
        for way in itertools.product(*(list(_matched(inner, loop)) for inner, loop in pairs)):
            work, off = Work(machine.issue, machine.reads, machine.multiply_adds), 0.0
            for (inner_work, inner_off), loop in zip(way, chosen, strict=True):
                work, off = work + _times(inner_work, loop.trips), off + inner_off
            unrolled = sum(loop.unrolled and loop.trips > 1 for loop in chosen)
            yield work, off + UNROLLED * unrolled + _disagreement(work, source)


def _disagreement(work: Work, source: Loop) -> float:
    """The difference of the counts of one trip, divided by the source's."""
    trips = max(1, source.trips)
    reads, multiply_adds = source.total_reads / trips, source.total_multiply_adds / trips
    missing = (multiply_adds - work.multiply_adds) / max(1, multiply_adds)
    # Instructions of the class also compute addresses: too many mean little, too few mean a wrong matching.
    return abs(work.reads - reads) / max(1, reads) + (missing if missing > 0 else -1e-3 * missing)


def _real_loops(source: Loop) -> list[Loop]:
    """The inner loops, and the inner loops of one with a single trip too: it stays a loop only if the compiler does not
    know the trip count."""
    made = []
    for loop in source.loops:
        if loop.trips > 1 or not loop.unrolled:
            made.append(loop)
        if loop.trips == 1:
            made += _real_loops(loop)
    return made


def _times(work: Work, trips: int) -> Work:
    return Work(work.issue * trips, work.reads * trips, work.multiply_adds * trips)


# A network


def plan_for(network: Network, options: argparse.Namespace) -> Plan:
    """The network's plan for the GPU; no device is needed."""
    config = read_config(options.float16, options.native_explog)
    return prepare(network.graph, config, target_for(options.compute_units)).plan()


def target_for(compute_units: int) -> Target:
    """A phone's GPU as a Target."""
    return Target(LIMITS, "gpu", compute_units, images_in_buffers=ALIGNMENT)


def without_epilogues(plan: Plan) -> Plan:
    """The plan with kernels that store their sums without epilogues."""

    def bare(launch: Launch) -> Launch:
        text = re.sub(r"(#define (?:DEPTHWISE_)?EPILOGUE\(.*?\)) .*", r"\1 (sum)", launch.source.text)
        return replace(launch, source=replace(launch.source, text=text))

    return replace(plan, launches=tuple(map(bare, plan.launches)))


def rows_of(plan: Plan, gpu: int, compiled: Mapping[str, Mapping[str, Any]]) -> list[Row]:
    """A row for each launch. compiled: by text, Mesa's statistics, or {"error": why there are none}."""
    return [row_of(launch, gpu, compiled[launch.source.text]) for launch in plan.launches]


def row_of(launch: Launch, gpu: int, stats: Mapping[str, Any]) -> Row:
    """A launch's row. stats: Mesa's, or {"error": why there are none}."""
    text = read_kernel(launch.source.text)
    if "error" in stats:
        return Row(launch, gpu, text, error=stats["error"])
    work = item_work(machine_loops(stats["blocks"]), text.loops)
    return Row(
        launch, gpu, text, work.issue, work.reads, stats["full_regs"], stats["max_waves"],
        stats["stp"] + stats["ldp"], stats["subgroup"],
    )


def main(options: argparse.Namespace) -> int:
    """Compiles every network for every GPU; 1 if a kernel does not compile."""
    mesa = find_mesa(options.integer_coordinates)
    totals = []
    with tempfile.TemporaryDirectory(prefix="imgconv-bench-") as folder:
        networks = [open_network(name, Path(folder)) for name in options.network or DEFAULT]
    plans = {network.name: plan_for(network, options) for network in networks}
    if options.bare:
        plans = {name: without_epilogues(plan) for name, plan in plans.items()}
    texts = list(dict.fromkeys(launch.source.text for plan in plans.values() for launch in plan.launches))
    compiled = mesa.compile(texts, options.gpu)
    for name, plan in plans.items():
        totals += [Total(name, gpu, rows_of(plan, gpu, compiled[gpu])) for gpu in options.gpu]
    show(options, mesa, totals)
    return 1 if any(total.failed for total in totals) else 0


def show(options: argparse.Namespace, mesa: Mesa, totals: Sequence[Total]) -> None:
    """Prints the tables and writes the JSON."""
    found = environment() | {"mesa": str(mesa.folder), INTEGER_COORDINATES: mesa.integer_coordinates}
    parts = [
        make_table(f"{total.network}: Mesa's a{total.gpu} code, launch by launch", LAUNCH_COLUMNS, total.rows)
        for total in totals if not options.summary
    ]
    parts.append(make_table("Networks: Mesa's code for each GPU; nothing was run on one", TOTAL_COLUMNS, totals))
    beside = [
        f"2023 engine's convolution, Mesa's a630 code, {problem}: issue/MAC {issue}, MAC/read {reads}, "
        f"{registers} registers, {waves} waves" for problem, issue, reads, registers, waves in KERNEL_OF_2023
    ]
    names = ("problem", "issue_per_multiply_add", "multiply_adds_per_read", "registers", "waves")
    content = {
        "environment": found, "networks": [total.to_json() for total in totals],
        "kernel_of_2023_a630": [dict(zip(names, figures, strict=True)) for figures in KERNEL_OF_2023],
    }
    publish(options, content, environment_line(found), *parts, *beside)


def make_parser() -> argparse.ArgumentParser:
    described = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m benchmarks.adreno", description=__doc__, formatter_class=described)
    parser.add_argument("network", nargs="*", help=f"a name of models/ or an ONNX file (default: {' '.join(DEFAULT)})")
    parser.add_argument("--gpu", type=positives, default=GPUS, metavar="NUMBERS", help="(default: 630,650,740)")
    parser.add_argument("--summary", action="store_true", help="one line for each network and GPU, none for launches")
    parser.add_argument(
        "--bare", action="store_true", help="without what is fused into the stores, as the 2023 engine's kernels are"
    )
    parser.add_argument(
        "--compute-units", type=positive, default=2, help="of the GPU that is planned for (default: %(default)s)"
    )
    yes_or_no = argparse.BooleanOptionalAction
    parser.add_argument("--float16", action=yes_or_no, help="keep textures in half precision (default: FLOAT16)")
    parser.add_argument(
        "--native-explog", action=yes_or_no, help="use native_exp, native_log and native_recip (default: NATIVE_EXPLOG)"
    )
    parser.add_argument(
        "--integer-coordinates", action=yes_or_no, default=os.environ.get(INTEGER_COORDINATES) == "1",
        help="reads take integer coordinates, as Qualcomm's compiler is believed to do; Mesa by itself converts each "
        f"to float (default: {INTEGER_COORDINATES})",
    )
    add_output_argument(parser)
    return parser


if __name__ == "__main__":
    sys.exit(run_main(make_parser(), main))
