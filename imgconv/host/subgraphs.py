"""Groups convolutions and products after a data-dependent shape, so that the device can compute them.

A subgraph begins at a convolution, or at a product with a known matrix, and includes the layers after it. It is one
node of the host's graph, of op type Subgraph, with a body:

    crops = RoiAlign(features, boxes, batch)            crops = RoiAlign(features, boxes, batch)
    rows = Flatten(crops)                               rows = Flatten(crops)
    hidden = Gemm(rows, W1, b1)            becomes      scores = Subgraph(rows)
    active = Relu(hidden)
    scores = Gemm(active, W2, b2)

imgconv.loading.device_subgraphs runs it; without a device the host runs its body.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from graphlib import TopologicalSorter
from typing import Any

from imgconv import ops
from imgconv.arrays import Array, Arrays
from imgconv.graph.nodes import Graph
from imgconv.graph.onnx_nodes import HostGraph, HostNode
from imgconv.host.registry import HostCall, compose, host
from imgconv.tensor import Tensor, build_graph, origin

SUBGRAPH, DOMAIN = "Subgraph", "imgconv"
PRODUCTS = frozenset(("Gemm", "MatMul"))
LAYERS = PRODUCTS | {"Conv", "ConvTranspose"}
SMALLEST = 4096  # numbers of a matrix; with fewer, the copies to the device and back take longer than the product
ELEMENTWISE = frozenset((
    "Abs", "Add", "Celu", "Div", "Elu", "Erf", "Exp", "Gelu", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu",
    "Log", "Max", "Min", "Mish", "Mul", "Neg", "PRelu", "Pow", "Relu", "Selu", "Sigmoid", "Softplus", "Softsign",
    "Sqrt", "Sub", "Tanh", "ThresholdedRelu",
))
# The inputs of these but the first are known: weights, limits, shapes and axes.
BY_ELEMENT_OF_A_BATCH = frozenset((
    "AveragePool", "BatchNormalization", "Clip", "Conv", "ConvTranspose", "GlobalAveragePool", "GlobalMaxPool",
    "GroupNormalization", "InstanceNormalization", "LRN", "MaxPool",
))
OTHERS = frozenset(("Flatten", "Gemm", "LogSoftmax", "MatMul", "Reshape", "Softmax", "Squeeze", "Transpose"))


@host(SUBGRAPH, domain=DOMAIN)
def subgraph(call: HostCall, *inputs: Array) -> Any:
    """The outputs of a subgraph on the host."""
    return tuple(call.attribute("body")(*inputs))


def is_device_subgraph(node: HostNode) -> bool:
    """Returns whether a node is the device's."""
    return (node.op_type, node.domain) == (SUBGRAPH, DOMAIN)


def group_subgraphs(graph: HostGraph, around: Arrays | None = None) -> HostGraph:
    """The graph, and the bodies of its nodes, with subgraphs. around: the constants of the graphs around it."""
    own = graph.own_names
    known = {name: array for name, array in (around or {}).items() if name not in own} | constants_of(graph)
    nodes = [
        replace(node, attributes={**node.attributes, **{n: group_subgraphs(b, known) for n, b in node.bodies.items()}})
        for node in graph.nodes
    ]
    groups = _SubgraphFinder(nodes, known).groups()
    if groups:
        nodes = _with_groups_as_nodes(nodes, groups, known, graph.outputs)
    read = {*graph.outputs, *(name for node in nodes for name in node.reads)}
    kept = tuple(node for node in nodes if node.op_type != "Constant" or not read.isdisjoint(node.outputs))
    constants = {name: array for name, array in graph.constants.items() if name in read}
    return replace(graph, nodes=kept, constants=constants)


def ungrouped_layers(graph: HostGraph) -> list[HostNode]:
    """The convolutions, and the products that are not small, that the host computes itself."""
    known = constants_of(graph)
    return [
        node for node in graph.nodes
        if node.op_type in LAYERS and not node.domain
        and (node.op_type not in PRODUCTS or max((known[n].size for n in node.inputs if n in known), default=SMALLEST)
             >= SMALLEST)
    ]


