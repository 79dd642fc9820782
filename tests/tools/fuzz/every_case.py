"""The cases of every operator, by the opsets in which they mean the same."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from functools import cache

import numpy
import onnx.defs
import onnx.helper
import onnx.parser
from operator_cases import Case, Constant
from operator_cases.microsoft import COMPUTED
from test_operators import FAMILIES

from imgconv import ops

OPSETS = range(9, 27)  # onnxruntime's newest
FILES = ("attention", "deformable", "einsum", "microsoft_quantization", "quantization", "recurrent")
X, ROW = (3, 4), (7,)


def _body(text: str) -> onnx.GraphProto:
    return onnx.parser.parse_graph(text)


def further() -> Iterator[Case]:
    """Operators that the tests of single nodes leave out, and those whose results have a size that depends on data."""
    yield Case("Swish", 24, (X,), {"alpha": 0.7})
    yield Case("CumProd", 26, (X, Constant(numpy.array(1))), {"reverse": 1})
    turn = _body("body (int64 ti, bool tc, float[3,4] ts) => (bool td, float[3,4] tt, float[3,4] row)"
                 " { td = Identity(tc)  tt = Tanh(ts)  row = Abs(tt) }")
    step = _body("body (float[4] ss, float[4] sx) => (float[4] st, float[4] sy) { st = Add(ss, sx)  sy = Sigmoid(st) }")
    for opset in (11, 13, 19):
        for trips in (0, 1, 3):
            number = Constant(numpy.array(trips))
            yield Case("Loop", opset, (number, Constant(numpy.array(True)), X), {"body": turn}, outputs=2)
        yield Case("Scan", opset, ((4,), X), {"body": step, "num_scan_inputs": 1}, outputs=2)
        yes, no = (_body(f"branch () => (float[3] by) {{ by = Constant <value = float[3] {{{row}}}> () }}")
                   for row in ("1, 2, 3", "4, 5, 6"))
        for condition in (False, True):
            yield Case("If", opset, (Constant(numpy.array(condition)),), {"then_branch": yes, "else_branch": no})
    for opset in (9, 13):
        yield Case("NonZero", opset, (X,), {})
    yield Case("Unique", 11, (ROW,), {})
    yield Case("Unique", 11, (X,), {"axis": 0})
    yield Case("NonMaxSuppression", 11, ((1, 6, 4), (1, 2, 6), Constant(numpy.array([3]))), {})
    many = numpy.random.default_rng(0).integers(0, 7, 20_000)
    yield Case("Gather", 13, (ROW, Constant(many)), {})
    for name in ("Acos", "Asin", "Atanh"):
        yield Case(name, 9, (X,), {})


def every_case() -> Iterator[Case]:
    """All cases of the tests of operators, and further ones."""
    for each in (FAMILIES, *(importlib.import_module(f"test_{file}").FAMILIES for file in FILES)):
        for family in each.values():
            yield from family
    yield from (case for case, _ in COMPUTED)
    yield from further()


@cache
def since(op_type: str, domain: str, opset: int) -> int:
    """The version of the operator's definition; 0 for one that ONNX does not define."""
    try:
        return onnx.defs.get_schema(op_type, opset, domain).since_version
    except onnx.defs.SchemaError:
        return 0


@cache
def by_opset() -> dict[int, tuple[Case, ...]]:
    """The cases that may stand in a model of an opset. An operator that it defines as the case's opset does may."""
    known = set(ops.supported())
    every = [case for case in every_case() if ops.qualified(case.domain, case.op_type) in known]
    return {
        opset: tuple(
            c for c in every if c.domain or c.opset == opset or 0 < since(c.op_type, "", c.opset) == since(
                c.op_type, "", opset)
        ) for opset in OPSETS
    }


@cache
def by_operator(opset: int) -> dict[str, tuple[Case, ...]]:
    """The cases of an opset by their operators: some have many more than others."""
    found: dict[str, list[Case]] = {}
    for case in by_opset()[opset]:
        found.setdefault(ops.qualified(case.domain, case.op_type), []).append(case)
    return {name: tuple(rows) for name, rows in found.items()}
