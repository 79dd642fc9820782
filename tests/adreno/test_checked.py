"""The check of launches in the simulator, on code that does nothing or what it must not; no compiler is needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.adreno import gpu_of, target_for
from benchmarks.adreno_mesa import Kernel, Mesa
from benchmarks.adreno_simulator.checked import Checked, check
from imgconv.compiling.compiler import prepare
from imgconv.config import Config
from imgconv.tensor import Tensor, build_graph


class SameCode(Mesa):
    """A compiler that makes the same code of every kernel. folder: a file with its text."""

    def kernel(self, text: str, gpu: int) -> Kernel:
        return Kernel({"subgroup": 64}, self.folder.read_text())


def checked(folder: Path, code: str) -> Checked:
    """The check of a pooling, between the launches that pack its input and unpack its output, all with some code."""
    x = Tensor.input("x", (1, 4, 6, 6))
    prepared = prepare(build_graph({"y": x.max_pool(2, 2, 0)}, [x]), Config(), target_for(gpu_of(630, None)))
    (folder / "code").write_text(f"code\n{code}end\n")
    return check("pooling", prepared, prepared.plan(), SameCode(folder / "code", True), 630)


def test_values_that_no_launch_wrote(tmp_path: Path) -> None:
    made = checked(tmp_path, "")
    assert made.launches and len(made.wrong) == len(made.launches)
    assert all(text.endswith("nan off") for text in made.wrong)


@pytest.mark.parametrize("code, message", [
    ("mov.u32u32 r1.x, 32768\nldl.u32 r1.y, l[r1.x], 1\n", "ldl.u32 r1.y, l[r1.x], 1: an access outside of its memory"),
    ("bfrev.b r1.x, r1.x\n", "no instruction bfrev.b"),
])
def test_code_that_cannot_run(tmp_path: Path, code: str, message: str) -> None:
    made = checked(tmp_path, code)
    (text,) = made.wrong
    assert message in text and not made.launches
