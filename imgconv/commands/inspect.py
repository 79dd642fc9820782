"""imgconv inspect: show a model's graph and every launch of its plan."""

from __future__ import annotations

import argparse
from typing import Any

from rich import box
from rich.table import Table

from imgconv import terminal, why
from imgconv.cl.device import DeviceInfo, select
from imgconv.commands.arguments import add_model_arguments, check_sizes, read_shapes
from imgconv.compiler import compile_graph
from imgconv.config import Config, read_config
from imgconv.graph import Graph, Value
from imgconv.layout import Texture
from imgconv.model import load, target_of
from imgconv.onnx_import import declared_inputs, import_onnx
from imgconv.passes.elementwise import LAUNCH
from imgconv.plan import Launch, Plan, Storage

DESCRIPTION = """\
Show what would run on the device: the graph after the passes, and every launch with the operations fused into it, the
ONNX nodes it came from, the texture it writes and its multiply-adds. Nothing is compiled or run, except with --float16,
where the model itself is asked which of its textures must stay float."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `imgconv inspect`."""
    add_model_arguments(parser)
    parser.add_argument("--why", action="store_true", help="also say what was recomputed or kept as a texture, and why")


def execute(options: argparse.Namespace) -> None:
    """Prints graph, launches and totals. Raises what imgconv.load raises."""
    config = read_config(options.float16, options.native_explog, options.max_image, options.device)
    with terminal.Progress(f"reading {options.model}") as progress:
        declared = declared_inputs(options.model)
        shapes = read_shapes(options.shape, declared)
        check_sizes(declared, shapes)
        device = select(config.device)
        graph = import_onnx(options.model, shapes)
        with why.collect() as reasons:
            graph, plan = _compiled(graph, config, device, progress)
    if options.json:
        shown = {"reasons": reasons} if options.why else {}
        terminal.print_json(as_json(options.model, device, plan) | shown)
        return
    print_plan(device, graph, plan)
    if options.why:
        print_reasons(reasons)


def _compiled(
    graph: Graph, config: Config, device: DeviceInfo, progress: terminal.Progress
) -> tuple[Graph, Plan]:
    if not config.float16:
        return compile_graph(graph, config, target_of(device))
    # Only running a model tells which textures load() keeps float.
    model = load(graph, device, config.float16, config.native_explog, None, config.max_image, progress)
    return model.graph, model.plan


def print_reasons(reasons: dict[str, str]) -> None:
    """Which elementwise results were recomputed by their readers, and which became textures, with the costs."""
    console = terminal.console()
    console.print(f"\nrecomputed or kept, where a launch counts as {LAUNCH} texel reads")
    for value, reason in reasons.items():
        console.print(f"  {value}: {reason}")


def print_plan(device: DeviceInfo, graph: Graph, plan: Plan) -> None:
    """Graph, launches and totals as text."""
    console = terminal.console()
    console.print(str(graph))
    console.print(f"\nlaunches on {device}")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title, justify in (
        ("", "right"), ("kind", "left"), ("writes", "left"), ("operation, and what is fused into it", "left"),
        ("from ONNX nodes", "left"), ("texture", "left"), ("kB", "right"), ("M multiply-adds", "right"),
    ):
        table.add_column(title, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for number, launch in enumerate(plan.launches):
        table.add_row(str(number), *_cells(launch))
    console.print(table)
    for line in totals_as_text(plan):
        console.print(line)


def _cells(launch: Launch) -> tuple[str, ...]:
    operation = launch.description
    operation += f" [{launch.specialisation}]" if launch.specialisation else ""
    operation += f" because {launch.reason}" if launch.reason else ""
    origin = ", ".join(launch.origin)
    multiply_adds = f"{launch.multiply_adds / 1e6:.2f}" if launch.multiply_adds else ""
    written = launch.writes
    return launch.kind, launch.name, operation, origin, _place(written), f"{written.bytes / 1e3:.1f}", multiply_adds


def _place(storage: Storage) -> str:
    if not isinstance(storage, Texture):
        return "host buffer"
    width, height = storage.tiling.image_size
    layers = f"x{storage.tiling.layers}" if storage.tiling.layers > 1 else ""
    tiles = f" {storage.tiling.tiles} tiles" if storage.tiling.tiles > 1 else ""
    return f"{width}x{height}{layers} {storage.dtype}{tiles}"


def totals(plan: Plan) -> dict[str, int]:
    """The plan's sums: launches, bytes and multiply-adds."""
    return {
        "launches": len(plan.compute_launches),
        "copies": sum(launch.kind == "copy" for launch in plan.launches),
        "packing_launches": len(plan.launches) - len(plan.compute_launches),
        "multiply_adds": plan.multiply_adds,
        "weight_bytes": plan.weight_bytes,
        "activation_bytes": plan.activation_bytes,
        "activation_images": len(set(plan.slots.values())),
        "host_buffer_bytes": plan.buffer_bytes,
        "bytes": plan.bytes,
    }


def totals_as_text(plan: Plan) -> list[str]:
    """`totals` in words."""
    of = totals(plan)
    launches = f"{of['launches']} launches, {of['copies']} of them only copy"
    activations = f"activations {of['activation_bytes'] / 1e6:.2f} in {of['activation_images']} images"
    weights, buffers = f"weights {of['weight_bytes'] / 1e6:.2f}", f"host buffers {of['host_buffer_bytes'] / 1e6:.2f}"
    return [
        f"{launches}; {of['packing_launches']} more pack inputs and unpack outputs",
        f"{of['multiply_adds'] / 1e6:.1f} M multiply-adds",
        f"{of['bytes'] / 1e6:.2f} MB on the device: {weights}, {activations}, {buffers}",
    ]


def as_json(model: str, device: DeviceInfo, plan: Plan) -> dict[str, Any]:
    """Everything that print_plan shows of the plan, as plain data."""
    return {
        "model": model,
        "device": device.key,
        "inputs": [_value(value) for value in plan.inputs],
        "outputs": [_value(value) for value in plan.outputs],
        "launches": [_launch(launch) for launch in plan.launches],
        "totals": totals(plan),
    }


def _value(value: Value) -> dict[str, Any]:
    return {"name": value.name, "shape": value.shape, "dtype": value.dtype}


def _launch(launch: Launch) -> dict[str, Any]:
    return {
        "name": launch.name, "kind": launch.kind, "description": launch.description,
        "specialisation": launch.specialisation, "origin": launch.origin, "reason": launch.reason,
        "multiply_adds": launch.multiply_adds, "global_size": launch.source.global_size,
        "local_size": launch.source.local_size, "reads": [_storage(storage) for storage in launch.reads],
        "writes": _storage(launch.writes),
    }


def _storage(storage: Storage) -> dict[str, Any]:
    described = {"name": storage.name, "shape": storage.shape, "dtype": storage.dtype, "bytes": storage.bytes}
    if not isinstance(storage, Texture):
        return {**described, "kind": "host buffer"}
    width, height = storage.tiling.image_size
    texture = {"width": width, "height": height, "layers": storage.tiling.layers, "tiles": storage.tiling.tiles}
    return {**described, "kind": "texture", **texture}
