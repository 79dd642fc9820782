"""Shared by all benchmarks: repeated timing, statistics, the environment, the check of results, tables and JSON."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import platform
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy
from rich.console import Console
from rich.table import Table

import imgconv
from imgconv.cl.device import DeviceInfo
from imgconv.commands.shared_arguments import add_setting_arguments, positive
from imgconv.graph.nodes import Value
from imgconv.reports import terminal

INTERRUPTED = 130
REPEAT = 20

FLOAT_TOLERANCE = 1e-3
HALF_TOLERANCE = 3e-2
TOLERANCE_REASON = (
    "largest difference in parts of the largest expected value; float: sums in another order round otherwise, and each "
    "layer passes that on; fp16: each stored value is rounded by up to 2^-11"
)


# Results


def draw_inputs(values: Sequence[Value]) -> dict[str, Any]:
    """An array for each input: numbers from 0 to 1, or 0 and 1 for integers; the same ones each time."""
    random = numpy.random.default_rng(1)
    arrays = {}
    for value in values:
        drawn = random.random(value.shape)
        arrays[value.name] = (drawn if value.dtype.startswith("float") else drawn > 0.5).astype(value.dtype)
    return arrays


def relative_error(got: Mapping[str, Any], expected: Mapping[str, Any]) -> float:
    """The largest difference of any output, divided by its largest expected value; inf if they cannot be compared."""
    worst = 0.0
    for name, want in expected.items():
        have = got.get(name)
        if have is None or have.shape != want.shape:
            return math.inf
        wide, other = want.astype(numpy.float64), have.astype(numpy.float64)
        finite = numpy.isfinite(wide)
        same = numpy.array_equal(wide[~finite], other[~finite], equal_nan=True)
        if not (same and numpy.isfinite(other[finite]).all()):
            return math.inf
        largest = float(numpy.max(numpy.abs(wide[finite]), initial=0.0))
        difference = float(numpy.max(numpy.abs(wide[finite] - other[finite]), initial=0.0))
        worst = max(worst, difference / largest if largest else difference)
    return worst


def run_oracle(path: Path, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Every output by name of an ONNX file, computed by onnxruntime on the CPU without rewriting the graph."""
    session = onnxruntime_session(path, optimised=False)
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(inputs)), strict=True))


def onnxruntime_session(path: str | Path, optimised: bool = True) -> Any:
    """A session of onnxruntime on the CPU. optimised: whether it may rewrite the graph.

    Its threads do not spin: after a run they would for 0.05 s, and take the cores from the engine whose turn is next.
    """
    try:
        import onnxruntime
    except ImportError:
        raise imgconv.Error("results are checked with onnxruntime: pip install onnxruntime") from None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


# Environment


def environment(device: DeviceInfo | None = None) -> dict[str, Any]:
    """Device, driver, machine and versions."""
    found: dict[str, Any] = {}
    if device is not None:
        found |= {
            "device": device.name, "platform": device.platform, "driver": device.driver_version,
            "opencl": device.opencl_version, "compute_units": device.compute_units,
            "image_limit": [device.max_image_width, device.max_image_height],
        }
    found |= {"imgconv": version_of("imgconv"), "python": platform.python_version(), "system": platform.platform()}
    return found | {name: version for name in ("numpy", "pyopencl", "onnxruntime") if (version := version_of(name))}


def version_of(package: str) -> str:
    """The installed version; empty if it is not installed. imgconv may run from its checkout."""
    if package == "imgconv":
        return imgconv.__version__
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def environment_line(found: Mapping[str, Any]) -> str:
    """The environment as one line of text."""
    names = ("imgconv", "python", "numpy", "pyopencl", "onnxruntime")
    versions = ", ".join(f"{name} {found[name]}" for name in names if name in found)
    if "device" not in found:
        return f"{versions}; {found['system']}"
    return f"{found['device']} ({found['platform']}), driver {found['driver']}; {versions}; {found['system']}"


# The command line


def add_output_argument(parser: argparse.ArgumentParser) -> None:
    """--json."""
    parser.add_argument("--json", metavar="FILE", help="write everything as JSON too; - prints JSON and nothing else")


def add_run_arguments(parser: argparse.ArgumentParser, repeat: int = REPEAT) -> None:
    """--device, --float16, --native-explog, --max-image, --repeat and --json."""
    add_setting_arguments(parser)
    add_repeat_arguments(parser, repeat)


def add_repeat_arguments(parser: argparse.ArgumentParser, repeat: int = REPEAT) -> None:
    """--repeat and --json."""
    parser.add_argument(
        "--repeat", type=positive, default=repeat, metavar="N", help="measured runs (default: %(default)s)"
    )
    add_output_argument(parser)


def positives(text: str) -> tuple[int, ...]:
    """Whole numbers of at least 1 with commas between them."""
    return tuple(positive(part) for part in text.split(","))


def run_main(parser: argparse.ArgumentParser, main: Callable[[argparse.Namespace], int]) -> int:
    """Parses the command line and runs; the exit status: 1 after an error of imgconv's, 130 after Ctrl-C."""
    options = parser.parse_args()
    try:
        return main(options)
    except imgconv.Error as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{parser.prog}: interrupted", file=sys.stderr)
        return INTERRUPTED


# Output


@dataclass(frozen=True)
class Column:
    """A table's column: heading, and how a row's text for it is made. left: words, not figures."""

    heading: str
    text: Callable[[Any], str]
    left: bool = False


def make_table(title: str, columns: Sequence[Column], rows: Sequence[Any]) -> Table:
    """A table with a line for each row; the first column is to the left, the others to the right."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for number, column in enumerate(columns):
        table.add_column(column.heading, justify="left" if column.left or not number else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(column.text(row) for column in columns))
    return table


def publish(options: argparse.Namespace, content: Mapping[str, Any], *shown: Table | str) -> None:
    """Tables and lines on stdout, and the content as JSON if --json asks for it."""
    if options.json == "-":
        terminal.print_json(content)
        return
    printer = wide_console()
    for part in shown:
        printer.print(part)
    if options.json:
        with contextlib.redirect_stdout(open(options.json, "w", encoding="utf-8")) as file, file:
            terminal.print_json(content)


def wide_console() -> Console:
    """stdout, wide enough for any table: a narrow terminal wraps lines, figures are never cut."""
    return Console(markup=False, highlight=False, emoji=False, width=1000, soft_wrap=True)


def milliseconds(seconds: float | None) -> str:
    """Seconds as text in milliseconds, three digits."""
    return "-" if seconds is None else digits(seconds * 1e3)


def digits(value: float | None, count: int = 3) -> str:
    """A number with at least `count` significant digits, never in exponent form."""
    if value is None or not math.isfinite(value):
        return "-"
    if value == 0:
        return "0"
    return f"{value:.{max(0, count - 1 - math.floor(math.log10(abs(value))))}f}"


@contextlib.contextmanager
def steps(names: Sequence[str]) -> Iterator[Iterator[str]]:
    """Goes through names with progress on stderr."""
    with terminal.ProgressSpinner("starting") as progress:

        def walk() -> Iterator[str]:
            for number, name in enumerate(names):
                progress(number, len(names), name)
                yield name

        yield walk()


def dump(content: Any) -> str:
    """JSON in one line, for messages between processes."""
    return json.dumps(content, allow_nan=True)
