"""The things on the demo picture: lighthouse, town, boat, gulls, pier and robot, each at its place in the scene."""

from __future__ import annotations

import math

import numpy as np

from examples.pen import CREAM, INK, RED, Color, Pen, mix

WIDTH, HEIGHT = 512, 384
"""Size of the finished picture in pixels; every coordinate below is in these units."""


def draw_lighthouse(pen: Pen) -> None:
    """A striped tower on a cliff at the right, with its beam."""
    # Many thin layers of different length: the beam fades out instead of ending.
    for reach in range(20, 240, 5):
        pen.polygon([(448, 82), (448 - reach, 82 - 0.19 * reach), (448 - reach, 82 - 0.08 * reach)], (255, 246, 200), 3)
        pen.polygon([(448, 82), (448 + reach, 82 - 0.25 * reach), (448 + reach, 82 + 0.28 * reach)], (255, 246, 200), 3)
    left_side = [(400, 250), (386, 240), (394, 222), (408, 214), (416, 200)]
    pen.polygon([*left_side, (430, 194), (470, 192), (488, 197), (512, 190), (512, 262)], (70, 48, 72))
    rocks = ((400, 226), (414, 212), (432, 204), (452, 206), (472, 202), (494, 206), (426, 226), (462, 226))
    for k, (x, y) in enumerate(rocks):
        color = mix((106, 76, 92), (52, 36, 62), (k % 4) / 3)
        pen.polygon([(x, y), (x + 13, y + 5 + k % 3), (x + 9, y + 19), (x - 3, y + 12)], color)
    grass = [(412, 206), (430, 193), (470, 191), (490, 196), (512, 189), (512, 196), (488, 202), (460, 197), (432, 200)]
    pen.polygon(grass, (92, 120, 78))

    def half_width(y: float) -> float:
        return 8.5 + (y - 94) * 0.062

    edges = np.linspace(94, 194, 8)
    for k, (top, bottom) in enumerate(zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)):
        color = RED if k % 2 == 0 else CREAM
        a, b = half_width(top), half_width(bottom)
        pen.polygon([(448 - a, top), (448 + a, top), (448 + b, bottom), (448 - b, bottom)], color)
        pen.polygon([(448 + a * 0.3, top), (448 + a, top), (448 + b, bottom), (448 + b * 0.3, bottom)], INK, 70)
    for y in (118, 146, 172):
        pen.round_box(445.6, y - 4, 450.4, y + 4, 2.2, INK)
        pen.round_box(446.4, y - 3, 449.6, y + 3.2, 1.5, (255, 218, 120))
    pen.box(434, 90, 462, 94, INK)
    for k in range(12):
        pen.line([(434.6 + 2.44 * k, 83), (434.6 + 2.44 * k, 91)], INK, 0.55)
    pen.line([(434, 83), (462, 83)], INK, 0.9)
    pen.box(440.5, 74, 455.5, 91, (255, 236, 160))
    for bar in (440.8, 445.6, 450.4, 455.2):
        pen.line([(bar, 74), (bar, 91)], INK, 0.7)
    pen.disc(448, 82, 4.2, (255, 255, 240))
    pen.polygon([(437, 75), (459, 75), (448, 63)], RED)
    pen.line([(448, 63), (448, 55)], INK, 0.8)
    pen.disc(448, 63, 1.5, INK)


def draw_window(pen: Pen, x: float, y: float, width: float, height: float, lit: bool) -> None:
    """One window with a cross bar and a sill."""
    pen.box(x - 1, y - 1, x + width + 1, y + height + 1, CREAM)
    pen.box(x, y, x + width, y + height, (255, 214, 112) if lit else (74, 92, 132))
    pen.line([(x + width / 2, y), (x + width / 2, y + height)], CREAM, 0.8)
    pen.line([(x, y + height * 0.45), (x + width, y + height * 0.45)], CREAM, 0.8)
    pen.box(x - 2, y + height + 1, x + width + 2, y + height + 2.5, mix(CREAM, INK, 0.35))


def draw_bricks(pen: Pen, x0: float, y0: float, x1: float, y1: float, wall: Color, rng: np.random.Generator) -> None:
    """A wall of bricks in running bond, each in its own shade."""
    pen.box(x0, y0, x1, y1, mix(wall, CREAM, 0.35))
    row = 0
    y = y0
    while y < y1 - 0.5:
        x = x0 - (3.5 if row % 2 else 0)
        while x < x1:
            shade = mix(wall, INK, rng.uniform(0, 0.28))
            pen.box(max(x, x0), y, min(x + 6.4, x1), min(y + 2.8, y1), shade)
            x += 7.0
        y += 3.4
        row += 1


