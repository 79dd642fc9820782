"""Times every launch of a model, and compares its rates with the device's peaks."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from imgconv.arrays import Arrays
from imgconv.cl.device import DeviceInfo, open_device
from imgconv.compiling.memory_planning import lifetimes
from imgconv.compiling.plan import Launch, Plan, Storage
from imgconv.config import Config
from imgconv.kernels.layout import Texture
from imgconv.model import Model
from imgconv.reports.host_profile import HostProfile, measure_host
from imgconv.reports.peaks import Peaks, measure_peaks
from imgconv.loading.compiled import subgraph_maker
from imgconv.runtime.measuring import Span, Timeline
from imgconv.runtime.programs import ProgressCallback
from imgconv.runtime.session import Session
from imgconv.reports.timing import Timing, run_after_warm_up, seconds_of_call, time_repeatedly

BOUNDS = ("multiply-adds", "bandwidth")
TEMPLATE = Path(__file__).with_name("profile_page.html")
PLACE = "/* the profile's JSON */"  # in the template


@dataclass(frozen=True)
class LaunchProfile:
    """One launch. seconds: the median of the runs; span: its start and end in the shown run, in seconds.

    share: its part of the seconds of all launches. least_seconds: the seconds that each of the device's peaks allows.
    """

    launch: Launch
    seconds: float
    span: Span
    share: float
    least_seconds: Mapping[str, float]

    @property
    def bound(self) -> str:
        """The peak that binds: 'multiply-adds' or 'bandwidth'."""
        return max(self.least_seconds, key=lambda name: self.least_seconds[name])

    @property
    def of_peak(self) -> float:
        """The larger of rate / peak rate and bandwidth / peak bandwidth; 0 if it takes no time by the device's clock.

        Above 1 if the textures are in a cache: those of the copy that measures the peak are not.
        """
        return _rate(self.least_seconds[self.bound], self.seconds)

    @property
    def flops(self) -> float:
        """Float operations a second, two for each multiply-add."""
        return _rate(2 * self.launch.multiply_adds, self.seconds)

    @property
    def bandwidth(self) -> float:
        """Bytes a second."""
        return _rate(self.launch.moved_bytes, self.seconds)

    def to_json(self) -> dict[str, Any]:
        """Everything but the storages, as plain data."""
        launch = self.launch
        return {
            "name": launch.name, "kind": launch.kind, "operation": launch.operation,
            "description": launch.description, "specialisation": launch.specialisation, "reason": launch.reason,
            "nodes": launch.origin, "multiply_adds": launch.multiply_adds, "bytes": launch.moved_bytes,
            "seconds": self.seconds, "share": self.share, "flops": self.flops, "bytes_per_second": self.bandwidth,
            "of_peak": self.of_peak, "bound": self.bound, "start": self.span[0], "end": self.span[1],
        }


@dataclass(frozen=True)
class OperationTotal:
    """The launches of one kind of work together."""

    operation: str
    launches: int
    seconds: float
    share: float
    multiply_adds: int
    bytes: int


@dataclass(frozen=True)
class Profile:
    """Timed runs of a plan. wall: Model.run from arrays to arrays, on a queue that records no times.

    host: what the host computes; None if the device makes all outputs.
    """

    model: str
    device: DeviceInfo
    config: Config
    plan: Plan
    peaks: Peaks
    runs: tuple[Timeline, ...]
    wall: Timing
    host: HostProfile | None = None

    @cached_property
    def launches(self) -> tuple[LaunchProfile, ...]:
        """Profiles of all launches, in the plan's order."""
        runs = [[end - start for start, end in run.launches] for run in self.runs]
        medians = [statistics.median(each) for each in zip(*runs, strict=True)]
        total = sum(medians)
        rows = zip(self.plan.launches, medians, self.median_run.launches, strict=True)
        return tuple(self._launch(*row, total) for row in rows)

    def _launch(self, launch: Launch, seconds: float, span: Span, total: float) -> LaunchProfile:
        # Texture reads bound a kernel too, but only its text says how many it makes.
        allowed = self.peaks.least_seconds(2 * launch.multiply_adds, 0, launch.moved_bytes)
        least = {name: allowed[name] for name in BOUNDS}
        return LaunchProfile(launch, seconds, span, _rate(seconds, total), least)

    @property
    def seconds(self) -> float:
        """The sum of the launches' medians."""
        return sum(launch.seconds for launch in self.launches)

    @property
    def of_peak(self) -> float:
        """The least seconds that the peaks allow for all launches in turn, divided by the measured seconds."""
        return _rate(sum(launch.least_seconds[launch.bound] for launch in self.launches), self.seconds)

    @property
    def main_bound(self) -> tuple[str, float]:
        """The bound of most of a run, with its fraction: a peak, or 'the host' if launches take less than half."""
        if self.seconds < self.wall.median / 2:
            return "the host", 1 - self.seconds / self.wall.median
        seconds = {name: sum(each.seconds for each in self.launches if each.bound == name) for name in BOUNDS}
        name = max(seconds, key=lambda each: seconds[each])
        return name, _rate(seconds[name], self.seconds)

    @cached_property
    def median_run(self) -> Timeline:
        """The run of median length, whose timeline is drawn."""
        ordered = sorted(self.runs, key=lambda run: run.end)
        return ordered[(len(ordered) - 1) // 2]

    @cached_property
    def totals_by_operation(self) -> tuple[OperationTotal, ...]:
        """The launches by kind of work, the longest first."""
        found = []
        for operation in dict.fromkeys(each.launch.operation for each in self.launches):
            of = [each for each in self.launches if each.launch.operation == operation]
            found.append(OperationTotal(
                operation, len(of), sum(e.seconds for e in of), sum(e.share for e in of),
                sum(e.launch.multiply_adds for e in of), sum(e.launch.moved_bytes for e in of),
            ))
        return tuple(sorted(found, key=lambda each: -each.seconds))

    @cached_property
    def lifetimes(self) -> dict[Texture, tuple[int, int]]:
        """The numbers of the first and the last launch that uses each activation's texture."""
        held = {*self.plan.slots, *self.plan.regions}
        return {texture: life for texture, life in lifetimes(self.plan.launches).items() if texture in held}

    @cached_property
    def offsets(self) -> dict[Texture, tuple[int, int]]:
        """First byte and bytes of every activation, with all memory in one row: the workspace, then images by size."""
        plan = self.plan
        found = {texture: (region.offset, region.bytes) for texture, region in plan.regions.items()}
        offset, offsets = plan.workspace_bytes, {}
        for slot, descriptor in sorted(plan.images.items(), key=lambda pair: -pair[1].bytes):
            offsets[slot], offset = offset, offset + descriptor.bytes
        found |= {texture: (offsets[slot], texture.bytes) for texture, slot in plan.slots.items()}
        return found

    @cached_property
    def live_bytes(self) -> list[int]:
        """Bytes of the activations' live textures, during each launch."""
        return [
            sum(texture.bytes for texture, (first, last) in self.lifetimes.items() if first <= number <= last)
            for number in range(len(self.plan.launches))
        ]

    def to_json(self) -> dict[str, Any]:
        """Everything as plain data: seconds, bytes, numbers of launches; times of the timeline count from its start."""
        plan, device = self.plan, self.device
        return {
            "model": self.model,
            "device": {
                "name": device.name, "platform": device.platform, "driver": device.driver_version, "kind": device.kind,
                "opencl": device.opencl_version, "compute_units": device.compute_units,
            },
            "settings": {"float16": self.config.float16, "native_explog": self.config.native_explog},
            "inputs": [asdict(value) for value in plan.inputs],
            "outputs": [asdict(value) for value in plan.outputs],
            "runs": len(self.runs),
            "peaks": self.peaks.to_json(),
            "totals": self._totals_as_json(),
            "operations": [asdict(each) for each in self.totals_by_operation],
            "launches": [
                {
                    **each.to_json(), "reads": [self._storage_as_json(s) for s in dict.fromkeys(each.launch.reads)],
                    "writes": self._storage_as_json(each.launch.writes),
                }
                for each in self.launches
            ],
            "textures": [
                {
                    "name": texture.name, "shape": texture.shape, "dtype": str(texture.dtype), "bytes": texture.bytes,
                    "texels": [*texture.tiling.image_size, texture.tiling.layers], "offset": self.offsets[texture][0],
                    "allocated": self.offsets[texture][1], "image": plan.slots.get(texture), "first": first,
                    "last": last,
                }
                for texture, (first, last) in self.lifetimes.items()
            ],
            "uploads": _transfers_as_json(self.median_run.uploads, plan.input_buffers),
            "downloads": _transfers_as_json(self.median_run.downloads, plan.output_buffers),
            **({"host": self.host.to_json()} if self.host else {}),
        }

    def _totals_as_json(self) -> dict[str, Any]:
        plan = self.plan
        spans = self.median_run.launches
        first, last = (spans[0], spans[-1]) if plan.launches else ((0.0, 0.0),) * 2
        return {
            "headline": headline(self), "launches": len(plan.launches), "seconds": self.seconds,
            "of_peak": self.of_peak, "bound": self.main_bound[0], "bound_share": self.main_bound[1],
            "timeline_seconds": last[1] - first[0], "wall_seconds": self.wall.median,
            "multiply_adds": plan.multiply_adds, "bytes": sum(each.launch.moved_bytes for each in self.launches),
            "weight_bytes": plan.weight_bytes, "activation_bytes": plan.activation_bytes,
            "workspace_bytes": plan.workspace_bytes, "activation_places": plan.activation_places,
            "live_bytes": max(self.live_bytes, default=0),
        }

    def _storage_as_json(self, storage: Storage) -> dict[str, Any]:
        """A storage that a launch reads or writes; those of the kind 'texture' are in the list `textures`."""
        plan = self.plan
        kinds = {
            "constant": plan.content, "input": plan.input_buffers.values(), "output": plan.output_buffers.values(),
            "state": plan.states,
        }
        kind = next((name for name, storages in kinds.items() if storage in storages), "texture")
        return {"name": storage.name, "kind": kind, "bytes": storage.bytes}


def measure(
    name: str, model: Model, inputs: Arrays, repeat: int, progress: ProgressCallback | None = None
) -> Profile:
    """Measures the device's peaks, then, after a warm-up, `repeat` runs with events.

    name: the model's name in the report. inputs: an array for every input. Raises InputError, DeviceError,
    ResourceError.
    """
    say = progress or (lambda done, total, what: None)
    say(0, 0, "running")
    model.run(inputs)
    wall = time_repeatedly(lambda: seconds_of_call(lambda: model.run(inputs)), repeat)
    context = open_device(model.device, profile=True)
    say(0, 0, "measuring the device")
    peaks = measure_peaks(context, model.config.storage)
    session = Session(model.plan, context, progress)
    known = {value.name for value in model.plan.inputs}
    arrays = {key: array for key, array in inputs.items() if key in known}
    say(0, 0, "timing the launches")
    runs = tuple(run_after_warm_up(lambda: session.timeline(arrays), repeat))
    on_device = subgraph_maker(model.device, session.context, model.config)
    host = measure_host(model.graph.host_partition, model.plan, session, arrays, repeat, on_device)
    return Profile(name, model.device, model.config, model.plan, peaks, runs, wall, host)


def html_page(profile: Profile) -> str:
    """A profile as one HTML page without other files. Names in the profile may have any characters."""
    content = json.dumps(profile.to_json(), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # Inside <script> only "<" can end the element, and JSON has "<" only in strings.
    before, found, after = TEMPLATE.read_text(encoding="utf-8").partition(PLACE)
    assert found
    return before + content.replace("<", "\\u003c") + after


def headline(profile: Profile) -> str:
    """One line: milliseconds, frames a second, and what binds.

    "28.6 ms a run, 34.9 frames a second; 92% of the launches' time is bound by multiply-adds"
    """
    seconds, (name, share) = profile.wall.median, profile.main_bound
    part = "of a run is spent on the host, with launching kernels and copying" if name == "the host" else (
        f"of the launches' time is bound by {name}"
    )
    time, rate = (f"{n:.0f}" if n >= 100 else f"{n:.3g}" for n in (seconds * 1e3, 1 / seconds))
    return f"{time} ms a run, {rate} frames a second; {share:.0%} {part}"


MOST_OF_PEAK = 1.1  # of a peak that is measured within a tenth


def percent(part: float) -> str:
    """A part as a percentage, "52%".

    Over MOST_OF_PEAK, a cache held what the launch read, or Winograd's filtering did fewer multiply-adds.
    """
    return f">{MOST_OF_PEAK:.0%}" if part > MOST_OF_PEAK else f"{part:.0%}"


def _rate(amount: float, seconds: float) -> float:
    return amount / seconds if seconds else 0.0


def _transfers_as_json(spans: Mapping[str, Span], buffers: Mapping[str, Storage]) -> Sequence[dict[str, Any]]:
    return [
        {"name": name, "bytes": buffers[name].bytes, "start": start, "end": end} for name, (start, end) in spans.items()
    ]
