"""The pictures that `train_superres.py` trains on: shapes, lettering, patterns, textures and strokes.

They are drawn with numpy and Pillow, larger than needed, and averaged down.
"""

from __future__ import annotations

import math
import string
from collections.abc import Callable

import numpy as np
from PIL import Image, ImageChops, ImageDraw, ImageEnhance, ImageFilter, ImageFont

PICTURE = 192
"""Side of a drawn training picture in high-resolution pixels."""

OVERSAMPLING = 3
"""Pictures are drawn this many times larger and averaged down, because ImageDraw itself does not anti-alias."""

CANVAS = PICTURE * OVERSAMPLING

Color = tuple[int, int, int]


def random_color(rng: np.random.Generator) -> Color:
    """A color: mostly anywhere in the RGB cube, sometimes a gray, sometimes close to black or white."""
    kind = rng.uniform()
    if kind < 0.15:
        values = np.full(3, rng.integers(0, 256))
    elif kind < 0.3:
        values = np.where(rng.uniform() < 0.5, 0, 255) + rng.integers(-25, 26, 3)
    else:
        values = rng.integers(0, 256, 3)
    red, green, blue = (int(v) for v in np.clip(values, 0, 255))
    return red, green, blue


def grid(rng: np.random.Generator, warp: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Coordinates of the canvas, turned by a random angle.

    Args:
        warp: how far, in high-resolution pixels, smooth noise moves them.

    Returns:
        x and y, each (CANVAS, CANVAS) float64 in high-resolution pixels from the centre.
    """
    axis = (np.arange(CANVAS) + 0.5) / OVERSAMPLING - PICTURE / 2
    x, y = np.meshgrid(axis, axis)
    if warp:
        x = x + warp * noise(rng, 3.0)
        y = y + warp * noise(rng, 3.0)
    angle = rng.uniform(0, 2 * math.pi) if rng.uniform() < 0.7 else rng.integers(0, 4) * math.pi / 2
    return x * math.cos(angle) - y * math.sin(angle), x * math.sin(angle) + y * math.cos(angle)


def noise(rng: np.random.Generator, exponent: float) -> np.ndarray:
    """Fractal noise: white noise whose amplitude spectrum is shaped to 1 / f ** (exponent / 2).

    Returns:
        (CANVAS, CANVAS) float64 with mean 0 and standard deviation 1.
    """
    spectrum = np.fft.rfft2(rng.standard_normal((CANVAS, CANVAS)))
    frequency = np.hypot(np.fft.fftfreq(CANVAS)[:, None], np.fft.rfftfreq(CANVAS)[None, :])
    frequency[0, 0] = np.inf
    field = np.fft.irfft2(spectrum / frequency ** (exponent / 2), (CANVAS, CANVAS))
    return field / float(field.std())


def colorize(values: np.ndarray, rng: np.random.Generator) -> Image.Image:
    """Turn values in 0..1, shape (CANVAS, CANVAS), into a picture through a random palette of two to five colors."""
    stops = np.array([random_color(rng) for _ in range(rng.integers(2, 6))], dtype=np.float64)
    places = np.linspace(0, 1, len(stops))
    channels = [np.interp(values, places, stops[:, c]) for c in range(3)]
    return Image.fromarray(np.rint(np.stack(channels, axis=-1)).astype(np.uint8))


def draw_gradient(rng: np.random.Generator) -> Image.Image:
    """A straight or round gradient."""
    x, y = grid(rng)
    if rng.uniform() < 0.5:
        return colorize(np.clip(x / PICTURE + 0.5, 0, 1), rng)
    radius = np.hypot(x - rng.uniform(-60, 60), y - rng.uniform(-60, 60))
    return colorize(np.clip(radius / rng.uniform(50, 250), 0, 1), rng)


def draw_noise(rng: np.random.Generator) -> Image.Image:
    """Clouds, terrain, marble: fractal noise, as it is or folded into veins."""
    field = noise(rng, rng.uniform(1.8, 4.0))
    if rng.uniform() < 0.3:
        field = np.sin(field * rng.uniform(2, 9))
    elif rng.uniform() < 0.3:
        field = np.abs(field) * 2 - 2
    return colorize(np.clip(field / 4 + 0.5, 0, 1), rng)


def draw_pattern(rng: np.random.Generator) -> Image.Image:
    """A repeating pattern, straight or warped: stripes, checks, dots, grid lines, rings, rays, bricks."""
    x, y = grid(rng, warp=rng.uniform(2, 14) if rng.uniform() < 0.5 else 0.0)
    # Perspective makes one picture hold a whole range of periods.
    if rng.uniform() < 0.3:
        depth = 1 + (y / PICTURE + 0.5) * rng.uniform(0.5, 2.5)
        x, y = x * depth, y * depth
    period = math.exp(rng.uniform(math.log(3), math.log(36)))
    u, v = x / period, y / (period * rng.uniform(0.5, 2))
    duty = rng.uniform(0.15, 0.85)
    kind = rng.integers(0, 8)
    values: np.ndarray
    if kind == 0:
        values = u % 1 < duty
    elif kind == 1:
        values = (np.floor(u) + np.floor(v)) % 2
    elif kind == 2:
        values = np.hypot(u % 1 - 0.5, v % 1 - 0.5) < duty / 2
    elif kind == 3:
        values = np.minimum(u % 1, v % 1) < duty / 2
    elif kind == 4:
        values = np.hypot(u, v) % 1 < duty
    elif kind == 5:
        values = (np.arctan2(y, x) / (2 * math.pi) * rng.integers(6, 60)) % 1 < duty
    elif kind == 6:
        row = np.floor(v)
        values = np.minimum((u / 2 + row / 2) % 1 * 2, v % 1) < duty / 3
    else:
        values = np.sin(2 * math.pi * u) * np.sin(2 * math.pi * v * rng.integers(0, 2) + 1.5) / 2 + 0.5
    return colorize(values.astype(np.float64), rng)


def random_outline(rng: np.random.Generator) -> list[tuple[float, float]]:
    """The corners, in canvas units, of a random triangle, quadrilateral, star or smooth blob."""
    cx, cy = rng.uniform(0, CANVAS, 2)
    radius = math.exp(rng.uniform(math.log(4), math.log(80))) * OVERSAMPLING
    kind = rng.integers(0, 3)
    if kind == 0:
        angles = np.sort(rng.uniform(0, 2 * math.pi, rng.integers(3, 7)))
        radii = radius * rng.uniform(0.5, 1.2, len(angles))
    elif kind == 1:
        count = int(rng.integers(4, 10)) * 2
        angles = np.arange(count) * 2 * math.pi / count + rng.uniform(0, 6)
        radii = np.where(np.arange(count) % 2, radius, radius * rng.uniform(0.3, 0.9))
    else:
        angles = np.linspace(0, 2 * math.pi, 80, endpoint=False)
        waves = [rng.uniform(-0.4, 0.4) / k * np.sin(k * angles + rng.uniform(0, 6)) for k in range(1, 6)]
        radii = radius * (1 + np.sum(waves, axis=0))
    return [(cx + r * math.cos(a), cy + r * math.sin(a)) for a, r in zip(angles, radii, strict=True)]


def add_shapes(image: Image.Image, rng: np.random.Generator) -> None:
    """Polygons, ellipses, boxes and arcs, filled, outlined or both."""
    draw = ImageDraw.Draw(image)
    for _ in range(rng.integers(4, 40)):
        fill = random_color(rng) if rng.uniform() < 0.75 else None
        width = round(math.exp(rng.uniform(math.log(0.6), math.log(6))) * OVERSAMPLING)
        outline = random_color(rng) if fill is None or rng.uniform() < 0.35 else fill
        x, y = rng.uniform(-20, CANVAS, 2)
        w, h = np.exp(rng.uniform(math.log(3), math.log(90), 2)) * OVERSAMPLING
        box = (x, y, x + w, y + h)
        kind = rng.integers(0, 5)
        if kind == 0:
            draw.ellipse(box, fill, outline, width)
        elif kind == 1:
            draw.rectangle(box, fill, outline, width)
        elif kind == 2:
            draw.rounded_rectangle(box, min(w, h) * rng.uniform(0.1, 0.45), fill, outline, width)
        elif kind == 3:
            start = rng.uniform(0, 360)
            draw.arc(box, start, start + rng.uniform(30, 330), outline, width)
        else:
            draw.polygon(random_outline(rng), fill, outline, width)


def add_lines(image: Image.Image, rng: np.random.Generator) -> None:
    """Straight strokes, often in parallel families such as fences, rigging and rulings."""
    draw = ImageDraw.Draw(image)
    for _ in range(rng.integers(2, 10)):
        color = random_color(rng)
        width = max(1, round(math.exp(rng.uniform(math.log(0.4), math.log(5))) * OVERSAMPLING))
        x0, y0, x1, y1 = rng.uniform(-0.1 * CANVAS, 1.1 * CANVAS, 4)
        step = rng.uniform(2, 20, 2) * OVERSAMPLING * rng.choice([-1, 1], 2)
        for k in range(rng.integers(1, 14)):
            dx, dy = step * k
            draw.line((x0 + dx, y0 + dy, x1 + dx, y1 + dy), color, width)


def add_strokes(image: Image.Image, rng: np.random.Generator) -> None:
    """Bent strokes (cubic Bezier curves) in bunches: hair, grass, handwriting."""
    draw = ImageDraw.Draw(image)
    t = np.linspace(0, 1, 24)[:, None]
    basis = np.hstack([(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3])
    for _ in range(rng.integers(1, 6)):
        base = rng.uniform(0, CANVAS, (4, 2))
        color = np.array(random_color(rng))
        width = math.exp(rng.uniform(math.log(0.4), math.log(4)))
        spread = rng.uniform(4, 40) * OVERSAMPLING
        for _ in range(rng.integers(1, 40)):
            curve = basis @ (base + rng.normal(0, spread, 2) + rng.normal(0, spread / 4, (4, 2)))
            red, green, blue = (int(v) for v in np.clip(color + rng.integers(-30, 31), 0, 255))
            thickness = max(1, round(width * OVERSAMPLING))
            draw.line([(x, y) for x, y in curve], (red, green, blue), thickness, joint="curve")


def add_text(image: Image.Image, rng: np.random.Generator) -> None:
    """Lines of random letters in Pillow's own font, level or turned."""
    alphabet = list(string.ascii_letters + string.digits + "  .,:;!?&%()-+=/")
    for _ in range(rng.integers(2, 9)):
        size = math.exp(rng.uniform(math.log(6), math.log(60))) * OVERSAMPLING
        font = ImageFont.load_default(size)
        lines = ["".join(rng.choice(alphabet, rng.integers(2, 22))) for _ in range(rng.integers(1, 6))]
        text = "\n".join(lines)
        stroke = round(size * 0.03) if rng.uniform() < 0.3 else 0
        mask = Image.new("L", image.size, 0)
        place = tuple(rng.uniform(-0.2 * CANVAS, 0.8 * CANVAS, 2))
        ImageDraw.Draw(mask).multiline_text(place, text, 255, font, stroke_width=stroke)
        if rng.uniform() < 0.4:
            mask = mask.rotate(rng.uniform(-90, 90), Image.Resampling.BICUBIC)
        image.paste(random_color(rng), (0, 0), mask)


def draw_background(rng: np.random.Generator) -> Image.Image:
    """Any full-canvas picture: a flat color, a gradient, noise or a pattern."""
    kinds: tuple[Callable[[np.random.Generator], Image.Image], ...] = (draw_gradient, draw_noise, draw_pattern)
    if rng.uniform() < 0.12:
        return Image.new("RGB", (CANVAS, CANVAS), random_color(rng))
    return kinds[rng.integers(0, len(kinds))](rng)


def draw_picture(rng: np.random.Generator) -> Image.Image:
    """Draw one training picture.

    Returns:
        An RGB picture of PICTURE x PICTURE pixels.
    """
    image = draw_background(rng)
    if rng.uniform() < 0.35:
        mask = Image.new("L", image.size, 0)
        for _ in range(rng.integers(1, 6)):
            ImageDraw.Draw(mask).polygon(random_outline(rng), 255)
        image = Image.composite(draw_background(rng), image, mask)
    for add, chance in ((add_shapes, 0.55), (add_lines, 0.35), (add_strokes, 0.35), (add_text, 0.45)):
        if rng.uniform() < chance:
            add(image, rng)
    if rng.uniform() < 0.25:
        light = np.clip(noise(rng, 3.5) * 30 + 215, 0, 255).astype(np.uint8)
        image = ImageChops.multiply(image, Image.merge("RGB", [Image.fromarray(light)] * 3))
    if rng.uniform() < 0.4:
        image = ImageEnhance.Color(image).enhance(rng.uniform(0.1, 0.9))
    # Photographs are rarely as crisp as line art: without soft pictures the network would sharpen everything.
    if rng.uniform() < 0.3:
        image = image.filter(ImageFilter.GaussianBlur(rng.uniform(0.2, 1.0) * OVERSAMPLING))
    how = Image.Resampling.BOX if rng.uniform() < 0.6 else Image.Resampling.LANCZOS
    image = image.resize((PICTURE, PICTURE), how)
    if rng.uniform() < 0.15:
        grain = rng.normal(0, rng.uniform(1, 5), (PICTURE, PICTURE, 3))
        image = Image.fromarray(np.clip(np.rint(np.asarray(image) + grain), 0, 255).astype(np.uint8))
    return image
