"""Random ONNX graphs that read through tables of known positions, on every axis and before every kind of kernel.

An input is moved a few times (Gather by known indices, Pad that repeats, Slice, Concat with itself, Transpose, Reshape)
and then computed with: elementwise, reduced, softmaxed, pooled, convolved, or multiplied from either side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy
import onnx
import onnx.helper
from support import make_model

OPSET = 18
MOST_ELEMENTS = 1500
Shape = tuple[int, ...]


@dataclass
class Draw:
    """A graph while it is drawn: `name` and `shape` are those of the tensor that the next node reads."""

    number: int
    name: str = ""
    shape: Shape = ()
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: dict[str, Any] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.generator = numpy.random.default_rng(self.number)

    def between(self, low: int, high: int) -> int:
        """A whole number from low to high, both included."""
        return int(self.generator.integers(low, high + 1))

    def choose(self, values: Any) -> Any:
        return values[self.between(0, len(values) - 1)]

    def floats(self, shape: Shape) -> Any:
        return self.generator.normal(0, 1, shape).astype(numpy.float32)

    def constant(self, array: Any) -> str:
        name = f"constant{self.number}_{len(self.constants)}"
        self.constants[name] = numpy.asarray(array)
        return name

    def integers(self, values: Any) -> str:
        return self.constant(numpy.asarray(values, numpy.int64))

    def start(self, shape: Shape) -> None:
        """Go on with a new input, and what is computed of it: that is a texture, the input itself a buffer."""
        self.name, self.shape = f"x{self.number}_{len(self.inputs)}", shape
        self.inputs[self.name] = self.floats(shape)
        if self.between(0, 2):
            self.add("Sin", [self.name], shape)

    def add(self, operator: str, inputs: list[str], shape: Shape, **attributes: Any) -> None:
        """A node whose result is read next."""
        name = f"y{self.number}_{len(self.nodes)}"
        self.nodes.append(onnx.helper.make_node(operator, inputs, [name], **attributes))
        self.name, self.shape = name, shape

    def resized(self, axis: int, size: int) -> Shape:
        return (*self.shape[:axis], size, *self.shape[axis + 1 :])


# Movement


def gather(draw: Draw) -> None:
    axis = draw.between(0, len(draw.shape) - 1)
    size = draw.shape[axis]
    count = draw.between(1, min(2 * size + 2, 12 * MOST_ELEMENTS // prod(draw.shape)))
    positions = draw.generator.integers(-size, size, count)
    draw.add("Gather", [draw.name, draw.integers(positions)], draw.resized(axis, count), axis=axis)


def windows(draw: Draw) -> None:
    """Gather by a table of windows, which gives their positions an axis of its own."""
    axis = draw.between(0, len(draw.shape) - 1)
    size = draw.shape[axis]
    count, taps = draw.between(1, min(5, size)), draw.between(1, min(3, size))
    starts = draw.generator.integers(0, size - taps + 1, (count, 1))
    shape = (*draw.shape[:axis], count, taps, *draw.shape[axis + 1 :])
    draw.add("Gather", [draw.name, draw.integers(starts + numpy.arange(taps))], shape, axis=axis)


def pad(draw: Draw) -> None:
    mode = draw.choose(["edge", "reflect", "constant"])
    axis = draw.between(0, len(draw.shape) - 1)
    most = min(4, draw.shape[axis] - 1) if mode == "reflect" else 4
    before, after = draw.between(0, most), draw.between(0, most)
    pads = [0] * (2 * len(draw.shape))
    pads[axis], pads[axis + len(draw.shape)] = before, after
    draw.add("Pad", [draw.name, draw.integers(pads)], draw.resized(axis, before + draw.shape[axis] + after), mode=mode)


def slice_(draw: Draw) -> None:
    axis = draw.between(0, len(draw.shape) - 1)
    size, step = draw.shape[axis], draw.choose([-2, -1, 1, 2, 3])
    first = draw.between(0, size // 3)
    positions = range(size)[first::step] if step > 0 else range(size)[size - 1 - first :: step]
    end = positions[-1] + (1 if step > 0 else -1)
    parts = [[positions[0]], [end if end >= 0 else -size - 1], [axis], [step]]
    draw.add("Slice", [draw.name, *map(draw.integers, parts)], draw.resized(axis, len(positions)))


def concat(draw: Draw) -> None:
    axis, count = draw.between(0, len(draw.shape) - 1), draw.between(2, 3)
    draw.add("Concat", [draw.name] * count, draw.resized(axis, count * draw.shape[axis]), axis=axis)


def transpose(draw: Draw) -> None:
    order = [int(a) for a in draw.generator.permutation(len(draw.shape))]
    draw.add("Transpose", [draw.name], tuple(draw.shape[a] for a in order), perm=order)


def reshape(draw: Draw) -> None:
    shape = _factors(draw, prod(draw.shape), draw.between(1, 5))
    draw.add("Reshape", [draw.name, draw.integers(shape)], shape)


def _factors(draw: Draw, size: int, rank: int) -> Shape:
    shape = []
    for _ in range(rank - 1):
        shape.append(draw.choose([n for n in range(1, size + 1) if size % n == 0]))
        size //= shape[-1]
    return (*shape, size)


MOVEMENTS = (gather, windows, pad, pad, slice_, concat, concat, transpose, transpose, reshape)


def move(draw: Draw, most: int) -> None:
    """Up to so many movements."""
    for _ in range(draw.between(1, most)):
        if prod(draw.shape) <= MOST_ELEMENTS:
            draw.choose(MOVEMENTS)(draw)


# What is computed of it


def elementwise(draw: Draw) -> None:
    draw.add("Tanh", [draw.name], draw.shape)


def softmax(draw: Draw) -> None:
    draw.add("Softmax", [draw.name], draw.shape, axis=draw.between(0, len(draw.shape) - 1))


def reduction(draw: Draw) -> None:
    operator, axis = draw.choose(["ReduceMean", "ReduceMax", "ReduceSum"]), draw.between(0, len(draw.shape) - 1)
    draw.add(operator, [draw.name, draw.integers([axis])], draw.resized(axis, 1), keepdims=1)


def joined(draw: Draw) -> None:
    """Added to another input that is moved in its own way."""
    name, shape = draw.name, draw.shape
    draw.start(shape)
    move(draw, 4)
    size = prod(draw.shape)
    taken = draw.generator.integers(0, size, prod(shape))
    draw.add("Reshape", [draw.name, draw.integers([size])], (size,))
    draw.add("Gather", [draw.name, draw.integers(taken)], (prod(shape),), axis=0)
    draw.add("Reshape", [draw.name, draw.integers(shape)], shape)
    draw.add("Add", [name, draw.name], shape)


def product(draw: Draw) -> None:
    """The left or right side of MatMul; the other side is known, or another input that is moved or not."""
    if len(draw.shape) == 1:
        _as_rank(draw, draw.between(2, 4))
    name, shape, left = draw.name, draw.shape, bool(draw.between(0, 1))
    *batch, rows, columns = shape
    free = draw.between(1, 9)
    other = (*(batch if draw.between(0, 1) else ()), *((columns, free) if left else (free, rows)))
    if draw.between(0, 2) == 0:
        beside = draw.constant(draw.floats(other))
    else:
        draw.start(other)
        if draw.between(0, 1):
            axis = draw.between(0, len(other) - 1)
            order = draw.generator.integers(0, other[axis], other[axis])
            draw.add("Gather", [draw.name, draw.integers(order)], other, axis=axis)
        beside = draw.name
    made = (*batch, rows, free) if left else (*batch, free, columns)
    draw.add("MatMul", [name, beside] if left else [beside, name], made)


def pooling(draw: Draw) -> None:
    _as_rank(draw, 4)
    n, c, h, w = draw.shape
    window, stride = [min(draw.between(1, 3), h), min(draw.between(1, 3), w)], [draw.between(1, 2), draw.between(1, 2)]
    size = tuple((length - k) // s + 1 for length, k, s in zip((h, w), window, stride, strict=True))
    operator = draw.choose(["MaxPool", "AveragePool"])
    draw.add(operator, [draw.name], (n, c, *size), kernel_shape=window, strides=stride)


def convolution(draw: Draw) -> None:
    _as_rank(draw, 4)
    n, c, h, w = draw.shape
    filters, window = draw.between(1, 6), draw.choose([1, 3])
    weights = draw.constant(draw.floats((filters, c, window, window)))
    around = window // 2
    draw.add("Conv", [draw.name, weights], (n, filters, h, w), pads=[around] * 4)


def scaled_convolution(draw: Draw) -> None:
    """A convolution of the input times factors by channel, which come through tables."""
    _as_rank(draw, 4)
    name, shape = draw.name, draw.shape
    n, c, h, w = shape
    draw.start((draw.between(1, 3), c, 1, 1))
    positions = draw.generator.integers(0, draw.shape[0], n)
    draw.add("Gather", [draw.name, draw.integers(positions)], (n, c, 1, 1), axis=0)
    draw.add("Mul", [name, draw.name], shape)
    weights = draw.constant(draw.floats((draw.between(1, 6), c, 1, 1)))
    draw.add("Conv", [draw.name, weights], (n, draw.constants[weights].shape[0], h, w))


def _as_rank(draw: Draw, rank: int) -> None:
    shape = _factors(draw, prod(draw.shape), rank)
    draw.add("Reshape", [draw.name, draw.integers(shape)], shape)


COMPUTATIONS: tuple[Callable[[Draw], None], ...] = (
    elementwise, softmax, softmax, reduction, joined, product, product, product, pooling, convolution,
    scaled_convolution,
)


def draw_graph(number: int) -> Draw:
    """One graph; the same for the same number. Its first input is of rank 1 to 5, in turn."""
    draw = Draw(number)
    rank = number % 5 + 1
    most = {1: 40, 2: 36, 3: 12, 4: 7, 5: 5}[rank]
    draw.start(tuple(draw.between(1, most) for _ in range(rank)))
    move(draw, 5)
    draw.choose(COMPUTATIONS)(draw)
    if draw.between(0, 1):
        move(draw, 2)
    return draw


def draw_model(numbers: Iterable[int]) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """The graphs of some numbers, beside each other in one model, and their inputs."""
    graphs = [draw_graph(number) for number in numbers]
    nodes = [node for graph in graphs for node in graph.nodes]
    inputs = {name: array for graph in graphs for name, array in graph.inputs.items()}
    constants = {name: array for graph in graphs for name, array in graph.constants.items()}
    return make_model(nodes, inputs, [graph.name for graph in graphs], OPSET, constants), inputs
