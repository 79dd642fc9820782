"""nest_concatenations: its Given and Result, where it must act and where it must not."""

from __future__ import annotations

import numpy
from graphs import apply_pass, graph_of, image, shown, unchanged

from imgconv.passes.nesting import nest_concatenations
from imgconv.tensor import concatenate


def test_nesting_given_and_result() -> None:
    a, b, c = (image(1, n, 4, 4, name=name) for n, name in ((8, "a"), (4, "b"), (4, "c")))
    graph = graph_of(a, b, c, y=concatenate([a, b], 1), z=concatenate([a, b, c], 1))
    after = apply_pass(
        nest_concatenations, graph,
        lambda a, b, c: {"y": numpy.concatenate([a, b], 1), "z": numpy.concatenate([a, b, c], 1)},
    )
    assert shown(after) == {"y": "concatenation axis 1(a, b)", "z": "concatenation axis 1(y, c)"}


def test_nesting_reads_the_longest_beginning() -> None:
    parts = [image(1, 4, 3, 3, name=f"x{i}") for i in range(5)]
    graph = graph_of(*parts, **{f"y{n}": concatenate(parts[:n], 1) for n in (2, 4, 5)})
    after = apply_pass(nest_concatenations, graph)
    assert shown(after) == {
        "y2": "concatenation axis 1(x0, x1)", "y4": "concatenation axis 1(y2, x2, x3)",
        "y5": "concatenation axis 1(y4, x4)",
    }


def test_nesting_leaves_everything_else() -> None:
    a, b, c = (image(1, 4, 4, 4, name=name) for name in "abc")
    for axis, first in ((1, [b, a]), (2, [a, b]), (1, [a, c]), (1, [a.relu(), b])):
        unchanged(nest_concatenations, graph_of(y=concatenate(first, axis), z=concatenate([a, b, c], axis)))
    thin = image(1, 3, 4, 4, name="thin")
    unchanged(nest_concatenations, graph_of(y=concatenate([a, thin], 1), z=concatenate([a, thin, c], 1)))
