"""Runs an ONNX file by torch, operator by operator: the operators of imgconv.export_onnx, and few more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import onnx
import onnx.helper
import onnx.numpy_helper

Attributes = Mapping[str, Any]


class TorchModel:
    """The model on a torch device; calling it takes and gives tensors in the order of the file's inputs and outputs."""

    def __init__(self, path: str | Path, device: str) -> None:
        """Raises NotImplementedError naming every operator that is not in OPERATORS."""
        import torch

        self.torch, self.device = torch, device
        graph = onnx.load(str(path)).graph
        missing = sorted({node.op_type for node in graph.node} - OPERATORS.keys())
        if missing:
            raise NotImplementedError(f"operators {', '.join(missing)}")
        # Positions to gather are needed on the device; a recording of a CUDA graph allows no copy from the host.
        positions = {node.input[1] for node in graph.node if node.op_type == "Gather"}
        self.constants = {
            t.name: self._tensor(onnx.numpy_helper.to_array(t), t.name in positions) for t in graph.initializer
        }
        self.nodes = [(OPERATORS[n.op_type], list(n.input), n.output[0], _attributes(n)) for n in graph.node]
        self.inputs = [value.name for value in graph.input if value.name not in self.constants]
        self.outputs = [value.name for value in graph.output]

    def __call__(self, *arrays: Any) -> list[Any]:
        known = {**self.constants, **dict(zip(self.inputs, arrays, strict=True)), "": None}
        for operator, names, output, attributes in self.nodes:
            known[output] = operator(self.torch, [known[name] for name in names], attributes)
        return [known[name] for name in self.outputs]

    def _tensor(self, array: Any, on_device: bool) -> Any:
        """Floats on the device; whole numbers on the host, which reads shapes and axes."""
        tensor = self.torch.from_numpy(array.copy())
        return tensor.to(self.device) if on_device or array.dtype.kind == "f" else tensor


def _attributes(node: onnx.NodeProto) -> Attributes:
    return {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}


def _padded(torch: Any, x: Any, pads: list[int], value: float) -> Any:
    """Pads the last axes by ONNX's pads: befores, then afters."""
    half = len(pads) // 2
    flat = [n for axis in reversed(range(half)) for n in (pads[axis], pads[axis + half])]
    return torch.nn.functional.pad(x, flat, value=value) if any(flat) else x


def _convolution(torch: Any, x: list[Any], a: Attributes) -> Any:
    d = x[1].dim() - 2
    pads = list(a.get("pads", [0] * 2 * d))
    data = x[0]
    if pads[:d] != pads[d:]:
        data, pads = _padded(torch, data, pads, 0.0), [0] * d
    function = (torch.nn.functional.conv1d, torch.nn.functional.conv2d, torch.nn.functional.conv3d)[d - 1]
    bias = x[2] if len(x) > 2 else None
    return function(data, x[1], bias, a.get("strides", 1), pads[:d], a.get("dilations", 1), a.get("group", 1))


def _transposed(torch: Any, x: list[Any], a: Attributes) -> Any:
    pads, spare = list(a.get("pads", [0] * 4)), list(a.get("output_padding", [0] * 2))
    bias = x[2] if len(x) > 2 else None
    near, far = pads[:2], pads[2:]
    spare = [s + n - f for s, n, f in zip(spare, near, far, strict=True)]
    return torch.nn.functional.conv_transpose2d(
        x[0], x[1], bias, a.get("strides", 1), near, spare, a.get("group", 1), a.get("dilations", 1)
    )


def _max_pool(torch: Any, x: list[Any], a: Attributes) -> Any:
    data = _padded(torch, x[0], list(a.get("pads", [0] * 4)), float("-inf"))
    return torch.nn.functional.max_pool2d(
        data, a["kernel_shape"], a.get("strides", 1), 0, a.get("dilations", 1), bool(a.get("ceil_mode", 0))
    )


def _average_pool(torch: Any, x: list[Any], a: Attributes) -> Any:
    pads = list(a.get("pads", [0] * 4))
    counts = bool(a.get("count_include_pad", 0))
    if pads[:2] != pads[2:]:
        if not counts:
            raise NotImplementedError("AveragePool with uneven pads that are not counted")
        return torch.nn.functional.avg_pool2d(_padded(torch, x[0], pads, 0.0), a["kernel_shape"], a.get("strides", 1))
    return torch.nn.functional.avg_pool2d(x[0], a["kernel_shape"], a.get("strides", 1), pads[:2], False, counts)


