"""ONNX models of strangers: cases of every operator with changed fields, or damaged bytes.

Whatever they hold: an imgconv.Error, or a graph that the passes take and a plan. Some of the planned ones run.
"""

from __future__ import annotations

import random
import warnings
from functools import cache

import google.protobuf.message
import numpy
import onnx
from fuzz.case import EXTREMES, FLOATS, TEXTS, Draw, Wrong, damaged, device
from operator_cases import Case, model_of
from snapshots import DEVICES
from test_operators import FAMILIES

import imgconv
from imgconv import ops
from imgconv.compiling.compiler import prepare
from imgconv.config import Config
from imgconv.errors import Error
from imgconv.limits import Limits, load_budget
from imgconv.onnx_import import import_onnx

BOUND = Limits(bytes=2**28, seconds=20, nodes=2000)
ON_A_DEVICE = 1 / 20  # of the models that are planned


@cache
def cases() -> tuple[Case, ...]:
    """A case of each operator, opset and number of inputs."""
    found = {(c.op_type, c.domain, c.opset, len(c.inputs)): c for family in FAMILIES.values() for c in family}
    return tuple(found.values())


def _change_attribute(random: random.Random, model: onnx.ModelProto) -> None:
    node = random.choice(model.graph.node)
    if not node.attribute:
        node.attribute.add(name=random.choice(("axis", "axes", "kernel_shape", "mode", "to")), i=1, type=2)
        return
    attribute = random.choice(node.attribute)
    if attribute.ints:
        attribute.ints[random.randrange(len(attribute.ints))] = random.choice(EXTREMES)
    elif attribute.type == onnx.AttributeProto.INT:
        attribute.i = random.choice((*EXTREMES, attribute.i + 1, attribute.i - 1))
    elif attribute.type == onnx.AttributeProto.FLOAT:
        attribute.f = random.choice(FLOATS)
    elif attribute.type == onnx.AttributeProto.STRING:
        attribute.s = random.choice(TEXTS).encode()
    else:
        node.attribute.remove(attribute)


def _change_attribute_list(random: random.Random, model: onnx.ModelProto) -> None:
    attribute = random.choice([a for n in model.graph.node for a in n.attribute] or [onnx.AttributeProto()])
    if attribute.ints and random.random() < 0.5:
        del attribute.ints[-1]
    else:
        attribute.ints.append(random.choice(EXTREMES))
        if random.random() < 0.2:
            attribute.type = random.randrange(15)


