"""load() and Model: a compiled model on a device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Union

from imgconv.cl.device import DeviceInfo, open_device, select
from imgconv.compiler import limited
from imgconv.config import Config, read_config
from imgconv.errors import InputError
from imgconv.graph import Graph, Value
from imgconv.layout import ImageLimits
from imgconv.lower import Target, lower
from imgconv.passes import run_passes
from imgconv.plan import Plan

Shapes = Mapping[str, Union[Sequence[int], int]]


class Model:
    """A model compiled for a device. `graph` and `plan` show what runs; `run` runs it."""

    def __init__(self, graph: Graph, plan: Plan, config: Config, device: DeviceInfo, session: Any) -> None:
        self.graph = graph
        self.plan = plan
        self.config = config
        self.device = device
        self._session = session

    @property
    def inputs(self) -> dict[str, Value]:
        """Name, shape and dtype of every input, by name."""
        return {value.name: value for value in self.plan.inputs}

    @property
    def outputs(self) -> dict[str, Value]:
        """Name, shape and dtype of every output, by name."""
        return {value.name: value for value in self.plan.outputs}

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Every output as a new numpy array, for an array for every input. Raises InputError, DeviceError."""
        return dict(self._session.run(inputs))

    def __call__(self, array: Any) -> Any:
        """The only output for the only input; a dict of outputs where there are several. Raises InputError."""
        if len(self.plan.inputs) != 1:
            names = ", ".join(self.inputs)
            raise InputError(f"the model has {len(self.plan.inputs)} inputs ({names}): use run({{name: array}})")
        outputs = self.run({self.plan.inputs[0].name: array})
        return next(iter(outputs.values())) if len(outputs) == 1 else outputs


def load(
    path_or_graph: str | Path | Graph, device: str | int | DeviceInfo | None = None, float16: int | bool | None = None,
    native_explog: bool | None = None, shapes: Shapes | None = None, max_image: int | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> Model:
    """Compile an ONNX file or a Graph for a device.

    device: index or part of the name (default: IMGCONV_DEVICE, else a GPU, else a CPU). float16: 1 stores half, save
    where that would cost more than imgconv.precision allows (FLOAT16). native_explog: native_exp and friends
    (NATIVE_EXPLOG). shapes: sizes of symbolic dimensions, by input or dimension name. max_image: a lower image limit
    than the device's (IMGCONV_MAX_IMAGE). progress: called with (kernels built, kernels in all, text).
    Raises ConfigError, ModelError, UnsupportedError, DeviceError, ResourceError or BuildError.
    """
    chosen = device if isinstance(device, (str, int)) else None
    config = read_config(float16, native_explog, max_image, chosen)
    graph = path_or_graph
    if not isinstance(graph, Graph):
        from imgconv.onnx_import import import_onnx

        graph = import_onnx(graph, shapes)
    info = device if isinstance(device, DeviceInfo) else select(config.device)
    target = limited(target_of(info), config)
    optimised = run_passes(graph)
    from imgconv.precision import choose_float_nodes
    from imgconv.runner import Session

    context = open_device(info)
    if config.float16:
        config = replace(config, float_nodes=choose_float_nodes(optimised, config, target, context, progress))
    plan = lower(optimised, config, target)
    return Model(optimised, plan, config, info, Session(plan, context, progress))


def target_of(info: DeviceInfo) -> Target:
    """What the compiler needs to know of a device."""
    limits = ImageLimits(info.max_image_width, info.max_image_height, info.max_image_layers)
    kind = "cpu" if info.kind == "cpu" else "gpu"
    return Target(limits, kind, info.compute_units, info.half_images, info.max_read_images)
