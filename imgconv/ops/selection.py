"""Selection by value or position: positions of extrema, sorting, cumulative sums, masks, non-maximum suppression."""

from __future__ import annotations

import numpy

from imgconv.arrays import Array
from imgconv.graph.nodes import ReductionKind
from imgconv.ops.indexing import take_along
from imgconv.ops.registry import Call, operator
from imgconv.suppression import suppress_by_class
from imgconv.tensor import Tensor, elementwise, less, neutral, order, where

COUNTED = 32  # the longest axis along which places are counted, so that no work group works for few elements
RUN = 128  # an axis longer than this is split into runs of this length, whose sums are added


@operator("ArgMax", "ArgMin")
def arg_extreme(call: Call) -> Tensor:
    """The position of the largest or smallest element along an axis: the first, or with select_last_index the last."""
    x = call.input(0)
    axis = call.axis(int(call.attribute("axis", 0)), x.rank)
    if call.op_type == "ArgMin":
        x = -(x if x.is_float else x.cast("int64"))
    last = call.flag("select_last_index")
    size = x.shape[axis]
    found = (x.slice(axis, size - 1, -1, -1) if last else x).argmax(axis)
    found = elementwise("subtract", size - 1, found) if last else found
    if not call.flag("keepdims", True):
        return found
    return found.reshape(*(1 if a == axis else n for a, n in enumerate(x.shape)))


@operator("Hardmax")
def hardmax(call: Call) -> Tensor:
    """1 at the first largest element, 0 elsewhere: along `axis` since opset 13, before over all axes from `axis` on."""
    x = call.input(0)
    if call.version >= 13:
        axis, flat = call.axis(int(call.attribute("axis", -1)), x.rank), x
    else:
        split = call.axis(int(call.attribute("axis", 1)), x.rank)
        axis, flat = 1, x.reshape(int(numpy.prod(x.shape[:split])), -1)
    kept = [1 if a == axis else n for a, n in enumerate(flat.shape)]
    hits = _one_hot(flat.argmax(axis).reshape(*kept), axis, flat.shape[axis])
    return where(hits, Tensor.constant(numpy.ones((), x.dtype)), 0).reshape(*x.shape)


@operator("TopK")
def top_k(call: Call) -> list[Tensor]:
    """The k largest or smallest elements along an axis, in order, and their positions; equal ones in order of position.

    NaN counts as larger than every number, as in onnxruntime. They are in order with sorted=0 too, for which ONNX
    leaves the order open.
    """
    x = call.input(0)
    call.flag("sorted", True)
    axis = call.axis(int(call.attribute("axis", -1)), x.rank)
    size = x.shape[axis]
    count = int(call.attribute("k", 0)) if call.version < 10 else int(call.required_constant(1, "k").item())
    if not 0 <= count <= size:
        raise call.wrong(f"the first {count} of {size}")
    axes = [*(a for a in range(x.rank) if a != axis), axis]
    last, back = x.transpose(*axes), numpy.argsort(axes).tolist()
    largest = call.flag("largest", True)
    chosen = _argsort_by_counting(last, count, largest) if size <= COUNTED else order(last, count, largest)
    values = take_along(last, last.rank - 1, chosen, chosen.shape)
    return [values.transpose(*back), chosen.transpose(*back)]


def _argsort_by_counting(x: Tensor, count: int, largest: bool) -> Tensor:
    """The same as `order`: an element's place is the number of elements that come before it."""
    lead, size = x.shape[:-1], x.shape[-1]
    this, other = x.reshape(*lead, size, 1), x.reshape(*lead, 1, size)
    here, there = (Tensor.constant(numpy.arange(size).reshape(shape)) for shape in ((-1, 1), (1, -1)))
    better = less(this, other) if largest else less(other, this)
    same = this.apply("equal", other, dtype="bool")
    if x.is_float:
        missing, other_missing = (t.apply("isnan", dtype="bool") for t in (this, other))
        better = better.apply("or", less(missing, other_missing) if largest else less(other_missing, missing))
        same = same.apply("or", missing.apply("and", other_missing))
    before = better.apply("or", less(where(same, there, size), here))
    place = where(before, Tensor.constant(numpy.array(1)), 0).sum([len(lead) + 1])
    places = Tensor.constant(numpy.arange(count).reshape(-1, 1))
    hits = elementwise("equal", place.reshape(*lead, 1, size), places, dtype="bool")
    return where(hits, Tensor.constant(numpy.arange(size)), -1).max([len(lead) + 1])


@operator("OneHot")
def one_hot(call: Call) -> Tensor:
    """on_value at each index along a new axis of length `depth`, off_value elsewhere."""
    indices, depth, values = call.input(0), int(call.required_constant(1, "the depth").item()), call.input(2)
    axis = call.axis(int(call.attribute("axis", -1)), indices.rank + 1)
    call.check_length(depth, "the depth")
    if values.shape != (2,) or depth < 1:
        raise call.wrong(f"a depth of {depth} and values of shape {list(values.shape)}")
    whole = indices.cast("int64")
    found = where(less(whole, 0), whole + depth, whole)
    spread = found.reshape(*indices.shape[:axis], 1, *indices.shape[axis:])
    off, on = (values.slice(0, n, n + 1).reshape() for n in (0, 1))
    return where(_one_hot(spread, axis, depth), on, off)


