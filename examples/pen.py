"""Drawing with Pillow in units of the finished picture, larger than needed: the caller averages it down."""

from __future__ import annotations

from collections.abc import Sequence

from PIL import Image, ImageDraw, ImageFont

Color = tuple[int, int, int]
Point = tuple[float, float]

OVERSAMPLING = 4
"""The scene is drawn this many times larger and then averaged down, because ImageDraw itself does not anti-alias."""

INK: Color = (36, 30, 58)
CREAM: Color = (250, 240, 216)
RED: Color = (206, 58, 52)


class Pen:
    """ImageDraw in units of the finished picture."""

    def __init__(self, image: Image.Image) -> None:
        """Draw on `image`, in place; it has OVERSAMPLING pixels per unit."""
        self.image = image
        self.draw = ImageDraw.Draw(image, "RGBA")

    @staticmethod
    def _scale(points: Sequence[Point]) -> list[Point]:
        return [(x * OVERSAMPLING, y * OVERSAMPLING) for x, y in points]

    def polygon(self, points: Sequence[Point], color: Color, alpha: int = 255) -> None:
        """Fill a polygon; `alpha` is 0 (invisible) to 255 (opaque), as in all methods of this class."""
        self.draw.polygon(self._scale(points), fill=(*color, alpha))

    def box(self, x0: float, y0: float, x1: float, y1: float, color: Color, alpha: int = 255) -> None:
        """Fill the rectangle from (x0, y0) up to, but not including, (x1, y1)."""
        scaled = (x0 * OVERSAMPLING, y0 * OVERSAMPLING, x1 * OVERSAMPLING - 1, y1 * OVERSAMPLING - 1)
        self.draw.rectangle(scaled, fill=(*color, alpha))

    def round_box(self, x0: float, y0: float, x1: float, y1: float, radius: float, color: Color) -> None:
        """Fill a rectangle with round corners."""
        (a, b), (c, d) = self._scale([(x0, y0), (x1, y1)])
        self.draw.rounded_rectangle((a, b, c - 1, d - 1), radius * OVERSAMPLING, fill=color)

    def disc(self, x: float, y: float, radius: float, color: Color, alpha: int = 255) -> None:
        """Fill a disc around (x, y)."""
        r = radius
        (a, b), (c, d) = self._scale([(x - r, y - r), (x + r, y + r)])
        self.draw.ellipse((a, b, c - 1, d - 1), fill=(*color, alpha))

    def line(self, points: Sequence[Point], color: Color, width: float, alpha: int = 255) -> None:
        """Draw an open polyline of `width` pixels."""
        thickness = max(1, round(width * OVERSAMPLING))
        self.draw.line(self._scale(points), fill=(*color, alpha), width=thickness, joint="curve")

    def text(self, x: float, y: float, text: str, size: float, color: Color, anchor: str = "mm") -> None:
        """Write `text`, `size` pixels high, at (x, y); `anchor` is Pillow's, "mm" the middle."""
        font = ImageFont.load_default(size * OVERSAMPLING)
        self.draw.text((x * OVERSAMPLING, y * OVERSAMPLING), text, fill=color, font=font, anchor=anchor)


def mix(a: Color, b: Color, share: float) -> Color:
    """`a` at share 0, `b` at share 1, a straight blend between."""
    red, green, blue = (round(p + (q - p) * share) for p, q in zip(a, b, strict=True))
    return red, green, blue
