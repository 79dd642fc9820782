"""The source of a convolution kernel: the values for the constants of conv.cl, conv_tiled.cl and depthwise.cl."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from math import ceil

from imgconv.dtype import DOT_PRODUCTS, FLOAT16, FLOAT32, INT8, UINT32, DotProduct, DType
from imgconv.graph.expression import MathMode
from imgconv.graph.index import Index, Variable, constant, variable, variable_index
from imgconv.graph.nodes import Convolution, Node, Operand
from imgconv.graph.quantization import Quantization
from imgconv.kernels.codegen.access import (
    LANE, SHORT_LIMIT, KernelArgument, image_type, index_text, packed_levels, read_text,
)
from imgconv.kernels.codegen.epilogue import build_epilogue, output_constants
from imgconv.kernels.conv.problem import (
    KEEP, Problem, Specialisation, local_quads, read_step, sums_reduced_at_once, tile_has_one_tap, work_items,
)
from imgconv.kernels.kernel_source import KernelSource, group_attribute, round_up
from imgconv.kernels.layout import LANES, HostBuffer, Placement, Texture, Tiling
from imgconv.kernels.specialise import specialise

# Texels of sums and of input in half with which Mesa's code spills if weights are read early: 42 do, 28 do not. An
# Adreno has 48 registers for four halves, and weights need some.
HELD_IN_HALF = 36


def factor_texel(factors: Operand, place: Placement, past: int = 0) -> tuple[Index, Index, Index]:
    """Texel x and y, and the lane, of the factors (N, C, 1, 1) at (image, quad). past: images after the last one."""
    n, c = factors.view.shape[:2]
    channel = variable("quad", ceil(c / LANES)) * LANES + variable_index(LANE)
    axes = {Variable("i0", n): variable("image", n + past), Variable("i1", c): channel}
    return place.address([e.substitute(axes) for e in factors.view.index])


def factors_are_packed(factors: Operand, place: Placement) -> bool:
    """Returns whether factors lie four to a texel."""
    if factors.view.bounds or not isinstance(place.storage, Texture):
        return False
    x, y, lane = factor_texel(factors, place)
    lanes = lane == variable_index(LANE) or (factors.view.shape[1] == 1 and lane == constant(0))
    return lanes and not any(LANE in e.variables() for e in (x, y))


def convolution_kernel(
    node: Node, problem: Problem, chosen: Specialisation, output: Placement, placements: Mapping[str, Placement],
    weights: Texture | HostBuffer, math_mode: MathMode, dot_product: DotProduct = "",
) -> KernelSource:
    """Returns the kernel of a convolution, from conv.cl, depthwise.cl or conv_tiled.cl.

    output, placements: where the node's output and operands are. weights: packed for the chosen block. math_mode: of
    the epilogue, which is `scaled` if weights are bytes of an image. dot_product: see Target.
    """
    x = placements[node.operands[0].value]
    # With ORDERED, sums that start with the bias take a few registers more.
    start_with_bias = chosen.parts == chosen.vector_quads == 1 and not (problem.integers or chosen.ordered)
    whole = chosen.parts == 1 and problem.filters % LANES == 0 and output.texture.tiling.is_one_image
    dtype = problem.accumulator if whole else FLOAT32
    epilogue = build_epilogue(
        node, output, placements, math_mode, start_with_bias=start_with_bias, dtype=dtype, rounded_on_store=True
    )
    helpers: list[str] = []
    constants = output_constants(output, problem.filters, epilogue, helpers) | {
        "START": epilogue.start, "START_LOADS(quad)": epilogue.start_loads,
    }
    constants |= _size_constants(problem, chosen) | _position_constants(chosen)
    constants |= _input_access(node, x, problem, chosen, helpers)
    constants |= _weight_access(weights, problem, chosen, helpers)
    constants |= _factor_access(node, placements, problem.products, helpers, chosen.has_barriers)
    constants["INDEX"] = _index_type(problem, chosen, x.texture.tiling, output.texture.tiling)
    blocks, local = work_items(problem, chosen), chosen.local_size
    width, height, depth = local or (1, chosen.parts, 1)
    size = (round_up(blocks[0], width), round_up(blocks[1], height), round_up(blocks[2], depth))
    guard = int(size != blocks) * (2 if chosen.has_barriers else 1)
    constants |= {"WORK_GROUP": group_attribute(local), "GUARD": guard}
    file = "kernels/conv/depthwise.cl"
    if not problem.depthwise:
        tiled = chosen.weights == "local"
        file = "kernels/conv/conv_tiled.cl" if tiled else "conv.cl"
        levels = x.texture.quantization
        own = (
            _constants_of_conv_tiled_cl(problem, chosen) if tiled else _constants_of_conv_cl(problem, chosen, levels)
        )
        constants |= _constants_of_block_cl(problem, chosen) | own | {
            "DOT_PRODUCT": DOT_PRODUCTS.index(dot_product),
            "WORK_GROUP_WIDTH": width, "WORK_GROUP_HEIGHT": height // chosen.parts, "WORK_GROUP_DEPTH": depth,
        }
    factors = [KernelArgument("factors", placements[o.value].storage) for o in node.operands[2:]]
    arguments = (
        KernelArgument("output", output.storage, written=True), KernelArgument("input", x.storage),
        KernelArgument("weights", weights), *factors, *epilogue.arguments,
    )
    return KernelSource(
        specialise(file, constants, "".join(helpers) + epilogue.functions), file, arguments, size, local
    )


def _size_constants(problem: Problem, chosen: Specialisation) -> dict[str, str | int]:
    """Sizes of the tensors, the window and the block."""
    return {
        "BATCH": problem.batch, "INPUT_HEIGHT": problem.input_size[0],
        "OUTPUT_WIDTH": problem.output_size[1], "OUTPUT_HEIGHT": problem.output_size[0],
        "WINDOW_WIDTH": problem.window[1], "WINDOW_HEIGHT": problem.window[0],
        "STRIDE_X": problem.strides[1], "STRIDE_Y": problem.strides[0],
        "DILATION_X": problem.dilations[1], "DILATION_Y": problem.dilations[0],
        "PAD_X": problem.pads[1], "PAD_Y": problem.pads[0],
        "PHASES_X": problem.phases[1], "PHASES_Y": problem.phases[0],
        "BLOCK_COLUMNS": chosen.block_columns, "BLOCK_ROWS": chosen.block_rows, "BLOCK_QUADS": chosen.block_quads,
        "COLUMN_STEP": read_step(problem, chosen, 1), "ROW_STEP": read_step(problem, chosen, 0),
        "KEEP": KEEP.index(chosen.keep), "HALF_QUADS": chosen.half_quads,
        "HALF_SUMS": int(problem.accumulator == FLOAT16), "INTEGERS": int(chosen.integers),
    }


def _constants_of_block_cl(problem: Problem, chosen: Specialisation) -> dict[str, str | int]:
    """The constants of kernels/conv/block.cl."""
    return {
        "INPUT_QUADS": problem.group_input_quads,
        "EACH_LANE(act)": " ".join(f"act({n}, {channel})" for n, channel in enumerate("xyzw"[: problem.input_lanes])),
        "EACH_QUAD(act)": " ".join(f"act({o})" for o in range(chosen.block_quads)),
        "VECTOR_QUADS": chosen.vector_quads, "ORDERED": int(chosen.ordered),
    }


def _constants_of_conv_tiled_cl(problem: Problem, chosen: Specialisation) -> dict[str, str | int]:
    """The constants of conv_tiled.cl alone."""
    return {
        "LOCAL_QUADS": local_quads(problem, chosen), "BY_TAPS": int(tile_has_one_tap(problem, chosen)),
        "INPUT_WIDTH": problem.input_size[1],
        # Of the phases of a transposed convolution there is one.
        "PAD_X": problem.pads[1] - problem.phase_shift[1], "PAD_Y": problem.pads[0] - problem.phase_shift[0],
    }


def _constants_of_conv_cl(
    problem: Problem, chosen: Specialisation, levels: Quantization | None
) -> dict[str, str | int]:
    """The constants of conv.cl alone."""
    return {
        "GROUP_QUADS": problem.group_output_quads, "PASSES": chosen.passes, "PARTS": chosen.parts,
        "PHASE_SHIFT_X": problem.phase_shift[1], "PHASE_SHIFT_Y": problem.phase_shift[0],
        "ZERO_POINT": int(chosen.integers and levels is not None and levels.low != 0),
        "TOGETHER": sums_reduced_at_once(problem, chosen), "EACH_MEETING(act, put)": _reduction_text(problem, chosen),
    }


def _reduction_text(problem: Problem, chosen: Specialisation) -> str:
    """The text that acts on the first of each TOGETHER sums of a block, and puts the parts of these."""
    sums = list(itertools.product(*map(range, (chosen.block_rows, chosen.block_columns, chosen.block_quads))))
    together = sums_reduced_at_once(problem, chosen)
    return " ".join(
        f"act({first}, " + " ".join(
            f"put({n}, {row}, {column}, {o})" for n, (row, column, o) in enumerate(sums[first : first + together])
        ) + ")" for first in range(0, len(sums), together)
    )


def _position_constants(chosen: Specialisation) -> dict[str, str | int]:
    """The text that acts on each position of a block."""
    positions = itertools.product(range(chosen.block_rows), range(chosen.block_columns))
    return {"EACH_POSITION(act, o)": " ".join(f"act({row}, {column}, o)" for row, column in positions)}


def _input_access(
    node: Node, x: Placement, problem: Problem, chosen: Specialisation, helpers: list[str]
) -> dict[str, str | int]:
    inside, tiling = _reads_inside(problem, chosen), x.texture.tiling
    centre = chosen.float_coordinates and tiling.is_one_image and not inside
    past = _reads_past(problem, chosen)
    # In a batch conv.cl tests the rows itself: one below the picture is -1, above the texture.
    before = max(problem.pads) > 0 or problem.phases != (1, 1) or (problem.batch > 1 and past[1])
    past = past[0], past[1] and problem.batch == 1
    dtype = UINT32 if chosen.integers else problem.products
    read = read_text("input", x.texture, helpers, inside, dtype, centre, past, before)
    made = input_constants(node, x, helpers) | coordinate_constants(centre)
    levels = x.texture.quantization
    return made | {"READ_INPUT(x, y)": packed_levels(read, levels, helpers) if chosen.integers and levels else read}


def coordinate_constants(centre: bool) -> dict[str, str | int]:
    """The constants of kernels/lib/coordinate.cl. centre: whether coordinates are floats at the centres of texels."""
    return {"COORDINATE": "float" if centre else "int", "TEXEL_CENTRE": "0.5f" if centre else 0}


def input_constants(node: Node, place: Placement, helpers: list[str]) -> dict[str, str | int]:
    """Returns the constants of kernels/lib/input.cl for an input that `reads_directly` accepts."""
    shape = node.operands[0].view.shape
    channels = 1 if isinstance(node.operation, Convolution) else len(shape) - 1  # of a product: what is summed over
    quad = Variable("quad", SHORT_LIMIT)  # like a read of an image, it has no bounds
    axes = {Variable(f"i{axis}", size): constant(0) for axis, size in enumerate(shape)}
    axes[Variable(f"i{channels}", shape[channels])] = variable_index(quad) * LANES
    read = place.address([e.substitute(axes) for e in node.operands[0].view.index])[0]
    first = read.substitute({quad: constant(0)}).constant
    follow = read - first == variable_index(quad)
    return {
        "INPUT_IMAGE": image_type(place.texture), "INPUT_PITCH": place.layout.quads(place.storage.shape),
        "INPUT_OFFSET": first, "INPUT_QUAD(quad)": "(quad)" if follow else index_text(read - first, helpers),
    }


def _weight_access(
    weights: Texture | HostBuffer, problem: Problem, chosen: Specialisation, helpers: list[str]
) -> dict[str, str | int]:
    name = "READ_WEIGHT(first, step)"
    if isinstance(weights, HostBuffer):
        size = LANES * chosen.vector_quads
        where = "(first) + (step)" if problem.depthwise else "(first) + (step) * WEIGHTS_OF_STEP"
        if weights.dtype == FLOAT16:
            load = f"vload4({where}, weights)" if problem.products == FLOAT16 else f"vload_half{size}({where}, weights)"
            return {"WEIGHTS": "__global const half *weights", "WEIGHTS_IN_IMAGE": 0, name: load}
        if weights.dtype == INT8:
            load = f"convert_{problem.products.scalar}{size}(vload{size}({where}, weights))"
            return {"WEIGHTS": "__global const char *weights", "WEIGHTS_IN_IMAGE": 0, name: load}
        load = f"weights[{where}]"
        load = load if problem.products == FLOAT32 else f"convert_{problem.products.scalar}4({load})"
        return {"WEIGHTS": f"__global const float{size} *weights", "WEIGHTS_IN_IMAGE": 0, name: load}
    declaration = f"{image_type(weights)} weights"
    # No read is outside, and Mesa's Adreno code converts and moves fewer coordinates without the sampler. But then it
    # reads all weights of a step ahead, and large blocks in half that share sums run out of registers.
    held = chosen.block_columns * chosen.block_rows * (chosen.block_quads + 1)
    inside = chosen.ordered or chosen.parts == 1 or problem.accumulator != FLOAT16 or held < HELD_IN_HALF
    read = read_text("weights", weights, helpers, inside, UINT32 if chosen.integers else problem.products)
    if chosen.vector_quads > 1:
        quads = ", ".join(read.replace("x, y)", f"step, (first) * {chosen.vector_quads} + {n})") for n in range(4))
        text = f"(float16)({quads})"
    else:
        text = read.replace("x, y)", "step, first)")
    return {"WEIGHTS": declaration, "WEIGHTS_IN_IMAGE": 1, name: text}


def _factor_access(
    node: Node, placements: Mapping[str, Placement], dtype: DType, helpers: list[str], waits: bool
) -> dict[str, str | int]:
    """waits: whether work items without outputs, which may be past the last image, wait for others."""
    name = "READ_FACTORS(image, quad)"
    if len(node.operands) < 3:
        return {"FACTORS": 0, "FACTORS_IMAGE": "read_only image2d_t", name: "((QUAD)(1.0f))"}
    place = placements[node.operands[2].value]
    texel = factor_texel(node.operands[2], place, int(waits))[:2]
    read = read_text("factors", place.texture, helpers, dtype=dtype, past=(False, False))
    x, y = (index_text(e, helpers) for e in texel)
    return {
        "FACTORS": 1, "FACTORS_IMAGE": image_type(place.texture), name: read.replace("x, y)", f"{x}, {y})"),
    }


def _reads_inside(problem: Problem, chosen: Specialisation) -> bool:
    """Returns whether no work item reads outside of the input: no padding, and blocks end with the output."""
    fits = []
    for axis, block in ((0, chosen.block_rows), (1, chosen.block_columns)):
        last = (problem.phase_size[axis] - 1) * problem.strides[axis]
        last += (problem.window[axis] - 1) * problem.dilations[axis] - problem.pads[axis]
        whole = problem.phase_size[axis] % block == 0
        fits.append(whole and problem.pads[axis] <= 0 and last < problem.input_size[axis])
    # Work items without outputs return, unless others wait for them.
    sizes = zip(work_items(problem, chosen), chosen.local_size or (1, 1, 1), strict=True)
    idle = chosen.has_barriers and any(items % group for items, group in sizes)
    return all(fits) and problem.phases == (1, 1) and not idle


def _reads_past(problem: Problem, chosen: Specialisation) -> tuple[bool, bool]:
    """Returns whether an output needs zeros past the last column, and below the last row, of a picture."""
    past = []
    for axis in (1, 0):
        last = (problem.phase_size[axis] - 1) * problem.strides[axis] - problem.pads[axis]
        last += (problem.phases[axis] - 1 + problem.phase_shift[axis]) // problem.phases[axis]
        past.append(last + (problem.window[axis] - 1) * problem.dilations[axis] >= problem.input_size[axis])
    return past[0], past[1]


def _index_type(problem: Problem, chosen: Specialisation, input_tiling: Tiling, output_tiling: Tiling) -> str:
    """The type INDEX: short if it holds every position that the kernel keeps in one, else int."""
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


