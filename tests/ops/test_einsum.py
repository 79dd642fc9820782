"""Einsum against onnxruntime, and against numpy where it does not do what ONNX's text allows."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
from operator_cases import Case, Constant, check, model_of
from support import ENGINES, assert_close, run_model

from imgconv.errors import ModelError

Shape = tuple[int, ...]
EQUATIONS: list[tuple[str, tuple[Shape, ...]]] = [
    ("ij->ji", ((2, 3),)), ("ij", ((2, 3),)), ("ba", ((2, 3),)), ("ij->", ((2, 3),)), ("ij->j", ((2, 3),)),
    ("abc->ca", ((2, 3, 4),)), ("...ij->...ji", ((2, 3, 4, 5),)), ("...->...", ((2, 3),)), ("i...->...", ((2, 3, 4),)),
    ("ii->i", ((3, 3),)), ("ii", ((3, 3),)), ("ii->", ((3, 3),)), ("bii->bi", ((2, 3, 3),)),
    ("...ii->...i", ((2, 4, 3, 3),)), ("iji->j", ((3, 2, 3),)),
    ("ij,jk->ik", ((2, 3), (3, 4))), ("ij,jk", ((2, 3), (3, 4))), ("ij,kj->ik", ((2, 3), (4, 3))),
    ("ji,jk->ki", ((3, 2), (3, 4))), ("bij,bjk->bik", ((2, 3, 4), (2, 4, 5))), ("bij,bjk->ik", ((2, 3, 4), (2, 4, 5))),
    ("bhqd,bhkd->bhqk", ((2, 3, 4, 5), (2, 3, 6, 5))), ("bhwc,hkc->bhwk", ((2, 3, 4, 5), (3, 6, 5))),
    ("...ij,...jk->...ik", ((2, 1, 3, 4), (5, 4, 2))), ("...ij,jk", ((2, 3, 4), (4, 5))),
    ("b...,b...->b...", ((2, 3, 4), (2, 3, 4))), ("i,i->", ((4,), (4,))), ("i,i", ((4,), (4,))),
    ("i,j->ij", ((3,), (4,))), ("i,j->ji", ((3,), (4,))),
    ("ij,ij->ij", ((2, 3), (2, 3))), ("ij,ij->", ((2, 3), (2, 3))),
    ("ij,kl->ljik", ((2, 3), (4, 5))), (" i j , j k -> i k ", ((2, 3), (3, 4))), ("ij,j->ij", ((2, 3), (3,))),
    ("ij,ik->i", ((2, 3), (2, 4))), ("Ab,bA->A", ((2, 3), (3, 2))), ("ijk,ilm->", ((2, 3, 4), (2, 5, 6))),
    ("ij,jk,kl->il", ((2, 3), (3, 4), (4, 5))), ("i,i,i->i", ((3,), (3,), (3,))),
    ("bij,bik,bjk->b", ((2, 3, 4), (2, 3, 5), (2, 4, 5))),
    ("ij,jk,kl,lm->mi", ((2, 3), (3, 4), (4, 2), (2, 3))), ("ii,ij->ij", ((3, 3), (3, 2))),
    (",ij->ij", ((), (2, 3))), ("->", ((),)),
]
# onnxruntime refuses an ellipsis that broadcasts.
FAMILIES = {"einsum": [
    Case("Einsum", 12, shapes, {"equation": equation}) for equation, shapes in EQUATIONS
    if shapes != ((2, 1, 3, 4), (5, 4, 2))
]}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("equation", "shapes"), EQUATIONS)
def test_einsum(equation: str, shapes: tuple[Shape, ...], engine: str) -> None:
    model, feeds = model_of(Case("Einsum", 12, shapes, {"equation": equation}))
    expected = numpy.einsum(equation, *(array.astype(float) for array in feeds.values()))
    assert_close(run_model(model, feeds, engine), {"y0": numpy.asarray(expected, numpy.float32)}, 2e-6)


@pytest.mark.parametrize("case", FAMILIES["einsum"], ids=lambda case: case.attributes["equation"])
def test_einsum_as_onnxruntime(case: Case) -> None:
    check(case, "reference")


def test_constant_operands_are_weights() -> None:
    weights = Constant(numpy.linspace(-1, 1, 20, dtype=numpy.float32).reshape(4, 5))
    check(Case("Einsum", 12, ((2, 3, 4), weights), {"equation": "bij,jk->bik"}), "reference")


WRONG: list[tuple[str, tuple[Any, ...], str]] = [
    ("ij,jk->ik", ((2, 3),), "2 terms for 1 inputs"), ("ij->ji", ((2, 3, 4),), "rank 3"),
    ("ij,jk->ik", ((2, 3), (4, 5)), "lengths 3 and 4"), ("ij->k", ((2, 3),), "no term has"),
    ("ij->ii", ((2, 3),), "repeats"), ("i1->i", ((2, 3),), "not of letters"), ("ij...->i", ((2,),), "rank 1"),
]


@pytest.mark.parametrize(("equation", "shapes", "message"), WRONG)
def test_wrong(equation: str, shapes: tuple[Shape, ...], message: str) -> None:
    model, feeds = model_of(Case("Einsum", 12, shapes, {"equation": equation}))
    with pytest.raises(ModelError, match=message) as caught:
        run_model(model, feeds)
    assert caught.value.node == "node"
