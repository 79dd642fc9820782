"""Linear textures: kernels of CPUs read and write rows of texels in a buffer, with zeros outside of the grid."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy
import pyopencl as cl
import pytest
from graphs import const
from problems.convolution import ConvolutionProblem as P
from running import check, choosing

from imgconv.cl.context import Context
from imgconv.cl.device import DeviceInfo, open_device
from imgconv.compiling.compiler import prepare
from imgconv.compiling.plan import Plan
from imgconv.config import Config
from imgconv.graph.evaluate import evaluate_graph
from imgconv.graph.nodes import Graph
from imgconv.kernels.conv import candidates as conv_candidates, problem as conv
from imgconv.kernels.layout import ImageAlignment
from imgconv.kernels.target import Target
from imgconv.runtime.session import Session
from imgconv.loading.device_target import target_of
from imgconv.tensor import Tensor, build_graph


def linear(info: DeviceInfo, limit: int = 1 << 30) -> Target:
    """A CPU with linear textures, also if it has images. limit: the most bytes of one buffer."""
    if info.kind != "cpu":
        pytest.skip("linear textures are for CPUs")  # NVIDIA's driver (580) crashes when such a session ends
    return replace(target_of(info), linear=ImageAlignment(1, -(-info.buffer_alignment // 8), limit))


def padded() -> Graph:
    """Reads past every edge, by every sort of kernel."""
    x = Tensor.input("x", (2, 5, 40, 6))
    t = x.conv2d(const(24, 5, 3, 3), const(24), padding=1).relu()
    t = t.conv2d(const(8, 24, 3, 3, seed=1), stride=2, padding=1).relu()
    t = t + t.depthwise(const(8, 1, 3, 3, seed=3), padding=1).relu()
    t = t + t.pool("sum", (3, 3), pads=(1, 1, 1, 1), scale=0.1)
    t = (0.01 * t).tanh().conv_transpose2d(const(8, 6, 4, 4, seed=4), stride=2, padding=1)
    t = t.reshape(2, 6, 240).matmul(const(240, 10)).softmax(2)
    return build_graph({"y": t, "mean": t.pad((0, 0, 0), (0, 3, 1)).exp().mean([2])}, [x])


@pytest.mark.parametrize("float16", [0, 1])
@pytest.mark.parametrize("limit", [1 << 30, 1], ids=["workspace", "buffers"])
def test_nothing_outside_of_a_texture_is_read(device: DeviceInfo, limit: int, float16: int) -> None:
    """The activations share one buffer, or several if one would be too large; before the run they are full of NaN."""
    prepared = prepare(padded(), Config(float16=float16), linear(device, limit))
    graph, plan = prepared.graph, prepared.plan()
    assert all(t.tiling.linear for t in plan.textures) and bool(plan.regions) == (limit > 1) != bool(plan.slots)
    session = Session(plan, open_device(device))
    for memory in (*(image for _, image in session.memory.images.values()), *filter(None, [session.memory.workspace])):
        cl.enqueue_fill_buffer(session.context.queue, memory, numpy.float32("nan"), 0, memory.size)
    x = numpy.random.default_rng(0).normal(size=(2, 5, 40, 6)).astype(numpy.float32)
    expected = evaluate_graph(graph, {"x": x})
    for name, found in session.run({"x": x}).items():
        near = (1e-2 if float16 else 1e-5) * numpy.abs(expected[name]).max()
        numpy.testing.assert_allclose(found, expected[name], 0, near)  # half: each value is rounded by up to 2**-11


@pytest.mark.parametrize("float16", [0, 1])
def test_weights_in_a_linear_texture(context: Context, float16: int) -> None:
    """Candidates of GPUs, whose weights are textures: whole blocks and blocks past the edge."""

    def choose(problem: conv.Problem, kind: str, units: int) -> conv.Specialisation:
        made = [c for c in conv_candidates.candidates(problem, "gpu") if not c.weights_in_buffer and not c.has_barriers]
        return replace(made[-1], local_size=None)

    problems = [
        P(1, 16, (8, 8), 16, pads=(1, 1, 1, 1)), P(2, 5, (7, 9), 6, (1, 1)),
        P(1, 8, (9, 9), 8, pads=(1, 1, 1, 1), groups=8),
    ]
    wanted = choosing(replace(linear(context.info), kind="cpu"), convolution=choose)
    plan = check(problems, context, Config(float16=float16), wanted)
    assert sum("weights in image" in launch.specialisation for launch in plan.launches) == len(problems)


def test_only_cpus_have_linear_textures_and_no_image_limit(context: Context) -> None:
    def forms(on: Target, **settings: Any) -> set[bool]:
        plan: Plan = prepare(padded(), Config(**settings), on).plan()
        return {texture.tiling.linear for texture in plan.textures}

    cpu, gpu = (target_of(replace(context.info, kind=kind)) for kind in ("cpu", "gpu"))
    assert forms(cpu) == {True} and forms(gpu) == {False}
    assert forms(cpu, max_image=16384) == {False}
