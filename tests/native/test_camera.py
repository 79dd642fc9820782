"""The programs for a camera's frames, of examples/ and of the Rust crate: they print the boxes that Python finds."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from camera_frames import Frames, check_printed, expected_boxes, noise, pictures, small_detector, yolox
from published import REAL, needs_models
from support import HANG_TIMEOUT

import imgconv
from imgconv.cl.device import DeviceInfo
from imgconv.tensor import Tensor, build_graph

ROOT = Path(__file__).parent.parent.parent
MOST_LINES = 60
Command = list[str]


def in_cpp(request: pytest.FixtureRequest, built: Path, folder: Path) -> Command:
    """Builds the program without a warning."""
    strict = "-std=c++17", "-Wall", "-Wextra", "-Werror"
    source = ROOT / "examples" / "camera.cpp"
    command = ["c++", *strict, "-I", ROOT / "native" / "include", source, "-o", folder / "camera"]
    subprocess.run([*command, built / "libimgconv.so", f"-Wl,-rpath,{built}"], check=True)
    return [str(folder / "camera")]


def in_java(request: pytest.FixtureRequest, built: Path, folder: Path) -> Command:
    if "JNI:BOOL=ON" not in (built / "CMakeCache.txt").read_text() or shutil.which("javac") is None:
        pytest.skip("no JDK is installed: install openjdk-17-jdk-headless")
    sources = ROOT / "native" / "java" / "imgconv" / "Model.java", ROOT / "examples" / "Camera.java"
    subprocess.run(["javac", "-d", folder, *sources], check=True)
    return ["java", "-cp", str(folder), f"-Djava.library.path={built}", "Camera"]


def in_rust(request: pytest.FixtureRequest, built: Path, folder: Path) -> Command:
    return [str(request.getfixturevalue("rust_examples") / "camera")]


@pytest.fixture(scope="module", params=[in_cpp, in_java, in_rust], ids=["C++", "Java", "Rust"])
def camera(request: pytest.FixtureRequest, built: Path, tmp_path_factory: pytest.TempPathFactory) -> Command:
    """The program in a language."""
    return request.param(request, built, tmp_path_factory.mktemp("camera"))  # type: ignore[no-any-return]


def run(
    camera: Command, model: imgconv.Model, frames: Frames, device: DeviceInfo, environment: dict[str, str], folder: Path
) -> subprocess.CompletedProcess[str]:
    frames.memory.tofile(folder / "frames")
    model.save(folder / "m")
    words = [folder / "m", folder / "frames", *frames.words, device.index]
    return subprocess.run(
        [*camera, *map(str, words)], env=environment, capture_output=True, text=True, timeout=HANG_TIMEOUT
    )


def check_boxes(
    camera: Command, model: imgconv.Model, frames: Frames, device: DeviceInfo, environment: dict[str, str], folder: Path
) -> None:
    done = run(camera, model, frames, device, environment, folder)
    assert done.returncode == 0, done.stderr
    check_printed(done.stdout, expected_boxes(model, frames))


def test_the_program_of_cpp_is_short() -> None:
    lines = (ROOT / "examples" / "camera.cpp").read_text().splitlines()
    assert len(lines) <= MOST_LINES and max(map(len, lines)) <= 120


def test_the_boxes_of_python(
    device: DeviceInfo, environment: dict[str, str], camera: Command, tmp_path: Path
) -> None:
    check_boxes(camera, small_detector(device), noise(), device, environment, tmp_path)


def test_a_model_without_boxes_and_no_arguments(
    device: DeviceInfo, environment: dict[str, str], camera: Command, tmp_path: Path
) -> None:
    model = imgconv.load(build_graph({"y": Tensor.input("x", (4,)) * 2}), device=device)
    done = run(camera, model, noise(), device, environment, tmp_path)
    assert (done.returncode, done.stdout) == (1, "") and "compile it with --task detect --head" in done.stderr
    done = subprocess.run(camera, env=environment, capture_output=True, text=True, timeout=HANG_TIMEOUT)
    assert (done.returncode, done.stdout) == (1, "") and "MODEL FRAMES WIDTH HEIGHT ROW_STRIDE [DEVICE]" in done.stderr


@pytest.mark.models
@needs_models
def test_the_boxes_in_pictures(
    device: DeviceInfo, environment: dict[str, str], camera: Command, tmp_path: Path
) -> None:
    folder = REAL / "yolox_nano"
    check_boxes(camera, yolox(folder, device), pictures(folder), device, environment, tmp_path)
