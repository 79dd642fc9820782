"""Compares imgconv's results in fp32 and fp16 with onnxruntime's, layer by layer.

A layer is a launch that completes a value, with everything fused into it. onnxruntime computes every tensor that the
graph still has after the passes, under the same name. fp32 results are compared with onnxruntime's, fp16 results with
the fp32 results. Errors are relative to the layer's largest magnitude.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy

from imgconv.arrays import Array, Arrays
from imgconv.compiling.compiler import PreparedGraph
from imgconv.compiling.plan import Launch
from imgconv.config import Precision
from imgconv.dtype import FLOAT32
from imgconv.errors import Error, MissingPackageError
from imgconv.graph.nodes import Graph
from imgconv.kernels.target import HALF_MAX
from imgconv.runtime.device import Device
from imgconv.runtime.io_binding import check_inputs
from imgconv.runtime.host_fallback import HostFallback
from imgconv.precision.choose import is_quantised
from imgconv.precision.statistics import magnitude
from imgconv.runtime.programs import ProgressCallback
from imgconv.precision.loss import relative_error
from imgconv.runtime.session import Session

# Rounding has a relative error of 5e-4 in half and 6e-8 in float, at each layer. A network of fifty layers that
# amplifies nothing stays below these bounds; an error above has other causes than rounding.
HALF_BOUND = 1e-2
FLOAT_BOUND = 1e-3
# How much larger the difference from onnxruntime may be than onnxruntime's own, when its inputs move by one unit in the
# last place. That disturbs a network once, at its start. A device sums in another order, which disturbs each layer as
# much: about fifty times in all. Independent disturbances add up as the root of their number, and the root of 50 is 7.
# A difference that is larger has another cause than rounding. A QuantizeLinear at the start rounds the disturbance
# away; then onnxruntime's results with and without its graph optimisations show what another order of sums changes.
UNSTABLE = 7.0
PERTURBED, OPTIMISED = "if its inputs change by 1e-7", "with and without its graph optimisations"

# By Layer.sums.
SUM_TYPES = {"float": "fp32", "runs": "chunks", "half": "fp16"}


@dataclass(frozen=True)
class LayerErrors:
    """The measurements of one value.

    largest: its largest magnitude in float. float_difference, float_error: the largest difference from onnxruntime,
    absolute and divided by the largest magnitude there; None if onnxruntime has no such tensor. rounding: the relative
    error of rounding only this value to half, inf if it overflows. stored: its dtype in the half plan, empty if
    it is only in local memory there. half_difference, half_error: the difference of half from float, absolute and
    relative; None if half was not run, or the value is only in local memory. problem: why it is over a bound, or "".
    sums: how its convolution sums in the half plan: "float", "runs" or "half"; empty for others. is_output: whether it
    is an output of the model. fault: of an output, the problem that the model is judged by. in_half: of an output, the
    problem that it would have in half, which is not judged. unstable: the error of onnxruntime from itself, if that
    explains the difference; yardstick: the change between its two runs, PERTURBED or OPTIMISED.
    """

    name: str
    shape: tuple[int, ...]
    operation: str
    origin: tuple[str, ...]
    largest: float
    rounding: float
    float_difference: float | None = None
    float_error: float | None = None
    stored: str = ""
    half_difference: float | None = None
    half_error: float | None = None
    problem: str = ""
    sums: str = ""
    is_output: bool = False
    fault: str = ""
    in_half: str = ""
    unstable: float | None = None
    yardstick: str = ""

    @property
    def worst(self) -> float:
        """Its largest error, with one of float counted tenfold, as the bounds are a tenth; NaN is infinite."""
        errors = [10 * (self.float_error or 0.0), self.half_error or 0.0]
        return max(numpy.inf if numpy.isnan(error) else error for error in errors)


def check_oracle(command: str) -> None:
    """Raises MissingPackageError if onnxruntime is not installed."""
    try:
        import onnxruntime  # noqa: F401
    except ImportError as error:
        raise MissingPackageError("onnxruntime", "verify", command) from error


def verify(
    path: str | os.PathLike[str], prepared: PreparedGraph, context: Device, inputs: Arrays,
    bound: float = HALF_BOUND, precision: Precision | None = None, progress: ProgressCallback | None = None,
    judge_half: bool = True,
) -> list[LayerErrors]:
    """Returns every layer in order. prepared: the file at `path`; inputs: arrays by input name.

    The settings' float16 is the mode of the half run, 0 for none. precision: the values that keep float in it (default:
    none). bound: the relative error of half that is a problem; in float a tenth of it is one, except for tensors that
    are half in the file, because onnxruntime rounds those itself. judge_half: whether an output's error in half is a
    fault. Outputs that the host computes come last. Raises InputError, Error without onnxruntime, and what Session
    raises.
    """
    graph, config = prepared.graph, prepared.config
    inputs = check_inputs(graph.inputs, inputs)
    plans = [prepared.plan(replace(config, float16=0))]
    if config.storage != FLOAT32:
        plans.append(prepared.plan(replace(config, precision=precision or Precision())))
    sessions = [Session(plan, context, progress) for plan in plans]
    if progress:
        progress(0, 0, "running onnxruntime")
    fallback = HostFallback.prepare(graph.host_partition, graph.inputs, graph.outputs)
    wanted = fallback.names if fallback else graph.outputs
    expected = reference(path, graph, inputs)
    launches = {name: plans[0].launches[number] for number, name in plans[0].completed_values.items()}
    stored = {name: str(place.storage.dtype) for name, place in plans[-1].placements.items()}
    sums = {name: launch.sums for launch in plans[-1].launches if launch.sums for name in launch.values}
    layers: list[LayerErrors] = []
    outputs: dict[str, Array] = {}
    for number, (name, found, half) in enumerate(_values_of_runs(sessions, inputs)):
        if progress:
            progress(number, len(launches), "comparing layers")
        layer = replace(_layer_errors(launches[name], found, expected.get(name)), is_output=name in wanted)
        if len(sessions) > 1:
            layer = replace(layer, stored=stored.get(name, ""), sums=sums.get(name, ""))
        if half is not None:
            layer = replace(
                layer, half_difference=difference(half, found), half_error=relative_error({"": half}, {"": found}),
            )
        layers.append(layer)
        if layer.is_output:
            outputs[name] = found
    if fallback:
        results = [fallback.finish(session.outputs(), fallback.arrays_of_inputs(inputs)) for session in sessions]
        ends = [name for name in fallback.partition.graph.outputs if name in expected]
        layers += [_host_errors(name, expected[name], *(result[name] for result in results)) for name in ends]
    judged = [_with_problems(layer, expected.get(layer.name), bound, judge_half) for layer in layers]
    for yardstick in (PERTURBED, OPTIMISED) if is_quantised(graph) else ():
        if not any(each.fault for each in judged):
            break
        if progress:
            progress(0, 0, f"running onnxruntime, whose results may differ {yardstick}")
        if yardstick == PERTURBED:
            other, made = reference(path, graph, perturbed_inputs(inputs)), {}
        else:
            other, made = reference(path, graph, inputs, optimised=True), outputs
        runs = [(layer, expected.get(layer.name), other.get(layer.name), made.get(layer.name)) for layer in layers]
        layers = [_explained_by_other_run(*each, bound / 10, yardstick) for each in runs]
        judged = [_with_problems(layer, expected.get(layer.name), bound, judge_half) for layer in layers]
    return judged


def perturbed_inputs(inputs: Arrays) -> dict[str, Array]:
    """Inputs with each float next to its number, above or below: perturbed by 1e-7 of it at most."""
    random, made = numpy.random.default_rng(1), {}
    for name, array in inputs.items():
        is_float = array.dtype in (numpy.float32, numpy.float64)
        ways = numpy.where(random.random(array.shape) < 0.5, -numpy.inf, numpy.inf).astype(numpy.float32)
        made[name] = numpy.nextafter(array.astype(numpy.float32), ways).astype(array.dtype) if is_float else array
    return made


def _explained_by_other_run(
    layer: LayerErrors, expected: Any, other: Any, found: Array | None, bound: float, yardstick: str
) -> LayerErrors:
    """The layer, unstable if onnxruntime's other run differs by more than the bound, and explains the difference.

    In a quantised network the least change decides to which of two levels a number between them is rounded. found: the
    layer's value, which may then be as near to the other run of the same inputs; None for one of other inputs.
    """
    if layer.unstable or layer.float_error is None or not isinstance(other, numpy.ndarray):
        return layer
    if not isinstance(expected, numpy.ndarray) or expected.dtype.kind != "f" or other.shape != expected.shape:
        return layer
    own, error = relative_error({"": other}, {"": expected}), layer.float_error
    if found is not None:
        error = min(error, relative_error({"": found}, {"": other}))
    explained = bound < own and error <= own * (UNSTABLE if found is None else 1)
    return replace(layer, unstable=own, yardstick=yardstick) if explained else layer


def _values_of_runs(sessions: Sequence[Session], inputs: Arrays) -> Iterator[tuple[str, Array, Array | None]]:
    """Yields each value of the first session by name, and the same value of the second.

    None if there is no second session, or if its plan keeps the value in local memory, inside of a launch.
    """
    wide, *narrow = sessions
    others = narrow[0].steps(inputs) if narrow else iter(())
    common = narrow[0].plan.completed_values.values() if narrow else ()
    for name in wide.steps(inputs):
        half = None
        if name in common:
            completed = next(others)
            assert completed == name, (completed, name)
            half = narrow[0].value(name)
        yield name, wide.value(name), half
    assert next(others, None) is None


def _with_problems(layer: LayerErrors, expected: Any, bound: float, judge_half: bool) -> LayerErrors:
    is_half = isinstance(expected, numpy.ndarray) and expected.dtype == numpy.float16
    bounds = (bound, bound if is_half else bound / 10)
    float_error = None if layer.unstable else layer.float_error
    judged = replace(layer, float_error=float_error, half_error=layer.half_error if judge_half else None)
    problem = problem_of(judged, *bounds)
    hidden = not judge_half and layer.is_output
    in_half = problem_of(replace(layer, float_error=None), *bounds) if hidden else ""
    return replace(layer, problem=problem, fault=problem if layer.is_output else "", in_half=in_half)


def _host_errors(name: str, expected: Any, found: Any, half: Any = None) -> LayerErrors:
    """The Layer of an output that the host computes. half: that of the half run, None without one.

    Another shape, which data decide, is an infinite error. A sequence is compared as one row of all its numbers,
    and of strings, which are equal.
    """
    if isinstance(found, numpy.ndarray) and found.dtype == object:
        same = [None if each is None else _same_texts(each, found) for each in (expected, half)]
        return _host_errors(name, same[0], numpy.ones(found.shape), same[1])
    mine, shape = _flattened(found), found.shape if isinstance(found, numpy.ndarray) else ()
    gap, error = _absolute_and_relative_error(mine, _flattened(expected))
    layer = LayerErrors(name, shape, "on the host", (), magnitude(mine), 0.0, gap, error, is_output=True)
    if half is None:
        return layer
    gap, error = _absolute_and_relative_error(_flattened(half), mine)
    return replace(layer, half_difference=gap, half_error=error)


def _same_texts(texts: Array, found: Array) -> Array:
    """1 for each string that is the one found, else 0; nothing if there are more or fewer."""
    return (texts == found).astype(numpy.float64) if texts.shape == found.shape else numpy.zeros(0)


def _flattened(value: Any) -> Array:
    arrays = value if isinstance(value, list) else [value]
    return numpy.concatenate([numpy.zeros(0), *(numpy.asarray(each, numpy.float64).ravel() for each in arrays)])


def _absolute_and_relative_error(found: Array, expected: Array) -> tuple[float, float]:
    """The largest difference, and that in parts of the largest value."""
    if found.shape != expected.shape:
        return float("inf"), float("inf")
    return difference(found, expected), relative_error({"": found}, {"": expected})


def _layer_errors(launch: Launch, found: Array, expected: Array | None) -> LayerErrors:
    """The Layer of a value in the float run. expected: onnxruntime's tensor, or None."""
    with numpy.errstate(over="ignore"):
        rounding = relative_error({"": found.astype(numpy.float16)}, {"": found})
    layer = LayerErrors(launch.name, found.shape, launch.description, launch.origin, magnitude(found), rounding)
    if expected is None:
        return layer
    assert expected.shape == found.shape, f"{launch.name} is {list(found.shape)}, in ONNX {list(expected.shape)}"
    error = relative_error({"": found}, {"": expected})
    return replace(layer, float_difference=difference(found, expected), float_error=error)


