"""The template of squeeze_excite.cl: global pooling and two matrix products in one launch, if this saves time.

A squeeze-and-excitation block computes a factor for each channel: the mean of the channel, a product with few results,
an activation, a product with one result per channel, and a gate. As separate launches these are short and wait for each
other.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, prod

import numpy

from imgconv.arrays import Array
from imgconv.dtype import FLOAT32, DType
from imgconv.graph.index import Index, Variable, constant, flatten, variable, variable_index
from imgconv.graph.nodes import IDENTITY, Convolution, Graph, Node, Operand, Product, Reduction, whole_operand
from imgconv.graph.view import axis_variables, identity
from imgconv.kernels.codegen import generated
from imgconv.kernels.codegen.access import (
    LANE, SHORT_LIMIT, KernelArgument, coordinate, image_type, index_text, read_text,
)
from imgconv.kernels.codegen.epilogue import Epilogue, build_epilogue, output_constants
from imgconv.kernels.conv import problem as conv, template as conv_template
from imgconv.kernels.device_model.models import time_range_of
from imgconv.kernels.device_model.time_range import TimeRange, index_of_best
from imgconv.kernels.device_model.work import LaunchWork
from imgconv.kernels.kernel_source import KernelSource, group_attribute, round_up
from imgconv.kernels.layout import (
    LANES, HostBuffer, ImageLimits, Placement, Texture, as_texture, choose_tiling, image_layout,
    matrix_layout,
)
from imgconv.kernels.specialise import specialise
from imgconv.kernels.target import Target
from imgconv.kernels.template_interface import (
    AnyLaunchStep, EmittingContext, LaunchStep, PlacingContext, Template, describe
)

FILE = "kernels/squeeze_excite/squeeze_excite.cl"

ITEMS = (128, 256, 512, 1024)  # work items of a group
TEXEL_BYTES = 4 * LANES  # in local memory, as floats
GROUP = 128  # work items of a group of a pooling in a launch of its own


@dataclass(frozen=True)
class Problem:
    """The sizes of squeeze-and-excitation.

    batch: images. channels: of the input. map_size: rows and columns that are pooled; (1, 1) if an earlier launch
    pools. hidden, filters: the number of results of the first and the second product, for each image.
    """

    batch: int
    channels: int
    map_size: tuple[int, int]
    hidden: int
    filters: int

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds of both products."""
        return self.batch * self.hidden * (self.channels + self.filters)

    @property
    def quads(self) -> tuple[int, int, int]:
        """Quads that the pooling, the first and the second product make."""
        return ceil(self.channels / LANES), ceil(self.hidden / LANES), ceil(self.filters / LANES)

    @property
    def map_texels(self) -> int:
        """Texels of an image that are pooled."""
        return prod(self.map_size) * self.quads[0]

    @property
    def matrix_texels(self) -> int:
        """Texels of both matrices."""
        return LANES * self.quads[1] * (self.quads[0] + self.quads[2])


