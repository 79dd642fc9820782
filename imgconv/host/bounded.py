"""Takes suppression, and what is in front of it and behind it, from the host's part of a model to the device.

How many rows such a value has depends on data, but a constant bounds it. On the device it has the most rows that it may
have, and a mask says which of them exist:

    best of 90 classes, at most 300 each      27,000 rows, mask          BestOfClasses, NonZero: a mask, nothing moves
    suppression, at most 300 stay                300 rows, mask          NonMaxSuppression
    boxes, scores and labels at its places       300 rows, mask          Gather
    what is computed of each row                 300 rows, mask
    ------------------------------------------------------------------------------------------------------ to the host
    KeptRows: the rows that the mask says

A place among the rows is a place among all of them, also those that do not exist. So a Gather of such rows reads it,
and the host finds its own places, of the rows that exist: if these are the places of a suppression, nothing is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, nan

import numpy

from imgconv import ops
from imgconv.arrays import Array
from imgconv.errors import Error
from imgconv.graph.nodes import Graph, Tail
from imgconv.graph.joined import renamed
from imgconv.graph.onnx_nodes import HostGraph, HostNode
from imgconv.host.detections import BEST_OF_CLASSES, Matching, Pattern, needed, with_detections
from imgconv.host.registry import Call, host
from imgconv.host.segments import DOMAIN, constants_of
from imgconv.ops.indexing import take_along
from imgconv.tensor import Tensor, build_graph, concatenate, less, order, origin, suppression, where

KEPT_ROWS = "KeptRows"
MOST_BOXES = 1 << 15  # that are put in order
MOST_UNMASKED = 2048  # of boxes that nothing has chosen: the host looks only at those over the threshold
MOST_STAYING = 1024  # their boxes lie in a work group's local memory
ELEMENTWISE = frozenset((
    "Abs", "Add", "And", "Ceil", "Clip", "Div", "Equal", "Exp", "Floor", "Greater", "GreaterOrEqual", "Less",
    "LessOrEqual", "Log", "Max", "Min", "Mul", "Neg", "Not", "Or", "Pow", "Reciprocal", "Relu", "Round", "Sigmoid",
    "Sqrt", "Sub", "Tanh", "Where",
))
IS_EMPTY: Pattern = ("Equal", {}, ("ReduceProd", {"keepdims": 0}, ("Shape", {}, "rows")), "zero")
CONDITIONS: Sequence[Pattern] = (IS_EMPTY, ("Cast", {"to": "bool"}, IS_EMPTY))


@host(KEPT_ROWS, domain=DOMAIN)
def kept_rows(call: Call, rows: Array, mask: Array) -> Array:
    """The rows along an axis that exist."""
    return numpy.compress(mask, rows, int(call.attribute("axis", 0)))


def with_bounded_rows(graph: Graph) -> Graph:
    """The graph, with suppression of its tail on the device if that keeps every result. Else the graph itself.

    Raises ResourceError for a tensor that is larger than the limits allow.
    """
    tail = graph.tail
    if tail is None or any(name not in graph.values for name in tail.graph.inputs):
        return graph
    rewritten = with_detections(tail.graph)
    given = {
        name: Tensor.input(name, value.shape, value.dtype)
        for name in rewritten.inputs for value in [graph.values[name]]
    }
    taking = _Taking(rewritten, {name: Rows(tensor) for name, tensor in given.items()})
    taken = {name: rows for name, rows in taking.values.items() if rows.is_suppressed}
    while True:
        rest = _without(rewritten, taken.keys())
        read = {*rest.outputs, *(name for node in rest.nodes for name in node.reads)}
        crossing = {name: rows for name, rows in taken.items() if name in read}
        places = {name for name, rows in crossing.items() if rows.places_in is not None}
        if not places:
            break
        taken = {name: rows for name, rows in taken.items() if name not in places}
    twice = {name for node in rest.nodes if _suppresses(node) for name in node.outputs if name in taking.values}
    if not crossing or any(taking.values[name].is_suppressed for name in twice):
        return graph
    return _joined(graph, tail, rest, crossing, given)


def _suppresses(node: HostNode) -> bool:
    """Whether a node or one in its bodies is a suppression."""
    inner = (each for body in node.bodies.values() for each in body.nodes)
    return node.op_type == "NonMaxSuppression" or any(map(_suppresses, inner))


def _without(graph: HostGraph, taken: Collection[str]) -> HostGraph:
    """The graph without the nodes that make these values, and without those that nothing reads then."""
    nodes = tuple(node for node in graph.nodes if not any(name in taken for name in node.outputs))
    return needed(replace(graph, nodes=nodes), graph.outputs)


@dataclass(frozen=True, eq=False)
class Space:
    """Rows of which some exist. mask: (rows), bool. is_prefix: whether those that exist come first.

    inside: the spaces that are empty only if this one is.
    """

    mask: Tensor
    is_prefix: bool = False
    inside: frozenset[Space] = frozenset()

    def part(self, mask: Tensor, is_prefix: bool = False) -> Space:
        """The space of some rows of this one."""
        return Space(mask, is_prefix, self.inside | {self})


@dataclass(frozen=True)
class Rows:
    """A value on the device. space: which rows along `axis` exist; None: its shape does not depend on data.

    places_in: the space among whose rows the elements are places, if they are. is_triple: whether each row is
    (batch, class, place). is_suppressed: whether it depends on a suppression.
    """

    tensor: Tensor
    axis: int = 0
    space: Space | None = None
    places_in: Space | None = None
    is_triple: bool = False
    is_suppressed: bool = False


class _StaysError(Exception):
    """A node that stays with the host."""


class _Taking:
    """Computes what it can of a host's graph as tensors, by name in `values`."""

    def __init__(self, graph: HostGraph, given: Mapping[str, Rows]) -> None:
        self.graph = graph
        known = constants_of(graph)
        self.values = {**given, **{name: Rows(Tensor.constant(array)) for name, array in known.items()}}
        makers = {name: (node, n) for node in graph.nodes for n, name in enumerate(node.outputs) if name}
        self.matching = Matching(makers, known)
        for node in graph.nodes:
            if node.op_type != "Constant":
                try:
                    with origin(node.name):
                        made = self.made(node)
                except (_StaysError, Error):
                    continue
                self.values |= {name: rows for name, rows in zip(node.outputs, made) if name}

    def made(self, node: HostNode) -> Sequence[Rows]:
        """The outputs of a node. Raises _StaysError, and Error from its operator."""
        if (node.op_type, node.domain) == (BEST_OF_CLASSES, DOMAIN):
            return self.best_of_classes(node)
        if node.op_type == "If" and not node.domain:
            return [self.chosen(node)]
        if node.domain or node.bodies or not all(name in self.values for name in node.inputs if name):
            raise _StaysError
        given = [self.values[name] if name else None for name in node.inputs]
        rows = [each for each in given if each is not None]
        is_suppressed = any(each.is_suppressed for each in rows)
        if node.op_type == "NonMaxSuppression":
            return [_suppressed(node, given)]
        if node.op_type == "NonZero":
            made: Sequence[Rows] = [_places(rows[0])]
        elif all(each.space is None for each in rows):
            made = [Rows(tensor) for tensor in _call(node, given)]
        else:
            if node.op_type in ELEMENTWISE:
                rule: Rule = _elementwise
            elif node.op_type in RULES:
                rule = RULES[node.op_type]
            else:
                raise _StaysError
            if any(each.is_triple for each in rows) and rule is not _gathered:
                raise _StaysError
            made = rule(node, given)
        return [replace(each, is_suppressed=is_suppressed) for each in made]

    def best_of_classes(self, node: HostNode) -> Sequence[Rows]:
        """See host/detections.py: the best of each class, of which those over the threshold exist."""
        scores, boxes = (self.values.get(name, _NOTHING) for name in node.inputs)
        classes, labels = (numpy.asarray(node.attributes[name]) for name in ("classes", "labels"))
        if scores.tensor.rank != 2 or boxes.tensor.rank != 2 or scores.space or boxes.space:
            raise _StaysError
        (size, width), most = scores.tensor.shape, node.attributes["most"]
        assert isinstance(most, int)
        if boxes.tensor.shape[0] != size or classes.max() >= width or len(classes) * min(most, size) > MOST_BOXES:
            raise _StaysError
        by_class = scores.tensor.take(1, classes.tolist()).transpose(1, 0)
        is_over = less(float(numpy.asarray(node.attributes["threshold"])), by_class)
        count = min(most, size)
        best = order(where(is_over, by_class * -1.0, nan), count, largest=False)
        rows = len(classes) * count
        values = take_along(by_class, 1, best, best.shape)
        space = Space(take_along(is_over, 1, best, best.shape).reshape(rows))
        flat = take_rows(boxes.tensor, best.reshape(rows))
        numbers = Tensor.constant(numpy.repeat(labels.astype(numpy.int64), count))
        return [Rows(tensor, 0, space) for tensor in (flat, values.reshape(rows), numbers)]

    def chosen(self, node: HostNode) -> Rows:
        """An If that gives nothing if there are no rows, and else what its other branch makes of them."""
        then, other = node.attributes.get("then_branch"), node.attributes.get("else_branch")
        found: dict[str, str] = {}
        if not any(self.matching.find(pattern, node.inputs[0], found) for pattern in CONDITIONS):
            raise _StaysError
        assert isinstance(then, HostGraph) and isinstance(other, HostGraph)
        rows, nothing = self.values.get(found["rows"], _NOTHING), constants_of(then).get(then.outputs[0])
        if rows.space is None or nothing is None or nothing.size or len(node.outputs) != 1:
            raise _StaysError
        inner = _Taking(other, self.values).values.get(other.outputs[0], _NOTHING)
        if inner.space is None or inner.tensor.rank != nothing.ndim or rows.space not in inner.space.inside:
            raise _StaysError
        return inner


