"""The twin of conv.cl and depthwise.cl: a convolution's problem, specialisations, packed weights and kernel."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import ceil, gcd, prod

from imgconv.graph.index import Index, Variable, constant, variable, variable_index
from imgconv.graph.nodes import Convolution, Node, Operand
from imgconv.kernels.access import LANE, SHORT_LIMIT, KernelArgument, image_type, index_text, read_text, write_text
from imgconv.kernels.epilogue import Epilogue, build_epilogue
from imgconv.kernels.layout import LANES, HostBuffer, Placement, Texture, Tiling
from imgconv.kernels.source import KernelSource, group_attribute, round_up
from imgconv.kernels.specialise import specialise


@dataclass(frozen=True)
class Problem:
    """A convolution as conv.cl sees it. Sizes are those of one image of the batch and, transposed, of one phase.

    groups: merged so that each begins at a whole quad. phases: the stride of a transposed convolution. half: whether
    multiply-adds are in half. integers: whether the weights or the input are integers, whose sums stay exact. small:
    whether no value of the input is known to be over SMALL; not in the text, by which measurements are found.
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
    half: bool = False
    integers: bool = False
    small: bool = field(default=False, repr=False)

    @property
    def group_input_quads(self) -> int:
        return 1 if self.depthwise else ceil(self.channels // self.groups / LANES)

    @property
    def input_lanes(self) -> int:
        """Channels of each input quad that need be summed."""
        return min(LANES, self.channels // self.groups) if self.group_input_quads == 1 else LANES

    @property
    def group_output_quads(self) -> int:
        return self.output_quads if self.depthwise else ceil(self.filters // self.groups / LANES)

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
        per_output = self.window[0] * self.window[1] * (1 if self.depthwise else self.channels // self.groups)
        phase = self.phase_size
        positions = phase[0] * phase[1] * self.phases[0] * self.phases[1]
        return self.batch * self.filters * positions * per_output


# A normalised byte is read as itself divided by this.
BYTE_SCALE = 127.0
# Values up to here may meet in a tile of F(4, 3): those of bytes, and of activations that are bounded.
SMALL = 256.0
# How long a texel of the input is kept once it was read, as in conv.cl.
KEEP = ("texel", "line", "window", "input")
# Where a work item reads weights: an image, a buffer, or local memory, into which its work group copies them from a
# buffer, and the input's texels too.
WEIGHTS = ("image", "buffer", "local")
# Texels that a work item fetches for its group at once, and bytes of local memory that every device has.
MOST_FETCHED, LOCAL_BYTES = 4, 1 << 15


@dataclass(frozen=True)
class Specialisation:
    """What of conv.cl's and depthwise.cl's constants is free.

    block_columns, block_rows, block_quads: the outputs of a work item, and passes: how many such blocks it makes along
    the quads. keep: how long an input texel is kept, one of KEEP. vector_quads: output quads in one vector. parts: work
    items that share a sum. half_quads: input quads that are summed in half before they are added in float.
    float_coordinates: where a read may be outside of the image, its coordinates are computed in float. weights: one of
    WEIGHTS. winograd: outputs of a tile of Winograd's minimal filtering along the rows, 2 or 4; 0 without it.
    """

    block_columns: int = 4
    block_rows: int = 1
    block_quads: int = 1
    keep: str = "line"
    weights: str = "image"
    local_size: tuple[int, int, int] | None = None
    vector_quads: int = 1
    passes: int = 1
    parts: int = 1
    half_quads: int = 0
    float_coordinates: bool = False
    winograd: int = 0

    def __str__(self) -> str:
        text = f"block {self.block_columns}x{self.block_rows}x{self.block_quads}, {self.keep} kept, "
        text += f"weights in {self.weights}" + (f", Winograd F({self.winograd}, 3)" if self.winograd else "")
        text += f", {self.passes} passes" if self.passes > 1 else ""
        text += f", {self.parts} parts" if self.parts > 1 else ""
        text += f", vectors of {LANES * self.vector_quads}" if self.vector_quads > 1 else ""
        text += f", {self.half_quads} quads in half" if self.half_quads else ""
        text += ", float coordinates" if self.float_coordinates else ""
        return text + ("" if self.local_size is None else f", work group {'x'.join(map(str, self.local_size))}")

    @property
    def weights_in_buffer(self) -> bool:
        """Whether the packed weights are a buffer."""
        return self.weights != "image"

    def allowed(self, problem: Problem) -> bool:
        """Whether conv.cl computes the problem with it."""
        blocks = self.block_quads * self.passes
        inside = blocks == 1 if problem.depthwise else problem.groups == 1 or problem.group_output_quads % blocks == 0
        kept = not problem.depthwise if self.keep == "input" else self.passes == 1
        vectors = self.block_quads % self.vector_quads == 0 and not (self.vector_quads > 1 and self.half_quads)
        shared = self.parts == 1 or (
            self.passes == 1 and not self.weights_in_buffer and self.local_size is not None
            and self.local_size[1] % self.parts == 0 and self.parts.bit_count() == 1 and not problem.depthwise
        )
        half = problem.half == (self.half_quads > 0) and (
            not problem.half or problem.group_input_quads % self.half_quads == 0
        )
        return inside and kept and vectors and shared and half and self._stages(problem) and self._transforms(problem)

    def _stages(self, problem: Problem) -> bool:
        """Whether weights and input are not in local memory, or can be."""
        one_block = self.parts == self.vector_quads == 1 and self.keep != "input" and self.local_size is not None
        one_image = problem.batch == problem.groups == 1 and problem.phases == (1, 1)
        return self.weights != "local" or (
            one_block and one_image and not problem.depthwise and not problem.half
            and staged_texels(problem, self) * LANES * 4 <= LOCAL_BYTES
        )

    def _transforms(self, problem: Problem) -> bool:
        """Whether Winograd's filtering is not used, or can be.

        F(2, 3) makes each output of the three columns that its window meets, and nothing else: F(4, 3) of the other
        three of its tile too, which cancel but for their rounding. With n terms in the sum of a tap, w the largest
        weight and M the largest value of the tile, about 5.5 n w M 2**-24 of one such value is left (5.5: the largest
        element of |A| |B| |G| that is 0 without the bars), and NaN of an infinity. So F(4, 3) needs an input whose
        values are known to be small: M is then no more than SMALL. Both are for float, and for texels that are kept for
        all of a window's rows or staged.
        """
        steps = problem.strides[1], problem.dilations[1], *problem.phases
        kept = self.keep == "input" or (self.keep == "line" and self.weights == "local")
        return not self.winograd or (
            problem.window[1] == 3 and set(steps) == {1} and not problem.depthwise and not problem.integers
            and not problem.half and kept and self.block_columns % self.winograd == 0
            and (self.winograd == 2 or problem.small)
        )


def problem_of(operation: Convolution, x: tuple[int, ...], w: tuple[int, ...], output: tuple[int, ...]) -> Problem:
    """The problem of a Graph's convolution, from the shapes of its input, weights and output."""
    filters = output[1]
    depthwise = operation.groups == x[1] == filters and not operation.transposed
    groups = operation.groups if depthwise else operation.groups // _merged(operation.groups, x[1], filters)
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


def _merged(groups: int, channels: int, filters: int) -> int:
    """How many groups to treat as one, with zero weights between them, so that groups begin at whole quads."""
    each_in, each_out = channels // groups, filters // groups
    need = [LANES // gcd(LANES, each) for each in (each_in, each_out)]
    merge = max(need)
    return merge if groups % merge == 0 and groups > 1 else groups


def _waits(chosen: Specialisation) -> bool:
    """Whether the items of a group wait for each other: those without outputs too, which must not return early."""
    return chosen.parts > 1 or chosen.weights == "local"


def taps_of(problem: Problem, chosen: Specialisation) -> int:
    """What an input quad has weights for: positions of the window, or of its rows Winograd's taps."""
    return problem.window[0] * (chosen.winograd + 2 if chosen.winograd else problem.window[1])


def sums_of(chosen: Specialisation) -> int:
    """Texels of sums of a work item: Winograd's are of taps."""
    columns = chosen.block_columns
    columns += columns // chosen.winograd * 2 if chosen.winograd else 0
    return columns * chosen.block_rows * chosen.block_quads


def staged_quads(problem: Problem, chosen: Specialisation) -> int:
    """How many input quads' weights a group copies at once; 0 where it copies none."""
    if chosen.weights != "local":
        return 0
    assert chosen.local_size is not None
    room = min(MOST_FETCHED * prod(chosen.local_size), LOCAL_BYTES // (LANES * 4))
    most = max(1, room // staged_texels(problem, chosen))
    return max(n for n in range(1, min(most, 8) + 1) if problem.group_input_quads % n == 0)


def kept_size(problem: Problem, chosen: Specialisation) -> tuple[int, int]:
    """Rows and columns of what is kept of them: texels, or Winograd's taps."""
    rows, columns = tile_size(problem, chosen)
    return rows, chosen.block_columns // chosen.winograd * (chosen.winograd + 2) if chosen.winograd else columns


def staged_texels(problem: Problem, chosen: Specialisation) -> int:
    """Texels of local memory for one input quad."""
    assert chosen.local_size is not None
    # One more for each row of quad blocks, as conv.cl has for all input quads together.
    texels = chosen.local_size[1] * (chosen.block_quads * taps_of(problem, chosen) * LANES + 1)
    rows, columns = (
        (group * block - 1) * stride + (window - 1) * dilation + 1
        for group, block, stride, window, dilation in zip(
            (chosen.local_size[2], chosen.local_size[0]), (chosen.block_rows, chosen.block_columns),
            problem.strides, problem.window, problem.dilations, strict=True,
        )
    )
    return texels + rows * (columns + (columns - 1) // (chosen.block_columns * problem.strides[1]))


def tile_size(problem: Problem, chosen: Specialisation) -> tuple[int, int]:
    """Rows and columns of the texels of one quad that are kept together."""
    kept = KEEP.index(chosen.keep)
    sizes = []
    for axis, block, whole in ((0, chosen.block_rows, kept >= 2), (1, chosen.block_columns, kept >= 1)):
        reach = (block - 1) * problem.strides[axis] + (problem.window[axis] - 1) * problem.dilations[axis]
        sizes.append(reach // _step(problem, chosen, axis) + 1 if whole else block)
    return sizes[0], sizes[1]


def factor_texel(factors: Operand, place: Placement) -> tuple[Index, Index] | None:
    """Texel x and y of the factors (N, C, 1, 1) of (image, quad); None where they do not lie four to a texel."""
    if factors.view.bounds or not isinstance(place.storage, Texture):
        return None
    n, c = factors.view.shape[:2]
    channel = variable("quad", ceil(c / LANES)) * LANES + variable_index(LANE)
    axes = {Variable("i0", n): variable("image", n), Variable("i1", c): channel}
    x, y, lane = place.address([e.substitute(axes) for e in factors.view.index])
    lanes = lane == variable_index(LANE) or (c == 1 and lane == constant(0))
    return (x, y) if lanes and not any(LANE in e.variables() for e in (x, y)) else None


def convolution_kernel(
    node: Node, problem: Problem, chosen: Specialisation, output: Placement, placements: Mapping[str, Placement],
    weights: Texture | HostBuffer, native: bool, exact: bool = False,
) -> KernelSource:
    """conv.cl specialised: the node's output and operands at their placements, `weights` packed for the block.

    exact: weights of bytes are read as the integers that they are; without it the epilogue is `scaled` for them.
    """
    x = placements[node.operands[0].value]
    starts = chosen.parts == chosen.vector_quads == 1 and not (chosen.winograd or problem.integers)
    epilogue = build_epilogue(node, output, placements, native, starts=starts)
    helpers: list[str] = []
    constants = _output_access(output, epilogue, helpers) | _geometry(problem, chosen) | _each_position(chosen)
    constants |= _input_access(node, x, problem, chosen, helpers)
    constants |= _weight_access(weights, problem, chosen, exact, helpers)
    constants |= _factor_access(node, placements, problem.half, helpers)
    assert isinstance(x.storage, Texture) and isinstance(output.storage, Texture)
    constants["INDEX"] = _index_type(problem, chosen, x.storage.tiling, output.storage.tiling)
    blocks, local = work_items(problem, chosen), chosen.local_size
    width, height, depth = local or (1, chosen.parts, 1)
    size = (round_up(blocks[0], width), round_up(blocks[1], height), round_up(blocks[2], depth))
    constants |= {"WORK_GROUP": group_attribute(local), "GUARD": int(size != blocks) * (2 if _waits(chosen) else 1)}
    if not problem.depthwise:
        constants |= _dense(problem, chosen) | {
            "WORK_GROUP_WIDTH": width, "WORK_GROUP_HEIGHT": height // chosen.parts, "WORK_GROUP_DEPTH": depth,
        }
    factors = [KernelArgument("factors", placements[o.value].storage) for o in node.operands[2:]]
    arguments = (
        KernelArgument("output", output.storage, written=True), KernelArgument("input", x.storage),
        KernelArgument("weights", weights), *factors, *epilogue.arguments,
    )
    file = "depthwise.cl" if problem.depthwise else "conv.cl"
    return KernelSource(
        specialise(file, constants, "".join(helpers) + epilogue.functions), file, arguments, size, local
    )


def _output_access(output: Placement, epilogue: Epilogue, helpers: list[str]) -> dict[str, str | int]:
    """The constants of kernels/output.cl and those of START in kernels/store.cl."""
    assert isinstance(output.storage, Texture)
    return {
        "OUTPUT_IMAGE": image_type(output.storage.tiling),
        "WRITE_OUTPUT(x, y, texel)": write_text("output", output.storage.tiling, helpers),
        "OUTPUT_PITCH": output.layout.quads(output.storage.shape), "OUTPUT_OFFSET": output.channel_offset // LANES,
        "EPILOGUE(sum, column, row, quad)": epilogue.call, "EPILOGUE_LOADS(quad)": epilogue.loads,
        "EPILOGUE_PARAMETERS": epilogue.parameters, "START": epilogue.start,
        "START_LOADS(quad)": epilogue.start_loads,
    }


def _geometry(problem: Problem, chosen: Specialisation) -> dict[str, str | int]:
    """Sizes of the tensors, the window and the block."""
    return {
        "BATCH": problem.batch, "INPUT_HEIGHT": problem.input_size[0],
        "OUTPUT_WIDTH": problem.output_size[1], "OUTPUT_HEIGHT": problem.output_size[0],
        "OUTPUT_QUADS": problem.output_quads, "LAST_LANES": (problem.filters - 1) % LANES + 1,
        "WINDOW_WIDTH": problem.window[1], "WINDOW_HEIGHT": problem.window[0],
        "STRIDE_X": problem.strides[1], "STRIDE_Y": problem.strides[0],
        "DILATION_X": problem.dilations[1], "DILATION_Y": problem.dilations[0],
        "PAD_X": problem.pads[1], "PAD_Y": problem.pads[0],
        "PHASES_X": problem.phases[1], "PHASES_Y": problem.phases[0],
        "BLOCK_COLUMNS": chosen.block_columns, "BLOCK_ROWS": chosen.block_rows, "BLOCK_QUADS": chosen.block_quads,
        "COLUMN_STEP": _step(problem, chosen, 1), "ROW_STEP": _step(problem, chosen, 0),
        "KEEP": KEEP.index(chosen.keep), "HALF_QUADS": chosen.half_quads,
    }


def _dense(problem: Problem, chosen: Specialisation) -> dict[str, str | int]:
    """What conv.cl has beside depthwise.cl."""
    return {
        "INPUT_QUADS": problem.group_input_quads, "INPUT_LANES": problem.input_lanes,
        "GROUP_QUADS": problem.group_output_quads,
        "PHASE_SHIFT_X": problem.phase_shift[1], "PHASE_SHIFT_Y": problem.phase_shift[0],
        "EACH_QUAD(act)": " ".join(f"act({o})" for o in range(chosen.block_quads)),
        "WINOGRAD": chosen.winograd, "PASSES": chosen.passes, "PARTS": chosen.parts,
        "VECTOR_QUADS": chosen.vector_quads, "STAGED_QUADS": staged_quads(problem, chosen),
    }


def _each_position(chosen: Specialisation) -> dict[str, str | int]:
    """The text that acts on each position of a block."""
    positions = itertools.product(range(chosen.block_rows), range(chosen.block_columns))
    return {"EACH_POSITION(act, o)": " ".join(f"act({row}, {column}, o)" for row, column in positions)}


def _input_access(
    node: Node, x: Placement, problem: Problem, chosen: Specialisation, helpers: list[str]
) -> dict[str, str | int]:
    assert isinstance(x.storage, Texture)
    inside, tiling = _reads_inside(problem, chosen), x.storage.tiling
    centre = chosen.float_coordinates and tiling.tiles == 1 and not inside
    past = _reads_past(problem, chosen)
    return {
        "INPUT_IMAGE": image_type(tiling), "INPUT_PITCH": x.layout.quads(x.storage.shape),
        "INPUT_OFFSET": _first_quad(node, x),
        "COORDINATE": "float" if centre else "int", "TEXEL_CENTRE": "0.5f" if centre else 0,
        "READ_INPUT(x, y)": read_text("input", tiling, helpers, inside, problem.half, centre, past),
    }


def _first_quad(node: Node, place: Placement) -> int:
    """The quad of the storage at which the input's channel 0 is, for an operand that `reads_directly`."""
    zeros = {Variable(f"i{axis}", size): constant(0) for axis, size in enumerate(node.operands[0].view.shape)}
    return place.address([e.substitute(zeros) for e in node.operands[0].view.index])[0].constant


def _weight_access(
    weights: Texture | HostBuffer, problem: Problem, chosen: Specialisation, exact: bool, helpers: list[str]
) -> dict[str, str | int]:
    name = "READ_WEIGHT(first, step)"
    if isinstance(weights, HostBuffer):
        size = LANES * chosen.vector_quads
        where = "(first) + (step)" if problem.depthwise else "(first) + (step) * WEIGHTS_OF_STEP"
        if weights.dtype == "float16":
            load = f"vload4({where}, weights)" if chosen.half_quads else f"vload_half{size}({where}, weights)"
            return {"WEIGHTS": "__global const half *weights", "WEIGHTS_IN_IMAGE": 0, name: load}
        if weights.dtype == "int8":
            load = f"convert_{'half' if chosen.half_quads else 'float'}{size}(vload{size}({where}, weights))"
            return {"WEIGHTS": "__global const char *weights", "WEIGHTS_IN_IMAGE": 0, name: load}
        load = f"convert_half4(weights[{where}])" if chosen.half_quads else f"weights[{where}]"
        return {"WEIGHTS": f"__global const float{size} *weights", "WEIGHTS_IN_IMAGE": 0, name: load}
    declaration = f"read_only {image_type(weights.tiling)} weights"
    read = read_text("weights", weights.tiling, helpers, inside=chosen.parts == 1, half=chosen.half_quads > 0)
    if chosen.vector_quads > 1:
        quads = ", ".join(read.replace("x, y)", f"step, (first) * {chosen.vector_quads} + {n})") for n in range(4))
        text = f"(float16)({quads})"
    else:
        text = read.replace("x, y)", "step, first)")
    # The product with 127 is an integer within a rounding.
    whole = weights.dtype == "int8" and exact
    return {"WEIGHTS": declaration, "WEIGHTS_IN_IMAGE": 1, name: f"rint({BYTE_SCALE}f * {text})" if whole else text}


def _factor_access(
    node: Node, placements: Mapping[str, Placement], half: bool, helpers: list[str]
) -> dict[str, str | int]:
    name = "READ_FACTORS(image, quad)"
    if len(node.operands) < 3:
        return {"FACTORS": 0, "FACTORS_IMAGE": "image2d_t", name: "((QUAD)(1.0f))"}
    place = placements[node.operands[2].value]
    texel = factor_texel(node.operands[2], place)
    assert texel is not None and isinstance(place.storage, Texture), node
    read = read_text("factors", place.storage.tiling, helpers, half=half, past=(False, False))
    x, y = (index_text(e, helpers) for e in texel)
    return {
        "FACTORS": 1, "FACTORS_IMAGE": image_type(place.storage.tiling), name: read.replace("x, y)", f"{x}, {y})"),
    }


def work_items(problem: Problem, chosen: Specialisation) -> tuple[int, int, int]:
    """Work items along x, y and z, before they are rounded up to whole work groups."""
    rows, columns = problem.phase_size
    passes = ceil(ceil(problem.output_quads / chosen.block_quads) / chosen.passes)
    return (
        ceil(columns / chosen.block_columns) * problem.phases[1], passes * chosen.parts,
        problem.batch * ceil(rows / chosen.block_rows) * problem.phases[0],
    )


def _reads_inside(problem: Problem, chosen: Specialisation) -> bool:
    """Whether no work item reads outside of the input: there is no padding, and blocks end where the output does."""
    fits = []
    for axis, block in ((0, chosen.block_rows), (1, chosen.block_columns)):
        last = (problem.phase_size[axis] - 1) * problem.strides[axis]
        last += (problem.window[axis] - 1) * problem.dilations[axis] - problem.pads[axis]
        whole = problem.phase_size[axis] % block == 0
        fits.append(whole and problem.pads[axis] <= 0 and last < problem.input_size[axis])
    return all(fits) and problem.phases == (1, 1) and not _waits(chosen)


def _reads_past(problem: Problem, chosen: Specialisation) -> tuple[bool, bool]:
    """Whether an output needs zeros past the last column, or below the last row of the input's texture."""
    past = []
    for axis in (1, 0):
        # The outputs of one of Winograd's tiles are made of all that it reads.
        outputs = round_up(problem.phase_size[axis], max(1, chosen.winograd if axis else 1))
        last = (outputs - 1) * problem.strides[axis] - problem.pads[axis]
        last += (problem.phases[axis] - 1 + problem.phase_shift[axis]) // problem.phases[axis]
        past.append(last + (problem.window[axis] - 1) * problem.dilations[axis] >= problem.input_size[axis])
    # In a batch conv.cl tests the rows itself.
    return past[0], past[1] and problem.batch == 1


def _step(problem: Problem, chosen: Specialisation, axis: int) -> int:
    """Input columns (axis 1) or rows (0) from one that is read to the next: all that any output of a block needs."""
    stride, dilation = problem.strides[axis], problem.dilations[axis]
    several = (chosen.block_rows, chosen.block_columns)[axis] > 1
    if problem.window[axis] == 1:
        return stride
    return gcd(stride, dilation) if several else dilation


def _index_type(problem: Problem, chosen: Specialisation, input_tiling: Tiling, output_tiling: Tiling) -> str:
    """short where every position that the kernel keeps in an INDEX fits."""
    # Items that only fill up a work group have positions too.
    groups = chosen.local_size or (1, 1, 1)
    reach = max(
        problem.window[axis] * problem.dilations[axis] + group * block * problem.strides[axis]
        for axis, group, block in ((1, groups[0], chosen.block_columns), (0, groups[2], chosen.block_rows))
    )
    largest = max(
        input_tiling.width + reach * LANES, input_tiling.height + reach, output_tiling.width, output_tiling.height,
        output_tiling.height * problem.phases[0] + chosen.block_rows, problem.channels, problem.filters,
        problem.phases[0] * problem.phases[1] * ceil(problem.output_quads / chosen.block_quads) * chosen.parts,
        problem.group_input_quads + chosen.parts * max(1, chosen.half_quads),
    )
    return "short" if largest <= SHORT_LIMIT else "int"


