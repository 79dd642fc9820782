"""The tool that checks folders of models: a line for each, with what could not be checked."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import onnx
from faulty_driver import ROOT
from onnx.helper import make_node, make_opsetid, make_tensor_value_info

from imgconv.cl.device import DeviceInfo


def save(path: Path, *shape: int | str) -> None:
    x, y = (make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name in "xy")
    graph = onnx.helper.make_graph([make_node("Softmax", ["x"], ["y"])], "g", [x], [y])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[make_opsetid("", 17)], ir_version=8), path)


def test_a_folder(device: DeviceInfo, tmp_path: Path) -> None:
    save(tmp_path / "fixed.onnx", 3, 5)
    save(tmp_path / "open.onnx", "n", "m")
    save(tmp_path / "unknown.onnx", "n", "m")
    (tmp_path / "shapes.json").write_text(json.dumps({"open.onnx": ["x=3,5"]}))
    command = [sys.executable, "-m", "tests.tools.check_models", str(tmp_path), "--json", "--device", str(device.index)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    rows = {row["model"]: row for row in map(json.loads, done.stdout.splitlines())}
    assert done.returncode == 0 and list(rows) == ["fixed", "open", "unknown"], done.stderr
    for name in ("fixed", "open"):
        assert 0 < rows[name]["launches"] == rows[name]["right"] and rows[name]["load"] > 0, rows[name]
    assert rows["unknown"]["launches"] == 0 and "size" in rows["unknown"]["error"], rows["unknown"]
