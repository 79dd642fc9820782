"""LaunchWork: the work of a launch. Every template counts it, and every device model converts it to seconds."""

from __future__ import annotations

from dataclasses import dataclass

from imgconv.kernels.layout import LANES


@dataclass(frozen=True)
class LaunchWork:
    """The work of a launch. A texel is four numbers.

    groups, items: work groups of the launch, and work items of a group; a CPU's groups have one.

    Work of a work item:
    multiply_adds: multiply-adds of numbers. half: whether they are in fp16. vector: how many numbers a CPU multiplies
    with one instruction. reads: texels that it reads from global memory. scattered: those of the reads that need a
    separate transaction, because no other item reads the same texel in the same cycle. local: texels of local memory
    that it reads or writes. writes: texels of the result. steps: loop iterations that wait for their reads. barriers:
    barriers at which it waits for its group. registers: of four floats each, that it needs at the same time; 0 if they
    are few. fewest_registers: the number to which phones' compilers reduce this if another wave then fits; 0 if they
    are few.

    Work of a work group:
    fetched: different texels that it reads. local_bytes: local memory.

    Work of the launch:
    active: work items that do more than return; 0 if all do. texels: different texels that it reads and writes.
    constant_texels: those of them that are weights, of which a work item reads constant_reads.
    """

    groups: int
    items: int = 1
    multiply_adds: float = 0.0
    half: bool = False
    vector: int = LANES
    reads: float = 0.0
    scattered: float = 0.0
    local: float = 0.0
    writes: float = 0.0
    steps: float = 0.0
    barriers: float = 0.0
    registers: float = 0.0
    fewest_registers: float = 0.0
    fetched: float = 0.0
    local_bytes: int = 0
    active: int = 0
    texels: float = 0.0
    constant_texels: float = 0.0
    constant_reads: float = 0.0
