"""The template of matmul.cl: the problem of a matrix product, its specialisations, work and kernel."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import ceil, prod
from typing import Literal

import numpy

from imgconv.arrays import Array
from imgconv.graph.expression import MathMode
from imgconv.graph.index import Index, Variable, constant, unflatten, variable, variable_index
from imgconv.graph.nodes import Convolution, Node, Operand, Product
from imgconv.graph.view import View, axis_variables, identity, transpose
from imgconv.kernels.codegen.access import (
    LANE, SHORT_LIMIT, KernelArgument, coordinate, image_type, index_text, read_text,
)
from imgconv.kernels.codegen.epilogue import build_epilogue, output_constants
from imgconv.kernels.conv import problem as conv, template as conv_template
from imgconv.kernels.conv.mobile import BESIDE
from imgconv.kernels.device_model.cpu import TEXEL_BYTES
from imgconv.kernels.device_model.time_range import NEVER
from imgconv.kernels.device_model.work import LaunchWork
from imgconv.kernels.kernel_source import KernelSource, group_attribute, round_up
from imgconv.kernels.layout import LANES, Placement, Texture, matrix_layout
from imgconv.kernels.specialise import specialise
from imgconv.kernels.target import LARGE_GPU, Target, TargetKind
from imgconv.kernels.template_interface import (
    AnyLaunchStep, EmittingContext, LaunchStep, PlacingContext, Template, describe, nodes_with, operation_kind,
)


# Blocks of work items whose groups read through tiles in local memory, and the local memory that every device has.
TILED_BLOCKS = ((2, 1), (4, 1), (8, 1), (4, 2), (8, 2))
LOCAL_TEXELS = (1 << 15) // 16
LARGEST_GROUP = 256  # work items
GROUP = 128  # work items of a group that the driver chooses on a GPU; assumed
B_NAMES = "B_X(batch, inner, quad)", "B_Y(batch, inner, quad)"
TRANSPOSED_NAMES = "B_X(batch, row, quad)", "B_Y(batch, row, quad)"
# With fewer rows, tiles have nothing to share of a constant matrix.
FEWEST_ROWS = 8


@dataclass(frozen=True)
class Problem:
    """The sizes of `batch` products of (rows x inner) by (inner x columns).

    transposed: a texel of the right operand holds four of k, as a texel of the left operand does; such an operand can
    only be read through tiles. `transposed` is left out of repr, because measurements are stored under this text;
    `allowed` distinguishes the two cases.
    """

    batch: int
    rows: int
    inner: int
    columns: int
    transposed: bool = field(default=False, repr=False)

    @property
    def output_quads(self) -> int:
        return ceil(self.columns / LANES)

    @property
    def multiply_adds(self) -> int:
        return self.batch * self.rows * self.inner * self.columns


@dataclass(frozen=True)
class Specialisation:
    """The free constants of matmul.cl: the block of a work item, and how many work items share a sum (parts).

    group_columns, group_rows: work items of a group along the output's quads and rows, for each part. tile_depth: quads
    of k that each part copies to local memory at a time; 0 if items read the images.
    """

    block_rows: int = 1
    block_quads: int = 1
    parts: int = 1
    group_columns: int = 1
    group_rows: int = 1
    tile_depth: int = 0

    def __str__(self) -> str:
        text = f"block {self.block_rows}x{self.block_quads}, {self.parts} parts"
        return text if not self.tile_depth else (
            f"{text}, tile {self.tile_rows}x{self.tile_quads}, {self.tile_depth} quads deep"
        )

    @property
    def tile_rows(self) -> int:
        """Output rows of a work group, if tiled."""
        return self.block_rows * self.group_rows

    @property
    def tile_quads(self) -> int:
        """Output quads of a work group, if tiled."""
        return self.block_quads * self.group_columns

    @property
    def items(self) -> int:
        """Work items of a group, if tiled."""
        return self.group_rows * self.group_columns * self.parts

    @property
    def local_texels(self) -> int:
        """Texels of local memory of a group, if tiled: of copies, then of sums."""
        copied = self.parts * self.tile_depth * (self.tile_rows + LANES * self.tile_quads)
        return max(copied, self.items * self.block_rows * self.block_quads if self.parts > 1 else 0)


def problem_of(node: Node) -> Problem:
    """The problem of a Graph's product."""
    *batch, rows, columns = node.output.shape
    return Problem(prod(batch), rows, node.operands[0].view.shape[-1], columns)


