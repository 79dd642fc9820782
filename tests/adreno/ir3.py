"""The machine code of Adreno GPUs (a6xx), as Mesa's disassembler prints it: parsed, and run on numpy arrays.

    (sy)(rpt3)mad.f32 r5.w, (r)r7.y, c1.z, (r)r5.w

An instruction has flags, a name with its types, and operands, of which the first is written in most cases. Flags that
order reads and writes, (sy) (ss) (jp) (nopN), change no result here.

    r5.w, c5.w      a 32-bit register of each lane, a constant; four of them have a number, as the parts of a vector
    hr5.w, hc5.w    16 bits. hr0.x and hr0.y are the low and the high half of r0.x; a constant is converted
    p0.x            a predicate, which branches test
    (rptN)          the instruction is issued N more times; operands with (r), and the result, take the next register
    (neg) (abs)     of an operand; h(0.5) is an immediate of 16 bits

A work group is run wave by wave, as the hardware may do: a wave runs until its barrier, then the next one. Where lanes
of a wave take different branches, those at the lowest address run first. Many work groups are run at once, as long
arrays.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy

Array = Any
COMPONENTS = "xyzw"
SHARED = 48 * 4  # from this register on, all lanes of a wave share one
_LINE = re.compile(r"((?:\([a-z]+\d*\)\s*)*)([a-z][\w.]*)\s*(.*)")
_OPERAND = re.compile(r"((?:\((?:neg|abs|r|even|[a-z]\d+|[xyzw]+)\))*)(.*)")
_REGISTER = re.compile(r"(h?[rcpa])(\d+)\.([xyzw])")
_ADDRESS = re.compile(r"[glpc]\[(?:(r\d+\.[xyzw]))?([+-]?\d+)?\]")
FLOATS = {"e": numpy.e, "pi": numpy.pi, "1/pi": 1 / numpy.pi, "log2(e)": numpy.log2(numpy.e), "1/log2(e)": numpy.log(2)}


class Fault(AssertionError):
    """Something that no launch may do, such as a barrier that some lanes do not reach."""


@dataclass(frozen=True)
class Operand:
    """kind: "r", "hr", "c", "hc", "p" or "a" with a register's number; "immediate" with a value; or "address".

    width: of a register or an immediate, in bits. offset: of an address, in bytes, from register `number`, which is -1
    if there is none. flags: "neg", "abs", "r", a texture read's type and components.
    """

    kind: str
    number: int = 0
    value: float = 0
    width: int = 32
    offset: int = 0
    flags: tuple[str, ...] = ()

    def moved(self, by: int) -> Operand:
        """The operand of a repetition."""
        return Operand(self.kind, self.number + by, self.value, self.width, self.offset, self.flags)


@dataclass(frozen=True)
class Instruction:
    """name: "mad.f32". target: the address to which a branch goes. slots: in which it is issued, with repetitions."""

    name: str
    operands: tuple[Operand, ...]
    repeat: int = 0
    saturates: bool = False
    target: int = -1
    slots: int = 1
    text: str = ""


@dataclass(frozen=True)
class Code:
    """A kernel. constants: by number of a 32-bit word. places: the first words of "ubo_ranges" and "driver_params"."""

    instructions: tuple[Instruction, ...]
    constants: Mapping[int, int]
    places: Mapping[str, int]


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
            lines.append(line)
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
    slots = 1 + repeat + int(flags.get("nop") or 0)
    return Instruction(found[2], tuple(operands), repeat, "sat" in flags, target, slots, line)


def _operand(text: str) -> Operand:
    inverted = text.startswith("!")
    flagged, rest = _OPERAND.fullmatch(text.lstrip("!")).groups()  # type: ignore[union-attr]
    flags = (*re.findall(r"\(([^)]*)\)", flagged), *(["neg"] if inverted else []))
    if found := _REGISTER.fullmatch(rest):
        number = int(found[2]) * 4 + COMPONENTS.index(found[3])
        return Operand(found[1], number, width=16 if found[1][0] == "h" else 32, flags=flags)
    if found := _ADDRESS.fullmatch(rest):
        base = _operand(found[1]).number if found[1] else -1
        return Operand("address", base, offset=int(found[2] or 0), flags=flags)
    if found := re.fullmatch(r"[st]#(\d+)", rest):
        return Operand(rest[0], int(found[1]))
    width = 16 if rest.startswith("h(") else 32
    bare = rest.removeprefix("h").removeprefix("(").removesuffix(")") if rest[0] in "h(" else rest
    is_float = rest[0] in "h(" and not re.fullmatch(r"-?\d+|0x[0-9a-f]+", bare)
    value = FLOATS[bare] if bare in FLOATS else float(bare) if is_float else int(bare, 0)
    return Operand("immediate", value=value, width=width, flags=flags)


# What instructions compute

def _product(width: int) -> Callable[..., Array]:
    """The product of the low `width` bits, signed if they are."""
    def compute(a: Array, b: Array) -> Array:
        return (_low(a, width) * _low(b, width)).astype(a.dtype)
    return compute


def _low(a: Array, width: int) -> Array:
    wide = numpy.asarray(a, numpy.int64) & ((1 << width) - 1)
    return wide - ((wide >> (width - 1)) << width) if numpy.asarray(a).dtype.kind == "i" else wide


def _shifted(left: bool) -> Callable[..., Array]:
    def compute(a: Array, count: Array) -> Array:
        count = numpy.asarray(count) & (numpy.asarray(a).dtype.itemsize * 8 - 1)
        return a << count if left else a >> count
    return compute


COMPARED: Mapping[str, Callable[..., Array]] = {
    "lt": numpy.less, "le": numpy.less_equal, "gt": numpy.greater, "ge": numpy.greater_equal, "eq": numpy.equal,
    "ne": numpy.not_equal,
}
# By name without types. Sources are of the kind that the name's second part says: floats, signed or unsigned integers.
COMPUTED: Mapping[str, Callable[..., Array]] = {
    "add.f": numpy.add, "mul.f": numpy.multiply, "min.f": numpy.fmin, "max.f": numpy.fmax, "absneg.f": lambda a: a,
    "floor.f": numpy.floor, "ceil.f": numpy.ceil, "trunc.f": numpy.trunc, "rndne.f": numpy.rint, "sign.f": numpy.sign,
    "mad.f32": lambda a, b, c: a * b + c, "mad.f16": lambda a, b, c: a * b + c,
    "rcp": lambda a: 1 / a, "rsq": lambda a: 1 / numpy.sqrt(a), "sqrt": numpy.sqrt, "log2": numpy.log2,
    "exp2": numpy.exp2, "sin": numpy.sin, "cos": numpy.cos,
    "add.u": numpy.add, "add.s": numpy.add, "sub.u": numpy.subtract, "sub.s": numpy.subtract, "absneg.s": lambda a: a,
    "min.u": numpy.minimum, "min.s": numpy.minimum, "max.u": numpy.maximum, "max.s": numpy.maximum,
    "and.b": numpy.bitwise_and, "or.b": numpy.bitwise_or, "xor.b": numpy.bitwise_xor, "not.b": numpy.invert,
    "shl.b": _shifted(True), "shr.b": _shifted(False), "ashr.b": _shifted(False),
    "mul.s24": _product(24), "mul.u24": _product(24), "mull.u": _product(16),
    "mad.s24": lambda a, b, c: _product(24)(a, b) + c, "mad.u24": lambda a, b, c: _product(24)(a, b) + c,
    "madsh.m16": lambda a, b, c: ((a & 0xFFFF) * (b >> 16) << 16) + c,
    "shrm": lambda count, a, mask: (a >> count) & mask, "shlm": lambda count, a, mask: (a << count) & mask,
    "shrg": lambda count, a, other: (a >> count) | other, "shlg": lambda count, a, other: (a << count) | other,
    "andg": lambda a, b, other: (a & b) | other,
}
FLOAT_ALONE = frozenset(("rcp", "rsq", "sqrt", "log2", "exp2", "sin", "cos"))


def _kind(name: str) -> str:
    """The numpy kind of an instruction's sources: "f", "i" or "u"."""
    stem, _, rest = name.partition(".")
    if stem in FLOAT_ALONE or rest[:1] == "f":
        return "f"
    return "i" if rest[:1] == "s" or stem == "ashr" else "u"


