"""The types of numpy arrays. What an array's dtype and shape are, the functions say that take it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy.typing

Array = numpy.typing.NDArray[Any]
Arrays = Mapping[str, Array]
"""By the name of the input, output or tensor."""
