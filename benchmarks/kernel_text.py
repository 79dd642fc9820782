"""Counts the work in a kernel's text: loops with their trip counts, image reads, writes, multiply-adds of a work item.

The text is a specialised kernel as in Plan.launches: definitions with constants, then OpenCL C. This is a reader of the
few forms that imgconv's kernels use, not of C: loops count up to a constant or halve down to zero, and a start that is
no constant (a work item's number) counts as 0, which is the item with the longest walk. So does it in the end of a
block, `const int end = min(start + stride, count);`, up to which a loop may count. Both arms of a branch count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import ceil, prod

from imgconv.kernels.kernel_source import COMMON

TOKEN = re.compile(r"#pragma \w+|[A-Za-z_]\w*|\d[\w.]*(?:[eE][-+]\d+\w*)?|<<|>>|<=|>=|==|!=|&&|\|\||\+\+|--|[-+*/]=|\S")
# Image reads, and multiply-adds of a float4.
COUNTED = {"read_imagef": (1, 0), "read_imageh": (1, 0), "mad": (0, 4)}


@dataclass
class Loop:
    """A loop, or the whole function as a loop of one trip.

    reads, multiply_adds: of one trip, outside of inner loops.
    """

    trips: int = 1
    reads: int = 0
    multiply_adds: int = 0
    loops: list[Loop] = field(default_factory=list)

    @property
    def total_reads(self) -> int:
        """Image reads of all trips, inner loops included."""
        return self.trips * (self.reads + sum(loop.total_reads for loop in self.loops))

    @property
    def total_multiply_adds(self) -> int:
        """Multiply-adds of all trips, inner loops included."""
        return self.trips * (self.multiply_adds + sum(loop.total_multiply_adds for loop in self.loops))


@dataclass(frozen=True)
class KernelText:
    """loops: of the kernel. limits: the numbers of work items that its first test lets through; empty without one."""

    loops: Loop
    limits: tuple[int, ...]

    def items(self, global_size: tuple[int, ...]) -> int:
        """Work items that do more than return."""
        return prod(map(min, self.limits, global_size)) if self.limits else prod(global_size)


@dataclass
class Macro:
    """The tokens that a name stands for. parameters: None for a name without brackets."""

    parameters: list[str] | None
    tokens: list[str]


def read_kernel(text: str) -> KernelText:
    """The loops and limits of the kernel in a specialised text."""
    tokens, macros = preprocess(COMMON.read_text(encoding="utf-8") + text)
    counted = dict(COUNTED)
    if "VECTOR" in macros and macros["VECTOR"].tokens == ["float16"]:
        counted["mad"] = (0, 16)
    root, body = Loop(), []
    for name, tokens_of in _functions(tokens):
        (name,), body = _expand([name], macros), _expand(tokens_of, macros)
        _Parser(body, counted).statements(root := Loop())
        counted[name] = (root.total_reads, root.total_multiply_adds)
    return KernelText(root, _limits(body))


def _limits(tokens: list[str]) -> tuple[int, ...]:
    """A, B ... of the kernel's `if (x >= A || y >= B ...) return;`."""
    for at, token in enumerate(tokens):
        if token == "if" and tokens[(end := _closing(tokens, at + 1)) + 1] == "return" and ">=" in tokens[at:end]:
            tests = " ".join(tokens[at + 2 : end]).split("||")
            return tuple(evaluate(test.split(">=")[1].split()) for test in tests)
    return ()


# The preprocessor


