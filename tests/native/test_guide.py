"""The guide's program for an app: it is built with the installed package, and runs a model."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from graphs import const

import imgconv
from imgconv.tensor import Tensor, build_graph

ROOT = Path(__file__).parent.parent.parent
PROJECT = """\
cmake_minimum_required(VERSION 3.16)
project(app CXX)
add_executable(app app.cpp)
"""


def test_the_guide(built: Path, environment: dict[str, str], tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "native.md").read_text()
    (program,) = re.findall(r"```cpp\n(.*?)```", guide, re.DOTALL)
    (linked,) = re.findall(r"In CMake:\n\n(.*?)\n\n", guide, re.DOTALL)
    (tmp_path / "app.cpp").write_text(program)
    (tmp_path / "CMakeLists.txt").write_text(PROJECT + linked + "\n")
    x = Tensor.input("x", (1, 3, 9, 7))
    imgconv.load(build_graph({"y": x.conv2d(const(6, 3, 3, 3))}, [x])).save(tmp_path / "model.imgconv")

    def run(*command: object, **changed: str) -> subprocess.CompletedProcess[str]:
        words = list(map(str, command))
        done = subprocess.run(words, cwd=tmp_path, env={**environment, **changed}, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    run("cmake", "--install", built, "--prefix", "installed")
    run("cmake", "-S", ".", "-B", "build", f"-DCMAKE_PREFIX_PATH={tmp_path / 'installed'}")
    run("cmake", "--build", "build")
    done = run("build/app")
    assert done.stdout == "", done.stdout  # it prints errors only
