"""A Plan as the table of model.fbs, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from functools import cache
from typing import Any, get_type_hints

import numpy

from imgconv.arrays import Array
from imgconv.compiling.plan import Launch, Plan, Region, Storage
from imgconv.graph.moved import moved_elements
from imgconv.graph.nodes import Graph
from imgconv.kernels.codegen.access import KernelArgument
from imgconv.kernels.layout import HostBuffer, Layout, Placement, Texture, Tiling
from imgconv.kernels.source import COMMON, KernelSource, programs_of
from imgconv.kernels.step import Choice
from imgconv.kernels.templates import TEMPLATES
from imgconv.stored.blobs import BlobWriter, ReadBlob, read_array
from imgconv.stored.graph_table import DTYPES, graph_values, read_graph, read_value, value_values


def plan_values(plan: Plan, blobs: BlobWriter, binaries: Sequence[bytes] = ()) -> dict[str, Any]:
    """The values of a Plan table, without its device and target. binaries: the driver's programs, see programs_of."""
    storages = {storage: number for number, storage in enumerate(_storages(plan))}
    kernels = {launch.source.text: launch.source.path for launch in plan.launches}
    numbers = {text: number for number, text in enumerate(kernels)}
    programs: list[dict[str, Any]] = [
        {"kernels": [numbers[text] for text in batch]} for batch in programs_of(list(kernels), max(1, len(binaries)))
    ]
    for program, binary in zip(programs, binaries, strict=False):
        program["binary"] = blobs.add(binary)
    slots = [
        {"width": form.width, "height": form.height, "layers": form.layers, "dtype": form.dtype, "linear": form.linear}
        for _, form in sorted(plan.images.items())
    ]
    moved = {} if plan.moved is None else _moved(plan.moved, [v.name for v in plan.inputs])
    return {
        "common": COMMON.read_text(encoding="utf-8"),
        "inputs": [
            {
                "value": value_values(v), "storage": storages[plan.input_buffers[v.name]],
                "exact": v.name in plan.exact_inputs,
            } for v in plan.inputs
        ],
        "outputs": [
            _output(plan, v.name, value_values(v), storages, blobs) | moved.get(v.name, {}) for v in plan.outputs
        ],
        "storages": [_storage(plan, storage, blobs) for storage in storages], "slots": slots,
        "workspace_bytes": plan.workspace_bytes,
        "kernels": [{"text": text, "path": path} for text, path in kernels.items()], "programs": programs,
        "launches": [_launch(launch, storages, numbers) for launch in plan.launches],
        "placements": [
            {"name": name, "storage": storages[p.storage], "shape": p.shape, "channel_offset": p.channel_offset}
            for name, p in plan.placements.items()
        ],
        "most_alive": plan.most_alive, "moved": None if plan.moved is None else graph_values(plan.moved, blobs),
    }


def _storages(plan: Plan) -> dict[Storage, None]:
    """Every image and buffer of a plan, each once."""
    used = (argument.storage for launch in plan.launches for argument in launch.source.arguments)
    places = (place.storage for place in plan.placements.values())
    return dict.fromkeys((
        *plan.content, *plan.states, *plan.input_buffers.values(), *plan.output_buffers.values(), *used, *places,
    ))


def _storage(plan: Plan, storage: Storage, blobs: BlobWriter) -> dict[str, Any]:
    layout = storage.layout
    values: dict[str, Any] = {
        "name": storage.name, "dtype": storage.dtype, "shape": storage.shape, "rows": layout.rows,
        "columns": layout.columns, "packed": -1 if layout.packed is None else layout.packed,
        "state": storage in plan.states,
    }
    if storage in plan.content:
        values["content"] = blobs.array(plan.content[storage])
    if isinstance(storage, HostBuffer):
        return values | {"memory": "buffer", "bytes": storage.bytes}
    form, tiling = storage.form, storage.tiling
    values |= {
        "memory": "image", "width": form.width, "height": form.height, "layers": form.layers, "linear": form.linear,
    }
    values["tiling"] = {
        "width": tiling.width, "height": tiling.height, "tile_width": tiling.tile_width,
        "tile_height": tiling.tile_height, "per_layer": tiling.per_layer, "along_y": tiling.stacked_along == "y",
        "bordered": tiling.bordered,
    }
    if storage in plan.regions:
        region = plan.regions[storage]
        values |= {
            "memory": "workspace", "offset": region.offset, "row_bytes": region.row_bytes, "bytes": region.bytes,
        }
    elif storage in plan.slots:
        values |= {"memory": "slot", "slot": sorted(plan.images).index(plan.slots[storage])}
    return values


def _output(
    plan: Plan, name: str, value: dict[str, Any], storages: Mapping[Storage, int], blobs: BlobWriter
) -> dict[str, Any]:
    if name in plan.constant_outputs:
        return {"value": value, "kind": "constant", "constant": blobs.array(plan.constant_outputs[name])}
    if name in plan.output_buffers:
        return {"value": value, "kind": "storage", "storage": storages[plan.output_buffers[name]]}
    return {"value": value, "kind": "moved"}


def _moved(graph: Graph, inputs: Sequence[str]) -> dict[str, dict[str, list[int]]]:
    numbers = numpy.array([*(inputs.index(v.name) for v in graph.inputs), -1])  # the last one is that of -1
    return {
        name: {"moved_inputs": numbers[sources].tolist(), "moved_elements": elements.tolist()}
        for name, (sources, elements) in moved_elements(graph).items()
    }


