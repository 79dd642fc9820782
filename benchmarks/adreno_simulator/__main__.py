"""Runs networks as Adreno machine code in a simulator, and checks every launch; no Adreno is needed.

    python -m benchmarks.adreno_simulator [forms | NAME | FILE.onnx ...] [--gpu 630,650,740] [--float16 0,1,2]

forms: small graphs with every kernel variant, those of `imgconv check`. The default is forms and the networks of
models/. Each launch is compiled by Mesa (`python -m benchmarks.adreno` says how to build it), and each work item runs.
A launch's result is compared with the graph's evaluation in float64 from the values that the simulator holds then.

    error       the largest of a launch, in parts of the largest value that it computes; wrong beyond 1e-5 in float,
                4e-3 with FLOAT16=1, 3e-2 with FLOAT16=2. A value almost halfway between two quantised values may
                become either
    slots       issue slots of all waves of all launches, in millions: exact, by execution
    reads       texels that work items read, in millions; outside: those outside of their image, which are zero

Wrong are also texels that are written twice or outside of an image, accesses outside of buffers and local memory,
barriers that some lanes do not reach, and values that no launch has written. The exit status is 1 if anything is wrong.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import models
from benchmarks.adreno import gpu_of, target_for
from benchmarks.adreno_mesa import Mesa, find_mesa
from benchmarks.adreno_simulator.checked import Checked, check
from benchmarks.measure import (
    Column, add_output_argument, digits, environment, environment_line, make_table, positives, publish, run_main,
)
from benchmarks.networks import open_network
from imgconv.checking.kernel_variants import variant_graphs
from imgconv.commands.shared_arguments import positive
from imgconv.compiling.compiler import prepare
from imgconv.config import read_config
from imgconv.graph.nodes import Graph
from imgconv.reports import terminal

VARIANTS = "forms"
DEFAULT = (VARIANTS, *models.MODELS)
COLUMNS = (
    Column("network", lambda r: r.name), Column("code for", lambda r: f"a{r.gpu}"),
    Column("FLOAT16", lambda r: str(r.float16)), Column("launches", lambda r: str(r.launches)),
    Column("wrong", lambda r: str(len(r.wrong))), Column("error", lambda r: f"{r.worst:.1e}"),
    Column("slots M", lambda r: digits(r.slots / 1e6)), Column("reads M", lambda r: digits(r.reads / 1e6)),
    Column("outside", lambda r: f"{r.outside / r.reads:.1%}" if r.reads else "-"),
    Column("s", lambda r: digits(r.seconds)),
)


@dataclass(frozen=True)
class Row:
    """A network, or all kernel variants together, for one GPU and one FLOAT16."""

    name: str
    gpu: int
    float16: int
    launches: int
    wrong: tuple[str, ...]
    worst: float
    slots: int
    reads: int
    outside: int
    seconds: float


@dataclass(frozen=True)
class Case:
    name: str
    gpu: int
    float16: int
    size: int | None = None


def run(mesa: Mesa, case: Case) -> Row:
    """Runs and checks the graphs of a case."""
    target = target_for(gpu_of(case.gpu, None))
    graphs = list(_graphs(case))
    prepared = [prepare(graph, read_config(case.float16, False), target) for graph in graphs]
    plans = [each.plan() for each in prepared]
    mesa.compile(list({launch.source.text for plan in plans for launch in plan.launches}), [case.gpu])
    made = [
        check(graph.name, one, plan, mesa, case.gpu)
        for graph, one, plan in zip(graphs, prepared, plans, strict=True)
    ]
    wrong = tuple(f"{each.name}: {text}" for each in made for text in each.wrong)
    return Row(
        case.name, case.gpu, case.float16, sum(len(each.launches) for each in made), wrong,
        max(each.worst for each in made), *(_sum(made, name) for name in ("slots", "reads", "outside", "seconds")),
    )


def _sum(made: Sequence[Checked], name: str) -> Any:
    return sum(getattr(each, name) for each in made)


def _graphs(case: Case) -> Iterator[Graph]:
    if case.name == VARIANTS:
        yield from variant_graphs()
        return
    with tempfile.TemporaryDirectory(prefix="imgconv-bench-") as folder:
        yield open_network(case.name, Path(folder), case.size).graph


def main(options: argparse.Namespace) -> int:
    """Runs every case; 1 if anything is wrong."""
    mesa = find_mesa(integer_coordinates=True)
    cases = [
        Case(name, gpu, float16, options.size)
        for name in options.network or DEFAULT for gpu in options.gpu for float16 in options.float16
    ]
    count = min(options.processes, len(cases))
    with ProcessPoolExecutor(count) as pool, terminal.ProgressSpinner("simulating") as progress:
        rows = []
        for row in pool.map(partial(run, mesa), cases):
            rows.append(row)
            verdict = f"{len(row.wrong)} wrong" if row.wrong else f"right, {row.worst:.1e} off"
            progress(len(rows), len(cases), f"{row.name}, a{row.gpu}, FLOAT16={row.float16}: {verdict}")
    found = environment() | {"mesa": str(mesa.folder)}
    wrong = [f"{row.name}, a{row.gpu}, FLOAT16={row.float16}: {text}" for row in rows for text in row.wrong]
    content = {"environment": found, "rows": [vars(row) for row in rows]}
    publish(
        options, content, environment_line(found),
        make_table("Adreno machine code by Mesa, run in a simulator", COLUMNS, rows), *wrong,
    )
    return 1 if wrong else 0


def make_parser() -> argparse.ArgumentParser:
    described = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.adreno_simulator", description=__doc__, formatter_class=described
    )
    parser.add_argument("network", nargs="*", help=f"(default: {' '.join(DEFAULT)})")
    parser.add_argument("--gpu", type=positives, default=(630,), metavar="NUMBERS", help="(default: 630)")
    parser.add_argument(
        "--float16", type=_modes, default=(0, 1, 2), metavar="NUMBERS", help="values of FLOAT16 (default: 0,1,2)"
    )
    parser.add_argument("--size", type=positive, help="rows and columns of the pictures (default: the network's)")
    parser.add_argument(
        "--processes", type=positive, default=os.cpu_count(), metavar="N", help="at once (default: one for each core)"
    )
    add_output_argument(parser)
    return parser


def _modes(text: str) -> tuple[int, ...]:
    made = tuple(map(int, text.split(",")))
    if not set(made) <= {0, 1, 2}:
        raise argparse.ArgumentTypeError(f"FLOAT16 is 0, 1 or 2, not {text}")
    return made


if __name__ == "__main__":
    sys.exit(run_main(make_parser(), main))
