"""Convolutions that sum integers, as Mesa's code for Adreno GPUs in the simulator; skipped without a build of Mesa.

Some sums start with zero, others with a constant of the output channel.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_sums_of_levels import LAYERS, MOST_ITEMS, PAIRS, Layer, Pair, of_integers, pairs_of, small_pairs, summing

from benchmarks.adreno import gpu_of, target_for
from benchmarks.adreno_mesa import Mesa
from benchmarks.adreno_simulator.checked import check
from graphs import Taking
from imgconv.compiling.compiler import PreparedGraph
from imgconv.config import Config
from imgconv.onnx_import import import_onnx
from imgconv.passes import run_passes


@pytest.mark.models
@pytest.mark.parametrize(("gpu", "dot_product"), [(630, ""), (650, ""), (660, "qcom"), (740, "qcom"), (740, "")])
@pytest.mark.parametrize("layer", (*LAYERS[:2], *LAYERS[3:5]), ids=lambda each: f"{each.dtype}-{each.zero}-{each.w}")
def test_levels_are_right(mesa: Mesa, layer: Layer, gpu: int, dot_product: str) -> None:
    target = replace(target_for(gpu_of(gpu, None)), dot_product=dot_product, max_work_group=MOST_ITEMS)
    chooser = Taking(convolution=lambda problem, *_: of_integers(problem, layer.block, layer.parts))
    prepared = PreparedGraph(run_passes(import_onnx(layer.model()[0])), Config(), target, chooser)
    plan = prepared.plan()
    assert len(summing(plan)) == 1
    made = check("layer", prepared, plan, mesa, gpu)
    # A level is a power of two times an integer: no error is one of rounding.
    assert made.launches and not made.wrong and made.worst == 0


@pytest.mark.models
@pytest.mark.parametrize(("gpu", "dot_product"), [(650, ""), (660, "qcom"), (740, "qcom")])
@pytest.mark.parametrize(("pair", "shared"), [(PAIRS[0], False), (PAIRS[1], True), (PAIRS[2], False)], ids=range(3))
def test_levels_of_pairs_are_right(mesa: Mesa, pair: Pair, shared: bool, gpu: int, dot_product: str) -> None:
    target = replace(target_for(gpu_of(gpu, None)), dot_product=dot_product)
    chooser = Taking(separable=lambda problem, *_: small_pairs(problem, shared)[-1])
    prepared = PreparedGraph(run_passes(import_onnx(pair.model()[0])), Config(), target, chooser)
    plan = prepared.plan()
    assert len(pairs_of(plan)) == 1
    made = check("pair", prepared, plan, mesa, gpu)
    assert made.launches and not made.wrong and made.worst == 0
