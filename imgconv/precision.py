"""Which part of a model may be stored in half: asked of the model itself, once, at load.

Rounding to half costs 2^-11 at each value, which most networks do not notice; a few amplify it, above all in their
first, thin layers, whose errors pass through everything that follows. So a drawn picture goes through the model in
float and in half. Where the outputs differ by more than BOUND, the first quarter of the kernels keeps float textures
and weights, then the first half, then three quarters, then all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy

from imgconv.cl.device import Context
from imgconv.config import Config
from imgconv.graph import Graph, Value
from imgconv.lower import Target, lower
from imgconv.runner import Progress, Session

BOUND = 1e-2
PARTS = 4


def choose_float_nodes(
    graph: Graph, config: Config, target: Target, context: Context, progress: Progress | None = None
) -> int:
    """How many of the graph's first nodes keep float textures and weights, so that half costs at most BOUND."""
    pictures = [{v.name: _drawn(v, scale) for v in graph.inputs} for scale in (1.0, 255.0)]
    exact = _outputs(graph, replace(config, float16=0), target, context, pictures, progress)
    total = len(graph.nodes)
    for part in range(PARTS):
        count = total * part // PARTS
        rounded = _outputs(graph, replace(config, float_nodes=count), target, context, pictures, progress)
        if all(relative_error(a, b) <= BOUND for a, b in zip(rounded, exact, strict=True)):
            return count
    return total


def relative_error(got: Mapping[str, Any], expected: Mapping[str, Any]) -> float:
    """The largest difference of any output, in parts of its largest expected value.

    inf where `got` is not finite and `expected` is.
    """
    worst = 0.0
    for name, reference in expected.items():
        wide, other = reference.astype(numpy.float64), got[name].astype(numpy.float64)
        finite = numpy.isfinite(wide)
        if not numpy.all(numpy.isfinite(other[finite])):
            return float("inf")
        largest = float(numpy.max(numpy.abs(wide[finite]), initial=0.0))
        difference = float(numpy.max(numpy.abs(wide - other)[finite], initial=0.0))
        worst = max(worst, difference / largest if largest else difference)
    return worst


def _outputs(
    graph: Graph, config: Config, target: Target, context: Context, pictures: list[dict[str, Any]],
    progress: Progress | None,
) -> list[dict[str, Any]]:
    session = Session(lower(graph, config, target), context, progress)
    return [session.run(picture) for picture in pictures]


def _drawn(value: Value, scale: float) -> Any:
    """An input of 0 .. scale with the spectrum of pictures: amplitude falls as one over the spatial frequency."""
    random = numpy.random.default_rng(1)
    shape = value.shape
    if len(shape) < 2 or not value.dtype.startswith("float"):
        return (random.random(shape) * (scale if value.dtype.startswith("float") else 1)).astype(value.dtype)
    rows, columns = shape[-2:]
    frequency = numpy.hypot(numpy.fft.fftfreq(rows)[:, None], numpy.fft.rfftfreq(columns)[None])
    frequency[0, 0] = 1 / max(rows, columns)
    noise = numpy.fft.irfft2(numpy.fft.rfft2(random.standard_normal(shape)) / frequency, s=(rows, columns))
    low, high = noise.min(), noise.max()
    return ((noise - low) * (scale / max(high - low, 1e-9))).astype(value.dtype)
