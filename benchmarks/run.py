"""Times the overhead of a run beside its kernels, and the gain of frames in flight.

    python -m benchmarks.run [NAME or FILE.onnx ...] [--device DEVICE] [--depth 3] [--trace FILE] [--json FILE]

Each network is first checked against onnxruntime, by run and by submit; a wrong result is reported and not timed. All
ways of a network are timed run by run in turn, so that what else the machine does meets them alike.

    loop        a bare loop of pyopencl's enqueue_nd_range_kernel over the session's own bound kernels, and finish
    launches    the same launches as Model.run enqueues them: by the driver's own function with arguments converted
                once, and finish; the target for launches / loop is 1.2 at most
    run         Model.run, from numpy arrays to numpy arrays, divided by the loop
    frames/s    Model.run repeatedly, and Model.submit with --depth frames in flight; their ratio, whose target is at
                least 1, of the fastest turns and of the median ones
    mapped      Mapped.run divided by the loop: inputs and outputs stay in memory that host and device share
    --trace     frames in flight on a queue that records times, in Chrome's trace event format, with the part of the
                uploads' and downloads' time in which a launch of another frame runs
    --loads     loads of the model, and ten runs of each: how much the process and the device's driver grow
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import pyopencl as cl

import imgconv
from benchmarks.measure import (
    FLOAT_TOLERANCE, HALF_TOLERANCE, Column, add_run_arguments, digits, draw_inputs, environment, environment_line,
    make_table, milliseconds, publish, relative_error, run_main, run_oracle, steps,
)
from benchmarks.networks import DEFAULT, Network, open_network
from imgconv.cl.device import DeviceInfo, open_device, select_device
from imgconv.commands.shared_arguments import positive
from imgconv.config import read_config
from imgconv.runtime.mapped import Mapped
from imgconv.runtime.pipeline import Frame, Pipeline
from imgconv.runtime.session import Session
from imgconv.reports.timing import Timing, seconds_of_call

FRAMES = 12
RUNS_A_LOAD = 10
Ticks = Mapping[str, tuple[int, int]]


@dataclass(frozen=True)
class Row:
    """One network. error: against onnxruntime; the timings are those of one run, or of one frame of FRAMES."""

    name: str
    size: str
    error: float
    tolerance: float
    launches: int
    timings: Mapping[str, Timing]
    hidden: float | None = None
    growth: Mapping[str, float] | None = None

    @property
    def right(self) -> bool:
        return self.error <= self.tolerance

    def ratio(self, over: str, under: str, figure: str = "minimum") -> float | None:
        """One way's seconds divided by another's."""
        return getattr(self.timings[over], figure) / getattr(self.timings[under], figure) if self.timings else None

    def rate(self, way: str, figure: str = "median") -> float | None:
        """Frames a second."""
        return 1 / getattr(self.timings[way], figure) if self.timings else None

    def to_json(self) -> dict[str, Any]:
        return {
            "network": self.name, "input": self.size, "error": self.error, "tolerance": self.tolerance,
            "right": self.right, "launches": self.launches,
            "timings": {name: timing.to_json() for name, timing in self.timings.items()},
            "launches_over_loop": {f: self.ratio("launches", "loop", f) for f in ("minimum", "median")},
            "run_over_loop": {f: self.ratio("run", "loop", f) for f in ("minimum", "median")},
            "submit_over_run": {f: self.ratio("run after run", "submitted", f) for f in ("minimum", "median")},
            "mapped_over_loop": {f: self.ratio("mapped", "loop", f) for f in ("minimum", "median")},
            "transfers_hidden": self.hidden, "growth": self.growth,
        }


def _milliseconds(way: str, figure: str) -> Callable[[Any], str]:
    return lambda row: milliseconds(getattr(row.timings[way], figure)) if row.timings else "-"


COLUMNS = (
    Column("network", lambda r: r.name), Column("input", lambda r: r.size),
    Column("error", lambda r: f"{r.error:.1e}" if r.right else f"WRONG {r.error:.1e}"),
    Column("launches", lambda r: str(r.launches)),
    Column("loop ms min", _milliseconds("loop", "minimum")), Column("median", _milliseconds("loop", "median")),
    Column("launches ms min", _milliseconds("launches", "minimum")),
    Column("median", _milliseconds("launches", "median")),
    Column("run ms min", _milliseconds("run", "minimum")), Column("median", _milliseconds("run", "median")),
    Column("launches/loop", lambda r: digits(r.ratio("launches", "loop"))),
    Column("median", lambda r: digits(r.ratio("launches", "loop", "median"))),
    Column("run/loop", lambda r: digits(r.ratio("run", "loop"))),
    Column("run frames/s", lambda r: digits(r.rate("run after run"))),
    Column("submit frames/s", lambda r: digits(r.rate("submitted"))),
    Column("submit/run", lambda r: digits(r.ratio("run after run", "submitted"))),
    Column("median", lambda r: digits(r.ratio("run after run", "submitted", "median"))),
    Column("mapped/loop", lambda r: digits(r.ratio("mapped", "loop"))),
    Column("hidden", lambda r: "-" if r.hidden is None else f"{r.hidden:.0%}"),
)
GROWTH = (
    Column("network", lambda r: r.name), Column("loads", lambda r: digits(r.growth["loads"])),
    Column("runs", lambda r: digits(r.growth["runs"])),
    Column("process MB at a tenth", lambda r: digits(r.growth["early"] / 1e6)),
    Column("at the end", lambda r: digits(r.growth["late"] / 1e6)),
    Column("KB a load", lambda r: digits((r.growth["late"] - r.growth["early"]) / (0.9 * r.growth["loads"]) / 1e3)),
)


def main(options: argparse.Namespace) -> int:
    """Measures every network that the command line names; 1 if a result is wrong."""
    device = select_device(read_config(device=options.device).device)
    names = options.network or DEFAULT
    rows, frames = [], []
    with tempfile.TemporaryDirectory(prefix="imgconv-bench-") as folder, steps(names) as walk:
        for name in walk:
            row, traced = measure(open_network(name, Path(folder)), device, options)
            rows.append(row)
            frames.append(traced)
    found = environment(device)
    tables = [make_table("Runs", COLUMNS, rows)]
    tables += [make_table("Loaded again and again", GROWTH, rows)] if options.loads else []
    if options.trace:
        Path(options.trace).write_text(json.dumps(trace(names, frames)), encoding="utf-8")
    content = {"environment": found, "depth": options.depth, "rows": [row.to_json() for row in rows]}
    publish(options, content, environment_line(found), *tables)
    return 0 if all(row.right for row in rows) else 1


def measure(network: Network, device: DeviceInfo, options: argparse.Namespace) -> tuple[Row, list[Ticks]]:
    """Loads, checks, and times one network; the ticks of traced frames."""
    settings = {name: getattr(options, name) for name in ("float16", "native_explog", "max_image")}
    model = imgconv.load(network.graph, device, **settings)
    inputs = draw_inputs(network.graph.inputs)
    expected = run_oracle(network.path, inputs)
    submitted = [model.submit(inputs, options.depth) for _ in range(options.depth)]
    error = max(relative_error(found, expected) for found in (model.run(inputs), *(f.result() for f in submitted)))
    tolerance = HALF_TOLERANCE if model.config.float16 else FLOAT_TOLERANCE
    session = Session(model.plan, open_device(device))
    session.run(inputs)
    row = Row(network.name, network.size, error, tolerance, len(model.plan.launches), {})
    if not row.right:
        return row, []
    timings = time_ways(model, session, inputs, options)
    ticks = traced_frames(model, device, inputs, options.depth) if options.trace else []
    growth = grow(network, device, settings, inputs, options.loads) if options.loads else None
    hidden = hidden_part(ticks) if ticks else None
    return Row(row.name, row.size, error, tolerance, row.launches, timings, hidden, growth), ticks


def time_ways(
    model: imgconv.Model, session: Session, inputs: Mapping[str, Any], options: argparse.Namespace
) -> dict[str, Timing]:
    """Each way's timing; the ways take turns."""
    context, launches, queue = session.context, session.sequence.launches, model.queue

    def loop() -> None:
        for kernel, global_size, local_size in launches:
            cl.enqueue_nd_range_kernel(queue, kernel, global_size, local_size)
        queue.finish()

    def launched() -> None:
        session.sequence.enqueue()
        context.finish()

    def run_after_run() -> None:
        for _ in range(FRAMES):
            model.run(inputs)

    def submit() -> None:
        # Like run_after_run, it keeps no result: new memory costs more than the copy into it.
        frames: deque[Frame] = deque()
        for _ in range(FRAMES):
            frames.append(model.submit(inputs, options.depth))
            if len(frames) == options.depth:
                frames.popleft().result()
        for frame in frames:
            frame.result()

    mapped = Mapped(session)
    for name, array in mapped.inputs.items():
        numpy.copyto(array, inputs[name])
    ways: dict[str, tuple[Callable[[], Any], int]] = {
        "loop": (loop, 1), "launches": (launched, 1), "run": (lambda: session.run(inputs), 1),
        "run after run": (run_after_run, FRAMES), "submitted": (submit, FRAMES), "mapped": (mapped.run, 1),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(options.repeat + 2):
        for name, (way, frames) in ways.items():
            # Not measured: idle threads and clocks, which the previous way left.
            way()
            found = seconds_of_call(way) / frames
            if turn > 1:
                seconds[name].append(found)
    return {name: Timing.from_seconds(found) for name, found in seconds.items()}


def traced_frames(model: imgconv.Model, device: DeviceInfo, inputs: Mapping[str, Any], depth: int) -> list[Ticks]:
    """The times of upload, compute and download of FRAMES frames in flight together, after as many to warm up."""
    pipeline = Pipeline(Session(model.plan, open_device(device, profile=True)))
    frames: list[Frame] = [pipeline.submit(inputs, depth) for _ in range(2 * FRAMES)]
    for frame in frames:
        frame.result()
    ticks = [frame.ticks for frame in frames[FRAMES:]]
    alone: list[Ticks] = []
    for before, each in zip(ticks, ticks[1:], strict=False):
        # NVIDIA's barrier ends when it is enqueued. Launches start after this frame's uploads and earlier launches.
        start = max(each["compute"][0], before["compute"][1], each.get("upload", (0, 0))[1])
        alone.append({**each, "compute": (start, each["compute"][1])})
    return alone


def hidden_part(frames: Sequence[Ticks]) -> float:
    """The part of the transfers' time in which a launch of another frame runs; without the first frame and the last."""
    computed = [ticks["compute"] for ticks in frames]
    moved = hidden = 0
    for ticks in frames[1:-1]:
        for name in ("upload", "download"):
            start, end = ticks.get(name, (0, 0))
            moved += end - start
            hidden += sum(max(0, min(end, stop) - max(start, begin)) for begin, stop in computed)
    return hidden / moved if moved else 1.0


def trace(names: Sequence[str], networks: Sequence[Sequence[Ticks]]) -> dict[str, Any]:
    """The frames in Chrome's trace event format: a process for each network, a thread for each queue."""
    events: list[dict[str, Any]] = []
    for process, (name, frames) in enumerate(zip(names, networks, strict=True)):
        events.append({"name": "process_name", "ph": "M", "pid": process, "args": {"name": name}})
        first = min((start for ticks in frames for start, _ in ticks.values()), default=0)
        for thread, queue in enumerate(("upload", "compute", "download")):
            events.append({
                "name": "thread_name", "ph": "M", "pid": process, "tid": thread, "args": {"name": queue},
            })
            spans = [ticks.get(queue, (first, first)) for ticks in frames]
            events += [
                {
                    "name": f"{queue} {number}", "cat": queue, "ph": "X", "pid": process, "tid": thread,
                    "ts": (start - first) / 1e3, "dur": (end - start) / 1e3,
                }
                for number, (start, end) in enumerate(spans)
            ]
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def grow(
    network: Network, device: DeviceInfo, settings: Mapping[str, Any], inputs: Mapping[str, Any], loads: int
) -> dict[str, float]:
    """Bytes of the process after a tenth of the loads and after all of them."""
    early = 0
    for number in range(loads):
        if number == max(1, loads // 10):
            early = process_bytes()
        model = imgconv.load(network.graph, device, **settings)
        for _ in range(RUNS_A_LOAD):
            model.run(inputs)
        del model
        gc.collect()
    return {"loads": loads, "runs": loads * RUNS_A_LOAD, "early": early, "late": process_bytes()}


def process_bytes() -> int:
    """Bytes of this process in memory, on Linux."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


def make_parser() -> argparse.ArgumentParser:
    described = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__, formatter_class=described)
    parser.add_argument("network", nargs="*", help=f"a name of models/ or an ONNX file (default: {' '.join(DEFAULT)})")
    parser.add_argument("--depth", type=positive, default=3, metavar="N", help="frames under way (default: 3)")
    parser.add_argument("--trace", metavar="FILE", help="write frames under way as a Chrome trace")
    parser.add_argument("--loads", type=int, default=0, metavar="N", help="load N times too, and see what grows")
    add_run_arguments(parser)
    return parser


if __name__ == "__main__":
    sys.exit(run_main(make_parser(), main))
