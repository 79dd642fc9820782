"""The template of separable.cl: a depthwise and a 1x1 convolution in one launch, if this is faster than two."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import gcd

from imgconv.config import Accumulation
from imgconv.dtype import DOT_PRODUCTS, FLOAT16, FLOAT32, UINT32, UNSIGNED_INT8, DotProduct, DType
from imgconv.graph.expression import MathMode
from imgconv.graph.nodes import Convolution, Graph, Node, Value
from imgconv.kernels.codegen.access import (
    SHORT_LIMIT, KernelArgument, image_type, levels_above_low, packed_result, read_text,
)
from imgconv.kernels.codegen.epilogue import Epilogue, build_epilogue, output_constants
from imgconv.kernels.conv import problem as conv, template as conv_template
from imgconv.kernels.conv.quantized_weights import QuantizedWeights, why_no_levels
from imgconv.kernels.conv.template import accumulation_of, is_direct, multiply_sum_first
from imgconv.kernels.conv.text import input_constants
from imgconv.kernels.conv.weights import PackedWeights, Weights
from imgconv.kernels.device_model.time_range import TimeRange
from imgconv.kernels.kernel_source import KernelSource, group_attribute
from imgconv.kernels.layout import (
    LANES, Placement, Texture, as_texture, choose_tiling, image_layout,
)
from imgconv.kernels.separable.candidates import candidates, launch_work
from imgconv.kernels.separable.problem import Problem, Specialisation, groups_of
from imgconv.kernels.specialise import specialise
from imgconv.kernels.target import Target
from imgconv.kernels.template_interface import (
    EmittingContext, LaunchStep, PackedConstant, PlacingContext, Template, describe, require_operation,
)

FILE = "kernels/separable/separable.cl"

WIDER: tuple[Accumulation, ...] = ("half", "runs", "float")  # the ways of summing products, each wider than the last


@dataclass(frozen=True, eq=False)
class SeparableDetails:
    """The weights of both convolutions before they are packed."""

    depthwise: Weights
    pointwise: Weights


def pointwise_after(graph: Graph, depthwise: Node) -> Node | None:
    """The 1x1 convolution that is the only reader of a depthwise convolution's result. None if there is none."""
    name = depthwise.output.name
    readers = graph.consumers[name]
    if name in graph.outputs or len(readers) != 1 or not _is_ordinary_convolution(graph, depthwise):
        return None
    (pointwise,) = readers
    if not _is_ordinary_convolution(graph, pointwise) or sum(o.value == name for o in pointwise.all_operands) != 1:
        return None
    problem = problem_of(depthwise, pointwise)
    first, second = problem.depthwise, problem.pointwise
    one = second.groups == 1 and second.window == second.strides == (1, 1) and second.pads == (0, 0)
    same = second.output_size == second.input_size and pointwise.operands[0].view.is_identity
    return pointwise if first.depthwise and one and same and pointwise.operands[0].value == name else None


def _is_ordinary_convolution(graph: Graph, node: Node) -> bool:
    """Returns whether a node is an ordinary convolution with constant weights, without factors."""
    if not isinstance(node.operation, Convolution) or node.operation.transposed or len(node.operands) != 2:
        return False
    return node.operands[1].value in graph.constants


def _are_floats(graph: Graph, nodes: tuple[Node, ...]) -> bool:
    """Returns whether all that nodes read and write is floats."""
    values = [*(graph.values[o.value] for node in nodes for o in node.operands), *(node.output for node in nodes)]
    return all(value.dtype.startswith("float") for value in values)


def problem_of(depthwise: Node, pointwise: Node) -> Problem:
    """The problem of a depthwise and a 1x1 convolution."""
    return Problem(_problem_of(depthwise), _problem_of(pointwise))


def _problem_of(node: Node) -> conv.Problem:
    x, w = (operand.view.shape for operand in node.operands)
    return conv.problem_of(require_operation(Convolution, node), x, w, node.output.shape)


