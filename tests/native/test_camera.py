"""The programs of examples/ for a camera's frames: their boxes are Python's."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy
import pytest
from camera_frames import Frames, pictures
from published import REAL, needs_models
from support import HANG_TIMEOUT

import imgconv
from imgconv.cl.device import DeviceInfo
from imgconv.preprocess import Preparation
from imgconv.tasks import Description, PicturePlacement, find_task

ROOT = Path(__file__).parent.parent.parent
MOST_LINES = 60
# The programs print so many digits, and round the exponential function in another way.
SCORE, PIXELS = 1e-4, 0.02


@pytest.fixture(scope="module")
def camera(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of C++, built without a warning."""
    made = tmp_path_factory.mktemp("camera") / "camera"
    strict = "-std=c++17", "-O2", "-Wall", "-Wextra", "-Werror"
    command = ["c++", *strict, "-I", ROOT / "native" / "include", ROOT / "examples" / "camera.cpp", "-o", made]
    subprocess.run([*command, built / "libimgconv.so", f"-Wl,-rpath,{built}"], check=True)
    return made


def test_the_program_of_cpp_is_short(camera: Path) -> None:
    lines = (ROOT / "examples" / "camera.cpp").read_text().splitlines()
    assert len(lines) <= MOST_LINES and max(map(len, lines)) <= 120
    assert b"MODEL FRAMES WIDTH" in subprocess.run([camera], capture_output=True).stdout


def boxes(model: imgconv.Model, frames: Frames) -> Any:
    """Python's: frame, class, score and corners of each box."""
    task = find_task({"output": ("float32", (1, 3549, 85))}, (416, 416), Description(task="detect"))
    assert task
    size = frames.height, frames.width  # upright
    place = PicturePlacement.of(size, (416, 416), Preparation(**task.description.preparation))
    rows = []
    for number in range(len(frames.memory)):
        outputs = model.run({"picture": frames.upright(number)})
        (found,) = task.decode(outputs, place).values()
        rows += [(number, each.label.index, each.label.score, *each.box) for each in found.found]  # type: ignore[union-attr]
    return numpy.array(rows)


@pytest.mark.models
@needs_models
@pytest.mark.parametrize("language", ["C++", "Java"])
def test_the_boxes_of_python(
    device: DeviceInfo, environment: dict[str, str], built: Path, camera: Path, tmp_path: Path, language: str
) -> None:
    program = [str(camera)]
    if language == "Java":
        if "JNI:BOOL=ON" not in (built / "CMakeCache.txt").read_text() or shutil.which("javac") is None:
            pytest.skip("no JDK is installed: install openjdk-17-jdk-headless")
        sources = ROOT / "native" / "java" / "imgconv" / "Model.java", ROOT / "examples" / "Camera.java"
        subprocess.run(["javac", "-d", tmp_path, *sources], check=True)
        program = ["java", "-cp", str(tmp_path), f"-Djava.library.path={built}", "Camera"]
    folder = REAL / "yolox_nano"
    frames = pictures(folder)
    frames.memory.tofile(tmp_path / "frames")
    loaded = imgconv.load(folder / "yolox_nano.onnx", device=device)
    model = loaded.preprocess((frames.width, frames.height), "nv12", "letterbox", "bilinear", "bgr")
    model.save(tmp_path / "m")
    words = [tmp_path / "m", tmp_path / "frames", *frames.words, device.index]
    done = subprocess.run(
        [*program, *map(str, words)], env=environment, capture_output=True, text=True, timeout=HANG_TIMEOUT
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = numpy.array([list(map(float, line.split())) for line in done.stdout.splitlines()])
    expected = boxes(model, frames)
    assert len(expected) > len(frames.memory)
    numpy.testing.assert_array_equal(found[:, :2], expected[:, :2])
    numpy.testing.assert_allclose(found[:, 2], expected[:, 2], rtol=0, atol=SCORE)
    inside = found[:, 3:].clip(0, [frames.height, frames.width] * 2)
    numpy.testing.assert_allclose(inside, expected[:, 3:], rtol=0, atol=PIXELS)