def graph_of(body: HostGraph, shapes: Mapping[str, tuple[int, ...]], dtypes: Mapping[str, str]) -> Graph:
    """The Graph of a subgraph for inputs of these shapes and dtypes. Raises what the operators' functions raise."""
    tensors = _record_tensors(body, shapes, dtypes)
    return build_graph(
        {name: tensors[name] for name in body.outputs}, [tensors[name] for name in body.inputs], body.nodes[0].name
    )


def row_inputs(body: HostGraph, shapes: Mapping[str, tuple[int, ...]], dtypes: Mapping[str, str]) -> frozenset[str]:
    """The inputs whose axis 0 may be of any length, because row i of every output depends on row i of these only.

    They are as long as the first layer's input. Empty if the subgraph is not of that kind.
    """
    tensors = _record_tensors(body, shapes, dtypes)
    count = next(iter(shapes[name] for name in body.nodes[0].inputs if name in shapes))[:1]
    rows = {name for name in body.inputs if shapes[name][:1] == count}
    found = frozenset(rows)
    for node in body.nodes:
        inputs = [tensors[name] if name else None for name in node.inputs]
        given = [name in rows for name in node.inputs]
        if any(given):
            if not all(_keeps_rows(node, inputs, given, tensors[name]) for name in node.outputs if name):
                return frozenset()
            rows.update(node.outputs)
    return found if rows.issuperset(body.outputs) else frozenset()


def _keeps_rows(node: HostNode, inputs: Sequence[Tensor | None], rows: Sequence[bool], made: Tensor) -> bool:
    """Returns whether row i of the result depends on row i of the inputs that are rows, for any number of rows."""
    first, attributes = inputs[0], dict[str, Any](node.attributes)
    if first is None:
        return False
    if node.op_type in ELEMENTWISE:
        fixed = [t for t, is_rows in zip(inputs, rows) if t is not None and not is_rows]
        return all(t.rank == made.rank for t, is_rows in zip(inputs, rows) if t is not None and is_rows) and all(
            t.rank < made.rank or t.shape[0] == 1 for t in fixed
        )
    if not rows[0] or any(rows[1:]) or made.shape[:1] != first.shape[:1]:
        return False
    others = [t for t in inputs[1:] if t is not None]
    if node.op_type in BY_ELEMENT_OF_A_BATCH:
        return not attributes.get("training_mode", 0)
    if node.op_type == "Gemm":
        return not attributes.get("transA", 0) and all(t.rank < 2 or t.shape[0] == 1 for t in others[1:])
    if node.op_type == "MatMul":
        return first.rank >= 2 and others[0].rank <= 2
    if node.op_type in ("Softmax", "LogSoftmax"):
        return int(attributes.get("axis", -1 if node.version >= 13 else 1)) % first.rank > 0
    if node.op_type == "Reshape":
        wanted = others[0].numpy().reshape(-1)[:1].tolist()
        return wanted == [-1] or (wanted == [0] and not attributes.get("allowzero", 0))
    if node.op_type == "Squeeze":
        axes = others[0].numpy().reshape(-1) if others else attributes.get("axes", (0,))
        return all(int(axis) % first.rank for axis in axes)
    if node.op_type == "Flatten":
        return int(attributes.get("axis", 1)) == 1
    return node.op_type == "Transpose" and attributes.get("perm", (None,))[0] == 0


def _record_tensors(
    body: HostGraph, shapes: Mapping[str, tuple[int, ...]], dtypes: Mapping[str, str]
) -> dict[str, Tensor]:
    """Every value of a subgraph as a lazy tensor."""
    tensors = {name: Tensor.constant(array) for name, array in body.constants.items()}
    tensors |= {name: Tensor.input(name, shapes[name], dtypes[name]) for name in body.inputs}
    for node in body.nodes:
        with origin(node.name):
            made = compose(node, [tensors[name] if name else None for name in node.inputs])
        tensors |= dict(zip(node.outputs, made))
    return tensors


