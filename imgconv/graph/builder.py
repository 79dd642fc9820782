"""Builds a Graph from recorded tensors. `build_graph` walks back from the outputs and leaves out everything unused."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from imgconv.arrays import Array
from imgconv.errors import InputError
from imgconv.graph.argument_check import ArgumentCheck
from imgconv.graph.lazy import Lazy, is_input, node_of, operand_of, reads_of, whole_read
from imgconv.graph.nodes import Graph, Load, Node, Value


def build_graph(outputs: Mapping[str, Lazy], inputs: Sequence[Lazy] = (), name: str = "model") -> Graph:
    """The Graph that computes the named outputs.

    `inputs` come first and in this order. Other inputs follow in the order in which they are found.
    Tensors that depend on no input are computed here and become constants of the Graph.

        x = Tensor.input("x", (1, 3, 8, 8))
        graph = build_graph({"y": x * 2.0}, [x])

    Raises InputError if two inputs, or an input and an output, share a name.
    """
    _check_arguments(outputs, inputs)
    builder = _Builder([_as_input(t) for t in inputs], outputs)
    names = [builder.output(key, tensor) for key, tensor in outputs.items()]
    graph = Graph(tuple(builder.inputs), tuple(names), tuple(builder.nodes), builder.constants, name)
    return graph.validate()


def _check_arguments(outputs: Mapping[str, Lazy], inputs: Sequence[Lazy]) -> None:
    given = ArgumentCheck("build_graph", outputs=outputs, inputs=inputs)
    listed = isinstance(outputs, Mapping) and all(isinstance(each, Lazy) for each in outputs.values())
    given.require(listed, "outputs has to be a dict of Tensors by name: {'y': tensor}")
    made = all(isinstance(each, Lazy) and is_input(each) for each in inputs)
    given.require(made, "inputs has to be a list of Tensor.input(...)")


def _as_input(tensor: Lazy) -> Value:
    assert tensor.name is not None
    return Value(tensor.name, tensor.shape, tensor.dtype)


def _given_names(tensors: Iterable[Lazy]) -> frozenset[str]:
    """The names of the tensors, and of all that they depend on, for no other tensor: verify finds layers by them."""
    waiting = {id(tensor): tensor for tensor in tensors}
    seen = dict(waiting)
    while waiting:
        _, tensor = waiting.popitem()
        new = {id(r.tensor): r.tensor for r in reads_of(tensor) if id(r.tensor) not in seen}
        seen |= new
        waiting |= new
    return frozenset(tensor.name for tensor in seen.values() if tensor.name)


class _Builder:
    def __init__(self, inputs: list[Value], outputs: Mapping[str, Lazy]) -> None:
        self.inputs = inputs
        self.reserved = frozenset(outputs)
        self.given = _given_names(outputs.values())
        self.wanted = {id(tensor): key for key, tensor in reversed(list(outputs.items()))}
        self.nodes: list[Node] = []
        self.constants: dict[str, Array] = {}
        self.names: dict[int, str] = {}
        self.used = {v.name for v in inputs}
        self.kept: list[Lazy] = []

    def output(self, key: str, tensor: Lazy) -> str:
        """Makes `key` an output and returns it. A tensor that already has another name gets a Load node named `key`."""
        made = self.visit(tensor)
        if made == key:
            return made
        if any(value.name == key for value in self.inputs):
            raise InputError(f"build_graph: output {key!r} has the name of an input")
        self.nodes.append(Node(Value(key, tensor.shape, tensor.dtype), Load(), (operand_of(whole_read(tensor), made),)))
        self.used.add(key)
        return key

    def visit(self, tensor: Lazy) -> str:
        """Adds a tensor and everything that it depends on, and returns its name in the graph."""
        stack = [tensor]
        while stack:
            top = stack[-1]
            waiting = [r.tensor for r in reads_of(top) if id(r.tensor) not in self.names]
            if id(top) in self.names or not waiting:
                stack.pop()
                if id(top) not in self.names:
                    self.add(top)
            else:
                stack.extend(reversed(waiting))
        return self.names[id(tensor)]

    def add(self, tensor: Lazy) -> None:
        self.kept.append(tensor)  # ids stay valid while the tensors live
        if is_input(tensor):
            value = _as_input(tensor)
            self.names[id(tensor)] = value.name
            if value not in self.inputs:
                if value.name in {each.name for each in self.inputs}:
                    raise InputError(f"build_graph: two inputs are called {value.name!r}")
                self.inputs.append(value)
                self.used.add(value.name)
            return
        wanted = self.wanted.get(id(tensor))
        name = wanted if wanted and wanted not in self.used else self.unique(tensor.name)
        self.names[id(tensor)] = name
        self.used.add(name)
        if tensor.recorded is None or tensor.is_constant:
            self.constants[name] = tensor.numpy()
        else:
            names = {id(r): self.names[id(r.tensor)] for r in reads_of(tensor)}
            self.nodes.append(node_of(tensor.recorded, Value(name, tensor.shape, tensor.dtype), names))

    def unique(self, name: str | None) -> str:
        candidate, count = name or f"t{len(self.names)}", 1
        while candidate in self.used or candidate in self.reserved or (name is None and candidate in self.given):
            candidate, count = f"{name or 't'}_{len(self.names) + count}", count + 1
        return candidate
