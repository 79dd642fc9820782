"""What stays float under FLOAT16: measured choices, and plans that follow them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy
import onnx
import pytest
from planted import (
    LAYERS, cancelling_model, offset_model, overflow_model, picture, quantised_model, step_model, summing_model,
)
from support import make_model, run_oracle

import imgconv
from imgconv.arrays import Array
from imgconv.cl.device import Context, DeviceInfo
from imgconv.compiling.compiler import Prepared
from imgconv.compiling.lower import lower
from imgconv.compiling.plan import Plan
from imgconv.compiling.textures import SMALL_WEIGHTS
from imgconv.config import Config, Precision, Sums
from imgconv.errors import DeviceError
from imgconv.graph.evaluate import evaluate_graph
from imgconv.graph.nodes import Graph
from imgconv.kernels.layout import ImageLimits
from imgconv.kernels.source import programs_of
from imgconv.kernels.target import HALF_MAX, Target
from imgconv.onnx_import import import_onnx
from imgconv.passes import run_passes
from imgconv.running import precision as choosing, rounding
from imgconv.running.drawings import MARGIN, drawn_inputs
from imgconv.running.precision import Block, by_worth, choose_precision, ends_in_softmax, fewest, without_room
from imgconv.running.rounding import Rounding, relative_error
from imgconv.runtime.session import Session
from imgconv.loading.target import target_of
from imgconv.stored.precision_file import (
    choice_key, read_choice, write_choice,
)
from imgconv.tensor import Tensor, build_graph, concatenate

RANDOM = numpy.random.default_rng(8)
WIDE = Target(ImageLimits(4096, 4096, 8), "cpu", 2)


def graph_of(model: onnx.ModelProto) -> Graph:
    return run_passes(import_onnx(model))


def constant(*shape: int) -> Tensor:
    return Tensor.constant(RANDOM.uniform(-1, 1, shape).astype(numpy.float32))


def stored(plan: Plan) -> Mapping[str, str]:
    """The dtype of every value of a plan by name."""
    return {name: place.storage.dtype for name, place in plan.placements.items()}


# Choosing


def test_overflow_keeps_float(device: DeviceInfo, context: Context) -> None:
    """float16=1 alone is near onnxruntime, where half for everything is infinite."""
    model, x = overflow_model(), picture()
    expected = run_oracle(model, {"x": x})
    graph = graph_of(model)
    plain = Session(lower(graph, Config(float16=1), target_of(device)), context).run({"x": x})
    assert not numpy.isfinite(relative_error(plain, expected))
    chosen = imgconv.load(model, device, float16=1)
    kept = chosen.config.precision.storage
    assert "big" in kept and "first" not in kept
    half = [name for name, dtype in stored(chosen.plan).items() if dtype == "float16"]
    assert "big" not in half and "first" in half
    # Each of these rounds by at most 2^-11 of a value, and the means that follow do not let that grow.
    assert relative_error(chosen.run({"x": x}), expected) <= len(half) * 2.0**-11 + 1e-5


def test_a_value_that_comes_near_keeps_float(device: DeviceInfo, context: Context) -> None:
    """Values of 2e4 on a picture could be over 65504 on another; values of 2e3 could not."""
    for factor, kept in ((5e4, {"big"}), (5e3, set())):
        graph = graph_of(overflow_model(factor))
        prepared = Prepared(graph, Config(float16=1), target_of(device))
        choice = choose_precision(prepared, context, None, [{"x": picture()}])
        assert choice.precision.storage == kept and choice.largest["big"] < 65504
        assert choice.precision.reasons.keys() == kept


def test_a_device_that_stores_65504_for_more(
    device: DeviceInfo, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OpenCL lets images do so. Here only inputs of 0 .. 255 come near: the half plan must not tell that none do."""
    magnitude = rounding.magnitude

    def clamped(array: Array) -> float:
        return float(numpy.fmin(magnitude(array), HALF_MAX)) if array.dtype == numpy.float16 else magnitude(array)

    monkeypatch.setattr(rounding, "magnitude", clamped)
    prepared = Prepared(graph_of(overflow_model(1e3)), Config(float16=1), target_of(device))
    assert choose_precision(prepared, context).precision.storage == {"big"}


