"""Limits on a model's memory, time and size, for programs that load untrusted models."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from math import prod

import numpy

from imgconv.errors import ConfigError, LimitExceededError

# What the host computes at load, for all tensors that depend on no input; more is left to the device. Each is added to
# GROWTH times what the model's own arrays have, because int4 weights, for example, become float.
FOLDED_ELEMENTS = 2**31  # that the operations read
FOLDED_BYTES = 2**28  # of their results
FOLDED_AT_ONCE = 2**26  # elements that one operation reads; they are in float64 meanwhile
GROWTH = 16
WIDEST = 8  # bytes of an element while it is computed with
MADE_ELEMENTS = 2**26  # that an operator lists: a range, the positions of a resize


@dataclass(frozen=True)
class Limits:
    """Limits on a model. A load that exceeds one raises UnsupportedError, which names the node and the limit.

    - bytes: of any one tensor.
    - seconds: of reading and planning, checked between nodes and between passes; a driver's builds are not counted.
    - nodes: after functions are inlined and loops unrolled.
    - run_seconds: of each wait for the device, at load and in runs; after that the device is abandoned with a
        DeviceError. Runs of real models take less than the default, on slow devices too.

        imgconv.load("upload.onnx", limits=imgconv.Limits(bytes=2**28, seconds=20, nodes=5000), trusted=False)
    """

    bytes: int = 2**36
    seconds: float = 1800.0
    nodes: int = 50_000
    run_seconds: float = 600.0

    def __post_init__(self) -> None:
        for name in ("bytes", "seconds", "nodes", "run_seconds"):
            value = getattr(self, name)
            if not value > 0:
                raise ConfigError(f"limits: {name} is {value!r}; it has to be a number above 0")


class Budget:
    """The remaining budget of one load."""

    def __init__(self, limits: Limits = Limits()) -> None:
        self.limits = limits
        self.started = time.monotonic()
        self.nodes = self.given_bytes = self.folded_elements = self.folded_bytes = 0

    def check_time(self) -> None:
        """Raises UnsupportedError if the load takes longer than it may."""
        if time.monotonic() - self.started > self.limits.seconds:
            raise _limit_error(f"reading and planning exceeds the limit of {self.limits.seconds} s", "seconds")

    def count_nodes(self, count: int = 1) -> None:
        """Raises UnsupportedError if the model has more nodes than it may."""
        self.nodes += count
        self.check_nodes(self.nodes)

    def check_nodes(self, count: int) -> None:
        """Raises UnsupportedError for more nodes than a model may have."""
        if count > self.limits.nodes:
            raise _limit_error(f"the model has more than {self.limits.nodes} nodes", "nodes")

    def check_tensor(self, shape: Sequence[int], dtype: str) -> None:
        """Raises UnsupportedError if a tensor is larger than it may be."""
        size = prod(shape) * numpy.dtype(dtype).itemsize
        if size > self.limits.bytes:
            raise _limit_error(
                f"a tensor {dtype} {list(shape)} takes {size} bytes, more than {self.limits.bytes}", "bytes"
            )

    def can_fold(self, read: int, size: int, from_size: int, held: int) -> bool:
        """Returns whether the host may compute a tensor of `size` bytes by reading `read` elements; if so, spends them.

        from_size: the elements of the tensors that it is computed from. held: the elements that numpy holds meanwhile.
        """
        given = GROWTH * self.given_bytes
        if WIDEST * held > max(self.limits.bytes, given):
            return False
        elements, made = self.folded_elements + read, self.folded_bytes + size
        fits = elements <= FOLDED_ELEMENTS + given and made <= min(FOLDED_BYTES + given, self.limits.bytes)
        if not fits or read > max(FOLDED_AT_ONCE, GROWTH * from_size):
            return False
        self.folded_elements, self.folded_bytes = elements, made
        return True


_budget: ContextVar[Budget | None] = ContextVar("budget", default=None)


def current_budget() -> Budget:
    """The budget of the load under way; outside of one, a new one of the default limits."""
    return _budget.get() or Budget()


@contextlib.contextmanager
def load_budget(limits: Limits | None = None) -> Iterator[Budget]:
    """A context whose tensors count for one load. Without `limits` it is a part of the load around it, if there is one.

        with spending(Limits(nodes=100)) as left:
            left.count_nodes()
    """
    around = _budget.get()
    made = around if limits is None and around is not None else Budget(limits or Limits())
    token = _budget.set(made)
    try:
        yield made
    finally:
        _budget.reset(token)


def _limit_error(problem: str, name: str) -> LimitExceededError:
    return LimitExceededError(f"{problem}; load(..., limits=Limits({name}=...)) allows more")
