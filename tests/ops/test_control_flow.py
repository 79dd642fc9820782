"""The operators If, Loop and Scan, and those that ONNX defines by functions: results against onnxruntime's, errors."""

from __future__ import annotations

import re
from typing import Any

import numpy
import onnx
import onnx.parser
import pytest
from support import ENGINES, OLD_ORACLE, OLD_ORACLE_REASON, assert_close, run_model, run_oracle

import imgconv
from imgconv.errors import ContentError, ModelError, UnsupportedError
from imgconv.graph.evaluate import evaluate_graph
from imgconv.onnx_import import UNROLLED_NODES, import_onnx
from imgconv.passes import run_passes

X = numpy.linspace(-1, 2, 12, dtype=numpy.float32).reshape(3, 4)
CUBE = numpy.linspace(-1, 2, 24, dtype=numpy.float32).reshape(2, 3, 4)


def model_of(text: str, opset: int) -> onnx.ModelProto:
    """A model of ONNX's text form: the graph, without its header."""
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]>\n{text}')


def check(text: str, opset: int, inputs: dict[str, Any], engine: str, tolerance: float = 1e-6) -> None:
    model = model_of(text, opset)
    onnx.checker.check_model(model)
    assert_close(run_model(model, inputs, engine), run_oracle(model, inputs), tolerance)


