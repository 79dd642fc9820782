"""Runs the waves of Adreno machine code: branches, barriers, and what each instruction does.

Where lanes of a wave take different branches, those at the lowest index run first, as Mesa's compiler expects of the
hardware. A wave runs until its barrier, then the next one. Many work groups are run at once, as long arrays.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy

from benchmarks.adreno_simulator.arithmetic import computed, converted, dtype_of, source_kind
from benchmarks.adreno_simulator.listing import COMPONENTS, Code, Instruction, Operand
from benchmarks.adreno_simulator.memory import Fault, Memory, apply_atomically, elements
from benchmarks.adreno_simulator.registers import Mask, Registers

Array = Any
FIRST_TARGET = 32  # of the numbers that code has for images to write
TEXTURE_READS = ("isam", "isaml", "sam", "saml")
LOCAL_ACCESSES = ("ldl", "stl", "ldp", "stp", "atomic")
# Instructions that change no result here: waits, the preamble's ends, and what fetches descriptors early.
WITHOUT_EFFECT = frozenset(("nop", "fence", "shps", "shpe", "getone", "resinfo"))


class Wave(Registers):
    """The waves with one number of all work groups: a lane for each work item.

    items: registers by their number, as they are at the start. group: the number of each lane's work group in
    `memory.local`. width: lanes of a wave. there: the lanes that have a work item. times: for how many work groups each
    one stands.
    trips: how often waves came to each instruction; lanes: how often lanes ran it.
    """

    def __init__(
        self, code: Code, memory: Memory, items: Mapping[int, Array], group: Array, width: int, there: Array,
        times: Array,
    ) -> None:
        self.code, self.memory, self.group, self.there = code, memory, group, there
        super().__init__(memory.constants, items, len(group), width)
        self.times = times
        self.trips, self.lanes = [0] * len(code.instructions), [0] * len(code.instructions)
        self._constant_address = 0
        self._aliases: dict[tuple[str, int], Operand] = {}
        self._private = numpy.zeros((self.count, 0), numpy.uint8)
        self._is_predicated = False

    # Control

    def run(self) -> Iterator[None]:
        """Runs until all lanes have ended; yields at each barrier."""
        waiting: dict[int, Array] = {0: self.there}
        stopped: dict[int, Array] = {}
        while waiting or stopped:
            if not waiting:
                yield
                waiting, stopped = stopped, {}
            start = min(waiting)
            mask = waiting.pop(start)
            after = min(waiting, default=len(self.code.instructions))
            parts, at_barrier = self._run_from(start, mask, after)
            if at_barrier:
                self._check_barrier(parts[0][1], waiting)
            going_on = stopped if at_barrier else waiting
            for index, where in parts:
                going_on[index] = going_on[index] | where if index in going_on else where

    def _check_barrier(self, lanes: Array, waiting: Mapping[int, Array]) -> None:
        others = numpy.zeros(self.count, bool)
        for each in waiting.values():
            others |= each
        if (lanes.reshape(-1, self.width).any(1) & others.reshape(-1, self.width).any(1)).any():
            raise Fault("some lanes of a wave do not reach a barrier")

    def _run_from(self, index: int, lanes: Array, after: int) -> tuple[list[tuple[int, Array]], bool]:
        """Runs lanes until a branch, a barrier or the index `after`, where others wait.

        Returns the indices at which they go on, and whether that is after a barrier.
        """
        mask: Mask = None if lanes.all() else lanes
        waves, running = self._counted(lanes), self._counted_lanes(lanes)
        while True:
            instruction = self.code.instructions[index]
            self.trips[index] += waves
            self.lanes[index] += running
            name = instruction.types[0]
            index += 1
            if name == "end":
                return [], False
            if name == "bar":
                return [(index, lanes)], True
            if name == "jump":
                return [(instruction.target, lanes)], False
            if name in ("br", "braa", "brao"):
                taken = self._taken(instruction) & lanes
                parts = [(instruction.target, taken), (index, lanes & ~taken)]
                return [(where, part) for where, part in parts if part.any()], False
            if name in ("predt", "predf", "prede"):
                mask = self._predicated(name, lanes)
                running = self._counted_lanes(lanes if mask is None else mask)
            elif mask is None or mask.any():
                self._execute(instruction, mask)
            if index == after and not self._is_predicated:
                return [(index, lanes)], False

    def _counted(self, lanes: Array) -> int:
        """The waves that have any of some lanes."""
        return int(lanes.reshape(-1, self.width).any(1) @ self.times)

    def _counted_lanes(self, lanes: Array) -> int:
        return int(lanes.reshape(-1, self.width).sum(1) @ self.times)

    def _taken(self, instruction: Instruction) -> Array:
        tests = [self.predicates[each.number & 3] ^ ("neg" in each.flags) for each in instruction.operands]
        return tests[0] if len(tests) == 1 else (
            tests[0] & tests[1] if instruction.name == "braa" else tests[0] | tests[1])

    def _predicated(self, name: str, lanes: Array) -> Mask:
        """The lanes that run a predicated block: those with p0.x after predt, without it after predf, until prede."""
        self._is_predicated = name != "prede"
        if not self._is_predicated:
            return None if lanes.all() else lanes
        return lanes & (self.predicates[0] if name == "predt" else ~self.predicates[0])

    # Instructions

    def _execute(self, instruction: Instruction, mask: Mask) -> None:
        stem = instruction.types[0]
        if stem in WITHOUT_EFFECT:
            return
        if stem in TEXTURE_READS:
            self._read_texels(instruction, mask)
        elif stem in ("ldg", "ldl", "ldp"):
            self._move(instruction, True, mask)
        elif stem in ("stg", "stl", "stp"):
            self._move(instruction, False, mask)
        elif stem in ("stib", "ldc", "stc", "swz", "mova1", "atomic", "alias"):
            getattr(self, f"_{stem}")(instruction, mask)
        else:
            self._compute(instruction, mask)

    def _compute(self, instruction: Instruction, mask: Mask) -> None:
        target, *sources = instruction.operands
        for number in range(instruction.repeat + 1):
            now = [each.next(number) if number and "r" in each.flags else each for each in sources]
            with numpy.errstate(all="ignore"):
                value = self._value(instruction, now)
            if instruction.saturates:
                value = numpy.clip(value, value.dtype.type(0), value.dtype.type(1))
            self.write(target.next(number), value, mask)

    def _value(self, instruction: Instruction, sources: Sequence[Operand]) -> Array:
        stem = instruction.types[0]
        if stem in ("mov", "cov"):
            size = re.fullmatch(r"([a-z]\d+)([a-z]\d+)", instruction.types[1])
            assert size, instruction.text
            # Of bytes a conversion copies the sign: Mesa's create_cov in ir3_compiler_nir.c masks what has none.
            source = dtype_of("s8" if size[1] == "u8" and size[2].startswith("s") else size[1])
            return converted(self.read(sources[0], source.kind, source.itemsize * 8), dtype_of(size[2]))
        if stem == "sel":
            a, condition, b = (self.read(source, "u") for source in sources)
            return numpy.where(condition != 0, a, b)
        return computed(instruction.name, self._alike(sources, source_kind(instruction.name)))

    def _alike(self, sources: Sequence[Operand], kind: str) -> list[Array]:
        """The sources in the width of the widest register among them."""
        registers = [source for source in sources if source.kind != "immediate"] or sources
        width = max(source.width for source in registers)
        dtype = numpy.dtype(f"{kind}{width // 8}")
        read = (self.read(source, kind, 0 if source.kind in ("r", "hr") else width) for source in sources)
        return [value.astype(dtype, copy=False) for value in read]

    def _swz(self, instruction: Instruction, mask: Mask) -> None:
        """swz a, b, c, d: two moves at once, of c to a and of d to b."""
        first, second, *sources = instruction.operands
        values = [self.read(source, "u").copy() for source in sources]
        self.write(first, values[0], mask)
        self.write(second, values[1], mask)

    def _lanes(self, mask: Mask) -> Array:
        return numpy.arange(self.count) if mask is None else numpy.flatnonzero(mask)

    def _of(self, lanes: Array, operand: Operand, kind: str, width: int = 0) -> Array:
        return numpy.broadcast_to(self.read(operand, kind, width), self.count)[lanes]

    def _position(self, lanes: Array, operand: Operand, kind: str, count: int) -> list[Array]:
        """x, y and the layer of texels, in registers in a row; the layer is 0 if there are two."""
        registers = [operand.next(n) for n in range(count)]
        read = [self._of(lanes, self._aliases.get((each.kind, each.number), each), kind) for each in registers]
        made = [numpy.floor(each).astype(numpy.int64) for each in read]
        return made if count == 3 else [*made, numpy.zeros(len(lanes), numpy.int64)]

    def _alias(self, instruction: Instruction, mask: Mask) -> None:
        """alias.tex.b32.0 r7.y, c1.x: what the next texture instruction finds in place of a coordinate's register."""
        register, source = instruction.operands
        self._aliases[register.kind, register.number] = source

    def _read_texels(self, instruction: Instruction, mask: Mask) -> None:
        """isam (f32)(xyzw)target, coordinate, s#0, t#1: at whole coordinates; sam at floats.

        With .a the third coordinate is the layer. With an l at the end, a level follows the coordinate, which is 0.
        """
        target, coordinate, *_, texture = instruction.operands
        lanes, kind = self._lanes(mask), "i" if instruction.name.startswith("isam") else "f"
        position = self._position(lanes, coordinate, kind, 3 if "a" in instruction.types else 2)
        self._aliases.clear()
        texels = self.memory.read_texels(texture.number, *position)
        dtype, wanted = (flag for flag in target.flags if flag not in ("r", "even"))
        for letter in wanted:
            component = COMPONENTS.index(letter)
            to = target.next(component)
            with numpy.errstate(over="ignore"):
                value = texels[:, component].astype(dtype_of(dtype))
            register = self.register(to.number, to.width)
            register[lanes] = value.view(register.dtype)

    def _stib(self, instruction: Instruction, mask: Mask) -> None:
        """stib.b.typed.2d.f32.4.imm value, coordinates, image: writes a texel."""
        value, coordinate, image = instruction.operands
        types = instruction.types
        lanes, dtype = self._lanes(mask), dtype_of(types[4])
        texel = numpy.stack([self._of(lanes, value.next(n), dtype.kind, dtype.itemsize * 8) for n in range(4)], -1)
        x, y, layer = self._position(lanes, coordinate, "i", 3 if "3d" in types else 2)
        try:
            self.memory.write_texels(int(image.value) - FIRST_TARGET, x, y, layer, texel)
        except Fault as fault:
            raise Fault(f"{instruction.text}: {fault}") from None

    def _memory_at(self, name: str, address: Operand, lanes: Array) -> tuple[Array, Array, Array]:
        """Rows of bytes, each lane's row, and its address in it: local memory (l), a buffer (g), its own (p)."""
        base = self.register(address.number, 32)[lanes].astype(numpy.int64) if address.number >= 0 else 0
        place = numpy.zeros(len(lanes), numpy.int64) + base + address.offset
        if name == "l":
            return self.memory.local, self.group[lanes], place
        if name == "p":
            if len(place) and (needed := (int(place.max()) + 16 + 3) // 4 * 4) > self._private.shape[1]:
                self._private = numpy.pad(self._private, ((0, 0), (0, needed - self._private.shape[1])))
            return self._private, lanes, place
        numbers = numpy.unique(self.register(address.number + 1, 32)[lanes])
        if len(numbers) != 1 or int(numbers[0]) not in self.memory.buffers:
            raise Fault(f"an access outside of all buffers: {numbers}")
        return self.memory.buffers[int(numbers[0])][None], numpy.zeros(len(lanes), numpy.int64), place

    def _move(self, instruction: Instruction, is_load: bool, mask: Mask) -> None:
        """ldl.u32 r0.x, l[r1.x], 4 or stl.u32 l[r1.x], r0.x, 4: registers in a row, loaded or stored."""
        first, second, count = instruction.operands
        register, address = (first, second) if is_load else (second, first)
        dtype, lanes = dtype_of(instruction.types[-1]), self._lanes(mask)
        width = 16 if dtype.itemsize <= 2 else 32  # 16 bits are printed as r for hr
        try:
            rows, row, place = self._memory_at(instruction.types[0][2], address, lanes)
            for number in range(int(count.value)):
                view, column = elements(rows, place + number * dtype.itemsize, dtype)
                target = self.register(register.number + number, width)
                if is_load:
                    target[lanes] = view[row, column]
                else:
                    view[row, column] = target[lanes].astype(view.dtype)
        except Fault as fault:
            raise Fault(f"{instruction.text}: {fault}") from None

    def _atomic(self, instruction: Instruction, mask: Mask) -> None:
        """atomic.add.untyped.1d.u32.1.l found, l[r1.x], new: in local memory."""
        target, address, new = instruction.operands
        lanes, dtype = self._lanes(mask), dtype_of(instruction.types[4])
        rows, row, place = self._memory_at("l", address, lanes)
        view, column = elements(rows, place, dtype)
        given = self._of(lanes, new, "u")
        self.register(target.number, 32)[lanes] = apply_atomically(
            view, row, column, dtype, instruction.types[1], given
        )

    # The preamble: what one lane computes once for all

    def _stc(self, instruction: Instruction, mask: Mask) -> None:
        """stc.u32 c[16], r0.x, 4: sets constants."""
        target, source, count = instruction.operands
        for number in range(int(count.value)):
            self.memory.constants[target.offset + number] = self.read(source.next(number), "u")[0]

    def _mova1(self, instruction: Instruction, mask: Mask) -> None:
        self._constant_address = int(instruction.operands[1].value)

    def _ldc(self, instruction: Instruction, mask: Mask) -> None:
        """ldc.4.k.imm c[a1.x], from, 0 copies four vectors of arguments; ldc.u.offset0.2.imm r48.x, from, 0 two words.

        from: in vectors of four words.
        """
        target, start, _ = instruction.operands
        first = int(start.value) * 4
        if "k" in instruction.types:
            words = int(instruction.types[1]) * 4
            place = self._constant_address
            self.memory.constants[place : place + words] = self.memory.arguments[first : first + words]
            return
        offset = next(int(each[6:]) for each in instruction.types if each.startswith("offset"))
        count = next(int(each) for each in instruction.types if each.isdigit())
        for number, word in enumerate(self.memory.arguments[first + offset : first + offset + count]):
            self.write(target.next(number), numpy.array([word], numpy.uint32), mask)


