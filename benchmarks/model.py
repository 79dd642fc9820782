"""Whole networks on one device: time, rate, traffic, launches and memory.

    python -m benchmarks.model [NAME or FILE.onnx ...] [--device DEVICE] [--resolution 224,448,896] [--json FILE]

Each network is first checked against onnxruntime; a wrong result is reported and not timed.

    device      the sum of the launches' times, by the driver's events
    wall        Model.run from numpy arrays to numpy arrays, on a queue that records no events
    GFLOP/s     two for each multiply-add of convolutions and products, by the median of device
    GB/s        what each launch reads (each texture once) and writes, by the median of device
    first       from imgconv.load to the first result, in a new process; cold: no compiled program on disk, warm: all
    textures    bytes of all textures on the device at once: weights and the shared images of activations
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import imgconv
from benchmarks.measure import (
    FLOAT_TOLERANCE, HALF_TOLERANCE, TOLERANCE_REASON, Column, add_run_arguments, digits, draw_inputs, environment,
    environment_line, make_table, milliseconds, positives, publish, relative_error, run_main, run_oracle, steps,
)
from benchmarks.networks import DEFAULT, Network, open_network, sized
from imgconv.cl.device import DeviceInfo, open_device, select_device
from imgconv.compiling.plan import Plan
from imgconv.config import read_config
from imgconv.kernels.layout import Texture
from imgconv.reports.first_result import times_to_first_result
from imgconv.runtime.session import Session
from imgconv.reports.timing import Timing, seconds_of_call, time_repeatedly


@dataclass(frozen=True)
class Row:
    """One network at one size. error: against onnxruntime; the rest is None or empty if that is too large."""

    name: str
    size: str
    pixels: int
    error: float
    tolerance: float
    figures: dict[str, Any]
    device: Timing | None = None
    wall: Timing | None = None
    cold: float | None = None
    warm: float | None = None

    @property
    def right(self) -> bool:
        return self.error <= self.tolerance

    def rate(self, figure: str) -> float | None:
        """A figure by the median of device seconds, in 1e9."""
        return None if self.device is None else float(self.figures[figure]) / self.device.median / 1e9

    @property
    def nanoseconds_per_pixel(self) -> float | None:
        return None if self.device is None else self.device.median * 1e9 / self.pixels

    def to_json(self) -> dict[str, Any]:
        return {
            "network": self.name, "input": self.size, "error": self.error, "tolerance": self.tolerance,
            "right": self.right, **self.figures,
            "device": self.device and self.device.to_json(), "wall": self.wall and self.wall.to_json(),
            "gflops": self.rate("operations"), "gigabytes_per_second": self.rate("traffic_bytes"),
            "first_result_cold_seconds": self.cold, "first_result_warm_seconds": self.warm,
            "device_nanoseconds_per_pixel": self.nanoseconds_per_pixel,
        }


COLUMNS = (
    Column("network", lambda r: r.name), Column("input", lambda r: r.size),
    Column("error", lambda r: f"{r.error:.1e}" if r.right else f"WRONG {r.error:.1e}"),
    Column("device ms min", lambda r: milliseconds(r.device and r.device.minimum)),
    Column("median", lambda r: milliseconds(r.device and r.device.median)),
    Column("spread", lambda r: f"{r.device.spread:.0%}" if r.device else "-"),
    Column("wall ms min", lambda r: milliseconds(r.wall and r.wall.minimum)),
    Column("median", lambda r: milliseconds(r.wall and r.wall.median)),
    Column("spread", lambda r: f"{r.wall.spread:.0%}" if r.wall else "-"),
    Column("GFLOP/s", lambda r: digits(r.rate("operations"))),
    Column("GB/s", lambda r: digits(r.rate("traffic_bytes"))),
    Column("launches", lambda r: f"{r.figures['launches']}+{r.figures['transfers']}"),
    Column("first s cold", lambda r: digits(r.cold)), Column("warm", lambda r: digits(r.warm)),
    Column("textures MB", lambda r: digits(r.figures["texture_bytes"] / 1e6)),
)
COST = (
    Column("network", lambda r: r.name), Column("input", lambda r: r.size),
    Column("ns/pixel", lambda r: digits(r.nanoseconds_per_pixel)),
    Column("MAC/pixel", lambda r: digits(r.figures["multiply_adds"] / r.pixels)),
    Column("tiled textures", lambda r: str(r.figures["tiled_textures"])),
)


def main(options: argparse.Namespace) -> int:
    """Measures every network that the command line names; 1 if a result is wrong."""
    device = select_device(read_config(device=options.device).device)
    wanted = [pair for name in options.network or DEFAULT for pair in sized(name, options.resolution)]
    rows = []
    with tempfile.TemporaryDirectory(prefix="imgconv-bench-") as folder, steps([name for name, _ in wanted]) as names:
        for name, (_, resolution) in zip(names, wanted, strict=True):
            rows.append(measure(open_network(name, Path(folder), resolution), device, options))
    found = environment(device)
    tables = [make_table("Whole networks", COLUMNS, rows)]
    tables += [make_table("Cost by size", COST, rows)] if options.resolution else []
    content = {"environment": found, "tolerance": TOLERANCE_REASON, "rows": [row.to_json() for row in rows]}
    publish(options, content, environment_line(found), *tables, f"error: {TOLERANCE_REASON}")
    return 0 if all(row.right for row in rows) else 1


def measure(network: Network, device: DeviceInfo, options: argparse.Namespace) -> Row:
    """Loads, checks, warms up and times one network."""
    settings = {name: getattr(options, name) for name in ("float16", "native_explog", "max_image")}
    model = imgconv.load(network.graph, device, **settings)
    inputs = draw_inputs(network.graph.inputs)
    error = relative_error(model.run(inputs), run_oracle(network.path, inputs))
    tolerance = HALF_TOLERANCE if model.config.float16 else FLOAT_TOLERANCE
    figures = plan_figures(model.plan) | {"float_values": len(model.config.precision.storage)}
    pixels = max(value.size // value.shape[1] for value in network.graph.inputs if len(value.shape) > 1)
    if error > tolerance:
        return Row(network.name, network.size, pixels, error, tolerance, figures)
    wall = time_repeatedly(lambda: seconds_of_call(lambda: model.run(inputs)), options.repeat)
    profiled = Session(model.plan, open_device(device, profile=True))
    profiled.run(inputs)
    busy = time_repeatedly(lambda: sum(profiled.launch_seconds()), options.repeat)
    wanted = {"shapes": network.shapes, "device": device.index, **settings}
    cold, warm = times_to_first_result(network.path, inputs, wanted) if options.first else (None, None)
    return Row(network.name, network.size, pixels, error, tolerance, figures, busy, wall, cold, warm)


def plan_figures(plan: Plan) -> dict[str, Any]:
    """The figures of a plan that need no device."""
    return {
        "launches": len(plan.compute_launches), "transfers": len(plan.launches) - len(plan.compute_launches),
        "multiply_adds": plan.multiply_adds, "operations": 2 * plan.multiply_adds,
        "traffic_bytes": sum(launch.moved_bytes for launch in plan.launches),
        "texture_bytes": plan.activation_bytes + sum(s.bytes for s in plan.content if isinstance(s, Texture)),
        "weight_bytes": plan.weight_bytes, "activation_bytes": plan.activation_bytes,
        "tiled_textures": sum(texture.tiling.tiles > 1 for texture in plan.textures),
    }


def make_parser() -> argparse.ArgumentParser:
    described = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m benchmarks.model", description=__doc__, formatter_class=described)
    parser.add_argument("network", nargs="*", help=f"a name of models/ or an ONNX file (default: {' '.join(DEFAULT)})")
    parser.add_argument(
        "--resolution", type=positives, default=(), metavar="SIZES", help="sizes of the input, as 224,448,896"
    )
    parser.add_argument(
        "--first", action=argparse.BooleanOptionalAction, default=True,
        help="measure the time to the first result (default: yes)",
    )
    add_run_arguments(parser)
    return parser


if __name__ == "__main__":
    sys.exit(run_main(make_parser(), main))