_NOTHING = Rows(Tensor.constant(numpy.zeros(0)))
Given = Sequence["Rows | None"]
Rule = Callable[[HostNode, Given], "list[Rows]"]


def _call(node: HostNode, given: Given) -> list[Tensor]:
    """The outputs of the operator's own function."""
    registered = ops.find(node.op_type, node.domain)
    if registered is None:
        raise _StaysError
    tensors = tuple(None if each is None else each.tensor for each in given)
    made = registered.function(
        ops.Call(node.name, node.op_type, node.version, tensors, node.attributes, node.outputs)
    )
    return [made] if isinstance(made, Tensor) else list(made)


def take_rows(x: Tensor, places: Tensor) -> Tensor:
    """The rows of x (N, C) at places (M): (M, C)."""
    shape = (places.shape[0], x.shape[1])
    return take_along(x, 0, places.reshape(-1, 1), shape)


def _first(given: Given, plain: bool = True) -> Rows:
    """The first input, whose rows depend on data. plain: whether the others must be known."""
    first, *others = given
    if first is None or first.space is None:
        raise _StaysError
    if plain and any(each is not None and not each.tensor.is_constant for each in others):
        raise _StaysError
    return first


def _places(x: Rows) -> Rows:
    """NonZero of one axis: each place is its own row."""
    if x.tensor.rank != 1:
        raise _StaysError
    mask = x.tensor.cast("bool")
    space = Space(mask) if x.space is None else x.space.part(mask.apply("and", x.space.mask, dtype="bool"))
    return Rows(Tensor.constant(numpy.arange(mask.size).reshape(1, -1)), 1, space, x.space)


