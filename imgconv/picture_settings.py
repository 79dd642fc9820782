"""The preparation of pictures that a model's file and graph suggest: metadata of exporters, and guesses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from imgconv.graph.nodes import Graph, Value
from imgconv.precision.calibration_inputs import BYTES, picture_range
from imgconv.preprocessing.preparation import RANGE, PictureInput, merged_settings
from imgconv.tasks import Description, Task
from imgconv.tasks.heads import IMAGENET
from imgconv.tasks.maps import are_images


def with_hints(model: str, target: PictureInput, description: Description) -> tuple[PictureInput, Description]:
    """The input that takes the pictures, and the description, with the hints of an ONNX file. Raises ModelError."""
    from imgconv.onnx_import.picture_hints import picture_hints

    hints = picture_hints(model, target.name)
    batch, *sides = target.dimensions
    if hints.channels_last and sides[0] not in (1, 3) and isinstance(sides[2], str):
        target = replace(target, dimensions=(batch, *sides[:2], 3))
    return target, replace(
        description, preparation=merged_settings(description.preparation, hints.preparation),
        labels=description.labels or hints.labels, head=description.head or ("" if description.task else hints.head),
    )


def with_guessed_pixels(
    settings: Mapping[str, Any], graph: Graph, value: Value, task: Task | None
) -> Mapping[str, Any]:
    """Returns the settings of a Preparation; if they lack the range of pixels, with the one that the graph suggests.

    graph: after the passes. value: the input. Pixels are 0 to 255 if the graph shows this, or if it shows no range and
    no output may be an image; else 0 to 1. A classifier of 1000 classes for pixels of 0 to 1 also gets ImageNet's mean
    and standard deviation.
    """
    if any(name in settings for name in RANGE) or not value.dtype.startswith("float"):
        return settings
    found = picture_range(graph, value)
    makes_images = are_images({name: (graph.values[name].dtype, graph.values[name].shape) for name in graph.outputs})
    if found == BYTES or found is None and not makes_images:
        return settings
    classes = {graph.values[name].size // max(1, value.shape[0]) for name in graph.outputs}
    is_imagenet = task is not None and task.name == "classify" and classes == {1000} and 3 in value.shape
    return {**settings, "scale": 1 / 255, **(IMAGENET if is_imagenet else {})}
