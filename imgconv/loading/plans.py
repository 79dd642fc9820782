"""Plans a graph for a device that is opened."""

from __future__ import annotations

from dataclasses import replace

from imgconv.build_options import DRIVERS_DEFAULTS, BuildOptions
from imgconv.cl.bad_compilers import miscompiled_patterns
from imgconv.cl.building.crashes import refused_kernels
from imgconv.cl.device_info import DeviceInfo
from imgconv.compiling.choose import Chooser, CostModelChooser
from imgconv.compiling.compiler import PreparedGraph, prepare
from imgconv.compiling.shared_packings import Packings, SharedPackingChooser
from imgconv.config import Config
from imgconv.graph.nodes import Graph
from imgconv.loading.device_target import target_of
from imgconv.stored.tuning import TunedChooser, TuningDatabase


def prepare_for(
    info: DeviceInfo, graph: Graph, config: Config, tuning: TuningDatabase | None = None,
    packings: Packings | None = None, native_functions: bool = False,
) -> PreparedGraph:
    """Prepares a graph for a device, whose kernels are chosen by measurements there or else by the cost model.

    packings: those of other plans of the model, preferred if that costs little. native_functions: see Target.
    Raises DeviceError.
    """
    chooser = chooser_for(info, tuning)
    chooser = chooser if packings is None else SharedPackingChooser(chooser, packings)
    prepared = prepare(graph, config, target_of(info, native_functions), chooser)
    return replace(
        prepared, refused=refused_kernels(info), miscompiled_patterns=miscompiled_patterns(info),
        build_options=build_options_of(info, config, tuning),
    )


def chooser_for(info: DeviceInfo, tuning: TuningDatabase | None) -> Chooser:
    """Returns a chooser that prefers measurements on this device to the cost model."""
    return CostModelChooser() if tuning is None else TunedChooser(tuning, info.key, CostModelChooser())


def build_options_of(info: DeviceInfo, config: Config, tuning: TuningDatabase | None) -> BuildOptions:
    """Returns the build options that `imgconv tune` found to be the fastest on this device."""
    return DRIVERS_DEFAULTS if tuning is None else tuning.build_options(info.key, config)
