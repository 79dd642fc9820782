"""separable.cl as a template: a depthwise and a 1x1 convolution in one launch, if this is faster than two."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, gcd, prod

from imgconv.graph.nodes import Convolution, Graph, Node
from imgconv.kernels import conv, conv_candidates, conv_costs
from imgconv.kernels.access import SHORT_LIMIT, KernelArgument, image_type, read_text
from imgconv.kernels.conv_template import is_direct
from imgconv.kernels.conv_text import input_constants
from imgconv.kernels.conv_weights import PackedWeights, Weights
from imgconv.kernels.costs import LARGE, LARGE_GPU, LargeGpuCosts
from imgconv.kernels.epilogue import build_epilogue, output_constants
from imgconv.kernels.layout import LANES, Placement, Texture, choose_tiling, image_layout
from imgconv.kernels.source import KernelSource, group_attribute
from imgconv.kernels.specialise import specialise
from imgconv.kernels.step import Emitting, Placing, Step, Template, describe
from imgconv.kernels.target import Target, TargetKind

# BLOCKS: columns and output quads of a block. TILES: blocks of a tile, along columns and rows. SPLITS: the work groups
# among which a tile's output quads are split. PARTS: work items that share a sum.
BLOCKS = ((1, 1), (2, 1), (4, 1), (7, 1), (1, 2), (2, 2), (4, 2))
TILES = ((1, 1), (1, 2), (2, 1), (1, 4), (2, 2), (4, 1), (2, 4), (4, 4))
SPLITS = (1, 2, 3, 4, 6, 8, 10, 16)
PARTS = (1, 2, 4, 8, 12, 16, 24, 32)
TEXEL_BYTES = 4 * LANES  # in local memory, as floats


@dataclass(frozen=True)
class Problem:
    """A depthwise convolution and the 1x1 convolution that reads its result."""

    depthwise: conv.Problem
    pointwise: conv.Problem

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds of both convolutions, as in the model."""
        return self.depthwise.multiply_adds + self.pointwise.multiply_adds


@dataclass(frozen=True, eq=False)
class Details:
    """The weights of both convolutions before they are packed."""

    depthwise: Weights
    pointwise: Weights


@dataclass(frozen=True)
class Specialisation:
    """The free constants of separable.cl.

    block_columns, block_quads: the outputs of a work item. group_columns, group_rows: blocks of positions in a work
    group's tile. group_quads: blocks of output quads of a work group. parts: work items that share a sum.
    """

    block_columns: int
    block_quads: int
    group_columns: int
    group_rows: int
    group_quads: int
    parts: int

    def __str__(self) -> str:
        text = f"tile {self.group_columns * self.block_columns}x{self.group_rows} in local memory, "
        text += f"block {self.block_columns}x1x{self.block_quads}, {self.group_quads} quad blocks"
        return text + (f", {self.parts} parts" if self.parts > 1 else "")

    @property
    def positions(self) -> int:
        """Positions of a work group's tile."""
        return self.group_columns * self.block_columns * self.group_rows

    @property
    def local_size(self) -> tuple[int, int, int]:
        """The work group's size."""
        return self.group_quads, self.group_columns * self.group_rows, self.parts

    def local_bytes(self, problem: Problem) -> int:
        """Local memory of a work group: first the depthwise result of its tile, later the parts of its sums."""
        sums = prod(self.local_size) * self.block_columns * self.block_quads if self.parts > 1 else 0
        return TEXEL_BYTES * max(self.positions * problem.depthwise.output_quads, sums)


def candidates(problem: Problem, kind: TargetKind, local_memory_bytes: int) -> list[Specialisation]:
    """The specialisations worth measuring for a problem, with work groups of 96 to 256 work items.

    kind: 'cpu' or 'gpu'. None for a CPU, which has no local memory of its own.
    """
    if kind == "cpu":
        return []
    (rows, columns), quads = problem.pointwise.output_size, problem.pointwise.output_quads
    found = []
    for (length, each), (across, down), splits, parts in itertools.product(BLOCKS, TILES, SPLITS, PARTS):
        if across * length >= columns + length or down > rows or parts > problem.depthwise.output_quads:
            continue
        group_quads = ceil(ceil(quads / each) / splits)
        made = Specialisation(length, each, across, down, group_quads, parts)
        if 96 <= prod(made.local_size) <= 256 and made.local_bytes(problem) <= local_memory_bytes:
            found.append(made)
    return list(dict.fromkeys(found))


