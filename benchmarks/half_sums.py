"""The errors of fp16 accumulation on pictures on which it was not chosen.

    python -m benchmarks.half_sums [NAME or FILE.onnx ...] [--resolution N] [--gpu 630] [--device DEVICE] [--json FILE]

The precision is chosen for FLOAT16=2 on synthetic pictures, without a time limit. Then every plan runs on other inputs:
the arrays of the case_*.npz files next to an ONNX file, cut to the inputs' sizes if they are larger. Without such files
these are examples/demo.png, and white noise in the range that the network expects. An error is the largest difference
of an output from the fp32 plan, divided by the output's largest value; the worst input counts. The networks of models/
have random weights, which amplify errors more than trained ones do. With --gpu, the plans for that Adreno are run on
the device of this machine.

    storage     fp16 textures as chosen, fp32 accumulators: FLOAT16=1
    runs, half  the same textures; all convolutions accumulate in fp16 chunks that are added in fp32, or in fp16
    chosen      FLOAT16=2; then the number of convolutions that accumulate in fp16, in fp16 chunks and in fp32
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy
from PIL import Image

from benchmarks.adreno import gpu_of
from benchmarks.measure import (
    Column, add_output_argument, environment, environment_line, make_table, publish, run_main,
)
from benchmarks.networks import DEFAULT, Network, open_network
from imgconv.arrays import Array, Arrays
from imgconv.cl.opencl_device import OpenCLDevice
from imgconv.cl.device import open_device, select_device
from imgconv.commands.shared_arguments import positive
from imgconv.compiling.compiler import PreparedGraph
from imgconv.config import Float16, Precision, read_config
from imgconv.graph.nodes import Graph
from imgconv.loading.plans import prepare_for
from imgconv.precision.calibration_inputs import CHANNELS, UNIT, picture_range
from imgconv.precision.choose import choose_precision
from imgconv.precision.loss import relative_error
from imgconv.runtime.session import Session

PICTURE = Path(__file__).parents[1] / "examples" / "demo.png"


@dataclass(frozen=True)
class Row:
    """The errors of a network's plans. inputs: how many pictures, and what they are."""

    network: str
    inputs: str
    storage: float
    runs: float
    half: float
    chosen: float
    sums: Mapping[str, int]


COLUMNS = (
    Column("network", lambda r: r.network), Column("judged on", lambda r: r.inputs, True),
    Column("storage", lambda r: f"{r.storage:.1e}"), Column("runs", lambda r: f"{r.runs:.1e}"),
    Column("half", lambda r: f"{r.half:.1e}"), Column("chosen", lambda r: f"{r.chosen:.1e}"),
    Column("in fp16", lambda r: str(r.sums.get("half", 0))), Column("in chunks", lambda r: str(r.sums.get("runs", 0))),
    Column("in fp32", lambda r: str(r.sums.get("float", 0))),
)


def unmeasured(network: Network, graph: Graph) -> tuple[str, list[Arrays]]:
    """Inputs on which no precision is chosen, and what they are. graph: the network's after the passes."""
    cases: list[Arrays] = []
    wanted = {value.name: (value.shape, value.dtype) for value in network.graph.inputs}
    for path in sorted(network.path.parent.glob("case_*.npz")):
        with numpy.load(path) as arrays:
            given = {name[3:]: array for name, array in arrays.items() if name.startswith("in:")}
        cut = {name: array[tuple(map(slice, wanted[name][0]))] for name, array in given.items() if name in wanted}
        if wanted == {name: (array.shape, str(array.dtype)) for name, array in cut.items()}:
            cases.append(cut)
    if cases:
        return f"{len(cases)} cases", cases
    random, noise, shown = numpy.random.default_rng(77), {}, {}
    for value in graph.inputs:
        low, high = picture_range(graph, value) or UNIT
        drawn = random.uniform(low, high, value.shape)
        seen = low + (high - low) * _picture(value.shape) if len(value.shape) == 4 else drawn
        noise[value.name], shown[value.name] = drawn.astype(value.dtype), seen.astype(value.dtype)
    return "demo.png, noise", [shown, noise]


