"""The compiler's entry point: from a Graph to a Plan for a device. Every command uses it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from imgconv.build_options import DRIVERS_DEFAULTS, BuildOptions
from imgconv.compiling.choose import Chooser, CostModelChooser, ExcludingChooser
from imgconv.compiling.lower import lower
from imgconv.passes.sums_to_reductions import sums_to_reductions
from imgconv.compiling.plan import Plan
from imgconv.config import Config
from imgconv.dtype import FLOAT16, FLOAT32
from imgconv.errors import DeviceError
from imgconv.graph.nodes import Graph
from imgconv.kernels.layout import ImageLimits
from imgconv.kernels.kernel_source import KernelSource
from imgconv.kernels.template_interface import Problem, Specialisation
from imgconv.kernels.target import Target
from imgconv.passes import run_passes


@dataclass(frozen=True)
class PreparedGraph:
    """A graph after the passes, with everything else that its plans depend on.

        prepared = prepare(graph, Config(float16=1), target)
        in_half, in_float = prepared.plan(), prepared.plan(Config())
    """

    graph: Graph
    config: Config
    target: Target
    chooser: Chooser = CostModelChooser()
    refused: frozenset[str] = frozenset()
    """The keys of kernels that the driver cannot build, which plans do without where they can: KernelSource.key."""
    miscompiled_patterns: tuple[str, ...] = ()
    """Further ones: see KernelSource.matches_any and cl/bad_compilers.py."""
    build_options: BuildOptions = DRIVERS_DEFAULTS

    def plan(self, config: Config | None = None, states: Mapping[str, str] | None = None) -> Plan:
        """Returns the plan with the given settings, by default self.config. states: see `lower`. Raises what `lower`
        raises.

        If a kernel is rejected, the plan uses another specialisation of it. If none is left, it uses the plainest
        variant: a plain reduction (see `sums_to_reductions`), and exact functions.
        """
        excluded, plain = frozenset[tuple[Problem, Specialisation]](), frozenset[str]()
        while True:
            chooser = ExcludingChooser(self.chooser, excluded) if excluded else self.chooser
            graph = sums_to_reductions(self.graph, plain) if plain else self.graph
            plan = lower(graph, config or self.config, self.target, states, chooser, plain)
            launches = [launch for launch in plan.launches if self._refuses(launch.source)]
            found = {(each.choice.problem, each.choice.specialisation) for each in launches if each.choice}
            before = {problem for problem, _ in excluded}
            again = {n for each in launches if each.choice and each.choice.problem in before for n in each.values}
            if found <= excluded and again <= plain:
                return replace(plan, build_options=self.build_options)
            excluded, plain = excluded | found, plain | again

    def _refuses(self, source: KernelSource) -> bool:
        """Returns whether plans do without a kernel where they can."""
        return bool(self.refused) and source.key in self.refused or source.matches_any(self.miscompiled_patterns)


def prepare(graph: Graph, config: Config, target: Target, chooser: Chooser = CostModelChooser()) -> PreparedGraph:
    """Runs the passes on a graph, after the device has taken suppression from its host partition if it can.

    Raises DeviceError if `config` asks for half and the device has none.
    """
    if graph.host_partition and config.storage == FLOAT32:
        from imgconv.host.offload import offload_suppression  # with all operators, which other models do not need

        graph = offload_suppression(graph)
    return PreparedGraph(run_passes(graph), config, with_image_limit(target, config), chooser)


def with_image_limit(target: Target, config: Config) -> Target:
    """The target with the configured image limit, which makes textures images. Raises DeviceError.

    The error: `config` asks for half and the device has none.
    """
    if config.storage == FLOAT16 and not target.half_images:
        raise DeviceError("this device has no RGBA fp16 images: run without FLOAT16")
    if config.products == FLOAT16 and not target.half_arithmetic:
        raise DeviceError("this device has no fp16 arithmetic (cl_khr_fp16): use FLOAT16=1")
    if config.max_image is None:
        return target
    limits = target.limits
    lower_limits = ImageLimits(min(limits.width, config.max_image), min(limits.height, config.max_image), limits.layers)
    return replace(target, limits=lower_limits, linear=None)
