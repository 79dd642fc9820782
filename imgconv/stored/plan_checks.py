"""Expected outputs of launches, for libimgconv, which evaluates no graph. See Check in model.fbs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy

from imgconv.arrays import Array
from imgconv.compiling.plan import Launch, Storage


def _nothing() -> Array:
    return numpy.zeros(0)


@dataclass(frozen=True)
class Replacement:
    """Launches in place of number `launch` of a plan, or before it if it does a part of the work that is checked."""

    launch: int
    launches: tuple[Launch, ...]


@dataclass(frozen=True, eq=False)
class LaunchCheck:
    """Samples of a launch's output for drawn inputs. The fields are those of Check in model.fbs."""

    launch: int
    parts: tuple[int, ...] = ()
    positive: bool = False
    elements: Array = field(default_factory=_nothing)
    values: Array = field(default_factory=_nothing)
    bounds: Array = field(default_factory=_nothing)
    reason: str = ""
    plain: tuple[Replacement, ...] = ()
    alternatives: tuple[Launch, ...] = ()
    fine: bool = True


@dataclass(frozen=True, eq=False)
class PlanChecks:
    """The checks of a plan's launches. whole: see Storage in model.fbs. content: of the constants of replacements."""

    launches: tuple[LaunchCheck, ...] = ()
    whole: frozenset[Storage] = frozenset()
    content: Mapping[Storage, Array] = field(default_factory=dict)

    @property
    def replacements(self) -> tuple[Launch, ...]:
        """The launches of plain forms."""
        return tuple(launch for check in self.launches for each in check.plain for launch in each.launches)

    @property
    def alternatives(self) -> tuple[tuple[int, Launch], ...]:
        """The alternatives of all launches, each with the number of its launch."""
        return tuple((check.launch, each) for check in self.launches for each in check.alternatives)


NO_CHECKS = PlanChecks()
