"""Builds the player once, and runs it in processes of its own, with the drivers that Python finds."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy
import pytest
from support import HANG_TIMEOUT

from examples.player import loader_variables

ROOT = Path(__file__).parent.parent.parent
HEADERS = ("CL/cl.h", "flatbuffers/flatbuffers.h")
FOLDERS = ("/usr/include", "/usr/local/include")
# Of the JDK whose compiler is found.
JNI = Path(os.path.realpath(shutil.which("javac") or "/")).parent.parent / "include" / "jni.h"

Play = Callable[..., dict[str, numpy.ndarray]]


@pytest.fixture(scope="session")
def built() -> Iterator[Path]:
    """The folder of the build. Processes of one test run take turns."""
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    missing = [header for header in HEADERS if not any(Path(folder, header).exists() for folder in FOLDERS)]
    if not (shutil.which("cmake") and compiler) or missing:
        needed = ", ".join([*missing, *(name for name in ("cmake", "c++") if not shutil.which(name))])
        pytest.skip(f"the player is not built without {needed}: install cmake g++ opencl-c-headers libflatbuffers-dev")
    folder = ROOT / "build" / "native"
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        java = f"-DJNI={'ON' if JNI.exists() else 'OFF'}", f"-DJNI_INCLUDE={JNI.parent}"
        configure = ["cmake", "-S", ROOT / "native", "-B", folder, *java]
        for command in configure, ["cmake", "--build", folder, "--parallel", "2"]:
            done = subprocess.run(command, capture_output=True, text=True)
            assert done.returncode == 0, done.stdout + done.stderr
    yield folder


@pytest.fixture(scope="session")
def rust_examples(built: Path) -> Path:
    """The folder of the Rust crate's compiled examples."""
    if shutil.which("cargo") is None:
        pytest.skip("no cargo is installed: install cargo")
    made = ROOT / "build" / "rust"
    variables = {**os.environ, "IMGCONV_LIBRARY_DIR": str(built), "RUSTFLAGS": "-D warnings"}
    command = ["cargo", "build", "--offline", "--quiet", "--examples", "--target-dir", made]
    done = subprocess.run(command, cwd=ROOT / "native" / "rust", env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return made / "debug" / "examples"


@pytest.fixture(scope="session")
def environment(built: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables with which a process finds the player, and the OpenCL library and drivers that Python uses."""
    variables = loader_variables(tmp_path_factory.mktemp("opencl"))
    return variables | {"IMGCONV_LIBRARY": str(built / "libimgconv.so")}


@pytest.fixture
def play(environment: dict[str, str], tmp_path: Path) -> Play:
    """Runs lines of Python with `Player` of player.py; gives the arrays that they put into `results`."""

    def run(lines: str, given: dict[str, numpy.ndarray] | None = None, **changed: str) -> dict[str, numpy.ndarray]:
        numpy.savez(tmp_path / "given.npz", **(given or {}))
        begin = "import numpy, sys\nfrom player import *\ngiven, results = dict(numpy.load('given.npz')), {}\n"
        script = begin + textwrap.dedent(lines) + "\nnumpy.savez('results.npz', **results)\n"
        variables = {**environment, **changed, "PYTHONPATH": str(Path(__file__).parent)}
        done = subprocess.run(
            [sys.executable, "-c", script], cwd=tmp_path, env=variables, capture_output=True, text=True,
            timeout=HANG_TIMEOUT,
        )
        assert done.returncode == 0, f"status {done.returncode}\n{done.stdout}{done.stderr}"
        with numpy.load(tmp_path / "results.npz") as found:
            return dict(found)

    return run
