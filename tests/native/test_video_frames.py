"""Frames in memory of any layout in the player: the bits of Python, and the same refusals."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy
import pytest
from device.picture_reference import passing
from device.video_frames import Memory, drawn, picture_of
from played import Play, assert_same_bits

import imgconv
from imgconv.cl.device import DeviceInfo
from imgconv.preprocess import FORMATS

SIZE = 48, 40
TURNS = [(rotation, mirror) for rotation in (0, 90, 180, 270) for mirror in (False, True)]


def saved(device: DeviceInfo, format: str, path: Path, **settings: Any) -> imgconv.Model:
    model = imgconv.load(passing(24, 20), device=device, **settings)
    model = model.preprocess((SIZE[1], SIZE[0]), format)  # type: ignore[arg-type]
    model.save(path)
    return model


def given_and_text(memories: list[Memory]) -> tuple[dict[str, Any], str]:
    """The planes of frames by name, and lines that make a list of VideoFrames of player.py of them."""
    given, lines = {}, []
    for number, memory in enumerate(memories):
        frame, planes = memory.frame, []
        for plane, each in enumerate(frame.planes):
            given[f"plane_{number}_{plane}"] = numpy.frombuffer(each.data, numpy.uint8)
            planes.append(f"(given['plane_{number}_{plane}'], {each.offset}, {each.row_stride}, {each.pixel_stride})")
        about = f"{frame.width}, {frame.height}, {frame.rotation}, {int(frame.mirror)}, {frame.window}"
        lines.append(f"VideoFrame.of([{', '.join(planes)}], {about})")
    return given, f"[{', '.join(lines)}]"


def window(rotation: int) -> tuple[int, int]:
    return SIZE[:: -1 if rotation % 180 else 1]


@pytest.mark.parametrize(("format", "settings"), [
    *((format, {}) for format in FORMATS), ("nv12", {"max_image": 64}), ("rgb", {"max_image": 64}),
], ids=str)
def test_the_bits_of_python(
    device: DeviceInfo, play: Play, tmp_path: Path, format: str, settings: dict[str, Any]
) -> None:
    """Each rotation, frames in flight, and an array after frames give what Python gives for numpy's picture."""
    model = saved(device, format, tmp_path / "m", **settings)
    memories = [
        drawn(format, window(rotation), number, False, rotation=rotation, mirror=mirror)
        for number, (rotation, mirror) in enumerate(TURNS)
    ]
    if format in ("nv12", "nv21", "p010", "i420"):
        memories += [drawn(format, window(90), 9, True, rotation=90), drawn(format, SIZE, 10, False, at=(3, 1))]
    given, frames = given_and_text(memories)
    arrays = [picture_of(format, memory) for memory in memories]
    expected = numpy.stack([model.run({"picture": array})["y"] for array in arrays])
    lines = f"""
        player = Player({str(tmp_path / "m")!r}, "{device.index}", frames=2)
        frames = {frames}
        results["run"] = numpy.stack([player.run(dict(picture=frame))["y"] for frame in frames])
        results["array"] = player.run(dict(picture=given["array"]))["y"]
        kernel = player.check()["launches"][-1]
        assert (kernel["name"], kernel["verdict"]) == ("frames of {format}", "right"), kernel
        found = []
        for first, second in zip(frames[::2], frames[1::2]):
            flying = [player.submit(dict(picture=frame)) for frame in (first, second)]
            found += [player.wait(each)["y"] for each in flying]
        results["submit"] = numpy.stack(found)
        player.close()
    """
    found = play(lines, {**given, "array": arrays[0]})
    assert_same_bits(found, {"run": expected, "array": expected[0], "submit": expected})


