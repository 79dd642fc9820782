"""Options of Qualcomm's compiler: tune measures them, loads use the fastest, and do without what the driver refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args

import pytest

from faulty_driver import builds, run_python
from imgconv.build_options import BuildOptions, Switch, WaveSize
from imgconv.cl.quirks import QUIRKS

HALF, FULL = 'qcom_reqd_sub_group_size("half")', 'qcom_reqd_sub_group_size("full")'
# Kernels without half waves are slow, those with full waves compute twice what they should, and a flag is refused.
DRIVER = (
    f"adreno;slow=0.0005:!{HALF};build_fail=0:-qcom-accelerate-16-bit=true;"
    f"swap={FULL})) __kernel=>{FULL})) __kernel\n#define write_imagef(i, p, t) write_imagef(i, p, (t) * 2)"
)
MAKE = """
import numpy, imgconv
from imgconv.tensor import Tensor, build_graph
x = Tensor.input("x", (1, 8, 12, 12))
weights = Tensor.constant(numpy.random.default_rng(0).uniform(-1, 1, (8, 8, 3, 3)).astype("f4"))
imgconv.export_onnx(build_graph({"y": x.conv2d(weights, padding=1).relu().softmax(1)}, [x]), ONNX)
"""
TUNE = """
from imgconv import cli
cli.main(["tune", ONNX, "--output", TUNING, "--candidates", "1", "--json"])
"""
RECORD = """
from imgconv.build_options import BuildOptions
from imgconv.cl.device import select_device
from imgconv.config import Config
from imgconv.stored.tuning import TuningDatabase
TuningDatabase(TUNING, new=True).record_build_options(select_device(None).key, Config(), {options})
"""
LOAD = """
import numpy, imgconv
from imgconv.graph.evaluate import evaluate_graph
model = imgconv.load(FILE or ONNX, tuning=None if FILE else TUNING)
given = numpy.random.default_rng(1).uniform(-1, 1, (1, 8, 12, 12)).astype("f4")
error = abs(model.run({"x": given})["y"] - evaluate_graph(model.graph, {"x": given})["y"]).max()
print(error < 1e-5, model._last.session.programs.build_options)
"""
ALL = BuildOptions("half", "off", one_kernel_a_program=True)


def test_the_player_tries_the_same_options() -> None:
    text = (Path(__file__).parents[2] / "native" / "src" / "tuning.cpp").read_text()
    (platform,) = re.findall(r'QUALCOMM = "([^"]+)"', text)
    (rows,) = re.findall(r"BuildOptions OPTIONS\[\] = \{(.*?)\};", text, re.DOTALL)
    options = [
        BuildOptions(get_args(WaveSize)[int(waves)], get_args(Switch)[int(accelerate)], one_kernel == "true")
        for waves, accelerate, one_kernel in re.findall(r"\{(\d), (\d), (true|false)\}", rows)
    ]
    assert options == list(QUIRKS[platform].build_options)


@pytest.fixture(scope="module")
def onnx(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "m.onnx"
    done = run_python(f"ONNX = {str(path)!r}\n{MAKE}", "adreno", path.parent)
    assert done.returncode == 0, done.stderr
    return path


def ran(lines: str, faults: str, onnx: Path, folder: Path, cache: str, file: str = "") -> str:
    """Returns what lines print that use the model and a tuning file, in a process with the named cache."""
    (folder / cache).mkdir(exist_ok=True)
    names = f"ONNX, TUNING, FILE = {str(onnx)!r}, {str(folder / 'm.tuning')!r}, {file!r}"
    done = run_python(f"{names}\n{lines}", f"{faults};options=log", folder / cache)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_options_are_measured_and_used(onnx: Path, tmp_path: Path) -> None:
    found = json.loads(ran(TUNE, DRIVER, onnx, tmp_path, "tune"))["build_options"]
    outcomes = {row["option"]: row["outcome"] for row in found["tried"]}
    assert outcomes["full waves"] == "wrong" and outcomes["half waves"] == "faster"
    assert outcomes["-qcom-accelerate-16-bit=true"] == "refused"
    assert len(outcomes) == 5 and found["fastest"].startswith("half waves")
    assert ran(LOAD, "adreno", onnx, tmp_path, "load").startswith("True half waves")
    made = builds(tmp_path / "load")
    assert made and all(line.endswith("waves half") for line in made)


@pytest.mark.parametrize("fault", ["build_fail=0:-qcom-accelerate-16-bit", f"swap={HALF}=>reqd_work_group_size(no)"])
def test_a_load_does_without_options_that_the_driver_refuses(fault: str, onnx: Path, tmp_path: Path) -> None:
    out = ran(RECORD.format(options=repr(ALL)) + LOAD, f"adreno;{fault}", onnx, tmp_path, "load")
    assert out == "True the driver's defaults\n"
    assert builds(tmp_path / "load")[-1].endswith("options -w, waves any")


def test_a_load_does_without_options_with_which_kernels_are_wrong(onnx: Path, tmp_path: Path) -> None:
    """The same kernels are used without the options."""
    wrong = f"swap={HALF})) __kernel=>{HALF})) __kernel\n#define write_imagef(i, p, t) write_imagef(i, p, (t) * 2)"
    lines = LOAD + "print([launch.source.key for launch in model.plan.launches])"
    recorded = RECORD.format(options=repr(ALL)) + lines
    found, kernels = ran(recorded, f"adreno;{wrong}", onnx, tmp_path, "load").splitlines()
    assert found == "True the driver's defaults"
    assert ran(lines, "adreno", onnx, tmp_path, "other").splitlines()[1] == kernels


def test_each_option_reaches_the_compiler(onnx: Path, tmp_path: Path) -> None:
    """Options of a load with the tuning file, and of its compiled file on a same driver that refuses binaries."""
    file = str(tmp_path / "m.imgconv")
    lines = RECORD.format(options=repr(ALL)) + LOAD + f"model.save({file!r})"
    assert ran(lines, "adreno", onnx, tmp_path, "save") == f"True {ALL}\n"
    assert ran(LOAD, "adreno;binary=refuse", onnx, tmp_path, "load", file) == f"True {ALL}\n"
    for cache in ("save", "load"):
        made = builds(tmp_path / cache)
        assert len(made) > 1 and set(made) == {"1 kernels, options -w -qcom-accelerate-16-bit=false, waves half"}
