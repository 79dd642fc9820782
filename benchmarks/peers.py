"""Times the same ONNX files with imgconv and every other installed engine, run by run in turn.

    python -m benchmarks.peers [NAME or FILE.onnx ...] [--device DEVICE] [--engine NAME ...] [--plot ratios.png]

Each result is compared with onnxruntime's on the unchanged graph first; a wrong one is reported and not timed. Each
engine has its own process and warms up. Then the engines take turns with one run each, from numpy arrays to numpy
arrays. If an engine is missing or cannot run a network, the table says why.

    ratio       the engine's median divided by imgconv's: above 1, imgconv is faster
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy

import imgconv
from benchmarks.engines import ENGINES, Peer, Request, convert
from benchmarks.measure import (
    FLOAT_TOLERANCE, HALF_TOLERANCE, TOLERANCE_REASON, Column, add_run_arguments, digits, draw_inputs, environment,
    environment_line, make_table, milliseconds, publish, relative_error, run_main, run_oracle, steps, version_of,
)
from benchmarks.networks import DEFAULT, Network, open_network
from imgconv.cl import drivers
from imgconv.cl.device import DeviceInfo, select_device
from imgconv.config import read_config
from imgconv.reports.timing import WARMUP_SECONDS, Timing

OURS = "imgconv"
LEAST_WARMUP = 4  # some engines record at the second or third run
CORES_TO_LOAD = 4  # engines are loaded side by side if each has as many cores
PAUSE = 0.02  # seconds between turns: threads of the previous engine may still spin


@dataclass(frozen=True)
class Row:
    """One engine on one network. problem: why there is no timing."""

    network: str
    engine: str
    problem: str
    error: float | None = None
    timing: Timing | None = None
    load: float | None = None
    ratio: float | None = None

    def to_json(self) -> dict[str, Any]:
        engine = ENGINES[self.engine]
        return {
            "network": self.network, "engine": self.engine, "version": version_of(engine.package), "note": engine.note,
            "problem": self.problem, "error": self.error, "wall": self.timing and self.timing.to_json(),
            "load_seconds": self.load, "ratio": self.ratio,
        }


COLUMNS = (
    Column("network", lambda r: r.network), Column("engine", lambda r: r.engine, True),
    Column("version", lambda r: version_of(ENGINES[r.engine].package), True),
    Column("error", lambda r: "-" if r.error is None else f"{r.error:.1e}"),
    Column("load s", lambda r: digits(r.load)),
    Column("wall ms min", lambda r: milliseconds(r.timing and r.timing.minimum)),
    Column("median", lambda r: milliseconds(r.timing and r.timing.median)),
    Column("spread", lambda r: f"{r.timing.spread:.0%}" if r.timing else "-"),
    Column("ratio", lambda r: digits(r.ratio)), Column("", lambda r: r.problem[:80] or ENGINES[r.engine].note, True),
)


def main(options: argparse.Namespace) -> int:
    """Measures every network with every engine; 1 if imgconv's result is wrong."""
    config = read_config(options.float16, options.native_explog, options.max_image, options.device)
    device = select_device(config.device)
    names = [OURS, *(name for name in options.engine or ENGINES if name != OURS)]
    rows: list[Row] = []
    networks = options.network or DEFAULT
    with tempfile.TemporaryDirectory(prefix="imgconv-bench-") as folder, steps(networks) as walk:
        loader = only_driver(device, Path(folder))
        for name in walk:
            rows += compare(open_network(name, Path(folder)), names, device, loader, Path(folder), options)
    found = environment(device) | {"engines": {n: version_of(ENGINES[n].package) for n in names}}
    content = {"environment": found, "tolerance": TOLERANCE_REASON, "rows": [row.to_json() for row in rows]}
    publish(options, content, environment_line(found), make_table("The same files, in turn", COLUMNS, rows))
    if options.plot:
        plot(rows, f"{device.name}, driver {device.driver_version}", options.plot)
    return 1 if any(row.problem for row in rows if row.engine == OURS) else 0


def compare(
    network: Network, names: Sequence[str], device: DeviceInfo, loader: dict[str, str], folder: Path,
    options: argparse.Namespace,
) -> list[Row]:
    """One network: every engine is loaded and checked, then all are timed in turn."""
    inputs = draw_inputs(network.graph.inputs)
    expected = run_oracle(network.path, inputs)
    numpy.savez(folder / "inputs.npz", **inputs)
    settings = {name: getattr(options, name) for name in ("float16", "native_explog", "max_image")}
    request = Request(
        str(network.path.resolve()), network.shapes, tuple(expected), device.platform, device.name, settings,
        str(folder),
    )
    half = bool(read_config(options.float16).float16)
    peers: list[Peer] = []
    rows = {name: Row(network.name, name, convert(name, request)) for name in names}

    def start(name: str) -> tuple[Peer, dict[str, Any]]:
        peer = Peer(name, request, folder / "inputs.npz", loader)
        peers.append(peer)
        return peer, {} if peer.problem else peer.check(folder)

    try:
        with ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // CORES_TO_LOAD)) as pool:
            loaded = list(pool.map(start, [name for name in names if not rows[name].problem]))
        for peer, found in loaded:
            error = None if peer.problem else relative_error(_shaped(found, expected), expected)
            limit = HALF_TOLERANCE if ENGINES[peer.name].half or half and peer.name == OURS else FLOAT_TOLERANCE
            problem = "WRONG" if error is not None and not error <= limit else peer.problem
            load = None if peer.problem else peer.load_seconds
            rows[peer.name] = Row(network.name, peer.name, problem, error, None, load)
        return timed_rows(rows, [peer for peer, _ in loaded if not rows[peer.name].problem], options.repeat)
    finally:
        for peer in peers:
            peer.close()


