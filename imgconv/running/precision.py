"""Chooses the values of a model that are stored in half, and the nodes that compute in half, by measuring it.

Rounding to half has a relative error of 2^-11 at each value. Most networks do not amplify it. A few do, above all in
their first layers of few channels, whose errors pass through all later layers. And half ends at 65504. So:

1. The plan that stores everything in half runs on drawings: two with two dark pictures, or a large one; more if these
   leave a doubt. If by its own account (rounding.py) rounding costs no more than the bound, and nothing comes near
   65504, it is the choice, and nothing else is compiled.
2. If a value comes near 65504, a plan in float tells which ones do. These keep float. So do all values if an output is
   lost in half on a guarding input: zero everywhere or not finite, where float's is neither.
3. If rounding costs too much, the half plan runs again and again, each time with a few of its values moved by some
   units in their last place: first in blocks, and the most sensitive block is split repeatedly. Those that cost most,
   beside their size, keep float, until the others cost a third of the bound. The plan that keeps these is
   measured as the first one was. If it still costs too much, more values keep float: a sixth of the bound, then none.
4. With float16=2 convolutions sum in half too. If that costs too much, all sum in short runs. If these cost too much as
   well, the layers whose runs cost most sum in float, as few as suffice. Then all others sum in half, except those for
   which half costs most: these stay in runs, as few as suffice.

Each choice is confirmed by a run of the chosen plan itself.

A step function, such as round, makes of a small change nothing or a whole step, so moves are no measure in front of it.
If a graph has one, each plan is compared with the float plan. If most convolutions read what round makes, the network
is quantised, and keeps float without a measurement: on MobileNetV2 of 8 bits moves said 6.6e-3, and it was 3e-2 off.

Of sums, what a layer costs alone gives only the order, and whole plans tell how many suffice: costs of single layers do
not add up, since any change of a layer rounds all later textures anew.

A sum in half overflows at 65504 on the way, and loses terms that are small beside it: other pictures may do what the
measured ones do not. So step 4 also judges on `other_inputs`, two in the range of the measured ones and one four times
as far. Sums may use up a tenth of what storage leaves of the bound, since other pictures cost more. The far input is
there for overflows, and all rounding costs more on it. Sums may cost the bound there, beside storage.

In front of a final softmax no layer sums in half from end to end. A network is surer of photographs than of drawings:
the softmax gets larger numbers, and passes their rounding on as absolute errors. With sums in half SqueezeNet is off 4
to 7 times as far on the photograph of a fish as on the worst drawing, past the bound; with short runs it is not.

At load there are only drawn inputs (drawings.py). Photographs cost up to three times as much: halves may cost a third
of the bound, and a plan is accepted at PART_ON_DRAWINGS of it. With inputs, halves may first cost all of it. Then, and
with float16=2, the float plan is compiled: a plan's error is its difference from that one, not its own account.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

import numpy

from imgconv.arrays import Array, Arrays
from imgconv.cl.device import Context
from imgconv.compiling.compiler import Prepared
from imgconv.compiling.plan import Plan
from imgconv.compiling.widened import widened
from imgconv.config import Float16, Precision, Sums
from imgconv.dtype import FLOAT16
from imgconv.graph.expression import operations
from imgconv.graph.nodes import Convolution, Graph, Product, Reduction
from imgconv.kernels.target import HALF_MAX
from imgconv.running.drawings import DARK, MARGIN, drawn_inputs, guarding_inputs, other_inputs
from imgconv.running.numbers import building_numbers
from imgconv.runtime.programs import Progress
from imgconv.running.rounding import LEAST_UNITS, MOST_UNITS, Group, Rounding, least_scales, look, relative_error
from imgconv.running.rounding import rounding_of, scales_of
from imgconv.runtime.session import Session

BOUND = 1e-2
# At load: 80 runs of a small network take less time than to compile another plan. `imgconv tune` splits further.
SPLITS = 20
# Into four: one sensitive value among many is found in as many runs as by halves, and many among few in two thirds.
PARTS_OF_BLOCK = 4
# Of the bound, what the choice may cost on drawings: XFeat is 1.05e-2 off on a photograph, 0.8e-2 on the worst drawing.
PART_ON_DRAWINGS = 2 / 3
# The parts of the bound that halves may cost, in turn. The user's own inputs judge the choice too, drawings do not.
PARTS, PARTS_ON_INPUTS = (1 / 3, 1 / 6, 0.0), (1.0, 2 / 3, 1 / 2, 1 / 3, 1 / 6, 0.0)
# Two drawings, noise and discs, say enough if the error on them is so many times smaller than what is accepted: on one
# drawing of a kind a network is off up to four times as far as on another.
PAIR, BETWEEN_DRAWINGS = 2, 4
# Measured in any case: this pair, and two dark pictures.
FIRST = PAIR + len(DARK)
# A pair of drawings of fewer numbers says too little in any case: OpenSeeFace's gaze network of 32 x 32 is off five
# times as far on another drawing.
ENOUGH_NUMBERS = 2 * 3 * 128 * 128
STEPS = frozenset({"round", "floor", "ceil", "truncate", "sign"})
# If more of the values pass 65504 on the guarding inputs, the model is not made for these.
OUTLIERS = 0.25
# If the blocks of several values that keep float have a smaller part of all numbers than this, they are not split.
LITTLE = 0.01
# What a block of values costs is measured so that other values' rounding comes to an eighth of what may remain.
BEYOND_ANEW = 4
# Of what storage in half leaves of the bound, the part that sums in half may use: other pictures may cost more.
SHARE_OF_SUMS = 0.1
# Of this, the part of short runs. Squares of errors add up: this leaves 0.44 of it for sums wholly in half.
PART_OF_RUNS = 0.9

NEAR = "near 65504: {:.3g} on the measured inputs"
NOT_FINITE = "not finite in float either"
SENSITIVE = "too sensitive to rounding"
LOST = "in a model whose outputs are lost in half if inputs are large"
OF_LEVELS = "in a quantised network, whose levels halves would change"


@dataclass(frozen=True)
class PrecisionChoice:
    """The values that stay wider, and the largest relative error of the outputs on the measured inputs.

    With float16=2 also on the other inputs. half_error: the error on the measured inputs with everything in half
    storage that is not near 65504; NaN if that was not measured. largest: the largest magnitude of every measured
    value. session: the chosen plan on the device, if it is one of float16=1.
    """

    precision: Precision
    error: float
    half_error: float
    largest: Mapping[str, float] = field(repr=False)
    session: Session | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True)
class Block:
    """Neighbouring values, and the relative error of the outputs if only these values are in half. size: in numbers."""

    names: tuple[str, ...]
    error: float
    size: int = 1


def choose_precision(
    prepared: Prepared, context: Context, progress: Progress | None = None, inputs: Sequence[Arrays] = (),
    bound: float = BOUND, splits: int = SPLITS,
) -> PrecisionChoice:
    """The PrecisionChoice by which the settings' float16 changes the outputs by at most `bound` on the inputs.

    inputs: arrays by input name (default: drawn pictures). splits: how often a block of values is split, at a run for
    each part, to find the sensitive ones, in each of the three searches. Raises what Session raises.
    """
    graph, float16 = prepared.graph, prepared.config.float16
    compared = bool(inputs) or float16 == 2 or bool(steps_of(graph))
    accepted = bound if inputs else PART_ON_DRAWINGS * bound
    measured = _Measured(prepared, context, progress, tuple(inputs), splits, compared, accepted / BETWEEN_DRAWINGS)
    if not inputs and float16 == 1 and is_quantised(graph):
        kept = Precision().and_storage(frozenset(graph.values), OF_LEVELS)
        return PrecisionChoice(kept, 0.0, float("nan"), {}, measured.new_session(1, kept))
    precision, session = measured.near, measured.half
    if measured.loses_outputs(session):
        kept = Precision().and_storage(frozenset(graph.values), LOST)
        return PrecisionChoice(kept, 0.0, float("nan"), measured.largest, measured.new_session(float16, kept))
    errors = half_errors = measured.errors(session)
    costs, parts = _Costs(measured, session), PARTS_ON_INPUTS if inputs else PARTS
    for part in parts:
        if max(errors) <= accepted:
            break
        precision = measured.near.and_storage(costs.too_sensitive(part * bound, parts[0] * bound), SENSITIVE)
        session = measured.new_session(1, precision, [session, measured.half])
        errors = measured.errors(session)
    half_error, error = max(half_errors), max(errors)
    if float16 == 2:
        precision, error = _choose_sums(_Sums(measured, precision, session, tuple(errors), bound))
        return PrecisionChoice(precision, error, half_error, measured.largest)
    return PrecisionChoice(precision, error, half_error, measured.largest, session)


def _with_guards(largest: Mapping[str, float], guards: Mapping[str, float]) -> dict[str, float]:
    """The largest values, also on the guarding inputs. These need no MARGIN: most of these models are for 0 .. 1."""
    return {name: float(numpy.maximum(value, guards[name] / MARGIN)) for name, value in largest.items()}


def is_lost(made: Arrays, expected: Arrays) -> bool:
    """Returns whether an output is not finite where it should be, or is zero everywhere and should not be."""
    for name, exact in expected.items():
        finite = numpy.isfinite(exact)
        if not numpy.isfinite(made[name][finite]).all() or exact[finite].any() and not made[name][finite].any():
            return True
    return False


def _out_of_range(guards: Mapping[str, float]) -> bool:
    """Returns whether the guarding inputs are far out of the model's range, by the largest values in float on them."""
    return sum(not value <= HALF_MAX for value in guards.values()) > OUTLIERS * len(guards)


