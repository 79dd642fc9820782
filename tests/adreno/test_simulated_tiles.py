"""Winograd's tiles as Mesa's code for an Adreno 630 in the simulator; skipped without a build of Mesa."""

from __future__ import annotations

import numpy
import pytest

from benchmarks.adreno import gpu_of, target_for
from benchmarks.adreno_mesa import Mesa
from benchmarks.adreno_simulator.checked import check
from graphs import Taking, prefer_large_tiles
from imgconv.compiling.compiler import PreparedGraph
from imgconv.config import Config, Precision
from imgconv.kernels.winograd import template
from imgconv.passes import run_passes
from imgconv.tensor import Tensor, build_graph


@pytest.mark.models
@pytest.mark.parametrize("tile", [2, 4])
def test_tiles_are_right(mesa: Mesa, monkeypatch: pytest.MonkeyPatch, tile: int) -> None:
    prefer_large_tiles(monkeypatch)
    weights = numpy.random.default_rng(0).normal(size=(6, 9, 3, 3)).astype(numpy.float32)
    x = Tensor.input("x", (1, 9, 10, 13))
    graph = run_passes(build_graph({"y": x.conv2d(Tensor.constant(weights), padding=1)}))
    target, precision = target_for(gpu_of(630, None)), Precision(large_tiles=frozenset("y" if tile == 4 else ""))
    chooser = Taking(winograd2d=lambda problem, *_: template.candidates(problem, target)[0])
    prepared = PreparedGraph(graph, Config(1, precision=precision), target, chooser)
    plan = prepared.plan()
    assert sum(f"#define TILE {tile}\n" in launch.source.text for launch in plan.launches) == 2
    made = check("layer", prepared, plan, mesa, 630)
    assert made.launches and not made.wrong
    # A tile fits into the registers; if it does not, each item writes it to memory and reads it back.
    assert not any(mesa.kernel(launch.source.text, 630).statistics["stp"] for launch in plan.launches)
