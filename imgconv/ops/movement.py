"""Operators that only move elements: those that become views, and Concat."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Literal, get_args

import numpy

from imgconv.ops.registry import Call, operator
from imgconv.tensor import Tensor, concatenate

PadMode = Literal["constant", "reflect", "edge", "wrap"]


@operator("Identity")
def identity(call: Call) -> Tensor:
    """The input itself."""
    return call.input(0)


@operator("Reshape")
def reshape(call: Call) -> Tensor:
    """The elements in another shape; a 0 copies the input's size unless allowzero is set, one -1 takes what is left."""
    x, wanted = call.input(0), call.integers(1, "the shape")
    if wanted is None:
        raise call.wrong("input 1 is missing")
    shape = list(wanted)
    if not call.flag("allowzero"):
        for axis, n in enumerate(shape):
            if n == 0 and axis >= x.rank:
                raise call.wrong(f"shape {wanted} copies axis {axis} of {list(x.shape)}")
            shape[axis] = x.shape[axis] if n == 0 else n
    rest = prod(n for n in shape if n != -1)
    if shape.count(-1) == 1 and rest:
        shape[shape.index(-1)] = x.size // rest
    if any(n < 0 for n in shape) or prod(shape) != x.size:
        raise call.wrong(f"{list(x.shape)} cannot have the shape {wanted}")
    return x.reshape(*shape)


@operator("Flatten")
def flatten(call: Call) -> Tensor:
    """The elements as a matrix: (product of the axes before `axis`, product of the others)."""
    x, axis = call.input(0), int(call.attribute("axis", 1))
    if not -x.rank <= axis <= x.rank:
        raise call.wrong(f"there is no axis {axis} in a tensor of rank {x.rank}")
    split = axis if axis >= 0 else axis + x.rank
    return x.reshape(prod(x.shape[:split]), prod(x.shape[split:]))


@operator("Squeeze")
def squeeze(call: Call) -> Tensor:
    """Axes of length 1 removed: the given ones, or all."""
    x = call.input(0)
    stated = _axes(call, 1)
    if stated == []:
        raise call.unsupported("empty axes, which runtimes read as no axes or as all; leave them out or state them")
    axes = [a for a, n in enumerate(x.shape) if n == 1] if stated is None else call.axes(stated, x.rank)
    if any(x.shape[a] != 1 for a in axes):
        raise call.wrong(f"axes {axes} of {list(x.shape)} are not all of length 1")
    return x.reshape(*(n for a, n in enumerate(x.shape) if a not in axes))


@operator("Unsqueeze")
def unsqueeze(call: Call) -> Tensor:
    """Axes of length 1 inserted at the given positions of the result."""
    x, stated = call.input(0), _axes(call, 1)
    if stated is None:
        raise call.wrong("axes are missing")
    rank = x.rank + len(stated)
    axes, sizes = call.axes(stated, rank), iter(x.shape)
    return x.reshape(*(1 if a in axes else next(sizes) for a in range(rank)))


@operator("Transpose")
def transpose(call: Call) -> Tensor:
    """Axes permuted; reversed by default."""
    x = call.input(0)
    permutation = list(call.attribute("perm", None) or reversed(range(x.rank)))
    if sorted(permutation) != list(range(x.rank)):
        raise call.wrong(f"perm {permutation} does not reorder the axes of {list(x.shape)}")
    return x.transpose(*permutation) if x.rank else x


@operator("Expand")
def expand(call: Call) -> Tensor:
    """Broadcasts with a shape, in both directions: (3, 1) with (2, 1, 4) is (2, 3, 4)."""
    x, wanted = call.input(0), call.integers(1, "the shape")
    return x.expand(*(int(n) for n in numpy.broadcast_shapes(x.shape, tuple(wanted or ()))))