def problem_of(layer: LayerErrors, half_bound: float, float_bound: float) -> str:
    """Returns a few words on what is wrong with a layer; "" if nothing is."""
    if layer.float_error is not None and not layer.float_error <= float_bound:
        return f"differs from onnxruntime by {layer.float_error:.2g} in fp32, over {float_bound:.2g}"
    if layer.half_error is None:
        return ""
    if layer.stored == "float16" and HALF_MAX < layer.largest < float("inf"):
        return f"overflows fp16: {layer.largest:.4g} is over {HALF_MAX:.0f}"
    if not layer.half_error <= half_bound:
        what = "is not finite" if layer.half_error == float("inf") else f"is off by {layer.half_error:.2g}"
        return f"{what} in fp16, over {half_bound:.2g}" if "off" in what else f"{what} in fp16"
    return ""


def difference(found: Array, expected: Array) -> float:
    """The largest difference of elements whose `expected` is finite; inf if `found` is not finite at one of them."""
    wide = numpy.asarray(expected, numpy.float64)
    gaps = numpy.abs(numpy.asarray(found, numpy.float64) - wide)[numpy.isfinite(wide)]
    return float(numpy.max(numpy.where(numpy.isnan(gaps), numpy.inf, gaps), initial=0.0))


def reference(
    path: str | os.PathLike[str], graph: Graph, inputs: Arrays, optimised: bool = False
) -> dict[str, Array]:
    """Returns onnxruntime's arrays by name, for the names in the graph. Raises Error if it cannot run the file.

    optimised: only the model's outputs, computed with all of its graph optimisations.
    """
    check_oracle("imgconv verify")
    import onnx
    import onnxruntime

    model = onnx.load(os.fspath(path))
    known = {*graph.values, *(graph.host_partition.graph.outputs if graph.host_partition else ())}
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
    if optimised:
        # Each tensor that is asked for prevents the fusions around it.
        made = [value.name for value in model.graph.output if value.name in known]
    else:
        made = [name for node in model.graph.node for name in node.output if name in known]
        del model.graph.output[:]
        model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in made)
    given = {value.name: numpy.asarray(inputs[value.name], value.dtype) for value in graph.inputs}
    if not made:
        return given
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        arrays = session.run(made, given)
    except Exception as error:
        # Its exceptions have no common class.
        raise Error(f"onnxruntime cannot run {os.fspath(path)!r}: {' '.join(str(error).split())}") from error
    return given | dict(zip(made, arrays, strict=True))


def wrong_outputs(layers: Sequence[LayerErrors]) -> list[LayerErrors]:
    """The outputs that have a fault: what the model is judged by."""
    return [layer for layer in layers if layer.fault]


def first_problem(layers: Sequence[LayerErrors]) -> LayerErrors | None:
    return next((layer for layer in layers if layer.problem), None)


def as_json(layers: Sequence[LayerErrors]) -> Mapping[str, Any]:
    """Everything that was measured, as plain data."""
    first = first_problem(layers)
    wrong = [layer.name for layer in wrong_outputs(layers)]
    listed = [dict(vars(layer)) for layer in layers]
    return {"wrong_outputs": wrong, "first_problem": first and first.name, "layers": listed}
