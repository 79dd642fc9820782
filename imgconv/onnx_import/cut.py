"""Cuts a model at given tensors, which then are its outputs."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import onnx

from imgconv.errors import InputError
from imgconv.onnx_import.scope import needed_nodes

NEAR = 5  # names that an error lists


def cut_at(proto: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    """Returns the model with these tensors as its outputs, and the inputs that they need; itself without names.

    Raises InputError for a name that no node makes, with those that are near it.
    """
    if not names:
        return proto
    made = list(dict.fromkeys(name for node in proto.graph.node for name in node.output if name))
    inputs = [value.name for value in proto.graph.input]
    for name in names:
        if name not in made and name not in inputs:
            raise InputError(f"outputs: no tensor is called {name!r}{_similar_names(name, proto.graph, made)}")
    cut = onnx.ModelProto()
    cut.CopyFrom(proto)
    graph = cut.graph
    known = {value.name: value for value in (*graph.value_info, *graph.input, *graph.output)}
    outputs = [known.get(name) or onnx.ValueInfoProto(name=name) for name in dict.fromkeys(names)]
    needed = needed_nodes(graph.node, names)[1]
    kept = [value for value in graph.input if value.name in needed]
    del graph.output[:], graph.input[:]
    graph.output.extend(outputs)
    graph.input.extend(kept)
    return cut


def _similar_names(name: str, graph: onnx.GraphProto, made: Sequence[str]) -> str:
    """Returns what a node of that name makes, or the tensors whose names are near it."""
    node = next((node for node in graph.node if node.name == name), None)
    if node is not None:
        return f"; the node {name!r} makes {', '.join(map(repr, filter(None, node.output)))}"
    near = difflib.get_close_matches(name, made, NEAR, 0.5) or [o.name for o in graph.output][:NEAR]
    return f"; near it are {', '.join(map(repr, near))}"
