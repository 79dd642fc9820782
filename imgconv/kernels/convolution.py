"""conv.cl's twin: a convolution's problem, its specialisations, its packed weights and the kernel they make."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil, gcd
from typing import Any

import numpy

from imgconv.access import LANE, SHORT_LIMIT, KernelArgument, image_type, read_text, write_text
from imgconv.epilogue import build_epilogue
from imgconv.graph import Convolution, Node, Operand
from imgconv.index import Index, Variable, constant, variable, variable_index
from imgconv.kernels.source import KernelSource, round_up
from imgconv.layout import (
    LANES, HostBuffer, ImageLimits, Layout, Placement, Texture, Tiling, choose_tiling, matrix_layout,
)
from imgconv.template import specialise
from imgconv.view import View


@dataclass(frozen=True)
class Problem:
    """A convolution as conv.cl sees it. Sizes are those of one image of the batch and, transposed, of one phase.

    groups: after `regroup`, so that each group begins at a whole quad. phases: the stride of a transposed convolution.
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

    @property
    def group_input_quads(self) -> int:
        return 1 if self.depthwise else ceil(self.channels // self.groups / LANES)

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


@dataclass(frozen=True)
class Specialisation:
    """What of conv.cl's constants is free: the block of a work item and where its weights are."""

    block_columns: int = 4
    block_rows: int = 1
    block_quads: int = 1
    keep_line: bool = True
    weights_in_buffer: bool = False
    local_size: tuple[int, int, int] | None = None

    def __str__(self) -> str:
        place = "buffer" if self.weights_in_buffer else "image"
        group = "" if self.local_size is None else f", work group {'x'.join(map(str, self.local_size))}"
        line = ", lines kept" if self.keep_line else ""
        return f"block {self.block_columns}x{self.block_rows}x{self.block_quads}, weights in {place}{line}{group}"


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


def pack_weights(problem: Problem, operation: Convolution, block_quads: int, weights: Any) -> Any:
    """The weights as conv.cl reads them: texels (phase and quad block, k, 4 output lanes), float32."""
    dense = weights.astype(numpy.float64)
    if operation.transposed:
        rows, columns = problem.phases
        phases = [_phase(problem, operation, dense, py, px) for py in range(rows) for px in range(columns)]
    else:
        phases = [dense]
    packed = [_pack_phase(problem, block_quads, w, operation.groups) for w in phases]
    return numpy.concatenate(packed).astype(numpy.float32)


def _phase(problem: Problem, operation: Convolution, weights: Any, phase_y: int, phase_x: int) -> Any:
    """The ordinary weights (O, C/groups, ...) that make the outputs of one phase of a transposed convolution."""
    groups, (channels, each) = operation.groups, weights.shape[:2]
    ordinary = weights.reshape(groups, channels // groups, each, *weights.shape[2:]).swapaxes(1, 2)
    ordinary = ordinary.reshape(groups * each, channels // groups, *weights.shape[2:])
    picked = numpy.zeros((*ordinary.shape[:2], *problem.window))
    for ty in range(problem.window[0]):
        for tx in range(problem.window[1]):
            # Window position t, from the far end, is the filter's tap `first + stride * t` of the stretched filter.
            tap = [
                (phase + shift) % stride + stride * (length - 1 - t)
                for phase, shift, stride, length, t in zip(
                    (phase_y, phase_x), problem.phase_shift, problem.phases, problem.window, (ty, tx), strict=True
                )
            ]
            inside = all(
                t % d == 0 and t // d < k for t, d, k in zip(tap, operation.dilations, weights.shape[2:], strict=True)
            )
            if inside:
                row, column = (t // d for t, d in zip(tap, operation.dilations, strict=True))
                picked[:, :, ty, tx] = ordinary[:, :, row, column]
    return picked


def _pack_phase(problem: Problem, block_quads: int, weights: Any, groups: int) -> Any:
    rows, columns = weights.shape[2:]
    if problem.depthwise:
        padded = numpy.zeros((problem.output_quads * LANES, rows * columns))
        padded[: problem.filters] = weights.reshape(problem.filters, -1)
        return padded.reshape(problem.output_quads, LANES, -1).swapaxes(1, 2)
    # Blocks of merged groups: (group, output, input) with zeros where the model's own groups do not meet.
    merge, (each_out, each_in) = groups // problem.groups, (weights.shape[0] // groups, weights.shape[1])
    merged = numpy.zeros((problem.groups, merge, each_out, merge, each_in, rows, columns))
    for part in range(merge):
        merged[:, part, :, part] = weights.reshape(problem.groups, merge, each_out, each_in, rows, columns)[:, part]
    quads_in, quads_out = problem.group_input_quads, problem.group_output_quads
    blocks = ceil(quads_out / block_quads)
    padded = numpy.zeros((problem.groups, blocks * block_quads * LANES, quads_in * LANES, rows, columns))
    padded[:, : merge * each_out, : merge * each_in] = merged.reshape(
        problem.groups, merge * each_out, merge * each_in, rows, columns
    )
    parts = padded.reshape(problem.groups, blocks, block_quads, LANES, quads_in, LANES, rows, columns)
    return parts.transpose(0, 1, 4, 6, 7, 5, 2, 3).reshape(problem.groups * blocks, -1, LANES)


def default_specialisation(problem: Problem, kind: str, compute_units: int) -> Specialisation:
    """A good block without measuring. kind: 'cpu' or 'gpu'."""
    rows, columns = problem.phase_size
    phases = problem.phases[0] * problem.phases[1]
    quads = 1 if problem.depthwise else _dividing(problem.group_output_quads, 4 if kind == "cpu" else 2, problem.groups)
    if kind == "cpu":
        block_columns = _least_waste(columns, 8 if problem.window[1] == 1 or problem.depthwise else 4)
        block_rows = 1 if problem.window[1] == 1 or problem.depthwise or rows == 1 else 2
    else:
        block_columns, block_rows = min(4, columns), 1
        items = problem.batch * phases * ceil(columns / block_columns) * rows * ceil(problem.output_quads / quads)
        if items < 64 * compute_units:
            quads = 1
            if items * 2 < 64 * compute_units:
                block_columns = min(2, columns)
    line = (block_columns - 1) * problem.strides[1] + (problem.window[1] - 1) * problem.dilations[1] + 1
    keep = problem.window[1] > 1 and line < block_columns * problem.window[1] and line * block_rows <= 24
    local = None
    if kind != "cpu":
        items_x = ceil(columns / block_columns) * problem.phases[1]
        local = (8 if items_x >= 8 else 4, 1 if ceil(problem.output_quads / quads) < 4 else 4, 2)
    return Specialisation(block_columns, block_rows, quads, keep, kind == "cpu", local)


def _dividing(quads: int, most: int, groups: int) -> int:
    if groups == 1:
        return min(most, quads)
    return max(n for n in range(1, most + 1) if quads % n == 0)


def _least_waste(columns: int, most: int) -> int:
    """The block length up to `most` that covers the columns with the least left over; longer ones first."""
    if columns <= most:
        return columns
    return min(range(most, most // 2, -1), key=lambda n: ceil(columns / n) * n)


def reads_directly(view: View, place: Placement) -> bool:
    """Whether conv.cl can read (N, C, H, W) through the view: x = column*pitch + offset + quad, y = image*H + row."""
    if view.bounds or not isinstance(place.storage, Texture):
        return False
    n, c, h, w = view.shape
    quads = ceil(c / LANES)
    image, row, column, quad = (variable(*v) for v in (("image", n), ("row", h), ("column", w), ("quad", quads)))
    position = (image, quad * LANES + variable_index(LANE), row, column)
    axes = {Variable(f"i{axis}", size): position[axis] for axis, size in enumerate(view.shape)}
    x, y, lane = place.address([e.substitute(axes) for e in view.index])
    pitch = place.layout.quads(place.storage.shape)
    lanes = lane == variable_index(LANE) or (c == 1 and lane == constant(0))
    # A part of a wider tensor starts at some quad of it; what lies beside it is met only past the last channel.
    offset = x.constant
    texels = x == column * pitch + quad + offset and y == image * h + row
    return lanes and texels and (c % LANES == 0 or offset + quads == pitch)


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


def weights_texture(name: str, packed: Any, limits: ImageLimits, dtype: str) -> Texture:
    """The texture that holds packed weights."""
    height, width = packed.shape[:2]
    layout: Layout = matrix_layout(2)
    shape = (height, width * LANES)
    return Texture(name, shape, layout, dtype, choose_tiling(width, height, limits, name, shape))


def convolution_kernel(
    node: Node, problem: Problem, chosen: Specialisation, output: Placement, placements: Mapping[str, Placement],
    weights: Texture | HostBuffer, native: bool,
) -> KernelSource:
    """conv.cl specialised: the node's output and operands at their placements, `weights` packed for the block."""
    x = placements[node.operands[0].value]
    epilogue = build_epilogue(node, output, placements, native)
    assert isinstance(x.storage, Texture) and isinstance(output.storage, Texture)
    input_tiling, output_tiling = x.storage.tiling, output.storage.tiling
    rows, columns = problem.phase_size
    helpers: list[str] = []
    constants: dict[str, str | int] = {
        "INDEX": _index_type(problem, chosen, input_tiling, output_tiling),
        "BATCH": problem.batch, "INPUT_HEIGHT": problem.input_size[0],
        "INPUT_PITCH": x.layout.quads(x.storage.shape), "INPUT_OFFSET": _first_quad(node, x),
        "INPUT_QUADS": problem.group_input_quads, "OUTPUT_WIDTH": columns, "OUTPUT_HEIGHT": rows,
        "FULL_OUTPUT_WIDTH": problem.output_size[1], "FULL_OUTPUT_HEIGHT": problem.output_size[0],
        "OUTPUT_PITCH": output.layout.quads(output.storage.shape), "OUTPUT_OFFSET": output.channel_offset // LANES,
        "OUTPUT_QUADS": problem.output_quads, "GROUP_QUADS": problem.group_output_quads,
        "DEPTHWISE": int(problem.depthwise), "WINDOW_WIDTH": problem.window[1], "WINDOW_HEIGHT": problem.window[0],
        "STRIDE_X": problem.strides[1], "STRIDE_Y": problem.strides[0],
        "DILATION_X": problem.dilations[1], "DILATION_Y": problem.dilations[0],
        "PAD_X": problem.pads[1], "PAD_Y": problem.pads[0],
        "PHASES_X": problem.phases[1], "PHASES_Y": problem.phases[0],
        "PHASE_SHIFT_X": problem.phase_shift[1], "PHASE_SHIFT_Y": problem.phase_shift[0],
        "BLOCK_COLUMNS": chosen.block_columns, "BLOCK_ROWS": chosen.block_rows, "BLOCK_QUADS": chosen.block_quads,
        "KEEP_LINE": int(chosen.keep_line), "CHECK_ROWS": int(problem.batch > 1),
        "LAST_LANES": (problem.filters - 1) % LANES + 1,
        "INPUT_IMAGE": image_type(input_tiling), "READ_INPUT(x, y)": read_text("input", input_tiling, helpers),
        "OUTPUT_IMAGE": image_type(output_tiling),
        "WRITE_OUTPUT(x, y, texel)": write_text("output", output_tiling, helpers),
        "EPILOGUE(sum, column, row, quad)": epilogue.call, "EPILOGUE_PARAMETERS": epilogue.parameters,
    }
    constants |= _weight_access(weights, helpers)
    factors = [KernelArgument("factors", placements[o.value].storage) for o in node.operands[2:]]
    constants |= _factor_access(node, placements, helpers)
    blocks = (
        ceil(columns / chosen.block_columns) * problem.phases[1], ceil(problem.output_quads / chosen.block_quads),
        problem.batch * ceil(rows / chosen.block_rows) * problem.phases[0],
    )
    size, local = blocks, chosen.local_size
    if local is not None:
        size = (round_up(blocks[0], local[0]), round_up(blocks[1], local[1]), round_up(blocks[2], local[2]))
    constants["GUARD"] = int(size != blocks)
    attribute = "" if local is None else f"__attribute__((reqd_work_group_size({', '.join(map(str, local))})))"
    constants["GROUP_SIZE"] = attribute
    arguments = (
        KernelArgument("output", output.storage, written=True), KernelArgument("input", x.storage),
        KernelArgument("weights", weights), *factors, *epilogue.arguments,
    )
    text = specialise("conv.cl", constants, "".join(helpers) + epilogue.functions)
    return KernelSource(text, "conv.cl", arguments, size, local)


def _first_quad(node: Node, place: Placement) -> int:
    """The quad of the storage at which the input's channel 0 is, for an operand that `reads_directly`."""
    zeros = {Variable(f"i{axis}", size): constant(0) for axis, size in enumerate(node.operands[0].view.shape)}
    return place.address([e.substitute(zeros) for e in node.operands[0].view.index])[0].constant


def _weight_access(weights: Texture | HostBuffer, helpers: list[str]) -> dict[str, str]:
    name = "READ_WEIGHT(block, k)"
    if isinstance(weights, HostBuffer):
        stretch = weights.shape[1] // LANES
        if weights.dtype == "float16":
            return {"WEIGHTS": "__global const half *weights", name: f"vload_half4((block) * {stretch} + (k), weights)"}
        return {"WEIGHTS": "__global const float4 *weights", name: f"weights[(block) * {stretch} + (k)]"}
    declaration = f"read_only {image_type(weights.tiling)} weights"
    return {"WEIGHTS": declaration, name: read_text("weights", weights.tiling, helpers).replace("x, y)", "k, block)")}


def _factor_access(node: Node, placements: Mapping[str, Placement], helpers: list[str]) -> dict[str, str | int]:
    name = "READ_FACTORS(image, quad)"
    if len(node.operands) < 3:
        return {"FACTORS": 0, "FACTORS_IMAGE": "image2d_t", name: "(float4)(1.0f)"}
    place = placements[node.operands[2].value]
    texel = factor_texel(node.operands[2], place)
    assert texel is not None and isinstance(place.storage, Texture), node
    read = read_text("factors", place.storage.tiling, helpers)
    return {
        "FACTORS": 1, "FACTORS_IMAGE": image_type(place.storage.tiling),
        name: read.replace("x, y)", f"{texel[0].render()}, {texel[1].render()})"),
    }


def _index_type(problem: Problem, chosen: Specialisation, input_tiling: Tiling, output_tiling: Tiling) -> str:
    """short where every position that the kernel keeps in an INDEX fits."""
    reach = problem.window[1] * problem.dilations[1] + chosen.block_columns * problem.strides[1]
    largest = max(
        input_tiling.width + reach * LANES, input_tiling.height + reach, output_tiling.width, output_tiling.height,
        output_tiling.height * problem.phases[0] + chosen.block_rows, problem.channels, problem.filters,
        problem.phases[0] * problem.phases[1] * ceil(problem.output_quads / chosen.block_quads),
    )
    return "short" if largest <= SHORT_LIMIT else "int"


