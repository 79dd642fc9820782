"""Sets the priority of a model's work relative to the screen and other programs, with OpenCL extensions."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, get_args

from imgconv.errors import ConfigError

Priority = Literal["high", "normal", "low"]

# Properties of clCreateContext in Qualcomm's cl_ext_qcom.h: CL_CONTEXT_PERF_HINT_QCOM, which is about clocks, and
# CL_CONTEXT_PRIORITY_HINT_QCOM, each with its value for "high", which those for "normal" and "low" follow.
PERFORMANCE_HINT, PRIORITY_HINT = (0x40C2, 0x40C3), (0x40C9, 0x40CA)
CONTEXT_HINTS = {"cl_qcom_perf_hint": PERFORMANCE_HINT, "cl_qcom_priority_hint": PRIORITY_HINT}
# A property of clCreateCommandQueueWithProperties, CL_QUEUE_PRIORITY_KHR, and its values.
QUEUE_PRIORITY, QUEUE_PRIORITIES = 0x1096, {"high": 1, "normal": 2, "low": 4}
PRIORITY_EXTENSIONS = ("cl_khr_priority_hints", *CONTEXT_HINTS)


def context_hints(extensions: Collection[str], priority: Priority | None) -> tuple[tuple[int, int], ...]:
    """Properties of a context, (name, value), for what the driver knows. Raises ConfigError for another priority.

    Without a priority the clocks are kept high, because those of a phone's GPU fall between frames, and the rest is
    left to the system.
    """
    if priority is None:
        return (PERFORMANCE_HINT,) if "cl_qcom_perf_hint" in extensions else ()
    if priority not in get_args(Priority):
        raise ConfigError(f"priority {priority!r}: use one of {', '.join(get_args(Priority))}")
    number = get_args(Priority).index(priority)
    return tuple((name, high + number) for each, (name, high) in CONTEXT_HINTS.items() if each in extensions)


def queue_properties(extensions: Collection[str], priority: Priority | None) -> list[int]:
    """Properties of a queue, names and values in turn, for what the driver knows; empty if it is to have none."""
    known = priority is not None and "cl_khr_priority_hints" in extensions
    return [QUEUE_PRIORITY, QUEUE_PRIORITIES[priority]] if priority and known else []