def _one_hot(found: Tensor, axis: int, size: int) -> Tensor:
    """Returns whether each position along an axis equals `found`, which has length 1 there."""
    shape = [-1 if a == axis else 1 for a in range(found.rank)]
    return elementwise("equal", found, Tensor.constant(numpy.arange(size).reshape(shape)), dtype="bool")


@operator("CumSum", "CumProd")
def cumulative(call: Call) -> Tensor:
    """The running sum or product along an axis; exclusive leaves out the element itself, reverse starts at the end."""
    x = call.input(0)
    call.refuse_narrow_integers(x)
    axis = call.axis(int(call.required_constant(1, "the axis").item()), x.rank)
    kind: ReductionKind = "sum" if call.op_type == "CumSum" else "product"
    order = [*(a for a in range(x.rank) if a != axis), axis]
    last = x.transpose(*order)
    made = _cumulative(_reversed_if_asked(call, last), kind, call.flag("exclusive"))
    return _reversed_if_asked(call, made).transpose(*numpy.argsort(order).tolist())


def _reversed_if_asked(call: Call, x: Tensor) -> Tensor:
    return x.slice(x.rank - 1, x.shape[-1] - 1, -1, -1) if call.flag("reverse") else x


def _cumulative(x: Tensor, kind: ReductionKind, exclusive: bool) -> Tensor:
    """The running reduction along the last axis; exclusive leaves out the element itself."""
    size = x.shape[-1]
    if size <= RUN:
        return x.pool(kind, [size], pads=[size - 1 + exclusive, 0], sizes=[size])
    runs = -(-size // RUN)
    padded = x.pad([0] * x.rank, [*[0] * (x.rank - 1), runs * RUN - size], neutral(kind, x.dtype))
    split = padded.reshape(*x.shape[:-1], runs, RUN)
    before = _cumulative(split.reduce(kind, [split.rank - 1]), kind, exclusive=True)
    made = _cumulative(split, kind, exclusive).apply("add" if kind == "sum" else "multiply", before.reshape(
        *before.shape, 1
    ))
    return made.reshape(*padded.shape).slice(x.rank - 1, 0, size)


@operator("Trilu")
def triangle(call: Call) -> Tensor:
    """The upper or lower triangle of each matrix, bounded by the k-th diagonal; zeros elsewhere."""
    x, k = call.input(0), call.constant(1, "k")
    offset = 0 if k is None else int(k.item())
    if x.rank < 2:
        raise call.wrong(f"{list(x.shape)} is not a matrix")
    call.check_length(x.shape[-1] * x.shape[-2], "a matrix")
    distance = numpy.arange(x.shape[-1]) - numpy.arange(x.shape[-2])[:, None]
    kept = distance >= offset if call.flag("upper", True) else distance <= offset
    return where(Tensor.constant(kept), x, 0)


@operator("EyeLike")
def eye_like(call: Call) -> Tensor:
    """Ones on the k-th diagonal of a matrix of the input's shape, zeros elsewhere."""
    x = call.input(0)
    if x.rank != 2:
        raise call.wrong(f"{list(x.shape)} is not a matrix")
    rows, columns = x.shape
    call.check_length(rows * columns, "a matrix")
    ones = numpy.eye(rows, columns, int(call.attribute("k", 0)))
    return Tensor.constant(ones.astype(call.attribute("dtype", x.dtype)))


@operator("NonZero")
def non_zero(call: Call) -> Tensor:
    """The positions of all nonzero elements, (rank, count): one row per axis; the input is constant."""
    x = call.required_constant(0, "the input")
    return Tensor.constant(numpy.array(numpy.nonzero(numpy.atleast_1d(x)), numpy.int64)[: x.ndim])


@operator("Unique")
def unique(call: Call) -> list[Tensor]:
    """The distinct elements or slices of a constant, their first positions, the inverse indices and the counts."""
    x = call.required_constant(0, "the input")
    axis = call.attribute("axis", None)
    axis = None if axis is None else call.axis(int(axis), x.ndim)
    return list(map(Tensor.constant, unique_elements(x, axis, call.flag("sorted", True))))


def unique_elements(x: Array, axis: int | None, sorts: bool) -> tuple[Array, Array, Array, Array]:
    """Unique in numpy: the distinct elements or slices, their first positions, the inverse indices and the counts."""
    values, first, inverse, counts = numpy.unique(x, True, True, True, axis=axis)
    inverse = inverse.reshape(-1)
    if not sorts:
        order = numpy.argsort(first)
        values = numpy.take(values, order, axis=axis or 0)
        first, counts, inverse = first[order], counts[order], numpy.argsort(order)[inverse]
    return values, first.astype(numpy.int64), inverse.astype(numpy.int64), counts.astype(numpy.int64)


@operator("NonMaxSuppression")
def non_max_suppression(call: Call) -> Tensor:
    """(batch, class, box) of each box that overlaps no better kept one by more than the limit; of constant inputs."""
    boxes, scores = call.required_constant(0, "boxes"), call.required_constant(1, "scores")
    limits = ("max_output_boxes_per_class", "iou_threshold", "score_threshold")
    most, overlap, least = (call.constant(position, name) for position, name in enumerate(limits, 2))
    return Tensor.constant(suppress_by_class(boxes, scores, most, overlap, least, call.flag("center_point_box")))
