"""Attention of com.microsoft against onnxruntime: masks, past keys and values, packed and quantised forms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy
import pytest
from operator_cases import Case, Constant, Input, check, model_of
from support import ENGINES, assert_close, assert_refused, run_model

from imgconv.errors import ModelError, UnsupportedError

BATCH, LENGTH, HEADS, SIZE = 2, 3, 2, 4
HIDDEN = HEADS * SIZE
random = numpy.random.default_rng(4)


def real(*shape: int) -> Any:
    return random.uniform(-1, 1, shape).astype(numpy.float32)


def microsoft(op_type: str, inputs: Sequence[Input], outputs: int = 1, **attributes: Any) -> Case:
    settings = {"num_heads": HEADS, **attributes}
    return replace(Case(op_type, 17, tuple(inputs), settings, outputs), domain="com.microsoft")


def integers(*values: Any) -> Any:
    return numpy.array(values, numpy.int32)


def masks(total: int) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Masks of every form, and attributes beside them."""
    two = (random.random((BATCH, total)) < 0.6).astype(numpy.int32)
    three = (random.random((BATCH, LENGTH, total)) < 0.6).astype(numpy.int32)
    for mask in (None, two, three, integers(2, total)):
        yield mask, {}
        yield mask, {"unidirectional": 1}
    yield two, {"mask_filter_value": -2.0, "scale": 0.3}
    yield Constant(three), {"unidirectional": 1, "mask_filter_value": -2.0}


def attention() -> Iterator[Case]:
    x, w, b = real(BATCH, LENGTH, 5), Constant(real(5, 3 * HIDDEN)), real(3 * HIDDEN)
    for mask, settings in masks(LENGTH):
        yield microsoft("Attention", (x, w, b, mask), **settings)
    yield microsoft("Attention", (x, w, b, integers(2, 3, 0, 1)))
    yield microsoft("Attention", (x, w))
    yield microsoft("Attention", (x, w, b), 2)
    for mask, settings in masks(LENGTH + 2):
        yield microsoft("Attention", (x, w, b, mask, real(2, BATCH, HEADS, 2, SIZE)), 2, **settings)
    yield microsoft("Attention", (x, w, b, None, None, real(BATCH, HEADS, LENGTH, LENGTH)))
    yield microsoft("Attention", (x, w, b, None, None, real(1, 1, LENGTH, LENGTH)))
    wide = Constant(real(5, 2 * HIDDEN + 6)), real(2 * HIDDEN + 6)
    yield microsoft("Attention", (x, *wide), qkv_hidden_sizes=[HIDDEN, HIDDEN, 6])


def multi_head() -> Iterator[Case]:
    total = 5
    q, k, v = real(BATCH, LENGTH, HIDDEN), real(BATCH, total, HIDDEN), real(BATCH, total, 6)
    for mask, settings in masks(total):
        if "unidirectional" not in settings:
            yield microsoft("MultiHeadAttention", (q, k, v, None, mask), **settings)
    for mask, settings in masks(LENGTH):
        yield microsoft("MultiHeadAttention", (q, q, q, None, mask), **settings)
    yield microsoft("MultiHeadAttention", (q, k, v, real(2 * HIDDEN + 6)))
    yield microsoft("MultiHeadAttention", (q, k, v, None, None, real(1, HEADS, LENGTH, total)))
    yield microsoft("MultiHeadAttention", (q, q, q, real(3 * HIDDEN)), 3)
    heads = real(BATCH, HEADS, total, SIZE), real(BATCH, HEADS, total, SIZE)
    yield microsoft("MultiHeadAttention", (q, *heads))
    past = real(BATCH, HEADS, 2, SIZE), real(BATCH, HEADS, 2, SIZE)
    yield microsoft("MultiHeadAttention", (q, q, q, real(3 * HIDDEN), None, None, *past), 3)
    yield microsoft("MultiHeadAttention", (q, q, q, None, None, None, *past), 3, unidirectional=1)


