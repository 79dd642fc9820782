"""Fourier transforms: real and complex, each axis, lengths that cut and that pad, both directions."""

from __future__ import annotations

import numpy
from operator_cases import Case, Constant, floats, several


def number(value: int) -> Constant:
    return Constant(numpy.array(value, numpy.int64))


INVERSE, HALF_SPECTRUM = {"inverse": 1}, {"onesided": 1}
# float32 sums of up to nine terms; the largest of them may be cancelled.
NEAR = 5e-6
SIGNALS = [((2, 6, 1),), ((2, 7, 1), number(5)), ((1, 5, 1), number(8))]
COMPLEX = [((2, 6, 2),), ((2, 7, 2), number(4)), ((1, 5, 2), number(9)), ((2, 1, 2),)]
PICTURE = [((2, 3, 8, 2),), ((2, 5, 4, 1),)]
FOURIER = [
    *several("DFT", (17, 20), [*SIGNALS, *COMPLEX], [{}, INVERSE], tolerance=NEAR),
    *several("DFT", (17, 20), SIGNALS, [HALF_SPECTRUM], tolerance=NEAR),
    *several("DFT", (17,), PICTURE, [{"axis": 1}, {"axis": 2}, {"axis": -2, "inverse": 1}, {"axis": -3}],
        tolerance=NEAR),
    *several("DFT", (20,), [(PICTURE[0][0], None, number(axis)) for axis in (1, 2, -2, -3)], [{}, INVERSE],
        tolerance=NEAR),
    *several("STFT", (17,), [
        ((2, 20, 1), number(3), floats(0.1, 0.5, 1.0, 1.0, 0.5, 0.1)), ((1, 20, 1), number(4), None, number(8)),
        ((2, 9, 1), number(9), None, number(9)), ((1, 16, 1), number(5), floats(1.0, 2.0, 3.0), number(3)),
    ], [{}, {"onesided": 0}], tolerance=NEAR),
]
WRONG = [
    (Case("DFT", 17, ((2, 5, 3),), {}), "one part or two"),
    (Case("DFT", 17, ((2, 5, 1),), {"axis": 2}), "the parts of a number"),
    (Case("DFT", 20, ((2, 5, 2),), {"onesided": 1}), "of complex numbers"),
    (Case("DFT", 17, ((2, 5, 1), number(0)), {}), "length 0"),
    (Case("STFT", 17, ((2, 5, 1), number(1), None, number(6)), {}), "frames of 6"),
    (Case("STFT", 17, ((2, 5, 1), number(1), floats(1.0, 2.0), number(3)), {}), "a window of 2"),
]