@operator("Tile")
def tile(call: Call) -> Tensor:
    """The tensor repeated along each axis."""
    x, repeats = call.input(0), call.integers(1, "repeats") or []
    if len(repeats) != x.rank or any(r < 0 for r in repeats):
        raise call.wrong(f"repeats {repeats} for a tensor of rank {x.rank}")
    apart = x.reshape(*(n for size in x.shape for n in (1, size)))
    many = apart.expand(*(n for pair in zip(repeats, x.shape, strict=True) for n in pair))
    return many.reshape(*(r * n for r, n in zip(repeats, x.shape, strict=True)))


@operator("Concat")
def concat(call: Call) -> Tensor:
    """Tensors one after another along an axis."""
    tensors = [call.input(i) for i in range(len(call.inputs))]
    axis = call.axis(int(call.attribute("axis", 0)), tensors[0].rank)
    others = {(t.rank, t.shape[:axis], t.shape[axis + 1 :]) for t in tensors}
    if len(others) > 1:
        raise call.wrong(f"shapes {[list(t.shape) for t in tensors]} differ in more than axis {axis}")
    return concatenate(tensors, axis)


@operator("Split")
def split(call: Call) -> list[Tensor]:
    """Pieces along an axis: of the given sizes, else equal; with num_outputs the last one may be smaller."""
    x, count = call.input(0), len(call.outputs)
    axis = call.axis(int(call.attribute("axis", 0)), x.rank)
    stated = call.attribute("split", None) if call.version < 13 else call.integers(1, "split")
    sizes = list(stated) if stated is not None else _equal_sizes(call, x.shape[axis], count)
    if len(sizes) != count or sum(sizes) != x.shape[axis] or min(sizes) < 0:
        raise call.wrong(f"sizes {sizes} do not split axis {axis} of {list(x.shape)} into {count}")
    starts = [sum(sizes[:i]) for i in range(count)]
    return [x.slice(axis, start, start + n) for start, n in zip(starts, sizes, strict=True)]