@lru_cache(1024)
def default_specialisation(
    problem: Problem, kind: TargetKind, compute_units: int, local_memory_bytes: int
) -> Specialisation | None:
    """The candidate with the lowest predicted cost. None if two launches are expected to be faster.

    Only computers' GPUs gain for certain. An H200 takes 8 to 25 us for pairs that take 17 to 54 us in two launches.

    On an Adreno a pair takes 1.1 to 2.1 times the issue slots of two launches by Mesa's code, in float and in half. On
    large maps the saved traffic is worth more, but only as long as local memory costs nothing, as in gpu_time.py. With
    its accesses counted as texture reads, pairs in half save 2 % of MobileNetV2 on an a630 and 7 % on an a740, if each
    is the best of 24 candidates.
    """
    if compute_units < LARGE_GPU:
        return None
    made = candidates(problem, kind, local_memory_bytes)
    best = min(made, key=lambda c: predicted_cost(problem, c, compute_units), default=None)
    if best is None or predicted_cost(problem, best, compute_units) > cost_of_two(problem, kind, compute_units):
        return None
    return best


def cost_of_two(problem: Problem, kind: TargetKind, compute_units: int) -> float:
    """The predicted cost of two launches of conv.cl, in cycles of a compute unit, with the second launch's overhead."""
    both = (problem.depthwise, problem.pointwise)
    chosen = (conv_candidates.default_specialisation(p, kind, compute_units) for p in both)
    costs = (conv_costs.predicted_cost(p, c, kind, compute_units) for p, c in zip(both, chosen, strict=True))
    return LARGE.launch + sum(costs)


