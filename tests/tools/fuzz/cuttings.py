"""Networks cut out of real ONNX files, against onnxruntime: pieces glued together, converted, with other operators.

A piece is a run of nodes of one file, with the sizes of its inputs changed and its weights drawn anew. The files are
the light models of the onnx package, and those below the folder IMGCONV_MODELS. graphs.py, the other generator, makes
its networks from single operators; the two share nothing but the comparison.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy
import onnx
import onnx.helper
import onnx.numpy_helper
import onnx.shape_inference
import onnx.version_converter
from fuzz.case import Draw
from fuzz.compared import compared

NODE = onnx.helper.make_node
LARGEST_FILE, LARGEST_TENSOR, LARGEST_WORK = 2**26, 2**16, 2**23  # bytes; elements; multiply-adds of one convolution
TRIES = 8  # to find a piece of known and small tensors
UNARY = (
    "Relu", "Sigmoid", "Tanh", "LeakyRelu", "Elu", "HardSigmoid", "Softplus", "Softsign", "Abs", "Neg", "Exp", "Floor",
    "Erf", "Selu", "Sqrt", "Identity", "HardSwish", "Mish", "Celu", "ThresholdedRelu", "Sin", "Sign", "Gelu", "Swish",
)
BINARY = ("Add", "Sub", "Mul", "Div", "PRelu", "Pow")
MANY = ("Max", "Min", "Mean", "Sum")
WINDOWS = ("MaxPool", "AveragePool", "LpPool")
WHOLE = ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
REDUCTIONS = ("ReduceMean", "ReduceMax", "ReduceMin", "ReduceSum", "ReduceL1", "ReduceL2", "ReduceLogSumExp")
ROWS = ("Softmax", "LogSoftmax", "Hardmax")
FAMILIES = (UNARY, BINARY, MANY, WINDOWS, WHOLE, REDUCTIONS, ROWS)
TARGETS = (8, 9, 10, 11, 12, 13, 14, 16, 17, 18, 19, 20, 21, 22)


@dataclass(frozen=True)
class Source:
    """A real model: its nodes without constants, its constants, and the shapes of its other float tensors."""

    name: str
    opset: int
    nodes: tuple[onnx.NodeProto, ...]
    constants: dict[str, Any]
    shapes: dict[str, tuple[int, ...]]


def files() -> list[Path]:
    light = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    folder = os.environ.get("IMGCONV_MODELS")
    found = [*light.glob("*.onnx"), *(Path(folder).rglob("*.onnx") if folder else ())]
    return sorted((path for path in found if path.stat().st_size < LARGEST_FILE), key=lambda path: path.name)


@cache
def read(path: Path) -> Source:
    """Reads a model file; its open dimensions become 1."""
    model = onnx.load(path)
    for value in model.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if not dim.dim_value:
                dim.dim_value = 1
    for made in model.graph.output:  # may be for another size
        made.type.tensor_type.ClearField("shape")
    del model.graph.value_info[:]
    try:
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    except onnx.shape_inference.InferenceError:  # only pieces that begin with the inputs can be cut
        inferred = model.graph
    shapes = {}
    for value in (*inferred.input, *inferred.value_info, *inferred.output):
        tensor = value.type.tensor_type
        dims = tuple(d.dim_value for d in tensor.shape.dim)
        if tensor.elem_type == 1 and all(dims):
            shapes[value.name] = dims
    constants = {each.name: onnx.numpy_helper.to_array(each) for each in inferred.initializer}
    nodes = []
    for node in inferred.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            constants[node.output[0]] = onnx.numpy_helper.to_array(node.attribute[0].t)
        elif node.op_type == "ConstantOfShape" and node.input[0] in constants:  # a light model's weights
            constants[node.output[0]] = numpy.zeros(constants[node.input[0]], numpy.float32)
        else:
            nodes.append(node)
    versions = {each.domain: each.version for each in model.opset_import}
    return Source(path.name, versions.get("", 11), tuple(nodes), constants, shapes)


class Glued:
    """A model that grows by pieces. made: its tensors of floats that may be read."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, Any] = {}
        self.inputs: dict[str, tuple[int, ...]] = {}
        self.made: list[str] = []
        self.opset = 0

    def constant(self, array: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = numpy.asarray(array)
        return name

    def fitted(self, random: random.Random, name: str, shape: tuple[int, ...]) -> str:
        """A tensor of another shape whose elements are drawn from a result, between -1 and 1."""
        flat, taken, near, made = (f"g{len(self.nodes)}{part}" for part in "abcd")
        # A position that is outside of a short result would be refused: the first and the last element.
        positions = numpy.random.default_rng(random.randrange(2**31)).integers(-1, 1, shape)
        self.nodes += [
            NODE("Reshape", [name, self.constant(numpy.array([-1]))], [flat]),
            NODE("Gather", [flat, self.constant(positions)], [taken]),
        ]
        self.nodes.append(NODE("Tanh", [taken], [near]))
        drawn = numpy.random.default_rng(random.randrange(2**31)).uniform(-1, 1, shape).astype(numpy.float32)
        self.nodes.append(NODE("Mul", [near, self.constant(drawn)], [made]))
        return made

    def add(self, random: random.Random, source: Source) -> None:
        """A piece of the source, whose inputs read earlier results or are inputs of the model."""
        for _ in range(TRIES):
            piece = cut(random, source)
            resized = sizes(random, source, piece) if piece else {}
            if piece and all(numpy.prod(resized.get(n, ())) <= LARGEST_TENSOR for node in piece for n in node.input):
                break
        else:
            return
        self.opset = self.opset or source.opset
        names: dict[str, str] = {"": ""}
        prefix = f"p{len(self.nodes)}_"
        for node in piece:
            for name in node.input:
                if name in names:
                    continue
                if name in source.constants:
                    names[name] = self.constant(drawn(random, source.constants[name]))
                elif self.made and random.random() < 0.7:
                    names[name] = self.fitted(random, random.choice(self.made[-4:]), resized[name])
                else:
                    names[name] = f"x{len(self.inputs)}"
                    self.inputs[names[name]] = resized[name]
            names |= {name: prefix + name for name in node.output if name}
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            copy.ClearField("name")
            copy.input[:] = [names[name] for name in node.input]
            copy.output[:] = [names[name] if name else "" for name in node.output]
            self.nodes.append(copy)
        read_inside = {name for node in piece for name in node.input}
        ends = [n.output[0] for n in piece if n.output[0] in source.shapes and n.output[0] not in read_inside]
        self.made += [names[name] for name in ends]

    def model(self, random: random.Random) -> onnx.ModelProto:
        outputs = list(dict.fromkeys([self.made[-1], random.choice(self.made)]))
        inputs = [onnx.helper.make_tensor_value_info(name, 1, shape) for name, shape in self.inputs.items()]
        constants = [onnx.numpy_helper.from_array(array, name) for name, array in self.constants.items()]
        results = [onnx.helper.make_tensor_value_info(name, 1, None) for name in outputs]
        graph = onnx.helper.make_graph(self.nodes, "cuttings", inputs, results, constants)
        return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", self.opset)], ir_version=8)


def cut(random: random.Random, source: Source) -> list[onnx.NodeProto] | None:
    """Some nodes in a row whose inputs are constants and floats of known shape; None if there are none there."""
    start = random.randrange(len(source.nodes))
    piece = source.nodes[start : start + random.choice((1, 2, 3, 4, 6, 9, 14))]
    made: set[str] = set()
    kept = []
    for node in piece:
        known = all(not n or n in made or n in source.constants or n in source.shapes for n in node.input)
        plain = not any(a.type in (5, 10) for a in node.attribute) and not node.domain
        if not (known and plain) or any(n in source.constants and source.constants[n].size > 2**21 for n in node.input):
            break
        kept.append(node)
        made.update(node.output)
    return kept if any(set(n.output) & source.shapes.keys() for n in kept[-1:]) else None


def sizes(random: random.Random, source: Source, piece: list[onnx.NodeProto]) -> dict[str, tuple[int, ...]]:
    """Shapes of the piece's tensors: those of pictures smaller and odd, all alike that were alike."""
    rows = {}
    work = max((a.size for n in piece for name in n.input if (a := source.constants.get(name)) is not None), default=1)
    most = max(1, min(14, int((LARGEST_WORK / max(work, 1)) ** 0.5)))
    if any(n.op_type in ("Reshape", "MatMul", "Gemm", "LRN") for n in piece) and random.random() < 0.7:
        most = 10**9  # sizes that other nodes know
    changed: Counter[int] = Counter()
    for name, shape in source.shapes.items():
        if len(shape) == 4:
            sides = tuple(changed.setdefault(side, random.randrange(1, most + 1)) if side > most else side
                          for side in shape[2:])
            shape = (*shape[:2], *sides)
        rows[name] = shape
    return rows


def drawn(random: random.Random, array: Any) -> Any:
    """Other numbers than a constant's if it is a weight; those of BatchNormalization's variance stay above 0."""
    if array.dtype != numpy.float32 or not array.size:
        return array
    numbers = numpy.random.default_rng(random.randrange(2**31))
    if array.ndim < 2:
        return numbers.uniform(0.2, 1.5, array.shape).astype(numpy.float32) if array.size > 4 else array
    fan_in = array.size / array.shape[0]
    return (numbers.normal(size=array.shape) / fan_in**0.5).astype(numpy.float32)


def exchange(random: random.Random, nodes: list[onnx.NodeProto]) -> None:
    """Another operator of the same kind, or another attribute, at one node."""
    places = [(n, family) for n in nodes for family in FAMILIES if n.op_type in family]
    windows = [n for n in nodes if n.op_type in ("Conv", "ConvTranspose", *WINDOWS)]
    if places and (not windows or random.random() < 0.6):
        node, family = random.choice(places)
        kept = [a for a in node.attribute if a.name in ("axis", "axes", "keepdims") or family is WINDOWS]
        del node.attribute[:]
        node.attribute.extend(a for a in kept if a.name not in ("count_include_pad", "storage_order", "ceil_mode"))
        node.op_type = random.choice(family)
    elif windows:
        node = random.choice(windows)
        name, most = random.choice((("strides", 3), ("pads", 2), ("dilations", 2), ("kernel_shape", 3)))
        if name == "dilations" and node.op_type in WINDOWS:  # opset 7 to 18 do not have them
            name, most = "strides", 3
        if name == "kernel_shape" and node.op_type not in WINDOWS:
            return
        count = 4 if name == "pads" else 2
        low = 0 if name == "pads" else 1
        for old in [a for a in node.attribute if a.name in (name, "auto_pad")]:
            node.attribute.remove(old)
        node.attribute.append(onnx.helper.make_attribute(name, [random.randrange(low, most + 1) for _ in range(count)]))


def grown(draw: Draw) -> onnx.ModelProto | None:
    """A model of some pieces; None if nothing could be cut."""
    glued = Glued()
    for _ in range(draw.random.choice((1, 1, 2, 3))):
        source = read(draw.random.choice(files()))
        draw.step(lambda random, source=source: glued.add(random, source))
    for _ in range(draw.random.choice((0, 1, 2, 4))):
        draw.step(lambda random: exchange(random, glued.nodes) if glued.nodes else None)
    if not glued.made:
        return None
    model, target = glued.model(draw.random), draw.random.choice(TARGETS)
    if draw.random.random() < 0.6:
        try:
            return onnx.version_converter.convert_version(model, target)
        except Exception:  # the converter does not know every operator and version
            return model
    return model


def run(draw: Draw) -> str:
    """One case. Raises Wrong, and what is no imgconv.Error; returns in a word what came of it."""
    model = grown(draw)
    return "nothing is cut" if model is None else compared(draw, model)
