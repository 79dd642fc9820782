"""Chooses, for each step, one specialisation of its template."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Protocol

from imgconv.config import Config
from imgconv.errors import ResourceError
from imgconv.kernels.device_model.time_range import TimeRange, index_of_best
from imgconv.kernels.target import Target
from imgconv.kernels.template_interface import AnyLaunchStep, AnyTemplate, Choice, FixedProblem, Problem, Specialisation


@dataclass(frozen=True)
class ChoiceRequest:
    """A choice to make: the specialisation of a template for the launch that computes the value `name`."""

    template: AnyTemplate
    problem: Problem
    target: Target
    config: Config
    name: str

    def predicted(self, specialisation: Specialisation) -> TimeRange:
        """The specialisation's time, predicted by the device model."""
        return self.template.predict(self.problem, specialisation, self.target)

    def choice(self, specialisation: Specialisation) -> Choice:
        """The Choice of this specialisation, however long it takes."""
        return Choice(self.template.name, self.problem, specialisation, self.predicted(specialisation))


class Chooser(Protocol):
    """Chooses one of a template's candidates."""

    def choose_specialisation(self, request: ChoiceRequest) -> Choice | None:
        """The choice. None if the template has no candidate; `LaunchStep.fallback` is then taken."""
        ...


class CostModelChooser:
    """Chooses the candidate with the least predicted time."""

    def choose_specialisation(self, request: ChoiceRequest) -> Choice | None:
        return cheapest_choice(request.template, request.problem, request.target)


@lru_cache(4096)
def cheapest_choice(template: AnyTemplate, problem: Problem, target: Target) -> Choice | None:
    """The candidate with the least predicted time, and whether it is profitable. None if there is no candidate."""
    candidates = template.candidates(problem, target)
    if not candidates:
        return None
    times = [template.predict(problem, each, target) for each in candidates]
    best, baseline = index_of_best(times), template.baseline(problem, target)
    profitable = index_of_best((times[best], baseline)) == 0
    return Choice(template.name, problem, candidates[best], times[best], baseline, profitable)


@dataclass(frozen=True)
class ExcludingChooser:
    """A chooser that leaves out specialisations of problems: kernels that the driver cannot build.

    If nothing else computes the step, the other chooser's choice stays.
    """

    otherwise: Chooser
    excluded: frozenset[tuple[Problem, Specialisation]]

    def choose_specialisation(self, request: ChoiceRequest) -> Choice | None:
        """The other chooser's choice if it is not excluded, else the candidate with the least predicted time."""
        choice, problem = self.otherwise.choose_specialisation(request), request.problem
        if choice is None or (problem, choice.specialisation) not in self.excluded:
            return choice
        candidates = request.template.candidates(problem, request.target)
        left = [each for each in candidates if (problem, each) not in self.excluded]
        if not left:
            return replace(choice, profitable=False)
        times = [request.predicted(each) for each in left]
        best = index_of_best(times)
        profitable = index_of_best((times[best], choice.baseline)) == 0
        return replace(choice, specialisation=left[best], predicted=times[best], profitable=profitable, seconds=None)


@dataclass(frozen=True)
class ChosenStep:
    """A step with its choice. rejected: the choice of a step that is not profitable, whose fallback ends with this."""

    step: AnyLaunchStep
    choice: Choice
    rejected: Choice | None = None


def choose_all(steps: Sequence[AnyLaunchStep], chooser: Chooser, target: Target, config: Config) -> list[ChosenStep]:
    """The steps with their choices. A step that is not profitable is replaced by its fallback."""
    made: list[ChosenStep] = []
    for step in steps:
        choice = chooser.choose_specialisation(
            ChoiceRequest(step.template, step.problem, target, config, step.output_name)
        )
        earlier = [] if choice is None else choose_all(step.before, chooser, target, config)
        # A fixed launch before this one, such as a pooling, runs in either case, and the baseline leaves it out.
        times = [e.choice.predicted for e in earlier if not isinstance(e.choice.problem, FixedProblem)]
        if choice is not None and index_of_best((sum(times, choice.predicted), choice.baseline)) > 0:
            choice = replace(choice, profitable=False)
        if choice is not None and (choice.profitable or not step.fallback):
            made += [*earlier, ChosenStep(step, choice)]
        elif step.fallback:
            *before, last = choose_all(step.fallback, chooser, target, config)
            made += [*before, replace(last, rejected=choice or last.rejected)]
        else:
            raise ResourceError(
                f"{step.template.file} has no kernel with work groups of at most {target.max_work_group} work items, "
                "which is this device's limit", step.output_name, step.nodes[-1].output.shape,
            )
    return made
