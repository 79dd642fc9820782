"""SqueezeNet 1.1: Iandola et al., "SqueezeNet: AlexNet-level accuracy with 50x fewer parameters and <0.5MB model size",
arXiv:1602.07360; version 1.1 is the authors' later one with less work, github.com/forresti/SqueezeNet.
"""

from __future__ import annotations

from imgconv.graph.nodes import Graph
from imgconv.tensor import Tensor, concatenate
from models.layers import Layers, build_network, scaled
from models.weights import Weights

# (Squeezed channels, channels of each of the two expansions) by torchvision's layer number; None is a pooling.
FIRES = {
    2: None, 3: (16, 64), 4: (16, 64), 5: None, 6: (32, 128), 7: (32, 128), 8: None, 9: (48, 192), 10: (48, 192),
    11: (64, 256), 12: (64, 256),
}


def squeezenet(
    width: float = 1.0, size: int = 224, batch: int = 1, classes: int = 1000, weights: Weights | None = None
) -> Graph:
    """Input (batch, 3, size, size), output (batch, classes) before softmax. Parameters have torchvision's names."""

    def network(net: Layers, x: Tensor) -> Tensor:
        x = net.convolution(x, "features.0", scaled(64 * width), 3, 2, padding=0).relu()
        for number, channels in FIRES.items():
            if channels is None:
                x = x.max_pool(3, 2, round_up=True)
            else:
                x = _fire(net, x, f"features.{number}", scaled(channels[0] * width), scaled(channels[1] * width))
        return net.convolution(x, "classifier.1", classes).relu().global_average_pool().flatten()

    return build_network("squeezenet", network, {"input": (batch, 3, size, size)}, weights)


def _fire(net: Layers, x: Tensor, name: str, squeezed: int, expanded: int) -> Tensor:
    """1x1 to few channels, then 1x1 and 3x3 side by side."""
    few = net.convolution(x, f"{name}.squeeze", squeezed).relu()
    parts = (("expand1x1", 1), ("expand3x3", 3))
    return concatenate([net.convolution(few, f"{name}.{part}", expanded, window).relu() for part, window in parts], 1)
