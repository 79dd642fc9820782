"""imgconv inspect: show the launches, the memory and the graph of a model, without running it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any

from imgconv.arrays import Shapes
from imgconv.cl.device import DeviceInfo, select_device
from imgconv.commands.shared_arguments import add_model_arguments, add_strict_argument, add_target_argument, check_sizes
from imgconv.commands.shared_arguments import read_shapes
from imgconv.commands.command_line_inputs import declared_of, load_model
from imgconv.commands.inspect_plans import ModelPlans, make_plans, plan_facts, print_plans, read_plans
from imgconv.precision.integer_sums import integer_sums
from imgconv.precision.share import HalfShare, half_share_of
from imgconv.compiling.plan import Launch, Plan, Storage
from imgconv.config import Config, read_config
from imgconv.errors import ConfigError
from imgconv.files.container import is_container
from imgconv.graph.nodes import Graph, HostPartition, Value
from imgconv.host.subgraphs import is_device_subgraph
from imgconv.kernels.layout import Texture
from imgconv.passes.elementwise import LAUNCH
from imgconv.reports import terminal
from imgconv.reports.table import Column, print_table
from imgconv.loading.plans import prepare_for
from imgconv.loading.device_target import target_of
from imgconv.runtime.host_fallback import boundary_bytes, strict_error
from imgconv.stored.tuning import open_tuning_database

DESCRIPTION = """\
Show the launches that would run on the device: each with its fused operations, ONNX nodes, output texture and
multiply-adds. Then print totals. Nothing is compiled or run, except with --float16, which runs the model to measure
which textures must stay fp32. If the table is wider than the terminal (or than 200 columns, in a file or pipe), it
omits the least important columns; --all shows every column.

For a compiled file, and for a model with --target, list every plan: its device, its memory, the fraction of its values
stored as fp16, and the time that the cost model predicts. This needs no device. --all also shows the launches of each
plan; --device shows the plan that the given device would use."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_arguments(parser)
    parser.add_argument("--all", action="store_true", help="show every column")
    parser.add_argument("--graph", action="store_true", help="also print the graph after the passes")
    add_strict_argument(parser)
    add_target_argument(parser)
    parser.add_argument(
        "--why", action="store_true",
        help="also print which operations are computed twice, and the reason for each specialisation"
    )


def execute(options: argparse.Namespace) -> None:
    """Prints graph, launches and totals. Raises what imgconv.load raises."""
    config = read_config(options.float16, options.native_explog, options.max_image, options.device)
    if options.target or (is_container(options.model) and options.device is None):
        _show_plans(options, config)
        return
    with terminal.ProgressSpinner(f"reading {options.model}") as progress:
        declared = declared_of(options.model)
        shapes = read_shapes(options.shape, declared)
        check_sizes(declared, shapes)
        device = select_device(config.device)
        graph, plan, config = _compile_for_device(options, shapes, config, device, progress)
    half_share = half_share_of(plan, graph, config) if config.float16 else None
    sums = integer_sums(plan, graph, target_of(device))
    if options.json:
        shown = {"reasons": dict(graph.reasons), "choices": specialisations_of(plan)} if options.why else {}
        terminal.print_json(as_json(options.model, device.key, plan, graph.host_partition, half_share, sums) | shown)
        return
    print_plan(device, plan, lines_of_graph(graph, options), options.all, half_share, sums)
    if graph.host_partition:
        print_boundary(graph.host_partition, plan)
    if options.why:
        print_reasons(graph.reasons, specialisations_of(plan))


def _show_plans(options: argparse.Namespace, config: Config) -> None:
    """Prints every plan of a compiled file, or of a model for each --target. Opens no device."""
    if is_container(options.model):
        if options.target:
            raise ConfigError(f"{options.model!r} is a compiled file: its plans are fixed")
        found = read_plans(options.model)
    else:
        with terminal.ProgressSpinner(f"reading {options.model}"):
            found = make_plans(options, config)
    if options.json:
        terminal.print_json(_plans_as_json(options, found))
        return
    for sized in found:
        print_plans(options.model, sized)
        for each in sized.plans if options.all else ():
            terminal.console().print()
            lines = lines_of_graph(sized.graph, options)
            sums = integer_sums(each.plan, sized.graph, each.target)
            print_plan(each.device, each.plan, lines, True, sized.half_share(each.plan), sums)
        for each in sized.plans if options.why else ():
            print_reasons(sized.graph.reasons, specialisations_of(each.plan))


def _plans_as_json(options: argparse.Namespace, found: Sequence[ModelPlans]) -> dict[str, Any]:
    """Returns all plans as plain data, those of each size after the others. inputs, outputs: of the first size."""
    first, plans = found[0], []
    for sized in found:
        for each in sized.plans:
            why = {"choices": specialisations_of(each.plan)} if options.why else {}
            partition, half_share = sized.graph.host_partition, sized.half_share(each.plan)
            sums = integer_sums(each.plan, sized.graph, each.target)
            shown = as_json(options.model, each.device, each.plan, partition, half_share, sums)
            plans.append({**shown, **plan_facts(each), **why})
    return {
        "model": options.model, **first.file, "description": json.loads(first.description or "null"),
        "states": dict(first.states),
        "inputs": [_value_as_json(value) for value in first.inputs],
        "outputs": [_value_as_json(value) for value in first.outputs],
        "plans": plans,
    }


