"""The model of a phone's GPU beside published times: the layers of the networks, and the arithmetic of a comparison."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import adreno, published
from benchmarks.published import NETWORKS, Engine, Kernel, Layer
from imgconv.errors import InputError
from imgconv.kernels.device_model.adreno import A630


@pytest.mark.parametrize(("network", "layers", "millions"), [("MobileNetV1", 28, 569), ("MobileNetV2", 53, 300)])
def test_the_networks_have_the_published_multiply_adds(network: str, layers: int, millions: int) -> None:
    made = NETWORKS[network]
    assert len(made) == layers
    assert sum(layer.terms * layer.filters * layer.size**2 for layer in made) / 1e6 == pytest.approx(millions, rel=0.01)


def test_a_layer_by_hand() -> None:
    """5x5 outputs of 64 channels from 32, blocks of 2 columns and 2 quads: 3 * 5 * 8 work items, one wave."""
    engine = Engine("made up", {"1x1": Kernel(1.5, 8.0, (2, 1, 2))})
    (time,) = engine.times([Layer("1x1", 32, 64, 5)], A630)
    each = 2 * 2 * 4 * 32
    assert time.arithmetic == pytest.approx(8 * 128 * (each / 345e9 + each / 2 / 234e9))
    assert time.texture == pytest.approx(120 * each / 8 / 11e9)
    assert time.memory == pytest.approx(2 * (25 * 32 + 25 * 64 + 32 * 64) / 20.86e9)
    (wide,) = replace(engine, half=False).times([Layer("1x1", 32, 64, 5)], A630)
    assert wide.arithmetic == pytest.approx(8 * 128 * 1.5 * each / 234e9)


def test_published_times_are_compared(tmp_path: Path) -> None:
    options = adreno.make_parser().parse_args(["--networks", "published", "--json", str(tmp_path / "a.json")])
    assert adreno.main(options) == 0
    found = json.loads((tmp_path / "a.json").read_text())["published"]
    assert len(found) == 8
    ratios = [each["published_over_predicted"] for each in found if each["published_seconds"]]
    assert len(ratios) == 4
    # A launch cannot be faster than the model, which leaves out waits.
    assert all(1 < ratio < 2.5 for ratio in ratios)
    assert f"{min(ratios):.2f} to {max(ratios):.2f} times" in published.honesty(A630)


def test_a_gpu_is_of_the_table() -> None:
    assert adreno.gpu_of(630, 4) == replace(A630, units=4)
    assert adreno.gpu_of(630, None, 3) == replace(A630, compute_units=3)
    with pytest.raises(InputError, match="no Adreno 999"):
        adreno.main(argparse.Namespace(gpu=(999,), units=None, compute_units=None, networks=None))