@dataclass(frozen=True)
class Specialisation:
    """The work items of a group."""

    items: int

    def __str__(self) -> str:
        return f"{self.items} work items for an image"

    def parts(self, problem: Problem) -> tuple[int, int, int]:
        """Work items that share a quad, of the pooling and of each product."""
        terms = problem.map_size[0], *problem.quads[:2]
        first, second, third = (
            max(1, min(self.items // made, summed)) for made, summed in zip(problem.quads, terms, strict=True)
        )
        return first, second, third

    def local_bytes(self, problem: Problem) -> int:
        """Local memory of a work group: what lies between the steps, and the parts of the sums of one step."""
        shared = max(made * parts for made, parts in zip(problem.quads, self.parts(problem), strict=True))
        return TEXEL_BYTES * (problem.quads[0] + problem.quads[1] + shared)


@dataclass(frozen=True, eq=False)
class PackedMatrix:
    """The matrix (K, columns) of a product as a texture: texel (x, y) holds four columns of row y.

    operand: the constant from which it is read. dtype: the element type in which it is stored.
    """

    operand: Operand
    array: Array
    dtype: DType

    @property
    def key(self) -> Hashable:
        """Products with equal keys share one texture."""
        return "matrix", self.operand, self.array.shape, self.dtype

    def storage(self, name: str, limits: ImageLimits | None) -> Texture:
        """The texture, whose rows past K are zero up to a multiple of four."""
        shape, layout = (round_up(self.array.shape[0], LANES), self.array.shape[1]), matrix_layout(2)
        return Texture(name, shape, layout, self.dtype, choose_tiling(*layout.grid(shape), limits, name, shape))

    @property
    def source(self) -> Array:
        """The constant weights that are packed."""
        return self.array

    def transform(self, source: Array) -> Array:
        """The source: its numbers are packed as they are."""
        return source

    def content(self, storage: Texture | HostBuffer, numbers: Array) -> Array:
        """The array to upload to the storage, packed from an array of the shape of the numbers."""
        texture = as_texture(storage)
        padded = numpy.zeros(texture.shape, self.dtype)
        padded[: numbers.shape[0]] = numbers
        return texture.tiling.to_image(texture.layout.pack(padded))


@dataclass(frozen=True, eq=False)
class SqueezeExciteDetails:
    """The matrices of both products."""

    first: PackedMatrix
    second: PackedMatrix


def candidates(problem: Problem, target: Target) -> list[Specialisation]:
    """Work groups that the device allows; none for a CPU, where launches are cheap and a group is a single core's."""
    if target.kind == "cpu":
        return []
    found = [Specialisation(items) for items in ITEMS if items <= target.max_work_group]
    return [each for each in found if each.local_bytes(problem) <= target.local_memory_bytes]


def launch_work(problem: Problem, chosen: Specialisation, target: Target) -> LaunchWork:
    """The work of the launch: one group does all the work for an image, whose items wait for their reads."""
    made = list(zip(problem.quads, chosen.parts(problem), (problem.map_size[0], *problem.quads[:2]), strict=True))
    rounds = [ceil(quads * parts / chosen.items) * ceil(summed / parts) for quads, parts, summed in made]
    reads = rounds[0] * problem.map_size[1] + LANES * (rounds[1] + rounds[2])
    texels = problem.map_texels + problem.matrix_texels
    # A quad that is multiplied, for every texel of a matrix; and parts, which are written and read.
    joined = sum(ceil(quads / chosen.items) * (1 + parts) for quads, parts, _ in made)
    return LaunchWork(
        problem.batch, chosen.items, LANES * reads, reads=reads, steps=reads, local=rounds[1] + rounds[2] + joined,
        barriers=2 * len(made), writes=ceil(problem.quads[2] / chosen.items), fetched=texels,
        local_bytes=chosen.local_bytes(problem), texels=problem.batch * (texels + problem.quads[2]),
    )


@lru_cache(1024)
def baseline(problem: Problem, target: Target) -> TimeRange:
    """The predicted time of the products, and of the pooling if this launch does it, in launches of their own."""
    first, second = (conv_template.TEMPLATE.best_time(each, target) for each in _as_convolutions(problem))
    pooling = _time_of_pooling(problem, target) if problem.map_size != (1, 1) else TimeRange()
    return first + second + pooling


def _as_convolutions(problem: Problem) -> tuple[conv.Problem, conv.Problem]:
    """Both products, as launches of conv.cl."""
    size = problem.batch, 1
    first, second = (
        conv.Problem(1, given, size, made, size, (1, 1), (1, 1), (1, 1), (0, 0), 1)
        for given, made in ((problem.channels, problem.hidden), (problem.hidden, problem.filters))
    )
    return first, second


def _time_of_pooling(problem: Problem, target: Target) -> TimeRange:
    """The predicted time of the pooling as a launch of its own, which fills the device."""
    texels = problem.batch * problem.map_texels
    items = min(texels, GROUP * target.compute_units)
    work = LaunchWork(
        ceil(items / GROUP), GROUP, LANES * texels / items, reads=texels / items, writes=1, barriers=1,
        fetched=texels * GROUP / items, texels=texels,
    )
    return time_range_of(work, target.kind, target.compute_units)


def nodes(graph: Graph) -> Iterator[tuple[Node, ...]]:
    """Every global pooling, the product that alone reads its result, and the product that alone reads that one's."""
    for second in graph.nodes:
        first = _sole_producer(graph, second)
        pool = first and _sole_producer(graph, first)
        if not (pool and first and _is_global_pooling(graph, pool)):
            continue
        if _is_matrix_product(graph, first) and _is_matrix_product(graph, second):
            images = pool.output.shape[0]
            if first.output.size % images == 0 and {_row_count(first), _row_count(second)} == {images}:
                yield pool, first, second


def _sole_producer(graph: Graph, node: Node) -> Node | None:
    """The node whose whole result, in order, is the first operand of this one and read nowhere else."""
    source = graph.producers.get(node.operands[0].value)
    if source is None or source.output.name in graph.outputs or len(graph.consumers[source.output.name]) > 1:
        return None
    view = node.operands[0].view
    in_order = flatten(view.index, view.source) == flatten(axis_variables(view.shape), view.shape)
    once = sum(o.value == source.output.name for o in node.all_operands) == 1
    return source if in_order and once and not view.bounds and prod(view.shape) == source.output.size else None


def _is_global_pooling(graph: Graph, node: Node) -> bool:
    """Returns whether a node reduces the map of each channel: to (N, C, ...) with all other axes of length 1."""
    shape = node.output.shape
    floats = all(graph.values[o.value].dtype.startswith("float") for o in node.operands)
    return isinstance(node.operation, Reduction) and floats and prod(shape) == prod(shape[:2]) > 0


def _is_matrix_product(graph: Graph, node: Node) -> bool:
    """Returns whether a node multiplies a row of numbers for each image by a constant matrix of floats."""
    operation, floats = node.operation, node.output.dtype.startswith("float")
    if len(node.operands) != 2 or node.operands[1].value not in graph.constants or not floats:
        return False
    if graph.constants[node.operands[1].value].dtype.kind != "f":
        return False
    x, matrix = (operand.view.shape for operand in node.operands)
    if isinstance(operation, Convolution):
        return operation == Convolution(strides=operation.strides) and x[2:] == matrix[2:] == (1, 1)
    return isinstance(operation, Product) and prod(matrix[:-2]) == 1


def _row_count(node: Node) -> int:
    """Rows of numbers that a product or a 1x1 convolution of one position makes."""
    return node.output.shape[0] if isinstance(node.operation, Convolution) else prod(node.output.shape[:-1])


def problem_of(pool: Node, first: Node, second: Node) -> Problem:
    """The problem of the three nodes, with the whole map."""
    images, channels = pool.output.shape[:2]
    rows, columns = (*[n for n in generated.window_of(pool) if n > 1], 1, 1)[:2]
    return Problem(images, channels, (rows, columns), first.output.size // images, second.output.size // images)


def place(placing: PlacingContext, given: tuple[Node, ...]) -> LaunchStep[Problem, SqueezeExciteDetails] | None:
    """The LaunchStep of the three nodes; the pooling is in a launch before it if this is expected to be faster.

    None on CPUs, if the device's local memory is too small, or if operands do not lie as the kernel reads them.
    """
    pool, first, second = given
    problem = problem_of(*given)
    sums = pool.operation == Reduction("sum", IDENTITY) and _can_read(placing, pool.operands[0], problem)
    together = sums and _pools_in_same_launch(problem, placing.target)
    if not together:
        problem = replace(problem, map_size=(1, 1))
    x, made = (pool.operands[0], given) if together else (whole_operand(pool.output), given[1:])
    before = () if together else (generated.place(placing, (pool,)),)
    if not candidates(problem, placing.target) or not _can_read(placing, x, problem):
        return None
    output = placing.place_value(second.output)
    places = {x.value: placing.placements[x.value]}
    for node in made[:-1]:
        places[node.output.name] = _local_placement(placing, node)
        places |= placing.operand_places(replace(node, operands=()), places[node.output.name])
    places |= placing.operand_places(replace(second, operands=()), output)
    read = {o.value for node in made for o in node.epilogue_operands} | {x.value}
    # A kernel cannot both read and write an image.
    if len(read) + 2 > placing.target.max_read_images or any(places[name].storage == output.storage for name in read):
        return None
    details = SqueezeExciteDetails(_matrix(placing, first), _matrix(placing, second))
    return LaunchStep(
        made, output, places, TEMPLATE, problem, details, ", then ".join(map(describe, made)), "squeeze-and-excitation",
        values=tuple(node.output.name for node in made), before=before,
    )


def _can_read(placing: PlacingContext, x: Operand, problem: Problem) -> bool:
    """Returns whether four channels of the map are a texel, and at most two axes after (N, C) are longer than 1."""
    place = placing.placements.get(x.value)
    if place is None or not isinstance(place.storage, Texture) or x.view.bounds or len(_long_axes(x)) > 2:
        return False
    texel_x, texel_y, lane = _address(x, place, problem.channels)
    lanes = lane == variable_index(LANE) or (problem.channels == 1 and lane == constant(0))
    return lanes and not any(LANE in e.variables() for e in (texel_x, texel_y))


def _pools_in_same_launch(problem: Problem, target: Target) -> bool:
    """Returns whether the pooling is expected to be faster in the launch of the products than in one of its own."""
    apart = TEMPLATE.best_time(replace(problem, map_size=(1, 1)), target) + _time_of_pooling(problem, target)
    return index_of_best((TEMPLATE.best_time(problem, target), apart)) == 0


def _local_placement(placing: PlacingContext, node: Node) -> Placement:
    """A result that stays in local memory, in float. Its epilogue is built as if it were a texture of no value."""
    name, shape = f"{node.output.name}.local", node.output.shape
    layout = (matrix_layout if isinstance(node.operation, Product) else image_layout)(len(shape))
    tiling = choose_tiling(*layout.grid(shape), placing.target.image_limits, name, shape)
    return Placement(Texture(name, shape, layout, FLOAT32, tiling), shape)


def _long_axes(operand: Operand) -> list[int]:
    """The axes of a map (N, C, ...) that are pooled: its rows and its columns."""
    shape = operand.view.shape
    return [axis for axis in range(2, len(shape)) if shape[axis] > 1]


def _address(operand: Operand, place: Placement, channels: int) -> tuple[Index, Index, Index]:
    """Texel x and y, and the lane, of (image, quad, row, column) in a map."""
    shape = operand.view.shape
    axes = {Variable("i0", shape[0]): variable("image", shape[0])}
    axes[Variable("i1", channels)] = variable("quad", ceil(channels / LANES)) * LANES + variable_index(LANE)
    for axis, name in zip(_long_axes(operand), ("row", "column"), strict=False):
        axes[Variable(f"i{axis}", shape[axis])] = variable(name, shape[axis])
    return place.address([e.substitute(axes) for e in operand.view.index])


def _matrix(placing: PlacingContext, node: Node) -> PackedMatrix:
    """The matrix of a product or a 1x1 convolution."""
    operand = node.operands[1]
    array = placing.constant_of(operand)
    dtype = placing.weights_dtype(array, (node,))
    if isinstance(node.operation, Convolution):
        return PackedMatrix(operand, array[:, :, 0, 0].T, dtype)
    return PackedMatrix(operand, array[(0,) * (array.ndim - 2)], dtype)


def kernel(
    step: LaunchStep[Problem, SqueezeExciteDetails], chosen: Specialisation, emitting: EmittingContext
) -> KernelSource:
    (*pools, first, second), problem = step.nodes, step.problem
    helpers: list[str] = []
    read = first.operands[0]
    x = pools[0].operands[0] if pools else Operand(read.value, identity(read.view.source))
    source, output = step.places[x.value].texture, step.output
    squeezed = _epilogue(pools[0], step, emitting, "pool_") if pools else Epilogue("", "(sum)", "", ())
    hidden = _epilogue(first, step, emitting, "hidden_")
    after = build_epilogue(second, output, step.places, emitting.math_mode_of(output))
    matrices = [
        as_texture(emitting.packed(f"{node.output.name}.matrix", matrix))
        for node, matrix in ((first, step.details.first), (second, step.details.second))
    ]
    constants = _size_constants(problem, chosen) | output_constants(output, problem.filters, after, helpers) | {
        "POOL_EPILOGUE(sum, column, row, quad)": squeezed.call, "POOL_LOADS(quad)": squeezed.loads,
        "HIDDEN_EPILOGUE(sum, column, row, quad)": hidden.call, "HIDDEN_LOADS(quad)": hidden.loads,
        "EPILOGUE_PARAMETERS": squeezed.parameters + hidden.parameters + after.parameters,
    }
    constants |= _input_access(x, step.places[x.value], problem, helpers)
    for name, matrix in zip(("first", "second"), matrices, strict=True):
        text = read_text(name, matrix, helpers, inside=True)
        constants |= {f"{name.upper()}_IMAGE": image_type(matrix), f"READ_{name.upper()}(x, y)": text}
    arguments = (
        KernelArgument("output", output.storage, written=True), KernelArgument("input", source),
        KernelArgument("first", matrices[0]), KernelArgument("second", matrices[1]),
        *squeezed.arguments, *hidden.arguments, *after.arguments,
    )
    functions = squeezed.functions + hidden.functions + after.functions
    text = specialise(FILE, constants, "".join(helpers) + functions)
    return KernelSource(text, FILE, arguments, (chosen.items, problem.batch), (chosen.items, 1))


def _epilogue(node: Node, step: AnyLaunchStep, emitting: EmittingContext, prefix: str) -> Epilogue:
    """The epilogue of a node whose result stays in local memory."""
    place = step.places[node.output.name]
    return build_epilogue(node, place, step.places, emitting.math_mode_of(place), prefix)


def _size_constants(problem: Problem, chosen: Specialisation) -> dict[str, str | int]:
    """The sizes of the tensors, and how work items share the sums."""
    quads, parts = problem.quads, chosen.parts(problem)
    return {
        "INDEX": "short" if max(problem.batch, chosen.items) <= SHORT_LIMIT else "int", "BLOCK_QUADS": 1,
        "WORK_GROUP": group_attribute((chosen.items, 1)), "ITEMS": chosen.items,
        "MAP_HEIGHT": problem.map_size[0], "MAP_WIDTH": problem.map_size[1],
        "INPUT_QUADS": quads[0], "INPUT_LANES": (problem.channels - 1) % LANES + 1,
        "HIDDEN_QUADS": quads[1], "HIDDEN_LANES": (problem.hidden - 1) % LANES + 1,
        "POOL_PARTS": parts[0], "FIRST_PARTS": parts[1], "SECOND_PARTS": parts[2],
    }


def _input_access(x: Operand, place: Placement, problem: Problem, helpers: list[str]) -> dict[str, str | int]:
    """Returns the macros that locate and read a texel of the map."""
    texel = _address(x, place, problem.channels)[:2]
    where_x, where_y = (coordinate(e, index_text(e, helpers)) for e in texel)
    return {
        "INPUT_IMAGE": image_type(place.texture),
        "READ_INPUT(x, y)": read_text("input", place.texture, helpers, inside=True),
        "INPUT_X(image, quad, row, column)": where_x, "INPUT_Y(image, quad, row, column)": where_y,
    }


TEMPLATE = Template(
    "squeeze_excite", FILE, Problem, Specialisation, candidates=candidates, work=launch_work, nodes=nodes,
    place=place, kernel=kernel, baseline=baseline,
)
