"""imgconv run on videos, cameras and addresses."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

from command_line import Command, means_of, write_classifier, write_picture
import numpy
import pytest

from imgconv.cl.device import DeviceInfo
from imgconv.pictures import sources, video


def write_video(name: str, grey: list[int]) -> None:
    """A video of 32x32 with one frame of each grey, without loss."""
    av = pytest.importorskip("av", reason="PyAV, which reads videos, is not installed")
    with av.open(name, "w") as container:
        stream = container.add_stream("ffv1", rate=10)
        stream.width = stream.height = 32
        stream.pix_fmt = "bgr0"
        for value in grey:
            frame = av.VideoFrame.from_ndarray(numpy.full((32, 32, 3), value, numpy.uint8), "rgb24")
            for packet in stream.encode(frame.reformat(format="bgr0")):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)


def test_videos(imgconv: Command, device: DeviceInfo) -> None:
    """Every frame; with --jsonl it goes on at the first frame that has no line."""
    write_classifier()
    greys = [10, 60, 110, 160, 210]
    write_video("v.mkv", greys)
    write_picture("a.png", (1, 1, 1))
    command = ("run", "means.onnx", "v.mkv", "a.png", "--device", device.index, "--json", "--output", "o.png")
    status, out, err = imgconv(*command, "--jsonl", "r.jsonl")
    assert status == 0, err
    found = means_of(out)
    assert list(found) == [*(f"v.mkv#{n}" for n in range(5)), "a.png"]
    assert [found[f"v.mkv#{n}"][1] for n in range(5)] == pytest.approx(greys, abs=1)
    assert sorted(str(path) for path in Path().glob("o-*.png")) == [f"o-{n}.png" for n in range(1, 7)]
    lines = Path("r.jsonl").read_text().splitlines(keepends=True)
    Path("r.jsonl").write_text("".join(lines[:2]))
    assert list(means_of(imgconv(*command, "--jsonl", "r.jsonl")[1])) == [*(f"v.mkv#{n}" for n in (2, 3, 4)), "a.png"]
    Path("broken.mkv").write_text("no video")
    status, _, err = imgconv("run", "means.onnx", "broken.mkv", "--device", device.index)
    assert status == 1 and "cannot read video 'broken.mkv'" in err


def test_a_video_says_what_to_install(imgconv: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    write_classifier()
    monkeypatch.setitem(sys.modules, "av", None)
    status, _, err = imgconv("run", "means.onnx", "v.mp4")
    assert status == 1 and "v.mp4" in err and "pip install 'imgconv[video]'" in err


def test_cameras_and_addresses_are_videos() -> None:
    for path in ("/dev/video0", "rtsp://host/stream", "a.MP4"):
        assert sources.is_video(path) and sources.count_of([path, "a.png"]) is None
    assert not sources.is_video("video0.png") and sources.count_of(["a.png", "-"]) == 2


def test_a_camera_and_addresses_that_give_nothing(
    imgconv: Command, device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is wrong is named: no such camera, nobody at an address, and a server that never answers."""
    write_classifier()
    for path, named in (
        ("/dev/video97", "cannot read camera '/dev/video97': No such file"),
        ("rtsp://127.0.0.1:1/a", "cannot read address 'rtsp://127.0.0.1:1/a': Connection refused"),
    ):
        status, _, err = imgconv("run", "means.onnx", path, "--device", device.index)
        assert status == 1 and named in err
    monkeypatch.setattr(video, "PATIENCE", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        path = f"rtsp://127.0.0.1:{server.getsockname()[1]}/a"
        status, _, err = imgconv("run", "means.onnx", path, "--device", device.index)
    assert status == 1 and f"{path!r} gave nothing for 0.2 seconds" in err
