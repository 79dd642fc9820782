"""Convolutions of levels that sum in integers, on every device: their levels are those of int64 and of onnxruntime."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import onnx.helper
import pytest
from problems.separable import separable_specialisations
from running import Choose, Wanted, choosing, run_graph, target
from support import make_model, run_oracle
from test_levels import layers

from imgconv.checking.session_checks import SessionUnderTest, check_launches
from imgconv.cl.context import Context
from imgconv.compiling.compiler import PreparedGraph
from imgconv.compiling.plan import Launch, Plan
from imgconv.config import Config
from imgconv.kernels.conv.candidates import candidates
from imgconv.kernels.conv.problem import Problem, Specialisation
from imgconv.kernels.separable import problem as separable
from imgconv.onnx_import import import_onnx
from imgconv.passes import run_passes
from imgconv.precision.integer_sums import integer_sums
from imgconv.runtime.session import Session
from imgconv.stored.compiled_file import DevicePlan, SavedModel, save_model

node = onnx.helper.make_node
SMALL_GPU = 2  # compute units
MOST_ITEMS = 32  # of a work group: what llvmpipe takes
Block = tuple[int, int, int]


def of_integers(problem: Problem, block: Block, parts: int) -> Specialisation:
    """A candidate that sums integers, if there is one for the problem: with this block and parts if possible."""
    made = candidates(problem, "gpu", SMALL_GPU, max_work_group=MOST_ITEMS, dot_products=True)

    def unlike(each: Specialisation) -> tuple[bool, ...]:
        made_block = each.block_columns, each.block_rows, each.block_quads
        return not each.integers, made_block != block, each.parts != parts

    return min(made, key=unlike)


def forced(context: Context, block: Block, parts: int = 1) -> Wanted:
    """The device with images, and sums of integers wherever they are possible."""
    on = target(context, "gpu", compute_units=SMALL_GPU, byte_images=False, max_work_group=MOST_ITEMS)
    return choosing(on, convolution=lambda problem, *_: of_integers(problem, block, parts))


def summing(plan: Plan) -> dict[str, Specialisation]:
    """The launches that sum integers."""
    chosen = ((each.name, each.choice.specialisation) for each in plan.launches if each.choice)
    return {name: each for name, each in chosen if isinstance(each, Specialisation) and each.integers}


@dataclass(frozen=True)
class Layer:
    """A QLinearConv of all levels and weights of a byte. Its scales are powers of two: only the levels are rounded."""

    x: tuple[int, int, int, int]
    w: tuple[int, int, int, int]
    dtype: str = "uint8"
    zero: int = 0
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    block: Block = (2, 1, 4)
    parts: int = 1
    max_image: int | None = None

    def drawn(self) -> tuple[Any, Any, Any]:
        """Levels, weights and biases."""
        random, limits = numpy.random.default_rng(len(repr(self))), numpy.iinfo(self.dtype)
        levels = random.integers(limits.min, limits.max, self.x, endpoint=True)
        return levels, random.integers(-128, 128, self.w), random.integers(-9000, 9000, self.w[0])

    @property
    def shift(self) -> int:
        """The bits of a sum that are rounded off: most levels are no limits."""
        return int(numpy.log2(numpy.prod(self.w[1:])) / 2) + 7

    def model(self) -> tuple[onnx.ModelProto, dict[str, Any]]:
        levels, w, bias = self.drawn()
        constants = {
            "x_scale": numpy.float32(1 / 16), "zero": numpy.array(self.zero, self.dtype), "w": w.astype("i1"),
            "w_scale": numpy.float32(1 / 64), "w_zero": numpy.int8(0), "b": bias.astype("i4"),
            "y_scale": numpy.float32(2**self.shift / 1024),
        }
        nodes = [
            node("QuantizeLinear", ["x", "x_scale", "zero"], ["q"]),
            node("QLinearConv", ["q", "x_scale", "zero", "w", "w_scale", "w_zero", "y_scale", "zero", "b"], ["s"],
                 strides=self.strides, dilations=self.dilations, pads=self.pads),
            node("DequantizeLinear", ["s", "y_scale", "zero"], ["y"]),
        ]
        feeds = {"x": ((levels - self.zero) / 16).astype("f")}
        return make_model(nodes, feeds, ["y"], 13, constants), feeds

    def expected(self) -> Any:
        """The result, of sums in int64."""
        levels, w, bias = self.drawn()
        (top, left, bottom, right), limits = self.pads, numpy.iinfo(self.dtype)
        x = numpy.pad(levels - self.zero, ((0, 0), (0, 0), (top, bottom), (left, right)))
        reach = [(size - 1) * step + 1 for size, step in zip(self.w[2:], self.dilations, strict=True)]
        windows = numpy.lib.stride_tricks.sliding_window_view(x, reach, (2, 3))
        windows = windows[:, :, :: self.strides[0], :: self.strides[1], :: self.dilations[0], :: self.dilations[1]]
        sums = numpy.einsum("nchwij,ocij->nohw", windows, w) + bias.reshape(-1, 1, 1)
        made = numpy.rint(sums / 2**self.shift) + self.zero
        return (numpy.clip(made, limits.min, limits.max) - self.zero) * 2**self.shift / 1024


LAYERS = [
    Layer((1, 6, 7, 9), (10, 6, 3, 3), pads=(1, 1, 1, 1), block=(1, 1, 3)),
    Layer((2, 16, 5, 6), (40, 16, 1, 1), zero=128),
    Layer((2, 16, 5, 6), (40, 16, 3, 3), "int8", pads=(1, 1, 1, 1), block=(2, 1, 8)),
    Layer((1, 9, 7, 9), (8, 9, 3, 2), "uint8", 153, (2, 1), (1, 2), (0, 1, 2, 1), block=(2, 2, 2)),
    Layer((1, 13, 6, 8), (16, 13, 3, 3), "int8", 50, pads=(2, 2, 2, 2), dilations=(2, 2), parts=4),
    Layer((1, 32, 6, 8), (20, 32, 1, 1), "uint8", 7, block=(2, 2, 2), parts=2),
    Layer((1, 32, 6, 8), (20, 32, 3, 3), "uint8", 255, pads=(1, 1, 1, 1), max_image=12),
    Layer((3, 5, 6, 8), (6, 5, 3, 3), "int8", -128, pads=(1, 0, 1, 0), max_image=12, block=(2, 1, 2)),
]


@pytest.mark.parametrize("layer", LAYERS, ids=lambda each: f"{each.dtype}-{each.zero}-{each.w}")
def test_levels_are_those_of_sums_in_int64(layer: Layer, context: Context) -> None:
    model, feeds = layer.model()
    wanted = forced(context, layer.block, layer.parts)
    plan, found = run_graph(import_onnx(model), feeds, context, Config(max_image=layer.max_image), wanted)
    (chosen,) = summing(plan).values()
    assert chosen.parts == layer.parts and chosen.block_quads == layer.block[2]
    expected = layer.expected()
    assert len(numpy.unique(expected)) > 50
    numpy.testing.assert_array_equal(found["y"], expected)


@dataclass(frozen=True)
class Pair:
    """A depthwise QLinearConv and the 1x1 one that reads its result. Scales are powers of two."""

    x: tuple[int, int, int, int]
    filters: int
    window: tuple[int, int] = (3, 3)
    dtype: str = "uint8"
    zeros: tuple[int, int, int] = (0, 0, 0)
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (1, 1, 1, 1)
    tiled: bool = False

    def model(self) -> tuple[onnx.ModelProto, dict[str, Any], Any]:
        """The model, its input, and the result by sums in int64."""
        random, limits = numpy.random.default_rng(len(repr(self))), numpy.iinfo(self.dtype)
        levels = random.integers(limits.min, limits.max, self.x, endpoint=True)
        channels, (zero, between, last) = self.x[1], self.zeros
        w = random.integers(-128, 128, (channels, 1, *self.window))
        v = random.integers(-128, 128, (self.filters, channels))
        bias, other = random.integers(-900, 900, channels), random.integers(-9000, 9000, self.filters)
        first, second = 8, 6 + int(numpy.log2(channels)) // 2  # bits of the sums rounded off
        constants = {
            "x_scale": numpy.float32(1 / 16), "unit": numpy.float32(1), "y_scale": numpy.float32(2.0**first / 16),
            "z_scale": numpy.float32(2.0 ** (first + second) / 16), "w": w.astype("i1"), "w_zero": numpy.int8(0),
            "v": v.astype("i1").reshape(*v.shape, 1, 1), "b": bias.astype("i4"), "c": other.astype("i4"),
        } | {name: numpy.array(n, self.dtype) for name, n in zip(("zx", "zy", "zz"), self.zeros, strict=True)}
        nodes = [
            node("QuantizeLinear", ["x", "x_scale", "zx"], ["q"]),
            node("QLinearConv", ["q", "x_scale", "zx", "w", "unit", "w_zero", "y_scale", "zy", "b"], ["s"],
                 strides=self.strides, pads=self.pads, group=channels),
            node("QLinearConv", ["s", "y_scale", "zy", "v", "unit", "w_zero", "z_scale", "zz", "c"], ["t"]),
            node("DequantizeLinear", ["t", "z_scale", "zz"], ["y"]),
        ]
        feeds = {"x": ((levels - zero) / 16).astype("f")}
        (top, left, bottom, right), (down, along) = self.pads, self.strides
        padded = numpy.pad(levels - zero, ((0, 0), (0, 0), (top, bottom), (left, right)))
        windows = numpy.lib.stride_tricks.sliding_window_view(padded, self.window, (2, 3))[:, :, ::down, ::along]
        sums = numpy.einsum("nchwij,cij->nchw", windows, w[:, 0]) + bias.reshape(-1, 1, 1)
        middle = numpy.clip(numpy.rint(sums / 2**first), limits.min - between, limits.max - between).astype("i8")
        sums = numpy.einsum("nchw,oc->nohw", middle, v) + other.reshape(-1, 1, 1)
        made = numpy.clip(numpy.rint(sums / 2**second), limits.min - last, limits.max - last)
        return make_model(nodes, feeds, ["y"], 13, constants), feeds, made * 2.0 ** (first + second) / 16


PAIRS = [
    Pair((1, 16, 7, 9), 10), Pair((2, 6, 5, 6), 40, zeros=(0, 128, 128)),
    Pair((1, 32, 6, 8), 20, dtype="int8", zeros=(50, -128, 7), strides=(2, 1), pads=(0, 1, 2, 1)),
    Pair((1, 13, 9, 8), 9, (5, 5), zeros=(153, 7, 0), pads=(2, 2, 2, 2), tiled=True),
    Pair((3, 8, 6, 6), 8, (1, 2), "int8", (0, 0, 0), pads=(0, 1, 0, 0)),
]


def small_pairs(problem: separable.Problem, shared: bool) -> list[separable.Specialisation]:
    """Specialisations with work groups that every driver takes. shared: whether work items share sums."""
    found = separable_specialisations(problem)
    return [each for each in found if numpy.prod(each.local_size) <= MOST_ITEMS and (each.parts > 1) == shared]


def in_pairs(context: Context, seed: int) -> Wanted:
    """The device with drawn specialisations of depthwise and 1x1 convolutions in one launch; odd seeds share sums."""
    on = target(context, "gpu", compute_units=SMALL_GPU, byte_images=False, max_work_group=MOST_ITEMS)
    convolution = functools.partial(of_integers, block=(2, 1, 2), parts=1)
    pairs = Choose(lambda problem: small_pairs(problem, seed % 2 == 1), seed)
    return choosing(on, separable=pairs, convolution=lambda problem, *_: convolution(problem))


def pairs_of(plan: Plan) -> list[Launch]:
    """The launches of a depthwise and a 1x1 convolution that sum integers."""
    found = [each for each in plan.launches if each.source.path == "kernels/separable/separable.cl"]
    return [each for each in found if "#define INTEGERS 1\n" in each.source.text]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda each: f"{each.dtype}-{each.zeros}-{each.x}")
def test_levels_of_pairs_are_those_of_sums_in_int64(pair: Pair, context: Context) -> None:
    model, feeds, expected = pair.model()
    assert len(numpy.unique(expected)) > 50
    for seed in range(2):
        config = Config(max_image=12 if pair.tiled else None)
        plan, found = run_graph(import_onnx(model), feeds, context, config, in_pairs(context, seed))
        (launch,) = pairs_of(plan)
        numpy.testing.assert_array_equal(found["y"], expected, launch.specialisation)


@pytest.mark.parametrize(("dtype", "zero"), [("uint8", 0), ("int8", 50)])
def test_a_network_with_a_pair(dtype: str, zero: int, context: Context, tmp_path: Path) -> None:
    """Levels are equal to onnxruntime's; the check of each launch is right; a file has the same plan."""
    model, feeds = layers(dtype, zero)
    graph, wanted = run_passes(import_onnx(model)), in_pairs(context, 1)
    plan = PreparedGraph(graph, Config(), wanted.target, wanted.chooser).plan()
    assert len(pairs_of(plan)) == 1 and len(summing(plan)) == 3
    assert list(integer_sums(plan, graph, wanted.target).values()).count("integers") == 4
    session = Session(plan, context)
    found = session.run(feeds)
    for name, expected in run_oracle(model, feeds).items():
        numpy.testing.assert_array_equal(found[name], expected)
    findings = [finding for _, finding in check_launches(SessionUnderTest(session, graph, Config()))]
    assert {finding.verdict for finding in findings} <= {"right", "not covered"}, findings
    save_model(tmp_path / "m", graph, Config(), [DevicePlan(plan, "the device", wanted.target)])
    saved = SavedModel.open(tmp_path / "m").plan_for("the device", wanted.target)
    assert saved and [each.source for each in saved.plan.launches] == [each.source for each in plan.launches]
    assert [each.choice and each.choice.problem for each in saved.plan.launches] == [
        each.choice and each.choice.problem for each in plan.launches
    ]


