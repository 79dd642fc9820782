"""Addresses, packing and placements against formulas written out by hand."""

from __future__ import annotations

import itertools
from math import prod
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imgconv.dtype import FLOAT16, FLOAT32, DType
from imgconv.graph.index import constant, variable
from imgconv.kernels.layout import (
    HostBuffer,
    ImageLimits,
    Layout,
    Placement,
    Texture,
    byte_texture,
    choose_tiling,
    image_layout,
    matrix_layout,
)

LIMITS = ImageLimits(16384, 16384, 2048)
SHAPES = st.lists(st.integers(1, 9), min_size=0, max_size=5).map(tuple)


@st.composite
def layouts(draw: st.DrawFn, rank: int) -> Layout:
    """Any layout of a rank: axes dealt out to rows, columns and the packed axis."""
    if rank == 0:
        return Layout((), (), None)
    order = draw(st.permutations(range(rank)))
    packed, rest = order[0], order[1:]
    cut = draw(st.integers(0, len(rest)))
    return Layout(tuple(rest[:cut]), tuple(rest[cut:]), packed)


def address_of(layout: Layout, shape: tuple[int, ...], position: tuple[int, ...]) -> tuple[int, int, int]:
    x, y, lane = layout.address(shape, [constant(p) for p in position])
    return int(x.evaluate({})), int(y.evaluate({})), int(lane.evaluate({}))


# Formulas written independently

