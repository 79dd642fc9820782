"""The Java class over JNI: the same bits as Python, errors as exceptions."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import faulty_driver
import numpy
import pytest
from device.picture_reference import passing
from device.video_frames import drawn, picture_of
from graphs import assert_near, const, numbers
from support import HANG_TIMEOUT

import imgconv
from imgconv.cl.device import DeviceInfo, list_devices
from imgconv.model import Model
from imgconv.tensor import Tensor, build_graph

ROOT = Path(__file__).parent.parent.parent
X = numbers(1, 3, 9, 7)


@pytest.fixture(scope="module")
def classes(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the compiled classes."""
    if not any("JNI:BOOL=ON" in line for line in (built / "CMakeCache.txt").read_text().splitlines()):
        pytest.skip("no JDK is installed: install openjdk-17-jdk-headless")
    folder = tmp_path_factory.mktemp("classes")
    tests = (ROOT / "tests" / "native" / name for name in ("Check.java", "CheckFrames.java", "CheckMemory.java"))
    sources = ROOT / "native" / "java" / "imgconv" / "Model.java", ROOT / "examples" / "Camera.java", *tests
    subprocess.run(["javac", "-Xlint:all,-serial", "-Werror", "-d", folder, *sources], check=True)
    return folder


def test_java(
    device: DeviceInfo, environment: dict[str, str], built: Path, classes: Path, tmp_path: Path
) -> None:
    name = "x\N{GRINNING FACE}"  # four bytes in UTF-8
    x = Tensor.input(name, X.shape)
    y = x.conv2d(const(6, 3, 3, 3), const(6), padding=1).relu()
    outputs = {"y": y, "sum": y.max_pool(2, 2)}
    outputs |= {f"constant {i}": Tensor.constant(numpy.arange(5)) for i in range(30)}  # each has references in JNI
    model = imgconv.load(build_graph(outputs, [x]), device=device)
    about = '{"head": "scores", "labels": ["\N{OWL}"]}'
    Model(replace(model._source, description=about)).save(tmp_path / "m")  # type: ignore[type-var]
    (tmp_path / "x").write_bytes(X.tobytes())
    command = ["java", "-Xcheck:jni", "-cp", classes, f"-Djava.library.path={built}", "Check"]
    command += ["m", str(device.index), "x", "y", "devices"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=HANG_TIMEOUT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 float32 [1, 3, 9, 7]" in done.stdout and "WARNING" not in done.stdout, done.stdout
    listed = json.loads((tmp_path / "devices").read_text())["devices"]
    assert [each["name"] for each in listed] == [each.name for each in list_devices()]
    assert (tmp_path / "y").read_bytes() == model.run({name: X})["y"].tobytes()


@pytest.mark.parametrize("apart", [False, True])
def test_video_frames(
    device: DeviceInfo, environment: dict[str, str], built: Path, classes: Path, tmp_path: Path, apart: bool
) -> None:
    """A model of nv12 takes two planes, or three as Android gives them."""
    model = imgconv.load(passing(24, 20), device=device).preprocess((40, 48), "nv12")
    model.save(tmp_path / "m")
    memory = drawn("nv12", (40, 48), 1, apart, rotation=90, mirror=True)
    frame = memory.frame
    words = ["m", device.index, "y", frame.width, frame.height, *frame.window]
    for number, plane in enumerate(frame.planes):
        (tmp_path / str(number)).write_bytes(plane.data.tobytes())
        words += [number, plane.offset, plane.row_stride, plane.pixel_stride]
    command = ["java", "-Xcheck:jni", "-cp", classes, f"-Djava.library.path={built}", "CheckFrames", *map(str, words)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=HANG_TIMEOUT)
    assert done.returncode == 0 and "WARNING" not in done.stdout, done.stdout + done.stderr
    assert (tmp_path / "y").read_bytes() == model.run({"picture": picture_of("nv12", memory)})["y"].tobytes()


def test_memory_of_others(environment: dict[str, str], built: Path, classes: Path, tmp_path: Path) -> None:
    """A frame in a dma-buf is read where it is; closed memory is refused, not read."""
    model = imgconv.load(passing(24, 20)).preprocess((40, 48), "nv12")
    model.save(tmp_path / "m", targets=[faulty_driver.ROOT / "imgconv" / "loading" / "devices" / "adreno_640.json"])
    content = numpy.random.default_rng(0).integers(0, 256, 8192, numpy.uint8)
    (tmp_path / "content").write_bytes(content.tobytes())
    descriptor = os.memfd_create("frame")
    os.write(descriptor, content.tobytes())
    command = ["java", "-Xcheck:jni", "-cp", classes, f"-Djava.library.path={built}", "CheckMemory"]
    done = subprocess.run(
        [*command, "m", "content", str(descriptor), "y"], cwd=tmp_path, pass_fds=[descriptor], capture_output=True,
        env=environment | faulty_driver.variables("adreno;external_memory", tmp_path), text=True, timeout=HANG_TIMEOUT,
    )
    os.close(descriptor)
    assert done.returncode == 0 and "WARNING" not in done.stdout, done.stdout + done.stderr
    assert faulty_driver.met(tmp_path) == ["import by cl_khr_external_memory_dma_buf"] * 2
    planes = [imgconv.Plane(content, 60, 0, 3), imgconv.Plane(content, 64, 0, 3000)]
    shown = imgconv.VideoFrame(planes, 56, 44, mirror=True, region=(4, 2, 48, 40))
    found = numpy.frombuffer((tmp_path / "y").read_bytes(), numpy.float32)
    assert_near(found, model.run({"picture": shown})["y"].reshape(-1))
