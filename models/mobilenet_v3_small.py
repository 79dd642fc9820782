"""MobileNetV3-Small: Howard et al., "Searching for MobileNetV3", ICCV 2019, arXiv:1905.02244."""

from __future__ import annotations

from dataclasses import dataclass

from imgconv.graph.nodes import Graph
from imgconv.tensor import Tensor
from models.layers import Activation, Layers, build_network, scaled
from models.weights import Weights


@dataclass(frozen=True)
class Block:
    """A row of the paper's table 2."""

    window: int
    expanded: int
    channels: int
    squeezes: bool
    activation: Activation
    stride: int


BLOCKS = (
    Block(3, 16, 16, True, Tensor.relu, 2),
    Block(3, 72, 24, False, Tensor.relu, 2),
    Block(3, 88, 24, False, Tensor.relu, 1),
    Block(5, 96, 40, True, Tensor.hardswish, 2),
    Block(5, 240, 40, True, Tensor.hardswish, 1),
    Block(5, 240, 40, True, Tensor.hardswish, 1),
    Block(5, 120, 48, True, Tensor.hardswish, 1),
    Block(5, 144, 48, True, Tensor.hardswish, 1),
    Block(5, 288, 96, True, Tensor.hardswish, 2),
    Block(5, 576, 96, True, Tensor.hardswish, 1),
    Block(5, 576, 96, True, Tensor.hardswish, 1),
)


def mobilenet_v3_small(
    width: float = 1.0, size: int = 224, batch: int = 1, classes: int = 1000, weights: Weights | None = None
) -> Graph:
    """Input (batch, 3, size, size), output (batch, classes) before softmax. Parameters have torchvision's names."""

    def network(net: Layers, x: Tensor) -> Tensor:
        x = net.unit(x, "features.0", scaled(16 * width), 3, 2, activation=Tensor.hardswish)
        for number, block in enumerate(BLOCKS, 1):
            x = _block(net, x, f"features.{number}.block", block, width)
        x = net.unit(x, f"features.{len(BLOCKS) + 1}", 6 * x.shape[1], activation=Tensor.hardswish)
        x = net.linear(x.global_average_pool().flatten(), "classifier.0", scaled(1024 * width)).hardswish()
        return net.linear(x, "classifier.3", classes)

    return build_network("mobilenet_v3_small", network, {"input": (batch, 3, size, size)}, weights, epsilon=1e-3)


def _block(net: Layers, x: Tensor, name: str, block: Block, width: float) -> Tensor:
    """Expand, filter each channel, squeeze and excite, project; add the input if shapes agree."""
    expanded, channels = scaled(block.expanded * width), scaled(block.channels * width)
    wide, part = x, 0
    if expanded != x.shape[1]:
        wide = net.unit(x, f"{name}.0", expanded, activation=block.activation)
        part = 1
    wide = net.unit(
        wide, f"{name}.{part}", expanded, block.window, block.stride, expanded, activation=block.activation
    )
    if block.squeezes:
        part += 1
        wide = net.squeeze_excite(wide, f"{name}.{part}", scaled(expanded // 4), Tensor.relu, Tensor.hardsigmoid)
    made = net.unit(wide, f"{name}.{part + 1}", channels)
    return x + made if made.shape == x.shape else made
