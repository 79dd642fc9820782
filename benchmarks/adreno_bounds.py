"""Lower bounds of launches on an Adreno: what the model leaves of a launch if nothing but its form is kept.

The form is that of conv.cl and depthwise.cl: a work item makes a block of outputs, and reads each texel of input and
weights that the block needs once. The bound is the best block's, of any size that the registers hold:

    arithmetic  one issue slot for each multiply-add, at the rate of the type of the products
    texture     the reads of that block, over the whole launch
    memory      the bytes that are read for the first time or written

Slots for addresses, loops and stores, idle lanes and incomplete rounds of waves are left out. Without overlap a block
either fits half of the registers, where a second wave hides the reads, or its reads and its arithmetic add up. As for
the choice of a kernel, a block only counts if its time with overlap is within a tenth of the best.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import inf
from typing import Any

from benchmarks.adreno_rows import Row, Total
from benchmarks.measure import Column, digits, milliseconds
from imgconv.compiling.plan import Launch
from imgconv.dtype import FLOAT16
from imgconv.kernels.conv.problem import Problem
from imgconv.kernels.device_model.adreno import Gpu, LaunchTime
from imgconv.kernels.device_model.mobile_gpu import MOBILE_GPU
from imgconv.kernels.device_model.time_range import NEARLY
from imgconv.kernels.layout import LANES, ImageLimits
from imgconv.kernels.separable.problem import Problem as Separable
from imgconv.kernels.target import Target
from imgconv.kernels.templates import template_of
from imgconv.kernels.winograd.problem import Problem as Winograd2d

COLUMNS, ROWS, QUADS = range(1, 33), range(1, 9), range(1, 17)  # of a block
REGISTERS = 3  # of a work item besides those of a block: a weight, and two for coordinates and loops


@dataclass(frozen=True)
class Bound:
    """The least seconds of a launch, with overlap and without it where a processor holds a single wave."""

    seconds: float
    pessimistic_seconds: float


def bound_of(problems: Sequence[Problem], moved_bytes: int, gpu: Gpu) -> Bound:
    """Returns the lower bound of a launch that computes these convolutions. One without any only moves its bytes."""
    memory = moved_bytes / gpu.bandwidth
    arithmetic = sum(
        each.multiply_adds / (gpu.half_slots if each.products == FLOAT16 else gpu.float_slots) for each in problems
    )
    few, many = (
        LaunchTime(arithmetic, sum(least_reads(each, n) for each in problems) / gpu.reads, memory, gpu.launch, overlaps)
        for n, overlaps in ((gpu.registers // 2, True), (gpu.registers, False))
    )
    least = min(few.seconds, many.seconds)
    both = [each.pessimistic_seconds for each in (few, many) if each.seconds <= NEARLY * least]
    return Bound(least, min(both))


def problems_of(launch: Launch) -> tuple[Problem, ...]:
    """The convolutions that a launch computes by multiply-adds."""
    problem = launch.choice and launch.choice.problem
    if isinstance(problem, Separable):
        return problem.depthwise, problem.pointwise
    return (problem,) if isinstance(problem, Problem) else ()


@lru_cache(None)
def least_reads(problem: Problem, registers: int) -> float:
    """The fewest texture reads of a convolution whose blocks fit these registers of four floats; infinity if none."""
    rows, columns = problem.phase_size
    outputs = problem.batch * rows * columns * problem.phases[0] * problem.phases[1] * problem.output_quads
    texel = 0.5 if problem.products == FLOAT16 else 1.0
    blocks = product(COLUMNS[:columns], ROWS[:rows], (1,) if problem.depthwise else QUADS[: problem.group_output_quads])
    return min((
        _reads_of_block(problem, c, r, q) * outputs / (c * r * q) for c, r, q in blocks
        if texel * (c * r * q + _kept(problem, c * r, q)) + REGISTERS <= registers
    ), default=inf)


def _kept(problem: Problem, positions: int, quads: int) -> int:
    """Texels that are kept besides the sums, so that none is read twice: of the input, or of the weights if fewer."""
    return 1 if problem.depthwise else min(positions, LANES * quads)


def _reads_of_block(problem: Problem, columns: int, rows: int, quads: int) -> int:
    """Different texels that a block needs: of the input, and of the weights."""
    inputs = problem.group_input_quads
    for count, axis in ((rows, 0), (columns, 1)):
        window, stride = problem.window[axis], problem.strides[axis] if problem.phases == (1, 1) else 1
        reach = (count - 1) * stride + (window - 1) * problem.dilations[axis] + 1
        inputs *= min(reach, count * window)
    weights = problem.window[0] * problem.window[1] * quads
    return inputs + weights * (1 if problem.depthwise else problem.group_input_quads * problem.input_lanes)


@dataclass(frozen=True)
class KindTotal(Total):
    """Launches of one kind of a network, or all of them, on one GPU."""

    kind: str

    @property
    def bound(self) -> Bound:
        """The sum of the launches' bounds."""
        bounds = [bound_of(problems_of(row.launch), row.launch.moved_bytes, row.gpu) for row in self.rows]
        return Bound(sum(each.seconds for each in bounds), sum(each.pessimistic_seconds for each in bounds))

    @property
    def single(self) -> float:
        """Seconds, with overlap, of the launches that leave a processor a single wave."""
        return sum(row.seconds for row in self.rows if not row.time.overlaps)

    @property
    def of_formula(self) -> tuple[float | None, float | None]:
        """Issue slots and texture reads by the cost model's formula, divided by those that were counted.

        Of the launches with a choice of kernels: no other has a formula.
        """
        rows = [row for row in self.rows if row.launch.choice]
        slots, reads = (sum(each) for each in zip(*map(formula_of, rows), strict=True)) if rows else (0.0, 0.0)
        return ratio(slots, sum(row.slots for row in rows)), ratio(reads, sum(row.work.reads for row in rows))

    def to_json(self) -> dict[str, Any]:
        bound = self.bound
        return {
            "network": self.network, "gpu": self.gpu.number, "kind": self.kind, "launches": len(self.rows),
            "predicted_seconds": self.seconds, "seconds_without_overlap": self.pessimistic_seconds,
            "least_seconds": bound.seconds, "least_without_overlap": bound.pessimistic_seconds,
            "seconds_of_single_waves": self.single, "slots_and_reads_of_formula": self.of_formula,
        }


