"""Lines of text: rectangles against OpenCV's by PaddleOCR's code, regions against a flood, texts letter by letter."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from imgconv.commands.recognizer import cut_out_upright, input_size_for
from imgconv.errors import InputError
from imgconv.tasks import Description, PicturePlacement, Text, Texts, draw, find_task
from imgconv.tasks.text import connected_regions, convex_hull, smallest_rectangle

SIZE = (240, 160)
SAME = PicturePlacement(SIZE, SIZE, SIZE, (0, 0, *SIZE))
# (Centre, width, height, degrees) of the lines in the map below.
LINES = (
    (60, 30, 80, 14, 0), (150, 90, 90, 12, 25), (60, 120, 50, 10, -15), (200, 30, 12, 40, 0), (20, 70, 3, 3, 0),
    (120, 140, 40, 6, 0),
)
# What DBPostProcess of rapidocr-onnxruntime 1.4 gives for it: thresh 0.3, box_thresh 0.6, unclip_ratio 1.5.
REFERENCE = (
    (0.8238, [[187, 3], [213, 3], [213, 57], [187, 57]]), (0.8561, [[11, 14], [109, 14], [109, 46], [11, 46]]),
    (0.7775, [[106, 52], [206, 99], [193, 127], [93, 80]]), (0.7250, [[24, 116], [88, 98], [95, 123], [31, 141]]),
    (0.7237, [[96, 133], [144, 133], [144, 147], [96, 147]]),
)


def probabilities() -> Any:
    """A map of lines with soft edges, float32 (1, 1, 160, 240)."""
    y, x = numpy.mgrid[: SIZE[1], : SIZE[0]].astype(float)
    total = numpy.zeros(SIZE[::-1])
    for left, top, width, height, degrees in LINES:
        turn = numpy.deg2rad(degrees)
        along = (x - left) * numpy.cos(turn) + (y - top) * numpy.sin(turn)
        across = (y - top) * numpy.cos(turn) - (x - left) * numpy.sin(turn)
        inside = numpy.minimum(width / 2 - abs(along), height / 2 - abs(across))
        total = numpy.maximum(total, 1 / (1 + numpy.exp(-inside)))
    return total.astype(numpy.float32)[None, None]


def test_lines_are_those_of_paddleocr() -> None:
    """It rounds corners to whole pixels twice, and draws the rectangle of the score with whole corners."""
    array = probabilities()
    task = find_task({"map": ("float32", array.shape)}, SIZE, Description(task="text"))
    assert task and task.head == "dbnet"
    answer = task.decode({"map": array}, SAME)["map"]
    assert isinstance(answer, Texts) and len(answer.found) == len(REFERENCE)
    for line, (score, corners) in zip(answer.found, REFERENCE, strict=True):
        assert line.score == pytest.approx(score, abs=0.012)
        assert abs(numpy.array(line.corners) - corners).max() < 1.2


def test_lines_lie_on_the_picture() -> None:
    """A map of half the model's size, of a picture that is three times as large."""
    task = find_task({}, SIZE, Description(head="dbnet"))
    placement = PicturePlacement((1440, 960), (480, 320), (480, 320), (0, 0, 1440, 960))
    own = task.decode({"map": probabilities()}, SAME)["map"]
    large = task.decode({"map": probabilities()}, placement)["map"]
    for small, each in zip(own.found, large.found, strict=True):
        assert numpy.array(each.corners) == pytest.approx(numpy.array(small.corners) * 6)
    assert task.decode({"map": numpy.zeros((1, 1, 160, 240), numpy.float32)}, SAME)["map"] == Texts(())


def flooded(mask: Any) -> set[frozenset[tuple[int, int]]]:
    """The regions of a mask as sets of (x, y), pixel by pixel."""
    left = {(int(x), int(y)) for y, x in zip(*numpy.nonzero(mask), strict=True)}
    found = set()
    while left:
        waiting = [left.pop()]
        region = set(waiting)
        while waiting:
            x, y = waiting.pop()
            near = {(x + i, y + j) for i in (-1, 0, 1) for j in (-1, 0, 1)} & left
            left -= near
            region |= near
            waiting += near
        found.add(frozenset(region))
    return found


