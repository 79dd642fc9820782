"""Nodes evaluated at some positions: what the whole evaluation gives there, within bounds that are small."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy
import pytest
import test_attention
import test_einsum
import test_microsoft_quantization
import test_operators
import test_quantization
import test_recurrent
from operator_cases import Case, model_of

from imgconv.arrays import Array
from imgconv.checking.error_bounds import BoundedValues
from imgconv.checking.sampled import SAMPLED, NotCoveredError, Positions, SampledEvaluator
from imgconv.errors import Error
from imgconv.graph.evaluate import evaluate_node
from imgconv.graph.nodes import Graph, Load, Node, Value, whole_operand
from imgconv.onnx_import import import_onnx
from imgconv.passes import run_passes

FAMILIES = {
    **test_operators.FAMILIES, **test_einsum.FAMILIES, **test_quantization.FAMILIES, **test_recurrent.FAMILIES,
    **test_microsoft_quantization.FAMILIES, **test_attention.FAMILIES,
}
RANDOM = numpy.random.default_rng(0)


def numbers_of(array: Array) -> Array:
    """An array as a kernel's numbers: floats in float64, other numbers as integers."""
    return array.astype(numpy.float64 if array.dtype.kind == "f" else numpy.int64)


def evaluated(case: Case) -> Iterator[tuple[Graph, Node, dict[str, Array]]]:
    """Each node of a case's graph after the passes, with the arrays of all values, its own too."""
    model, feeds = model_of(case)
    graph = run_passes(import_onnx(model, shapes={name: array.shape for name, array in feeds.items()}))
    arrays = dict(graph.constants) | {v.name: numpy.asarray(feeds[v.name], v.dtype) for v in graph.inputs}
    for node in graph.nodes:
        arrays[node.output.name] = evaluate_node(node, arrays)
        yield graph, node, arrays


def sampled(node: Node, arrays: dict[str, Array], position: Positions, count: int) -> BoundedValues:
    """The node at positions, with values as they are."""

    def read(name: str, at: Positions) -> BoundedValues:
        return BoundedValues.exact(numpy.asarray(numbers_of(arrays[name])[tuple(at)]))

    return SampledEvaluator(read, {}, lambda at: read(node.output.name, at)).evaluate_at(node, position, count)


@pytest.mark.parametrize("family", FAMILIES)
def test_sampled_is_evaluated(family: str) -> None:
    compared = small = 0
    for case in FAMILIES[family][::2]:
        try:
            nodes = list(evaluated(case))
        except Error:
            continue  # left to the host, or refused
        for _, node, arrays in nodes:
            expected = arrays[node.output.name]
            if not expected.size:
                continue
            flat = numpy.unique(numpy.r_[0, expected.size - 1, RANDOM.integers(0, expected.size, 10)])
            position = numpy.unravel_index(flat, expected.shape) if expected.shape else ()
            try:
                made = sampled(node, arrays, position, len(flat) if expected.shape else 1)
            except NotCoveredError:
                continue
            want = numbers_of(numpy.asarray(expected[position]).reshape(-1)).astype(numpy.float64)
            rounding = 2.0**-11 if expected.dtype == numpy.float16 else 1e-6
            with numpy.errstate(all="ignore"):
                off = numpy.abs(made.value - want)
                known = numpy.isfinite(made.error) & ~numpy.isnan(want)
                near = ~known | (off <= made.error + rounding * numpy.abs(want) + 1e-30) | (made.value == want)
            assert near.all(), (case, str(node), made, want)
            finite = numpy.isfinite(made.error) & numpy.isfinite(want)
            is_small = made.error[finite] <= 1e-3 * numpy.maximum(numpy.abs(want[finite]), 1)
            compared, small = compared + is_small.size, small + int(is_small.sum())
    if not compared:
        pytest.skip("no node of this family is computed on a device")
    # Others are near a step of a function: of a rounding or a comparison.
    assert small > 0.9 * compared, (small, compared)


def test_an_operation_without_an_entry_is_not_covered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(SAMPLED, Load)
    x = Value("x", (3,), "float32")
    node = Node(replace(x, name="y"), Load(), (whole_operand(x),))
    with pytest.raises(NotCoveredError, match="no samples"):
        sampled(node, {"x": numpy.ones(3, numpy.float32)}, (numpy.arange(3),), 3)
