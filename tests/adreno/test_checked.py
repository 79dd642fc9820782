"""The check of launches in the simulator, on code that does nothing or what it must not; no compiler is needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy
import onnx.helper
import pytest
from support import make_model

from benchmarks.adreno import gpu_of, target_for
from benchmarks.adreno_mesa import Kernel, Mesa
from benchmarks.adreno_simulator import checked as checked_launches
from benchmarks.adreno_simulator.checked import Checked, check
from benchmarks.adreno_simulator.launches import Binary, Counts, Simulator
from benchmarks.adreno_simulator.listing import parse
from imgconv.compiling.compiler import prepare
from imgconv.compiling.plan import Launch
from imgconv.config import Config
from imgconv.kernels.layout import Placement
from imgconv.onnx_import import import_onnx
from imgconv.tensor import Tensor, build_graph

node = onnx.helper.make_node


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


class SameValue(Simulator):
    """A simulator that runs nothing: all elements of all values are 2."""

    def run(self, inputs: Mapping[str, Any]) -> Iterator[tuple[Launch, Counts]]:
        for launch in self.plan.launches:
            yield launch, Counts(0, 0, 0, 0, 0, (), 0)

    def value(self, place: Placement) -> Any:
        return numpy.full(place.shape, 2, numpy.float32)

    def output(self, name: str) -> Any:
        return numpy.full(self.plan.output_buffers[name].shape, 2, numpy.float32)


@pytest.mark.parametrize("beyond, error", [(2**-24, 0), (2**-12, 1 / 3)])
def test_a_level_almost_halfway_to_the_next(beyond: float, error: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """2.5 + 2^-24 rounds to 3, but in float it is 2.5, which rounds to 2. 2.5 + 2^-12 is a number of float."""
    x, c = numpy.full((1, 4, 3, 3), 2, numpy.float32), numpy.full((1, 4, 1, 1), 0.5 + beyond, numpy.float32)
    nodes = [node("Add", ["x", "c"], ["s"]), node("Round", ["s"], ["y"])]
    graph = import_onnx(make_model(nodes, {"x": x}, ["y"], 13, {"c": c}))
    prepared = prepare(graph, Config(), target_for(gpu_of(630, None)))
    monkeypatch.setattr(checked_launches, "draw_inputs", lambda graph: {"x": x})
    nothing = SameValue(prepared.plan(), lambda text: Binary(parse("code"), 64))
    assert [each.error for each in checked_launches.check_launches(prepared, nothing)] == [error]
