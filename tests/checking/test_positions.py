"""Sampled positions, and the elements that a texture or a buffer has there."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy
import pytest

from imgconv.checking.positions import READS, elements_at, positions_of_each_operand, sampled_positions
from imgconv.dtype import FLOAT32
from imgconv.graph.expression import Argument, apply
from imgconv.graph.index import constant
from imgconv.graph.nodes import Node, Operand, Reduction, Value
from imgconv.graph.view import Bound, pad
from imgconv.kernels.layout import HostBuffer, ImageLimits, Layout, Placement, Texture, choose_tiling, image_layout
from imgconv.kernels.layout import matrix_layout

SHAPE = (2, 7, 11, 13)
LIMITS = {"one image": ImageLimits(1000, 1000, 4), "tiles": ImageLimits(9, 8, 64), "linear": None}
LAYOUTS = {"image": image_layout(4), "matrix": matrix_layout(4), "wide": Layout((0,), (2, 3), 1)}


def placed(layout: str, limits: str, shape: tuple[int, ...] = SHAPE) -> tuple[Placement, Texture]:
    chosen = LAYOUTS[layout]
    tiling = choose_tiling(*chosen.grid(shape), LIMITS[limits], "x", shape)
    texture = Texture("x", shape, chosen, FLOAT32, tiling)
    return Placement(texture, shape), texture


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_elements_of_textures(layout: str, limits: str) -> None:
    place, texture = placed(layout, limits)
    array = numpy.arange(prod(SHAPE), dtype=numpy.float32).reshape(SHAPE)
    content = texture.tiling.to_image(texture.layout.pack(array))
    at = sampled_positions(place, 48, 0)
    numpy.testing.assert_array_equal(elements_at(place, content, at, SHAPE), array[at])
    flat = numpy.ravel_multi_index(at, SHAPE)
    moved = numpy.unravel_index(flat, (14, 143))
    numpy.testing.assert_array_equal(elements_at(place, content, moved, (14, 143)), array[at])


def test_elements_of_a_part() -> None:
    """A tensor in the texture of a concatenation starts at a channel of it."""
    _, texture = placed("image", "tiles")
    array = numpy.arange(prod(SHAPE), dtype=numpy.float32).reshape(SHAPE)
    content, part = texture.tiling.to_image(texture.layout.pack(array)), (2, 3, 11, 13)
    at = sampled_positions(Placement(texture, part, 4), 48, 0)
    found = elements_at(Placement(texture, part, 4), content, at, part)
    numpy.testing.assert_array_equal(found, array[:, 4:][at])


def test_elements_of_buffers() -> None:
    array = numpy.arange(prod(SHAPE), dtype=numpy.float32).reshape(SHAPE)
    place = Placement(HostBuffer("x", SHAPE, image_layout(4), FLOAT32), SHAPE)
    at = sampled_positions(place, 48, 0)
    numpy.testing.assert_array_equal(elements_at(place, array.reshape(-1), at, SHAPE), array[at])
    scalar = Placement(HostBuffer("s", (), Layout((), (), None), FLOAT32), ())
    assert elements_at(scalar, numpy.float32([3]), sampled_positions(scalar, 48, 0), ()).tolist() == [3]


@pytest.mark.parametrize("most", [1, 2, 12, 48])
def test_positions(most: int) -> None:
    """The last element is always among them, and if there are several the first one, edges and borders of tiles."""
    place, texture = placed("image", "tiles")
    found = list(zip(*(each.tolist() for each in sampled_positions(place, most, 3)), strict=True))
    assert len(found) == most and found[0] == tuple(n - 1 for n in SHAPE)
    assert all(0 <= p < n for position in found for p, n in zip(position, SHAPE, strict=True))
    if most >= 12:
        assert (0, 0, 0, 0) in found and any(p[2] in (0, 10) for p in found)
        tile = texture.tiling.tile_height
        assert any((p[0] * SHAPE[2] + p[2]) % tile in (0, tile - 1) for p in found)


def test_positions_of_one_map() -> None:
    place, _ = placed("image", "one image")
    images, channels, rows, _ = sampled_positions(place, 12, 0, of_one_map=True)
    assert set(images.tolist()) == {1} and set(channels.tolist()) == {6} and len(set(rows.tolist())) > 3


def test_a_small_tensor_is_compared_whole() -> None:
    place, _ = placed("image", "one image", (1, 3, 2, 2))
    assert len(set(zip(*(each.tolist() for each in sampled_positions(place, 48, 0)), strict=True))) == 12


def test_positions_of_a_long_axis_differ() -> None:
    """Corners and edges of one axis are two positions only; the others are random."""
    shape = (1, 4420, 1)
    at = sampled_positions(Placement(HostBuffer("x", shape, matrix_layout(3), FLOAT32), shape), 48, 0)
    assert len(set(zip(*(along.tolist() for along in at), strict=True))) >= 46


def test_positions_that_read_a_small_part() -> None:
    """Three of a thousand elements are of another tensor, before the axis that a sum has too."""
    long, short = pad((5, 997, 2), (0, 0, 0), (0, 3, 0)), pad((5, 3, 2), (0, 997, 0), (0, 0, 0))
    operands = Operand("long", long), Operand("short", short)
    node = Node(Value("y", (5, 1000), "float32"), Reduction("sum", apply("add", Argument(0), Argument(1))), operands)
    found = positions_of_each_operand(node, 0)
    assert found.shape == (2 * READS, 2) and (found[READS:, 1] >= 997).all() and found[:, 0].max() < 5


@pytest.mark.parametrize("constants, count", [([Bound(constant(0), 0, 1)], READS), ([Bound(constant(0), -1, 0)], 0)])
def test_bounds_of_constant_indices(constants: list[Bound], count: int) -> None:
    """They hold everywhere or nowhere: alone, and with a bound on an axis."""
    rows = pad((5, 4), (0, 0), (0, 3))
    for bounds in (constants, [*rows.bounds, *constants]):
        operand = Operand("x", replace(rows, bounds=tuple(bounds)))
        node = Node(Value("y", (5,), "float32"), Reduction("sum", Argument(0)), (operand,))
        assert positions_of_each_operand(node, 0).shape == (count, 1)
