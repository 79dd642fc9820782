"""Pictures to arrays and back, and what an output shows."""

from __future__ import annotations

import struct
import subprocess
import sys
import warnings
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image

from imgconv.errors import InputError
from imgconv.preprocessing.preparation import as_text, picture_inputs, resize_geometry
from imgconv.preprocess import FILTERS, RESIZES, Preparation, guess_range, letterbox_scale, read_picture, resized
from imgconv.preprocess import save_picture, to_array, to_picture, with_color


def picture(width: int, height: int) -> Image.Image:
    """Noise, the same at each call."""
    pixels = numpy.random.default_rng(5).integers(0, 256, (height, width, 3), numpy.uint8)
    return Image.fromarray(pixels)


def pixels_of(image: Image.Image) -> Any:
    return numpy.asarray(image).astype(float)


# Pixels to numbers


def test_array_is_the_formula() -> None:
    image = picture(5, 3)
    array = to_array(image, Preparation(scale=0.5, mean=(1.0, 2.0, 3.0), std=(4.0, 5.0, 6.0)))
    assert array.shape == (1, 3, 3, 5) and array.dtype == numpy.float32 and array.flags.c_contiguous
    for channel, (mean, std) in enumerate(((1, 4), (2, 5), (3, 6))):
        numpy.testing.assert_allclose(array[0, channel], (pixels_of(image)[..., channel] * 0.5 - mean) / std, 1e-6)


def test_mean_and_std_are_in_the_order_of_the_channels() -> None:
    image = Image.new("RGB", (2, 2), (10, 20, 30))
    array = to_array(image, Preparation(order="bgr", mean=(3.0, 2.0, 1.0)))
    assert array[0, :, 0, 0].tolist() == [27, 18, 9]


def test_luma_is_that_of_jpeg() -> None:
    image = picture(4, 4)
    array = to_array(image, Preparation(order="y"))
    expected = pixels_of(image) @ [0.299, 0.587, 0.114]
    assert array.shape == (1, 1, 4, 4)
    numpy.testing.assert_allclose(array[0, 0], expected, atol=1e-4)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"mean": (1.0, 2.0)}, "mean"), ({"order": "y", "std": (1.0, 2.0, 3.0)}, "std"), ({"std": (0.0,)}, "std"),
        ({"order": "grb"}, "grb"), ({"resize": "shrink"}, "shrink"), ({"filter": "cubic"}, "cubic"),
        ({"pad": 256}, "pad"), ({"crop": 0.5}, "'stretch' crops nothing"),
        ({"resize": "crop", "crop": 0.0}, "crop is 0"), ({"resize": "crop", "crop": 1.5}, "at most 1"),
        ({"scale": "1/255"}, "scale is '1/255'; it is a number"), ({"pad": None}, "pad is None"),
        ({"mean": 0.5}, r"mean is 0.5; it is a tuple"), ({"std": "58"}, "std is '58'"), ({"std": ("58",)}, "tuple of"),
    ],
)
def test_settings_that_fit_no_picture(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=named):
        Preparation(**settings)


@pytest.mark.parametrize("given", ["wolves.jpg", numpy.zeros((4, 4, 3), numpy.uint8)])
def test_what_is_not_a_picture(given: Any) -> None:
    with pytest.raises(InputError, match=f"not {type(given).__name__}: read a file with read_picture"):
        to_array(given, Preparation())


# Resizing


@pytest.mark.parametrize("filter_", FILTERS)
@pytest.mark.parametrize("resize", RESIZES)
@pytest.mark.parametrize("size", [(7, 7), (20, 10), (1, 1), (31, 64)])
def test_size_is_exact(resize: str, filter_: str, size: tuple[int, int]) -> None:
    assert resized(picture(30, 17), size, Preparation(resize, filter_)).size == size


@pytest.mark.parametrize("filter_", FILTERS)
@pytest.mark.parametrize("resize", RESIZES)
def test_same_size_changes_nothing(resize: str, filter_: str) -> None:
    image = picture(13, 9)
    numpy.testing.assert_array_equal(resized(image, image.size, Preparation(resize, filter_)), image)


def test_letterbox_is_at_the_top_left_and_padded() -> None:
    boxed = pixels_of(resized(Image.new("RGB", (40, 20), (200, 200, 200)), (16, 16), Preparation("letterbox", pad=7)))
    assert (boxed[:8] == 200).all() and (boxed[8:] == 7).all()
    assert letterbox_scale((40, 20), (16, 16)) == 0.4


def test_crop_keeps_the_middle() -> None:
    image = picture(30, 10)
    cropped = resized(image, (10, 10), Preparation("crop"))
    numpy.testing.assert_array_equal(cropped, image.crop((10, 0, 20, 10)))


SIDES = st.integers(1, 1000)
SIZES = st.tuples(SIDES, SIDES)


