"""Tests a device's instruction for products of four bytes, because drivers list extensions that their compilers lack.

Rusticl 25.0 links no function of cl_khr_integer_dot_product. The driver of an Adreno 730 was reported to reject
cl_qcom_dot_product8, and the driver of an Adreno 840 to treat signed bytes as unsigned.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy
import pyopencl as cl

from imgconv.dtype import DOT_PRODUCTS, DotProduct

FILE = Path(__file__).parents[1] / "kernels" / "lib" / "dot.cl"
EXTENSIONS: Mapping[DotProduct, str] = {"qcom": "cl_qcom_dot_product8", "khr": "cl_khr_integer_dot_product"}
SUM = "__kernel void k(__global int *s, __global const uint *w, __global const uint *x) {\n" \
    "  const int n = get_global_id(0);\n  s[n] = DOT(s[n], w[n], x[n]);\n}\n"
COUNT = 256


def dot_product(context: cl.Context, extensions: Sequence[str]) -> DotProduct:
    """The first of EXTENSIONS that the device of a context has and that gives the right sums; "" if none does."""
    for name, extension in EXTENSIONS.items():
        if extension in extensions and gives_right_sums(context, name, FILE.read_text(encoding="utf-8")):
            return name
    return ""


def gives_right_sums(context: cl.Context, name: DotProduct, text: str) -> bool:
    """Returns whether DOT of a text gives the right sums, for a DOT_PRODUCT."""
    random = numpy.random.default_rng(0)
    w, x = random.integers(-128, 128, (COUNT, 4)).astype("i1"), random.integers(0, 256, (COUNT, 4)).astype("u1")
    w[0], x[0], w[1], x[1] = -128, 255, 127, 255
    sums = random.integers(-(2**20), 2**20, COUNT).astype("i4")
    expected = sums + (w.astype("i4") * x).sum(1)
    whole = f"#define DOT_PRODUCT {DOT_PRODUCTS.index(name)}\n{text.replace('#pragma once', '')}{SUM}"
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what the compiler says
            kernel = cl.Kernel(cl.Program(context, whole).build(), "k")
        queue, buffers = cl.CommandQueue(context), [cl.Buffer(context, flags, hostbuf=each) for each in (sums, w, x)]
        kernel(queue, (COUNT,), None, *buffers)
        cl.enqueue_copy(queue, sums, buffers[0])
    except cl.Error:
        return False
    return bool(numpy.array_equal(sums, expected))