def _choose_sums(sums: _Sums) -> tuple[Precision, float]:
    """The Precision whose sums are as narrow as the bound allows, and the largest error on the measured inputs."""
    every, none = frozenset(sums.names), frozenset[str]()
    runs_only = ends_in_softmax(sums.measured.prepared.graph)
    in_runs, in_float = every if runs_only else none, none
    if not sums.allowed(in_runs, in_float):
        if not sums.allowed(every, in_float, PART_OF_RUNS):
            blocks = sums.costs("runs", sums.names)
            in_float = fewest(blocks, lambda wider: sums.allowed(every - wider, wider, PART_OF_RUNS))
        blocks = sums.costs("half", tuple(name for name in sums.names if name not in in_float))
        in_runs = every - in_float if runs_only else fewest(blocks, lambda wider: sums.allowed(wider, in_float))
    return sums.precision(in_runs, in_float), max(sums.errors_of(in_runs, in_float)[: len(sums.errors)])


def steps_of(graph: Graph) -> frozenset[str]:
    """The values that a step function makes, such as round: a small change of what it reads changes nothing, or much.

    So the moves of rounding.py say nothing of what rounding costs in front of it.
    """
    return frozenset(
        node.output.name for node in graph.nodes
        if not STEPS.isdisjoint(operations(node.epilogue))
        or isinstance(node.operation, Reduction) and not STEPS.isdisjoint(operations(node.operation.body))
    )


