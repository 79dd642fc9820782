"""Shared by the tests of native/: one run by Python and by the player, whose bits must be equal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy
import pytest

import imgconv
from imgconv.cl.device import DeviceInfo

Play = Callable[..., dict[str, Any]]
SETTINGS: list[dict[str, Any]] = [{}, {"float16": 1}, {"float16": 2}, {"max_image": 64}]


def loaded(graph: Any, device: DeviceInfo, settings: dict[str, Any]) -> imgconv.Model:
    if settings.get("float16") == 2 and not device.fp16_arithmetic:
        pytest.skip("the device does not compute in half")
    return imgconv.load(graph, device=device, **settings)


def drawn(model: imgconv.Model) -> dict[str, Any]:
    random = numpy.random.default_rng(3)
    return {
        name: (random.random(v.shape) * (255 if v.dtype == "uint8" else 1)).astype(v.dtype)
        for name, v in model.inputs.items()
    }


def assert_same_bits(found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].dtype == array.dtype and found[name].shape == array.shape
        assert found[name].tobytes() == numpy.ascontiguousarray(array).tobytes(), name


def check(model: imgconv.Model, device: DeviceInfo, play: Play, path: Path) -> None:
    inputs = drawn(model)
    expected = model.run(inputs)
    model.save(path)
    found = play(f"results.update(Player({str(path)!r}, '{device.index}').run(given))", inputs)
    assert_same_bits(found, expected)