def separable_kernel(
    depthwise: Node, pointwise: Node, problem: Problem, chosen: Specialisation, output: Placement,
    placements: Mapping[str, Placement], windows: Texture, weights: Texture, math_mode: MathMode,
    dot_product: DotProduct,
) -> KernelSource:
    """The kernel of a pair: separable.cl. windows, weights: the packed weights of the depthwise and the 1x1."""
    first, second = problem.depthwise, problem.pointwise
    x = placements[depthwise.operands[0].value]
    between = placements[depthwise.output.name]
    depthwise, pointwise = (
        replace(node, epilogue=multiply_sum_first(node.epilogue, levels.scale)) if problem.integers and levels else node
        for node, levels in ((depthwise, x.texture.quantization), (pointwise, between.texture.quantization))
    )
    before, after = _epilogues(depthwise, pointwise, problem, chosen, between, output, placements, math_mode)
    helpers: list[str] = []
    products = problem.pointwise.products
    sums = itertools.product(range(chosen.block_columns), range(chosen.block_quads))
    stride, dilation = first.strides[1], first.dilations[1]
    constants = input_constants(depthwise, x, helpers) | output_constants(output, second.filters, after, helpers) | {
        "INDEX": _index_type(problem, chosen, x.texture, output.texture), "BATCH": first.batch,
        "INPUT_HEIGHT": first.input_size[0], "QUADS": first.output_quads,
        "QUAD_LANES": (first.filters - 1) % LANES + 1,
        "OUTPUT_WIDTH": second.output_size[1], "OUTPUT_HEIGHT": second.output_size[0],
        "WINDOW_WIDTH": first.window[1], "WINDOW_HEIGHT": first.window[0], "STRIDE_X": stride,
        "STRIDE_Y": first.strides[0], "DILATION_X": dilation, "DILATION_Y": first.dilations[0],
        "PAD_X": first.pads[1], "PAD_Y": first.pads[0], "COLUMN_STEP": gcd(stride, dilation),
        "BLOCK_COLUMNS": chosen.block_columns, "BLOCK_QUADS": chosen.block_quads,
        "TILE_BLOCKS": chosen.group_columns, "TILE_ROWS": chosen.group_rows, "WORK_GROUP_QUADS": chosen.group_quads,
        "PARTS": chosen.parts, "WORK_GROUP": group_attribute(chosen.local_size),
        "EACH_COLUMN(act)": " ".join(f"act({column})" for column in range(chosen.block_columns)),
        "EACH_SUM(act)": " ".join(f"act({column}, {o})" for column, o in sums),
        "HALF_QUADS": chosen.half_quads(problem), "HALF_SUMS": int(second.accumulator == FLOAT16),
        "INTEGERS": int(problem.integers), "ORDERED": int(products == FLOAT16 or problem.integers),
        "DOT_PRODUCT": DOT_PRODUCTS.index(dot_product),
        "WINDOWS_IMAGE": image_type(windows), "WEIGHTS_IMAGE": image_type(weights),
        "DEPTHWISE_EPILOGUE(sum, column, row, quad)": before.call, "DEPTHWISE_LOADS(quad)": before.loads,
        "DEPTHWISE_HALF_EPILOGUE": before.half_epilogue_constant, "DEPTHWISE_START": before.start,
        "DEPTHWISE_START_LOADS(quad)": before.start_loads,
        "START": after.start, "START_LOADS(quad)": after.start_loads,
        "EPILOGUE_PARAMETERS": before.parameters + after.parameters,
    } | _access_constants(problem, x.texture, between.texture, windows, weights, before.levels, helpers)
    arguments = (
        KernelArgument("output", output.storage, written=True), KernelArgument("input", x.storage),
        KernelArgument("windows", windows), KernelArgument("weights", weights), *before.arguments, *after.arguments,
    )
    size = tuple(n * each for n, each in zip(groups_of(problem, chosen), chosen.local_size, strict=True))
    text = specialise(FILE, constants, "".join(helpers) + before.functions + after.functions)
    return KernelSource(text, FILE, arguments, size, chosen.local_size)


