"""Instructions of Adreno machine code, few at a time, on one wave of four lanes; no compiler is needed."""

from __future__ import annotations

from typing import Any

import numpy
import pytest

from benchmarks.adreno_simulator.listing import Operand, parse
from benchmarks.adreno_simulator.memory import Fault, Memory
from benchmarks.adreno_simulator.waves import Wave

Array = Any
LANES = 4
IMAGE = numpy.arange(24, dtype=numpy.float32).reshape(1, 2, 3, 4)
# Results, as the instruction set's documentation in Mesa and OpenCL say them. r0.x is the lane, from 0 to 3.
CASES = {
    "a product of 32 bits": (
        "@const(c0.x) 0x00030005\nmull.u r1.x, r0.x, c0.x\nmadsh.m16 r1.x, r0.x, c0.x, r1.x\n"
        "madsh.m16 r1.x, c0.x, r0.x, r1.x\n",
        "r1.x", "u", [0, 0x30005, 0x6000A, 0x9000F],
    ),
    "products of 24 bits": ("mul.s24 r1.x, r0.x, -3\n", "r1.x", "i", [0, -3, -6, -9]),
    "a dot product of bytes": (
        "@const(c0.x) 0xff800180, 0x02ff01ff\nmov.u32u32 r2.x, c0.x\nmov.u32u32 r2.y, c0.y\n"
        "dp4acc.mixed.low r1.x, r2.x, r2.y, r0.x\n",
        "r1.x", "i", [-128 * 255 + 1 - 128 * 255 - 2 + lane for lane in range(4)],
    ),
    "a comment behind an instruction": (
        "(nop) add.u r1.x, r0.x, 7\t; no field 'NOP'\n", "r1.x", "u", [7, 8, 9, 10],
    ),
    "a byte with a sign": (
        "add.u r1.x, r0.x, 126\ncov.u32u8 hr8.x, r1.x\ncov.u8s32 r1.x, hr8.x\n", "r1.x", "i", [126, 127, -128, -127],
    ),
    "a sum of three": ("sad.s32 r1.x, r0.x, (neg)r0.x, 7\n", "r1.x", "i", [7, 7, 7, 7]),
    "shifts with a mask": ("add.u r1.x, r0.x, 12\nshrm r1.x, 1, r1.x, 3\n", "r1.x", "u", [2, 2, 3, 3]),
    "shifts that add": ("shlg r1.x, 4, r0.x, 1\n", "r1.x", "u", [1, 17, 33, 49]),
    "a shift of a signed number": ("sub.u r1.x, r0.x, 2\nashr.b r1.x, r1.x, 1\n", "r1.x", "i", [-1, -1, 0, 0]),
    "repetitions": (
        "mov.u32u32 r1.x, 1\nmov.u32u32 r1.y, 2\n(rpt1)add.u r2.x, (r)r1.x, r0.x\n", "r2.y", "u", [2, 3, 4, 5],
    ),
    "two moves at once": ("add.u r1.x, r0.x, 10\nswz.u32u32 r0.x, r1.x, r1.x, r0.x\n", "r1.x", "u", [0, 1, 2, 3]),
    "halves of a register": (
        "mov.u16u16 hr2.x, h(0x1234)\nmov.u16u16 hr2.y, h(0x5678)\n", "r1.x", "u", [0x56781234] * LANES,
    ),
    "halves of a shared register": (
        "mov.u16u16 hr48.x, h(0x1234)\nmov.u16u16 hr48.y, h(0x5678)\n", "r48.x", "u", [0x56781234] * LANES,
    ),
    "a float as half": ("cov.u32f32 r1.x, r0.x\ncov.f32f16 hr4.x, r1.x\n", "hr4.x", "f", [0, 1, 2, 3]),
    "a constant that becomes half": (
        "@const(c0.x) 0x3f000000\nmov.f16f16 hr4.x, h(1.0)\nmad.f16 hr4.x, hr4.x, hc0.x, hr4.x\n",
        "hr4.x", "f", [1.5] * LANES,
    ),
    "floats as integers": ("mov.f32f32 r1.x, (4.0)\nmul.f r1.x, r1.x, (-0.5)\ncov.f32u32 r1.x, r1.x\n",
                           "r1.x", "u", [0] * LANES),
    "saturation": ("cov.u32f32 r1.x, r0.x\n(sat)add.f r1.x, r1.x, (neg)(0.5)\n", "r1.x", "f", [0, 0.5, 1, 1]),
    "the smaller of a number and none": (
        "mov.f32f32 r1.x, (0.0)\nrcp r1.x, r1.x\nmul.f r1.x, r1.x, (0.0)\nmin.f r1.x, r1.x, (2.0)\n",
        "r1.x", "f", [2] * LANES,
    ),
    "a choice": ("cmps.u.ge r1.x, r0.x, 2\nsel.b32 r1.x, 7, r1.x, r0.x\n", "r1.x", "u", [0, 1, 7, 7]),
    "a predicated block": (
        "mov.u32u32 r1.x, 0\ncmps.u.ge p0.x, r0.x, 2\npredt\nmov.u32u32 r1.x, 5\npredf\nmov.u32u32 r1.x, 6\nprede\n"
        "add.u r1.x, r1.x, 1\n",
        "r1.x", "u", [7, 7, 6, 6],
    ),
    "a shared register that some lanes write": (
        "mov.u32u32 r48.x, 9\ncmps.u.ge p0.x, r0.x, 2\npredt\nadd.u r48.x, r0.x, 0\nprede\nmov.u32u32 r1.x, r48.x\n",
        "r1.x", "u", [2] * LANES,
    ),
    "a branch that two tests decide": (
        "mov.u32u32 r1.x, 0\ncmps.u.ge p0.x, r0.x, 1\ncmps.u.lt p0.y, r0.x, 3\nbraa p0.x, p0.y, #l9\n"
        "mov.u32u32 r1.x, 9\nl9:\nadd.u r1.x, r1.x, 1\n",
        "r1.x", "u", [10, 1, 1, 10],
    ),
    "loops that lanes leave one by one": (
        "mov.u32u32 r1.x, 0\nl1:\ncmps.u.ge p0.x, r1.x, r0.x\nbr p0.x, #l9\nadd.u r1.x, r1.x, 1\njump #l1\nl9:\nnop\n",
        "r1.x", "u", [0, 1, 2, 3],
    ),
    "atomics": (
        "mov.u32u32 r1.y, 0\nmov.u32u32 r1.z, 0\nstl.u32 l[r1.y], r1.z, 1\n"
        "atomic.add.untyped.1d.u32.1.l r1.w, l[r1.y], r0.x\nldl.u32 r1.x, l[r1.y], 1\n",
        "r1.x", "u", [6] * LANES,
    ),
    "what an atomic finds": (
        "mov.u32u32 r1.y, 0\nmov.u32u32 r1.z, 0\nmov.u32u32 r1.w, 1\nstl.u32 l[r1.y], r1.z, 1\n"
        "atomic.add.untyped.1d.u32.1.l r1.x, l[r1.y], r1.w\n",
        "r1.x", "u", [0, 1, 2, 3],
    ),
    "a lane's own memory": (
        "mov.u32u32 r1.y, 8\nstp.u32 p[r1.y+4], r0.x, 1\nadd.u r1.y, r1.y, 4\nldp.u32 r1.x, p[r1.y], 1\n",
        "r1.x", "u", [0, 1, 2, 3],
    ),
    "a read at whole coordinates": (
        "mov.u32u32 r1.x, r0.x\nmov.u32u32 r1.y, 1\nisam (f32)(w)r1.x, r1.x, s#0, t#0\n", "r1.w", "f", [15, 19, 23, 0],
    ),
    "a read at coordinates of floats": (
        "cov.u32f32 r1.x, r0.x\nadd.f r1.x, r1.x, (-1.0)\nadd.f r1.x, r1.x, (0.5)\nmov.f32f32 r1.y, (0.5)\n"
        "sam (f32)(xyzw)r2.x, r1.x, s#0, t#0\n",
        "r2.y", "f", [0, 1, 5, 9],
    ),
    "a coordinate of an alias": (
        "mov.u32u32 r1.x, r0.x\nmov.u32u32 r1.y, 0\nalias.tex.b32.0 r1.y, (0x1)\n"
        "isaml (f32)(x)r2.x, r1.x, r3.x, s#0, t#0\nisaml (f32)(x)r2.y, r1.x, r3.x, s#0, t#0\nsub.u r1.w, r2.x, r2.y\n"
        "add.f r1.x, r2.x, (neg)r2.y\n",
        "r1.x", "f", [12, 12, 12, 0],
    ),
    "arguments in constants": (
        "mova1 a1.x, (r)4\nldc.1.k.imm c[a1.x], 0, 0\nmov.u32u32 r1.x, c1.y\n", "r1.x", "u", [101] * LANES,
    ),
    "arguments in shared registers": ("ldc.u.offset1.2.imm r48.x, 0, 0\nmov.u32u32 r1.x, r48.y\n",
                                      "r1.x", "u", [102] * LANES),
}


