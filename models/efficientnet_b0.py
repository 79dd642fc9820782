"""EfficientNet-B0: Tan and Le, "EfficientNet: Rethinking Model Scaling for Convolutional Neural Networks", ICML 2019,
arXiv:1905.11946.
"""

from __future__ import annotations

from imgconv.graph.nodes import Graph
from imgconv.tensor import Tensor
from models.layers import Layers, build_network, scaled
from models.weights import Weights

# Expansion, window, stride of the first block, channels, blocks: the paper's table 1.
STAGES = (
    (1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3), (6, 5, 1, 112, 3), (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)


def efficientnet_b0(
    width: float = 1.0, size: int = 224, batch: int = 1, classes: int = 1000, weights: Weights | None = None
) -> Graph:
    """Input (batch, 3, size, size), output (batch, classes) before softmax. Parameters have torchvision's names."""

    def network(net: Layers, x: Tensor) -> Tensor:
        x = net.unit(x, "features.0", scaled(32 * width), 3, 2, activation=Tensor.silu)
        for stage, (expansion, window, stride, channels, blocks) in enumerate(STAGES, 1):
            for block in range(blocks):
                name = f"features.{stage}.{block}.block"
                x = _block(net, x, name, expansion, window, 1 if block else stride, scaled(channels * width))
        x = net.unit(x, f"features.{len(STAGES) + 1}", 4 * x.shape[1], activation=Tensor.silu)
        return net.linear(x.global_average_pool().flatten(), "classifier.1", classes)

    return build_network("efficientnet_b0", network, {"input": (batch, 3, size, size)}, weights)


def _block(net: Layers, x: Tensor, name: str, expansion: int, window: int, stride: int, channels: int) -> Tensor:
    """Expand, filter each channel, squeeze and excite, project without activation; add the input if shapes agree."""
    wide, part, expanded = x, 0, scaled(x.shape[1] * expansion)
    if expansion != 1:
        wide = net.unit(x, f"{name}.0", expanded, activation=Tensor.silu)
        part = 1
    wide = net.unit(wide, f"{name}.{part}", expanded, window, stride, expanded, activation=Tensor.silu)
    wide = net.squeeze_excite(wide, f"{name}.{part + 1}", max(1, x.shape[1] // 4), Tensor.silu, Tensor.sigmoid)
    made = net.unit(wide, f"{name}.{part + 2}", channels)
    return x + made if made.shape == x.shape else made
