"""Integers, whose narrow types wrap around."""

from __future__ import annotations

from typing import Any

import numpy
import onnx
import onnx.helper
from operator_cases import Constant, scalar, several, whole
from support import make_model

NARROW = (numpy.int8, numpy.uint8, numpy.int16, numpy.uint16)
WIDE = (numpy.int32, numpy.int64, numpy.uint32, numpy.uint64)


def integers(dtype: Any, *shape: int, seed: int = 2, small: bool = False) -> Any:
    """Random integers over a type's range, or within 2**11; for 32 and 64 bits always within 2**11."""
    limits = numpy.iinfo(dtype)
    reach = 2**11 if small or limits.bits > 16 else limits.max + 1
    return numpy.random.default_rng(seed).integers(max(limits.min, -reach), reach, shape).astype(dtype)


def divisors(dtype: Any, *shape: int) -> Any:
    """Integers without zero."""
    found = integers(dtype, *shape, seed=4) // 16
    return numpy.where(found == 0, 3, found).astype(dtype)


INTEGERS = [
    *(case for dtype in NARROW + WIDE for op in ("Add", "Sub", "Mul") for case in several(op, (14,), [
        (numpy.maximum(integers(dtype, 3, 7), integers(dtype, 7, seed=4)), integers(dtype, 7, seed=4))
        if op == "Sub" and dtype in (numpy.uint32, numpy.uint64) else
        (integers(dtype, 3, 7), integers(dtype, 7, seed=4)), ])),
    *(case for dtype in NARROW + WIDE for case in several("Div", (14,), [(integers(dtype, 9, 7), divisors(dtype, 7)),
        (integers(dtype, 9, 7), Constant(numpy.array(3, dtype)))])),
    *(case for dtype in NARROW + WIDE
      for case in several("Mod", (10, 13), [(integers(dtype, 9, 7), divisors(dtype, 7))], [{}, {"fmod": 1}])),
    *(case for op in ("Neg", "Abs") for case in several(op, (13,), [(numpy.array([-128, 0, 127, -5], numpy.int8),),
        (whole(5, dtype=numpy.int32),), (numpy.array([-32768, 32767, 4], numpy.int16),)])),
    *(case for dtype in (numpy.int32, numpy.int64) for case in several("Pow", (13, 15), [
        (whole(4, 7, dtype=dtype), Constant(numpy.arange(7, dtype=dtype))),
        (whole(4, 7, dtype=dtype), numpy.arange(7).astype(dtype)), (whole(5, dtype=dtype), scalar(3)),
        (numpy.array([2, -1, 1, 0], dtype), numpy.array([24, 31, 99, 64], dtype))])),
    *(case for op in ("Min", "Max") for dtype in (numpy.int8, numpy.uint8, *WIDE)
      for case in several(op, (13,), [(integers(dtype, 3, 5), integers(dtype, 5, seed=4))])),
    *(case for op in ("ReduceSum", "ReduceMean", "ReduceSumSquare", "ReduceL1", "ReduceL2", "ReduceProd")
      for dtype in (numpy.int32, numpy.int64)
      for case in several(op, (11,), [(whole(3, 4, 2, low=-5, high=6, dtype=dtype),)],
          [{"axes": [1]}, {"axes": [0, 2], "keepdims": 0}])),
    *(case for op in ("ReduceMax", "ReduceMin") for dtype in (numpy.int8, numpy.uint8, numpy.int32, numpy.int64)
      for case in several(op, (13,), [(integers(dtype, 3, 4, 2),)], [{"axes": [1]}])),
    *(case for dtype in NARROW for case in several("Cast", (13,), [(whole(9, low=-70000, high=70000),),
        (whole(9, low=0, high=2**24, dtype=numpy.int32),)],
        [{"to": onnx.helper.np_dtype_to_tensor_dtype(numpy.dtype(dtype))}])),
    *several("Cast", (13,), [(integers(numpy.int8, 9),), (integers(numpy.uint8, 9),)],
        [{"to": n} for n in (2, 3, 6, 7)]),
    *(case for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor") for dtype in NARROW
      for case in several(op, (18,), [(integers(dtype, 3, 7), integers(dtype, 7, seed=4)),
          (integers(dtype, 7), Constant(integers(dtype, 7, seed=4)))])),
    *(case for dtype in NARROW for case in several("BitwiseNot", (18,), [(integers(dtype, 9),)])),
    *(case for d in ("LEFT", "RIGHT") for case in several("BitShift", (11,), [
        (integers(numpy.uint8, 4, 7), numpy.arange(7, dtype=numpy.uint8)),
        (Constant(integers(numpy.uint32, 7)), Constant(numpy.arange(7, dtype=numpy.uint32))),
    ], [{"direction": d}])),
    *(case for op in ("Less", "Equal", "Greater") for case in several(op, (13,),
        [(integers(numpy.int32, 3, 5), integers(numpy.int32, 5, seed=4))])),
]


def wrapping_model(dtype: Any) -> tuple[onnx.ModelProto, dict[str, Any], dict[str, Any]]:
    """A model that reads, as float, what wrapped around; its inputs and what numpy says."""
    a, b = integers(dtype, 3, 7), integers(dtype, 7, seed=4)
    kind = onnx.helper.np_dtype_to_tensor_dtype(numpy.dtype(dtype))
    wide = {"Add": a + b, "Sub": a - b, "Mul": a * b, "Cast": a.astype(numpy.int32) * 5}
    nodes = [onnx.helper.make_node(op, ["a", "b"], [op], name=op) for op in ("Add", "Sub", "Mul")]
    nodes += [
        onnx.helper.make_node("Cast", ["a"], ["wide"], to=onnx.TensorProto.INT32),
        onnx.helper.make_node("Mul", ["wide", "five"], ["five_times"]),
        onnx.helper.make_node("Cast", ["five_times"], ["Cast"], to=kind),
        *(onnx.helper.make_node("Cast", [name], [f"{name}_read"], to=onnx.TensorProto.FLOAT) for name in wide),
    ]
    feeds = {"a": a, "b": b}
    model = make_model(nodes, feeds, [f"{name}_read" for name in wide], 14, {"five": numpy.array(5, numpy.int32)})
    return model, feeds, {f"{n}_read": array.astype(dtype).astype(numpy.float32) for n, array in wide.items()}
