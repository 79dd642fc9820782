"""ONNX's backend interface: programs that drive other runtimes through it, such as onnx.backend.test, drive imgconv.

    from imgconv import onnx_backend

    outputs = onnx_backend.run_model(onnx.load("model.onnx"), [array])     # a named tuple: outputs.y, outputs[0]
    prepared = onnx_backend.prepare(onnx.load("model.onnx"), "CPU")        # compiled once, for several runs
    outputs = prepared.run([array])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy
import onnx
import onnx.backend.base
import onnx.checker
import onnx.helper

from imgconv.cl.device import DeviceInfo, list_devices, select
from imgconv.config import read_config
from imgconv.errors import DeviceError, InputError, ModelError
from imgconv.model import Model, load

# ONNX has two names of devices. The values are the kinds of OpenCL devices that they stand for.
_KINDS = {"CPU": "cpu", "CUDA": "gpu"}


class Representation(onnx.backend.base.BackendRep):
    """A prepared model: `prepare` makes it, `run` runs it. `model` is the imgconv.Model."""

    def __init__(self, model: Model, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        self.model = model
        self._inputs = inputs
        self._outputs = outputs

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Every output as a named tuple, in the model's order. inputs: arrays in that order, or by name.

        prepared.run({"x": array}).y equals prepared.run([array]).y. Raises InputError, and what Model.run raises.
        """
        if not isinstance(inputs, Mapping):
            arrays = inputs if isinstance(inputs, (list, tuple)) else [inputs]
            if len(arrays) != len(self._inputs):
                raise InputError(f"{len(arrays)} arrays for the {len(self._inputs)} inputs {', '.join(self._inputs)}")
            inputs = dict(zip(self._inputs, arrays))
        found = self.model.run(inputs)
        return onnx.backend.base.namedtupledict("Outputs", self._outputs)(*(found[name] for name in self._outputs))


class Backend(onnx.backend.base.Backend):
    """imgconv as an ONNX backend. A device is "CPU" or "CUDA" (a GPU of any maker), or as `imgconv.load` takes it."""

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Returns whether there is such an OpenCL device: supports_device("CUDA") is False without a GPU."""
        try:
            return _device(device) is not None
        except DeviceError:
            return False

    @classmethod
    def is_compatible(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> bool:
        """Returns whether imgconv runs the model, as far as known without inputs: False for StringNormalizer.

        Raises DeviceError for a device that is not there.
        """
        try:
            cls.prepare(model, device, **kwargs)
        except ModelError:
            return False
        return True

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> Representation:
        """The model, compiled; kwargs: those of `imgconv.load`. Raises what `load` raises.

        prepare(onnx.load("model.onnx"), "CPU", float16=1).run([array])
        """
        onnx.checker.check_model(model)
        constants = {tensor.name for tensor in model.graph.initializer}
        inputs = [value.name for value in model.graph.input if value.name not in constants]
        return Representation(load(model, _device(device), **kwargs), inputs, [v.name for v in model.graph.output])

    @classmethod
    def run_node(
        cls, node: onnx.NodeProto, inputs: Any, device: str = "CPU", outputs_info: Any = None, **kwargs: Any
    ) -> tuple[Any, ...]:
        """One node's outputs for its inputs, in order. opset_version: the newest by default. Raises what `load` raises.

        node = onnx.helper.make_node("Relu", ["x"], ["y"])
        run_node(node, [numpy.float32([-1, 2])]).y      # [0, 2], float32
        """
        super().run_node(node, inputs, device, outputs_info, **kwargs)
        version = kwargs.pop("opset_version", onnx.defs.onnx_opset_version())
        arrays = dict(zip((name for name in node.input if name), map(numpy.asarray, inputs)))
        declared = [
            onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in arrays.items()
        ]
        graph = onnx.helper.make_graph(
            [node], "node", declared, [onnx.ValueInfoProto(name=name) for name in node.output if name]
        )
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid(node.domain, version)])
        return Representation(load(model, _device(device), **kwargs), list(arrays), [n for n in node.output if n]).run(
            arrays
        )


def _device(name: str) -> DeviceInfo:
    """The device that a name of ONNX's stands for: the configured one if it is of that kind, else the first."""
    kind = _KINDS.get(name.partition(":")[0])
    if kind is None:
        return select(name)
    configured = read_config().device
    if configured is not None and select(configured).kind == kind:
        return select(configured)
    found = [info for info in list_devices() if info.kind == kind]
    if not found:
        raise DeviceError(f"there is no OpenCL device for {name!r}")
    return found[0]


prepare = Backend.prepare
run_model = Backend.run_model
run_node = Backend.run_node
supports_device = Backend.supports_device
is_compatible = Backend.is_compatible
