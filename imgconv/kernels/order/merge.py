"""The template of merge.cl, for rows that one work group cannot sort: it merges parts that order.cl has sorted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil, prod

from imgconv.graph.nodes import IDENTITY, Graph, Node, Order, whole_operand
from imgconv.kernels.codegen.access import SHORT_LIMIT, KernelArgument
from imgconv.kernels.codegen.epilogue import build_epilogue, output_constants
from imgconv.kernels.device_model.work import LaunchWork
from imgconv.kernels.kernel_source import KernelSource, group_attribute, round_up
from imgconv.kernels.layout import LANES, matrix_layout
from imgconv.kernels.order import template as order
from imgconv.kernels.specialise import specialise
from imgconv.kernels.target import Target
from imgconv.kernels.template_interface import (
    AnyLaunchStep, EmittingContext, LaunchStep, PlacingContext, Template, describe
)

FILE = "kernels/order/merge.cl"

GROUP = 64  # work items of a group on a GPU


@dataclass(frozen=True)
class Problem:
    """Rows of `size` positions in sorted runs of `run`; finds the first `count` once neighbouring runs are merged."""

    rows: int
    size: int
    count: int
    run: int

    @property
    def multiply_adds(self) -> int:
        return 0

    @property
    def steps(self) -> int:
        """The steps of a bisection among the places of a run, both ends included."""
        return self.run.bit_length()


@dataclass(frozen=True)
class Specialisation:
    """The quads that a work item makes, and the work items of a group."""

    merge_quads: int = 1
    merge_items: int = 1

    def __str__(self) -> str:
        return f"{LANES * self.merge_quads} places an item, {self.merge_items} items a group"


def candidates(problem: Problem, target: Target) -> list[Specialisation]:
    """The specialisations worth measuring: on a CPU long blocks, which a bisection costs little of."""
    if target.kind == "cpu":
        return [Specialisation(quads) for quads in (16, 64) if quads * LANES <= problem.run]
    return [Specialisation(quads, min(GROUP, target.max_work_group)) for quads in (1, 2, 4, 8)]


def launch_work(problem: Problem, chosen: Specialisation, target: Target) -> LaunchWork:
    """The work of a launch. A step is a pair that a work item reads."""
    pairs = 2 * problem.steps + LANES * chosen.merge_quads
    groups = problem.rows * ceil(problem.count / (LANES * chosen.merge_quads * chosen.merge_items))
    return LaunchWork(groups, chosen.merge_items, reads=pairs, scattered=pairs, steps=pairs, writes=chosen.merge_quads)


def nodes(graph: Graph) -> Iterator[tuple[Node, ...]]:
    """Every Order of more places than a work group makes."""
    for node in graph.nodes:
        if isinstance(node.operation, Order) and node.output.shape[-1] > LANES * order.MOST_QUADS:
            yield (node,)


def place(placing: PlacingContext, given: tuple[Node, ...]) -> LaunchStep[Problem, Order]:
    """The LaunchStep of the last launch, after the one that orders runs and those that join all but the last two."""
    (node,) = given
    whole = order.place(placing, given)
    *lead, count = node.output.shape
    size, name = whole.problem.size, node.output.name
    shape, layout = (prod(lead), size), matrix_layout(2)

    def node_of_sorted_runs(run: int) -> Node:
        """The node whose result is all positions, in sorted runs."""
        output = placing.add_intermediate_value(f"{name}.runs{run}", shape, layout)
        return replace(node, output=output, epilogue=IDENTITY, epilogue_operands=())

    problem = replace(whole.problem, count=size, runs=True)
    run = problem.run
    made = node_of_sorted_runs(run)
    steps: list[AnyLaunchStep] = [
        LaunchStep(
            (made,), placing.placements[made.output.name], whole.places, order.TEMPLATE, problem, whole.details,
            f"runs of {describe(node)}", whole.operation,
        )
    ]
    while True:
        is_last = 2 * run >= size
        read, made = made.output, node if is_last else node_of_sorted_runs(2 * run)
        step = LaunchStep(
            (replace(made, operands=(whole_operand(read), *node.operands)),), placing.placements[made.output.name],
            {**whole.places, read.name: placing.placements[read.name]}, TEMPLATE,
            Problem(shape[0], size, count if is_last else size, run), whole.details, f"merge of {describe(node)}",
            whole.operation,
        )
        if is_last:
            return replace(step, values=whole.values, before=tuple(steps))
        steps.append(step)
        run *= 2


def kernel(step: LaunchStep[Problem, Order], chosen: Specialisation, emitting: EmittingContext) -> KernelSource:
    (node,), problem, output = step.nodes, step.problem, step.output
    math_mode, helpers = emitting.math_mode_of(step.output), list[str]()
    epilogue = build_epilogue(node, output, step.places, math_mode)
    positions, read_positions = order.row_function(node.operands[0], step.places, math_mode, "p_")
    rows, read_row = order.row_function(node.operands[1], step.places, math_mode, "r_")
    read = [*positions.arguments, *rows.arguments]
    items = chosen.merge_items
    largest = max(problem.rows, problem.size, GROUP + problem.count, output.texture.tiling.width)
    constants: dict[str, str | int] = {
        "INDEX": "short" if largest <= SHORT_LIMIT else "int", "SIZE": problem.size, "RUN": problem.run,
        "STEPS": problem.steps, "BLOCK_QUADS": chosen.merge_quads, "LARGEST": int(step.details.largest),
        "ROW_PARAMETERS": "".join(f", {a.declaration}" for a in read),
        "ROW_ARGUMENTS": "".join(f", {a.name}" for a in read),
        "READ_POSITIONS(row, quad)": read_positions, "READ_ROW(row, quad)": read_row,
        "WORK_GROUP": group_attribute((items, 1, 1)),
    }
    constants |= output_constants(output, problem.count, epilogue, helpers)
    arguments = (KernelArgument("output", output.storage, written=True), *read, *epilogue.arguments)
    functions = dict.fromkeys([*helpers, *positions.helpers, *rows.helpers])
    text = specialise(FILE, constants, "".join(functions) + epilogue.functions)
    blocks = ceil(problem.count / (LANES * chosen.merge_quads))
    return KernelSource(text, FILE, arguments, (round_up(blocks, items), problem.rows, 1), (items, 1, 1))


TEMPLATE = Template(
    "merge", FILE, Problem, Specialisation, candidates=candidates, work=launch_work, nodes=nodes, place=place,
    kernel=kernel,
)
