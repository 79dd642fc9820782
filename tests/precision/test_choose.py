"""Values that stay float under FLOAT16: measured choices, and plans that follow them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy
import onnx
import pytest
from planted import LAYERS, offset_model, overflow_model, picture, quantised_model, step_model
from support import run_oracle

import imgconv
from imgconv.cl.context import Context
from imgconv.cl.device import DeviceInfo
from imgconv.compiling.compiler import PreparedGraph
from imgconv.compiling.lower import lower
from imgconv.compiling.plan import Plan
from imgconv.compiling.textures import BIASES, SMALL_WEIGHTS
from imgconv.config import Config, Precision
from imgconv.files.disk_cache import DiskCache
from imgconv.graph.evaluate import evaluate_graph
from imgconv.graph.nodes import Graph
from imgconv.kernels.layout import ImageLimits
from imgconv.kernels.kernel_source import batched_into_programs
from imgconv.kernels.target import Target
from imgconv.onnx_import import import_onnx
from imgconv.passes import run_passes
from imgconv.loading import plan_cache
from imgconv.loading.compiled import TO_THE_END
from imgconv.loading.device_target import target_of
from imgconv.precision import choose, storage
from imgconv.precision.choose import BOUND, choose_precision, ends_in_softmax
from imgconv.precision.calibration_inputs import synthetic_inputs
from imgconv.precision.loss import relative_error
from imgconv.precision.share import UNDECIDED
from imgconv.runtime.programs import PlanPrograms
from imgconv.runtime.session import Session
from imgconv.stored.precision_file import choice_key, read_choice, write_choice
from imgconv.tensor import Tensor, build_graph, concatenate

RANDOM = numpy.random.default_rng(8)
WIDE = Target(ImageLimits(4096, 4096, 8), "cpu", 2)


def graph_of(model: onnx.ModelProto) -> Graph:
    return run_passes(import_onnx(model))


def prepared_of(model: onnx.ModelProto, device: DeviceInfo) -> PreparedGraph:
    return PreparedGraph(graph_of(model), Config(float16=1), target_of(device))


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
        choice = choose_precision(prepared_of(overflow_model(factor), device), context, None, [{"x": picture()}])
        assert choice.precision.storage == kept and choice.largest["big"] < 65504
        assert choice.precision.reasons.keys() == kept


def test_what_loses_digits_keeps_float(device: DeviceInfo, context: Context) -> None:
    """Half has 0.5 between 1000 and 1001: that layer stays float, and the result is right."""
    graph, x = graph_of(offset_model()), picture()
    plain = Session(lower(graph, Config(float16=1), target_of(device)), context)
    assert relative_error(plain.run({"x": x}), evaluate_graph(graph, {"x": x})) > 0.1
    choice = choose_precision(prepared_of(offset_model(), device), context, None, [{"x": x}])
    assert choice.precision.storage == {"high"} and choice.half_error > 0.1 and choice.error <= BOUND
    made = choice.session.run({"x": x})
    assert relative_error(made, run_oracle(offset_model(), {"x": x})) <= BOUND


@pytest.mark.parametrize("has_small_weights", [True, False])
def test_all_half_is_tried_once_for_each_plan(
    device: DeviceInfo, context: Context, monkeypatch: pytest.MonkeyPatch, has_small_weights: bool
) -> None:
    """With small weights in half and in float; once if there are none."""
    tried = []
    original = storage.StorageSearch._is_allowed

    def is_allowed(self: storage.StorageSearch, half: frozenset[str]) -> bool:
        tried.append(half == self.items.keys())
        return original(self, half)

    monkeypatch.setattr(storage.StorageSearch, "_is_allowed", is_allowed)
    weights = constant(17 if has_small_weights else 50, 12, 3, 3)
    assert (weights.numpy().size < SMALL_WEIGHTS) == has_small_weights
    y = Tensor.input("x", (1, 12, 6, 5)).conv2d(weights).relu()
    prepared = PreparedGraph(run_passes(build_graph({"y": y})), Config(float16=1), target_of(device))
    choose_precision(prepared, context, bound=1e-9)
    assert sum(tried) == 1 + has_small_weights


def test_synthetic_inputs_keep_the_bound_on_others(device: DeviceInfo, context: Context) -> None:
    choice = choose_precision(prepared_of(offset_model(), device), context)
    assert "high" in choice.precision.storage and choice.precision.storage < {*LAYERS, "x", "high"}
    x = {"x": picture()}
    assert relative_error(choice.session.run(x), run_oracle(offset_model(), x)) <= BOUND


@pytest.mark.parametrize("own", [True, False])
def test_less_than_the_bound_is_accepted_on_synthetic_inputs(device: DeviceInfo, context: Context, own: bool) -> None:
    """All of it on the user's own. At the error with everything in half, and a little above and below."""
    prepared, inputs = prepared_of(overflow_model(1.0), device), [{"x": picture()}] if own else []
    error = choose_precision(prepared, context, None, inputs, 1.0).half_error
    part = 1.0 if own else storage.PART_OF_ALL
    for bound, is_all in ((1.05 * error / part, True), (0.95 * error / part, False)):
        choice = choose_precision(prepared, context, None, inputs, bound)
        assert (not choice.precision.storage) == is_all
        assert choice.error <= (part if is_all or own else storage.PART_OF_FOUND) * bound