IF = """
agraph (float[3,4] x) => (float[3,4] y) <bool c = {%d}, float w = {2.5}> {
    outer = Relu(x)
    y = If (c) <
        then_branch = then () => (float[3,4] a) { s = Shape(x)  outer2 = Neg(outer)  a = Mul(outer2, w) },
        else_branch = other () => (float[3,4] b) <float w2 = {-1}> { h = Add(x, w2)  b = Mul(h, outer) }
    >
}"""
NESTED_IF = """
agraph (float[3,4] x) => (float[3,4] y, float[3,4] z) <bool yes = {1}, bool no = {0}> {
    y, z = If (yes) <
        then_branch = then () => (float[3,4] a, float[3,4] b) {
            t = Neg(x)
            a = If (no) <
                then_branch = inner () => (float[3,4] p) { p = Identity(t) },
                else_branch = inner2 () => (float[3,4] q) { q = Add(t, t) }
            >
            b = Abs(t)
        },
        else_branch = other () => (float[3,4] c, float[3,4] d) { c = Identity(x)  d = Identity(x) }
    >
}"""


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("opset", [11, 13, 21, 24])
@pytest.mark.parametrize("condition", [0, 1])
def test_if(condition: int, opset: int, engine: str) -> None:
    check(IF % condition, opset, {"x": X}, engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_if_inside_of_if(engine: str) -> None:
    check(NESTED_IF, 13, {"x": X}, engine)


def test_the_branch_that_is_not_taken_may_hold_anything() -> None:
    text = IF.replace("a = Mul(outer2, w)", "seq = SequenceConstruct(x)  n = SequenceLength(seq)  a = Mul(outer2, w)")
    assert_close(run_model(model_of(text % 0, 13), {"x": X}), run_oracle(model_of(IF % 0, 13), {"x": X}), 1e-6)


# A loop that carries two tensors, reads one from around it and stacks two. %s: M and the condition.
LOOP = """
agraph (float[3,4] x) => (float[3,4] last, float[?,?] grown, float[?,4] rows, float[?] sums)
    <int64 three = {3}, int64 none = {0}, bool yes = {1}, float[1,4] first = {0,0,0,0}> {
    last, grown, rows, sums = Loop (%s, x, first) <body = body (int64 i, bool go, float[3,4] state, float[?,?] part) =>
        (bool more, float[3,4] next, float[?,?] longer, float[4] row, float sum)
        <int64[1] one = {1}, int64[1] axis = {0}> {
            more = Identity(go)
            number = Cast <to = 1> (i)
            scaled = Mul(state, number)
            next = Add(scaled, x)
            row = Gather <axis = 0> (next, i)
            row2 = Unsqueeze(row, axis)
            longer = Concat <axis = 0> (part, row2)
            sum = ReduceSum <keepdims = 0> (next)
        }
    >
}"""
# Ends by its own condition, which depends on the iteration's number alone.
WHILE = """
agraph (float[3,4] x) => (float[3,4] last, int64[?] numbers) <int64 many = {100}, bool yes = {1}, int64 five = {5}> {
    last, numbers = Loop (%s, yes, x) <body = body (int64 i, bool go, float[3,4] state) =>
        (bool more, float[3,4] next, int64 number) {
            more = Less(i, five)
            next = Sub(x, state)
            number = Identity(i)
        }
    >
}"""
NESTED_LOOP = """
agraph (float[3,4] x) => (float[3,4] y) <int64 two = {2}, int64 three = {3}, bool yes = {1}> {
    y = Loop (two, yes, x) <body = outer (int64 i, bool go, float[3,4] a) => (bool more, float[3,4] b) {
        more = Identity(go)
        b = Loop (three, go, a) <body = inner (int64 j, bool go2, float[3,4] c) => (bool more2, float[3,4] d) {
            more2 = Identity(go2)
            sum = Add(i, j)
            number = Cast <to = 1> (sum)
            d = Add(c, number)
        }>
    }>
}"""


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("opset", [13, 16, 21])
@pytest.mark.parametrize("limits", ["three, yes", "three, "])
def test_loop(limits: str, opset: int, engine: str) -> None:
    check(LOOP % limits, opset, {"x": X}, engine)


@pytest.mark.parametrize("limit", ["many", ""])
def test_a_loop_ends_where_its_condition_says(limit: str) -> None:
    check(WHILE % limit, 13, {"x": X}, "reference")


def test_a_loop_of_no_iterations() -> None:
    found = run_model(model_of(LOOP % "none, yes", 13), {"x": X})
    assert_close(found, {
        "last": X, "grown": numpy.zeros((1, 4), "f"), "rows": numpy.zeros((0, 4), "f"), "sums": numpy.zeros(0, "f"),
    }, 1e-6)


def test_loops_inside_of_loops() -> None:
    check(NESTED_LOOP, 13, {"x": X}, "reference")


def test_a_long_loop_becomes_kernels_of_some_length() -> None:
    """Its elementwise work would otherwise be one expression of 600 operations, too deep to walk."""
    text = """
    agraph (float[3,4] x) => (float[3,4] y) <int64 many = {200}, float half = {0.5}> {
        y = Loop (many, , x) <body = body (int64 i, bool go, float[3,4] s) => (bool go, float[3,4] t) {
            a = Mul(s, half)  b = Sin(a)  t = Add(b, x)
        }>
    }"""
    graph = import_onnx(model_of(text, 13))
    shorter = run_passes(graph)
    assert len(graph.nodes) == 600
    assert 4 < len(shorter.nodes) < 12
    assert_close(evaluate_graph(shorter, {"x": X}), evaluate_graph(graph, {"x": X}), 1e-6)


def test_a_name_of_a_body_hides_the_same_name_around_it() -> None:
    """ONNX forbids it and exporters do it: the body's own `w` counts inside, the outer one outside."""
    text = """
    agraph (float[3,4] x) => (float[3,4] y) <int64 two = {2}, float w = {3}> {
        a = Loop (two, , x) <body = body (int64 i, bool go, float[3,4] s) => (bool go, float[3,4] t) <float w = {5}> {
            t = Add(s, w)
        }>
        y = Mul(a, w)
    }"""
    assert_close(run_model(model_of(text, 13), {"x": X}), {"y": (X + 10) * 3}, 1e-6)


# States, then scanned inputs; running sums and products along an axis.
SCAN = """
agraph (float[3] start, float[2,3,4] x, float[4,5] z) => (float[3] last, float[?,?] sums, float[?,?] others) {
    last, sums, others = Scan <num_scan_inputs = 2, scan_input_axes = [2, 0], %s
        body = body (float[3] state, float[2,3] a, float[5] b) => (float[3] next, float[3] sum, float[5] other) <
            int64[1] axis = {0}> {
            total = ReduceSum <keepdims = 0> (a, axis)
            next = Add(state, total)
            sum = Mul(next, state)
            other = Neg(b)
        }> (start, x, z)
}"""
SCAN_INPUTS = {
    "start": numpy.array([1, 2, 3], "f"), "x": CUBE, "z": numpy.linspace(0, 3, 20, dtype=numpy.float32).reshape(4, 5)
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("opset", [13, 16, 21])
@pytest.mark.parametrize("settings", [
    "", "scan_input_directions = [1, 0],", "scan_output_axes = [1, -1],",
    "scan_input_directions = [0, 1], scan_output_directions = [1, 0], scan_output_axes = [0, 1],",
])
def test_scan(settings: str, opset: int, engine: str) -> None:
    check(SCAN % settings, opset, SCAN_INPUTS, engine)


@pytest.mark.parametrize("lengths", ["", "lengths"])
@pytest.mark.parametrize("settings", ["", "directions = [1],"])
def test_scan_of_opset_8(settings: str, lengths: str) -> None:
    """Each sequence of the batch alone, as far as its length; onnxruntime's answer for directions 0."""
    text = """
    agraph (float[2,4] start, float[2,3,4] x) => (float[2,4] last, float[2,3,4] sums) <int64[2] lengths = {2, 3}> {
        last, sums = Scan <num_scan_inputs = 1, SETTINGS body = body (float[4] s, float[4] a) =>
            (float[4] t, float[4] u) {
            t = Add(s, a)
            u = Neg(t)
        }> (LENGTHS, start, x)
    }""".replace("SETTINGS", settings).replace("LENGTHS", lengths)
    start = numpy.array([[1, 2, 3, 4], [0, 0, 0, 1]], "f")
    last, sums = start.copy(), numpy.zeros_like(CUBE)
    for i, length in enumerate((2, 3) if lengths else (3, 3)):
        for t in range(length):
            last[i] += CUBE[i, length - 1 - t if settings else t]
            sums[i, t] = -last[i]
    assert_close(run_model(model_of(text, 8), {"start": start, "x": CUBE}), {"last": last, "sums": sums}, 1e-6)


REFUSED = [
    ("""agraph (float[2] x, bool c) => (float[2] y) {
        [chosen] y = If (c) <then_branch = a () => (float[2] p) { p = Neg(x) },
                    else_branch = b () => (float[2] q) { q = Abs(x) }>
     }""", {"x": X[0, :2], "c": numpy.array(True)}, ContentError, "chosen", "condition .* depends on input c"),
    ("""agraph (float[2] x, int64 n) => (float[2] y) {
        [loop] y = Loop (n, , x) <body = b (int64 i, bool c, float[2] p) => (bool c, float[2] q) { q = Neg(p) }>
     }""", {"x": X[0, :2], "n": numpy.array(2)}, ContentError, "loop", "trip count M .* depends on input n"),
    ("""agraph (float[2] x) => (float[2] y) <int64 n = {9}, bool yes = {1}> {
        [loop] y = Loop (n, yes, x) <body = b (int64 i, bool c, float[2] p) => (bool d, float[2] q) {
            q = Neg(p)  s = ReduceSum <keepdims = 0> (p)  d = Less(s, s) }>
     }""", {"x": X[0, :2]}, ContentError, "loop", "condition .* depends on input x"),
    ("""agraph (float[2] x) => (float[2] y) {
        [loop] y = Loop ( , , x) <body = b (int64 i, bool c, float[2] p) => (bool c, float[2] q) { q = Neg(p) }>
     }""", {"x": X[0, :2]}, UnsupportedError, "loop", "never ends"),
    ("""agraph (float[2] x) => (float[2] y) <int64 n = {2}> {
        [loop] y = Loop (n, , x) <body = b (int64 i, bool c, float[2] p) => (bool c, float[2] q) {
            [inner] s = SequenceConstruct(p)  q = SequenceAt(s, n) }>
     }""", {"x": X[0, :2]}, ModelError, "loop/SequenceAt_1", "position 2 in a sequence of 1"),
    ("""agraph (float[2] x) => (float[2] y) <bool c = {1}> {
        [chosen] y = If (c) <then_branch = a () => (float[2] p) { [add] p = Add(x, nothing) },
                    else_branch = b () => (float[2] q) { q = Abs(x) }>
     }""", {"x": X[0, :2]}, ModelError, "chosen/add", "reads 'nothing'"),
    ("""agraph (float[2,3] x, float[3,3] z) => (float[?,3] y) {
        [scan] y = Scan <num_scan_inputs = 2, body = a (float[3] p, float[3] q) => (float[3] r) { r = Add(p, q) }>
            (x, z)
     }""", {"x": CUBE[0, :2, :3], "z": CUBE[0, :3, :3]}, ModelError, "scan", r"\[2, 3\] elements"),
]


@pytest.mark.parametrize(("text", "inputs", "error", "node", "message"), REFUSED)
def test_refused(text: str, inputs: dict[str, Any], error: type[ModelError], node: str, message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        run_model(named(text), inputs)
    assert caught.value.node == node


def test_a_loop_that_is_too_long_to_unroll_runs_on_the_host() -> None:
    text = """agraph (float[2] x) => (float[2] y) <int64 n = {10001}, float one = {1}> {
        z = Neg(x)
        [loop] y = Loop (n, , z) <body = b (int64 i, bool c, float[2] p) => (bool c, float[2] q) { q = Add(p, one) }>
    }"""
    x = numpy.array([1, 2], numpy.float32)
    assert_close(imgconv.load(named(text)).run({"x": x}), {"y": 10001 - x}, 0)  # whole numbers of less than 2**24
    with pytest.raises(UnsupportedError, match=f"'loop'.*more than {UNROLLED_NODES} nodes"):
        imgconv.load(named(text), strict=True)


def named(text: str) -> onnx.ModelProto:
    """The model of a text in which ``[name]`` before a node is the node's name; older parsers do not read them."""
    import re
    names: dict[str, str] = {}

    def note(match: re.Match[str]) -> str:
        names[match[2]] = match[1]
        return match[2]

    model = model_of(re.sub(r"\[([a-z]+)\] (\w+)(?= =)", note, text), 13)
    waiting = list(model.graph.node)
    for node in waiting:
        node.name = names.get(node.output[0], "")
        waiting += [inner for a in node.attribute for inner in a.g.node]
    return model


# Operators that ONNX defines as functions of others and that have no file of their own


def heads(*shape: int) -> Any:
    return numpy.random.default_rng(len(shape)).normal(size=shape).astype(numpy.float32)


FUNCTIONS = [
    (23, "y = Attention (q, k, v)", {"q": heads(1, 2, 3, 4), "k": heads(1, 2, 5, 4), "v": heads(1, 2, 5, 6)}),
    (23, "y = Attention <is_causal = 1, scale = 0.3, softcap = 2.0> (q, k, v)",
     {"q": heads(2, 4, 3, 4), "k": heads(2, 2, 3, 4), "v": heads(2, 2, 3, 4)}),
    (23, "y = Attention <q_num_heads = 2, kv_num_heads = 2> (q, k, v, m)",
     {"q": heads(1, 3, 8), "k": heads(1, 5, 8), "v": heads(1, 5, 8), "m": heads(3, 5)}),
    (23, "y = RotaryEmbedding (x, c, s)", {"x": heads(2, 3, 4, 8), "c": heads(2, 4, 4), "s": heads(2, 4, 4)}),
    (23, "y = RotaryEmbedding <interleaved = 1, num_heads = 2> (x, c, s)",
     {"x": heads(2, 4, 16), "c": heads(2, 4, 4), "s": heads(2, 4, 4)}),
    (17, "n = Constant <value_int = 9> () y = HannWindow (n)", {}),
    (17, "n = Constant <value_int = 9> () y = HammingWindow <periodic = 0> (n)", {}),
    (17, "n = Constant <value_int = 6> () y = BlackmanWindow <periodic = 0> (n)", {}),
]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("opset", "text", "inputs"), FUNCTIONS)
def test_functions_of_onnx(opset: int, text: str, inputs: dict[str, Any], engine: str) -> None:
    if OLD_ORACLE and "is_causal" in text:
        pytest.skip(OLD_ORACLE_REASON)
    declared = ", ".join(f"float{list(array.shape)} {name}" for name, array in inputs.items())
    model = model_of(f"agraph ({declared}) => (float[{','.join('?' * _rank(text, inputs))}] y) {{ {text} }}", opset)
    assert_close(run_model(model, inputs, engine), run_oracle(model, inputs), 2e-6)


def _rank(text: str, inputs: dict[str, Any]) -> int:
    return max((array.ndim for array in inputs.values()), default=1)


def test_a_function_that_needs_what_is_missing_is_refused_by_name() -> None:
    model = named("agraph (float[2] x) => (float[2] y) { [chance] y = Bernoulli (x) }")
    model.opset_import[0].version = 15
    with pytest.raises(UnsupportedError, match=r"RandomUniformLike \(1 node: chance/"):
        import_onnx(model)
