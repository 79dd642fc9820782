"""The template of suppress.cl: non-maximum suppression."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy

from imgconv.graph.nodes import Node, Suppression
from imgconv.kernels.codegen.access import SHORT_LIMIT, KernelArgument
from imgconv.kernels.codegen.epilogue import build_epilogue, output_constants
from imgconv.kernels.device_model.work import LaunchWork
from imgconv.kernels.kernel_source import KernelSource, group_attribute
from imgconv.kernels.layout import LANES
from imgconv.kernels.order.template import row_function
from imgconv.kernels.specialise import specialise
from imgconv.kernels.target import Target
from imgconv.kernels.template_interface import (
    EmittingContext, LaunchStep, PlacingContext, Template, nodes_with, require_operation, step_of,
)

FILE = "kernels/suppression/suppress.cl"


@dataclass(frozen=True)
class Problem:
    """Suppression of `size` boxes; at most `most` survive."""

    size: int
    most: int

    @property
    def multiply_adds(self) -> int:
        return 0


@dataclass(frozen=True)
class Specialisation:
    """The free constant of suppress.cl: the work items of the group."""

    suppress_items: int = 1

    def __str__(self) -> str:
        return f"{self.suppress_items} items a group"


def candidates(problem: Problem, target: Target) -> list[Specialisation]:
    """The specialisations worth measuring. On a CPU one work item walks as fast as several that wait."""
    if target.kind == "cpu":
        return [Specialisation()]
    return [Specialisation(items) for items in (64, 128, 256) if items <= target.max_work_group]


def launch_work(problem: Problem, chosen: Specialisation, target: Target) -> LaunchWork:
    """The work of a launch. A step is a pair that a work item compares.

    It is not known where the walk ends: as if half of the boxes went.
    """
    walked, items = min(problem.size, 2 * problem.most), chosen.suppress_items
    pairs = problem.most // 2 * ceil(walked / items)
    return LaunchWork(
        1, items, LANES * pairs, reads=pairs, steps=pairs, barriers=3 * problem.most if items > 1 else 0,
        writes=ceil(problem.most / items),
    )


def place(placing: PlacingContext, given: tuple[Node, ...]) -> LaunchStep[Problem, Suppression]:
    """The LaunchStep of a Suppression, which reads boxes through any view."""
    (node,) = given
    problem = Problem(node.operands[0].view.shape[0], node.output.shape[0])
    operation = require_operation(Suppression, node)
    return step_of(placing, node, placing.place_value(node.output), TEMPLATE, problem, operation)


def kernel(step: LaunchStep[Problem, Suppression], chosen: Specialisation, emitting: EmittingContext) -> KernelSource:
    (node,), problem, output = step.nodes, step.problem, step.output
    math_mode, helpers = emitting.math_mode_of(step.output), list[str]()
    epilogue = build_epilogue(node, output, step.places, math_mode)
    boxes, read_box = row_function(node.operands[0], step.places, math_mode, "b_")
    counts, read_count = row_function(node.operands[1], step.places, math_mode, "c_")
    read = [*boxes.arguments, *counts.arguments]
    items, overlap = chosen.suppress_items, numpy.float32(step.details.overlap)
    local, largest = (items, 1, 1), max(problem.size, output.texture.tiling.width)
    constants: dict[str, str | int] = {
        "INDEX": "short" if largest <= SHORT_LIMIT else "int", "SIZE": problem.size, "MOST": problem.most,
        "ITEMS": items, "BLOCK_QUADS": ceil(problem.most / LANES),
        "OVERLAP": f"{float(overlap).hex()}f", "HALF_STEP": f"{(float(numpy.spacing(overlap)) / 2).hex()}f",
        "IS_GROUPED": int(node.operands[0].view.shape[1] == 5),
        "ROW_PARAMETERS": "".join(f", {a.declaration}" for a in read),
        "READ_BOX(row, quad)": read_box, "READ_COUNT(row, quad)": read_count, "WORK_GROUP": group_attribute(local),
    }
    constants |= output_constants(output, problem.most, epilogue, helpers)
    arguments = (KernelArgument("output", output.storage, written=True), *read, *epilogue.arguments)
    functions = dict.fromkeys([*helpers, *boxes.helpers, *counts.helpers])
    text = specialise(FILE, constants, "".join(functions) + epilogue.functions)
    return KernelSource(text, FILE, arguments, local, local)


TEMPLATE = Template(
    "suppress", FILE, Problem, Specialisation, candidates=candidates, work=launch_work,
    nodes=nodes_with(Suppression), place=place, kernel=kernel,
)
