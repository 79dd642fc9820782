"""The passes checked by another engine: onnxruntime on the exported graph, after every pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from graphs import Pass
from imgconv.graph.nodes import Graph
from imgconv.onnx_export import export_onnx
from imgconv.passes import PIPELINE
from support import assert_close, run_oracle

# Passes add floats in another order and fold scales into weights: about 1e-6 of the largest value in a shallow network,
# and every layer passes on what the one before it did not round the same way. What a wrong pass does is far larger.
TOLERANCE = 1e-4


def check_pass_by_pass(
    graph: Graph, inputs: Mapping[str, Any], passes: Sequence[Pass] = PIPELINE, tolerance: float = TOLERANCE
) -> Graph:
    """The graph after all passes, once onnxruntime agrees after each of them with itself on the first graph.

    AssertionError names the first pass after which it does not. tolerance: of each output's largest value.
    """
    model = export_onnx(graph)
    expected = run_oracle(model, inputs)
    for number, step in enumerate(passes, 1):
        before = model
        graph = step(graph).validate()
        model = export_onnx(graph)
        if model == before:
            continue
        try:
            assert_close(run_oracle(model, inputs), expected, tolerance)
        except AssertionError as error:
            raise AssertionError(f"after pass {number} of {len(passes)}, {step.__name__}: {error}") from error
    return graph
