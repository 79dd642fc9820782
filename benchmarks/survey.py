"""Surveys any number of ONNX files: results, errors, times, and the error of fp16 storage.

    python -m benchmarks.survey FILE.onnx|FOLDER ... [--device DEVICE] [--half] [--pictures FILE ...] [--seconds N]
                                                     [--repeat N] [--json FILE]

Each file runs in its own process, which is ended after --seconds. Dynamic dimensions get sizes that onnxruntime
accepts. Picture inputs get examples/demo.png, in the range that imgconv.precision.calibration_inputs infers for the
model, else 0 to 1; other inputs get noise. The oracle is onnxruntime without graph optimisations.

    result      right; refused, by imgconv's own error; wrong; not onnxruntime's, if that refuses the file too
    error       largest difference of an output in parts of its largest value; of integers, the part that differs. If it
                is over 1e-3, float64 numpy judges: a model may amplify rounding, onnxruntime's too
    load        seconds of imgconv.load, with the programs that the cache of this user has
    ratio       imgconv's median time of a run divided by onnxruntime's, run by run in turn, after a warm-up
    --half      also with FLOAT16=1: the fraction of all elements that is fp16, the error, the seconds of that load, and
                the values that stay fp32. The error is the largest difference from fp32 on --pictures (default:
                demo.png), divided by the output's scale: the median of its largest values on these pictures, or the
                largest on the picture if that is larger. If the graph bounds an output, the scale is at least 2^-14 of
                its range
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy
from PIL import Image

import imgconv
from benchmarks.half_sums import PICTURE
from benchmarks.measure import (
    FLOAT_TOLERANCE, Column, add_repeat_arguments, digits, environment, environment_line, make_table, milliseconds,
    onnxruntime_session, publish, relative_error, run_main, run_oracle, steps,
)
from imgconv.arrays import Array, Arrays
from imgconv.cl.device import select_device
from imgconv.commands.shared_arguments import add_device_argument, positive
from imgconv.precision.share import half_share_of
from imgconv.graph.evaluate import evaluate_graph
from imgconv.graph.nodes import Graph
from imgconv.onnx_import import import_onnx
from imgconv.passes import run_passes
from imgconv.precision.calibration_inputs import UNIT, picture_range
from imgconv.precision.loss import least_scales, scales_of
from imgconv.precision.loss import relative_error as beside_scales
from imgconv.reports.timing import run_after_warm_up, seconds_of_call

RIGHT, REFUSED, WRONG, FOREIGN, ENDED = "right", "refused", "wrong", "not onnxruntime's", "ended"
REPEAT = 5
DIFFERENT = 0.01  # of an integer output's elements: an argmax of nearly equal numbers may fall either way
PICTURE_SIZES = ((224, 224), (320, 320), (48, 320), (32, 320), (512, 512), (640, 640), (64, 64))
LENGTHS = (1, 16, 64, 256, 512, 1600, 16000)
FIXED = {"tensor(float)": "float32", "tensor(float16)": "float16", "tensor(double)": "float64", "tensor(bool)": "bool"}


@dataclass(frozen=True)
class Row:
    """One file. why: of a refusal, or where it is wrong. Seconds; None if it did not come to that."""

    file: str
    result: str
    why: str = ""
    shapes: str = ""
    error: float | None = None
    load: float | None = None
    ours: float | None = None
    theirs: float | None = None
    half_share: float | None = None
    half_error: float | None = None
    half_load: float | None = None
    halves: str = ""

    @property
    def ratio(self) -> float | None:
        return self.ours / self.theirs if self.ours and self.theirs else None


COLUMNS = (
    Column("file", lambda r: r.file), Column("result", lambda r: r.result, True),
    Column("error", lambda r: "-" if r.error is None else f"{r.error:.1e}"),
    Column("load s", lambda r: digits(r.load)), Column("ms", lambda r: milliseconds(r.ours)),
    Column("onnxruntime", lambda r: milliseconds(r.theirs)), Column("ratio", lambda r: digits(r.ratio)),
    Column("fp16", lambda r: "-" if r.half_share is None else f"{r.half_share:.0%}"),
    Column("error", lambda r: "-" if r.half_error is None else f"{r.half_error:.1e}"),
    Column("load s", lambda r: digits(r.half_load)), Column("", lambda r: (r.why or r.halves)[:160], True),
)


def main(options: argparse.Namespace) -> int:
    """Every file in turn; 1 if one is wrong."""
    if options.one:
        return report(Path(options.path[0]), options)
    device = select_device(options.device)
    files = [str(file) for path in options.path for file in files_of(Path(path))]
    with steps(files) as walk:
        rows = [asked(file, options) for file in walk]
    found = environment(device)
    counts = Counter(row.result for row in rows)
    said = ", ".join(f"{count} {result}" for result, count in counts.most_common())
    slowest = sorted((row for row in rows if row.ratio), key=lambda row: row.ratio or 0, reverse=True)[:10]
    tables = [make_table("Files", COLUMNS, rows), make_table("The ten slowest beside onnxruntime", COLUMNS, slowest)]
    content = {"environment": found, "counts": counts, "rows": [asdict(row) | {"ratio": row.ratio} for row in rows]}
    publish(options, content, environment_line(found), *tables, f"{len(rows)} files: {said}")
    return 1 if counts[WRONG] else 0


def files_of(path: Path) -> list[Path]:
    """A file, or every ONNX file below a folder."""
    return sorted(path.rglob("*.onnx")) if path.is_dir() else [path]


def asked(file: str, options: argparse.Namespace) -> Row:
    """The Row of a file, by a new process."""
    command = [sys.executable, "-m", "benchmarks.survey", file, "--one", "--repeat", str(options.repeat)]
    command += ["--half"] * options.half + (["--device", options.device] if options.device else [])
    command += ["--pictures", *options.pictures] if options.half else []
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=options.seconds)
        output, end = done.stdout, f"status {done.returncode}: {done.stderr.strip()[-200:]}" if done.returncode else ""
    except subprocess.TimeoutExpired as late:
        output, end = bytes(late.stdout or b"").decode(), f"ended after {options.seconds} s"
    lines = output.splitlines()
    row = Row(**json.loads(lines[-1])) if lines else Row(Path(file).name, ENDED)
    return replace(row, why=end) if end else row


def report(file: Path, options: argparse.Namespace) -> int:
    """Prints the Row of a file as JSON: after each step, so that what is known is printed last."""
    warnings.simplefilter("ignore")
    for row in known(file, options):
        print(json.dumps(asdict(row)), flush=True)
    return 0


def known(file: Path, options: argparse.Namespace) -> Iterator[Row]:
    """Yields the results for a file, step by step: the result, the times, then FLOAT16=1."""
    row = Row(file.name, FOREIGN)
    inputs, expected, row = oracle_of(file, row)
    if expected is None:
        yield row
        return
    shapes = {name: array.shape for name, array in inputs.items()}
    row = replace(row, shapes=str(shapes))
    try:
        graph = run_passes(import_onnx(file, shapes))
        inputs = in_range(graph, inputs)
        expected = run_oracle(file, inputs)
        models: list[imgconv.Model] = []
        load = seconds_of_call(lambda: models.append(imgconv.load(file, options.device, shapes=shapes)))
        made = models[0].run(inputs)
    except imgconv.Error as refused:
        yield replace(row, result=REFUSED, why=str(refused).replace("\n", " "))
        return
    error = difference(made, expected)
    row = replace(row, result=RIGHT if error <= FLOAT_TOLERANCE else WRONG, error=error, load=load)
    yield row
    if error > FLOAT_TOLERANCE:
        row = judged_by_float64(row, graph, inputs, made, expected)
        yield row
    session = onnxruntime_session(file)
    pairs = run_after_warm_up(
        lambda: (seconds_of_call(lambda: models[0].run(inputs)), seconds_of_call(lambda: session.run(None, inputs))),
        options.repeat
    )
    ours, theirs = (float(numpy.median(times)) for times in zip(*pairs, strict=True))
    row = replace(row, ours=ours, theirs=theirs)
    yield row
    if options.half:
        load = seconds_of_call(lambda: models.append(imgconv.load(file, options.device, float16=1, shapes=shapes)))
        halves = half_share_of(models[1].plan, models[1].graph, models[1].config)
        given = [in_range(graph, with_picture(inputs, Path(path))) for path in options.pictures]
        in_float, in_half = ([model.run(each) for each in given] for model in models)
        error = error_of_half(in_float, in_half, least_scales(graph))
        yield replace(row, half_share=halves.share, half_error=error, half_load=load, halves=str(halves))


def error_of_half(in_float: Sequence[Arrays], in_half: Sequence[Arrays], least: Mapping[str, float]) -> float:
    """The worst error of the outputs in half, on some inputs. least: the least scale of each output.

    inf if an output has another shape, as of a decoder that stops at another round.
    """
    if any(half[name].shape != exact[name].shape for half, exact in zip(in_half, in_float) for name in exact):
        return float("inf")
    floats = [{name: array for name, array in each.items() if array.dtype.kind == "f"} for each in in_float]
    scales = scales_of(floats, {name: least.get(name, 0.0) for name in floats[0]})
    worst = max(beside_scales(half, exact, scales) for half, exact in zip(in_half, floats, strict=True))
    for half, exact in zip(in_half, in_float, strict=True):
        worst = max(worst, difference(half, {name: array for name, array in exact.items() if array.dtype.kind != "f"}))
    return worst


def judged_by_float64(row: Row, graph: Graph, inputs: Arrays, made: Arrays, expected: Arrays) -> Row:
    """The row by float64 numpy: right if onnxruntime is at least half as far off; the model amplifies rounding then."""
    exact = evaluate_graph(graph, inputs)
    ours, theirs = difference(made, exact), difference(expected, exact)
    return replace(
        row, result=RIGHT if ours <= 2 * theirs else WRONG, why=f"off float64: {ours:.1e}, onnxruntime {theirs:.1e}"
    )


def difference(got: Mapping[str, Array], expected: Mapping[str, Array]) -> float:
    """The largest of relative_error for floats; of integers, the part that differs, if it is over DIFFERENT."""
    worst = relative_error(
        {name: got[name] for name in expected if expected[name].dtype.kind == "f"},
        {name: array for name, array in expected.items() if array.dtype.kind == "f"},
    )
    for name, array in expected.items():
        if array.dtype.kind != "f":
            same = got[name].shape == array.shape
            part = float(numpy.mean(got[name] != array)) if same and array.size else float(not same)
            worst = max(worst, part if part > DIFFERENT else 0.0)
    return worst


# Sizes and inputs


def oracle_of(file: Path, row: Row) -> tuple[dict[str, Array], dict[str, Array] | None, Row]:
    """Inputs that onnxruntime takes, its outputs, and the row; no outputs, and why, if it takes none."""
    why = "no inputs that it takes"
    try:
        declared = onnxruntime_session(file, optimised=False).get_inputs()
        for inputs in candidates(declared):
            try:
                return inputs, run_oracle(file, inputs), row
            except Exception as error:  # onnxruntime has an exception class for each of its statuses
                why = str(error).replace("\n", " ")
    except Exception as error:
        why = str(error).replace("\n", " ")
    return {}, None, replace(row, why=why)


def candidates(declared: Sequence[Any]) -> Iterator[dict[str, Array]]:
    """Arrays for all inputs, by each picture's size and length that open dimensions may have."""
    is_open = any(not isinstance(size, int) or size < 1 for value in declared for size in value.shape)
    for size, length in itertools.product(PICTURE_SIZES, LENGTHS) if is_open else [(PICTURE_SIZES[0], 1)]:
        yield {value.name: array_of(value, shape_of(value.shape, size, length)) for value in declared}