def registers_of(text: str) -> Wave:
    """A wave that has run."""
    code = parse(f"code\n{text}end\n")
    constants = numpy.zeros(64, numpy.uint32)
    for number, word in code.constants.items():
        constants[number] = word
    arguments = numpy.arange(100, 116, dtype=numpy.uint32)
    memory = Memory(constants, arguments, [IMAGE], [], {}, numpy.zeros((1, 64), numpy.uint8))
    there = numpy.ones(LANES, bool)
    wave = Wave(code, memory, {0: numpy.arange(LANES)}, numpy.zeros(LANES, int), LANES, there, numpy.ones(1))
    list(wave.run())
    return wave


@pytest.mark.parametrize("case", CASES)
def test_instructions(case: str) -> None:
    text, register, kind, expected = CASES[case]
    operand = parse(f"code\nmov.u32u32 {register}, 0\n").instructions[0].operands[0]
    assert isinstance(operand, Operand)
    assert registers_of(text).read(operand, kind).tolist() == expected


def test_a_barrier_that_some_lanes_do_not_reach() -> None:
    text = "cmps.u.ge p0.x, r0.x, 2\nbr p0.x, #l9\nbar.g\nl9:\nnop\n"
    with pytest.raises(Fault, match="do not reach a barrier"):
        registers_of(text)


