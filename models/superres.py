"""The demo's network: 2x super-resolution, written with the lazy front end.

`train_superres.py` describes and trains it; `superres_x2.npz` holds the weights.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy

from imgconv.graph.nodes import Graph
from imgconv.tensor import Tensor, build_graph, origin

WEIGHTS = Path(__file__).with_name("superres_x2.npz")
BLOCKS = 2
FACTOR = 2


def build(height: int, width: int, batch: int = 1, weights: Path = WEIGHTS) -> Graph:
    """The Graph for pictures of one size: input (batch, 3, height, width), output (batch, 3, 2 height, 2 width).

    Both are RGB in 0 to 1; the output may be slightly outside of that range.
    """
    with numpy.load(weights) as stored:
        network = Network(dict(stored))
    picture = Tensor.input("input", (batch, 3, height, width))
    return build_graph({"output": network(picture)}, [picture], "superres_x2")


class Network:
    """The layers, by the names of their weights."""

    def __init__(self, weights: dict[str, Any]) -> None:
        """weights: an array by name, as `train_superres.save_weights` writes them."""
        self.weights = {name: Tensor.constant(array, name) for name, array in weights.items()}

    def __call__(self, picture: Tensor) -> Tensor:
        """The enlarged picture."""
        state = self.prelu(self.convolution(picture, "head"), "head_slope").named("head")
        for block in range(BLOCKS):
            inner = self.prelu(self.convolution(state, f"block{block}_a"), f"block{block}_slope")
            state = (state + self.convolution(inner, f"block{block}_b")).named(f"block{block}")
        # The layers compute the difference to the picture with its pixels repeated.
        repeated = picture.take(1, [channel // FACTOR**2 for channel in range(3 * FACTOR**2)])
        return (self.convolution(state, "tail") + repeated).named("tail").depth_to_space(FACTOR)

    def convolution(self, x: Tensor, name: str) -> Tensor:
        """A 3x3 convolution with stride 1 and one row of zeros around."""
        with origin(name):
            return x.conv2d(self.weights[f"{name}.weight"], self.weights[f"{name}.bias"], padding=1)

    def prelu(self, x: Tensor, slope: str) -> Tensor:
        """x if x > 0, else x times the channel's slope; He et al., arXiv:1502.01852."""
        with origin(slope):
            return x.leaky_relu(self.weights[slope].reshape(-1, 1, 1))
