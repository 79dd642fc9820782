"""MobileNetV2: Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", CVPR 2018,
arXiv:1801.04381.
"""

from __future__ import annotations

from imgconv.graph.nodes import Graph
from imgconv.tensor import Tensor
from models.layers import Layers, build_network, relu6, scaled
from models.weights import Weights

# Expansion, channels, blocks, stride of the first block: the paper's table 2.
STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


def mobilenet_v2(
    width: float = 1.0, size: int = 224, batch: int = 1, classes: int = 1000, weights: Weights | None = None
) -> Graph:
    """Input (batch, 3, size, size), output (batch, classes) before softmax. Parameters have torchvision's names."""

    def network(net: Layers, x: Tensor) -> Tensor:
        x = net.unit(x, "features.0", scaled(32 * width), 3, 2, activation=relu6)
        number = 1
        for expansion, channels, blocks, stride in STAGES:
            for block in range(blocks):
                name = f"features.{number}.conv"
                x = _block(net, x, name, expansion, scaled(channels * width), 1 if block else stride)
                number += 1
        x = net.unit(x, f"features.{number}", scaled(1280 * max(1.0, width)), activation=relu6)
        return net.linear(x.global_average_pool().flatten(), "classifier.1", classes)

    return build_network("mobilenet_v2", network, {"input": (batch, 3, size, size)}, weights)


def _block(net: Layers, x: Tensor, name: str, expansion: int, channels: int, stride: int) -> Tensor:
    """Inverted residual: expand, filter each channel, project without activation; add the input if shapes agree."""
    wide, part = x, 0
    if expansion != 1:
        wide = net.unit(x, f"{name}.0", x.shape[1] * expansion, activation=relu6)
        part = 1
    wide = net.unit(wide, f"{name}.{part}", wide.shape[1], 3, stride, groups=wide.shape[1], activation=relu6)
    made = net.unit(wide, name, channels, parts=(str(part + 1), str(part + 2)))
    return x + made if made.shape == x.shape else made