@pytest.mark.parametrize("text, message", [
    ("mov.u32u32 r1.x, 64\nldl.u32 r1.y, l[r1.x], 1\n", "outside of its memory"),
    ("mov.u32u32 r1.x, 2\nldl.u32 r1.y, l[r1.x], 1\n", "not aligned"),
    ("mov.u32u32 r1.x, 0\nmov.u32u32 r1.y, 9\nldg.u32 r1.z, g[r1.x], 1\n", "outside of all buffers"),
])
def test_an_access_that_is_wrong(text: str, message: str) -> None:
    with pytest.raises(Fault, match=message):
        registers_of(text)


def test_an_instruction_that_is_not_known() -> None:
    with pytest.raises(NotImplementedError, match="no instruction bfrev.b"):
        registers_of("bfrev.b r1.x, r0.x\n")


def test_a_line_that_is_not_known() -> None:
    with pytest.raises(ValueError, match="no instruction: What"):
        parse("code\nWhat is this\n")


def test_an_image_of_bytes_is_written_in_parts_of_255() -> None:
    """Numbers outside of 0 .. 1 are the nearest byte, as in an image of CL_UNORM_INT8."""
    none, target = numpy.zeros(0, numpy.uint32), numpy.full((1, 1, 2, 4), 7, numpy.uint8)
    memory = Memory(none, none, [], [target], {}, numpy.zeros((1, 0), numpy.uint8))
    texel = numpy.array([[0, 128 / 255, 1, 153 / 255], [-0.5, 2, 0.4 / 255, 0.6 / 255]], numpy.float32)
    zero = numpy.zeros(2, int)
    memory.write_texels(0, numpy.arange(2), zero, zero, texel)
    assert target.tolist() == [[[[0, 128, 255, 153], [0, 255, 0, 1]]]]


def test_integers_are_written_to_an_image_of_bytes_as_they_are() -> None:
    """Numbers past 255 are stored as 255, as in an image of CL_UNSIGNED_INT8."""
    none, target = numpy.zeros(0, numpy.uint32), numpy.zeros((1, 1, 1, 4), numpy.uint8)
    memory = Memory(none, none, [], [target], {}, numpy.zeros((1, 0), numpy.uint8))
    zero = numpy.zeros(1, int)
    memory.write_texels(0, zero, zero, zero, numpy.array([[1, 255, 256, 2**32 - 1]], numpy.uint32))
    assert target.tolist() == [[[[1, 255, 255, 255]]]]
