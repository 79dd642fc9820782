"""Times each different convolution and product of the networks once, and compares it with the device's peaks.

    python -m benchmarks.kernel [NAME or FILE.onnx ...] [--device DEVICE] [--plot roofline.png] [--json FILE]

Each is checked against numpy in float64 first (by the problems of tests/device); a wrong one is reported and not timed.
The device's peaks are measured with a multiply-add kernel, a texture-read kernel and a copy.

    GFLOP/s     two for each multiply-add that the problem asks for, by the median of the launch's time on the device
    bound       which of the three peaks allows the least speed: multiply-adds, texture reads (those that the chosen
                kernel makes; weights in a buffer are none) or bandwidth (a copy; each texture moved once)
    of peak     the time that this peak allows, divided by the measured median; above 100 % if the textures are in a
                cache, which those of the copy are not
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy

import imgconv
from benchmarks.kernel_text import read_kernel
from benchmarks.measure import (
    Column, add_run_arguments, digits, environment, environment_line, make_table, milliseconds, publish, run_main,
    steps,
)
from benchmarks.networks import DEFAULT, open_network
from imgconv.cl.opencl_device import OpenCLDevice
from imgconv.cl.device import open_device, select_device
from imgconv.compiling.compiler import prepare
from imgconv.compiling.plan import Launch
from imgconv.config import Config, read_config
from imgconv.graph.nodes import Convolution, Graph, Node, Product
from imgconv.kernels.target import Target
from imgconv.reports.peaks import Peaks, measure_peaks
from imgconv.runtime.session import Session
from imgconv.loading.device_target import target_of
from imgconv.reports.timing import Timing, time_repeatedly
from imgconv.tensor import build_graph

PROBLEMS = Path(__file__).parent.parent / "tests" / "device"


@dataclass(frozen=True)
class Row:
    """One problem. excess: the largest difference from float64, divided by the allowed one; above 1 it is wrong."""

    problem: str
    networks: tuple[str, ...]
    launch: Launch
    excess: float
    reads: int
    least_seconds: dict[str, float]
    timing: Timing | None = None

    @property
    def right(self) -> bool:
        return self.excess <= 1

    @property
    def operations(self) -> int:
        return 2 * self.launch.multiply_adds

    @property
    def gflops(self) -> float | None:
        return self.operations / self.timing.median / 1e9 if self.timing else None

    @property
    def bound(self) -> str:
        return max(self.least_seconds, key=lambda name: self.least_seconds[name])

    @property
    def share(self) -> float | None:
        return self.least_seconds[self.bound] / self.timing.median if self.timing else None

    @property
    def intensity(self) -> float:
        """Operations for each byte that must be moved."""
        return self.operations / self.launch.moved_bytes

    def to_json(self) -> dict[str, Any]:
        return {
            "problem": self.problem, "networks": self.networks, "specialisation": self.launch.specialisation,
            "error_in_parts_of_allowed": self.excess, "right": self.right, "operations": self.operations,
            "texture_reads": self.reads, "traffic_bytes": self.launch.moved_bytes,
            "operations_per_byte": self.intensity,
            "device": self.timing and self.timing.to_json(), "gflops": self.gflops, "bound": self.bound,
            "of_peak": self.share, "least_seconds": self.least_seconds,
        }


COLUMNS = (
    Column("problem", lambda r: r.problem), Column("in", lambda r: str(len(r.networks))),
    Column("error/allowed", lambda r: digits(r.excess, 2) if r.right else f"WRONG {r.excess:.1e}"),
    Column("MMAC", lambda r: digits(r.launch.multiply_adds / 1e6)),
    Column("ms min", lambda r: milliseconds(r.timing and r.timing.minimum)),
    Column("median", lambda r: milliseconds(r.timing and r.timing.median)),
    Column("spread", lambda r: f"{r.timing.spread:.0%}" if r.timing else "-"),
    Column("GFLOP/s", lambda r: digits(r.gflops)), Column("FLOP/B", lambda r: digits(r.intensity)),
    Column("of peak", lambda r: f"{r.share:.0%}" if r.share is not None else "-"),
    Column("bound", lambda r: r.bound, True),
    Column("kernel", lambda r: r.launch.specialisation, True),
)


# Problems


@cache
def _problem(kind: str) -> Any:
    """A class of tests/device/problems/, such as "Convolution": a kernel's task in the tests, with a reference."""
    if str(PROBLEMS) not in sys.path:
        sys.path.append(str(PROBLEMS))
    try:
        return getattr(importlib.import_module(f"problems.{kind.lower()}"), f"{kind}Problem")
    except ImportError as error:
        raise imgconv.Error(f"{PROBLEMS}: {error}; pip install imgconv[bench]") from None