def _access_constants(
    problem: Problem, x: Texture, between: Texture, windows: Texture, weights: Texture, levels: bool,
    helpers: list[str],
) -> dict[str, str | int]:
    """The constants of what the kernel reads, and of the result in local memory. levels: see Epilogue."""
    dtype = UINT32 if problem.integers else problem.pointwise.products
    read, window, weight = (
        read_text(name, texture, helpers, dtype=dtype)
        for name, texture in (("input", x), ("windows", windows), ("weights", weights))
    )
    window, weight = window.replace("x, y)", "tap, quad)"), weight.replace("x, y)", "quad, n)")
    packed, starts = "(texel)", (0, 0)
    if problem.integers:
        given, made = x.quantization, between.quantization
        assert given is not None and made is not None, "convolutions that sum integers read quantised values"
        read, window = f"as_int4({levels_above_low(read, given)})", f"as_int4({window})"
        packed, starts = packed_result("texel", made, levels), (int(given.low != 0), int(made.low != 0))
    return {
        "READ_INPUT(x, y)": read, "READ_WINDOW(quad, tap)": window, "READ_WEIGHT(n, quad)": weight,
        "PACKED(texel)": packed, "DEPTHWISE_ZERO_POINT": starts[0], "ZERO_POINT": starts[1],
    }


def _epilogues(
    depthwise: Node, pointwise: Node, problem: Problem, chosen: Specialisation, between: Placement, output: Placement,
    placements: Mapping[str, Placement], math_mode: MathMode,
) -> tuple[Epilogue, Epilogue]:
    """The epilogues of both convolutions. Only sums that are half from end to end start with a bias, as those of
    depthwise.cl and conv.cl do, and have epilogues in half, if no lanes need to be cleared."""
    sums = problem.pointwise.accumulator
    half, alone, image = sums == FLOAT16, chosen.parts == 1, output.texture.tiling.is_one_image
    dtype = sums if problem.depthwise.filters % LANES == 0 else FLOAT32
    before = build_epilogue(
        depthwise, between, placements, math_mode, "depthwise_", half, dtype, rounded_on_store=problem.integers
    )
    dtype = sums if alone and image and problem.pointwise.filters % LANES == 0 else FLOAT32
    after = build_epilogue(
        pointwise, output, placements, math_mode, start_with_bias=half and alone, dtype=dtype, rounded_on_store=True
    )
    return before, after


def _index_type(problem: Problem, chosen: Specialisation, x: Texture, output: Texture) -> str:
    """The type INDEX: short if it holds every position, else int."""
    rows, columns = problem.pointwise.output_size
    largest = max(
        output.tiling.width, output.tiling.height, problem.depthwise.batch * rows + chosen.group_rows,
        columns + chosen.group_columns * chosen.block_columns, problem.pointwise.filters + chosen.group_quads * LANES,
    )
    return "short" if largest <= SHORT_LIMIT else "int"


def nodes(graph: Graph) -> Iterator[tuple[Node, ...]]:
    """Every depthwise convolution with the 1x1 convolution that follows it."""
    for node in graph.nodes:
        after = pointwise_after(graph, node) if isinstance(node.operation, Convolution) else None
        if after is not None:
            yield node, after


def place(placing: PlacingContext, given: tuple[Node, ...]) -> LaunchStep[Problem, SeparableDetails] | None:
    """The LaunchStep of a pair.

    None if its input needs a copy, it reads too many images, or it reads what it writes.
    """
    depthwise, pointwise = given
    problem = problem_of(depthwise, pointwise)
    x, between = depthwise.operands[0], depthwise.output
    beside = depthwise.epilogue_operands + pointwise.epilogue_operands
    output = placing.place_value(pointwise.output)
    # Parts of a concatenation share an image, and a kernel cannot both read and write an image.
    read = [placing.placements[o.value].storage for o in (x, *beside) if o.value in placing.placements]
    if not is_direct(placing, x, in_order=False) or output.storage in read:
        return None
    if len(beside) + 3 > placing.target.max_read_images:
        return None
    sums = _sums_of(placing, given)
    problem = Problem(replace(problem.depthwise, sums=sums), replace(problem.pointwise, sums=sums))
    middle = _depthwise_placement(placing, between, sums)
    if not _are_floats(placing.graph, given):
        if not placing.target.is_mobile or not _can_sum_integers(placing, problem, given, middle):
            return None
        problem = Problem(
            replace(problem.depthwise, integers=True), replace(problem.pointwise, integers=True, why_float_sums="")
        )
    places = {x.value: placing.placements[x.value], between.name: middle}
    places |= placing.operand_places(replace(depthwise, operands=()), middle)
    places |= placing.operand_places(replace(pointwise, operands=()), output)
    details = SeparableDetails(_weights(placing, depthwise), _weights(placing, pointwise))
    return LaunchStep(
        given, output, places, TEMPLATE, problem, details, f"{describe(depthwise)}, then {describe(pointwise)}",
        "separable convolution", values=(between.name, pointwise.output.name),
    )


