"""The demo's network: equal to its definition in float64, and better than bicubic interpolation."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy
import pytest
from PIL import Image

import imgconv
from examples import demo
from imgconv.cl.device import DeviceInfo
from imgconv.graph.evaluate import evaluate_graph
from imgconv.preprocess import Preparation, read_picture, to_array, to_picture
from models import superres
from models.train_superres import downscale, psnr

LEAST_GAIN = 2.0  # dB


@cache
def weights() -> dict[str, Any]:
    with numpy.load(superres.WEIGHTS) as stored:
        return {name: array.astype(numpy.float64) for name, array in stored.items()}


def convolve(x: Any, name: str) -> Any:
    """3x3 with one row of zeros around, in float64."""
    weight, bias = weights()[f"{name}.weight"], weights()[f"{name}.bias"]
    padded = numpy.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = numpy.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    return numpy.einsum("nchwij,ocij->nohw", windows, weight) + bias[:, None, None]


def prelu(x: Any, name: str) -> Any:
    return numpy.maximum(x, 0) + weights()[name][:, None, None] * numpy.minimum(x, 0)


def reference(x: Any) -> Any:
    """The network as models/train_superres.py describes it."""
    state = prelu(convolve(x, "head"), "head_slope")
    for block in ("block0", "block1"):
        state = state + convolve(prelu(convolve(state, f"{block}_a"), f"{block}_slope"), f"{block}_b")
    y = convolve(state, "tail") + numpy.repeat(x, 4, axis=1)
    n, _, h, w = x.shape
    return y.reshape(n, 3, 2, 2, h, w).transpose(0, 1, 4, 2, 5, 3).reshape(n, 3, 2 * h, 2 * w)


def noise(batch: int, height: int, width: int) -> Any:
    return numpy.random.default_rng(11).random((batch, 3, height, width), numpy.float32)


def gain(original: Image.Image, enlarged: Image.Image) -> float:
    """The gain over bicubic, in dB."""
    bicubic = downscale(original).resize(original.size, Image.Resampling.BICUBIC)
    truth = numpy.asarray(original)
    return psnr(numpy.asarray(enlarged), truth) - psnr(numpy.asarray(bicubic), truth)


def test_graph_is_the_network() -> None:
    x = noise(2, 9, 14)
    found = evaluate_graph(superres.build(9, 14, batch=2), {"input": x})["output"]
    numpy.testing.assert_allclose(found, reference(x), atol=1e-5)


def test_graph_is_better_than_bicubic() -> None:
    original = read_picture(demo.PICTURE).crop((128, 192, 288, 320))
    x = to_array(downscale(original), Preparation(scale=1 / 255))
    y = evaluate_graph(superres.build(*x.shape[2:]), {"input": x})["output"]
    assert gain(original, to_picture(y[0], value_range=(0, 1))) > LEAST_GAIN


@pytest.mark.parametrize(("float16", "tolerance"), [(0, 1e-5), (1, 5e-3)])
def test_device_computes_the_network(device: DeviceInfo, float16: int, tolerance: float) -> None:
    x = noise(1, 21, 34)
    model = imgconv.load(superres.build(21, 34), device, float16=float16)
    numpy.testing.assert_allclose(model(x), reference(x), atol=tolerance)


def test_every_convolution_is_one_launch() -> None:
    model = imgconv.load(superres.build(16, 16))
    assert [launch.kind for launch in model.plan.launches] == ["pack", *["compute"] * 6, "unpack"]


def test_demo(device: DeviceInfo, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demo.demonstrate(demo.PICTURE, str(device.index), str(tmp_path / "out.png"))
    printed = capsys.readouterr().out
    original, enlarged = read_picture(demo.PICTURE), read_picture(tmp_path / "out.png")
    assert enlarged.size == original.size
    assert gain(original, enlarged) > LEAST_GAIN
    assert f"{psnr(numpy.asarray(enlarged), numpy.asarray(original)):.2f} dB" in printed
    for part in (device.name, device.driver_version, "8 launches", "ms a run"):
        assert part in printed


@pytest.mark.parametrize("in_color", [False, True])
def test_picture_as_text(in_color: bool) -> None:
    text = demo.as_text(read_picture(demo.PICTURE), 40, in_color).plain
    lines = text.splitlines()
    assert len(lines) == 15 and {len(line) for line in lines} == {40}
    assert text.isascii() != in_color
