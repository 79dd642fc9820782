"""Synthetic calibration inputs, in the range that a model expects, on which its precision is measured at load.

A file does not state the range of its pictures. Two things distinguish 0 .. 1 from 0 .. 255 (`picture_range`):

- Arithmetic before the first convolution. It subtracts the mean of the pictures and divides by their deviation:
  (x - 127) / 128 is for 0 .. 255.
- The first convolution's bias, into which the exporter has folded the batch normalisation. In a trained layer the bias
  and the response to a picture have similar sizes, since otherwise one of them would have no effect. In 30 real models
  the bias is 0.05 to 20 times as large as the response to a picture in the correct range. If a model for 0 .. 255 gets
  a picture of 0 .. 1, the bias is 90 to 320 times as large as the response. If a model for 0 .. 1 gets 0 .. 255, the
  response is too large by the same factors.

A bias that is small compared with the response does not distinguish the ranges. Such a layer behaves the same at any
scale, and so does the cost of rounding. Then the inputs are 0 .. 1, and an input of 0 .. 255 only finds the values that
exceed 65504 (`overflow_probes`).

The left half of an input is noise with the spectrum of pictures, and lines of text over it. Without text the masks of
text detectors would be zero, and so would their errors. The right half is overlapping discs whose radii have a density
of r**-3 (the "dead leaves" model: Lee, Mumford and Huang 2001, Occlusion Models for Natural Images), with a tenth of
the noise over them: pictures have flat areas with edges at all scales. The lower third of this half is one grey, like
the padding of a letterboxed picture. Over such an area rounding errors do not average out; YOLOX has its largest errors
there.

An input with few elements shows little: on one line of text of 48 x 224 a network's error is four times as large as on
another. So there are up to four inputs, but only one for pictures of more than a quarter of a megapixel, on which a run
takes long.

Rounding may cost most where there is nothing to see. A choice for YOLOX-Nano had an error of 5e-3 on these inputs, 2e-2
on a black picture, and 0.1 on a picture of greys of 1 to 4 %. So a black picture and one of such greys are measured
too, if there are two other inputs.

Inputs that are not pictures are drawn from -1 .. 1, but this may not be their range. In overflow probes they are LARGE
times as large.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy
from PIL import Image, ImageDraw, ImageFont

from imgconv.arrays import Array, Arrays
from imgconv.graph.evaluate import evaluate_node
from imgconv.graph.nodes import Concatenation, Convolution, Graph, Load, Node, Value

UNIT, BYTES = (0.0, 1.0), (0.0, 255.0)
# The bias divided by the response to a picture of 0 .. 1: below the first and above the last it tells nothing, between
# the last two it tells pictures of bytes.
LEAST_TELLING, TELLS_BYTES, MOST_TELLING = 0.4, 45.0, 1000.0
# A first layer that makes 0 of a grey above this, or divides by more than this, is for bytes.
BYTE_MEAN, BYTE_SPREAD = 2.0, 50.0
# Other pictures may give a layer higher values than the synthetic ones.
MARGIN = 4.0
CHANNELS = (1, 3, 4)
MOST_INPUTS, ENOUGH = 4, 500_000  # inputs, and the positions that they show together
DARK = (0.0, 0.04)  # greys of dark pictures
LARGE = 1000.0
PADDED, PADDING = 1 / 3, 114 / 255  # as a picture of 3:2 in a square
DISCS, SMALLEST_DISC = 300, 1 / 60  # of the longer side
LETTERS, LEAST_LETTER = "ABCDEFGHKLMNPRSTabcdeghiklnoprstu0123456789", 10.0


def synthetic_inputs(graph: Graph) -> tuple[Arrays, ...]:
    """One to four inputs in the range that the model is made for, the first two before two dark pictures."""
    ranges = {value.name: picture_range(graph, value) or UNIT for value in graph.inputs}
    made, dark = _synthetic(graph, ranges, MOST_INPUTS), list[Arrays]()
    for grey in DARK if len(made) > 1 and any(map(is_picture, graph.inputs)) else ():
        each = dict(made[0])
        for value in filter(is_picture, graph.inputs):
            low, high = ranges[value.name]
            each[value.name] = numpy.full(value.shape, low + grey * (high - low), value.dtype)
        dark.append(each)
    return (*made[:2], *dark, *made[2:])


def overflow_probes(graph: Graph) -> tuple[Arrays, ...]:
    """One input of larger numbers where the graph does not tell the range; none if it always does.

    0 .. 255 for pictures, and -LARGE .. LARGE for other floats.
    """
    ranges = {value.name: picture_range(graph, value) for value in graph.inputs}
    larger = {
        value.name: (-LARGE, LARGE) if value.dtype.startswith("float") and not is_picture(value)
        else ranges[value.name] or BYTES for value in graph.inputs
    }
    return _synthetic(graph, larger, 1) if larger != ranges else ()


def _synthetic(graph: Graph, ranges: Mapping[str, tuple[float, float]], most: int) -> tuple[Arrays, ...]:
    """At most this many inputs, fewer of large ones."""
    positions = max((prod(v.shape) // (3 if is_picture(v) else 1) for v in graph.inputs), default=0)
    count = max(1, min(most, ENOUGH // max(positions, 1)))
    return tuple(
        {value.name: synthetic_picture(value, *ranges[value.name], seed) for value in graph.inputs}
        for seed in range(1, count + 1)
    )


def picture_range(graph: Graph, value: Value) -> tuple[float, float] | None:
    """The range that an input is made for; None for a picture if the graph does not tell. graph: after the passes.

    An input of rank 4 with 1, 3 or 4 channels is a picture; other floats (features, flows, states) are of -1 .. 1.
    """
    if not value.dtype.startswith("float"):
        return BYTES if value.dtype == "uint8" else UNIT
    if not is_picture(value):
        return -1.0, 1.0
    front, first = _nodes_before_convolutions(graph, value)
    shift, slope = _median_shift_and_slope(value, front, graph)
    if slope and (-shift / slope > BYTE_MEAN or abs(slope) * BYTE_SPREAD < 1):
        return BYTES
    ratio = max((_bias_to_response(graph, node) for node in first), default=0.0)
    if not shift and not LEAST_TELLING <= ratio <= MOST_TELLING:
        return None
    return BYTES if TELLS_BYTES < ratio <= MOST_TELLING else UNIT


def is_picture(value: Value) -> bool:
    """Returns whether an input can be a picture: rank 4, with 1, 3 or 4 channels before or after rows and columns."""
    return len(value.shape) == 4 and (value.shape[1] in CHANNELS or value.shape[3] in CHANNELS)


def held_out_inputs(graph: Graph, inputs: Sequence[Arrays]) -> tuple[Arrays, ...]:
    """Two further inputs: in the range of the largest given one, and MARGIN times that. Integers stay in the range."""
    given = max(inputs, key=lambda each: max((float(numpy.ptp(a)) for a in each.values() if a.size), default=0.0))
    made = []
    for seed, scale in ((12, 1.0), (13, MARGIN)):
        drawn = {}
        for value in graph.inputs:
            finite = given[value.name][numpy.isfinite(given[value.name])]
            low, high = (float(finite.min()), float(finite.max())) if finite.size else UNIT
            factor = scale if value.dtype.startswith("float") else 1.0
            drawn[value.name] = synthetic_picture(value, factor * low, factor * high, seed)
        made.append(drawn)
    return tuple(made)


def synthetic_picture(value: Value, low: float, high: float, seed: int = 1) -> Array:
    """An input of low .. high: its left half is noise with the spectrum of pictures, and text, its right half discs."""
    random, shape = numpy.random.default_rng(seed), value.shape
    if len(shape) < 2 or 0 in shape or not value.dtype.startswith("float"):
        return (low + random.random(shape) * (high - low)).astype(value.dtype)
    last = len(shape) == 4 and shape[1] not in CHANNELS and shape[3] in CHANNELS
    planes = (*shape[:-3], shape[-1], *shape[-3:-1]) if last else shape
    made = _noise(random, planes)
    discs, middle = 0.1 * made + 0.9 * _discs(random, planes), planes[-1] // 2
    if is_picture(value):
        discs[..., int(planes[-2] * (1 - PADDED)) :, :] = PADDING
        text = _text(random, *planes[-2:])
        made = 0.6 * made * (1 - text) + text
    made[..., middle:] = discs[..., middle:]
    made -= made.min()
    made *= (high - low) / max(made.max(), 1e-9)
    return numpy.asarray(low + (numpy.moveaxis(made, -3, -1) if last else made), value.dtype)


def _noise(random: numpy.random.Generator, shape: tuple[int, ...]) -> Array:
    """Amplitude falls as one over the spatial frequency. 0 .. 1."""
    rows, columns = shape[-2:]
    frequency = numpy.hypot(numpy.fft.fftfreq(rows)[:, None], numpy.fft.rfftfreq(columns)[None])
    frequency[0, 0] = 1 / max(rows, columns)
    noise = numpy.fft.irfft2(numpy.fft.rfft2(random.standard_normal(shape)) / frequency, s=(rows, columns))
    least, most = noise.min(), noise.max()
    return numpy.asarray((noise - least) / max(most - least, 1e-9))


def _text(random: numpy.random.Generator, rows: int, columns: int) -> Array:
    """Lines of drawn letters and figures, a tenth of the rows high. 0, or 1 in a letter."""
    page = Image.new("L", (columns, rows))
    pen, y = ImageDraw.Draw(page), 0.0
    while y < rows:
        size = max(rows * random.uniform(0.05, 0.12), LEAST_LETTER)
        line = "".join(random.choice(list(LETTERS), 8))
        pen.text((columns * random.uniform(0, 0.3), y), line, 255, ImageFont.load_default(size))
        y += size * random.uniform(1.3, 2.5)
    return numpy.asarray(page) / 255.0


def _discs(random: numpy.random.Generator, shape: tuple[int, ...]) -> Array:
    """Discs of drawn greys, and of colours near them, over each other. 0 .. 1."""
    rows, columns = shape[-2:]
    made = numpy.full(shape, random.random())
    planes = made.reshape(-1, rows, columns)
    side = max(rows, columns)
    most, least = side / 2, max(side * SMALLEST_DISC, 1.0)
    for part in random.random(DISCS):
        radius = (1 / most**2 + part * max(1 / least**2 - 1 / most**2, 0.0)) ** -0.5
        y, x = random.random() * rows, random.random() * columns
        color = numpy.clip(random.random() + 0.15 * random.standard_normal(len(planes)), 0, 1)
        top, left = max(int(y - radius), 0), max(int(x - radius), 0)
        area = planes[:, top : int(y + radius) + 1, left : int(x + radius) + 1]
        i, j = numpy.ogrid[: area.shape[1], : area.shape[2]]
        inside = (i + top - y) ** 2 + (j + left - x) ** 2 < radius**2
        area[:, inside] = color[:, None]
    return made


# What the first layers tell of the range


def _nodes_before_convolutions(graph: Graph, value: Value) -> tuple[list[Node], list[Node]]:
    """The elementwise nodes and concatenations that read the input, and the convolutions that read these or it."""
    known, front, first = {value.name}, [], []
    for node in graph.nodes:
        if not node.reads & known:
            continue
        if isinstance(node.operation, Convolution):
            first.append(node)
        elif isinstance(node.operation, (Load, Concatenation)) and node.reads <= known | graph.constants.keys():
            known.add(node.output.name)
            front.append(node)
    return front, first


def _median_shift_and_slope(value: Value, front: Sequence[Node], graph: Graph) -> tuple[float, float]:
    """The median shift and slope of what the nodes in front make of a grey: shift + slope * grey. 0, 1 without them."""
    ends = []
    for grey in (0.0, 1.0):
        arrays: dict[str, Array] = dict(graph.constants)
        arrays[value.name] = numpy.full(value.shape, grey, value.dtype)
        made = arrays[value.name]
        for node in front:
            made = arrays[node.output.name] = evaluate_node(node, arrays)
        ends.append(made.astype(numpy.float64))
    shift, slope = ends[0], ends[1] - ends[0]
    moved = slope != 0
    if not front or not moved.any():
        return 0.0, 1.0
    return float(numpy.median(shift[moved])), float(numpy.median(slope[moved]))


def _bias_to_response(graph: Graph, node: Node) -> float:
    """The bias of a convolution divided by its response to a grey picture of 0 .. 1; 0 if either is unknown.

    Both as the root of the mean square over the channels. The picture is of 64 x 64.
    """
    weights = graph.constants.get(node.operands[1].value)
    biases = [graph.constants[o.value] for o in node.epilogue_operands if o.value in graph.constants]
    if weights is None or not biases or isinstance(node.operation, Convolution) and node.operation.transposed:
        return 0.0
    kernel = weights.astype(numpy.float64).sum(axis=1)
    picture = _noise(numpy.random.default_rng(1), (64, 64))
    windows = numpy.lib.stride_tricks.sliding_window_view(picture, kernel.shape[1:])
    response = numpy.einsum("oyx,abyx->oab", kernel, windows)
    scale = float(numpy.sqrt(numpy.mean(numpy.square(response))))
    bias = float(numpy.sqrt(numpy.mean(numpy.square(biases[0].astype(numpy.float64)))))
    return bias / scale if scale else 0.0
