"""Units that concatenate channels, as ShuffleNet's and GhostNet's do, and what they mean in numpy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy
from graphs import const, image, numbers, numpy_convolution

from imgconv.tensor import Tensor, concatenate


def weights(half: int, units: int, window: int = 1) -> list[Any]:
    """Weights of the two first convolutions, of three in each unit, the second depthwise, and of the last."""
    seeds: Iterator[int] = iter(range(100))
    made = [numbers(half, half, 1, 1, seed=next(seeds)) for _ in range(2)]
    for _ in range(units):
        made.append(numbers(half, half, window, window, seed=next(seeds)) / window)
        made.append(numbers(half, 1, 3, 3, seed=next(seeds)))
        made.append(numbers(half, half, 1, 1, seed=next(seeds)))
    return [*made, numbers(5, 2 * half, 1, 1, seed=next(seeds))]


def bias(half: int) -> Any:
    return numbers(half, seed=7)


def shuffled(half: int, units: int, batch: int = 1, size: tuple[int, int] = (5, 6), window: int = 1) -> Tensor:
    """x (batch, half, *size) through two convolutions, the units, and a last convolution of 5 filters."""
    first, second, *inner, last = map(Tensor.constant, weights(half, units, window))
    x = image(batch, half, *size)
    y = concatenate([x.conv2d(first).relu(), x.conv2d(second).relu()], 1)
    for number in range(units):
        left, right = _split(y, half, batch, size)
        before, deep, after = inner[3 * number : 3 * number + 3]
        right = right.conv2d(before, padding=window // 2).relu().conv2d(deep, padding=1, groups=half)
        y = concatenate([left, right.conv2d(after, Tensor.constant(bias(half))).relu()], 1)
    return concatenate(list(_split(y, half, batch, size)), 1).conv2d(last)


def _split(y: Tensor, half: int, batch: int, size: tuple[int, int]) -> tuple[Tensor, Tensor]:
    mixed = y.reshape(batch, 2, half, *size).transpose(0, 2, 1, 3, 4).reshape(batch, 2 * half, *size)
    return mixed.slice(1, 0, half), mixed.slice(1, half, 2 * half)


def shuffled_in_numpy(x: Any, half: int, units: int, window: int = 1) -> Any:
    """The result of `shuffled`, in float64."""
    first, second, *inner, last = weights(half, units, window)

    def convolved(y: Any, w: Any, pad: int = 0, groups: int = 1) -> Any:
        return numpy_convolution(y, w, pads=(pad,) * 4, groups=groups)

    def mixed(y: Any) -> Any:
        n, c, h, w = y.shape
        return y.reshape(n, 2, c // 2, h, w).swapaxes(1, 2).reshape(y.shape)

    y = numpy.concatenate([numpy.maximum(convolved(x, w), 0) for w in (first, second)], 1)
    for number in range(units):
        left, right = numpy.split(mixed(y), 2, 1)
        before, deep, after = inner[3 * number : 3 * number + 3]
        right = convolved(numpy.maximum(convolved(right, before, window // 2), 0), deep, 1, half)
        right = numpy.maximum(convolved(right, after) + bias(half)[:, None, None], 0)
        y = numpy.concatenate([left, right], 1)
    return convolved(mixed(y), last)


def ghost(x: Tensor, seed: int = 0) -> Tensor:
    """GhostNet's module: half of the channels of a 1x1 convolution, half of a depthwise one behind it."""
    first = x.conv2d(const(8, x.shape[1], 1, 1, seed=seed), const(8, seed=seed)).relu()
    w = const(8, 1, 3, 3, seed=seed + 1)
    return concatenate([first, (first.conv2d(w, const(8, seed=9), padding=1, groups=8)).relu()], 1)


def ghost_in_numpy(x: Any, seed: int = 0) -> Any:
    """The result of `ghost`, in float64."""
    first = numpy.maximum(
        numpy_convolution(x, numbers(8, x.shape[1], 1, 1, seed=seed)) + numbers(8, seed=seed)[:, None, None], 0
    )
    cheap = numpy_convolution(first, numbers(8, 1, 3, 3, seed=seed + 1), pads=(1, 1, 1, 1), groups=8)
    return numpy.concatenate([first, numpy.maximum(cheap + numbers(8, seed=9)[:, None, None], 0)], 1)