def draw_roof(pen: Pen, x0: float, x1: float, eaves: float, ridge: float, color: Color) -> None:
    """A gabled roof seen from its long side, with rows of round tiles."""
    inset = (x1 - x0) * 0.14
    pen.polygon([(x0 - 3, eaves), (x0 + inset, ridge), (x1 - inset, ridge), (x1 + 3, eaves)], color)
    rows = max(3, round((eaves - ridge) / 4))
    for k in range(1, rows + 1):
        share = k / rows
        y = ridge + (eaves - ridge) * share
        left, right = x0 + inset + (-3 - inset) * share, x1 - inset + (3 + inset) * share
        count = max(1, round((right - left) / 4.2))
        for t in range(count):
            a = left + (right - left) * t / count
            b = left + (right - left) * (t + 1) / count
            tip = (a + b) / 2
            scallop = [(a, y - 2), (tip - 0.8, y - 0.2), (tip + 0.8, y - 0.2), (b, y - 2)]
            pen.line(scallop, mix(color, INK, 0.55), 0.6)


def draw_cafe(pen: Pen) -> None:
    """The second house of the town, with an awning of red and cream stripes."""
    pen.box(54, 190, 98, 236, (236, 200, 142))
    draw_roof(pen, 54, 98, 190, 166, (172, 70, 58))
    for x in (59, 72, 85):
        draw_window(pen, x, 196, 8, 11, lit=x != 72)
    pen.box(57, 212, 95, 220, (40, 74, 92))
    pen.text(76, 216.2, "CAFE", 8, CREAM)
    for k in range(8):
        color = RED if k % 2 == 0 else CREAM
        top, bottom = 57 + 4.75 * k, 55.4 + 5.05 * k
        pen.polygon([(top, 220), (top + 4.75, 220), (bottom + 5.2, 226), (bottom, 226)], color)
    pen.box(60, 226, 74, 236, (255, 222, 140))
    pen.box(80, 226, 90, 236, (90, 54, 44))


def draw_gabled_house(pen: Pen) -> None:
    """The third house of the town: wooden boards, and a round window in its gable."""
    pen.box(100, 160, 130, 236, (104, 142, 150))
    for k in range(25):
        pen.line([(100, 161 + 3 * k), (130, 161 + 3 * k)], (70, 104, 118), 0.5)
    pen.polygon([(97, 162), (115, 132), (133, 162)], (74, 60, 96))
    pen.line([(97, 162), (115, 132), (133, 162)], CREAM, 1.2)
    pen.disc(115, 152, 4.6, CREAM)
    pen.disc(115, 152, 3.6, (255, 214, 112))
    pen.line([(111, 152), (119, 152)], CREAM, 0.6)
    pen.line([(115, 148), (115, 156)], CREAM, 0.6)
    for y in (169, 191):
        for x in (105, 117):
            draw_window(pen, x, y, 8, 13, lit=(x + y) % 2 == 0)
    pen.round_box(109, 214, 121, 237, 1, (160, 60, 62))
    pen.box(111, 217, 114.4, 225, (255, 222, 140))
    pen.box(115.6, 217, 119, 225, (255, 222, 140))


def draw_town(pen: Pen, rng: np.random.Generator) -> None:
    """Four houses on a stone quay at the left."""
    pen.polygon([(0, 236), (172, 236), (184, 262), (0, 276)], (112, 92, 106))
    for row, y in enumerate((237, 244, 251, 258)):
        for k in range(16):
            x = k * 12.5 - (6 if row % 2 else 0)
            if x + 11.5 < 172 + (y - 236) * 0.45:
                stone = mix((150, 126, 130), (92, 74, 96), rng.uniform(0, 1))
                pen.round_box(max(x, 0), y, max(x + 11.6, 1), y + 6.2, 1.2, stone)

    draw_bricks(pen, 8, 176, 52, 236, (178, 84, 66), rng)
    draw_roof(pen, 8, 52, 176, 150, (120, 66, 74))
    pen.box(38, 140, 44, 160, (150, 78, 66))
    pen.box(37, 138, 45, 141, INK)
    for k, (x, y, r) in enumerate(((42, 132, 3), (46, 125, 4), (52, 116, 5.5))):
        pen.disc(x, y, r, (236, 214, 220), 130 - 30 * k)
    for x in (14, 35):
        draw_window(pen, x, 184, 10, 14, lit=x == 14)
    draw_window(pen, 14, 209, 10, 14, lit=False)
    pen.round_box(34, 209, 46, 237, 5.5, (48, 92, 96))
    pen.disc(43.5, 224, 0.9, (255, 218, 120))

    draw_cafe(pen)
    draw_gabled_house(pen)

    draw_bricks(pen, 132, 196, 166, 236, (198, 148, 110), rng)
    draw_roof(pen, 132, 166, 196, 176, (92, 78, 110))
    draw_window(pen, 137, 203, 9, 11, lit=True)
    draw_window(pen, 152, 203, 9, 11, lit=False)
    pen.box(140, 220, 158, 236, (84, 56, 60))
    for k in range(5):
        pen.line([(140, 222.5 + 3 * k), (158, 222.5 + 3 * k)], (120, 84, 80), 0.7)

    for x in (4, 31, 58, 85, 112, 139, 166):
        sag = [(x + 27 * t, 233 + 5 * (1 - (2 * t - 1) ** 2)) for t in np.linspace(0, 1, 12)]
        if x < 160:
            pen.line(sag, (232, 214, 180), 0.7)
        pen.box(x - 1, 230, x + 1, 239, INK)


