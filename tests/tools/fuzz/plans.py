"""Models of open sizes that run on several sizes, each with a plan of its own, against onnxruntime."""

from __future__ import annotations

import os
import warnings
from typing import Any
from unittest.mock import patch

import numpy
import onnx
from fuzz.case import Draw, device
from fuzz.compared import BOUND, NODE, Arrays, in_numpy, judged, oracle, setting, stores_half
from fuzz.every_case import OPSETS
from fuzz.graphs import Network, add_any

import imgconv
from imgconv.errors import Error
from imgconv.graph.nodes import Graph
from imgconv.limits import load_budget
from imgconv.onnx_import import import_onnx

ON_A_DEVICE = 1 / 4
FIRST = {4: (1, 3, 8, 6), 3: (2, 5, 4), 2: (3, 7)}  # a shape of each rank
LARGEST = 11
EMPTY = 0.03  # of the sizes are 0


def add_open(draw: Draw, network: Network, rank: int) -> int:
    """A node that takes any sizes, behind the last one; returns the rank of what it makes."""
    random, last, made = draw.random, network.made[-1], f"open_{len(network.made)}"
    axis = random.randrange(rank)
    weights = numpy.random.default_rng(draw.seed).normal(size=(5, 3, 3, 3)).astype(numpy.float32)
    step, first = random.choice((1, 2)), last == "x"

    def convolution() -> list[onnx.NodeProto]:
        return [NODE("Conv", [last, network.constant(weights)], [made], pads=[1] * 4, strides=[step] * 2)]

    def flat() -> list[onnx.NodeProto]:
        kept = network.constant(numpy.array([axis]))
        size = network.constant(numpy.array([-1]))
        return [
            NODE("Shape", [last], [f"{made}_shape"]), NODE("Gather", [f"{made}_shape", kept], [f"{made}_kept"]),
            NODE("Concat", [f"{made}_kept", size], [f"{made}_two"], axis=0),
            NODE("Reshape", [last, f"{made}_two"], [made]),
        ]

    kinds: list[tuple[Any, int]] = [
        (lambda: [NODE("Sigmoid", [last], [made])], rank), (lambda: [NODE("Softmax", [last], [made], axis=axis)], rank),
        (lambda: [NODE("Transpose", [last], [made], perm=random.sample(range(rank), rank))], rank),
        (lambda: [NODE("Concat", [last, last], [made], axis=axis)], rank), (flat, 2),
        (lambda: [NODE("ReduceMax", [last], [made], keepdims=1)], rank),
        (lambda: [NODE("Flatten", [last], [made], axis=axis)], 2),
        (lambda: [NODE("Shape", [last], [f"{made}_s"]), NODE("Cast", [f"{made}_s"], [made], to=1)], 1),
    ]
    if rank == 4 and first:
        kinds += [(convolution, 4), (convolution, 4), (convolution, 4)]
    if rank == 4:
        kinds += [
            (lambda: [NODE("MaxPool", [last], [made], kernel_shape=[2, 3], pads=[1, 1, 1, 1], strides=[step] * 2)], 4),
            (lambda: [NODE("AveragePool", [last], [made], kernel_shape=[1, 3], pads=[0, 1, 0, 1])], 4),
            (lambda: [NODE("GlobalAveragePool", [last], [made])], 4),
        ]
    make, rank_of_it = random.choice(kinds)
    network.nodes += make()
    network.made.append(made)
    return rank_of_it


def open_model(draw: Draw) -> tuple[onnx.ModelProto, list[tuple[int, ...]]]:
    """A model with some open sizes, and shapes that its input may have."""
    rank = draw.random.choice((4, 4, 4, 3, 2))
    shape = FIRST[rank]
    network, first = Network(draw.random.choice(OPSETS), shape), rank
    for _ in range(draw.random.randrange(1, 4)):
        rank = add_open(draw, network, rank)
    last = network.made[-1]
    for _ in range(draw.random.randrange(0, 3)):
        add_any(draw, network)
    model = network.model(draw.random, list(dict.fromkeys([last, network.made[-1]])))
    axes = [axis for axis in range(first) if draw.random.random() < 0.6 and not (first == 4 and axis == 1)]
    dims = model.graph.input[0].type.tensor_type.shape.dim
    for axis in axes:
        dims[axis].dim_param = f"size_{axis}"
    shapes = [tuple(drawn_size(draw) if axis in axes else size for axis, size in enumerate(shape)) for _ in range(3)]
    return model, shapes


def drawn_size(draw: Draw) -> int:
    """A size; now and then 0."""
    return 0 if draw.random.random() < EMPTY else draw.random.randrange(1, LARGEST)


def read(model: onnx.ModelProto, shape: tuple[int, ...]) -> Graph:
    with warnings.catch_warnings(), load_budget(BOUND):
        warnings.simplefilter("ignore")
        return import_onnx(model, shapes={"x": shape})


def run(draw: Draw) -> str:
    """One case. Raises Wrong, and what is no imgconv.Error; returns in a word what came of it."""
    model, shapes = open_model(draw)
    numbers, context = numpy.random.default_rng(draw.seed), device()
    given = [{"x": numbers.uniform(-2, 2, shape).astype(numpy.float32)} for shape in (*shapes, shapes[0])]
    expected = [oracle(model, inputs) for inputs in given]
    if any(each is None for each in expected):
        return "onnxruntime refuses it"
    try:
        graphs = [read(model, inputs["x"].shape) for inputs in given]
    except Error as error:
        return type(error).__name__
    ways: list[dict[str, Arrays]] = [
        {"in numpy": in_numpy(graph, inputs)} for graph, inputs in zip(graphs, given, strict=True)
    ]
    if draw.random.random() < ON_A_DEVICE and context is not None:
        how, name = setting(draw, context)
        with patch.dict(os.environ, PYOPENCL_BUILD_OPTIONS=how.pop("options")):
            loaded = imgconv.load(model, device=context.info, **how)
            for inputs, found in zip(given, ways, strict=True):
                submits = draw.random.random() < 0.3
                found[name] = loaded.submit(inputs).result() if submits else loaded.run(inputs)
    said = {
        judged(model, inputs, want or {}, found, stores_half(model, graph))
        for inputs, want, found, graph in zip(given, expected, ways, graphs, strict=True)
    }
    return min(said)
