"""The player on 64-bit ARM, emulated: `make native-arm64` runs it, on Debian.

    python tests/native/check_arm64.py [--install]

--install: g++-aarch64-linux-gnu and qemu-user-static by apt-get. PoCL for ARM and what it needs are unpacked into
build/arm64/root: nothing of it is installed. The player is cross-compiled, prints the emulated device's description,
and runs what this machine compiles for that: SqueezeNet, boxes of a camera's frames, and those of YOLOX-nano if
IMGCONV_MODELS is set. The results are compared with Python's on this machine's device.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy

import imgconv
from imgconv.cl.device import DeviceInfo
from imgconv.loading.device_descriptions import read_device_description
from models import build
from tests.camera_frames import Frames, noise, pictures, small_detector, yolox
from tests.tools.debian import unpack

ROOT = Path(__file__).parent.parent.parent
BUILD = ROOT / "build" / "arm64"
SYSTEM, HEADERS, PLAYER = BUILD / "root", BUILD / "include", BUILD / "native" / "imgconv-run"
LIBRARIES = SYSTEM / "usr" / "lib" / "aarch64-linux-gnu"
PACKAGES = "g++-aarch64-linux-gnu", "qemu-user-static"
# Programs are kept; compiling those of YOLOX-nano may take longer than the ten minutes that a call has.
KEPT = "--cache", BUILD / "programs", "--timeout", 3600
# Debian's packages of PoCL 3.1: the driver, its loader, and libraries that it opens at run time.
OF_ARM = "libpocl2", "ocl-icd-libopencl1", "libstdc++6"
# Another compiler orders and contracts float operations otherwise; 18 convolutions in a row.
TOLERANCE = 1e-4
# Coordinates of up to 640 pixels.
PIXELS = 640 * TOLERANCE


def call(*command: object, **variables: str) -> str:
    return subprocess.run(
        list(map(str, command)), check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, **variables}
    ).stdout


def install() -> None:
    as_root: Sequence[str] = () if os.geteuid() == 0 else ("sudo", "-n")
    command = "apt-get", "install", "-y", "-qq", "--no-install-recommends"
    call(*as_root, *command, *PACKAGES, DEBIAN_FRONTEND="noninteractive")


def cross_compile() -> None:
    HEADERS.mkdir(parents=True, exist_ok=True)
    for name in ("CL", "flatbuffers"):  # all of /usr/include would hide the cross compiler's own
        if not (HEADERS / name).exists():
            (HEADERS / name).symlink_to(Path("/usr/include", name))
    settings = "-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=aarch64"
    compiler = "-DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++"
    found = f"-DOPENCL_INCLUDE={HEADERS}", f"-DFLATBUFFERS_INCLUDE={HEADERS}"
    call("cmake", "-S", ROOT / "native", "-B", PLAYER.parent, *settings, compiler, *found)
    call("cmake", "--build", PLAYER.parent, "--parallel", "2")


def emulated(*arguments: object) -> str:
    """Returns the player's output, on PoCL in an emulated process. PoCL calls a linker, which runs on this machine."""
    vendors, tools = BUILD / "vendors", BUILD / "tools"
    for folder in (vendors, tools):
        folder.mkdir(exist_ok=True)
    (vendors / "pocl.icd").write_text(f"{LIBRARIES / 'libpocl.so.2'}\n")
    runtime = Path(call("aarch64-linux-gnu-g++", "-print-libgcc-file-name").strip()).parent
    (tools / "ld").write_text(f'#!/bin/sh\nexec aarch64-linux-gnu-ld -L{runtime} "$@"\n')
    (tools / "ld").chmod(0o755)
    variables = {
        "OCL_ICD_VENDORS": str(vendors), "PATH": f"{tools}:{os.environ['PATH']}", "POCL_CACHE_DIR": str(BUILD / "pocl"),
    }
    command = "qemu-aarch64-static", "-L", SYSTEM, "-E", f"LD_LIBRARY_PATH={LIBRARIES}", PLAYER
    return call(*command, *arguments, **variables)


def check_boxes(model: imgconv.Model, device: DeviceInfo, frames: Frames) -> None:
    """Boxes of frames whose rows have gaps, turned by 90 degrees."""
    path = BUILD / "boxes.imgconv"
    model.save(path, targets=[device])
    planes = "--plane", f"0,{frames.pitch}", "--plane", f"{frames.height * frames.pitch},{frames.pitch}"
    about = "--size", f"{frames.width}x{frames.height}", *planes, "--rotate", 90
    outputs = [word for name in model.outputs for word in ("--output", f"{name}={BUILD / name}.npy")]
    for number, memory in enumerate(frames.memory):
        memory.tofile(BUILD / "frame")
        emulated(path, *KEPT, "--frame", f"picture={BUILD / 'frame'}", *about, *outputs)
        expected = model.run({"picture": frames.upright(number)})
        found = {name: numpy.load(BUILD / f"{name}.npy") for name in expected}
        for name, array in expected.items():
            atol = {"boxes": PIXELS, "scores": TOLERANCE}.get(name, 0)
            numpy.testing.assert_allclose(found[name], array, rtol=0, atol=atol)
        off = numpy.abs(found["boxes"] - expected["boxes"]).max()
        print(f"frame {number}: {expected['count'][0]} boxes, at most {off:.1e} pixels off", flush=True)


def check_squeezenet(device: DeviceInfo) -> None:
    """A whole network, whose programs are compiled, and then from the folder of programs."""
    model = imgconv.load(build("squeezenet"))
    model.save(BUILD / "squeezenet.imgconv", targets=[device])
    x = numpy.random.default_rng(0).random((1, 3, 224, 224), numpy.float32)
    (name,), (output,) = model.inputs, model.outputs
    numpy.save(BUILD / "x.npy", x)
    files = "--input", f"{name}={BUILD / 'x.npy'}", "--output", f"{output}={BUILD / 'y.npy'}"
    expected = model.run({name: x})[output]
    for start in ("first", "second"):
        emulated(BUILD / "squeezenet.imgconv", *files, *KEPT)
        error = float(numpy.abs(numpy.load(BUILD / "y.npy") - expected).max() / numpy.abs(expected).max())
        print(f"{start} start: {error:.1e} of the largest output, at most {TOLERANCE:.0e}")
        assert error <= TOLERANCE


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the player on emulated 64-bit ARM.")
    parser.add_argument("--install", action="store_true", help="install the compiler and the emulator by apt-get")
    if parser.parse_args().install:
        install()
    if not (LIBRARIES / "libpocl.so.2").exists():
        unpack(SYSTEM, "bookworm", "arm64", OF_ARM)
    cross_compile()
    description = BUILD / "device.json"
    description.write_text(emulated("--devices"))
    print(description.read_text().split('"extensions"')[0])
    (BUILD / "programs").mkdir(exist_ok=True)
    device = read_device_description(description)
    check_boxes(small_detector(), device, noise())
    if "IMGCONV_MODELS" in os.environ:
        folder = Path(os.environ["IMGCONV_MODELS"]) / "yolox_nano"
        check_boxes(yolox(folder), device, pictures(folder))
    check_squeezenet(device)
    return 0


if __name__ == "__main__":
    sys.exit(main())
