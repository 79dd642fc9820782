"""Networks glued together out of cases of every operator, against onnxruntime: in numpy, planned, and on a device.

A case's inputs of floats, small integers and truths read what the cases before it made, fitted to their shapes.
"""

from __future__ import annotations

import random
from typing import Any

import numpy
import onnx
import onnx.helper
from fuzz.case import Draw
from fuzz.compared import NODE, compared
from fuzz.every_case import OPSETS, by_operator
from operator_cases import Case, Constant
from support import make_model

DOMAINS = ("com.microsoft", "ai.onnx.ml")
SHAPES = ((1, 3, 5, 4), (2, 5), (7,), (1, 4, 3, 3, 2), (1, 8, 1, 1), (3, 2, 6, 5))
FIXED = 0.4  # of the inputs after a case's first, weights for example, are constants
# What is made true, or rounded down, is so many above 0: sums that cancel come to 0 there, or to 1e-9 or -1e-9.
ASIDE = 0.03
LEAST = -8.0  # that a sigmoid reads: onnxruntime's of -50 is 0 and not 2e-22
INSIDE = 0.05  # of the nodes stand in the branches of an If


class Network:
    """A model that grows by cases."""

    def __init__(self, opset: int, shape: tuple[int, ...]) -> None:
        self.opset, self.nodes = opset, list[onnx.NodeProto]()
        self.inputs: dict[str, tuple[int, ...]] = {"x": shape}
        self.constants: dict[str, Any] = {}
        self.feeds: dict[str, Any] = {}
        self.made: list[str] = ["x"]
        self.outputs: list[str] = []

    def constant(self, array: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = numpy.asarray(array)
        return name

    def fitted(self, random: random.Random, name: str, shape: tuple[int, ...], low: float) -> str:
        """The elements of a tensor, again from the start if they are too few, in a shape and a range."""
        count = int(numpy.prod(shape))
        flat, many, few, made, near = (f"{name}_{len(self.nodes)}_{part}" for part in "abcde")
        again = self.constant(numpy.array([count], numpy.int64))
        self.nodes += [
            NODE("Reshape", [name, self.constant(numpy.array([-1], numpy.int64))], [flat]),
            NODE("Tile", [flat, again], [many]),
            NODE("Slice", [many, self.constant(numpy.array([0], numpy.int64)), again], [few]) if self.opset >= 10 else
            NODE("Slice", [many], [few], starts=[0], ends=[count]),
            NODE("Reshape", [few, self.constant(numpy.array(shape, numpy.int64))], [made]),
        ]
        if low < 0:
            self.nodes.append(NODE("Tanh", [made], [near]))
        else:
            above = f"{made}_above"
            self.nodes.append(NODE("Max", [made, self.constant(numpy.float32(LEAST))], [above]))
            self.nodes.append(NODE("Sigmoid", [above], [near]))
        return near

    def fitted_like(self, random: random.Random, array: Any, low: float) -> str:
        """Elements of a result in the shape, type and range of an array; the array itself if it is no such thing."""
        kind, bounds = array.dtype, (float(array.min()), float(array.max())) if array.size else (0.0, 0.0)
        mixed = kind == numpy.float32 and bounds[0] < 0 < bounds[1] and numpy.isfinite(bounds).all()
        if not array.size or not (mixed or kind in (numpy.int8, numpy.uint8, numpy.bool_)) or random.random() < 0.3:
            return self.constant(array)
        near = self.fitted(random, random.choice(self.made[-3:]), array.shape, -1)
        if mixed:
            return near
        made = f"{near}_{kind}"
        if kind == numpy.bool_:
            self.nodes.append(NODE("Greater", [near, self.constant(numpy.float32(ASIDE))], [made]))
            return made
        factor, offset = (numpy.float32(each) for each in ((bounds[1] - bounds[0]) / 2, (bounds[0] + bounds[1]) / 2))
        self.nodes += [
            NODE("Mul", [near, self.constant(factor)], [f"{made}_wide"]),
            NODE("Add", [f"{made}_wide", self.constant(offset + numpy.float32(ASIDE))], [f"{made}_moved"]),
            NODE("Floor", [f"{made}_moved"], [f"{made}_whole"]),
            NODE("Cast", [f"{made}_whole"], [made], to=onnx.helper.np_dtype_to_tensor_dtype(kind)),
        ]
        return made

    def add(self, random: random.Random, case: Case) -> None:
        """A case whose inputs are fitted from earlier results."""
        names = []
        for given in case.inputs:
            if given is None:
                names.append("")
            elif isinstance(given, tuple) and names and random.random() < FIXED:
                numbers = numpy.random.default_rng(random.randrange(2**31))
                names.append(self.constant(numbers.uniform(max(case.low, -1), 1, given).astype(numpy.float32)))
            elif isinstance(given, tuple):
                names.append(self.fitted(random, random.choice(self.made[-3:]), given, case.low))
            elif isinstance(given, Constant):
                names.append(self.constant(given.array))
            else:
                names.append(self.fitted_like(random, numpy.asarray(given), case.low))
        outputs = [f"y{len(self.made)}_{number}" for number in range(case.outputs)]
        label = f"{case}_{len(self.made)}"
        node = NODE(case.op_type, names, outputs, name=label, domain=case.domain, **case.attributes)
        if random.random() < INSIDE:
            branch = onnx.helper.make_graph([node], "branch", [], [onnx.ValueInfoProto(name=name) for name in outputs])
            yes = self.constant(numpy.array(random.random() < 0.5))
            node = NODE("If", [yes], outputs, name=f"If of {label}", then_branch=branch, else_branch=branch)
        self.nodes.append(node)
        for output in outputs:
            self.nodes.append(NODE("Cast", [output], [f"{output}_float"], to=1))
            self.made.append(f"{output}_float")

    def model(self, random: random.Random, outputs: list[str] | None = None) -> onnx.ModelProto:
        """The model with these outputs; by default the last result, and any."""
        self.outputs = outputs or list(dict.fromkeys([self.made[-1], random.choice(self.made[1:])]))
        arrays = {name: numpy.zeros(shape, numpy.float32) for name, shape in self.inputs.items()}
        made = make_model(self.nodes, arrays, self.outputs, self.opset, self.constants)
        made.opset_import.extend(onnx.helper.make_opsetid(domain, 1) for domain in DOMAINS)
        return made


def glued(draw: Draw) -> onnx.ModelProto:
    opset, shape = draw.random.choice(OPSETS), draw.random.choice(SHAPES)
    network = Network(opset, shape)
    for _ in range(draw.random.randrange(1, 6)):
        add_any(draw, network)
    if len(network.made) == 1:
        return make_model([NODE("Relu", ["x"], ["y"])], {"x": numpy.zeros(shape, "f")}, ["y"], opset)
    return network.model(draw.random)


def add_any(draw: Draw, network: Network) -> None:
    """A case of an operator: half of the time of any operator alike, else the more often the more cases it has."""
    operators = by_operator(network.opset)
    name = draw.random.choice(sorted(operators))
    every = [case for cases in operators.values() for case in cases]
    case = draw.random.choice(operators[name] if draw.random.random() < 0.5 else every)
    draw.step(lambda random: network.add(random, case))


def run(draw: Draw) -> str:
    """One case. Raises Wrong, and what is no imgconv.Error; returns in a word what came of it."""
    return compared(draw, glued(draw))
