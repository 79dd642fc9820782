"""Draws answers on their picture."""

from __future__ import annotations

import colorsys

import numpy
from PIL import Image, ImageDraw, ImageFont

from imgconv.arrays import Array
from imgconv.pictures.host import to_picture
from imgconv.preprocessing.preparation import ChannelOrder
from imgconv.tasks.values import Answer, Classes, Depth, Detections, Picture, Pose, Segmentation, Texts

Color = tuple[int, int, int]


def color_of(index: int) -> Color:
    """A color for a class; neighbouring numbers differ much."""
    red, green, blue = colorsys.hsv_to_rgb(index * 0.381966 % 1, 0.85, 1.0)
    return round(red * 255), round(green * 255), round(blue * 255)


def draw(picture: Image.Image, answer: Answer, order: ChannelOrder = "rgb") -> Image.Image:
    """A new picture: the answer drawn on the picture; an image or a depth map in place of it.

    order: the order of an image's channels. Example: draw(picture, detections).save("boxes.png").
    """
    if isinstance(answer, Picture):
        return to_picture(answer.channels_first, "bgr" if order == "bgr" else "rgb")
    if isinstance(answer, Depth):
        return _depth(answer.values)
    drawn = picture.convert("RGB")
    size = max(13, min(picture.size) // 28)
    pen = ImageDraw.Draw(drawn)
    font = ImageFont.load_default(size)
    if isinstance(answer, Segmentation):
        return _segmentation(drawn, answer)
    if isinstance(answer, Classes):
        for row, label in enumerate(answer.top):
            text = f"{label.score:.2f} {label.name or label.index}"
            _text(pen, (size / 2, size / 2 + row * size * 1.3), text, (255, 255, 255), font)
    elif isinstance(answer, Pose):
        _points(pen, [(x, y) for x, y, _ in answer.points], size)
    elif isinstance(answer, Texts):
        for line in answer.found:
            if line.corners:
                pen.polygon(line.corners, outline=color_of(0), width=max(2, size // 8))
            if line.text:
                left, top = line.corners[0] if line.corners else (0.0, 0.0)
                _text(pen, (left, max(0.0, top - size * 1.3)), line.text, (255, 255, 255), font)
    else:
        return _detections(drawn, answer, size, font)
    return drawn


def _detections(
    drawn: Image.Image, answer: Detections, size: int, font: ImageFont.FreeTypeFont | ImageFont.ImageFont
) -> Image.Image:
    for each in answer.found:
        if each.mask is not None:
            drawn = _tint(drawn, each.mask, color_of(each.label.index))
    pen = ImageDraw.Draw(drawn)
    for each in reversed(answer.found):
        color, (left, top, right, bottom) = color_of(each.label.index), each.box
        pen.rectangle((left, top, right, bottom), outline=color, width=max(2, size // 8))
        _points(pen, [(x, y) for x, y, _ in each.points], size // 2)
    for each in reversed(answer.found):
        color, (left, top, _, bottom) = color_of(each.label.index), each.box
        text = f"{each.label.name} {each.label.score:.2f}".strip()
        above = top - size * 1.3
        pale = (color[0] // 2 + 127, color[1] // 2 + 127, color[2] // 2 + 127)
        _text(pen, (left, above if above >= 0 else top), text, pale, font)
    return drawn


def _text(
    pen: ImageDraw.ImageDraw, place: tuple[float, float], text: str, color: Color,
    font: ImageFont.FreeTypeFont | ImageFont.ImageFont,
) -> None:
    """Text on a dark ground, legible on anything; it is moved to the left if it would end outside of the picture."""
    left, top, right, bottom = pen.textbbox(place, text, font=font)
    moved = max(0.0, min(place[0], place[0] + pen.im.size[0] - right - 2))
    left, right, place = left + moved - place[0], right + moved - place[0], (moved, place[1])
    pen.rectangle((left - 2, top - 2, right + 2, bottom + 2), fill=(0, 0, 0))
    pen.text(place, text, fill=color, font=font)


def _points(pen: ImageDraw.ImageDraw, points: list[tuple[float, float]], size: int) -> None:
    radius = max(3.0, size / 4)
    for number, (x, y) in enumerate(points):
        pen.ellipse((x - radius, y - radius, x + radius, y + radius), fill=color_of(number), outline=(0, 0, 0))


def _tint(drawn: Image.Image, where: Array, color: Color) -> Image.Image:
    """The picture, half of it the color where the mask is true."""
    pixels = numpy.asarray(drawn).astype(numpy.float32)
    pixels[where] = (pixels[where] + numpy.array(color, numpy.float32)) / 2
    return Image.fromarray(pixels.astype(numpy.uint8))


def _segmentation(drawn: Image.Image, answer: Segmentation) -> Image.Image:
    """Class 0, which is the background of most models, and what was not seen are left as they are."""
    kinds = numpy.arange(1, max(1, int(answer.mask.max())) + 1)
    palette = numpy.array([(0, 0, 0), *(color_of(int(kind)) for kind in kinds)], numpy.float32)
    pixels = numpy.asarray(drawn).astype(numpy.float32)
    marked = answer.mask > 0
    pixels[marked] = (pixels[marked] + palette[answer.mask[marked]]) / 2
    return Image.fromarray(pixels.astype(numpy.uint8))


def _depth(values: Array) -> Image.Image:
    """Colours depth from dark blue, the least value, over green to yellow, the largest; NaN is black."""
    low, high = (float(numpy.nanmin(values)), float(numpy.nanmax(values)))
    parts = numpy.nan_to_num((values - low) / (high - low or 1), nan=0.0)
    stops = numpy.array([(20, 10, 80), (30, 120, 150), (60, 190, 100), (250, 230, 40)], numpy.float32)
    places = numpy.linspace(0, 1, len(stops))
    planes = [numpy.interp(parts, places, stops[:, channel]) for channel in range(3)]
    pixels = numpy.stack(planes, axis=2).astype(numpy.uint8)
    pixels[numpy.isnan(values)] = 0
    return Image.fromarray(pixels)
