"""What stays float under FLOAT16: measured choices, and plans that follow them."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy
import onnx
import pytest
from planted import (
    LAYERS, cancelling_model, offset_model, overflow_model, picture, quantised_model, step_model, summing_model,
)
from support import run_oracle

import imgconv
from imgconv.arrays import Array
from imgconv.cl import build_processes, program
from imgconv.cl.device import Context, DeviceInfo
from imgconv.cl.program import Program
from imgconv.compiling.compiler import Prepared
from imgconv.compiling.lower import lower
from imgconv.compiling.plan import Plan
from imgconv.compiling.textures import SMALL_WEIGHTS
from imgconv.config import Config, Precision
from imgconv.errors import DeviceError
from imgconv.graph.evaluate import evaluate_graph
from imgconv.graph.nodes import Graph
from imgconv.kernels.layout import ImageLimits
from imgconv.kernels.source import programs_of
from imgconv.kernels.target import HALF_MAX, Target
from imgconv.onnx_import import import_onnx
from imgconv.passes import run_passes
from imgconv.running import precision as choosing, rounding
from imgconv.running.drawings import drawn_inputs
from imgconv.running.precision import Block, by_worth, choose_precision, ends_in_softmax, fewest, without_room
from imgconv.running.rounding import Rounding, relative_error
from imgconv.running.session import Session
from imgconv.running.target import target_of
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
    assert stored(chosen.plan)["big"] == "float32" and stored(chosen.plan)["first"] == "float16"
    # Two textures of the chain are half; each rounds by at most 2^-11 of its value.
    assert relative_error(chosen.run({"x": x}), expected) <= 2e-3


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
    """Half has 0.5 between 1000 and 1001: only that layer stays float, and the result is right."""
    graph, x = graph_of(offset_model()), picture()
    plain = Session(lower(graph, Config(float16=1), target_of(device)), context)
    assert relative_error(plain.run({"x": x}), evaluate_graph(graph, {"x": x})) > 0.1
    prepared = Prepared(graph, Config(float16=1), target_of(device))
    choice = choose_precision(prepared, context, None, [{"x": x}], splits=3)
    assert choice.precision == Precision(frozenset({"high"}))
    assert choice.half_error > 0.1 and choice.error <= 1e-3
    model = imgconv.load(offset_model(), device, float16=1)
    assert relative_error(model.run({"x": x}), run_oracle(offset_model(), {"x": x})) <= 1e-2


def test_no_kernel_is_compiled_twice(device: DeviceInfo, context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """The chosen plan takes kernels from the plan in half and from the plan in float."""
    compiled: list[str] = []

    def recorded(texts: Sequence[str], builds: int) -> list[Sequence[str]]:
        compiled.extend(texts)
        return programs_of(texts, builds)

    monkeypatch.setattr("imgconv.running.programs.programs_of", recorded)
    prepared = Prepared(graph_of(offset_model()), Config(float16=1), target_of(device))
    choice = choose_precision(prepared, context, None, [{"x": picture()}], splits=3)
    assert choice.precision.storage and len(compiled) == len(set(compiled))


def test_the_next_process_compiles_nothing(
    device: DeviceInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The programs that were measured hold kernels of the chosen plan, in other groups than it alone would have."""
    def not_compiled(*arguments: object) -> Program:
        raise AssertionError("compiled")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(program, "_built", OrderedDict())
    first = imgconv.load(offset_model(), device, float16=1)
    expected = first.run({"x": picture()})
    assert first._last.config.precision.storage and first._last.session.programs.are_lent
    monkeypatch.setattr(program, "_built", OrderedDict())
    with monkeypatch.context() as patched:
        patched.setattr(program, "compile_text", not_compiled)
        patched.setattr(build_processes, "_can_start", lambda: False)
        second = imgconv.load(offset_model(), device, float16=1)
    assert second._last.config == first._last.config
    second.save(tmp_path / "model.imgconv")
    for model in (second, imgconv.load(tmp_path / "model.imgconv", device)):
        assert all(numpy.array_equal(array, expected[name]) for name, array in model.run({"x": picture()}).items())


def test_a_bound_that_half_cannot_keep_leaves_all_float(device: DeviceInfo, context: Context) -> None:
    graph = graph_of(overflow_model(1.0))
    choice = choose_precision(Prepared(graph, Config(float16=1), target_of(device)), context, bound=1e-9)
    assert choice.precision.storage >= {*LAYERS[:-1], "x"} and choice.error <= 1e-9
    plan = lower(graph, Config(float16=1, precision=choice.precision), target_of(device))
    assert set(stored(plan).values()) == {"float32"}


