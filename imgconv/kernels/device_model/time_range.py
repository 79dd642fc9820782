"""TimeRange: the predicted time of a launch, as a range if a device model knows only its bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

# A choice for the longer time may take this many times as long as the best one in the shorter time.
NEARLY = 1.1


@dataclass(frozen=True, order=True)
class TimeRange:
    """Seconds: at most and at least. Of two ranges the one whose longer time is shorter is less.

    >>> TimeRange(3e-6, 1e-6) + TimeRange(1e-6, 1e-6)
    TimeRange(most=4e-06, least=2e-06)
    """

    most: float = 0.0
    least: float = 0.0

    def __add__(self, other: TimeRange) -> TimeRange:
        return TimeRange(self.most + other.most, self.least + other.least)

    def __str__(self) -> str:
        least, most = (f"{seconds * 1e6:.4g}" for seconds in (self.least, self.most))
        return f"{most} us" if least == most else f"{least} to {most} us"

    @property
    def is_finite(self) -> bool:
        return self.most < inf


NEVER = TimeRange(inf, inf)


def index_of_best(times: Sequence[TimeRange]) -> int:
    """Returns which one is good in both times: of those whose shorter time is nearly the shortest, the one whose longer
    time is the shortest; the first of equals.

    >>> index_of_best([TimeRange(20.0, 9.0), TimeRange(15.0, 9.5), TimeRange(12.0, 12.0)])
    1
    """
    return ranked_times(times)[0]


def ranked_times(times: Sequence[TimeRange]) -> list[int]:
    """Returns the order of preference: first those whose shorter time is nearly the shortest, each by its longer time.

    >>> ranked_times([TimeRange(20.0, 9.0), TimeRange(15.0, 9.5), TimeRange(12.0, 12.0)])
    [1, 0, 2]
    """
    nearly = NEARLY * min((time.least for time in times), default=0.0)
    return sorted(range(len(times)), key=lambda number: (times[number].least > nearly, times[number]))
