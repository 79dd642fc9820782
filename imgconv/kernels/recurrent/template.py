"""The template of recurrent.cl: all steps of a recurrent layer in one launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

import numpy

from imgconv.errors import ResourceError
from imgconv.graph.expression import Expression, MathMode, argument_numbers, function_names
from imgconv.graph.index import Index, Variable, constant, variable, variable_index
from imgconv.graph.nodes import Node, Operand, Recurrence
from imgconv.graph.view import identity
from imgconv.kernels.codegen.access import (
    LANE, SHORT_LIMIT, Emitter, KernelArgument, image_type, named_function, read_text,
)
from imgconv.kernels.codegen.epilogue import build_epilogue, output_constants
from imgconv.kernels.device_model.work import LaunchWork
from imgconv.kernels.kernel_source import KernelSource, group_attribute
from imgconv.kernels.layout import LANES, Layout, Placement
from imgconv.kernels.specialise import specialise
from imgconv.kernels.target import Target
from imgconv.kernels.template_interface import (
    EmittingContext, LaunchStep, PlacingContext, Template, nodes_with, operation_kind, require_operation,
)

FILE = "kernels/recurrent/recurrent.cl"

WEIGHTS_LAYOUT = Layout((0, 1), (2,), 3)  # of (directions, rows, gates, H)
LOCALS = "__local const float4 *states, __local const float4 *sums"


@dataclass(frozen=True)
class Problem:
    """The sizes of a Recurrence: steps, elements of the batch, directions, gates, and elements of each state.

    states, inner: the number of states, and whether the last gate multiplies another one. They are left out of repr,
    because measurements are stored under this text, and hardly change the time.
    """

    steps: int
    batch: int
    directions: int
    gates: int
    hidden: int
    states: int = field(default=1, repr=False)
    inner: bool = field(default=False, repr=False)

    @property
    def multiply_adds(self) -> int:
        return self.steps * self.batch * self.directions * self.gates * self.hidden**2

    @property
    def quads(self) -> int:
        return ceil(self.hidden / LANES)

    @property
    def local_bytes(self) -> int:
        """The local memory of a work group."""
        return (self.states + self.gates + self.inner) * self.quads * LANES * 4


@dataclass(frozen=True)
class Specialisation:
    """The free constants of recurrent.cl: work items of a group, and quads of sums that each makes at once."""

    recurrent_items: int = 1
    block_quads: int = 1

    def __str__(self) -> str:
        return f"{self.recurrent_items} items a group, {self.block_quads} quads at once"


def candidates(problem: Problem, target: Target) -> list[Specialisation]:
    """The specialisations worth measuring. On a CPU a work item does a group's work faster than several that wait.

    Several are needed if the driver ends long loops; if theirs are too long as well, there is no candidate.
    """
    alone = [Specialisation(1, quads) for quads in (4, 8)]
    most = min(target.max_work_group, max(32, problem.gates * problem.quads))
    several = [Specialisation(items, quads) for items in (32, 64, 128, 256) for quads in (1, 2) if items <= most]
    if target.loop_rounds is not None:
        alone, several = (
            [each for each in found if _loop_rounds(problem, each) <= target.loop_rounds] for found in (alone, several)
        )
    return alone if target.kind == "cpu" and alone else several


def _loop_rounds(problem: Problem, chosen: Specialisation) -> int:
    """Returns an upper bound for the rounds of all loops of a work item, if the driver unrolls none."""
    block = chosen.block_quads
    turns = ceil(problem.gates * problem.quads / (chosen.recurrent_items * block)) + problem.inner
    states = ceil(problem.quads / chosen.recurrent_items) * (2 + problem.states)
    return (problem.steps + 1) * (1 + turns * (1 + 2 * block + problem.quads * (1 + block)) + states)


def launch_work(problem: Problem, chosen: Specialisation, target: Target) -> LaunchWork:
    """The work of a launch. A step of the layer reads each row of weights in turn; a block's sums do not wait."""
    sums, block, items = problem.gates * problem.quads, chosen.block_quads, chosen.recurrent_items
    steps = problem.steps * ceil(sums / (items * block)) * problem.quads * LANES
    return LaunchWork(
        problem.batch * problem.directions, items, LANES * steps * block, reads=steps * block, steps=steps,
        local=steps / LANES, barriers=2 * problem.steps if items > 1 else 0, registers=2 * block,
        writes=problem.steps * ceil(problem.quads / items), fetched=problem.steps * sums * problem.hidden,
    )


