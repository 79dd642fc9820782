"""Reductions over the same rows, and the elementwise work that reads their results, as one kernel.

    softmax               m = max(x),  s = sum of exp(x - m),         y = exp(x - m) / s
    normalisation         m = mean(x), v = sum of (x - m) * (x - m),  y = (x - m) / sqrt(v / n + epsilon)

A row is what one result of the reductions is made of. A work group, or one work item where rows are short or many,
walks its row once for each reduction, brings the parts together in local memory and walks it again to write. Where an
item's part is short it is read once and kept in registers. A variance is the sum of squared differences from the mean:
nothing cancels.

    o0, o1, ...    position of a row: of the first reduction's result
    r0, r1, ...    position in the row: in the first reduction's window
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, prod

from imgconv.graph.expression import literal_text
from imgconv.graph.index import Index, Variable, constant, flatten, unflatten, variable, variable_index
from imgconv.graph.nodes import Graph, Load, Node, Operand, Reduction
from imgconv.graph.view import Shape
from imgconv.kernels.access import LANE, Emitter
from imgconv.kernels.costs import LARGE_GPU
from imgconv.kernels.generated import (
    COMBINE, GROUP, ITEMS_OF_A_GPU, NEUTRAL, assemble, bounded_id, combine_lanes, meet, window_of,
)
from imgconv.kernels.layout import LANES, HostBuffer, Placement
from imgconv.kernels.source import KernelSource, round_up

MOST_REDUCTIONS, MOST_NODES = 4, 12
# Texels of its row that a work item keeps: in registers, on CPUs in the cache. Mesa's Adreno compiler unrolls no more.
MOST_KEPT, MOST_KEPT_ON_SMALL_GPU = {"gpu": 16, "cpu": 64}, 4
SMALLEST_GROUP, LARGEST_GROUP = 32, 256
ROWS_OF_A_GROUP = {"gpu": 64, "cpu": 8}  # where each item has a row of its own
# Steps of an item: on a CPU what is walked again is then still in the cache; on a GPU where units have no row.
LONGEST_WALK = {"gpu": 32, "cpu": 8192}
BLOCK = 64  # terms of a sum that are added up before they join the rest: the rounding of long sums stays small


@dataclass(frozen=True)
class Rows:
    """Nodes that can be one kernel, in order; only the last one's output is read by others.

    axes: for each node, the expressions of its own axes (a reduction's: of its window too) in o0 ... and r0 ...
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
        """Of the rows: of the first reduction's result."""
        return self.reductions[0].output.shape

    @property
    def window(self) -> Shape:
        """Of a row."""
        return window_of(self.reductions[0])

    def read_from_outside(self, node: Node) -> tuple[Operand, ...]:
        """The operands of a node that none of the nodes makes."""
        return tuple(o for o in node.all_operands if o.value not in self.members)


# Finding rows in a graph


def find_rows(graph: Graph, apart: Iterable[str] = ()) -> dict[str, Rows]:
    """The rows of a graph by the name of what they make; values `apart` have a kernel of their own. They share no node.

    Elementwise work between the reductions is done again in each that reads it.
    """
    found: dict[str, Rows] = {}
    taken = set(apart) | set(graph.outputs)
    for last in reversed(graph.nodes):
        if last.output.name not in taken or last.output.name in graph.outputs:
            rows = _longest(graph, last, taken)
            if rows is not None:
                found[last.output.name] = rows
                taken |= rows.members.keys()
    return found


def _longest(graph: Graph, last: Node, taken: set[str]) -> Rows | None:
    """The rows of most nodes that end with a node. What is before them has a launch of its own."""
    for with_loads in (True, False):
        nodes = _members(graph, last, taken, with_loads)
        for start in range(len(nodes)):
            rows = _match(_on_results(nodes[start:]))
            if rows is not None:
                return rows
    return None


def _members(graph: Graph, last: Node, taken: set[str], with_loads: bool) -> list[Node]:
    """The last node and, before it, what only it and they read: reductions, and work on what these give."""
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


def _on_results(nodes: list[Node]) -> list[Node]:
    """The reductions, and the work that reads results of theirs."""
    after: set[str] = set()
    for node in nodes:
        if isinstance(node.operation, Reduction) or node.reads & after:
            after.add(node.output.name)
    return [node for node in nodes if node.output.name in after]


def _match(nodes: list[Node]) -> Rows | None:
    """The nodes as rows; None where they do not run over the same ones."""
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
        if _long(node.output.shape) != _long(shape) or _long(window_of(node)) != _long(window):
            return None
        own, walked = node.output.shape, window_of(node)
        position = (*unflatten(flatten(row, shape), own), *unflatten(flatten(inside, window), walked))
        axes[node.output.name] = _named((*own, *walked), position)
    if isinstance(last.operation, Reduction):
        made = Rows(tuple(nodes), axes)
        return made if _consistent(made) else None
    for operand in first.operands:
        where = flatten((e.substitute(axes[first.output.name]) for e in operand.view.index), operand.view.source)
        if prod(operand.view.source) != last.output.size or not _counts_all(where, (*shape, *window)):
            continue
        position = unflatten(where, last.output.shape)
        made = Rows(tuple(nodes), {**axes, last.output.name: _named(last.output.shape, position)})
        if _consistent(made):
            return made
    return None


def _variables(letter: str, shape: Shape) -> tuple[Index, ...]:
    return tuple(variable(f"{letter}{a}", n) for a, n in enumerate(shape))


def _named(shape: Shape, position: Sequence[Index]) -> dict[Variable, Index]:
    """The variables of a view's axes at a position."""
    return {Variable(f"i{a}", n): position[a] for a, n in enumerate(shape)}


def _long(shape: Shape) -> list[int]:
    return [n for n in shape if n > 1]


def _counts_all(where: Index, sizes: Shape) -> bool:
    """Whether an expression of variables takes each of the values 0 .. product of their sizes - 1 once."""
    stride = 1
    for atom, coefficient in sorted(where.terms, key=lambda t: t[1]):
        if not isinstance(atom, Variable) or coefficient != stride:
            return False
        stride *= atom.size
    return where.constant == 0 and stride == prod(sizes)


def _consistent(rows: Rows) -> bool:
    """Whether every node reads, of each reduction's results, only that of its own row."""

    def right(node: Node, axes: Mapping[Variable, Index]) -> bool:
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
            elif not right(member, _named(member.output.shape, position)):
                return False
        return True

    return all(right(rows.members[name], axes) for name, axes in rows.axes.items())


# The kernel


def rows_kernel(
    rows: Rows, output: Placement, placements: Mapping[str, Placement], native: bool, compute_units: int, kind: str
) -> KernelSource | None:
    """One kernel for all nodes; None where texels do not hold four rows, or four positions of a row, side by side.

    None, too, where few long rows are walked faster by a launch for each node.

    output: where the last node's result goes; placements: where each operand is that none of the nodes makes. kind and
    compute_units: the device's.
    """
    lanes = _lanes(rows, placements)
    if lanes is None:
        return None
    maker = _Maker(rows, lanes, output, placements, native, kind, compute_units)
    if not maker.stores_texels():
        return None
    if maker.walk > LONGEST_WALK[kind] and (kind == "cpu" or maker.count < compute_units):
        return None
    return maker.make()


def _lanes(rows: Rows, placements: Mapping[str, Placement]) -> Variable | None:
    """The variable that runs along the lanes of what the first reduction reads; of one value where they hold one."""
    first = rows.reductions[0]
    for operand in first.operands:
        place = placements.get(operand.value)
        if place is None or place.layout.packed is None or isinstance(place.storage, HostBuffer):
            continue
        if place.layout.channels(place.shape) == 1:
            return Variable("lane of one", 1)
        channel = operand.view.index[place.layout.packed].substitute(rows.axes[first.output.name])
        for atom, coefficient in channel.terms:
            rest = channel - Index(((atom, 1),), 0)
            if isinstance(atom, Variable) and coefficient == 1 and rest % LANES == constant(0):
                return atom
    return None


def _group_size(steps: int, rows: int, kind: str, compute_units: int) -> int:
    """Work items that share a row; one where rows are short, and on CPUs, where a barrier costs a loop.

    On a large GPU neighbours in a wave read neighbours in a row; on a small one they are as many as keep it busy.
    """
    if kind == "cpu" or steps <= MOST_KEPT[kind] // 2:
        return 1
    group = SMALLEST_GROUP if compute_units >= LARGE_GPU else 1
    while group < LARGEST_GROUP and steps > group * MOST_KEPT[kind] // 2:
        if compute_units < LARGE_GPU and rows * group >= ITEMS_OF_A_GPU:
            break
        group *= 2
    return group


class _Maker:
    """The text of one kernel.

    count: rows, or quads of them; steps: texels of a row; group: items that share a row; walk: steps of an item.
    """

    def __init__(
        self, rows: Rows, lanes: Variable, output: Placement, placements: Mapping[str, Placement], native: bool,
        kind: str, compute_units: int,
    ) -> None:
        self.rows, self.output, self.placements, self.kind = rows, output, placements, kind
        self.compute_units = compute_units
        self.emitter = Emitter(native)
        self.folded = lanes.name.startswith("r")  # the lanes are positions of one row, not rows
        self.lanes = lanes
        row_shape, step_shape = self._quads("o", rows.shape), self._quads("r", rows.window)
        self.count, self.steps = prod(row_shape), prod(step_shape)
        self.group = _group_size(self.steps, self.count, kind, compute_units)
        self.walk = ceil(self.steps / self.group)
        small = kind == "gpu" and compute_units < LARGE_GPU
        self.most_kept = MOST_KEPT_ON_SMALL_GPU if small else MOST_KEPT[kind]
        self.place = self._places("o", rows.shape, unflatten(variable("row", self.count), row_shape))
        self.place |= self._places("r", rows.window, unflatten(variable("step", self.steps), step_shape))
        self.axes = {
            name: {v: e.substitute(self.place) for v, e in axes.items()} for name, axes in rows.axes.items()
        }
        self.results: dict[str, str] = {}
        self.kept: dict[object, str] = {}

    def _quads(self, letter: str, shape: Shape) -> Shape:
        return tuple(
            ceil(n / LANES) if self.lanes.name == f"{letter}{a}" else n for a, n in enumerate(shape)
        )

    def _places(self, letter: str, shape: Shape, position: tuple[Index, ...]) -> dict[Variable, Index]:
        found = {Variable(f"{letter}{a}", n): position[a] for a, n in enumerate(shape)}
        if self.lanes in found:
            found[self.lanes] = found[self.lanes] * LANES + variable_index(LANE)
        return found

    def position(self) -> list[Index]:
        """Where the last node's result goes, at the row and step."""
        last = self.rows.last.output
        return [self.axes[last.name][Variable(f"i{a}", n)] for a, n in enumerate(last.shape)]

    def stores_texels(self) -> bool:
        """Whether the lanes of what a step makes are those of one texel, or element, of the output."""
        packed, position = self.output.layout.packed, self.position()
        if any(LANE in e.variables() for a, e in enumerate(position) if a != packed):
            return False
        if packed is None or self.output.layout.channels(self.output.shape) == 1:
            return True  # all lanes hold the one number
        first = position[packed].substitute({LANE: constant(0)})
        return position[packed] - first == variable_index(LANE) and first % LANES == constant(0)

    def make(self) -> KernelSource:
        """The kernel."""
        emitter, last = self.emitter, self.rows.last
        emitter.largest = max(self.count, self.steps + self.group)
        for node in self.rows.reductions:
            self._reduce(node)
        emitter.half = self.output.storage.dtype == "float16"
        if self.group > 1 and self.count % self._rows_of_group():
            emitter.lines.append(f"if (get_global_id(1) >= {self.count}) return;")
        if isinstance(last.operation, Reduction):
            emitter.lines.append("if (item != 0) return;" if self.group > 1 else "")
            emitter.store(self.output, self.position(), self.results[last.output.name])
        else:
            axes = self.axes[last.output.name]
            self._read_ahead(last.all_operands, axes)
            self._open()
            with emitter.scope():
                emitter.store(self.output, self.position(), self._value(last, axes))
            self._close()
        return self._source()

    def _source(self) -> KernelSource:
        """What was emitted, with the rows divided among work groups."""
        group = self.group
        if group > 1:
            beside = self._rows_of_group()
            size, local = (group, round_up(self.count, beside)), (group, beside)
            head = ["const INDEX item = get_local_id(0), texel = get_local_id(1);"]
            head.append(f"const INDEX row = {bounded_id(1, self.count, size[1])};")
            head.append(f"__local float4 parts[{group * beside}];")
        else:
            beside = min(ROWS_OF_A_GROUP[self.kind], self.count)
            size, local = (round_up(self.count, beside), 1), (beside, 1)
            head = ["const INDEX row = get_global_id(0);"]
            head += [f"if (row >= {self.count}) return;"] if size[0] != self.count else []
        head += [f"float4 {name}[{self.walk}];" for name in self.kept.values()]
        return assemble(self.emitter, self.output, head, size, local, group > 1)

    def _rows_of_group(self) -> int:
        """Rows of a work group whose items share them: more than one where units have several groups all the same."""
        return max(1, min(self.count // (4 * self.compute_units), GROUP // self.group))

    # Loops

    def _open(self) -> None:
        """Open the loop over an item's steps: k counts them."""
        shared = self.group > 1
        self.emitter.lines += [
            "#pragma unroll" if self.walk <= self.most_kept else "#pragma unroll 4",
            f"for (int k = 0; k < {self.walk}; k++) {{",
            f"const INDEX step = k{f' * {self.group} + item' if shared else ''};",
            f"if (step < {self.steps}) {{" if self.walk * self.group != self.steps else "{",
        ]

    def _close(self, after: str = "") -> None:
        """Close it; after: what is done at the end of each step, also of those past the row's end."""
        self.emitter.lines += ["}", after, "}"]

    def _reduce(self, node: Node) -> None:
        """Emit one reduction over the row, and its result for the row."""
        emitter, operation, name = self.emitter, node.operation, node.output.name
        assert isinstance(operation, Reduction)
        kind, total = operation.kind, f"total{len(self.results)}"
        neutral = literal_text(NEUTRAL[kind])
        self._read_ahead(node.operands, self.axes[name])
        emitter.lines.append(f"float4 {total} = (float4)({neutral});")
        blocks = kind == "sum" and self.walk > 2 * BLOCK
        part = f"{total}_part" if blocks else total
        if blocks:
            emitter.lines.append(f"float4 {part} = (float4)(0.0f);")
        self._open()
        with emitter.scope():
            arguments = {n: self._read(o, self.axes[name]) for n, o in enumerate(node.operands)}
            value = emitter.compute(operation.body, arguments)
            past = self.rows.window[int(self.lanes.name[1:])] if self.folded else 0
            if past % LANES:
                first = self.place[self.lanes].substitute({LANE: constant(0)})
                value = f"fill_lanes({value}, {emitter.index(-first + past)}, {neutral})"
            emitter.lines.append(f"{part} = {COMBINE[kind].format(part, value)};")
        joined = f"if (k % {BLOCK} == {BLOCK - 1}) {{ {total} += {part}; {part} = (float4)(0.0f); }}"
        self._close(joined if blocks else "")
        if blocks:
            emitter.lines.append(f"{total} += {part};")
        if self.group > 1:
            emitter.lines += [*meet(kind, self.group, self._rows_of_group(), total), "barrier(CLK_LOCAL_MEM_FENCE);"]
        result = combine_lanes(emitter, kind, total) if self.folded else total
        arguments = {0: result}
        for number, operand in enumerate(node.epilogue_operands, 1):
            arguments[number] = self._read(operand, self.axes[name])
        self.results[name] = emitter.name("float4", emitter.compute(node.epilogue, arguments))

    # Values

    def _read(self, operand: Operand, axes: Mapping[Variable, Index]) -> str:
        """The name of a float4 with the operand at the four lanes."""
        member = self.rows.members.get(operand.value)
        if member is None:
            return self._load(operand, axes)
        if isinstance(member.operation, Reduction):
            return self.results[operand.value]
        position = [e.substitute(axes) for e in operand.view.index]
        return self.emitter.name("float4", self._value(member, _named(member.output.shape, position)))

    def _value(self, node: Node, axes: Mapping[Variable, Index]) -> str:
        """The text of an elementwise node's result."""
        arguments = {number: self._read(operand, axes) for number, operand in enumerate(node.all_operands)}
        return self.emitter.compute(node.epilogue, arguments)

    def _load(self, operand: Operand, axes: Mapping[Variable, Index]) -> str:
        """What is read of a texture, once for each step where the reductions can keep it."""
        bounds = tuple((b.index.substitute(axes), b.low, b.high) for b in operand.view.bounds)
        key = (operand.value, tuple(e.substitute(axes) for e in operand.view.index), bounds, operand.fill)
        if key in self.kept:
            return f"{self.kept[key]}[k]"
        text = self.emitter.load(operand, self.placements[operand.value], axes)
        room = (len(self.kept) + 1) * self.walk <= self.most_kept
        if room and len(self.results) < len(self.rows.reductions) and _walks(operand, axes):
            self.kept[key] = f"kept{len(self.kept)}"
            self.emitter.lines.append(f"{self.kept[key]}[k] = {text};")
        return text

    def _read_ahead(self, operands: Iterable[Operand], axes: Mapping[Variable, Index]) -> None:
        """Read before a loop what is the same at each step of it."""
        for operand in operands:
            if operand.value not in self.rows.members and not _walks(operand, axes):
                self._read(operand, axes)


def _walks(operand: Operand, axes: Mapping[Variable, Index]) -> bool:
    """Whether what is read depends on the step."""
    read = (*operand.view.index, *(b.index for b in operand.view.bounds))
    return any(v.name == "step" for e in read for v in e.substitute(axes).variables())