def _slice(torch: Any, x: list[Any], a: Attributes) -> Any:
    starts, ends, *rest = (part.tolist() for part in x[1:])
    axes = rest[0] if rest else list(range(len(starts)))
    strides = rest[1] if len(rest) > 1 else [1] * len(starts)
    data = x[0]
    for axis, start, end, step in zip(axes, starts, ends, strides, strict=True):
        positions = range(data.shape[axis])[slice(start, None if step < 0 and end < -data.shape[axis] else end, step)]
        if step > 0:
            data = data[(slice(None),) * (axis % data.dim()) + (slice(positions.start, positions.stop, step),)]
        else:
            data = data.index_select(axis, torch.tensor(list(positions), device=data.device))
    return data


def _gather(torch: Any, x: list[Any], a: Attributes) -> Any:
    axis, positions = a.get("axis", 0), x[1]
    taken = x[0].index_select(axis, positions.flatten().to(x[0].device))
    return taken.reshape((*x[0].shape[:axis], *positions.shape, *x[0].shape[axis + 1 :]))


def _reduce(name: str) -> Callable[[Any, list[Any], Attributes], Any]:
    def reduce(torch: Any, x: list[Any], a: Attributes) -> Any:
        axes = list(a["axes"]) if "axes" in a else x[1].tolist() if len(x) > 1 else list(range(x[0].dim()))
        return getattr(torch, name)(x[0], dim=axes, keepdim=bool(a.get("keepdims", 1)))

    return reduce


def _clip(torch: Any, x: list[Any], a: Attributes) -> Any:
    low, high = (x[n] if len(x) > n else None for n in (1, 2))
    return torch.clamp(x[0], low if low is not None else a.get("min"), high if high is not None else a.get("max"))


def _reshape(torch: Any, x: list[Any], a: Attributes) -> Any:
    return x[0].reshape([x[0].shape[axis] if n == 0 else n for axis, n in enumerate(x[1].tolist())])


def _cast(torch: Any, x: list[Any], a: Attributes) -> Any:
    return x[0].to(getattr(torch, str(onnx.helper.tensor_dtype_to_np_dtype(a["to"]))))


def _elementwise(name: str) -> Callable[[Any, list[Any], Attributes], Any]:
    def compute(torch: Any, x: list[Any], a: Attributes) -> Any:
        device = next((t.device for t in x if t.is_floating_point()), x[0].device)
        return getattr(torch, name)(*(t.to(device) for t in x))

    return compute


OPERATORS: dict[str, Callable[[Any, list[Any], Attributes], Any]] = {
    **{
        name: _elementwise(function)
        for name, function in {
            "Abs": "abs", "Add": "add", "Div": "div", "Equal": "eq", "Erf": "erf", "Exp": "exp", "Floor": "floor",
            "Less": "less", "Log": "log", "Max": "maximum", "Min": "minimum", "Mul": "mul", "Neg": "neg", "Pow": "pow",
            "Reciprocal": "reciprocal", "Relu": "relu", "Sigmoid": "sigmoid", "Sqrt": "sqrt", "Sub": "sub",
            "Tanh": "tanh", "Where": "where",
        }.items()
    },
    "AveragePool": _average_pool, "Cast": _cast, "Clip": _clip, "Conv": _convolution, "ConvTranspose": _transposed,
    "Gather": _gather, "MaxPool": _max_pool, "Reshape": _reshape, "Slice": _slice,
    "Concat": lambda torch, x, a: torch.cat(x, a["axis"]),
    "Dropout": lambda torch, x, a: x[0],
    "Expand": lambda torch, x, a: torch.broadcast_to(x[0], torch.broadcast_shapes(x[0].shape, tuple(x[1].tolist()))),
    "Flatten": lambda torch, x, a: x[0].flatten(a.get("axis", 1)),
    "GlobalAveragePool": lambda torch, x, a: x[0].mean(dim=list(range(2, x[0].dim())), keepdim=True),
    "Identity": lambda torch, x, a: x[0],
    "MatMul": lambda torch, x, a: torch.matmul(x[0], x[1]),
    "ReduceMax": _reduce("amax"), "ReduceMean": _reduce("mean"), "ReduceMin": _reduce("amin"),
    "ReduceSum": _reduce("sum"),
    "Softmax": lambda torch, x, a: torch.softmax(x[0], a.get("axis", -1)),
    "Transpose": lambda torch, x, a: x[0].permute(a["perm"]),
}
