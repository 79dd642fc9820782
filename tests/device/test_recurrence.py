"""recurrent.cl against float64 numpy: kinds, directions, given weights, sizes that are no multiple."""

from __future__ import annotations

from dataclasses import replace

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems.recurrence import RecurrenceProblem, recurrence_problems, recurrence_specialisations
from running import Choose, check, choosing, device_settings, run_tensors, target

from imgconv.cl.context import Context
from imgconv.config import Config
from imgconv.errors import ResourceError
from imgconv.graph.expression import Argument, apply
from imgconv.tensor import Tensor, recurrence

P = RecurrenceProblem
LAYERS = [
    P(7, 1, 32),
    P(3, 2, 18, (False, True), "gated"),
    P(4, 3, 8, (True,), "reset"),
    P(5, 2, 7, (False, True), "reset", constant=False),
    P(6, 2, 5, (True, False), "stopped"),
    P(2, 1, 6, (True,), "gated", constant=False, transposed=True),
    P(1, 1, 1),
]
TANH = [apply("tanh", apply("add", Argument(0), Argument(1)))]


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
@pytest.mark.parametrize("float16", [0, 1])
def test_layers(context: Context, kind: str, float16: int) -> None:
    plan = check(LAYERS, context, Config(float16=float16), target(context, kind))
    assert sum(launch.operation == "recurrence" for launch in plan.launches) == len(LAYERS)


def test_a_layer_of_many_numbers(context: Context) -> None:
    """Several turns of each work item, of its sums and of its states."""
    check([P(2, 1, 300, (False,), "gated"), P(2, 1, 262, (True,), "reset")], context, wanted=target(context, "gpu"))


@device_settings(max_examples=3)
@given(problems=st.lists(recurrence_problems(), min_size=1, max_size=4), seed=st.integers(0, 999))
def test_drawn(context: Context, problems: list[RecurrenceProblem], seed: int) -> None:
    config = Config(seed % 2, max_image=(None, 16, 64)[seed % 3])
    chosen = choosing(target(context, "gpu"), recurrence=Choose(recurrence_specialisations, seed))
    check(problems, context, config, chosen)


def test_two_layers_need_no_copy_between_them(context: Context) -> None:
    """The directions of a step lie side by side, as the next layer's product reads them."""
    random = numpy.random.default_rng(1)
    arrays = {"x": (6, 2, 2, 1, 8), "w": (2, 8, 1, 8), "between": (16, 16)}
    content = {name: random.uniform(-0.5, 0.5, shape).astype(numpy.float32) for name, shape in arrays.items()}
    w, zeros = Tensor.constant(content["w"]), Tensor.constant(numpy.zeros((2, 2, 8), numpy.float32))
    first = recurrence(Tensor.input("x", arrays["x"]), w, [zeros], [], TANH, None, (False, True))
    product = first.reshape(12, 16) @ Tensor.constant(content["between"])
    again = recurrence(product.reshape(6, 2, 2, 1, 8), w, [zeros], [], TANH, None, (False, True))
    plan, found = run_tensors({"y": again}, {"x": content["x"]}, context)
    assert [launch.operation for launch in plan.compute_launches] == ["recurrence", "product", "recurrence"]
    problem = P(6, 2, 8, (False, True))
    wide, nothing = content["w"].astype(numpy.float64), numpy.zeros((2, 2, 8))
    middle = problem.compute(content["x"], wide, nothing, nothing, nothing).reshape(12, 16) @ content["between"]
    expected = problem.compute(middle.reshape(6, 2, 2, 1, 8), wide, nothing, nothing, nothing)
    numpy.testing.assert_allclose(found["y"], expected, 0, 1e-5)


def test_elementwise_work_after_it(context: Context) -> None:
    """The epilogue is in what is written, not in the states that the next step reads."""
    x, scale = (numpy.random.default_rng(n).uniform(-1, 1, s).astype(numpy.float32)
                for n, s in enumerate([(5, 2, 1, 1, 6), (1, 5, 2, 1, 6)]))
    w, zeros = numpy.eye(6, dtype=numpy.float32).reshape(1, 6, 1, 6), numpy.zeros((2, 1, 6), numpy.float32)
    made = recurrence(Tensor.input("x", x.shape), Tensor.constant(w), [Tensor.constant(zeros)], [], TANH)
    plan, found = run_tensors({"y": made * Tensor.input("s", scale.shape) + 1}, {"x": x, "s": scale}, context)
    assert any(launch.operation == "recurrence" and "add" in launch.description for launch in plan.launches)
    expected = P(5, 2, 6).compute(x, w.astype(numpy.float64), zeros, zeros, zeros) * scale + 1
    numpy.testing.assert_allclose(found["y"], expected, 0, 1e-5)


def test_a_device_with_too_little_local_memory_is_an_error_that_names_the_tensor(context: Context) -> None:
    small = replace(target(context), local_memory_bytes=1 << 10)
    with pytest.raises(ResourceError, match="'y0'.* local memory"):
        check([P(1, 1, 300)], context, wanted=small)


def test_a_driver_that_ends_long_loops(context: Context) -> None:
    """Groups of several work items take fewer rounds each; what takes too many even so is refused."""
    on = replace(target(context), kind="cpu", loop_rounds=2000)
    for steps, items in ((40, "1 items"), (80, "32 items")):
        plan = check([P(steps, 1, 16)], context, wanted=on)
        (layer,) = (launch for launch in plan.launches if launch.operation == "recurrence")
        assert layer.specialisation.startswith(items)
    with pytest.raises(ResourceError, match="200 steps takes loops of more than 2000 rounds"):
        check([P(200, 1, 16)], context, wanted=on)