def draw_boat(pen: Pen) -> None:
    """A sailing boat in the middle of the bay, with rigging and a name on the hull."""
    for k in range(9):
        y = 293 + 4.6 * k
        half = 46 - 3.6 * k
        pen.polygon([(324 - half, y), (324, y - 1.3), (324 + half, y), (324, y + 1.3)], (230, 200, 190), 120 - 10 * k)
    pen.polygon([(272, 270), (382, 266), (368, 290), (284, 290)], (44, 78, 118))
    pen.polygon([(272, 270), (382, 266), (380, 270), (274, 274)], CREAM)
    pen.polygon([(281.5, 286), (370.4, 286), (368, 290.5), (284, 290.5)], RED)
    pen.text(324, 279.3, "IMAGE 2D", 9, CREAM)
    pen.box(296, 260, 318, 270, (196, 140, 92))
    for x in (299, 306, 313):
        pen.disc(x, 265, 2, INK)
        pen.disc(x, 265, 1.3, (255, 226, 150))
    pen.line([(330, 269), (330, 128)], (96, 60, 48), 2)
    pen.line([(330, 254), (276, 257)], (96, 60, 48), 1.5)

    main = [(328, 136 + 116 * t) for t in np.linspace(0, 1, 20)]
    leech = [(278 + 50 * (1 - t) ** 1.25, 254 - 118 * (1 - t)) for t in np.linspace(1, 0, 30)]
    pen.polygon(main + leech, (250, 236, 208))
    for k in range(1, 6):
        y = 136 + 19.5 * k
        left = 278 + 50 * (1 - (y - 136) / 118) ** 1.25
        pen.line([(left, y + 1), (328, y)], (214, 190, 168), 0.7)
    pen.text(315, 208, "42", 15, RED)
    jib = [(332 + 44 * t**1.12, 140 + 122 * t) for t in np.linspace(0, 1, 30)]
    foot = [(376 - 42 * t, 262 - 12 * math.sin(math.pi * t * 0.5)) for t in np.linspace(0, 1, 10)]
    luff = [(334 - 0.8 * math.sin(math.pi * t), 250 - 108 * t) for t in np.linspace(0, 1, 10)]
    pen.polygon(jib + foot + luff, (226, 120, 84))
    for k in range(1, 5):
        pen.line([(333, 250 - 22 * k), (334 + 42 * (1 - k * 0.18), 255 - 22 * k)], (190, 92, 70), 0.7)
    for x, y in ((274, 270), (381, 266), (352, 268)):
        pen.line([(330, 129), (x, y)], INK, 0.5)
    pen.polygon([(330, 128), (346, 132), (330, 136)], RED)
    for k in range(7):
        t = (k + 0.5) / 7
        a, b = 381 - 51 * t, 266 - 137 * t
        pen.polygon([(a - 2.2, b), (a + 2.2, b - 1.2), (a + 0.8, b + 5)], ((255, 214, 112), RED, (88, 160, 150))[k % 3])


def draw_gulls(pen: Pen) -> None:
    """Five gulls in the sky."""
    for x, y, size in ((96, 98, 8), (118, 90, 7), (136, 104, 6), (286, 92, 7), (392, 138, 6)):
        steps = np.linspace(0, 1, 12)
        left = [(x - size * (1 - t), y - size * 0.42 * math.sin(math.pi * (0.25 + 0.75 * t))) for t in steps]
        right = [(2 * x - a, b) for a, b in left[::-1]]
        pen.line(left + right, CREAM, 1.1)


def draw_pier(pen: Pen, rng: np.random.Generator) -> None:
    """Wooden planks in the foreground."""
    for x in (24, 84, 144, 190):
        pen.box(x, 338, x + 8, HEIGHT, (58, 40, 50))
        pen.box(x + 5.5, 338, x + 8, HEIGHT, (38, 26, 40))
        pen.line([(x - 7, 366), (x + 15, 366)], (170, 190, 220), 0.8, 150)
    edges = np.linspace(-6, 206, 18)
    for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        wood = mix((168, 118, 84), (122, 80, 64), rng.uniform(0, 1))
        pen.polygon([(a, 342), (b - 0.7, 342), (b - 0.7 + (b - 100) * -0.05, 322), (a + (a - 100) * -0.05, 322)], wood)
        for _ in range(3):
            x = rng.uniform(a + 2, b - 2)
            pen.line([(x, 341), (x - (x - 100) * 0.035, 324)], mix(wood, INK, 0.4), 0.45)
        pen.box(a, 342, b - 0.7, 348, mix(wood, INK, 0.35))
        pen.disc((a + b) / 2, 345, 0.7, INK)


