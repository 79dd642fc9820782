"""Views against numpy's own reshape, transpose, pad, take, slices and sliding windows."""

from __future__ import annotations

import itertools
from math import prod
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from imgconv.graph import view
from imgconv.graph.graph_error import GraphError
from imgconv.graph.index import constant, variable
from imgconv.graph.view import Bound, View

FILL = 99
SHAPES = st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple)


def counted(shape: tuple[int, ...]) -> Any:
    """0, 1, 2 ...: every element tells where it comes from."""
    return numpy.arange(prod(shape), dtype=numpy.int64).reshape(shape)


def same(found: Any, expected: Any) -> None:
    assert found.dtype == expected.dtype
    numpy.testing.assert_array_equal(found, expected)


# One constructor at a time: (view, what numpy gives)

@st.composite
def reshapes(draw: st.DrawFn, source: Any) -> tuple[View, Any]:
    factors = [draw(st.sampled_from([1, *_primes(n)])) for n in source.shape]
    split = [part for n, f in zip(source.shape, factors, strict=True) for part in (f, n // f)]
    shape = draw(st.permutations(split))
    fewest = draw(st.integers(1, 5))
    while len(shape) > fewest:
        shape = [shape[0] * shape[1], *shape[2:]]
    return view.reshape(source.shape, tuple(shape)), source.reshape(shape)


def _primes(n: int) -> list[int]:
    return [p for p in (2, 3, 5) if n % p == 0]


@st.composite
def transposes(draw: st.DrawFn, source: Any) -> tuple[View, Any]:
    permutation = draw(st.permutations(range(source.ndim)))
    return view.transpose(source.shape, permutation), source.transpose(permutation)


@st.composite
def expansions(draw: st.DrawFn, source: Any) -> tuple[View, Any]:
    grown = [draw(st.integers(1, 3)) if n == 1 else n for n in source.shape]
    shape = (*draw(st.lists(st.integers(1, 2), max_size=1)), *grown)
    return view.expand(source.shape, shape), numpy.broadcast_to(source, shape)


@st.composite
def slices(draw: st.DrawFn, source: Any) -> tuple[View, Any]:
    """Slices with steps of either sign, flips among them."""
    starts, sizes, steps = [], [], []
    for n in source.shape:
        positions = range(n)[:: draw(st.sampled_from([1, 1, 2, -1, -2]))]
        first = draw(st.integers(0, len(positions) - 1))
        size = draw(st.integers(1, len(positions) - first))
        starts.append(positions[first])
        sizes.append(size)
        steps.append(positions.step)
    made = view.slice_(source.shape, starts, sizes, steps)
    where = [start + step * numpy.arange(size) for start, size, step in zip(starts, sizes, steps, strict=True)]
    return made, source[numpy.ix_(*where)]


@st.composite
def pads(draw: st.DrawFn, source: Any) -> tuple[View, Any]:
    """Padding and, where negative, cropping, of one or two axes."""
    before, after, expected = [0] * source.ndim, [0] * source.ndim, source
    for axis in {draw(st.integers(0, source.ndim - 1)) for _ in range(2)}:
        n = source.shape[axis]
        before[axis] = draw(st.integers(-1, 2))
        after[axis] = draw(st.integers(max(-1, 1 - n - before[axis]), 2))
        widths = [(2, 2) if a == axis else (0, 0) for a in range(source.ndim)]
        expected = numpy.pad(expected, widths, constant_values=FILL)
        cut = slice(2 - before[axis], 2 + n + after[axis])
        expected = expected[tuple(cut if a == axis else slice(None) for a in range(source.ndim))]
    return view.pad(source.shape, before, after), expected


@st.composite
def takes(draw: st.DrawFn, source: Any) -> tuple[View, Any]:
    axis = draw(st.integers(0, source.ndim - 1))
    positions = draw(st.lists(st.integers(0, source.shape[axis] - 1), min_size=1, max_size=5))
    return view.take(source.shape, axis, positions), numpy.take(source, positions, axis)


@st.composite
def sampled(draw: st.DrawFn, source: Any) -> tuple[View, Any]:
    expected, positions = source, dict[int, list[list[int]]]()
    for axis in draw(st.lists(st.integers(0, source.ndim - 1), min_size=1, max_size=2, unique=True)):
        taps = draw(st.integers(1, 3))
        row = st.lists(st.integers(0, source.shape[axis] - 1), min_size=taps, max_size=taps)
        positions[axis] = draw(st.lists(row, min_size=1, max_size=4))
        expected = numpy.moveaxis(numpy.take(expected, positions[axis], axis), axis + 1, -1)
    return view.samples(source.shape, positions), expected


@st.composite
def sliding(draw: st.DrawFn, source: Any) -> tuple[View, Any]:
    """Windows over the last one or two axes: padded, dilated, strided."""
    count = draw(st.integers(1, min(2, source.ndim)))
    lead = source.ndim - count
    window, strides, dilations, before, sizes = [], [], [], [], []
    for n in source.shape[lead:]:
        k, s, d, p = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(0, 2))
        reach = (k - 1) * d + 1
        most = max(1, (n + 2 * p - reach) // s + 1)
        window.append(k)
        strides.append(s)
        dilations.append(d)
        before.append(p)
        sizes.append(draw(st.integers(1, most)))
    made = view.windows(source.shape, sizes, window, strides, dilations, before)
    wide = numpy.pad(source, [(0, 0)] * lead + [(p, 12) for p in before], constant_values=FILL)
    spread = [(k - 1) * d + 1 for k, d in zip(window, dilations, strict=True)]
    seen = numpy.lib.stride_tricks.sliding_window_view(wide, spread, tuple(range(lead, source.ndim)))
    outputs = tuple(slice(0, (o - 1) * s + 1, s) for o, s in zip(sizes, strides, strict=True))
    inner = tuple(slice(None, None, d) for d in dilations)
    return made, seen[(slice(None),) * lead + outputs + inner]


CONSTRUCTORS = [reshapes, transposes, expansions, slices, pads, takes, sampled, sliding]


@pytest.mark.parametrize("constructor", CONSTRUCTORS, ids=lambda f: f.__name__)
def test_each_constructor_gives_what_numpy_gives(constructor: Any) -> None:
    @given(st.data(), SHAPES)
    @settings(max_examples=60, deadline=None)
    def check(data: st.DataObject, shape: tuple[int, ...]) -> None:
        source = counted(shape)
        made, expected = data.draw(constructor(source))
        assert (made.source, made.shape) == (shape, expected.shape)
        same(made.evaluate(source, FILL), expected)

    check()


@given(st.data(), SHAPES)
@settings(max_examples=200, deadline=None)
def test_any_composition_is_one_view(data: st.DataObject, shape: tuple[int, ...]) -> None:
    source = counted(shape)
    whole, expected = view.identity(shape), source
    for _ in range(data.draw(st.integers(1, 4))):
        made, expected = data.draw(data.draw(st.sampled_from(CONSTRUCTORS))(expected))
        whole = made.composed_with(whole)
        if expected.size > 5000 or expected.ndim > 7:
            break
    assert (whole.source, whole.shape) == (shape, expected.shape)
    same(whole.evaluate(source, FILL), expected)


@given(st.data(), SHAPES)
@settings(max_examples=80, deadline=None)
def test_composition_is_associative(data: st.DataObject, shape: tuple[int, ...]) -> None:
    source = counted(shape)
    a, inner = data.draw(data.draw(st.sampled_from(CONSTRUCTORS))(source))
    b, middle = data.draw(data.draw(st.sampled_from(CONSTRUCTORS[:6]))(inner))
    c, outer = data.draw(data.draw(st.sampled_from(CONSTRUCTORS[:6]))(middle))
    for made in (c.composed_with(b.composed_with(a)), c.composed_with(b).composed_with(a)):
        same(made.evaluate(source, FILL), outer)


@given(st.data(), SHAPES)
@settings(max_examples=80, deadline=None)
def test_indices_stay_in_the_source_where_the_bounds_hold(data: st.DataObject, shape: tuple[int, ...]) -> None:
    """`evaluate` clips, so that a wrong index under a wrong bound could hide: here every position is looked at."""
    a, inner = data.draw(pads(counted(shape)))
    b, _ = data.draw(data.draw(st.sampled_from([reshapes, transposes, slices, sliding]))(inner))
    made = b.composed_with(a)
    for position in itertools.islice(itertools.product(*map(range, made.shape)), 300):
        values = {f"i{axis}": p for axis, p in enumerate(position)}
        if all(bound.low <= bound.index.evaluate(values) < bound.high for bound in made.bounds):
            for index, size in zip(made.index, shape, strict=True):
                assert 0 <= index.evaluate(values) < size


# Simplification: what kernels cost depends on it

@given(SHAPES, st.data())
@settings(max_examples=60, deadline=None)
def test_what_undoes_itself_is_the_identity(shape: tuple[int, ...], data: st.DataObject) -> None:
    flat = view.reshape(shape, (prod(shape),))
    assert view.reshape((prod(shape),), shape).composed_with(flat).is_identity
    order = data.draw(st.permutations(range(len(shape))))
    there = view.transpose(shape, order)
    assert view.transpose(there.shape, numpy.argsort(order).tolist()).composed_with(there).is_identity
    wide = view.pad(shape, [1] * len(shape), [2] * len(shape))
    assert view.pad(wide.shape, [-1] * len(shape), [-2] * len(shape)).composed_with(wide).is_identity
    last = [n - 1 for n in shape]
    turned = view.slice_(shape, last, shape, [-1] * len(shape))
    assert turned.composed_with(turned).is_identity


def test_the_identity_is_neutral() -> None:
    made = view.pad((3, 4), (1, 0), (0, 2))
    assert made.composed_with(view.identity((3, 4))) == made == view.identity(made.shape).composed_with(made)


def test_identity_needs_shape_index_and_no_bounds() -> None:
    assert view.identity((2, 3)).is_identity
    assert not view.transpose((3, 3), (1, 0)).is_identity
    assert not view.slice_((4, 4), (0, 0), (4, 3), (1, 1)).is_identity
    assert not view.pad((1,), (0,), (1,)).is_identity
    assert view.pad((1, 2), (0, 0), (0, 0)).is_identity


def test_bounds_that_always_hold_are_dropped() -> None:
    assert view.pad((4, 4), (-1, 0), (0, -1)).bounds == ()
    assert view.windows((1, 6), (4,), (3,), (1,), (1,), (0,)).bounds == ()
    assert len(view.windows((1, 6), (4,), (3,), (1,), (1,), (1,)).bounds) == 1


def test_bounds_of_one_index_become_one() -> None:
    inner = view.pad((8,), (2,), (2,))
    outer = view.pad((12,), (3,), (1,))
    made = outer.composed_with(inner)
    assert [str(b) for b in made.bounds] == ["5 <= i0 < 13"]
    assert [str(e) for e in made.index] == ["i0 - 5"]


def test_a_bound_knows_always_and_never() -> None:
    i = variable("i", 5)
    assert Bound(i, 0, 5).always and not Bound(i, 0, 4).always and not Bound(i, 1, 5).always
    assert Bound(i + 5, 0, 5).never and Bound(i - 5, 0, 5).never and not Bound(i + 4, 0, 5).never
    assert not Bound(i, 0, 5).never


def test_depth_to_space_needs_no_table_and_few_operations() -> None:
    split = view.reshape((1, 12, 5, 7), (1, 3, 2, 2, 5, 7))
    moved = view.transpose(split.shape, (0, 1, 4, 2, 5, 3)).composed_with(split)
    made = view.reshape(moved.shape, (1, 3, 10, 14)).composed_with(moved)
    assert not any("table" in str(e) for e in made.index)
    assert [str(e) for e in made.index[2:]] == ["i2/2", "i3/2"]
    source = counted((1, 12, 5, 7))
    expected = source.reshape(1, 3, 2, 2, 5, 7).transpose(0, 1, 4, 2, 5, 3).reshape(1, 3, 10, 14)
    same(made.evaluate(source), expected)


# Edges

@pytest.mark.parametrize("shape, other", [((0, 3), (3, 0)), ((2, 0), (0,)), ((0,), (0, 1, 5))])
def test_empty_tensors(shape: tuple[int, ...], other: tuple[int, ...]) -> None:
    same(view.reshape(shape, other).evaluate(counted(shape)), counted(other))
    grown = view.pad(shape, [1] * len(shape), [0] * len(shape))
    expected = numpy.pad(counted(shape), [(1, 0)] * len(shape), constant_values=FILL)
    same(grown.evaluate(counted(shape), FILL), expected)


def test_scalars() -> None:
    one = numpy.array(5)
    same(view.identity(()).evaluate(one), one)
    same(view.expand((), (2, 3)).evaluate(one), numpy.full((2, 3), 5))
    same(view.reshape((1, 1), ()).evaluate(numpy.array([[7]])), numpy.array(7))


def test_a_view_keeps_the_dtype_and_copies() -> None:
    for dtype in ("float16", "float32", "bool", "uint8"):
        source = numpy.ones((2, 2), dtype)
        assert view.pad((2, 2), (1, 0), (0, 0)).evaluate(source, 0).dtype == dtype
        read = view.identity((2, 2)).evaluate(source)
        read[:] = 0
        assert source.all()


def test_minus_infinity_fills() -> None:
    made = view.pad((2,), (1,), (0,)).evaluate(numpy.zeros(2, numpy.float32), float("-inf"))
    assert made.tolist() == [float("-inf"), 0, 0]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: view.reshape((2, 3), (4,)),
        lambda: view.expand((2, 3), (2, 4)),
        lambda: view.expand((2, 3), (3,)),
        lambda: view.identity((2,)).composed_with(view.identity((3,))),
        lambda: view.identity((2,)).evaluate(numpy.zeros(3)),
    ],
)
def test_shapes_that_do_not_fit_are_our_own_bugs(wrong: Any) -> None:
    with pytest.raises(GraphError):
        wrong()


def test_text_shows_source_index_and_bounds() -> None:
    made = view.pad((3, 8), (0, 1), (0, 1))
    assert str(made) == "[3, 8][i0, i1 - 1] where 1 <= i1 < 9"
    assert str(View((2,), (3,), (constant(1),))) == "[3][1]"


def test_taps_in_a_row_are_a_start_and_a_tap() -> None:
    """A table of one entry for each output, and none for starts in equal steps; any other taps are looked up each."""
    seen = view.samples((2, 9), {1: [[0, 1, 2], [2, 3, 4], [3, 4, 5], [6, 7, 8]]})
    assert str(seen.index[1]) == "i2 + table4[i1]" and seen.index[1].high == 8
    assert str(view.samples((9,), {0: [[0, 1], [2, 3], [4, 5]]}).index[0]) == "i0*2 + i1"
    assert str(view.samples((9,), {0: [[0, 1], [2, 2], [4, 5]]}).index[0]).startswith("table6")