@pytest.mark.parametrize(("dtype", "zero"), [("uint8", 0), ("uint8", 153), ("int8", 0)])
def test_a_network_of_dequantised_layers(dtype: str, zero: int, context: Context) -> None:
    """Levels are equal to onnxruntime's: sums and scales are exact."""
    model, feeds = layers(dtype, zero)
    plan, found = run_graph(import_onnx(model), feeds, context, wanted=forced(context, (2, 1, 2)))
    assert len(summing(plan)) == 4
    for name, expected in run_oracle(model, feeds).items():
        numpy.testing.assert_array_equal(found[name], expected)


@pytest.mark.parametrize("kind", ["QLinearMatMul", "MatMul", "Gemm", "MatMulInteger", "ConvInteger"])
def test_products_of_levels(kind: str, context: Context) -> None:
    """A matrix of levels by a constant one. Results are integers / 1024; those of integers are dynamic."""
    random = numpy.random.default_rng(2)
    levels, w, zero = random.integers(0, 256, (30, 45)), random.integers(-128, 128, (45, 18)), 77
    levels[0, :2] = 0, 255  # the range, by which DynamicQuantizeLinear makes these scales and zero points
    constants = {
        "xs": numpy.float32(1 / 16), "z": numpy.uint8(zero), "w": w.astype("i1"), "ws": numpy.float32(1 / 64),
        "wz": numpy.int8(0), "ys": numpy.float32(4), "yz": numpy.uint8(128),
    }
    quantised, last = ["q", "xs", "z", "w", "ws", "wz", "ys", "yz"], node("DequantizeLinear", ["s", "ys", "yz"], ["y"])
    read = [node("DequantizeLinear", ["q", "xs", "z"], ["d"]), node("DequantizeLinear", ["w", "ws", "wz"], ["v"])]
    nodes = {
        "QLinearMatMul": [node("QLinearMatMul", quantised, ["s"]), last],
        "MatMul": [*read, node("MatMul", ["d", "v"], ["t"]), node("QuantizeLinear", ["t", "ys", "yz"], ["s"]), last],
        "Gemm": [*read, node("Gemm", ["d", "v"], ["t"]), node("QuantizeLinear", ["t", "ys", "yz"], ["s"]), last],
        "MatMulInteger": [node("MatMulInteger", ["q", "w", "dz"], ["s"]), node("Cast", ["s"], ["t"], to=1),
                          node("Mul", ["t", "unit"], ["y"])],
        "ConvInteger": [node("ConvInteger", ["q", "w", "dz"], ["s"]), node("Cast", ["s"], ["t"], to=1),
                        node("Mul", ["t", "unit"], ["y"])],
    }[kind]
    first = node("QuantizeLinear", ["x", "xs", "z"], ["q"])
    if kind.endswith("Integer"):
        first, constants["unit"] = node("DynamicQuantizeLinear", ["x"], ["q", "ds", "dz"]), numpy.float32(1 / 1024)
    feeds = {"x": ((levels - zero) / 16).astype("f")}
    if kind == "ConvInteger":
        feeds["x"], constants["w"] = feeds["x"].T.reshape(1, 45, 5, 6), constants["w"].T.reshape(18, 45, 1, 1)
    model = make_model([first, *nodes], feeds, ["y"], 13, constants)
    plan, found = run_graph(import_onnx(model), feeds, context, wanted=forced(context, (1, 2, 4)))
    assert len(summing(plan)) == 1
    sums = (levels - zero) @ w / 1024
    expected = sums if kind.endswith("Integer") else (numpy.clip(numpy.rint(sums / 4) + 128, 0, 255) - 128) * 4
    assert len(numpy.unique(expected)) > 50
    made = found["y"] if kind != "ConvInteger" else found["y"].reshape(18, 30).T
    numpy.testing.assert_array_equal(made, expected)


