"""Decodes text: DBNet's outputs to lines, CTC outputs to characters."""

from __future__ import annotations

from typing import NamedTuple

import numpy

from imgconv.arrays import Array, Arrays
from imgconv.errors import InputError
from imgconv.tasks.description import Description
from imgconv.tasks.detection import single_output
from imgconv.tasks.values import Answers, PicturePlacement, Text, Texts

# The values of PaddleOCR's DBPostProcess.
LEAST_PROBABILITY = 0.3  # of a pixel of text
GROWTH = 1.5  # the network draws lines thinner than they are: Liao et al., arXiv:1911.08947, 3.4
LEAST_SIDE = 3  # pixels of the map, before the growth
MOST_LINES = 1000


def dbnet(outputs: Arrays, description: Description, placement: PicturePlacement) -> Answers:
    """Lines of text of DBNet (Liao et al., arXiv:1911.08947): (1, 1, height, width), the probability of text.

    A line is the smallest rectangle, at any angle, around pixels above 0.3 that touch each other. Its score is the mean
    probability inside. It is enlarged on every side by 1.5 times its area over its circumference.
    """
    name, probabilities = plane_of(outputs)
    plane = probabilities.astype(numpy.float64)
    step = numpy.array(placement.model) / numpy.array(plane.shape[::-1])
    found = []
    for points in connected_regions(plane > LEAST_PROBABILITY)[:MOST_LINES]:
        centre, axes, sides = smallest_rectangle(points)
        if min(sides) < LEAST_SIDE:
            continue
        score = mean_inside(plane, centre, axes, sides)
        if score < (description.score or 0.0):
            continue
        grown = sides + 2 * GROWTH * sides.prod() / (2 * sides.sum())
        corners = placement.to_picture(corners_of(centre, axes, grown) * step).clip(0, placement.picture)
        found.append(Text("", score, tuple((float(x), float(y)) for x, y in corners)))
    return {name: Texts(tuple(sorted(found, key=_reading_order)))}


def plane_of(outputs: Arrays) -> tuple[str, Array]:
    """The name of the output, and its probabilities of text (height, width). Raises InputError for several maps."""
    name, planes = single_output(outputs)
    if planes.shape[0] != 1:
        raise InputError(f"output {name!r} has {planes.shape[0]} maps; this head takes one")
    return name, planes[0]


def _reading_order(text: Text) -> tuple[float, float]:
    """Lines from top to bottom, and from left to right if they begin at one height."""
    return min(y for _, y in text.corners), min(x for x, _ in text.corners)


def ctc(outputs: Arrays, description: Description, placement: PicturePlacement) -> Answers:
    """One line of text by connectionist temporal classification (Graves et al., 2006): (1, steps, classes).

    Class 0 is the blank. Of equal classes in a row one counts. labels: the characters of classes 1, 2 ...; a last class
    without a label is the space, as PaddleOCR has it. The score is the mean of the steps that count.
    """
    name, rows = single_output(outputs)
    characters = characters_of(description.labels, rows.shape[-1])
    best, counts = best_path(rows)
    return {name: Texts((text_of(best[counts], rows.max(axis=1)[counts], characters),))}


def best_path(rows: Array) -> tuple[Array, Array]:
    """The best class of each step, and whether it counts. rows: (steps, classes), numpy or a GraphArray."""
    best = rows.argmax(axis=1)
    before = numpy.pad(best[:-1], ((1, 0),), constant_values=-1)
    return best, (best != 0) & (best != before)


def characters_of(labels: tuple[str, ...], classes: int) -> tuple[str, ...]:
    """The characters of classes 1, 2 ... Raises InputError if there are labels of another number."""
    characters = (*labels, " ") if len(labels) == classes - 2 else labels
    if len(characters) != classes - 1:
        raise InputError(
            f"the model has {classes} classes, a blank and {classes - 1} characters, but there are {len(labels)} "
            "labels: give the characters, one a line, with --labels FILE, or as \"labels\" in MODEL.task.json"
        )
    return characters


def text_of(classes: Array, scores: Array, characters: tuple[str, ...]) -> Text:
    """The line of these classes, with the mean of their scores."""
    text = "".join(characters[number - 1] for number in classes)
    return Text(text, float(scores.mean()) if scores.size else 0.0)


