"""Networks glued together out of cases of every operator, against onnxruntime: in numpy, planned, and on a device.

A case's float inputs read what the cases before it made, fitted to their shapes. A result may differ by as much as
onnxruntime's own result does when its inputs and float constants move by float's rounding, each element by itself: a
normalisation, for example, does not see that all of them grow.
"""

from __future__ import annotations

import os
import random
import warnings
from functools import cache
from typing import Any
from unittest.mock import patch

import numpy
import onnx
import onnx.helper
import onnx.numpy_helper
import onnxruntime
from fuzz.case import Draw, Wrong, asking_oracle, device
from operators import Case, Constant
from support import make_model, run_oracle
from test_operators import FAMILIES

import imgconv
from imgconv.cl.device import Context
from imgconv.errors import Error
from imgconv.graph.evaluate import evaluate_graph
from imgconv.graph.nodes import Graph
from imgconv.limits import Limits, spending
from imgconv.onnx_import import import_onnx
from imgconv.passes import run_passes

NODE = onnx.helper.make_node
BOUND = Limits(bytes=2**28, seconds=60, nodes=5000)
EPSILON, HALF_EPSILON = 2.0**-20, 2.0**-10
MOVES = 6
ON_A_DEVICE = 1 / 8  # of the cases: one takes ten times as long
TOLERANCE = 2e-5
GLUE = ("Reshape", "Tile", "Slice", "Tanh", "Sigmoid", "Cast", "Gather")


@cache
def cases() -> dict[int, tuple[Case, ...]]:
    """By opset: the cases with a float input and one output that onnxruntime computes too."""
    found: dict[int, list[Case]] = {}
    for family in FAMILIES.values():
        for case in family:
            if any(isinstance(x, tuple) for x in case.inputs) and not case.domain and case.opset >= 9:
                found.setdefault(case.opset, []).append(case)
    return {opset: tuple(rows) for opset, rows in found.items() if len(rows) > 10}


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
            NODE("Tanh" if low < 0 else "Sigmoid", [made], [near]),
        ]
        return near

    def add(self, random: random.Random, case: Case) -> None:
        """A case whose float inputs are fitted from earlier results."""
        names = []
        for given in case.inputs:
            if given is None:
                names.append("")
            elif isinstance(given, tuple):
                names.append(self.fitted(random, random.choice(self.made[-3:]), given, case.low))
            else:
                names.append(self.constant(given.array if isinstance(given, Constant) else given))
        output = f"y{len(self.made)}"
        self.nodes.append(NODE(case.op_type, names, [output], name=f"{case}_{len(self.made)}", **case.attributes))
        as_float = f"{output}_float"
        self.nodes.append(NODE("Cast", [output], [as_float], to=1))
        self.made.append(as_float)

    def model(self, random: random.Random) -> onnx.ModelProto:
        self.outputs = list(dict.fromkeys([self.made[-1], random.choice(self.made[1:])]))
        arrays = {name: numpy.zeros(shape, numpy.float32) for name, shape in self.inputs.items()}
        return make_model(self.nodes, arrays, self.outputs, self.opset, self.constants)


def different(found: dict[str, Any], expected: dict[str, Any], moved: list[dict[str, Any]], tolerance: float) -> str:
    """Where results differ by more than a tolerance, or the oracle's own do, as text; "" if nowhere. moved: these."""
    for name, want in expected.items():
        have = found[name]
        if any(each[name].shape != want.shape for each in moved):
            continue  # how many elements there are hangs on rounding
        if have.shape != want.shape:
            return f"{name} has the shape {have.shape}, not {want.shape}"
        steady = numpy.all([numpy.isfinite(each[name]) for each in (expected, *moved)], axis=0)
        if not steady.any():
            continue
        scale = max(float(abs(want[steady]).max()), 1e-3)
        allowed = tolerance * scale + 30 * max(
            (float(abs(each[name][steady] - want[steady]).max()) for each in moved), default=0.0
        )
        off = abs(have[steady].astype(float) - want[steady])
        if not numpy.all(off <= allowed) and allowed < 0.1 * scale:
            return f"{name} is off by {off.max():.3g} of {scale:.3g}, {allowed:.3g} allowed"
    return ""


def glued(draw: Draw) -> onnx.ModelProto:
    opset = draw.random.choice(sorted(cases()))
    shape = draw.random.choice(((1, 3, 5, 4), (2, 5), (7,), (1, 4, 3, 3, 2), (1, 8, 1, 1), (3, 2, 6, 5)))
    network = Network(opset, shape)
    for _ in range(draw.random.randrange(1, 6)):
        case = draw.random.choice(cases()[opset])
        draw.step(lambda random, case=case: network.add(random, case))
    if len(network.made) == 1:
        return make_model([NODE("Relu", ["x"], ["y"])], {"x": numpy.zeros(shape, "f")}, ["y"], opset)
    return network.model(draw.random)


def nudged(array: Any, random: numpy.random.Generator, epsilon: float) -> Any:
    """The array, each element a little larger or smaller."""
    return array * (1 + random.choice((-1, 1), array.shape) * epsilon).astype(numpy.float32)


