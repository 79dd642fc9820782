"""Chooses the positions of an output that are compared: positions where kernels often go wrong, and random ones."""

from __future__ import annotations

from math import prod

import numpy

from imgconv.arrays import Array
from imgconv.graph.index import constant
from imgconv.graph.nodes import Load, Node, Reduction
from imgconv.graph.view import Shape, axis_variables
from imgconv.kernels.layout import LANES, Placement, Texture

CORNERS, EDGES, BORDERS = 8, 16, 8  # at most
READS, TRIED = 4, 2048  # positions that read an operand, and those of which they are chosen


def sampled_positions(place: Placement, most: int, seed: int, of_one_map: bool = False) -> tuple[Array, ...]:
    """At most `most` positions of a tensor, an array for each axis; all of a small tensor.

    of_one_map: they differ in the last two axes only, the rows and columns of one image and channel.

    Corners, the first and the last element among them, which is in the last lane of the last quad; edges; both sides of
    borders of tiles; the others are random.
    """
    shape = place.shape
    if prod(shape) <= most:
        return tuple(g.reshape(-1) for g in numpy.indices(shape)) if shape else ()
    random = numpy.random.default_rng(seed)
    sizes = numpy.asarray(shape)
    drawn = (random.random((most, len(shape))) * sizes).astype(numpy.int64)
    last = sizes - 1
    corners = min(CORNERS, max(1, most // 4))
    drawn[:corners] = numpy.where(random.random((corners, len(shape))) < 0.5, 0, last)
    drawn[0], drawn[1:2] = last, 0
    long = numpy.flatnonzero(sizes > 1)
    for number in range(corners, min(corners + EDGES, most // 2)):
        axis = random.choice(long)
        drawn[number, axis] = 0 if number % 2 else last[axis]
    borders = _tile_corner_positions(place)[:BORDERS]
    if borders:
        for number, position in zip(range(max(most // 2, 2), most), borders, strict=False):
            drawn[number] = position
    again = numpy.setdiff1d(numpy.arange(most), numpy.unique(drawn, axis=0, return_index=True)[1])
    drawn[again] = (random.random((len(again), len(shape))) * sizes).astype(numpy.int64)
    if of_one_map:
        drawn[:, :-2] = drawn[0, :-2]
    return tuple(drawn.T)


def positions_of_each_operand(node: Node, seed: int) -> Array:
    """READS positions of a node's output for each operand that is read for a part of it only, such as of a
    concatenation; a row each. Only of loads and reductions, whose views begin with the output's axes.
    """
    random, rank = numpy.random.default_rng(seed), len(node.output.shape)
    found = [numpy.zeros((0, rank), numpy.int64)]
    for view in (o.view for o in node.operands if isinstance(node.operation, (Load, Reduction))):
        if not view.bounds or prod(view.shape) == 0:
            continue
        tried = (random.random((TRIED, len(view.shape))) * view.shape).astype(numpy.int64)
        values = {f"i{axis}": along for axis, along in enumerate(tried.T)}
        inside = numpy.ones(TRIED, bool)
        for bound in view.bounds:
            at = bound.index.evaluate(values)  # a number if the index is constant
            inside &= (bound.low <= at) & (at < bound.high)
        found.append(tried[inside][:READS, :rank])
    return numpy.concatenate(found)


def _tile_corner_positions(place: Placement) -> list[tuple[int, ...]]:
    """Positions at the first texel of each tile, and before it."""
    storage = place.storage
    if not isinstance(storage, Texture) or storage.tiling.tiles == 1 or not place.is_whole:
        return []
    found: dict[tuple[int, ...], None] = {}
    for (x, y), *_ in storage.tiling.tile_copies():
        for near_x, near_y in ((x, y), (max(x - 1, 0), max(y - 1, 0))):
            made = storage.layout.position(storage.shape, constant(near_x), constant(near_y), constant(0))
            position = tuple(index.constant for index in made)
            if all(0 <= p < n for p, n in zip(position, storage.shape, strict=True)):
                found[position] = None
    return list(found)


def elements_at(place: Placement, content: Array, position: tuple[Array, ...], shape: Shape) -> Array:
    """The elements at positions of a tensor of `shape`, from the content of its texture or buffer.

    shape: of the graph's value. A placement may have another shape of the same size, in row-major order.
    """
    found: Array = content.reshape(-1)[addresses_at(place, position, shape)]
    return found


def addresses_at(place: Placement, position: tuple[Array, ...], shape: Shape) -> Array:
    """The places of these elements in the content of the texture or buffer, in row-major order."""
    where = position
    if shape != place.shape:
        flat = numpy.ravel_multi_index(position, shape) if shape else numpy.zeros(1, numpy.int64)
        where = numpy.unravel_index(flat, place.shape) if place.shape else ()
    storage = place.storage
    if not isinstance(storage, Texture):
        return numpy.asarray(numpy.ravel_multi_index(where, storage.shape) if storage.shape else [0])
    values = {f"i{axis}": along for axis, along in enumerate(where)}
    x, y, lane = (index.evaluate(values) for index in place.address(axis_variables(place.shape)))
    width, height = storage.tiling.image_size
    at = {"x": numpy.asarray(x), "y": numpy.asarray(y)}
    image_x, image_y, layer = (index.evaluate(at) for index in storage.tiling.texel)
    return numpy.asarray(((layer * height + image_y) * width + image_x) * LANES + lane)
