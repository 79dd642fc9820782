"""The template of conv.cl: the nodes that it computes, the layouts of their operands, and its candidates."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

import numpy

from imgconv.arrays import Array
from imgconv.config import Accumulation
from imgconv.dtype import FLOAT16, INT8, DType
from imgconv.errors import UnsupportedError
from imgconv.graph.expression import Argument, Expression, apply, argument_numbers, substitute
from imgconv.graph.index import Variable, constant, variable, variable_index
from imgconv.graph.nodes import Convolution, Node, Operand
from imgconv.graph.view import View
from imgconv.kernels.codegen.access import LANE
from imgconv.kernels.conv.candidates import candidates
from imgconv.kernels.conv.quantized_weights import QuantizedWeights, why_float_sums
from imgconv.kernels.conv.problem import BYTE_SCALE, Problem, Specialisation, problem_of
from imgconv.kernels.conv.text import convolution_kernel, factors_are_packed
from imgconv.kernels.conv.weights import PackedWeights, Weights
from imgconv.kernels.conv.work import launch_work
from imgconv.kernels.kernel_source import KernelSource
from imgconv.kernels.layout import LANES, Placement, Texture, image_layout
from imgconv.kernels.target import HALF_MAX, Target
from imgconv.kernels.template_interface import (
    EmittingContext, LaunchStep, PlacingContext, Template, describe, nodes_with, operation_kind, require_operation,
)


@dataclass(frozen=True, eq=False)
class ConvDetails:
    """weights: before they are packed. exact: the sums are of integers and must be exact."""

    weights: Weights
    exact: bool


def place(placing: PlacingContext, given: tuple[Node, ...]) -> LaunchStep[Problem, ConvDetails]:
    """The LaunchStep of a convolution. Operands that conv.cl cannot read are copied.

    Raises UnsupportedError if the weights depend on an input.
    """
    (node,) = given
    operation = require_operation(Convolution, node)
    x, w, *factors = node.operands
    if w.value not in placing.graph.constants:
        raise UnsupportedError(
            "the convolution's weights depend on an input; imgconv packs weights when it loads a model, so give "
            "them as an initializer", node=", ".join(node.origin) or node.output.name,
        )
    problem = problem_of(operation, x.view.shape, w.view.shape, node.output.shape)
    if not is_direct(placing, x, in_order=problem.groups > 1 and not problem.depthwise):
        x = placing.copy(x, image_layout(4), "a convolution reads whole textures of images")
    for number, factor in enumerate(factors):
        if not factors_are_packed(factor, placing.placements[factor.value]):
            factors[number] = placing.copy(factor, image_layout(4), "a convolution reads four factors to a texel")
    return step_of(placing, replace(node, operands=(x, w, *factors)), problem, operation, placing.constant_of(w))


def step_of(
    placing: PlacingContext, node: Node, problem: Problem, operation: Convolution, array: Array
) -> LaunchStep[Problem, ConvDetails]:
    """The LaunchStep of a node whose operands are placed as conv.cl reads them. array: the weights."""
    x, w, *factors = node.operands
    output = placing.place_value(node.output)
    # Sums of integers must stay exact.
    read = placing.graph.producers[node.output.name].operands[0].value
    exact = not placing.graph.values[read].dtype.startswith("float")
    sums: Accumulation = "float" if exact else accumulation_of(placing, node.output.name, array)
    weights = Weights(w, array, operation, placing.weights_dtype(array, (node,)))
    places = {o.value: placing.placements[o.value] for o in (x, *factors)}
    places |= placing.operand_places(replace(node, operands=(x, *factors)), output)
    problem = replace(
        problem, sums=sums, integers=exact or array.dtype == numpy.int8, gated=bool(factors),
    )
    problem = replace(problem, why_float_sums=why_float_sums(problem, operation, places[x.value], array))
    return LaunchStep(
        (node,), output, places, TEMPLATE, problem, ConvDetails(weights, exact), describe(node), operation_kind(node),
        values=(node.output.name,),
    )


def accumulation_of(placing: PlacingContext, name: str, weights: Array) -> Accumulation:
    """Returns the width in which a value's convolution sums: float if its weights exceed the largest half."""
    return "float" if numpy.any(numpy.abs(weights) > HALF_MAX) else placing.narrowest_accumulation(name)


