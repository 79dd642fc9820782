"""A sample of the device tests under oclgrind, which reports reads and writes outside of memory, and data races.

They run if `oclgrind` is on PATH; Debian has a package of that name. `make oclgrind` runs all of them.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from oclgrind import SUBJECTS, run_tests, under_oclgrind

pytestmark = pytest.mark.skipif(
    shutil.which("oclgrind") is None, reason="oclgrind is not on PATH: no kernel was run under it"
)
# Files of tests, and which of them: some seconds each. Plans of a GPU read images, which has no bounds to be reported.
SAMPLE = {
    "tables": "not (drawn and gpu)",
    "convolution": "test_blocks and (parts or local)",
    "product": "not oclgrind-2",
    "separable": "lanes_past",
    "squeeze_excite": "lanes_past or groups and 5",
    "order": "elementwise or merged and sixteen",
    "windows": "not large and not gpu",
    "recurrence": "two_layers or elementwise",
    "row_groups": "launch and (cpu-0 or gpu-1) or bounds or tiles",
    "generated": SUBJECTS["generated"],
    "reductions": SUBJECTS["reductions"],
    "neighbours": "",
    "winograd2d": "exact and None",
    "pixels": "how5",
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


@pytest.mark.parametrize("subject", SAMPLE)
def test_nothing_is_reported(subject: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    done = run_tests(log, subject, SAMPLE[subject])
    assert not log.read_text(), log.read_text()
    assert done.returncode == 0, done.stdout


def test_a_read_outside_of_a_table_is_reported(tmp_path: Path) -> None:
    under_oclgrind(tmp_path / "log", "-c", OUTSIDE)
    assert "exceeds static array size (4)" in (tmp_path / "log").read_text()
