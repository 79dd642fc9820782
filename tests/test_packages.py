"""Installed packages: those that each task needs, and the messages about missing ones."""

from __future__ import annotations

import ast
import configparser
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import numpy
import pytest
from command_line import write_convolution, write_picture
from support import HANG_TIMEOUT

import imgconv
from imgconv import errors
from imgconv.cl.device import DeviceInfo
from imgconv.version import VERSION

ROOT = Path(__file__).parent.parent
BASE = ("numpy", "pillow", "pyopencl", "flatbuffers", "platformdirs", "rich")
HIDDEN = "onnx google onnxruntime scipy safetensors hypothesis av ray shtab"
HIDE = """
import importlib.abc, sys
class Hidden(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}.split():
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hidden())
"""


def run_without(names: str, code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs Python in the folder, where packages of these names cannot be imported."""
    text = HIDE.format(names=names) + code
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-c", text], cwd=folder, env=variables, capture_output=True, text=True, timeout=HANG_TIMEOUT
    )


def command(*words: object) -> str:
    return f"from imgconv.cli import main\nsys.exit(main({[str(word) for word in words]!r}))"


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: DeviceInfo) -> Path:
    """A folder with conv.onnx, the same model compiled, and a picture."""
    monkeypatch.chdir(tmp_path)
    write_convolution()
    write_picture("a.png", (10, 20, 30), (10, 8))
    imgconv.load("conv.onnx", device, shapes={"h": 8}).save("conv.imgconv")
    return tmp_path


def test_a_compiled_file_runs_with_numpy_and_pyopencl_alone(compiled: Path, device: DeviceInfo) -> None:
    code = f"""
import imgconv, numpy
model = imgconv.load("conv.imgconv", {device.index})
numpy.save("y.npy", model(numpy.full((1, 3, 8, 10), 2, numpy.float32)))
"""
    done = run_without(f"{HIDDEN} PIL rich flatbuffers", code, compiled)
    assert done.returncode == 0, done.stderr
    inside = numpy.load(compiled / "y.npy")
    assert inside.shape == (1, 4, 6, 8) and (inside == 2 * 3 * 9).all()


def test_commands_on_a_compiled_file_need_the_base_package_alone(compiled: Path, device: DeviceInfo) -> None:
    chosen = ["--device", str(device.index)]
    lines = [["run", "conv.imgconv", "a.png", *chosen], ["inspect", "conv.imgconv", *chosen],
             ["profile", "conv.imgconv", *chosen], ["devices"]]
    code = f"""
from imgconv.cli import main
from imgconv.reports import peaks
peaks.MEASURED_SECONDS = 0
for words in {lines!r}:
    assert main(words) == 0, words
    print("the end")
"""
    done = run_without(HIDDEN, code, compiled)
    assert done.returncode == 0, done.stderr
    printed = done.stdout.split("the end\n")
    assert len(printed) == len(lines) + 1 and all(printed[:-1])


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (("run", "conv.onnx", "a.png"), "onnx"), (("inspect", "conv.onnx"), "onnx"), (("tune", "conv.onnx"), "onnx"),
        (("profile", "conv.onnx"), "onnx"), (("compile", "conv.onnx"), "onnx"), (("verify", "conv.onnx"), "verify"),
    ],
)
def test_what_is_missing_is_named_with_its_pip_line(tmp_path: Path, words: tuple[str, ...], extra: str) -> None:
    (tmp_path / "conv.onnx").write_bytes(b"\x08\x08")
    write_picture(str(tmp_path / "a.png"), (10, 20, 30))
    done = run_without(HIDDEN, command(*words), tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("imgconv: ") and len(done.stderr.splitlines()) == 1
    assert f"pip install 'imgconv[{extra}]'" in done.stderr


def test_the_python_interface_names_what_is_missing(tmp_path: Path) -> None:
    code = """
import imgconv
for call in (lambda: imgconv.load("a.onnx", shapes={}).run({}), lambda: imgconv.export_onnx):
    try:
        call()
    except imgconv.MissingPackageError as error:
        assert isinstance(error, ImportError)
        print(error.package)
"""
    (tmp_path / "a.onnx").write_bytes(b"\x08\x08")
    done = run_without(HIDDEN, code, tmp_path)
    assert done.stdout.split() == ["onnx", "onnx"], done.stderr


def test_a_strict_type_checker_sees_the_types_from_outside(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    venv.create(tmp_path / "venv", with_pip=False)
    site = next((tmp_path / "venv").glob("lib/python3*/site-packages"))
    (site / "paths.pth").write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n")
    (tmp_path / "use.py").write_text('''
import numpy
import imgconv
from imgconv.tensor import Tensor, build_graph

x = Tensor.input("x", (1, 3))
model = imgconv.load(build_graph({"y": 1 - x.relu() * 2}), float16=1)
array = numpy.zeros((1, 3), numpy.float32)
reveal_type(model(array))
reveal_type(model.run({"x": array})["y"])
reveal_type(model.submit({"x": array}, outputs={"y": array}).result()["y"])
model.run([array])
''')
    line = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--python-executable"]
    done = subprocess.run(
        [*line, tmp_path / "venv" / "bin" / "python", "use.py"], cwd=tmp_path, capture_output=True, text=True
    )
    said = done.stdout.splitlines()
    assert len([each for each in said if "Revealed type" in each and "numpy.ndarray" in each]) == 3, done.stdout
    assert [each.split()[0] for each in said if "error:" in each] == ["use.py:12:"], done.stdout


def setup() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg")
    return parser


def packages(lines: str) -> set[str]:
    """The names of a list of requirements."""
    found = (line.partition("#")[0].strip() for line in lines.splitlines())
    return {line.split(";")[0].split("[")[0].split(">")[0].strip() for line in found if line}


def test_the_base_package_needs_little() -> None:
    assert packages(setup()["options"]["install_requires"]) == set(BASE)


def test_messages_name_extras_that_have_the_package() -> None:
    extras = {name: packages(lines) for name, lines in setup()["options.extras_require"].items()}
    named = []
    for path in [*(ROOT / "imgconv").rglob("*.py"), *(ROOT / "examples").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("MissingPackageError"):
                named.append([each.value for each in node.args[:2] if isinstance(each, ast.Constant)])
    assert ["onnx", "onnx"] in named
    for package, extra in named:
        assert package in extras[str(extra)], (package, extra)


def test_every_error_is_exported() -> None:
    defined = {name for name, each in vars(errors).items() if isinstance(each, type) and issubclass(each, Exception)}
    assert defined <= set(imgconv.__all__)
    assert all(name in (errors.__doc__ or "") for name in defined)


def test_the_newest_entry_of_the_changelog_is_this_version() -> None:
    headings = [line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if line.startswith("## ")]
    assert headings[0].split()[1] == VERSION