def _elementwise(node: HostNode, given: Given) -> list[Rows]:
    """Row by row: the rows of all inputs that have some lie side by side."""
    rows = [each for each in given if each is not None]
    found = {(each.space, each.tensor.rank - each.axis) for each in rows if each.space is not None}
    if len(found) != 1 or any(each.places_in is not None for each in rows):
        raise _StaysError
    ((space, from_end),) = found
    for each in rows:
        if each.space is None and each.tensor.rank >= from_end and each.tensor.shape[-from_end] != 1:
            raise _StaysError
    (made,) = _call(node, given)
    return [Rows(made, made.rank - from_end, space)]


def _unchanged(node: HostNode, given: Given) -> list[Rows]:
    first = _first(given)
    return [replace(first, tensor=_call(node, given)[0])]


def _axes(node: HostNode, given: Given, rank: int) -> list[int]:
    """The axes of Squeeze and Unsqueeze."""
    second = given[1] if len(given) > 1 else None
    axes = node.attributes.get("axes") if second is None else second.tensor.numpy().reshape(-1).tolist()
    if not isinstance(axes, (list, tuple)) or not axes:
        raise _StaysError
    return sorted(int(axis) % rank for axis in axes)


def _squeezed(node: HostNode, given: Given) -> list[Rows]:
    first = _first(given)
    axes = _axes(node, given, first.tensor.rank)
    if first.axis in axes:
        raise _StaysError
    return [replace(first, tensor=_call(node, given)[0], axis=first.axis - sum(axis < first.axis for axis in axes))]


