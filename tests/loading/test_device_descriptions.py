"""Descriptions of devices: those that come along can be planned for, and others are checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from imgconv.compiling.compiler import prepare
from imgconv.config import Config
from imgconv.errors import InputError
from imgconv.loading.device_descriptions import FOLDER, known_devices, read_device_description
from imgconv.loading.device_target import target_of
from imgconv.tensor import Tensor, build_graph

GOOD: dict[str, Any] = json.loads((FOLDER / "adreno_650.json").read_text())


@pytest.mark.parametrize("name", known_devices())
def test_devices_that_come_along(name: str) -> None:
    info, content = read_device_description(name), json.loads((FOLDER / f"{name}.json").read_text())
    sources = content["sources"]
    assert all("assumed" in text or "https://" in text or "the same clinfo" in text for text in sources.values())
    x = Tensor.input("x", (1, 4, 8, 8))
    for mode in (0, 1, 2) if info.fp16_arithmetic else (0, 1):
        plan = prepare(build_graph({"y": x.max_pool(2, 2).exp()}, [x]), Config(mode), target_of(info)).plan()
        assert plan.launches


@pytest.mark.parametrize(("change", "message"), [
    ({"compute_units": "3"}, "'compute_units' is '3', not of type int"),
    ({"dot_product": "dp4a"}, "'dot_product' is 'dp4a', not of type DotProduct"),
    ({"compute_units": True}, "'compute_units' is True"), ({"compute_units": -1}, "'compute_units' is -1"),
    ({"kind": "phone"}, "'kind' is 'phone'"), ({"extensions": [1]}, "'extensions'"),
    ({"half_images": 1}, "half_images"), ({"name": None}, "'name' is None"),
])
def test_wrong_values(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(json.dumps(GOOD | change))
    with pytest.raises(InputError, match=message) as error:
        read_device_description(tmp_path / "x.json")
    assert "x.json" in str(error.value)


def test_wrong_files(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    missing = {name: value for name, value in GOOD.items() if name != "vendor"}
    for text, message in (
        ("{", "cannot read"), ("[]", "not a JSON object"), (json.dumps({"devices": [GOOD, GOOD]}), "lists 2 devices"),
        ("{}", "has no 'index'"), (json.dumps(missing), "has no 'vendor'"), ("\\ud800", "cannot read"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=message):
            read_device_description(path)
    with pytest.raises(InputError, match="cannot read .*No such file.*known names: .*adreno_650"):
        read_device_description(tmp_path / "none.json")
    with pytest.raises(InputError, match="not a regular file|Is a directory|cannot read"):
        read_device_description(tmp_path)
