"""A small graph, its plan, and the targets, for tests of the benchmarks."""

from __future__ import annotations

import zlib

import numpy

from imgconv.compiling.lower import lower
from imgconv.compiling.plan import Plan
from imgconv.config import Config
from imgconv.graph.nodes import Graph
from imgconv.kernels.layout import ImageLimits
from imgconv.kernels.target import Target
from imgconv.passes import run_passes
from imgconv.tensor import Tensor, build_graph, convolution

GPU = Target(ImageLimits(16384, 16384, 2048), "gpu", 2)
CPU = Target(ImageLimits(16384, 16384, 2048), "cpu", 2)


def weights(*shape: int) -> Tensor:
    seed = zlib.crc32(str(shape).encode())
    return Tensor.constant(numpy.random.default_rng(seed).normal(size=shape).astype(numpy.float32))


def small_graph() -> Graph:
    """Two convolutions, a pooled vector, a product."""
    x = Tensor.input("x", (1, 3, 16, 16))
    y = convolution(x, weights(16, 3, 3, 3), [1, 1], [1] * 4, [1, 1]).relu()
    z = convolution(y, weights(32, 16, 1, 1), [1, 1], [0] * 4, [1, 1]).relu()
    pooled = z.reduce("sum", (2, 3), False)
    return build_graph({"y": pooled.matmul(weights(32, 10))}, [x], "small")


def small_plan(target: Target = GPU) -> Plan:
    return lower(run_passes(small_graph()), Config(), target)
