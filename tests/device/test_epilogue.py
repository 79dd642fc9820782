"""Elementwise chains after every kind of kernel: fused, unfused and float64 numpy agree, and spare lanes stay zero."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from graphs import Taking
from problems import Problem
from problems.chain import ONE_OPERAND, OPERANDS, TWO_OPERANDS, Chain, Step, step_lists
from problems.convolution import ConvolutionProblem
from problems.load import LoadProblem
from problems.pooling import PoolingProblem
from problems.product import ProductProblem
from problems.reduction import ReductionProblem
from running import check, device_settings, target

from imgconv.cl.context import Context
from imgconv.compiling.choose import ChoiceRequest
from imgconv.compiling.compiler import with_image_limit
from imgconv.compiling.lower import lower
from imgconv.compiling.plan import Plan
from imgconv.config import Config
from imgconv.kernels.conv.problem import Specialisation
from imgconv.kernels.layout import LANES, Texture
from imgconv.kernels.template_interface import Choice
from imgconv.passes import run_passes
from imgconv.runtime.session import Session
from imgconv.tensor import Tensor, build_graph

BASES: Mapping[str, Problem] = {
    "convolution": ConvolutionProblem(channels=5, filters=7, size=(5, 6), pads=(1, 1, 1, 1)),
    "batch of convolutions": ConvolutionProblem(batch=2, channels=4, filters=6, size=(4, 9), strides=(2, 2)),
    "depthwise": ConvolutionProblem(channels=6, filters=6, groups=6, size=(5, 7), pads=(0, 1, 1, 0)),
    "transposed": ConvolutionProblem(channels=4, filters=5, size=(3, 4), transposed=True, strides=(2, 2), batch=2),
    "product": ProductProblem((6, 9), (9, 5), "b"),
    "products": ProductProblem((2, 3, 5, 8), (2, 3, 8, 7)),
    "reduction": ReductionProblem((2, 5, 4, 7), (3,), "sum"),
    "long reduction": ReductionProblem((2, 6, 3, 300), (3,), "max", True),
    "pooling": PoolingProblem((2, 5, 6, 7), (3, 3), (2, 2), (1, 1, 1, 1), (1, 1)),
    "elementwise": LoadProblem((2, 5, 4, 3)),
    "matrix": LoadProblem((6, 9)),
}


def every_step() -> list[tuple[Step, ...]]:
    """Chains of two that hold each operation and each kind of operand at least once."""
    two = sorted(TWO_OPERANDS)
    pairs = enumerate(zip(OPERANDS, ONE_OPERAND, strict=True))
    steps: list[tuple[Step, ...]] = [(Step(two[n % len(two)], operand), Step(one)) for n, (operand, one) in pairs]
    steps += [(Step(name, "channel"), Step("multiply", "same")) for name in two]
    return steps


@pytest.mark.parametrize(("turn", "kind"), [(0, "cpu"), (1, "gpu"), (2, "cpu")])
def test_fused(context: Context, turn: int, kind: str) -> None:
    """A chain after each kernel kind is one launch, and rounds once: float, and half in tiles for the plan of a GPU."""
    steps = every_step()
    first = turn * len(BASES)
    chains = [Chain(base, steps[(first + n) % len(steps)]) for n, base in enumerate(BASES.values())]
    config = Config(float16=1, max_image=8) if kind == "gpu" else Config()
    assert_one_launch_each(check(chains, context, config, target(context, kind)), chains)


def assert_one_launch_each(plan: Plan, chains: Sequence[Problem]) -> None:
    """Every launch makes an output or only packs or unpacks."""
    makes = [launch.name for launch in plan.launches if not launch.description.startswith(("pack", "unpack"))]
    assert sorted(makes) == sorted(f"y{number}" for number in range(len(chains))), plan


@device_settings(max_examples=3)
@given(
    steps_by_base=st.dictionaries(st.sampled_from(sorted(BASES)), step_lists(), min_size=1, max_size=3),
    seed=st.integers(0, 9),
)
def test_drawn(context: Context, steps_by_base: dict[str, tuple[Step, ...]], seed: int) -> None:
    """Random chains: fused, they are right, in one launch each; so are they without the passes that fuse."""
    chains = [Chain(BASES[name], steps) for name, steps in steps_by_base.items()]
    config = Config(max_image=(None, 8)[seed % 2])
    wanted = target(context, ("cpu", "gpu")[seed // 2 % 2])
    fused = check(chains, context, config, wanted)
    assert_one_launch_each(fused, chains)
    unfused = check(chains, context, config, wanted, fused=False)
    assert len(unfused.launches) > len(fused.launches) or all(len(chain.steps) == 1 for chain in chains)


def test_chains_use_the_residual_input(context: Context) -> None:
    """A convolution's own input is added after it; the result is scaled by a squeeze of it."""
    random = numpy.random.default_rng(6)
    array = random.uniform(-1, 1, (1, 5, 6, 7)).astype(numpy.float32)
    weights = random.uniform(-1, 1, (5, 5, 3, 3)).astype(numpy.float32)
    x = Tensor.input("x", array.shape)
    made = x.conv2d(Tensor.constant(weights), padding=1)
    gate = made.mean([2, 3], keepdims=True).sigmoid()
    graph = build_graph({"y": (made * gate + x).relu()})
    plan = lower(run_passes(graph), Config(), target(context))
    found = Session(plan, context).run({"x": array})["y"]
    wide, expected = numpy.pad(array.astype(float), ((0, 0), (0, 0), (1, 1), (1, 1))), numpy.zeros(array.shape)
    for ky in range(3):
        for kx in range(3):
            expected += numpy.einsum("nchw,oc->nohw", wide[:, :, ky : ky + 6, kx : kx + 7], weights[:, :, ky, kx])
    scale = 1 / (1 + numpy.exp(-expected.mean((2, 3), keepdims=True)))
    numpy.testing.assert_allclose(found, numpy.maximum(expected * scale + array, 0), 1e-5, 1e-5)
    assert len(plan.compute_launches) == 2


