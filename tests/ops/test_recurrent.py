"""RNN, GRU and LSTM against onnxruntime: directions, activations, lengths, initial states, peepholes, layouts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy
import pytest
from operator_cases import Case, Constant, check, model_of
from support import ENGINES, assert_close, run_model, run_oracle

from imgconv.errors import ModelError
from imgconv.graph.nodes import Recurrence
from imgconv.limits import load_budget
from imgconv.onnx_import import import_onnx
from imgconv.ops import recurrent

STEPS, BATCH, SIZE, HIDDEN = 4, 3, 5, 2
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
LENGTHS = numpy.array([4, 1, 2], numpy.int32)


def draw(seed: int, *shape: int) -> Any:
    return numpy.random.default_rng(seed).uniform(-1, 1, shape).astype(numpy.float32)


def parts(op_type: str, count: int, constant: bool = True) -> tuple[Any, Any, Any]:
    """W, R and B for a number of directions; as constants or as inputs."""
    rows = GATES[op_type] * HIDDEN
    arrays = draw(1, count, rows, SIZE), draw(2, count, rows, HIDDEN), draw(3, count, 2 * rows)
    made = tuple(Constant(a) for a in arrays) if constant else arrays
    return made  # type: ignore[return-value]


def case(op_type: str, opset: int = 14, lengths: Any = None, states: bool = False, peepholes: bool = False,
         bias: bool = True, constant: bool = True, **attributes: Any) -> Case:
    count = 2 if attributes.get("direction") == "bidirectional" else 1
    w, r, b = parts(op_type, count, constant)
    inputs = [draw(4, STEPS, BATCH, SIZE), w, r, b if bias else None, lengths,
              draw(5, count, BATCH, HIDDEN) if states else None]
    if op_type == "LSTM":
        inputs += [draw(6, count, BATCH, HIDDEN) if states else None, Constant(draw(7, count, 3 * HIDDEN)) if peepholes
                   else None]
    while inputs[-1] is None:
        inputs.pop()
    outputs = 3 if op_type == "LSTM" else 2
    return Case(op_type, opset, tuple(inputs), {"hidden_size": HIDDEN, **attributes}, outputs)


DIRECTIONS = ("forward", "reverse", "bidirectional")
# For each operator as many as one direction needs.
ACTIVATIONS: tuple[dict[str, Any], ...] = (
    {"activations": ["Relu", "Softsign", "Softplus"]},
    {"activations": ["HardSigmoid", "Affine", "ScaledTanh"], "activation_alpha": [0.3, 0.8, 0.7],
     "activation_beta": [0.4, 0.1, 0.6]},
    {"activations": ["Sigmoid", "LeakyRelu", "Elu"], "activation_alpha": [0.3, 0.6]},
    {"activations": ["ThresholdedRelu", "HardSigmoid", "LeakyRelu"], "activation_alpha": [0.2, 0.25, 0.1],
     "activation_beta": [0.3]},
    {"activations": ["Elu", "Tanh", "Tanh"], "activation_alpha": [0.5]},
)


def cases() -> Iterator[Case]:
    for op_type in GATES:
        for direction in DIRECTIONS:
            for opset in (7, 14, 22):
                yield case(op_type, opset, direction=direction)
            for lengths in (LENGTHS, Constant(LENGTHS), Constant(LENGTHS * 0 + STEPS)):
                yield case(op_type, lengths=lengths, states=True, direction=direction)
            yield case(op_type, states=True, bias=False, constant=False, direction=direction)
            yield case(op_type, clip=0.3, direction=direction)
        for settings in ACTIVATIONS:
            number = {"RNN": 1, "GRU": 2, "LSTM": 3}[op_type]
            names = settings["activations"][:number]
            yield case(op_type, states=True, **{**settings, "activations": names})
        for first in ACTIVATIONS[0]["activations"]:
            yield case(op_type, activations=[first, "Sigmoid", "Tanh"][:number])
    for bias in (True, False):
        for direction in DIRECTIONS:
            yield case("GRU", states=True, bias=bias, direction=direction, linear_before_reset=1)
            yield case("LSTM", states=True, bias=bias, direction=direction, peepholes=True)
    yield case("LSTM", states=True, input_forget=1)
    yield case("LSTM", states=True, peepholes=True, lengths=LENGTHS, direction="reverse", clip=0.5)
    yield case("GRU", lengths=LENGTHS, direction="bidirectional", linear_before_reset=1)


CASES = list(cases())
FAMILIES = {"recurrent": CASES}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", [pytest.param(c, id=f"{c}-{n}") for n, c in enumerate(CASES)])
def test_recurrent(case: Case, engine: str) -> None:
    check(case, engine)


@pytest.mark.parametrize("case", [
    case("RNN", lengths=LENGTHS, direction="bidirectional"), case("GRU", states=True, direction="bidirectional"),
    case("GRU", lengths=LENGTHS, direction="reverse", linear_before_reset=1),
    case("LSTM", states=True, peepholes=True, lengths=LENGTHS, direction="bidirectional", clip=0.5),
], ids=str)
def test_states_that_no_work_group_holds_are_unrolled(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    made = {type(n.operation).__name__ for n in import_onnx(model_of(case)[0]).nodes}
    assert "Recurrence" in made
    monkeypatch.setattr(recurrent, "MOST_HIDDEN", HIDDEN - 1)
    assert "Recurrence" not in {type(n.operation).__name__ for n in import_onnx(model_of(case)[0]).nodes}
    check(case, "reference")


@pytest.mark.parametrize("op_type", GATES)
def test_weights_are_computed_once_for_all_unrolled_steps(op_type: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer of 1,100 numbers and 3,000 steps would take minutes to load."""
    monkeypatch.setattr(recurrent, "MOST_HIDDEN", 15)
    hidden, gates = 16, GATES[op_type]
    w, r = Constant(draw(0, 1, gates * hidden, 2)), Constant(draw(1, 1, gates * hidden, hidden))
    model, _ = model_of(Case(op_type, 14, ((30, 1, 2), w, r), {"hidden_size": hidden}))
    with load_budget() as spent:
        import_onnx(model)
    assert spent.folded_elements < 5 * r.array.size


