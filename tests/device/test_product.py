"""matmul.cl against float64 numpy: vectors, general and batched products, known and computed sides, views of both."""

from __future__ import annotations

import re

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from problems.product import ProductProblem, product_problems, product_specialisations, tiled_specialisations
from running import Choose, check, choosing, device_settings, run_tensors, target

from imgconv.cl.context import Context
from imgconv.config import Config
from imgconv.kernels.conv import candidates as conv_candidates
from imgconv.kernels.matmul.template import Problem, as_convolution
from imgconv.tensor import Tensor, concatenate

P = ProductProblem
VECTORS = [
    P((1, 64), (64, 10), "b"),
    P((1, 200), (200, 7), "b"),
    P((1, 131), (131, 130), "b"),
    P((130,), (130, 5), "b"),
    P((1, 128), (128, 12)),
    P((1, 65), (65, 3)),
    P((3, 97), (97, 1), "b"),
    P((90,), (90,)),
    P((2, 1, 70), (2, 70, 9)),
]
GENERAL = [
    P((1, 1), (1, 1)),
    P((4, 8), (8, 12), "b"),
    P((5, 7), (7, 9), "b"),
    P((5, 7), (7, 9)),
    P((5, 7), (7, 9), "a"),
    P((3, 1), (1, 5)),
    P((9, 2), (2, 1)),
    P((13, 17), (17, 3), "b"),
    P((6,), (6, 4)),
    P((5, 6), (6,), "b"),
]
BATCHES = [
    P((2, 3, 5, 4), (2, 3, 4, 6)),
    P((2, 3, 5, 7), (7, 6), "b"),
    P((3, 5, 7), (1, 7, 6)),
    P((1, 5, 7), (3, 7, 6), "b"),
    P((2, 1, 5, 6), (3, 6, 2)),
    P((5, 6), (2, 3, 6, 7)),
    P((2, 3, 2, 5), (2, 3, 5, 3), "a"),
    P((2, 2, 3, 2, 5), (5, 3), "b"),
]
VIEWS = [
    P((5, 7), (7, 9), "", "transposed", "plain"),
    P((5, 7), (7, 9), "", "plain", "transposed"),
    P((5, 8), (8, 9), "b", "transposed", "transposed"),
    P((2, 5, 8), (2, 8, 6), "", "sliced", "sliced"),
    P((5, 7), (7, 6), "b", "sliced", "plain"),
    P((5, 7), (7, 6), "a", "sliced", "steps"),
    P((5, 6), (6, 3), "", "steps", "reshaped"),
    P((4, 12), (12, 8), "", "reshaped", "plain"),
    P((2, 3, 4, 5), (2, 3, 5, 4), "", "transposed", "reshaped"),
]
ALL = {"vectors": VECTORS, "general": GENERAL, "batches": BATCHES, "views": VIEWS}


@pytest.mark.parametrize("name", ALL)
def test_products(context: Context, name: str) -> None:
    check(ALL[name], context, wanted=target(context, "cpu"))


def test_sums_shared_by_a_work_group(context: Context) -> None:
    """The work items of a group share each sum if a GPU has few outputs and long sums."""
    plan = check(VECTORS, context, wanted=target(context, "gpu"))
    chosen = [launch.specialisation for launch in plan.launches if launch.specialisation]
    assert len(chosen) == len(VECTORS)
    assert all(int(number) > 1 for text in chosen for number in re.findall(r"(\d+) parts|$", text)[:1])


@pytest.mark.parametrize("name", ALL)
def test_products_half_tiled(context: Context, name: str) -> None:
    check(ALL[name][::3], context, Config(float16=1, max_image=8), target(context, "gpu"))


TILED = [
    P((37, 64), (64, 70)),
    P((2, 3, 17, 20), (2, 3, 20, 21)),
    P((33, 66), (66, 35)),
    P((70, 24), (24, 40)),
    P((1, 5, 7), (3, 7, 36)),
    P((2, 5, 8), (2, 8, 6), "", "sliced", "sliced"),
    P((12, 40), (40, 9), "", "plain", "transposed"),
    P((2, 21, 64), (2, 64, 37), "", "plain", "transposed"),
    P((30, 35), (35, 33), "", "plain", "transposed"),
    P((3, 9, 16), (3, 16, 70), "", "sliced", "transposed"),
    P((19, 35), (35, 33), "b", "transposed"),
]


@pytest.mark.parametrize("seed", range(3))
def test_tiles_in_local_memory(context: Context, seed: int) -> None:
    """Tiles of large GPUs: no tile size divides all rows, columns and sums, and operands are read in each way."""
    wanted = choosing(target(context, "gpu"), product=Choose(tiled_specialisations, seed))
    plan = check([*TILED, *VECTORS[4:6], *VIEWS[5:]], context, Config(float16=seed % 2), wanted)
    assert sum("quads deep" in launch.specialisation for launch in plan.launches) > len(TILED)
    transposed = [launch for launch in plan.launches if "B_TRANSPOSED 1" in launch.source.text]
    assert len(transposed) == 3, "tiles are made of a transposed operand without a copy"


@device_settings(max_examples=3)
@given(problems=st.lists(product_problems(), min_size=1, max_size=5), seed=st.integers(0, 999))
def test_drawn(context: Context, problems: list[ProductProblem], seed: int) -> None:
    config = Config(seed % 2, max_image=(None, 8, 32)[seed % 3])
    chosen = choosing(target(context, "gpu"), product=Choose(product_specialisations, seed))
    check(problems, context, config, chosen)