def connected_regions(mask: Array) -> list[Array]:
    """The pixels at the ends of the rows of each region, int (n, 2) as x, y; regions touch at sides or corners.

    mask: bool (height, width). Example: connected_regions(numpy.eye(3) > 0) is [[[0, 0], [0, 0], [1, 1], ...]].
    """
    edges = numpy.diff(numpy.pad(mask, ((0, 0), (1, 1))).astype(numpy.int8), axis=1)
    rows, starts = numpy.nonzero(edges == 1)
    stops = numpy.nonzero(edges == -1)[1]  # after the last pixel
    group = _connected_components(rows, starts, stops)
    ends = numpy.stack([numpy.stack([starts, rows], 1), numpy.stack([stops - 1, rows], 1)], 1)
    order = numpy.argsort(group, kind="stable")
    cuts = numpy.flatnonzero(numpy.diff(group[order])) + 1
    return [part.reshape(-1, 2) for part in numpy.split(ends[order], cuts)] if len(rows) else []


def _connected_components(rows: Array, starts: Array, stops: Array) -> Array:
    """The number of the region of each run of pixels: that of its first run. Runs lie row by row."""
    parents = list(range(len(rows)))

    def root(number: int) -> int:
        while parents[number] != number:
            parents[number] = parents[parents[number]]
            number = parents[number]
        return number

    above = 0
    for below, (row, start, stop) in enumerate(zip(rows.tolist(), starts.tolist(), stops.tolist(), strict=True)):
        while above < below and (rows[above] < row - 1 or (rows[above] == row - 1 and stops[above] < start)):
            above += 1
        other = above
        while other < below and rows[other] == row - 1 and starts[other] <= stop:
            one, two = root(other), root(below)
            parents[max(one, two)] = min(one, two)
            other += 1
    return numpy.array([root(number) for number in range(len(parents))], int)


class Rectangle(NamedTuple):
    """A rectangle at any angle: its centre (2,), its two axes as rows (2, 2), and the lengths of its two sides (2,)."""

    centre: Array
    axes: Array
    sides: Array


def smallest_rectangle(points: Array) -> Rectangle:
    """The smallest rectangle around points (n, 2).

    One side lies on a side of the points' convex hull (Freeman and Shapira, 1975, doi:10.1145/360881.360919).
    """
    hull = convex_hull(points)
    sides = numpy.roll(hull, -1, axis=0) - hull
    lengths = numpy.hypot(sides[:, 0], sides[:, 1])
    along = sides[lengths > 0] / lengths[lengths > 0, None] if len(hull) > 1 else numpy.array([[1.0, 0.0]])
    frames = numpy.stack([along, numpy.stack([-along[:, 1], along[:, 0]], 1)], 1)  # (sides, 2 axes, 2)
    places = frames @ hull.T  # (sides, 2 axes, points)
    low, high = places.min(axis=2), places.max(axis=2)
    best = int((high - low).prod(axis=1).argmin())
    return Rectangle((low[best] + high[best]) / 2 @ frames[best], frames[best], high[best] - low[best])


def convex_hull(points: Array) -> Array:
    """The corners of the convex hull of points (n, 2), float64 (m, 2), in order (Andrew, 1979)."""
    listed = sorted(set(map(tuple, points.tolist())))
    if len(listed) < 3:
        return numpy.array(listed, numpy.float64)
    halves: list[list[tuple[float, float]]] = []
    for way in (listed, listed[::-1]):
        half: list[tuple[float, float]] = []
        for x, y in way:
            while len(half) > 1 and (
                (half[-1][0] - half[-2][0]) * (y - half[-2][1]) <= (half[-1][1] - half[-2][1]) * (x - half[-2][0])
            ):
                half.pop()
            half.append((x, y))
        halves.append(half[:-1])
    return numpy.array([*halves[0], *halves[1]], numpy.float64)


def mean_inside(plane: Array, centre: Array, axes: Array, sides: Array) -> float:
    """The mean of the pixels of (height, width) that a rectangle covers or touches."""
    corners = corners_of(centre, axes, sides)
    left, top = numpy.floor(corners.min(axis=0)).astype(int).clip(0, None)
    right, bottom = numpy.ceil(corners.max(axis=0)).astype(int) + 1
    part = plane[top:bottom, left:right]
    rows, columns = numpy.indices(part.shape)
    away = numpy.stack([columns + left, rows + top], 2) - centre
    inside = (abs(away @ axes.T) <= sides / 2 + 0.5).all(axis=2)
    return float(part[inside].mean()) if inside.any() else 0.0


def corners_of(centre: Array, axes: Array, sides: Array) -> Array:
    """The corners (4, 2) of a rectangle: top left, top right, bottom right, bottom left, as its text is read.

    A rectangle that is turned by up to 45 degrees is read along its side that is nearer to the horizontal.
    """
    flat = int(abs(axes[1, 0]) > abs(axes[0, 0]))
    right, down = axes[flat] * sides[flat] / 2, axes[1 - flat] * sides[1 - flat] / 2
    right, down = right * (1 if right[0] >= 0 else -1), down * (1 if down[1] >= 0 else -1)
    return numpy.stack([centre - right - down, centre + right - down, centre + right + down, centre - right + down])