def _equal_sizes(call: Call, size: int, count: int) -> list[int]:
    if call.version < 18 and size % count:
        raise call.wrong(f"{size} elements do not split into {count} equal pieces")
    if call.attribute("num_outputs", count) != count:
        raise call.wrong(f"num_outputs is {call.attribute('num_outputs', count)} for {count} outputs")
    each = -(-size // count)
    return [max(min(each, size - i * each), 0) for i in range(count)]


@operator("Slice")
def slice_(call: Call) -> Tensor:
    """starts, ends, axes, steps as in Python slices; attributes before opset 10, inputs since."""
    x = call.input(0)
    if call.version < 10:
        starts, ends, axes, steps = call.attribute("starts", None), call.attribute("ends", None), _axes(call, 3), None
    else:
        starts, ends, axes, steps = (call.integers(i, n) for i, n in enumerate(("starts", "ends", "axes", "steps"), 1))
    if starts is None or ends is None:
        raise call.wrong("starts or ends are missing")
    chosen = call.axes(range(len(starts)) if axes is None else axes, x.rank)
    jumps = [1] * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(chosen) == len(jumps) or 0 in jumps:
        raise call.wrong(f"starts {starts}, ends {ends}, axes {chosen} and steps {jumps} do not match")
    for axis, start, end, step in zip(chosen, starts, ends, jumps, strict=True):
        first, stop, step = slice(start, end, step).indices(x.shape[axis])
        if (first, stop, step) != (0, x.shape[axis], 1):
            x = x.slice(axis, first, stop, step)
    return x


@operator("Pad")
def pad(call: Call) -> Tensor:
    """Elements before and after each axis; negative amounts crop. Attributes before opset 11, inputs since."""
    x = call.input(0)
    mode: PadMode = call.choice("mode", "constant", get_args(PadMode))
    if call.version < 11:
        pads, fill = list(call.attribute("pads", ())), call.attribute("value", 0.0)
    else:
        pads, content = call.integers(1, "pads") or [], call.constant(2, "constant_value")
        fill = 0.0 if content is None or content.size == 0 else content.item()
    stated = call.integers(3, "axes")
    axes = call.axes(range(x.rank) if stated is None else stated, x.rank)
    if len(pads) != 2 * len(axes):
        raise call.wrong(f"{len(pads)} pads for {len(axes)} axes")
    before, after = [0] * x.rank, [0] * x.rank
    for i, axis in enumerate(axes):
        before[axis], after[axis] = pads[i], pads[len(axes) + i]
    if any(b + n + a < 0 for b, n, a in zip(before, x.shape, after, strict=True)):
        raise call.wrong(f"pads {pads} crop more than {list(x.shape)} has")
    return x.pad(before, after, fill) if mode == "constant" else _pad_from_inside(call, x, before, after, mode)


def _pad_from_inside(call: Call, x: Tensor, before: Sequence[int], after: Sequence[int], mode: PadMode) -> Tensor:
    """Crops first, if an amount is negative; then repeats positions as numpy.pad does in the same mode."""
    x = x.pad([min(b, 0) for b in before], [min(a, 0) for a in after])
    for axis, (b, a) in enumerate(zip(before, after, strict=True)):
        if b > 0 or a > 0:
            if not x.shape[axis]:
                raise call.wrong(f"axis {axis} of length 0 has nothing to repeat")
            call.check_length(x.shape[axis] + max(b, 0) + max(a, 0), f"axis {axis}, with its padding,")
            positions = numpy.pad(numpy.arange(x.shape[axis]), (max(b, 0), max(a, 0)), mode)
            x = x.take(axis, positions.tolist())
    return x


@operator("CenterCropPad")
def center_crop_pad(call: Call) -> Tensor:
    """Crops or zero-pads each axis around its middle to the given length."""
    x, wanted, stated = call.input(0), call.integers(1, "the shape") or [], call.attribute("axes", None)
    axes = call.axes(range(x.rank) if stated is None else stated, x.rank)
    if len(wanted) != len(axes) or any(n < 0 for n in wanted):
        raise call.wrong(f"shape {wanted} for axes {axes}")
    before, after = [0] * x.rank, [0] * x.rank
    for axis, size in zip(axes, wanted, strict=True):
        more = size - x.shape[axis]
        # If the difference is odd, the extra element is added or removed at the end.
        before[axis] = more // 2 if more > 0 else -(-more // 2)
        after[axis] = more - before[axis]
    return x.pad(before, after)


@operator("DepthToSpace")
def depth_to_space(call: Call) -> Tensor:
    """(N, C*b*b, H, W) -> (N, C, H*b, W*b). mode: DCR if the block is outermost in C*b*b, CRD if the channel is."""
    x, block = call.input(0), int(call.attribute("blocksize", 0))
    mode = call.choice("mode", "DCR", ("DCR", "CRD"))
    if x.rank != 4 or block < 1 or x.shape[1] % block**2:
        raise call.wrong(f"blocks of {block} from {list(x.shape)}")
    if mode == "CRD":
        return x.depth_to_space(block)
    n, c, h, w = x.shape
    split = x.reshape(n, block, block, c // block**2, h, w).transpose(0, 3, 4, 1, 5, 2)
    return split.reshape(n, c // block**2, h * block, w * block)


@operator("SpaceToDepth")
def space_to_depth(call: Call) -> Tensor:
    """(N, C, H*b, W*b) -> (N, C*b*b, H, W), the inverse of DepthToSpace in the same mode."""
    x, block = call.input(0), int(call.attribute("blocksize", 0))
    mode = call.choice("mode", "DCR", ("DCR", "CRD"))
    if x.rank != 4 or block < 1 or x.shape[2] % block or x.shape[3] % block:
        raise call.wrong(f"blocks of {block} from {list(x.shape)}")
    n, c, h, w = x.shape
    split = x.reshape(n, c, h // block, block, w // block, block)
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return split.transpose(*order).reshape(n, c * block**2, h // block, w // block)


def _axes(call: Call, position: int) -> list[int] | None:
    """The axes: an attribute before opset 13, an input at `position` since; None if the node has neither."""
    return call.attribute("axes", None) if call.version < 13 else call.integers(position, "axes")
