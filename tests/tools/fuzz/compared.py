"""Drawn models beside onnxruntime, and who is wrong if they differ.

A result may differ by as much as onnxruntime's own result does when its inputs and float constants move by float's
rounding, each element by itself: a normalisation, for example, does not see that all of them grow. If it differs by
more, onnx's reference implementation computes the model in float64. If that has our numbers, the fault is
onnxruntime's; all else is ours until a person has looked.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any
from unittest.mock import patch

import numpy
import onnx
import onnx.helper
import onnx.numpy_helper
import onnx.reference
import onnxruntime
from fuzz.case import Draw, Wrong, asking_oracle, device
from support import run_oracle

import imgconv
from imgconv.cl.context import Context
from imgconv.compiling.plan import Plan
from imgconv.errors import Error, ResourceError
from imgconv.graph.evaluate import evaluate_graph
from imgconv.graph.nodes import Graph
from imgconv.limits import Limits, load_budget
from imgconv.onnx_import import import_onnx
from imgconv.passes import run_passes
from imgconv.runtime.host_fallback import HostFallback

Arrays = dict[str, Any]
Oracle = Callable[[onnx.ModelProto, Arrays], "Arrays | None"]

NODE = onnx.helper.make_node
BOUND = Limits(bytes=2**28, seconds=60, nodes=5000)
EPSILON, HALF_EPSILON = 2.0**-20, 2.0**-10
MOVES, MANY_MOVES = 6, 30  # the latter before a result is called wrong: a tie may fall on one side many times
ON_A_DEVICE = 1 / 8  # of the cases: one takes ten times as long
TOLERANCE = 2e-5
LEAST_SCALE = 1e-2  # what is left of terms about 1 that cancel, in a determinant for example, is off by 1e-7
CONSTANT_BYTES = 2**16  # that OpenCL promises for a program's constants
TRANSFORM = "FT-"  # in the names of DFT and STFT. Some parts are 0, of which onnxruntime makes 1e-6 or -1e-6
GLUE = ("Reshape", "Tile", "Slice", "Tanh", "Max", "Sigmoid", "Cast", "Gather", "Mul", "Add", "Floor", "Greater")
ORACLES_FAULT = "onnxruntime differs, float64 agrees with us"


def different(found: Mapping[str, Any], expected: Arrays, moved: list[Arrays], tolerance: float) -> str:
    """Returns the first difference beyond a tolerance and the scatter of `moved`, the oracle's own results, or ""."""
    for name, want in expected.items():
        have = found[name]
        if any(each[name].shape != want.shape for each in moved):
            continue  # how many elements there are hangs on rounding
        if have.shape != want.shape:
            return f"{name} has the shape {have.shape}, not {want.shape}"
        steady = numpy.all([numpy.isfinite(each[name]) for each in (expected, *moved)], axis=0)
        if not steady.any():
            continue
        scale = max(float(abs(want[steady]).max()), LEAST_SCALE)
        allowed = tolerance * scale + 30 * max(
            (float(abs(each[name][steady] - want[steady]).max()) for each in moved), default=0.0
        )
        off = abs(have[steady].astype(float) - want[steady])
        if not numpy.all(off <= allowed) and allowed < 0.1 * scale:
            return f"{name} is off by {off.max():.3g} of {scale:.3g}, {allowed:.3g} allowed"
    return ""


def nudged(array: Any, random: numpy.random.Generator, epsilon: float) -> Any:
    """The array, each element a little larger or smaller."""
    return array * (1 + random.choice((-1, 1), array.shape) * epsilon).astype(numpy.float32)


def oracle(model: onnx.ModelProto, inputs: Arrays) -> Arrays | None:
    """onnxruntime's result; None if it refuses the model or the numbers."""
    try:
        with asking_oracle():
            return run_oracle(model, inputs)
    except Exception as error:
        if type(error).__module__.startswith("onnxruntime"):
            return None
        raise


def in_double(model: onnx.ModelProto, inputs: Arrays) -> Arrays | None:
    """The result of onnx's reference implementation with float64 for float32; None if it cannot."""
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    widen(wide.graph)
    for value in (*wide.graph.input, *wide.graph.output):
        if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
            value.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    given = {name: array.astype(float) if array.dtype == numpy.float32 else array for name, array in inputs.items()}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = onnx.reference.ReferenceEvaluator(wide).run(None, given)
    except Exception:  # it lacks operators, and takes float64 in some of them only
        return None
    return dict(zip((value.name for value in wide.graph.output), made, strict=True))


