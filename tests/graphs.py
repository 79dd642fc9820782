"""Small graphs for tests, each beside its meaning in plain numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy
import pytest
from hypothesis import strategies as st

from imgconv.compiling.choose import ChoiceRequest, CostModelChooser
from imgconv.compiling.plan import Plan
from imgconv.graph.evaluate import evaluate_graph
from imgconv.graph.nodes import Graph, Load, Node, Operand, Value
from imgconv.graph.view import View, axis_variables, identity
from imgconv.kernels.device_model.time_range import TimeRange
from imgconv.kernels.layout import ImageLimits, Texture
from imgconv.kernels.target import Target
from imgconv.kernels.template_interface import Choice
from imgconv.kernels.winograd import template as winograd2d
from imgconv.passes.dead_code import remove_dead_code
from imgconv.passes.views import push_views
from imgconv.tensor import Tensor, build_graph, concatenate, convolution, gather

Pass = Callable[[Graph], Graph]


# Arrays

def numbers(*shape: int, seed: int = 0, low: float = -1.0, high: float = 1.0) -> Any:
    """Reproducible float32 numbers."""
    return numpy.random.default_rng([seed, *shape]).uniform(low, high, shape).astype(numpy.float32)


def const(*shape: int, seed: int = 0, name: str | None = None, low: float = -1.0, high: float = 1.0) -> Tensor:
    """A constant tensor of reproducible numbers."""
    return Tensor.constant(numbers(*shape, seed=seed, low=low, high=high), name)


def inputs_of(graph: Graph, seed: int = 7) -> dict[str, Any]:
    """An array for every input."""
    return {v.name: numbers(*v.shape, seed=seed + i).astype(v.dtype) for i, v in enumerate(graph.inputs)}


def assert_near(found: Any, expected: Any, tolerance: float = 2e-5) -> None:
    """The same shape, and values within `tolerance` of the largest."""
    expected = numpy.asarray(expected, numpy.float64)
    assert found.shape == expected.shape, (found.shape, expected.shape)
    scale = max(numpy.abs(expected[numpy.isfinite(expected)]).max(initial=0.0), 1e-3)
    numpy.testing.assert_allclose(found.astype(numpy.float64), expected, 0, tolerance * scale)


# Graphs

def image(*shape: int, name: str = "x") -> Tensor:
    """An input of rank 4."""
    return Tensor.input(name, shape or (1, 8, 6, 6))


def graph_of(*inputs: Tensor, **outputs: Tensor) -> Graph:
    """The graph of named outputs. inputs: those that it has in this order, read or not."""
    return build_graph(outputs, inputs)


def node_of(graph: Graph, name: str) -> Node:
    """The node that makes a value."""
    return graph.producers[name]


def load_of(name: str, shape: tuple[int, ...], operand: str, epilogue: Any, *others: Operand) -> Node:
    """A node that loads a constant or an input as it lies."""
    return Node(Value(name, shape, "float32"), Load(), (Operand(operand, identity(shape)),), epilogue, others)


def pushed(graph: Graph) -> Graph:
    """The graph with its movement in the views of what reads it."""
    return remove_dead_code(push_views(graph))


# Formulas

def numpy_convolution(
    x: Any, w: Any, strides: Sequence[int] = (1, 1), pads: Sequence[int] = (0, 0, 0, 0),
    dilations: Sequence[int] = (1, 1), groups: int = 1,
) -> Any:
    """Convolution of (N, C, H, W) in float64 by sliding windows; pads: top, left, bottom, right."""
    x = numpy.pad(x.astype(numpy.float64), ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])))
    spread = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilations, strict=True)]
    seen = numpy.lib.stride_tricks.sliding_window_view(x, spread, (2, 3))
    seen = seen[:, :, :: strides[0], :: strides[1], :: dilations[0], :: dilations[1]]
    each_in, each_out = w.shape[1], w.shape[0] // groups
    parts = [
        numpy.einsum(
            "nchwkl,ockl->nohw", seen[:, g * each_in : (g + 1) * each_in],
            w[g * each_out : (g + 1) * each_out].astype(numpy.float64), optimize=True,
        )
        for g in range(groups)
    ]
    return numpy.concatenate(parts, axis=1)


def numpy_softmax(x: Any, axis: int) -> Any:
    e = numpy.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def numpy_windows(x: Any, window: int, stride: int) -> Any:
    """Sliding windows over the last two axes: (..., rows, columns, window, window)."""
    return numpy.lib.stride_tricks.sliding_window_view(x, (window, window), (-2, -1))[..., ::stride, ::stride, :, :]


# Passes

def apply_pass(step: Pass, graph: Graph, formula: Callable[..., Mapping[str, Any]] | None = None) -> Graph:
    """The graph after a pass, once it is seen to mean the same: interface, values before and after, and the formula.

    formula: called with the inputs' arrays by name in float64; gives the outputs' arrays.
    """
    graph.validate()
    after = step(graph).validate()
    assert after.inputs == graph.inputs
    assert after.outputs == graph.outputs
    assert [after.values[n] for n in after.outputs] == [graph.values[n] for n in graph.outputs]
    arrays = inputs_of(graph)
    before, now = evaluate_graph(graph, arrays), evaluate_graph(after, arrays)
    for name in graph.outputs:
        assert now[name].dtype == before[name].dtype
        assert_near(now[name], before[name])
    if formula is not None:
        wide = {n: a.astype(numpy.float64) for n, a in arrays.items()}
        for name, expected in formula(**wide).items():
            assert_near(now[name], expected)
    return after


def shown(graph: Graph) -> dict[str, str]:
    """The text of every node, by the name of its output."""
    return {n.output.name: str(n).partition(" = ")[2] for n in graph.nodes}


def unchanged(step: Any, graph: Graph) -> None:
    """The pass must not act."""
    after = step(graph.validate())
    assert after.nodes == graph.nodes
    assert (after.inputs, after.outputs) == (graph.inputs, graph.outputs)
    numpy.testing.assert_equal(dict(after.constants), dict(graph.constants))


# Plans

def target(
    limit: int = 16384, layers: int = 2048, kind: str = "gpu", compute_units: int = 16, max_read_images: int = 128
) -> Target:
    return Target(ImageLimits(limit, limit, layers), kind, compute_units, True, max_read_images)


class Taking:
    """A chooser that asks functions of (problem, kind, compute units), by the template's name; else the cost model."""

    def __init__(self, **functions: Callable[[Any, str, int], Any]) -> None:
        self.functions = functions

    def choose_specialisation(self, request: ChoiceRequest) -> Choice | None:
        function = self.functions.get(request.template.name)
        if function is None:
            return CostModelChooser().choose_specialisation(request)
        chosen = function(request.problem, request.target.kind, request.target.compute_units)
        return None if chosen is None else request.choice(chosen)


