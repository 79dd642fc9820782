"""separable.cl with sums in half and in runs, on a phone's GPU: against float64 numpy, the rule, what reports say.

Only Intel's driver computes in half here.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from graphs import Taking
from problems.separable import SeparableProblem, separable_specialisations
from running import Choose, check, choosing, target

from imgconv.cl.context import Context
from imgconv.compiling.choose import cheapest_choice
from imgconv.compiling.compiler import PreparedGraph
from imgconv.compiling.lower import lower
from imgconv.config import Accumulation, Config, Precision
from imgconv.kernels.device_model.models import time_range_of
from imgconv.kernels.device_model.time_range import index_of_best
from imgconv.kernels.layout import ImageLimits
from imgconv.kernels.separable.candidates import launch_work
from imgconv.kernels.separable.problem import Problem, Specialisation
from imgconv.kernels.separable.template import TEMPLATE
from imgconv.kernels.target import Target
from imgconv.onnx_export import export_onnx
from imgconv.passes import run_passes
from imgconv.reports.verify import verify
from imgconv.precision.choose import choose_precision
from imgconv.tensor import Tensor, build_graph

S = SeparableProblem
# Whole and ragged quads, a batch, strides, dilations, larger windows, without an activation between, a residual.
GRID = [
    S(channels=32, filters=20, size=(14, 14), residual=True), S(channels=17, filters=9, size=(7, 9)),
    S(size=(4, 7), between=False), S(batch=3, channels=6, filters=5, size=(4, 5), residual=True),
    S(channels=16, filters=8, size=(9, 8), strides=(1, 3)), S(channels=40, filters=36, size=(5, 6)),
    S(channels=4, filters=8, size=(11, 12), strides=(2, 2), dilations=(3, 2), pads=(0, 2, 3, 1)),
    S(window=(5, 5), pads=(2, 2, 2, 2), size=(8, 8)),
]
PHONE = 2  # compute units of a phone's GPU


def likely(problem: Problem) -> Specialisation:
    """The specialisation of the least predicted time, for problems too small for a GPU's own candidates too."""
    return min(separable_specialisations(problem), key=lambda c: time_range_of(launch_work(problem, c), "gpu", PHONE))


PAIRS = Taking(separable=lambda problem, *_: likely(problem) if problem.pointwise.products == "float16" else None)


@pytest.mark.usefixtures("half_arithmetic")
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("sums", ["runs", "half"])
def test_sums(context: Context, seed: int, sums: str) -> None:
    """With any specialisation, in parts and whole; tiled images for one of the seeds."""
    problems = GRID[seed::2]
    names = build_graph({f"y{n}": problem.instance().output for n, problem in enumerate(problems)}).values
    config = Config(2, precision=Precision(runs=frozenset(names if sums == "runs" else ())))
    choose = Choose(separable_specialisations, seed)
    wanted = choosing(target(context, "gpu", compute_units=PHONE), separable=choose)
    plan = check(problems, context, replace(config, max_image=8 if seed else None), wanted)
    pairs = [launch for launch in plan.launches if launch.source.path == "kernels/separable/separable.cl"]
    assert len(pairs) == len(problems) and {launch.sums for launch in pairs} == {sums}
    for launch in pairs:
        assert ("#define HALF_SUMS 1\n" in launch.source.text) == (sums == "half")
        assert ("#define HALF_QUADS 0\n" in launch.source.text) == (sums == "half")


def small_pair() -> tuple[Tensor, Any]:
    """A pair with a bias and an activation between, and what it reads."""
    instance = S(channels=8, filters=8, size=(9, 9)).instance()
    (array,) = instance.inputs.values()
    return instance.output, array


@pytest.mark.parametrize(("first", "second", "sums"), [
    ("half", "half", "half"), ("half", "runs", "runs"), ("runs", "half", "runs"), ("float", "half", ""),
    ("half", "float", ""),
])
def test_the_wider_sums_of_both(first: Accumulation, second: Accumulation, sums: str) -> None:
    """One launch takes the wider sums of both. If either needs fp32 sums, each has its own launch with its own sums."""
    graph = run_passes(build_graph({"y": small_pair()[0]}))
    middle = next(node.output.name for node in graph.nodes if node.output.name != "y")
    ways = {middle: first, "y": second}
    runs, in_float = (frozenset(name for name, way in ways.items() if way == each) for each in ("runs", "float"))
    config = Config(2, precision=Precision(arithmetic=in_float, runs=runs))
    phone = Target(ImageLimits(16384, 16384, 2048), "gpu", PHONE)
    found = [(launch.sums, launch.values) for launch in lower(graph, config, phone, chooser=PAIRS).launches]
    expected = [(sums, (middle, "y"))] if sums else [(first, (middle,)), (second, ("y",))]
    assert [each for each in found if each[0]] == expected


def test_the_rule() -> None:
    """On a phone a pair that narrows in half is one launch. In float, and if it has many outputs, there are two."""
    large, deep = problem_of(96, 24, 112, 2), problem_of(128, 128, 112, 1)
    phone = Target(ImageLimits(16384, 16384, 2048), "gpu", PHONE)
    assert cheapest_choice(TEMPLATE, large, phone) is None
    for sums in ("half", "runs"):
        narrow = Problem(replace(large.depthwise, sums=sums), replace(large.pointwise, sums=sums))
        choice = cheapest_choice(TEMPLATE, narrow, phone)
        assert choice is not None and choice.profitable and choice.specialisation.local_bytes(narrow) <= 1 << 15
        assert index_of_best([choice.predicted, choice.baseline]) == 0
    half = Problem(replace(deep.depthwise, sums="half"), replace(deep.pointwise, sums="half"))
    choice = cheapest_choice(TEMPLATE, half, phone)
    assert choice is not None and not choice.profitable


def problem_of(channels: int, filters: int, size: int, stride: int) -> Problem:
    """The problem of a 3x3 pair, in float."""
    asked: list[Problem] = []
    pair = S(channels=channels, filters=filters, size=(size, size), strides=(stride, stride))
    graph = run_passes(build_graph({"y": pair.instance().output}))
    phone = Target(ImageLimits(16384, 16384, 2048), "gpu", PHONE)
    lower(graph, Config(), phone, chooser=Taking(separable=lambda problem, *_: asked.append(problem)))
    return asked[0]


@pytest.mark.usefixtures("half_arithmetic")
def test_what_verify_and_the_choice_of_sums_see(context: Context, tmp_path: Path) -> None:
    """A value in local memory has no fp16 error of its own. Both values can be kept wider."""
    output, array = small_pair()
    graph = run_passes(build_graph({"y": output}))
    (given,) = graph.inputs
    export_onnx(graph, tmp_path / "pair.onnx")
    prepared = PreparedGraph(graph, Config(2), target(context, "gpu", compute_units=PHONE), PAIRS)
    inputs = {given.name: array}
    layers = {layer.name: layer for layer in verify(tmp_path / "pair.onnx", prepared, context, inputs)}
    (middle,) = layers.keys() - {"y", given.name}
    assert layers[middle].sums == layers["y"].sums == "half"
    assert layers[middle].half_error is None and layers[middle].stored == ""
    error = layers["y"].half_error
    assert error is not None and 0 < error < 1e-2
    # Between the errors of storage and of sums in half: all sums are float.
    exact = choose_precision(prepared, context, inputs=[inputs], bound=error / 100)
    assert exact.precision.arithmetic | exact.precision.storage >= {middle, "y"}
