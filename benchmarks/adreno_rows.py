"""A network's launches on an Adreno: what Mesa's compiler makes of each, and how long it takes in the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import ceil, prod
from typing import Any

from benchmarks.adreno_mesa import Kernel
from benchmarks.kernel_text import KernelText, read_kernel
from benchmarks.machine_code import Work, work_of
from benchmarks.measure import Column, digits, milliseconds
from imgconv.compiling.plan import Launch, Plan
from imgconv.kernels.device_model.adreno import BOUNDS, Gpu, LaunchTime, MachineWork, time_of


@dataclass(frozen=True)
class Row:
    """One launch on one GPU.

    waves: how many a core holds at once. shared: bytes of local memory of a work group. error: why it has no code;
    every figure is zero then.
    """

    launch: Launch
    gpu: Gpu
    text: KernelText
    work: Work = Work()
    registers: int = 0
    waves: int = 0
    spills: int = 0
    subgroup: int = 64
    shared: int = 0
    error: str = ""

    @property
    def issue(self) -> float:
        """Issue slots of an average wave."""
        return self.work.slots / self.work.waves if self.work.waves else 0.0

    @property
    def reads(self) -> float:
        """Texture reads of a work item that does more than return."""
        return self.work.reads / self.items

    @property
    def local(self) -> float:
        """Accesses of such an item to local memory, and to spilled registers if it uses any local memory."""
        return self.work.local / self.items if self.shared else 0.0

    @property
    def lanes(self) -> int:
        """Lanes of all waves of the launch: work groups are filled up to whole waves."""
        return self.work.waves * self.subgroup

    @property
    def launch_waves(self) -> int:
        return self.work.waves

    @property
    def group_waves(self) -> int:
        """Waves of a work group."""
        return ceil(prod(self.launch.source.local_size or (1,)) / self.subgroup)

    @property
    def items(self) -> int:
        """Work items that do more than return."""
        return self.text.items(self.launch.source.global_size)

    @property
    def idle(self) -> float:
        """The share of the slots of lanes in which a lane takes no part: it has no work item, or that has returned."""
        return 1 - self.work.busy / self.slots if self.slots else 0.0

    @property
    def time(self) -> LaunchTime:
        half = self.work.half / max(1, self.work.waves)
        return time_of(MachineWork(
            half, self.issue - half, self.work.reads, self.launch.moved_bytes, self.launch_waves, self.subgroup,
            self.local * self.items, self.group_waves, self.shared, self.registers,
        ), self.gpu)

    @property
    def seconds(self) -> float:
        """With overlap."""
        return 0.0 if self.error else self.time.seconds

    @property
    def pessimistic_seconds(self) -> float:
        """Seconds without overlap where a processor holds a single wave."""
        return 0.0 if self.error else self.time.pessimistic_seconds

    @property
    def slots(self) -> int:
        """The count of all lanes."""
        return self.work.slots * self.subgroup

    @property
    def half(self) -> float | None:
        """The share of the slots whose result is in half."""
        return self.work.half / self.work.slots if self.work.slots else None

    @property
    def waiting(self) -> float | None:
        """The share of a lone wave's time in which it waits."""
        return self.work.waits / (self.work.slots + self.work.waits) if self.work.slots else None

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
        reads = self.work.reads
        return self.launch.multiply_adds / reads if self.launch.multiply_adds and reads else None

    @property
    def check(self) -> float | None:
        wanted = self.text.loops.total_reads
        return self.reads / wanted if wanted and not self.error else None

    def to_json(self) -> dict[str, Any]:
        launch = self.launch
        return {
            "launch": launch.name, "kind": launch.kind, "description": launch.description, "gpu": self.gpu.number,
            "specialisation": launch.specialisation, "global_size": launch.source.global_size,
            "local_size": launch.source.local_size, "multiply_adds": launch.multiply_adds, "error": self.error,
            "predicted_seconds": self.seconds, "seconds_without_overlap": self.pessimistic_seconds,
            "bound": self.time.bottleneck, "times": asdict(self.time),
            "issue_per_item": self.issue, "reads_per_item": self.reads, "local_per_item": self.local,
            "lanes": self.lanes, "slots": self.slots,
            "half_slots": self.half, "idle_lanes": self.idle, "waiting": self.waiting,
            "launch_waves": self.launch_waves, "issue_per_multiply_add": self.issue_per_multiply_add,
            "slots_per_multiply_add": self.slots_per_multiply_add,
            "multiply_adds_per_read": self.multiply_adds_per_read, "registers": self.registers, "waves": self.waves,
            "spills": self.spills, "check": self.check,
        }


