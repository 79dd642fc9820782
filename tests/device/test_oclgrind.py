"""Kernels under oclgrind, a simulator that reports what is read or written outside of memory, and data races.

A sample of the other tests runs again on it as the device, where `oclgrind` is on PATH (Debian has a package of that
name). More by hand, `oclgrind --data-races python -m pytest -n 0 tests/device/test_separable.py` for example.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(
    shutil.which("oclgrind") is None, reason="oclgrind is not on PATH: no kernel was run under it"
)
# Files of tests, and which of them: some ten seconds each.
SAMPLE = {
    "tables": "oclgrind",
    "product": "oclgrind",
    "order": "oclgrind and elementwise",
    "windows": "oclgrind and not large",
    "recurrence": "oclgrind and (two_layers or elementwise)",
    "rows": "oclgrind and (launch or bounds or tiles)",
    "generated": "oclgrind and not operations and not past_short",
    "reductions": "oclgrind and not huge and not repeated",
    "neighbours": "oclgrind",
}
OUTSIDE = """
import numpy
import pyopencl as cl
context = cl.create_some_context(interactive=False)
source = "__constant int table[4] = {0, 1, 2, 3}; __kernel void k(__global int *o) { o[0] = table[get_global_id(0)]; }"
queue, made = cl.CommandQueue(context), cl.Buffer(context, cl.mem_flags.READ_WRITE, 4)
cl.Program(context, source).build().k(queue, (5,), None, made)
queue.finish()
"""


def under_oclgrind(log: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python with some arguments, in the repository's root, with oclgrind as the only driver."""
    # Its optimiser drops reads that nothing uses, and makes 255 of a comparison that becomes a float (21.10).
    options = ("--build-options", "-cl-opt-disable", "--data-races", "--compute-units", "2", "--max-errors", "20")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["XDG_CACHE_HOME"] = str(log.parent)  # no program that was built with other options
    return subprocess.run(
        ["oclgrind", *options, "--log", str(log), sys.executable, *arguments], cwd=ROOT, env=environment, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )


@pytest.mark.parametrize("subject", SAMPLE)
def test_nothing_is_reported(subject: str, tmp_path: Path) -> None:
    log, file = tmp_path / "log", f"tests/device/test_{subject}.py"
    done = under_oclgrind(log, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", file, "-k", SAMPLE[subject])
    assert not log.read_text(), log.read_text()
    assert done.returncode == 0, done.stdout


def test_a_read_outside_of_a_table_is_reported(tmp_path: Path) -> None:
    under_oclgrind(tmp_path / "log", "-c", OUTSIDE)
    assert "exceeds static array size (4)" in (tmp_path / "log").read_text()