def _picture(shape: tuple[int, ...]) -> Array:
    """The example's picture of 0 .. 1 in an input's shape; its colours repeat along the channels."""
    if shape[1] not in CHANNELS and shape[3] in CHANNELS:
        return numpy.moveaxis(_picture((shape[0], shape[3], *shape[1:3])), 1, -1)
    batch, channels, rows, columns = shape
    with Image.open(PICTURE) as file:
        colors = numpy.asarray(file.convert("RGB").resize((columns, rows)), numpy.float32) / 255
    repeated = colors.transpose(2, 0, 1)[numpy.arange(channels) % 3]
    return numpy.broadcast_to(repeated, (batch, channels, rows, columns))


def row_of(network: Network, prepared: PreparedGraph, context: OpenCLDevice) -> Row:
    """The errors of the network's plans."""
    chosen = choose_precision(prepared, context).precision
    what, inputs = unmeasured(network, prepared.graph)
    storage = replace(chosen, arithmetic=frozenset(), runs=frozenset())
    in_runs = replace(storage, runs=frozenset(prepared.graph.values))
    degrees: tuple[tuple[Float16, Precision], ...] = (
        (0, Precision()), (1, storage), (2, in_runs), (2, storage), (2, chosen),
    )
    sessions = [
        Session(prepared.plan(replace(prepared.config, float16=float16, precision=precision)), context)
        for float16, precision in degrees
    ]
    exact = [sessions[0].run(each) for each in inputs]
    of_storage, of_runs, of_half, of_chosen = (
        max(relative_error(session.run(each), right) for each, right in zip(inputs, exact, strict=True))
        for session in sessions[1:]
    )
    summing = [launch for launch in sessions[-1].plan.launches if launch.sums]
    sums = Counter(str(launch.sums) for launch in summing for _ in launch.values)
    return Row(network.name, what, of_storage, of_runs, of_half, of_chosen, sums)


def main(options: argparse.Namespace) -> int:
    """Measures every network."""
    config = replace(read_config(None, options.native_explog, None, options.device), float16=2)
    device = select_device(config.device)
    context, rows = open_device(device), []
    with tempfile.TemporaryDirectory(prefix="imgconv-bench-") as folder:
        for name in options.network or DEFAULT:
            network = open_network(name, Path(folder), options.resolution)
            prepared = prepare_for(device, network.graph, config)
            if options.gpu:
                units = gpu_of(options.gpu, None).compute_units
                on = replace(prepared.target, kind="gpu", compute_units=units, linear=None)
                prepared = replace(prepared, target=on)
            rows.append(row_of(network, prepared, context))
    show(options, environment(device), rows)
    return 0


def show(options: argparse.Namespace, found: Mapping[str, str], rows: Sequence[Row]) -> None:
    """Prints the table and writes the JSON."""
    # asdict makes a Counter of pairs of a Counter.
    content = {"environment": found, "networks": [asdict(replace(row, sums=dict(row.sums))) for row in rows]}
    publish(options, content, environment_line(found), make_table("Relative errors of the outputs", COLUMNS, rows))


def make_parser() -> argparse.ArgumentParser:
    described, prog = argparse.RawDescriptionHelpFormatter, "python -m benchmarks.half_sums"
    parser = argparse.ArgumentParser(prog=prog, description=__doc__, formatter_class=described)
    parser.add_argument("network", nargs="*", help=f"a name of models/ or an ONNX file (default: {' '.join(DEFAULT)})")
    parser.add_argument("--resolution", type=positive, metavar="N", help="rows and columns of the pictures")
    parser.add_argument("--gpu", type=positive, metavar="NUMBER", help="an Adreno of benchmarks.adreno's table")
    parser.add_argument("--device", help="index or part of the name (default: IMGCONV_DEVICE)")
    parser.add_argument("--native-explog", action=argparse.BooleanOptionalAction, help="(default: NATIVE_EXPLOG)")
    add_output_argument(parser)
    return parser


if __name__ == "__main__":
    sys.exit(run_main(make_parser(), main))
