"""Compiled files of earlier formats, in tests/stored/kept, with what an independent engine made of their models.

0.1.imgconv         the first format: float64 numpy
0.1-frames.imgconv  a compressed head; a camera's frames, levels in bytes, checks, a plan for any phone: onnxruntime
0.1-states.imgconv  also two sizes, states, halves, weights as views: onnxruntime, in float
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy

from imgconv.arrays import Array

KEPT = sorted((Path(__file__).parent / "stored" / "kept").glob("*.imgconv"))
# For any phone; the first one takes images in buffers.
GENERIC = [path for path in KEPT if path.stem != "0.1"]
# Of the largest value: the order of float sums; of halves three roundings, of 2**-10 each where a device cuts off.
CLOSE = {"0.1": 2e-5, "0.1-frames": 1e-6, "0.1-states": 3 * 2**-10}


def runs_of(path: Path) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The inputs and the outputs of each run, in order: states go from one to the next."""
    with numpy.load(path.with_suffix(".npz")) as arrays:
        found = [(key.split(" ", 2), array) for key, array in arrays.items() if key != "weights"]
    count = 1 + max(int(number) for (number, _, _), _ in found)
    each: list[tuple[dict[str, Any], dict[str, Any]]] = [({}, {}) for _ in range(count)]
    for (number, side, name), array in found:
        each[int(number)][side == "out"][name] = array
    return each


def weighed(content: Array) -> float:
    """A number that changes if elements do, or change places."""
    return float((numpy.abs(content.astype(numpy.float64)).ravel() * (1 + numpy.arange(content.size) % 7)).sum())


def weights_of(path: Path) -> Any:
    """`weighed` of each constant of each plan, as they were when the file was written."""
    with numpy.load(path.with_suffix(".npz")) as arrays:
        return arrays["weights"]


def assert_close(path: Path, found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        numpy.testing.assert_allclose(found[name], array, rtol=0, atol=CLOSE[path.stem] * max(1, abs(array).max()))