def _change_weights(random: random.Random, model: onnx.ModelProto) -> None:
    if not model.graph.initializer:
        return
    tensor = random.choice(model.graph.initializer)
    kind = random.randrange(5)
    if kind == 0:
        tensor.data_type = random.randrange(25)
    elif kind == 1 and tensor.dims:
        tensor.dims[random.randrange(len(tensor.dims))] = random.choice(EXTREMES)
    elif kind == 2:
        tensor.dims.append(random.choice((0, 1, 2, -1)))
    elif tensor.raw_data and kind == 3:
        content = bytearray(tensor.raw_data)
        width = max(len(content) // max(1, len(content) // 8), 1)
        at = random.randrange(0, len(content), width)
        content[at : at + width] = random.choice(EXTREMES).to_bytes(16, "little", signed=True)[:width]
        tensor.raw_data = bytes(content)
    else:
        tensor.external_data.add(key=random.choice(("location", "offset", "length")), value=random.choice(TEXTS))
        tensor.data_location = 1


def _change_input(random: random.Random, model: onnx.ModelProto) -> None:
    tensor = random.choice(model.graph.input or [onnx.ValueInfoProto()]).type.tensor_type
    kind = random.randrange(3)
    if kind == 0:
        tensor.elem_type = random.randrange(25)
    elif kind == 1 and tensor.shape.dim:
        random.choice(tensor.shape.dim).dim_value = random.choice((*EXTREMES, 0, 3, 5))
    else:
        tensor.shape.dim.add(dim_value=random.choice((0, 1, 3)))


def _change_node(random: random.Random, model: onnx.ModelProto) -> None:
    node = random.choice(model.graph.node)
    names = [*node.input, *node.output, *(t.name for t in model.graph.initializer), *TEXTS]
    kind = random.randrange(6)
    if kind == 0 and node.input:
        node.input[random.randrange(len(node.input))] = random.choice(names)
    elif kind == 1:
        node.input.append(random.choice(names))
    elif kind == 2 and node.output:
        node.output[random.randrange(len(node.output))] = random.choice(names)
    elif kind == 3:
        node.op_type = random.choice(ops.supported()).rpartition(".")[2]
    elif kind == 4:
        node.domain = random.choice(("", "ai.onnx", "com.microsoft", "ai.onnx.ml", "own"))
    else:
        model.opset_import[0].version = random.choice((*range(1, 28), *EXTREMES))


def _wrap(random: random.Random, model: onnx.ModelProto) -> None:
    """The node in the body of a loop or a branch, or in a function."""
    inner = list(model.graph.node)
    outputs = [v.name for v in model.graph.output]
    body = onnx.helper.make_graph(inner, "body", [], [onnx.ValueInfoProto(name=f"{name}") for name in outputs])
    if random.random() < 0.5:
        node = onnx.helper.make_node("If", ["yes"], outputs, then_branch=body, else_branch=body)
        model.graph.initializer.append(onnx.helper.make_tensor("yes", 9, [], [True]))
    else:
        names = [v.name for v in model.graph.input] + [t.name for t in model.graph.initializer]
        versions = [onnx.helper.make_opsetid(e.domain, e.version) for e in model.opset_import]
        model.functions.append(onnx.helper.make_function("own", "F", names, outputs, inner, versions))
        model.opset_import.append(onnx.helper.make_opsetid("own", 1))
        node = onnx.helper.make_node("F", names, outputs, domain="own")
    del model.graph.node[:]
    model.graph.node.append(node)


CHANGES = (
    _change_attribute, _change_attribute, _change_attribute_list, _change_weights, _change_input, _change_node, _wrap,
)


def changed(draw: Draw, model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with some of its fields changed."""
    for _ in range(draw.random.choice((1, 1, 2, 3))):
        change = draw.random.choice(CHANGES)

        def step(random: random.Random, change: object = change) -> None:
            try:
                change(random, model)  # type: ignore[operator]
            except (ValueError, IndexError, OverflowError):  # a number that the field cannot hold
                pass

        draw.step(step)
    return model


def run(draw: Draw) -> str:
    """One case. Raises what is no imgconv.Error; returns in a word what came of it."""
    model, _ = model_of(draw.random.choice(cases()))
    if draw.random.random() < 0.3:
        try:
            made = onnx.ModelProto.FromString(damaged(draw, model.SerializeToString()))
        except google.protobuf.message.DecodeError:
            return "no protobuf"
    else:
        made = changed(draw, model)
    return planned(draw, made)


def planned(draw: Draw, model: onnx.ModelProto) -> str:
    """Imports and plans a model, and runs it in some cases; returns a summary."""
    try:
        with warnings.catch_warnings(), load_budget(BOUND):
            warnings.simplefilter("ignore")
            graph = import_onnx(model)
            name = draw.random.choice(sorted(DEVICES))
            prepare(graph, Config(), DEVICES[name]).plan()
            if draw.random.random() >= ON_A_DEVICE or (context := device()) is None:
                return "planned"
            numbers = numpy.random.default_rng(draw.seed)
            inputs = {v.name: numbers.uniform(-2, 2, v.shape).astype(v.dtype) for v in graph.inputs}
            results = imgconv.load(graph, device=context.info, limits=BOUND).run(inputs)
    except Error as error:
        return type(error).__name__
    for name in graph.outputs if graph.host_partition is None else ():
        if results[name].shape != graph.values[name].shape:
            raise Wrong(f"{name} has the shape {results[name].shape}, not {graph.values[name].shape}")
    return "run on a device"
