"""order.cl against Python's sort: ties, NaN, infinities, several groups of a row, views of the rows."""

from __future__ import annotations

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems.order import OrderProblem, order_problems, order_specialisations
from running import Choose, check, choosing, device_settings, run_tensors, target

from imgconv.cl.context import Context
from imgconv.config import Config
from imgconv.kernels.order import merge
from imgconv.kernels.order import template as kernel
from imgconv.tensor import Tensor, order

P = OrderProblem
ROWS = [
    P((1, 300), 7),
    P((2, 3, 41), 41, False),
    P((700,), 260, True, "ties"),
    P((2, 257), 5, False, "equal"),
    P((3, 90), 90, True, "special"),
    P((3, 90), 33, False, "special"),
    P((4, 35), 3, True, "any", "transposed"),
    P((2, 130), 64, False, "ties", "sliced"),
]


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_orders(context: Context, kind: str) -> None:
    plan = check(ROWS, context, wanted=target(context, kind))
    assert sum(launch.operation == "order" for launch in plan.launches) == len(ROWS)


@pytest.mark.parametrize(("items", "quads"), [(1, 2), (16, 1)], ids=["one", "sixteen"])
def test_runs_are_merged(context: Context, monkeypatch: pytest.MonkeyPatch, items: int, quads: int) -> None:
    """Runs of 8 places: the last of a row is shorter, equal elements lie in several, a row ends in the first of two."""
    monkeypatch.setattr(kernel, "MOST_QUADS", 2)
    problems = [
        P((1, 300), 300), P((2, 67), 37, False, "ties"), P((290,), 290, True, "equal"), P((3, 24), 24, True, "special"),
        P((2, 65), 65, False, "special"), P((4, 35), 35, True, "any", "transposed"), P((50,), 9),
    ]
    chosen = choosing(
        target(context, "gpu"), order=lambda *_: kernel.Specialisation(items),
        merge=lambda *_: merge.Specialisation(quads, items),
    )
    plan = check(problems, context, wanted=chosen)
    assert sum("merge of" in launch.description for launch in plan.launches) == 6 + 4 + 6 + 2 + 4 + 3 + 3


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_orders_of_all_elements_of_long_rows(context: Context, kind: str) -> None:
    """The kernels that plans choose: runs of 2048 positions, elementwise work in the last merge, fp16."""
    x = numpy.random.default_rng(1).integers(-2000, 2000, (2, 5000)).astype(numpy.float32)  # exact in half
    made = order(Tensor.input("x", x.shape), 4500).cast("float32") + 0.5
    expected = numpy.argsort(-x, axis=1, kind="stable")[:, :4500] + 0.5
    for config in (Config(0), Config(1)):
        _, found = run_tensors({"y": made}, {"x": x}, context, config, wanted=target(context, kind))
        numpy.testing.assert_allclose(found["y"], expected, 1e-3 if config.float16 else 0)


def test_positions_of_three_digits(context: Context) -> None:
    check([P((70_000,), 3, True, "equal"), P((66_000,), 5, False, "ties")], context)


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_equal_elements_at_positions_of_three_digits(context: Context, kind: str) -> None:
    """The last of those that are found is one of ten equal elements, all past the 65,536th."""
    x = numpy.zeros((1, 66_000), numpy.float32)
    x[0, -10:] = 1
    _, found = run_tensors({"y": order(Tensor.input("x", x.shape), 5)}, {"x": x}, context, wanted=target(context, kind))
    assert found["y"].tolist() == [[65_990, 65_991, 65_992, 65_993, 65_994]]


@device_settings(max_examples=3)
@given(problems=st.lists(order_problems(), min_size=1, max_size=4), seed=st.integers(0, 999))
def test_drawn(context: Context, problems: list[OrderProblem], seed: int) -> None:
    config = Config(seed % 2, max_image=(None, 32, 64)[seed % 3])
    chosen = choosing(target(context, "gpu"), order=Choose(order_specialisations, seed))
    check(problems, context, config, chosen)


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_elementwise_work_after_it(context: Context, kind: str) -> None:
    """The epilogue reads an operand at each place."""
    x = numpy.random.default_rng(1).uniform(-1, 1, (2, 60)).astype(numpy.float32)
    factor = numpy.float32([[1, 2, 3, 4, 5], [6, 7, 8, 9, 10]])
    made = order(Tensor.input("x", x.shape), 5).cast("float32") * Tensor.input("factor", factor.shape) + 0.5
    plan, found = run_tensors({"y": made}, {"x": x, "factor": factor}, context, wanted=target(context, kind))
    expected = numpy.argsort(-x, axis=1, kind="stable")[:, :5] * factor + 0.5
    numpy.testing.assert_allclose(found["y"], expected, 1e-6)
    assert any(launch.operation == "order" and "add" in launch.description for launch in plan.launches)
