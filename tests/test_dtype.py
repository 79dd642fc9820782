"""The types of numbers on a device: one object each, which numpy takes and which is equal to its name."""

from __future__ import annotations

import copy
import pickle

import numpy
import pytest

from imgconv.dtype import DTYPES, FLOAT16, FLOAT32, INT8, UINT8, DType


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=str)
def test_numpy_takes_it(dtype: DType) -> None:
    array = numpy.zeros(3, dtype)
    assert str(array.dtype) == dtype.name.replace("unsigned_int", "uint") and array.dtype == dtype
    assert array.itemsize == dtype.bytes
    assert array.astype(FLOAT32).dtype == numpy.float32


def test_equality_is_that_of_the_names() -> None:
    assert FLOAT16 == "float16" and FLOAT16 != "float32" and FLOAT16 != FLOAT32
    assert {FLOAT32, INT8} == {"float32", "int8"} and DTYPES["uint8"] is UINT8


def test_copies_are_the_same_object() -> None:
    assert pickle.loads(pickle.dumps(INT8)) is INT8 and copy.deepcopy({"a": FLOAT16})["a"] is FLOAT16