def _unsqueezed(node: HostNode, given: Given) -> list[Rows]:
    first = _first(given)
    (made,) = _call(node, given)
    new = _axes(node, given, made.rank)
    old = [axis for axis in range(made.rank) if axis not in new]
    return [replace(first, tensor=made, axis=old[first.axis])]


def _transposed(node: HostNode, given: Given) -> list[Rows]:
    first = _first(given)
    perm = node.attributes.get("perm", tuple(reversed(range(first.tensor.rank))))
    assert isinstance(perm, tuple)
    return [replace(first, tensor=_call(node, given)[0], axis=perm.index(first.axis))]


def _split(node: HostNode, given: Given) -> list[Rows]:
    first, axis = _first(given), node.attributes.get("axis", 0)
    assert isinstance(axis, int)
    if axis % first.tensor.rank == first.axis:
        raise _StaysError
    return [replace(first, tensor=tensor) for tensor in _call(node, given)]


def _sliced(node: HostNode, given: Given) -> list[Rows]:
    """Other axes, or the first rows if those that exist come first."""
    first = _first(given)
    if len(given) < 3:
        raise _StaysError
    starts, ends, *rest = (None if each is None else each.tensor.numpy().reshape(-1).tolist() for each in given[1:])
    assert starts is not None and ends is not None
    axes = rest[0] if rest and rest[0] is not None else list(range(len(starts)))
    steps = rest[1] if len(rest) > 1 and rest[1] is not None else [1] * len(starts)
    space, size = first.space, first.tensor.shape[first.axis]
    assert space is not None
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if axis % first.tensor.rank == first.axis and not (start == 0 and step == 1 and end >= size):
            if start != 0 or step != 1 or end <= 0 or not space.is_prefix:
                raise _StaysError
            space = space.part(space.mask.slice(0, 0, end), is_prefix=True)
    return [replace(first, tensor=_call(node, given)[0], space=space)]


def _concatenated(node: HostNode, given: Given) -> list[Rows]:
    """Side by side, or the rows of one value behind those of another."""
    rows = [each for each in given if each is not None]
    axis = node.attributes.get("axis", 0)
    assert isinstance(axis, int)
    first = rows[0]
    if any((each.space is None, each.axis, each.places_in) != (False, first.axis, first.places_in) for each in rows):
        raise _StaysError
    (made,) = _call(node, given)
    spaces = [each.space for each in rows if each.space is not None]
    if axis % first.tensor.rank != first.axis:
        if any(space is not spaces[0] for space in spaces):
            raise _StaysError
        return [replace(first, tensor=made)]
    space = spaces[0] if len(spaces) == 1 else Space(concatenate([space.mask for space in spaces], 0))
    return [replace(first, tensor=made, space=space)]


def _gathered(node: HostNode, given: Given) -> list[Rows]:
    """Columns of rows; or rows at places, which are rows themselves."""
    table, index = given
    assert table is not None and index is not None
    axis = node.attributes.get("axis", 0)
    assert isinstance(axis, int)
    axis %= table.tensor.rank
    if index.space is None:
        if axis == table.axis or not index.tensor.is_constant:
            raise _StaysError
        if table.is_triple and (index.tensor.numpy() != 2).any():
            raise _StaysError
        moved = index.tensor.rank - 1 if axis < table.axis else 0
        return [replace(table, tensor=_call(node, given)[0], axis=table.axis + moved, is_triple=False)]
    if table.is_triple or index.is_triple or index.places_in is not table.space:
        raise _StaysError
    if table.space is not None and axis != table.axis:
        raise _StaysError
    return [Rows(_call(node, given)[0], axis + index.axis, index.space, table.places_in)]


def _extreme(node: HostNode, given: Given) -> list[Rows]:
    """The largest or smallest over all rows that exist."""
    first = _first(given)
    axes = given[1].tensor.numpy().reshape(-1).tolist() if len(given) > 1 and given[1] is not None else None
    axes = node.attributes.get("axes") if axes is None else axes
    assert first.space is not None
    if node.attributes.get("noop_with_empty_axes", 0) or first.places_in is not None or not first.tensor.is_float:
        raise _StaysError
    if axes and first.axis not in [axis % first.tensor.rank for axis in axes]:  # type: ignore[union-attr]
        raise _StaysError
    mask = first.space.mask.reshape(*(-1 if a == first.axis else 1 for a in range(first.tensor.rank)))
    seen = where(mask, first.tensor, -inf if node.op_type == "ReduceMax" else inf)
    return [Rows(_call(node, [Rows(seen), *given[1:]])[0])]


