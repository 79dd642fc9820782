"""Chooses the specialisation of its template for each step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Protocol

from imgconv.config import Config
from imgconv.errors import ResourceError
from imgconv.kernels.step import AnyTemplate, Choice, Problem, Specialisation, Step
from imgconv.kernels.target import Target


@dataclass(frozen=True)
class Request:
    """A choice to make: the specialisation of a template for the launch that computes the value `name`."""

    template: AnyTemplate
    problem: Problem
    target: Target
    config: Config
    name: str

    def cost(self, specialisation: Specialisation) -> float:
        """The specialisation's cost, predicted by the template's cost model."""
        return self.template.cost(self.problem, specialisation, self.target)

    def choice(self, specialisation: Specialisation) -> Choice:
        """The Choice of this specialisation, whatever it costs."""
        return Choice(self.template.name, self.problem, specialisation, self.cost(specialisation))


class Chooser(Protocol):
    """Chooses one of a template's candidates."""

    def choose(self, request: Request) -> Choice | None:
        """The choice. None if the template has no candidate; the steps in `Step.instead` are then taken."""
        ...


class CostModel:
    """Chooses the candidate with the lowest predicted cost."""

    def choose(self, request: Request) -> Choice | None:
        """See Chooser."""
        return least_cost(request.template, request.problem, request.target)


@lru_cache(4096)
def least_cost(template: AnyTemplate, problem: Problem, target: Target) -> Choice | None:
    """The candidate with the lowest predicted cost, and whether it pays. None if there is no candidate."""
    costs = [(template.cost(problem, each, target), each) for each in template.candidates(problem, target)]
    if not costs:
        return None
    cost, chosen = min(costs, key=lambda each: each[0])
    without = template.without(problem, target)
    return Choice(template.name, problem, chosen, cost, without, cost <= without)


@dataclass(frozen=True)
class Without:
    """A chooser that leaves out specialisations of problems: kernels that the driver cannot build.

    If nothing else computes the step, the other chooser's choice stays.
    """

    otherwise: Chooser
    left_out: frozenset[tuple[Problem, Specialisation]]

    def choose(self, request: Request) -> Choice | None:
        """The other chooser's choice if it is not left out, else the candidate with the lowest predicted cost."""
        choice, problem = self.otherwise.choose(request), request.problem
        if choice is None or (problem, choice.specialisation) not in self.left_out:
            return choice
        candidates = request.template.candidates(problem, request.target)
        costs = {each: request.cost(each) for each in candidates if (problem, each) not in self.left_out}
        if not costs:
            return replace(choice, pays=False)
        best = min(costs, key=lambda each: costs[each])
        return replace(
            choice, specialisation=best, predicted=costs[best], pays=costs[best] <= choice.without, seconds=None
        )


def choose(steps: Sequence[Step], chooser: Chooser, target: Target, config: Config) -> list[Step]:
    """The steps with their choices. A step that does not pay is replaced by its `instead` steps."""
    made: list[Step] = []
    for step in steps:
        if step.template is None:
            made.append(replace(step, instead=tuple(choose(step.instead, chooser, target, config))))
            continue
        assert step.problem is not None
        choice = chooser.choose(Request(step.template, step.problem, target, config, step.name))
        if choice is not None and (choice.pays or not step.instead):
            made += [*choose(step.before, chooser, target, config), replace(step, choice=choice)]
            continue
        if not step.instead:
            raise ResourceError(
                f"{step.template.file} has no kernel with work groups of at most {target.max_work_group} work items, "
                "which is what this device takes", step.name, step.nodes[-1].output.shape,
            )
        *before, last = choose(step.instead, chooser, target, config)
        made += [*before, replace(last, declined=choice or last.declined)]
    return made