def problems_of(graph: Graph) -> list[Any]:
    """The convolutions and products of a graph after the passes, as problems of the tests."""
    found = []
    for node in graph.nodes:
        if isinstance(node.operation, Convolution):
            found.append(convolution_problem(node, node.operation))
        elif isinstance(node.operation, Product):
            a, b = node.operands
            constant = "b" if b.value in graph.constants else ""
            found.append(_problem("Product")(a.view.shape, b.view.shape, constant))
    return found


def convolution_problem(node: Node, operation: Convolution) -> Any:
    """A node's convolution. The pads at the far ends follow from the output's size."""
    x, w = (operand.view.shape for operand in node.operands)
    size, wanted = x[2:], node.output.shape[2:]
    reach = [(k - 1) * d + 1 for k, d in zip(w[2:], operation.dilations, strict=True)]
    top, spare = operation.pads, (0, 0)
    axes = zip(size, wanted, reach, operation.strides, top, strict=True)
    if operation.transposed:
        left = [(n - 1) * s + r - p - out for n, out, r, s, p in axes]
        far, spare = (max(0, left[0]), max(0, left[1])), (max(0, -left[0]), max(0, -left[1]))
    else:
        ends = [(out - 1) * s + r - n - p for n, out, r, s, p in axes]
        far = (ends[0], ends[1])
    return _problem("Convolution")(
        x[0], x[1], size, node.output.shape[1], w[2:], operation.strides, operation.dilations, (*top, *far),
        operation.groups, operation.transposed, spare,
    )


def collect(networks: Sequence[str], config: Config, target: Target) -> dict[Any, tuple[str, ...]]:
    """Every different problem, with the networks that it is in."""
    found: dict[Any, tuple[str, ...]] = {}
    with tempfile.TemporaryDirectory(prefix="imgconv-bench-") as folder:
        for name in networks:
            for problem in problems_of(prepare(open_network(name, Path(folder)).graph, config, target).graph):
                found[problem] = tuple(dict.fromkeys((*found.get(problem, ()), name)))
    return found


def describe(problem: Any) -> str:
    """A problem in a few words."""
    if not hasattr(problem, "window"):
        kind = "" if problem.constant else ", both computed"
        return f"product {'x'.join(map(str, problem.a))} by {'x'.join(map(str, problem.b))}{kind}"
    p = problem
    depthwise = p.groups == p.channels == p.filters and not p.transposed
    text = f"{p.window[0]}x{p.window[1]} {'depthwise ' if depthwise else ''}{p.channels}"
    text += "" if depthwise else f"->{p.filters}"
    text += f" at {p.size[0]}x{p.size[1]}" + (f" /{p.strides[0]}" if max(p.strides) > 1 else "")
    text += f" dilated {p.dilations[0]}" if max(p.dilations) > 1 else ""
    text += f" groups {p.groups}" if p.groups > 1 and not depthwise else ""
    return text + (" transposed" if p.transposed else "") + (f" batch {p.batch}" if p.batch > 1 else "")


# Measuring


