"""Layouts of narrow textures, and concatenations in place. No device is needed."""

from __future__ import annotations

import re
from typing import Any

import pytest
from graphs import const, image
from plans import branch, by_name, kinds, planned

from imgconv.compiling.plan import Plan
from imgconv.compiling.textures import choose_layouts, values_in_concatenations, widened_layout
from imgconv.kernels.layout import Layout, image_layout, matrix_layout
from imgconv.passes import run_passes
from imgconv.tensor import Tensor, build_graph, concatenate

# Narrow textures

@pytest.mark.parametrize(
    "shape, layout, expected",
    [
        ((1, 1, 90, 2), image_layout(4), Layout((0,), (2, 3), 1)),
        ((3, 1, 5, 2), image_layout(4), Layout((), (0, 2, 3), 1)),
        ((2, 1, 7, 9, 2, 3), image_layout(6), Layout((0,), (2, 3, 4, 5), 1)),
        ((5184, 1), matrix_layout(2), Layout((), (0,), 1)),
        ((1, 4, 90, 16), image_layout(4), Layout((0,), (2, 3), 1)),
        ((1, 4, 90, 17), image_layout(4), image_layout(4)),
        ((90, 68), matrix_layout(2), matrix_layout(2)),
    ],
)
def test_widened_layouts_have_rows_beside_each_other(shape: Any, layout: Layout, expected: Layout) -> None:
    assert widened_layout(layout, shape) == expected


def test_a_narrow_texture_is_widened_where_only_generated_kernels_touch_it() -> None:
    """A convolution wants the rows of an image below each other."""
    narrow = image(1, 8, 90, 2).sum([1], keepdims=True).named("narrow")
    read = {"y": narrow.sum([2]), "z": narrow.sum([3])}
    convolved = narrow.conv2d(const(4, 1, 1, 1))
    for outputs, size in ((read, (180, 1)), ({**read, "c": convolved}, (2, 90))):
        texture = by_name(planned(**outputs), "narrow")
        assert (texture.tiling.width, texture.tiling.height) == size


# Concatenations

def written_parts(plan: Plan, whole: str) -> list[str]:
    """The names of the launches that write into the texture of a concatenation."""
    return [launch.name for launch in plan.launches if launch.writes.name == whole]


def in_place(**outputs: Tensor) -> dict[str, tuple[str, int]]:
    graph = run_passes(build_graph(outputs))
    return values_in_concatenations(graph, choose_layouts(graph))


def test_parts_of_whole_texels_are_written_in_place() -> None:
    x = image()
    parts = [branch(x, n, i).named(f"p{i}") for i, n in enumerate((8, 4, 12))]
    whole = concatenate(parts, 1).named("whole")
    y = whole.conv2d(const(4, 24, 1, 1))
    assert in_place(y=y) == {"p0": ("whole", 0), "p1": ("whole", 8), "p2": ("whole", 12)}
    plan = planned(y=y)
    assert kinds(plan) == ["pack", *["compute"] * 4, "unpack"]
    assert written_parts(plan, "whole") == ["p0", "p1", "p2"]
    texts = [n.source.text for n in plan.launches if n.writes.name == "whole"]
    for name, values in (("OFFSET", ["0", "2", "3"]), ("PITCH", ["6", "6", "6"])):
        assert [re.findall(rf"#define OUTPUT_{name} (\d+)\n(?!#endif)", text)[0] for text in texts] == values


def test_each_part_of_a_dense_block_is_read_only_where_it_is_not_written() -> None:
    """Each layer reads all that came before: in place would read and write one image."""
    x = branch(image(), 8, 0)
    for number in range(1, 4):
        x = concatenate([x, branch(x, 4, number)], 1)
    plan = planned(y=x.conv2d(const(4, 20, 1, 1)))
    assert all(n.kind != "copy" or n.reason for n in plan.launches)


def test_a_part_read_by_its_neighbours_kernel_is_copied() -> None:
    x = image()
    a = branch(x, 4, 0).named("a")
    b = branch(a, 4, 1).named("b")
    y = concatenate([a, b], 1).named("whole").conv2d(const(4, 8, 1, 1))
    assert len(in_place(y=y)) == 1
    assert kinds(planned(y=y)).count("copy") == 1


def test_concatenations_in_concatenations() -> None:
    x = image()
    a, b = branch(x, 4, 0).named("a"), branch(x, 4, 1).named("b")
    inner = concatenate([a, b], 1).named("inner")
    free = concatenate([inner, branch(x, 4, 2).named("c")], 1).named("outer")
    found = in_place(y=free.conv2d(const(4, 12, 1, 1)), z=inner.conv2d(const(4, 8, 1, 1)))
    assert found == {"a": ("inner", 0), "b": ("inner", 4), "inner": ("outer", 0), "c": ("outer", 8)}
    # c's kernel reads a, which would lie in the image that c is written into.
    bound = concatenate([inner, branch(a, 4, 2).named("c")], 1).named("outer")
    y, z = bound.conv2d(const(4, 12, 1, 1)), inner.conv2d(const(4, 8, 1, 1))
    found = in_place(y=y, z=z)
    assert not ({"inner", "c"} <= found.keys()), found
    planned(y=y, z=z)


@pytest.mark.parametrize("twice", ["the same", "flipped", "a slice"])
def test_a_value_that_is_a_part_twice(twice: str) -> None:
    s = branch(image(), 8, 0)
    other = {"the same": s, "flipped": s.slice(3, 5, -1, -1), "a slice": s.slice(1, 4, 8)}[twice]
    planned(y=concatenate([s, other], 1).conv2d(const(4, 8 + other.shape[1], 1, 1)))


def test_outputs_and_inputs_as_parts() -> None:
    x, z = image(), image(name="z")
    a = branch(x, 4, 0)
    plan = planned(y=concatenate([a, z], 1).conv2d(const(4, 12, 1, 1)), a=a)
    # The input is packed into its place; the output keeps a texture of its own.
    assert "pack" in {n.kind for n in plan.launches if n.name == "z"}
    planned(y=concatenate([x, z], 1), a=x.relu())


def test_a_part_goes_into_one_concatenation_only() -> None:
    x = image()
    a, b, c = (branch(x, 4, i).named(n) for i, n in enumerate("abc"))
    one, two = concatenate([a, b], 1).named("one"), concatenate([a, c], 1).named("two")
    found = in_place(y=one.conv2d(const(4, 8, 1, 1)), z=two.conv2d(const(4, 8, 1, 1, seed=1)))
    assert found == {"a": ("one", 0), "b": ("one", 4), "c": ("two", 4)}