def problem_of(node: Node) -> Problem:
    states, steps, batch, directions, hidden = node.output.shape
    gates = node.operands[1].view.shape[2]
    has_inner = require_operation(Recurrence, node).inner is not None
    return Problem(steps, batch, directions, gates, hidden, states, has_inner)


def place(placing: PlacingContext, given: tuple[Node, ...]) -> LaunchStep[Problem, Recurrence]:
    """The LaunchStep of a Recurrence, which reads all but the weights through any view."""
    (node,) = given
    problem = problem_of(node)
    if problem.local_bytes > placing.target.local_memory_bytes:
        raise ResourceError(
            f"a recurrent layer needs {problem.local_bytes} bytes of local memory, this device has "
            f"{placing.target.local_memory_bytes}", node.output.name, node.output.shape
        )
    if not candidates(problem, placing.target):
        raise ResourceError(
            f"a recurrent layer of {problem.steps} steps takes loops of more than {placing.target.loop_rounds} rounds, "
            "after which this driver ends them", node.output.name, node.output.shape
        )
    weights = _placed_weights(placing, node)
    output = placing.place_value(node.output)
    x, _, *others = node.operands
    places = placing.operand_places(replace(node, operands=(x, *others)), output)
    places[weights.value] = placing.placements[weights.value]
    operation = require_operation(Recurrence, node)
    text = f"recurrence {operation.ways}, {problem.steps} step{'s' if problem.steps > 1 else ''}"
    node = replace(node, operands=(x, weights, *others))
    return LaunchStep(
        (node,), output, places, TEMPLATE, problem, operation, " + ".join([text, *function_names(node.epilogue)]),
        operation_kind(node), values=(node.output.name,),
    )


def _placed_weights(placing: PlacingContext, node: Node) -> Operand:
    """The weights in their texture. Known ones have zero rows up to a multiple of four."""
    weights = node.operands[1]
    if weights.value in placing.graph.constants:
        array = placing.constant_of(weights)
        array = numpy.pad(array, [(0, 0), (0, -array.shape[1] % LANES), (0, 0), (0, 0)])
        name = placing.graph.unused_name(f"{node.output.name}.weights")
        placing.placements[name] = placing.place_array(name, array, WEIGHTS_LAYOUT, (node,))
        return Operand(name, identity(array.shape))
    return placing.copy(weights, WEIGHTS_LAYOUT, "a recurrent layer reads four columns of a row to a texel")


def kernel(step: LaunchStep[Problem, Recurrence], chosen: Specialisation, emitting: EmittingContext) -> KernelSource:
    (node,), problem, output = step.nodes, step.problem, step.output
    weights = step.places[node.operands[1].value].texture
    helpers = list[str]()
    epilogue = build_epilogue(node, output, step.places, emitting.math_mode_of(step.output))
    functions = _GateFunctions(step.details, node, step.places, emitting.math_mode_of(step.output))
    local = (chosen.recurrent_items, 1, 1)
    rows = weights.shape[1]
    largest = max(problem.gates * problem.quads, problem.directions * rows, output.texture.tiling.width)
    reverse = step.details.reverse
    constants: dict[str, str | int] = {
        "INDEX": "short" if largest <= SHORT_LIMIT else "int",
        "STEPS": problem.steps, "BATCH": problem.batch, "GATES": problem.gates, "STATES": problem.states,
        "REVERSED(direction)": " || ".join(f"(direction) == {d}" for d, each in enumerate(reverse) if each) or "false",
        "INNER": int(problem.inner), "ITEMS": chosen.recurrent_items, "BLOCK_QUADS": chosen.block_quads,
        "WEIGHT_ROWS": rows, "WEIGHTS_IMAGE": image_type(weights),
        "READ_WEIGHTS(x, y)": read_text("weights", weights, helpers, inside=weights.tiling.linear, past=(False, False)),
        "STEP_PARAMETERS": functions.parameters, **functions.macros,
        "WORK_GROUP": group_attribute(local),
    }
    constants |= output_constants(output, problem.hidden, epilogue, helpers)
    arguments = (
        KernelArgument("output", output.storage, written=True), KernelArgument("weights", weights),
        *functions.arguments, *epilogue.arguments,
    )
    text = specialise(FILE, constants, "".join(helpers) + functions.text + epilogue.functions)
    size = (chosen.recurrent_items, problem.batch, problem.directions)
    return KernelSource(text, FILE, arguments, size, local)


