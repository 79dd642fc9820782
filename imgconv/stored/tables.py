"""Differences between the tables of model.fbs and our dataclasses, and the values that are rejected in forged files.

Many nodes share index forms and expressions. So each of these is written once, and referred to by its number. An entry
refers to lower numbers only, so reading terminates.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Union

import numpy

from imgconv.arrays import Array
from imgconv.build_options import BuildOptions
from imgconv.compiling.plan import Launch, Plan, Storage
from imgconv.config import Config, Precision
from imgconv.dtype import DTYPES, DType
from imgconv.files.flat import Schema
from imgconv.graph.expression import FUNCTIONS, Apply, Expression, arity
from imgconv.graph.index import Atom, Division, Index, Modulo, Lookup, Variable
from imgconv.graph.nodes import Convolution, Gather, Graph, HostPartition, Operation, Reduction, Value
from imgconv.graph.onnx_nodes import Attribute, HostGraph, HostNode
from imgconv.graph.operations import OPERATIONS
from imgconv.graph.view import View
from imgconv.kernels.device_model.time_range import TimeRange
from imgconv.kernels.layout import HostBuffer, TexelAxis, Texture, Tiling
from imgconv.kernels.template_interface import Choice
from imgconv.kernels.templates import TEMPLATES
from imgconv.limits import current_budget
from imgconv.stored.blobs import BlobWriter, ReadArray
from imgconv.stored.codec import APART, MERGED, Codec, Coder, TableReader, TableWriter, hints

COLUMNS: dict[tuple[type, str], str] = {
    (Graph, "host_partition"): APART, (Apply, "function"): "operation", (Gather, "reduction"): MERGED,
    (Reduction, "kind"): "reduction",
    (Division, "value"): "index", (Division, "divisor"): "size", (Lookup, "value"): "index",
    (Modulo, "value"): "index", (Modulo, "divisor"): "size",
    (Config, "precision"): MERGED, (Precision, "storage"): "float_storage", (Precision, "reasons"): APART,
    (Precision, "arithmetic"): "float_arithmetic", (Precision, "runs"): "half_runs",
    (Precision, "small_weights"): "half_small_weights",
    (Texture, "layout"): MERGED, (HostBuffer, "layout"): MERGED, (Tiling, "stacked_along"): "along_y",
    (Tiling, "linear"): APART, (Launch, "source"): APART, (Choice, "problem"): APART,
    (Choice, "specialisation"): APART, (Choice, "predicted"): APART, (Choice, "baseline"): APART,
} | {
    (Plan, name): APART for name in (
        "inputs", "outputs", "launches", "input_buffers", "output_buffers", "content", "slots", "constant_outputs",
        "states", "regions",
    )
}
# The kind of an attribute of one value and of several, and the field that holds them, by the values' type.
ATTRIBUTES: dict[type, tuple[str, str]] = {
    int: ("integer", "integers"), float: ("number", "numbers"), str: ("text", "texts"),
}
VARIABLE = re.compile("i[0-9]{1,3}")
MOST_ATOMS = 10_000  # of one index
TENSOR_TYPES = (
    "float32", "float64", "float16", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
)


@cache
def schema() -> Schema:
    """The schema of the files."""
    return Schema.parse((Path(__file__).parent / "model.fbs").read_text(encoding="utf-8"))


@cache
def codec() -> Codec:
    """The codec of every table of the schema."""
    coders = {
        Array: Coder(
            lambda writer, array: writer.blobs.array(array, writer.rounded),
            lambda reader, t: reader.array(t),
        ),
        Graph: Coder(lambda writer, g: graph_values(g, writer.blobs), lambda reader, t: read_graph(t, reader.array)),
        DType: Coder(lambda _, dtype: dtype.name, lambda _, name: DTYPES[name]),
        TexelAxis: Coder(lambda _, axis: axis == "y", lambda _, along_y: "y" if along_y else "x"),
        frozenset[str]: Coder(lambda _, names: sorted(names), lambda _, names: frozenset(names)),
        Reduction | None: Coder(
            lambda writer, made: {} if made is None else writer.values(Reduction, "Operation", made),
            lambda reader, table: reader.value(Reduction, "Operation", table) if table.reduction else None,
        ),
        Expression | None: Coder(
            lambda writer, made: [] if made is None else [writer.number(Expression, made)],
            lambda reader, numbers: reader.at(Expression, numbers[0]) if numbers else None,
        ),
        Operation: Coder(
            lambda writer, operation: writer.codec.table(Union[OPERATIONS], "Operation").encode(writer, operation),
            lambda reader, table: reader.codec.table(Union[OPERATIONS], "Operation").decode(reader, table),
        ),
        tuple[Atom, int]: Coder(_term_values, _read_term),
        Attribute: Coder(_attribute_values, _read_attribute),
        BuildOptions: Coder(
            lambda writer, made: writer.values(BuildOptions, "BuildOptions", made) if made != BuildOptions() else None,
            lambda reader, t: BuildOptions() if t is None else reader.value(BuildOptions, "BuildOptions", t),
        ),
        Choice: Coder(_choice_values, _read_choice),
        HostNode: Coder(lambda writer, node: writer.values(HostNode, "HostNode", node), _read_host_node),
    }
    return Codec(schema(), COLUMNS, coders, {Expression: "Expression", Index: "Index", Storage: "Storage"}, CHECKS)


# Graphs


def graph_values(graph: Graph, blobs: BlobWriter) -> dict[str, Any]:
    """The values of a Graph table. The arrays of its constants go to `blobs`, rounded as all plans round them."""
    writer = TableWriter(codec(), blobs, rounded=True)
    values = writer.values(Graph, "Graph", graph)
    pools = {"indices": writer.entries.get(Index, []), "expressions": writer.entries.get(Expression, [])}
    return values | pools


def read_graph(table: Any, array: ReadArray) -> Graph:
    """The Graph of a table. Raises ValueError for what no graph has, UnsupportedError for what passes the limits."""
    current_budget().count_nodes(len(table.nodes))
    reader = TableReader(codec(), array)
    reader.read_pool(Index, table.indices)
    reader.read_pool(Expression, table.expressions)
    graph: Graph = reader.value(Graph, "Graph", table)
    return graph.validate()


def _term_values(writer: TableWriter, term: tuple[Atom, int]) -> dict[str, Any]:
    atom, coefficient = term
    values: dict[str, Any] = writer.codec.table(Atom, "Term").encode(writer, atom)
    return values | {"coefficient": coefficient}


def _read_term(reader: TableReader, table: Any) -> tuple[Atom, int]:
    return reader.codec.table(Atom, "Term").decode(reader, table), table.coefficient


# The host fallback


def read_partition(table: Any, array: ReadArray) -> HostPartition:
    """The HostPartition of a table. Raises ValueError, KeyError or TypeError for what no host partition has.

    A size of an output of the model may depend on data: -1. The file may not say its type.
    """
    if any(size < -1 for output in table.outputs for size in output.shape):
        raise ValueError("an output has a negative size")
    outputs = tuple(Value(each.name, each.shape, each.dtype) for each in table.outputs)
    partition: HostPartition = TableReader(codec(), array).value(HostPartition, "HostPartition", table, outputs=outputs)
    return partition


def _read_host_node(reader: TableReader, table: Any) -> HostNode:
    node: HostNode = reader.value(HostNode, "HostNode", table)
    older = (node.op_type, node.domain) == ("Segment", "imgconv")
    return replace(node, op_type="Subgraph") if older else node


def _attribute_values(writer: TableWriter, value: Attribute) -> dict[str, Any]:
    if isinstance(value, numpy.ndarray):
        return {"kind": "array", "array": writer.blobs.array(value)}
    if isinstance(value, HostGraph):
        return {"kind": "body", "body": writer.values(HostGraph, "HostGraph", value)}
    if not isinstance(value, tuple):
        kind, field = ATTRIBUTES[type(value)]
        return {"kind": kind, field: [value]}
    field = ATTRIBUTES[type(value[0]) if value else int][1]
    return {"kind": field, field: value}


def _read_attribute(reader: TableReader, table: Any) -> Any:
    if table.kind == "array":
        return reader.array(table.array)
    if table.kind == "body":
        return reader.value(HostGraph, "HostGraph", table.body)
    field = dict(ATTRIBUTES.values()).get(table.kind, table.kind)
    values = getattr(table, field)
    return values if table.kind == field else values[0]


# The choices of a plan


def _choice_values(writer: TableWriter, choice: Choice) -> dict[str, Any]:
    texts = {name: json.dumps(asdict(getattr(choice, name))) for name in ("problem", "specialisation")}
    times: dict[str, float] = {}
    for name, time in (("predicted", choice.predicted), ("baseline", choice.baseline)):
        times |= {name: time.most, f"least_{name}": time.least}
    return writer.values(Choice, "Choice", choice) | texts | times


def _read_choice(reader: TableReader, table: Any) -> Choice | None:
    """The Choice of a table; None if this imgconv does not have its template any more."""
    template: Any = next((t for t in TEMPLATES if t.name == table.template), None)
    if template is None:
        return None
    predicted, baseline = (
        TimeRange(most, most if least < 0 else least)
        for most, least in ((table.predicted, table.least_predicted), (table.baseline, table.least_baseline))
    )
    made: Choice = reader.value(
        Choice, "Choice", table, problem=_from_json(template.problem, table.problem),
        specialisation=_from_json(template.specialisation, table.specialisation), predicted=predicted,
        baseline=baseline,
    )
    return made


@lru_cache(512)  # launches of one kind have equal ones, as the plans of a file do
def _from_json(kind: Any, text: str) -> Any:
    return _from_fields(kind, json.loads(text))


def _from_fields(kind: Any, content: Any) -> Any:
    """A value of a dataclass from its fields by name, whose lists are tuples and whose tables are dataclasses."""
    if isinstance(content, list):
        return tuple(content)
    if not isinstance(content, dict):
        return content
    types = hints(kind)
    return kind(**{name: _from_fields(types[name], each) for name, each in content.items() if name in types})


# What no table of ours says


def _check_value(value: Value) -> bool:
    if value.dtype not in TENSOR_TYPES or min(value.shape, default=0) < 0:
        return False
    current_budget().check_tensor(value.shape, value.dtype)
    return True


def _check_storage(storage: Storage) -> bool:
    return min(*storage.shape, *storage.layout.rows, *storage.layout.columns, 0, 0) == 0


def _check_view(view: View) -> bool:
    sizes = {f"i{axis}": size for axis, size in enumerate(view.shape)}
    variables = (v for each in (*view.index, *(b.index for b in view.bounds)) for v in each.variables())
    fits = len(view.index) == len(view.source) and min(*view.shape, *view.source, 0, 0) == 0
    return fits and all(sizes.get(variable.name) == variable.size for variable in variables)


CHECKS: dict[type, Callable[[Any], bool]] = {
    Value: _check_value, HostBuffer: _check_storage, Texture: _check_storage, View: _check_view,
    Variable: lambda variable: variable.size >= 1 and VARIABLE.fullmatch(variable.name) is not None,
    Division: lambda atom: atom.divisor >= 1,
    Modulo: lambda atom: atom.divisor >= 1,
    Lookup: lambda lookup: len(lookup.table) > 0,
    Index: lambda index: index.term_count <= MOST_ATOMS,
    Apply: lambda made: made.function in FUNCTIONS and len(made.arguments) == arity(made.function),
    Convolution: lambda operation: min(*operation.strides, *operation.dilations, operation.groups) >= 1,
    Config: lambda config: config.max_image is None or config.max_image >= 8,
}
