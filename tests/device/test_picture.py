"""Pictures prepared on the device and on the host, against float64 numpy that shares no code with imgconv, and Pillow.

Tolerances, in parts of 255 before normalisation. ROUNDED: Pillow rounds to 8 bits after each direction, each time by up
to 1/2, and the second direction averages what the first rounded. CUBIC: there it adds up to 1.25 of it, for some of the
weights are negative. FLOAT: sums in float. HALF: half holds 128 .. 255 to
1/16 and rounds after each direction and after the colors, whose largest factor is 2.1.
"""

from __future__ import annotations

from itertools import cycle
from typing import Any

import numpy
import pytest
from PIL import Image
from picture_reference import FLOAT, Size, draw, passing, reference

import imgconv
from imgconv.cl.device import DeviceInfo
from imgconv.kernels.layout import HostBuffer, Texture
from imgconv.preprocessing.preparation import resize_geometry
from imgconv.preprocess import FILTERS, FORMATS, RESIZES, Preparation, to_array
from imgconv.preprocessing.stage import YUV

ROUNDED, HALF = 1.0 + 1e-3, 4 / 16 * 2.1
CUBIC = ROUNDED + 0.125


def check(
    device: DeviceInfo, own: Size, size: Size, how: Preparation, tolerance: float = FLOAT, **settings: Any
) -> imgconv.Model:
    array = draw(how.format, own)
    channels = 1 if how.order == "y" else 3
    model = imgconv.load(passing(*size, channels), device, **settings).preprocess(
        (own[1], own[0]), how.format, how.resize, how.filter, how.order, how.scale, how.mean, how.std, how.pad,
        how.colors,
    )
    found = model(array)
    assert found.shape == (1, channels, size[1], size[0])
    gain = abs(how.scale) / min(map(abs, how.std))
    expected = reference(array, size, how)
    off = abs(found - expected).max()
    assert off <= tolerance * gain, f"{off / gain} of 255"
    if how.format == "rgb":
        off = abs(to_array(Image.fromarray(array), how, size) - expected).max()
        assert off <= FLOAT * gain, f"{off / gain} of 255 on the host"
    return model


# Odd sizes to resize to: at an even one a pixel can lie on the very edge of a box, where rounding decides.
SIZES = [((37, 23), (17, 21)), ((16, 12), (16, 12)), ((30, 17), (61, 41)), ((64, 48), (17, 9)), ((5, 31), (25, 7))]
EVEN = [((38, 26), (17, 21)), ((16, 12), (16, 12)), ((30, 18), (61, 41)), ((64, 48), (17, 9)), ((6, 32), (25, 7))]
ORDERS = cycle(["rgb", "bgr", "y"])  # not as many as filters, so that each filter has each order
NUMBERS = cycle([
    {}, {"mean": (104.0, 117.0, 123.0)}, {"scale": 1 / 255, "mean": (0.5,), "std": (0.25,)},
    {"std": (58.0, 57.0, 59.0), "pad": 7},
])
COLORS = cycle(["bt601", "bt709", "bt601-full", "bt709-full", "bt601"])


def drawn_cases() -> list[Any]:
    """RGB with every pair of a resize and a filter, each other format with every resize and every filter."""
    cases = []
    pairs = list(enumerate((resize, filter) for resize in RESIZES for filter in FILTERS))
    for offset, format in enumerate(FORMATS):
        # Five pairs further is the next way to resize and the next filter.
        some = pairs if format == "rgb" else [pairs[(4 * offset + 5 * n) % len(pairs)] for n in range(4)]
        for number, (resize, filter) in some:
            # With an area of the third size, and some of the last, a pixel can lie on the very edge of a box.
            chosen = number % 5 if format == "rgb" else {"antialias": 4, "area": 3, "bicubic": 0, "bilinear": 2}[filter]
            own, size = (EVEN if format in YUV else SIZES)[chosen]
            order, numbers = next(ORDERS), dict(next(NUMBERS))
            if order == "y":
                numbers = {key: (value[:1] if isinstance(value, tuple) else value) for key, value in numbers.items()}
            colors = next(COLORS) if format in YUV else "bt601"
            how = Preparation(resize, filter, order, **numbers, format=format, colors=colors)
            cases.append(pytest.param(own, size, how, id=f"{format}-{resize}-{filter}-{order}-{chosen}"))
    return cases


@pytest.mark.parametrize(("own", "size", "how"), drawn_cases())
def test_every_format_and_way_to_resize(device: DeviceInfo, own: Size, size: Size, how: Preparation) -> None:
    check(device, own, size, how)


@pytest.mark.parametrize("size", [(16, 12), (17, 9)])
def test_ten_bits_in_limited_range_pass_255(device: DeviceInfo, size: Size) -> None:
    """Codes up to 1023 are up to 255.75; a cubic filter cuts off only what is beyond, at any size."""
    check(device, (16, 12), size, Preparation(filter="bicubic", format="p010"))


@pytest.mark.parametrize("own", [(512, 768), (500, 387), (387, 500)])
def test_a_crop_of_a_part(device: DeviceInfo, own: Size) -> None:
    """Resized to 256 and cropped to 224, which is 0.875 of each side."""
    how = Preparation("crop", order="bgr", scale=1 / 255, mean=(0.5,), std=(0.25,), crop=0.875)
    array = draw("rgb", own)
    found = imgconv.load(passing(224, 224), device).preprocess(
        (own[1], own[0]), resize="crop", order="bgr", scale=1 / 255, mean=0.5, std=0.25, crop=0.875
    )(array)
    gain = 1 / 255 / 0.25
    expected = reference(array, (224, 224), how)
    assert abs(found - expected).max() <= FLOAT * gain
    assert abs(to_array(Image.fromarray(array), how, (224, 224)) - expected).max() <= FLOAT * gain