def _sums_of(placing: PlacingContext, given: tuple[Node, ...]) -> Accumulation:
    """The wider of the ways in which both nodes may sum: one of half only on a phone's GPU, elsewhere float."""
    if not placing.target.is_mobile:
        return "float"
    for node in given:
        placing.place_value(node.output)
    found = [
        accumulation_of(placing, node.output.name, placing.constant_of(node.operands[1])) for node in given
    ]
    return max(found, key=WIDER.index)


def _can_sum_integers(
    placing: PlacingContext, problem: Problem, given: tuple[Node, ...], between: Placement
) -> bool:
    """Returns whether both convolutions may sum the quantised values of their inputs in an int."""
    read = placing.placements[given[0].operands[0].value], between
    return not any(
        why_no_levels(part, require_operation(Convolution, node), x, placing.constant_of(node.operands[1]))
        for part, node, x in zip((problem.depthwise, problem.pointwise), given, read, strict=True)
    )


def _depthwise_placement(placing: PlacingContext, value: Value, sums: Accumulation) -> Placement:
    """The placement of the depthwise result. It stays in local memory, but its epilogue is built as if it were stored
    in a texture."""
    if value.name in placing.placements and placing.placements[value.name].storage.dtype == UNSIGNED_INT8:
        return placing.placements[value.name]
    layout = image_layout(4)
    tiling = choose_tiling(*layout.grid(value.shape), placing.target.image_limits, value.name, value.shape)
    dtype: DType = FLOAT32 if sums == "float" else FLOAT16
    return Placement(Texture(value.name, value.shape, layout, dtype, tiling), value.shape)


def _weights(placing: PlacingContext, node: Node) -> Weights:
    operand = node.operands[1]
    array = placing.constant_of(operand)
    return Weights(operand, array, require_operation(Convolution, node), placing.weights_dtype(array, (node,)))


def kernel(
    step: LaunchStep[Problem, SeparableDetails], chosen: Specialisation, emitting: EmittingContext
) -> KernelSource:
    """The kernel of a LaunchStep, with the packed weights of both convolutions."""
    (depthwise, pointwise), problem = step.nodes, step.problem

    def packed(node: Node, weights: Weights, part: conv.Problem, block_quads: int) -> Texture:
        one: PackedConstant = PackedWeights(weights, part, block_quads, False, weights.dtype)
        levels = step.places[node.operands[0].value].texture.quantization
        if problem.integers and levels is not None:
            one = QuantizedWeights(weights, part, block_quads, levels.low)
        return as_texture(emitting.packed(f"{node.output.name}.weights", one))

    windows = packed(depthwise, step.details.depthwise, problem.depthwise, 1)
    weights = packed(pointwise, step.details.pointwise, problem.pointwise, chosen.block_quads)
    return separable_kernel(
        depthwise, pointwise, problem, chosen, step.output, step.places, windows, weights,
        emitting.math_mode_of(step.output), emitting.target.dot_product,
    )


def _sensible_candidates(problem: Problem, target: Target) -> list[Specialisation]:
    """The candidates. On a phone's GPU only sums in half and of integers are considered: by Mesa's code a pair takes
    more issue slots than two launches, and saves traffic and a launch."""
    offered = not target.is_mobile or problem.pointwise.products == FLOAT16 or (
        problem.integers and bool(target.dot_product)
    )
    return candidates(problem, target.kind, target.local_memory_bytes, target.max_work_group) if offered else []


@lru_cache(1024)
def baseline(problem: Problem, target: Target) -> TimeRange:
    """The predicted time of two launches of conv.cl."""
    first, second = (conv_template.TEMPLATE.best_time(each, target) for each in (problem.depthwise, problem.pointwise))
    return first + second


TEMPLATE = Template(
    "separable", FILE, Problem, Specialisation, candidates=_sensible_candidates,
    work=lambda problem, chosen, target: launch_work(problem, chosen),
    nodes=nodes, place=place, kernel=kernel, baseline=baseline,
)
