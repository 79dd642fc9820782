"""The simulator of Adreno machine code, on a kernel whose code is kept here; no compiler is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import pytest

from benchmarks.adreno_simulator.launches import Argument, Binary, Counts, run_kernel
from benchmarks.adreno_simulator.listing import parse
from benchmarks.adreno_simulator.memory import Fault

Array = Any
CODES = {gpu: (Path(__file__).parent / f"neighbours_a{gpu}.ir3").read_text() for gpu in (630, 740)}
WIDTH, HEIGHT = 128, 8
RANDOM = numpy.random.default_rng(0)
INPUT = RANDOM.uniform(-1, 1, (1, HEIGHT, WIDTH, 4)).astype(numpy.float32)
WEIGHTS = RANDOM.uniform(-1, 1, 9).astype(numpy.float32)


def run(code: str, width: int = 64, backwards: bool = False) -> tuple[Array, Counts]:
    output = numpy.full((1, HEIGHT, WIDTH, 4), numpy.nan, numpy.float32)
    arguments = [Argument(output, "written"), Argument(INPUT, "read"), Argument(WEIGHTS, "buffer")]
    counts = run_kernel(Binary(parse(code), width), arguments, (WIDTH, HEIGHT), (64, 4), backwards)
    return output[0], counts


def expected() -> Array:
    """The output of neighbours.cl, in float64."""
    made = numpy.zeros((HEIGHT, WIDTH, 4))
    read = numpy.pad(INPUT[0].astype(numpy.float64), ((0, 0), (3, 0), (0, 0)))[:, :WIDTH]
    for y in range(HEIGHT):
        for x in range(WIDTH):
            item = y % 4 * 64 + x % 64
            tile = read[y // 4 * 4 : y // 4 * 4 + 4, x // 64 * 64 : x // 64 * 64 + 64].reshape(256, 4)
            total = sum(tile[(item + 77 * n) % 256] * WEIGHTS[n] for n in range((item & 7) + 1))
            if x > y:
                total = abs(total) * WEIGHTS[8]
                for _ in range(x % 5):
                    total = total + total.astype(numpy.float16) * 0.125
            made[y, x] = total
    return made


EXPECTED = expected()
# A half's rounding of a sum of eight products at most, an eighth of it, four times.
TOLERANCE = 8 * 2.0**-11 * 0.125 * 4


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize("gpu", CODES)
def test_a_kernel(gpu: int, width: int, backwards: bool) -> None:
    output, counts = run(CODES[gpu], width, backwards)
    numpy.testing.assert_allclose(output, EXPECTED, rtol=0, atol=TOLERANCE)
    assert (counts.reads, counts.outside) == (WIDTH * HEIGHT, 3 * HEIGHT)


def test_waves_of_half_the_width_issue_twice_as_often() -> None:
    """All waves of this kernel take the same branches."""
    wide, narrow = run(CODES[630], 128)[1], run(CODES[630], 64)[1]
    assert narrow.waves == 2 * wide.waves and narrow.slots == 2 * wide.slots


def test_trips_of_a_loop() -> None:
    """The kernel's first loop runs eight times in each wave, for lanes with `item & 7` of 7; its test once more."""
    code, (_, counts) = parse(CODES[630]), run(CODES[630])
    test = next(n for n, each in enumerate(code.instructions) if each.text.endswith("cmps.s.lt p0.x, r1.z, r5.z"))
    assert counts.trips[test] == 9 * counts.waves
    assert counts.trips[test + 4] == 8 * counts.waves


# What a compiler or a kernel may do wrongly, as changes of the code.
FAULTS = {
    "a lost barrier": ("(sy)bar.g\n", ""),
    "a barrier that some lanes do not reach": (
        "(ss)nop\n(sy)bar.g", "cmps.s.lt p0.x, r0.x, 9\nbr p0.x, #l34\n(sy)bar.g"
    ),
    "a lost lane": ("(rpt3)mad.f32 r0.z", "(rpt2)mad.f32 r0.z"),
    "a read that is shifted": ("add.u r4.x, r3.y, -3", "add.u r4.x, r3.y, -2"),
    "a wrong end of a loop": ("cmps.s.lt p0.x, r1.z, r5.z", "cmps.s.le p0.x, r1.z, r5.z"),
    "the other branch": ("br !p0.x, #l128", "br p0.x, #l128"),
    "a lost function": ("(rpt3)mul.f r0.z, (abs)(r)r0.z", "(rpt3)mul.f r0.z, (r)r0.z"),
    "a wrong mask": ("and.b r1.w, r1.w, 255", "and.b r1.w, r1.w, 127"),
    "a wrong register": ("cov.f16f32 (even)r5.x, hr9.z", "cov.f16f32 (even)r5.x, hr8.x"),
    "a constant of another word": ("mad.f32 r0.w, c9.w", "mad.f32 r0.w, c9.z"),
    "a texel that is written twice": ("(jp)mov.u32u32 r3.z, r4.y", "(jp)mov.u32u32 r3.z, 0"),
    "a texel outside of the image": ("(jp)mov.u32u32 r3.z, r4.y", "(jp)add.u r3.z, r4.y, 1"),
    "a read outside of a buffer": ("shl.b r5.w, r5.z, 2", "shl.b r5.w, r5.z, 3"),
    "a row of local memory too far": ("shl.b r2.w, r2.y, 4", "shl.b r2.w, r2.y, 9"),
}


def is_right(code: str) -> bool:
    """Returns whether code computes what it should in both orders in which a group's waves may run."""
    try:
        outputs = [run(code, backwards=backwards)[0] for backwards in (False, True)]
    except Fault:
        return False
    return all(numpy.allclose(output, EXPECTED, rtol=0, atol=TOLERANCE) for output in outputs)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_noticed(fault: str) -> None:
    before, after = FAULTS[fault]
    assert before in CODES[630]
    assert not is_right(CODES[630].replace(before, after, 1))