@given(st.lists(st.lists(st.booleans(), min_size=7, max_size=7), min_size=1, max_size=7))
def test_regions(rows: list[list[bool]]) -> None:
    """Each has the first and the last pixel of its runs, and nothing of another region."""
    mask = numpy.array(rows)
    found = [frozenset(map(tuple, region.tolist())) for region in connected_regions(mask)]
    wanted = flooded(mask)
    assert len(found) == len(wanted)
    for whole in wanted:
        own, = [ends for ends in found if ends & whole]
        assert own <= whole
        for x, y in whole:
            is_end = (x - 1, y) not in whole or (x + 1, y) not in whole
            assert ((x, y) in own) == is_end


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=1, max_size=12))
def test_the_smallest_rectangle(places: list[tuple[int, int]]) -> None:
    """It holds every point, and none of 180 turned rectangles is smaller."""
    points = numpy.array(places)
    centre, axes, sides = smallest_rectangle(points)
    assert axes @ axes.T == pytest.approx(numpy.eye(2), abs=1e-9)
    assert (abs((points - centre) @ axes.T) <= sides / 2 + 1e-6).all()
    for turn in numpy.arange(180) * numpy.pi / 180:
        cosine, sine = numpy.cos(turn), numpy.sin(turn)
        spread = numpy.ptp(points @ numpy.array([[cosine, -sine], [sine, cosine]]), 0)
        assert sides.prod() <= spread.prod() + 1e-6
    assert {tuple(each) for each in convex_hull(points).tolist()} <= set(places)


def read(classes: list[int], labels: tuple[str, ...], count: int) -> Text:
    """The text of steps with these classes, each with a score of 0.5 and a tenth of its number."""
    rows = numpy.zeros((1, len(classes), count), numpy.float32)
    for step, number in enumerate(classes):
        rows[0, step, number] = 0.5 + step / 10
    task = find_task({"y": ("float32", rows.shape)}, (320, 48), Description(task="text", labels=labels))
    assert task and task.head == "ctc"
    answer = task.decode({"y": rows}, SAME)["y"]
    assert isinstance(answer, Texts)
    line, = answer.found
    return line


def test_ctc() -> None:
    """Equal classes in a row count once, unless a blank stands between; the score is that of the first of each."""
    line = read([1, 1, 0, 1, 2], ("a", "b", "c"), 4)
    assert line.text == "aab" and line.score == pytest.approx((0.5 + 0.8 + 0.9) / 3)
    assert read([1, 3, 2], ("a", "b"), 4).text == "a b"
    assert read([0, 0], ("a", "b", "c"), 4) == Text("", 0.0)
    with pytest.raises(InputError, match="4 classes, a blank and 3 characters, but there are 5 labels.*--labels"):
        read([0], tuple("abcde"), 4)


def test_a_line_is_put_upright() -> None:
    """A colored line that is turned by a quarter, and one by 30 degrees: its top is its left end."""
    picture = Image.new("RGB", (200, 200), "white")
    picture.paste("red", (90, 20, 110, 100))
    picture.paste("blue", (90, 100, 110, 180))
    tall = cut_out_upright(picture, Text("", 1.0, ((90, 20), (110, 20), (110, 180), (90, 180))))
    assert tall.size == (160, 20) and tall.getpixel((20, 10)) == (255, 0, 0) and tall.getpixel((140, 10)) == (0, 0, 255)
    turned = tall.convert("RGB")
    whole = Image.new("RGB", (200, 200), "white")
    whole.paste(turned, (20, 90))
    corners = numpy.array([[20, 90], [180, 90], [180, 110], [20, 110]]) - 100
    turn = numpy.deg2rad(-30)
    places = corners @ numpy.array([[numpy.cos(turn), numpy.sin(turn)], [-numpy.sin(turn), numpy.cos(turn)]]) + 100
    part = cut_out_upright(
        whole.rotate(30, Image.Resampling.BICUBIC), Text("", 1.0, tuple(map(tuple, places.tolist())))
    )
    assert part.size == (160, 20)
    assert part.getpixel((20, 10))[0] > 200 > 50 > part.getpixel((20, 10))[2]


def test_few_widths_are_compiled() -> None:
    assert {input_size_for((wide, 20)) for wide in range(1, 900, 7)} == {(320, 48), (640, 48), (1280, 48)}


def test_lines_are_drawn() -> None:
    drawn = draw(Image.new("RGB", SIZE, "white"), Texts((Text("a", 0.9, ((20, 60), (90, 60), (90, 90), (20, 90))),)))
    assert drawn.getpixel((50, 60)) != (255, 255, 255) and drawn.getpixel((50, 75)) == (255, 255, 255)