DTYPES = {"f": "float", "s": "int", "u": "uint"}


def _dtype(name: str) -> numpy.dtype[Any]:
    """float16 of "f16"; b32, as bits have no other kind, is uint32."""
    return numpy.dtype(f"{DTYPES.get(name[0], 'uint')}{name[1:]}")


@dataclass
class Memory:
    """The memory that the lanes of a launch share.

    images: (layers, height, width, 4) that are read, by the number of their texture; targets: those that are written,
    by the number that the code has for them. written: how often each texel was. buffers: arrays of bytes by the high
    word of their address. local: bytes of each work group.
    """

    constants: Array
    images: Sequence[Array]
    targets: Sequence[Array]
    buffers: Mapping[int, Array]
    local: Array
    written: list[Array] = field(default_factory=list)
    slots: int = 0
    reads: int = 0

    def __post_init__(self) -> None:
        self.written = [numpy.zeros(image.shape[:3], numpy.int32) for image in self.targets]


Mask = Any  # of lanes; None for all


class Wave:
    """The waves with one number of all work groups: a lane for each work item.

    items: registers by their number, as they are at the start. group: the number of each lane's work group in
    `memory.local`. width: lanes of a wave. there: the lanes that have a work item.
    """

    def __init__(
        self, code: Code, memory: Memory, items: Mapping[int, Array], group: Array, width: int, there: Array
    ) -> None:
        self.code, self.memory, self.group, self.width, self.there = code, memory, group, width, there
        self.count = len(group)
        self._registers: dict[int, Array] = {n: numpy.array(a, numpy.uint32) for n, a in items.items()}
        self._predicates = {number: numpy.zeros(self.count, bool) for number in range(4)}
        self._private = numpy.zeros((self.count, 0), numpy.uint8)
        self._outside: list[Mask] = []  # of predicated blocks, which lanes came to each

    # Registers

    def _register(self, number: int, width: int) -> Array:
        word = number if width == 32 else number >> 1
        if word not in self._registers:
            self._registers[word] = numpy.zeros(self.count, numpy.uint32)
        array = self._registers[word]
        return array if width == 32 else array.view(numpy.uint16)[number & 1 :: 2]

    def read(self, operand: Operand, kind: str, width: int = 0) -> Array:
        """An operand's numbers, as floats ("f"), signed ("i") or unsigned integers ("u"). width: 0 for its own."""
        width = width or operand.width
        dtype = numpy.dtype(f"{kind}{width // 8}")
        if operand.kind == "immediate":
            is_float = isinstance(operand.value, float)
            made = numpy.array([operand.value], dtype if is_float else numpy.int64)
            made = made.astype(dtype) if is_float or kind != "f" else made.astype(f"u{width // 8}").view(dtype)
        elif operand.kind in ("c", "hc"):
            word = self.memory.constants[operand.number : operand.number + 1]
            made = word.view(f"{kind}4") if width == 32 else word.view(f"{kind}4").astype(dtype)
        elif operand.kind == "p":
            made = self._predicates[operand.number & 3].astype(dtype)
        else:
            made = self._register(operand.number, operand.width).view(dtype)
        if "abs" in operand.flags:
            made = abs(made)
        return -made if "neg" in operand.flags else made

    def write(self, operand: Operand, value: Array, mask: Mask) -> None:
        if operand.kind == "p":
            numpy.copyto(self._predicates[operand.number & 3], value != 0, where=True if mask is None else mask)
            return
        value = numpy.asarray(value)
        if value.dtype.itemsize * 8 != operand.width:
            value = value.astype(f"{value.dtype.kind}{operand.width // 8}")
        target = self._register(operand.number, operand.width)
        numpy.copyto(target, value.view(target.dtype), where=True if mask is None else mask)

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
            for address, where in parts:
                going_on[address] = going_on[address] | where if address in going_on else where

    def _check_barrier(self, lanes: Array, waiting: Mapping[int, Array]) -> None:
        others = numpy.zeros(self.count, bool)
        for each in waiting.values():
            others |= each
        if (lanes.reshape(-1, self.width).any(1) & others.reshape(-1, self.width).any(1)).any():
            raise Fault("some lanes of a wave do not reach a barrier")

    def _run_from(self, address: int, lanes: Array, after: int) -> tuple[list[tuple[int, Array]], bool]:
        """Runs lanes until a branch, a barrier or the address `after`, where others wait.

        Returns the addresses at which they go on, and whether that is after a barrier.
        """
        mask: Mask = None if lanes.all() else lanes
        while True:
            instruction = self.code.instructions[address]
            waves = self.count // self.width if mask is None else int(lanes.reshape(-1, self.width).any(1).sum())
            self.memory.slots += instruction.slots * waves
            name = instruction.name
            address += 1
            if name == "end":
                return [], False
            if name.startswith("bar"):
                return [(address, lanes)], True
            if name == "jump":
                return [(instruction.target, lanes)], False
            if name in ("br", "braa", "brao"):
                taken = self._taken(instruction) & lanes
                parts = [(instruction.target, taken), (address, lanes & ~taken)]
                return [(where, part) for where, part in parts if part.any()], False
            if name in ("predt", "predf", "prede"):
                mask = self._predicated(name, lanes)
            elif mask is None or mask.any():
                self._execute(instruction, mask)
            if address == after and not self._outside:
                return [(address, lanes)], False

    def _taken(self, instruction: Instruction) -> Array:
        tested = [
            self._predicates[operand.number & 3] ^ ("neg" in operand.flags) for operand in instruction.operands
        ]
        return tested[0] if len(tested) == 1 else tested[0] & tested[1] if instruction.name == "braa" else (
            tested[0] | tested[1])

    def _predicated(self, name: str, lanes: Array) -> Mask:
        """The lanes that run a predicated block: with p0.x until predf, without it until prede."""
        if name == "prede":
            self._outside.clear()
            return None if lanes.all() else lanes
        if not self._outside:
            self._outside.append(self._predicates[0].copy())
        return lanes & (self._outside[0] if name == "predt" else ~self._outside[0])

    # Instructions

    def _execute(self, instruction: Instruction, mask: Mask) -> None:
        name = instruction.name
        stem = name.partition(".")[0]
        if stem in ("nop", "fence", "shps", "shpe", "getone"):
            return
        if stem in ("isam", "isaml", "sam", "saml"):
            self._read_texels(instruction, mask)
        elif stem in ("stib", "ldg", "stg", "ldl", "stl", "ldp", "stp", "stc"):
            getattr(self, f"_{stem}")(instruction, mask)
        elif stem == "swz":
            first, second, *sources = instruction.operands
            values = [self.read(source, "u").copy() for source in sources]
            self.write(first, values[0], mask)
            self.write(second, values[1], mask)
        else:
            self._compute(instruction, mask)

    def _compute(self, instruction: Instruction, mask: Mask) -> None:
        target, *sources = instruction.operands
        for number in range(instruction.repeat + 1):
            now = [source.moved(number) if "r" in source.flags else source for source in sources]
            with numpy.errstate(all="ignore"):
                value = self._value(instruction.name, now)
            if instruction.saturates:
                value = numpy.clip(value, value.dtype.type(0), value.dtype.type(1))
            self.write(target.moved(number), value, mask)

    def _value(self, name: str, sources: Sequence[Operand]) -> Array:
        stem, *rest = name.split(".")
        if stem in ("mov", "cov"):
            size = re.fullmatch(r"([a-z]\d+)([a-z]\d+)", rest[0])
            assert size, name
            source, target = _dtype(size[1]), _dtype(size[2])
            return _converted(self.read(sources[0], source.kind, source.itemsize * 8), target)
        if stem == "sel":
            a, condition, b = (self.read(source, "u") for source in sources)
            return numpy.where(condition != 0, a, b)
        values = self._alike(sources, _kind(name))
        if stem == "cmps":
            return COMPARED[rest[1]](*values).astype(numpy.uint32)
        made = COMPUTED[name if name in COMPUTED else stem](*values)
        return numpy.asarray(made).astype(values[0].dtype, copy=False)

    def _alike(self, sources: Sequence[Operand], kind: str) -> list[Array]:
        """The sources in the width of the widest register among them."""
        registers = [source for source in sources if source.kind != "immediate"] or sources
        width = max(source.width for source in registers)
        dtype = numpy.dtype(f"{kind}{width // 8}")
        read = (self.read(source, kind, 0 if source.kind in ("r", "hr") else width) for source in sources)
        return [value.astype(dtype, copy=False) for value in read]

    def _read_texels(self, instruction: Instruction, mask: Mask) -> None:
        """isam reads at whole coordinates, sam at floats. With .a the third coordinate is the layer."""
        target, coordinate, *_, texture = instruction.operands
        image = self.memory.images[texture.number]
        kind = "i" if instruction.name.startswith("isam") else "f"
        count = 3 if ".a" in instruction.name else 2
        position = [self.read(coordinate.moved(n), kind) for n in range(count)]
        x, y, layer = (*(numpy.floor(p).astype(numpy.int64) for p in position), numpy.zeros(1, numpy.int64))[:3]
        layers, height, width, _ = image.shape
        inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
        layer = numpy.clip(layer, 0, layers - 1)
        texels = image[layer, numpy.clip(y, 0, height - 1), numpy.clip(x, 0, width - 1)]
        texels = numpy.where(inside[..., None], texels, texels.dtype.type(0))
        dtype, wanted = (flag for flag in target.flags if flag not in ("r", "even"))
        self.memory.reads += self.count if mask is None else int(mask.sum())
        for letter in wanted:
            number = COMPONENTS.index(letter)
            value = texels[..., number].astype(_dtype(dtype))
            self.write(target.moved(number), numpy.broadcast_to(value, self.count), mask)

    def _stib(self, instruction: Instruction, mask: Mask) -> None:
        """stib.b.typed.2d.f32.4.imm value, coordinates, image: writes a texel."""
        value, coordinate, image = instruction.operands
        parts = instruction.name.split(".")
        number = int(image.value) - 32
        target, written = self.memory.targets[number], self.memory.written[number]
        lanes = slice(None) if mask is None else numpy.flatnonzero(mask)
        place = [
            numpy.broadcast_to(self.read(coordinate.moved(n), "i"), self.count)[lanes].astype(numpy.int64)
            for n in range(3 if "3d" in parts else 2)
        ]
        x, y, layer = (*place, numpy.zeros_like(place[0]))[:3]
        width = _dtype(parts[4]).itemsize * 8
        texel = numpy.stack([
            numpy.broadcast_to(self.read(value.moved(n), "f", width), self.count)[lanes] for n in range(4)
        ], -1)
        if (x < 0).any() or (y < 0).any() or (layer < 0).any() or (layer >= target.shape[0]).any() or (
            x >= target.shape[2]).any() or (y >= target.shape[1]).any():
            raise Fault(f"{instruction.text} writes outside of its image")
        with numpy.errstate(over="ignore"):
            target[layer, y, x] = texel.astype(target.dtype)
        numpy.add.at(written, (layer, y, x), 1)

    def _places(self, address: Operand, size: int, mask: Mask) -> tuple[Array, Array]:
        """The lanes that run, and their addresses in bytes."""
        lanes = numpy.arange(self.count) if mask is None else numpy.flatnonzero(mask)
        base = self._register(address.number, 32)[lanes].astype(numpy.int64) if address.number >= 0 else (
            numpy.zeros(len(lanes), numpy.int64))
        place = base + address.offset
        if (place % size).any():
            raise Fault("an access that is not aligned")
        return lanes, place

    def _move(self, instruction: Instruction, load: bool, mask: Mask, bytes_of: Callable[[Array, Array], Any]) -> None:
        """Loads or stores registers; bytes_of: the memory of lanes and the index of an element of a size in it."""
        operands = instruction.operands
        register, address = operands[:2] if load else operands[1::-1]
        dtype = _dtype(instruction.name.split(".")[-1])
        size = dtype.itemsize
        lanes, place = self._places(address, size, mask)
        for number in range(int(operands[2].value)):
            # 16 bits are printed as r for hr.
            one = Operand("hr" if size == 2 else "r", register.number + number, width=16 if size <= 2 else 32)
            memory, row = bytes_of(lanes, place)
            column = (place + number * size) // size
            view = memory.view(f"u{size}")
            if (column < 0).any() or (column >= view.shape[1]).any():
                raise Fault(f"{instruction.text} is outside of its memory")
            target = self._register(one.number, one.width)
            if load:
                target[lanes] = view[row, column]
            else:
                view[row, column] = target[lanes].astype(view.dtype)

    def _ldl(self, instruction: Instruction, mask: Mask) -> None:
        self._move(instruction, True, mask, lambda lanes, place: (self.memory.local, self.group[lanes]))

    def _stl(self, instruction: Instruction, mask: Mask) -> None:
        self._move(instruction, False, mask, lambda lanes, place: (self.memory.local, self.group[lanes]))

    def _own(self, lanes: Array, place: Array) -> tuple[Array, Array]:
        needed = (int(place.max(initial=0)) + 16 + 3) // 4 * 4
        if needed > self._private.shape[1]:
            self._private = numpy.pad(self._private, ((0, 0), (0, needed - self._private.shape[1])))
        return self._private, lanes

    def _ldp(self, instruction: Instruction, mask: Mask) -> None:
        self._move(instruction, True, mask, self._own)

    def _stp(self, instruction: Instruction, mask: Mask) -> None:
        self._move(instruction, False, mask, self._own)

    def _buffer(self, address: Operand) -> Callable[[Array, Array], Any]:
        """The buffer of an address of 64 bits, whose high word is its number."""
        def bytes_of(lanes: Array, place: Array) -> tuple[Array, Array]:
            numbers = numpy.unique(self._register(address.number + 1, 32)[lanes])
            if len(numbers) != 1 or int(numbers[0]) not in self.memory.buffers:
                raise Fault(f"an access outside of all buffers: {numbers}")
            return self.memory.buffers[int(numbers[0])][None], 0
        return bytes_of

    def _ldg(self, instruction: Instruction, mask: Mask) -> None:
        self._move(instruction, True, mask, self._buffer(instruction.operands[1]))

    def _stg(self, instruction: Instruction, mask: Mask) -> None:
        self._move(instruction, False, mask, self._buffer(instruction.operands[0]))

    def _stc(self, instruction: Instruction, mask: Mask) -> None:
        """Sets constants: what the preamble computes once for all lanes."""
        target, source, count = instruction.operands
        for number in range(int(count.value)):
            self.memory.constants[target.offset + number] = self.read(source.moved(number), "u")[0]


def _converted(values: Array, dtype: numpy.dtype[Any]) -> Array:
    """A conversion: floats to integers toward zero, saturated, NaN is 0; to floats to the nearest even."""
    with numpy.errstate(all="ignore"):
        if values.dtype.kind == "f" and dtype.kind in "iu":
            limits = numpy.iinfo(dtype)
            inside = numpy.clip(numpy.trunc(numpy.nan_to_num(values.astype(numpy.float64))), limits.min, limits.max)
            return inside.astype(dtype)
        return values.astype(dtype)
