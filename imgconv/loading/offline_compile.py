"""Writes compiled files for devices that need not be present, on a machine that needs no OpenCL driver."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from imgconv.arrays import Shapes
from imgconv.cl.device_info import DeviceInfo
from imgconv.compiling.shared_packings import Packings
from imgconv.config import Config
from imgconv.dtype import FLOAT32
from imgconv.graph.nodes import Graph
from imgconv.limits import Limits, load_budget
from imgconv.passes import run_passes
from imgconv.preprocessing.stage import PictureStage
from imgconv.loading.compiled import OutputStage, log_half_share
from imgconv.loading.file_plans import plans_for, with_generic
from imgconv.loading.states import check_host, check_states
from imgconv.runtime.host_fallback import HostFallback, strict_error
from imgconv.stored.compiled_file import SizedModel, save_sizes
from imgconv.stored.precision_file import PrecisionFile
from imgconv.stored.tuning import open_tuning_database
from imgconv.stored.description_file import find_description


def save_for_devices(
    path: str | os.PathLike[str], model: str | os.PathLike[str], devices: Sequence[DeviceInfo], config: Config,
    shapes: Shapes | None = None, precision: PrecisionFile | None = None, strict: bool = False,
    picture: PictureStage | None = None, description: str | None = None, states: Mapping[str, str] = {},
    outputs: Sequence[str] = (), sizes: Sequence[Shapes] = (), generic: bool = False,
    answers: OutputStage | None = None, player_only: bool = False,
) -> None:
    """Writes the file of `load(model).save(path, devices)`. It opens no device, so that there may be none.

        save_for_devices("m.imgconv", "m.onnx", [read_description("adreno_740")], Config())

    model: an ONNX file. precision: needed if config.float16 is not 0, because `load` finds it by measuring on a device.
    shapes, strict, outputs: as `load` takes them. picture: the preparation of a picture before the model, whose shape
    is among shapes. description: by default the one next to the model. states: as Model.stream takes them. Raises what
    `load` and `Model.save` raise. sizes, generic, player_only: as Model.save takes them. answers: the decoding after
    the model.
    """
    if config.storage != FLOAT32 and not precision:
        raise ValueError("float16=1 or 2 is needed for a precision file")
    packings: Packings = {}

    def sized(shapes: Shapes) -> SizedModel:
        """The model for these shapes."""
        graph = _optimised_graph(model, shapes, strict, picture, outputs, answers)
        if states:
            check_states(graph.inputs, [graph.values[name] for name in graph.outputs], states)
        settings = replace(config, precision=precision.precision_of(graph)) if precision else config
        if answers:
            settings = replace(settings, precision=answers.with_float_answers(settings.precision, graph))
        plans = plans_for(graph, settings, devices, open_tuning_database(model), states, packings)
        if generic:
            plans = with_generic(plans, graph, settings, states, packings)
        if states and graph.host_partition:
            check_host(graph.host_partition, plans[0].plan)
        return SizedModel(graph, settings, plans, states)

    with load_budget(Limits()):
        made = [sized(each) for each in (shapes or {}, *({**(shapes or {}), **each} for each in sizes))]
    for each in made:
        for one in each.plans:
            log_half_share(one.plan, each.graph, each.config)
    described = find_description(model) if description is None else description
    save_sizes(path, made, described, picture.how.format if picture else None, player_only)


def _optimised_graph(
    model: str | os.PathLike[str], shapes: Shapes, strict: bool, picture: PictureStage | None, outputs: Sequence[str],
    answers: OutputStage | None,
) -> Graph:
    """The graph after the passes."""
    from imgconv.onnx_import import import_onnx

    imported = import_onnx(model, picture.model_input_shapes(shapes) if picture else shapes, None, outputs)
    if strict and imported.host_partition:
        raise strict_error(imported.host_partition, os.fspath(model))
    imported = answers.append_to(imported, shapes) if answers else imported
    graph = run_passes(picture.prepend_to(imported, shapes) if picture else imported)
    HostFallback.prepare(graph.host_partition, graph.inputs, graph.outputs)  # raises for what the host does not compute
    return graph
