"""Mesa's statistics of candidates for small GPUs, as CSV, to which their cost model is fitted.

    python -m benchmarks.slots [NAME or FILE.onnx ...] [--gpu 630] [--problems N] [--candidates N] --csv FILE

Problems and candidates are drawn as in `python -m benchmarks.choice --spread`. Each is compiled without epilogues,
which the cost model leaves out. The figures of a row are those of `python -m
benchmarks.adreno`, which says where Mesa comes from: issue slots and texture reads of a work item, registers of four
floats, waves that fit in a core, accesses to spilled registers, and lanes of the launch.

benchmarks/measured/a630.csv is made by:

    python -m benchmarks.slots --problems 64 --candidates 12 --csv a630.csv
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks import adreno
from benchmarks.adreno_mesa import Kernel, Mesa, find_mesa
from benchmarks.adreno_rows import row_of
from benchmarks.candidates import Asked, collect, spread
from benchmarks.measure import digits, run_main
from benchmarks.measurements import Measurement, add_measurements
from benchmarks.networks import DEFAULT
from imgconv.commands.shared_arguments import positive
from imgconv.compiling.plan import Launch
from imgconv.config import Config, read_config
from imgconv.kernels.conv import problem as conv
from imgconv.kernels.device_model.adreno import GPUS
from imgconv.kernels.matmul import template as matmul
from imgconv.kernels.target import Target
from imgconv.kernels.template_interface import Specialisation
from imgconv.loading.tuner import prepare_copies

FIGURES = ("issue", "reads", "registers", "waves", "spills", "lanes")


def launches_of(asked: Asked, choices: Sequence[Specialisation]) -> list[Launch]:
    """The problem's launch by each choice, without its epilogue."""
    plan = prepare_copies(asked.prepared, asked.nodes, choices).plan()
    return [launch for launch in adreno.without_epilogues(plan).launches if launch.specialisation]


def measurements_of(
    asked: Asked, choices: Sequence[Specialisation], launches: Sequence[Launch], gpu: int,
    compiled: Mapping[str, Kernel], config: Config, target: Target,
) -> list[Measurement]:
    """One for each choice that Mesa compiles, by its launch."""
    problem = asked.problem
    assert isinstance(problem, (conv.Problem, matmul.Problem))
    rows = [row_of(launch, GPUS[gpu], compiled[launch.source.text]) for launch in launches]
    return [
        Measurement(
            f"Mesa's a{gpu} code", target.kind, target.compute_units, config.float16, problem, chosen,
            {name: getattr(row, name) for name in FIGURES},
        )
        for chosen, row in zip(choices, rows, strict=True)
        if isinstance(chosen, (conv.Specialisation, matmul.Specialisation)) and not row.error
    ]


def measure(mesa: Mesa, problems: Sequence[Asked], options: argparse.Namespace, config: Config, target: Target) -> int:
    """Compiles the candidates and writes Mesa's statistics; returns the number of rows."""
    made = []
    for asked in problems:
        choices = asked.candidates[: options.candidates]
        made.append((asked, choices, launches_of(asked, choices)))
    texts = list(dict.fromkeys(launch.source.text for *_, launches in made for launch in launches))
    compiled = mesa.compile(texts, [options.gpu])[options.gpu]
    found = [
        row for asked, choices, launches in made
        for row in measurements_of(asked, choices, launches, options.gpu, compiled, config, target)
    ]
    add_measurements(Path(options.csv), found)
    return len(found)


def main(options: argparse.Namespace) -> int:
    """Compiles the candidates of the problems."""
    config = read_config(options.float16, None)
    target = adreno.target_for(adreno.gpu_of(options.gpu, None, options.compute_units))
    mesa = find_mesa(False)
    problems = spread(collect(options.network or DEFAULT, config, target), options.candidates)[: options.problems]
    count = measure(mesa, problems, options, config, target)
    print(f"{options.csv}: {count} candidates of {len(problems)} problems, {digits(count / len(problems))} each")
    return 0


def make_parser() -> argparse.ArgumentParser:
    described = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m benchmarks.slots", description=__doc__, formatter_class=described)
    parser.add_argument("network", nargs="*", help=f"a name of models/ or an ONNX file (default: {' '.join(DEFAULT)})")
    parser.add_argument("--gpu", type=positive, default=630, help="(default: %(default)s)")
    parser.add_argument("--compute-units", type=positive, help="that the driver reports (default: the GPU's)")
    parser.add_argument("--problems", type=positive, metavar="N", help="of the networks (default: all)")
    parser.add_argument("--candidates", type=positive, default=12, metavar="N", help="(default: %(default)s)")
    parser.add_argument(
        "--float16", action=argparse.BooleanOptionalAction, help="store textures as fp16 (default: FLOAT16)"
    )
    parser.add_argument("--csv", required=True, metavar="FILE", help="the rows are added to it")
    return parser


if __name__ == "__main__":
    sys.exit(run_main(make_parser(), main))
