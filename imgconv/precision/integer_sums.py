"""Reports which launches of a quantised network sum integers, and why the others sum in fp32."""

from __future__ import annotations

from imgconv.compiling.plan import Launch, Plan
from imgconv.graph.nodes import Graph
from imgconv.kernels.conv.problem import Problem, Specialisation
from imgconv.kernels.separable import problem as separable
from imgconv.kernels.target import Target
from imgconv.precision.choose import is_quantised


def integer_sums(plan: Plan, graph: Graph, target: Target) -> dict[str, str]:
    """The text "integers", or "fp32: " and a reason, of each launch that multiplies and adds, by its name.

    target: of the plan. Empty if the network is not quantised.
    """
    launches = [launch for launch in plan.launches if launch.multiply_adds]
    if not is_quantised(graph) and all(_why_fp32_sums(launch) for launch in launches):
        return {}
    return {launch.name: _text(launch, target) for launch in launches}


def _text(launch: Launch, target: Target) -> str:
    chosen = launch.choice and launch.choice.specialisation
    if isinstance(chosen, Specialisation) and chosen.integers:
        return "integers"
    problem = launch.choice and launch.choice.problem
    if isinstance(problem, separable.Problem) and problem.integers:
        return "integers"
    reason = _why_fp32_sums(launch)
    if not reason and not target.is_mobile:
        reason = "only phone GPUs sum integers"
    if not reason and not target.dot_product:
        reason = "the device has no byte dot product that passed the test"
    return f"fp32: {reason or 'expected to be faster'}"


def _why_fp32_sums(launch: Launch) -> str:
    """Returns why no kernel may sum integers in place of a launch; "" if one may."""
    problem = launch.choice and launch.choice.problem
    if isinstance(problem, separable.Problem):
        problem = problem.pointwise
    if isinstance(problem, Problem):
        return problem.why_float_sums
    return f"{launch.source.path} has no integer variant"