def test_a_sum_starts_with_its_bias(context: Context) -> None:
    """The bias initialises the accumulator unless the sum is also read without it or the bias varies by position."""
    random = numpy.random.default_rng(3)
    array, weights = random.uniform(-1, 1, (2, 5, 4, 6)), random.uniform(-1, 1, (7, 5, 1, 1))
    values, rows = random.uniform(-1, 1, (1, 7, 1, 1)), random.uniform(-1, 1, (1, 7, 4, 1))
    x = Tensor.input("x", array.shape)
    made = x.conv2d(Tensor.constant(weights.astype(numpy.float32)))
    bias, by_row = (Tensor.constant(each.astype(numpy.float32)) for each in (values, rows))
    total = numpy.einsum("nchw,oc->nohw", array, weights[:, :, 0, 0])
    cases = {
        "relu": ((made + bias).relu(), numpy.maximum(total + values, 0), True),
        "bias again": (bias * (bias + made), values * (values + total), True),
        "started sum twice": ((made + bias) * (made + bias).sigmoid(), None, True),
        "sum twice": ((made + bias) * made, (total + values) * total, False),
        "row": (made + by_row, total + rows, False),
        "product": (made * bias, total * values, False),
    }
    wanted, chooser = target(context, "gpu"), Taking(convolution=lambda *_: Specialisation(2, 1, 2))
    for name, (output, expected, starts) in cases.items():
        plan = lower(run_passes(build_graph({"y": output})), Config(), wanted, chooser=chooser)
        (text,) = [launch.source.text for launch in plan.launches if launch.source.path == "conv.cl"]
        assert ("#define START 0.0f\n" not in text) == starts, name
        if expected is None:
            expected = (total + values) / (1 + numpy.exp(-total - values))
        found = Session(plan, context).run({"x": array.astype(numpy.float32)})["y"]
        # Six terms, rounded to 24 bits each, and the inputs before them.
        numpy.testing.assert_allclose(found, expected, 1e-5, 2e-6, err_msg=name)


class Whole:
    """Chooses work items that sum whole outputs: parts of a sum meet in float."""

    def choose_specialisation(self, request: ChoiceRequest) -> Choice | None:
        candidates = request.template.candidates(request.problem, request.target)
        whole = [each for each in candidates if getattr(each, "parts", 1) == 1]
        return request.choice(whole[0]) if whole else None


