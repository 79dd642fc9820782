"""The fixture of tests of the command line."""

from __future__ import annotations

from pathlib import Path

from command_line import Command, in_folder
import pytest


@pytest.fixture
def imgconv(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    """Runs one command line in an empty folder: exit status, stdout, stderr."""
    return in_folder(tmp_path, capsys, monkeypatch)
