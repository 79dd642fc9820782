"""The search for the layers that sum in fp16, or in short fp16 chunks that are added in fp32.

It runs whole plans, because a sum in fp16 is rounded at each step, which rounding its result would not show. The costs
of single layers do not add up well, since any change of a layer changes the rounding of all later values. So they only
determine the order in which layers are tried.

A sum in fp16 may overflow at 65504 before its end, and loses terms that are small compared with it. Other pictures may
cause this even if the measured ones do not. So sums are also judged on two `held_out_inputs`: one in the range of the
measured inputs, and one with four times their values, which shows overflows and costs more rounding. Sums may use a
tenth of the part of the bound that storage leaves, since other pictures cost more. On the larger input, they may use
the whole bound in addition to storage.

Before a final softmax no layer sums entirely in fp16. Photographs produce larger inputs of the softmax than synthetic
inputs do. So the rounding errors of these inputs are larger too, and change the outputs more. With sums in fp16
SqueezeNet's error on the photograph of a fish is 4 to 7 times as large as on the worst synthetic input, and exceeds the
bound; with chunks it does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from time import perf_counter

from imgconv.arrays import Array, Arrays
from imgconv.config import Precision
from imgconv.precision.calibration_inputs import MARGIN, held_out_inputs
from imgconv.precision.loss import least_scales, relative_error, scales_of
from imgconv.precision.search import TrialBudget, search, trials_within
from imgconv.precision.share import UNDECIDED
from imgconv.precision.storage import StorageSearch
from imgconv.runtime.session import Session

# Of what storage in half leaves of the bound, the part that sums in half may use: other pictures may cost more.
SHARE_OF_SUMS = 0.1
# Of this, the part of sums in chunks. Squares of errors add up: this leaves 0.44 of it for sums wholly in half.
PART_OF_CHUNKS = 0.9
# Of the room, what narrow sums may cost by the rule of squares, in turn.
MOST = (1.4, 1.0, 0.7, 0.5, 0.35, 0.25, 0.125)
NONE = frozenset[str]()


@dataclass(frozen=True)
class ReferenceRun:
    """Inputs, their outputs in float, the scales of these, and the outputs' relative error with sums in float.

    room: what sums may add to that error.
    """

    inputs: Arrays
    outputs: Arrays
    scales: Mapping[str, float]
    error: float
    room: float

    def error_of(self, session: Session) -> float:
        """The relative error of a session's outputs."""
        return relative_error(session.run(self.inputs), self.outputs, self.scales)

    def allows(self, error: float, part: float = 1.0) -> bool:
        """Returns whether this part of the room is enough for an error."""
        return error <= self.error + part * self.room


def reference_runs(storage: StorageSearch, session: Session, errors: Sequence[float]) -> list[ReferenceRun]:
    """The inputs on which narrower plans than a session's are judged: the measured ones, then others.

    errors: of the session on the measured ones. It may be over the bound on another input, which then says nothing of
    narrower plans and is left out.
    """
    bound, least = storage.bound, least_scales(storage.prepared.graph)
    found = [
        ReferenceRun(inputs, exact, storage.scales, error, SHARE_OF_SUMS * max(0.0, bound - error))
        for inputs, exact, error in zip(storage.inputs, storage.exact, errors, strict=True)
    ]
    for inputs, most in zip(held_out_inputs(storage.prepared.graph, storage.inputs), (bound, MARGIN * bound)):
        exact = storage.reference.run(inputs)
        scales = scales_of([exact], least)
        error = relative_error(session.run(inputs), exact, scales)
        room = bound if most > bound else SHARE_OF_SUMS * (bound - error)
        found += [ReferenceRun(inputs, exact, scales, error, room)] if error <= most else []
    return found


