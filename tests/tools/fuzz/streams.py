"""Streams: random networks whose states stay on the device from frame to frame, against onnxruntime.

The oracle computes all frames in one model: the network again for each frame, which reads the states of the frame
before.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any
from unittest.mock import patch

import numpy
import onnx
import onnx.helper
import onnx.numpy_helper
from fuzz.case import Draw, device
from fuzz.compared import NODE, drawn_inputs, imported, judged, oracle, setting, stores_half
from fuzz.every_case import OPSETS
from fuzz.graphs import SHAPES, Network, add_any

import imgconv
from imgconv.errors import Error

FRAMES = 3


def recurrent(draw: Draw) -> tuple[onnx.ModelProto, dict[str, str]]:
    """A model with one or two states, and which output feeds which input."""
    network = Network(draw.random.choice(OPSETS), draw.random.choice(SHAPES))
    states = {f"state_{number}": draw.random.choice(SHAPES) for number in range(draw.random.choice((1, 1, 2)))}
    network.inputs |= states
    network.made += states
    network.nodes.append(NODE("Sum", [network.fitted(draw.random, n, (2, 3), -1) for n in network.made], ["mixed"]))
    network.made.append("mixed")
    for _ in range(draw.random.randrange(1, 4)):
        add_any(draw, network)
    fed = {network.fitted(draw.random, draw.random.choice(network.made[-3:]), shape, -1): name
           for name, shape in states.items()}
    model = network.model(draw.random, [network.made[-1], *fed])
    return model, fed


def renamed(nodes: Iterable[onnx.NodeProto], names: Mapping[str, str]) -> list[onnx.NodeProto]:
    """Copies of nodes with other names for tensors, also in the bodies of nodes."""
    made = []
    for node in nodes:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.ClearField("name")  # no two nodes have the same
        copy.input[:] = [names.get(name, name) for name in node.input]
        copy.output[:] = [names.get(name, name) for name in node.output]
        for attribute in copy.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                inner = renamed(attribute.g.node, names)
                del attribute.g.node[:]
                attribute.g.node.extend(inner)
                for value in attribute.g.output:
                    value.name = names.get(value.name, value.name)
        made.append(copy)
    return made


def unrolled(model: onnx.ModelProto, states: Mapping[str, str], frames: int) -> onnx.ModelProto:
    """The model of some frames: input and output NAME of frame 2 are called NAME@2."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    for part in (made.graph.node, made.graph.input, made.graph.output):
        del part[:]
    shapes = {value.name: [d.dim_value for d in value.type.tensor_type.shape.dim] for value in model.graph.input}
    handed = {name: f"{name}@start" for name in states.values()}
    for name, start in handed.items():
        made.graph.initializer.append(onnx.numpy_helper.from_array(numpy.zeros(shapes[name], numpy.float32), start))
    for frame in range(frames):
        given = {name: f"{name}@{frame}" for name in shapes.keys() - handed.keys()}
        computed = {name: f"{name}@{frame}" for node in model.graph.node for name in node.output if name}
        made.graph.node.extend(renamed(model.graph.node, given | computed | handed))
        made.graph.input.extend(onnx.helper.make_tensor_value_info(given[name], 1, shapes[name]) for name in given)
        outputs = [value.name for value in model.graph.output if value.name not in states]
        made.graph.output.extend(onnx.ValueInfoProto(name=computed[name]) for name in outputs)
        for value in made.graph.output[-len(outputs):]:
            value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
        handed = {target: computed[name] for name, target in states.items()}
    return made


def run(draw: Draw) -> str:
    """One case. Raises Wrong, and what is no imgconv.Error; returns in a word what came of it."""
    model, states = recurrent(draw)
    whole = unrolled(model, states, FRAMES)
    inputs = drawn_inputs(whole, draw.seed)
    expected, context, graphs = oracle(whole, inputs), device(), imported(model)
    if expected is None:
        return "onnxruntime refuses it"
    if context is None or isinstance(graphs, Error):
        return "no device" if context is None else type(graphs).__name__
    how, name = setting(draw, context)
    found: dict[str, Any] = {}
    with patch.dict(os.environ, PYOPENCL_BUILD_OPTIONS=how.pop("options")):
        loaded = imgconv.load(graphs[0], device=context.info, **how)
        try:
            stream = loaded.stream(states)
        except Error as error:
            return f"no stream: {type(error).__name__}"
        for again in (False, True):
            for frame in range(FRAMES):
                given = {"x": inputs[f"x@{frame}"]}
                found |= {f"{key}@{frame}": array for key, array in stream.run(given).items()}
            if not again and draw.random.random() < 0.7:
                break
            stream.reset()
    return judged(whole, inputs, expected, {name: found}, stores_half(whole, graphs[0]))
