"""The operators If, Loop and Scan: their bodies are prepared programs."""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy

from imgconv.arrays import Array
from imgconv.host.registry import HostCall, host


@host("If")
def if_(call: HostCall, condition: Array) -> Any:
    """The outputs of the branch that the condition selects."""
    return tuple(call.attribute("then_branch" if condition.item() else "else_branch")())


@host("Loop")
def loop(call: HostCall, limit: Array | None = None, go_on: Array | None = None, *carried: Any) -> Any:
    """Repeats the body at most `limit` times, as long as the condition holds; see ONNX's Loop, and loops.py."""
    body, states, stacks = call.attribute("body"), list(carried), list[list[Array]]()
    first, common = call.attribute("first", list), None
    trips = None if limit is None else int(limit.item())
    holds = go_on is None or bool(go_on.item())
    for number in count():
        if not holds or (trips is not None and number >= trips):
            break
        if common is None:
            common = first()
        condition, *made = body(numpy.array(number, numpy.int64), numpy.array(True), *states, *common)
        states, stacks = made[: len(carried)], [*stacks, made[len(carried) :]]
        holds = go_on is None or bool(condition.item())
    if not stacks:
        stacked = _empty_stacked_outputs(call, states)
    else:
        stacked = [numpy.stack(elements) for elements in zip(*stacks, strict=True)]
    return (*states, *stacked)


def _empty_stacked_outputs(call: HostCall, states: list[Any]) -> list[Array]:
    """The stacked outputs of a loop that runs zero times: no elements of the shapes that the body would give."""
    if call.outputs <= len(states):
        return []
    body, common = call.attribute("body"), call.attribute("first", list)()
    elements = body(numpy.array(0, numpy.int64), numpy.array(True), *states, *common)[1 + len(states) :]
    return [numpy.empty((0, *element.shape), element.dtype) for element in elements]


@host("Scan")
def scan(call: HostCall, *inputs: Any) -> Any:
    """Runs the body on each element along an axis of the scanned inputs; states are carried, other outputs stacked."""
    if call.version < 9:
        return _batched(call, *inputs)
    split = len(inputs) - call.attribute("num_scan_inputs")
    scanned = list(inputs[split:])
    axes = call.attribute("scan_input_axes", [0] * len(scanned))
    back = call.attribute("scan_input_directions", [0] * len(scanned))
    moved = [numpy.moveaxis(x, a, 0)[:: -1 if flip else 1] for x, a, flip in zip(scanned, axes, back, strict=True)]
    states, stacks = _scan(call, list(inputs[:split]), moved)
    out_axes = call.attribute("scan_output_axes", [0] * len(stacks))
    out_back = call.attribute("scan_output_directions", [0] * len(stacks))
    made = [numpy.moveaxis(x[:: -1 if f else 1], 0, a) for x, a, f in zip(stacks, out_axes, out_back, strict=True)]
    return (*states, *made)


def _scan(call: HostCall, states: list[Any], scanned: list[Array]) -> tuple[list[Any], list[Array]]:
    """The final states, and the other outputs stacked along axis 0."""
    body, rows = call.attribute("body"), []
    if len({len(x) for x in scanned}) != 1 or not len(scanned[0]):
        raise call.wrong(f"scanned inputs of {[len(x) for x in scanned]} elements")
    for elements in zip(*scanned, strict=True):
        made = body(*states, *map(numpy.asarray, elements))
        states = made[: len(states)]
        rows.append(made[len(states) :])
    return states, [numpy.stack(each) for each in zip(*rows, strict=True)]


def _batched(call: HostCall, lengths: Array | None, *inputs: Array) -> Any:
    """Scan of opset 8: every tensor has a batch axis, and each batch element its own length; zeros past it."""
    split = len(inputs) - call.attribute("num_scan_inputs")
    back = call.attribute("directions", [0] * (len(inputs) - split))
    longest, results = inputs[split].shape[1], []
    for number in range(len(inputs[0])):
        length = longest if lengths is None else int(lengths[number])
        scanned = [x[number][:length][:: -1 if f else 1] for x, f in zip(inputs[split:], back, strict=True)]
        states, stacks = _scan(call, [x[number] for x in inputs[:split]], scanned)
        padded = [numpy.pad(x, [(0, longest - length), *[(0, 0)] * (x.ndim - 1)]) for x in stacks]
        results.append([*states, *padded])
    return tuple(numpy.stack(each) for each in zip(*results, strict=True))