@pytest.mark.usefixtures("half_arithmetic")
def test_epilogues_in_half(context: Context) -> None:
    """Sums in half stay half to the store if this is exact. The numbers are integers that halfs hold."""
    random = numpy.random.default_rng(9)
    array, add, more = (random.integers(-4, 5, (1, 8, 6, 7)).astype(numpy.float32) for _ in range(3))
    weights, window = random.integers(-4, 5, (8, 8, 1, 1)), random.integers(-4, 5, (8, 1, 1, 1))
    x, y, other = (Tensor.input(name, array.shape) for name in ("x", "y", "other"))
    made = x.conv2d(Tensor.constant(weights.astype(numpy.float32)))
    each = x.conv2d(Tensor.constant(window.astype(numpy.float32)), groups=8)
    odd = x.conv2d(Tensor.constant(weights[:6].astype(numpy.float32)))
    total, scaled = numpy.einsum("nchw,oc->nohw", array, weights[:, :, 0, 0]), array * window.reshape(1, 8, 1, 1)
    cases = {
        "sum": (made, total, True), "clamp": (made.clip(0, 6), total.clip(0, 6), True),
        "residual": ((made + y).relu(), numpy.maximum(total + add, 0), True),
        "depthwise": ((each - y).clip(0, 6), (scaled - add).clip(0, 6), True),
        "three terms": (made + y + other, total + add + more, False),
        "lanes to clear": (odd.relu(), numpy.maximum(total[:, :6], 0), False),
    }
    for name, (output, expected, in_half) in cases.items():
        plan = lower(run_passes(build_graph({"z": output})), Config(2), target(context, "gpu"), chooser=Whole())
        sources = [launch.source for launch in plan.launches]
        (text,) = [each.text for each in sources if each.path in ("conv.cl", "kernels/conv/depthwise.cl")]
        assert ("#define HALF_EPILOGUE 1\n" in text) == in_half, name
        given = {"x": array, "y": add, "other": more}
        found = Session(plan, context).run({each.name: given[each.name] for each in plan.inputs})["z"]
        numpy.testing.assert_array_equal(found, expected, err_msg=name)


def test_literals_keep_full_precision(context: Context) -> None:
    """Numbers that "%f" would lose: tiny, huge, with all their digits, and infinity."""
    values = [1e-7, 1.17549435e-38, 3.4028235e38, 0.1, 16777217.0, -1e-20, 1 / 3, numpy.inf]
    x = Tensor.input("x", (3,))
    array = numpy.array([1, -1, 0.5], numpy.float32)
    outputs = {f"y{n}": x.minimum(v) if numpy.isinf(v) else x * v for n, v in enumerate(values)}
    plan = lower(run_passes(build_graph(outputs)), Config(), target(context))
    found = Session(plan, context).run({"x": array})
    for n, v in enumerate(values):
        want = array if numpy.isinf(v) else array * numpy.float32(v)
        if abs(v) < 1e-37:
            want = want[:2]  # half of the smallest normal number may be flushed to zero
        numpy.testing.assert_array_equal(found[f"y{n}"][: len(want)], want, err_msg=str(v))


@pytest.mark.parametrize("max_image", [None, 8])
def test_spare_lanes_are_zero(context: Context, max_image: int | None) -> None:
    """After every kernel the lanes past the last channel hold zero, though every epilogue makes f(0) = 2 of them."""
    computed = [problem for name, problem in BASES.items() if name not in ("elementwise", "matrix")]
    instances = [problem.instance() for problem in (computed[::2] if max_image else computed)]
    inputs = {name: array for instance in instances for name, array in instance.inputs.items()}
    outputs = {}
    for number, instance in enumerate(instances):
        raised = instance.output.tanh().exp() + 1
        # A second reader on the device keeps the result in a texture.
        outputs[f"r{number}"] = raised
        outputs[f"s{number}"] = raised.transpose() * 3
    config = Config(max_image=max_image)
    # In images of their own, whose last content is still there after the run.
    apart = replace(with_image_limit(target(context), config), images_in_buffers=None, linear=None)
    plan = lower(run_passes(build_graph(outputs)), config, apart)
    session = Session(plan, context)
    session.run(inputs)
    ragged = 0
    last = {plan.slots[launch.writes]: launch.writes for launch in plan.launches if isinstance(launch.writes, Texture)}
    for texture in last.values():
        channels = texture.layout.channels(texture.shape)
        if channels % LANES == 0:
            continue
        ragged += 1
        texels = texture.tiling.from_image(session.memory.content(texture))
        width, height = texture.layout.grid(texture.shape)
        quads = texture.layout.quads(texture.shape)
        spare = texels.reshape(height, width // quads, quads * LANES)[..., channels:]
        assert not spare.any(), texture
    assert ragged >= len(instances)
