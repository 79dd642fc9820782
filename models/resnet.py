"""ResNet: He et al., "Deep Residual Learning for Image Recognition", CVPR 2016, arXiv:1512.03385.

As in torchvision, a bottleneck's stride is in its 3x3 convolution; in the paper it is in the first 1x1. The parameters
are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from imgconv.graph.nodes import Graph
from imgconv.tensor import Tensor
from models.layers import Layers, build_network, scaled
from models.weights import Weights


def resnet18(
    width: float = 1.0, size: int = 224, batch: int = 1, classes: int = 1000, weights: Weights | None = None
) -> Graph:
    """Input (batch, 3, size, size), output (batch, classes) before softmax. Parameters have torchvision's names."""
    return _resnet("resnet18", _basic, (2, 2, 2, 2), width, size, batch, classes, weights)


def resnet50(
    width: float = 1.0, size: int = 224, batch: int = 1, classes: int = 1000, weights: Weights | None = None
) -> Graph:
    """Input (batch, 3, size, size), output (batch, classes) before softmax. Parameters have torchvision's names."""
    return _resnet("resnet50", _bottleneck, (3, 4, 6, 3), width, size, batch, classes, weights)


Block = Callable[[Layers, Tensor, str, int, int], Tensor]


def _resnet(
    name: str, block: Block, counts: Sequence[int], width: float, size: int, batch: int, classes: int,
    weights: Weights | None,
) -> Graph:
    def network(net: Layers, x: Tensor) -> Tensor:
        x = _unit(net, x, "", 1, scaled(64 * width), 7, 2).relu().max_pool(3, 2, 1)
        for stage, count in enumerate(counts):
            for number in range(count):
                stride = 2 if stage and not number else 1
                x = block(net, x, f"layer{stage + 1}.{number}", scaled(64 * 2**stage * width), stride)
        return net.linear(x.global_average_pool().flatten(), "fc", classes)

    return build_network(name, network, {"input": (batch, 3, size, size)}, weights)


def _basic(net: Layers, x: Tensor, name: str, channels: int, stride: int) -> Tensor:
    """Two 3x3 convolutions."""
    made = _unit(net, x, name, 1, channels, 3, stride).relu()
    made = _unit(net, made, name, 2, channels, 3)
    return (made + _shortcut(net, x, name, channels, stride)).relu()


def _bottleneck(net: Layers, x: Tensor, name: str, channels: int, stride: int) -> Tensor:
    """1x1 to fewer channels, 3x3, 1x1 to four times as many."""
    made = _unit(net, x, name, 1, channels).relu()
    made = _unit(net, made, name, 2, channels, 3, stride).relu()
    made = _unit(net, made, name, 3, 4 * channels)
    return (made + _shortcut(net, x, name, 4 * channels, stride)).relu()


def _shortcut(net: Layers, x: Tensor, name: str, channels: int, stride: int) -> Tensor:
    """The input itself, or its projection if shapes differ."""
    same = stride == 1 and channels == x.shape[1]
    return x if same else net.unit(x, f"{name}.downsample", channels, 1, stride)


def _unit(
    net: Layers, x: Tensor, name: str, number: int, channels: int, window: int = 1, stride: int = 1
) -> Tensor:
    """A convolution and its BatchNormalization, called conv<number> and bn<number>."""
    return net.unit(x, name, channels, window, stride, parts=(f"conv{number}", f"bn{number}"))
