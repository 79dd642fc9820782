"""The parameters of a network by name: drawn from a seed, or loaded from .npz, .safetensors or .onnx."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy

from imgconv.errors import ModelError
from imgconv.tensor import Tensor

Draw = Callable[[numpy.random.Generator, Sequence[int]], Any]
STATISTICS = ("running_mean", "running_var")


class Weights:
    """Parameters that a network requests by name and shape. `arrays` holds those requested so far.

    Without `loaded`, each parameter is drawn at its first request, from a generator that depends on the seed and the
    name: the same network always gets the same weights. With `loaded`, nothing is drawn. Example:

        graph = build("resnet18", weights=Weights.load("resnet18.safetensors"))
    """

    def __init__(self, loaded: Mapping[str, Any] | None = None, seed: int = 0) -> None:
        """loaded: arrays by name; names that the network does not request are ignored."""
        self.loaded = loaded
        self.seed = seed
        self.arrays: dict[str, Any] = {}

    @staticmethod
    def load(path: str | Path) -> Weights:
        """The arrays of an .npz or .safetensors file or the initializers of an .onnx file. Raises ModelError."""
        path = Path(path)
        readers: dict[str, Callable[[Path], dict[str, Any]]] = {
            ".npz": _read_npz, ".safetensors": _read_safetensors, ".onnx": _read_onnx
        }
        if path.suffix not in readers:
            raise ModelError(f"{path}: weights are read from {', '.join(readers)} files")
        try:
            return Weights(readers[path.suffix](path))
        except (OSError, ValueError) as error:
            raise ModelError(f"{path}: cannot read the weights: {error}") from error

    def save(self, path: str | Path) -> None:
        """Write every parameter requested so far to an .npz file."""
        numpy.savez(path, **self.arrays)

    def get(self, name: str, shape: Sequence[int], draw: Draw) -> Tensor:
        """The parameter as a constant tensor. Raises ModelError if `loaded` lacks it or has it in another shape."""
        if name not in self.arrays:
            self.arrays[name] = self._drawn(name, shape, draw) if self.loaded is None else self._loaded(name)
        array = self.arrays[name]
        if array.shape != tuple(shape):
            raise ModelError(f"the weights' {name!r} has shape {list(array.shape)}; this network needs {list(shape)}")
        return Tensor.constant(array, name)

    @property
    def count(self) -> int:
        """The number of trainable parameters, as in papers: without BatchNormalization's running statistics."""
        return sum(array.size for name, array in self.arrays.items() if not name.endswith(STATISTICS))

    def _drawn(self, name: str, shape: Sequence[int], draw: Draw) -> Any:
        generator = numpy.random.default_rng([self.seed, zlib.crc32(name.encode())])
        return numpy.asarray(draw(generator, shape), numpy.float32)

    def _loaded(self, name: str) -> Any:
        assert self.loaded is not None
        if name not in self.loaded:
            known = ", ".join(list(self.loaded)[:3])
            raise ModelError(f"the weights have no {name!r} among their {len(self.loaded)} names ({known} ...)")
        return numpy.asarray(self.loaded[name], numpy.float32)


def _read_npz(path: Path) -> dict[str, Any]:
    with numpy.load(path) as stored:
        return dict(stored)


def _read_safetensors(path: Path) -> dict[str, Any]:
    try:
        from safetensors import SafetensorError
        from safetensors.numpy import load_file
    except ImportError as error:
        raise ModelError(f"{path}: reading it needs the package safetensors: pip install safetensors") from error
    try:
        return dict(load_file(path))
    except SafetensorError as error:
        raise ValueError(str(error)) from error


def _read_onnx(path: Path) -> dict[str, Any]:
    import onnx
    import onnx.numpy_helper
    from google.protobuf.message import DecodeError

    try:
        model = onnx.load(path)
    except DecodeError as error:
        raise ValueError(str(error)) from error
    return {tensor.name: onnx.numpy_helper.to_array(tensor, str(path.parent)) for tensor in model.graph.initializer}