@pytest.mark.parametrize("format", ["nv12", "i420", "yuyv"])
def test_rows_without_gaps(device: DeviceInfo, play: Play, tmp_path: Path, format: str) -> None:
    """Strides of 0. Planes that touch are uploaded as one."""
    model = saved(device, format, tmp_path / "m")
    array, size = picture_of(format, drawn(format, SIZE, 6, False)), SIZE[0] * SIZE[1]
    starts = {"nv12": (0, size), "i420": (0, size, size * 5 // 4), "yuyv": (0,)}[format]
    planes = ", ".join(f"(given['picture'], {start}, 0, 0)" for start in starts)
    lines = f"""
        player = Player({str(tmp_path / "m")!r}, "{device.index}")
        results.update(player.run(dict(picture=VideoFrame.of([{planes}], {SIZE[0]}, {SIZE[1]}))))
    """
    assert_same_bits(play(lines, {"picture": array}), model.run({"picture": array}))


def test_programs_are_kept(device: DeviceInfo, play: Play, tmp_path: Path) -> None:
    """The kernel that reads frames is built at the first one, and kept in the folder as others are."""
    saved(device, "nv12", tmp_path / "m")
    (tmp_path / "cache").mkdir()
    given, frames = given_and_text([drawn("nv12", SIZE, 1, False)])
    lines = f"""
        for number in range(2):
            player = Player({str(tmp_path / "m")!r}, "{device.index}", cache={str(tmp_path / "cache")!r})
            before = sorted(os.listdir({str(tmp_path / "cache")!r}))
            results[str(number)] = player.run(dict(picture={frames}[0]))["y"]
            after = sorted(os.listdir({str(tmp_path / "cache")!r}))
            assert (len(after) == len(before)) == bool(number), (before, after)
            player.close()
    """
    found = play("import os\n" + "\n".join(line[8:] for line in lines.splitlines()), given)
    assert_same_bits({"0": found["1"]}, {"0": found["0"]})


def test_a_frame_in_an_opencl_buffer(device: DeviceInfo, play: Play, tmp_path: Path) -> None:
    """It is read where it is; its planes are parts of one buffer, of frames in flight too."""
    model = saved(device, "nv12", tmp_path / "m")
    memory = drawn("nv12", window(90), 7, False, rotation=90)
    y, colors = memory.frame.planes
    content = numpy.concatenate([numpy.frombuffer(each.data, numpy.uint8) for each in (y, colors)])
    rows = f"(array, {y.offset}, {y.row_stride}, 0), (array, {len(y.data) + colors.offset}, {colors.row_stride}, 0)"
    about = f"[{rows}], {memory.frame.width}, {memory.frame.height}, 90, 0, {memory.frame.window}"
    lines = f"""
        player = Player({str(tmp_path / "m")!r}, "{device.index}")
        buffer, array = Buffer(player._model, given["content"]), given["content"]
        def framed(bytes=array.nbytes, second=buffer.memory):
            frame = VideoFrame.of({about})
            for plane, memory in zip(frame.planes, (buffer.memory, second)):
                plane.data, plane.memory, plane.bytes = None, memory, bytes
            return frame
        results["run"] = player.run(dict(picture=framed()))["y"]
        results["submit"] = player.wait(player.submit(dict(picture=framed())))["y"]
        for frame, text in ((framed(bytes=array.nbytes + 1), "has "), (framed(second=None), "several OpenCL buffers")):
            try:
                player.run(dict(picture=frame))
            except PlayerError as error:
                assert error.status == "ARGUMENT" and text in error.message, error
            else:
                assert False, text
        results["array"] = player.run(dict(picture=VideoFrame.of({about})))["y"]
        player.close()
    """
    expected = model.run({"picture": picture_of("nv12", memory)})["y"]
    found = play(lines, {"content": content})
    assert_same_bits(found, {"run": expected, "submit": expected, "array": expected})


REFUSED = {
    "rotation is 45": "[(a, 0, 0, 0), (a, 0, 0, 0)], 48, 40, 45",
    "not inside the frame of 48x40": "[(a, 0, 0, 0), (a, 0, 0, 0)], 48, 40, 0, 0, (2, 0, 48, 40)",
    "takes 48x40; the frame's region, after its rotation, is 40x48": "[(a, 0, 0, 0), (a, 0, 0, 0)], 48, 40, 90",
    "has 2 or 3 planes, not 1: give each plane": "[(a, 0, 0, 0)], 48, 40",
    "a row stride of 47 bytes; 48 pixels with a pixel stride of 1 take 48": "[(a, 0, 47, 0), (a, 0, 0, 0)], 48, 40",
    "plane 1 has a row stride of -47 bytes; 24": "[(a, 0, 0, 0), (a, 0, -47, 0)], 48, 40",
    "plane 1 has 959 bytes": "[(a, 0, 0, 0), (a[:959], 0, 0, 0)], 48, 40",
    "plane 0 has 1920 bytes": "[(a, 0, 49, 0), (a, 0, 0, 0)], 48, 40",
    "in bytes -1872 to 48": "[(a, 0, -48, 0), (a, 0, 0, 0)], 48, 40",
    "its offset is 18446744073709551606": "[(a, 2**64 - 10, 0, 0), (a, 0, 0, 0)], 48, 40",
}


def test_bad_frames(device: DeviceInfo, play: Play, tmp_path: Path) -> None:
    saved(device, "nv12", tmp_path / "m")
    imgconv.load(passing(24, 20), device=device).save(tmp_path / "plain")
    lines = f"""
        def refused(model, frame, text):
            for use in model.run, model.submit:
                try:
                    use(frame)
                except PlayerError as error:
                    assert error.status == "ARGUMENT" and text in error.message, (text, error)
                else:
                    assert False, text
        a = numpy.zeros(1920, numpy.uint8)
        model = Player({str(tmp_path / "m")!r}, "{device.index}")
        for text, frame in {REFUSED}.items():
            refused(model, dict(picture=eval("VideoFrame.of(" + frame + ")")), text)
        plain = Player({str(tmp_path / "plain")!r}, "{device.index}")
        refused(plain, dict(x=VideoFrame.of([(a, 0, 0, 0)], 24, 20)), "'x' takes no video frame: compile the model")
    """
    play(lines)


def test_the_command(device: DeviceInfo, environment: dict[str, str], built: Path, tmp_path: Path) -> None:
    """imgconv-run reads the planes from one file."""
    model = saved(device, "nv12", tmp_path / "m")
    memory = drawn("nv12", window(90), 5, False, rotation=90, mirror=True)
    contents = [bytes(each.data) for each in memory.frame.planes]
    (tmp_path / "frame").write_bytes(b"".join(contents))
    numpy.save(tmp_path / "y.npy", model.run({"picture": picture_of("nv12", memory)})["y"])
    starts = [0, len(contents[0])]
    planes = [f"{start + p.offset},{p.row_stride},{p.pixel_stride}" for start, p in zip(starts, memory.frame.planes)]
    region = ",".join(map(str, memory.frame.window))
    size = f"{memory.frame.width}x{memory.frame.height}"
    command = [built / "imgconv-run", "m", "--device", str(device.index), "--frame", "picture=frame", "--size", size]
    command += ["--plane", planes[0], "--plane", planes[1], "--region", region, "--mirror", "--reference", "y=y.npy"]

    def run(*last: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, *last], cwd=tmp_path, env=environment, capture_output=True, text=True)

    done = run("--rotate", "90")
    assert done.returncode == 0 and "y: 0 elements differ" in done.stderr, done.stderr
    done = run("--rotate", "270")
    assert done.returncode == 1, done.stderr
    for last, text in (("--rotate 9x", "9x"), ("--plane 1", "plane"), ("--size 2x", "size"), ("--rotate 45", "45")):
        done = run(*last.split())
        assert done.returncode == 2 and text in done.stderr, done.stderr
