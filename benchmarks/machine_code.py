"""Adreno's machine code as Mesa's statistics give it: the instructions of a work item, weighted by trip counts."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any

from benchmarks.kernel_text import Loop


@dataclass(frozen=True)
class Work:
    """Instructions. multiply_adds: all of that class, with those of address arithmetic.

    issue: issue slots. half: those of them whose result is in half. waits: slots until data arrives, as Mesa estimates
    them for a wave that is alone. memory: accesses to memory besides texture reads: writes of images, local memory,
    spilled registers.
    """

    issue: float = 0
    reads: float = 0
    multiply_adds: float = 0
    half: float = 0
    waits: float = 0
    memory: float = 0

    def __add__(self, other: Work) -> Work:
        return Work(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def times(self, trips: int) -> Work:
        """The instructions of so many trips."""
        return Work(*(count * trips for count in astuple(self)))


@dataclass
class MachineLoop:
    """A loop of the machine code, or the whole kernel. work: of one trip, without inner loops."""

    work: Work = Work()
    loops: list[MachineLoop] = field(default_factory=list)


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
        open_loops[depth].work += Work(
            block["n"], block["tex"], block["cat"][3], block["half_alu"], block["sstall"] + block["systall"],
            block["cat"][6],
        )
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
            work, off = machine.work, 0.0
            for (inner_work, inner_off), loop in zip(way, chosen, strict=True):
                work, off = work + inner_work.times(loop.trips), off + inner_off
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
