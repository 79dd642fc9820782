"""Images and buffers of imgconv.cl.context."""

from __future__ import annotations

import copy
import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyopencl as cl
import pytest

from imgconv.cl.building import program
from imgconv.cl import context as module
from imgconv.cl.context import Context
from imgconv.errors import DeviceError, ResourceError

SIZES = [(1, 1), (3, 5), (17, 33)]
LAYERS = [0, 1, 3]
DTYPES = [np.float32, np.float16]

SAMPLER = "constant sampler_t SAMPLER = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP | CLK_FILTER_NEAREST;\n"

READ_AROUND = (
    SAMPLER
    + """
kernel void single(read_only image2d_t source, write_only image2d_t destination) {
  int2 at = (int2)(get_global_id(0), get_global_id(1));
  write_imagef(destination, at, read_imagef(source, SAMPLER, at - 2));
}
kernel void layered(read_only image2d_array_t source, write_only image2d_array_t destination) {
  int4 at = (int4)(get_global_id(0), get_global_id(1), get_global_id(2), 0);
  write_imagef(destination, at, read_imagef(source, SAMPLER, at - (int4)(2, 2, 0, 0)));
}
"""
)


def random_texels(shape: tuple[int, ...], dtype: type[np.floating]) -> np.ndarray:
    return np.random.default_rng(7).uniform(-100, 100, shape).astype(dtype)


def uploaded(
    context: Context, width: int, height: int, layers: int, dtype: type[np.floating]
) -> tuple[cl.Image, np.ndarray]:
    created = context.image(width, height, layers, dtype)
    array = random_texels(module.image_shape(created), dtype)
    context.write(created, array)
    return created, array


# Images


@pytest.mark.parametrize("layers", [1, 3])
def test_an_image_is_an_array_by_its_type(layers: int) -> None:
    """Mesa's rusticl says of a plain image that it has one layer."""
    kind = cl.mem_object_type.IMAGE2D_ARRAY if layers > 1 else cl.mem_object_type.IMAGE2D
    answers: Any = SimpleNamespace(type=kind, width=5, height=4, array_size=layers)
    assert module.image_shape(answers) == ((layers, 4, 5, 4) if layers > 1 else (4, 5, 4))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layers", LAYERS)
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_round_trip(context: Context, width: int, height: int, layers: int, dtype: type[np.floating]) -> None:
    created, array = uploaded(context, width, height, layers, dtype)
    assert array.shape == ((layers, height, width, 4) if layers > 1 else (height, width, 4))
    assert module.image_dtype(created) == dtype
    result = context.read(created)
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, array)


