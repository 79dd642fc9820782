"""imgconv run: pictures that processes read show what they show to threads, in their order, each once."""

from __future__ import annotations

import json
import multiprocessing
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from command_line import Command, write_classifier, write_model, write_picture
from onnx.helper import make_node
import pytest
from PIL import Image

from imgconv.cl.device import DeviceInfo
from imgconv.cli import parse
from imgconv.commands import processes, run
from imgconv.commands.pool import Pool
from imgconv.commands.processes import Processes, duty_of, number_of
from imgconv.commands.run import read_command_line
from imgconv.commands.runner import Runner, items_of
from imgconv.errors import Error, InputError


OWN = """\
import sys
from imgconv import cli
from imgconv.commands import processes, spread

processes.TRIED, processes.number_of, start = 3, lambda *_: 1, processes.Processes.start
spread.early_pool = lambda *_: processes.Pool(1)

def noted(*given):
    print("starts", given[3], file=sys.stderr)
    return start(*given)

processes.Processes.start = noted
if __name__ == "__main__":
    sys.exit(cli.main(sys.argv[1:]))
"""


def write_pictures(number: int) -> list[str]:
    write_classifier()
    names = [f"{each:03}.png" for each in range(number)]
    for each, name in enumerate(names):
        write_picture(name, (each, 0, 0), (9 + each % 7, 12))
    return names


@pytest.mark.parametrize(
    ("taken", "computing", "left", "cores", "number"),
    [
        (0.0025, 0.001, 1900, 16, 6),
        (0.006, 0.0025, 1900, 16, 3),
        (0.0025, 0.00001, 1900, 64, 31),
        (0.0025, 0.0005, 1900, 32, 12),  # an H200 with 32 cores
        (0.0025, 0.0005, 1900, 4, 3),  # one core stays
        (0.0025, 0.0005, 1900, 2, 0),
        (0.0025, 0.0005, 199, 16, 0),  # done in less than half a second
        (0.0025, 0.0021, 1900, 16, 0),  # the device is busy
        (0.0025, 0.0, 0, 16, 0),
    ],
)
def test_as_many_processes_as_the_device_waits_for(
    taken: float, computing: float, left: int, cores: int, number: int
) -> None:
    assert number_of(taken, 0.004, computing, left, cores) == number


