"""Running command lines of imgconv in a test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from imgconv import cli

Command = Callable[..., tuple[int, str, str]]


def in_folder(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *last: object
) -> Command:
    """Goes to the folder and forgets imgconv's environment; then runs command lines that end with `last`.

    Each gives its exit status, stdout and stderr.
    """
    for name in ("IMGCONV_DEVICE", "IMGCONV_MAX_IMAGE", "FLOAT16", "NATIVE_EXPLOG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(folder)

    def run(*arguments: object) -> tuple[int, str, str]:
        try:
            status = cli.main([str(argument) for argument in (*arguments, *last)])
        except SystemExit as stop:
            status = int(stop.code or 0)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run
