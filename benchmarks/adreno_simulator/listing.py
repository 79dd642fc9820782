"""Reads the text of Adreno machine code (ir3), as Mesa's disassembler prints it.

    (sy)(rpt3)mad.f32 r5.w, (r)r7.y, c1.z, (r)r5.w

An instruction has flags, a name with its types, and operands, of which the first is written in most cases. Flags that
order reads and writes, (sy) (ss) (jp) (nopN), change no result here.

    r5.w, c5.w      a 32-bit register of each lane, a constant; four of them have a number, as the parts of a vector
    r48.x ...       from here on, all lanes of a wave share a register
    hr5.w, hc5.w    16 bits. hr0.x and hr0.y are the low and the high half of r0.x, hr48.x and hr48.y those of r48.x; a
                    constant of 32 bits is converted
    p0.x            a predicate, which branches test
    a1.x            an address in the constants
    (rptN)          the instruction is issued N more times; operands with (r), and the result, take the next register
    (neg) (abs)     of an operand; h(0.5) is an immediate of 16 bits
    l[r1.x+16]      local memory, g[...] a buffer, p[...] the lane's own memory, c[...] constants

Registers that an a0.x selects are not read: the compiler makes none of imgconv's kernels.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy

COMPONENTS = "xyzw"
_LINE = re.compile(r"((?:\([a-z]+\d*\)\s*)*)([a-z][\w.]*)\s*(.*)")
_OPERAND = re.compile(r"((?:\((?:neg|abs|r|even|[a-z]\d+|[xyzw]+)\))*)(.*)")
_REGISTER = re.compile(r"(h?[rcpa])(\d+)\.([xyzw])")
_ADDRESS = re.compile(r"[glpc]\[([ra]\d+\.[xyzw])?([+-]?\d+)?\]")
_NAMED = {
    "e": numpy.e, "pi": numpy.pi, "1/pi": 1 / numpy.pi, "log2(e)": numpy.log2(numpy.e), "1/log2(e)": numpy.log(2),
    "log2(10)": numpy.log2(10), "1/log2(10)": 1 / numpy.log2(10),
}


@dataclass(frozen=True)
class Operand:
    """kind: "r", "hr", "c", "hc", "p" or "a" with a register's number; "immediate" with a value; "s" or "t" with the
    number of a sampler or texture; or "address".

    width: of a register or an immediate, in bits. offset: of an address, in bytes, from register `number`, which is -1
    if there is none. flags: "neg", "abs", "r", a texture read's type and components.
    """

    kind: str
    number: int = 0
    value: float = 0
    width: int = 32
    offset: int = 0
    flags: tuple[str, ...] = ()

    def next(self, count: int) -> Operand:
        """The operand of a repetition."""
        return replace(self, number=self.number + count)


@dataclass(frozen=True)
class Instruction:
    """name: "mad.f32". target: the index to which a branch goes. slots: in which it is issued, with repetitions."""

    name: str
    operands: tuple[Operand, ...]
    repeat: int = 0
    saturates: bool = False
    target: int = -1
    slots: int = 1
    text: str = ""

    @cached_property
    def types(self) -> tuple[str, ...]:
        """The parts of the name: "mad" and "f32"."""
        return tuple(self.name.split("."))


@dataclass(frozen=True)
class Code:
    """A kernel. constants: by number of a 32-bit word. places: the first words of "ubo_ranges" and "driver_params"."""

    instructions: tuple[Instruction, ...]
    constants: Mapping[int, int]
    places: Mapping[str, int]

    @cached_property
    def loads_arguments(self) -> bool:
        """Returns whether the code copies its arguments to the constants, as on a7xx; on a6xx the driver does."""
        return any(each.name.startswith("ldc.") and ".k." in each.name for each in self.instructions)

    @cached_property
    def start(self) -> int:
        """The first instruction behind the preamble, which runs once for a launch."""
        return next((n + 1 for n, each in enumerate(self.instructions) if each.name == "shpe"), 0)


@lru_cache(maxsize=256)
def parse(text: str) -> Code:
    """The code of one kernel, from Mesa's text. Raises ValueError for a line that it does not know."""
    lines: list[str] = []
    labels: dict[str, int] = {}
    constants: dict[int, int] = {}
    places: dict[str, int] = {}
    for line in map(str.strip, text.splitlines()[1:]):
        if found := re.match(r"; *(ubo_ranges|driver_params) +c(\d+)\.x", line):
            places[found[1]] = int(found[2]) * 4
        elif found := re.match(r"@const\(c(\d+)\.x\)\s*(.*)", line):
            words = [int(word, 16) for word in found[2].split(", ")]
            constants |= {int(found[1]) * 4 + n: word for n, word in enumerate(words)}
        elif found := re.fullmatch(r"(l\d+):", line):
            labels[found[1]] = len(lines)
        elif line and line[0] not in ";@":
            lines.append(line.partition(";")[0].rstrip())
    return Code(tuple(_instruction(line, labels) for line in lines), constants, places)


def _instruction(line: str, labels: Mapping[str, int]) -> Instruction:
    found = _LINE.fullmatch(line)
    if not found:
        raise ValueError(f"no instruction: {line}")
    flags = dict(re.findall(r"\(([a-z]+)(\d*)\)", found[1]))
    repeat = int(flags.get("rpt") or 0)
    operands, target = [], -1
    for text in re.split(r",\s*", found[3]) if found[3] else ():
        if text.startswith("#"):
            target = labels[text[1:]]
        else:
            operands.append(_operand(text))
    slots = 1 + repeat + int(flags.get("nop") or 0) + found[2].startswith("swz")  # two moves
    return Instruction(found[2], tuple(operands), repeat, "sat" in flags, target, slots, line)


def _operand(text: str) -> Operand:
    found = _OPERAND.fullmatch(text.lstrip("!"))
    assert found is not None, text
    rest = found[2]
    flags = (*re.findall(r"\(([^)]*)\)", found[1]), *(["neg"] if text.startswith("!") else []))
    if register := _REGISTER.fullmatch(rest):
        number = int(register[2]) * 4 + COMPONENTS.index(register[3])
        return Operand(register[1], number, width=16 if register[1][0] == "h" else 32, flags=flags)
    if address := _ADDRESS.fullmatch(rest):
        base = _operand(address[1]).number if address[1] else -1
        return Operand("address", base, offset=int(address[2] or 0), flags=flags)
    if unit := re.fullmatch(r"([st])#(\d+)", rest):
        return Operand(unit[1], int(unit[2]))
    width = 16 if rest.startswith("h(") else 32
    bare = rest.removeprefix("h").removeprefix("(").removesuffix(")") if rest[0] in "h(" else rest
    is_float = rest[0] in "h(" and not re.fullmatch(r"-?\d+|0x[0-9a-f]+", bare)
    value = _NAMED[bare] if bare in _NAMED else float(bare) if is_float else int(bare, 0)
    return Operand("immediate", value=value, width=width, flags=flags)