def widen(graph: onnx.GraphProto) -> None:
    """Makes float32 constants, and casts to float32, double."""
    for tensor in graph.initializer:
        widen_tensor(tensor)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                widen(attribute.g)
            elif attribute.type == onnx.AttributeProto.TENSOR:
                widen_tensor(attribute.t)
            elif node.op_type == "Cast" and attribute.i == onnx.TensorProto.FLOAT:
                attribute.i = onnx.TensorProto.DOUBLE


def widen_tensor(tensor: onnx.TensorProto) -> None:
    array = onnx.numpy_helper.to_array(tensor)
    if array.dtype == numpy.float32:
        tensor.CopyFrom(onnx.numpy_helper.from_array(array.astype(float), tensor.name))


def moved_result(
    model: onnx.ModelProto, inputs: Arrays, epsilon: float, seed: int, asked: Oracle | None = None
) -> Arrays | None:
    """The result of onnxruntime, or of `asked`, for nudged inputs, float constants and glue, and rounded transforms."""
    moved, random = onnx.ModelProto(), numpy.random.default_rng(seed)
    moved.CopyFrom(model)
    for tensor in moved.graph.initializer:
        array = onnx.numpy_helper.to_array(tensor)
        if array.dtype == numpy.float32:
            tensor.CopyFrom(onnx.numpy_helper.from_array(nudged(array, random, epsilon), tensor.name))
    del moved.graph.node[:]
    for number, node in enumerate(model.graph.node):
        moved.graph.node.append(node)
        name = node.output[0] if node.op_type in ("Tanh", "Sigmoid") or TRANSFORM in node.name else ""
        if not name:
            continue
        still, by, whole = f"{name}_still", f"{name}_by", f"{name}_whole"
        moved.graph.node[-1].output[0] = still
        if TRANSFORM in node.name:
            grid = NODE("Constant", [], [by], value_float=16 * epsilon)
            rounded = NODE("Div", [still, by], [f"{name}_times"]), NODE("Round", [f"{name}_times"], [whole])
            moved.graph.node.extend([grid, *rounded, NODE("Mul", [whole, by], [name])])
        else:
            own = float(1000 * seed + number)  # two tensors that are equal differ then
            drawn = NODE("RandomUniformLike", [still], [by], low=1 - epsilon, high=1 + epsilon, seed=own)
            moved.graph.node.extend([drawn, NODE("Mul", [still, by], [name])])
    given = {
        name: nudged(array, random, epsilon) if array.dtype == numpy.float32 else array
        for name, array in inputs.items()
    }
    return (asked or oracle)(moved, given)


def leaves_floats(model: onnx.ModelProto, inputs: Arrays) -> bool:
    """Returns whether a tensor has NaN or nearly infinity. onnxruntime drops NaN in a maximum, and sums in fp32."""
    every = onnx.ModelProto()
    every.CopyFrom(model)
    known = {value.name for value in model.graph.output}
    names = {name for node in model.graph.node for name in node.output if name}
    every.graph.output.extend(onnx.ValueInfoProto(name=name) for name in sorted(names - known))
    arrays = (oracle(every, inputs) or {}).values()
    return any(a.dtype.kind == "f" and not numpy.all(abs(a) < numpy.finfo(a.dtype).max / 10) for a in arrays)


def judged(
    model: onnx.ModelProto, inputs: Arrays, expected: Arrays, ways: Mapping[str, Mapping[str, Any]], has_half: bool
) -> str:
    """Compares results, by the way they were made, with onnxruntime's. Returns a summary; raises Wrong if we are wrong.

    has_half: a tensor of the model is stored as fp16.
    """
    for way, found in ways.items():
        half = "float16" in way or has_half
        tolerance, epsilon = (2e-2, HALF_EPSILON) if half else (TOLERANCE, EPSILON)
        if not different(found, expected, [], tolerance):
            continue
        if leaves_floats(model, inputs):
            return "no finite numbers inside"
        for moves in (MOVES, MANY_MOVES):
            moved = [each for n in range(moves) if (each := moved_result(model, inputs, epsilon, n)) is not None]
            if len(moved) < moves:
                return "onnxruntime refuses its inputs moved"
            if not (problem := different(found, expected, moved, tolerance)):
                break
        else:
            if agrees_in_double(model, inputs, found, tolerance, epsilon):
                return ORACLES_FAULT
            nodes = [n.name or n.op_type for n in model.graph.node if n.name or n.op_type not in GLUE]
            raise Wrong(f"{way}: {problem}; {nodes}, onnxruntime {onnxruntime.__version__}")
    return f"{len(ways)} ways agree"


