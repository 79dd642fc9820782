"""The template of order.cl: the largest or smallest elements of rows, in order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, prod

from imgconv.graph.expression import MathMode
from imgconv.graph.index import Index, Variable, unflatten, variable, variable_index
from imgconv.graph.nodes import Node, Operand, Order
from imgconv.kernels.codegen.access import LANE, SHORT_LIMIT, Emitter, KernelArgument, named_function
from imgconv.kernels.codegen.epilogue import build_epilogue, output_constants
from imgconv.kernels.device_model.work import LaunchWork
from imgconv.kernels.kernel_source import KernelSource, group_attribute
from imgconv.kernels.layout import LANES, Placement
from imgconv.kernels.specialise import specialise
from imgconv.kernels.target import Target
from imgconv.kernels.template_interface import (
    EmittingContext, LaunchStep, PlacingContext, Template, nodes_with, require_operation, step_of,
)

FILE = "kernels/order/order.cl"

MOST_QUADS = 512  # that a work group makes: their pairs take 16 KiB of local memory
DIGITS = 4  # of a key
# Elements of a row that one work item goes through, at most. Mesa's llvmpipe ends loops after 65,535 iterations in all.
MOST_OF_AN_ITEM = 1 << 14


@dataclass(frozen=True)
class Problem:
    """Rows of `size` elements; finds `count` of each.

    runs: instead, all are found, and those of a run are in order; merge.py joins the runs.
    """

    rows: int
    size: int
    count: int
    runs: bool = False

    @property
    def multiply_adds(self) -> int:
        return 0

    @property
    def block_quads(self) -> int:
        """The quads of a row that a work group makes: a power of two."""
        return min(MOST_QUADS, 1 << (ceil(self.count / LANES) - 1).bit_length())

    @property
    def run(self) -> int:
        """The places that a work group makes."""
        return LANES * self.block_quads

    @property
    def stages(self) -> int:
        """The stages of the network that sorts a group's pairs."""
        places = self.run.bit_length() - 1
        return places * (places + 1) // 2

    @property
    def groups(self) -> int:
        """The work groups of a row."""
        return ceil(self.count / self.run)


@dataclass(frozen=True)
class Specialisation:
    """The free constant of order.cl: the work items of a group."""

    order_items: int = 1

    def __str__(self) -> str:
        return f"{self.order_items} items a group"


def candidates(problem: Problem, target: Target) -> list[Specialisation]:
    """The specialisations worth measuring. On a CPU one work item does a group's work as fast as several that wait."""
    if target.kind == "cpu":
        walked = problem.run if problem.runs else problem.size
        return [Specialisation(1 if walked <= MOST_OF_AN_ITEM else 64)]
    return [Specialisation(items) for items in (32, 64, 128, 256) if items <= target.max_work_group]


def launch_work(problem: Problem, chosen: Specialisation, target: Target) -> LaunchWork:
    """The work of a launch: counts of digits, then a radix sort by one work item, or a network of all of a group."""
    places, items, stages = problem.run, chosen.order_items, problem.stages
    reads = 0 if problem.runs else ceil(DIGITS * problem.size / items)
    local = 0 if problem.runs else ceil(256 * DIGITS / items) + 256 * DIGITS
    local += DIGITS * (2 * places + 256) if items == 1 else stages * ceil(places / 2 / items)
    return LaunchWork(
        problem.rows * problem.groups, items, reads=reads, local=local, steps=reads + local,
        barriers=3 * DIGITS + stages if items > 1 else 0, writes=ceil(problem.block_quads / items),
    )


def place(placing: PlacingContext, given: tuple[Node, ...]) -> LaunchStep[Problem, Order]:
    """The LaunchStep of an Order, which reads rows through any view."""
    (node,) = given
    *lead, count = node.output.shape
    problem = Problem(prod(lead), node.operands[0].view.shape[-1], count)
    return step_of(placing, node, placing.place_value(node.output), TEMPLATE, problem, require_operation(Order, node))


def kernel(step: LaunchStep[Problem, Order], chosen: Specialisation, emitting: EmittingContext) -> KernelSource:
    (node,), problem, output = step.nodes, step.problem, step.output
    math_mode, helpers = emitting.math_mode_of(step.output), list[str]()
    epilogue = build_epilogue(node, output, step.places, math_mode)
    rows, call = row_function(node.operands[0], step.places, math_mode, "r_")
    local = (chosen.order_items, 1, 1)
    largest = max(problem.rows, problem.size, output.texture.tiling.width)
    constants: dict[str, str | int] = {
        "INDEX": "short" if largest <= SHORT_LIMIT else "int", "SIZE": problem.size, "RUNS": int(problem.runs),
        "LARGEST": int(step.details.largest), "ITEMS": chosen.order_items, "BLOCK_QUADS": problem.block_quads,
        "STAGES": problem.stages,
        "ROW_PARAMETERS": "".join(f", {a.declaration}" for a in rows.arguments),
        "ROW_ARGUMENTS": "".join(f", {a.name}" for a in rows.arguments), "READ_ROW(row, quad)": call,
        "WORK_GROUP": group_attribute(local),
    }
    constants |= output_constants(output, problem.count, epilogue, helpers)
    arguments = (KernelArgument("output", output.storage, written=True), *rows.arguments, *epilogue.arguments)
    text = specialise(FILE, constants, "".join(dict.fromkeys([*helpers, *rows.helpers])) + epilogue.functions)
    return KernelSource(text, FILE, arguments, (problem.groups * chosen.order_items, problem.rows, 1), local)


def row_function(
    operand: Operand, places: Mapping[str, Placement], math_mode: MathMode, prefix: str
) -> tuple[Emitter, str]:
    """The function that reads a quad of a row: its arguments and definition, and the text of a call.

    prefix: of its arguments' names.
    """
    emitter = Emitter(math_mode, prefix=prefix)
    *lead, size = operand.view.shape
    position = [*unflatten(variable("row", prod(lead)), tuple(lead))]
    position.append(variable("quad", ceil(size / LANES)) * LANES + variable_index(LANE))
    axes: dict[Variable, Index] = {Variable(f"i{a}", n): position[a] for a, n in enumerate(operand.view.shape)}
    result = emitter.load(operand, places[operand.value], axes)
    parameters = "".join(f", {a.declaration}" for a in emitter.arguments)
    lines = [*emitter.lines, f"return {result};"]
    name, function = named_function("row_", "float4", f"const int row, const int quad{parameters}", lines)
    emitter.helpers.append(function)
    return emitter, f"{name}(row, quad{''.join(f', {a.name}' for a in emitter.arguments)})"


TEMPLATE = Template(
    "order", FILE, Problem, Specialisation, candidates=candidates, work=launch_work, nodes=nodes_with(Order),
    place=place, kernel=kernel,
)
