"""The problem of a convolution (its sizes), and its specialisations: values for the free constants of its .cl files."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import ceil, gcd, prod
from typing import Literal, get_args

from imgconv.config import ACCUMULATORS, PRODUCTS, Accumulation
from imgconv.dtype import FLOAT16, DType
from imgconv.graph.nodes import Convolution
from imgconv.kernels.kernel_source import round_up
from imgconv.kernels.layout import LANES


@dataclass(frozen=True)
class Problem:
    """A convolution as conv.cl computes it.

    Sizes are those of one image of the batch. If the convolution is transposed, the window is that of one phase.

    groups: merged so that each begins at a whole quad; the last group may have fewer channels, but not fewer input
    quads. phases: the stride of a transposed convolution, otherwise 1. sums: how products are summed. integers: whether
    the weights or the input are integers, whose sums stay exact. gated: whether the input's channels are multiplied by
    factors. why_float_sums: the reason why no kernel may sum quantised values of the input in an int; "" if one may.
    Both are left out of repr, because measurements are stored under this text.
    """

    batch: int
    channels: int
    input_size: tuple[int, int]
    filters: int
    output_size: tuple[int, int]
    window: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    pads: tuple[int, int]
    groups: int
    depthwise: bool = False
    phases: tuple[int, int] = (1, 1)
    phase_shift: tuple[int, int] = (0, 0)
    sums: Accumulation = "float"
    integers: bool = False
    gated: bool = field(default=False, repr=False)
    why_float_sums: str = field(default="the input is stored as fp32", repr=False)

    @property
    def products(self) -> DType:
        """The type of the products."""
        return PRODUCTS[self.sums]

    @property
    def accumulator(self) -> DType:
        """The type of the whole sum."""
        return ACCUMULATORS[self.sums]

    @property
    def group_channels(self) -> int:
        """Input channels of a group. Of several groups each has whole quads, if only zeros are in the last one's."""
        if self.depthwise:
            return 1
        return self.channels if self.groups == 1 else round_up(ceil(self.channels / self.groups), LANES)

    @property
    def group_input_quads(self) -> int:
        return ceil(self.group_channels / LANES)

    @property
    def input_lanes(self) -> int:
        """Channels of an input quad that are summed: 4, or fewer if the group has a single quad."""
        return min(LANES, self.group_channels) if self.group_input_quads == 1 else LANES

    @property
    def group_output_quads(self) -> int:
        if self.depthwise:
            return self.output_quads
        return ceil(self.group_channels * self.filters // self.channels / LANES)

    @property
    def output_quads(self) -> int:
        return ceil(self.filters / LANES)

    @property
    def phase_size(self) -> tuple[int, int]:
        """Output rows and columns of one phase."""
        return ceil(self.output_size[0] / self.phases[0]), ceil(self.output_size[1] / self.phases[1])

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds of the convolution as the model states it."""
        per_output = self.window[0] * self.window[1] * self.group_channels
        phase = self.phase_size
        positions = phase[0] * phase[1] * self.phases[0] * self.phases[1]
        return self.batch * self.filters * positions * per_output


# A normalised byte is read as itself divided by this.
BYTE_SCALE = 127.0
# How long a texel of the input is kept after it is read: KEEP in conv.cl.
InputReuse = Literal["texel", "line", "window", "input"]
KEEP: tuple[InputReuse, ...] = get_args(InputReuse)
# Where a work item reads weights from: an image, a buffer, or local memory. For local memory the work group copies the
# weights from a buffer first, and the input's texels too.
WeightsPlace = Literal["image", "buffer", "local"]
# The most texels that a work item copies for its group at once, and bytes of local memory that every device has.
MOST_FETCHED, LOCAL_BYTES = 4, 1 << 15
# Bytes of local memory of a work group for parts of sums. The 32 KB of an Adreno's core hold four groups then: with 128
# work items each, as many waves as the core has units.
PARTS_BYTES = 1 << 13
# An image width that every device allows. Longer rows of weights are cut into tiles, which make each read slower.
SAFE_WIDTH = 1 << 14
# The most sums of a block that work items share: QUOTIENT in parts.cl divides their numbers.
MOST_SHARED = 256


@dataclass(frozen=True)
class Specialisation:
    """The free constants of conv.cl and depthwise.cl.

    block_columns, block_rows, block_quads: the outputs of a work item; passes: how many such blocks it computes along
    the quads. keep: how long an input texel is kept. weights: where they are read from. local_size: the work group;
    None leaves it to the driver. vector_quads: output quads in one vector. parts: work items that share a sum.
    half_quads: input quads in a chunk, if sums consist of fp16 chunks. float_coordinates: if a read may be outside the
    image, its coordinates are computed in float. integers: quantised values are summed in int. ordered: weights are
    read just before they are used, behind branches that every work item takes; otherwise, compilers for phones read all
    weights of an iteration first, which takes registers.
    """

    block_columns: int = 4
    block_rows: int = 1
    block_quads: int = 1
    keep: InputReuse = "line"
    weights: WeightsPlace = "image"
    local_size: tuple[int, int, int] | None = None
    vector_quads: int = 1
    passes: int = 1
    parts: int = 1
    half_quads: int = 0
    float_coordinates: bool = False
    integers: bool = False
    ordered: bool = False

    @property
    def items(self) -> int:
        """Work items of a group; 1 if the driver chooses them."""
        return prod(self.local_size or ())

    def __str__(self) -> str:
        text = f"block {self.block_columns}x{self.block_rows}x{self.block_quads}, {self.keep} kept, "
        text += f"weights in {self.weights}"
        text += f", {self.passes} passes" if self.passes > 1 else ""
        text += f", {self.parts} parts" if self.parts > 1 else ""
        text += f", vectors of {LANES * self.vector_quads}" if self.vector_quads > 1 else ""
        text += f", {self.half_quads} quads in half" if self.half_quads else ""
        text += ", float coordinates" if self.float_coordinates else ""
        text += ", sums of integers" if self.integers else ""
        text += ", weights read in order" if self.ordered else ""
        return text + ("" if self.local_size is None else f", work group {'x'.join(map(str, self.local_size))}")

    @property
    def weights_in_buffer(self) -> bool:
        """Returns whether the packed weights are a buffer."""
        return self.weights != "image"

    @property
    def has_barriers(self) -> bool:
        """Returns whether the items of a group meet at barriers: then those without outputs must not return early."""
        return self.parts > 1 or self.weights == "local"

    def allowed(self, problem: Problem) -> bool:
        """Returns whether conv.cl can compute the problem with these constants."""
        blocks = self.block_quads * self.passes
        inside = blocks == 1 if problem.depthwise else problem.groups == 1 or problem.group_output_quads % blocks == 0
        kept = not problem.depthwise if self.keep == "input" else self.passes == 1
        vectors = self.block_quads % self.vector_quads == 0 and (self.vector_quads == 1 or problem.products != FLOAT16)
        shared = self.parts == 1 or (
            self.passes == 1 and not self.weights_in_buffer and self.local_size is not None
            and self.local_size[1] % self.parts == 0 and self.parts.bit_count() == 1 and not problem.depthwise
            and accumulators_of(self) <= MOST_SHARED
        )
        runs = (problem.sums == "runs") == (self.half_quads > 0) and (
            not self.half_quads or problem.group_input_quads % self.half_quads == 0
        )
        plain = self.vector_quads == 1 and not self.weights_in_buffer
        summed = not self.integers or (plain and not problem.why_float_sums)
        ordered = not self.ordered or (
            plain and problem.accumulator == FLOAT16
            and not (problem.depthwise or self.integers or weights_are_cut(problem, self))
        )
        return inside and kept and vectors and shared and runs and summed and ordered and self._can_tile(problem)

    def _can_tile(self, problem: Problem) -> bool:
        """Returns whether items do not read through tiles in local memory, or can."""
        one_block = self.parts == self.vector_quads == 1 and self.local_size is not None
        one_image = problem.batch == problem.groups == 1 and problem.phases == (1, 1)
        return self.weights != "local" or (
            one_block and one_image and self.keep in ("texel", "line") and not problem.depthwise
            and problem.products != FLOAT16
            and local_texels(problem, self) * LANES * 4 <= LOCAL_BYTES
        )


def problem_of(operation: Convolution, x: tuple[int, ...], w: tuple[int, ...], output: tuple[int, ...]) -> Problem:
    """The problem of a Graph's convolution, from the shapes of its input, weights and output."""
    filters = output[1]
    depthwise = operation.groups == x[1] == filters and not operation.transposed
    groups = operation.groups if depthwise else _merged_groups(operation.groups, x[1], filters)
    made = Problem(
        x[0], x[1], (x[2], x[3]), filters, (output[2], output[3]), (w[2], w[3]), operation.strides,
        operation.dilations, operation.pads, groups, depthwise,
    )
    if not operation.transposed:
        return made
    strides = operation.strides
    window = tuple(ceil(((k - 1) * d + 1) / s) for k, d, s in zip(w[2:], operation.dilations, strides, strict=True))
    return replace(
        made, window=(window[0], window[1]), strides=(1, 1), dilations=(1, 1), pads=(window[0] - 1, window[1] - 1),
        phases=strides, phase_shift=operation.pads,
    )


def _merged_groups(groups: int, channels: int, filters: int) -> int:
    """Returns the number of groups after merging some, with zero weights between them, to begin at whole quads.

    The last may have fewer: of 10 groups with a channel each, it has 2, and the others 4.
    """
    each_in, each_out = channels // groups, filters // groups
    merge = max(LANES // gcd(LANES, each) for each in (each_in, each_out))
    made = ceil(groups / merge)
    return made if made * merge * each_in <= round_up(channels, LANES) else 1


def accumulators_of(chosen: Specialisation) -> int:
    """Texels of sums that a work item holds: one for each position and output quad."""
    return chosen.block_columns * chosen.block_rows * chosen.block_quads


def sums_reduced_at_once(problem: Problem, chosen: Specialisation) -> int:
    """Returns how many of a block's shared sums are reduced at once: as many as fit in PARTS_BYTES, or all."""
    items = prod(chosen.local_size or (1, 1, 1))
    return max(1, min(accumulators_of(chosen), PARTS_BYTES // (bytes_of_accumulator_texel(problem) * items)))


def bytes_of_accumulator_texel(problem: Problem) -> int:
    """Bytes of a texel of sums."""
    return LANES * problem.accumulator.bytes


def tile_has_one_tap(problem: Problem, chosen: Specialisation) -> bool:
    """Returns whether a tile in local memory has one position of the window at once, not all of it."""
    return chosen.weights == "local" and chosen.keep == "texel" and problem.window[1] > 1


def local_quads(problem: Problem, chosen: Specialisation) -> int:
    """Input quads whose weights a work group copies at once; 0 if it copies none."""
    if chosen.weights != "local":
        return 0
    room = min(MOST_FETCHED * chosen.items, LOCAL_BYTES // (LANES * 4))
    most = max(1, room // local_texels(problem, chosen))
    quads = problem.group_input_quads * (prod(problem.window) if tile_has_one_tap(problem, chosen) else 1)
    return max(n for n in range(1, min(most, 8) + 1) if quads % n == 0)


def local_texels(problem: Problem, chosen: Specialisation) -> int:
    """Texels of local memory that one input quad takes, with its weights."""
    return local_texels_of(chosen.local_size or (1, 1, 1), problem, chosen)


def local_texels_of(local_size: tuple[int, int, int], problem: Problem, chosen: Specialisation) -> int:
    """`local_texels` with a work group of another size."""
    single = tile_has_one_tap(problem, chosen)
    taps, strides = (1, (1, 1)) if single else (prod(problem.window), problem.strides)
    # One more for each row of quad blocks, as conv.cl has for all input quads together.
    texels = local_size[1] * (chosen.block_quads * taps * LANES + 1)
    rows, columns = (
        (group * block - 1) * stride + (0 if single else (window - 1) * dilation) + 1
        for group, block, stride, window, dilation in zip(
            (local_size[2], local_size[0]), (chosen.block_rows, chosen.block_columns), strides,
            problem.window, problem.dilations, strict=True,
        )
    )
    return texels + rows * (columns + (columns - 1) // (chosen.block_columns * strides[1]))


def tile_size(problem: Problem, chosen: Specialisation) -> tuple[int, int]:
    """Rows and columns of the texels of an input quad that a work item keeps together."""
    kept = KEEP.index(chosen.keep)
    sizes = []
    for axis, block, whole in ((0, chosen.block_rows, kept >= 2), (1, chosen.block_columns, kept >= 1)):
        reach = (block - 1) * problem.strides[axis] + (problem.window[axis] - 1) * problem.dilations[axis]
        sizes.append(reach // read_step(problem, chosen, axis) + 1 if whole else block)
    return sizes[0], sizes[1]


def read_step(problem: Problem, chosen: Specialisation, axis: int) -> int:
    """Input rows (axis 0) or columns (axis 1) from one read to the next, so that no output of a block misses one.

    For example, a block of several columns with stride 2 and dilation 4 reads every second column.
    """
    stride, dilation = problem.strides[axis], problem.dilations[axis]
    several = (chosen.block_rows, chosen.block_columns)[axis] > 1
    if problem.window[axis] == 1:
        return stride
    return gcd(stride, dilation) if several else dilation


def work_items(problem: Problem, chosen: Specialisation) -> tuple[int, int, int]:
    """Work items along x, y and z, before they are rounded up to whole work groups."""
    rows, columns = problem.phase_size
    passes = ceil(ceil(problem.output_quads / chosen.block_quads) / chosen.passes)
    return (
        ceil(columns / chosen.block_columns) * problem.phases[1], passes * chosen.parts,
        problem.batch * ceil(rows / chosen.block_rows) * problem.phases[0],
    )


def groups_of(problem: Problem, chosen: Specialisation) -> int:
    """Work groups of a launch on a GPU."""
    blocks, local = work_items(problem, chosen), chosen.local_size or (1, 1, 1)
    return prod(ceil(n / size) for n, size in zip(blocks, local, strict=True))


def texel_reads(problem: Problem, chosen: Specialisation) -> int:
    """Input texels that a work item reads."""
    again = (problem.window[1] if chosen.keep == "texel" else 1)
    again *= problem.window[0] if chosen.keep in ("texel", "line") else 1
    return ceil(problem.group_input_quads / chosen.parts) * prod(tile_size(problem, chosen)) * again


def weight_reads(problem: Problem, chosen: Specialisation) -> int:
    """Weight texels that a work item reads."""
    taps = prod(problem.window)
    if problem.depthwise:
        return taps
    steps = ceil(problem.group_input_quads / chosen.parts) * taps
    return steps * weights_of_step(problem, chosen) * chosen.passes


def weights_of_step(problem: Problem, chosen: Specialisation) -> int:
    """Weight texels of a step. One has four weights of an input channel, or four of four each if they are bytes."""
    return chosen.block_quads * (1 if chosen.integers else problem.input_lanes)


def weights_are_cut(problem: Problem, chosen: Specialisation) -> bool:
    """Returns whether a row of the weights' image is longer than any image may be, so that it is cut into tiles."""
    texels = weights_of_step(problem, chosen) if chosen.ordered else 1
    return texels * problem.group_input_quads * prod(problem.window) + chosen.integers > SAFE_WIDTH


def multiply_adds_of(problem: Problem, chosen: Specialisation) -> int:
    """Multiply-adds of a work item; of integers, four at once."""
    return weight_reads(problem, chosen) * LANES * chosen.block_rows * chosen.block_columns
