"""From a Graph to a Plan for a device, readable top to bottom."""

from __future__ import annotations

from dataclasses import replace

from imgconv.config import Config
from imgconv.errors import DeviceError
from imgconv.graph import Graph
from imgconv.layout import ImageLimits
from imgconv.lower import Target, lower
from imgconv.passes import run_passes
from imgconv.plan import Plan


def compile_graph(graph: Graph, config: Config, target: Target) -> tuple[Graph, Plan]:
    """The graph after the passes, and its plan for the target. Raises UnsupportedError and ResourceError."""
    optimised = run_passes(graph)
    return optimised, lower(optimised, config, limited(target, config))


def limited(target: Target, config: Config) -> Target:
    """The target under the configured image limit. Raises DeviceError where half is wanted and not offered."""
    if config.float16 and not target.half_images:
        raise DeviceError("this device has no RGBA half images: run without FLOAT16")
    if config.float16 == 2 and not target.half_arithmetic:
        raise DeviceError("this device does not compute in half (cl_khr_fp16): use FLOAT16=1")
    if config.max_image is None:
        return target
    limits = target.limits
    lower_limits = ImageLimits(min(limits.width, config.max_image), min(limits.height, config.max_image), limits.layers)
    return replace(target, limits=lower_limits)