def test_sums_past_2_24_are_exact(context: Context) -> None:
    """Sums that rise past 2**25 and fall back to a few units show every rounding on the way."""
    random = numpy.random.default_rng(0)
    up, x = random.integers(100, 127, (4, 2000)), random.integers(200, 256, 2000)
    less = x - (random.random(2000) < 1e-3)
    constants = {
        "w": numpy.concatenate([up, -up], 1).astype("i1").reshape(4, -1, 1, 1), "one": numpy.float32(1),
        "zero": numpy.uint8(0), "y_zero": numpy.uint8(128),
    }
    nodes = [
        node("QuantizeLinear", ["x", "one", "zero"], ["q"]), node("DequantizeLinear", ["q", "one", "zero"], ["d"]),
        node("DequantizeLinear", ["w", "one"], ["v"]), node("Conv", ["d", "v"], ["s"]),
        node("QuantizeLinear", ["s", "one", "y_zero"], ["t"]), node("DequantizeLinear", ["t", "one", "y_zero"], ["y"]),
    ]
    feeds = {"x": numpy.concatenate([x, less]).reshape(1, -1, 1, 1).astype("f")}
    model = make_model(nodes, feeds, ["y"], 13, constants)
    plan, found = run_graph(import_onnx(model), feeds, context, wanted=forced(context, (1, 1, 1)))
    assert len(summing(plan)) == 1
    numpy.testing.assert_array_equal(found["y"].reshape(-1), numpy.clip(up @ x - up @ less, -128, 127))
