"""Compile and run graphs on a device the way a test wants them: other limits, another kind, other specialisations."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy
import pytest
from graphs import Taking
from hypothesis import HealthCheck, settings
from problems import Instance, Problem

from imgconv.build_options import DRIVERS_DEFAULTS
from imgconv.cl.context import Context
from imgconv.cl.building.program import Program
from imgconv.compiling.choose import Chooser, CostModelChooser
from imgconv.compiling.compiler import PreparedGraph, with_image_limit
from imgconv.compiling.plan import Plan
from imgconv.config import Config
from imgconv.graph.nodes import Graph
from imgconv.kernels.conv import problem as conv
from imgconv.kernels.target import Target
from imgconv.passes import PIPELINE, run_passes
from imgconv.passes.elementwise import merge_elementwise
from imgconv.passes.epilogues import fuse_epilogues
from imgconv.passes.scales import fold_scales
from imgconv.runtime import session
from imgconv.runtime.programs import PlanPrograms
from imgconv.runtime.session import Session
from imgconv.loading.device_target import target_of
from imgconv.tensor import Tensor, build_graph

# Draws are the same in every run: a failure is repeated, and the drivers' binaries come from pyopencl's cache.
device_settings = functools.partial(
    settings, deadline=None, derandomize=True, print_blob=False, suppress_health_check=list(HealthCheck)
)
# The numbers of a make-believe CPU and GPU, by which plans are the same on every machine.
CPU = {"compute_units": 4, "vector_floats": 8, "local_memory_bytes": 1 << 15}
GPU = {"compute_units": 24, "local_memory_bytes": 1 << 15}
UNFUSED = tuple(p for p in PIPELINE if p not in (merge_elementwise, fuse_epilogues, fold_scales))


def target(context: Context, kind: str = "cpu", **changes: Any) -> Target:
    """The device as a Target, with written numbers in place of this machine's.

    'gpu' gives the plans of a GPU, with images and fixed work groups, to any device.
    """
    made = target_of(context.info)
    if kind == "gpu":
        made = replace(made, kind="gpu", linear=None, native_functions=True)
    numbers = CPU if made.kind == "cpu" else GPU
    return replace(made, **{**numbers, **changes})


@dataclass(frozen=True)
class Wanted:
    """A device, and what chooses its kernels."""

    target: Target
    chooser: Chooser = CostModelChooser()


def choosing(on: Target, **functions: Callable[[Any, str, int], Any]) -> Wanted:
    """The device with kernels that functions choose; see graphs.Taking."""
    return Wanted(on, Taking(**functions))


def run_graph(
    graph: Graph, inputs: Mapping[str, Any], context: Context, config: Config = Config(),
    wanted: Target | Wanted | None = None, fused: bool = True,
) -> tuple[Plan, dict[str, Any]]:
    """The plan and every output. wanted: the device as it is by default; fused=False leaves the fusing passes out."""
    wanted = wanted or target(context)
    on = Wanted(wanted) if isinstance(wanted, Target) else wanted
    optimised = run_passes(graph, PIPELINE if fused else UNFUSED)
    plan = PreparedGraph(optimised, config, with_image_limit(on.target, config), on.chooser).plan()
    return plan, session_of(plan, context).run(inputs)


class Lender:
    """Kernels of the sessions before, for those that follow: most plans of the tests read and write some alike."""

    KEPT = 500
    build_options = DRIVERS_DEFAULTS

    def __init__(self) -> None:
        self.kernels: OrderedDict[str, tuple[Program, str]] = OrderedDict()

    def programs(self, plan: Plan, context: Context, *others: Any) -> PlanPrograms:
        """Programs for the plan, which lack the kernels that are not here yet. others: as Session gives them."""
        return PlanPrograms(plan, context, [self])

    def keep(self, made: PlanPrograms) -> None:
        """Keeps the kernels of a session."""
        for text, kernel in made.kernels.items():
            self.kernels[text] = kernel
            self.kernels.move_to_end(text)
        while len(self.kernels) > self.KEPT:
            self.kernels.popitem(last=False)


LENDERS: dict[Context, Lender] = {}


def session_of(plan: Plan, context: Context) -> Session:
    """A session whose kernels are those of sessions before where their texts are equal; it shares no memory."""
    lender = LENDERS.setdefault(context, Lender())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "PlanPrograms", lender.programs)
        made = Session(plan, context)
    lender.keep(made.programs)
    return made


def run_tensors(
    outputs: Mapping[str, Tensor], inputs: Mapping[str, Any], context: Context, config: Config = Config(),
    wanted: Target | Wanted | None = None, fused: bool = True,
) -> tuple[Plan, dict[str, Any]]:
    """`run_graph` for the graph of the named outputs."""
    return run_graph(build_graph(outputs), inputs, context, config, wanted, fused)


def run_instances(
    instances: Sequence[Instance], context: Context, config: Config = Config(), wanted: Target | Wanted | None = None,
    fused: bool = True,
) -> tuple[Plan, list[Any]]:
    """The plan and the results of the instances, all in one graph."""
    inputs = {name: array for instance in instances for name, array in instance.inputs.items()}
    outputs = {f"y{number}": instance.output for number, instance in enumerate(instances)}
    plan, made = run_tensors(outputs, inputs, context, config, wanted, fused)
    return plan, [made[name] for name in outputs]


def check(
    problems: Sequence[Problem], context: Context, config: Config = Config(), wanted: Target | Wanted | None = None,
    fused: bool = True,
) -> Plan:
    """Run the problems in one graph; fail with every problem whose result is wrong."""
    instances = [problem.instance() for problem in problems]
    plan, results = run_instances(instances, context, config, wanted, fused)
    wrong = [
        f"{problem}\n    {difference}"
        for number, (problem, instance, result) in enumerate(zip(problems, instances, results, strict=True))
        if (difference := describe_difference(result, instance, config, f"y{number}"))
    ]
    assert not wrong, f"{len(wrong)} of {len(problems)} are wrong:\n" + "\n".join(wrong)
    return plan


def check_way(problems: Sequence[Problem], context: Context, way: tuple[Config, str]) -> Plan:
    """`check` with the settings and the kind of device that the fixture `way` gives."""
    return check(problems, context, way[0], target(context, way[1]))


def describe_difference(result: Any, instance: Instance, config: Config, name: str) -> str:
    """Describes the wrong elements of a result of this name; empty if all are right."""
    expected = instance.expected
    if result.shape != expected.shape:
        return f"shape {result.shape}, not {expected.shape}"
    off = numpy.abs(result.astype(numpy.float64) - expected)
    allowed = numpy.broadcast_to(instance.allowed(config.float16, name in config.precision.runs), expected.shape)
    bad = ~(off <= allowed)
    if not bad.any():
        return ""
    where = tuple(int(n) for n in numpy.argwhere(bad)[0])
    return (
        f"{bad.sum()} of {bad.size} elements; first at {where}: {result[where]:.9g}, not {expected[where]:.9g} "
        f"(allowed {allowed[where]:.2g})"
    )


class Choose:
    """A chooser of specialisations that takes the next one of those that fit, in a fixed disorder."""

    def __init__(self, candidates: Callable[[Any], list[Any]], seed: int) -> None:
        self.candidates = candidates
        self.generator = numpy.random.default_rng(seed)

    def __call__(self, problem: Any, kind: str, compute_units: int) -> Any:
        candidates = self.candidates(problem)
        return candidates[int(self.generator.integers(len(candidates)))]


def using(context: Context, block: conv.Specialisation) -> Wanted:
    """The device, with this block wherever conv.cl allows it."""
    def choose(problem: conv.Problem, kind: str, units: int) -> conv.Specialisation:
        return block if block.allowed(problem) else conv.Specialisation()

    return choosing(target(context), convolution=choose)
