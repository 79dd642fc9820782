"""A folder that cannot be used: its error is told once, and holds nothing."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path

import pytest

from imgconv.files import disk_cache
from imgconv.files.disk_cache import DiskCache


class Held:
    pass


def test_an_error_holds_no_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """The traceback of one that is kept would hold what its callers hold: the session of each load."""

    def refused(name: str) -> Path:
        raise PermissionError(name)

    def read() -> weakref.ref[Held]:
        held = Held()
        assert DiskCache("programs", 1).read("key") is None
        return weakref.ref(held)

    monkeypatch.setattr(disk_cache, "own_folder", refused)
    monkeypatch.setattr(disk_cache, "_troubles", [])
    with pytest.warns(RuntimeWarning, match="cannot be cached"):
        seen = read()
    gc.collect()
    assert seen() is None
