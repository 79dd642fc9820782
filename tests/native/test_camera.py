"""The programs of examples/ for a camera's frames: their boxes are Python's."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy
import pytest
from PIL import Image
from published import REAL, needs_models
from support import HANG_TIMEOUT

import imgconv
from imgconv import Plane, VideoFrame
from imgconv.cl.device import DeviceInfo
from imgconv.pictures.frames import frame_of
from imgconv.preprocess import Preparation
from imgconv.tasks import Description, PicturePlacement, find_task

ROOT = Path(__file__).parent.parent.parent
WIDTH, HEIGHT, PITCH = 640, 480, 704  # of a frame in memory; upright it is 480 x 640
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


def frames_of(names: list[Path]) -> Any:
    """NV12 frames of pictures, on their side, with noise between the rows: (frames, rows, PITCH)."""
    memory = numpy.random.default_rng(0).integers(0, 256, (len(names), HEIGHT * 3 // 2, PITCH), numpy.uint8)
    for made, name in zip(memory, names, strict=True):
        array = frame_of(Image.open(name).convert("RGB"), (HEIGHT, WIDTH), Preparation(format="nv12"))
        made[:HEIGHT, :WIDTH] = numpy.rot90(array[:WIDTH])
        made[HEIGHT:, :WIDTH] = numpy.rot90(array[WIDTH:].reshape(WIDTH // 2, HEIGHT // 2, 2)).reshape(-1, WIDTH)
    return memory


def boxes(model: imgconv.Model, memory: Any) -> Any:
    """Python's: frame, class, score and corners of each box."""
    task = find_task({"output": ("float32", (1, 3549, 85))}, (416, 416), Description(task="detect"))
    assert task
    place = PicturePlacement.of((HEIGHT, WIDTH), (416, 416), Preparation(**task.description.preparation))
    rows = []
    for number, frame in enumerate(memory):
        planes = [Plane(frame, PITCH), Plane(frame, PITCH, offset=PITCH * HEIGHT)]
        outputs = model.run({"picture": VideoFrame(planes, WIDTH, HEIGHT, rotation=90)})
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
    memory = frames_of(sorted(folder.glob("*.jpg")))
    memory.tofile(tmp_path / "frames")
    how = {"resize": "letterbox", "filter": "bilinear", "order": "bgr"}
    model = imgconv.load(folder / "yolox_nano.onnx", device=device).preprocess((WIDTH, HEIGHT), "nv12", **how)  # type: ignore[arg-type]
    model.save(tmp_path / "m")
    words = [tmp_path / "m", tmp_path / "frames", WIDTH, HEIGHT, PITCH, device.index]
    done = subprocess.run(
        [*program, *map(str, words)], env=environment, capture_output=True, text=True, timeout=HANG_TIMEOUT
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = numpy.array([list(map(float, line.split())) for line in done.stdout.splitlines()])
    expected = boxes(model, memory)
    assert len(expected) > len(memory)
    numpy.testing.assert_array_equal(found[:, :2], expected[:, :2])
    numpy.testing.assert_allclose(found[:, 2], expected[:, 2], rtol=0, atol=SCORE)
    inside = found[:, 3:].clip(0, [HEIGHT, WIDTH, HEIGHT, WIDTH])
    numpy.testing.assert_allclose(inside, expected[:, 3:], rtol=0, atol=PIXELS)
