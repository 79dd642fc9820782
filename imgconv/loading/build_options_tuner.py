"""Measures a whole model with each build option of its platform, and keeps those that make it faster."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy

from imgconv.arrays import Arrays
from imgconv.build_options import DRIVERS_DEFAULTS, BuildOptions
from imgconv.cl.quirks import quirks_of
from imgconv.compiling.compiler import PreparedGraph
from imgconv.compiling.plan import Plan
from imgconv.errors import Error
from imgconv.loading.tuner import QUANTILE, allowed_difference
from imgconv.precision.loss import relative_error
from imgconv.runtime.device import Device
from imgconv.runtime.programs import ProgressCallback
from imgconv.runtime.session import Session
from imgconv.stored.tuning import TuningDatabase

LOG = logging.getLogger("imgconv")
RUNS = 20  # of each of two sessions that are compared, in turn
COMPARISONS = 2  # each has to show that the options are faster
FASTER = 0.97  # of the time without an option: a smaller difference is noise

Outcome = Literal["faster", "not faster", "refused", "failed", "wrong"]


@dataclass(frozen=True)
class BuildOptionsTrial:
    """The outcome of one more build option.

    seconds: of a run with it, and before: with the fastest options until then; None if it was not timed.
    """

    option: BuildOptions
    outcome: Outcome
    seconds: float | None = None
    before: float | None = None


def tune_build_options(
    prepared: PreparedGraph, context: Device, database: TuningDatabase, progress: ProgressCallback
) -> list[BuildOptionsTrial]:
    """Tries each build option of the device's platform together with those that were faster, and records the fastest.

    prepared: with the tuned kernels. Returns nothing for platforms without options. Raises Error if the model fails to
    build or run with the driver's defaults.
    """
    options = quirks_of(context.info.platform).build_options
    if not options:
        return []
    plan = replace(prepared.plan(), build_options=DRIVERS_DEFAULTS)
    drawn = numpy.random.default_rng(0)
    inputs = {v.name: drawn.random(v.shape).astype(v.dtype) for v in plan.inputs}
    best = Session(plan, context)
    expected, bound = best.run(inputs), allowed_difference(prepared.config)
    trials = []
    for number, option in enumerate(options):
        progress(number, len(options), f"trying {option}")
        wanted = replace(plan, build_options=best.plan.build_options.overridden_by(option))
        session, outcome = _session_with(wanted, best, inputs, expected, bound)
        if session is None:
            trials.append(BuildOptionsTrial(option, outcome))
            continue
        compared = [_seconds_of([best, session]) for _ in range(COMPARISONS)]
        is_faster = all(after < FASTER * before for before, after in compared)
        before, after = compared[-1]
        trials.append(BuildOptionsTrial(option, "faster" if is_faster else "not faster", after, before))
        best = session if is_faster else best
    progress(len(options), len(options), "measured")
    database.record_build_options(context.info.key, prepared.config, best.plan.build_options)
    return trials


def _session_with(
    plan: Plan, best: Session, inputs: Arrays, expected: Arrays, bound: float
) -> tuple[Session | None, Outcome]:
    """The session of a plan that gives the expected results; else None, and the problem."""
    try:
        session = Session(plan, best.context, share_with=[best])
        if session.programs.build_options != plan.build_options:
            return None, "refused"
        found = session.run(inputs)
    except Error as error:
        LOG.info("a model with %s fails: %s", plan.build_options, error)
        return None, "failed"
    return (None, "wrong") if relative_error(found, expected) > bound else (session, "not faster")


def _seconds_of(sessions: Sequence[Session]) -> list[float]:
    """The lower quartile of the seconds of each session's runs, without copies. They take turns."""
    seconds: list[list[float]] = [[] for _ in sessions]
    for _ in range(RUNS):
        for session, taken in zip(sessions, seconds, strict=True):
            with session.context.lock:
                start = time.perf_counter()
                session.sequence.enqueue()
                session.context.finish()
                taken.append(time.perf_counter() - start)
    return [float(numpy.quantile(taken, QUANTILE)) for taken in seconds]
