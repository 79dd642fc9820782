"""Convolution: also grouped, depthwise and transposed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy

from imgconv.arrays import Array
from imgconv.graph.operations.operation import Operation
from imgconv.graph.values import Value
from imgconv.graph.view import Shape, View


@dataclass(frozen=True)
class Convolution(Operation):
    """ONNX's Conv or, if transposed, ConvTranspose, without a bias.

    operands: x (N, C, H, W) and w (O, C/groups, KH, KW), or (C, O/groups, KH, KW) if transposed. A third operand,
    (N, C, 1, 1), is a factor for each channel of x. pads: top and left. The bottom and right pads follow from the
    output's shape.
    """

    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: tuple[int, int] = (0, 0)
    groups: int = 1
    transposed: bool = False

    def fits(self, views: Sequence[Shape], shape: Shape) -> bool:
        (n, c, *_), w, *factors = views
        out, each = (w[1] * self.groups, w[0]) if self.transposed else (w[0], w[1] * self.groups)
        fits = len(views[0]) == len(w) == len(shape) == 4 and (n, out, c) == (*shape[:2], each)
        return fits and factors in ([], [(n, c, 1, 1)])

    def combine(self, loaded: Sequence[Array], output: Value) -> Array:
        if not loaded[0].size:
            return numpy.zeros(output.shape)
        x = loaded[0] * loaded[2] if len(loaded) > 2 else loaded[0]
        w, size = loaded[1], output.shape[2:]
        strides, pads = self.strides, self.pads
        if self.transposed:
            # A transposed convolution is a convolution over the input with zeros inserted between its elements.
            stretched = numpy.zeros((*x.shape[:2], *((n - 1) * s + 1 for n, s in zip(x.shape[2:], strides))), x.dtype)
            stretched[:, :, :: strides[0], :: strides[1]] = x
            grouped = w.reshape(self.groups, -1, *w.shape[1:]).swapaxes(1, 2)
            x, w = stretched, grouped.reshape(-1, grouped.shape[2], *w.shape[2:])[:, :, ::-1, ::-1]
            pads = tuple((k - 1) * d - p for k, d, p in zip(w.shape[2:], self.dilations, pads))
            strides = (1, 1)
        groups, (o, c) = self.groups, w.shape[:2]
        out = numpy.zeros((x.shape[0], o, *size))
        for ky in range(w.shape[2]):
            for kx in range(w.shape[3]):
                rows = numpy.arange(size[0]) * strides[0] + ky * self.dilations[0] - pads[0]
                columns = numpy.arange(size[1]) * strides[1] + kx * self.dilations[1] - pads[1]
                inside = ((rows >= 0) & (rows < x.shape[2]))[:, None] & ((columns >= 0) & (columns < x.shape[3]))
                tap = x[:, :, numpy.clip(rows, 0, x.shape[2] - 1)][..., numpy.clip(columns, 0, x.shape[3] - 1)]
                tap = numpy.where(inside, tap, 0).reshape(x.shape[0], groups, c, *size)
                part = numpy.einsum("ngchw,goc->ngohw", tap, w[:, :, ky, kx].reshape(groups, o // groups, c))
                out += part.reshape(out.shape)
        return out

    def elements_read(self, views: Sequence[View], shape: Shape) -> int:
        return prod(shape) * prod(views[1].shape[2:]) * min(views[1].shape[:2])

    def __str__(self) -> str:
        text = "transposed convolution" if self.transposed else "convolution"
        for name, value, usual in (
            ("strides", self.strides, (1, 1)), ("dilations", self.dilations, (1, 1)), ("pads", self.pads, (0, 0)),
        ):
            text += f" {name} {value[0]}x{value[1]}" if value != usual else ""
        return text + (f" groups {self.groups}" if self.groups > 1 else "")