def timed_rows(rows: dict[str, Row], peers: Sequence[Peer], repeat: int) -> list[Row]:
    """The rows with timings: all peers warm up, then take turns."""
    for peer in peers:
        start, runs = time.perf_counter(), 0
        while runs < LEAST_WARMUP or (time.perf_counter() - start < WARMUP_SECONDS and runs < repeat):
            peer.run()
            runs += 1
    seconds: dict[str, list[float]] = {peer.name: [] for peer in peers}
    for _ in range(repeat):
        for peer in peers:
            time.sleep(PAUSE)
            seconds[peer.name].append(peer.run())
    timings = {name: Timing.from_seconds(runs) for name, runs in seconds.items()}
    ours = timings.get(OURS)
    made = []
    for name, row in rows.items():
        timing = timings.get(name)
        ratio = timing.median / ours.median if timing and ours else None
        made.append(Row(row.network, name, row.problem, row.error, timing, row.load, ratio))
    return made


def _shaped(found: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    """Outputs in the expected shapes: some engines drop axes of length 1."""
    return {
        name: array.reshape(expected[name].shape) if array.size == expected[name].size else array
        for name, array in found.items() if name in expected
    }


def only_driver(device: DeviceInfo, folder: Path) -> dict[str, str]:
    """The environment in which OpenCL's loader sees only the device's driver: tinygrad takes the first platform."""
    if any(os.environ.get(name) for name in drivers.LOADER_VARIABLES):
        return {}
    registered = drivers.registered_drivers(drivers.vendor_folders())
    libraries = dict.fromkeys([*registered, *drivers.unregistered_drivers()])
    question = "import pyopencl; print(*(p.name for p in pyopencl.get_platforms()), sep='\\n')"
    for number, library in enumerate(libraries):
        vendors = folder / f"vendors{number}"
        vendors.mkdir()
        (vendors / "only.icd").write_text(library + "\n")
        found = {"OCL_ICD_VENDORS": str(vendors)}
        answer = subprocess.run(
            [sys.executable, "-c", question], env={**os.environ, **found}, capture_output=True, text=True
        )
        if device.platform in answer.stdout.splitlines():
            return found
    return {}


def plot(rows: Sequence[Row], title: str, file: str) -> None:
    """Bars of the ratios, one group for each network. Raises Error if matplotlib is not installed."""
    try:
        import matplotlib

        matplotlib.use("agg")
        from matplotlib import pyplot
    except ImportError:
        raise imgconv.Error("--plot needs matplotlib: pip install imgconv[bench]") from None
    networks = list(dict.fromkeys(row.network for row in rows))
    engines = list(dict.fromkeys(row.engine for row in rows if row.ratio is not None and row.engine != OURS))
    figure, axes = pyplot.subplots(figsize=(9, 4.5), layout="constrained")
    width = 0.8 / max(1, len(engines))
    for number, engine in enumerate(engines):
        ratios = {row.network: row.ratio for row in rows if row.engine == engine and row.ratio is not None}
        at = [networks.index(name) + (number - (len(engines) - 1) / 2) * width for name in ratios]
        heights = [ratio - 1 for ratio in ratios.values()]
        axes.bar(at, heights, width, 1, label=f"{engine} {version_of(ENGINES[engine].package)}")
    axes.axhline(1, color="black", linewidth=1)
    axes.set(yscale="log", ylabel="time in parts of imgconv's", title=title)
    axes.set_xticks(range(len(networks)), networks)
    figure.legend(loc="outside right upper")
    figure.savefig(file, dpi=150)
    pyplot.close(figure)


def make_parser() -> argparse.ArgumentParser:
    described = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__, formatter_class=described)
    parser.add_argument("network", nargs="*", help=f"a name of models/ or an ONNX file (default: {' '.join(DEFAULT)})")
    parser.add_argument(
        "--engine", action="append", choices=list(ENGINES), help="only this one and imgconv; may be given again"
    )
    parser.add_argument("--plot", metavar="FILE.png", help="draw the ratios")
    add_run_arguments(parser)
    return parser


if __name__ == "__main__":
    sys.exit(run_main(make_parser(), main))
