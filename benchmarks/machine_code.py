"""The work of a launch as Adreno's machine code does it: Mesa's statistics, weighted by the simulator's counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy

from benchmarks.adreno_mesa import Kernel
from benchmarks.adreno_simulator.launches import Argument, Binary, Counts, group_size, run_kernel, shape_of
from benchmarks.adreno_simulator.listing import Code, parse
from imgconv.compiling.plan import Launch
from imgconv.kernels.layout import Texture


@dataclass(frozen=True)
class Work:
    """Counts of a launch.

    slots: issue slots of all waves. busy: those of lanes, of the lanes that take part. half: the slots whose result is
    fp16. waits: slots until data arrives, as Mesa estimates them for a wave that is alone. reads: texture reads of
    all work items. local: their accesses to local memory, and to spilled registers. waves: of the launch.
    """

    slots: int = 0
    busy: int = 0
    half: int = 0
    waits: int = 0
    reads: int = 0
    local: int = 0
    waves: int = 0


def work_of(launch: Launch, kernel: Kernel) -> Work:
    """The work of a launch. Its work groups at the edges and one between them run in the simulator, on zeros.

    Where a loop's trips depend on data, as those of a sort may, they are those for zeros.
    """
    source, code = launch.source, parse(kernel.listing)
    counts = run_kernel(
        Binary(code, kernel.statistics["subgroup"]), _zeros(launch), source.global_size,
        source.local_size or group_size(source.global_size), sampled=True,
    )
    blocks = list(zip(kernel.statistics["blocks"], block_trips(kernel.statistics["blocks"], code, counts), strict=True))
    half = sum(trips * block["half_alu"] for block, trips in blocks)
    waits = sum(trips * (block["sstall"] + block["systall"]) for block, trips in blocks)
    return Work(counts.slots, counts.busy, half, waits, counts.reads, counts.local, counts.waves)


def block_trips(blocks: Sequence[Mapping[str, Any]], code: Code, counts: Counts) -> list[int]:
    """Returns how often waves ran each block of Mesa's statistics: as often as its first instruction.

    The machine code has the blocks one after another, and "n" is the issue slots of one.
    """
    made, index = [], 0
    for block in blocks:
        made.append(counts.trips[index] if block["n"] else 0)
        left = block["n"]
        while left > 0:
            left -= code.instructions[index].slots
            index += 1
        assert left == 0, "the statistics are of another kernel"
    return made


def _zeros(launch: Launch) -> list[Argument]:
    made = []
    for each in launch.source.arguments:
        is_image = isinstance(each.storage, Texture)
        dtype = "float32" if is_image and not each.written else each.storage.dtype
        array = numpy.zeros(shape_of(each.storage), dtype)
        made.append(Argument(array, "buffer" if not is_image else "written" if each.written else "read"))
    return made
