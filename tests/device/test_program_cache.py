"""Programs on disk: a help that nothing depends on, and that nobody else can write to."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import platformdirs
import pytest
from support import HANG_TIMEOUT

from imgconv.cl.building import program
from imgconv.cl.context import Context
from imgconv.cl.device import DeviceInfo
from imgconv.cl.quirks import quirks_of
from imgconv.cl.building.program import PROGRAMS, program_key
from imgconv.files import disk_cache
from imgconv.files.disk_cache import DiskCache

KEY, BINARY = "ab" * 32, bytes(range(256)) * 8
SOURCE = "kernel void store(global float *values) { values[0] = 1.5f; }"
ROOT = Path(program.__file__).parents[2]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns the folder of this test's programs, which does not exist yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(disk_cache, "_troubles", [])
    return tmp_path / "imgconv" / "programs"


def stored(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def quiet_round_trip() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        PROGRAMS.write(KEY, BINARY)
        assert PROGRAMS.read(KEY) == BINARY


# Entries


def test_an_entry_is_this_users_alone(folder: Path) -> None:
    assert PROGRAMS.read(KEY) is None
    quiet_round_trip()
    assert stored(folder) == [KEY] and folder.stat().st_mode & 0o777 == 0o700
    assert (folder / KEY).stat().st_mode & 0o777 == 0o600
    PROGRAMS.write(KEY, b"newer")
    assert PROGRAMS.read(KEY) == b"newer" and stored(folder) == [KEY]


def flipped(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


@pytest.mark.parametrize("at", [0, 7, 8, 39, 40, -1])
def test_a_damaged_entry_is_none(folder: Path, at: int) -> None:
    PROGRAMS.write(KEY, BINARY)
    content = (folder / KEY).read_bytes()
    (folder / KEY).write_bytes(flipped(content, at % len(content)))
    assert PROGRAMS.read(KEY) is None
    quiet_round_trip()


@pytest.mark.parametrize("length", [0, 3, 8, 39, 40, 1000])
def test_an_entry_that_was_cut_off_is_none(folder: Path, length: int) -> None:
    PROGRAMS.write(KEY, BINARY)
    (folder / KEY).write_bytes((folder / KEY).read_bytes()[:length])
    assert PROGRAMS.read(KEY) is None
    quiet_round_trip()


def test_an_entry_of_another_key_is_none(folder: Path) -> None:
    PROGRAMS.write(KEY, BINARY)
    (folder / KEY).rename(folder / KEY[::-1])
    assert PROGRAMS.read(KEY[::-1]) is None


def test_keys_tell_everything_apart(device: DeviceInfo) -> None:
    names = "platform", "name", "driver_version", "opencl_version", "instruction_set"
    others = [replace(device, **{name: "other"}) for name in names]
    keys = [
        program_key(device, "a", []), program_key(device, "b", []), program_key(device, "a", ["-b"]),
        program_key(device, "a", ["-b", "-c"]), program_key(device, "a", ["-b-c"]),
        *(program_key(other, "a", []) for other in others),
    ]
    assert len(set(keys)) == len(keys) and program_key(device, "a", ["-b"]) == keys[2]


# Nobody else can plant a program


def refused(folder: Path, match: str) -> None:
    """Reading and writing warn once, of what is wrong, and give nothing."""
    with pytest.warns(RuntimeWarning, match=match) as warned:
        assert PROGRAMS.read(KEY) is None
        PROGRAMS.write(KEY, BINARY)
        assert PROGRAMS.read(KEY) is None
    assert len(warned) == 1 and "cannot be cached" in str(warned[0].message)


def test_a_full_disk_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.warns(RuntimeWarning, match=f"No space left on device: '{folder}'"):
        PROGRAMS.write(KEY, BINARY)
    assert stored(folder) == []


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_a_folder_that_others_can_write_to(folder: Path, mode: int) -> None:
    PROGRAMS.write(KEY, BINARY)
    folder.chmod(mode)
    refused(folder, "others than this user")


def test_an_entry_that_others_can_write_to(folder: Path) -> None:
    PROGRAMS.write(KEY, BINARY)
    (folder / KEY).chmod(0o622)
    with pytest.warns(RuntimeWarning, match="others than this user"):
        assert PROGRAMS.read(KEY) is None
    quiet_round_trip()


def test_a_folder_of_somebody_else(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    PROGRAMS.write(KEY, BINARY)
    other = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: other)
    refused(folder, "others than this user")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_an_entry_of_somebody_else(folder: Path) -> None:
    PROGRAMS.write(KEY, BINARY)
    os.chown(folder / KEY, 12345, -1)
    with pytest.warns(RuntimeWarning, match="others than this user"):
        assert PROGRAMS.read(KEY) is None
    quiet_round_trip()


def test_links_are_not_followed(folder: Path, tmp_path: Path) -> None:
    PROGRAMS.write(KEY, BINARY)
    (folder / KEY).rename(tmp_path / "elsewhere")
    (folder / KEY).symlink_to(tmp_path / "elsewhere")
    with pytest.warns(RuntimeWarning, match="not a plain file"):
        assert PROGRAMS.read(KEY) is None
    quiet_round_trip()
    folder.rename(tmp_path / "moved")
    folder.symlink_to(tmp_path / "moved")
    disk_cache._troubles.clear()
    refused(folder, "not a folder")


# A cache that cannot be used


def test_a_cache_folder_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    refused(folder, "file")


def homeless(name: str) -> Path:
    raise RuntimeError("no home")


@pytest.mark.parametrize(
    ("answer", "match"), [(lambda name: Path("~/.cache", name), "no folder ~"), (homeless, "no home")],
    ids=["older platformdirs", "newer"],
)
def test_a_user_without_a_home(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Callable[[str], Path], match: str
) -> None:
    """No folder of the name "~" appears where the process happens to be."""
    monkeypatch.setattr(platformdirs, "user_cache_path", answer)
    monkeypatch.chdir(tmp_path)
    refused(folder, match)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("place", ["replace", "fdopen", "mkstemp"])
def test_a_full_disk(folder: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    def full(*arguments: Any, **named: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    PROGRAMS.write("old", BINARY)
    monkeypatch.setattr(disk_cache.tempfile if place == "mkstemp" else os, place, full)
    refused(folder, "No space left")
    assert stored(folder) == ["old"] and PROGRAMS.read("old") == BINARY


# Size


def test_what_was_used_longest_ago_goes_first(folder: Path) -> None:
    cache = DiskCache("programs", 3 * (len(BINARY) + disk_cache.HEAD))
    for number, key in enumerate("abc"):
        cache.write(key, BINARY)
        os.utime(folder / key, (1000 + number, 1000 + number))
    (folder / ".left.part").write_bytes(b"part")
    os.utime(folder / ".left.part", (10, 10))
    assert cache.read("a") == BINARY
    cache.write("d", BINARY)
    assert stored(folder) == ["a", "c", "d"]
    cache.write("huge", BINARY * 4)
    assert stored(folder) == []


# Builds


@pytest.fixture
def compiled(context: Context, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sources that the driver compiled."""
    if quirks_of(context.info.platform).caches_programs:
        pytest.skip("the driver itself keeps what it compiled")
    found: list[str] = []
    original = program.compile_text
    monkeypatch.setattr(
        program, "compile_text",
        lambda context, part, *rest: (found.append(part.source), original(context, part, *rest))[1],
    )
    return found


