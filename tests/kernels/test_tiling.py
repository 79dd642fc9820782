"""Tilings: every texel of a grid has one place inside the image, whatever the limit; no tiling costs nothing."""

from __future__ import annotations

from math import ceil

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imgconv.dtype import FLOAT32, DType
from imgconv.errors import ResourceError
from imgconv.graph.index import variable
from imgconv.kernels.codegen.access import coordinates, image_type, read_text, write_text
from imgconv.kernels.layout import ImageLimits, Texture, Tiling, choose_tiling, matrix_layout

SMALL = ImageLimits(32, 32, 64)


def tiled(width: int, height: int, limits: ImageLimits = SMALL) -> Tiling:
    return choose_tiling(width, height, limits, "t", (width, height))


def texture(tiling: Tiling, dtype: DType = FLOAT32) -> Texture:
    return Texture("t", (tiling.height, 4 * tiling.width), matrix_layout(2), dtype, tiling)


def places(tiling: Tiling) -> list[tuple[int, int, int]]:
    """The place (x, y, layer) of each texel of the grid, row by row."""
    values = {"x": numpy.arange(tiling.width)[None, :], "y": numpy.arange(tiling.height)[:, None]}
    shape = (tiling.height, tiling.width)
    found = [numpy.broadcast_to(e.evaluate(values), shape).ravel().tolist() for e in tiling.texel]
    return list(zip(*found, strict=True))


def check(tiling: Tiling, limits: ImageLimits) -> None:
    width, height = tiling.image_size
    assert width <= limits.width and height <= limits.height
    assert tiling.layers <= max(1, limits.layers)
    found = places(tiling)
    assert len(found) == tiling.width * tiling.height
    assert len(set(found)) == len(found), "tiles overlap"
    for axis, size in enumerate((width, height, tiling.layers)):
        assert 0 <= min(p[axis] for p in found) and max(p[axis] for p in found) < size


@given(st.integers(1, 90), st.integers(1, 90), st.integers(8, 40), st.integers(8, 40))
@settings(max_examples=120, deadline=None)
def test_every_texel_has_one_place_inside_the_image(width: int, height: int, limit_x: int, limit_y: int) -> None:
    limits = ImageLimits(limit_x, limit_y, 200)
    check(tiled(width, height, limits), limits)


@pytest.mark.parametrize("width, height", [(32, 32), (33, 1), (1, 33), (33, 33), (64, 32), (65, 5), (5, 65), (32, 33)])
def test_at_and_past_the_limit(width: int, height: int) -> None:
    check(tiled(width, height), SMALL)


# The three forms

def test_what_fits_is_one_tile() -> None:
    tiling = tiled(32, 32)
    assert (tiling.tiles, tiling.layers, tiling.image_size) == (1, 1, (32, 32))


@pytest.mark.parametrize("width, height", [(1, 1), (1, 32), (32, 1), (7, 13), (32, 32)])
def test_one_tile_leaves_the_coordinates_alone(width: int, height: int) -> None:
    tiling = tiled(width, height)
    x, y, layer = tiling.texel
    assert (x, y) == (variable("x", width), variable("y", height))
    assert layer.is_constant and layer.constant == 0
    helpers: list[str] = []
    assert read_text("input", texture(tiling), helpers) == "read_imagef(input, TEXEL, (int2)(x, y))"
    assert write_text("output", texture(tiling), helpers) == "write_imagef(output, (int2)(x, y), texel)"
    assert helpers == []
    assert image_type(texture(tiling)) == "read_only image2d_t"
    assert coordinates(tiling) == f"(int2)({'x' if width > 1 else '0'}, {'y' if height > 1 else '0'})"


