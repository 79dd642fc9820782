"""Moves non-maximum suppression, and the work before and after it, from the host partition back to the device.

The number of rows of such a value depends on data, but a constant bounds it. On the device the value is padded to this
bound, and a mask marks the rows that exist:

    best of 90 classes, at most 300 each      27,000 rows, mask          BestOfClasses, NonZero: a mask, nothing moves
    suppression, at most 300 remain              300 rows, mask          NonMaxSuppression
    boxes, scores and labels at its indices      300 rows, mask          Gather
    work on each row                             300 rows, mask
    ------------------------------------------------------------------------------------------------------ to the host
    KeptRows: the rows that exist

On the device an index counts all rows, including padding; on the host it counts only the rows that exist. So an index
is never a boundary tensor: the host computes it again. If the indices of a suppression are needed on the host, nothing
is moved to the device.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy

from imgconv.arrays import Array
from imgconv.errors import Error
from imgconv.graph.join import rename_values
from imgconv.graph.nodes import Graph, HostPartition
from imgconv.graph.onnx_nodes import HostGraph, HostNode
from imgconv.host.detections import BEST_OF_CLASSES, Pattern, PatternMatcher, speed_up_detections, without_dead_nodes
from imgconv.host.registry import HostCall, host
from imgconv.host.row_suppression import best_of_classes, suppress_rows
from imgconv.host.padded_rows import CannotOffloadError, PaddedRows, padded_outputs
from imgconv.host.subgraphs import DOMAIN, constants_of
from imgconv.tensor import Tensor, build_graph, origin

KEPT_ROWS = "KeptRows"
IS_EMPTY: Pattern = ("Equal", {}, ("ReduceProd", {"keepdims": 0}, ("Shape", {}, "rows")), "zero")
CONDITIONS: Sequence[Pattern] = (IS_EMPTY, ("Cast", {"to": "bool"}, IS_EMPTY))


@host(KEPT_ROWS, domain=DOMAIN)
def rows_that_exist(call: HostCall, rows: Array, mask: Array) -> Array:
    """The rows along an axis that exist."""
    return numpy.compress(mask, rows, int(call.attribute("axis", 0)))


def offload_suppression(graph: Graph) -> Graph:
    """The graph, with the suppression of its host partition on the device if results stay equal. Else the graph.

    Raises ResourceError for a tensor that is larger than the limits allow.
    """
    partition = graph.host_partition
    if partition is None or any(name not in graph.values for name in partition.graph.inputs):
        return graph
    rewritten = speed_up_detections(partition.graph)
    given = {
        name: Tensor.input(name, value.shape, value.dtype)
        for name in rewritten.inputs for value in [graph.values[name]]
    }
    values = _Offloader(rewritten, {name: PaddedRows(tensor) for name, tensor in given.items()}).values
    taken = {name: rows for name, rows in values.items() if rows.is_suppressed and rows.sizes is None}
    while True:
        rest = _without_nodes(rewritten, taken.keys())
        read = {*rest.outputs, *(name for node in rest.nodes for name in node.reads)}
        boundary = {name: rows for name, rows in taken.items() if name in read}
        places = {name for name, rows in boundary.items() if rows.places_in is not None}
        if not places:
            break
        taken = {name: rows for name, rows in taken.items() if name not in places}
    twice = {name for node in rest.nodes if _contains_suppression(node) for name in node.outputs if name in values}
    if not boundary or any(values[name].is_suppressed for name in twice):
        return graph
    return _move_to_device(graph, partition, rest, boundary, given)


def _contains_suppression(node: HostNode) -> bool:
    """Returns whether a node or one in its bodies is a suppression."""
    inner = (each for body in node.bodies.values() for each in body.nodes)
    return node.op_type == "NonMaxSuppression" or any(map(_contains_suppression, inner))


def _without_nodes(graph: HostGraph, taken: Collection[str]) -> HostGraph:
    """The graph without the nodes that make these values, and without those that nothing reads any more."""
    nodes = tuple(node for node in graph.nodes if not any(name in taken for name in node.outputs))
    return without_dead_nodes(replace(graph, nodes=nodes), graph.outputs)


class _Offloader:
    """Computes what it can of a host's graph as tensors, by name in `values`."""

    def __init__(self, graph: HostGraph, given: Mapping[str, PaddedRows]) -> None:
        known = constants_of(graph)
        self.values = {**given, **{name: PaddedRows(Tensor.constant(array)) for name, array in known.items()}}
        makers = {name: (node, n) for node in graph.nodes for n, name in enumerate(node.outputs) if name}
        self.matching = PatternMatcher(makers, known)
        self.places: dict[str, Sequence[PaddedRows]] = {}  # of a mask: exporters write NonZero for each value of a row
        for node in graph.nodes:
            if node.op_type != "Constant":
                try:
                    with origin(node.name):
                        made = self.outputs_of(node)
                except (CannotOffloadError, Error):
                    continue
                self.values |= {name: rows for name, rows in zip(node.outputs, made) if name}

    def outputs_of(self, node: HostNode) -> Sequence[PaddedRows]:
        """The outputs of a node. Raises CannotOffloadError, and Error from its operator."""
        if node.op_type == "If" and not node.domain:
            return [self.output_of_if(node)]
        if not all(name in self.values for name in node.inputs if name):
            raise CannotOffloadError
        given = [self.values[name] if name else None for name in node.inputs]
        if (node.op_type, node.domain) == (BEST_OF_CLASSES, DOMAIN):
            return best_of_classes(node, given)
        if node.domain or node.bodies:
            raise CannotOffloadError
        if node.op_type == "NonMaxSuppression":
            return suppress_rows(node, given)
        if node.op_type == "NonZero" and node.inputs[0] in self.places:
            return self.places[node.inputs[0]]
        is_suppressed = any(each is not None and each.is_suppressed for each in given)
        made = [replace(each, is_suppressed=is_suppressed) for each in padded_outputs(node, given)]
        if node.op_type == "NonZero":
            self.places[node.inputs[0]] = made
        return made

    def output_of_if(self, node: HostNode) -> PaddedRows:
        """An If that gives nothing if there are no rows, and else what its other branch makes of them."""
        then, other = node.attributes.get("then_branch"), node.attributes.get("else_branch")
        found: dict[str, str] = {}
        if not any(self.matching.find(pattern, node.inputs[0], found) for pattern in CONDITIONS):
            raise CannotOffloadError
        if not isinstance(then, HostGraph) or not isinstance(other, HostGraph) or len(node.outputs) != 1:
            raise CannotOffloadError
        rows, nothing = self.values.get(found["rows"]), constants_of(then).get(then.outputs[0])
        inner = _Offloader(other, self.values).values.get(other.outputs[0])
        if rows is None or rows.space is None or inner is None or inner.space is None:
            raise CannotOffloadError
        if nothing is None or nothing.size or inner.tensor.rank != nothing.ndim:
            raise CannotOffloadError
        if not inner.space.is_within(rows.space):
            raise CannotOffloadError
        return inner