def agrees_in_double(
    model: onnx.ModelProto, inputs: Arrays, found: Mapping[str, Any], tolerance: float, epsilon: float
) -> bool:
    """Returns whether the reference implementation in float64 has these results, up to its scatter for moved inputs."""
    exact = in_double(model, inputs)
    if exact is None:
        return False
    tries = (moved_result(model, inputs, epsilon, n, in_double) for n in range(MOVES))
    moved = [each for each in tries if each is not None]
    return len(moved) == MOVES and not different(found, exact, moved, tolerance)


def drawn_inputs(model: onnx.ModelProto, seed: int) -> Arrays:
    """Random floats for each input."""
    numbers = numpy.random.default_rng(seed)
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in model.graph.input}
    return {name: numbers.uniform(-2, 2, shape).astype(numpy.float32) for name, shape in shapes.items()}


def imported(model: onnx.ModelProto) -> tuple[Graph, Graph] | Error:
    """The graph of a model, before and after the passes; or why there is none."""
    try:
        with warnings.catch_warnings(), load_budget(BOUND):
            warnings.simplefilter("ignore")
            graph = import_onnx(model)
            return graph, run_passes(graph)
    except Error as error:
        return error


def compared(draw: Draw, model: onnx.ModelProto) -> str:
    """Runs a model of float inputs and compares it with onnxruntime. Returns a summary; raises Wrong."""
    inputs = drawn_inputs(model, draw.seed)
    expected = oracle(model, inputs)
    if expected is None:
        return "onnxruntime refuses it"
    graphs = imported(model)
    if isinstance(graphs, Error):
        return type(graphs).__name__
    graph, passed = graphs
    ways = {"imported": in_numpy(graph, inputs), "after the passes": in_numpy(passed, inputs)}
    if draw.random.random() < ON_A_DEVICE and (context := device()) is not None:
        how, name = setting(draw, context)
        try:
            with patch.dict(os.environ, PYOPENCL_BUILD_OPTIONS=how.pop("options")):
                loaded = imgconv.load(graph, device=context.info, **how)
        except ResourceError as error:
            if "max_image" in how:
                return type(error).__name__  # no tiling of such small images holds a tensor
            raise
        ways[name] = loaded.run(inputs)
        check_constants(loaded.plan)
    said = judged(model, inputs, expected, ways, stores_half(model, graph))
    return said if graph.host_partition is None else f"{said}, with a fallback"


def check_constants(plan: Plan) -> None:
    """Raises Wrong if a kernel has larger tables than every device takes; the drivers of CPUs take any."""
    for launch in plan.launches:
        tables = re.findall(r"__constant (short|int) \w+\[(\d+)\]", launch.source.text)
        if sum((2 if kind == "short" else 4) * int(count) for kind, count in tables) > CONSTANT_BYTES:
            raise Wrong(f"a kernel has tables of over {CONSTANT_BYTES} bytes")


def stores_half(model: onnx.ModelProto, graph: Graph) -> bool:
    """Returns whether the oracle rounds to fp16 somewhere; imgconv does not round inside fused nodes or constants."""
    half = onnx.TensorProto.FLOAT16
    constants = any(tensor.data_type == half for tensor in model.graph.initializer)
    return constants or any(node.output.dtype == "float16" for node in graph.nodes)


def in_numpy(graph: Graph, inputs: Arrays) -> Arrays:
    """A graph's results without a device."""
    made, fallback = evaluate_graph(
        graph, inputs), HostFallback.prepare(graph.host_partition, graph.inputs, graph.outputs
    )
    return made if fallback is None else fallback.finish(made, fallback.arrays_of_inputs(inputs))


def setting(
    draw: Draw, context: Context, arguments: tuple[dict[str, Any], ...] | None = None
) -> tuple[dict[str, Any], str]:
    """Arguments of `load`, one of those given or of the usual ones, the compiler's `options`, and a name for both.

    Compilers take half as long if they do not optimise: nine in ten. NVIDIA's does not link functions then.
    """
    most = 2 if context.info.fp16_arithmetic else 1
    usual = ({}, {}, {"max_image": 8}, {"float16": 1}, {"float16": most})
    how: dict[str, Any] = dict(draw.random.choice(arguments or usual))
    optimised = draw.random.random() < 0.1 or context.info.platform == "NVIDIA CUDA"
    options = "" if optimised else "-cl-opt-disable"
    return {**how, "options": options}, f"on a device {how}{' ' * bool(options)}{options}"
