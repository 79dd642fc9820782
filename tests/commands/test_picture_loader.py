"""imgconv run: pictures that worker processes read show what they show to threads, in their order, each once."""

from __future__ import annotations

import json
import multiprocessing
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from command_line import Command, write_classifier, write_model, write_picture
from onnx.helper import make_node
import pytest

from imgconv.cl.device import DeviceInfo
from imgconv.cli import parse
from imgconv.commands import picture_loader
from imgconv.commands.picture_loader import PictureLoader, worker_count
from imgconv.commands.run import read_command_line
from imgconv.commands.runner import PictureItem, PictureRunner, items_of
from imgconv.errors import Error, InputError

pytestmark = pytest.mark.skipif(
    "forkserver" not in multiprocessing.get_all_start_methods(), reason="this system has no server that forks"
)
# The command line, with two workers for three pictures or more, which it reports.
TWO_WORKERS = """\
import sys
from imgconv import cli
from imgconv.commands import dispatch, picture_loader

picture_loader.MANY, picture_loader.MOST_WORKERS, begin = 3, 2, picture_loader.PictureLoader.start_workers
dispatch.available_cores = lambda: 2 * picture_loader.CORES

def reported(self, *given):
    began = begin(self, *given)
    sys.stderr.write(f"workers {len(self._processes)}\\n")  # whole, beside another process
    return began

picture_loader.PictureLoader.start_workers = reported
if __name__ == "__main__":
    sys.exit(cli.main(sys.argv[1:]))
"""


def write_pictures(number: int) -> list[str]:
    write_classifier()
    names = [f"{each:03}.png" for each in range(number)]
    for each, name in enumerate(names):
        write_picture(name, (each, 0, 0), (9 + each % 7, 12))
    return names


def red_of(result: dict[str, Any]) -> float:
    """The score that the classifier gives a picture for its mean red."""
    return float({each["index"]: each["score"] for each in result["answers"]["y"]["classes"]}[0])


@contextmanager
def workers(words: list[str], count: int = 2) -> Iterator[tuple[PictureLoader, Iterator[PictureItem]]]:
    """A PictureLoader that has begun, and the pictures of the command line."""
    with PictureLoader(count) as made:
        line = read_command_line(parse(["run", *words]))
        assert made.start_workers(PictureRunner.load(line, (9, 12), lambda *_: None), True)
        yield made, items_of(line)


@pytest.mark.parametrize(
    ("pictures", "cores", "count"),
    [(1000, 8, 7), (1000, 4, 3), (1000, 3, 0), (399, 8, 0), (None, 8, 0), (1000, 64, 16)],
)
def test_the_number_of_workers(pictures: int | None, cores: int, count: int) -> None:
    """One core stays; few pictures, few cores and a camera, which has no last picture, are for threads."""
    assert worker_count(pictures, cores) == count


