"""The largest fraction of a model that any engine can store as fp16, and the fraction that imgconv stores as fp16.

    python -m benchmarks.half_storage FILE.onnx ... [--pictures FILE ...] [--bound 1e-2] [--json FILE]

imgconv's graph after the passes is written as ONNX and run by onnxruntime. After each value that is to be fp16 there
are two Casts, to fp16 and back, and its weights are rounded; everything else is fp32. So the errors are those of any
engine that stores these values as fp16 and computes in fp32. As in benchmarks.survey, errors are on --pictures, divided
by the scale of the output.

    all      the error with every value as fp16
    best     the largest fraction of all elements as fp16 that was found within --bound, and its error. Values are added
             in the order of their own squared error per element. The pictures that choose the values also judge them;
             a load does not have these pictures
    imgconv  the fraction and the error with FLOAT16=1
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy
import onnx
from onnx.helper import make_node

import imgconv
from benchmarks.half_sums import PICTURE
from benchmarks.measure import Column, environment, environment_line, make_table, publish, run_main, steps
from benchmarks.measure import add_output_argument
from benchmarks.survey import Row as Found
from benchmarks.survey import in_range, oracle_of, with_picture
from imgconv.arrays import Array, Arrays
from imgconv.cl.device import select_device
from imgconv.commands.shared_arguments import add_device_argument
from imgconv.precision.share import half_share_of
from imgconv.compiling.textures import SMALL_WEIGHTS, always_float, why_float
from imgconv.config import Precision
from imgconv.graph.nodes import Graph
from imgconv.kernels.layout import Texture
from imgconv.onnx_export import export_onnx
from imgconv.precision.search import ItemBlock, blocks_over_budget
from imgconv.precision.loss import least_scales, relative_error, scales_of

HARDEST = 4  # pictures on which each value's cost is measured: those with the largest errors with all values as fp16
PARTS = (1.6, 1.4, 1.2, 1.0, 0.85, 0.7, 0.55, 0.4, 0.25, 0.1)  # of the bound, what the values may cost by their squares
FLOAT, FLOAT16 = onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16


@dataclass(frozen=True)
class Row:
    """One file. Shares are of all numbers that imgconv stores in textures."""

    file: str
    values: int
    every: float
    best_share: float
    best: float
    share: float
    error: float


COLUMNS = (
    Column("file", lambda r: r.file), Column("values", lambda r: str(r.values)),
    Column("all: error", lambda r: f"{r.every:.1e}"),
    Column("best: share", lambda r: f"{r.best_share:.0%}"), Column("error", lambda r: f"{r.best:.1e}"),
    Column("imgconv: share", lambda r: f"{r.share:.0%}"), Column("error", lambda r: f"{r.error:.1e}"),
)


@dataclass(frozen=True)
class Stored:
    """A graph after the passes, and pictures for it. names: the values that may be fp16."""

    graph: Graph
    inputs: Sequence[Arrays]
    names: Sequence[str]

    @cached_property
    def exact(self) -> list[dict[str, Array]]:
        return [self.run((), inputs) for inputs in self.inputs]

    @cached_property
    def scales(self) -> dict[str, float]:
        return scales_of(self.exact, least_scales(self.graph))

    def run(self, half: Collection[str], inputs: Arrays) -> dict[str, Array]:
        """Returns the outputs with these values as fp16."""
        return self.runs(half, [inputs])[0]

    def runs(self, half: Collection[str], inputs: Sequence[Arrays]) -> list[dict[str, Array]]:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        text = rounded(self.graph, frozenset(half)).SerializeToString()
        session = onnxruntime.InferenceSession(text, options, providers=["CPUExecutionProvider"])
        return [dict(zip(self.graph.outputs, session.run(None, dict(each)), strict=True)) for each in inputs]

    def errors(self, half: Collection[str], pictures: Collection[int]) -> list[float]:
        """Returns the errors on some of the pictures with these values as fp16."""
        made = self.runs(half, [self.inputs[number] for number in pictures])
        return [relative_error(m, self.exact[n], self.scales) for m, n in zip(made, pictures, strict=True)]

    def best(self, bound: float) -> list[str]:
        """Returns the values that may be fp16 within the bound, by the error of each alone: squares nearly add up."""
        pictures = range(len(self.inputs))
        every = self.errors(self.names, pictures)
        if max(every) <= bound:
            return list(self.names)
        hardest = sorted(pictures, key=lambda number: -every[number])[:HARDEST]
        blocks = [
            ItemBlock((name,), max(self.errors([name], hardest)), self.graph.values[name].size) for name in self.names
        ]
        for part in PARTS:
            kept = {name for block in blocks_over_budget(blocks, part * bound) for name in block.names}
            half = [name for name in self.names if name not in kept]
            if max(self.errors(half, pictures)) <= bound:
                return half
        return []


def rounded(graph: Graph, half: frozenset[str]) -> onnx.ModelProto:
    """Returns the graph as ONNX with Casts to fp16 and back after these values, and their weights rounded."""
    weights = {
        name: array.astype(numpy.float16).astype(array.dtype) for name, array in graph.constants.items()
        if array.dtype.kind == "f" and array.size > SMALL_WEIGHTS
        and half.issuperset(node.output.name for node in graph.consumers[name])
    }
    model = export_onnx(replace(graph, constants={**graph.constants, **weights}))
    nodes = [node for value in graph.inputs if value.name in half for node in casts(value.name)]
    for node in model.graph.node:
        node.input[:] = [f"{name}~" if name in half else name for name in node.input]
        nodes += [node, *(cast for name in node.output if name in half for cast in casts(name))]
    for output in model.graph.output:
        nodes.append(make_node("Identity", [f"{output.name}~" if output.name in half else output.name],
                               [f"{output.name}~~"]))
        output.name += "~~"
    del model.graph.node[:], model.graph.value_info[:]
    model.graph.node.extend(nodes)
    return model


def casts(name: str) -> list[onnx.NodeProto]:
    """Returns Casts to fp16 and back; the result has another name."""
    half = f"{name}~16"
    return [make_node("Cast", [name], [half], to=FLOAT16), make_node("Cast", [half], [f"{name}~"], to=FLOAT)]


def row_of(file: Path, options: argparse.Namespace) -> Row:
    """Returns the fractions that can be fp16 in a file, and that imgconv stores as fp16."""
    given, expected, found = oracle_of(file, Found(file.name, ""))
    if expected is None:
        raise imgconv.InputError(f"onnxruntime does not take {file}: {found.why}")
    model = imgconv.load(file, options.device, float16=1, shapes={name: a.shape for name, a in given.items()})
    graph, plan, known = model.graph, model.plan, always_float(model.graph)
    stored = {
        name: graph.values[name].size for name, place in plan.placements.items() if name in graph.values
        and isinstance(place.storage, Texture) and graph.values[name].dtype.startswith("float")
    }
    names = [name for name in stored if not why_float(graph, graph.values[name], Precision(), known)]
    pictures = [in_range(graph, with_picture(given, Path(path))) for path in options.pictures]
    case = Stored(graph, pictures, names)
    every, best, total = range(len(pictures)), case.best(options.bound), sum(stored.values())
    made = zip((model.run(inputs) for inputs in pictures), case.exact, strict=True)
    return Row(
        file.name, len(stored), max(case.errors(names, every)), sum(stored[name] for name in best) / total,
        max(case.errors(best, every)), half_share_of(plan, graph, model.config).share,
        max(relative_error(got, exact, case.scales) for got, exact in made),
    )


def main(options: argparse.Namespace) -> int:
    """Every file in turn."""
    warnings.simplefilter("ignore")
    with steps(options.path) as walk:
        rows = [row_of(Path(path), options) for path in walk]
    found = environment(select_device(options.device))
    table = make_table(f"fp16 storage, at most {options.bound:g} from fp32", COLUMNS, rows)
    publish(options, {"environment": found, "rows": [asdict(row) for row in rows]}, environment_line(found), table)
    return 0


def make_parser() -> argparse.ArgumentParser:
    described = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.half_storage", description=__doc__, formatter_class=described
    )
    parser.add_argument("path", nargs="+", metavar="FILE.onnx", help="models whose inputs are pictures")
    parser.add_argument("--pictures", nargs="+", default=[str(PICTURE)], metavar="FILE", help="(default: demo.png)")
    parser.add_argument("--bound", type=float, default=1e-2, help="of the outputs' scale (default: %(default)g)")
    add_device_argument(parser)
    add_output_argument(parser)
    return parser


if __name__ == "__main__":
    sys.exit(run_main(make_parser(), main))