def is_quantised(graph: Graph) -> bool:
    """Returns whether most convolutions and products read the levels of a quantised network: what round makes."""
    steps = steps_of(graph)
    layers = [node for node in graph.nodes if isinstance(node.operation, (Convolution, Product))]
    return 2 * sum(not steps.isdisjoint(node.reads) for node in layers) > len(layers)


def ends_in_softmax(graph: Graph) -> bool:
    """Returns whether exponentials are summed behind the last convolutions and products."""
    inner: set[str] = set()  # what a convolution or a product depends on
    for node in reversed(graph.nodes):
        if isinstance(node.operation, (Convolution, Product)) or node.output.name in inner:
            inner.update(node.reads)
    exponentials = {node.output.name for node in graph.nodes if "exp" in operations(node.epilogue)}
    return any(
        isinstance(node.operation, Reduction) and node.operation.kind == "sum" and node.output.name not in inner
        and ("exp" in operations(node.operation.body) or not exponentials.isdisjoint(node.reads))
        for node in graph.nodes
    )


def fewest(blocks: Sequence[Block], allowed: Callable[[frozenset[str]], bool]) -> frozenset[str]:
    """The values of the fewest first blocks that are allowed, by bisection. All of them are: they are not asked for."""
    def first(count: int) -> frozenset[str]:
        return frozenset(name for block in blocks[:count] for name in block.names)

    low, high = -1, len(blocks)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if allowed(first(middle)) else (middle, high)
    return first(high)