def kernel(step: LaunchStep[Problem, ConvDetails], chosen: Specialisation, emitting: EmittingContext) -> KernelSource:
    """The kernel of a LaunchStep: conv.cl, with packed weights."""
    (node,), problem, weights, exact = step.nodes, step.problem, step.details.weights, step.details.exact
    if chosen.integers:
        return _integer_kernel(step, chosen, emitting)
    dtype = weights.dtype
    if weights.array.dtype == numpy.int8:
        dtype = _dtype_of_bytes(chosen.weights_in_buffer, exact, emitting.target) or dtype
    # A byte b of an image is read as b / 127.
    if dtype == INT8 and not chosen.weights_in_buffer:
        node = replace(node, epilogue=multiply_sum_first(node.epilogue, BYTE_SCALE))
    packed = PackedWeights(weights, problem, chosen.block_quads, chosen.weights_in_buffer, dtype, chosen.ordered)
    storage = emitting.packed(f"{node.output.name}.weights", packed)
    math_mode = emitting.math_mode_of(step.output)
    return convolution_kernel(node, problem, chosen, step.output, step.places, storage, math_mode)


def _dtype_of_bytes(in_buffer: bool, exact: bool, target: Target) -> DType | None:
    """The element type for weights of one byte. An image read scales its bytes to -1 .. 1: exact sums need half."""
    if exact and not in_buffer:
        return FLOAT16 if target.half_images else None
    return INT8 if in_buffer or target.byte_images else None


def _integer_kernel(
    step: LaunchStep[Problem, ConvDetails], chosen: Specialisation, emitting: EmittingContext
) -> KernelSource:
    """The kernel of a LaunchStep, by sums of the levels of its input, whose scale is applied to the sum."""
    (node,), weights = step.nodes, step.details.weights
    levels = step.places[node.operands[0].value].texture.quantization
    assert levels is not None, "a problem of levels has an input of levels"
    packed = QuantizedWeights(weights, step.problem, chosen.block_quads, levels.low)
    storage = emitting.packed(f"{node.output.name}.weights", packed)
    node = replace(node, epilogue=multiply_sum_first(node.epilogue, levels.scale))
    math_mode = emitting.math_mode_of(step.output)
    dot_product = emitting.target.dot_product
    return convolution_kernel(
        node, step.problem, chosen, step.output, step.places, storage, math_mode, dot_product=dot_product
    )


def reads_directly(view: View, place: Placement, in_order: bool = True) -> bool:
    """Returns whether conv.cl reads (N, C, H, W) through the view: x = column*pitch + offset + quad, y = image*H + row.

    in_order: whether quads must follow each other. If not, any function of the quad may stand for offset + quad.
    """
    if view.bounds or not isinstance(place.storage, Texture):
        return False
    n, c, h, w = view.shape
    quads = ceil(c / LANES)
    image, row, column, quad = (variable(*v) for v in (("image", n), ("row", h), ("column", w), ("quad", quads)))
    position = (image, quad * LANES + variable_index(LANE), row, column)
    axes = {Variable(f"i{axis}", size): position[axis] for axis, size in enumerate(view.shape)}
    x, y, lane = place.address([e.substitute(axes) for e in view.index])
    pitch = place.layout.quads(place.storage.shape)
    if lane != variable_index(LANE) and not (c == 1 and lane == constant(0)):
        return False
    read = x - column * pitch
    if y != image * h + row or read.variables() - quad.variables():
        return False
    if not in_order and c % LANES == 0:
        return True
    # A slice of channels starts at a quad of a wider tensor. Only reads past the last channel meet its neighbours.
    offset = read - quad
    return offset.is_constant and (c % LANES == 0 or offset.constant + quads == pitch)


def multiply_sum_first(epilogue: Expression, scale: float) -> Expression:
    """The epilogue of a sum that is multiplied by a scale first."""
    if scale == 1:
        return epilogue
    arguments: dict[int, Expression] = {n: Argument(n) for n in argument_numbers(epilogue)}
    return substitute(epilogue, arguments | {0: apply("multiply", Argument(0), scale)})


def is_direct(placing: PlacingContext, operand: Operand, in_order: bool = True) -> bool:
    """Returns whether conv.cl can read an operand without a copy. in_order: see `reads_directly`."""
    place = placing.placements.get(operand.value)
    return place is not None and reads_directly(operand.view, place, in_order)


TEMPLATE = Template(
    "convolution", "conv.cl", Problem, Specialisation,
    candidates=lambda problem, target: candidates(
        problem, target.kind, target.compute_units, target.vector_floats, target.max_work_group,
        bool(target.dot_product),
    ),
    work=lambda problem, chosen, target: launch_work(problem, chosen, target.kind, target.compute_units),
    nodes=nodes_with(Convolution), place=place, kernel=kernel,
    allowed=lambda problem, chosen: chosen.allowed(problem),
)