def test_nchw_is_rows_of_columns_of_quads() -> None:
    n_, c_, h_, w_ = 2, 6, 3, 5
    c4 = 2
    for n, c, h, w in itertools.product(range(n_), range(c_), range(h_), range(w_)):
        expected = (w * c4 + c // 4, n * h_ + h, c % 4)
        assert address_of(image_layout(4), (n_, c_, h_, w_), (n, c, h, w)) == expected
    assert image_layout(4).grid((n_, c_, h_, w_)) == (w_ * c4, n_ * h_)


def test_ncdhw_has_depth_among_the_rows() -> None:
    shape = (2, 5, 3, 4, 6)
    for n, c, d, h, w in itertools.product(*map(range, shape)):
        expected = (w * 2 + c // 4, (n * 3 + d) * 4 + h, c % 4)
        assert address_of(image_layout(5), shape, (n, c, d, h, w)) == expected
    assert image_layout(5).grid(shape) == (12, 24)


def test_ncw_has_only_the_batch_as_rows() -> None:
    for n, c, w in itertools.product(range(2), range(5), range(3)):
        assert address_of(image_layout(3), (2, 5, 3), (n, c, w)) == (w * 2 + c // 4, n, c % 4)


def test_a_matrix_has_four_of_its_last_axis_to_a_texel() -> None:
    for b, m, k in itertools.product(range(2), range(3), range(7)):
        assert address_of(matrix_layout(3), (2, 3, 7), (b, m, k)) == (k // 4, b * 3 + m, k % 4)
    assert matrix_layout(3).grid((2, 3, 7)) == (2, 6)


def test_vectors_and_scalars() -> None:
    for layout in (image_layout(1), matrix_layout(1)):
        assert [address_of(layout, (6,), (i,)) for i in (0, 3, 4, 5)] == [(0, 0, 0), (0, 0, 3), (1, 0, 0), (1, 0, 1)]
    for layout in (image_layout(0), matrix_layout(0)):
        assert address_of(layout, (), ()) == (0, 0, 0)
        assert layout.grid(()) == (1, 1)
    assert image_layout(2) == matrix_layout(2) == Layout((0,), (), 1)


@pytest.mark.parametrize("rank", range(6))
@pytest.mark.parametrize("made", [image_layout, matrix_layout])
def test_each_axis_has_one_place(made: Any, rank: int) -> None:
    layout = made(rank)
    axes = [*layout.rows, *layout.columns, *([] if layout.packed is None else [layout.packed])]
    assert sorted(axes) == list(range(rank))


@pytest.mark.parametrize("channels, quads", [(1, 1), (3, 1), (4, 1), (5, 2), (8, 2), (9, 3)])
def test_quads_round_up(channels: int, quads: int) -> None:
    assert image_layout(4).quads((1, channels, 2, 2)) == quads


# Any layout of any rank

@given(st.data(), SHAPES)
@settings(max_examples=80, deadline=None)
def test_every_element_has_a_place_of_its_own(data: st.DataObject, shape: tuple[int, ...]) -> None:
    layout = data.draw(layouts(len(shape)))
    width, height = layout.grid(shape)
    axes = [variable(f"i{a}", n) for a, n in enumerate(shape)]
    x, y, lane = layout.address(shape, axes)
    grids = numpy.meshgrid(*map(numpy.arange, shape), indexing="ij")
    values = {f"i{a}": g for a, g in enumerate(grids)}
    found = [numpy.broadcast_to(e.evaluate(values), shape) for e in (x, y, lane)]
    assert found[0].max() < width and found[1].max() < height and found[2].max() < 4
    assert min(f.min() for f in found) >= 0
    flat = (found[1] * width + found[0]) * 4 + found[2]
    assert len(numpy.unique(flat)) == prod(shape)


@given(st.data(), SHAPES)
@settings(max_examples=80, deadline=None)
def test_position_undoes_address(data: st.DataObject, shape: tuple[int, ...]) -> None:
    layout = data.draw(layouts(len(shape)))
    width, height = layout.grid(shape)
    x, y, lane = variable("x", width), variable("y", height), variable("lane", 4)
    position = layout.position(shape, x, y, lane)
    back = layout.address(shape, position)
    assert len(position) == len(shape)
    grid = numpy.meshgrid(numpy.arange(width), numpy.arange(height), numpy.arange(4), indexing="ij")
    values = dict(zip(("x", "y", "lane"), grid, strict=True))
    where = [numpy.broadcast_to(e.evaluate(values), grid[0].shape) for e in position]
    inside = numpy.ones(grid[0].shape, bool)
    for axis, index in enumerate(where):
        if axis != layout.packed:
            assert index.min() >= 0 and index.max() < shape[axis], "only the packed axis may pass its end"
        inside &= index < shape[axis]
    # A layout without a packed axis has one element to a texel: lane 0.
    inside &= (grid[2] == 0) | (layout.packed is not None)
    assert inside.sum() == prod(shape)
    for found, expected in zip(back, grid, strict=True):
        returned = numpy.broadcast_to(found.evaluate(values), inside.shape)
        numpy.testing.assert_array_equal(returned[inside], expected[inside])


@given(st.data(), SHAPES)
@settings(max_examples=80, deadline=None)
def test_pack_puts_each_element_at_its_address_and_zero_elsewhere(data: st.DataObject, shape: tuple[int, ...]) -> None:
    layout = data.draw(layouts(len(shape)))
    array = numpy.arange(1, prod(shape) + 1, dtype=numpy.float32).reshape(shape)
    texels = layout.pack(array)
    width, height = layout.grid(shape)
    assert texels.shape == (height, width, 4) and texels.dtype == array.dtype
    for position in itertools.islice(itertools.product(*map(range, shape)), 200):
        x, y, lane = address_of(layout, shape, position)
        assert texels[y, x, lane] == array[position]
    assert (texels != 0).sum() == prod(shape), "lanes past the last channel are zero"
    numpy.testing.assert_array_equal(layout.unpack(texels, shape), array)


@pytest.mark.parametrize("dtype", ["float16", "float32", "int64", "bool"])
@pytest.mark.parametrize("rank", range(6))
def test_round_trip_of_each_dtype(dtype: str, rank: int) -> None:
    shape = (2, 5, 3, 1, 4)[:rank]
    array = (numpy.arange(prod(shape)) % 7).astype(dtype).reshape(shape)
    for layout in (image_layout(rank), matrix_layout(rank)):
        found = layout.unpack(layout.pack(array), shape)
        assert found.dtype == dtype and found.shape == shape
        numpy.testing.assert_array_equal(found, array)


def test_unpack_ignores_what_lies_in_lanes_past_the_last_channel() -> None:
    layout, shape = image_layout(4), (1, 3, 2, 2)
    texels = layout.pack(numpy.ones(shape))
    texels[..., 3] = numpy.nan
    assert layout.unpack(texels, shape).tolist() == numpy.ones(shape).tolist()


# Textures, buffers, placements

def texture(shape: tuple[int, ...], dtype: DType = FLOAT32, layout: Layout | None = None) -> Texture:
    layout = layout or image_layout(len(shape))
    return Texture("t", shape, layout, dtype, choose_tiling(*layout.grid(shape), LIMITS, "t", shape))


def test_bytes_count_whole_texels() -> None:
    assert texture((1, 5, 3, 7)).bytes == (7 * 2) * 3 * 16
    assert texture((1, 5, 3, 7), FLOAT16).bytes == (7 * 2) * 3 * 8
    assert HostBuffer("b", (1, 5, 3, 7), image_layout(4), FLOAT32).bytes == 5 * 3 * 7 * 4
    assert HostBuffer("b", (), image_layout(0), FLOAT16).bytes == 2


def test_texture_text_names_shape_type_size_and_tiles() -> None:
    assert str(texture((1, 5, 3, 7))) == "t [1, 5, 3, 7] float32 14x3"
    layout = image_layout(4)
    limits = ImageLimits(32, 32, 8)
    many = Texture("t", (1, 8, 40, 40), layout, FLOAT16, choose_tiling(80, 40, limits, "t", (1, 8, 40, 40)))
    assert str(many) == "t [1, 8, 40, 40] float16 27x20x6 in 6 tiles"


def test_a_part_lies_at_its_quad_of_the_wider_texture() -> None:
    part = Placement(texture((2, 12, 3, 5)), (2, 4, 3, 5), 8)
    for n, c, h, w in itertools.product(range(2), range(4), range(3), range(5)):
        found = [int(e.evaluate({})) for e in part.address([constant(p) for p in (n, c, h, w)])]
        assert found == [w * 3 + (c + 8) // 4, n * 3 + h, c % 4]
    assert not part.is_whole and Placement(texture((2, 4, 3, 5)), (2, 4, 3, 5)).is_whole


def test_parts_of_a_texture_never_overlap() -> None:
    storage = texture((1, 12, 2, 2))
    seen: set[tuple[int, ...]] = set()
    for offset, channels in ((0, 4), (4, 5)):
        part = Placement(storage, (1, channels, 2, 2), offset)
        for position in itertools.product(range(1), range(channels), range(2), range(2)):
            place = tuple(int(e.evaluate({})) for e in part.address([constant(p) for p in position]))
            assert place not in seen
            seen.add(place)
    assert len(seen) == 9 * 4


# Bytes


@pytest.mark.parametrize(
    ("shape", "rows"),
    [
        ((1080, 1920, 3), (1080, 5760)), ((1620, 1920), (1620, 1920)), ((5, 8, 4), (40, 4)), ((1, 3, 6, 8), (18, 8)),
        ((4, 5), (1, 20)), ((30000, 3, 4), (30000, 12)), ((16,), (1, 16)),
    ],
)
def test_bytes_lie_as_they_are(shape: tuple[int, ...], rows: tuple[int, int]) -> None:
    """A row is as few of the last axes as make whole texels; 30000 x 3 rows would be past the limit of 32768."""
    found = byte_texture("p", shape, ImageLimits(16384, 32768, 1))
    assert found is not None and found.shape == rows and found.dtype == "uint8" and found.bytes == prod(shape)
    assert found.tiling.tiles == 1 and found.tiling.image_size == (rows[1] // 4, rows[0])
    array = numpy.arange(prod(shape)).astype(numpy.uint8)
    texels = array.reshape(rows[0], -1, 4)
    numpy.testing.assert_array_equal(found.layout.unpack(texels, found.shape), array.reshape(rows))


@pytest.mark.parametrize("shape", [(5, 7, 3), (3,), (), (0, 4), (300, 4), (1, 300)])
def test_bytes_that_fit_no_image(shape: tuple[int, ...]) -> None:
    """No whole texels, nothing at all, or past 64 texels."""
    assert byte_texture("p", shape, ImageLimits(64, 64, 1)) is None
