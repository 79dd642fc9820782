"""Finds reductions over the same rows, and the elementwise work that reads their results, for one kernel.

    softmax               m = max(x),  s = sum of exp(x - m),         y = exp(x - m) / s
    normalisation         m = mean(x), v = sum of (x - m) * (x - m),  y = (x - m) / sqrt(v / n + epsilon)

A row consists of the elements that are reduced to one result. For example, the softmax of a (2, 3, 100) tensor along
its last axis has 6 rows of 100 elements. row_kernel.py generates the kernel; moments.py has two kernels for long rows.

    o0, o1, ...    position of a row: of the first reduction's result
    r0, r1, ...    position in the row: in the first reduction's window
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Literal

from imgconv.graph.index import Index, Variable, constant, flatten, unflatten, variable
from imgconv.graph.nodes import Graph, Load, Node, Operand, Reduction
from imgconv.graph.view import Shape
from imgconv.kernels.codegen.generated import COMBINE, window_of

MOST_REDUCTIONS, MOST_NODES = 4, 12


@dataclass(frozen=True)
class RowGroup:
    """Nodes that can be one kernel, in order. Nodes outside read only the last one's output.

    axes: for each node, its own axes as expressions of o0 ... and r0 ...; a reduction has those of its window too.
    """

    nodes: tuple[Node, ...]
    axes: Mapping[str, Mapping[Variable, Index]]

    @cached_property
    def members(self) -> Mapping[str, Node]:
        return {node.output.name: node for node in self.nodes}

    @property
    def last(self) -> Node:
        return self.nodes[-1]

    @property
    def reductions(self) -> tuple[Node, ...]:
        return tuple(n for n in self.nodes if isinstance(n.operation, Reduction))

    @property
    def shape(self) -> Shape:
        """The shape of all rows: that of the first reduction's result."""
        return self.reductions[0].output.shape

    @property
    def window(self) -> Shape:
        """The shape of one row."""
        return window_of(self.reductions[0])


def find_row_groups(graph: Graph) -> list[RowGroup]:
    """The rows of a graph. A node belongs to at most one of them.

    Elementwise work between two reductions is computed again in each reduction that reads it.
    """
    found: list[RowGroup] = []
    taken = set(graph.outputs)
    for last in reversed(graph.nodes):
        if last.output.name not in taken or last.output.name in graph.outputs:
            rows = _longest_group_ending_with(graph, last, taken)
            if rows is not None:
                found.append(rows)
                taken |= rows.members.keys()
    return found


def _longest_group_ending_with(graph: Graph, last: Node, taken: set[str]) -> RowGroup | None:
    """The longest rows that end with `last`. Nodes before them get launches of their own."""
    for with_loads in (True, False):
        nodes = _candidate_nodes(graph, last, taken, with_loads)
        for start in range(len(nodes)):
            rows = row_group_of(_reductions_and_readers(nodes[start:]))
            if rows is not None:
                return rows
    return None


def _candidate_nodes(graph: Graph, last: Node, taken: set[str], with_loads: bool) -> list[Node]:
    """The last node and the reductions and elementwise work before it that only these nodes read."""
    if not isinstance(last.operation, (Load, Reduction)):
        return []
    inside = {last.output.name: last}
    waiting = [last]
    while waiting and len(inside) <= MOST_NODES:
        for name in waiting.pop().reads:
            node = graph.producers.get(name)
            if node is None or name in inside or name in taken:
                continue
            reduces = isinstance(node.operation, Reduction) and node.operation.kind in COMBINE
            fits = reduces or (with_loads and isinstance(node.operation, Load))
            if fits and all(reader.output.name in inside for reader in graph.consumers[name]):
                inside[name] = node
                # A node may have been too early before all of its readers were inside.
                waiting = list(inside.values())
    return sorted(inside.values(), key=lambda n: graph.order[n.output.name])


def _reductions_and_readers(nodes: list[Node]) -> list[Node]:
    """The reductions, and the nodes that read their results."""
    after: set[str] = set()
    for node in nodes:
        if isinstance(node.operation, Reduction) or node.reads & after:
            after.add(node.output.name)
    return [node for node in nodes if node.output.name in after]


