"""Shared by the tests of native/: one run by Python and by the player, whose bits must be equal.

The player checks all launches between two runs: it reports none as wrong, and leaves nothing behind.
"""

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
        name: (random.random(v.shape) * {"uint8": 255, "uint16": 65535}.get(v.dtype, 1)).astype(v.dtype)
        for name, v in model.inputs.items()
    }


def assert_same_bits(found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].dtype == array.dtype and found[name].shape == array.shape
        assert found[name].tobytes() == numpy.ascontiguousarray(array).tobytes(), name


def check(model: imgconv.Model, device: DeviceInfo, play: Play, path: Path, player_only: bool = False) -> None:
    inputs = drawn(model)
    expected = model.run(inputs)
    model.save(path, player_only=player_only)
    lines = f"""
        player = Player({str(path)!r}, "{device.index}")
        first = player.run(given)
        wrong = [launch for launch in player.check()["launches"] if launch["verdict"] == "wrong"]
        assert not wrong, wrong
        results.update(player.run(given))
        assert all(first[name].tobytes() == array.tobytes() for name, array in results.items())
    """
    assert_same_bits(play(lines, inputs), expected)