def prefer_large_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes tiles of 4x4 outputs the cheapest convolution wherever they are allowed, and those of 2x2 the second."""
    monkeypatch.setattr(winograd2d, "_time_of", lambda problem, on: TimeRange(1 / problem.tile, 1 / problem.tile))


def check_plan(plan: Plan, limits: ImageLimits) -> None:
    """Checks that a plan reads after writes, never reads and writes one image, and shares no slot while it is alive."""
    first: dict[Texture, int] = {}
    last: dict[Texture, int] = {}
    constant = set(plan.content)
    for number, launch in enumerate(plan.launches):
        assert launch.writes not in launch.reads or launch.kind == "unpack", f"{launch} reads what it writes"
        assert launch.writes not in constant, launch
        assert [a.written for a in launch.source.arguments] == [True] + [False] * len(launch.reads)
        assert len({a.name for a in launch.source.arguments}) == len(launch.source.arguments)
        for storage in launch.reads:
            if isinstance(storage, Texture) and storage not in constant:
                assert storage in first, f"{launch} reads {storage} before it is written"
                last[storage] = number
            elif not isinstance(storage, Texture):
                assert storage in constant or storage in plan.input_buffers.values(), launch
        if isinstance(launch.writes, Texture):
            first.setdefault(launch.writes, number)
            last[launch.writes] = number
    assert set(plan.slots) == set(first)
    for a in first:
        for b in first:
            if a != b and plan.slots[a] == plan.slots[b]:
                assert last[a] < first[b] or last[b] < first[a], f"{a} and {b} share a slot while alive"
                used_by_one = [n for n in plan.launches if a in (*n.reads, n.writes) and b in (*n.reads, n.writes)]
                assert not used_by_one
        image = plan.images[plan.slots[a]]
        assert image.holds(a) and image.width <= limits.width and image.height <= limits.height, f"{a} in {image}"
    for texture in plan.textures:
        width, height = texture.tiling.image_size
        assert width <= limits.width and height <= limits.height and texture.tiling.layers <= max(limits.layers, 1)
    for name, array in plan.content.items():
        assert array.nbytes == name.bytes
    for value in plan.outputs:
        if value.name in plan.constant_outputs:
            array = plan.constant_outputs[value.name]
            assert (array.shape, str(array.dtype)) == (value.shape, value.dtype)
            continue
        assert any(n.writes == plan.output_buffers[value.name] for n in plan.launches)


# Small networks

def small_networks() -> dict[str, Graph]:
    """Returns the building blocks of real networks, each at a small size."""
    x = Tensor.input("x", (1, 3, 16, 16))
    stem = (x.conv2d(const(8, 3, 3, 3), const(8), stride=2, padding=1) * const(8, 1, 1) + const(8, 1, 1, seed=1)).relu()
    gate = stem.mean([2, 3], keepdims=True).conv2d(const(4, 8, 1, 1), const(4)).relu()
    gate = gate.conv2d(const(8, 4, 1, 1), const(8)).sigmoid()
    centred = stem - stem.mean([2, 3], keepdims=True)
    normal = centred / ((centred * centred).mean([2, 3], keepdims=True) + 1e-5).sqrt()
    up = convolution(stem, const(8, 4, 2, 2), [2, 2], [0, 0, 0, 0], [1, 1], output=[16, 16], transposed=True)
    wide = stem.pad([0, 0, 1, 1], [0, 0, 1, 1]).conv2d(const(8, 1, 3, 3), groups=8)
    pooled = stem.max_pool(3, 2, 1)
    outputs = {
        "residual": (stem + wide.silu().conv2d(const(8, 8, 1, 1), const(8))).relu(),
        "squeeze and excite": (stem * gate).conv2d(const(6, 8, 1, 1)).hardswish(),
        "concatenations": concatenate([stem, wide, stem.slice(1, 0, 3), x.slice(2, 0, 8).slice(3, 8, 16)], 1).tanh(),
        "instance norm": (normal * const(8, 1, 1, seed=2) + const(8, 1, 1, seed=3)).elu(),
        "softmax head": (pooled.reshape(1, -1) @ const(128, 10, low=-0.2, high=0.2) + const(10)).softmax(1),
        "transposed convolution": concatenate([up + const(4, 1, 1), x], 1).conv2d(const(2, 7, 1, 1)).sigmoid(),
        "depth to space": stem.depth_to_space(2).conv2d(const(3, 2, 3, 3), const(3), padding=1).softmax(1),
        "average pool": stem.pool("sum", [2, 2], [2, 2], scale=0.25).leaky_relu(0.1).upsample(2) + stem,
    }
    return {name: build_graph({"y": tensor}) for name, tensor in outputs.items()}


# Random networks

@dataclass
class Network:
    """Tensors and, beside each, its value in float64, for the input arrays of `inputs`."""

    inputs: dict[str, Any] = field(default_factory=dict)
    tensors: list[tuple[Tensor, Any]] = field(default_factory=list)
    outputs: dict[str, tuple[Tensor, Any]] = field(default_factory=dict)

    @property
    def graph(self) -> Graph:
        return build_graph({name: tensor for name, (tensor, _) in self.outputs.items()})

    def check(self, graph: Graph, tolerance: float = 2e-4) -> None:
        """The graph gives the networks' outputs."""
        found = evaluate_graph(graph, self.inputs)
        assert found.keys() == self.outputs.keys()
        for name, (_, expected) in self.outputs.items():
            assert_near(found[name], expected, tolerance)