def test_a_choice_is_confirmed_by_its_plan(
    device: DeviceInfo, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All values stay fp32 if fp16 plans have larger errors than the simulation predicts."""
    original = Session.run

    def run(self: Session, *arguments: Any) -> dict[str, Any]:
        wrong = 1.5 if "float16" in stored(self.plan).values() else 1.0
        return {name: wrong * array for name, array in original(self, *arguments).items()}

    monkeypatch.setattr(Session, "run", run)
    choice = choose_precision(prepared_of(overflow_model(1.0), device), context)
    assert choice.error == 0 and set(stored(choice.session.plan).values()) == {"float32"}


def test_a_bound_that_half_cannot_keep_leaves_all_float(device: DeviceInfo, context: Context) -> None:
    prepared = prepared_of(overflow_model(1.0), device)
    choice = choose_precision(prepared, context, bound=1e-9)
    assert choice.precision.storage >= {*LAYERS[:-1], "x"} and choice.error <= 1e-9
    plan = lower(prepared.graph, Config(float16=1, precision=choice.precision), target_of(device))
    assert set(stored(plan).values()) == {"float32"}


def test_what_a_search_does_not_reach_stays_float(device: DeviceInfo, context: Context) -> None:
    """Without a run for the search, all that the trial of everything in half did not allow."""
    prepared = prepared_of(offset_model(), device)
    none, all_runs = (choose_precision(prepared, context, runs=runs) for runs in (0, None))
    assert set(stored(none.session.plan).values()) == {"float32"} and none.half_error == all_runs.half_error
    assert {*none.precision.reasons.values()} == {UNDECIDED}
    assert UNDECIDED not in all_runs.precision.reasons.values()
    assert all_runs.precision.storage < none.precision.storage
    allowed = choose_precision(prepared_of(overflow_model(1.0), device), context, runs=0)
    assert not allowed.precision.storage


def test_outputs_that_are_lost_keep_all_float(device: DeviceInfo, context: Context) -> None:
    """On inputs a thousand times as large, 1e-5 / (1 + x) is too small for half."""
    x = Tensor.input("x", (1, 8, 9, 9)).max_pool(9, 9)
    small = (1e-5 / (1.0 + x.relu())).conv2d(Tensor.constant(numpy.eye(8, dtype=numpy.float32)[:, :, None, None]))
    # An output, so that no plan computes it and what follows in one launch.
    graph = run_passes(build_graph({"small": small, "y": small.conv2d(constant(8, 8, 1, 1)) * 1e5}))
    choice = choose_precision(PreparedGraph(graph, Config(float16=1), target_of(device)), context)
    assert set(stored(choice.session.plan).values()) == {"float32"}
    assert {*choice.precision.reasons.values()} == {choose.LOST}


def test_a_quantised_network_keeps_float(device: DeviceInfo) -> None:
    """A level that changes is off by a whole level. So the half load gives the bits of the float load."""
    model = quantised_model()
    half, wide = (imgconv.load(model, device, float16=float16) for float16 in (1, 0))
    assert {*half.config.precision.reasons.values()} == {choose.OF_LEVELS}
    assert "float16" not in stored(half.plan).values()
    x = picture()
    made = half.run({"x": x})["y"]
    assert (made == wide.run({"x": x})["y"]).all()
    expected = run_oracle(model, {"x": x})["y"]
    assert made == pytest.approx(expected, abs=1e-5 * float(numpy.abs(expected).max()))  # float32, 27 terms


def test_steps_are_really_taken(device: DeviceInfo, context: Context) -> None:
    """A small change of what a step function reads changes nothing, or a whole step."""
    prepared = prepared_of(step_model(), device)
    assert not choose.is_quantised(prepared.graph)
    session = choose_precision(prepared, context).session
    wide = Session(prepared.plan(Config()), context)
    for inputs in synthetic_inputs(prepared.graph):
        assert relative_error(session.run(inputs), wide.run(inputs)) <= storage.PART_OF_ALL * BOUND


@pytest.mark.parametrize("classes", [8, 7000])
def test_a_softmax_at_the_end_is_seen(classes: int) -> None:
    """A softmax is found also with many classes, where the exponentials are computed once, apart from their sum."""
    logits = Tensor.input("x", (1, 8, 1, 40)).conv2d(constant(classes, 8, 1, 1))
    assert ends_in_softmax(run_passes(build_graph({"y": logits.softmax(1)})))
    assert not ends_in_softmax(run_passes(build_graph({"y": logits.softmax(1).conv2d(constant(3, classes, 1, 1))})))
    assert not ends_in_softmax(run_passes(build_graph({"y": logits.sigmoid()})))


# Kernels and memory


def test_no_kernel_is_compiled_twice(device: DeviceInfo, context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    """The chosen plan takes kernels from the plan in float."""
    compiled: list[str] = []

    def recorded(texts: Sequence[str], builds: int) -> list[Sequence[str]]:
        compiled.extend(texts)
        return batched_into_programs(texts, builds)

    monkeypatch.setattr("imgconv.runtime.programs.batched_into_programs", recorded)
    choice = choose_precision(prepared_of(offset_model(), device), context, None, [{"x": picture()}])
    assert choice.precision.storage and len(compiled) == len(set(compiled))


@pytest.mark.parametrize("offered", (1, 5))
def test_few_kernels_of_others_are_not_taken(context: Context, offered: int) -> None:
    """A plan that takes any has programs that a later process cannot find in the cache."""
    x = Tensor.input("x", (1, 1, 4, 4))
    parts = [(x * (number + 2.5)).tanh() for number in range(8)]
    graphs = [build_graph({f"y{n}": part for n, part in enumerate(made)}) for made in (parts, parts[:offered])]
    plans = [lower(run_passes(graph), Config(), target_of(context.info)) for graph in graphs]
    texts = [{launch.source.text for launch in plan.launches} for plan in plans]
    assert len(texts[0] & texts[1]) == offered and len(texts[0]) == len(parts)
    lender = PlanPrograms(plans[1], context)
    with lender.build_in_background():
        pass
    assert len(PlanPrograms(plans[0], context, [lender]).kernels) == (0 if offered == 1 else offered)


def test_the_session_has_its_own_weights_again(device: DeviceInfo, context: Context) -> None:
    """It shares them with the session in which they were rounded."""
    n = int(SMALL_WEIGHTS**0.5) + 2
    graph = run_passes(build_graph({"y": Tensor.input("x", (1, n, 4, 4)).conv2d(constant(n, n, 1, 1))}))
    choice = choose_precision(PreparedGraph(graph, Config(float16=1), target_of(device)), context, bound=1e-9)
    x = {"x": RANDOM.uniform(0, 1, (1, n, 4, 4)).astype(numpy.float32)}
    assert set(stored(choice.session.plan).values()) == {"float32"}
    # float32 sums of n products; rounding the weights costs ten times as much.
    assert relative_error(choice.session.run(x), evaluate_graph(graph, x)) < 1e-7 * n


@pytest.mark.parametrize("cancel", [False, True])
def test_small_weights_are_half_if_the_outputs_tolerate_it(device: DeviceInfo, context: Context, cancel: bool) -> None:
    """Weights of 1.0008 and -1 in turn, of equal channels: with 1.0008 rounded, outputs are a fifth off."""
    n = int(BIASES**0.5) + 8
    copies = Tensor.input("x", (1, 1, 16, 16)).conv2d(Tensor.constant(numpy.ones((n, 1, 1, 1), numpy.float32)))
    weights = numpy.tile(numpy.float32([1.0008, -1 if cancel else 1]), (n, n // 2)).reshape(n, n, 1, 1)
    graph = run_passes(build_graph({"y": copies.relu().conv2d(Tensor.constant(weights))}))
    choice = choose_precision(PreparedGraph(graph, Config(float16=1), target_of(device)), context)
    assert choice.precision == Precision(small_weights=not cancel)
    (dtype,) = {s.dtype for s in choice.session.plan.content if s.bytes >= 2 * n * n}
    assert dtype == ("float32" if cancel else "float16")


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
    original = choose.choose_precision

    def choosing(*arguments: Any, **named: Any) -> Any:
        found = original(*arguments, **named)
        made.append(len(found.largest))
        return found

    monkeypatch.setattr(choose, "choose_precision", choosing)
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


def test_load_says_how_much_is_half(device: DeviceInfo, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "imgconv"):
        imgconv.load(overflow_model(1.0), device, float16=1)
        model = imgconv.load(overflow_model(), device, float16=1)
        assert model.config.precision.reasons["big"].startswith("near 65504: ")
        imgconv.load(build_graph({"y": Tensor.input("x", (1,), "int64") + 1}), device, float16=1)
    half, some, none = (record.getMessage() for record in caplog.records)
    assert re.fullmatch(r"float16=1: (\d+) of \1 values are fp16, 100.0% of all elements", half)
    assert re.fullmatch(r"float16=1: .* of all elements; \d+ stays? fp32: .*\bnear 65504\b.*", some)
    assert none == "float16=1: no floating-point values in textures"


def test_load_says_what_was_not_measured(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later load says so too."""
    monkeypatch.setattr(storage.StorageSearch, "runs_within", lambda *_: 0)
    monkeypatch.setattr(storage.StorageSearch, "inputs_within", lambda *_: 2)
    for _ in range(2):
        with pytest.warns(RuntimeWarning, match=f"{UNDECIDED}.*{TO_THE_END}"):
            imgconv.load(offset_model(), device, float16=1)


def test_a_load_has_as_many_runs_as_fit_in_its_time(
    device: DeviceInfo, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the time of a run, and none once the time is over; more time for more inputs first."""
    for name in ("PART_OF_LOAD", "PART_WITH_SHARED_KERNELS", "LEAST_PART_OF_LOAD"):
        monkeypatch.setattr(storage, name, 0.5)
    monkeypatch.setattr(storage, "LEAST_SECONDS", 0.0)
    measuring = storage.StorageSearch(prepared_of(overflow_model(), device), context, None, (), BOUND)
    measuring.run_seconds, measuring.build = 1e-3, 0.0
    few, many = (measuring.runs_within(measuring.ready - seconds) for seconds in (1e3, 1e4))
    assert 0 < few <= 1e6 and many > 9 * few and measuring.runs_within(measuring.ready) == 0
    counts = [measuring.inputs_within(measuring.ready - seconds) for seconds in (0.0, 1.0, 10.0, 100.0)]
    assert counts == sorted(counts) and counts[0] == 0 and counts[-1] > 8


def test_a_load_without_time_measures_nothing(
    device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """All values stay fp32, and nothing else is compiled, if a run takes too long. The next load measures again."""
    path = tmp_path / "m.onnx"
    onnx.save(overflow_model(1.0), path)
    monkeypatch.setattr(plan_cache, "PLANS", DiskCache(str(tmp_path / "plans"), 2**20))
    with monkeypatch.context() as without_time, pytest.warns(RuntimeWarning, match=f"{UNDECIDED}.*{TO_THE_END}"):
        without_time.setattr(storage.StorageSearch, "inputs_within", lambda *_: 0)
        model = imgconv.load(path, device, float16=1)
    assert {*stored(model.plan).values()} == {"float32"}
    assert "float16" in stored(imgconv.load(path, device, float16=1).plan).values()
    x = {"x": picture()}
    assert relative_error(model.run(x), run_oracle(onnx.load(path), x)) < 1e-5