@given(SIZES, SIZES)
@example((500, 387), (224, 224))
@example((387, 500), (224, 224))
def test_a_crop_lies_inside_of_the_picture(own: tuple[int, int], size: tuple[int, int]) -> None:
    """It is as large as can be: it has a whole side of the picture, the shape of `size`, and the picture's middle."""
    shown, (left, top, right, bottom) = resize_geometry(own, size, "crop")
    assert shown == size and 0 <= left < right <= own[0] and 0 <= top < bottom <= own[1]
    assert (left, right) == (0, own[0]) or (top, bottom) == (0, own[1])
    assert (right - left) * size[1] == pytest.approx((bottom - top) * size[0], rel=1e-9)
    assert (left + right, top + bottom) == pytest.approx(own, rel=1e-12)


@given(SIZES, SIZES)
@example((1, 22), (320, 240))
def test_a_letterbox_fills_one_side(own: tuple[int, int], size: tuple[int, int]) -> None:
    """The other side is the largest whole number of pixels that keeps the aspect, and 1 at least."""
    (width, height), box = resize_geometry(own, size, "letterbox")
    assert box == (0, 0, *own)
    wide, high = own[0] * size[1], own[1] * size[0]
    assert width == (size[0] if wide >= high else max(1, wide // own[1]))
    assert height == (size[1] if high >= wide else max(1, high // own[0]))


def test_every_picture_that_is_387_high_can_be_cropped() -> None:
    for width in range(1, 1001):
        box = resize_geometry((width, 387), (224, 224), "crop")[1]
        assert 0 <= box[0] < box[2] <= width and 0 <= box[1] < box[3] <= 387, width
    assert resized(picture(500, 387), (224, 224), Preparation("crop")).size == (224, 224)


def test_bilinear_reads_four_pixels_as_opencv_does() -> None:
    """A pixel of the small picture lies at ((i + 1/2) * 3 - 1/2) in the large one: on the middle pixel of three."""
    image = picture(9, 9)
    small = resized(image, (3, 3), Preparation(filter="bilinear"))
    numpy.testing.assert_array_equal(small, numpy.asarray(image)[1::3, 1::3])


def test_antialias_averages() -> None:
    checks = Image.fromarray(numpy.indices((64, 64)).sum(0).astype(numpy.uint8) % 2 * 255).convert("RGB")
    small = pixels_of(resized(checks, (8, 8), Preparation()))
    assert abs(small - 127.5).max() < 8


# Files


def test_round_trip(tmp_path: Path) -> None:
    image = picture(8, 6)
    save_picture(image, tmp_path / "a.png")
    numpy.testing.assert_array_equal(read_picture(tmp_path / "a.png"), image)
    assert [path.name for path in tmp_path.iterdir()] == ["a.png"]


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "I;16"])
def test_every_mode_becomes_rgb(tmp_path: Path, mode: str) -> None:
    path = tmp_path / ("a.tif" if mode in ("CMYK", "I;16") else "a.png")
    grey = numpy.full((4, 4), 257 * 100, numpy.uint16)
    image = Image.fromarray(grey) if mode == "I;16" else Image.new("RGB", (4, 4), (100, 100, 100)).convert(mode)
    image.save(path)
    found = read_picture(path)
    assert found.mode == "RGB" and found.size == (4, 4)
    if mode != "1":
        numpy.testing.assert_allclose(pixels_of(found), 100, atol=2)


def test_exif_orientation_is_followed(tmp_path: Path) -> None:
    image, exif = Image.new("RGB", (6, 4)), Image.Exif()
    exif[0x0112] = 6
    image.save(tmp_path / "a.jpg", exif=exif)
    assert read_picture(tmp_path / "a.jpg").size == (4, 6)


def test_unreadable_pictures_are_named(tmp_path: Path) -> None:
    save_picture(picture(64, 64), tmp_path / "cut.png")
    (tmp_path / "cut.png").write_bytes((tmp_path / "cut.png").read_bytes()[:2000])
    (tmp_path / "text.jpg").write_text("not a picture")
    Image.fromarray(numpy.zeros((2, 2), numpy.float32)).save(tmp_path / "float.tif")
    for name in ("cut.png", "text.jpg", "float.tif", "none.png", "."):
        with pytest.raises(InputError) as caught:
            read_picture(tmp_path / name)
        assert str(tmp_path / name) in str(caught.value)


def test_unwritable_pictures_are_named(tmp_path: Path) -> None:
    for path in (tmp_path / "a.xyz", tmp_path / "none" / "a.png"):
        with pytest.raises(InputError) as caught:
            save_picture(picture(2, 2), path)
        assert str(path) in str(caught.value)


# Numbers to pixels


def test_picture_of_array() -> None:
    image = picture(5, 3)
    for order in ("rgb", "bgr"):
        array = to_array(image, Preparation(order=order, scale=1 / 255))[0]
        numpy.testing.assert_array_equal(to_picture(array, order), image)
        numpy.testing.assert_array_equal(to_picture(array * 255, order), image)


def test_picture_is_clipped_and_nan_is_black() -> None:
    array = numpy.array([[[-3.0, 0.5, 2.0, numpy.nan]]])
    assert numpy.asarray(to_picture(array)).tolist() == [[0, 128, 255, 0]]
    assert numpy.asarray(to_picture(array, value_range=(-3, 2))).tolist() == [[0, 178, 255, 0]]


def test_range_is_guessed() -> None:
    assert guess_range(numpy.array([0.0, 1.7])) == (0, 1)
    assert guess_range(numpy.array([-30.0, 250.0])) == (0, 255)
    assert guess_range(numpy.array([0, 1], numpy.uint8)) == (0, 255)
    assert guess_range(numpy.array([numpy.nan])) == (0, 1)


def test_color_is_added_to_luma() -> None:
    image = picture(16, 16).resize((32, 32), Image.Resampling.BICUBIC)
    luma = to_picture(to_array(image, Preparation(order="y"))[0])
    found = with_color(luma, image)
    assert abs(pixels_of(found) - pixels_of(image)).max() <= 4


def test_a_mask_takes_no_picture() -> None:
    declared = {"x": ("float32", [1, 3, 8, 8]), "mask": ("bool", [1, 1, 8, 8]), "bytes": ("uint8", [1, 8, 8, 3])}
    assert [target.name for target in picture_inputs(declared, {})] == ["x", "bytes"]


def test_a_scalar_takes_no_picture() -> None:
    """A shape that the file does not give may be a picture's."""
    declared = {"x": ("float32", [1, 3, 8, 8]), "threshold": ("float32", []), "unknown": ("float32", None)}
    assert [target.name for target in picture_inputs(declared, {})] == ["x", "unknown"]


def test_odd_exif_data_is_no_warning(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    """A directory of EXIF data that ends in the middle of an entry."""
    path = tmp_path / "a.jpg"
    exif = b"Exif\0\0II*\0\x08\0\0\0\xff\xff\x12\x01\x03\0\x01\0\0\0\x06"
    Image.new("RGB", (8, 4), "red").save(path, exif=exif)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        with Image.open(path) as image:
            image.getexif()
    assert heard, "Pillow warns of it"
    assert read_picture(path).size == (8, 4) and not recwarn.list


def tiff_with(tag: int, entry: bytes) -> bytes:
    """A TIFF file of 8x4 pixels whose directory has another entry (type, count, value) for a tag."""
    file = BytesIO()
    Image.new("RGB", (8, 4), (77, 77, 77)).save(file, "TIFF", tiffinfo={274: 1})
    content, name = bytearray(file.getvalue()), struct.pack("<H", tag)
    at = content.index(name, struct.unpack("<I", content[4:8])[0])
    content[at + 2 : at + 12] = entry
    return bytes(content)


def test_an_orientation_of_many_numbers_is_no_warning(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    """Pillow turns a TIFF file when it loads the pixels, and warns then."""
    path = tmp_path / "a.tiff"
    path.write_bytes(tiff_with(274, struct.pack("<HII", 3, 2, 1)))
    assert numpy.asarray(read_picture(path)).tolist() == [[[77] * 3] * 8] * 4 and not recwarn.list


def test_what_pillow_logs_is_not_shown(tmp_path: Path) -> None:
    """In a process that has not set up logging, as pytest has; Pillow logs an error of too many samples."""
    path = tmp_path / "a.tiff"
    path.write_bytes(tiff_with(277, struct.pack("<HII", 3, 1, 2048)))
    code = "import sys; from imgconv.pictures.host import read_picture; read_picture(sys.argv[1])"
    command = [sys.executable, "-c", code, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "InputError" in done.stderr and "More samples" not in done.stderr


@pytest.mark.parametrize("kind", ["png", "tiff"])
def test_large_pictures(
    tmp_path: Path, recwarn: pytest.WarningsRecorder, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Pillow warns above a number of pixels, of some formats again when they are loaded; it refuses twice as many."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    for side in (40, 50):
        Image.new("RGB", (side, side)).save(tmp_path / f"{side}.{kind}")
    assert read_picture(tmp_path / f"40.{kind}").size == (40, 40) and not recwarn.list
    with pytest.raises(InputError, match=r"cannot read picture .*50.*': Image size \(2500 pixels\) exceeds limit"):
        read_picture(tmp_path / f"50.{kind}")


def test_a_palette_with_transparency_is_no_warning(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    picture = Image.fromarray(numpy.arange(64, dtype=numpy.uint8).reshape(8, 8)).convert("P")
    picture.save(tmp_path / "a.png", transparency=bytes(range(256)))
    assert read_picture(tmp_path / "a.png").size == (8, 8) and not recwarn.list


@pytest.mark.parametrize(("how", "tiled", "text"), [
    (Preparation(), False, "rgb, stretched to 8x6, x = pixel, 0 to 255"),
    (Preparation(scale=1 / 255), True, "rgb, whole or in tiles of 8x6, x = pixel * 0.003922"),
    (
        Preparation("letterbox", order="bgr", mean=(104, 117, 123), std=(57.5,)), False,
        "bgr, letterboxed in 8x6, x = (pixel - (104, 117, 123)) / 57.5",
    ),
    (Preparation("crop", order="y", std=(2,)), False, "y, cropped to 8x6, x = pixel / 2"),
])
def test_a_preparation_as_text(how: Preparation, tiled: bool, text: str) -> None:
    assert as_text(how, (8, 6), tiled) == text