def test_what_loses_digits_keeps_float(device: DeviceInfo, context: Context) -> None:
    """Half has 0.5 between 1000 and 1001: that layer stays float, and the result is right."""
    graph, x = graph_of(offset_model()), picture()
    plain = Session(lower(graph, Config(float16=1), target_of(device)), context)
    assert relative_error(plain.run({"x": x}), evaluate_graph(graph, {"x": x})) > 0.1
    prepared = Prepared(graph, Config(float16=1), target_of(device))
    choice = choose_precision(prepared, context, None, [{"x": x}], splits=3)
    assert "high" in choice.precision.storage and choice.half_error > 0.1 and choice.error <= choosing.BOUND
    model = imgconv.load(offset_model(), device, float16=1)
    assert relative_error(model.run({"x": x}), run_oracle(offset_model(), {"x": x})) <= 1e-2


@pytest.mark.parametrize(("first", "kept"), [(0.9, {"high"}), (1.1, {"high", "first"})])
def test_only_what_costs_too_much_keeps_float(
    device: DeviceInfo, context: Context, monkeypatch: pytest.MonkeyPatch, first: float, kept: set[str]
) -> None:
    """With costs that are given, in parts of the bound: one of two values that cost something may be half."""
    give_costs(monkeypatch, {"x": 0.0, "first": first * choosing.BOUND, "high": 20 * choosing.BOUND})
    prepared = Prepared(graph_of(offset_model()), Config(float16=1), target_of(device))
    choice = choose_precision(prepared, context, None, [{"x": picture()}], splits=3)
    assert choice.precision == Precision(frozenset(kept))


def give_costs(monkeypatch: pytest.MonkeyPatch, costs: Mapping[str, float]) -> list[tuple[frozenset[str], int]]:
    """Lets these values cost this, others nothing. The result: the groups that are asked for, and on which input."""
    asked: list[tuple[frozenset[str], int]] = []

    def cost_of(rounding: Rounding, groups: frozenset[str], number: int, units: int) -> float:
        asked.append((groups, number))
        return float(sum(costs.get(name, 0.0) ** 2 for name in groups) ** 0.5)

    monkeypatch.setattr(Rounding, "cost_of", cost_of)
    return asked


def give_errors(monkeypatch: pytest.MonkeyPatch, error: float) -> None:
    """Lets all rounding cost this on each input."""
    monkeypatch.setattr(Rounding, "errors", property(lambda rounding: [error] * len(rounding.inputs)))