def measure(
    problem: Any, networks: tuple[str, ...], context: OpenCLDevice, config: Config, peaks: Peaks, repeat: int
) -> Row:
    """Compiles, checks, warms up and times one problem."""
    instance = problem.instance()
    plan = prepare(build_graph({"y": instance.output}), config, target_of(context.info)).plan()
    session = Session(plan, context)
    found = session.run(instance.inputs)["y"].astype(numpy.float64)
    allowed = numpy.maximum(instance.allowed(config.float16), 1e-30)
    excess = float(numpy.max(numpy.abs(found - instance.expected) / allowed))
    excess = excess if numpy.isfinite(found).all() else float("inf")
    number = max(range(len(plan.launches)), key=lambda n: plan.launches[n].multiply_adds)
    launch = plan.launches[number]
    text = read_kernel(launch.source.text)
    reads = text.loops.total_reads * text.items(launch.source.global_size)
    least = peaks.least_seconds(2 * launch.multiply_adds, reads, launch.moved_bytes)
    timing = time_repeatedly(lambda: session.launch_seconds()[number], repeat) if excess <= 1 else None
    return Row(describe(problem), networks, launch, excess, reads, least, timing)


def main(options: argparse.Namespace) -> int:
    """Measures the peaks and every problem; 1 if a result is wrong."""
    config = read_config(options.float16, options.native_explog, options.max_image, options.device)
    device = select_device(config.device)
    context = open_device(device, profile=True)
    problems = collect(options.network or DEFAULT, config, target_of(device))
    rows = []
    with steps(["peaks", *map(describe, problems)]) as names:
        next(names)
        peaks = measure_peaks(context, config.storage)
        for _, (problem, networks) in zip(names, problems.items(), strict=True):
            rows.append(measure(problem, networks, context, config, peaks, options.repeat))
    found = environment(device)
    content = {"environment": found, "peaks": peaks.to_json(), "rows": [row.to_json() for row in rows]}
    line = (
        f"peaks: {digits(peaks.operations / 1e9)} GFLOP/s, {digits(peaks.reads / 1e9)} G texture reads/s, "
        f"copy {digits(peaks.bytes / 1e9)} GB/s"
    )
    publish(options, content, environment_line(found), line, make_table("Convolutions and products", COLUMNS, rows))
    if options.plot:
        plot(rows, peaks, f"{device.name}, driver {device.driver_version}", options.plot)
    return 0 if all(row.right for row in rows) else 1


def plot(rows: Iterable[Row], peaks: Peaks, title: str, file: str) -> None:
    """The roofline: GFLOP/s over operations for each byte. Raises Error if matplotlib is not installed."""
    try:
        import matplotlib

        matplotlib.use("agg")
        from matplotlib import pyplot
    except ImportError:
        raise imgconv.Error("--plot needs matplotlib: pip install imgconv[bench]") from None
    measured = [row for row in rows if row.gflops is not None]
    figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    for bound, marker in (("multiply-adds", "o"), ("texture reads", "s"), ("bandwidth", "^")):
        chosen = [row for row in measured if row.bound == bound]
        rates = [row.gflops or 0 for row in chosen]
        axes.scatter([row.intensity for row in chosen], rates, marker=marker, label=f"bound by {bound}")
    low, high = min(r.intensity for r in measured) / 2, max(r.intensity for r in measured) * 2
    at = numpy.geomspace(low, high, 200)
    axes.plot(at, numpy.minimum(peaks.operations, at * peaks.bytes) / 1e9, color="black", label="measured peaks")
    axes.set(xscale="log", yscale="log", xlabel="FLOP for each byte of texture", ylabel="GFLOP/s", title=title)
    axes.legend()
    figure.savefig(file, dpi=150)
    pyplot.close(figure)


def make_parser() -> argparse.ArgumentParser:
    described = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernel", description=__doc__, formatter_class=described)
    parser.add_argument("network", nargs="*", help=f"a name of models/ or an ONNX file (default: {' '.join(DEFAULT)})")
    parser.add_argument("--plot", metavar="FILE.png", help="draw the roofline")
    add_run_arguments(parser)
    return parser


if __name__ == "__main__":
    sys.exit(run_main(make_parser(), main))
