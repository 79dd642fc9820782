"""Reads through tables of known positions, against onnxruntime on every device."""

from __future__ import annotations

import re
from typing import Any

import numpy
import onnx
import onnx.helper
import pytest
from running import run_graph, target
from support import assert_close, make_model, run_oracle
from table_models import draw_model

from imgconv.cl.context import Context
from imgconv.compiling.plan import Plan
from imgconv.config import Config
from imgconv.onnx_import import import_onnx
from imgconv.tensor import TABLE

TOLERANCE = 1e-5  # of the largest value: sums of up to a few hundred floats
# In tiles, every address is computed twice: in the grid and in the image.
WAYS = {"float": (Config(), "cpu"), "tiled gpu": (Config(max_image=32), "gpu")}


def check_model(model: onnx.ModelProto, inputs: dict[str, Any], context: Context, way: str = "float") -> Plan:
    config, kind = WAYS[way]
    plan, found = run_graph(import_onnx(model), inputs, context, config, target(context, kind))
    assert_close(found, run_oracle(model, inputs), TOLERANCE)
    return plan


@pytest.mark.parametrize("way", WAYS)
def test_drawn_models(context: Context, way: str) -> None:
    check_model(*draw_model(range(24)), context, way)


SHAPE = (2, 6, 8)
# What makes the rows of a matrix come from a table: constant inputs, attributes and the shape that it gives.
CASES: dict[str, tuple[str, Any, dict[str, Any], tuple[int, ...]]] = {
    "gather of rows": ("Gather", [5, 0, 3, 3, -2], {"axis": 1}, (2, 5, 8)),
    "gather of matrices": ("Gather", [1, 0, 0, 1], {"axis": 0}, (4, 6, 8)),
    "windows of rows": ("Gather", [[0, 1], [3, 4], [4, 5]], {"axis": 1}, (2, 3, 2, 8)),
    "edge": ("Pad", [0, 2, 0, 0, 1, 0], {"mode": "edge"}, (2, 9, 8)),
    "reflection": ("Pad", [0, 3, 0, 0, 2, 0], {"mode": "reflect"}, (2, 11, 8)),
    "edge of matrices": ("Pad", [2, 0, 0, 1, 0, 0], {"mode": "edge"}, (5, 6, 8)),
}


@pytest.mark.parametrize("side", ["left", "right"])
def test_products_of_rows_from_tables(context: Context, side: str) -> None:
    generator = numpy.random.default_rng(1)
    nodes, constants, inputs = [], {}, {}
    for number, (operator, known, attributes, shape) in enumerate(CASES.values()):
        constants[f"k{number}"] = numpy.array(known, numpy.int64)
        inputs[f"x{number}"] = generator.normal(0, 1, SHAPE).astype(numpy.float32)
        beside = (*shape[:-2], 8, 5) if side == "left" else (*shape[:-2], 7, shape[-2])
        inputs[f"b{number}"] = generator.normal(0, 1, beside).astype(numpy.float32)
        order = [f"t{number}", f"b{number}"] if side == "left" else [f"b{number}", f"t{number}"]
        nodes.append(onnx.helper.make_node("Tanh", [f"x{number}"], [f"h{number}"]))
        nodes.append(onnx.helper.make_node(operator, [f"h{number}", f"k{number}"], [f"t{number}"], **attributes))
        nodes.append(onnx.helper.make_node("MatMul", order, [f"y{number}"]))
    model = make_model(nodes, inputs, [f"y{number}" for number in range(len(CASES))], 18, constants)
    check_model(model, inputs, context)


def test_convolution_by_factors_from_a_table(context: Context) -> None:
    """A squeeze-and-excite block whose factors are another image's, by a table with no pattern."""
    generator = numpy.random.default_rng(2)
    inputs = {"x": generator.normal(0, 1, (5, 6, 4, 4)).astype(numpy.float32)}
    constants = {
        "images": numpy.array([3, 0, 0, 4, 1]), "v": generator.normal(0, 1, (6, 6, 1, 1)).astype(numpy.float32),
        "w": generator.normal(0, 1, (3, 6, 1, 1)).astype(numpy.float32),
    }
    nodes = [
        onnx.helper.make_node("Conv", ["x", "v"], ["t"]), onnx.helper.make_node("GlobalAveragePool", ["t"], ["mean"]),
        onnx.helper.make_node("Gather", ["mean", "images"], ["factors"], axis=0),
        onnx.helper.make_node("Mul", ["t", "factors"], ["scaled"]),
        onnx.helper.make_node("Conv", ["scaled", "w"], ["y"]),
    ]
    plan = check_model(make_model(nodes, inputs, ["y"], 18, constants), inputs, context)
    assert any("factors" in a.name for launch in plan.launches for a in launch.source.arguments), str(plan)


@pytest.mark.parametrize(("shape", "axis"), [((7,), 0), ((2, 3000, 1), 1), ((1, 3, 5, 2), 2), ((1, 2, 1, 5000), 3)])
@pytest.mark.parametrize("way", WAYS)
def test_long_tables_are_no_constants_of_a_program(
    context: Context, shape: tuple[int, ...], axis: int, way: str
) -> None:
    """NVIDIA's compiler has 64 KB for those of a program."""
    positions = numpy.random.default_rng(0).integers(0, shape[axis], 6000)
    node = onnx.helper.make_node("Gather", ["x", "positions"], ["y"], axis=axis)
    inputs = {"x": numpy.random.default_rng(1).normal(size=shape).astype(numpy.float32)}
    model = make_model([node], inputs, ["y"], 13, {"positions": positions})
    plan = check_model(model, inputs, context, way)
    found = [int(n) for launch in plan.launches for n in re.findall(r"__constant \w+ \w+\[(\d+)", launch.source.text)]
    assert sum(found) <= TABLE