def test_large_weights_in_half(context: Context) -> None:
    """Weights of more elements than are kept in float; K over 1000, summed in float."""
    problems = [P((1, 1030), (1030, 66), "b"), P((3, 512), (512, 40), "b")]
    check(problems, context, Config(float16=1), target(context, "gpu"))


def test_product_read_as_an_image(context: Context) -> None:
    """A product packs the last axis, a convolution and a concatenation of channels want axis 1."""
    random = numpy.random.default_rng(1)
    a, b = (random.uniform(-1, 1, s).astype(numpy.float32) for s in ((1, 4, 5, 6), (1, 4, 6, 7)))
    weights = random.uniform(-1, 1, (3, 4, 1, 1)).astype(numpy.float32)
    made = Tensor.input("a", a.shape) @ Tensor.input("b", b.shape)
    outputs = {
        "convolved": made.conv2d(Tensor.constant(weights)), "joined": concatenate([made, made * 2], 1),
        "pooled": made.max_pool(2, 1),
    }
    _, found = run_tensors(outputs, {"a": a, "b": b}, context)
    product = numpy.einsum("ncij,ncjk->ncik", a.astype(numpy.float64), b)
    expected = {
        "convolved": numpy.einsum("nchw,oc->nohw", product, weights[:, :, 0, 0]),
        "joined": numpy.concatenate([product, 2 * product], 1),
        "pooled": numpy.max([product[:, :, i : 4 + i, j : 6 + j] for i in (0, 1) for j in (0, 1)], axis=0),
    }
    for name, want in expected.items():
        numpy.testing.assert_allclose(found[name], want, 1e-5, 1e-5, err_msg=name)


@pytest.mark.parametrize("kind", ["cpu", "gpu"])
def test_rows_of_several_axes_times_a_known_matrix(context: Context, kind: str) -> None:
    """A sum over two quads of the last axis, for rows in three axes; the second axis is no channel."""
    array, matrix = (
        numpy.random.default_rng(0).uniform(-1, 1, s).astype(numpy.float32) for s in ((2, 3, 5, 7), (7, 6))
    )
    product = Tensor.input("x", array.shape).apply("sin") @ Tensor.constant(matrix)
    _, found = run_tensors({"y": product}, {"x": array}, context, wanted=target(context, kind))
    numpy.testing.assert_allclose(found["y"], numpy.sin(array.astype(numpy.float64)) @ matrix, 0, 1e-5)


def test_one_constant_read_in_two_ways(context: Context) -> None:
    """The left side and the epilogue read one constant, along different axes."""
    c = numpy.random.default_rng(1).uniform(-1, 1, (5, 5)).astype(numpy.float32)
    x = numpy.random.default_rng(2).uniform(-1, 1, (5, 5)).astype(numpy.float32)
    known, given_ = Tensor.constant(c), Tensor.input("x", x.shape)
    outputs = {"left": known @ given_ + known.transpose(), "right": given_ @ known * known.transpose()}
    _, found = run_tensors(outputs, {"x": x}, context)
    numpy.testing.assert_allclose(found["left"], c.astype(float) @ x + c.T, 1e-5, 1e-5)
    numpy.testing.assert_allclose(found["right"], (x.astype(float) @ c) * c.T, 1e-5, 1e-5)


@pytest.mark.parametrize("poison", [numpy.nan, numpy.inf])
def test_neighbours_do_not_leak(context: Context, poison: float) -> None:
    """Values next to a sliced operand, above all along K, do not affect the product."""
    a, b = numpy.full((6, 12), poison, numpy.float32), numpy.full((12, 9), poison, numpy.float32)
    a[1:5, :7], b[:7, 1:6] = 0.5, 2
    weights = Tensor.constant(numpy.full((7, 5), 2, numpy.float32))
    left = Tensor.input("a", a.shape).slice(0, 1, 5).slice(1, 0, 7)
    right = Tensor.input("b", b.shape).slice(0, 0, 7).slice(1, 1, 6)
    first = Tensor.input("a", a.shape).slice(0, 1, 5).slice(1, 0, 1) @ right.slice(0, 0, 1)
    tall = numpy.full((12, 5), poison, numpy.float32)
    tall[:7] = 2
    outputs = {
        "known": left @ weights, "given": left @ right, "one": first, "kept": Tensor.input("a", a.shape) * 1.5,
        "rows": left @ Tensor.input("tall", tall.shape).slice(0, 0, 7),
    }
    for kind in ("cpu", "gpu"):
        _, found = run_tensors(outputs, {"a": a, "b": b, "tall": tall}, context, wanted=target(context, kind))
        numpy.testing.assert_array_equal(found["known"], numpy.full((4, 5), 7))
        numpy.testing.assert_array_equal(found["given"], numpy.full((4, 5), 7))
        numpy.testing.assert_array_equal(found["rows"], numpy.full((4, 5), 7))
        numpy.testing.assert_array_equal(found["one"], numpy.full((4, 5), 1))


def test_a_product_by_a_known_matrix_is_made_in_blocks_of_rows() -> None:
    """The product is a convolution with one column; each element that is read of the matrix serves several rows."""
    problem = as_convolution(Problem(1, 196, 192, 768))
    for units in (2, 132):
        chosen = conv_candidates.default_specialisation(problem, "gpu", units)
        assert chosen.block_rows > 2 and chosen.block_columns == 1, (units, chosen)