def test_half_arithmetic_is_left_where_it_costs(device: DeviceInfo, context: Context) -> None:
    """float16=2: the layer whose products cancel computes in float, though its values are stored half."""
    model, x = cancelling_model(), picture()
    if not device.fp16_arithmetic:
        with pytest.raises(DeviceError):
            imgconv.load(model, device, float16=2)
        return
    expected, target, graph = run_oracle(model, {"x": x}), target_of(device), graph_of(model)
    plain = Session(lower(graph, Config(float16=2), target), context)
    assert relative_error(plain.run({"x": x}), expected) > 0.1
    choice = choose_precision(Prepared(graph, Config(float16=2), target), context, None, [{"x": x}])
    assert not choice.precision.storage and "difference" in choice.precision.arithmetic and choice.error <= 1e-2
    chosen = imgconv.load(model, device, float16=2)
    assert "difference" in chosen.config.precision.arithmetic
    assert relative_error(chosen.run({"x": x}), expected) <= 1e-2


def test_each_sum_is_as_narrow_as_it_can_be(device: DeviceInfo, context: Context) -> None:
    """The long sum in runs, the difference in float, the others in half; right on pictures that were not measured."""
    if not device.fp16_arithmetic:
        return
    graph = graph_of(summing_model())
    choice = choose_precision(Prepared(graph, Config(float16=2), target_of(device)), context)
    assert choice.precision == Precision(frozenset(), frozenset({"difference"}), frozenset({"long"}))
    assert choice.error <= 1e-2
    plan = lower(graph, Config(float16=2, precision=choice.precision), target_of(device))
    assert {launch.name: launch.sums for launch in plan.launches if launch.sums} == {
        "first": "half", "long": "runs", "difference": "float", "y": "half",
    }
    for seed in (21, 22):
        x = {"x": 3 * picture(seed)}
        assert relative_error(Session(plan, context).run(x), run_oracle(summing_model(), x)) <= 1e-2
    for wider in (Precision(), Precision(runs=frozenset({"first", "long", "difference", "y"}))):
        session = Session(lower(graph, Config(float16=2, precision=wider), target_of(device)), context)
        assert relative_error(session.run(x), run_oracle(summing_model(), x)) > 1e-2


def test_the_user_s_own_inputs_leave_no_margin(device: DeviceInfo, context: Context) -> None:
    """They judge the choice, so the error comes near the bound. On drawings it stays far below it."""
    y = Tensor.input("x", (1, 8, 40, 40))
    for _ in range(8):
        y = (y.conv2d(constant(8, 8, 3, 3), padding=1) * 0.2).relu()
    prepared = Prepared(run_passes(build_graph({"y": y})), Config(float16=1), target_of(device))
    inputs = [{"x": RANDOM.uniform(0, 1, (1, 8, 40, 40)).astype(numpy.float32)}]
    bound = 0.8 * choose_precision(prepared, context, None, inputs, bound=1.0).half_error
    on_inputs, drawn = (choose_precision(prepared, context, None, each, bound) for each in (inputs, ()))
    assert bound / 2 < on_inputs.error <= bound
    assert on_inputs.precision.storage < drawn.precision.storage


def test_one_layer_does_not_widen_the_sums_of_others(device: DeviceInfo, context: Context) -> None:
    """In a deep network each layer alone costs what storage costs, and all of them cost hardly more."""
    if not device.fp16_arithmetic:
        return
    random = numpy.random.default_rng(3)

    def weights(outputs: int, inputs: int, sum_of_them: float = 1.0) -> Tensor:
        made = random.uniform(0.5, 1.5, (outputs, inputs, 1, 1)) * sum_of_them / inputs
        return Tensor.constant(numpy.float32(made))

    # Sums of about 16, where half is 1/64 apart: terms of 1/128 are lost. Runs of 32 products end below 1.
    y = Tensor.input("x", (1, 3, 9, 9)).conv2d(weights(2048, 3)).conv2d(weights(8, 2048, 32.0)).named("long")
    for number in range(8):
        y = y.conv2d(weights(8, 8)).relu().named(f"layer{number}")
    prepared = Prepared(run_passes(build_graph({"y": y})), Config(float16=2), target_of(device))
    choice = choose_precision(prepared, context, bound=1.5e-2)
    assert choice.precision == Precision(runs=frozenset({"long"})) and choice.error <= 2e-3


