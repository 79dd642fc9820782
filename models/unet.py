"""U-Net for segmentation: Ronneberger et al., "U-Net: Convolutional Networks for Biomedical Image Segmentation",
MICCAI 2015, arXiv:1505.04597.

Channels, depth, 2x2 transposed convolutions and the number of parameters are the paper's. Convolutions pad with zeros,
as in most later versions, so that the scores have the picture's size and nothing is cropped. The paper's pictures are
512x512, which takes 192 G multiply-adds; the default size takes 48 G.
"""

from __future__ import annotations

from imgconv.errors import ModelError
from imgconv.graph.nodes import Graph
from imgconv.tensor import Tensor, concatenate
from models.layers import Layers, build_network, scaled
from models.weights import Weights

LEVELS = 4


def unet(
    width: float = 1.0, size: int = 256, batch: int = 1, classes: int = 2, weights: Weights | None = None,
    channels: int = 1,
) -> Graph:
    """Input (batch, channels, size, size), output (batch, classes, size, size) before softmax.

    Raises ModelError if size is not a multiple of 16.
    """
    if size % 2**LEVELS:
        raise ModelError(f"unet: size {size} is no multiple of {2**LEVELS}")

    def network(net: Layers, x: Tensor) -> Tensor:
        kept = []
        for level in range(LEVELS):
            x = _pair(net, x, f"down.{level}", scaled(64 * 2**level * width))
            kept.append(x)
            x = x.max_pool(2, 2)
        x = _pair(net, x, f"down.{LEVELS}", scaled(64 * 2**LEVELS * width))
        for level in reversed(range(LEVELS)):
            filters = kept[level].shape[1]
            x = concatenate([kept[level], net.enlargement(x, f"up.{level}.enlarge", filters)], 1)
            x = _pair(net, x, f"up.{level}", filters)
        return net.convolution(x, "scores", classes)

    return build_network("unet", network, {"input": (batch, channels, size, size)}, weights)


def _pair(net: Layers, x: Tensor, name: str, filters: int) -> Tensor:
    """Two 3x3 convolutions, each with ReLU."""
    for part in range(2):
        x = net.convolution(x, f"{name}.{part}", filters, 3).relu()
    return x
