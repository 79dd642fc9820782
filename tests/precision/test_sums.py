"""Sums of layers under FLOAT16=2: measured choices, and the same search with costs that are given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import numpy
import onnx
import pytest
from planted import cancelling_model, picture, summing_model
from support import make_model, run_oracle

import imgconv
from imgconv.cl.context import Context
from imgconv.cl.device import DeviceInfo
from imgconv.compiling.compiler import PreparedGraph
from imgconv.compiling.lower import lower
from imgconv.config import Accumulation, Config, Precision
from imgconv.errors import DeviceError
from imgconv.graph.evaluate import evaluate_graph
from imgconv.graph.nodes import Graph
from imgconv.loading.device_target import target_of
from imgconv.onnx_import import import_onnx
from imgconv.passes import run_passes
from imgconv.precision.calibration_inputs import MARGIN
from imgconv.precision.choose import BOUND, choose_precision
from imgconv.precision.loss import relative_error
from imgconv.precision.search import TrialBudget
from imgconv.precision.share import UNDECIDED
from imgconv.precision.storage import CHOOSING
from imgconv.precision.sums import choose_sums
from imgconv.runtime.session import Session
from imgconv.tensor import Tensor, build_graph

RANDOM = numpy.random.default_rng(8)


def graph_of(model: onnx.ModelProto) -> Graph:
    return run_passes(import_onnx(model))


def test_a_device_without_half_arithmetic_is_refused(device: DeviceInfo) -> None:
    with pytest.raises(DeviceError, match="cl_khr_fp16"):
        imgconv.load(cancelling_model(), replace(device, fp16_arithmetic=False), float16=2)


@pytest.mark.usefixtures("half_arithmetic")
def test_half_arithmetic_is_left_where_it_costs(context: Context, device: DeviceInfo) -> None:
    """float16=2 keeps the bound though products cancel, also in a load that does not search."""
    model, x = cancelling_model(), picture()
    prepared = PreparedGraph(graph_of(model), Config(float16=2), target_of(device))
    for runs in (None, 0):
        told: list[tuple[int, str]] = []
        choice = choose_precision(
            prepared, context, lambda done, total, what: told.append((total, what)), [{"x": x}], runs=runs
        )
        after = told[next(number for number, (_, what) in enumerate(told) if what == "ready") + 1 :]
        assert set(after) == {(0, CHOOSING)}, "whatever plans are built, it is one step"
        assert choice.error <= BOUND
        assert relative_error(choice.session.run({"x": x}), run_oracle(model, {"x": x})) <= BOUND
    chosen = imgconv.load(model, device, float16=2)
    assert relative_error(chosen.run({"x": x}), run_oracle(model, {"x": x})) <= BOUND


def deep_model() -> onnx.ModelProto:
    """A sum of about 16, where half is 1/64 apart and loses terms of 1/128, in front of eight short ones."""
    random = numpy.random.default_rng(3)
    short = [(name, 8, 8, 1.0) for name in (*(f"layer{number}" for number in range(7)), "y")]
    nodes, constants, read = [], {}, "x"
    for name, outputs, inputs, total in (("first", 2048, 3, 1.0), ("long", 8, 2048, 32.0), *short):
        made = random.uniform(0.5, 1.5, (outputs, inputs, 1, 1)) * total / inputs
        constants[f"w_{name}"] = made.astype(numpy.float32)
        nodes.append(onnx.helper.make_node("Conv", [read, f"w_{name}"], [name]))
        read = name
    return make_model(nodes, {"x": picture()}, ["y"], 13, constants)


@pytest.mark.usefixtures("half_arithmetic")
@pytest.mark.parametrize("make", [cancelling_model, summing_model, deep_model])
def test_sums_keep_the_bound_on_other_pictures(
    device: DeviceInfo, context: Context, make: Callable[[], onnx.ModelProto]
) -> None:
    """On pictures that were not measured, also larger ones. The plan sums as the choice says."""
    model = make()
    graph = graph_of(model)
    choice = choose_precision(PreparedGraph(graph, Config(float16=2), target_of(device)), context)
    assert choice.error <= BOUND
    plan = lower(graph, Config(float16=2, precision=choice.precision), target_of(device))
    sums = {name: launch.sums for launch in plan.launches if launch.sums for name in launch.values}
    assert sums == {node.output.name: choice.precision.sums_of(node.output.name) for node in graph.nodes}
    for seed in (21, 22):
        x = {"x": 3 * picture(seed)}
        assert relative_error(Session(plan, context).run(x), run_oracle(model, x)) <= BOUND


@dataclass
class GivenSums:
    """`AccumulationTrials` of layers whose sums cost what a function of their widths says, and may cost `room`."""

    names: Sequence[str]
    of: Callable[[Mapping[str, Accumulation]], float]
    room: float
    errors: tuple[float, ...] = (0.0,)
    seconds: float = 1.0
    budget: TrialBudget = field(default_factory=TrialBudget)
    asked: int = 0

    @property
    def multiply_adds_by_value(self) -> dict[str, int]:
        return dict.fromkeys(self.names, 1)

    @property
    def judged_runs(self) -> list[SimpleNamespace]:
        return [SimpleNamespace(room=self.room)]

    def precision(self, chunks: frozenset[str], in_float: frozenset[str]) -> Precision:
        return Precision(arithmetic=in_float, runs=chunks)

    def trial(self, chunks: frozenset[str], in_float: frozenset[str]) -> tuple[None, list[float]]:
        self.asked += 1
        self.budget.spend()
        chosen = self.precision(chunks, in_float)
        return None, [self.of({name: chosen.sums_of(name) for name in self.names})]

    def allowed(self, chunks: frozenset[str], in_float: frozenset[str], part: float = 1.0) -> bool:
        return self.trial(chunks, in_float)[1][0] <= part * self.room

    def cost(self, narrow: frozenset[str], in_chunks: bool) -> float:
        self.asked += 1
        self.budget.spend()
        width: Accumulation = "runs" if in_chunks else "half"
        return self.of({name: width if name in narrow else "float" for name in self.names})


def squares(widths: Mapping[str, Accumulation]) -> float:
    """The long sum needs chunks, the difference float, and the others can be in half."""
    costs = {"half": {"long": 3e-2, "difference": 0.5}, "runs": {"difference": 0.5}, "float": {}}
    return float(sum(costs[width].get(name, 1e-5) ** 2 for name, width in widths.items()) ** 0.5)


NAMES = ("first", "long", "difference", "y")


def test_each_sum_is_as_narrow_as_it_can_be() -> None:
    chosen, *_ = choose_sums(GivenSums(NAMES, squares, 1e-3), False)
    assert chosen == Precision(arithmetic=frozenset({"difference"}), runs=frozenset({"long"}))
    assert choose_sums(GivenSums(NAMES, squares, 1.0), False)[0] == Precision()
    chosen, *_ = choose_sums(GivenSums(NAMES, squares, 1e-3), True)
    assert chosen == Precision(arithmetic=frozenset({"difference"}), runs=frozenset(NAMES) - {"difference"})


def test_sums_that_are_not_measured_in_time_are_wide() -> None:
    """By the time of a trial: half of the time for each of the two searches."""
    given = GivenSums(NAMES, squares, 1e-3)
    chosen, error, _ = choose_sums(given, False, seconds=1.0)
    assert chosen.arithmetic == frozenset(NAMES) and given.asked <= 5 and error <= 1e-3
    assert {*chosen.reasons.values()} == {UNDECIDED}
    assert choose_sums(GivenSums(NAMES, squares, 1e-3), False, seconds=200.0)[0].arithmetic == {"difference"}


def test_one_layer_does_not_widen_the_sums_of_others() -> None:
    """In a deep network each layer alone costs what storage costs, and all of them cost hardly more."""
    def cost(widths: Mapping[str, Accumulation]) -> float:
        return max(({"half": 0.5, "runs": 0.5 * (name != "long")}.get(width, 0.0) + (name == "long" and width == "half")
                    for name, width in widths.items()), default=0.0)

    chosen, error, _ = choose_sums(GivenSums(["long", *(f"layer{n}" for n in range(8))], cost, 1.0), False)
    assert "long" in chosen.runs and error == 0.5 and len(chosen.runs) < 8 and not chosen.arithmetic


@pytest.mark.usefixtures("half_arithmetic")
@pytest.mark.parametrize("ends_so", [True, False])
def test_no_sum_is_in_half_before_a_softmax(device: DeviceInfo, context: Context, ends_so: bool) -> None:
    """A bound of 1 leaves a tenth of the outputs for sums, and eight terms in half cost 2^-8 of their sum."""
    w = Tensor.constant(numpy.random.default_rng(3).uniform(-0.3, 0.3, (8, 8, 1, 1)).astype(numpy.float32))
    x = Tensor.input("x", (1, 8, 9, 9)).conv2d(w).named("first")
    y = x.conv2d(w).named("last").softmax(1) if ends_so else x.softmax(1).conv2d(w)
    prepared = PreparedGraph(run_passes(build_graph({"y": y})), Config(float16=2), target_of(device))
    chosen = choose_precision(prepared, context, bound=1.0).precision
    assert chosen.runs == ({"first", "last"} if ends_so else set()) and not chosen.arithmetic


@pytest.mark.usefixtures("half_arithmetic")
@pytest.mark.parametrize("level", [400.0, 1200.0])
def test_sums_are_judged_on_inputs_that_were_not_measured(device: DeviceInfo, context: Context, level: float) -> None:
    """16 terms, less 16 more: on the way 6400 or 19200 where it is measured, past half's range on a larger input."""
    x, weights = Tensor.input("x", (1, 32, 4, 4)), numpy.zeros((2, 32, 1, 1), numpy.float32)
    weights[0, 0], weights[1, :16], weights[1, 16:] = 10, 1, -1
    graph = run_passes(build_graph({"y": x.conv2d(Tensor.constant(weights))}))
    given = (level + RANDOM.uniform(0, 1, x.shape)).astype(numpy.float32)
    prepared = PreparedGraph(graph, Config(float16=2), target_of(device))
    chosen = choose_precision(prepared, context, None, [{"x": given}]).precision
    larger = {"x": MARGIN * given}
    errors = [
        relative_error(Session(prepared.plan(replace(prepared.config, precision=each)), context).run(larger),
                       evaluate_graph(graph, larger))
        for each in (chosen, replace(chosen, arithmetic=frozenset({"y"}), runs=frozenset()))
    ]
    assert errors[0] <= errors[1] + BOUND
