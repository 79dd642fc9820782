"""DeformConv against its definition, computed tap by tap in float64."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from operator_cases import Case, model_of
from support import ENGINES, assert_close, run_model, run_oracle

from imgconv.errors import ModelError

random = numpy.random.default_rng(5)


def draw(*shape: int, scale: float = 1.0) -> Any:
    return random.uniform(-scale, scale, shape).astype(numpy.float32)


def sampled(plane: Any, y: float, x: float) -> float:
    """Linear interpolation of (H, W) with zeros around it."""
    total = 0.0
    for row in (int(numpy.floor(y)), int(numpy.floor(y)) + 1):
        for column in (int(numpy.floor(x)), int(numpy.floor(x)) + 1):
            if 0 <= row < plane.shape[0] and 0 <= column < plane.shape[1]:
                total += plane[row, column] * (1 - abs(y - row)) * (1 - abs(x - column))
    return total


def expected(inputs: tuple[Any, ...], strides: Any, pads: Any, dilations: Any, group: int, offset_group: int) -> Any:
    x, weight, offset, bias, mask = (*inputs, None, None)[:5]
    n, _, height, width = offset.shape
    outputs, each, rows, columns = weight.shape
    y = numpy.zeros((n, outputs, height, width))
    for b, o, r, c in numpy.ndindex(y.shape):
        first = o // (outputs // group) * each
        for channel, i, j in numpy.ndindex(each, rows, columns):
            part = (first + channel) // (x.shape[1] // offset_group)
            tap = part * rows * columns + i * columns + j
            at = [r * strides[0] - pads[0] + i * dilations[0], c * strides[1] - pads[1] + j * dilations[1]]
            at = [p + float(offset[b, 2 * tap + a, r, c]) for a, p in enumerate(at)]
            value = sampled(x[b, first + channel].astype(float), *at)
            y[b, o, r, c] += value * weight[o, channel, i, j] * (1 if mask is None else mask[b, tap, r, c])
    return y + (0 if bias is None else bias.reshape(-1, 1, 1))


# group, offset_group, kernel, strides, pads, dilations, output
SETTINGS = [
    (1, 1, (3, 3), (1, 1), (0, 0, 0, 0), (1, 1), (3, 4)), (2, 1, (2, 3), (2, 1), (1, 0, 0, 1), (1, 1), (3, 5)),
    (1, 2, (2, 2), (1, 1), (0, 1, 0, 1), (2, 1), (3, 7)), (2, 4, (1, 2), (1, 2), (0, 0, 0, 0), (1, 3), (5, 2)),
]


def case(setting: Any, opset: int, bias: bool, mask: bool) -> tuple[Case, Any]:
    group, offset_group, kernel, strides, pads, dilations, output = setting
    taps = offset_group * kernel[0] * kernel[1]
    inputs: tuple[Any, ...] = (
        draw(2, 4, 5, 6), draw(6, 4 // group, *kernel), draw(2, 2 * taps, *output, scale=2.5),
        draw(6) if bias else None, draw(2, taps, *output) if mask else None,
    )
    while inputs[-1] is None:
        inputs = inputs[:-1]
    settings = {"strides": strides, "pads": pads, "dilations": dilations, "group": group, "offset_group": offset_group}
    return Case("DeformConv", opset, inputs, settings), expected(inputs, strides, pads, dilations, group, offset_group)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("opset", [19, 22])
@pytest.mark.parametrize(("bias", "mask"), [(False, False), (True, False), (True, True), (False, True)])
@pytest.mark.parametrize("setting", SETTINGS)
def test_deform_conv(setting: Any, bias: bool, mask: bool, opset: int, engine: str) -> None:
    made, want = case(setting, opset, bias, mask)
    model, feeds = model_of(made)
    assert_close(run_model(model, feeds, engine), {"y0": want.astype(numpy.float32)}, 5e-6)


FAMILIES = {"deformable": [case(setting, 19, True, True)[0] for setting in SETTINGS]}


def test_without_offsets_it_is_a_convolution() -> None:
    x, weight = draw(1, 4, 6, 7), draw(3, 4, 3, 2)
    settings = {"strides": [2, 1], "pads": [1, 1, 1, 0]}
    plain, feeds = model_of(Case("Conv", 22, (x, weight), settings))
    moved, moved_feeds = model_of(Case("DeformConv", 22, (x, weight, numpy.zeros((1, 12, 3, 7), "f")), settings))
    assert_close(run_model(moved, moved_feeds), run_oracle(plain, feeds), 2e-6)


@pytest.mark.parametrize(("inputs", "settings", "message"), [
    ((draw(1, 4, 5, 6), draw(6, 3, 3, 3), draw(1, 18, 3, 4)), {}, "do not match"),
    ((draw(1, 4, 5, 6), draw(6, 4, 3, 3), draw(1, 17, 3, 4)), {}, "offset"),
    ((draw(1, 4, 5, 6), draw(6, 4, 3, 3), draw(1, 18, 3, 4), None, draw(1, 8, 3, 4)), {}, "mask"),
    ((draw(1, 4, 5, 6), draw(6, 4, 3, 3), draw(1, 18, 3, 4)), {"kernel_shape": [3, 2]}, "kernel_shape"),
    ((draw(1, 4, 5), draw(6, 4, 3), draw(1, 6, 3)), {}, "two spatial axes"),
])
def test_wrong(inputs: Any, settings: dict[str, Any], message: str) -> None:
    model, feeds = model_of(Case("DeformConv", 19, inputs, settings))
    with pytest.raises(ModelError, match=message) as caught:
        run_model(model, feeds)
    assert caught.value.node == "node"