@pytest.mark.parametrize("ends_so", [True, False])
def test_no_sum_is_in_half_in_front_of_a_softmax(device: DeviceInfo, context: Context, ends_so: bool) -> None:
    if not device.fp16_arithmetic:
        return
    w = Tensor.constant(numpy.random.default_rng(3).uniform(-0.3, 0.3, (8, 8, 1, 1)).astype(numpy.float32))
    x = Tensor.input("x", (1, 8, 9, 9)).conv2d(w).named("first")
    y = x.conv2d(w).named("last").softmax(1) if ends_so else x.softmax(1).conv2d(w)
    prepared = Prepared(run_passes(build_graph({"y": y})), Config(float16=2), target_of(device))
    runs = choose_precision(prepared, context, bound=0.1).precision.runs
    assert runs == ({"first", "last"} if ends_so else set())


@pytest.mark.parametrize("classes", [8, 7000])
def test_a_softmax_at_the_end_is_seen(classes: int) -> None:
    """Of many classes the exponentials are computed once, apart from their sum."""
    logits = Tensor.input("x", (1, 8, 1, 40)).conv2d(constant(classes, 8, 1, 1))
    assert ends_in_softmax(run_passes(build_graph({"y": logits.softmax(1)})))
    assert not ends_in_softmax(run_passes(build_graph({"y": logits.softmax(1).conv2d(constant(3, classes, 1, 1))})))
    assert not ends_in_softmax(run_passes(build_graph({"y": logits.sigmoid()})))


def test_sums_are_judged_on_inputs_that_were_not_measured(device: DeviceInfo, context: Context) -> None:
    """16 terms, less 16 more: on the way 6400 or 19200 where it is measured, four times that on another input."""
    if not device.fp16_arithmetic:
        return
    x, weights = Tensor.input("x", (1, 32, 4, 4)), numpy.zeros((2, 32, 1, 1), numpy.float32)
    weights[0, 0], weights[1, :16], weights[1, 16:] = 10, 1, -1
    graph = run_passes(build_graph({"y": x.conv2d(Tensor.constant(weights))}))
    for level, sums in ((400.0, "half"), (1200.0, "float")):
        given = {"x": (level + RANDOM.uniform(0, 1, x.shape)).astype(numpy.float32)}
        choice = choose_precision(Prepared(graph, Config(float16=2), target_of(device)), context, None, [given])
        assert choice.precision.sums_of("y") == sums, level


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
    seen, outputs_if = set[int](), Rounding.outputs_if

    def counted(rounding: Rounding, groups: frozenset[str], number: int, *others: Any) -> dict[str, Array]:
        seen.add(number)
        return outputs_if(rounding, groups, number, *others)

    monkeypatch.setattr(Rounding, "outputs_if", counted)
    clear, small = (
        run_passes(build_graph({"y": Tensor.input("x", (1, 3, side, side)).conv2d(constant(4, 3, 1, 1))}))
        for side in (128, 127)
    )
    for graph, drawings in ((clear, 2), (small, 6), (graph_of(offset_model()), 6)):
        seen.clear()
        choose_precision(Prepared(graph, Config(float16=1), target_of(device)), context)
        assert len(seen) == drawings


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
    asked, cost_of = list[tuple[frozenset[str], int]](), Rounding.cost_of

    def counted(rounding: Rounding, groups: frozenset[str], number: int, units: int) -> float:
        asked.append((groups, number))
        return cost_of(rounding, groups, number, units)

    monkeypatch.setattr(Rounding, "cost_of", counted)
    prepared = Prepared(graph_of(overflow_model(1.0)), Config(float16=1), target_of(device))
    drawn = drawn_inputs(prepared.graph)
    measured = choosing._Measured(prepared, context, None, drawn, choosing.SPLITS, False, 0.0)
    most = max(measured.errors(measured.half))
    costs = choosing._Costs(measured, measured.half)
    first, second = (costs.too_sensitive(part * most, most) for part in (0.9, 0.3))
    assert first < second and len(asked) == len(set(asked))


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
    model = imgconv.load(overflow_model(1.0), device, float16=1)
    assert plans == [model.plan] and not model.config.precision.storage


def test_load_says_how_much_is_half(device: DeviceInfo, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "imgconv"):
        imgconv.load(overflow_model(1.0), device, float16=1)
        model = imgconv.load(overflow_model(), device, float16=1)
        assert model.config.precision.reasons["big"].startswith("near 65504: ")
    half, some = (record.getMessage() for record in caplog.records)
    assert re.fullmatch(r"FLOAT16=1: (\d+) of \1 values are half, 100.0% of their numbers", half)
    assert re.fullmatch(r"FLOAT16=1: .* of their numbers; \d+ stay float: .*\b1 near 65504\b.*", some)