def oracle(model: onnx.ModelProto, inputs: dict[str, Any]) -> dict[str, Any] | None:
    """onnxruntime's result; None if it refuses the model or the numbers."""
    try:
        with asking_oracle():
            return run_oracle(model, inputs, threads=1)
    except Exception as error:
        if type(error).__module__.startswith("onnxruntime"):
            return None
        raise


def moved_result(
    model: onnx.ModelProto, inputs: dict[str, Any], epsilon: float, seed: int
) -> dict[str, Any] | None:
    """The oracle's result with its inputs, its float constants and what the glue makes nudged."""
    moved, random = onnx.ModelProto(), numpy.random.default_rng(seed)
    moved.CopyFrom(model)
    for tensor in moved.graph.initializer:
        array = onnx.numpy_helper.to_array(tensor)
        if array.dtype == numpy.float32:
            tensor.CopyFrom(onnx.numpy_helper.from_array(nudged(array, random, epsilon), tensor.name))
    del moved.graph.node[:]
    for number, node in enumerate(model.graph.node):
        moved.graph.node.append(node)
        if node.op_type in ("Tanh", "Sigmoid"):
            name = node.output[0]
            still, factor = f"{name}_still", f"{name}_factor"
            moved.graph.node[-1].output[0] = still
            own = float(1000 * seed + number)  # two tensors that are equal differ then
            drawn = NODE("RandomUniformLike", [still], [factor], low=1 - epsilon, high=1 + epsilon, seed=own)
            moved.graph.node.extend([drawn, NODE("Mul", [still, factor], [name])])
    return oracle(moved, {name: nudged(array, random, epsilon) for name, array in inputs.items()})


def leaves_floats(model: onnx.ModelProto, inputs: dict[str, Any]) -> bool:
    """Whether a tensor inside is NaN or nearly infinite. onnxruntime drops NaN in a maximum, and sums in float."""
    every = onnx.ModelProto()
    every.CopyFrom(model)
    known = {value.name for value in model.graph.output}
    names = {name for node in model.graph.node for name in node.output if name}
    every.graph.output.extend(onnx.ValueInfoProto(name=name) for name in sorted(names - known))
    arrays = (oracle(every, inputs) or {}).values()
    return any(a.dtype.kind == "f" and not numpy.all(abs(a) < numpy.finfo(a.dtype).max / 10) for a in arrays)


def run(draw: Draw) -> str:
    """One case. Raises Wrong, and what is no imgconv.Error; returns in a word what came of it."""
    return compared(draw, glued(draw))


def compared(draw: Draw, model: onnx.ModelProto) -> str:
    """What came of a model whose inputs are floats, beside onnxruntime's results. Raises Wrong."""
    numbers, inputs = numpy.random.default_rng(draw.seed), {}
    for each in model.graph.input:
        dims = [d.dim_value for d in each.type.tensor_type.shape.dim]
        inputs[each.name] = numbers.uniform(-2, 2, dims).astype(numpy.float32)
    expected = oracle(model, inputs)
    if expected is None:
        return "onnxruntime refuses it"
    try:
        with warnings.catch_warnings(), spending(BOUND):
            warnings.simplefilter("ignore")
            graph = import_onnx(model)
            passed = run_passes(graph)
    except Error as error:
        return f"{type(error).__name__}"
    ways = {"imported": evaluate_graph(graph, inputs), "after the passes": evaluate_graph(passed, inputs)}
    if draw.random.random() < ON_A_DEVICE and (context := device()) is not None:
        ways |= on_a_device(draw, graph, context, inputs)
    # Fused, a Cast to float16 and back is left out.
    has_half = any(node.output.dtype == "float16" for node in graph.nodes)
    for way, found in ways.items():
        half = "float16" in way or has_half
        tolerance, epsilon = (2e-2, HALF_EPSILON) if half else (TOLERANCE, EPSILON)
        if not different(found, expected, [], tolerance):
            continue
        if leaves_floats(model, inputs):
            return "no finite numbers inside"
        moved = [each for n in range(MOVES) if (each := moved_result(model, inputs, epsilon, n)) is not None]
        if len(moved) < MOVES:
            return "onnxruntime refuses its inputs moved"
        if problem := different(found, expected, moved, tolerance):
            nodes = [n.name or n.op_type for n in model.graph.node if n.name or n.op_type not in GLUE]
            raise Wrong(f"{way}: {problem}; {nodes}, onnxruntime {onnxruntime.__version__}")
    return f"{len(ways)} ways agree"


def on_a_device(draw: Draw, graph: Graph, context: Context, inputs: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The result of one setting, by its name. Compilers take half as long if they do not optimise: nine in ten."""
    most = 2 if context.info.fp16_arithmetic else 1
    how = draw.random.choice(({}, {}, {"max_image": 8}, {"float16": 1}, {"float16": most}))
    optimised = draw.random.random() < 0.1 or context.info.platform == "NVIDIA CUDA"  # it does not link the others
    options = "" if optimised else "-cl-opt-disable"
    with patch.dict(os.environ, PYOPENCL_BUILD_OPTIONS=options):
        found = imgconv.load(graph, device=context.info, **how).run(inputs)
    return {f"on a device {how}{' ' * bool(options)}{options}": found}
