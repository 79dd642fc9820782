"""Control flow: If, Loop and Scan. Trip counts are known when the model is loaded, so loops are unrolled."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import numpy

from imgconv.errors import ContentError, UnsupportedError
from imgconv.ops.registry import Body, Call, operator
from imgconv.tensor import Tensor, concatenate, where


@operator("If")
def if_(call: Call) -> list[Tensor]:
    """The outputs of the branch that the condition selects.

    A condition that is known at load selects one, and the other branch is not read. If it depends on data, both are
    computed, which they can be if their outputs have the same shapes and types; else the host computes the node.
    """
    choice = call.input(0)
    if choice.size != 1:
        raise call.wrong(f"a condition of {choice.size} elements")
    try:
        condition = call.constant_content(choice, "the condition")
    except ContentError:
        raise
    except UnsupportedError as error:
        then, other = _branch(call, "then_branch"), _branch(call, "else_branch")
        if [(t.shape, t.dtype) for t in then] != [(t.shape, t.dtype) for t in other]:
            raise error
        return [where(choice.reshape(), a, b) for a, b in zip(then, other, strict=True)]
    return _branch(call, "then_branch" if condition.item() else "else_branch")


def _branch(call: Call, name: str) -> list[Tensor]:
    """The outputs of a branch."""
    branch: Body = call.attribute(name, None)
    made = branch()
    if len(made) != len(call.outputs):
        raise call.wrong(f"a branch gives {len(made)} outputs for {len(call.outputs)}")
    return made


@operator("Loop")
def loop(call: Call) -> list[Tensor]:
    """Repeats the body at most M times, as long as the condition holds; both are known at load.

    The body takes the iteration number, the condition and the carried tensors. It returns the condition, the carried
    tensors and one element of each stacked output.
    """
    body: Body = call.attribute("body", None)
    limit, go_on = call.constant(0, "the trip count M"), call.optional(1)
    trips = None if limit is None else int(limit.item())
    if trips is None and go_on is None:
        raise call.unsupported("a loop without a trip count and without a condition, which never ends")
    carried = [call.input(i) for i in range(2, len(call.inputs))]
    stacks: list[list[Tensor]] = [[] for _ in range(len(call.outputs) - len(carried))]
    for number in count():
        if (trips is not None and number >= trips) or (
            go_on is not None and not call.constant_content(go_on, "the condition").item()
        ):
            break
        condition, carried, elements = _iterate(call, body, number, carried)
        go_on = go_on and condition
        for stack, element in zip(stacks, elements, strict=True):
            stack.append(element)
    if stacks and not stacks[0]:
        return carried + [_empty_stacked_output(element) for element in _iterate(call, body, 0, carried)[2]]
    return carried + [_stack(call, stack, 0) for stack in stacks]


def _iterate(
    call: Call, body: Body, number: int, carried: Sequence[Tensor]
) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """The body's outputs: the condition, the carried tensors, and the elements to stack."""
    made = body(Tensor.constant(numpy.array(number)), Tensor.constant(numpy.array(True)), *carried)
    if len(made) != 1 + len(call.outputs):
        raise call.wrong(f"its body gives {len(made)} outputs; a condition and {len(call.outputs)} are needed")
    return made[0], made[1 : 1 + len(carried)], made[1 + len(carried) :]


def _empty_stacked_output(element: Tensor) -> Tensor:
    """The stacked output of a loop that runs zero times."""
    return Tensor.constant(numpy.empty((0, *element.shape), element.dtype))


def _stack(call: Call, elements: Sequence[Tensor], axis: int) -> Tensor:
    """The elements, which have one shape, stacked along a new axis."""
    if len({e.shape for e in elements}) != 1:
        raise call.wrong(f"outputs of shapes {[list(e.shape) for e in elements]} cannot be stacked")
    axis = call.axis(axis, elements[0].rank + 1)
    return concatenate([e.reshape(*e.shape[:axis], 1, *e.shape[axis:]) for e in elements], axis)


@operator("Scan")
def scan(call: Call) -> list[Tensor]:
    """Runs the body on each element along an axis of the scanned inputs; states are carried, other outputs stacked."""
    if call.version < 9:
        raise call.unsupported("the form before opset 9, which has a batch axis")
    number = int(call.attribute("num_scan_inputs", 0))
    if not 1 <= number <= len(call.inputs):
        raise call.wrong(f"num_scan_inputs is {number} with {len(call.inputs)} inputs")
    tensors = [call.input(i) for i in range(len(call.inputs))]
    states, scanned = tensors[:-number], tensors[-number:]
    axes = _integers_per_tensor(call, "scan_input_axes", len(scanned))
    backward = _integers_per_tensor(call, "scan_input_directions", len(scanned))
    axes = [call.axis(a, t.rank) for a, t in zip(axes, scanned, strict=True)]
    states, stacks = _scan(call, states, scanned, axes, backward)
    return states + [
        _stack(call, stack[::-1] if flip else stack, axis)
        for stack, axis, flip in zip(
            stacks, _integers_per_tensor(call, "scan_output_axes", len(stacks)),
            _integers_per_tensor(call, "scan_output_directions", len(stacks)), strict=True,
        )
    ]


def _integers_per_tensor(call: Call, name: str, length: int) -> list[int]:
    """An attribute with one number per tensor, zeros by default. A direction must be 0 or 1."""
    numbers = list(call.attribute(name, None) or [0] * length)
    if len(numbers) != length or ("directions" in name and not set(numbers) <= {0, 1}):
        raise call.wrong(f"{name} is {numbers} for {length} tensors")
    return numbers


def _scan(
    call: Call, states: list[Tensor], scanned: Sequence[Tensor], axes: Sequence[int], backward: Sequence[int]
) -> tuple[list[Tensor], list[list[Tensor]]]:
    """The final states, and for each stacked output its elements in the order of the iterations."""
    body: Body = call.attribute("body", None)
    sizes = {t.shape[a] for t, a in zip(scanned, axes, strict=True)}
    if len(sizes) != 1:
        raise call.wrong(f"scanned inputs have {sorted(sizes)} elements")
    size = sizes.pop()
    if not size:
        raise call.unsupported("scanned inputs without elements")
    stacks: list[list[Tensor]] = [[] for _ in range(len(call.outputs) - len(states))]
    for number in range(size):
        elements = [
            t.take(a, [size - 1 - number if flip else number]).reshape(*t.shape[:a], *t.shape[a + 1 :])
            for t, a, flip in zip(scanned, axes, backward, strict=True)
        ]
        made = body(*states, *elements)
        if len(made) != len(call.outputs):
            raise call.wrong(f"its body gives {len(made)} outputs for {len(call.outputs)}")
        states = made[: len(states)]
        for stack, element in zip(stacks, made[len(states) :], strict=True):
            stack.append(element)
    return states, stacks