@st.composite
def networks(draw: st.DrawFn, steps: int = 9) -> Network:
    """A random network of rank-4 tensors: every primitive, several consumers, one or two outputs."""
    network = Network()
    n, c = draw(st.sampled_from([1, 1, 2])), draw(st.sampled_from([1, 3, 4, 5, 8]))
    shape = (n, c, draw(st.integers(3, 6)), draw(st.integers(3, 6)))
    network.inputs["x"] = numbers(*shape, seed=draw(st.integers(0, 99)))
    network.tensors.append((Tensor.input("x", shape), network.inputs["x"].astype(numpy.float64)))
    for _ in range(draw(st.integers(2, steps))):
        step = draw(st.sampled_from(_STEPS))
        tensor, value = draw(st.sampled_from(network.tensors[-3:]))
        made, array = step(draw, network, tensor, value)
        if 0 < made.size <= 4000:
            network.tensors.append((made, array))
    final = network.tensors[-1]
    network.outputs["out"] = final
    if draw(st.booleans()):
        other = draw(st.sampled_from(network.tensors))
        if other[0] is not final[0] and other[0].name != "x":
            network.outputs["other"] = other
    return network


def _unary(draw: st.DrawFn, network: Network, t: Tensor, v: Any) -> tuple[Tensor, Any]:
    kind = draw(st.sampled_from(["relu", "tanh", "sigmoid", "exp", "silu", "half", "shift"]))
    if kind == "relu":
        return t.relu(), numpy.maximum(v, 0)
    if kind == "tanh":
        return t.tanh(), numpy.tanh(v)
    if kind == "sigmoid":
        return t.sigmoid(), 1 / (1 + numpy.exp(-v))
    if kind == "exp":
        return t.tanh().exp(), numpy.exp(numpy.tanh(v))
    if kind == "silu":
        return t.silu(), v / (1 + numpy.exp(-v))
    return (t * 0.5, v * 0.5) if kind == "half" else (t + 0.25, v + 0.25)


