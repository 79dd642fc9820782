"""Times work that is bound by memory, and compares it with a copy: elementwise, pooling, softmax, normalisation.

    python -m benchmarks.memory [NAME ...] [--device DEVICE] [--json FILE]

Each is checked against numpy in float64 first; a wrong one is reported and not timed. The device's copy is measured
with a texture too large for any cache. A NAME chooses the cases whose text contains it.

    launches    of the work itself: from textures that exist to a result that stays a texture
    GB/s        the input's texels read once and the result's written once, by the median of the launches' time
    of copy     that rate divided by the copy's; above 100 % if the textures are in a cache
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy

from benchmarks.measure import (
    Column, add_run_arguments, digits, environment, environment_line, make_table, milliseconds, publish, run_main,
    steps,
)
from imgconv.cl.opencl_device import OpenCLDevice
from imgconv.cl.device import open_device, select_device
from imgconv.compiling.compiler import prepare
from imgconv.compiling.plan import Plan
from imgconv.config import Config, read_config
from imgconv.reports.peaks import measure_peaks
from imgconv.runtime.session import Session
from imgconv.loading.device_target import target_of
from imgconv.reports.timing import Timing, time_repeatedly
from imgconv.tensor import Tensor, build_graph

Array = Any
# Relative to the largest expected value. Half: the stored result is rounded by up to 2^-11, and the input too.
TOLERANCES = {"float32": 1e-5, "float16": 3e-3}
EPSILON = 1e-5


@dataclass(frozen=True)
class Case:
    """One kind of work on one shape. make: its tensor; compute: the same in numpy."""

    name: str
    shape: tuple[int, ...]
    make: Callable[[Tensor], Tensor]
    compute: Callable[[Array], Array]

    def __str__(self) -> str:
        return f"{self.name} {'x'.join(map(str, self.shape))}"


@dataclass(frozen=True)
class Row:
    """The measurement of a case. error: the largest difference from float64, divided by the largest value."""

    case: Case
    launches: int
    moved_bytes: int
    error: float
    tolerance: float
    copy: float
    timing: Timing | None = None

    @property
    def right(self) -> bool:
        return self.error <= self.tolerance

    @property
    def rate(self) -> float | None:
        """Bytes a second."""
        return self.moved_bytes / self.timing.median if self.timing else None

    @property
    def share(self) -> float | None:
        return self.rate / self.copy if self.rate else None

    def to_json(self) -> dict[str, Any]:
        return {
            "case": self.case.name, "shape": self.case.shape, "launches": self.launches, "error": self.error,
            "right": self.right, "moved_bytes": self.moved_bytes, "device": self.timing and self.timing.to_json(),
            "bytes_per_second": self.rate, "of_copy": self.share,
        }


COLUMNS = (
    Column("work", lambda r: str(r.case)), Column("launches", lambda r: str(r.launches)),
    Column("error", lambda r: f"{'' if r.right else 'WRONG '}{r.error:.1e}"),
    Column("MB", lambda r: digits(r.moved_bytes / 1e6)),
    Column("ms min", lambda r: milliseconds(r.timing and r.timing.minimum)),
    Column("median", lambda r: milliseconds(r.timing and r.timing.median)),
    Column("spread", lambda r: f"{r.timing.spread:.0%}" if r.timing else "-"),
    Column("GB/s", lambda r: digits(r.rate and r.rate / 1e9)),
    Column("of copy", lambda r: f"{r.share:.0%}" if r.share is not None else "-"),
)


# Cases


def _softmax(axis: int) -> Callable[[Array], Array]:
    def compute(x: Array) -> Array:
        powers = numpy.exp(x - x.max(axis, keepdims=True))
        return powers / powers.sum(axis, keepdims=True)

    return compute


def _normalise(axes: tuple[int, ...]) -> tuple[Callable[[Tensor], Tensor], Callable[[Array], Array]]:
    """(x - mean) / sqrt(variance + epsilon) over some axes."""
    def make(x: Tensor) -> Tensor:
        centred = x - x.mean(axes, keepdims=True)
        return centred / ((centred * centred).mean(axes, keepdims=True) + EPSILON).sqrt()

    return make, lambda x: (x - x.mean(axes, keepdims=True)) / numpy.sqrt(x.var(axes, keepdims=True) + EPSILON)


def _max_pool(window: int, stride: int) -> tuple[Callable[[Tensor], Tensor], Callable[[Array], Array]]:
    pad = window // 2

    def compute(x: Array) -> Array:
        padded = numpy.pad(x, [(0, 0), (0, 0), (pad, pad), (pad, pad)], constant_values=-numpy.inf)
        seen = numpy.lib.stride_tricks.sliding_window_view(padded, (window, window), (2, 3))
        return seen[:, :, ::stride, ::stride].max((4, 5))

    return lambda x: x.max_pool(window, stride, pad), compute


def cases() -> list[Case]:
    """Everything that is measured, at sizes of vision networks."""
    large, small = (1, 64, 256, 256), (1, 64, 56, 56)
    return [
        *(
            Case("add", (2, *s[1:]), lambda x: x.slice(0, 0, 1) + x.slice(0, 1, 2), lambda x: x[:1] + x[1:])
            for s in (small, large)
        ),
        *(Case("relu", s, lambda x: x.relu(), lambda x: numpy.maximum(x, 0)) for s in (small, large)),
        *(
            Case("global average pool", s, lambda x: x.global_average_pool(), lambda x: x.mean((2, 3), keepdims=True))
            for s in ((1, 1280, 7, 7), small, large)
        ),
        *(Case("max pool 3x3 /2", s, *_max_pool(3, 2)) for s in ((1, 64, 112, 112), large)),
        Case("max pool 5x5", (1, 192, 20, 20), *_max_pool(5, 1)),
        Case("max pool 13x13", (1, 192, 20, 20), *_max_pool(13, 1)),
        *(
            Case("softmax over channels", s, lambda x: x.softmax(1), _softmax(1))
            for s in ((1, 1000, 1, 1), (1, 21, 128, 128))
        ),
        *(
            Case("softmax over the last axis", s, lambda x: x.softmax(-1), _softmax(-1))
            for s in ((3, 197, 197), (4096, 256))
        ),
        *(Case("layer normalisation", s, *_normalise((1,))) for s in ((197, 768), (4096, 256))),
        *(Case("instance normalisation", s, *_normalise((2, 3))) for s in (small, large)),
    ]


# Measuring


def compile_case(case: Case, config: Config, context: OpenCLDevice) -> Plan:
    """The plan of a case between textures: one element of the input and one of the result are outputs too."""
    x = Tensor.input("x", case.shape)
    outputs = {"y": case.make(x)}
    outputs |= {f"{name}.first": _first(t) for name, t in (("x", x), ("y", outputs["y"]))}
    return prepare(build_graph(outputs), config, target_of(context.info)).plan()


def _first(x: Tensor) -> Tensor:
    for axis in range(x.rank):
        x = x.slice(axis, 0, 1)
    return x


def measure(case: Case, context: OpenCLDevice, config: Config, copy: float, repeat: int) -> Row:
    """Compiles, checks, warms up and times one case. copy: the device's bytes a second."""
    plan = compile_case(case, config, context)
    session = Session(plan, context)
    array = numpy.random.default_rng(1).standard_normal(case.shape).astype(numpy.float32)
    expected = case.compute(array.astype(numpy.float64))
    found = session.run({"x": array})["y"]
    error = float(numpy.max(numpy.abs(found - expected)) / numpy.max(numpy.abs(expected)))
    chosen = [n for n, launch in enumerate(plan.launches) if launch.kind not in ("pack", "unpack")]
    x, y = plan.placements["x"], plan.placements["y"]
    tolerance = TOLERANCES["float16" if config.float16 else "float32"]
    row = Row(case, len(chosen), x.bytes + y.bytes, error, tolerance, copy)
    if not row.right:
        return row
    timing = time_repeatedly(lambda: float(sum(numpy.asarray(session.launch_seconds())[chosen])), repeat)
    return Row(case, row.launches, row.moved_bytes, error, tolerance, copy, timing)


def select_cases(names: Sequence[str]) -> list[Case]:
    """The cases whose text contains one of the names; all without names."""
    return [case for case in cases() if not names or any(name in str(case) for name in names)]


def main(options: argparse.Namespace) -> int:
    config = read_config(options.float16, options.native_explog, options.max_image, options.device)
    context = open_device(select_device(config.device), profile=True)
    copy = measure_peaks(context, config.storage).bytes
    chosen = {str(case): case for case in select_cases(options.name)}
    with steps(list(chosen)) as names:
        rows = [measure(chosen[name], context, config, copy, options.repeat) for name in names]
    found = environment(context.info)
    content = {"environment": found, "copy_bytes_per_second": copy, "cases": [row.to_json() for row in rows]}
    title = f"copy {copy / 1e9:.1f} GB/s"
    publish(options, content, environment_line(found), make_table(title, COLUMNS, rows))
    return 0 if all(row.right for row in rows) else 1


def make_parser() -> argparse.ArgumentParser:
    described = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__, formatter_class=described)
    parser.add_argument("name", nargs="*", help="part of a case's name (default: all)")
    add_run_arguments(parser)
    return parser


if __name__ == "__main__":
    sys.exit(run_main(make_parser(), main))