class _GateFunctions:
    """The functions of a Recurrence's expressions: their text, macros that call them, and the images that they read."""

    def __init__(self, operation: Recurrence, node: Node, places: Mapping[str, Placement], math_mode: MathMode) -> None:
        self.operation, self.node, self.places, self.math_mode = operation, node, places, math_mode
        self.arguments: list[KernelArgument] = []
        self.helpers: list[str] = []
        inner = self.operation.inner
        bodies = {
            "FIRST_STATES(after, batch, direction, quad)": self._read_initial_states(),
            "INNER_STATE(after, step, batch, direction, quad)": self._compute([] if inner is None else [inner]),
            "NEXT_STATES(after, step, batch, direction, quad)": self._compute(self.operation.states),
        }
        self.parameters = "".join(f", {a.declaration}" for a in self.arguments)
        self.macros = {macro: self._call(macro, lines) for macro, lines in bodies.items()}
        self.text = "".join(dict.fromkeys(self.helpers))

    def _read_initial_states(self) -> list[str]:
        """Statements that read the initial states."""
        emitter = self._emitter()
        reads = self.node.operands[2 : 2 + len(self.operation.states)]
        names = [emitter.load(operand, self.places[operand.value], self._axes(operand)) for operand in reads]
        return [*emitter.lines, *(f"after[{number}] = {name};" for number, name in enumerate(names))]

    def _compute(self, expressions: Sequence[Expression]) -> list[str]:
        """Statements that compute the expressions."""
        emitter, gates = self._emitter(), self.node.operands[1].view.shape[2]
        quads, states = ceil(self.node.output.shape[-1] / LANES), len(self.operation.states)
        used = frozenset[int]().union(*map(argument_numbers, expressions))
        x, _, *others = self.node.operands
        names: dict[int, str] = {}
        for number in sorted(used):
            if number < gates:
                names[number] = emitter.load(x, self.places[x.value], self._axes(x, number))
            elif number < 2 * gates:
                names[number] = f"sums[{(number - gates) * quads} + quad]"
            elif number < 2 * gates + states:
                names[number] = f"states[{(number - 2 * gates) * quads} + quad]"
            elif number < 2 * gates + len(others):
                other = others[number - 2 * gates]
                names[number] = emitter.load(other, self.places[other.value], self._axes(other))
            else:
                names[number] = "(float4)(step)"
        results = [emitter.compute(expression, names) for expression in expressions]
        return [*emitter.lines, *(f"after[{number}] = {name};" for number, name in enumerate(results))]

    def _emitter(self) -> Emitter:
        """The statements of one function; all functions have the same arguments."""
        return Emitter(self.math_mode, prefix="g_", helpers=self.helpers, arguments=self.arguments)

    def _axes(self, operand: Operand, gate: int | None = None) -> dict[Variable, Index]:
        """The view's variables at a quad: of an operand with an axis of steps and one of gates, or with neither."""
        shape = operand.view.shape
        batch, directions, hidden = shape[0 if gate is None else 1], shape[-2 if gate is None else 2], shape[-1]
        position = [variable("batch", batch), variable("direction", directions)]
        position.append(variable("quad", ceil(hidden / LANES)) * LANES + variable_index(LANE))
        if gate is not None:
            position = [variable("step", shape[0]), *position[:2], constant(gate), position[2]]
        return {Variable(f"i{axis}", size): position[axis] for axis, size in enumerate(shape)}

    def _call(self, macro: str, lines: Sequence[str]) -> str:
        """Adds a function to the helpers. Returns its call."""
        takes = f"float4 *after, {LOCALS}, int step, int batch, int direction, int quad{self.parameters}"
        name, function = named_function(f"{macro.partition('(')[0].lower()}_", "void", takes, lines)
        self.helpers.append(function)
        step, images = "step" if "step" in macro else "0", "".join(f", {a.name}" for a in self.arguments)
        return f"{name}(after, states, sums, {step}, batch, direction, quad{images})"


TEMPLATE = Template(
    "recurrence", FILE, Problem, Specialisation, candidates=candidates, work=launch_work,
    nodes=nodes_with(Recurrence), place=place, kernel=kernel,
)
