"""Faults that an app meets: no OpenCL, no device, a device that is lost, folders that cannot be written."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from graphs import const, numbers
from played import Play, assert_same_bits

import imgconv
from imgconv.cl.device import DeviceInfo
from imgconv.tensor import Tensor, build_graph

X = numbers(1, 3, 9, 7)
FAKE = Path(__file__).with_name("fake_opencl.c")


@pytest.fixture(scope="module")
def model(device: DeviceInfo) -> imgconv.Model:
    x = Tensor.input("x", X.shape)
    y = x.conv2d(const(6, 3, 3, 3), const(6), padding=1).relu()
    return imgconv.load(build_graph({"y": y.max_pool(2, 2).softmax(1)}, [x]), device=device)


@pytest.fixture
def path(model: imgconv.Model, tmp_path: Path) -> Path:
    """Without the driver's programs: each open compiles, or reads its folder."""
    model.save(tmp_path / "m", targets=[model.device])
    return tmp_path / "m"


@pytest.fixture(scope="module")
def fake(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> str:
    """LD_LIBRARY_PATH with the library of fake_opencl.c in front of the real one."""
    folder = tmp_path_factory.mktemp("fake")
    real = (Path(environment["LD_LIBRARY_PATH"]) / "libOpenCL.so").resolve()
    command = ["c++", "-x", "c++", "-shared", "-fPIC", f'-DREAL_OPENCL="{real}"', "-o", folder / "libOpenCL.so", FAKE]
    # A linked library's functions are found with those of the one that is loaded.
    linked = ["-x", "none", "-Wl,--no-as-needed", real, f"-Wl,-rpath,{real.parent}", "-ldl"]
    subprocess.run([*command, *linked], check=True)
    return str(folder)


def tried(lines: str) -> str:
    """Lines that put the status and the message of the error of the last one into `results`."""
    body = "\n".join("    " + line for line in lines.strip().splitlines())
    return (
        f"try:\n{body}\n    results['status'] = numpy.array('OK')\n"
        "except PlayerError as error:\n    results['status'] = numpy.array(error.status)\n"
        "    results['message'] = numpy.array(error.message)\n"
    )


def test_a_library_that_gives_its_functions_out_itself(
    play: Play, path: Path, model: imgconv.Model, environment: dict[str, str], tmp_path: Path
) -> None:
    """The library is like that of Pixel phones, which exports no OpenCL function and must be enabled."""
    real = (Path(environment["LD_LIBRARY_PATH"]) / "libOpenCL.so").resolve()
    (tmp_path / "pixel").mkdir()
    (tmp_path / "pixel.c").write_text(f"""
        #include <dlfcn.h>
        #include <stdio.h>
        static int enabled;
        void enableOpenCL(void) {{ enabled = 1; }}
        void *loadOpenCLPointer(const char *name) {{
          if (!enabled) return 0;
          fclose(fopen("{tmp_path}/asked", "w"));
          return dlsym(dlopen("{real}", RTLD_NOW | RTLD_LOCAL), name);
        }}
    """)
    command = ["cc", "-shared", "-fPIC", "-o", tmp_path / "pixel" / "libOpenCL.so", tmp_path / "pixel.c", "-ldl"]
    subprocess.run(command, check=True)
    lines = f"results.update(Player({str(path)!r}, '{model.device.index}').run(given))"
    found = play(lines, {"x": X}, LD_LIBRARY_PATH=str(tmp_path / "pixel"))
    assert (tmp_path / "asked").exists()  # a library of the system may be found too
    assert_same_bits(found, model.run({"x": X}))


def test_a_library_without_devices(device: DeviceInfo, play: Play, path: Path, fake: str) -> None:
    found = play(tried(f'Player({str(path)!r})'), LD_LIBRARY_PATH=fake, FAKE_DEVICES="none")
    assert (str(found["status"]), "no OpenCL device is found" in str(found["message"])) == ("DEVICE", True)


@pytest.mark.parametrize("way", ["run", "submit"])
def test_a_device_that_is_lost(
    device: DeviceInfo, play: Play, path: Path, fake: str, model: imgconv.Model, way: str
) -> None:
    """Each run after it fails with the driver's words, nothing hangs, and the model closes."""
    lines = {"run": "results['y'] = model.run(given)['y']", "submit": "model.wait(model.submit(given))"}[way]
    launches = 4 * len(model.plan.launches)
    begin = f'model = Player({str(path)!r}, "{device.index}")\nfor number in range(100):\n    {lines}'
    again = "\nfor number in range(3):\n" + "".join(
        f"    {line}\n" for line in tried("model.run(given)").strip().splitlines()
    ) + "model.close()"
    found = play(tried(begin) + "assert 0 < number < 5, number" + again, {"x": X},
                 LD_LIBRARY_PATH=fake, FAKE_LAUNCHES=str(launches))
    assert str(found["status"]) == "DEVICE" and "CL_DEVICE_NOT_AVAILABLE (-2)" in str(found["message"])
    if way == "run":
        assert_same_bits({"y": found["y"]}, model.run({"x": X}))


def test_a_device_that_is_lost_at_once(device: DeviceInfo, play: Play, path: Path, fake: str) -> None:
    found = play(
        tried(f'Player({str(path)!r}, "{device.index}", cache=".").run(given)'), {"x": X}, LD_LIBRARY_PATH=fake,
        FAKE_LAUNCHES="0",
    )
    assert str(found["status"]) == "DEVICE" and not list(path.parent.glob("*.program*"))


def test_memory_that_is_short(device: DeviceInfo, play: Play, path: Path, fake: str, model: imgconv.Model) -> None:
    """Found when the model is opened, though the driver allocates at the first use: what opens, runs in all its frames.

    One more buffer fits in each turn, until the model opens.
    """
    lines = f"""
        for fitting in range(100):
            os.environ["FAKE_BUFFERS"] = str(fitting)
            try:
                opened = Player({str(path)!r}, "{device.index}", cache=".", frames=3)
                break
            except PlayerError as error:
                assert error.status == "MEMORY" and "CL_MEM_OBJECT_ALLOCATION_FAILURE" in error.message, error
        assert fitting > 8, fitting  # the inputs and outputs of four frames
        results["run"] = opened.run(given)["y"]
        for number, frame in enumerate([opened.submit(given) for _ in range(3)]):
            results[f"frame {{number}}"] = opened.wait(frame)["y"]
    """
    expected = model.run({"x": X})["y"]
    found = play(lines, {"x": X}, LD_LIBRARY_PATH=fake)
    assert_same_bits(found, dict.fromkeys(("run", "frame 0", "frame 1", "frame 2"), expected))


def test_a_device_without_half_images(device: DeviceInfo, play: Play, fake: str, tmp_path: Path) -> None:
    """A file with a plan in half and one for a CPU, whose tensors are buffers: the second runs."""
    x = Tensor.input("x", X.shape)
    model = imgconv.load(build_graph({"y": x.conv2d(const(6, 3, 3, 3)).relu()}, [x]), device=device, float16=1)
    there = [replace(device, kind=kind, image_row_alignment=0, driver_version="theirs") for kind in ("gpu", "cpu")]
    lines = tried(f"results.update(Player('m', '{device.index}').run(given))")
    for targets, status in ((there[:1], "UNFIT"), (there, "OK")):
        model.save(tmp_path / "m", targets=targets)
        found = play(lines, {"x": X}, LD_LIBRARY_PATH=fake, FAKE_FORMATS="none")
        assert str(found["status"]) == status
        assert status == "OK" or "the device has no half images, which the plan takes" in str(found["message"])
        assert str(play(lines, {"x": X}, LD_LIBRARY_PATH=fake)["status"]) == "OK"


@pytest.mark.parametrize("plans_have", [[1], [2], [2, 1]], ids=str)
def test_a_driver_that_exaggerates_local_memory(
    device: DeviceInfo, play: Play, model: imgconv.Model, fake: str, tmp_path: Path, plans_have: list[int]
) -> None:
    """The figure, as of Mesa's rusticl, is believed only of a plan for a device with more local memory, tried last."""
    bytes_here = device.local_memory_bytes
    there = [replace(device, local_memory_bytes=n * bytes_here, driver_version="theirs") for n in plans_have]
    model.save(tmp_path / "m", targets=there)
    lines = f"results.update(Player('m', '{device.index}').run(given))"
    said = str(2 * device.local_memory_bytes)
    found = play(tried(lines), {"x": X}, LD_LIBRARY_PATH=fake, FAKE_LOCAL_MEMORY=said)
    status, message = str(found.pop("status")), str(found.pop("message", ""))
    if 1 in plans_have:
        assert status == "OK"
        assert_same_bits(found, model.run({"x": X}))
    else:
        assert status == "UNFIT" and f"bytes of local memory: kernel k0 takes {said}" in message, message


# A folder on a disk of its own, in a namespace of the process: what is mounted ends with it.
def mounted(options: str, command: Sequence[object], folder: Path) -> list[str]:
    script = f'mount -t tmpfs -o {options} none "$0" && exec "$@"'
    return ["unshare", "--map-root-user", "--mount", "sh", "-c", script, str(folder), *map(str, command)]


@pytest.mark.parametrize("options", ["size=4k", "ro"])
def test_a_disk_that_takes_no_programs(
    device: DeviceInfo, environment: dict[str, str], built: Path, path: Path, model: imgconv.Model, options: str
) -> None:
    """Full, or read-only: the model runs, and nothing half-written stays."""
    folder = path.parent / "programs"
    folder.mkdir()
    if subprocess.run(mounted(options, ["true"], folder), capture_output=True).returncode:
        pytest.skip("this process may not mount anything")
    (path.parent / "x").write_bytes(X.tobytes())
    (path.parent / "y").write_bytes(model.run({"x": X})["y"].tobytes())
    player = [built / "imgconv-run", "m", "--device", device.index, "--cache", folder, "--input", "x=x"]
    script = f'"$@" && ls -A {folder}'
    command = mounted(options, ["sh", "-c", script, "sh", *player, "--reference", "y=y"], folder)
    done = subprocess.run(command, cwd=path.parent, env={**os.environ, **environment}, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout == "", done.stdout + done.stderr
