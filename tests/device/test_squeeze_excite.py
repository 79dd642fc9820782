"""squeeze_excite.cl against float64 numpy: forms, sizes, batches, work groups; and where it is used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems.squeeze_excite import SqueezeProblem, squeeze_problems
from running import Wanted, check, choosing, device_settings, run_graph, run_tensors, target
from support import assert_close, run_oracle

from imgconv.cl.context import Context
from imgconv.compiling.choose import cheapest_choice
from imgconv.compiling.lower import lower
from imgconv.compiling.plan import Plan
from imgconv.config import Config
from imgconv.graph.evaluate import evaluate_graph
from imgconv.kernels.layout import ImageLimits, Texture
from imgconv.kernels.squeeze_excite.template import TEMPLATE, Problem, Specialisation
from imgconv.kernels.target import Target
from imgconv.onnx_import import import_onnx
from imgconv.passes import run_passes
from imgconv.tensor import Tensor, build_graph, concatenate
from models import build

S = SqueezeProblem
GRID = [
    S(), S(bias=False, size=(6, 5)), S(form="products", size=(4, 7)), S(form="rows", bias=False, size=(6, 6)),
    S(scaled=True, size=(5, 5)), S(channels=1, hidden=2), S(channels=2, hidden=1),
    S(channels=7, hidden=3, size=(4, 4)), S(channels=17, hidden=5, size=(7, 7), form="products"),
    S(channels=64, hidden=16, size=(14, 14)), S(channels=6, hidden=40, size=(3, 9), form="products"),
    S(size=(1, 1)), S(size=(1, 7)), S(size=(7, 1)), S(channels=9, size=(1, 1), form="rows"),
    S(batch=3, channels=10, hidden=6), S(batch=2, channels=33, hidden=9, size=(2, 5), form="products"),
    S(batch=4, channels=5, hidden=2, size=(3, 3), form="rows", scaled=True),
]


def gpu(context: Context, items: int | None = 32) -> Target | Wanted:
    """The device with the plans of a large GPU, and with so many work items; None leaves blocks in three launches."""
    chosen = None if items is None else Specialisation(items)
    return choosing(target(context, "gpu"), squeeze_excite=lambda problem, kind, units: chosen)


def together(plan: Plan) -> int:
    """The launches of squeeze_excite.cl."""
    return sum(launch.source.path == "kernels/squeeze_excite/squeeze_excite.cl" for launch in plan.launches)


@pytest.mark.parametrize("float16", [0, 1])
def test_grid(context: Context, float16: int) -> None:
    some = GRID[float16 :: 1 + float16]
    plan = check(some, context, Config(float16), gpu(context))
    assert together(plan) == len(some)


@pytest.mark.parametrize("items", [1, 5, 128])
def test_work_groups(context: Context, items: int) -> None:
    """More sums than work items, and many that share one; images in tiles for one of the sizes."""
    some = GRID[::3]
    plan = check(some, context, Config(max_image=8 if items == 5 else None), gpu(context, items))
    assert together(plan) == len(some)
    assert items != 5 or any(isinstance(t, Texture) and t.tiling.tiles > 1 for t in plan.textures)


@device_settings(max_examples=3)
@given(problems=st.lists(squeeze_problems(), min_size=1, max_size=3), seed=st.integers(0, 999))
def test_drawn(context: Context, problems: Sequence[SqueezeProblem], seed: int) -> None:
    check(problems, context, Config(float16=seed % 2), gpu(context, 1 + seed % 50))


# Forms in which models have it

PATTERNS = {
    "global average pool": """
        p = GlobalAveragePool (x)
        a = Conv <kernel_shape = [1, 1]> (p, w1, b1)
        r = Relu (a)
        c = Conv (r, w2, b2)
        g = HardSigmoid (c)""",
    "mean and SiLU, no biases": """
        p = ReduceMean <axes = [2, 3], keepdims = 1> (x)
        a = Conv (p, w1)
        s = Sigmoid (a)
        r = Mul (a, s)
        c = Conv (r, w2)
        g = Sigmoid (c)""",
    "average pool, hard swish": """
        p = AveragePool <kernel_shape = [5, 7], strides = [2, 3]> (x)
        a = Conv (p, w1, b1)
        r = HardSwish (a)
        c = Conv (r, w2, b2)
        g = Sigmoid (c)""",
    "Gemm after Flatten": """
        p = GlobalAveragePool (x)
        f = Flatten (p)
        a = Gemm <transB = 1> (f, m1, b1)
        r = Relu (a)
        c = Gemm <transB = 1, alpha = 0.5, beta = 2.0> (r, m2, b2)
        s = Sigmoid (c)
        g = Reshape (s, shape)""",
    "MatMul after Squeeze": """
        p = ReduceMean <axes = [2, 3], keepdims = 0> (x)
        a = MatMul (p, t1)
        d = Add (a, b1)
        r = LeakyRelu (d)
        c = MatMul (r, t2)
        s = HardSigmoid <alpha = 0.3> (c)
        g = Reshape (s, shape)""",
    "maximum, pooled in a launch before": """
        p = GlobalMaxPool (x)
        a = Conv (p, w1, b1)
        r = Relu (a)
        c = Conv (r, w2, b2)
        g = Sigmoid (c)""",
    "a positive map": """
        e = Exp (x)
        p = GlobalAveragePool (e)
        a = Conv (p, w1, b1)
        r = Relu (a)
        c = Conv (r, w2, b2)
        g = Sigmoid (c)""",
}


def model_of(form: str) -> onnx.ModelProto:
    """x times its gate; 10 channels of 5x7, 6 hidden ones, two images."""
    random = numpy.random.default_rng(0)
    first, second = random.uniform(-1, 1, (6, 10)), random.uniform(-1, 1, (10, 6))
    arrays = {
        "w1": first[:, :, None, None], "w2": second[:, :, None, None], "m1": first, "m2": second, "t1": first.T,
        "t2": second.T, "b1": random.uniform(-1, 1, 6), "b2": random.uniform(-1, 1, 10),
    }
    made = onnx.parser.parse_model(
        "<ir_version: 8, opset_import: ['' : 14]> g (float[2, 10, 5, 7] x) => (float[2, 10, 5, 7] y) {"
        f"{PATTERNS[form]}\n y = Mul (x, g) }}".replace("'", '"')
    )
    made.graph.initializer.extend(
        onnx.numpy_helper.from_array(array.astype(numpy.float32), name) for name, array in arrays.items()
    )
    made.graph.initializer.append(onnx.numpy_helper.from_array(numpy.array([2, 10, 1, 1]), "shape"))
    return made


@pytest.mark.parametrize("form", PATTERNS)
@pytest.mark.parametrize("float16", [0, 1])
def test_forms_of_models(context: Context, form: str, float16: int) -> None:
    model = model_of(form)
    x = numpy.random.default_rng(1).uniform(-2, 2, (2, 10, 5, 7)).astype(numpy.float32)
    plan, found = run_graph(import_onnx(model), {"x": x}, context, Config(float16), gpu(context))
    assert together(plan) == 1
    # In half x, the gate and the result are rounded, each by 2**-11.
    assert_close(found, run_oracle(model, {"x": x}), 2e-3 if float16 else 1e-5)


# Where three launches stay

def constant(*shape: int) -> Tensor:
    return Tensor.constant(numpy.random.default_rng(len(shape)).uniform(-1, 1, shape).astype(numpy.float32))


def blocks_that_stay() -> dict[str, Mapping[str, Tensor]]:
    x = Tensor.input("x", (2, 8, 6, 6))
    mean = x.mean([2, 3], keepdims=True)
    hidden = mean.conv2d(constant(4, 8, 1, 1)).relu()
    part = x.slice(2, 0, 1).slice(3, 0, 1)
    return {
        "the mean is an output": {"mean": mean, "y": x * hidden.conv2d(constant(8, 4, 1, 1))},
        "the mean is read twice": {"y": x * hidden.conv2d(constant(8, 4, 1, 1)) + mean},
        "the hidden numbers are an output": {"hidden": hidden, "y": x * hidden.conv2d(constant(8, 4, 1, 1))},
        "the hidden numbers are read twice": {"y": x * hidden.conv2d(constant(8, 4, 1, 1)) + hidden.max([1], True)},
        "the first product has groups": {"y": mean.conv2d(constant(8, 4, 1, 1), groups=2).conv2d(constant(8, 8, 1, 1))},
        "the second product pads": {"y": hidden.conv2d(constant(8, 4, 1, 1), padding=1)},
        "nothing is pooled": {"y": part.conv2d(constant(4, 8, 1, 1)).relu().conv2d(constant(8, 4, 1, 1))},
        "channels are pooled": {"y": x.mean([1, 2], True).conv2d(constant(4, 1, 1, 1)).conv2d(constant(8, 4, 1, 1))},
        "only rows are pooled": {"y": x.mean([2], True).conv2d(constant(4, 8, 1, 1)).conv2d(constant(8, 4, 1, 1))},
    }


@pytest.mark.parametrize("name", blocks_that_stay())
def test_blocks_that_stay(context: Context, name: str) -> None:
    graph = build_graph(blocks_that_stay()[name])
    inputs = {"x": numpy.random.default_rng(0).uniform(-1, 1, (2, 8, 6, 6)).astype(numpy.float32)}
    plan, found = run_graph(graph, inputs, context, wanted=gpu(context))
    assert together(plan) == 0
    for output, array in evaluate_graph(graph, inputs).items():
        numpy.testing.assert_allclose(found[output], array, rtol=1e-5, atol=1e-5)


def test_lanes_past_the_last_channel(context: Context) -> None:
    """The logarithm of what is not there is infinite, and infinity times a weight of zero no number."""
    array = numpy.random.default_rng(0).uniform(1, 2, (2, 5, 4, 4)).astype(numpy.float32)
    x = Tensor.input("x", array.shape)
    hidden = x.mean([2, 3], True).apply("log").conv2d(constant(3, 5, 1, 1)).apply("absolute").apply("log")
    outputs = {"y": x * hidden.conv2d(constant(5, 3, 1, 1))}
    plan, found = run_tensors(outputs, {"x": array}, context, wanted=gpu(context))
    assert together(plan) == 1
    (expected,) = evaluate_graph(build_graph(outputs), {"x": array}).values()
    numpy.testing.assert_allclose(found["y"], expected, rtol=1e-4)


def test_parts_of_concatenations(context: Context) -> None:
    """The map begins at the third quad of its image, and the gate is written at the third quad of another."""
    array = numpy.random.default_rng(0).uniform(-1, 1, (2, 8, 5, 5)).astype(numpy.float32)
    x = Tensor.input("x", array.shape)
    second = x.apply("exp")
    gate = second.mean([2, 3], True).conv2d(constant(4, 8, 1, 1)).relu().conv2d(constant(8, 4, 1, 1))
    first = x.max([2, 3], True).conv2d(constant(8, 8, 1, 1))
    outputs = {
        "read": concatenate([x.apply("absolute"), second], 1).conv2d(constant(4, 16, 1, 1)),
        "written": concatenate([first, gate], 1).conv2d(constant(4, 16, 1, 1)),
    }
    plan, found = run_tensors(outputs, {"x": array}, context, wanted=gpu(context))
    (launch,) = (launch for launch in plan.launches if launch.source.path == "kernels/squeeze_excite/squeeze_excite.cl")
    assert "+ quad + 2" in launch.source.text or "#define OUTPUT_OFFSET 2\n" in launch.source.text
    for name, expected in evaluate_graph(build_graph(outputs), {"x": array}).items():
        numpy.testing.assert_allclose(found[name], expected, rtol=1e-4, atol=1e-5, err_msg=name)


def test_the_rule() -> None:
    """Small blocks on GPUs; not on CPUs, with little local memory, or with matrices that a whole device should read."""
    gpu_target = Target(ImageLimits(16384, 16384, 2048), "gpu", 132, max_work_group=1024)
    phone, cpu = replace(gpu_target, compute_units=2), replace(gpu_target, kind="cpu")
    small, large = Problem(1, 96, (14, 14), 24, 96), Problem(1, 2048, (7, 7), 1024, 2048)
    for target_, problem, profitable in (
        (gpu_target, small, True), (phone, small, True), (gpu_target, large, False), (phone, large, False),
        (gpu_target, replace(small, batch=10_000), False),
    ):
        choice = cheapest_choice(TEMPLATE, problem, target_)
        assert choice is not None and choice.profitable == profitable, problem
        assert choice.specialisation.items <= target_.max_work_group
    for target_ in (cpu, replace(gpu_target, local_memory_bytes=1 << 10), replace(gpu_target, max_work_group=64)):
        assert cheapest_choice(TEMPLATE, small, target_) is None


# Networks

def test_a_network(context: Context) -> None:
    """MobileNetV3, all of whose nine blocks are a launch each, and the head's two products with its mean."""
    graph = run_passes(build("mobilenet_v3_small", size=64, width=0.25))
    random = numpy.random.default_rng(0)
    inputs = {v.name: random.standard_normal(v.shape).astype(v.dtype) for v in graph.inputs}
    (expected,) = evaluate_graph(graph, inputs).values()
    plan, found = run_graph(graph, inputs, context, Config(), gpu(context, 32))
    assert together(plan) == 10
    # Sums in another order: 2**-24 at each of 50 layers, of up to 500 terms.
    assert numpy.abs(next(iter(found.values())) - expected).max() < 1e-5 * numpy.abs(expected).max()


def test_half_and_float_plans_make_the_same_values(context: Context) -> None:
    """The plans compute the same values, which verify and the choice of a precision compare one by one."""
    graph = run_passes(build("mobilenet_v3_small", size=64, width=0.25))
    plans = [lower(graph, Config(float16), target(context, "gpu")) for float16 in (0, 1, 2)]
    made = [tuple(plan.completed_values.values()) for plan in plans]
    assert made[0] == made[1] == made[2]