def _move_to_device(
    graph: Graph, partition: HostPartition, rest: HostGraph, boundary: Mapping[str, PaddedRows],
    given: Mapping[str, Tensor],
) -> Graph:
    """The graph with the nodes that make the boundary values, and its partition without those."""
    tensors, nodes, masks = dict[str, Tensor](), list[HostNode](), dict[int, str]()
    for name, rows in boundary.items():
        if rows.space is None:
            tensors[name] = rows.tensor
            continue
        mask = masks.setdefault(id(rows.space), graph.unused_name(f"{name}.mask"))
        padded = graph.unused_name(f"{name}.rows")
        tensors |= {padded: rows.tensor, mask: rows.space.mask}
        nodes.append(HostNode(name, KEPT_ROWS, (padded, mask), (name,), {"axis": rows.axis}, 1, DOMAIN))
    made = {name: tensor for name, tensor in tensors.items() if not tensor.is_constant}
    constants = {name: tensor.numpy() for name, tensor in tensors.items() if tensor.is_constant}
    built = build_graph(made, list(given.values()))
    inner = [*built.constants, *(node.output.name for node in built.nodes if node.output.name not in made)]
    built = rename_values(built, {name: graph.unused_name(f"suppression/{name}") for name in inner})
    outputs = tuple(name for name in rest.outputs if name not in made)
    read = {*outputs, *(name for node in (*nodes, *rest.nodes) for name in node.reads)}
    inputs = tuple(name for name in (*rest.inputs, *made) if name in read)
    left = HostGraph(inputs, outputs, (*nodes, *rest.nodes), {**rest.constants, **constants})
    declared = {value.name for value in partition.outputs}
    kept = [name for name in graph.outputs if name in declared or name in inputs]
    return replace(
        graph, nodes=(*graph.nodes, *built.nodes), constants={**graph.constants, **built.constants},
        outputs=tuple(dict.fromkeys((*kept, *made))), host_partition=replace(partition, graph=left),
    ).validate()
