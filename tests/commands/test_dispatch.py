"""imgconv run --devices: every picture once."""

from __future__ import annotations

import json
import multiprocessing
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

from command_line import Command, write_classifier, write_picture
import pytest
from PIL import Image

from imgconv.cl.device import DeviceInfo
from imgconv.cli import parse
from imgconv.commands.dispatch import dispatch
from imgconv.commands.picture_result import DeviceSummary, PrintableResult
from imgconv.commands.picture_worker import ignore_interrupts, sendable
from imgconv.commands.run import read_command_line
from imgconv.commands.runner import PictureItem, items_of
from imgconv.errors import DeviceError, InputError


def write_pictures(count: int) -> list[str]:
    write_classifier()
    names = [f"{number:03}.png" for number in range(count)]
    for number, name in enumerate(names):
        write_picture(name, (number, 0, 0), (9 + number % 7, 12))
    return names


def test_two_processes_share_the_pictures(imgconv: Command, device: DeviceInfo) -> None:
    """One line for each picture, with its own answer; a bad one is named; a second start has nothing to do."""
    names = write_pictures(12)
    Path("bad.png").write_text("no picture")
    twice = f"{device.index},{device.index}"
    given = ("means.onnx", *names, "bad.png", "--devices", twice)
    command = ("run", *given, "--jsonl", "r.jsonl", "--output", "made/")
    status, out, err = imgconv(*command, "--json")
    assert status == 1 and "1 of 13 pictures cannot be read; the first is 'bad.png'" in err
    lines = [json.loads(line) for line in Path("r.jsonl").read_text().splitlines()]
    assert sorted(line["picture"] for line in lines) == sorted([*names, "bad.png"])
    for line in lines:
        if "error" not in line:
            scores = {each["index"]: each["score"] for each in line["answers"]["y"]["classes"]}
            assert scores[0] == pytest.approx(int(line["picture"][:3]), abs=1e-3)
    told = json.loads(out)
    assert {each["device"] for each in told["devices"]} == {device.key} and len(told["results"]) == 13
    assert len(list(Path("made").iterdir())) == 12
    assert "all 13 pictures are in" in imgconv(*command)[2]


def test_a_killed_process_is_named(imgconv: Command, device: DeviceInfo) -> None:
    names = write_pictures(60)
    line = read_command_line(parse(["run", "means.onnx", *names]))
    messages = dispatch(line, (9, 12), items_of(line), 60, [device, device])
    assert isinstance(next(messages), DeviceSummary)
    multiprocessing.active_children()[0].kill()
    with pytest.raises(DeviceError, match=rf"^\[{device.index}\] .*: its process was killed by SIGKILL$"):
        list(messages)
    assert not multiprocessing.active_children()


def test_processes_ignore_interrupts_from_their_first_moment() -> None:
    """Else one that is still importing would print a traceback at Ctrl-C, which goes to all."""
    ask = [sys.executable, "-c", "import signal; print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"]
    # A shell's job in the background ignores interrupts, and its processes with it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with ignore_interrupts():
            assert subprocess.run(ask, capture_output=True, text=True).stdout == "True\n"
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert subprocess.run(ask, capture_output=True, text=True).stdout == "False\n"
    finally:
        signal.signal(signal.SIGINT, before)


def test_errors_of_a_process_are_raised_here(imgconv: Command, device: DeviceInfo) -> None:
    """The task is asked for, which only the processes know."""
    names = write_pictures(3)
    line = read_command_line(parse(["run", "means.onnx", *names, "--task", "pose"]))
    with pytest.raises(DeviceError, match="do not show the head"):
        list(dispatch(line, (9, 12), items_of(line), None, [device]))


def test_what_the_options_exclude(imgconv: Command) -> None:
    write_classifier()
    write_picture("a.png", (1, 2, 3))
    status, _, err = imgconv("run", "means.onnx", "a.png", "--devices", "all", "--device", 0)
    assert status == 1 and "leave out --device" in err
    status, _, err = imgconv("run", "means.onnx", "--devices", "all")
    assert status == 1


def test_frames_go_with_their_pixels() -> None:
    """A frame of a video is known to this process only; a file is read by the process that gets it."""
    picture = Image.new("RGB", (3, 2), "red")
    frame = sendable(PictureItem(1, "v.mkv#0", lambda: picture))
    assert frame.read and frame.read().getpixel((1, 1)) == (255, 0, 0)

    def broken() -> Any:
        raise InputError("no frame")

    lost = sendable(PictureItem(2, "v.mkv#1", broken))
    with pytest.raises(InputError, match="no frame"):
        assert lost.read
        lost.read()
    named = PictureItem(3, "a.png", partial(Image.open, "a.png"))
    assert sendable(named) is named


def test_heads_are_told_before_pictures(imgconv: Command, device: DeviceInfo) -> None:
    names = write_pictures(2)
    line = read_command_line(parse(["run", "means.onnx", *names, "--json"]))
    messages = list(dispatch(line, (9, 12), items_of(line), 2, [device]))
    assert [type(message) for message in messages] == [DeviceSummary, PrintableResult, PrintableResult]
    assert isinstance(messages[0], DeviceSummary) and messages[0].name == device.name and messages[0].seconds > 0
