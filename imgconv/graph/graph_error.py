"""check(): rejects invalid graphs from files. An assert would not do, because `python -O` removes it."""

from __future__ import annotations


class GraphError(ValueError):
    """A graph that contradicts itself. The loaders' ModelError says it of a file; else it is a fault of imgconv."""


def require(holds: bool, *about: object) -> None:
    """Raises GraphError with the text of `about` unless a condition holds: require(source == shape, source, shape)."""
    if not holds:
        raise GraphError(" ".join(map(str, about)))