def quantised() -> Iterator[Case]:
    x = random.integers(0, 256, (BATCH, LENGTH, 5)).astype(numpy.uint8)
    bias, scale = real(3 * HIDDEN), Constant(numpy.float32(0.02))
    for dtype in ("int8", "uint8"):
        # Signed ones of 7 bits: onnxruntime adds two products in 16 bits on CPUs without VNNI.
        low, high = (-64, 64) if dtype == "int8" else (0, 120)
        w = Constant(random.integers(low, high, (5, 3 * HIDDEN)).astype(dtype))
        zeros = Constant(numpy.array(120, "u1")), Constant(numpy.array(3, dtype))
        columns = Constant(random.uniform(0.01, 0.02, 3 * HIDDEN).astype("f4"))
        yield microsoft("QAttention", (x, w, bias, scale, scale, None, *zeros))
        yield microsoft("QAttention", (x, w, bias, scale, columns, integers(2, 3), zeros[0],
                                       Constant(numpy.full(3 * HIDDEN, 3, dtype))))
        yield microsoft("QAttention", (x, w, bias, scale, scale, None, *zeros), unidirectional=1)
        yield microsoft("QAttention", (x, w, bias, scale, scale, None, *zeros, real(2, BATCH, HEADS, 2, SIZE)), 2)


FAMILIES = {"attention": list(attention()), "multi head": list(multi_head()), "QAttention": list(quantised())}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", [
    pytest.param(case, id=f"{family}-{n}") for family, cases in FAMILIES.items() for n, case in enumerate(cases)
])
def test_attention(case: Case, engine: str) -> None:
    check(case, engine)


@pytest.mark.parametrize("biased", [False, True])
def test_packed_inputs_are_the_same_as_three(biased: bool) -> None:
    """onnxruntime has no CPU kernel of them."""
    q, k, v = (real(BATCH, LENGTH, HIDDEN) for _ in range(3))
    bias = [real(3 * HIDDEN)] if biased else []
    heads = [t.reshape(BATCH, LENGTH, HEADS, SIZE) for t in (q, k, v)]
    expected = run_model(*model_of(microsoft("MultiHeadAttention", (q, k, v, *bias))))
    for inputs in ((numpy.stack(heads, 3), None, None, *bias), (q, numpy.stack(heads[1:], 3), None, *bias)):
        assert_close(run_model(*model_of(microsoft("MultiHeadAttention", inputs))), expected, 1e-6)


X, W = real(BATCH, LENGTH, 5), Constant(real(5, 3 * HIDDEN))
Q = real(BATCH, LENGTH, HIDDEN)
REFUSED = [
    (microsoft("Attention", (X, W), do_rotary=1), "do_rotary"),
    (microsoft("Attention", (X, W), past_present_share_buffer=1), "past_present_share_buffer"),
    (microsoft("Attention", (X, W, None, integers(*range(8)))), r"a mask of shape \[8\]"),
    (microsoft("Attention", (X, W, None, numpy.ones((BATCH, 1, 3, 3), "i4"))), "a mask of shape"),
    (microsoft("Attention", (X, W, None, None, None, None, integers(1))), "input 6"),
    (microsoft("MultiHeadAttention", (Q, *[real(BATCH, 5, HIDDEN)] * 2), unidirectional=1), "3 queries after 0 and 5"),
    (microsoft("MultiHeadAttention", (Q, Q, Q), 4), "output qk"),
    (microsoft("MultiHeadAttention", (Q,)), "query, key and value"),
    (microsoft("MultiHeadAttention", (Q, Q, Q), rotary=1), "attribute rotary"),
]
WRONG = [
    (microsoft("Attention", (X, W), num_heads=5), "for 5 heads"),
    (microsoft("Attention", (X, W), num_heads=0), "num_heads is 0"),
    (microsoft("MultiHeadAttention", (Q, Q, Q, real(5))), "bias"),
    (microsoft("MultiHeadAttention", (Q, Q, real(BATCH, 5, HIDDEN))), "do not fit"),
    (microsoft("MultiHeadAttention", (Q, Q, Q, None, None, real(1, HEADS, 3, 5))), "broadcast"),
]


@pytest.mark.parametrize(
    ("case", "message", "error"), [(*row, UnsupportedError) for row in REFUSED] + [(*row, ModelError) for row in WRONG]
)
def test_refused(case: Case, message: str, error: type[ModelError]) -> None:
    model, feeds = model_of(case)
    assert_refused(model, feeds, message, error)
