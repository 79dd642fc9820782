"""The registers of the waves of Adreno machine code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy

from benchmarks.adreno_simulator.listing import Operand

Array = Any
Mask = Any  # of lanes; None for all
SHARED = 48 * 4  # from this register on, all lanes of a wave share one
NEVER_SET = 0xFFFE7FFD  # in registers: not a number, as 32 bits and as 16


class Registers:
    """Registers of `count` lanes in waves of `width`, and the constants. items: registers as they are at the start."""

    def __init__(self, constants: Array, items: Mapping[int, Array], count: int, width: int) -> None:
        self.constants, self.count, self.width = constants, count, width
        self.predicates = {number: numpy.zeros(count, bool) for number in range(4)}
        self._registers: dict[int, Array] = {n: numpy.array(a, numpy.uint32) for n, a in items.items()}

    def register(self, number: int, width: int) -> Array:
        """The bits of a register in each lane, to read and to write; every second half of a word for 16 bits."""
        half = number - SHARED if number >= SHARED else number
        word = number if width == 32 else number - half + (half >> 1)
        if word not in self._registers:
            self._registers[word] = numpy.full(self.count, NEVER_SET, numpy.uint32)
        array = self._registers[word]
        return array if width == 32 else array.view(numpy.uint16)[number & 1 :: 2]

    def read(self, operand: Operand, kind: str, width: int = 0) -> Array:
        """An operand's numbers; an array of one number if all lanes have the same. width: 0 for the operand's own."""
        width = width or operand.width
        dtype = numpy.dtype(f"{kind}{width // 8}")
        if operand.kind == "immediate":
            is_float = isinstance(operand.value, float)
            made = numpy.array([operand.value], dtype if is_float else numpy.int64)
            made = made.astype(dtype) if is_float or kind != "f" else made.astype(f"u{width // 8}").view(dtype)
        elif operand.kind in ("c", "hc"):
            word = self.constants[operand.number : operand.number + 1]
            made = word.view(f"{kind}4") if width == 32 else word.view(f"{kind}4").astype(dtype)
        elif operand.kind == "p":
            made = self.predicates[operand.number & 3].astype(dtype)
        else:
            stored = self.register(operand.number, operand.width)
            made = stored.astype(f"u{width // 8}", copy=False).view(dtype)
        if "abs" in operand.flags:
            made = abs(made)
        return -made if "neg" in operand.flags else made

    def write(self, operand: Operand, value: Array, mask: Mask) -> None:
        """Writes the lanes of a mask; a shared register takes the number of the first of them in its wave."""
        where = True if mask is None else mask
        if operand.kind == "p":
            numpy.copyto(self.predicates[operand.number & 3], value != 0, where=where)
            return
        value = numpy.asarray(value)
        if value.dtype.itemsize * 8 != operand.width:
            value = value.astype(f"{value.dtype.kind}{operand.width // 8}")
        target = self.register(operand.number, operand.width)
        bits = value.view(target.dtype)
        if mask is not None and operand.number >= SHARED:
            bits, where = self._first_lane(bits, mask), True
            bits = numpy.where(mask.reshape(-1, self.width).any(1).repeat(self.width), bits, target)
        numpy.copyto(target, bits, where=where)

    def _first_lane(self, values: Array, mask: Array) -> Array:
        """For each lane, the value of the first lane of its wave that runs."""
        first = mask.reshape(-1, self.width).argmax(1) + numpy.arange(0, self.count, self.width)
        return numpy.broadcast_to(values, self.count)[first.repeat(self.width)]