def _compile_for_device(
    options: argparse.Namespace, shapes: Shapes, config: Config, device: DeviceInfo, progress: terminal.ProgressSpinner
) -> tuple[Graph, Plan, Config]:
    """Graph, plan and the settings of the plan, with what keeps float."""
    if not config.float16 and not is_container(options.model):
        from imgconv.onnx_import import import_onnx

        graph = import_onnx(options.model, shapes)
        if options.strict and graph.host_partition:
            raise strict_error(graph.host_partition, options.model)
        prepared = prepare_for(device, graph, config, open_tuning_database(options.model))
        return prepared.graph, prepared.plan(), config
    # Only a run of the model shows which textures load() keeps float.
    model = load_model(options, shapes, progress)
    return model.graph, model.plan, model.config


def specialisations_of(plan: Plan) -> dict[str, str]:
    """The specialisation of every launch of a template, and its origin, by the name of the written value."""
    chosen = [launch for launch in plan.launches if launch.specialisation]
    found = {launch.name: f"{launch.specialisation}; {launch.choice}" for launch in chosen}
    for launch in plan.launches:
        if launch.rejected:
            rejected = f"a {launch.rejected.template} launch is not profitable: {launch.rejected}"
            found[launch.name] = f"{found.get(launch.name, '')}; {rejected}"
    return found


def print_reasons(reasons: Mapping[str, str], choices: Mapping[str, str]) -> None:
    """Prints which values are recomputed or stored, with costs, and the specialisations with their costs."""
    console = terminal.console()
    console.print(f"\nrecomputed or stored; an additional launch counts as {LAUNCH} texel reads")
    for value, reason in reasons.items():
        terminal.print_at(console, 2, f"{value}: {reason}", under=6)
    console.print("\nspecialisations")
    for value, choice in choices.items():
        terminal.print_at(console, 2, f"{value}: {choice}", under=6)


LAUNCHES = (
    Column("#"), Column("kind", 6, text=True), Column("writes", text=True),
    Column("operation, with fused operations", text=True), Column("sums", 1, text=True),
    Column("M multiply-adds", 2), Column("kB", 3),
    Column("texture", 4, text=True), Column("from ONNX nodes", 5, text=True), Column("kernel", 1, text=True),
)


def lines_of_graph(graph: Graph, options: argparse.Namespace) -> list[str]:
    """The lines of the graph that the options ask for: by default inputs, outputs, and the host's nodes."""
    lines = str(graph).splitlines()
    if not options.graph:
        host = str(graph.host_partition).splitlines() if graph.host_partition else []
        return [line for line in lines if line.startswith(("  input  ", "  output ")) and line not in host] + host
    size = sum(array.nbytes for array in graph.constants.values())
    kept = [line for line in lines if not line.startswith("  constant ")]
    return kept + [f"  {len(graph.constants)} constants of {size / 1e6:.2f} MB"] * bool(graph.constants)


def print_plan(
    device: DeviceInfo | str, plan: Plan, graph: Sequence[str], everything: bool = False,
    half_share: HalfShare | None = None, sums: Mapping[str, str] = {},
) -> None:
    """Prints launches, totals and the lines of the graph. everything: all columns.

    half_share: under FLOAT16, what is half, and why the rest is not. sums: see `integer_sums`.
    """
    reasons = half_share.reasons if half_share else {}
    console = terminal.console()
    console.print(f"launches on {device}", style="bold")
    rows = [
        (str(number), *_table_row(launch, reasons.get(launch.name, ""), sums.get(launch.name, "")))
        for number, launch in enumerate(plan.launches)
    ]
    print_table(console, LAUNCHES, rows, everything, hint="--all")
    console.print()
    for line in (*totals_as_text(plan), *([str(half_share)] if half_share else [])):
        console.print(line)
    console.print()
    for line in graph:
        console.print(line)


def print_boundary(partition: HostPartition, plan: Plan) -> None:
    """Prints the number of nodes that the host computes, and the tensors that it gets from the device."""
    boundary = boundary_bytes(partition, plan)
    listed = ", ".join(f"{name} {count / 1e3:.1f}" for name, count in boundary.items())
    subgraphs = sum(map(is_device_subgraph, partition.graph.nodes))
    again = f", {subgraphs} of them subgraphs that run on the device" if subgraphs else ""
    terminal.console().print(
        f"{len(partition.graph.nodes)} nodes on the host{again}; {sum(boundary.values()) / 1e3:.1f} kB come from the "
        f"device"
        + (f": {listed}" if listed else "")
    )


