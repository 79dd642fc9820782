"""Draw ``examples/demo.png``, the picture that the super-resolution demo is judged on.

The scene is a postcard from Texel Bay: a sunset, a harbour town, a lighthouse, a sailing boat and a robot that fishes.
The network was not trained on it: it shares no code and no scene with the training pictures of
``models/superres_pictures.py``. Only the font of the lettering, Pillow's own, is the same.

Usage::

    python -m examples.draw_demo_picture [--output examples/demo.png]

Needs numpy and Pillow (built with FreeType, as its wheels are).
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from examples.pen import CREAM, INK, OVERSAMPLING, Color, Pen, mix
from examples.postcard import HEIGHT, WIDTH, draw_boat, draw_gulls, draw_lighthouse, draw_pier, draw_robot, draw_town

HORIZON = 226.0


def gradient(stops: Sequence[tuple[float, Color]]) -> Image.Image:
    """A vertical gradient over the whole oversampled picture; each stop is (y in pixels, color)."""
    rows = np.arange(HEIGHT * OVERSAMPLING) / OVERSAMPLING
    places = [y for y, _ in stops]
    column = np.stack([np.interp(rows, places, [color[c] for _, color in stops]) for c in range(3)], axis=-1)
    wide = np.repeat(column[:, None, :], WIDTH * OVERSAMPLING, axis=1)
    return Image.fromarray(np.rint(wide).astype(np.uint8))


def draw_sky(pen: Pen, rng: np.random.Generator) -> None:
    """Stars, the setting sun and bands of cloud over a sky that is already there."""
    for _ in range(70):
        x, y = rng.uniform(0, WIDTH), 96 * rng.uniform(0, 1) ** 1.6
        pen.disc(x, y, rng.uniform(0.35, 0.9), (255, 246, 224), int(rng.uniform(110, 240) * (1 - y / 120)))
    for radius in range(110, 40, -2):
        pen.disc(206, HORIZON - 18, radius, (255, 208, 120), 5)
    pen.disc(206, HORIZON - 18, 40, (255, 226, 140))
    pen.disc(206, HORIZON - 18, 37, (255, 238, 176))
    clouds = ((120, 40, 190, 5), (128, 66, 246, 4), (150, 262, 404, 5), (157, 240, 372, 3), (188, 60, 190, 3))
    for y, x0, x1, thick in clouds:
        steps = np.linspace(0, 1, 60)
        puffs = [thick * math.sin(math.pi * t) * (1 + 0.5 * math.sin(19 * t + x0)) for t in steps]
        top = [(x0 + (x1 - x0) * t, y - puff) for t, puff in zip(steps, puffs, strict=True)]
        bottom = [(x0 + (x1 - x0) * t, y + 0.5 * thick * math.sin(math.pi * t)) for t in steps[::-1]]
        pen.polygon(top + bottom, (255, 190, 150), 120)


def draw_hills(pen: Pen) -> None:
    """Three ranges of hills, each nearer one darker."""
    xs = np.linspace(0, WIDTH, 257)
    for base, height, phase, color in (
        (196.0, 26.0, 0.4, (176, 106, 132)),
        (208.0, 20.0, 2.1, (128, 78, 120)),
        (218.0, 13.0, 4.4, (86, 60, 104)),
    ):
        ridge = base - height * (
            0.6 * np.sin(xs / 61 + phase) + 0.3 * np.sin(xs / 23 + 2 * phase) + 0.12 * np.abs(np.sin(xs / 6.5 + phase))
        )
        pen.polygon([(0, HORIZON), *zip(xs.tolist(), ridge.tolist(), strict=True), (WIDTH, HORIZON)], color)


def draw_water(pen: Pen, rng: np.random.Generator) -> None:
    """Ripples that grow towards the viewer, brighter under the sun."""
    for _ in range(1100):
        depth = rng.uniform(0, 1) ** 1.4
        y = HORIZON + 2 + depth * (HEIGHT - HORIZON)
        x = rng.uniform(-10, WIDTH)
        length = (3 + 20 * depth) * rng.uniform(0.5, 1.5)
        near_sun = math.exp(-(((x + length / 2 - 206) / (26 + 46 * depth)) ** 2))
        color = mix((92, 104, 160), (255, 220, 150), near_sun) if rng.uniform() < 0.66 else (24, 34, 84)
        bend = 0.3 + 0.9 * depth
        pen.polygon([(x, y), (x + length / 2, y - bend), (x + length, y), (x + length / 2, y + bend)], color, 150)


def draw_lettering(pen: Pen) -> None:
    """The postcard's words and its frame."""
    for dx, dy, color in ((1.4, 1.4, INK), (0.0, 0.0, CREAM)):
        pen.text(30 + dx, 34 + dy, "Greetings from", 17, color, "lm")
        pen.text(28 + dx, 60 + dy, "TEXEL BAY", 38, (255, 206, 120) if color == CREAM else INK, "lm")
    pen.text(484, 352, "Four channels to a texel, two pixels for every one.", 10, CREAM, "rm")
    pen.text(484, 363, "Drawn by a program. No pixels were harmed.", 7, (190, 196, 224), "rm")
    border = 10
    for x0, y0, x1, y1 in (
        (0, 0, WIDTH, border),
        (0, HEIGHT - border, WIDTH, HEIGHT),
        (0, 0, border, HEIGHT),
        (WIDTH - border, 0, WIDTH, HEIGHT),
    ):
        pen.box(x0, y0, x1, y1, CREAM)
    inner = [(13.0, 13.0), (WIDTH - 13.0, 13.0), (WIDTH - 13.0, HEIGHT - 13.0), (13.0, HEIGHT - 13.0), (13.0, 13.0)]
    pen.line(inner, CREAM, 1)


def draw_picture(seed: int = 2) -> Image.Image:
    """Draw the scene.

    Returns:
        An RGB picture of WIDTH x HEIGHT pixels. The seed moves the stars, the ripples and the shades of single bricks.
    """
    rng = np.random.default_rng(seed)
    sea = (HORIZON, (204, 132, 132)), (HORIZON + 30, (110, 92, 148)), (HEIGHT * 1.0, (28, 38, 88))
    sky = (0.0, (34, 38, 88)), (84.0, (92, 68, 132)), (156.0, (214, 112, 128)), (HORIZON - 0.25, (255, 196, 132))
    pen = Pen(gradient([*sky, *sea]))
    draw_sky(pen, rng)
    draw_hills(pen)
    # The sun and the hills are drawn whole; the sea covers their parts below the horizon.
    cut = round(HORIZON * OVERSAMPLING)
    full = (0, cut, WIDTH * OVERSAMPLING, HEIGHT * OVERSAMPLING)
    pen.image.paste(gradient([*sky, *sea]).crop(full), full)
    draw_water(pen, rng)
    draw_lighthouse(pen)
    draw_town(pen, rng)
    draw_boat(pen)
    draw_gulls(pen)
    draw_pier(pen, rng)
    draw_robot(pen)
    draw_lettering(pen)
    return pen.image.resize((WIDTH, HEIGHT), Image.Resampling.BOX)


def main() -> None:
    """Command line entry."""
    parser = argparse.ArgumentParser(description="Draw the demo picture.")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent / "demo.png", help="PNG file to write")
    arguments = parser.parse_args()
    draw_picture().save(arguments.output, optimize=True)
    print(f"{arguments.output}: {WIDTH} x {HEIGHT}, {arguments.output.stat().st_size} bytes")


if __name__ == "__main__":
    main()
