"""Shared parts of the generators: numbered random steps, and the faults that a case finds."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from imgconv.cl.context import Context
from imgconv.cl.device import list_devices, open_device

EXTREMES = (0, 1, -1, 2, 7, 255, 2**15, 2**24 + 1, 2**31 - 1, 2**31, 2**32, -(2**31), 2**62, 2**63 - 1, -(2**63))
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-45, 1e-30, 1e30, 3.4e38, float("inf"), float("-inf"), float("nan"))
TEXTS = ("", "x", "y", "../x", "/etc/passwd", "a\nb", "a*/b", "x" * 1000, "ä", '"; x', "i0", "i1", "float32", "object")


@cache
def device() -> Context | None:
    """The first device of this machine."""
    found = list_devices()
    return open_device(found[0]) if found else None


tell: ContextVar[Callable[[str], None]] = ContextVar("tell", default=lambda word: None)  # what a worker does now


@contextmanager
def asking_oracle() -> Iterator[None]:
    """A context in which a crash is the oracle's."""
    tell.get()("oracle")
    try:
        yield
    finally:
        tell.get()("")


class Wrong(AssertionError):
    """A result that is not the oracle's, or an error that is none of imgconv's."""


@dataclass
class Draw:
    """Random numbers of one case. Its steps are numbered; those in `skipped` do nothing, to find which of them matter.

    A step has random numbers of its own, so that leaving one out does not change the others.
    """

    seed: int
    skipped: Collection[int] = ()
    random: random.Random = field(init=False)
    steps: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def step(self, change: Callable[[random.Random], Any]) -> None:
        """Applies a change, with random numbers that depend on the seed and the step's number only."""
        number, self.steps = self.steps, self.steps + 1
        if number not in self.skipped:
            change(random.Random(f"{self.seed} {number}"))


def damaged(draw: Draw, content: bytes) -> bytes:
    """The bytes with some of them changed, cut off, repeated or exchanged."""
    made = bytearray(content)

    def change(random: random.Random) -> None:
        at, length = random.randrange(len(made) + 1), random.choice((1, 1, 2, 4, 16, 200))
        kind = random.randrange(6)
        if kind < 3 and at < len(made):
            made[at] = random.choice((0, 1, 255, 127, 128, made[at] ^ (1 << random.randrange(8))))
        elif kind == 3:
            del made[at : at + length]
        elif kind == 4:
            made[at:at] = made[max(at - length, 0) : at]
        else:
            made[at : at + length] = random.randbytes(length)

    def cut(random: random.Random) -> None:
        del made[random.randrange(len(made) + 1) :]

    for _ in range(draw.random.randrange(1, 6)):
        draw.step(change)
    if draw.random.random() < 0.1:
        draw.step(cut)
    return bytes(made)