def candidates(
    problem: Problem, kind: TargetKind, compute_units: int = 1, max_work_group: int = LARGEST_GROUP
) -> list[Specialisation]:
    """The specialisations worth measuring for a problem. kind: 'cpu' or 'gpu'. max_work_group: work items."""
    if problem.transposed:
        return list(_tiled_candidates(problem, max_work_group))
    blocks = dict.fromkeys(
        (min(rows, problem.rows), min(quads, problem.output_quads))
        for rows, quads in ((1, 1), (1, 2), (2, 2), (4, 1), (4, 2), (8, 2), (4, 4))
    )
    made = [Specialisation(*block) for block in blocks]
    if kind == "gpu" and problem.inner >= 64:
        columns = 1 << (min(8, problem.output_quads).bit_length() - 1)
        most = min(32, 1 << (problem.inner // 8).bit_length())
        made += [
            Specialisation(rows, 1, parts, columns)
            for rows in (1, min(4, problem.rows)) for parts in (8, 16, 32)
            if parts <= most and parts * columns <= max_work_group
        ]
    if kind == "gpu" and compute_units >= LARGE_GPU:
        made += _tiled_candidates(problem, max_work_group)
    return list(dict.fromkeys(made))


def _tiled_candidates(problem: Problem, max_work_group: int) -> Iterator[Specialisation]:
    """Candidates whose work groups read both operands through tiles in local memory: groups of 64 to 256 items."""
    most = min(LARGEST_GROUP, max_work_group)
    for (rows, quads), parts, items, columns, tile_depth in itertools.product(
        TILED_BLOCKS, (1, 2, 4, 8), (32, 64, 128), (8, 16), (2, 4)
    ):
        made = Specialisation(rows, quads, parts, columns, items // columns, tile_depth)
        waste = problem.rows < made.tile_rows - rows or problem.output_quads < made.tile_quads
        if 64 <= made.items <= most and made.local_texels <= LOCAL_TEXELS and not waste and (
            parts * tile_depth * LANES <= problem.inner
        ):
            yield made


def launch_work(problem: Problem, chosen: Specialisation, kind: TargetKind) -> LaunchWork:
    """The work of a launch. kind: 'cpu' or 'gpu'. A step is a quad of k, on a CPU one of k."""
    block, parts = chosen.block_rows * chosen.block_quads, chosen.parts
    texels, quads = chosen.block_rows + LANES * chosen.block_quads, ceil(ceil(problem.inner / LANES) / parts)
    rows = problem.batch * ceil(problem.rows / chosen.block_rows)
    columns = ceil(problem.output_quads / chosen.block_quads)
    # The driver chooses the group of items that share nothing: a row of them on a CPU, a wave or more on a GPU.
    groups, items = (rows, columns) if kind == "cpu" else (ceil(rows * columns / GROUP), GROUP)
    different = problem.rows * (ceil(problem.inner / LANES) + problem.output_quads)
    work = LaunchWork(
        groups, items, quads * LANES * LANES * block, reads=quads * texels, writes=block, registers=block + texels,
        steps=quads * (LANES if kind == "cpu" else 1), fewest_registers=block + texels + BESIDE,
        texels=problem.batch * (different + problem.inner * problem.output_quads),
    )
    if chosen.tile_depth:
        return _tiled_work(problem, chosen, work)
    if parts == 1:
        return work
    # A sum's parts are written to local memory and read from it.
    return replace(
        work, groups=rows * ceil(columns / chosen.group_columns), items=chosen.group_columns * parts,
        writes=block / parts, local=2 * block, barriers=parts.bit_length(),
        local_bytes=TEXEL_BYTES * block * chosen.group_columns * parts,
    )


def _tiled_work(problem: Problem, chosen: Specialisation, work: LaunchWork) -> LaunchWork:
    """The work of a launch whose groups copy tiles into local memory, where their items read them."""
    copies = ceil(ceil(problem.inner / LANES) / (chosen.parts * chosen.tile_depth))
    tiles = ceil(problem.output_quads / chosen.tile_quads) * ceil(problem.rows / chosen.tile_rows)
    tile = chosen.parts * chosen.tile_depth * (chosen.tile_rows + LANES * chosen.tile_quads)
    shared = 2 * work.writes if chosen.parts > 1 else 0
    return replace(
        work, groups=problem.batch * tiles, items=chosen.items, reads=0, steps=0, local=work.reads + shared,
        barriers=copies, fetched=copies * tile, writes=work.writes / chosen.parts,
        local_bytes=TEXEL_BYTES * chosen.local_texels,
    )


def texel_of(operand: Operand, placement: Placement, which: Literal["a", "b"]) -> tuple[Index, Index] | None:
    """Texel x and y of an operand whose last axis is along the lanes. None if it is not.

    A's lanes past K must be zero.
    """
    if operand.view.bounds or not isinstance(placement.storage, Texture):
        return None
    last = operand.view.shape[-1]
    if which == "a" and last % LANES and not _ends_with_tensor(operand, placement):
        return None
    x, y, lane = _address(operand, placement, which)
    one = last == 1 and lane == constant(0)
    if (lane != variable_index(LANE) and not one) or any(LANE in e.variables() for e in (x, y)):
        return None
    return x, y


def _address(operand: Operand, placement: Placement, which: Literal["a", "b"]) -> tuple[Index, Index, Index]:
    """Texel x and y, and the lane, of an operand: 'a' at (batch, row, quad of k), 'b' at (batch, inner, quad of n)."""
    *batch, rows, last = operand.view.shape
    row = variable("row" if which == "a" else "inner", rows)
    position = [*unflatten(variable("batch", prod(batch)), tuple(batch)), row]
    position.append(variable("quad", ceil(last / LANES)) * LANES + variable_index(LANE))
    axes = {Variable(f"i{a}", n): position[a] for a, n in enumerate(operand.view.shape)}
    return placement.address([e.substitute(axes) for e in operand.view.index])


def _transposed(operand: Operand) -> Operand:
    """The operand with its last two axes exchanged."""
    rank = len(operand.view.shape)
    order = [*range(rank - 2), rank - 1, rank - 2]
    return replace(operand, view=transpose(operand.view.shape, order).composed_with(operand.view))


def reads_rows(a: Operand, placement: Placement) -> bool:
    """Returns whether the left operand's rows are rows of texels: its product with a constant is a 1x1 convolution."""
    texel, view = texel_of(a, placement, "a"), a.view.shape
    if texel is None:
        return False
    rows = variable("batch", prod(view[:-2])) * view[-2] + variable("row", view[-2])
    return (texel[0] - variable("quad", ceil(view[-1] / LANES))).is_constant and texel[1] == rows


def as_convolution(problem: Problem) -> conv.Problem:
    """The product with a constant matrix, as a 1x1 convolution of an image of one column."""
    size = (problem.batch * problem.rows, 1)
    return conv.Problem(
        1, problem.inner, size, problem.columns, size, (1, 1), (1, 1), (1, 1), (0, 0), 1,
    )


def _ends_with_tensor(operand: Operand, placement: Placement) -> bool:
    """Returns whether the operand's last axis ends with its tensor's packed axis: the lanes past it are zero."""
    packed = placement.layout.packed
    if packed is None:
        return True
    first = operand.view.index[packed] - axis_variables(operand.view.shape)[-1]
    return first.is_constant and first.constant + operand.view.shape[-1] == placement.shape[packed]


def product_kernel(
    node: Node, problem: Problem, chosen: Specialisation, output: Placement, placements: Mapping[str, Placement],
    padded_inner: bool, math_mode: MathMode,
) -> KernelSource:
    """The kernel of a product: matmul.cl. padded_inner: whether K is a multiple of four or B has zero rows past K."""
    a, b = (placements[o.value] for o in node.operands)
    left, right = node.operands
    where_a = _address(left, a, "a")[:2]
    where_b = (_address(_transposed(right), b, "a") if problem.transposed else _address(right, b, "b"))[:2]
    epilogue = build_epilogue(node, output, placements, math_mode, rounded_on_store=True)
    helpers: list[str] = []
    inside = (False, False)
    largest = max(
        *(e.magnitude() for e in (*where_a, *where_b)), problem.inner + 4 * chosen.parts,
        problem.batch * problem.rows, problem.columns, output.texture.tiling.width,
    )
    row_blocks = ceil(problem.rows / chosen.block_rows)
    blocks = (ceil(problem.output_quads / chosen.block_quads), chosen.parts, problem.batch * row_blocks)
    shared = chosen.parts > 1
    local = (chosen.group_columns, chosen.parts, 1) if shared else None
    size = (round_up(blocks[0], chosen.group_columns), *blocks[1:]) if shared else blocks
    if chosen.tile_depth:
        tiles = ceil(problem.output_quads / chosen.tile_quads), ceil(problem.rows / chosen.tile_rows)
        local, size = (chosen.items, 1, 1), (tiles[0] * chosen.items, 1, problem.batch * tiles[1])
    a_x, a_y, b_x, b_y = (coordinate(e, index_text(e, helpers)) for e in (*where_a, *where_b))
    constants: dict[str, str | int] = {
        "INDEX": "short" if largest <= SHORT_LIMIT else "int", "ROWS": problem.rows, "INNER": problem.inner,
        "BLOCK_ROWS": chosen.block_rows, "BLOCK_QUADS": chosen.block_quads, "PARTS": chosen.parts,
        "WORK_GROUP_COLUMNS": chosen.group_columns, "WORK_GROUP_ROWS": chosen.group_rows,
        "TILE_DEPTH": chosen.tile_depth,
        "CHECK_INNER": int(problem.inner % LANES != 0 and not padded_inner),
        "A_IMAGE": image_type(a.texture), "READ_A(x, y)": read_text("a", a.texture, helpers, past=inside),
        "A_X(batch, row, quad)": a_x, "A_Y(batch, row, quad)": a_y,
        "B_IMAGE": image_type(b.texture), "READ_B(x, y)": read_text("b", b.texture, helpers, past=inside),
        **dict(zip(TRANSPOSED_NAMES if problem.transposed else B_NAMES, (b_x, b_y), strict=True)),
        "B_TRANSPOSED": int(problem.transposed),
        "WORK_GROUP": group_attribute(local),
    }
    constants |= output_constants(output, problem.columns, epilogue, helpers)
    arguments = (
        KernelArgument("output", output.storage, written=True), KernelArgument("a", a.storage),
        KernelArgument("b", b.storage), *epilogue.arguments,
    )
    text = specialise("matmul.cl", constants, "".join(helpers) + epilogue.functions)
    return KernelSource(text, "matmul.cl", arguments, size, local)


def place(placing: PlacingContext, given: tuple[Node, ...]) -> AnyLaunchStep:
    """The LaunchStep of a product. A product with a constant matrix is a 1x1 convolution if `reads_rows` allows it."""
    (node,) = given
    a, b = node.operands
    problem = problem_of(node)
    target = placing.target
    made_a = _readable_or_copy(placing, a, "a")
    padded = problem.inner % LANES == 0
    if b.value in placing.graph.constants:
        array = _without_batch(placing.constant_of(b))
        convolves = array.ndim == 2 and reads_rows(made_a, placing.placements[made_a.value])
        if convolves and (array.dtype.kind != "f" or not _tiles_are_faster(problem, target)):
            convolved = replace(node, operands=(made_a, b))
            weights = array.T[:, :, None, None]
            return conv_template.step_of(placing, convolved, as_convolution(problem), Convolution(), weights)
        made_b, padded = _padded_matrix(placing, node, b, array), True
    elif _can_transpose_in_tiles(placing, problem, b):
        made_b, problem = b, replace(problem, transposed=True)
    else:
        made_b = _readable_or_copy(placing, b, "b")
    node = replace(node, operands=(made_a, made_b))
    output = placing.place_value(node.output)
    places = {o.value: placing.placements[o.value] for o in node.operands}
    places |= placing.operand_places(replace(node, operands=()), output)
    return LaunchStep(
        (node,), output, places, TEMPLATE, problem, padded, describe(node), operation_kind(node),
        values=(node.output.name,),
    )


@lru_cache(1024)
def _tiles_are_faster(problem: Problem, target: Target) -> bool:
    """Returns whether a product with a constant matrix is expected to be faster in tiles than as a convolution."""
    if target.kind == "cpu" or target.is_mobile or problem.rows < FEWEST_ROWS:
        return False
    tiles = [TEMPLATE.predict(problem, c, target) for c in _tiled_candidates(problem, target.max_work_group)]
    return min(tiles, default=NEVER) < conv_template.TEMPLATE.best_time(as_convolution(problem), target)


def _without_batch(array: Array) -> Array:
    """Matrices (..., K, N) as one (K, N) if all are equal."""
    first = array[(0,) * (array.ndim - 2)]
    return first if numpy.array_equal(numpy.broadcast_to(first, array.shape), array, equal_nan=True) else array


def _readable_or_copy(placing: PlacingContext, operand: Operand, which: Literal["a", "b"]) -> Operand:
    """The operand, or a copy of it if its texels do not hold four of k ('a') or n ('b')."""
    if operand.value in placing.graph.constants:
        layout = matrix_layout(len(operand.view.source))
        placing.placements[operand.value] = placing.place_constant(operand.value, layout)
    if texel_of(operand, placing.placements[operand.value], which) is not None:
        return operand
    layout = matrix_layout(len(operand.view.shape))
    return placing.copy(operand, layout, "a product reads four of k or n to a texel")


def _can_transpose_in_tiles(placing: PlacingContext, problem: Problem, b: Operand) -> bool:
    """Returns whether tiles can be made of the right operand, and nothing else without a copy of it."""
    target, place = placing.target, placing.placements[b.value]
    if target.kind == "cpu" or target.is_mobile:
        return False
    if next(_tiled_candidates(problem, target.max_work_group), None) is None:
        return False
    return texel_of(b, place, "b") is None and texel_of(_transposed(b), place, "a") is not None


def _padded_matrix(placing: PlacingContext, node: Node, operand: Operand, array: Array) -> Operand:
    """A constant right operand as a texture, with zero rows after K up to a multiple of four."""
    *lead, inner, columns = array.shape
    padded = numpy.zeros((*lead, -(-inner // LANES) * LANES, columns), array.dtype)
    padded[..., :inner, :] = array
    name = placing.graph.unused_name(f"{node.output.name}.matrix")
    placing.placements[name] = placing.place_array(name, padded, matrix_layout(padded.ndim), (node,))
    view = identity(operand.view.shape)
    index = view.index if lead else view.index[-2:]
    return Operand(name, View(operand.view.shape, padded.shape, index))


def kernel(step: LaunchStep[Problem, bool], chosen: Specialisation, emitting: EmittingContext) -> KernelSource:
    """The kernel of a LaunchStep. Its details: whether A's lanes past K meet zeros in B."""
    math_mode = emitting.math_mode_of(step.output)
    return product_kernel(step.nodes[0], step.problem, chosen, step.output, step.places, step.details, math_mode)


TEMPLATE = Template(
    "product", "matmul.cl", Problem, Specialisation,
    allowed=lambda problem, chosen: chosen.tile_depth > 0 or not problem.transposed,
    candidates=lambda problem, target: candidates(
        problem, target.kind, target.compute_units, target.max_work_group
    ),
    work=lambda problem, chosen, target: launch_work(problem, chosen, target.kind),
    nodes=nodes_with(Product), place=place, kernel=kernel,
)
