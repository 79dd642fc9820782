"""Finds leaks of runs: the memory of the process over many runs of a network of many small launches.

    python -m benchmarks.leaks [--runs 100000] [--device DEVICE] [--json FILE]

Each way to run takes its turn.

    MB          of the process in memory: before the runs, once they are warm, and after them
    bytes/run   growth of the process, over all runs; least: over that tenth of the runs in which it grew the least, or
                the growth of malloc's memory, if that is more. A leak of each run shows in every tenth of them

The exit status is 1 if a way's least growth is LIMIT bytes a run or more.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import itertools
import mmap
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy

import imgconv
from benchmarks.measure import (
    Column, add_output_argument, digits, draw_inputs, environment, environment_line, make_table, publish, run_main,
    steps,
)
from imgconv.cl.device import DeviceInfo, select_device
from imgconv.commands.shared_arguments import positive
from imgconv.config import read_config
from imgconv.graph.nodes import Graph
from imgconv.tensor import Tensor, build_graph, convolution

RUNS = 100_000
LAUNCHES = 20
BLOCKS = 10
LIMIT = 100
DEPTH = 3
SHAPE = (1, 4, 4, 4)
WAYS = ("run", "outputs=", "submit", "mapped")


@dataclass(frozen=True)
class Growth:
    """Memory before the first of some blocks of runs, and after each of them, in bytes.

    resident: of the process. allocated: by malloc. A small loss first fills holes among what the process has, and does
    not show in the one; a driver's own allocator does not show in the other.
    """

    runs: int
    resident: tuple[int, ...]
    allocated: tuple[int, ...]

    @property
    def mean(self) -> float:
        """Resident bytes a run."""
        return (self.resident[-1] - self.resident[0]) / self.runs

    @property
    def least(self) -> float:
        """Bytes a run, resident or allocated, in the block that grew the least."""
        series = self.resident, self.allocated
        smallest = [min(after - before for before, after in itertools.pairwise(each)) for each in series]
        return max(smallest) / (self.runs / (len(self.resident) - 1))


@dataclass(frozen=True)
class Row:
    """One way to run the network on one device."""

    way: str
    growth: Growth

    def to_json(self) -> dict[str, Any]:
        found = {"way": self.way, **asdict(self.growth)}
        return found | {"bytes_a_run": self.growth.mean, "least_bytes_a_run": self.growth.least}


COLUMNS = (
    Column("way", lambda r: r.way),
    Column("runs", lambda r: str(r.growth.runs)),
    Column("MB before", lambda r: digits(r.growth.resident[0] / 1e6, 4)),
    Column("after", lambda r: digits(r.growth.resident[-1] / 1e6, 4)),
    Column("bytes/run", lambda r: f"{r.growth.mean:.1f}"), Column("least", lambda r: f"{r.growth.least:.1f}"),
)


def resident_bytes() -> int:
    """Bytes of this process in memory, on Linux; with a CPU's driver, they include images and buffers."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * mmap.PAGESIZE


class MallocInfo(ctypes.Structure):
    """The result of glibc's mallinfo2."""

    _fields_: ClassVar = [
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    ]


def allocated_bytes() -> int:
    """Bytes from malloc that were not freed; 0 without glibc 2.33."""
    try:
        function = ctypes.CDLL(None).mallinfo2
    except AttributeError:
        return 0
    function.restype = MallocInfo
    info = function()
    return int(info.uordblks + info.hblkhd)


def measure_growth(work: Callable[[], object], runs: int, blocks: int = BLOCKS) -> Growth:
    """Calls `work` `runs` times, after one block to warm up; `runs` is a multiple of `blocks`."""
    resident, allocated = [], []
    for _ in range(blocks + 1):
        for _ in range(runs // blocks):
            work()
        gc.collect()
        resident.append(resident_bytes())
        allocated.append(allocated_bytes())
    return Growth(runs, tuple(resident), tuple(allocated))


def small_launches() -> Graph:
    """A network of LAUNCHES small convolutions, one after another, all by the same kernel."""
    y = x = Tensor.input("x", SHAPE)
    weights = numpy.random.default_rng(0).normal(size=(4, 4, 3, 3)).astype(numpy.float32) / 6
    for _ in range(LAUNCHES):
        y = convolution(y, Tensor.constant(weights), [1, 1], [1] * 4, [1, 1]).relu()
    return build_graph({"y": y}, [x], "small launches")


def prepare(model: imgconv.Model, way: str) -> Callable[[], object]:
    """A function that runs the model once, in one of WAYS."""
    inputs = draw_inputs(tuple(model.inputs.values()))
    if way == "mapped":
        mapped = model.mapped()
        for name, array in inputs.items():
            mapped.inputs[name][...] = array
        return mapped.run
    if way == "submit":
        return lambda: model.submit(inputs, DEPTH)
    outputs = {name: numpy.empty(value.shape, value.dtype) for name, value in model.outputs.items()}
    return lambda: model.run(inputs, outputs if way == "outputs=" else None)


def measure_way(device: DeviceInfo, way: str, runs: int, blocks: int) -> Row:
    """One row. Raises what imgconv.load and a run raise."""
    model = imgconv.load(small_launches(), device=device)
    return Row(way, measure_growth(prepare(model, way), runs, blocks))


def main(options: argparse.Namespace) -> int:
    """Measures every way; 1 if one grows."""
    device = select_device(read_config(device=options.device).device)
    with steps(WAYS) as walk:
        rows = [measure_way(device, way, options.runs // BLOCKS * BLOCKS, BLOCKS) for way in walk]
    found = environment(device)
    content = {"environment": found, "launches": LAUNCHES, "rows": [row.to_json() for row in rows]}
    title = f"{LAUNCHES} launches a run"
    publish(options, content, environment_line(found), make_table(title, COLUMNS, rows))
    return int(any(row.growth.least >= LIMIT for row in rows))


def runs(text: str) -> int:
    """A number of runs, at least one for each of BLOCKS."""
    return max(BLOCKS, positive(text))


def make_parser() -> argparse.ArgumentParser:
    described = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m benchmarks.leaks", description=__doc__, formatter_class=described)
    parser.add_argument("--runs", type=runs, default=RUNS, metavar="N", help="runs a way (default: %(default)s)")
    parser.add_argument("--device", help="as IMGCONV_DEVICE")
    add_output_argument(parser)
    return parser


if __name__ == "__main__":
    sys.exit(run_main(make_parser(), main))
