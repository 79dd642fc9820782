"""Rewrites the ends of detectors so that one numpy call handles all classes, and suppression stops early.

torchvision's SSD selects the boxes of each class with separate nodes, 16 for each of 90 classes:

    column = Gather(scores, class)                                  scores of all boxes for one class
    places = Transpose(NonZero(Greater(column, threshold)))
    chosen = GatherND(column, places)
    best, order = TopK(chosen, min(most, number of them))
    boxes_c = Gather(GatherND(boxes, places), order)                becomes one node for all classes
    labels_c = ConstantOfShape(Shape(best), label)
    ...
    boxes, scores, labels = Concat(boxes_1, boxes_2 ...), Concat(best_1 ...), Concat(labels_1 ...)

The new node has the inputs of these nodes, and keeps them as a body, for tensors of other ranks. If later nodes read
only the first boxes that a NonMaxSuppression keeps, it keeps no more boxes of each class.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Union

import numpy

from imgconv.arrays import Array
from imgconv.graph.onnx_nodes import HostGraph, HostNode
from imgconv.host.registry import HostCall, host
from imgconv.host.subgraphs import DOMAIN, constants_of
from imgconv.suppression import order_by_score

BEST_OF_CLASSES = "BestOfClasses"
SORTED_WHOLE = 50_000  # scores: up to this count a full sort beats pre-selection
# An op type with attributes, or ("TopK", 1) for its second output, and patterns of its inputs; or the name of a value.
Pattern = Union[str, tuple[Any, ...]]
DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "Gather": {"axis": 0}, "GatherND": {"batch_dims": 0}, "TopK": {"axis": -1, "largest": 1, "sorted": 1},
    "Reshape": {"allowzero": 0}, "Shape": {"start": 0},
}
COLUMN: Pattern = ("Gather", {"axis": 1}, "scores", "class")
PLACES: Pattern = ("Transpose", {"perm": (1, 0)}, ("NonZero", {}, ("Greater", {}, COLUMN, "threshold")))
CHOSEN: Pattern = ("GatherND", {}, COLUMN, PLACES)
COUNT: Pattern = ("Unsqueeze", {}, ("Gather", {}, ("Shape", {}, CHOSEN), "zero"), "zeros")
FEWER: Pattern = ("Reshape", {}, ("ReduceMin", {"keepdims": 0}, ("Concat", {"axis": 0}, "most", COUNT)), "ones")
BEST: Pattern = ("TopK", {}, CHOSEN, FEWER)
PARTS: Mapping[str, Pattern] = {
    "boxes": ("Gather", {}, ("GatherND", {}, "boxes", PLACES), (("TopK", 1), {}, CHOSEN, FEWER)),
    "scores": BEST,
    "labels": ("ConstantOfShape", {"value": "label"}, ("Shape", {}, BEST)),
}
FIXED = {"zero": 0, "zeros": [0], "ones": [1]}


def speed_up_detections(graph: HostGraph) -> HostGraph:
    """The graph, with what this file rewrites. Its values stay the same."""
    return _with_suppression_limits(_merge_class_nodes(graph))


@host(BEST_OF_CLASSES, domain=DOMAIN)
def best_of_classes(call: HostCall, scores: Array, boxes: Array) -> Any:
    """Boxes, scores and labels of the best boxes of each class over a threshold, class by class, the best first."""
    classes, most = numpy.asarray(call.attribute("classes")), call.attribute("most")
    if (scores.ndim, boxes.ndim) != (2, 2) or len(scores) != len(boxes) or classes.max() >= scores.shape[1]:
        return tuple(call.attribute("otherwise")(scores, boxes))
    chosen = scores > call.attribute("threshold")
    many = classes[numpy.count_nonzero(chosen, 0)[classes] > most]
    if many.size and numpy.count_nonzero(chosen) > SORTED_WHOLE:
        # Of a class with too many, those that are worse than the last one that is wanted go before anything is sorted.
        candidates = numpy.where(chosen[:, many].T, scores[:, many].T, -numpy.inf)
        last = candidates.shape[1] - most
        worst = numpy.partition(candidates, last, 1)[:, last : last + 1]
        better, equal = candidates > worst, candidates == worst  # of equal ones the first
        room = most - numpy.count_nonzero(better, 1)
        chosen[:, many] = (better | equal & (numpy.cumsum(equal, 1) <= room[:, None])).T
    row, column = numpy.divmod(numpy.flatnonzero(chosen[:, classes]), len(classes))
    values = scores[row, classes[column]]
    order = order_by_score(values, column)
    counts = numpy.bincount(column, minlength=len(classes))
    before = numpy.cumsum(counts) - counts  # the classes are one after the other
    order = order[numpy.arange(len(order)) - before[column[order]] < most]
    labels = numpy.asarray(call.attribute("labels"), numpy.int64)
    return boxes[row[order]], values[order], labels[column[order]]


@dataclass(frozen=True)
class PatternMatcher:
    """Finds patterns in a graph."""

    makers: Mapping[str, tuple[HostNode, int]]
    constants: Mapping[str, Array]

    def find(self, pattern: Pattern, name: str, found: dict[str, Any]) -> bool:
        """Returns whether a value is made as the pattern says; `found` takes the values that the pattern names."""
        if isinstance(pattern, str):
            value = self.constants.get(name, name)
            return _is_same(found.setdefault(pattern, value), value) and _is_same(FIXED.get(pattern, value), value)
        kind, attributes, *inputs = pattern
        op_type, number = kind if isinstance(kind, tuple) else (kind, 0)
        node, place = self.makers.get(name, (None, 0))
        if node is None or (node.op_type, node.domain, place) != (op_type, "", number):
            return False
        if len(node.inputs) != len(inputs) or not _has_attributes(node, attributes, found):
            return False
        return all(self.find(each, own, found) for each, own in zip(inputs, node.inputs))

    def match_concat(self, concat: HostNode) -> tuple[str, list[dict[str, Any]]] | None:
        """Returns the member of PARTS that a Concat joins, and the values found for each class."""
        if concat.op_type != "Concat" or concat.attributes.get("axis") != 0:
            return None
        for part, pattern in PARTS.items():
            rows: list[dict[str, Any]] = []
            for name in concat.inputs:
                found: dict[str, Any] = {}
                if not self.find(pattern, name, found):
                    break
                rows.append(found)
            if len(rows) == len(concat.inputs):
                return part, rows
        return None


def _is_same(a: Any, b: Any) -> bool:
    """Returns whether two names, or two constants, are equal."""
    if isinstance(a, str) or isinstance(b, str):
        return isinstance(a, str) and isinstance(b, str) and a == b
    return numpy.array_equal(a, b)


def _has_attributes(node: HostNode, attributes: Mapping[str, Any], found: dict[str, Any]) -> bool:
    """Returns whether a node has these attributes and no others; one that is a name in the pattern goes to `found`."""
    own = {**DEFAULTS.get(node.op_type, {}), **node.attributes}
    wanted = {**DEFAULTS.get(node.op_type, {}), **attributes}
    named = {key: name for key, name in wanted.items() if isinstance(name, str)}
    found |= {name: own[key] for key, name in named.items() if key in own}
    return own.keys() == wanted.keys() and all(
        type(own[key]) is type(value) and own[key] == value for key, value in wanted.items() if key not in named
    )


def _merge_class_nodes(graph: HostGraph) -> HostGraph:
    """One node in place of those of all classes; see the top of this file."""
    makers = {name: (node, n) for node in graph.nodes for n, name in enumerate(node.outputs) if name}
    matching = PatternMatcher(makers, constants_of(graph))
    merged: dict[str, tuple[HostNode, list[dict[str, Any]]]] = {}
    for node in graph.nodes:
        matched = matching.match_concat(node)
        if matched:
            merged[matched[0]] = node, matched[1]
    if merged.keys() != PARTS.keys():
        return graph
    about = _common_parts([rows for _, rows in merged.values()])
    if about is None:
        return graph
    scores, boxes, attributes = about
    concats = [merged[part][0] for part in PARTS]
    outputs = tuple(node.outputs[0] for node in concats)
    replaced = {id(node) for node in concats}
    body = without_dead_nodes(replace(graph, inputs=(scores, boxes), outputs=outputs), outputs)
    if body.captured:
        return graph
    made = HostNode(
        concats[1].name, BEST_OF_CLASSES, (scores, boxes), outputs, {**attributes, "otherwise": body}, 1, DOMAIN
    )
    first = next(number for number, node in enumerate(graph.nodes) if id(node) in replaced)
    nodes = [*graph.nodes[:first], made, *(node for node in graph.nodes[first:] if id(node) not in replaced)]
    return without_dead_nodes(replace(graph, nodes=tuple(nodes)), graph.outputs)


def _common_parts(parts: Sequence[Sequence[Mapping[str, Any]]]) -> tuple[str, str, dict[str, Any]] | None:
    """(scores, boxes, attributes of the node) if the parts are those of the same classes; else None."""
    if len({len(rows) for rows in parts}) != 1:
        return None
    boxes, _, labels = parts
    first = {**boxes[0], **labels[0]}
    for rows in parts:
        for row, others in zip(rows, boxes):
            if not _is_same(row["class"], others["class"]):
                return None
            if not all(_is_same(row[name], first[name]) for name in ("scores", "threshold", "most")):
                return None
    constants = [first["threshold"], first["most"], *(row["class"] for row in boxes), *(row["label"] for row in labels)]
    if not all(_is_same(row["boxes"], first["boxes"]) for row in boxes) or any(isinstance(c, str) for c in constants):
        return None
    classes = tuple(row["class"] for row in boxes)
    one_each = all(first[name].size == 1 for name in ("threshold", "most"))
    if not one_each or first["most"].item() < 1 or any(c.ndim or c < 0 for c in classes):
        return None
    if any(row["label"].dtype != numpy.int64 or row["label"].size != 1 for row in labels):
        return None
    return first["scores"], first["boxes"], {
        "classes": tuple(map(int, classes)), "labels": tuple(int(row["label"].item()) for row in labels),
        "most": int(first["most"].item()), "threshold": first["threshold"].reshape(()),
    }


def without_dead_nodes(graph: HostGraph, outputs: Iterable[str]) -> HostGraph:
    """The graph without the nodes and constants that no output needs, and without those that make its inputs."""
    wanted, kept = {*outputs}, []
    for node in reversed(graph.nodes):
        made = {name for name in node.outputs if name}
        if not wanted.isdisjoint(made - {*graph.inputs}):
            wanted.update(node.reads)
            kept.append(node)
    constants = {name: array for name, array in graph.constants.items() if name in wanted}
    return replace(graph, nodes=tuple(reversed(kept)), constants=constants)


def _with_suppression_limits(graph: HostGraph) -> HostGraph:
    """Suppression keeps no more boxes of a class than are read: torchvision takes the best 300 after it."""
    known = constants_of(graph)
    for node in graph.nodes:
        if node.op_type == "Slice" and not node.domain and len(node.inputs) in (4, 5):
            starts, ends, axes, *steps = (known.get(name) for name in node.inputs[1:])
            plain = [_is_same(starts, [0]), _is_same(axes, [0]), *(_is_same(step, [1]) for step in steps)]
            if all(plain) and ends is not None and ends.size == 1 and ends.item() >= 0:
                graph = _with_row_limit(graph, node.inputs[0], ends.item(), {})
    return graph


def _with_row_limit(graph: HostGraph, name: str, most: int, around: Mapping[str, Array]) -> HostGraph:
    """The graph in which only the first `most` rows of a value need be right; itself if nothing changes."""
    makers = [node for node in graph.nodes if name in node.outputs]
    read = [each for node in graph.nodes for each in node.reads] + [*graph.outputs]
    if not makers or makers[0].domain or read.count(name) != 1:
        return graph
    node, known = makers[0], {**around, **constants_of(graph)}
    if node.op_type == "NonMaxSuppression":
        return _with_suppression_limit(graph, node, most, known)
    if node.op_type == "If":
        number = node.outputs.index(name)
        bodies = {key: _with_row_limit(body, body.outputs[number], most, known) for key, body in node.bodies.items()}
        made = replace(node, attributes={**node.attributes, **bodies})
        return replace(graph, nodes=tuple(made if each is node else each for each in graph.nodes))
    axes = known.get(node.inputs[1]) if node.op_type == "Squeeze" and len(node.inputs) == 2 else None
    of_rows = node.op_type in ("Cast", "Identity") or (node.op_type == "Gather" and node.attributes.get("axis") == 1)
    return _with_row_limit(graph, node.inputs[0], most, around) if of_rows or _is_same(axes, [1]) else graph


def _with_suppression_limit(graph: HostGraph, node: HostNode, most: int, known: Mapping[str, Array]) -> HostGraph:
    """The graph in which a NonMaxSuppression keeps at most `most` boxes of each class."""
    given = known.get(node.inputs[2]) if len(node.inputs) > 2 else None
    if given is None:
        return graph
    name = f"{node.outputs[0]}.most"
    made = replace(node, inputs=(*node.inputs[:2], name, *node.inputs[3:]))
    constants = {**graph.constants, name: numpy.minimum(given, most)}
    return replace(graph, nodes=tuple(made if each is node else each for each in graph.nodes), constants=constants)
