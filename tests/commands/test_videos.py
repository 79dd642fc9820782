"""imgconv run on videos, cameras and addresses."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

from command_line import Command, means_of, write_classifier, write_negative, write_picture
import numpy
import pytest

from imgconv.cl.device import DeviceInfo
from imgconv.pictures import sources, video


def write_video(name: str, grey: list[int], side: int = 32) -> None:
    """A square video with one frame of each grey, without loss."""
    av = pytest.importorskip("av", reason="PyAV, which reads videos, is not installed")
    with av.open(name, "w") as container:
        stream = container.add_stream("ffv1", rate=10)
        stream.width = stream.height = side
        stream.pix_fmt = "bgr0"
        for value in grey:
            frame = av.VideoFrame.from_ndarray(numpy.full((side, side, 3), value, numpy.uint8), "rgb24")
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
    assert sorted(str(path) for path in Path().glob("o-*.png")) == [f"o-{n:06}.png" for n in range(1, 7)]
    lines = Path("r.jsonl").read_text().splitlines(keepends=True)
    Path("r.jsonl").write_text("".join(lines[:2]))
    assert list(means_of(imgconv(*command, "--jsonl", "r.jsonl")[1])) == [*(f"v.mkv#{n}" for n in (2, 3, 4)), "a.png"]
    Path("broken.mkv").write_text("no video")
    status, _, err = imgconv("run", "means.onnx", "broken.mkv", "--device", device.index)
    assert status == 1 and "cannot read video 'broken.mkv'" in err


def test_every_third_frame_and_a_video_of_drawings(imgconv: Command, device: DeviceInfo) -> None:
    """In order, at a third of the rate, with odd sides made even; a picture of another size is fitted in."""
    av = pytest.importorskip("av", reason="PyAV, which reads videos, is not installed")
    write_negative()
    greys = [5, 30, 55, 80, 105, 130, 155]
    write_video("v.mkv", greys, side=31)
    write_picture("a.png", (255, 255, 255), (62, 31))
    command = ("run", "negative.onnx", "v.mkv", "a.png", "--device", device.index, "--scale", 1, "--shape", "h=31")
    command = (*command, "--shape", "w=31", "--resize", "stretch", "--every", 3)
    status, out, err = imgconv(*command, "--output", "out.mp4")
    assert status == 0, err
    assert [line for line in out.splitlines() if line.startswith("v.mkv#")] == [f"v.mkv#{n}: 31x31" for n in (0, 3, 6)]
    assert "written to out.mp4" in out and "4 pictures in " in err.splitlines()[-1]
    with av.open("out.mp4") as container:
        made = container.streams.video[0]
        assert (made.width, made.height) == (32, 32) and made.average_rate == pytest.approx(10 / 3)
        means = [frame.to_ndarray(format="rgb24")[4:12, 4:12].mean() for frame in container.decode(video=0)]
    assert means == pytest.approx([250, 175, 100, 0], abs=4)
    assert imgconv(*command, "--output", "drawn/", "--json")[0] == 0
    assert sorted(path.name for path in Path("drawn").iterdir()) == ["a.png", *(f"v_00000{n}.png" for n in (0, 3, 6))]
    status, _, err = imgconv(*command[:-2], "--output", "none/out.mp4")
    assert status == 1 and "none" in err
    status, _, err = imgconv("run", "negative.onnx", "v.mkv", "--devices", "all", "--output", "out.mp4")
    assert status == 1 and "--devices" in err


def test_a_video_says_what_to_install(imgconv: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    write_classifier()
    monkeypatch.setitem(sys.modules, "av", None)
    status, _, err = imgconv("run", "means.onnx", "v.mp4")
    assert status == 1 and "v.mp4" in err and "pip install 'imgconv[video]'" in err
    status, _, err = imgconv("run", "means.onnx", "v.png", "--output", "o.mp4")
    assert status == 1 and "writing the video 'o.mp4'" in err and "pip install 'imgconv[video]'" in err


def test_cameras_and_addresses_are_videos() -> None:
    for path in ("/dev/video0", "rtsp://host/stream", "a.MP4"):
        assert sources.is_video(path) and sources.count_pictures([path, "a.png"]) is None
    assert not sources.is_video("video0.png") and sources.count_pictures(["a.png", "-"]) == 2


def test_a_camera_and_addresses_that_give_nothing(
    imgconv: Command, device: DeviceInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Errors name the cause: no such camera, nobody at an address, or a server that never answers."""
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
    assert status == 1 and f"{path!r} returned nothing for 0.2 seconds" in err