def predicted_cost(
    problem: Problem, chosen: Specialisation, compute_units: int, costs: LargeGpuCosts = LARGE
) -> float:
    """The predicted time of a launch, in cycles of a compute unit of a large GPU."""
    depthwise, items = problem.depthwise, prod(chosen.local_size)
    taps, sums = prod(depthwise.window), chosen.block_columns * chosen.block_quads
    tasks = chosen.group_columns * chosen.group_rows * depthwise.output_quads
    reach = (chosen.block_columns - 1) * depthwise.strides[1] + (depthwise.window[1] - 1) * depthwise.dilations[1]
    line = reach // gcd(depthwise.strides[1], depthwise.dilations[1]) + 1
    steps = ceil(depthwise.output_quads / chosen.parts)
    multiply_adds = LANES * tasks * taps * chosen.block_columns + LANES * LANES * items * steps * sums
    texels = tasks * (depthwise.window[0] * line + taps)
    weights = items * steps * LANES * chosen.block_quads
    groups = ceil(prod(_groups(problem, chosen)) / compute_units)
    # Work groups that a compute unit runs at once.
    waves = ceil(groups / max(1, costs.separable_items // items))
    # A work item that is alone waits for each of its windows, for the weights of each step, and for the other parts.
    alone = costs.separable_wait + costs.separable_wait_window * ceil(tasks / items) * taps / 9
    alone += steps * (costs.separable_wait_step + costs.separable_wait_weights * chosen.block_quads)
    alone += costs.separable_wait_parts * chosen.parts * ceil(sums / chosen.parts)
    arithmetic = multiply_adds / costs.separable_multiply_adds
    busy = arithmetic + costs.separable_texel * texels + costs.separable_weight * weights
    return groups * busy + waves * alone


def follows(graph: Graph, depthwise: Node) -> Node | None:
    """The 1x1 convolution that is the only reader of a depthwise convolution's result. None if there is none."""
    name = depthwise.output.name
    readers = graph.consumers[name]
    if name in graph.outputs or len(readers) != 1 or not _is_plain(graph, depthwise):
        return None
    (pointwise,) = readers
    if not _is_plain(graph, pointwise) or sum(o.value == name for o in pointwise.all_operands) != 1:
        return None
    problem = problem_of(depthwise, pointwise)
    first, second = problem.depthwise, problem.pointwise
    one = second.groups == 1 and second.window == second.strides == (1, 1) and second.pads == (0, 0)
    same = second.output_size == second.input_size and pointwise.operands[0].view.is_identity
    return pointwise if first.depthwise and one and same and pointwise.operands[0].value == name else None


def _is_plain(graph: Graph, node: Node) -> bool:
    """Whether a node is an ordinary convolution of floats with constant float weights, without factors."""
    if not isinstance(node.operation, Convolution) or node.operation.transposed or len(node.operands) != 2:
        return False
    floats = all(graph.values[o.value].dtype.startswith("float") for o in node.operands)
    return floats and node.operands[1].value in graph.constants and node.output.dtype.startswith("float")


def problem_of(depthwise: Node, pointwise: Node) -> Problem:
    """The problem of a depthwise and a 1x1 convolution."""
    return Problem(_problem_of(depthwise), _problem_of(pointwise))


def _problem_of(node: Node) -> conv.Problem:
    assert isinstance(node.operation, Convolution)
    x, w = (operand.view.shape for operand in node.operands)
    return conv.problem_of(node.operation, x, w, node.output.shape)


def separable_kernel(
    depthwise: Node, pointwise: Node, problem: Problem, chosen: Specialisation, output: Placement,
    placements: Mapping[str, Placement], windows: Texture, weights: Texture, native: bool,
) -> KernelSource:
    """The kernel of a pair: separable.cl. windows, weights: the packed weights of the depthwise and the 1x1."""
    first, second = problem.depthwise, problem.pointwise
    x = placements[depthwise.operands[0].value]
    between = placements[depthwise.output.name]
    before = build_epilogue(depthwise, between, placements, native, "depthwise_")
    after = build_epilogue(pointwise, output, placements, native)
    assert isinstance(x.storage, Texture) and isinstance(output.storage, Texture)
    helpers: list[str] = []
    sums = itertools.product(range(chosen.block_columns), range(chosen.block_quads))
    stride, dilation = first.strides[1], first.dilations[1]
    constants = input_constants(depthwise, x, helpers) | output_constants(output, second.filters, after, helpers) | {
        "INDEX": _index_type(problem, chosen, x.storage, output.storage), "BATCH": first.batch,
        "INPUT_HEIGHT": first.input_size[0], "QUADS": first.output_quads,
        "QUAD_LANES": (first.filters - 1) % LANES + 1,
        "OUTPUT_WIDTH": second.output_size[1], "OUTPUT_HEIGHT": second.output_size[0],
        "WINDOW_WIDTH": first.window[1], "WINDOW_HEIGHT": first.window[0], "STRIDE_X": stride,
        "STRIDE_Y": first.strides[0], "DILATION_X": dilation, "DILATION_Y": first.dilations[0],
        "PAD_X": first.pads[1], "PAD_Y": first.pads[0], "COLUMN_STEP": gcd(stride, dilation),
        "BLOCK_COLUMNS": chosen.block_columns, "BLOCK_QUADS": chosen.block_quads,
        "TILE_BLOCKS": chosen.group_columns, "TILE_ROWS": chosen.group_rows, "WORK_GROUP_QUADS": chosen.group_quads,
        "PARTS": chosen.parts, "WORK_GROUP": group_attribute(chosen.local_size),
        "EACH_SUM(act)": " ".join(f"act({column}, {o})" for column, o in sums),
        "READ_INPUT(x, y)": read_text("input", x.storage, helpers),
        "WINDOWS_IMAGE": image_type(windows),
        "READ_WINDOW(quad, tap)": read_text("windows", windows, helpers).replace("x, y)", "tap, quad)"),
        "WEIGHTS_IMAGE": image_type(weights),
        "READ_WEIGHT(n, quad)": read_text("weights", weights, helpers).replace("x, y)", "quad, n)"),
        "DEPTHWISE_EPILOGUE(sum, column, row, quad)": before.call, "DEPTHWISE_LOADS(quad)": before.loads,
        "EPILOGUE_PARAMETERS": before.parameters + after.parameters,
    }
    arguments = (
        KernelArgument("output", output.storage, written=True), KernelArgument("input", x.storage),
        KernelArgument("windows", windows), KernelArgument("weights", weights), *before.arguments, *after.arguments,
    )
    size = tuple(n * each for n, each in zip(_groups(problem, chosen), chosen.local_size, strict=True))
    text = specialise("separable.cl", constants, "".join(helpers) + before.functions + after.functions)
    return KernelSource(text, "separable.cl", arguments, size, chosen.local_size)


def _groups(problem: Problem, chosen: Specialisation) -> tuple[int, int, int]:
    """Work groups along x, y and z."""
    rows, columns = problem.pointwise.output_size
    return (
        ceil(problem.pointwise.output_quads / (chosen.block_quads * chosen.group_quads)),
        ceil(columns / (chosen.group_columns * chosen.block_columns)),
        problem.depthwise.batch * ceil(rows / chosen.group_rows),
    )


def _index_type(problem: Problem, chosen: Specialisation, x: Texture, output: Texture) -> str:
    """The type INDEX: short if it holds every position, else int."""
    rows, columns = problem.pointwise.output_size
    largest = max(
        output.tiling.width, output.tiling.height, problem.depthwise.batch * rows + chosen.group_rows,
        columns + chosen.group_columns * chosen.block_columns, problem.pointwise.filters + chosen.group_quads * LANES,
    )
    return "short" if largest <= SHORT_LIMIT else "int"


def nodes(graph: Graph) -> Iterator[tuple[Node, ...]]:
    """Every depthwise convolution with the 1x1 convolution that `follows` it."""
    for node in graph.nodes:
        after = follows(graph, node) if isinstance(node.operation, Convolution) else None
        if after is not None:
            yield node, after


def place(placing: Placing, given: tuple[Node, ...]) -> Step | None:
    """The Step of a pair. None if its input needs a copy, it reads too many images, or it reads what it writes."""
    depthwise, pointwise = given
    x, between = depthwise.operands[0], depthwise.output
    beside = depthwise.epilogue_operands + pointwise.epilogue_operands
    output = placing.placement(pointwise.output)
    # Parts of a concatenation share an image, and a kernel cannot both read and write an image.
    read = [placing.placements[o.value].storage for o in (x, *beside) if o.value in placing.placements]
    if not is_direct(placing, x, in_order=False) or output.storage in read:
        return None
    if len(beside) + 3 > placing.target.max_read_images:
        return None
    # The depthwise result stays in local memory. Its epilogue is built as if it were a texture.
    layout = image_layout(4)
    tiling = choose_tiling(*layout.grid(between.shape), placing.target.texture_limits, between.name, between.shape)
    place = Placement(Texture(between.name, between.shape, layout, "float32", tiling), between.shape)
    places = {x.value: placing.placements[x.value], between.name: place}
    places |= placing.operand_places(replace(depthwise, operands=()), place)
    places |= placing.operand_places(replace(pointwise, operands=()), output)
    return Step(
        given, output, places, "compute", f"{describe(depthwise)}, then {describe(pointwise)}", "separable convolution",
        values=(between.name, pointwise.output.name), template=TEMPLATE, problem=problem_of(depthwise, pointwise),
        details=Details(_weights(placing, depthwise), _weights(placing, pointwise)),
    )


def _weights(placing: Placing, node: Node) -> Weights:
    operand, operation = node.operands[1], node.operation
    assert isinstance(operation, Convolution)
    array = placing.constant_of(operand)
    return Weights(operand, array, operation, placing.weights_dtype(array, (node,)))


def kernel(step: Step, problem: Problem, chosen: Specialisation, emitting: Emitting) -> KernelSource:
    """The kernel of a Step, with the packed weights of both convolutions."""
    assert isinstance(step.details, Details)
    depthwise, pointwise = step.nodes

    def packed(node: Node, weights: Weights, part: conv.Problem, block_quads: int) -> Texture:
        one = PackedWeights(weights, part, block_quads, 0, False, weights.dtype)
        storage = emitting.packed(f"{node.output.name}.weights", one)
        assert isinstance(storage, Texture)
        return storage

    windows = packed(depthwise, step.details.depthwise, problem.depthwise, 1)
    weights = packed(pointwise, step.details.pointwise, problem.pointwise, chosen.block_quads)
    return separable_kernel(
        depthwise, pointwise, problem, chosen, step.output, step.places, windows, weights,
        emitting.config.native_explog,
    )


def _offered(problem: Problem, target: Target) -> list[Specialisation]:
    """The candidates, on computers' GPUs only; see `default_specialisation`."""
    large = target.kind == "gpu" and target.compute_units >= LARGE_GPU
    return candidates(problem, target.kind, target.local_memory_bytes) if large else []


TEMPLATE = Template(
    "separable", "separable.cl", Problem, Specialisation, candidates=_offered,
    cost=lambda problem, chosen, target: predicted_cost(problem, chosen, target.compute_units),
    nodes=nodes, place=place, kernel=kernel,
    without=lambda problem, target: cost_of_two(problem, target.kind, target.compute_units),
)
