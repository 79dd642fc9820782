"""The passes, in order. Each is a function from Graph to Graph, with a Given and Result example in its docstring."""

from __future__ import annotations

from collections.abc import Callable

from imgconv.graph.check import GraphError, check
from imgconv.graph.nodes import Graph
from imgconv.limits import budget
from imgconv.passes.channel_orders import order_channels
from imgconv.passes.concatenations import place_concatenations
from imgconv.passes.constants import fold_constants
from imgconv.passes.dead_code import remove_dead_code
from imgconv.passes.dynamic_weights import reduce_dynamic_weights
from imgconv.passes.elementwise import merge_elementwise
from imgconv.passes.epilogues import fuse_epilogues
from imgconv.passes.exact_integers import guard_integers
from imgconv.passes.factors import multiply_inputs
from imgconv.passes.gathers import join_gathers
from imgconv.passes.ghosts import join_ghosts
from imgconv.passes.literals import literal_constants
from imgconv.passes.materialise import materialise_operands
from imgconv.passes.movement import sink_movement
from imgconv.passes.nesting import nest_concatenations
from imgconv.passes.padding import fold_padding
from imgconv.passes.parallel import join_parallel
from imgconv.passes.parts import split_elementwise
from imgconv.passes.products import scale_products
from imgconv.passes.reductions import split_reductions
from imgconv.passes.repeated import share_repeated
from imgconv.passes.scales import fold_scales
from imgconv.passes.views import push_views
from imgconv.passes.window_axes import split_window_axes
from imgconv.passes.windows import separate_windows

Pass = Callable[[Graph], Graph]

PIPELINE: tuple[Pass, ...] = (
    remove_dead_code,
    guard_integers,
    fold_constants,
    literal_constants,
    share_repeated,
    sink_movement,
    push_views,
    fold_padding,
    remove_dead_code,
    order_channels,
    join_ghosts,
    nest_concatenations,
    place_concatenations,
    push_views,
    reduce_dynamic_weights,
    materialise_operands,
    remove_dead_code,
    scale_products,
    join_parallel,
    merge_elementwise,
    split_elementwise,
    join_gathers,
    fuse_epilogues,
    fold_scales,
    multiply_inputs,
    split_window_axes,
    split_reductions,
    separate_windows,
    share_repeated,
    remove_dead_code,
)


def run_passes(graph: Graph, passes: tuple[Pass, ...] = PIPELINE) -> Graph:
    """The graph after all passes. It is validated after each; the error for an invalid graph names the pass."""
    graph.validate()
    for step in passes:
        budget().check_time()
        names = graph.inputs, graph.outputs
        try:
            graph = step(graph).validate()
            check((graph.inputs, graph.outputs) == names, "inputs or outputs changed")
        except GraphError as error:
            raise GraphError(f"pass {step.__name__}: {error}") from error
    return graph
