"""YOLOX-Nano, a detector with its decoding in the graph: Ge et al., "YOLOX: Exceeding YOLO Series in 2021",
arXiv:2107.08430. width, depth and depthwise select the variant: YOLOX-Tiny is 0.375, 0.33, False; YOLOX-S is 0.5, 0.33,
False.

The backbone is YOLOv4's CSPDarknet (Bochkovskiy et al., arXiv:2004.10934) with a Focus stem; the neck is a path
aggregation pyramid (Liu et al., arXiv:1803.01534). Parameters have the names of the authors' code,
github.com/Megvii-BaseDetection/YOLOX.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy

from imgconv.errors import ModelError
from imgconv.graph.nodes import Graph
from imgconv.tensor import Tensor, concatenate
from models.layers import Layers, build_network
from models.weights import Weights

STRIDES = (8, 16, 32)


def yolo(
    width: float = 0.25, size: int = 416, batch: int = 1, classes: int = 80, weights: Weights | None = None,
    depth: float = 0.33, depthwise: bool = True,
) -> Graph:
    """Input (batch, 3, size, size) in 0 to 255, output (batch, boxes, 5 + classes).

    A box is its centre x and y, width and height in pixels, then the probability that it holds an object, and one for
    each class. The (size/8)**2 boxes of the grid with stride 8 come first, row by row, then those with 16 and 32.
    Raises ModelError if size is not a multiple of 32.
    """
    if size % STRIDES[-1]:
        raise ModelError(f"yolo: size {size} is no multiple of {STRIDES[-1]}")

    def network(net: Layers, x: Tensor) -> Tensor:
        detector = _Detector(net, width, depth, depthwise)
        levels = detector.pyramid(*detector.backbone(x))
        return concatenate([detector.head(x, level, classes) for level, x in enumerate(levels)], 1)

    return build_network("yolo", network, {"input": (batch, 3, size, size)}, weights, epsilon=1e-3, scale=128)


@dataclass(frozen=True)
class _Detector:
    """The parts of the detector, with its width and depth."""

    net: Layers
    width: float
    depth: float
    depthwise: bool

    def backbone(self, picture: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Features at strides 8, 16 and 32."""
        name, base, blocks = "backbone.backbone", int(64 * self.width), max(round(3 * self.depth), 1)
        x = self.unit(_focus(picture), f"{name}.stem.conv", base, 3)
        found = []
        for stage, (factor, count) in enumerate(((2, blocks), (4, 3 * blocks), (8, 3 * blocks), (16, blocks)), 2):
            x = self.filter(x, f"{name}.dark{stage}.0", factor * base, 2)
            last = stage == 5
            if last:
                x = self.pools(x, f"{name}.dark{stage}.1")
            x = self.partial(x, f"{name}.dark{stage}.{2 if last else 1}", factor * base, count, shortcut=not last)
            found.append(x)
        return found[1], found[2], found[3]

    def pyramid(self, fine: Tensor, middle: Tensor, coarse: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The features of three levels, combined from coarse to fine and then from fine to coarse."""
        few, mid, many = (int(n * self.width) for n in (256, 512, 1024))
        count = round(3 * self.depth)
        lateral = self.unit(coarse, "backbone.lateral_conv0", mid)
        x = self.partial(concatenate([lateral.upsample(2), middle], 1), "backbone.C3_p4", mid, count)
        reduced = self.unit(x, "backbone.reduce_conv1", few)
        first = self.partial(concatenate([reduced.upsample(2), fine], 1), "backbone.C3_p3", few, count)
        x = self.filter(first, "backbone.bu_conv2", few, 2)
        second = self.partial(concatenate([x, reduced], 1), "backbone.C3_n3", mid, count)
        x = self.filter(second, "backbone.bu_conv1", mid, 2)
        return first, second, self.partial(concatenate([x, lateral], 1), "backbone.C3_n4", many, count)

    def head(self, x: Tensor, level: int, classes: int) -> Tensor:
        """(N, H*W, 5 + classes): the decoded boxes of one level."""
        channels = int(256 * self.width)
        x = self.unit(x, f"head.stems.{level}", channels)
        kinds = box = x
        for number in range(2):
            kinds = self.filter(kinds, f"head.cls_convs.{level}.{number}", channels)
            box = self.filter(box, f"head.reg_convs.{level}.{number}", channels)
        place = self.net.convolution(box, f"head.reg_preds.{level}", 4)
        sure = self.net.convolution(box, f"head.obj_preds.{level}", 1).sigmoid()
        kinds = self.net.convolution(kinds, f"head.cls_preds.{level}", classes).sigmoid()
        n, _, rows, columns = x.shape
        grid = numpy.stack(numpy.meshgrid(numpy.arange(columns), numpy.arange(rows))).astype(numpy.float32)
        centre = (place.slice(1, 0, 2) + Tensor.constant(grid)) * STRIDES[level]
        extent = place.slice(1, 2, 4).exp() * STRIDES[level]
        return concatenate([centre, extent, sure, kinds], 1).reshape(n, -1, rows * columns).transpose(0, 2, 1)

    def unit(self, x: Tensor, name: str, filters: int, window: int = 1, stride: int = 1, groups: int = 1) -> Tensor:
        """Convolution, BatchNormalization, SiLU."""
        return self.net.unit(x, name, filters, window, stride, groups, Tensor.silu, ("conv", "bn"))

    def filter(self, x: Tensor, name: str, filters: int, stride: int = 1) -> Tensor:
        """A 3x3 unit; if depthwise, a 3x3 depthwise unit and a 1x1 unit."""
        if not self.depthwise:
            return self.unit(x, name, filters, 3, stride)
        x = self.unit(x, f"{name}.dconv", x.shape[1], 3, stride, groups=x.shape[1])
        return self.unit(x, f"{name}.pconv", filters)

    def partial(self, x: Tensor, name: str, filters: int, count: int, shortcut: bool = False) -> Tensor:
        """Cross-stage partial layer: `count` blocks on one half of the channels, then both halves; arXiv:1911.11929."""
        hidden = filters // 2
        inner, other = self.unit(x, f"{name}.conv1", hidden), self.unit(x, f"{name}.conv2", hidden)
        for number in range(count):
            made = self.filter(self.unit(inner, f"{name}.m.{number}.conv1", hidden), f"{name}.m.{number}.conv2", hidden)
            inner = inner + made if shortcut else made
        return self.unit(concatenate([inner, other], 1), f"{name}.conv3", filters)

    def pools(self, x: Tensor, name: str) -> Tensor:
        """Spatial pyramid pooling: the features and their maxima over windows of three sizes, concatenated."""
        few = self.unit(x, f"{name}.conv1", x.shape[1] // 2)
        parts = [few, *(few.max_pool(window, 1, window // 2) for window in (5, 9, 13))]
        return self.unit(concatenate(parts, 1), f"{name}.conv2", x.shape[1])


def _focus(x: Tensor) -> Tensor:
    """(N, 3, H, W) -> (N, 12, H/2, W/2): the pixels at even and odd rows and columns as channels."""
    rows, columns = x.shape[2:]
    corners = ((0, 0), (1, 0), (0, 1), (1, 1))
    return concatenate([x.slice(2, top, rows, 2).slice(3, left, columns, 2) for top, left in corners], 1)
