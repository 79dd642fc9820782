"""Rewrites graphs: passes in phases. Each is a function from Graph to Graph, with a Given and a Result example."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import chain

from imgconv.graph.graph_error import GraphError, require
from imgconv.graph.nodes import Graph
from imgconv.limits import current_budget
from imgconv.passes.channel_orders import sort_channels_by_readers
from imgconv.passes.concatenations import align_concatenations
from imgconv.passes.constants import fold_constants
from imgconv.passes.dead_code import remove_dead_code
from imgconv.passes.sums_to_reductions import reduce_dynamic_weights
from imgconv.passes.elementwise import merge_elementwise
from imgconv.passes.epilogues import fuse_epilogues
from imgconv.passes.exact_integers import mark_inexact_integers
from imgconv.passes.channel_factors import fuse_channel_factors
from imgconv.passes.gathers import fuse_gathers
from imgconv.passes.ghost_convolutions import fuse_ghost_convolutions
from imgconv.passes.requantization import fold_requantization
from imgconv.passes.literals import constants_to_literals
from imgconv.passes.materialise import materialise_operands
from imgconv.passes.movement import sink_movement
from imgconv.passes.nesting import nest_concatenations
from imgconv.passes.padding import fold_padding
from imgconv.passes.parallel_convolutions import merge_parallel_convolutions
from imgconv.passes.concatenation_parts import push_into_concatenation
from imgconv.passes.products import sink_product_scales
from imgconv.passes.reductions import split_reductions
from imgconv.passes.repeated import share_repeated
from imgconv.passes.scales import fold_scales
from imgconv.passes.views import push_views
from imgconv.passes.window_axes import split_window_axes

Pass = Callable[[Graph], Graph]

# In order. A comment says why a pass stands where it does.
PHASES: Mapping[str, tuple[Pass, ...]] = {
    "simplify": (
        remove_dead_code,
        mark_inexact_integers,  # it looks at single operations, before any are merged
        fold_constants,
        constants_to_literals,  # of constants that were just folded, too
        share_repeated,
    ),
    "turn movement into views": (
        sink_movement,  # brings elementwise work next to the kernel that it may join
        push_views,
        fold_padding,  # of the composed views
        remove_dead_code,  # movements that nothing reads any more
    ),
    "place concatenations": (
        sort_channels_by_readers,  # before the parts are grouped in the order that they have
        fuse_ghost_convolutions,  # before the tensor is copied into the result
        nest_concatenations,
        align_concatenations,  # last: it sees which parts others write in place
        push_views,  # through the loads of grouped parts
    ),
    "give kernels operands that they can read": (
        reduce_dynamic_weights,
        materialise_operands,  # now that no view changes any more
        remove_dead_code,
    ),
    "fuse": (
        sink_product_scales,  # makes an epilogue of what would be a load before the product
        merge_parallel_convolutions,  # before the addition becomes an epilogue
        merge_elementwise,
        push_into_concatenation,  # of merged work, so that each part has one load
        fuse_gathers,
        fuse_epilogues,
        fold_scales,  # of epilogues
        fold_requantization,  # of whole epilogues
        fuse_channel_factors,  # the rest: factors that are no constants
    ),
    "split reductions": (  # after fusion, which needs them whole
        split_window_axes,
        split_reductions,
    ),
    "clean up": (
        share_repeated,  # splitting may have made equal nodes
        remove_dead_code,
    ),
}
PIPELINE = tuple(chain.from_iterable(PHASES.values()))


def run_passes(graph: Graph, passes: tuple[Pass, ...] = PIPELINE) -> Graph:
    """Returns the graph after all passes. It is validated after each; the error for an invalid graph names the pass."""
    graph.validate()
    for step in passes:
        current_budget().check_time()
        names = graph.inputs, graph.outputs
        try:
            graph = step(graph).validate()
            require((graph.inputs, graph.outputs) == names, "inputs or outputs changed")
        except GraphError as error:
            raise GraphError(f"pass {step.__name__}: {error}") from error
    return graph
