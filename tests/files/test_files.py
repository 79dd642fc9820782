"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from imgconv.errors import InputError
from imgconv.files import disk as files
from imgconv.files.disk import atomic_write


def test_what_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt), atomic_write(path) as file:
        file.write(b"new")
        raise KeyboardInterrupt
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["file"]


def test_a_new_file_has_the_usual_mode(tmp_path: Path) -> None:
    (tmp_path / "usual").touch()
    with atomic_write(tmp_path / "file") as file:
        file.write(b"new")
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("usual", "file")]
    assert modes[0] == modes[1]


def test_eight_threads_write_one_path(tmp_path: Path) -> None:
    """Each of them succeeds, and what stays is whole."""
    path = tmp_path / "file"

    def write(thread: int) -> None:
        for _ in range(50):
            with atomic_write(path) as file:
                for _ in range(64):
                    file.write(bytes([thread]) * 64)

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(write, thread) for thread in range(8)]:
            done.result(60)
    content = path.read_bytes()
    assert content == bytes([content[0]]) * 4096 and os.listdir(tmp_path) == ["file"]


def test_what_a_killed_process_left_goes(tmp_path: Path) -> None:
    """With the next file at this path; the files of those that still write, and of other paths, stay."""
    path, other = tmp_path / "file [1]", tmp_path / "file 1"
    code = (
        "import os, signal, sys\nfrom imgconv.files.disk import atomic_write\n"
        "with atomic_write(sys.argv[1]) as file:\n    file.write(b'half')\n    os.kill(os.getpid(), signal.SIGKILL)"
    )
    for each in (path, path, other):
        assert subprocess.run([sys.executable, "-c", code, str(each)], check=False).returncode == -signal.SIGKILL
    assert len(os.listdir(tmp_path)) == 2  # each process removes what the one before left
    with atomic_write(path) as slow:
        slow.write(b"slow")
        with atomic_write(path) as fast:
            fast.write(b"fast")
        assert path.read_bytes() == b"fast"
    assert path.read_bytes() == b"slow"
    assert len(os.listdir(tmp_path)) == 2 and path.name in os.listdir(tmp_path)


def test_a_file_that_is_removed_before_it_is_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock, calls = files.lock, 0

    def late(file: object, wait: bool) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            files._remove_abandoned(tmp_path / "file")
        lock(file, wait)  # type: ignore[arg-type]

    monkeypatch.setattr(files, "lock", late)
    with atomic_write(tmp_path / "file") as file:
        file.write(b"whole")
    assert (tmp_path / "file").read_bytes() == b"whole" and os.listdir(tmp_path) == ["file"] and calls == 3


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "fcntl", None)
    for content in (b"one", b"two"):
        with atomic_write(tmp_path / "file") as file:
            file.write(content)
            with pytest.raises(InputError, match=r"cannot write .*none.*No such file"), atomic_write("none/file"):
                pass
    assert (tmp_path / "file").read_bytes() == b"two" and os.listdir(tmp_path) == ["file"]
