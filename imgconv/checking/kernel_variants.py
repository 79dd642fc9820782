"""Small graphs that cover every kernel variant, to test which variants a driver computes correctly."""

from __future__ import annotations

from collections.abc import Iterator

import numpy

from imgconv.graph.expression import Argument, apply
from imgconv.graph.join import rename_values
from imgconv.graph.nodes import Graph
from imgconv.preprocessing.preparation import Format
from imgconv.preprocessing.stage import PICTURE, array_dtype, array_shape
from imgconv.tensor import Tensor, build_graph, concatenate, convolution, order, recurrence, suppression

RANDOM_SEED = 0


def variant_graphs() -> Iterator[Graph]:
    """Graphs of one or a few launches; their names say what they do. The smaller ones of a kind come first."""
    for size, channels in ((5, 3), (14, 8), (33, 20)):
        yield from _convolutions(size, channels)
        yield from _movements(size, channels)
        yield from _reductions(size, channels)
    for rows in (7, 64):
        yield from _products(rows)
    yield from _other_variants()


def all_variants_graph() -> Graph:
    """Every kernel variant in one graph, for a file that the player checks. Names begin with the variant's number."""
    made = []
    for number, graph in enumerate(variant_graphs()):
        made.append(rename_values(graph, {name: f"{number}.{name}" for name in graph.values}))
    return Graph(
        tuple(value for each in made for value in each.inputs), tuple(name for each in made for name in each.outputs),
        tuple(node for each in made for node in each.nodes),
        {name: array for each in made for name, array in each.constants.items()}, "every form of kernel",
    ).validate()


def frame_graph(format: Format) -> Graph:
    """A graph that takes frames of a format."""
    picture = Tensor.input(PICTURE, array_shape(format, (12, 8)), array_dtype(format))
    return build_graph({"y": picture.cast("float32") * 2.0}, [picture], f"frames of {format}")


def _weights(*shape: int) -> Tensor:
    random = numpy.random.default_rng(RANDOM_SEED)
    return Tensor.constant(random.uniform(-0.5, 0.5, shape).astype(numpy.float32))


def _named_graph(name: str, made: Tensor, *inputs: Tensor) -> Graph:
    shapes = ", ".join("x".join(map(str, each.shape)) for each in inputs)
    return build_graph({"y": made}, inputs, f"{name} of {shapes}")


def _convolutions(size: int, c: int) -> Iterator[Graph]:
    x = Tensor.input("x", (2, c, size, size + 2))
    bias = _weights(c)
    yield _named_graph("1x1 convolution", x.conv2d(_weights(2 * c, c, 1, 1)).relu(), x)
    yield _named_graph("3x3 convolution", x.conv2d(_weights(c, c, 3, 3), bias, padding=1).silu(), x)
    yield _named_graph("strided convolution", x.conv2d(_weights(c, c, 3, 3), stride=2, padding=1).sigmoid(), x)
    dilated = convolution(x, _weights(c, c, 3, 3), [1, 1], [2] * 4, [2, 2])
    yield _named_graph("dilated convolution", dilated.tanh() + x, x)
    yield _named_graph("depthwise convolution", x.depthwise(_weights(c, 1, 3, 3), padding=1).hardswish(), x)
    yield _named_graph("transposed convolution", x.conv_transpose2d(_weights(c, c, 3, 3), stride=2, padding=1), x)
    grouped = Tensor.input("x", (1, 2 * c, size, size))
    in_groups = convolution(grouped, _weights(2 * c, c, 3, 3), [1, 1], [1] * 4, [1, 1], 2)
    yield _named_graph("grouped convolution", in_groups, grouped)
    separable = x.depthwise(_weights(c, 1, 3, 3), padding=1).relu().conv2d(_weights(4 * c, c, 1, 1)).relu()
    yield _named_graph("separable convolution", separable, x)
    pooled = x.global_average_pool().conv2d(_weights(8, c, 1, 1)).relu().conv2d(_weights(c, 8, 1, 1)).sigmoid()
    yield _named_graph("squeeze and excitation", (x * pooled).conv2d(_weights(c, c, 1, 1)), x)


def _movements(size: int, c: int) -> Iterator[Graph]:
    x = Tensor.input("x", (1, c, size, size + 1))
    yield _named_graph("transposition", x.transpose(0, 3, 2, 1) * 2.0, x)
    yield _named_graph("slices and padding", x.slice(2, 1, size).pad([0, 0, 2, 1], [0, 0, 0, 1], 0.5) + 1.0, x)
    both = concatenate([x.conv2d(_weights(c, c, 1, 1)), x, x.max_pool(3, 1, 1)], 1)
    yield _named_graph("concatenation", both.conv2d(_weights(4, 3 * c, 1, 1)), x)
    yield _named_graph("enlargement", x.upsample(2).exp(), x)


def _reductions(size: int, c: int) -> Iterator[Graph]:
    x = Tensor.input("x", (1, c, size, size + 3))
    yield _named_graph("maximum of windows", x.max_pool(3, 2, 1), x)
    yield _named_graph("softmax", x.softmax(1), x)
    rows = Tensor.input("x", (size, 4 * c))
    mean = rows.mean((1,), keepdims=True)
    variance = ((rows - mean) * (rows - mean)).mean((1,), keepdims=True)
    yield _named_graph("normalisation of rows", (rows - mean) / (variance + 1e-5).sqrt(), rows)
    mean = x.mean((2, 3), keepdims=True)
    variance = ((x - mean) * (x - mean)).mean((2, 3), keepdims=True)
    yield _named_graph("normalisation of channels", (x - mean) / (variance + 1e-5).sqrt(), x)
    yield _named_graph("position of the largest", x.argmax(1), x)


def _products(rows: int) -> Iterator[Graph]:
    a, b = Tensor.input("a", (2, rows, 24)), Tensor.input("b", (2, 24, 18))
    yield _named_graph("product", a @ b, a, b)
    transposed = Tensor.input("b", (2, 18, 24))
    yield _named_graph("product with a transposed matrix", a @ transposed.transpose(0, 2, 1), a, transposed)
    yield _named_graph("product with known weights", (a @ _weights(24, 30)).relu(), a)


def _other_variants() -> Iterator[Graph]:
    x = Tensor.input("x", (3, 300))
    yield _named_graph("the largest numbers", order(x, 20), x)
    boxes, count = Tensor.input("boxes", (40, 4)), Tensor.constant(numpy.asarray([40], numpy.int64))
    corners = concatenate([boxes.slice(1, 0, 2), boxes.slice(1, 0, 2) + boxes.slice(1, 2, 4) * 0.3 + 0.4], 1)
    yield _named_graph("suppression of boxes", suppression(corners, count, 0.5, 20), boxes)
    grouped = concatenate([corners, Tensor.constant(numpy.arange(40, dtype=numpy.float32).reshape(40, 1) % 3)], 1)
    yield _named_graph("suppression of boxes by class", suppression(grouped, count, 0.5, 20), boxes)
    steps, first = Tensor.input("x", (5, 2, 1, 1, 12)), Tensor.input("first", (2, 1, 12))
    state = apply("tanh", apply("add", Argument(0), Argument(1)))
    made = recurrence(steps, _weights(1, 12, 1, 12), [first], [], [state], None, [False])
    yield _named_graph("recurrent layer", made, steps, first)