def test_processes_show_what_threads_show(imgconv: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first three pictures are run by threads, the others by two processes; one of them cannot be read."""
    names = write_pictures(14)
    Path(names[8]).write_text("no picture")
    started: list[int] = []
    through = Processes.through

    def noted(self: Processes, items: Iterator[Any]) -> Iterator[Any]:
        started.append(len(self))
        return through(self, items)

    def waited(is_over: Callable[[], bool], items: Iterator[Any]) -> Iterator[Any]:
        while not is_over():
            time.sleep(0.01)
        time.sleep(0.5)  # for the second one
        return iter(())

    monkeypatch.setattr(Processes, "through", noted)
    monkeypatch.setattr(run, "early_pool", lambda *_: Pool(2))
    monkeypatch.setattr(processes, "TRIED", 3)
    monkeypatch.setattr(processes, "until", waited)  # else threads may read all while processes start
    for number in (0, 2):
        monkeypatch.setattr(processes, "number_of", lambda *_, number=number: number)
        status, _, err = imgconv("run", "means.onnx", *names, "--jsonl", f"{number}.jsonl", "--output", f"{number}/")
        assert status == 1 and "1 of 14 pictures cannot be read; the first is '008.png'" in err
    assert started == [2]
    lines = [json.loads(line) for line in Path("2.jsonl").read_text().splitlines()]
    assert [line["picture"] for line in lines] == names
    for line in lines:
        if "error" not in line:
            scores = {each["index"]: each["score"] for each in line["answers"]["y"]["classes"]}
            assert scores[0] == pytest.approx(int(line["picture"][:3]), abs=1e-3)
    assert Path("2.jsonl").read_text().replace("2/", "0/") == Path("0.jsonl").read_text()
    assert len(list(Path("2").iterdir())) == 13


def started(
    words: list[str], number: int = 2, together: int = 2, most: int | None = None
) -> tuple[Processes, Iterator[Any]]:
    line = read_command_line(parse(["run", *words]))
    runner = Runner.load(line, (9, 12), lambda *_: None)
    pictures = runner.apart()
    assert pictures
    duty = duty_of(runner.model, pictures, together, with_lines=True)
    made = Processes.start(runner.model, Pool(most or number), duty, number)
    assert made
    return made, items_of(line)


def test_a_killed_process_loses_nothing(imgconv: Command, capsys: pytest.CaptureFixture[str]) -> None:
    names = write_pictures(40)
    made, items = started(["means.onnx", *names])
    found = []
    with made:
        for shown in made.through(items):
            found.append(shown.result["picture"])
            if len(found) == 1:
                multiprocessing.active_children()[0].kill()
    assert found == names
    assert "ended by SIGKILL; the others get its pictures" in capsys.readouterr().err


def test_more_processes_start_while_the_device_waits(imgconv: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as may be, one after the other; they get pictures too."""
    monkeypatch.setattr(processes, "PAUSE", 0.0)
    monkeypatch.setattr(processes, "WAITS", 0.0)
    names = write_pictures(300)
    made, items = started(["means.onnx", *names], 1, most=3)
    counts = []

    def unhurried() -> Iterator[Any]:
        for item in items:
            time.sleep(0.01 if len(made) < 3 else 0)
            yield item

    with made:
        found = []
        for shown in made.through(unhurried()):
            found.append(shown.result["picture"])
            counts.append(len(made))
    assert found == names
    assert max(counts) == 3


def test_no_process_more_starts_while_the_device_is_busy(imgconv: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "PAUSE", 0.0)
    monkeypatch.setattr(processes, "WAITS", 2.0)  # more than all of the time
    names = write_pictures(60)
    made, items = started(["means.onnx", *names], 1, most=3)
    with made:
        for _ in made.through(items):
            assert len(made) == 1


def test_pictures_of_all_sorts(imgconv: Command) -> None:
    """Too large for the device to prepare, not readable, and such as frames of a video, which go with their pixels."""
    names = write_pictures(20)
    Path(names[3]).write_text("no picture")
    write_picture(names[5], (5, 0, 0), (2100, 1400))
    made, items = started(["means.onnx", *names], 2)
    unnamed = [
        replace(item, read=(lambda name=item.name: Image.open(name).convert("RGB"))) if item.position > 10 else item
        for item in items
    ]
    with made:
        found = [shown.result for shown in made.through(iter(unnamed))]
    assert [each["picture"] for each in found] == names
    assert ["error" in each for each in found] == [number == 3 for number in range(20)]
    for number, each in enumerate(found):
        if number != 3:
            scores = {score["index"]: score["score"] for score in each["answers"]["y"]["classes"]}
            assert scores[0] == pytest.approx(number, abs=1e-3)


def test_processes_killed_before_they_read_lose_nothing(imgconv: Command, capsys: pytest.CaptureFixture[str]) -> None:
    names = write_pictures(30)
    made, items = started(["means.onnx", *names], 4)
    for process in multiprocessing.active_children()[:3]:
        process.kill()
        process.join()  # sending to it fails from now on
    with made:
        assert [shown.result["picture"] for shown in made.through(items)] == names
    assert capsys.readouterr().err.count("the others get its pictures") == 3


def test_a_process_that_cannot_start_is_left_out(imgconv: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one starts; without any, the threads go on."""
    names = write_pictures(20)
    real, calls = ForkServerProcess.start, [0]

    def start(process: Any) -> None:
        calls[0] += 1
        if calls[0] > 1:
            raise BlockingIOError("no process more")
        real(process)

    monkeypatch.setattr(ForkServerProcess, "start", start)
    made, items = started(["means.onnx", *names], 3)
    with made:
        assert len(multiprocessing.active_children()) == 1
        assert [shown.result["picture"] for shown in made.through(items)] == names
    monkeypatch.setattr(run, "early_pool", lambda *_: Pool(2))
    monkeypatch.setattr(processes, "TRIED", 3)
    monkeypatch.setattr(processes, "number_of", lambda *_: 2)
    status, _, _ = imgconv("run", "means.onnx", *names, "--jsonl", "r.jsonl")
    lines = [json.loads(line) for line in Path("r.jsonl").read_text().splitlines()]
    assert status == 0 and [line["picture"] for line in lines] == names


def test_what_a_process_is_sent_fits_into_a_pipe(imgconv: Command) -> None:
    """Else its start waits until it reads: those of many pictures would start one after another."""
    write_classifier()
    names = [f"folder/{each:06}.png" for each in range(10_000)]
    line = read_command_line(parse(["run", "means.onnx", *names]))
    pictures = Runner.load(line, (9, 12), lambda *_: None).apart()
    assert len(pickle.dumps(pictures)) < 20_000 and len(pickle.dumps(line.sendable())) < 20_000


def test_devices_have_processes_of_their_own(imgconv: Command, device: DeviceInfo) -> None:
    """Two processes for a device, each of which starts one that reads, after three pictures."""
    names = write_pictures(40)
    Path("own.py").write_text(OWN)
    twice = f"{device.index},{device.index}"
    command = [sys.executable, "own.py", "run", "means.onnx", *names, "--devices", twice, "--jsonl", "r.jsonl"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("starts 1") == 2
    lines = [json.loads(line) for line in Path("r.jsonl").read_text().splitlines()]
    assert sorted(line["picture"] for line in lines) == names
    for line in lines:
        scores = {each["index"]: each["score"] for each in line["answers"]["y"]["classes"]}
        assert scores[0] == pytest.approx(int(line["picture"][:3]), abs=1e-3)


def test_without_a_process_left_it_says_what_was_read(imgconv: Command) -> None:
    names = write_pictures(20)
    made, items = started(["means.onnx", *names], 1)
    with made, pytest.raises(Error, match=r"no process is left .* 00\d.png.*SIGKILL"):
        for _ in made.through(items):
            for process in multiprocessing.active_children():
                process.kill()


def test_errors_of_a_process_are_raised_here(imgconv: Command) -> None:
    """The head finds no boxes in scores, which only the process sees."""
    names = write_pictures(4)
    made, items = started(["means.onnx", *names, "--task", "detect", "--head", "boxes"])
    with made, pytest.raises(InputError, match="are none of head 'boxes'"):
        list(made.through(items))


def test_what_threads_do_alone(imgconv: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles take several runs; outputs of unknown size have no place; shared memory may be too small."""
    names = write_pictures(2)
    write_model("image.onnx", [make_node("Relu", ["x"], ["y"])], {"x": [1, 3, 8, 8]})
    write_model("some.onnx", [make_node("NonZero", ["x"], ["y"])], {"x": [1, 3, 8, 8]})
    for words in (["image.onnx", "--task", "image"], ["means.onnx", "--tile", "4"], ["some.onnx"]):
        line = read_command_line(parse(["run", *words, *names]))
        assert Runner.load(line, (9, 12), lambda *_: None).apart() is None, words
    runner = Runner.load(read_command_line(parse(["run", "means.onnx", *names])), (9, 12), lambda *_: None)
    pictures = runner.apart()
    assert pictures and runner.model
    monkeypatch.setattr(processes, "BYTES", 1000)
    with Pool(2) as pool:
        assert Processes.start(runner.model, pool, duty_of(runner.model, pictures, 2, with_lines=False), 2) is None


def test_processes_that_are_not_needed_are_ended(imgconv: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are there, and those that are still being started."""
    pools: list[Pool] = []

    def early(*_: Any) -> Pool:
        pools.append(Pool(3))
        return pools[0]

    names = write_pictures(5)
    monkeypatch.setattr(run, "early_pool", early)
    assert imgconv("run", "means.onnx", *names)[0] == 0
    assert pools[0].take() is None
    end = time.monotonic() + 20
    while multiprocessing.active_children() and time.monotonic() < end:
        time.sleep(0.01)
    assert not multiprocessing.active_children()
