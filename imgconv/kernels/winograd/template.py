"""The template of Winograd's filtering for phones' GPUs, in three launches: winograd2d.cl, conv.cl, winograd2d.cl.

The first launch transforms the input into 16 values per tile, the second multiplies them by weights (a 1x1 convolution
with a group for each of the 16), and the third transforms the sums back to outputs. Four outputs take 16 multiply-adds
instead of 36, but there are two more launches, which wait for memory. So Winograd is used where activations are stored
as fp16 and the device model predicts a shorter time than for one launch of conv.cl. Products are summed as in a direct
convolution, in fp16 or fp32. Transformed inputs have the input's storage type and sums the output's, so a plan with
some values in fp32 has the same kernels.

This is F(2x2, 3x3). With F(4x4, 3x3), 16 outputs take 36 multiply-adds instead of 64, but rounding costs several times
as much. So only the values in Precision.large_tiles may use it, if the device model predicts a shorter time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import ceil, prod

import numpy

from imgconv.arrays import Array
from imgconv.dtype import FLOAT16
from imgconv.graph.nodes import IDENTITY, Convolution, Graph, Node, whole_operand
from imgconv.kernels.codegen.access import SHORT_LIMIT, KernelArgument, read_text
from imgconv.kernels.codegen.epilogue import build_epilogue, output_constants
from imgconv.kernels.conv import candidates as conv_candidates, problem as conv, template as conv_template
from imgconv.kernels.conv.text import coordinate_constants, input_constants
from imgconv.kernels.conv.weights import Weights
from imgconv.kernels.device_model.adreno import WAVE
from imgconv.kernels.device_model.time_range import NEVER, TimeRange, index_of_best
from imgconv.kernels.device_model.work import LaunchWork
from imgconv.kernels.kernel_source import KernelSource, group_attribute, round_up
from imgconv.kernels.layout import LANES, Texture, image_layout
from imgconv.kernels.specialise import specialise
from imgconv.kernels.target import HALF_MAX, Target
from imgconv.kernels.template_interface import EmittingContext, LaunchStep, PlacingContext, Template, describe
from imgconv.kernels.winograd.problem import Problem, Specialisation
from imgconv.kernels.winograd.taps import winograd_taps

FILE = "kernels/winograd/winograd2d.cl"

# By the outputs of a tile in a row: operations on texels that a tile takes; a tap of weights, times the largest weight.
TO_TAPS, TO_OUTPUTS = {2: 32, 4: 180}, {2: 24, 4: 150}
LARGEST_TAP = {2: 2.25, 4: 22.5625}


@dataclass(frozen=True, eq=False)
class WinogradWeights(Weights):
    """The weights of a 3x3 window as those of the products. `array` is that of the window.

    Windows are rounded as the weights of conv.cl are, and their taps again: so a file has halves for all plans.
    """

    tile: int = 2

    def transform(self, array: Array) -> Array:
        """The taps of all windows."""
        return winograd_taps(array.astype(self.dtype), self.tile)

    def dense(self, packed: Array) -> Array:
        """(taps * filters, channels, 1, 1), with both rounded up to whole quads."""
        filters, channels, taps = packed.shape
        padded = numpy.zeros((taps, round_up(filters, LANES), round_up(channels, LANES)), numpy.float32)
        padded[:, :filters, :channels] = packed.transpose(2, 0, 1)
        return padded.reshape(-1, padded.shape[2], 1, 1)


def nodes(graph: Graph) -> Iterator[tuple[Node, ...]]:
    """Every convolution with a 3x3 window and steps of 1, without groups or factors."""
    for node in graph.nodes:
        if len(node.operands) == 2 and isinstance(node.operation, Convolution):
            plain_steps = node.operation == Convolution(pads=node.operation.pads)
            if plain_steps and node.operands[1].view.shape[2:] == (3, 3):
                yield (node,)


def place(placing: PlacingContext, given: tuple[Node, ...]) -> LaunchStep[Problem, None] | None:
    """Returns the LaunchStep of the last launch; the LaunchSteps of the first two are in its `before`.

    Returns None if the convolution adds sums of chunks, if transformed weights do not fit in fp16, on other devices, if
    conv.cl would need a copy of its input, or if the transformed input does not fit in an image.
    """
    (node,) = given
    if placing.config.storage != FLOAT16 or not placing.target.is_mobile:
        return None
    direct = conv_template.place(placing, given)
    problem = direct.problem
    x, w = direct.nodes[0].operands
    if problem.sums == "runs" or problem.integers or not conv_template.is_direct(placing, x, in_order=False):
        return None
    largest = numpy.abs(direct.details.weights.array).max(initial=0.0)
    if LARGEST_TAP[2] * largest > HALF_MAX:
        return None
    large_allowed = node.output.name in placing.config.precision.large_tiles and LARGEST_TAP[4] * largest <= HALF_MAX
    after = output_transform_problem(problem, placing.target, large_allowed)
    before = replace(after, to_outputs=False)
    places = placing.placements
    taps, sums = (
        placing.add_intermediate_value(f"{node.output.name}.{name}", each.tensor, image_layout(4), like)
        for name, each, like in (("taps", before, node.operands[0].value), ("sums", after, node.output.name))
    )
    storages = places[taps.name].storage, places[sums.name].storage
    if not all(isinstance(each, Texture) and each.tiling.is_one_image for each in storages):
        return None  # Reads of tiles take several times as long.
    tapped = replace(node, output=taps, operands=(x,), epilogue=IDENTITY, epilogue_operands=())
    grouped = Convolution(groups=after.taps)
    products = replace(tapped, output=sums, operation=grouped, operands=(whole_operand(taps), w))
    last = replace(node, operands=(whole_operand(sums),))
    weights = WinogradWeights(w, direct.details.weights.array, grouped, direct.details.weights.dtype, after.tile)
    return LaunchStep(
        (last,), direct.output, {**direct.places, sums.name: places[sums.name]}, TEMPLATE, after, None,
        f"outputs of {describe(node)}", direct.operation, values=direct.values, before=(
            LaunchStep((tapped,), places[taps.name], direct.places, TEMPLATE, before, None, "taps", direct.operation),
            LaunchStep(
                (products,), places[sums.name], {taps.name: places[taps.name]}, conv_template.TEMPLATE, after.products,
                conv_template.ConvDetails(weights, False), str(grouped), direct.operation,
                multiply_adds=problem.multiply_adds,
            ),
        ),
    )


def output_transform_problem(problem: conv.Problem, target: Target, large_allowed: bool) -> Problem:
    """The last launch with the faster tile; with tiles of 2x2 outputs unless `large_allowed`."""
    small = _output_transform(problem, 2, target.limits.width)
    if not large_allowed:
        return small
    tiles = _output_transform(problem, 4, target.limits.width), small
    return tiles[index_of_best([_time_of(each, target) for each in tiles])]


def _output_transform(problem: conv.Problem, tile: int, width: int) -> Problem:
    """The last launch, with the fewest rows of a texture for a row of tiles so that none is wider than `width`."""
    made = Problem(problem, to_outputs=True, tile=tile)
    most = width // (made.taps * ceil(max(problem.channels, problem.filters) / LANES))
    return replace(made, folds=ceil(made.tiles[1] / max(most, 1)))


def _time_of(problem: Problem, target: Target) -> TimeRange:
    """The predicted time of the three launches."""
    before, after = (TEMPLATE.best_time(replace(problem, to_outputs=each), target) for each in (False, True))
    return before + conv_template.TEMPLATE.best_time(problem.products, target) + after


def candidates(problem: Problem, target: Target) -> list[Specialisation]:
    """Work groups of a full wave and of a narrow one, on a phone's GPU."""
    sizes = [size for size in (WAVE, WAVE // 2) if size <= target.max_work_group] if target.is_mobile else []
    return [
        Specialisation(conv_candidates.least_idle_group(problem.work_items, 1, size, WAVE), problem.tile)
        for size in sizes
    ]


def launch_work(problem: Problem, chosen: Specialisation, target: Target) -> LaunchWork:
    """The work of a launch: a work item transforms a tile."""
    images, groups = problem.convolution.batch * problem.quads, [
        ceil(n / size) for n, size in zip(problem.work_items, chosen.local_size, strict=True)
    ]
    size = problem.convolution.output_size if problem.to_outputs else problem.convolution.input_size
    side = problem.tile + 2
    registers = (problem.tile + 1) * side if problem.to_outputs else problem.taps
    return LaunchWork(
        prod(groups), prod(chosen.local_size), LANES * (TO_OUTPUTS if problem.to_outputs else TO_TAPS)[problem.tile],
        True, reads=problem.taps, writes=problem.tile**2 if problem.to_outputs else problem.taps,
        registers=registers, fewest_registers=registers,
        active=prod(problem.work_items), texels=images * (prod(size) + problem.taps * prod(problem.tiles)),
    )


def baseline(problem: Problem, target: Target) -> TimeRange:
    """The predicted time of one launch of conv.cl, without taps."""
    return conv_template.TEMPLATE.best_time(problem.convolution, target) if problem.to_outputs else NEVER


def kernel(step: LaunchStep[Problem, None], chosen: Specialisation, emitting: EmittingContext) -> KernelSource:
    """The kernel of a LaunchStep: winograd2d.cl."""
    (node,), problem, output = step.nodes, step.problem, step.output
    source = step.places[node.operands[0].value]
    epilogue = build_epilogue(node, output, step.places, emitting.math_mode_of(step.output))
    helpers: list[str] = []
    size = [round_up(n, each) for n, each in zip(problem.work_items, chosen.local_size, strict=True)]
    constants: dict[str, str | int] = {
        "INDEX": _index_type(problem, source.texture, output.texture), "BLOCK_QUADS": 1,
        "WORK_GROUP": group_attribute(chosen.local_size), "GUARD": int(tuple(size) != problem.work_items),
        "TO_OUTPUTS": int(problem.to_outputs), "TILE": problem.tile,
        "ORDERED": int(problem.tile == 4 and not problem.to_outputs),
        "TILE_ROWS": problem.tiles[0], "TILE_COLUMNS": problem.tiles[1],
        "FOLDS": problem.folds, "FOLD_COLUMNS": problem.tensor[3],
        "QUADS": problem.quads, "BATCH": problem.convolution.batch,
        "INPUT_HEIGHT": problem.convolution.input_size[0],
        "PAD_X": problem.convolution.pads[1], "PAD_Y": problem.convolution.pads[0],
        "OUTPUT_WIDTH": problem.convolution.output_size[1], "OUTPUT_HEIGHT": problem.convolution.output_size[0],
    }
    constants |= output_constants(output, node.output.shape[1], epilogue, helpers)
    constants |= input_constants(node, source, helpers) | _input_access(problem, source.texture, helpers)
    arguments = (
        KernelArgument("output", output.storage, written=True), KernelArgument("input", source.storage),
        *epilogue.arguments,
    )
    text = specialise(FILE, constants, "".join(helpers) + epilogue.functions)
    return KernelSource(text, FILE, arguments, tuple(size), chosen.local_size)


def _input_access(problem: Problem, texture: Texture, helpers: list[str]) -> dict[str, str | int]:
    """Returns the macros that read texels of the input, which may be outside of it, or the sums."""
    given, centre = problem.convolution, texture.tiling.is_one_image and not problem.to_outputs
    last = [problem.tile * n + 1 - pad for n, pad in zip(problem.tiles, given.pads, strict=True)]
    past = last[1] >= given.input_size[1], last[0] >= given.input_size[0] and given.batch == 1
    read = read_text("input", texture, helpers, problem.to_outputs, centre=centre, past=past)
    return {"READ_INPUT(x, y)": read} | coordinate_constants(centre)


def _index_type(problem: Problem, source: Texture, output: Texture) -> str:
    """The type INDEX: short if it holds every position that the kernel keeps in one, else int."""
    tilings = source.tiling, output.tiling
    largest = max(WAVE + n for n in (*problem.work_items, *(t.width for t in tilings), *(t.height for t in tilings)))
    return "short" if largest <= SHORT_LIMIT else "int"


TEMPLATE = Template(
    "winograd2d", FILE, Problem, Specialisation, candidates=candidates, work=launch_work, nodes=nodes, place=place,
    kernel=kernel, baseline=baseline, measured=False,
)
