"""Networks of quantised layers: each level beside float64 numpy, which computes it from our levels that it is made of.

So a level is wrong only if the layer that makes it is wrong: a tie that falls on the other side moves the levels after
it, but not what is expected of them. onnxruntime's levels are counted beside ours. Layers come as QDQ (float operators
between DequantizeLinear and QuantizeLinear), as QLinear operators, or with scales that depend on the data.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import numpy
import onnx
import onnx.helper
import onnxruntime
from fuzz.case import Draw, Wrong, asking_oracle, device
from fuzz.compared import NODE, ON_A_DEVICE, setting
from numpy.lib.stride_tricks import sliding_window_view
from support import make_model, one_thread

import imgconv
from imgconv.graph.evaluate import evaluate_graph
from imgconv.onnx_import import import_onnx
from imgconv.passes import run_passes

Function = Callable[..., Any]

# What float32 may lose of a sum, in parts of its terms' magnitudes: some rounding errors of 2**-24 each.
LOST = 2.0**-20
SHAPES = ((1, 3, 8, 9), (1, 4, 6, 6), (2, 5, 7, 4), (1, 16, 5, 5), (1, 1, 9, 3))
ELEMENTWISE: dict[str, Function] = {
    "Relu": lambda x: numpy.maximum(x, 0),
    "Sigmoid": lambda x: 1 / (1 + numpy.exp(-x)),
    "Tanh": numpy.tanh,
    "HardSigmoid": lambda x: numpy.clip(0.2 * x + 0.5, 0, 1),
    "HardSwish": lambda x: x * numpy.clip(x / 6 + 0.5, 0, 1),
    "LeakyRelu": lambda x: numpy.where(x < 0, 0.01 * x, x),
}


@dataclass(frozen=True)
class Levels:
    """A quantised tensor of the network: its name, the shape, and the scale and zero point of its levels."""

    name: str
    shape: tuple[int, ...]
    scale: Any
    zero: Any

    def numbers(self, levels: Any) -> Any:
        return (levels.astype(float) - float(self.zero)) * float(self.scale)


@dataclass(frozen=True)
class Layer:
    """The layer that makes a quantised tensor from others.

    exact computes the numbers in float64, magnitudes the sum of their terms' absolute values.
    """

    made: Levels
    read: tuple[Levels, ...]
    exact: Function
    magnitudes: Function


@dataclass
class Quantized:
    """A model that grows by layers."""

    opset: int
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, Any] = field(default_factory=dict)
    layers: list[Layer] = field(default_factory=list)
    tensors: list[Levels] = field(default_factory=list)

    def constant(self, array: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = numpy.asarray(array)
        return name

    def add(self, op_type: str, inputs: list[str], domain: str = "", **attributes: Any) -> str:
        name = f"{op_type}_{len(self.nodes)}"
        self.nodes.append(NODE(op_type, inputs, [name], name=name, domain=domain, **attributes))
        return name

    def parameters(self, of: Levels) -> list[str]:
        return [self.constant(of.scale), self.constant(of.zero)]

    def floats(self, of: Levels) -> str:
        return self.add("DequantizeLinear", [of.name, *self.parameters(of)])

    def levels(self, random: random.Random, shape: tuple[int, ...], largest: float, dtype: str = "") -> Levels:
        """Levels to come, of a type, scale and zero point that hold most numbers up to the largest."""
        dtype = dtype or random.choice(("uint8", "int8"))
        low = int(numpy.iinfo(dtype).min)
        zero = low + random.choice((0, 128, 255, random.randrange(256)))
        scale = numpy.float32(max(largest, 1e-3) * random.choice((0.3, 1, 2)) / 128)
        return Levels("", shape, scale, numpy.array(zero, dtype))

    def append(self, made: Levels, name: str, read: tuple[Levels, ...], exact: Function,
        magnitudes: Function | None = None) -> None:
        named = Levels(name, made.shape, made.scale, made.zero)
        self.tensors.append(named)
        self.layers.append(Layer(named, read, exact, magnitudes or (lambda *a: abs(exact(*a)) + sum(map(_largest, a)))))

    def quantize(self, random: random.Random, floats: str, shape: tuple[int, ...], read: tuple[Levels, ...],
        exact: Function, magnitudes: Function | None = None) -> None:
        """Appends QuantizeLinear of numbers."""
        made = self.levels(random, shape, largest_of(exact, read, random))
        self.append(made, self.add("QuantizeLinear", [floats, *self.parameters(made)]), read, exact, magnitudes)


def _largest(array: Any) -> float:
    return float(abs(array).max(initial=0.0))


def largest_of(exact: Function, read: tuple[Levels, ...], random: random.Random) -> float:
    """Returns about the largest number that a layer makes, from random levels."""
    numbers = numpy.random.default_rng(random.randrange(2**31))
    low = [int(numpy.iinfo(each.zero.dtype).min) for each in read]
    drawn = [each.numbers(numbers.integers(b, b + 256, each.shape)) for each, b in zip(read, low, strict=True)]
    return _largest(exact(*drawn))


def convolved(x: Any, w: Any, pads: list[int], strides: list[int], dilations: list[int], group: int) -> Any:
    """A convolution of two dimensions in float64. x: (N, C, H, W), w: (O, C / group, kernel height, width)."""
    x = numpy.pad(x, ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])))
    reach = [(size - 1) * d + 1 for size, d in zip(w.shape[2:], dilations, strict=True)]
    every = sliding_window_view(x, reach, (2, 3))
    windows = every[:, :, :: strides[0], :: strides[1], :: dilations[0], :: dilations[1]]
    n, _, height, width = windows.shape[:4]
    grouped = windows.reshape(n, group, -1, *windows.shape[2:])
    made = numpy.einsum("ngchwij,gocij->ngohw", grouped, w.reshape(group, -1, *w.shape[1:]))
    return made.reshape(n, -1, height, width)


def convolution(random: random.Random, network: Quantized) -> None:
    """Conv between quantisations, or QLinearConv, with weights of one scale or one for each channel."""
    x = random.choice([each for each in network.tensors if len(each.shape) == 4])
    numbers, channels = numpy.random.default_rng(random.randrange(2**31)), x.shape[1]
    group = random.choice((1, 1, channels))
    outputs = channels if group > 1 else random.choice((1, 4, 6, 17))
    kernel = [random.choice((1, 1, 3, 2)), random.choice((1, 1, 3))]
    window = {"pads": [random.randrange(2) for _ in range(4)], "strides": [random.choice((1, 1, 2)) for _ in "hw"],
              "dilations": [1, 1]}
    if min(x.shape[2:]) > 5:
        window["dilations"] = [random.choice((1, 1, 2)) for _ in "hw"]
    if min(x.shape[2:]) < 3:
        kernel = [1, 1]
    # Weights of 7 bits: on CPUs without VNNI, onnxruntime adds two products of bytes in 16 bits.
    w = numbers.integers(-64, 64, (outputs, channels // group, *kernel)).astype("i1")
    by_channel = random.random() < 0.5
    scale = numbers.uniform(0.005, 0.05, outputs if by_channel else ()).astype("f")
    steps = numpy.float32(x.scale) * scale
    bias = numbers.integers(-3000, 3000, outputs).astype("i4")
    tall, wide = scale.reshape(-1, *[1] * 3 * by_channel), steps.reshape(-1, *[1] * 2 * by_channel)
    real, offset = w.astype(float) * tall, bias.reshape(-1, 1, 1) * wide.astype(float)

    def exact(numbers: Any) -> Any:
        return convolved(numbers, real, **window, group=group) + offset

    def magnitudes(numbers: Any) -> Any:
        return convolved(abs(numbers), abs(real), **window, group=group) + abs(offset)

    shape = exact(numpy.zeros(x.shape)).shape
    zeros = numpy.zeros(scale.shape, "i1")
    attributes = {**window, "group": group}
    weights = [network.constant(w), network.constant(scale), network.constant(zeros)]
    if random.random() < 0.5:
        made = network.levels(random, shape, largest_of(exact, (x,), random), str(x.zero.dtype))
        name = network.add("QLinearConv", [x.name, *network.parameters(x), *weights, *network.parameters(made),
                                           network.constant(bias)], **attributes)
        network.append(made, name, (x,), exact, magnitudes)
        return
    axis = {"axis": 0} if by_channel else {}
    given = network.add("DequantizeLinear", weights, **axis)
    added = network.add("DequantizeLinear", [network.constant(bias), network.constant(steps)], **axis)
    floats = network.add("Conv", [network.floats(x), given, added], **attributes)
    if random.random() < 0.5:
        floats, before = network.add("Relu", [floats]), exact
        network.quantize(random, floats, shape, (x,), lambda a: numpy.maximum(before(a), 0), magnitudes)
    else:
        network.quantize(random, floats, shape, (x,), exact, magnitudes)


def product(random: random.Random, network: Quantized) -> None:
    """MatMul between quantisations, or QLinearMatMul, by a constant matrix."""
    x = random.choice(network.tensors)
    numbers, outputs = numpy.random.default_rng(random.randrange(2**31)), random.choice((1, 5, 8))
    b = numbers.integers(-64, 64, (x.shape[-1], outputs)).astype("i1")
    scale, zero = numpy.float32(random.uniform(0.005, 0.05)), numpy.array(0, "i1")
    weights = [network.constant(b), network.constant(scale), network.constant(zero)]
    real, shape = b * float(scale), (*x.shape[:-1], outputs)

    def exact(numbers: Any) -> Any:
        return numbers @ real

    def magnitudes(numbers: Any) -> Any:
        return abs(numbers) @ abs(real)

    if random.random() < 0.5:
        made = network.levels(random, shape, largest_of(exact, (x,), random), str(x.zero.dtype))
        inputs = [x.name, *network.parameters(x), *weights, *network.parameters(made)]
        network.append(made, network.add("QLinearMatMul", inputs), (x,), exact, magnitudes)
    else:
        floats = network.add("MatMul", [network.floats(x), network.add("DequantizeLinear", weights)])
        network.quantize(random, floats, shape, (x,), exact, magnitudes)


def sum_or_product(random: random.Random, network: Quantized) -> None:
    """Add or Mul of two tensors of one shape."""
    first = random.choice(network.tensors)
    second = random.choice([each for each in network.tensors if each.shape == first.shape])
    op_type, exact = random.choice((("Add", numpy.add), ("Mul", numpy.multiply)))
    floats = network.add(op_type, [network.floats(first), network.floats(second)])
    network.quantize(random, floats, first.shape, (first, second), exact)


def joined(random: random.Random, network: Quantized) -> None:
    """Concat of channels."""
    first = random.choice([each for each in network.tensors if len(each.shape) == 4])
    others = [each for each in network.tensors if len(each.shape) == 4
              and (each.shape[0], *each.shape[2:]) == (first.shape[0], *first.shape[2:])]
    read = (first, *random.sample(others, min(len(others), random.choice((1, 2)))))
    shape = (first.shape[0], sum(each.shape[1] for each in read), *first.shape[2:])
    floats = network.add("Concat", [network.floats(each) for each in read], axis=1)
    network.quantize(random, floats, shape, read, lambda *a: numpy.concatenate(a, 1))


def pooled(random: random.Random, network: Quantized) -> None:
    """MaxPool, AveragePool or GlobalAveragePool."""
    x = random.choice([each for each in network.tensors if len(each.shape) == 4])
    kind = random.choice(("MaxPool", "AveragePool", "GlobalAveragePool"))
    if min(x.shape[2:]) < 2 or kind == "GlobalAveragePool":
        floats = network.add("GlobalAveragePool", [network.floats(x)])
        network.quantize(random, floats, (*x.shape[:2], 1, 1), (x,), lambda a: a.mean((2, 3), keepdims=True))
        return
    select = numpy.max if kind == "MaxPool" else numpy.mean
    stride = random.choice((1, 2))

    def exact(numbers: Any) -> Any:
        return select(sliding_window_view(numbers, (2, 2), (2, 3))[:, :, ::stride, ::stride], axis=(-2, -1))

    floats = network.add(kind, [network.floats(x)], kernel_shape=[2, 2], strides=[stride, stride])
    network.quantize(random, floats, exact(numpy.zeros(x.shape)).shape, (x,), exact)


def elementwise(random: random.Random, network: Quantized) -> None:
    x = random.choice(network.tensors)
    kind = random.choice([name for name in ELEMENTWISE if network.opset >= 14 or name != "HardSwish"])
    network.quantize(random, network.add(kind, [network.floats(x)]), x.shape, (x,), ELEMENTWISE[kind])


def doubled(random: random.Random, network: Quantized) -> None:
    """Resize by nearest neighbours to twice the size."""
    x = random.choice([each for each in network.tensors if len(each.shape) == 4])
    if x.shape[2] * x.shape[3] > 200:
        return
    inputs = [network.floats(x), "", network.constant(numpy.array([1, 1, 2, 2], "f"))]
    floats = network.add("Resize", inputs, mode="nearest", coordinate_transformation_mode="asymmetric",
                         nearest_mode="floor")
    shape = (*x.shape[:2], 2 * x.shape[2], 2 * x.shape[3])
    network.quantize(random, floats, shape, (x,), lambda a: a.repeat(2, 2).repeat(2, 3))


def dynamic(random: random.Random, network: Quantized) -> None:
    """A product of integers whose scale and zero point depend on the data, as dynamic quantisation writes it."""
    x = random.choice(network.tensors)
    numbers, outputs = numpy.random.default_rng(random.randrange(2**31)), random.choice((3, 8))
    b, scale = numbers.integers(-64, 64, (x.shape[-1], outputs)).astype("i1"), numpy.float32(0.02)
    outs = [f"dynamic{len(network.nodes)}_{part}" for part in "qsz"]
    network.nodes.append(NODE("DynamicQuantizeLinear", [network.floats(x)], outs))
    whole = network.add("MatMulInteger", [outs[0], network.constant(b), outs[2]])
    steps = network.add("Mul", [outs[1], network.constant(scale)])
    floats = network.add("Mul", [network.add("Cast", [whole], to=onnx.TensorProto.FLOAT), steps])

    def quantised(numbers: Any) -> tuple[Any, Any]:
        """(numbers in steps before they are rounded, the step)."""
        low, high = min(numbers.min(), 0.0), max(numbers.max(), 0.0)
        step = (high - low) / 255 or 1.0
        return numbers / step, step

    def exact(numbers: Any) -> Any:
        steps, step = quantised(numbers)
        zero = numpy.rint(numpy.clip(-min(steps.min(), 0.0), 0, 255))
        return (numpy.clip(numpy.rint(steps) + zero, 0, 255) - zero) @ b.astype(float) * step * float(scale)

    # Its levels are no output: a tie between two of them moves a product by a step.
    def magnitudes(numbers: Any) -> Any:
        steps, step = quantised(numbers)
        ties = abs(abs(steps - numpy.floor(steps)) - 0.5) < abs(steps) * LOST
        return (abs(numbers) + ties * step / LOST) @ abs(b * float(scale))

    network.quantize(random, floats, (*x.shape[:-1], outputs), (x,), exact, magnitudes)


LAYERS = (convolution, convolution, convolution, product, sum_or_product, joined, pooled, elementwise, doubled, dynamic)


def drawn(draw: Draw) -> tuple[Quantized, dict[str, Any]]:
    """A network and numbers for its input x."""
    network, shape = Quantized(draw.random.choice((13, 14, 17, 21))), draw.random.choice(SHAPES)
    given = network.levels(draw.random, shape, 3.0)
    name = network.add("QuantizeLinear", ["x", *network.parameters(given)])
    network.tensors.append(Levels(name, shape, given.scale, given.zero))
    for _ in range(draw.random.randrange(1, 7)):
        layer = draw.random.choice(LAYERS)
        draw.step(lambda random, layer=layer: layer(random, network))
    numbers = numpy.random.default_rng(draw.random.randrange(2**31))
    return network, {"x": numbers.uniform(-3, 3, shape).astype("f")}


def judge(network: Quantized, found: dict[str, Any], way: str) -> None:
    """Raises Wrong for a level that float64 does not round to, from the levels that we made before."""
    for layer in network.layers:
        made, have = layer.made, found[layer.made.name]
        read = [each.numbers(found[each.name]) for each in layer.read]
        limits = numpy.iinfo(made.zero.dtype)
        wanted = layer.exact(*read) / float(made.scale)
        allowed = LOST * (layer.magnitudes(*read) / float(made.scale) + abs(wanted))
        low, high = (numpy.clip(numpy.rint(wanted + side * allowed) + float(made.zero), limits.min, limits.max)
                     for side in (-1, 1))
        wrong = (have < low) | (have > high)
        if have.shape != made.shape or have.dtype != made.zero.dtype or wrong.any():
            at = tuple(numpy.argwhere(wrong)[0]) if have.shape == made.shape and wrong.any() else ()
            raise Wrong(f"{way}: {made.name}{list(map(int, at))} is {have[at] if at else have.dtype}, float64 has "
                        f"{wanted[at] + float(made.zero) if at else made.zero.dtype}")


def run(draw: Draw) -> str:
    """One case. Raises Wrong; returns in a word what came of it."""
    network, feeds = drawn(draw)
    outputs = [each.name for each in network.tensors]
    model = make_model(network.nodes, feeds, outputs, network.opset, network.constants)
    graph = import_onnx(model)
    found = evaluate_graph(graph, feeds)
    judge(network, found, "imported")
    judge(network, evaluate_graph(run_passes(graph), feeds), "after the passes")
    context = device()
    if context is not None and draw.random.random() < ON_A_DEVICE:
        how, name = setting(draw, context, ({}, {"max_image": 64}, {"max_image": 24}))
        with patch.dict(os.environ, PYOPENCL_BUILD_OPTIONS=how.pop("options")):
            found = imgconv.load(graph, device=context.info, **how).run(feeds)
        judge(network, found, name)
    with asking_oracle():
        session = onnxruntime.InferenceSession(model.SerializeToString(), one_thread())
        expected = dict(zip(outputs, session.run(outputs, feeds), strict=True))
    same = all(numpy.array_equal(found[name], expected[name]) for name in outputs)
    return "onnxruntime's levels" if same else "a tie beside onnxruntime"
