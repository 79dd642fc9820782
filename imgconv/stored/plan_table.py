"""Converts a Plan to the table of model.fbs, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from os.path import commonprefix
from typing import Any

import numpy

from imgconv.arrays import Array
from imgconv.compiling.plan import Launch, Plan, Storage, WorkspaceRegion
from imgconv.graph.nodes import Graph, Value
from imgconv.graph.pass_through import pass_through_sources
from imgconv.kernels.codegen.access import KernelArgument
from imgconv.kernels.kernel_source import KernelSource, batched_into_programs, common_text
from imgconv.kernels.layout import HostBuffer, ImageDescriptor, Texture
from imgconv.stored.blobs import BlobWriter, ReadArray
from imgconv.stored.codec import TableReader, TableWriter
from imgconv.stored.plan_checks import NO_CHECKS, LaunchCheck, PlanChecks
from imgconv.stored.tables import codec

# The values of the Launch table of a launch.
LaunchValues = Callable[[Launch, TableWriter, Mapping[str, int]], dict[str, Any]]


def plan_values(
    plan: Plan, blobs: BlobWriter, binaries: Sequence[bytes] = (), checks: PlanChecks = NO_CHECKS,
    player_only: bool = False,
) -> dict[str, Any]:
    """The values of a Plan table, without its device and target.

    binaries: the driver's programs, in the order of batched_into_programs. player_only: without the reports that only
    Python reads.
    """
    launch_values = _named_work if player_only else _launch_values
    used = storages_of(plan)
    spare = dict.fromkeys(a.storage for launch in checks.replacements for a in launch.source.arguments)
    others, bases = [launch for _, launch in checks.alternatives], _base_kernels(plan, checks)
    storages = {storage: number for number, storage in enumerate({**used, **spare})}
    writer = TableWriter(codec(), blobs, {Storage: storages})
    kernels = {launch.source.text: launch.source.path for launch in plan.launches}
    spare_kernels = {each.source.text: each.source.path for each in (*checks.replacements, *others)}
    numbers = {text: number for number, text in enumerate({**kernels, **spare_kernels})}
    at_once = len(binaries) or (plan.build_options.one_kernel_a_program and len(kernels)) or 1
    programs: list[dict[str, Any]] = [
        {"kernels": [numbers[text] for text in batch]} for batch in batched_into_programs(list(kernels), at_once)
    ]
    for program, binary in zip(programs, binaries, strict=False):
        program["binary"] = blobs.add(binary)
    moved = {} if plan.moved is None else _pass_through(plan.moved, [v.name for v in plan.inputs])
    inputs = [
        {"storage": storages[plan.input_buffers[v.name]], "exact": v.name in plan.exact_inputs} for v in plan.inputs
    ]
    outputs = [_output_values(plan, v.name, writer) | moved.get(v.name, {}) for v in plan.outputs]
    return writer.values(Plan, "Plan", replace(plan, placements={}) if player_only else plan) | {
        "common": common_text(),
        "inputs": [{"value": _value_values(writer, v)} | row for v, row in zip(plan.inputs, inputs, strict=True)],
        "outputs": [{"value": _value_values(writer, v)} | row for v, row in zip(plan.outputs, outputs, strict=True)],
        "storages": [_storage_row(plan, each, writer, plan.content) | {"whole": each in checks.whole} for each in used],
        "slots": [writer.values(ImageDescriptor, "Slot", descriptor) for _, descriptor in sorted(plan.images.items())],
        "workspace_bytes": plan.workspace_bytes,
        "kernels": [{"text": text, "path": path} for text, path in kernels.items()], "programs": programs,
        "launches": [launch_values(launch, writer, numbers) for launch in plan.launches],
        "checks": [_check_values(each, writer, numbers, launch_values) for each in checks.launches],
        "spare_storages": [_storage_row(plan, each, writer, checks.content) for each in spare if each not in used],
        "spare_kernels": [
            _kernel_row(text, path, bases.get(text), numbers)
            for text, path in spare_kernels.items() if text not in kernels
        ],
    }


def _base_kernels(plan: Plan, checks: PlanChecks) -> dict[str, str]:
    """The text of the launch that each alternative may replace, by the alternative's text."""
    return {other.source.text: plan.launches[number].source.text for number, other in checks.alternatives}


def _kernel_row(text: str, path: str, base: str | None, kernels: Mapping[str, int]) -> dict[str, Any]:
    """A kernel; if it has a base, only its difference from that is stored."""
    if base is None or not (text.isascii() and base.isascii()):  # lengths are in bytes
        return {"text": text, "path": path}
    lines, of_base = text.splitlines(keepends=True), base.splitlines(keepends=True)
    first = len(commonprefix([lines, of_base]))
    last = len(commonprefix([lines[first:][::-1], of_base[first:][::-1]]))
    middle, end = lines[first : len(lines) - last], lines[len(lines) - last :]
    prefix, suffix = (sum(map(len, part)) for part in (lines[:first], end))
    return {"text": "".join(middle), "path": path, "base": kernels[base], "prefix": prefix, "suffix": suffix}


def _check_values(
    check: LaunchCheck, writer: TableWriter, kernels: Mapping[str, int], launch_values: LaunchValues
) -> dict[str, Any]:
    plain = [
        {"launch": each.launch, "launches": [launch_values(launch, writer, kernels) for launch in each.launches]}
        for each in check.plain
    ]
    alternatives = [_work_values(each, writer, kernels) for each in check.alternatives]
    return vars(check) | {"plain": plain, "alternatives": alternatives}


def _value_values(writer: TableWriter, value: Value) -> dict[str, Any]:
    return writer.values(Value, "Value", value)


