"""A driver whose recordings replay only their first launches: none of them is used."""

from __future__ import annotations

from pathlib import Path

from faulty_driver import run_python

LINES = """
import warnings
import numpy, imgconv
from imgconv.cl import launch_sequence
from imgconv.tensor import Tensor, build_graph, convolution
from faulty_driver import set_faults

warnings.simplefilter("ignore")
x = y = Tensor.input("x", (1, 4, 12, 10))
for number in range(14):
    weights = numpy.random.default_rng(number).normal(size=(4, 4, 3, 3)).astype("f4") / 6
    y = convolution(y, Tensor.constant(weights), [1, 1], [1] * 4, [1, 1]).relu()
graph, given = build_graph({"y": y, "mean": y.mean((2, 3))}, [x], "chain"), {"x": numpy.ones((1, 4, 12, 10), "f4")}
plain = imgconv.load(graph)
expected, launches = plain.run(given), len(plain.plan.launches)
for cut in (*range(launches), 1000):
    set_faults(f"adreno;recordable;replay={cut}")
    launch_sequence._trusted.clear()
    launch_sequence._distrusted.clear()
    model = imgconv.load(graph)
    found = model.run(given), model.submit(given).result()
    right = all(numpy.array_equal(made[name], expected[name]) for made in found for name in expected)
    print(cut, right, model._last.session.sequence.command_buffer is not None)
print(launches)
"""


def test_recordings_that_are_cut_off(tmp_path: Path) -> None:
    """Replays that are cut anywhere are not used; a driver that replays all is."""
    done = run_python(LINES, "adreno;recordable", tmp_path)
    *lines, launches = done.stdout.splitlines()
    assert done.returncode == 0 and int(launches) >= 14, done.stderr
    assert lines == [f"{cut} True False" for cut in range(int(launches))] + ["1000 True True"]