def _channel(draw: st.DrawFn, network: Network, t: Tensor, v: Any) -> tuple[Tensor, Any]:
    k = numbers(t.shape[1], 1, 1, seed=draw(st.integers(0, 9)))
    if draw(st.booleans()):
        return t * Tensor.constant(k), v * k
    return t + Tensor.constant(k), v + k


def _add(draw: st.DrawFn, network: Network, t: Tensor, v: Any) -> tuple[Tensor, Any]:
    others = [(o, w) for o, w in network.tensors if o.shape == t.shape]
    other, w = draw(st.sampled_from(others))
    return (t + other, v + w) if draw(st.booleans()) else (t * other.tanh(), v * numpy.tanh(w))


def _convolve(draw: st.DrawFn, network: Network, t: Tensor, v: Any) -> tuple[Tensor, Any]:
    k, stride, dilation = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(1, 2))
    pads = draw(st.lists(st.integers(0, 2), min_size=4, max_size=4))
    reach = (k - 1) * dilation + 1
    if t.shape[2] + pads[0] + pads[2] < reach or t.shape[3] + pads[1] + pads[3] < reach:
        return t, v
    channels = t.shape[1]
    groups = draw(st.sampled_from([1, channels]))
    filters = draw(st.sampled_from([channels, channels * 2])) if groups > 1 else draw(st.sampled_from([1, 3, 4, 8]))
    w = numbers(filters, channels // groups, k, k, seed=draw(st.integers(0, 9)), low=-0.5, high=0.5)
    made = convolution(t, Tensor.constant(w), [stride] * 2, pads, [dilation] * 2, groups)
    return made, numpy_convolution(v, w, (stride, stride), pads, (dilation, dilation), groups)


def _pad(draw: st.DrawFn, network: Network, t: Tensor, v: Any) -> tuple[Tensor, Any]:
    amounts = draw(st.lists(st.integers(-1, 2), min_size=4, max_size=4))
    rows, columns = t.shape[2] + amounts[0] + amounts[2], t.shape[3] + amounts[1] + amounts[3]
    if rows < 1 or columns < 1:
        return t, v
    fill = draw(st.sampled_from([0.0, 0.0, 1.5]))
    made = t.pad([0, 0, *amounts[:2]], [0, 0, *amounts[2:]], fill)
    wide = numpy.pad(v, ((0, 0), (0, 0), (2, 2), (2, 2)), constant_values=fill)
    top, left = 2 - amounts[0], 2 - amounts[1]
    return made, wide[:, :, top : top + rows, left : left + columns]


def _move(draw: st.DrawFn, network: Network, t: Tensor, v: Any) -> tuple[Tensor, Any]:
    n, c, h, w = t.shape
    kind = draw(st.sampled_from(["flip", "transpose", "channels", "slice", "upsample", "shuffle", "batch"]))
    if kind == "flip":
        return t.slice(3, w - 1, -1, -1), v[..., ::-1]
    if kind == "transpose":
        return t.transpose(0, 1, 3, 2), v.swapaxes(2, 3)
    if kind == "channels":
        order = draw(st.lists(st.integers(0, c - 1), min_size=1, max_size=6))
        return t.take(1, order), v[:, order]
    if kind == "slice":
        start = draw(st.integers(0, h - 1))
        return t.slice(2, start, h), v[:, :, start:]
    if kind == "upsample":
        return t.upsample(2), v.repeat(2, axis=2).repeat(2, axis=3)
    if kind == "batch":
        return t.transpose(1, 0, 2, 3), v.swapaxes(0, 1)
    return t.reshape(n, c, w, h), v.reshape(n, c, w, h)


def _concat(draw: st.DrawFn, network: Network, t: Tensor, v: Any) -> tuple[Tensor, Any]:
    axis = draw(st.sampled_from([1, 1, 1, 2, 3, 0]))
    rest = t.shape[:axis] + t.shape[axis + 1 :]
    fitting = [(o, w) for o, w in network.tensors if o.shape[:axis] + o.shape[axis + 1 :] == rest]
    chosen = draw(st.lists(st.sampled_from(fitting), min_size=1, max_size=3))
    parts = [(t, v), *chosen]
    return concatenate([p for p, _ in parts], axis), numpy.concatenate([w for _, w in parts], axis=axis)


def _reduce(draw: st.DrawFn, network: Network, t: Tensor, v: Any) -> tuple[Tensor, Any]:
    kind = draw(st.sampled_from(["mean", "normal", "softmax", "max"]))
    if kind == "softmax":
        axis = draw(st.integers(1, 3))
        return t.softmax(axis), numpy_softmax(v, axis)
    mean, average = t.mean([2, 3], keepdims=True), v.mean((2, 3), keepdims=True)
    if kind == "mean":
        return mean.sigmoid() * t, v / (1 + numpy.exp(-average))
    if kind == "max":
        return t - t.max([1], keepdims=True), v - v.max(1, keepdims=True)
    d, e = t - mean, v - average
    return (
        d / ((d * d).mean([2, 3], keepdims=True) + 0.1).sqrt(),
        e / numpy.sqrt((e * e).mean((2, 3), keepdims=True) + 0.1),
    )


def _pool(draw: st.DrawFn, network: Network, t: Tensor, v: Any) -> tuple[Tensor, Any]:
    window, stride = draw(st.integers(1, 3)), draw(st.integers(1, 2))
    if min(t.shape[2:]) < window:
        return t, v
    seen = numpy_windows(v, window, stride)
    if draw(st.booleans()):
        return t.max_pool(window, stride), seen.max((-2, -1))
    return t.pool("sum", [window] * 2, [stride] * 2, scale=1 / window**2), seen.mean((-2, -1))


def _product(draw: st.DrawFn, network: Network, t: Tensor, v: Any) -> tuple[Tensor, Any]:
    k = draw(st.sampled_from([1, 3, 4]))
    if draw(st.booleans()):
        m = numbers(t.shape[3], k, seed=draw(st.integers(0, 9)))
        return t @ Tensor.constant(m), v @ m
    return t @ t.transpose(0, 1, 3, 2), v @ v.swapaxes(2, 3)


def _choose(draw: st.DrawFn, network: Network, t: Tensor, v: Any) -> tuple[Tensor, Any]:
    """Elements along rows or columns at constant or given indices, some of them outside."""
    axis, fill = draw(st.integers(2, 3)), draw(st.sampled_from([0.0, 1.5]))
    size = t.shape[axis]
    shape = tuple(draw(st.integers(1, 6)) if a == axis else n for a, n in enumerate(t.shape))
    index = numpy.random.default_rng([draw(st.integers(0, 9)), *shape]).integers(-1, size + 1, shape)
    chosen = Tensor.constant(index)
    if draw(st.booleans()):
        name = f"index{len(network.inputs)}"
        network.inputs[name], chosen = index, Tensor.input(name, shape, "int64")
    axes = axis_variables((*shape, size))
    seen = View((*shape, size), t.shape, tuple(axes[4 if a == axis else a] for a in range(4)))
    taken = numpy.take_along_axis(v, index.clip(0, size - 1), axis)
    return gather(t, seen, [chosen], fill), numpy.where((index < 0) | (index >= size), fill, taken)


_STEPS = [
    _unary, _unary, _channel, _add, _convolve, _convolve, _convolve, _pad, _pad, _move, _move, _concat, _concat,
    _reduce, _pool, _product, _choose,
]
