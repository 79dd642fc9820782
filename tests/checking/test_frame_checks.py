"""The check of the kernel that reads frames: right as it is, wrong if a part of it is changed."""

from __future__ import annotations

from pathlib import Path

import numpy
import pytest
from camera_frames import CHANGES

import imgconv
from imgconv.checking import frame_checks, session_checks
from imgconv.checking.comparing import LaunchVerdict
from imgconv.checking.kernel_variants import frame_graph
from imgconv.checking.frame_checks import check_frames, check_frames_once
from imgconv.cl.device import DeviceInfo, open_device
from imgconv.config import Config
from imgconv.errors import DeviceError
from imgconv.files.disk_cache import DiskCache
from imgconv.loading.plans import prepare_for
from imgconv.preprocessing import video_frame
from imgconv.preprocessing.preparation import FORMATS, Format
from imgconv.runtime.session import Session


def session_of(format: Format, device: DeviceInfo) -> Session:
    return Session(prepare_for(device, frame_graph(format), Config()).plan(), open_device(device))


def changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str) -> None:
    text = video_frame.FILE.read_text()
    assert old in text
    path = tmp_path / "frame.cl"
    path.write_text(text.replace(old, new))
    monkeypatch.setattr(video_frame, "FILE", path)


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_is_right(format: Format, device: DeviceInfo) -> None:
    found = check_frames(session_of(format, device), format)
    assert found.verdict == "right" and found.samples > 0, found


@pytest.mark.parametrize(("format", "old", "new"), CHANGES, ids=lambda text: text)
def test_a_changed_kernel_is_wrong(
    format: Format, old: str, new: str, device: DeviceInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed(tmp_path, monkeypatch, old, new)
    found = check_frames(session_of(format, device), format)
    assert found.verdict == "wrong" and "rotation" in found.text


def test_a_lost_launch_is_wrong(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_of("rgb", device)
    monkeypatch.setattr(session, "read_frame", lambda place, frame: [])
    assert check_frames(session, "rgb").verdict == "wrong"


def test_a_load_proves_it_once(device: DeviceInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And refuses a driver that computes it wrongly."""
    monkeypatch.setattr(session_checks, "TESTED", ())
    for module in (session_checks, frame_checks):
        monkeypatch.setattr(module, "PROVED", DiskCache(str(tmp_path / "proved"), 2**20))
    seen: list[LaunchVerdict] = []

    def noting(session: Session, format: Format) -> LaunchVerdict:
        seen.append(check_frames(session, format))
        return seen[-1]

    monkeypatch.setattr(frame_checks, "check_frames", noting)
    graph = frame_graph("rgb")
    for _ in range(2):
        check_frames_once(Session(prepare_for(device, graph, Config()).plan(), open_device(device)), "rgb")
    assert len(seen) == 1
    x = imgconv.tensor.Tensor.input("x", (1, 3, 8, 12))
    model = imgconv.load(imgconv.tensor.build_graph({"y": x * 1.0}, [x]), device)
    assert len(seen) == 1
    model.preprocess((8, 12), "nv12").run({"picture": numpy.zeros((12, 12), numpy.uint8)})
    assert len(seen) == 2
    changed(tmp_path, monkeypatch, "n[1] * x", "n[2] * x")
    with pytest.raises(DeviceError, match="frames of nv12, kernel frame.cl: .* there is no other kernel"):
        model.preprocess((8, 12), "nv12")