def storages_of(plan: Plan) -> dict[Storage, None]:
    """Every image and buffer of a plan, each once, in the order of the file's table Plan."""
    used = (argument.storage for launch in plan.launches for argument in launch.source.arguments)
    places = (place.storage for place in plan.placements.values())
    return dict.fromkeys((
        *plan.content, *plan.states, *plan.input_buffers.values(), *plan.output_buffers.values(), *used, *places,
    ))


def _storage_row(plan: Plan, storage: Storage, writer: TableWriter, content: Mapping[Storage, Array]) -> dict[str, Any]:
    values = writer.values(type(storage), "Storage", storage) | {"state": storage in plan.states}
    if storage in content:
        values["content"] = writer.blobs.array(content[storage], storage not in plan.content)
    if isinstance(storage, HostBuffer):
        return values | {"memory": "buffer", "bytes": storage.bytes}
    values |= writer.values(ImageDescriptor, "Storage", storage.descriptor) | {"memory": "image"}
    if storage in plan.regions:
        return values | writer.values(WorkspaceRegion, "Storage", plan.regions[storage]) | {"memory": "workspace"}
    if storage in plan.slots:
        return values | {"memory": "slot", "slot": sorted(plan.images).index(plan.slots[storage])}
    return values


def _output_values(plan: Plan, name: str, writer: TableWriter) -> dict[str, Any]:
    if name in plan.constant_outputs:
        return {"kind": "constant", "constant": writer.blobs.whole(plan.constant_outputs[name])}
    if name in plan.output_buffers:
        return {"kind": "storage", "storage": writer.number(Storage, plan.output_buffers[name])}
    return {"kind": "moved"}


def _pass_through(graph: Graph, inputs: Sequence[str]) -> dict[str, dict[str, list[int]]]:
    numbers = numpy.array([*(inputs.index(v.name) for v in graph.inputs), -1])  # the last one is that of -1
    return {
        name: {"moved_inputs": numbers[sources].tolist(), "moved_elements": elements.tolist()}
        for name, (sources, elements) in pass_through_sources(graph).items()
    }


def _launch_values(launch: Launch, writer: TableWriter, kernels: Mapping[str, int]) -> dict[str, Any]:
    arguments = launch.source.arguments
    return writer.values(Launch, "Launch", launch) | _work_values(launch, writer, kernels) | {
        "argument_names": [a.name for a in arguments], "written": [a.written for a in arguments],
    }


def _named_work(launch: Launch, writer: TableWriter, kernels: Mapping[str, int]) -> dict[str, Any]:
    """The Launch table of a launch, with the reports that error messages of the player have."""
    return {"name": launch.name, "origin": launch.origin} | _work_values(launch, writer, kernels)


def _work_values(launch: Launch, writer: TableWriter, kernels: Mapping[str, int]) -> dict[str, Any]:
    """The Launch table of a launch, without reports."""
    source = launch.source
    return {
        "kernel": kernels[source.text], "arguments": [writer.number(Storage, a.storage) for a in source.arguments],
        "global_size": source.global_size, "local_size": source.local_size,
    }


def read_plan(table: Any, array: ReadArray) -> Plan:
    """The Plan of a table. Raises ValueError, KeyError or TypeError for what no plan has."""
    reader = TableReader(codec(), array)
    storages = reader.entries[Storage] = [_read_storage(reader, each) for each in table.storages]
    content: dict[Storage, Array] = {}
    slots: dict[Texture, int] = {}
    regions: dict[Texture, WorkspaceRegion] = {}
    states: list[Texture] = []
    for each, storage in zip(table.storages, storages, strict=True):
        if each.content is not None:
            content[storage] = array(each.content)
        if not isinstance(storage, Texture):
            continue
        if each.state:
            states.append(storage)
        if each.memory == "slot":
            slots[storage] = each.slot
        elif each.memory == "workspace":
            regions[storage] = reader.value(WorkspaceRegion, "Storage", each)
    inputs, outputs = (
        [(reader.value(Value, "Value", each.value), each) for each in rows] for rows in (table.inputs, table.outputs)
    )
    plan: Plan = reader.value(
        Plan, "Plan", table,
        inputs=tuple(value for value, _ in inputs), outputs=tuple(value for value, _ in outputs),
        launches=tuple(_read_launch(reader, each, table.kernels) for each in table.launches),
        input_buffers={value.name: storages[each.storage] for value, each in inputs},
        output_buffers={value.name: storages[each.storage] for value, each in outputs if each.kind == "storage"},
        content=content, slots=slots, regions=regions, states=tuple(states),
        constant_outputs={v.name: array(each.constant) for v, each in outputs if each.kind == "constant"},
    )
    return plan


def _read_storage(reader: TableReader, table: Any) -> Storage:
    storage: Storage = reader.value(HostBuffer if table.memory == "buffer" else Texture, "Storage", table)
    if isinstance(storage, HostBuffer):
        return storage
    return replace(storage, tiling=replace(storage.tiling, linear=table.linear))


def _read_launch(reader: TableReader, table: Any, kernels: Sequence[Any]) -> Launch:
    rows = zip(table.argument_names, table.arguments, table.written, strict=True)
    arguments = tuple(KernelArgument(name, reader.at(Storage, number), written) for name, number, written in rows)
    for size in (table.global_size, table.local_size):
        if size and (len(size) > 3 or min(size) < 1):
            raise ValueError(f"a launch of {list(size)} work items")
    kernel = kernels[table.kernel]
    source = KernelSource(kernel.text, kernel.path, arguments, table.global_size, table.local_size or None)
    launch: Launch = reader.value(Launch, "Launch", table, source=source)
    return launch