def together(blocks: Sequence[Block]) -> float:
    """The error of all these blocks. Rounding errors are independent: they add up as the root of the squares' sum."""
    return float(sum(block.error**2 for block in blocks) ** 0.5)


def by_worth(blocks: Sequence[Block]) -> list[Block]:
    """The blocks, first those that cost most for their size: the squares of errors add up, and so do sizes."""
    return sorted(blocks, key=lambda block: -(block.error**2) / max(block.size, 1))


def without_room(blocks: Sequence[Block], most: float) -> list[Block]:
    """The blocks that keep float, for the others to cost at most `most` together.

    A block that costs more than is left is passed over; smaller ones behind it may still be in half.
    """
    half: list[Block] = []
    for block in reversed(by_worth(blocks)):
        half += [block] if together([*half, block]) <= most else []
    return [block for block in blocks if block not in half]


@dataclass(frozen=True)
class _Measured:
    """A graph on a device: plans of it, and their results for the inputs, each measured at its first use.

    given: the user's inputs; if there are none, drawings are measured on. compared: whether a plan's errors are its
    differences from the float plan, not what its own Rounding says. clear: an error on a pair of drawings that is so
    small says enough: no others are needed, if these are not small as well.
    """

    prepared: Prepared
    context: Context
    progress: Progress | None
    given: tuple[Arrays, ...]
    splits: int
    compared: bool
    clear: float
    roundings: dict[Session, Rounding] = field(default_factory=dict)

    @property
    def inputs(self) -> tuple[Arrays, ...]:
        """The inputs on which is measured."""
        return self._pictures[0]

    @property
    def guards(self) -> tuple[Arrays, ...]:
        """Inputs that show values which may come near 65504, but no errors."""
        return self._pictures[1]

    @cached_property
    def _pictures(self) -> tuple[tuple[Arrays, ...], tuple[Arrays, ...]]:
        graph = self.prepared.graph
        return (self.given, ()) if self.given else (drawn_inputs(graph), guarding_inputs(graph))

    def plan(self, float16: Float16, precision: Precision) -> Plan:
        return self.prepared.plan(replace(self.prepared.config, float16=float16, precision=precision))

    @cached_property
    def session(self) -> Session:
        """The float plan on the device."""
        return Session(self.plan(0, Precision()), self.context, self.progress)

    @cached_property
    def in_float(self) -> tuple[list[dict[str, Array]], dict[str, float]]:
        """The outputs in float for each of the inputs, and `largest` by these runs.

        If plans are not compared, only for a pair of the inputs, and by the half plan's kernels if they can. Its
        weights are halves: one that is infinite says nothing of float.
        """
        wide = None if self.compared else widened(self.plain.plan)
        if wide is not None:
            exact, found = self._looked_at(Session(wide, self.context, self.progress, [self.plain]))
            if all(map(numpy.isfinite, found.values())):
                return exact, found
        return self._looked_at(self.session)

    def _looked_at(self, session: Session) -> tuple[list[dict[str, Array]], dict[str, float]]:
        exact, found = look(session, self.inputs if self.compared else self.inputs[:FIRST], self.progress)
        outputs, guards = look(session, self.guards, self.progress)
        is_served = not _out_of_range(guards) or any(map(is_lost, self.guarded[0], outputs))
        return exact, _with_guards(found, guards) if is_served else found

    @cached_property
    def guarded(self) -> tuple[list[dict[str, Array]], dict[str, float]]:
        """The outputs of the half plan for each of the guarding inputs, and `largest` by these runs."""
        return look(self.plain, self.guards, self.progress)

    def loses_outputs(self, session: Session) -> bool:
        """Returns whether a plan loses an output on a guarding input that the float plan has; see `is_lost`."""
        made = self.guarded[0] if session is self.plain else [session.run(inputs) for inputs in self.guards]
        if all(numpy.isfinite(array).all() and array.any() for each in made for array in each.values()):
            return False  # without the float plan, which may not be compiled yet
        return any(is_lost(each, self.session.run(inputs)) for each, inputs in zip(made, self.guards, strict=True))

    @cached_property
    def least(self) -> dict[str, float]:
        """The least scale of every output."""
        return least_scales(self.prepared.graph)

    @cached_property
    def scales(self) -> dict[str, float]:
        """The scale of every output in float on the inputs; see `scales_of`."""
        return scales_of(self.exact, self.least)

    @property
    def exact(self) -> list[dict[str, Array]]:
        """The outputs in float, for each of the inputs."""
        return self.in_float[0]

    @cached_property
    def by_half(self) -> dict[str, float] | None:
        """`largest` by the half plan alone; None if a half comes near 65504 there, or if plans are compared."""
        if self.compared:
            return None
        found = _with_guards(self.rounding(self.plain).largest, self.guarded[1])
        stored = self.plain.plan.placements
        # OpenCL lets images make 65504 of what is more.
        near = any(not found[name] * MARGIN < HALF_MAX for name in found if stored[name].storage.dtype == FLOAT16)
        return None if near else found

    @property
    def largest(self) -> dict[str, float]:
        """The largest magnitude of every value on all inputs; NaN if an element is NaN."""
        return self.in_float[1] if self.by_half is None else self.by_half

    def rounding(self, session: Session) -> Rounding:
        """Returns the cost of rounding for a plan on the inputs."""
        if session not in self.roundings:
            found = rounding_of(session, self.prepared.graph, self.inputs[:FIRST], self.progress)
            more = self.inputs[FIRST:]
            numbers = sum(array.size for arrays in self.inputs[:PAIR] for array in arrays.values())
            if more and (self.compared or numbers < ENOUGH_NUMBERS or not max(found.errors) <= self.clear):
                found = found.with_more(more, self.progress)
            self.roundings[session] = found
        return self.roundings[session]

    def errors(self, session: Session) -> list[float]:
        """The relative error of the outputs of a plan, for each of the inputs."""
        if not self.compared:
            return self.rounding(session).errors
        pairs = zip(self.inputs, self.exact, strict=True)
        return [relative_error(session.run(i), exact, self.scales) for i, exact in pairs]

    def new_session(self, float16: Float16, precision: Precision, lenders: Sequence[Session] = ()) -> Session:
        """Another plan on the device. lenders: sessions of which it takes kernels that it has in common with them."""
        return self._session_of(self.plan(float16, precision), lenders)

    def _session_of(self, plan: Plan, lenders: Sequence[Session] = ()) -> Session:
        known = [self.__dict__[name] for name in ("session", "plain") if name in self.__dict__]
        return Session(plan, self.context, self.progress, [*known, *lenders])

    @cached_property
    def near(self) -> Precision:
        """The Precision that keeps float for values that may overflow half, or are not finite in float either."""
        if self.by_half is not None:
            return Precision()
        over = {name: value for name, value in self.largest.items() if not value * MARGIN <= HALF_MAX}
        reasons = {n: NEAR.format(value) if numpy.isfinite(value) else NOT_FINITE for n, value in over.items()}
        return Precision(frozenset(over), reasons=reasons)

    @cached_property
    def plain(self) -> Session:
        """The plan that stores everything in half. Pictures are drawn while its programs are built."""
        plan = self.plan(1, Precision())
        with building_numbers(self.context), ThreadPoolExecutor(1) as beside:
            drawn = beside.submit(copy_context().run, lambda: self._pictures)
            made = self._session_of(plan)
            drawn.result()
        return made

    @cached_property
    def half(self) -> Session:
        """The plan that stores everything in half that is not near 65504."""
        return self.new_session(1, self.near) if self.near.storage else self.plain

    def split(
        self, blocks: list[Block], measure: Callable[[tuple[str, ...]], Block], what: str,
        is_split: Callable[[Sequence[Block]], bool],
    ) -> list[Block]:
        """The blocks, the most sensitive first: the most sensitive of several values is split and measured repeatedly.

        is_split: whether no block has to be split any more.
        """
        for number in range(self.splits):
            several = [block for block in blocks if len(block.names) > 1]
            if not several or is_split(blocks):
                break
            largest = several[0]
            if self.progress:
                self.progress(number, self.splits, f"measuring what {what}")
            names, count = largest.names, min(PARTS_OF_BLOCK, len(largest.names))
            ends = [len(names) * part // count for part in range(count + 1)]
            parts = [names[start:end] for start, end in pairwise(ends)]
            blocks = [block for block in blocks if block is not largest]
            blocks = sorted([*blocks, *map(measure, parts)], key=lambda block: -block.error)
        return blocks


@dataclass
class _Costs:
    """The costs of the values of a half plan. A second question goes on where the first one ended.

    blocks: the values, by their costs on the input on which all of them cost most; on_another: those of blocks on
    another input.
    """

    measured: _Measured
    session: Session
    blocks: list[Block] = field(default_factory=list)
    on_another: dict[tuple[str, ...], float] = field(default_factory=dict)

    def too_sensitive(self, most: float, most_at_first: float) -> frozenset[str]:
        """The values that keep float, for the others to cost at most `most`. most_at_first: in the first question."""
        rounding, names = self.measured.rounding(self.session), tuple(self.groups)
        if not (most and names):
            return self._values(names)
        hardest, *others = sorted(range(len(rounding.errors)), key=lambda number: -rounding.errors[number])
        units = int(min(max(BEYOND_ANEW * rounding.errors[hardest] / most_at_first, LEAST_UNITS), MOST_UNITS))
        little = LITTLE * sum(group.size for group in self.groups.values())

        def block(part: tuple[str, ...]) -> Block:
            cost = rounding.cost_of(frozenset(part), hardest, units)
            return Block(part, cost, sum(self.groups[name].size for name in part))

        def is_split(blocks: Sequence[Block]) -> bool:
            return sum(block.size for block in without_room(blocks, most) if len(block.names) > 1) <= little

        whole = self.blocks or [Block(names, float("inf"), sum(group.size for group in self.groups.values()))]
        self.blocks = self.measured.split(whole, block, "half storage costs", is_split)
        wider = without_room(self.blocks, most)
        for each in (each for each in self.blocks if others and each not in wider):
            if each.names not in self.on_another:
                self.on_another[each.names] = rounding.cost_of(frozenset(each.names), others[0], units)
        known = [replace(b, error=max(b.error, self.on_another.get(b.names, 0.0))) for b in self.blocks]
        return self._values(tuple(name for block in without_room(known, most) for name in block.names))

    @property
    def groups(self) -> dict[str, Group]:
        """The groups of the plan, by their first value."""
        return self.measured.rounding(self.session).groups

    def _values(self, names: tuple[str, ...]) -> frozenset[str]:
        return frozenset(value for name in names for value in self.groups[name].values)


@dataclass(frozen=True)
class _Judged:
    """Inputs, their outputs in float, the scales of these, and the outputs' relative error with sums in float.

    room: what sums may add to that error.
    """

    inputs: Arrays
    outputs: Arrays
    scales: Mapping[str, float]
    error: float
    room: float


@dataclass(frozen=True)
class _Sums:
    """Plans of one storage that differ in how convolutions sum, and how far their outputs are from float.

    wide: the plan with sums in float. errors: its errors on the measured inputs.
    """

    measured: _Measured
    stored: Precision
    wide: Session
    errors: tuple[float, ...]
    bound: float

    @cached_property
    def narrow(self) -> Session:
        """The plan with sums in half."""
        return self.measured.new_session(2, self.stored, [self.wide])

    @cached_property
    def in_runs(self) -> Session:
        """The plan with sums in short runs."""
        runs = self.precision(frozenset(self.names), frozenset())
        return self.measured.new_session(2, runs, [self.wide, self.narrow])

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The values whose nodes can sum in half."""
        narrow = (launch for launch in self.narrow.plan.launches if launch.sums == "half")
        return tuple(name for launch in narrow for name in launch.values)

    @cached_property
    def judged(self) -> list[_Judged]:
        """The inputs on which sums are judged: the measured ones, then others.

        Storage alone may be over the bound on another input, which then says nothing of sums and is left out.
        """
        measured = self.measured
        found = [
            _Judged(inputs, exact, measured.scales, error, self.room(error))
            for inputs, exact, error in zip(measured.inputs, measured.exact, self.errors, strict=True)
        ]
        near, also_near, far = other_inputs(measured.prepared.graph, measured.inputs)
        for inputs in (near, also_near, far):
            exact = measured.session.run(inputs)
            scales = scales_of([exact], measured.least)
            error = relative_error(self.wide.run(inputs), exact, scales)
            most, room = (MARGIN * self.bound, self.bound) if inputs is far else (self.bound, self.room(error))
            found += [_Judged(inputs, exact, scales, error, room)] if error <= most else []
        return found

    def room(self, error: float) -> float:
        """The error that sums may add to that of storage, in the measured range."""
        return SHARE_OF_SUMS * max(0.0, self.bound - error)

    def precision(self, runs: frozenset[str], in_float: frozenset[str]) -> Precision:
        return replace(self.stored, arithmetic=in_float, runs=runs)

    def errors_of(self, runs: frozenset[str], in_float: frozenset[str]) -> list[float]:
        """The errors on what is judged with these values summed in runs and in float, the others in half."""
        session = self.narrow
        if runs or in_float:
            lenders = [self.wide, self.narrow, self.in_runs]
            session = self.measured.new_session(2, self.precision(runs, in_float), lenders)
        return [relative_error(session.run(each.inputs), each.outputs, each.scales) for each in self.judged]

    def allowed(self, runs: frozenset[str], in_float: frozenset[str], part: float = 1.0) -> bool:
        """Returns whether this part of each room is enough for these sums."""
        errors = zip(self.errors_of(runs, in_float), self.judged, strict=True)
        return all(error <= each.error + part * each.room for error, each in errors)

    @cached_property
    def worst(self) -> tuple[Arrays, dict[str, Array]]:
        """Returns the judged input for which sums in half cost most, and its outputs with sums in float."""
        errors = zip(self.errors_of(frozenset(), frozenset()), self.judged, strict=True)
        _, number = max((error - each.error - each.room, number) for number, (error, each) in enumerate(errors))
        inputs = self.judged[number].inputs
        return inputs, self.wide.run(inputs)

    def costs(self, sums: Sums, names: tuple[str, ...]) -> list[Block]:
        """The values in blocks, the most sensitive first, by the error if only a block sums so, and the rest in float.

        sums: "half" or "runs". The error is the difference from the outputs with all sums in float. Blocks that cost
        less than half of the least room together stay whole.
        """
        inputs, expected = self.worst
        lenders = [self.wide, self.narrow, *([self.in_runs] if sums == "runs" else [])]

        def block(part: tuple[str, ...]) -> Block:
            runs = frozenset(part) if sums == "runs" else frozenset()
            precision = self.precision(runs, frozenset(self.names) - frozenset(part))
            made = self.measured.new_session(2, precision, lenders).run(inputs)
            return Block(part, relative_error(made, expected))

        enough = min(each.room for each in self.judged) / 2

        def is_split(blocks: Sequence[Block]) -> bool:
            return together([block for block in blocks if len(block.names) > 1]) <= enough

        return self.measured.split([Block(names, float("inf"))], block, f"sums in {sums} cost", is_split)