class AccumulationTrials:
    """Plans of one storage that differ in how convolutions sum, and how far their outputs are from float.

    storage: its choice, whose session sums in float. seconds: of the last trial, without building.
    """

    def __init__(self, storage: StorageSearch) -> None:
        self.storage, self.wide, self.errors = storage, storage.session, storage.errors
        self.budget, self.seconds = TrialBudget(), 0.0
        self._known: dict[Precision, tuple[Session, list[float]]] = {}

    @cached_property
    def multiply_adds_by_value(self) -> dict[str, int]:
        """The multiply-adds of the launches that can sum in half, by each value that they compute."""
        launches = self.trial(NONE, NONE)[0].plan.launches
        return {name: each.multiply_adds for each in launches if each.sums_in_half for name in each.values}

    @cached_property
    def judged_runs(self) -> list[ReferenceRun]:
        """The inputs on which sums are judged."""
        return reference_runs(self.storage, self.wide, self.errors)

    def precision(self, chunks: frozenset[str], in_float: frozenset[str]) -> Precision:
        """The Precision with these values summed in chunks and in float, the others in half."""
        return replace(self.storage.precision, arithmetic=in_float, runs=chunks)

    def _session(self, precision: Precision) -> Session:
        """The plan of a Precision on the device. Two others lend it their kernels: most are theirs."""
        self.storage.report_run()
        begin = perf_counter()
        plan = self.storage.plan(2, precision)
        self.seconds = perf_counter() - begin
        share_with = [self.wide, *(session for session, _ in list(self._known.values())[:2])]
        return Session(plan, self.storage.context, share_with=share_with)

    def trial(self, chunks: frozenset[str], in_float: frozenset[str]) -> tuple[Session, list[float]]:
        """The plan with these sums, and its errors on what is judged."""
        precision = self.precision(chunks, in_float)
        if precision not in self._known:
            self.budget.spend()
            session, begin = self._session(precision), perf_counter()
            made = [each.error_of(session) for each in self.judged_runs]
            self.seconds += perf_counter() - begin
            self._known[precision] = session, made
        return self._known[precision]

    def allowed(self, chunks: frozenset[str], in_float: frozenset[str], part: float = 1.0) -> bool:
        """Returns whether this part of each room is enough for these sums."""
        _, errors = self.trial(chunks, in_float)
        return all(each.allows(error, part) for error, each in zip(errors, self.judged_runs, strict=True))

    @cached_property
    def worst(self) -> tuple[Arrays, dict[str, Array]]:
        """Returns the judged input for which sums in half cost most, and its outputs with sums in float."""
        _, errors = self.trial(NONE, NONE)
        costs = [error - each.error - each.room for error, each in zip(errors, self.judged_runs, strict=True)]
        inputs = self.judged_runs[costs.index(max(costs))].inputs
        return inputs, self.wide.run(inputs)

    def cost(self, narrow: frozenset[str], in_chunks: bool) -> float:
        """The error if only these sum in half, or in chunks: the difference from the outputs with sums in float."""
        self.budget.spend()
        inputs, expected = self.worst
        precision = self.precision(narrow if in_chunks else NONE, frozenset(self.multiply_adds_by_value) - narrow)
        return relative_error(self._session(precision).run(inputs), expected)


def choose_sums(
    sums: AccumulationTrials, only_chunks: bool, runs: int | None = None, seconds: float | None = None
) -> tuple[Precision, float, Session]:
    """Returns the Precision whose sums are as narrow as the bound allows, its error on the inputs, and its plan.

    only_chunks: whether no layer sums entirely in fp16. runs: the maximum number of trials of each search; seconds: the
    time for them, measured on the first trials.
    """
    every, in_float, in_chunks, undecided = frozenset(sums.multiply_adds_by_value), NONE, NONE, NONE
    if only_chunks or not sums.allowed(NONE, NONE):
        sums.trial(every, NONE)
        runs = trials_within(seconds, sums.seconds, runs, searches=2)
        most = [part * min(each.room for each in sums.judged_runs) for part in MOST]
        sums.budget = TrialBudget(runs)
        found = search(
            sums.multiply_adds_by_value, lambda block: sums.cost(block, True),
            lambda narrow: sums.allowed(narrow, every - narrow, PART_OF_CHUNKS), most, sums.budget,
        )
        in_float, in_chunks, undecided = every - found.narrow, found.narrow, found.undecided
        if in_chunks and not only_chunks:
            sums.budget = TrialBudget(runs)
            sizes = {name: size for name, size in sums.multiply_adds_by_value.items() if name in in_chunks}
            half = search(
                sizes, lambda block: sums.cost(block, False),
                lambda narrow: sums.allowed(in_chunks - narrow, in_float), most, sums.budget,
            )
            in_chunks, undecided = in_chunks - half.narrow, undecided | half.undecided
    session, errors = sums.trial(in_chunks, in_float)
    precision = sums.precision(in_chunks, in_float)
    reasons = {**precision.reasons, **dict.fromkeys(sorted(undecided), UNDECIDED)}
    return replace(precision, reasons=reasons), max(errors[: len(sums.errors)], default=0.0), session
