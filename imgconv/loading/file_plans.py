"""Plans graphs for the devices of a compiled file, which need not be present."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from imgconv.checking.player_checks import with_checks
from imgconv.cl.bad_compilers import miscompiled_patterns
from imgconv.cl.device_info import DeviceInfo
from imgconv.compiling.compiler import PreparedGraph, with_image_limit
from imgconv.compiling.shared_packings import Packings, SharedPackingChooser
from imgconv.config import Config
from imgconv.errors import DeviceError, ResourceError
from imgconv.graph.nodes import Graph
from imgconv.loading.device_descriptions import read_device_description
from imgconv.loading.device_target import target_of
from imgconv.loading.plans import build_options_of, chooser_for
from imgconv.stored.compiled_file import DevicePlan
from imgconv.stored.tuning import TuningDatabase

LOG = logging.getLogger("imgconv")


def plans_for(
    graph: Graph, config: Config, devices: Sequence[DeviceInfo], tuning: TuningDatabase | None,
    states: Mapping[str, str], packings: Packings,
) -> list[DevicePlan]:
    """Makes a plan for each device, without its native functions and products of bytes.

    graph: after the passes. states: see `lower`. packings: of earlier plans of the model; later ones read their weights
    where that takes little longer.

    Raises what `with_image_limit` and `lower` raise.
    """
    plans: list[DevicePlan] = []
    for info in devices:
        target = with_image_limit(target_of(replace(info, dot_product="")), config)
        chooser = SharedPackingChooser(chooser_for(info, tuning), packings)
        prepared = PreparedGraph(
            graph, config, target, chooser, miscompiled_patterns=miscompiled_patterns(info),
            build_options=build_options_of(info, config, tuning),
        )
        plan = DevicePlan(prepared.plan(states=states), info.key, target)
        plans.append(with_checks(plan, graph, config, states))
    return plans


def with_generic(
    plans: Sequence[DevicePlan], graph: Graph, config: Config, states: Mapping[str, str], packings: Packings
) -> list[DevicePlan]:
    """Appends a plan for the least capable device, unless there is one.

    There can be none if the settings ask for arithmetic in half, or if a kernel exceeds that device's limits.
    """
    least = read_device_description("generic")
    if any(each.device == least.key for each in plans):
        return [*plans]
    try:
        return [*plans, *plans_for(graph, config, [least], None, states, packings)]
    except (DeviceError, ResourceError) as error:
        LOG.warning("the file has no plan for any device: %s", error)
        return [*plans]
