"""DType: the element type of an image or a buffer on a device, with its names in OpenCL C.

To add a type, add a row here; a kernel that computes in this type names it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, get_args

import numpy


@dataclass(frozen=True, eq=False)
class DType:
    """A type of numbers: one of DTYPES.

    scalar: its name in OpenCL C. pointer: what linear textures of it point to. load: the text of the n-th texel of
    `image` as a float4; bytes are parts of one, as images give them. store: writes a float4 `value` to a position.
    element, store_element: of a number of a buffer, by the buffer's name, its position and, to store it, the float.
    channel: OpenCL's channel data type of images.
    """

    name: str
    scalar: str
    pointer: str
    load: str
    store: str
    element: str
    store_element: str
    channel: str

    @cached_property
    def dtype(self) -> numpy.dtype[Any]:
        """The same in numpy, which takes a DType where it takes a type of its own."""
        return numpy.dtype(self.name.replace("unsigned_int", "uint"))

    @property
    def bytes(self) -> int:
        return self.dtype.itemsize

    def __str__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        """Equality also with the name, as of numpy's types."""
        return self is other or self.name == other

    def __hash__(self) -> int:
        return hash(self.name)

    def __reduce__(self) -> tuple[Callable[[str], DType], tuple[str]]:
        return _named, (self.name,)


FLOAT32 = DType("float32", "float", "float4", "image[n]", "image[{0}] = value", "{0}[{1}]", "{0}[{1}] = {2}", "FLOAT")
FLOAT16 = DType(
    "float16", "half", "half", "vload_half4(n, image)", "vstore_half4(value, {0}, image)", "vload_half({1}, {0})",
    "vstore_half({2}, {1}, {0})", "HALF_FLOAT",
)
INT8 = DType(
    "int8", "char", "char", "convert_float4(vload4(n, image)) / 127.0f",
    "vstore4(convert_char4_sat_rte(value * 127.0f), {0}, image)", "convert_float({0}[{1}])",
    "{0}[{1}] = convert_char_sat_rte({2})", "SNORM_INT8",
)
UINT8 = DType(
    "uint8", "uchar", "uchar", "convert_float4(vload4(n, image)) / 255.0f",
    "vstore4(convert_uchar4_sat_rte(value * 255.0f), {0}, image)", "convert_float({0}[{1}])",
    "{0}[{1}] = convert_uchar_sat_rte({2})", "UNORM_INT8",
)
# Bytes that images give as integers. Levels of quantised networks have it, in images only.
UNSIGNED_INT8 = replace(UINT8, name="unsigned_int8", load="", store="", channel="UNSIGNED_INT8")
# Four weights of one byte each; in images only, too.
UINT32 = DType("uint32", "uint", "uint", "", "", "", "", "UNSIGNED_INT32")
DTYPES = {each.name: each for each in (FLOAT32, FLOAT16, INT8, UINT8, UNSIGNED_INT8, UINT32)}

# How kernels sum products of bytes: by plain ones, or by an instruction of cl_khr_integer_dot_product or of
# cl_qcom_dot_product8. The number is DOT_PRODUCT in kernels/lib/dot.cl.
DotProduct = Literal["", "khr", "qcom"]
DOT_PRODUCTS: tuple[DotProduct, ...] = get_args(DotProduct)


def _named(name: str) -> DType:
    return DTYPES[name]
