"""Alternatives to a plan's launches, for the player: other specialisations that read and write the same storages.

They only need another kernel source, not other weights, so the player can replace a wrong or slow launch by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from imgconv.compiling.choose import ChoiceRequest, CostModelChooser
from imgconv.compiling.lower import lower
from imgconv.compiling.plan import Launch, Plan
from imgconv.compiling.shared_packings import packing_key
from imgconv.config import Config
from imgconv.errors import ResourceError
from imgconv.graph.nodes import Graph
from imgconv.kernels.conv.problem import Specialisation as ConvSpecialisation
from imgconv.kernels.target import LARGE_GPU, Target
from imgconv.kernels.template_interface import Choice, Problem, Specialisation

ALTERNATIVES = 3  # of a launch, at most


def alternatives_of(
    plan: Plan, graph: Graph, config: Config, target: Target, states: Mapping[str, str]
) -> Mapping[int, tuple[Launch, ...]]:
    """Returns the alternatives of each launch by its number.

    graph: after the passes. states: see `lower`.
    """
    found: dict[int, tuple[Launch, ...]] = {}
    # Those of launches that were not profitable too.
    choices = {each.rejected.problem: each.rejected for each in plan.launches if each.rejected}
    choices |= {each.choice.problem: each.choice for each in plan.launches if each.choice}
    numbers = {(each.kind, each.name): number for number, each in enumerate(plan.launches)}
    for turn in range(ALTERNATIVES):
        try:
            other = lower(graph, config, target, states, _AlternativeChooser(choices, turn))
        except ResourceError:  # the candidates take more than the device has
            continue
        for launch in other.launches:
            number = numbers.get((launch.kind, launch.name))
            if number is not None and _is_alternative(launch, (plan.launches[number], *found.get(number, ()))):
                found[number] = (*found.get(number, ()), launch)
    return found


def _is_alternative(launch: Launch, known: tuple[Launch, ...]) -> bool:
    """Returns whether a launch is new, but has the arguments of known ones."""
    def arguments(each: Launch) -> list[object]:
        return [argument.storage for argument in each.source.arguments]

    def what_it_computes(each: Launch) -> object:
        return each.source.text, each.source.global_size, each.source.local_size

    return arguments(launch) == arguments(known[0]) and what_it_computes(launch) not in map(what_it_computes, known)


@dataclass(frozen=True)
class _AlternativeChooser:
    """A chooser of another specialisation for the problems of a plan, which reads the same packed weights.

    choices: those of the plan. turn: the number of alternatives that are before it.
    """

    choices: Mapping[Problem, Choice]
    turn: int
    known: dict[Problem, Choice] = field(default_factory=dict)

    def choose_specialisation(self, request: ChoiceRequest) -> Choice | None:
        """See Chooser. The plan's own choice where it has no other."""
        own = self.choices.get(request.problem)
        if own is None:
            return CostModelChooser().choose_specialisation(request)
        if not own.profitable:
            return own
        if request.problem not in self.known:
            others = list(_other_specialisations(request, own.specialisation))
            chosen = others[self.turn] if self.turn < len(others) else own.specialisation
            self.known[request.problem] = replace(own, specialisation=chosen)
        return self.known[request.problem]


def _other_specialisations(request: ChoiceRequest, own: Specialisation) -> Iterator[Specialisation]:
    """Other specialisations: one that keeps lines of the input, as larger GPUs do, then of the least predicted time
    one of each block, then of each work group.
    """
    here, larger = (
        sorted(
            (each for each in request.template.candidates(request.problem, target) if _share_packing(each, own)),
            key=request.predicted,
        )
        for target in (request.target, replace(request.target, compute_units=LARGE_GPU))
    )
    lines = [each for each in larger if isinstance(each, ConvSpecialisation) and each.keep == "line"]
    blocks: dict[Specialisation, Specialisation] = {}
    for each in (own, *here):
        blocks.setdefault(_without_work_group(each), each)
    ordered = dict.fromkeys((*lines[:1], *blocks.values(), *here))
    yield from (each for each in ordered if each != own)


def _share_packing(one: Specialisation, other: Specialisation) -> bool:
    """Returns whether two specialisations may read the same packed weights."""
    if isinstance(one, ConvSpecialisation) and isinstance(other, ConvSpecialisation):
        return packing_key(one) == packing_key(other)
    return True


def _without_work_group(each: Specialisation) -> Specialisation:
    """A specialisation without its work group."""
    return replace(each, local_size=None) if isinstance(each, ConvSpecialisation) else each