@pytest.mark.parametrize("op_type", GATES)
def test_thousands_of_steps_are_one_node(op_type: str) -> None:
    w, r, _ = parts(op_type, 1)
    case = Case(op_type, 14, ((3000, 1, SIZE), w, r), {"hidden_size": HIDDEN})
    graph = import_onnx(model_of(case)[0])
    assert sum(isinstance(node.operation, Recurrence) for node in graph.nodes) == 1 and len(graph.nodes) < 9


def test_directions_with_functions_of_their_own() -> None:
    """Two recurrences; with equal functions both directions are one."""
    names = {"activations": ["Sigmoid", "Tanh", "Tanh", "HardSigmoid", "Relu", "Tanh"]}
    for settings, count in ((names, 2), ({}, 1)):
        own = case("LSTM", states=True, lengths=LENGTHS, direction="bidirectional", **settings)
        nodes = import_onnx(model_of(own)[0]).nodes
        assert sum(isinstance(n.operation, Recurrence) for n in nodes) == count
        check(own, "reference")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("op_type", GATES)
def test_layout_1_has_the_batch_first(op_type: str, engine: str) -> None:
    """onnxruntime does not do it: the same with layout 0 and transposed tensors is what it means."""
    plain = case(op_type, states=True, lengths=LENGTHS, direction="bidirectional")
    model, feeds = model_of(plain)
    expected = run_oracle(model, feeds)
    turned = [numpy.swapaxes(i, 0, 1) if n in (0, 5, 6) else i for n, i in enumerate(plain.inputs)]
    other, feeds = model_of(replace(plain, inputs=tuple(turned), attributes={**plain.attributes, "layout": 1}))
    axes = {"y0": (2, 0, 1, 3), "y1": (1, 0, 2), "y2": (1, 0, 2)}
    want = {name: array.transpose(axes[name]) for name, array in expected.items()}
    assert_close(run_model(other, feeds, engine), want, 2e-6)


def test_thresholded_relu_has_the_default_of_its_operator() -> None:
    """1.0, as ONNX's text says; onnxruntime takes another number."""
    stated, feeds = model_of(case("RNN", activations=["ThresholdedRelu"], activation_alpha=[1.0]))
    silent, _ = model_of(case("RNN", activations=["ThresholdedRelu"]))
    assert_close(run_model(silent, feeds), run_oracle(stated, feeds), 2e-6)


WRONG = [
    (case("LSTM", activations=["Tanh"]), "activations"), (case("RNN", activations=["Gelu"]), "'gelu'"),
    (case("GRU", direction="sideways"), "direction is 'sideways'"), (case("RNN", hidden_size=3), "W has shape"),
    (case("RNN", activations=["ScaledTanh"]), "activation_alpha"),
    (case("RNN", lengths=Constant(LENGTHS * 9)), "sequence_lens"),
    (case("RNN", lengths=Constant(LENGTHS[:2])), "sequence_lens"),
]


@pytest.mark.parametrize(("case", "message"), WRONG)
def test_wrong(case: Case, message: str) -> None:
    model, feeds = model_of(case)
    with pytest.raises(ModelError, match=message) as caught:
        run_model(model, feeds)
    assert caught.value.node == "node"
