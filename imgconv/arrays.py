"""Type aliases for numpy arrays and shapes. A function with an array parameter documents its dtype and shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy.typing

Array = numpy.typing.NDArray[Any]
Arrays = Mapping[str, Array]
"""Arrays by the name of the input, output or tensor: {"x": array}."""
Shapes = Mapping[str, Sequence[int] | int]
"""Given sizes, by the name of an input or of a symbolic dimension: {"x": (1, 3, 480, 640)} or {"height": 480}."""
TensorSpecs = Mapping[str, tuple[str, Sequence[int | str] | None]]
"""dtype and dimensions of a model's inputs: {"x": ("float32", [1, 3, "height", "width"])}.

A dimension without a size is a name or "". The dimensions are None if the model gives no shape."""
