"""Why the compiler did what it did: decisions with their costs, collected while somebody listens."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

_reasons: ContextVar[dict[str, str] | None] = ContextVar("reasons", default=None)


@contextlib.contextmanager
def collect() -> Iterator[dict[str, str]]:
    """The reasons recorded inside, by the name of the value that each is about; the last word on a value stays."""
    reasons: dict[str, str] = {}
    token = _reasons.set(reasons)
    try:
        yield reasons
    finally:
        _reasons.reset(token)


def record(value: str, reason: str) -> None:
    """Note why something was done with a value, if anybody collects reasons."""
    reasons = _reasons.get()
    if reasons is not None:
        reasons[value] = reason