def preprocess(text: str) -> tuple[list[str], dict[str, Macro]]:
    """The tokens of the lines that conditions leave, and every macro as first defined.

    A kernel's macros are defined once and undefined after it, so that one table serves the whole text.
    """
    text = re.sub(r"/\*.*?\*/", " ", re.sub(r"//[^\n]*", "", text), flags=re.DOTALL).replace("\\\n", " ")
    text = text.replace('_Pragma("unroll")', "#pragma unroll")
    macros: dict[str, Macro] = {}
    defined: set[str] = set()
    tokens: list[str] = []
    active: list[list[bool]] = []  # for each open condition: whether this part is read, and whether an earlier part was
    for line in text.splitlines():
        directive = re.match(r"\s*#\s*(\w+)\s*(.*)", line)
        reading = all(part for part, _ in active)
        if directive is None:
            tokens += TOKEN.findall(line) if reading else []
        elif directive[1] in ("if", "ifdef", "ifndef", "elif", "else", "endif"):
            _condition(active, directive[1], directive[2], macros, defined)
        elif directive[1] == "define" and reading:
            _define(directive[2], macros, defined)
        elif directive[1] == "undef" and reading:
            defined.discard(directive[2].strip())
        elif directive[1] == "pragma" and reading:
            tokens.append(f"#pragma {directive[2].split()[0]}")
    return tokens, macros


def _define(rest: str, macros: dict[str, Macro], defined: set[str]) -> None:
    match = re.match(r"(\w+)(\(([^)]*)\))?\s*(.*)", rest)
    assert match is not None, rest
    parameters = None if match[2] is None else [name.strip() for name in match[3].split(",")]
    macros[match[1]] = Macro(parameters, TOKEN.findall(match[4]))
    defined.add(match[1])


def _condition(
    active: list[list[bool]], kind: str, rest: str, macros: Mapping[str, Macro], defined: set[str]
) -> None:
    if kind == "endif":
        active.pop()
    elif kind in ("else", "elif"):
        _, done = active[-1]
        holds = not done and (kind == "else" or _holds(rest, macros, defined))
        active[-1] = [holds, done or holds]
    elif not all(part for part, _ in active):
        active.append([False, True])  # what it asks may have no meaning here
    else:
        inside = rest.strip() in defined
        holds = _holds(rest, macros, defined) if kind == "if" else inside == (kind == "ifdef")
        active.append([holds, holds])


def _holds(rest: str, macros: Mapping[str, Macro], defined: set[str]) -> bool:
    rest = re.sub(r"defined\s*\(?\s*(\w+)\s*\)?", lambda m: str(int(m[1] in defined)), rest)
    known = {name: macro for name, macro in macros.items() if name in defined}
    return bool(evaluate(_expand(TOKEN.findall(rest), known)))


def _expand(tokens: list[str], macros: Mapping[str, Macro], depth: int = 0) -> list[str]:
    """The tokens with every macro replaced."""
    assert depth < 32, "a macro stands for itself"
    made: list[str] = []
    at = 0
    while at < len(tokens):
        macro = macros.get(tokens[at])
        at += 1
        if macro is None:
            made.append(tokens[at - 1])
        elif macro.parameters is None:
            made += _expand(macro.tokens, macros, depth + 1)
        elif at < len(tokens) and tokens[at] == "(":
            end = _closing(tokens, at)
            given = dict(zip(macro.parameters, _split(tokens[at + 1 : end])))
            at = end + 1
            replaced = [part for token in macro.tokens for part in given.get(token, [token])]
            made += _expand(replaced, macros, depth + 1)
        else:
            made.append(tokens[at - 1])
    return made


def _closing(tokens: list[str], start: int) -> int:
    """The position of the bracket that closes the one at `start`."""
    depth = 0
    for at in range(start, len(tokens)):
        depth += (tokens[at] in "([{") - (tokens[at] in ")]}")
        if depth == 0:
            return at
    raise ValueError("a bracket is not closed")


def _split(tokens: list[str]) -> list[list[str]]:
    """The parts between the outer commas."""
    parts: list[list[str]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token in "([{") - (token in ")]}")
        if token == "," and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


# Functions and statements