def row_group_of(nodes: Sequence[Node]) -> RowGroup | None:
    """The nodes as rows; None if they do not run over the same rows."""
    reductions = [n for n in nodes if isinstance(n.operation, Reduction)]
    if not 2 <= len(nodes) <= MOST_NODES or not 1 <= len(reductions) <= MOST_REDUCTIONS:
        return None
    if any(not isinstance(n.operation, Reduction) or n.operation.kind not in COMBINE for n in reductions):
        return None
    first, last = reductions[0], nodes[-1]
    window, shape = window_of(first), first.output.shape
    if prod(window) < 2 or prod(shape) < 1:
        return None
    row, inside = _variables("o", shape), _variables("r", window)
    axes: dict[str, Mapping[Variable, Index]] = {}
    for node in reductions:
        if _squeezed(node.output.shape) != _squeezed(shape) or _squeezed(window_of(node)) != _squeezed(window):
            return None
        own, walked = node.output.shape, window_of(node)
        position = (*unflatten(flatten(row, shape), own), *unflatten(flatten(inside, window), walked))
        axes[node.output.name] = named_axes((*own, *walked), position)
    if isinstance(last.operation, Reduction):
        made = RowGroup(tuple(nodes), axes)
        return made if _reads_only_own_rows(made) else None
    # The last result in the order of what the first reduction reads, or one row after another.
    positions = [
        position for operand in first.operands
        for position in _positions(operand, [e.substitute(axes[first.output.name]) for e in operand.view.index], last)
        if _enumerates_all(flatten(position, last.output.shape), (*shape, *window))
    ]
    if prod((*shape, *window)) == last.output.size:
        positions.append(unflatten(flatten((*row, *inside), (*shape, *window)), last.output.shape))
    for position in positions:
        made = RowGroup(tuple(nodes), {**axes, last.output.name: named_axes(last.output.shape, position)})
        if _reads_only_own_rows(made):
            return made
    return None


def _positions(operand: Operand, read: Sequence[Index], last: Node) -> Iterator[tuple[Index, ...]]:
    """Positions in the last node's result that may belong to what the first reduction reads.

    They are those of the same elements in row-major order, and those that read the same element. read: where the first
    reduction reads its operand.
    """
    shape = last.output.shape
    if prod(operand.view.source) == last.output.size:
        yield unflatten(flatten(read, operand.view.source), shape)
    for other in last.all_operands:
        if other.value != operand.value:
            continue
        position = [constant(0) if size == 1 else None for size in shape]
        for index, where in zip(other.view.index, read, strict=True):
            for axis, size in enumerate(shape):
                offset = index - variable(f"i{axis}", size)
                if size > 1 and offset.is_constant:
                    position[axis] = where - offset
        if None not in position:
            yield tuple(e for e in position if e is not None)


def _variables(letter: Literal["o", "r"], shape: Shape) -> tuple[Index, ...]:
    return tuple(variable(f"{letter}{a}", n) for a, n in enumerate(shape))


def named_axes(shape: Shape, position: Sequence[Index]) -> dict[Variable, Index]:
    """The variables i0, i1, ... of a view's axes, each with its expression at a position."""
    return {Variable(f"i{a}", n): position[a] for a, n in enumerate(shape)}


def _squeezed(shape: Shape) -> list[int]:
    return [n for n in shape if n > 1]


def _enumerates_all(where: Index, sizes: Shape) -> bool:
    """Returns whether an expression takes each value from 0 to the product of the sizes - 1 exactly once."""
    stride = 1
    for atom, coefficient in sorted(where.terms, key=lambda t: t[1]):
        if not isinstance(atom, Variable) or coefficient != stride:
            return False
        stride *= atom.size
    return where.constant == 0 and stride == prod(sizes)


def _reads_only_own_rows(rows: RowGroup) -> bool:
    """Returns whether every node reads only its own row's result of each reduction."""

    def reads_own_rows(node: Node, axes: Mapping[Variable, Index]) -> bool:
        for operand in node.all_operands:
            member = rows.members.get(operand.value)
            if member is None:
                continue
            position = [e.substitute(axes) for e in operand.view.index]
            if operand.view.bounds:
                return False
            if isinstance(member.operation, Reduction):
                own = [rows.axes[operand.value][Variable(f"i{a}", n)] for a, n in enumerate(member.output.shape)]
                if position != own:
                    return False
            elif not reads_own_rows(member, named_axes(member.output.shape, position)):
                return False
        return True

    return all(reads_own_rows(rows.members[name], axes) for name, axes in rows.axes.items())
