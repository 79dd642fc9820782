"""The tool of long runs: a few turns pass, and what is lost or wrong is seen."""

from __future__ import annotations

import pytest

import endure
from imgconv.cl.device import DeviceInfo
from imgconv.runtime.frame_memory import FrameMemory


def passed(device: DeviceInfo, name: str, scale: float) -> tuple[bool, str]:
    ((_, said, good),) = endure.rows([name], scale, device.index)
    return good, said


SCALES = {"runs": 0.01, "frames": 0.02, "threads": 0.005, "loads": 0.004}


@pytest.mark.parametrize(("name", "scale"), SCALES.items())
def test_a_few_turns(device: DeviceInfo, name: str, scale: float) -> None:
    good, said = passed(device, name, scale)
    assert good, said


def test_processes_end_with_frames_in_flight(device: DeviceInfo) -> None:
    endure.processes(endure.Setting(device.index, 2), endure.EXIT, at_once=2)


def test_what_frames_lose_is_seen(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    lost, results = [], FrameMemory.results
    monkeypatch.setattr(FrameMemory, "results", lambda *rest: (lost.append(bytearray(20_000)), results(*rest))[1])
    assert not passed(device, "frames", 0.02)[0]


def test_a_wrong_result_is_seen(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endure, "picture", lambda height, width: endure.numpy.ones((1, 3, height, width), "f4"))
    monkeypatch.setattr(endure, "expected", lambda x: endure.numpy.zeros((1, 8, 1, 1)))
    good, said = passed(device, "threads", 0.005)
    assert not good and "the result is wrong" in said