def _functions(tokens: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Name and body of every function: what stands between braces after a name and brackets."""
    at = 0
    while at < len(tokens):
        if tokens[at] == "{":
            end = _closing(tokens, at)
            if tokens[at - 1] == ")":
                depth, start = 0, at - 1
                while True:
                    depth += (tokens[start] == ")") - (tokens[start] == "(")
                    if depth == 0:
                        break
                    start -= 1
                yield tokens[start - 1], tokens[at + 1 : end]
            at = end
        at += 1


class _Parser:
    """Reads a function's body, statement by statement."""

    def __init__(self, tokens: list[str], counted: Mapping[str, tuple[int, int]]) -> None:
        self.tokens = tokens
        self.counted = counted
        self.at = 0
        self.ends: dict[str, list[str]] = {}

    def statements(self, loop: Loop) -> None:
        """All of them, into the loop that they stand in."""
        while self.at < len(self.tokens):
            self.statement(loop)

    def statement(self, loop: Loop) -> None:
        token = self.tokens[self.at]
        if token.startswith("#pragma"):
            self.at += 1
            self.statement(loop)
        elif token == "for":
            start, condition, step = self._header()
            condition = [part for token in condition for part in self.ends.get(token, [token])]
            inner = Loop(_trips(start, condition, step))
            loop.loops.append(inner)
            self.statement(inner)
        elif token == "{":
            end = _closing(self.tokens, self.at)
            self.at += 1
            while self.at < end:
                self.statement(loop)
            self.at = end + 1
        elif token == "if":
            self._count(loop, _closing(self.tokens, self.at + 1) + 1)
            self.statement(loop)
            if self.tokens[self.at : self.at + 1] == ["else"]:
                self.at += 1
                self.statement(loop)
        else:
            end = self.at
            while self.tokens[end] != ";":
                end = _closing(self.tokens, end) + 1 if self.tokens[end] in "([{" else end + 1
            self._note_ends(self.tokens[self.at : end])
            self._count(loop, end + 1)

    def _note_ends(self, tokens: list[str]) -> None:
        """Notes the length of each block of `const int end = min(start + stride, count), ...`, by its end's name."""
        for at in range(1, len(tokens) - 3):
            if tokens[at : at + 3] != ["=", "min", "("]:
                continue
            inside = tokens[at + 3 : _closing(tokens, at + 2)]
            if "+" in inside and "," in inside:
                stride, count = inside[inside.index("+") + 1 : inside.index(",")], inside[inside.index(",") + 1 :]
                count = [part for token in count for part in self.ends.get(token, [token])]
                try:
                    self.ends[tokens[at - 1]] = [str(min(evaluate(stride), evaluate(count)))]
                except ValueError:
                    continue

    def _header(self) -> tuple[list[str], list[str], list[str]]:
        end = _closing(self.tokens, self.at + 1)
        inside = self.tokens[self.at + 2 : end]
        first = inside.index(";")
        second = inside.index(";", first + 1)
        self.at = end + 1
        return inside[:first], inside[first + 1 : second], inside[second + 1 :]

    def _count(self, loop: Loop, end: int) -> None:
        for token in self.tokens[self.at : end]:
            reads, multiply_adds = self.counted.get(token, (0, 0))
            loop.reads += reads
            loop.multiply_adds += multiply_adds
        self.at = end


def _trips(start: list[str], condition: list[str], step: list[str]) -> int:
    """Trips of `for (type name = start; name < limit; name += step)`, or of one that halves while name > 0."""
    try:
        first = evaluate(start[start.index("=") + 1 :])
    except ValueError:
        first = 0
    limit = evaluate(condition[2:])
    if step[1] == "/=":
        return len(_halvings(first, limit, evaluate(step[2:])))
    assert condition[1] == "<", condition
    return max(0, ceil((limit - first) / (1 if step[1] == "++" else evaluate(step[2:]))))


def _halvings(first: int, limit: int, divisor: int) -> list[int]:
    made = []
    while first > limit:
        made.append(first)
        first //= divisor
    return made


def evaluate(tokens: list[str]) -> int:
    """The value of a constant integer expression, as in C if no operand is negative. ValueError for any other."""
    words = {"&&": " and ", "||": " or ", "!": " not ", "/": "//"}
    text = "".join(words.get(token, token) for token in tokens)
    if not text.strip() or not re.fullmatch(r"(?:[\d\s()+\-*/%<>=!]|and|or|not)*", text):
        raise ValueError(f"not a constant: {' '.join(tokens)}")
    return int(eval(text, {"__builtins__": {}}))