def test_wide_tiles_lie_below_each_other() -> None:
    tiling = tiled(70, 5)
    assert (tiling.tiles, tiling.layers, tiling.image_size) == (3, 1, (24, 15))
    for x in (0, 23, 24, 47, 48, 69):
        for y in (0, 4):
            assert places(tiling)[y * 70 + x] == (x % 24, y + 5 * (x // 24), 0)
    assert image_type(texture(tiling)) == "read_only image2d_t"


def test_tall_tiles_lie_beside_each_other() -> None:
    tiling = tiled(5, 70)
    assert (tiling.tiles, tiling.layers, tiling.image_size) == (3, 1, (15, 24))
    for y in (0, 23, 24, 47, 48, 69):
        for x in (0, 4):
            assert places(tiling)[y * 5 + x] == (x + 5 * (y // 24), y % 24, 0)


def test_what_does_not_fit_one_image_takes_layers() -> None:
    both = tiled(70, 40)
    assert (both.tiles, both.layers) == (6, 6)
    assert image_type(texture(both), True) == "write_only image2d_array_t"
    assert coordinates(both).startswith("(int4)(")
    check(both, SMALL)
    # A wide grid of which no two tiles stack below the limit.
    wide = tiled(70, 20)
    assert (wide.tiles, wide.per_layer, wide.layers) == (3, 1, 3)
    check(wide, SMALL)


def test_tiles_are_as_equal_as_can_be() -> None:
    for width in range(33, 130):
        tiling = tiled(width, 1)
        assert tiling.tile_width == ceil(width / ceil(width / 32))


def test_a_tiled_access_goes_through_a_helper_that_checks_reads() -> None:
    helpers: list[str] = []
    tiling = tiled(70, 5)
    read, write = read_text("input", texture(tiling), helpers), write_text("output", texture(tiling), helpers)
    assert read.endswith("(input, x, y)") and write.endswith("(output, x, y, texel)")
    reading, writing = helpers
    assert "if (x < 0 || x >= 70 || y < 0 || y >= 5) return (float4)(0.0f);" in reading
    assert "write_imagef(image, (int2)(" in writing
    other: list[str] = []
    assert read_text("input", texture(tiled(70, 6)), other) != read, "tilings share no helper"


@given(st.integers(1, 80), st.integers(1, 80))
@settings(max_examples=40, deadline=None)
def test_the_rendered_coordinates_are_the_places(width: int, height: int) -> None:
    """The OpenCL text, read as Python: all operands are positive, so that / is //."""
    tiling = tiled(width, height)
    text = coordinates(tiling).replace("(int2)", "").replace("(int4)", "").replace("/", "//")
    found, count = places(tiling), 3 if tiling.layers > 1 else 2
    for x, y in {(0, 0), (width - 1, height - 1), (width // 2, height // 3), (width - 1, 0), (0, height - 1)}:
        expected = found[y * width + x]
        assert eval(text, {"x": x, "y": y})[:count] == expected[:count]


# Content

@given(st.integers(1, 70), st.integers(1, 70))
@settings(max_examples=40, deadline=None)
def test_scatter_and_gather_cancel(width: int, height: int) -> None:
    tiling = tiled(width, height)
    texels = numpy.arange(1, width * height * 4 + 1, dtype=numpy.float32).reshape(height, width, 4)
    image = tiling.to_image(texels)
    image_width, image_height = tiling.image_size
    assert image.shape == (tiling.layers, image_height, image_width, 4) and image.dtype == texels.dtype
    numpy.testing.assert_array_equal(tiling.from_image(image), texels)
    assert (image != 0).sum() == texels.size, "what belongs to no texel is zero"
    for x, y in ((0, 0), (width - 1, height - 1), (width - 1, 0)):
        image_x, image_y, layer = places(tiling)[y * width + x]
        numpy.testing.assert_array_equal(image[layer, image_y, image_x], texels[y, x])


# What cannot be had

def test_too_many_layers_are_refused_with_name_shape_and_limit() -> None:
    with pytest.raises(ResourceError) as raised:
        choose_tiling(32 * 9, 32, ImageLimits(32, 32, 8), "mask", (1, 32, 32, 36))
    error = raised.value
    assert (error.tensor, error.shape) == ("mask", (1, 32, 32, 36))
    assert "8" in error.limit
    for part in ("'mask'", "[1, 32, 32, 36]", "9 images", "32x32", "limit"):
        assert part in str(error)


def test_the_last_layer_is_still_had() -> None:
    assert tiled(32 * 8, 32, ImageLimits(32, 32, 8)).layers == 8


@pytest.mark.parametrize("layers", [0, 1])
def test_a_device_without_image_arrays_gets_no_layers(layers: int) -> None:
    limits = ImageLimits(32, 32, layers)
    assert tiled(64, 16, limits).layers == 1
    with pytest.raises(ResourceError):
        tiled(64, 17, limits)
    with pytest.raises(ResourceError):
        tiled(33, 33, limits)


def test_width_and_height_limits_are_not_confused() -> None:
    limits = ImageLimits(64, 16, 1)
    assert tiled(64, 16, limits).tiles == 1
    assert tiled(100, 8, limits).image_size == (50, 16)
    assert tiled(20, 40, limits).image_size == (60, 14)


def test_a_linear_read_tests_only_what_must_give_zero() -> None:
    linear = texture(choose_tiling(70, 5, None, "t", (70, 5)))
    helpers: list[str] = []
    assert linear.tiling.linear and image_type(linear) == "__global const float4 *"
    for inside, past, before, tests, address in (
        (False, True, True, True, "y * 70 + x"), (False, False, True, True, "y * 70 + x"),
        (True, True, True, False, "y * 70 + x"),
        (False, False, False, False, "clamp(y, 0, 4) * 70 + min(x, 69)"),
    ):
        read_text("input", linear, helpers, inside, past=(past, past), before=before)
        assert ("if (x < 0 || x >= 70" in helpers[-1]) == tests and f"const int n = {address};" in helpers[-1]