def test_another_size_is_an_error_of_ours(context: Context) -> None:
    """pyopencl does not look, and the driver reads on."""
    created = context.image(3, 5, 0, np.float32)
    for shape, dtype in (((5, 3), np.float32), ((5, 3, 4), np.float16)):
        with pytest.raises(ValueError, match="the array has"):
            context.upload(created, np.zeros(shape, dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layers", [0, 3])
@pytest.mark.parametrize(("width", "height"), SIZES)
def test_reads_outside_give_zero(
    context: Context, width: int, height: int, layers: int, dtype: type[np.floating]
) -> None:
    source, array = uploaded(context, width, height, layers, dtype)
    destination, _ = uploaded(context, width + 4, height + 4, layers, dtype)
    built = program.build(context, READ_AROUND, "read_around.cl")
    launch = program.new_kernel(built, "layered" if layers else "single")
    launch.set_args(source, destination)
    context.enqueue(launch, (width + 4, height + 4, max(1, layers)))
    border = [(0, 0)] * (array.ndim - 3) + [(2, 2), (2, 2), (0, 0)]
    np.testing.assert_array_equal(context.read(destination), np.pad(array, border))


def test_half_overflows_to_infinity_or_the_largest_half(context: Context) -> None:
    source = context.image(1, 1, 0, np.float32)
    destination = context.image(5, 5, 0, np.float16)
    context.write(source, np.array([[[70000.0, -70000.0, 65504.0, 0.5]]], np.float32))
    launch = program.new_kernel(program.build(context, READ_AROUND, "read_around.cl"), "single")
    launch.set_args(source, destination)
    context.enqueue(launch, (5, 5))
    written = context.read(destination)[2, 2]
    # OpenCL lets a driver round to the nearest half or towards zero; 65504 is the largest.
    assert written[0] in (np.inf, 65504.0) and written[1] == -written[0]
    np.testing.assert_array_equal(written[2:], [65504.0, 0.5])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layers", LAYERS)
def test_fill(context: Context, layers: int, dtype: type[np.floating]) -> None:
    created, array = uploaded(context, 3, 5, layers, dtype)
    for value in (1.5, 0.0):
        context.fill(created, value)
        np.testing.assert_array_equal(context.read(created), np.full_like(array, value))


@pytest.mark.parametrize("layers", [0, 3])
def test_a_part_of_an_image_is_read(context: Context, layers: int) -> None:
    created, array = uploaded(context, 17, 33, layers, np.float32)
    part = array[:2, :6, :5] if layers else array[:6, :5]
    np.testing.assert_array_equal(context.read(created, part.shape), part)


@pytest.mark.parametrize("dtype", DTYPES)
def test_copy_region(context: Context, dtype: type[np.floating]) -> None:
    source, array = uploaded(context, 17, 33, 0, dtype)
    destination = context.image(9, 11, 0, dtype)
    context.fill(destination, 0)
    context.copy(destination, source, (1, 4, 0), (2, 3, 0), (7, 5, 1))
    expected = np.zeros((11, 9, 4), dtype)
    expected[4:9, 1:8] = array[3:8, 2:9]
    np.testing.assert_array_equal(context.read(destination), expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_copy_region_between_layers(context: Context, dtype: type[np.floating]) -> None:
    source, array = uploaded(context, 7, 5, 3, dtype)
    destination, expected = uploaded(context, 5, 9, 2, dtype)
    context.copy(destination, source, (1, 3, 0), (2, 1, 1), (4, 3, 2))
    expected[0:2, 3:6, 1:5] = array[1:3, 1:4, 2:6]
    np.testing.assert_array_equal(context.read(destination), expected)


def test_copy_outside_is_refused(context: Context) -> None:
    source, _ = uploaded(context, 3, 5, 0, np.float32)
    destination, _ = uploaded(context, 3, 5, 0, np.float32)
    with pytest.raises(DeviceError, match="3x5 texels, float32"):
        context.copy(destination, source, (1, 1, 0), (0, 0, 0), (3, 5, 1))


def test_image_past_the_limit_names_tensor_shape_and_limit(context: Context) -> None:
    width = context.info.max_image_width + 1
    with pytest.raises(ResourceError) as caught:
        context.image(width, 2, 0, np.float16, "mask")
    assert caught.value.tensor == "mask"
    assert caught.value.shape == (2, width, 4)
    for part in ("mask", f"{width}x2", "float16", f"{width - 1}x{context.info.max_image_height}"):
        assert part in str(caught.value)


@pytest.mark.parametrize(("width", "height", "layers"), [(0, 1, 0), (1, 0, 0), (1, 2**20, 0), (1, 1, 2**20)])
def test_impossible_sizes_are_refused(context: Context, width: int, height: int, layers: int) -> None:
    with pytest.raises(ResourceError, match="not possible"):
        context.image(width, height, layers, np.float32)


def test_dtype_without_images_is_refused(context: Context) -> None:
    with pytest.raises(ResourceError, match=r"no RGBA images of int32.*float32"):
        context.image(1, 1, 0, np.int32)
    without_half = copy.copy(context)
    without_half.info = dataclasses.replace(context.info, half_images=False)
    with pytest.raises(ResourceError, match="no RGBA images of float16"):
        without_half.image(1, 1, 0, np.float16)


def test_more_than_all_memory_is_a_resource_error(context: Context) -> None:
    info = context.info
    with pytest.raises(ResourceError) as caught:
        largest = (info.max_image_width, info.max_image_height, info.max_image_layers)
        context.fill(context.image(*largest, np.float32, "vast"), 0, "vast")
        context.finish()
    assert "vast" in str(caught.value)
    assert str(info.global_memory_bytes) in caught.value.limit


# Buffers


@pytest.mark.parametrize("dtype", [*DTYPES, np.int32])
def test_buffer_round_trip(context: Context, dtype: type[np.generic]) -> None:
    array = np.arange(15).reshape(3, 5).astype(dtype)
    buffer = context.buffer(array.T)
    np.testing.assert_array_equal(context.read(buffer, (5, 3), dtype), array.T)


def test_buffer_sizes_are_checked(context: Context) -> None:
    buffer = context.buffer(16)
    with pytest.raises(ValueError, match="20"):
        context.read(buffer, (5,), np.float32)
    for size in (0, context.info.max_allocation_bytes + 1):
        with pytest.raises(ResourceError, match="'weights'"):
            context.buffer(size, "weights")
