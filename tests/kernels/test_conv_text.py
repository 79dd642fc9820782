"""Reads of a convolution's kernel that go through the sampler, whose border is zero."""

from __future__ import annotations

import re

import pytest
from graphs import Taking, const, image, target

from imgconv.compiling.lower import lower
from imgconv.config import Config, Float16
from imgconv.kernels.conv.problem import Specialisation
from imgconv.passes import run_passes
from imgconv.tensor import build_graph


def definitions(filters: int, block: Specialisation, window: int = 1, float16: Float16 = 0) -> dict[str, str]:
    """The constants of the convolution of an image of 8x8 pixels and 16 channels, on a GPU of a phone."""
    y = image(1, 16, 8, 8).conv2d(const(filters, 16, window, window), padding=window // 2)
    graph, chooser = run_passes(build_graph({"y": y})), Taking(convolution=lambda *_: block)
    plan = lower(graph, Config(float16), target(compute_units=2), chooser=chooser)
    (launch,) = (launch for launch in plan.launches if launch.specialisation == str(block))
    return dict(re.findall(r"^#define (\w+)(?:\(.*?\))? (.*)$", launch.source.text, re.MULTILINE)[::-1])


def block_of(*local_size: int) -> Specialisation:
    return Specialisation(2, 2, 1, "texel", local_size=local_size, parts=2, float_coordinates=True)


# 4x4 blocks of pixels, and 8 quads of which 2 parts each are summed.
@pytest.mark.parametrize(
    "local_size, idle", [((4, 4, 4), False), ((8, 2, 4), True), ((4, 32, 2), True), ((2, 2, 8), True)]
)
def test_work_items_without_outputs_read_padding(local_size: tuple[int, int, int], idle: bool) -> None:
    """They wait for the others, and their positions are outside of the image."""
    made = definitions(32, block_of(*local_size))
    assert ("TEXEL" in made["READ_INPUT"]) == idle == (made["GUARD"] == "2")


def test_a_window_that_is_padded_reads_padding() -> None:
    assert "TEXEL" in definitions(32, block_of(4, 4, 4), window=3)["READ_INPUT"]


def test_weights_are_read_inside_of_their_image() -> None:
    """Work items past the last of five quads read its weights."""
    made = definitions(20, block_of(4, 4, 4))
    assert made["GUARD"] == "2" and "TEXEL" not in made["READ_WEIGHT"]


@pytest.mark.parametrize("quads, early", [(1, True), (2, False)])
def test_large_blocks_in_half_read_weights_late(quads: int, early: bool) -> None:
    """7x2x2 has 28 texels of sums and 14 of input in half, and spills if it reads its weights without the sampler."""
    block = Specialisation(7, 2, quads, "texel", local_size=(2, 32, 2), parts=4, float_coordinates=True)
    assert ("TEXEL" not in definitions(32, block, float16=2)["READ_WEIGHT"]) == early
