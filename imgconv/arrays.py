"""The types of numpy arrays. A function that takes an array says which dtype and shape it has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing

Array = numpy.typing.NDArray[Any]
Arrays = Mapping[str, Array]
"""Arrays by the name of the input, output or tensor: {"x": array}."""
