"""The guide's program for an app, built with the installed packages; and what these have for other kinds of build."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy
import pytest
from graphs import const

import imgconv
from imgconv.tensor import Tensor, build_graph

ROOT = Path(__file__).parent.parent.parent
PROJECT = """\
cmake_minimum_required(VERSION 3.16)
project(app CXX)
add_executable(app app.cpp)
"""


Run = Callable[..., str]


@pytest.fixture
def run(environment: dict[str, str], tmp_path: Path) -> Run:
    """Runs a command in a folder that has the guide's program and a project for it; gives what the command prints."""
    guide = (ROOT / "docs" / "native.md").read_text()
    (program,) = re.findall(r"```cpp\n(.*?)```", guide, re.DOTALL)
    (linked,) = re.findall(r"In CMake:\n\n(.*?)\n\n", guide, re.DOTALL)
    (tmp_path / "app.cpp").write_text(program)
    (tmp_path / "CMakeLists.txt").write_text(PROJECT + linked + "\n")
    x = Tensor.input("x", (1, 3, 9, 7))
    outputs = {"y": x.conv2d(const(6, 3, 3, 3)), "constant": Tensor.constant(numpy.zeros((40, 50)))}
    imgconv.load(build_graph(outputs, [x])).save(tmp_path / "model.imgconv")

    def run(*command: object, **changed: str) -> str:
        words = list(map(str, command))
        done = subprocess.run(words, cwd=tmp_path, env={**environment, **changed}, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_the_guide(built: Path, run: Run, tmp_path: Path) -> None:
    """By find_package. The program prints errors only."""
    run("cmake", "--install", built, "--prefix", "installed")
    run("cmake", "-S", ".", "-B", "build", f"-DCMAKE_PREFIX_PATH={tmp_path / 'installed'}")
    run("cmake", "--build", "build")
    assert run("build/app") == ""


def test_pkg_config(built: Path, run: Run, environment: dict[str, str], tmp_path: Path) -> None:
    if shutil.which("pkg-config") is None:
        pytest.skip("pkg-config is not installed")
    run("cmake", "--install", built, "--prefix", "installed")
    folder = tmp_path / "installed" / "lib"
    flags = run("pkg-config", "--cflags", "--libs", "imgconv", PKG_CONFIG_PATH=str(folder / "pkgconfig")).split()
    run("c++", "-o", "app", "app.cpp", *flags)
    assert run("./app", LD_LIBRARY_PATH=f"{folder}:{environment['LD_LIBRARY_PATH']}") == ""


def test_a_static_library_brings_its_threads(run: Run, tmp_path: Path) -> None:
    """Empty files stand for what is built: another project's configuration finds them, and what they need."""
    (tmp_path / "static").mkdir()
    run("cmake", "-S", ROOT / "native", "-B", "static", "-DBUILD_SHARED_LIBS=OFF", "-DCMAKE_SKIP_RPATH=ON")
    for name in ("libimgconv.a", "imgconv-run"):
        (tmp_path / "static" / name).touch()
    run("cmake", "--install", "static", "--prefix", "installed")
    run("cmake", "-S", ".", "-B", "build", f"-DCMAKE_PREFIX_PATH={tmp_path / 'installed'}")


def test_a_part_of_another_project(run: Run, tmp_path: Path) -> None:
    """By add_subdirectory; the target's name is the same."""
    project = (tmp_path / "CMakeLists.txt").read_text()
    found = "find_package(imgconv REQUIRED)"
    assert found in project
    added = f'add_subdirectory("{ROOT / "native"}" imgconv)'
    (tmp_path / "CMakeLists.txt").write_text(project.replace(found, added))
    run("cmake", "-S", ".", "-B", "build")


def test_android_has_pages_of_16_kb(run: Run, tmp_path: Path) -> None:
    """Checks the command that would link the library; on Android the JNI header is the NDK's."""
    run("cmake", "-S", ROOT / "native", "-B", "build", "-G", "Unix Makefiles", "-DANDROID=ON")
    linked = tmp_path / "build" / "CMakeFiles" / "imgconv.dir" / "link.txt"
    assert "-Wl,-z,max-page-size=16384" in linked.read_text()


def test_linux_on_64_bit_arm(run: Run, tmp_path: Path) -> None:
    """The guide's first command; its headers are Debian's here, apart from others that hide those of the compiler."""
    compiler = shutil.which("aarch64-linux-gnu-g++")
    if compiler is None:
        pytest.skip("the cross compiler is not installed: install g++-aarch64-linux-gnu")
    guide = (ROOT / "docs" / "native.md").read_text()
    (command,) = re.findall(r"    (cmake [^\n]*aarch64 \\\n.*?)\n    cmake", guide, re.DOTALL)
    (tmp_path / "native").symlink_to(ROOT / "native")
    for folder, headers in (("OpenCL-Headers", "CL"), ("flatbuffers/include", "flatbuffers")):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / headers).symlink_to(Path("/usr/include", headers))
    run("sh", "-ec", command)
    cache = (tmp_path / "build" / "arm64" / "CMakeCache.txt").read_text()
    assert f"={compiler}\n" in cache and f"OPENCL_INCLUDE:PATH={tmp_path}/OpenCL-Headers\n" in cache


def test_the_header_is_of_c(built: Path, run: Run, tmp_path: Path) -> None:
    (tmp_path / "app.c").write_text("#include <imgconv.h>\nint main(void) { imgconv_close(0); return 0; }\n")
    strict = "-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror"
    run("cc", *strict, "-I", ROOT / "native" / "include", "-o", "app", "app.c", built / "libimgconv.so")


def test_lines_are_120_wide() -> None:
    kinds = {".cpp", ".h", ".java", ".rs", ".txt"}
    files = (ROOT / "native").rglob("*")
    sources = [path for path in files if path.suffix in kinds and path.parent.name != "generated"]
    assert len(sources) > 50
    for path in sources:
        wide = [number for number, line in enumerate(path.read_text().splitlines(), 1) if len(line) > 120]
        assert not wide, (path, wide)
