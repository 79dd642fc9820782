"""`make` in a folder: two at once install one after another."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support import HANG_TIMEOUT

ROOT = Path(__file__).parent.parent
# Stands for Python: `-m venv` makes an environment whose Python is this script too, and pip takes a while.
PYTHON = f"""#!/bin/sh
case "$1 $2" in
  "-m venv") mkdir -p "$3/bin" && sleep 0.2 && cp "$0" "$3/bin/python" ;;
  "-m pip") echo begin >> pip.log; sleep 0.5; echo end >> pip.log ;;
  *) exec "{sys.executable}" "$@" ;;
esac
"""


@pytest.mark.skipif(not shutil.which("make"), reason="there is no make")
def test_makes_at_once_install_one_after_another(tmp_path: Path) -> None:
    """In a folder with a space and an umlaut; what one has installed the other does not install again."""
    folder = tmp_path / "räum lich"
    folder.mkdir()
    for name in ("Makefile", "setup.cfg", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    (folder / "python").write_text(PYTHON)
    (folder / "python").chmod(0o755)
    command = ["make", "PYTHON=./python", ".venv/installed-cpu", ".venv/installed-test"]
    makes = [subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for _ in range(3)]
    said = [make.communicate(timeout=HANG_TIMEOUT)[0].decode() for make in makes]
    assert [make.returncode for make in makes] == [0] * 3, said
    assert (folder / "pip.log").read_text().split() == ["begin", "end"] * 2
    assert sum(text.count("installing imgconv[test]") for text in said) == 1