@dataclass(frozen=True)
class Total:
    """All launches of a network on one GPU."""

    network: str
    gpu: Gpu
    rows: Sequence[Row]

    @property
    def seconds(self) -> float:
        """With overlap."""
        return sum(row.seconds for row in self.rows)

    @property
    def pessimistic_seconds(self) -> float:
        """Seconds without overlap where a processor holds a single wave."""
        return sum(row.pessimistic_seconds for row in self.rows)

    @property
    def more_of_launches(self) -> float:
        """Seconds that are to be added if a launch costs as much as it may."""
        return len(self.rows) * (self.gpu.most_launch - self.gpu.launch)

    @property
    def bounds(self) -> dict[str, float]:
        """Seconds by what binds a launch; what any launch costs is apart."""
        made = dict.fromkeys(BOUNDS, 0.0)
        for row in self.rows:
            made["launch"] += row.gpu.launch
            made[row.time.bottleneck] += row.seconds - row.gpu.launch
        return made

    @property
    def slots(self) -> float:
        return sum(row.slots for row in self.rows)

    @property
    def multiply_adds(self) -> int:
        return sum(row.launch.multiply_adds for row in self.rows)

    @property
    def few_waves(self) -> int:
        """Launches with fewer than two waves for each unit."""
        return sum(row.launch_waves < 2 * row.gpu.units for row in self.rows)

    @property
    def half(self) -> float:
        """The share of the slots whose result is in half."""
        return sum(row.work.half * row.subgroup for row in self.rows) / self.slots if self.slots else 0.0

    @property
    def idle(self) -> float:
        """The share of the slots of lanes in which a lane takes no part."""
        return 1 - sum(row.work.busy for row in self.rows) / self.slots if self.slots else 0.0

    @property
    def slots_per_multiply_add(self) -> float | None:
        return self.slots / self.multiply_adds if self.multiply_adds else None

    @property
    def issue_per_multiply_add(self) -> float:
        """The mean over launches with multiply-adds, weighted by their lanes."""
        rows = [row for row in self.rows if row.item_multiply_adds and not row.error]
        made = sum(row.item_multiply_adds * row.lanes for row in rows)
        return sum(row.slots for row in rows) / made if made else 0.0

    @property
    def multiply_adds_per_read(self) -> float:
        """The ratio over all launches that have multiply-adds."""
        rows = [row for row in self.rows if row.launch.multiply_adds and not row.error]
        reads = sum(row.work.reads for row in rows)
        return sum(row.launch.multiply_adds for row in rows) / reads if reads else 0.0

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
            "network": self.network, "gpu": self.gpu.number, "units": self.gpu.units, "launches": len(self.rows),
            "multiply_adds": self.multiply_adds, "predicted_seconds": self.seconds,
            "seconds_without_overlap": self.pessimistic_seconds, "more_of_launches": self.more_of_launches,
            "seconds_by_bound": self.bounds,
            "slots_per_frame": self.slots, "slots_per_multiply_add": self.slots_per_multiply_add,
            "issue_per_multiply_add": self.issue_per_multiply_add, "launches_of_few_waves": self.few_waves,
            "half_slots": self.half, "idle_lanes": self.idle,
            "multiply_adds_per_read": self.multiply_adds_per_read, "other_slots": self.other_slots,
            "spilling_launches": self.spilling, "not_compiled": self.failed,
            "rows": [row.to_json() for row in self.rows],
        }


def percent(share: float | None) -> str:
    """A share as text."""
    return "-" if share is None else f"{share:.0%}"


def _bound_column(name: str) -> Column:
    return Column(f"by {name}", lambda total: milliseconds(total.bounds[name]))


LAUNCH_COLUMNS = (
    Column("launch", lambda r: r.launch.name[:32]), Column("ms", lambda r: milliseconds(r.seconds)),
    Column("no overlap", lambda r: milliseconds(r.pessimistic_seconds)),
    Column("bound", lambda r: "-" if r.error else r.time.bottleneck),
    Column("MMAC", lambda r: digits(r.launch.multiply_adds / 1e6)),
    Column("slots/MAC", lambda r: digits(r.slots_per_multiply_add)),
    Column("issue/MAC", lambda r: digits(r.issue_per_multiply_add)),
    Column("MAC/read", lambda r: digits(r.multiply_adds_per_read)), Column("waves", lambda r: str(r.launch_waves)),
    Column("a core", lambda r: str(r.waves)), Column("half", lambda r: percent(r.half)),
    Column("idle", lambda r: percent(r.idle)), Column("waits", lambda r: percent(r.waiting)),
    Column("regs", lambda r: str(r.registers)), Column("spills", lambda r: str(r.spills)),
    Column("check", lambda r: digits(r.check)), Column("slots M", lambda r: digits(r.slots / 1e6)),
    Column("kernel", lambda r: r.error or r.launch.specialisation or r.launch.description[:40], True),
)
TOTAL_COLUMNS = (
    Column("network", lambda t: t.network), Column("code for", lambda t: t.gpu.name),
    Column("units", lambda t: str(t.gpu.units)), Column("ms", lambda t: milliseconds(t.seconds)),
    Column("no overlap", lambda t: milliseconds(t.pessimistic_seconds)),
    Column("30 us", lambda t: f"+{milliseconds(t.more_of_launches)}"),
    *map(_bound_column, BOUNDS),
    Column("launches", lambda t: str(len(t.rows))), Column("few waves", lambda t: str(t.few_waves)),
    Column("MMAC", lambda t: digits(t.multiply_adds / 1e6)),
    Column("slots/MAC", lambda t: digits(t.slots_per_multiply_add)),
    Column("MAC/read", lambda t: digits(t.multiply_adds_per_read)), Column("half", lambda t: percent(t.half)),
    Column("idle", lambda t: percent(t.idle)), Column("slots without MAC", lambda t: percent(t.other_slots)),
    Column("spilling", lambda t: str(t.spilling)), Column("not compiled", lambda t: str(t.failed)),
    Column("Mslots/frame", lambda t: digits(t.slots / 1e6)),
)


def rows_of(plan: Plan, gpu: Gpu, compiled: Mapping[str, Kernel]) -> list[Row]:
    """A row for each launch. compiled: by text."""
    return [row_of(launch, gpu, compiled[launch.source.text]) for launch in plan.launches]


def row_of(launch: Launch, gpu: Gpu, kernel: Kernel) -> Row:
    """A launch's row."""
    text = read_kernel(launch.source.text)
    if kernel.error:
        return Row(launch, gpu, text, error=kernel.error)
    stats = kernel.statistics
    return Row(
        launch, gpu, text, work_of(launch, kernel), stats["full_regs"], stats["max_waves"], stats["stp"] + stats["ldp"],
        stats["subgroup"], stats["shared"],
    )
