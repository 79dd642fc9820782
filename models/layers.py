"""Layers with named parameters, for networks written with the lazy front end.

A layer takes the shapes of its parameters from its input, so a network is one function from tensors to tensors.
Parameters have PyTorch's names: `<layer>.weight`, `<layer>.bias`, `<layer>.running_mean`, `<layer>.running_var`.

How parameters are drawn. Weights are normal with variance 2/(inputs of one output), which keeps the mean square through
a ReLU at any depth (He et al., arXiv:1502.01852); biases and running means are within 0.1 of 0, scales within
0.1 of 1. A running variance is the mean square of the normalised tensor, with 10 % of noise, measured on one small
random input. In this measurement tensors wrap around at their edges, since zero padding would lower the mean square of
small maps. Except for the means, this is what training would store. So values stay near 1 after every normalisation,
with any activation, and half precision neither overflows nor underflows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Union

import numpy

from imgconv.graph.nodes import Graph
from imgconv.tensor import Tensor, build_graph, origin
from models.weights import Draw, Weights

Activation = Callable[[Tensor], Tensor]
Network = Callable[..., Union[Tensor, Mapping[str, Tensor]]]
SAMPLE = 32


def build_network(
    name: str, network: Network, inputs: Mapping[str, Sequence[int]], weights: Weights | None = None,
    epsilon: float = 1e-5, scale: float = 1.0, output: str = "output",
) -> Graph:
    """The Graph of `network(layers, *inputs)`, which returns one tensor or several by name; inputs: shapes by name.

    output: the name of the output if it is one tensor. epsilon: of every BatchNormalization. scale: the standard
    deviation of a usual input, for drawing parameters.
    """
    weights = weights or Weights()
    if weights.loaded is None and not weights.arrays:
        weights.arrays |= _measured_variances(network, inputs, scale, weights.seed)
    tensors = [Tensor.input(key, shape) for key, shape in inputs.items()]
    made = network(Layers(weights, epsilon), *tensors)
    return build_graph({output: made} if isinstance(made, Tensor) else made, tensors, name)


def _measured_variances(
    network: Network, inputs: Mapping[str, Sequence[int]], scale: float, seed: int
) -> dict[str, Any]:
    """Running variances by name, measured by building the network on constant inputs: its layers see their values.

    All other parameters depend only on their name and the seed, so they are the same here and in the network itself.
    """
    generator = numpy.random.default_rng(seed)
    samples = []
    largest = max((min(shape[2:]) for shape in inputs.values() if len(shape) == 4), default=SAMPLE)
    for shape in inputs.values():
        small = shape if len(shape) < 4 else [1, shape[1], *(n * SAMPLE // largest for n in shape[2:])]
        samples.append(Tensor.constant(generator.standard_normal([1, *small[1:]], numpy.float32) * scale))
    weights = Weights(seed=seed)
    network(Layers(weights), *samples)
    return {name: array for name, array in weights.arrays.items() if name.endswith("running_var")}


def relu6(x: Tensor) -> Tensor:
    """min(max(x, 0), 6)."""
    return x.clip(0, 6)


def identity(x: Tensor) -> Tensor:
    """x."""
    return x


def scaled(channels: float, divisor: int = 8) -> int:
    """The multiple of `divisor` nearest to `channels`, but at most a tenth below it; the rule of arXiv:1801.04381."""
    nearest = max(divisor, int(channels + divisor / 2) // divisor * divisor)
    return nearest + divisor if nearest < 0.9 * channels else nearest


class Layers:
    """Layers whose parameters come from `weights`. epsilon: of every BatchNormalization."""

    def __init__(self, weights: Weights, epsilon: float = 1e-5) -> None:
        self.weights = weights
        self.epsilon = epsilon

    def convolution(
        self, x: Tensor, name: str, filters: int, window: int = 1, stride: int = 1, groups: int = 1, bias: bool = True,
        padding: int | None = None,
    ) -> Tensor:
        """(N, C, H, W) -> (N, filters, ...) with a square window; by default, padding keeps H and W at stride 1."""
        shape = (filters, x.shape[1] // groups, window, window)
        with origin(name):
            weight = self.weights.get(f"{name}.weight", shape, _normal(shape[1] * window**2))
            shift = self.weights.get(f"{name}.bias", (filters,), _around(0.0)) if bias else None
            padding = window // 2 if padding is None else padding
            if x.is_constant:
                x, padding = _wrapped(x, padding), 0
            return x.conv2d(weight, shift, stride, padding, groups=groups)

    def enlargement(self, x: Tensor, name: str, filters: int) -> Tensor:
        """(N, C, H, W) -> (N, filters, 2 H, 2 W): a 2x2 transposed convolution with stride 2."""
        with origin(name):
            weight = self.weights.get(f"{name}.weight", (x.shape[1], filters, 2, 2), _normal(x.shape[1]))
            shift = self.weights.get(f"{name}.bias", (filters,), _around(0.0))
            return x.conv_transpose2d(weight, shift, stride=2)

    def normalisation(self, x: Tensor, name: str) -> Tensor:
        """BatchNormalization of (N, C, H, W) with stored statistics."""
        measured = float(numpy.mean(numpy.square(x.numpy(), dtype=numpy.float64))) if x.is_constant else 1.0
        draws = {
            "weight": _around(1.0), "bias": _around(0.0), "running_mean": _around(0.0),
            "running_var": _around(1.0, measured),
        }
        with origin(name):
            parts = [self.weights.get(f"{name}.{part}", (x.shape[1],), draw) for part, draw in draws.items()]
            return x.batch_norm(parts[0], parts[1], parts[2], parts[3], self.epsilon)

    def unit(
        self, x: Tensor, name: str, filters: int, window: int = 1, stride: int = 1, groups: int = 1,
        activation: Activation = identity, parts: tuple[str, str] = ("0", "1"),
    ) -> Tensor:
        """Convolution without bias, BatchNormalization, activation. parts: the names of the first two after `name`."""
        prefix = f"{name}." if name else ""
        x = self.convolution(x, prefix + parts[0], filters, window, stride, groups, bias=False)
        return activation(self.normalisation(x, prefix + parts[1]))

    def linear(self, x: Tensor, name: str, features: int, window: Sequence[int] = ()) -> Tensor:
        """(N, C) -> (N, features), fully connected. window: (1, 1) if the weight is stored as a 1x1 convolution's."""
        shape = (features, x.shape[1])
        with origin(name):
            weight = self.weights.get(f"{name}.weight", (*shape, *window), _normal(x.shape[1]))
            return x.linear(weight.reshape(*shape), self.weights.get(f"{name}.bias", (features,), _around(0.0)))

    def squeeze_excite(self, x: Tensor, name: str, squeezed: int, activation: Activation, gate: Activation) -> Tensor:
        """x times one factor per channel, computed from the means of all channels; Hu et al., arXiv:1709.01507."""
        few = activation(self.linear(x.global_average_pool().flatten(), f"{name}.fc1", squeezed, (1, 1)))
        factors = gate(self.linear(few, f"{name}.fc2", x.shape[1], (1, 1)))
        return x * factors.reshape(*factors.shape, 1, 1)

    def gated_recurrent_unit(self, x: Tensor, state: Tensor, name: str) -> Tensor:
        """The next state, (N, S), from x (N, C) and the state (N, S): torch.nn.GRUCell; Cho et al., arXiv:1406.1078."""
        size = state.shape[1]
        gates = []
        with origin(name):
            for part, read in (("ih", x), ("hh", state)):
                weight = self.weights.get(f"{name}.weight_{part}", (3 * size, read.shape[1]), _normal(read.shape[1]))
                bias = self.weights.get(f"{name}.bias_{part}", (3 * size,), _around(0.0))
                gates.append([read.linear(weight, bias).slice(1, i * size, (i + 1) * size) for i in range(3)])
            (reset_x, update_x, new_x), (reset_h, update_h, new_h) = gates
            update = (update_x + update_h).sigmoid()
            new = (new_x + (reset_x + reset_h).sigmoid() * new_h).tanh()
            return new + update * (state - new)


def _wrapped(x: Tensor, padding: int) -> Tensor:
    """The tensor padded by wrapping around: rows and columns of the opposite edge on each side."""
    for axis in (2, 3) if padding else ():
        x = x.take(axis, [i % x.shape[axis] for i in range(-padding, x.shape[axis] + padding)])
    return x


def _normal(inputs: int) -> Draw:
    """Normal with variance 2 / inputs."""

    def draw(generator: numpy.random.Generator, shape: Sequence[int]) -> Any:
        return generator.standard_normal(tuple(shape), numpy.float32) * (2 / inputs) ** 0.5

    return draw


def _around(centre: float, scale: float = 1.0) -> Draw:
    """Uniform within 0.1 of the centre, times the scale."""
    return lambda generator, shape: generator.uniform(centre - 0.1, centre + 0.1, tuple(shape)) * scale
