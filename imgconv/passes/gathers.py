"""Join a gather with the reduction that reads its result, if nothing else reads it."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from imgconv.graph.expression import Argument, substitute
from imgconv.graph.nodes import IDENTITY, GraphEditor, Gather, Graph, Node, Operand, Reduction
from imgconv.graph.view import View, axis_variables
from imgconv.passes.concatenations import MOST_OPERANDS
from imgconv.passes.views import compose_if_short


def fuse_gathers(graph: Graph) -> Graph:
    """Let a reduction gather its elements itself, instead of reading elements that a gather has written.

    The reduction must read each element once, as the weighted sum of an interpolation does (GridSample, RoiAlign).

    Given:   g: [1, 8, 6, 6, 2] = gather(x[0, i1, i5, 0], at[..]);  y: [1, 8, 6, 6] = sum of multiply($0, $1)(g, w)
    Result:  y: [1, 8, 6, 6] = gather, sum of multiply($0, $1)(x[0, i1, i5, 0], at[..], w)
    """
    editing = GraphEditor(graph)
    for node in graph.nodes:
        if isinstance(node.operation, Gather):
            for reader in editing.consumers[node.output.name]:
                joined = _merge_into_reader(editing, node, node.operation, reader)
                if joined is not None:
                    editing.merge(node.output.name, {reader.output.name: joined})
    return editing.edited_graph()


def _merge_into_reader(graph: GraphEditor, gather: Node, operation: Gather, reader: Node) -> Node | None:
    """The reader that chooses elements itself; None if that is not possible or repeats work."""
    name, reduction = gather.output.name, reader.operation
    if operation.reduction is not None or gather.epilogue != IDENTITY or name in graph.outputs:
        return None
    if not isinstance(reduction, Reduction) or graph.consumers[name] != (reader,):
        return None
    reads = [number for number, operand in enumerate(reader.all_operands) if operand.value == name]
    if len(reads) != 1 or reads[0] >= len(reader.operands):
        return None
    seen = reader.operands[reads[0]]
    rest = [operand for operand in reader.operands if operand is not seen]
    if seen.view.bounds or prod(seen.view.shape) != gather.output.size:
        return None
    if len(gather.operands) + len(rest) + len(reader.epilogue_operands) > MOST_OPERANDS:
        return None
    table, *indices = (_composed_operand(seen, operand) for operand in gather.operands)
    if table is None or any(index is None for index in indices):
        return None
    numbers = {reads[0]: Argument(0)}
    numbers |= {reader.operands.index(operand): Argument(n) for n, operand in enumerate(rest, 1)}
    body = substitute(reduction.body, numbers)
    return replace(
        reader, operation=Gather(replace(reduction, body=body)),
        operands=(table, *(index for index in indices if index is not None), *rest),
        origin=tuple(dict.fromkeys((*gather.origin, *reader.origin))),
    )


def _composed_operand(seen: Operand, operand: Operand) -> Operand | None:
    """Returns a gather's operand at the positions that `seen` reads. The axes of a table that indices choose stay."""
    outer, rank = seen.view, len(seen.view.source)
    chosen = operand.view.shape[rank:]
    shape = (*outer.shape, *chosen)
    index = (*outer.index, *axis_variables(shape)[len(outer.shape) :])
    made = compose_if_short(Operand(seen.value, View(shape, (*outer.source, *chosen), index)), operand)
    # A gather reads the fill value of its table where an index is outside, whether the table's view has bounds or not.
    return None if made is None else replace(made, fill=operand.fill)
