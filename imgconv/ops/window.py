"""Sliding windows: kernel_shape, strides, dilations, pads, auto_pad and ceil_mode of convolutions and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from imgconv.errors import LimitExceededError
from imgconv.ops.registry import Call
from imgconv.tensor import EXACT

AUTO_PADS = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")


@dataclass(frozen=True)
class Window:
    """kernel, strides, dilations: one per axis; pads: all before, then all after, as in ONNX; sizes: the output's."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    sizes: tuple[int, ...]


def read_numbers(call: Call, name: str, count: int, default: int, low: int) -> tuple[int, ...]:
    """A list attribute with one number per axis. Raises ModelError if one is below `low` or larger than any picture."""
    numbers = tuple(call.attribute(name, None) or [default] * count)
    if len(numbers) != count or min(numbers) < low:
        raise call.wrong(f"{name} is {list(numbers)}; it needs {count} numbers, none below {low}")
    return _check_bounded(call, name, numbers)


def _check_bounded(call: Call, name: str, numbers: tuple[int, ...]) -> tuple[int, ...]:
    if max(numbers, default=0) > EXACT:
        raise LimitExceededError(f"{call.op_type}: {name} {list(numbers)}, more than 2**24", node=call.node)
    return numbers


def read_window(call: Call, spatial: Sequence[int], kernel: Sequence[int]) -> Window:
    """The window that slides over axes of the sizes `spatial`. Raises ModelError if it fits nowhere."""
    count = len(spatial)
    if len(kernel) != count or min(kernel) < 1:
        raise call.wrong(f"kernel_shape is {list(kernel)} for {count} spatial axes")
    _check_bounded(call, "kernel_shape", tuple(kernel))
    strides = read_numbers(call, "strides", count, 1, 1)
    dilations = read_numbers(call, "dilations", count, 1, 1)
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    auto_pad = call.choice("auto_pad", "NOTSET", AUTO_PADS)
    if auto_pad.startswith("SAME"):
        sizes = [-(-n // s) for n, s in zip(spatial, strides, strict=True)]
        missing = [max((o - 1) * s + r - n, 0) for o, s, r, n in zip(sizes, strides, reach, spatial, strict=True)]
        pads = split_padding(missing, odd_first=auto_pad == "SAME_LOWER")
    else:
        pads = read_numbers(call, "pads", 2 * count, 0, 0) if auto_pad == "NOTSET" else (0,) * (2 * count)
        rounds_up = call.flag("ceil_mode")
        sizes = [
            _window_count(spatial[i], pads[i], pads[count + i], reach[i], strides[i], rounds_up) for i in range(count)
        ]
        if auto_pad == "VALID" and sizes != [(n - r) // s + 1 for n, r, s in zip(spatial, reach, strides, strict=True)]:
            raise call.unsupported(
                "auto_pad VALID with ceil_mode where the windows do not fit: ONNX's text rounds down and its shape "
                "inference up; use pads"
            )
    if min(sizes) < 1:
        raise call.wrong(f"a window of {reach} does not fit in {list(spatial)} with pads {list(pads)}")
    return Window(tuple(kernel), strides, dilations, pads, tuple(sizes))


def split_padding(totals: Sequence[int], odd_first: bool) -> tuple[int, ...]:
    """Splits each total into pads before and after; odd_first puts the larger half of an odd total before."""
    before = [(t + 1) // 2 if odd_first else t // 2 for t in totals]
    return (*before, *(t - b for t, b in zip(totals, before, strict=True)))


def _window_count(size: int, before: int, after: int, reach: int, stride: int, rounds_up: bool) -> int:
    room = size + before + after - reach
    if not rounds_up:
        return room // stride + 1
    count = -(-room // stride) + 1
    # A window that would start in the padding after the last element is left out.
    return count - 1 if (count - 1) * stride >= size + before else count
