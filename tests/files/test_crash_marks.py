"""imgconv.files.crash_marks: marks of processes that end inside of a `with` block, and of those that do not."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import IO

import pytest

from imgconv.files import crash_marks
from imgconv.files.crash_marks import crash_mark, marks_of_ended_processes
from imgconv.files.disk import lock
from imgconv.files.disk_cache import DiskCache

if sys.platform == "win32":
    pytest.skip("a mark needs locks of files, which Windows lacks", allow_module_level=True)


@pytest.fixture
def where(tmp_path: Path) -> DiskCache:
    return DiskCache(str(tmp_path / "marks"), 2**20)


HOLDING = """
import os, sys
from imgconv.files.disk_cache import DiskCache
from imgconv.files.crash_marks import crash_mark
with crash_mark(DiskCache(sys.argv[1], 2**20), b"at work"):
    print("marked", flush=True)
    sys.stdin.readline()
    os._exit(3)
"""


def holding(where: DiskCache) -> subprocess.Popen[str]:
    """A process inside of `crash_mark`, which ends there when it reads a line."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDING, where.name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert process.stdout is not None and process.stdout.readline() == "marked\n"
    return process


def test_a_block_that_ends_leaves_nothing(where: DiskCache) -> None:
    with crash_mark(where, b"x"):
        assert len(list(where.folder().iterdir())) == 1
    with pytest.raises(ValueError, match="no"), crash_mark(where, b"x"):
        raise ValueError("no")
    assert list(where.folder().iterdir()) == []


def test_only_marks_of_ended_processes_are_taken(where: DiskCache) -> None:
    first, second = holding(where), holding(where)
    assert marks_of_ended_processes(where) == []
    first.communicate("end\n")
    assert first.returncode == 3
    assert marks_of_ended_processes(where) == [b"at work"], "the first one's"
    assert marks_of_ended_processes(where) == [], "once"
    second.communicate("end\n")
    assert marks_of_ended_processes(where) == [b"at work"]


INTERRUPTED = """
import sys, threading, time
from imgconv.files import crash_marks
from imgconv.files.disk_cache import DiskCache
crash_marks.HANG_SECONDS = float(sys.argv[2])
marked = threading.Event()
def work():
    with crash_marks.crash_mark(DiskCache(sys.argv[1], 2**20), b"at work"):
        marked.set()
        time.sleep(600)
threading.Thread(target=work, daemon=True).start()
marked.wait()
raise KeyboardInterrupt
"""


@pytest.mark.parametrize("hang_seconds, left", [(600, []), (0, [b"at work"])])
def test_ctrl_c_leaves_the_marks_of_long_work_only(where: DiskCache, hang_seconds: float, left: list[bytes]) -> None:
    command = [sys.executable, "-c", INTERRUPTED, where.name, str(hang_seconds)]
    path = {"PYTHONPATH": str(Path(__file__).parents[2])}
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **path})
    assert "KeyboardInterrupt" in ended.stderr
    assert marks_of_ended_processes(where) == left


def test_the_own_marks_are_not_taken(where: DiskCache) -> None:
    with crash_mark(where, b"x"):
        assert marks_of_ended_processes(where) == []


def test_a_block_that_ends_meanwhile_is_not_taken(where: DiskCache, monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as block:
        block.enter_context(crash_mark(where, b"x"))

        def lock_after_the_end(file: IO[bytes], wait: bool) -> None:
            block.close()
            lock(file, wait)

        monkeypatch.setattr(crash_marks, "lock", lock_after_the_end)
        assert marks_of_ended_processes(where) == []
        assert list(where.folder().iterdir()) == []


def test_a_mark_that_nothing_was_written_to(where: DiskCache) -> None:
    (where.folder() / f"empty{crash_marks.SUFFIX}").touch()
    assert marks_of_ended_processes(where) == [] == list(where.folder().iterdir())


def test_a_folder_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    for where in (DiskCache(str(tmp_path / "file"), 1), DiskCache(str(tmp_path / "file" / "below"), 1)):
        with crash_mark(where, b"x"):
            assert marks_of_ended_processes(where) == []


def test_a_file_system_without_locks(where: DiskCache, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise OSError("no locks")

    monkeypatch.setattr(crash_marks, "lock", refuse)
    with crash_mark(where, b"x"):
        assert list(where.folder().iterdir()) == []