def test_no_kernel_is_compiled_twice(device: DeviceInfo, context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """The chosen plan takes kernels from the plan in half and from the plan in float."""
    compiled: list[str] = []

    def recorded(texts: Sequence[str], builds: int) -> list[Sequence[str]]:
        compiled.extend(texts)
        return programs_of(texts, builds)

    monkeypatch.setattr("imgconv.runtime.programs.programs_of", recorded)
    prepared = Prepared(graph_of(offset_model()), Config(float16=1), target_of(device))
    choice = choose_precision(prepared, context, None, [{"x": picture()}], splits=3)
    assert choice.precision.storage and len(compiled) == len(set(compiled))


def test_a_bound_that_half_cannot_keep_leaves_all_float(device: DeviceInfo, context: Context) -> None:
    graph = graph_of(overflow_model(1.0))
    choice = choose_precision(Prepared(graph, Config(float16=1), target_of(device)), context, bound=1e-9)
    assert choice.precision.storage >= {*LAYERS[:-1], "x"} and choice.error <= 1e-9
    plan = lower(graph, Config(float16=1, precision=choice.precision), target_of(device))
    assert set(stored(plan).values()) == {"float32"}


def test_a_device_without_half_arithmetic_is_refused(device: DeviceInfo) -> None:
    with pytest.raises(DeviceError, match="cl_khr_fp16"):
        imgconv.load(cancelling_model(), replace(device, fp16_arithmetic=False), float16=2)


@pytest.mark.usefixtures("half_arithmetic")
def test_half_arithmetic_is_left_where_it_costs(context: Context, device: DeviceInfo) -> None:
    """float16=2 keeps the bound though products cancel."""
    model, x = cancelling_model(), picture()
    prepared = Prepared(graph_of(model), Config(float16=2), target_of(device))
    choice = choose_precision(prepared, context, None, [{"x": x}])
    assert choice.error <= choosing.BOUND
    chosen = imgconv.load(model, device, float16=2)
    assert relative_error(chosen.run({"x": x}), run_oracle(model, {"x": x})) <= choosing.BOUND


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
    choice = choose_precision(Prepared(graph, Config(float16=2), target_of(device)), context)
    assert choice.error <= choosing.BOUND
    plan = lower(graph, Config(float16=2, precision=choice.precision), target_of(device))
    sums = {name: launch.sums for launch in plan.launches if launch.sums for name in launch.values}
    assert sums == {node.output.name: choice.precision.sums_of(node.output.name) for node in graph.nodes}
    for seed in (21, 22):
        x = {"x": 3 * picture(seed)}
        assert relative_error(Session(plan, context).run(x), run_oracle(model, x)) <= choosing.BOUND


@pytest.mark.parametrize("own", [True, False])
def test_the_user_s_own_inputs_leave_no_margin(
    device: DeviceInfo, context: Context, monkeypatch: pytest.MonkeyPatch, own: bool
) -> None:
    """They judge the choice, so halves may cost all of the bound. On drawings only a part, and so may the plan."""
    parts, part = (choosing.PARTS_ON_INPUTS, 1.0) if own else (choosing.PARTS, choosing.PART_ON_DRAWINGS)
    bound, asked = 1e-2, list[float]()
    # One value after another keeps float, and only the last plan costs no more than it may.
    errors = iter([1.0, *[1.01 * part * bound] * (len(parts) - 1), part * bound])

    def too_sensitive(costs: choosing._Costs, most: float, most_at_first: float) -> frozenset[str]:
        assert most_at_first == parts[0] * bound
        asked.append(most)
        return frozenset(LAYERS[: len(asked)])

    monkeypatch.setattr(choosing._Measured, "errors", lambda measured, session: [next(errors)])
    monkeypatch.setattr(choosing._Costs, "too_sensitive", too_sensitive)
    prepared = Prepared(graph_of(overflow_model(1.0)), Config(float16=1), target_of(device))
    choice = choose_precision(prepared, context, None, [{"x": picture()}] if own else [], bound)
    assert asked == [each * bound for each in parts]
    assert choice.half_error == 1.0 and choice.error == part * bound
    assert choice.precision.storage == {*LAYERS[: len(parts)]}


class GivenSums:
    """`_Sums` of layers whose sums cost what a function of their widths says, and may cost `room`."""

    errors = (0.0,)

    def __init__(self, names: Sequence[str], cost: Callable[[Mapping[str, Sums]], float], room: float) -> None:
        self.names, self.cost, self.room = tuple(names), cost, room
        y = Tensor.input("x", (1, 4, 3, 3)).relu()
        self.measured = SimpleNamespace(prepared=SimpleNamespace(graph=build_graph({"y": y})))

    def precision(self, runs: frozenset[str], in_float: frozenset[str]) -> Precision:
        return Precision(arithmetic=in_float, runs=runs)

    def errors_of(self, runs: frozenset[str], in_float: frozenset[str]) -> list[float]:
        chosen = self.precision(runs, in_float)
        return [self.cost({name: chosen.sums_of(name) for name in self.names})]

    def allowed(self, runs: frozenset[str], in_float: frozenset[str], part: float = 1.0) -> bool:
        return self.errors_of(runs, in_float)[0] <= part * self.room

    def costs(self, sums: Sums, names: Sequence[str]) -> list[Block]:
        return sorted((Block((name,), self.cost({name: sums})) for name in names), key=lambda block: -block.error)


def test_each_sum_is_as_narrow_as_it_can_be() -> None:
    """With costs that are given: the long sum needs runs, the difference float, and the others can be in half."""
    half, runs = {"long": 3e-2, "difference": 0.5}, {"difference": 0.5}

    def cost(widths: Mapping[str, Sums]) -> float:
        tables: Mapping[str, Mapping[str, float]] = {"half": half, "runs": runs, "float": {}}
        return float(sum(tables[width].get(name, 1e-5) ** 2 for name, width in widths.items()) ** 0.5)

    chosen, _ = choosing._choose_sums(GivenSums(["first", "long", "difference", "y"], cost, 1e-3))
    assert chosen == Precision(arithmetic=frozenset({"difference"}), runs=frozenset({"long"}))
    everything, _ = choosing._choose_sums(GivenSums(["first", "long", "difference", "y"], cost, 1.0))
    assert everything == Precision()


def test_one_layer_does_not_widen_the_sums_of_others() -> None:
    """In a deep network each layer alone costs what storage costs, and all of them cost hardly more."""
    def cost(widths: Mapping[str, Sums]) -> float:
        return max(({"half": 0.5, "runs": 0.5 * (name != "long")}.get(width, 0.0) + (name == "long" and width == "half")
                    for name, width in widths.items()), default=0.0)

    chosen, error = choosing._choose_sums(GivenSums(["long", *(f"layer{n}" for n in range(8))], cost, 1.0))
    assert chosen == Precision(runs=frozenset({"long"})) and error == 0.5


@pytest.mark.usefixtures("half_arithmetic")
@pytest.mark.parametrize("ends_so", [True, False])
def test_no_sum_is_in_half_in_front_of_a_softmax(device: DeviceInfo, context: Context, ends_so: bool) -> None:
    """A bound of 1 leaves a tenth of the outputs for sums, and eight terms in half cost 2^-8 of their sum."""
    w = Tensor.constant(numpy.random.default_rng(3).uniform(-0.3, 0.3, (8, 8, 1, 1)).astype(numpy.float32))
    x = Tensor.input("x", (1, 8, 9, 9)).conv2d(w).named("first")
    y = x.conv2d(w).named("last").softmax(1) if ends_so else x.softmax(1).conv2d(w)
    prepared = Prepared(run_passes(build_graph({"y": y})), Config(float16=2), target_of(device))
    chosen = choose_precision(prepared, context, bound=1.0).precision
    assert chosen.runs == ({"first", "last"} if ends_so else set()) and not chosen.arithmetic


@pytest.mark.parametrize("classes", [8, 7000])
def test_a_softmax_at_the_end_is_seen(classes: int) -> None:
    """Of many classes the exponentials are computed once, apart from their sum."""
    logits = Tensor.input("x", (1, 8, 1, 40)).conv2d(constant(classes, 8, 1, 1))
    assert ends_in_softmax(run_passes(build_graph({"y": logits.softmax(1)})))
    assert not ends_in_softmax(run_passes(build_graph({"y": logits.softmax(1).conv2d(constant(3, classes, 1, 1))})))
    assert not ends_in_softmax(run_passes(build_graph({"y": logits.sigmoid()})))


@pytest.mark.usefixtures("half_arithmetic")
@pytest.mark.parametrize("level", [400.0, 1200.0])
def test_sums_are_judged_on_inputs_that_were_not_measured(device: DeviceInfo, context: Context, level: float) -> None:
    """16 terms, less 16 more: on the way 6400 or 19200 where it is measured, past half's range on a larger input."""
    x, weights = Tensor.input("x", (1, 32, 4, 4)), numpy.zeros((2, 32, 1, 1), numpy.float32)
    weights[0, 0], weights[1, :16], weights[1, 16:] = 10, 1, -1
    graph = run_passes(build_graph({"y": x.conv2d(Tensor.constant(weights))}))
    given = (level + RANDOM.uniform(0, 1, x.shape)).astype(numpy.float32)
    prepared = Prepared(graph, Config(float16=2), target_of(device))
    chosen = choose_precision(prepared, context, None, [{"x": given}]).precision
    larger = {"x": MARGIN * given}
    errors = [
        relative_error(Session(prepared.plan(replace(prepared.config, precision=each)), context).run(larger),
                       evaluate_graph(graph, larger))
        for each in (chosen, replace(chosen, arithmetic=frozenset({"y"}), runs=frozenset()))
    ]
    assert errors[0] <= errors[1] + choosing.BOUND


def test_largest_values_are_those_of_the_inputs(device: DeviceInfo, context: Context) -> None:
    graph = graph_of(overflow_model())
    inputs = [{"x": picture(1)}, {"x": 3 * picture(2)}, {"x": picture(3)}]
    choice = choose_precision(Prepared(graph, Config(float16=1), target_of(device)), context, None, inputs)
    every = Graph(graph.inputs, tuple(graph.producers), graph.nodes, graph.constants)
    values = [evaluate_graph(every, each) | each for each in inputs]
    expected = {name: max(numpy.abs(each[name]).max() for each in values) for name in ("x", *LAYERS)}
    # float32 sums of 45 products against float64.
    assert choice.largest == pytest.approx(expected, rel=1e-5)


def test_fewest_by_bisection() -> None:
    """Each count of blocks, and none, is found, in as few questions as a bisection takes; all are not asked for."""
    blocks = [Block((str(number),), 0.0) for number in range(9)]
    asked: list[int] = []
    for least in range(10):
        asked.clear()

        def allowed(names: frozenset[str], least: int = least) -> bool:
            asked.append(len(names))
            return len(names) >= least

        assert fewest(blocks, allowed) == {str(number) for number in range(least)}
        assert len(asked) <= 4 and 9 not in asked


def test_what_costs_most_for_its_size_comes_first() -> None:
    """Of two values of one error the small one keeps float first."""
    blocks = [Block(("large", "too"), 0.4, 1000), Block(("small",), 0.04, 1), Block(("none",), 0.0, 0)]
    assert [block.names[0] for block in by_worth(blocks)] == ["small", "large", "none"]
    assert by_worth([*blocks, Block(("lost",), float("inf"), 10)])[0].names == ("lost",)


def test_a_block_without_room_does_not_keep_others_in_float() -> None:
    """The large block costs too much alone. Half of the others' cost has room."""
    large, small = Block(("large",), 0.2, 1000), [Block((str(number),), 0.05, 1) for number in range(6)]
    assert by_worth([large, *small])[-1] is large
    kept = without_room([large, *small], 0.1)
    assert large in kept and len(kept) == 3
    assert without_room(small, 0.05 * 6**0.5 + 1e-9) == [] and len(without_room(small, 0.0)) == 6


def test_two_drawings_are_enough_if_they_leave_no_doubt(
    device: DeviceInfo, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    clear = 1e-3
    for side, error, compared, drawings in (
        (128, clear, False, 4), (127, clear, False, 8), (128, 1.01 * clear, False, 8), (128, clear, True, 8),
    ):
        give_errors(monkeypatch, error)
        y = Tensor.input("x", (1, 3, side, side)).conv2d(constant(4, 3, 1, 1))
        prepared = Prepared(run_passes(build_graph({"y": y})), Config(float16=1), target_of(device))
        measured = choosing._Measured(prepared, context, None, (), choosing.SPLITS, compared, clear)
        assert len(measured.rounding(measured.plain).inputs) == drawings


def test_a_quantised_network_keeps_float(device: DeviceInfo) -> None:
    """A level that changes is off by a whole level. So the half load gives the bits of the float load."""
    model = quantised_model()
    half, wide = (imgconv.load(model, device, float16=float16) for float16 in (1, 0))
    assert {*half.config.precision.reasons.values()} == {choosing.OF_LEVELS}
    assert {*stored(half.plan).values()} == {"float32"}
    x = picture()
    made = half.run({"x": x})["y"]
    assert (made == wide.run({"x": x})["y"]).all()
    expected = run_oracle(model, {"x": x})["y"]
    assert made == pytest.approx(expected, abs=1e-5 * float(numpy.abs(expected).max()))  # float32, 27 terms


def test_what_a_step_reads_is_compared_with_float(device: DeviceInfo, context: Context) -> None:
    """Longer moves change more steps, but none by more than one: their account of rounding is too small."""
    prepared = Prepared(graph_of(step_model()), Config(float16=1), target_of(device))
    assert not choosing.is_quantised(prepared.graph)
    session = choose_precision(prepared, context).session
    assert session is not None
    wide = Session(prepared.plan(Config()), context)
    for inputs in drawn_inputs(prepared.graph):
        error = relative_error(session.run(inputs), wide.run(inputs))
        assert error <= choosing.PART_ON_DRAWINGS * choosing.BOUND


def test_a_second_question_measures_only_what_is_new(
    device: DeviceInfo, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Less may remain in half: the blocks that are known are not measured again."""
    asked = give_costs(monkeypatch, {"x": 0.1, "first": 0.2, "big": 0.4, "back": 0.8})
    prepared = Prepared(graph_of(overflow_model(1.0)), Config(float16=1), target_of(device))
    drawn = drawn_inputs(prepared.graph)
    measured = choosing._Measured(prepared, context, None, drawn, choosing.SPLITS, False, 0.0)
    costs = choosing._Costs(measured, measured.half)
    first, second = (costs.too_sensitive(most, 0.5) for most in (0.5, 0.15))
    assert first == {"back"} and second == {"first", "big", "back"} and len(asked) == len(set(asked))


def test_a_sensitive_value_is_found_in_few_runs(context: Context, device: DeviceInfo) -> None:
    """One of 23: blocks of four parts, each of which is measured once."""
    names, asked = tuple(f"value {n}" for n in range(23)), list[tuple[str, ...]]()

    def measure(part: tuple[str, ...]) -> choosing.Block:
        asked.append(part)
        return choosing.Block(part, float("value 13" in part))

    prepared = Prepared(graph_of(overflow_model(1.0)), Config(float16=1), target_of(device))
    measured = choosing._Measured(prepared, context, None, (), choosing.SPLITS, False, 0.0)
    whole = [choosing.Block(names, float("inf"))]
    blocks = measured.split(whole, measure, "", lambda blocks: blocks[0].names == ("value 13",))
    assert sorted(name for block in blocks for name in block.names) == sorted(names)
    assert blocks[0].names == ("value 13",) and len(asked) == len(set(asked)) == 10


# Plans that follow a choice


def test_parts_of_a_concatenation_are_of_one_dtype() -> None:
    """Parts share a texture with the whole: where one must be float, all are."""
    x = Tensor.input("x", (1, 4, 5, 5))
    a, b = (x.conv2d(constant(4, 4, 1, 1)).named(name) for name in "ab")
    y = concatenate([a, b], 1).named("whole").conv2d(constant(4, 8, 1, 1))
    graph = run_passes(build_graph({"y": y}))
    half = stored(lower(graph, Config(float16=1), WIDE))
    assert half["a"] == half["b"] == half["whole"] == half["x"] == "float16"
    kept = stored(lower(graph, Config(float16=1, precision=Precision(frozenset({"b"}))), WIDE))
    assert kept["a"] == kept["b"] == kept["whole"] == "float32" and kept["x"] == "float16"


def test_weights_of_float_nodes_are_float() -> None:
    """Weights of a convolution, a matrix and a table: half where their reader is, float where it stays float."""
    n = int(SMALL_WEIGHTS**0.5) + 2
    image, row = Tensor.input("image", (1, n, 2, 2)), Tensor.input("row", (2, n))
    made = {
        "convolved": image.conv2d(constant(n, n, 1, 1)), "product": row @ constant(n, n),
        "sum": Tensor.input("table", (n, n)).exp() + constant(n, n),
    }
    graph = run_passes(build_graph({name: tensor.named(name) for name, tensor in made.items()}))
    for name in made:
        for kept, dtype in ((frozenset({name}), "float32"), (frozenset(set(made) - {name}), "float16")):
            plan = lower(graph, Config(float16=1, precision=Precision(kept)), WIDE)
            read = next(launch for launch in plan.launches if launch.name == name).reads
            assert {storage.dtype for storage in read if storage in plan.content} == {dtype}, (name, kept)


# Sessions, step by step


@pytest.mark.parametrize("max_image", [None, 8])
def test_every_value_can_be_read(device: DeviceInfo, context: Context, max_image: int | None) -> None:
    """Values in textures, in tiles, in parts of a concatenation and in buffers, as numpy computes them."""
    x = Tensor.input("x", (1, 6, 9, 7))
    a, b = (x.conv2d(constant(c, 6, 3, 3), padding=1).relu().named(name) for name, c in (("a", 4), ("b", 7)))
    joined = concatenate([a, b], 1).named("joined").conv2d(constant(5, 11, 1, 1)).named("c")
    graph = run_passes(build_graph({"y": joined.sum([2, 3]) + 1}))
    limits = ImageLimits(*(max_image or size for size in (4096, 4096)), 64)
    session = Session(lower(graph, Config(), Target(limits, "cpu", 2)), context)
    assert session.plan.placements["b"].channel_offset == 4
    inputs = {"x": RANDOM.uniform(-1, 1, (1, 6, 9, 7)).astype(numpy.float32)}
    every = Graph(graph.inputs, tuple(graph.producers), graph.nodes, graph.constants)
    expected = {**evaluate_graph(every, inputs), **inputs}
    seen = []
    for name in session.steps(inputs):
        seen.append(name)
        # Sums of 54 products of numbers below 1, in float32.
        numpy.testing.assert_allclose(session.value(name), expected[name], 0, 1e-4, err_msg=name)
    assert {"x", "a", "b", "c", "y"} <= set(seen) and len(seen) == len(set(seen))
    found = session.outputs()
    assert all((found[name] == array).all() for name, array in session.run(inputs).items())


# What a load keeps, and says


def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of values of the choices that are made from now on."""
    made: list[int] = []
    original = choosing.choose_precision

    def choose(*arguments: Any, **named: Any) -> Any:
        found = original(*arguments, **named)
        made.append(len(found.largest))
        return found

    monkeypatch.setattr(choosing, "choose_precision", choose)
    return made


def test_a_choice_is_made_once(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another load of the same model and settings measures nothing and keeps the same; other settings measure anew."""
    made = counted(monkeypatch)
    first = imgconv.load(overflow_model(), device, float16=1)
    second = imgconv.load(overflow_model(), device, float16=1)
    assert len(made) == 1 and first.config.precision == second.config.precision
    assert dict(first.config.precision.reasons) == dict(second.config.precision.reasons)
    assert "big" in second.config.precision.storage
    x = picture()
    assert (first.run({"x": x})["y"] == second.run({"x": x})["y"]).all()
    imgconv.load(overflow_model(), device, float16=1, max_image=64)
    assert len(made) == 2
    imgconv.load(overflow_model(2e6), device, float16=1)
    assert len(made) == 3


def test_a_kept_choice_of_other_names_is_none() -> None:
    graph = graph_of(overflow_model())
    key = choice_key(graph, "a device", Config(float16=1))
    assert read_choice(key, graph) is None
    kept = Precision(frozenset({"big"}), reasons={"big": "near 65504: 1e6"})
    write_choice(key, kept)
    found = read_choice(key, graph)
    assert found == kept and found is not None and found.reasons == kept.reasons
    write_choice(key, Precision(frozenset({"nobody"})))
    assert read_choice(key, graph) is None
    keys = {choice_key(graph, name, config) for name in "ab" for config in (Config(float16=1), Config(float16=2))}
    assert len(keys) == 4


def test_half_alone_compiles_one_plan(
    device: DeviceInfo, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where half is good enough, no kernel of another plan is built, and the result's session is the measured one."""
    plans: list[Plan] = []
    original = Session.__init__

    def start(self: Session, plan: Plan, *rest: Any) -> None:
        plans.append(plan)
        original(self, plan, *rest)

    monkeypatch.setattr(Session, "__init__", start)
    give_errors(monkeypatch, 1e-3)
    model = imgconv.load(overflow_model(1.0), device, float16=1)
    assert plans == [model.plan] and not model.config.precision.storage


def test_load_says_how_much_is_half(
    device: DeviceInfo, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_errors(monkeypatch, 1e-3)
    with caplog.at_level("INFO", "imgconv"):
        imgconv.load(overflow_model(1.0), device, float16=1)
        model = imgconv.load(overflow_model(), device, float16=1)
        assert model.config.precision.reasons["big"].startswith("near 65504: ")
    half, some = (record.getMessage() for record in caplog.records)
    assert re.fullmatch(r"FLOAT16=1: (\d+) of \1 values are half, 100.0% of their numbers", half)
    assert re.fullmatch(r"FLOAT16=1: .* of their numbers; \d+ stay float: .*\b1 near 65504\b.*", some)
