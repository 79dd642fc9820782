"""imgconv inspect of a compiled file, or of a model with --target: shows every plan without using a device."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from imgconv.arrays import Shapes
from imgconv.commands.command_line_inputs import declared_of
from imgconv.commands.shared_arguments import check_sizes, read_sizes
from imgconv.compiling.plan import Plan
from imgconv.config import Config
from imgconv.dtype import FLOAT32
from imgconv.errors import ConfigError
from imgconv.graph.nodes import Graph, Value
from imgconv.kernels.device_model.time_range import TimeRange
from imgconv.loading.plans import prepare_for
from imgconv.loading.device_descriptions import read_device_description
from imgconv.precision.share import HalfShare, half_share_of
from imgconv.reports import terminal
from imgconv.reports.table import Column, print_table
from imgconv.runtime.host_fallback import strict_error
from imgconv.stored.compiled_file import DevicePlan, SavedModel
from imgconv.stored.description_file import find_description
from imgconv.stored.tuning import open_tuning_database

PLANS = (
    Column("#"), Column("device", text=True), Column("launches"), Column("M multiply-adds", 4), Column("MB"),
    Column("weights", 2), Column("activations", 2), Column("states", 3), Column("fp16", 1), Column("predicted ms"),
    Column("programs", 5, text=True),
)

SHOWN_LABELS = 3


@dataclass(frozen=True)
class ModelPlans:
    """The plans of a model. graph: after the passes. description: JSON, see imgconv.tasks; "" if there is none.

    states: outputs that feed an input at the next run. file: facts of a compiled file, by name; empty before compiling.
    """

    graph: Graph
    config: Config
    plans: Sequence[DevicePlan]
    description: str
    states: Mapping[str, str]
    file: Mapping[str, Any]

    @property
    def inputs(self) -> tuple[Value, ...]:
        """The inputs of the model, without states."""
        return tuple(value for value in self.graph.inputs if value.name not in self.states.values())

    def half_share(self, plan: Plan) -> HalfShare | None:
        """Returns what of a plan is half; None if all is float by the settings."""
        return half_share_of(plan, self.graph, self.config) if self.config.float16 else None

    @property
    def outputs(self) -> tuple[Value, ...]:
        """The outputs of the model; a size that depends on data is -1."""
        partition = self.graph.host_partition
        made = partition.outputs if partition else [self.graph.values[name] for name in self.graph.outputs]
        return tuple(value for value in made if value.name not in self.states)


def read_plans(path: str) -> list[ModelPlans]:
    """Returns the plans of a compiled file for each size of its inputs. Raises ModelError."""
    saved = SavedModel.open(path)
    file = {
        "bytes": os.path.getsize(path), "written_by": str(saved.root.written_by), "needs": saved.root.needs,
        "refused_by_player": saved.refused_by_player or None,
    }
    return [
        ModelPlans(each.read_graph(), each.config, each.read_plans(), saved.description, each.states, file)
        for each in saved.sizes
    ]


def make_plans(options: argparse.Namespace, config: Config) -> list[ModelPlans]:
    """Returns the plans of options.model for options.target, for each size.

    Raises what `load` raises, and InputError.
    """
    if config.storage != FLOAT32:
        raise ConfigError(
            "which values can be fp16 is measured on a device: use imgconv compile --float16 --target, then inspect"
        )
    declared = declared_of(options.model)
    sizes = read_sizes(options.shape, declared)
    for shapes in sizes:
        check_sizes(declared, shapes)
    return [_plan_for_shapes(options, config, shapes) for shapes in sizes]


def _plan_for_shapes(options: argparse.Namespace, config: Config, shapes: Shapes) -> ModelPlans:
    from imgconv.onnx_import import import_onnx

    graph = import_onnx(options.model, shapes)
    if options.strict and graph.host_partition:
        raise strict_error(graph.host_partition, options.model)
    tuning = open_tuning_database(options.model)
    made = []
    for info in map(read_device_description, options.target):
        prepared = prepare_for(info, graph, config, tuning)
        made.append((prepared.graph, DevicePlan(prepared.plan(), info.key, prepared.target)))
    return ModelPlans(made[0][0], config, [each for _, each in made], find_description(options.model), {}, {})


def predicted_time(plan: Plan) -> TimeRange | None:
    """Returns the sum of the times that the cost model gives the launches; None if it knows one of them not."""
    choices = [launch.choice for launch in plan.launches]
    return sum((each.predicted for each in choices if each), TimeRange()) if all(choices) else None


def values_line(name: str, values: Sequence[Value]) -> str:
    """Returns inputs or outputs in a line."""
    return f"{name:8} {', '.join(map(str, values)) or 'none'}"


def short_description(description: str) -> str:
    """Returns a file's description in a line, with the first labels only."""
    if not description:
        return "not described"
    said = json.loads(description)
    labels = said.get("labels", [])
    if len(labels) > SHOWN_LABELS:
        said["labels"] = [*labels[:SHOWN_LABELS], f"... {len(labels)} in all"]
    return json.dumps(said, ensure_ascii=False)


def print_plans(model: str, found: ModelPlans) -> None:
    """Prints what a model takes and gives, and a line for each plan."""
    states = ", ".join(f"{made} feeds {fed}" for made, fed in found.states.items())
    console, file, partition = terminal.console(), found.file, found.graph.host_partition
    about = f": {file['bytes'] / 1e6:.1f} MB, by imgconv {file['written_by']}" if file else ""
    lines = [
        f"{model}{about}", values_line("inputs", found.inputs), values_line("outputs", found.outputs),
        f"{'states':8} {states or 'none'}", f"{'meaning':8} {short_description(found.description)}",
    ]
    if partition:
        lines.append(f"{'host':8} {len(partition.graph.nodes)} nodes, from {partition.node!r} on: {partition.reason}")
    if file.get("refused_by_player"):
        lines.append(f"{'player':8} rejects it: {file['refused_by_player']}")
    for line in (*lines, ""):
        console.print(line, soft_wrap=True)
    rows = [(str(number), *_table_row(each, found.half_share(each.plan))) for number, each in enumerate(found.plans)]
    print_table(console, PLANS, rows)


def _table_row(found: DevicePlan, half_share: HalfShare | None) -> tuple[str, ...]:
    plan, time = found.plan, predicted_time(found.plan)
    memory, key = plan.memory, found.device.split(" | ")
    sizes = [f"{count / 1e6:.2f}" for count in (memory.peak, memory.weights, memory.activations)]
    return (
        ", ".join(key[1:3]) or found.device, str(len(plan.launches)), f"{plan.multiply_adds / 1e6:.1f}", *sizes,
        f"{memory.states / 1e6:.2f}" if memory.states else "", f"{half_share.share:.0%}" if half_share else "",
        "" if time is None else _milliseconds(time), f"{len(found.binaries)}" if found.binaries else "",
    )


def _milliseconds(time: TimeRange) -> str:
    least, most = (f"{1e3 * seconds:.2f}" for seconds in (time.least, time.most))
    return most if least == most else f"{least} to {most}"


def plan_facts(found: DevicePlan) -> dict[str, Any]:
    """Returns what a plan says beyond its launches, as plain data."""
    time = predicted_time(found.plan)
    return {
        "target": asdict(found.target), "memory": vars(found.plan.memory), "programs": len(found.binaries),
        "states": [{"name": t.name, "shape": t.shape, "dtype": str(t.dtype)} for t in found.plan.states],
        "predicted_ms": time and 1e3 * time.least, "predicted_ms_at_most": time and 1e3 * time.most,
    }