def build(context: Context, source: str = SOURCE, options: tuple[str, ...] = ()) -> None:
    program.new_kernel(program.build(context, source, "store.cl", options), "store")


def test_a_second_build_compiles_nothing(context: Context, compiled: list[str], folder: Path) -> None:
    build(context)
    build(context)
    assert compiled == [SOURCE] and len(stored(folder)) == 1
    build(context, options=("-DX=1",))
    build(context, options=("-DX=1",))
    assert compiled == [SOURCE] * 2 and len(stored(folder)) == 2


def test_options_of_the_environment_count(
    context: Context, compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    build(context)
    monkeypatch.setenv("PYOPENCL_BUILD_OPTIONS", "-DX=1")
    build(context)
    assert compiled == [SOURCE] * 2


@pytest.mark.parametrize("content", [b"", b"garbage", "cut", "not wanted"])
def test_a_damaged_program_is_compiled_again(
    context: Context, compiled: list[str], folder: Path, content: str | bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(context)
    (entry,) = folder.iterdir()
    if content == "not wanted":  # Mesa's rusticl ends the process for a binary that it does not know
        monkeypatch.setattr(program, "build_binary", lambda *arguments: None)
    else:
        whole = entry.read_bytes()
        entry.write_bytes(content if isinstance(content, bytes) else whole[: len(whole) // 2])
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        build(context)
    assert compiled == [SOURCE] * 2 and PROGRAMS.read(entry.name) is not None


# Whole processes

LOAD = """
import sys, warnings
import numpy, imgconv
from imgconv.tensor import Tensor, build_graph
x = Tensor.input("x", (1, 4, 8, 8))
graph = build_graph({"y": (x * 2 + 1).relu()}, [x])
with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    found = imgconv.load(graph, device=int(sys.argv[1])).run({"x": numpy.ones((1, 4, 8, 8), numpy.float32)})
assert (found["y"] == 3).all()
print(sum(each.category is RuntimeWarning for each in warned), [str(each.message) for each in warned])
"""


def start(
    device: DeviceInfo, home: Path, cache: str = "cache", before: str = "", within: Sequence[str] = ()
) -> subprocess.Popen[str]:
    """A process that loads a small network and runs it, with a home of its own. PoCL does not start without a cache.

    before: its first lines. within: a command that starts it.
    """
    folders = {"HOME": home, "XDG_CACHE_HOME": home / cache, "POCL_CACHE_DIR": home / "pocl"}
    return subprocess.Popen(
        [*within, sys.executable, "-c", before + LOAD, str(device.index)], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, cwd=home,
        env={**os.environ, "PYTHONPATH": str(ROOT), **{name: str(path) for name, path in folders.items()}},
    )


def warnings_of(process: subprocess.Popen[str]) -> int:
    """Returns the number of warnings that the process counted."""
    out, err = process.communicate(timeout=HANG_TIMEOUT)
    assert process.returncode == 0, err
    return int(out.split()[0])


def test_eight_processes_with_an_empty_cache(device: DeviceInfo, context: Context, tmp_path: Path) -> None:
    running = [start(device, tmp_path) for _ in range(8)]
    assert [warnings_of(process) for process in running] == [0] * 8
    names = {path.name for path in tmp_path.glob("cache/*")}
    assert not names & {"pyopencl", "pytools"}, "pickles"
    kept = 0 if quirks_of(device.platform).caches_programs else 1
    assert len(stored(tmp_path / "cache" / "imgconv" / "programs")) == kept


@pytest.mark.parametrize("before", ["", "import pyopencl\n"], ids=["", "pyopencl is there before"])
def test_load_where_no_cache_can_be(device: DeviceInfo, context: Context, tmp_path: Path, before: str) -> None:
    """Root may write to folders that are read-only, but nobody makes a folder in a file."""
    (tmp_path / "file").touch()
    assert warnings_of(start(device, tmp_path, "file", before)) == 1


FULL = """
import resource, signal
from imgconv.files.disk_cache import DiskCache
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
write, usual = DiskCache.write, resource.getrlimit(resource.RLIMIT_FSIZE)
def full(*arguments):
    resource.setrlimit(resource.RLIMIT_FSIZE, (50, usual[1]))
    write(*arguments)
    resource.setrlimit(resource.RLIMIT_FSIZE, usual)
DiskCache.write = full
"""
NO_HOME = """
import os, pwd
def unknown(number):
    raise KeyError(number)
pwd.getpwuid = unknown
os.environ.pop("HOME")
os.environ.pop("XDG_CACHE_HOME")
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits and users of Linux")
@pytest.mark.parametrize("before", [FULL, NO_HOME], ids=["full disk", "no home"])
def test_load_without_room_or_home(device: DeviceInfo, context: Context, tmp_path: Path, before: str) -> None:
    """The operating system refuses: a part of an entry was written, or the user has no home."""
    written = before != FULL or not quirks_of(device.platform).caches_programs
    assert warnings_of(start(device, tmp_path, before=before)) == written
    assert not (tmp_path / "~").exists()
    assert not [path for path in tmp_path.rglob("imgconv/*/*") if path.is_file() and path.stat().st_size]


def test_load_with_a_read_only_home(device: DeviceInfo, context: Context, tmp_path: Path) -> None:
    """Root is made to heed the mode, by a process without that right."""
    within: list[str] = []
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root may write anywhere")
        within = ["setpriv", "--bounding-set=-dac_override", "--inh-caps=-dac_override"]
    (tmp_path / "pocl").mkdir()
    (tmp_path / "cache").mkdir(mode=0o500)
    assert warnings_of(start(device, tmp_path, within=within)) == 1
    assert list((tmp_path / "cache").iterdir()) == []