def _launch(launch: Launch, storages: Mapping[Storage, int], numbers: Mapping[str, int]) -> dict[str, Any]:
    source = launch.source
    return {
        "kernel": numbers[source.text], "arguments": [storages[a.storage] for a in source.arguments],
        "global_size": source.global_size, "local_size": source.local_size, "name": launch.name, "kind": launch.kind,
        "description": launch.description, "origin": launch.origin, "multiply_adds": launch.multiply_adds,
        "reason": launch.reason, "operation": launch.operation, "moved_bytes": launch.moved_bytes,
        "values": launch.values, "argument_names": [a.name for a in source.arguments],
        "written": [a.written for a in source.arguments], "choice": _choice(launch.choice),
        "declined": _choice(launch.declined),
    }


def _choice(choice: Choice | None) -> dict[str, Any] | None:
    if choice is None:
        return None
    return {
        "template": choice.template, "problem": json.dumps(asdict(choice.problem)),
        "specialisation": json.dumps(asdict(choice.specialisation)), "predicted": choice.predicted,
        "without": choice.without, "pays": choice.pays, "seconds": -1.0 if choice.seconds is None else choice.seconds,
    }


def read_plan(table: Any, blob: ReadBlob) -> Plan:
    """The Plan of a table. Raises ValueError, KeyError or TypeError for what no plan has."""
    storages = tuple(map(_read_storage, table.storages))
    content: dict[Storage, Array] = {}
    slots: dict[Texture, int] = {}
    regions: dict[Texture, Region] = {}
    states: list[Texture] = []
    for each, storage in zip(table.storages, storages, strict=True):
        if each.content is not None:
            content[storage] = read_array(each.content, blob)
        if not isinstance(storage, Texture):
            continue
        if each.state:
            states.append(storage)
        if each.memory == "slot":
            slots[storage] = each.slot
        elif each.memory == "workspace":
            regions[storage] = Region(each.offset, each.row_bytes, each.bytes)
    kernels = [(each.text, each.path) for each in table.kernels]
    inputs = [(read_value(each.value), storages[each.storage]) for each in table.inputs]
    outputs = [(read_value(each.value), each) for each in table.outputs]
    return Plan(
        tuple(value for value, _ in inputs), tuple(value for value, _ in outputs),
        tuple(_read_launch(each, storages, kernels) for each in table.launches),
        {value.name: storage for value, storage in inputs},
        {value.name: storages[each.storage] for value, each in outputs if each.kind == "storage"},
        content, slots,
        {value.name: read_array(each.constant, blob) for value, each in outputs if each.kind == "constant"},
        {each.name: Placement(storages[each.storage], each.shape, each.channel_offset) for each in table.placements},
        tuple(states), regions, table.most_alive, None if table.moved is None else read_graph(table.moved, blob),
    )


def _read_storage(table: Any) -> Storage:
    sizes = (*table.shape, *table.rows, *table.columns)
    if table.dtype not in DTYPES or min(sizes, default=0) < 0:
        raise ValueError(f"a storage {table.dtype} {list(table.shape)}")
    layout = Layout(table.rows, table.columns, None if table.packed < 0 else table.packed)
    if table.memory == "buffer":
        return HostBuffer(table.name, table.shape, layout, table.dtype)
    t = table.tiling
    tiling = Tiling(
        t.width, t.height, t.tile_width, t.tile_height, t.per_layer, "y" if t.along_y else "x", t.bordered,
        table.linear,
    )
    return Texture(table.name, table.shape, layout, table.dtype, tiling)


def _read_launch(table: Any, storages: Sequence[Storage], kernels: Sequence[tuple[str, str]]) -> Launch:
    rows = zip(table.argument_names, table.arguments, table.written, strict=True)
    arguments = tuple(KernelArgument(name, storages[number], written) for name, number, written in rows)
    text, path = kernels[table.kernel]
    for size in (table.global_size, table.local_size):
        if size and (len(size) > 3 or min(size) < 1):
            raise ValueError(f"a launch of {list(size)} work items")
    source = KernelSource(text, path, arguments, table.global_size, table.local_size or None)
    return Launch(
        table.name, table.kind, source, table.description, table.origin, table.multiply_adds, table.reason,
        table.operation, table.moved_bytes, table.values, _read_choice(table.choice), _read_choice(table.declined),
    )


def _read_choice(table: Any) -> Choice | None:
    """The Choice of a table; None if there is none, or if this imgconv does not have its template any more."""
    template = None if table is None else next((t for t in TEMPLATES if t.name == table.template), None)
    if template is None:
        return None
    return Choice(
        table.template, _made(template.problem, json.loads(table.problem)),
        _made(template.specialisation, json.loads(table.specialisation)), table.predicted, table.without, table.pays,
        None if table.seconds < 0 else table.seconds,
    )


def _made(kind: Any, content: Any) -> Any:
    """A value of a dataclass from its fields by name, whose lists are tuples and whose tables are dataclasses."""
    if isinstance(content, list):
        return tuple(content)
    if not isinstance(content, dict):
        return content
    types = _types_of(kind)
    return kind(**{name: _made(types[name], each) for name, each in content.items() if name in types})


@cache
def _types_of(kind: Any) -> dict[str, Any]:
    """The type of each field of a dataclass."""
    types = get_type_hints(kind)
    return {field.name: types[field.name] for field in fields(kind)}