def in_range(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The inputs with pictures of 0 .. 1 in the range that the model is made for. graph: after the passes."""
    moved = dict(inputs)
    for value in graph.inputs:
        array = inputs.get(value.name)
        if array is not None and array.dtype.kind == "f" and is_photo(array.shape):
            low, high = picture_range(graph, value) or UNIT
            moved[value.name] = (low + (high - low) * array).astype(array.dtype)
    return moved


def shape_of(declared: Sequence[Any], picture: tuple[int, int], length: int) -> tuple[int, ...]:
    """The declared shape; of open dimensions the batch is 1, a picture's rows and columns and others as given."""
    known = [size if isinstance(size, int) and size > 0 else None for size in declared]
    guess = [1, 3, *picture] if len(known) == 4 else [1] + [length] * (len(known) - 1)
    if len(known) == 4 and known[3] in (1, 3):
        guess = [1, *picture, 3]
    return tuple(g if size is None else size for g, size in zip(guess, known, strict=False))


def array_of(value: Any, shape: tuple[int, ...]) -> Array:
    """demo.png for pictures, noise for other floats, 0 and 1 for integers."""
    random = numpy.random.default_rng(7)
    dtype = FIXED.get(value.type) or value.type.removeprefix("tensor(").removesuffix(")")
    if is_photo(shape):
        return photo(PICTURE, shape, dtype)
    return (random.standard_normal(shape) if "float" in dtype else random.integers(0, 2, shape)).astype(dtype)


def photo(path: Path, shape: Sequence[int], dtype: str) -> Array:
    """A picture in an input's shape: 0 .. 255 for uint8, else 0 .. 1."""
    with Image.open(path) as picture:
        colors = numpy.asarray(picture.convert("RGB").resize((shape[3], shape[2])), numpy.float32)
    drawn = numpy.repeat(colors.transpose(2, 0, 1)[None, : shape[1]], shape[0], 0)
    return numpy.asarray(drawn if dtype == "uint8" else drawn / 255, dtype)


def with_picture(inputs: Arrays, path: Path) -> dict[str, Array]:
    """The inputs with another picture in those that are pictures."""
    return {n: photo(path, a.shape, str(a.dtype)) if is_photo(a.shape) else a for n, a in inputs.items()}


def is_photo(shape: Sequence[int]) -> bool:
    """Returns whether an input is a grey or colour picture."""
    return len(shape) == 4 and shape[1] in (1, 3) and shape[2] > 3


def make_parser() -> argparse.ArgumentParser:
    described = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m benchmarks.survey", description=__doc__, formatter_class=described)
    parser.add_argument("path", nargs="+", help="an ONNX file, or a folder of them")
    add_device_argument(parser)
    parser.add_argument("--half", action="store_true", help="also measure FLOAT16=1")
    parser.add_argument("--pictures", nargs="+", metavar="FILE", default=[str(PICTURE)], help="to judge FLOAT16=1 on")
    parser.add_argument("--seconds", type=positive, default=300, metavar="N", help="for a file (default: %(default)s)")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    add_repeat_arguments(parser, REPEAT)
    return parser


if __name__ == "__main__":
    sys.exit(run_main(make_parser(), main))