RULES: Mapping[str, Rule] = {
    "Cast": _unchanged, "Identity": _unchanged, "Squeeze": _squeezed, "Unsqueeze": _unsqueezed,
    "Transpose": _transposed, "Split": _split, "Slice": _sliced, "Concat": _concatenated, "Gather": _gathered,
    "ReduceMax": _extreme, "ReduceMin": _extreme,
}


def _suppressed(node: HostNode, given: Given) -> Rows:
    """NonMaxSuppression of one class: (rows, 3), of which those of the boxes that stay exist."""
    boxes, scores, *limits = given
    assert boxes is not None and scores is not None
    if scores.tensor.shape[:2] != (1, 1) or boxes.tensor.shape[0] != 1 or boxes.space is not scores.space:
        raise _StaysError
    if any(each is not None and not each.tensor.is_constant for each in limits):
        raise _StaysError
    size, space = scores.tensor.shape[2], boxes.space
    most, overlap, least = (
        None if each is None else each.tensor.numpy().item() for each in [*limits, None, None, None][:3]
    )
    staying = min(int(most or 0), size)
    if not 0 < staying <= MOST_STAYING or size > (MOST_BOXES if space else MOST_UNMASKED):
        raise _StaysError
    if space is not None and (boxes.axis, scores.axis) != (1, 2):
        raise _StaysError
    values = scores.tensor.reshape(size)
    mask = Tensor.constant(numpy.ones(size, bool)) if space is None else space.mask
    mask = mask if least is None else mask.apply("and", less(float(least), values), dtype="bool")
    # NaN is behind all others, so that the boxes that take part come first.
    best = order(where(mask, values * -1.0, nan), size, largest=False)
    corners = take_rows(_corners(boxes.tensor.reshape(size, 4), bool(node.attributes.get("center_point_box", 0))), best)
    places = suppression(corners, mask.cast("int64").sum(), float(overlap or 0), staying)
    stay = less(-1, places)
    chosen = take_along(best, 0, places.apply("maximum", 0), places.shape).reshape(staying, 1)
    triples = concatenate([Tensor.constant(numpy.zeros((staying, 2), numpy.int64)), chosen], 1)
    outer = Space(mask) if space is None else space
    return Rows(triples, 0, outer.part(stay, is_prefix=True), space, is_triple=True, is_suppressed=True)


def _corners(boxes: Tensor, centred: bool) -> Tensor:
    """Boxes (N, 4) as (low, low, high, high)."""
    first, second = boxes.slice(1, 0, 2), boxes.slice(1, 2, 4)
    if centred:
        return concatenate([first - second * 0.5, first + second * 0.5], 1)
    return concatenate([first.apply("minimum", second), first.apply("maximum", second)], 1)


def _joined(
    graph: Graph, tail: Tail, rest: HostGraph, crossing: Mapping[str, Rows], given: Mapping[str, Tensor]
) -> Graph:
    """The graph with the nodes that make the crossing values, and its tail without those."""
    made, nodes, masks = dict[str, Tensor](), list[HostNode](), dict[int, str]()
    for name, rows in crossing.items():
        if rows.space is None:
            made[name] = rows.tensor
            continue
        mask = masks.setdefault(id(rows.space), graph.unused(f"{name}.mask"))
        padded = graph.unused(f"{name}.rows")
        made |= {padded: rows.tensor, mask: rows.space.mask}
        nodes.append(HostNode(name, KEPT_ROWS, (padded, mask), (name,), {"axis": rows.axis}, 1, DOMAIN))
    built = build_graph(made, list(given.values()))
    inner = [*built.constants, *(node.output.name for node in built.nodes if node.output.name not in made)]
    built = renamed(built, {name: graph.unused(f"suppression/{name}") for name in inner})
    outputs = tuple(name for name in rest.outputs if name not in made)
    read = {*outputs, *(name for node in (*nodes, *rest.nodes) for name in node.reads)}
    inputs = tuple(name for name in (*rest.inputs, *made) if name in read)
    left = HostGraph(inputs, outputs, (*nodes, *rest.nodes), rest.constants)
    declared = {value.name for value in tail.outputs}
    kept = [name for name in graph.outputs if name in declared or name in inputs]
    return replace(
        graph, nodes=(*graph.nodes, *built.nodes), constants={**graph.constants, **built.constants},
        outputs=tuple(dict.fromkeys((*kept, *made))), tail=replace(tail, graph=left),
    ).validate()
