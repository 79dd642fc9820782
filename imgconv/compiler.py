"""From a Graph to a Plan for a device, readable top to bottom."""

from __future__ import annotations

from imgconv.config import Config
from imgconv.graph import Graph
from imgconv.layout import ImageLimits
from imgconv.lower import Target, lower
from imgconv.passes import run_passes
from imgconv.plan import Plan


def compile_graph(graph: Graph, config: Config, target: Target) -> tuple[Graph, Plan]:
    """The graph after the passes, and its plan for the target. Raises UnsupportedError and ResourceError."""
    if config.max_image is not None:
        limits = target.limits
        width, height = min(limits.width, config.max_image), min(limits.height, config.max_image)
        target = Target(
            ImageLimits(width, height, limits.layers), target.kind, target.compute_units, target.half_images,
            target.max_read_images,
        )
    optimised = run_passes(graph)
    return optimised, lower(optimised, config, target)
