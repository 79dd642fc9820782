"""The file that keeps what stays float under FLOAT16."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import onnx
import pytest
from planted import overflow_model, picture
from support import run_oracle

import imgconv
from imgconv.cl.device import DeviceInfo
from imgconv.compiling.lower import lower
from imgconv.config import Config, Precision
from imgconv.errors import ConfigError
from imgconv.graph.nodes import Graph
from imgconv.kernels.layout import ImageLimits
from imgconv.kernels.target import Target
from imgconv.onnx_import import import_onnx
from imgconv.passes import run_passes
from imgconv.precision.loss import relative_error
from imgconv.stored.precision_file import PrecisionFile, default_path, fingerprint, read_precision_file

WIDE = Target(ImageLimits(4096, 4096, 8), "cpu", 2)


def graph_of(model: onnx.ModelProto) -> Graph:
    return run_passes(import_onnx(model))


def write(path: Path, **changes: Any) -> Path:
    """A file for the planted model, with changed entries; None leaves one out."""
    precision = Precision(frozenset({"big"}), small_weights=True)
    file = PrecisionFile(fingerprint(graph_of(overflow_model())), 1, 1e-2, 1e-3, precision)
    content = json.loads(file.to_json()) | changes
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))
    return path


def test_file_keeps_the_choice(tmp_path: Path, device: DeviceInfo) -> None:
    path = write(tmp_path / "model.precision.json")
    file = read_precision_file(path)
    assert file.precision == Precision(frozenset({"big"}), small_weights=True)
    assert (file.float16, file.tolerance) == (1, 1e-2)
    x = picture()
    model = imgconv.load(overflow_model(), device, precision=path)
    assert model.config.float16 == 1 and model.config.precision == file.precision
    assert relative_error(model.run({"x": x}), run_oracle(overflow_model(), {"x": x})) <= 2e-3
    assert default_path("folder/net.onnx") == Path("folder/net.precision.json")


def test_old_files_are_read(tmp_path: Path) -> None:
    """Files of version 1 were measured with every sum in runs: so it stays, as far as it is in half."""
    graph = graph_of(overflow_model())
    path = write(tmp_path / "p.json", version=1, float16=2, short_runs=None, float_arithmetic=["first"])
    precision = read_precision_file(path).precision_of(graph)
    assert [precision.sums_of(name) for name in ("first", "big", "y")] == ["float", "float", "runs"]
    plan = lower(graph, Config(float16=2, precision=precision), WIDE)
    in_half = {launch.name for launch in plan.launches if "HALF_SUMS 1" in launch.source.text}
    assert not in_half and any(re.search("HALF_QUADS [1-9]", launch.source.text) for launch in plan.launches)
    one = write(tmp_path / "one.json", version=1, short_runs=None, small_weights=None)
    assert read_precision_file(one).precision_of(graph) == Precision(frozenset({"big"}))


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"format": "another"}, "is not a precision file"),
        ({"version": 3}, "version 3"), ({"version": 1.0}, "version 1.0"), ({"version": True}, "version True"),
        ({"model": "0" * 64}, "another model"),
        ({"model": None}, "corrupt: model is None"),
        ({"float16": 3}, "float16 is 3"),
        ({"error": "small"}, "error is 'small'"),
        ({"float_storage": "big"}, "float_storage is not a list"),
        ({"float_arithmetic": [1]}, "float_arithmetic is not a list"),
        ({"short_runs": None}, "short_runs is not a list"),
        ({"small_weights": 1}, "small_weights is 1"),
        ({"short_runs": ["nobody"]}, "'nobody'"),
        ({"float_storage": ["nobody"]}, "'nobody'"),
    ],
)
def test_foreign_and_damaged_files(tmp_path: Path, device: DeviceInfo, changes: dict[str, Any], part: str) -> None:
    path = write(tmp_path / "p.json", **changes)
    with pytest.raises(ConfigError, match=part) as caught:
        imgconv.load(overflow_model(), device, precision=path)
    assert str(path) in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path, device: DeviceInfo) -> None:
    path = write(tmp_path / "p.json")
    path.write_text(path.read_text()[:-20])
    with pytest.raises(ConfigError, match="corrupt"):
        imgconv.load(overflow_model(), device, precision=path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="corrupt"):
        imgconv.load(overflow_model(), device, precision=path)
    with pytest.raises(ConfigError, match="cannot read"):
        imgconv.load(overflow_model(), device, precision=tmp_path / "none.json")
    with pytest.raises(ConfigError, match="float16=1, not for float16=0"):
        imgconv.load(overflow_model(), device, precision=write(path), float16=0)


def test_other_weights_are_another_model() -> None:
    """One weight, or one operation, changes the fingerprint; the size of the input does not."""
    same, other = overflow_model(), overflow_model()
    weights = onnx.numpy_helper.to_array(other.graph.initializer[0]).copy()
    weights[0, 0, 0, 0] += 1
    other.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(weights, other.graph.initializer[0].name))
    larger = overflow_model()
    larger.graph.input[0].type.tensor_type.shape.dim[2].dim_value = 20
    activated = overflow_model()
    activated.graph.node.append(onnx.helper.make_node("Relu", ["y"], ["z"]))
    activated.graph.output[0].name = "z"
    prints = [fingerprint(graph_of(each)) for each in (overflow_model(), same, other, larger, activated)]
    assert prints[0] == prints[1] == prints[3] and len(set(prints)) == 3