def constants_of(graph: HostGraph) -> dict[str, Array]:
    """The graph's constants and the arrays of its Constant nodes, by name."""
    constants = [node for node in graph.nodes if node.op_type == "Constant" and not node.domain]
    nodes = [node for node in constants if node.attributes.keys().isdisjoint(("value_string", "value_strings"))]
    made = _record_tensors(HostGraph((), (), tuple(nodes)), {}, {})
    return {**graph.constants, **{name: tensor.numpy() for name, tensor in made.items()}}


class _SubgraphFinder:
    """Finds the nodes of each subgraph, by their numbers."""

    def __init__(self, nodes: Sequence[HostNode], known: Arrays) -> None:
        self.nodes, self.known = nodes, known
        makers = {name: number for number, node in enumerate(nodes) for name in node.outputs if name}
        self.reads = [{makers[name] for name in node.reads if name in makers} for node in nodes]
        self.group_of: dict[int, list[int]] = {}

    def groups(self) -> list[list[int]]:
        """The subgraphs, each with its nodes in order."""
        for number, node in enumerate(self.nodes):
            if not self._is_layer_or_after(node):
                continue
            candidates = [self.group_of[maker] for maker in sorted(self.reads[number]) if maker in self.group_of]
            group = next((each for each in candidates if self._may_join(number, each)), None)
            if group is None and self._can_begin_subgraph(node):
                group = []
            if group is not None:
                group.append(number)
                self.group_of[number] = group
        return list({id(group): group for group in self.group_of.values()}.values())

    def _is_layer_or_after(self, node: HostNode) -> bool:
        """Returns whether a node may be in a subgraph."""
        if node.domain or ops.find(node.op_type) is None or len([name for name in node.outputs if name]) != 1:
            return False
        if node.op_type not in BY_ELEMENT_OF_A_BATCH | OTHERS:
            return node.op_type in ELEMENTWISE
        return node.inputs[0] not in self.known and all(name in self.known for name in node.inputs[1:] if name)

    def _can_begin_subgraph(self, node: HostNode) -> bool:
        """Returns whether a subgraph may begin at a node."""
        if node.op_type not in LAYERS:
            return False
        return node.op_type not in PRODUCTS or self.known[node.inputs[1]].size >= SMALLEST

    def _may_join(self, number: int, group: list[int]) -> bool:
        """Returns whether nothing outside of the group lies between its nodes and this one."""
        waiting, seen = list(self.reads[number] - set(group)), set[int]()
        while waiting:
            maker = waiting.pop()
            if maker in group:
                return False
            if maker not in seen:
                together = self.group_of.get(maker, [maker])
                seen.update(together)
                waiting += [each for one in together for each in self.reads[one]]
        return True


def _with_groups_as_nodes(
    nodes: Sequence[HostNode], groups: Sequence[list[int]], known: Arrays, outputs: Iterable[str]
) -> list[HostNode]:
    """The nodes in topological order, each group as one node."""
    grouped = {number for group in groups for number in group}
    made = [node for number, node in enumerate(nodes) if number not in grouped]
    for group in groups:
        inner = [nodes[number] for number in group]
        others = [node for number, node in enumerate(nodes) if number not in group]
        made.append(_subgraph_node(inner, {*outputs, *(name for node in others for name in node.reads)}, known))
    makers = {name: number for number, node in enumerate(made) for name in node.outputs if name}
    order = TopologicalSorter({
        number: [makers[name] for name in node.reads if name in makers] for number, node in enumerate(made)
    })
    return [made[number] for number in order.static_order()]


def _subgraph_node(inner: Sequence[HostNode], wanted: set[str], known: Arrays) -> HostNode:
    """The node of a subgraph. wanted: what the other nodes and the graph's outputs read."""
    own = [name for node in inner for name in node.outputs if name]
    read = list(dict.fromkeys(name for node in inner for name in node.reads if name not in own))
    inputs = tuple(name for name in read if name not in known)
    outputs = tuple(name for name in own if name in wanted)
    body = HostGraph(inputs, outputs, tuple(inner), {name: known[name] for name in read if name in known})
    return HostNode(inner[0].name, SUBGRAPH, inputs, outputs, {"body": body}, 1, DOMAIN)