def test_workers_show_what_threads_show(imgconv: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of the pictures cannot be read, one is too large for the device to prepare."""
    names = write_pictures(14)
    Path(names[8]).write_text("no picture")
    write_picture(names[5], (5, 0, 0), (2100, 1400))
    began: list[bool] = []
    begin = PictureLoader.start_workers

    def noted(self: PictureLoader, runner: PictureRunner, with_lines: bool) -> bool:
        began.append(begin(self, runner, with_lines))
        return began[-1]

    monkeypatch.setattr(PictureLoader, "start_workers", noted)
    for number in (0, 2):
        monkeypatch.setattr("imgconv.commands.run.worker_count", lambda *_, number=number: number)
        status, _, err = imgconv("run", "means.onnx", *names, "--jsonl", f"{number}.jsonl", "--output", f"{number}/")
        assert status == 1 and "1 of 14 pictures cannot be read; the first is '008.png'" in err
    assert began == [False, True]
    lines = [json.loads(line) for line in Path("2.jsonl").read_text().splitlines()]
    assert [line["picture"] for line in lines] == names
    assert ["error" in line for line in lines] == [number == 8 for number in range(14)]
    for number, line in enumerate(lines):
        assert number == 8 or red_of(line) == pytest.approx(number, abs=1e-3)
    assert Path("2.jsonl").read_text().replace("2/", "0/") == Path("0.jsonl").read_text()
    assert len(list(Path("2").iterdir())) == 13


def test_a_killed_worker_is_an_error(imgconv: Command) -> None:
    """It names the pictures that the worker had, none of which was yielded."""
    names = write_pictures(40)
    found: list[str] = []
    with workers(["means.onnx", *names]) as (made, items):
        with pytest.raises(Error, match="^the worker that had .* failed: its process was killed by SIGKILL$") as error:
            for result in made.run_all(items):
                found.append(result.result["picture"])
                if len(found) == 1:
                    next(iter(made._processes.values())).kill()
    assert found == names[: len(found)] and 0 < len(found) < 40
    named = re.findall(r"\d{3}\.png", str(error.value))
    assert 0 < len(named) <= picture_loader.PREFETCH and set(named).isdisjoint(found)


def test_a_worker_that_cannot_start_is_left_out(imgconv: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one starts; without any, threads read all pictures."""
    names = write_pictures(20)
    real, calls = ForkServerProcess.start, [0]

    def start(process: Any) -> None:
        calls[0] += 1
        if calls[0] > 1:
            raise BlockingIOError("no process more")
        real(process)

    monkeypatch.setattr(ForkServerProcess, "start", start)
    with workers(["means.onnx", *names], 3) as (made, items):
        assert len(made._processes) == 1
        assert [result.result["picture"] for result in made.run_all(items)] == names
    calls[0] = 1
    monkeypatch.setattr("imgconv.commands.run.worker_count", lambda *_: 2)
    status, _, _ = imgconv("run", "means.onnx", *names, "--jsonl", "r.jsonl")
    lines = [json.loads(line) for line in Path("r.jsonl").read_text().splitlines()]
    assert status == 0 and [line["picture"] for line in lines] == names


def test_what_a_worker_is_sent_fits_into_a_pipe(imgconv: Command) -> None:
    """Else its start waits until it reads: those of many pictures would start one after another."""
    write_classifier()
    names = [f"folder/{each:06}.png" for each in range(10_000)]
    line = read_command_line(parse(["run", "means.onnx", *names]))
    pictures = PictureRunner.load(line, (9, 12), lambda *_: None).for_workers()
    assert len(pickle.dumps(pictures)) < 20_000 and len(pickle.dumps(line.sendable())) < 20_000


def test_devices_have_workers_of_their_own(imgconv: Command, device: DeviceInfo) -> None:
    """Two processes for a device, each of which starts two that read."""
    names = write_pictures(40)
    Path("own.py").write_text(TWO_WORKERS)
    twice = f"{device.index},{device.index}"
    command = [sys.executable, "own.py", "run", "means.onnx", *names, "--devices", twice, "--jsonl", "r.jsonl"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("workers 2") == 2
    lines = [json.loads(line) for line in Path("r.jsonl").read_text().splitlines()]
    assert sorted(line["picture"] for line in lines) == names
    for line in lines:
        assert red_of(line) == pytest.approx(int(line["picture"][:3]), abs=1e-3)


def test_errors_of_a_worker_are_raised_here(imgconv: Command) -> None:
    """The head finds no boxes in scores, which only the worker sees."""
    names = write_pictures(4)
    with workers(["means.onnx", *names, "--task", "detect", "--head", "boxes"]) as (made, items):
        with pytest.raises(InputError, match="head 'boxes' expects"):
            list(made.run_all(items))


def test_what_threads_do_alone(imgconv: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles take several runs; outputs of unknown size have no place; shared memory may be too small."""
    names = write_pictures(2)
    write_model("image.onnx", [make_node("Relu", ["x"], ["y"])], {"x": [1, 3, 8, 8]})
    write_model("some.onnx", [make_node("NonZero", ["x"], ["y"])], {"x": [1, 3, 8, 8]})
    with PictureLoader(1) as made:
        for words in (["image.onnx", "--task", "image"], ["means.onnx", "--tile", "4"], ["some.onnx"]):
            line = read_command_line(parse(["run", *words, *names]))
            assert not made.start_workers(PictureRunner.load(line, (9, 12), lambda *_: None), False), words
        runner = PictureRunner.load(read_command_line(parse(["run", "means.onnx", *names])), (9, 12), lambda *_: None)
        monkeypatch.setattr(picture_loader, "BYTES", 1000)
        assert not made.start_workers(runner, False)


def test_workers_end_with_the_loader(imgconv: Command) -> None:
    names = write_pictures(2)
    with workers(["means.onnx", *names], 3) as (made, _):
        processes = list(made._processes.values())
        assert len(processes) == 3 and all(process.is_alive() for process in processes)
    assert not any(process.is_alive() for process in processes)