def _table_row(launch: Launch, why_float: str, sums: str) -> tuple[str, ...]:
    operation = launch.description
    operation += ", accumulates in fp16" if launch.sums_in_half else ""
    operation += f" because {launch.reason}" if launch.reason else ""
    operation += f", fp32: {why_float}" if why_float else ""
    multiply_adds = f"{launch.multiply_adds / 1e6:.2f}" if launch.multiply_adds else ""
    written, kind = launch.writes, "" if launch.kind == "compute" else launch.kind
    return (
        kind, launch.name, operation, sums, multiply_adds, f"{written.bytes / 1e3:.1f}", _storage_as_text(written),
        ", ".join(launch.origin), launch.specialisation,
    )


def _storage_as_text(storage: Storage) -> str:
    if not isinstance(storage, Texture):
        return "host buffer"
    width, height = storage.tiling.image_size
    layers = f"x{storage.tiling.layers}" if storage.tiling.layers > 1 else ""
    tiles = f" {storage.tiling.tiles} tiles" if storage.tiling.tiles > 1 else ""
    return f"{width}x{height}{layers} {storage.dtype}{tiles}"


def totals(plan: Plan) -> dict[str, int]:
    """The plan's sums: launches, bytes and multiply-adds."""
    return {
        "launches": len(plan.launches),
        "copies": sum(launch.kind == "copy" for launch in plan.launches),
        "packing_launches": len(plan.launches) - len(plan.compute_launches),
        "multiply_adds": plan.multiply_adds,
        "weight_bytes": plan.weight_bytes,
        "activation_bytes": plan.activation_bytes,
        "activation_images": len(set(plan.slots.values())),
        "least_activation_bytes": plan.most_alive,
        "host_buffer_bytes": plan.buffer_bytes,
        "bytes": plan.bytes,
    }


def totals_as_text(plan: Plan) -> list[str]:
    """`totals` in words."""
    of = totals(plan)
    packing = f"{of['packing_launches']} of them pack inputs or unpack outputs"
    activations = f"activations {of['activation_bytes'] / 1e6:.2f} in {plan.activation_places}"
    weights, buffers = f"weights {of['weight_bytes'] / 1e6:.2f}", f"host buffers {of['host_buffer_bytes'] / 1e6:.2f}"
    return [
        f"{of['launches']} launches: {packing}, {of['copies']} are copies",
        f"{of['multiply_adds'] / 1e6:.1f} M multiply-adds",
        f"{of['bytes'] / 1e6:.2f} MB on the device: {weights}, {activations}, {buffers}",
        f"lower bound of the workspace: {plan.most_alive / 1e6:.2f} MB of activations are live at once",
    ]


def as_json(
    model: str, device: str, plan: Plan, partition: HostPartition | None = None, half_share: HalfShare | None = None,
    sums: Mapping[str, str] = {},
) -> dict[str, Any]:
    """Returns everything that print_plan and print_boundary show, as plain data. outputs: those of the device."""
    half = {"half": {**vars(half_share), "reasons": dict(half_share.reasons)}} if half_share else {}
    return half | {
        "model": model,
        "device": device,
        "inputs": [_value_as_json(value) for value in plan.inputs],
        "outputs": [_value_as_json(value) for value in plan.outputs],
        "launches": [
            _launch_as_json(launch) | ({"integer_sums": sums[launch.name]} if launch.name in sums else {})
            for launch in plan.launches
        ],
        "totals": totals(plan),
        **({"host": _partition_as_json(partition, plan)} if partition else {}),
    }


def _partition_as_json(partition: HostPartition, plan: Plan) -> dict[str, Any]:
    return {
        "node": partition.node, "reason": partition.reason, "boundary_bytes": boundary_bytes(partition, plan),
        "nodes": [{"name": n.name, "op_type": n.op_type, "inputs": n.inputs, "outputs": n.outputs}
                  for n in partition.graph.nodes],
        "outputs": [_value_as_json(value) for value in partition.outputs],
    }


def _value_as_json(value: Value) -> dict[str, Any]:
    return {"name": value.name, "shape": value.shape, "dtype": value.dtype}


def _launch_as_json(launch: Launch) -> dict[str, Any]:
    return {
        "name": launch.name, "kind": launch.kind, "description": launch.description,
        "specialisation": launch.specialisation, "sums": launch.sums, "origin": launch.origin, "reason": launch.reason,
        "multiply_adds": launch.multiply_adds, "global_size": launch.source.global_size,
        "local_size": launch.source.local_size, "reads": [_storage_as_json(storage) for storage in launch.reads],
        "writes": _storage_as_json(launch.writes),
    }


def _storage_as_json(storage: Storage) -> dict[str, Any]:
    described = {"name": storage.name, "shape": storage.shape, "dtype": str(storage.dtype), "bytes": storage.bytes}
    if not isinstance(storage, Texture):
        return {**described, "kind": "host buffer"}
    width, height = storage.tiling.image_size
    texture = {"width": width, "height": height, "layers": storage.tiling.layers, "tiles": storage.tiling.tiles}
    return {**described, "kind": "texture", **texture}