def draw_robot(pen: Pen) -> None:
    """The robot on the edge of the pier, its fishing rod and what it is about to catch."""
    steel, light, shadow = (126, 158, 172), (178, 206, 212), (72, 98, 118)
    for x in (150, 166):
        pen.line([(x, 326), (x + 14, 331), (x + 15, 350)], shadow, 5.4)
        for k in range(5):
            pen.line([(x + 12, 334 + 3.4 * k), (x + 17.5, 334 + 3.4 * k)], INK, 0.6)
        pen.round_box(x + 10, 349, x + 25, 357, 3, steel)
        pen.box(x + 10, 355, x + 25, 357, INK)
    pen.round_box(138, 286, 180, 330, 6, steel)
    pen.round_box(138, 286, 147, 330, 5, shadow)
    pen.round_box(150, 293, 176, 314, 3, light)
    for row in range(4):
        for column in range(4):
            color = ((226, 84, 72), (246, 190, 80), (92, 176, 120), (66, 120, 196))[(row + column) % 4]
            pen.box(152.5 + 5.6 * column, 295 + 4.6 * row, 156.7 + 5.6 * column, 298.4 + 4.6 * row, color)
    pen.text(163, 321, "RGBA", 7, INK)
    for x, y in ((141, 289), (177, 289), (141, 327), (177, 327)):
        pen.disc(x, y, 1, INK)

    pen.box(154, 279, 164, 287, shadow)
    for ring in (281, 283.5):
        pen.line([(154, ring), (164, ring)], INK, 0.6)
    pen.round_box(136, 246, 184, 280, 9, light)
    pen.round_box(136, 246, 146, 280, 8, mix(steel, light, 0.3))
    pen.round_box(145, 253, 181, 272, 6, INK)
    for x in (156, 171):
        pen.disc(x, 261, 5.4, (120, 230, 220))
        pen.disc(x, 261, 3.6, (30, 90, 110))
        pen.disc(x + 1.6, 259.4, 1.3, (250, 255, 255))
    pen.line([(157 + 12 * t, 268.2 + 2 * math.sin(math.pi * t)) for t in np.linspace(0, 1, 9)], (120, 230, 220), 0.9)
    pen.line([(160, 246), (160, 235)], shadow, 1.4)
    pen.disc(160, 233, 3, RED)
    pen.disc(159, 232, 0.9, (255, 220, 210))
    pen.disc(136, 263, 4, shadow)
    pen.disc(136, 263, 2, steel)

    pen.line([(174, 297), (190, 308), (203, 298)], shadow, 5)
    for a, b in ((179, 300.5), (184, 304), (195, 304), (199, 301)):
        pen.disc(a, b, 2.5, steel)
    pen.disc(203, 298, 4.2, RED)
    rod = [(197 + 62 * t, 303 - 52 * t + 10 * t * t) for t in np.linspace(0, 1, 16)]
    pen.line(rod, (92, 56, 44), 1.3)
    pen.line([rod[-1], (260, 330)], CREAM, 0.5)
    pen.disc(260, 331, 2.6, CREAM)
    pen.polygon([(257.4, 331), (262.6, 331), (261.6, 333.4), (258.4, 333.4)], RED)
    for k in range(3):
        half = 6 + 5 * k
        arc = [(260 + half * math.cos(a), 334 + 0.24 * half * math.sin(a)) for a in np.linspace(0, 2 * math.pi, 40)]
        pen.line(arc, CREAM, 0.7, 190 - 50 * k)

    pen.polygon([(104, 300), (128, 300), (125, 326), (107, 326)], (88, 132, 150))
    for x0, x1 in ((105.2, 126.9), (106.4, 125.7)):
        y = 306 if x0 < 106 else 320
        pen.line([(x0 - 0.4, y), (x1 + 0.4, y)], (52, 86, 106), 1.2)
    pen.polygon([(110, 301), (114, 286), (119, 290), (116, 301)], (240, 150, 80))
    pen.polygon([(114, 286), (110, 281), (117, 282), (121, 279), (119, 290)], (240, 150, 80))
    pen.disc(114.4, 296, 0.8, INK)
    arc = [(104 + 24 * t, 300 - 13 * math.sin(math.pi * t)) for t in np.linspace(0, 1, 20)]
    pen.line(arc, INK, 0.7)
