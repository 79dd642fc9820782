"""The measured networks: those of models/ by name, and ONNX files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import models
from imgconv.errors import InputError
from imgconv.graph.nodes import Graph
from imgconv.onnx_import import declared_inputs, import_onnx

DEFAULT = ("mobilenet_v2", "resnet18", "squeezenet", "efficientnet_b0", "supercombo")
Shapes = dict[str, tuple[int, ...] | int]


@dataclass(frozen=True)
class Network:
    """A network as a Graph before any pass, and as the ONNX file that other engines read."""

    name: str
    graph: Graph
    path: Path

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of every input."""
        return {value.name: value.shape for value in self.graph.inputs}

    @property
    def size(self) -> str:
        """The sizes of the largest input, as text."""
        return "x".join(map(str, max(self.graph.inputs, key=lambda value: value.size).shape))


def open_network(name: str, folder: Path, resolution: int | None = None) -> Network:
    """A network by its name in models/, exported to `folder`, or by the path of its ONNX file.

    resolution: rows and columns of the pictures. Raises InputError for an unknown name, ModelError for a bad file.
    """
    if name.endswith(".onnx"):
        path = Path(name)
        return Network(path.stem, import_onnx(path, _shapes_of(path, resolution)), path)
    graph = _graph_of(name, resolution)
    path = folder / f"{name}_{resolution or 'default'}.onnx"
    if not path.exists():
        from imgconv import export_onnx

        export_onnx(graph, path)
    return Network(name, graph, path)


def sized(name: str, resolutions: Sequence[int]) -> list[tuple[str, int | None]]:
    """A name with each resolution, or with the network's own."""
    return [(name, resolution) for resolution in resolutions] or [(name, None)]


def _graph_of(name: str, resolution: int | None) -> Graph:
    if name not in models.MODELS:
        raise InputError(f"no network is called {name!r}: use {', '.join(models.MODELS)}, or the path of an .onnx file")
    return models.build(name) if resolution is None else models.build(name, size=resolution)


def _shapes_of(path: Path, resolution: int | None) -> Shapes:
    """Shapes for an ONNX file: a symbolic height or width is the resolution (224 if there is none)."""
    shapes: Shapes = {}
    for name, (_, sizes) in declared_inputs(path).items():
        if sizes is None:
            raise InputError(f"input {name!r} of {path} has no stated shape")
        if len(sizes) == 4 and (resolution or any(isinstance(size, str) for size in sizes[1:])):
            batch, channels = (size if isinstance(size, int) else 1 for size in sizes[:2])
            rows, columns = (resolution or (size if isinstance(size, int) else 224) for size in sizes[2:])
            shapes[name] = (batch, channels, rows, columns)
    return shapes