def test_a_crop_of_a_part_is_that_of_pillow() -> None:
    """512x768 becomes 256x384, whose middle begins at whole pixels: 16 and 80."""
    picture = Image.fromarray(draw("rgb", (512, 768)))
    expected = numpy.asarray(picture.resize((256, 384), Image.Resampling.BILINEAR).crop((16, 80, 240, 304)))
    found = to_array(picture, Preparation("crop", crop=0.875), (224, 224))[0].transpose(1, 2, 0)
    assert abs(found - expected).max() <= ROUNDED


@pytest.mark.parametrize("filter", FILTERS)
@pytest.mark.parametrize("resize", RESIZES)
def test_is_that_of_pillow(device: DeviceInfo, resize: str, filter: str) -> None:
    """Values from 64 to 191, for Pillow clips what a cubic overshoots after each direction."""
    for own, size in ((37, 23), (16, 20)), ((30, 17), (61, 40)):
        array = draw("rgb", own, 64, 191)
        model = imgconv.load(passing(*size), device).preprocess((own[1], own[0]), resize=resize, filter=filter)
        (width, height), box = resize_geometry(own, size, resize)
        expected = numpy.full((size[1], size[0], 3), 114.0)
        expected[:height, :width] = by_pillow(Image.fromarray(array), (width, height), box, filter)
        off = abs(model(array)[0] - expected.transpose(2, 0, 1)).max()
        assert off <= (CUBIC if filter == "bicubic" else ROUNDED)


def by_pillow(picture: Image.Image, size: Size, box: tuple[float, float, float, float], filter: str) -> Any:
    """The part of the picture in `box` at that size, (height, width, 3)."""
    ways = {"antialias": "BILINEAR", "area": "BOX", "bicubic": "BICUBIC"}
    if filter in ways:
        return numpy.asarray(picture.resize(size, Image.Resampling[ways[filter]], box))
    return numpy.asarray(picture.transform(size, Image.Transform.EXTENT, box, Image.Resampling.BILINEAR))


@pytest.mark.parametrize(("resize", "filter"), list(zip([*RESIZES, "crop"], FILTERS, strict=True)))
def test_host_and_device_agree(device: DeviceInfo, resize: str, filter: str) -> None:
    """At even sizes too, where a pixel lies on the very edge of a box: one place says what it weighs."""
    for order, own, size in ("bgr", (500, 387), (224, 224)), ("y", (64, 48), (16, 24)):
        how, array = Preparation(resize, filter, order), draw("rgb", own)
        model = imgconv.load(passing(*size, how.channels), device)
        found = model.preprocess((own[1], own[0]), resize=resize, filter=filter, order=order)(array)
        numpy.testing.assert_allclose(found, to_array(Image.fromarray(array), how, size), rtol=0, atol=FLOAT)


@pytest.mark.parametrize("size", [(30, 61), (61, 17), (61, 40)])
def test_a_cubic_overshoots_in_no_direction(device: DeviceInfo, size: Size) -> None:
    """It would reach from -34 to 289 beside an edge between black and white."""
    array = numpy.where(numpy.indices((17, 30)).sum(0)[..., None] % 8 < 4, 0, [255] * 3).astype(numpy.uint8)
    found = imgconv.load(passing(*size), device).preprocess((17, 30), filter="bicubic")(array)
    numpy.testing.assert_allclose(found, reference(array, size, Preparation(filter="bicubic")), atol=FLOAT)
    assert found.min() == 0 and found.max() == 255


def test_nothing_is_lost_where_nothing_is_resized(device: DeviceInfo) -> None:
    """All 256 bytes in one launch: with rows of whole texels, with a whole picture of them, and from a buffer."""
    for width, height in ((16, 16), (18, 16), (17, 15)):
        array = numpy.arange(height * width * 3).reshape(height, width, 3).astype(numpy.uint8)
        model = imgconv.load(passing(width, height), device).preprocess((height, width), order="bgr")
        numpy.testing.assert_array_equal(model(array)[0], array.transpose(2, 0, 1)[::-1])
        assert len(model.plan.launches) == 1


@pytest.mark.parametrize("format", ["rgb", "nv12"])
def test_pictures_past_the_image_limit(device: DeviceInfo, format: str) -> None:
    """A row of 300 pixels is past 64 texels, as are 80 rows: bytes then come from a buffer, and the rest is tiled."""
    how = Preparation("letterbox", order="bgr", format=format)
    model = check(device, (300, 200), (80, 72), how, max_image=64)
    assert isinstance(model.plan.input_buffers["picture"], HostBuffer)
    assert any(texture.tiling.tiles > 1 for texture in model.plan.textures)


@pytest.mark.parametrize("format", ["rgb", "nv12"])
def test_half(device: DeviceInfo, format: str) -> None:
    check(device, (64, 48), (40, 40), Preparation("letterbox", order="bgr", format=format), HALF, float16=1)


def test_bytes_are_uploaded_as_they_are(device: DeviceInfo) -> None:
    """No launch packs the picture, and the host converts nothing: the image is as large as the array."""
    for format, size in (("rgb", (20, 10)), ("rgba", (21, 10)), ("grey", (20, 10)), ("nv12", (20, 10))):
        model = imgconv.load(passing(8, 8), device).preprocess((10, size[0]), format)
        storage = model.plan.input_buffers["picture"]
        assert isinstance(storage, Texture) and storage.dtype == "uint8"
        assert storage.bytes == draw(format, size).nbytes and len(model.plan.launches) == (2 if format != "nv12" else 4)
    odd = imgconv.load(passing(8, 8), device).preprocess((10, 21)).plan.input_buffers["picture"]
    assert isinstance(odd, HostBuffer) and odd.bytes == 630
