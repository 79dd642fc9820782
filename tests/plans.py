"""Plans of small graphs, and tensors to plan for."""

from __future__ import annotations

from graphs import check_plan, const, target

from imgconv.compiling.lower import lower
from imgconv.compiling.plan import Plan
from imgconv.config import Config
from imgconv.graph.view import View, axis_variables
from imgconv.kernels.layout import Texture
from imgconv.kernels.target import Target
from imgconv.passes import run_passes
from imgconv.tensor import Tensor, build_graph, gather


def rows(table: Tensor, index: Tensor) -> Tensor:
    """table[index] of a matrix and a vector."""
    axes = axis_variables((index.shape[0], table.shape[1], table.shape[0]))
    seen = View((index.shape[0], table.shape[1], table.shape[0]), table.shape, (axes[2], axes[1]))
    return gather(table, seen, [index.reshape(-1, 1)])


def branch(x: Tensor, channels: int, seed: int) -> Tensor:
    return x.conv2d(const(channels, x.shape[1], 1, 1, seed=seed)).relu()


def planned(config: Config | None = None, on: Target | None = None, **outputs: Tensor) -> Plan:
    """The checked plan of a graph after its passes."""
    on = on or target()
    plan = lower(run_passes(build_graph(outputs)), config or Config(), on)
    check_plan(plan, on.limits)
    return plan


def kinds(plan: Plan) -> list[str]:
    return [launch.kind for launch in plan.launches]


def by_name(plan: Plan, name: str) -> Texture:
    (found,) = [t for t in plan.textures if t.name == name]
    return found
