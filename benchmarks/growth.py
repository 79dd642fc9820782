"""Time for each pixel as a network's input grows, past the device's image limit too.

    python -m benchmarks.growth [NAME or FILE.onnx ...] [--device DEVICE] [--resolution 224,448,896,1792]
                                [--max-image TEXELS] [--launches] [--json FILE]

Each size is checked against onnxruntime before it is timed. The sizes take turns, so that a busy moment of the machine
affects all. The widest textures of MobileNetV2 have 24 quads to each of half as many columns as the input: 21504 texels
at 1792, past the limit of many devices. --max-image measures each size that a smaller limit cuts into more tiles with
it, too, beside the same reference.

    ns/pixel    the least time divided by the pixels of the input
    growth      ns/pixel divided by that of the smallest size from REFERENCE pixels a side on; the target is 1.2 at most
    --launches  the kernels that grow, beside their own ns/pixel at that size
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy

import imgconv
from benchmarks.measure import (
    FLOAT_TOLERANCE, HALF_TOLERANCE, Column, add_run_arguments, digits, draw_inputs, environment, environment_line,
    make_table, milliseconds, positives, publish, relative_error, run_main, run_oracle, steps,
)
from benchmarks.networks import Network, open_network
from imgconv.cl.device import DeviceInfo, open_device, select_device
from imgconv.config import read_config
from imgconv.runtime.session import Session
from imgconv.reports.timing import Timing, seconds_of_call

RESOLUTIONS = (224, 448, 896, 1792)
REFERENCE = 448
WANTED = 1.2


@dataclass(frozen=True)
class Case:
    """One size under one image limit (None: the device's), checked. failure: why there is nothing to time."""

    network: Network
    limit: int | None
    error: float
    failure: str
    model: imgconv.Model | None
    inputs: Mapping[str, Any]
    session: Session | None

    @property
    def pixels(self) -> int:
        return max(value.size // value.shape[1] for value in self.network.graph.inputs if len(value.shape) > 1)

    @property
    def tiled(self) -> int:
        """Textures that are cut into tiles."""
        return sum(texture.tiling.tiles > 1 for texture in self.model.plan.textures) if self.model else 0


@dataclass(frozen=True)
class Row:
    """A case with its times. launches: the least seconds of each on the device; growths: relative to the reference."""

    case: Case
    wall: Timing | None = None
    launches: tuple[float, ...] = ()
    wall_growth: float | None = None
    device_growth: float | None = None

    @property
    def wall_cost(self) -> float | None:
        """Nanoseconds of a pixel, from numpy arrays to numpy arrays."""
        return self.wall.minimum * 1e9 / self.case.pixels if self.wall else None

    @property
    def device_cost(self) -> float | None:
        """Nanoseconds of a pixel in kernels."""
        return sum(self.launches) * 1e9 / self.case.pixels if self.launches else None

    @property
    def good(self) -> bool:
        """Returns whether the results are right and, from the reference's size on, the times grow by at most WANTED."""
        small = self.case.pixels < REFERENCE**2
        return self.wall is not None and (small or max(self.wall_growth or 0, self.device_growth or 0) <= WANTED)

    def to_json(self) -> dict[str, Any]:
        case = self.case
        return {
            "network": case.network.name, "input": case.network.size, "pixels": case.pixels, "limit": case.limit,
            "tiled_textures": case.tiled, "error": case.error, "failure": case.failure,
            "wall": self.wall and self.wall.to_json(), "wall_nanoseconds_per_pixel": self.wall_cost,
            "device_nanoseconds_per_pixel": self.device_cost, "wall_growth": self.wall_growth,
            "device_growth": self.device_growth,
        }


@dataclass(frozen=True)
class Grown:
    """A launch that costs more for each pixel than at the reference. own: nanoseconds for each pixel of the input."""

    row: Row
    name: str
    kernel: str
    reference: float
    own: float


COLUMNS = (
    Column("network", lambda r: r.case.network.name), Column("input", lambda r: r.case.network.size),
    Column("image limit", lambda r: str(r.case.limit or "device's")),
    Column("tiled textures", lambda r: str(r.case.tiled)),
    Column("error", lambda r: r.case.failure or f"{r.case.error:.1e}"),
    Column("wall ms min", lambda r: milliseconds(r.wall and r.wall.minimum)),
    Column("ns/pixel", lambda r: digits(r.wall_cost)), Column("growth", lambda r: digits(r.wall_growth)),
    Column("device ms", lambda r: milliseconds(sum(r.launches) or None)),
    Column("ns/pixel", lambda r: digits(r.device_cost)), Column("growth", lambda r: digits(r.device_growth)),
)
LAUNCHES = (
    Column("launch", lambda g: g.name[:40]), Column("input", lambda g: g.row.case.network.size),
    Column("image limit", lambda g: str(g.row.case.limit or "device's")),
    Column("ns/pixel before", lambda g: digits(g.reference)), Column("now", lambda g: digits(g.own)),
    Column("growth", lambda g: digits(g.own / g.reference)), Column("kernel", lambda g: g.kernel, True),
)


def load(network: Network, device: DeviceInfo, options: argparse.Namespace) -> list[Case]:
    """One size, loaded and checked; under --max-image too, if that cuts textures into more tiles."""
    inputs = draw_inputs(network.graph.inputs)
    expected = run_oracle(network.path, inputs)
    cases = [check(network, None, inputs, expected, device, options)]
    if options.max_image is not None:
        limited = check(network, options.max_image, inputs, expected, device, options)
        if limited.failure or limited.tiled > cases[0].tiled:
            cases.append(limited)
    return cases


def check(
    network: Network, limit: int | None, inputs: Mapping[str, Any], expected: Mapping[str, Any], device: DeviceInfo,
    options: argparse.Namespace,
) -> Case:
    """One size under one limit."""
    settings = {"float16": options.float16, "native_explog": options.native_explog, "max_image": limit}
    try:
        model = imgconv.load(network.graph, device, **settings)
        error = relative_error(model.run(inputs), expected)
    except imgconv.Error as refused:
        return Case(network, limit, 0.0, " ".join(str(refused).split())[:100], None, inputs, None)
    if error > (HALF_TOLERANCE if model.config.float16 else FLOAT_TOLERANCE):
        return Case(network, limit, error, f"WRONG {error:.1e}", model, inputs, None)
    session = Session(model.plan, open_device(device, profile=True))
    session.run(inputs)
    return Case(network, limit, error, "", model, inputs, session)


def measure(cases: Sequence[Case], repeat: int) -> list[Row]:
    """The rows of all sizes of a network, which take turns."""
    walls: dict[int, list[float]] = {number: [] for number in range(len(cases))}
    launches: dict[int, list[list[float]]] = {number: [] for number in range(len(cases))}
    for turn in range(repeat + 1):
        for number, case in enumerate(cases):
            model, session = case.model, case.session
            if model is None or session is None:
                continue
            model.run(case.inputs)  # the previous case leaves its own content in the caches
            found = seconds_of_call(lambda model=model, case=case: model.run(case.inputs))  # type: ignore[misc]
            seconds = session.launch_seconds()
            if turn:
                walls[number].append(found)
                launches[number].append(seconds)
    rows = [
        Row(case, Timing.from_seconds(walls[n]), tuple(map(float, numpy.min(launches[n], axis=0))))
        if walls[n] else Row(case)
        for n, case in enumerate(cases)
    ]
    return with_growth(rows)


def with_growth(rows: Sequence[Row]) -> list[Row]:
    """The rows with their growth from the reference."""
    base = reference(rows)
    if base is None or base.wall_cost is None or base.device_cost is None:
        return list(rows)
    return [
        Row(
            row.case, row.wall, row.launches, row.wall_cost and row.wall_cost / base.wall_cost,
            row.device_cost and row.device_cost / base.device_cost,
        )
        for row in rows
    ]


def reference(rows: Sequence[Row]) -> Row | None:
    """The smallest size from REFERENCE pixels a side on, under the device's own limit; else the smallest."""
    own = sorted((row for row in rows if row.case.limit is None and row.wall), key=lambda row: row.case.pixels)
    return next((row for row in own if row.case.pixels >= REFERENCE**2), own[0] if own else None)


def grown(rows: Sequence[Row]) -> list[Grown]:
    """The launches that take more than WANTED times their reference, the largest excess first."""
    base = reference(rows)
    if base is None or base.case.model is None:
        return []
    before = {
        launch.name: seconds * 1e9 / base.case.pixels
        for launch, seconds in zip(base.case.model.plan.launches, base.launches, strict=True)
    }
    found = []
    for row in rows:
        if row is base or row.case.model is None:
            continue
        for launch, seconds in zip(row.case.model.plan.launches, row.launches, strict=False):
            own, known = seconds * 1e9 / row.case.pixels, before.get(launch.name)
            if known and row.case.pixels >= base.case.pixels and own > WANTED * known:
                found.append(Grown(row, launch.name, launch.specialisation or launch.description, known, own))
    return sorted(found, key=lambda g: g.reference - g.own)


def main(options: argparse.Namespace) -> int:
    """Measures every size; 1 if one does not load, is wrong, or costs more than WANTED times the reference."""
    device = select_device(read_config(device=options.device).device)
    wanted = [(name, size) for name in options.network or ["mobilenet_v2"] for size in options.resolution]
    cases: dict[str, list[Case]] = {}
    with tempfile.TemporaryDirectory(prefix="imgconv-bench-") as folder:
        with steps([f"{name} at {size}" for name, size in wanted]) as walk:
            for (name, size), _ in zip(wanted, walk, strict=True):
                cases.setdefault(name, []).extend(load(open_network(name, Path(folder), size), device, options))
    rows: list[Row] = []
    shown: list[Grown] = []
    for found in (measure(each, options.repeat) for each in cases.values()):
        rows += found
        shown += grown(found)
    content = {
        "environment": environment(device), "wanted": WANTED, "rows": [row.to_json() for row in rows],
        "launches": [
            {"launch": g.name, "input": g.row.case.network.size, "limit": g.row.case.limit, "kernel": g.kernel,
             "nanoseconds_before": g.reference, "nanoseconds_now": g.own} for g in shown
        ],
    }
    tables = [make_table("Cost by size", COLUMNS, rows)]
    if options.launches:
        tables.append(make_table("Launches that grow", LAUNCHES, shown[:30]))
    publish(options, content, environment_line(environment(device)), *tables)
    return 0 if all(row.good for row in rows) else 1


def make_parser() -> argparse.ArgumentParser:
    described = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__, formatter_class=described)
    parser.add_argument("network", nargs="*", help="a name of models/ or an ONNX file (default: mobilenet_v2)")
    parser.add_argument(
        "--resolution", type=positives, default=RESOLUTIONS, metavar="SIZES",
        help=f"rows and columns of the input (default: {','.join(map(str, RESOLUTIONS))})",
    )
    parser.add_argument("--launches", action="store_true", help="show which launches grow")
    add_run_arguments(parser, 10)
    return parser


if __name__ == "__main__":
    sys.exit(run_main(make_parser(), main))
