"""GraphError, which require() raises for an invalid graph from a file. `python -O` would remove an assert."""

from __future__ import annotations


class GraphError(ValueError):
    """An invalid graph. If it is from a file, the loader raises a ModelError; otherwise it is a bug of imgconv."""


def require(holds: bool, *about: object) -> None:
    """Raises GraphError with the text of `about` unless a condition holds: require(source == shape, source, shape)."""
    if not holds:
        raise GraphError(" ".join(map(str, about)))