def formula_of(row: Row) -> tuple[float, float]:
    """Issue slots of all lanes and texture reads of a launch with a choice, by the cost model."""
    assert row.launch.choice
    problem, target = row.launch.choice.problem, Target(ImageLimits(1, 1, 1), "gpu", row.gpu.compute_units)
    work = template_of(problem).work(problem, row.launch.choice.specialisation, target)
    return MOBILE_GPU.slots(work) * row.lanes, work.reads * row.items


def ratio(predicted: float, counted: float) -> float | None:
    """The quotient, if anything was counted."""
    return predicted / counted if counted else None


def kind_of(launch: Launch) -> str:
    """The kind of a launch, as the table groups them."""
    problem = launch.choice and launch.choice.problem
    if isinstance(problem, Winograd2d) or launch.name.endswith(".sums"):
        return "Winograd"
    if isinstance(problem, Separable):
        return "depthwise and 1x1"
    if isinstance(problem, Problem):
        kind = "depthwise " if problem.depthwise else "in groups " if problem.groups > 1 else ""
        return f"{kind}{problem.window[0]}x{problem.window[1]}"
    return "others"


def groups_of(totals: Iterable[Total]) -> Iterator[KindTotal]:
    """A group of all launches of each network, then its kinds, first the one that is the furthest from its bound."""
    for total in totals:
        yield KindTotal(total.network, total.gpu, total.rows, "all")
        kinds: dict[str, list[Row]] = {}
        for row in total.rows:
            kinds.setdefault(kind_of(row.launch), []).append(row)
        groups = [KindTotal(total.network, total.gpu, rows, kind) for kind, rows in kinds.items()]
        yield from sorted(groups, key=lambda group: group.bound.pessimistic_seconds - group.pessimistic_seconds)


COLUMNS_OF_BOUNDS = (
    Column("network", lambda g: g.network), Column("code for", lambda g: g.gpu.name),
    Column("launches", lambda g: g.kind, True), Column("number", lambda g: str(len(g.rows))),
    Column("MMAC", lambda g: digits(sum(row.launch.multiply_adds for row in g.rows) / 1e6)),
    Column("ms", lambda g: milliseconds(g.seconds)), Column("least", lambda g: milliseconds(g.bound.seconds)),
    Column("no overlap", lambda g: milliseconds(g.pessimistic_seconds)),
    Column("least, no overlap", lambda g: milliseconds(g.bound.pessimistic_seconds)),
    Column("single waves", lambda g: milliseconds(g.single)),
    Column("slots by formula", lambda g: digits(g.of_formula[0])),
    Column("reads by formula", lambda g: digits(g.of_formula[1])),
)
