"""Results of Fourier transforms are exact where they are 0."""

from __future__ import annotations

import numpy
import onnx.helper
import pytest
from support import make_model

from imgconv.graph.evaluate import evaluate_graph
from imgconv.onnx_import import import_onnx

SIZE = 12


@pytest.mark.parametrize("name", ["DFT", "STFT"])
def test_the_ends_of_a_real_signals_spectrum_are_real(name: str) -> None:
    """The imaginary parts at 0 and at half of the length, beside numpy's transform."""
    x = numpy.random.default_rng(0).uniform(-1, 1, (1, SIZE, 1)).astype(numpy.float32)
    read = ["x"] if name == "DFT" else ["x", "step", "", "size"]
    constants = {} if name == "DFT" else {"step": numpy.array(1), "size": numpy.array(SIZE)}
    node = onnx.helper.make_node(name, read, ["y"], onesided=1)
    graph = import_onnx(make_model([node], {"x": x}, ["y"], 17, constants))
    found = evaluate_graph(graph, {"x": x})["y"].reshape(SIZE // 2 + 1, 2)
    assert found[0, 1] == found[-1, 1] == 0
    numpy.testing.assert_allclose(found @ [1, 1j], numpy.fft.rfft(x.ravel().astype(float)), 0, 1e-6)
