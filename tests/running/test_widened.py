"""The half plan with floats in place of halves: the same kernels, and no rounding of values."""

from __future__ import annotations

from dataclasses import replace

import numpy
import pytest
from planted import overflow_model

import imgconv
from imgconv.cl.device import Context, DeviceInfo
from imgconv.compiling.lower import lower
from imgconv.compiling.widened import widened
from imgconv.config import Config
from imgconv.graph.evaluate import evaluate_graph
from imgconv.kernels.layout import Alignment, ImageLimits
from imgconv.kernels.target import Target
from imgconv.onnx_import import import_onnx
from imgconv.passes import run_passes
from imgconv.running import precision
from imgconv.running.rounding import is_half, relative_error
from imgconv.runtime.session import Session
from imgconv.loading.target import target_of
from imgconv.tensor import Tensor, build_graph, concatenate


def weights(*shape: int) -> Tensor:
    """Whole numbers of eighths: halves hold them."""
    return Tensor.constant(numpy.random.default_rng(len(shape)).integers(-8, 9, shape).astype(numpy.float32) / 8)


@pytest.mark.parametrize("limits", [ImageLimits(4096, 4096, 8), ImageLimits(15, 16, 64)], ids=["whole", "tiled"])
@pytest.mark.parametrize("shared", [False, True], ids=["images", "workspace"])
def test_values_are_not_rounded(device: DeviceInfo, context: Context, limits: ImageLimits, shared: bool) -> None:
    """Half rounds each of six values by 2**-11, float by 2**-24."""
    target = replace(target_of(device), linear=None, limits=limits)
    if not shared:
        target = replace(target, images_in_buffers=None)
    elif target.images_in_buffers is None:
        pytest.skip("this device has no images in buffers")
    x = Tensor.input("x", (1, 3, 24, 20))
    parts = [x.conv2d(weights(count, 3, 3, 3), padding=1).relu() for count in (8, 6)]
    y = (concatenate(parts, 1).conv2d(weights(9, 14, 1, 1)) * 0.3).max_pool(3, 2, 1)
    graph = run_passes(build_graph({"y": y.conv2d(weights(4, 9, 3, 3)) * 0.7, "z": y.mean([2, 3])}))
    plan = lower(graph, Config(float16=1), target)
    wide = widened(plan)
    assert wide is not None and bool(plan.regions) == shared
    assert [launch.source.text for launch in wide.launches] == [launch.source.text for launch in plan.launches]
    assert any(is_half(t) for t in (*plan.slots, *plan.regions)) and not any(map(is_half, (*wide.slots, *wide.regions)))
    inputs = {"x": numpy.random.default_rng(1).uniform(-1, 1, (1, 3, 24, 20)).astype(numpy.float32)}
    exact, half = evaluate_graph(graph, inputs), Session(plan, context)
    assert relative_error(half.run(inputs), exact) > 1e-4
    assert relative_error(Session(wide, context, None, [half]).run(inputs), exact) < 1e-5


@pytest.mark.parametrize("linear", [None, Alignment(1, 16, 1 << 30)], ids=["images", "linear"])
def test_the_kernel_of_a_linear_texture_says_what_it_holds(linear: Alignment | None) -> None:
    target = Target(ImageLimits(4096, 4096, 8), "cpu", 2, linear=linear)
    plan = lower(run_passes(import_onnx(overflow_model())), Config(float16=1), target)
    assert (widened(plan) is None) == (linear is not None)


def test_what_is_near_65504_needs_no_other_kernel(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    """Textures are images here, as on a GPU."""
    monkeypatch.setattr(precision._Measured, "session", property(lambda measured: pytest.fail("a float plan is made")))
    chosen = imgconv.load(overflow_model(), device, float16=1, max_image=256)
    assert "big" in chosen.config.precision.storage
