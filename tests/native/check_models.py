"""The player on every model: `make native-models` runs it, on every driver. It takes minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from played import SETTINGS, Play, check, loaded
from published import REAL, needs_models

from imgconv.cl.device import DeviceInfo
from models import MODELS, build

real_models = pytest.mark.parametrize(
    "path", sorted(REAL.glob("*/*.onnx")) if REAL.name else [], ids=lambda path: path.stem
)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_networks(device: DeviceInfo, play: Play, tmp_path: Path, name: str, settings: dict[str, Any]) -> None:
    check(loaded(build(name, size=64), device, settings), device, play, tmp_path / "m")


@needs_models
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
@real_models
def test_real_models(device: DeviceInfo, play: Play, tmp_path: Path, path: Path, settings: dict[str, Any]) -> None:
    check(loaded(path, device, settings), device, play, tmp_path / "m")


@needs_models
@real_models
def test_pictures_for_real_models(device: DeviceInfo, play: Play, tmp_path: Path, path: Path) -> None:
    model = loaded(path, device, {}).preprocess((97, 131), "rgb", scale=1 / 255)
    check(model, device, play, tmp_path / "m")
