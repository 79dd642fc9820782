"""Integers that a device's floats do not hold: what only moves keeps its bits, the rest is refused or found out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy
import onnx.helper
import pyopencl
import pytest
from support import make_model, run_oracle

import imgconv
from imgconv.cl.device import DeviceInfo

WIDE = ("int32", "int64", "uint32", "uint64")
EVERY = (*WIDE, "int8", "uint8", "int16", "uint16", "bool")
node = onnx.helper.make_node
MOVEMENT: dict[str, list[onnx.NodeProto]] = {
    "identity": [node("Identity", ["x"], ["y"])],
    "order": [node("Reshape", ["x", "shape"], ["r"]), node("Transpose", ["r"], ["y"], perm=[1, 0])],
    "join": [node("Concat", ["x", "known", "x"], ["y"], axis=0)],
    "choice": [node("Gather", ["x", "places"], ["y"])],
    "part": [node("Slice", ["x", "one", "three"], ["y"])],
    "again": [node("Expand", ["x", "twice"], ["y"])],
}
ARITHMETIC: dict[str, list[onnx.NodeProto]] = {
    "sum": [node("Add", ["x", "z"], ["y"])], "difference": [node("Sub", ["x", "z"], ["y"])],
    "product": [node("Mul", ["x", "z"], ["y"])], "largest": [node("Max", ["x", "z"], ["y"])],
    "size": [node("Abs", ["x"], ["y"])], "opposite": [node("Neg", ["x"], ["y"])],
    "quotient": [node("Div", ["x", "z"], ["y"])], "rest": [node("Mod", ["x", "z"], ["y"])],
    "total": [node("ReduceSum", ["x"], ["y"], keepdims=0)], "compared": [node("Less", ["x", "z"], ["y"])],
    "choice": [node("Less", ["x", "z"], ["c"]), node("Where", ["c", "x", "z"], ["y"])],
    "back": [node("Mul", ["x", "z"], ["m"]), node("Mod", ["m", "z"], ["y"])],
    "decided": [node("Mul", ["x", "z"], ["m"]), node("Less", ["m", "x"], ["y"])],
    "chosen by": [
        node("Mul", ["x", "z"], ["m"]), node("Equal", ["m", "x"], ["e"]), node("Not", ["e"], ["c"]),
        node("Where", ["c", "x", "z"], ["y"]),
    ],
    "position": [node("Mul", ["x", "z"], ["m"]), node("ArgMax", ["m"], ["y"], axis=0)],
    "power": [node("Pow", ["x", "z"], ["y"])], "square": [node("Mul", ["x", "x"], ["y"])],
    "clipped": [node("Mul", ["x", "z"], ["m"]), node("Min", ["m", "x"], ["y"])],
}
# Those that onnxruntime has for unsigned integers of 32 and 64 bits.
UNSIGNED = ("sum", "product", "largest", "quotient", "rest", "compared", "back", "decided", "square", "clipped")


def borders(dtype: str) -> Any:
    """Four numbers: the largest and the least of a type, and two of 2**24 + 1, 2**53 + 1 and the like."""
    limits = numpy.iinfo("uint8" if dtype == "bool" else dtype)
    middle = [2**n + 1 for n in (4, 9, 24, 53) if 2**n + 1 < limits.max][-2:]
    numbers = [limits.max, limits.min, *middle, 3][:4]
    return numpy.array(numbers, dtype) if dtype != "bool" else numpy.array([True, False, False, True])


def moving(name: str, x: Any) -> onnx.ModelProto:
    constants = {
        "shape": numpy.int64([2, 2]), "known": x[::-1].copy(), "places": numpy.int64([3, 0, 0, 1]),
        "one": numpy.int64([1]), "three": numpy.int64([3]), "twice": numpy.int64([2, 4]),
    }
    read = {each for n in MOVEMENT[name] for each in n.input}
    return make_model(MOVEMENT[name], {"x": x}, ["y"], 13, {n: a for n, a in constants.items() if n in read})


def outcome(model: onnx.ModelProto, feeds: dict[str, Any], device: DeviceInfo) -> bool:
    """Checks outputs against onnxruntime's; returns False if imgconv raises an error on integers past 2**24 instead."""
    expected = run_oracle(model, feeds)
    try:
        found = imgconv.load(model, device=device).run(feeds)
    except (imgconv.InputError, imgconv.RangeError, imgconv.UnsupportedError) as error:
        assert "2**24" in str(error)
        return False
    for name, want in expected.items():
        assert found[name].dtype == want.dtype
        numpy.testing.assert_array_equal(found[name], want, err_msg=name)
    return True


@pytest.mark.parametrize("dtype", EVERY)
def test_what_only_moves_keeps_its_bits(device: DeviceInfo, dtype: str) -> None:
    x = borders(dtype)
    for name in MOVEMENT:
        assert outcome(moving(name, x), {"x": x}, device), name


@pytest.mark.parametrize("dtype", WIDE)
def test_arithmetic_is_right_or_says_so(device: DeviceInfo, dtype: str) -> None:
    """With numbers that pass 2**24 as they are, on the way, or not at all."""
    pairs = [([5, 7, 2, 4000], [3, 2, 9, 4000])]
    pairs += [([4096, 3, 2, 5], [n, 2, 1, 1]) for n in (4095, 4096, 4097)]
    pairs += [([n, 3, 5, 6], [1, 2, 3, 4]) for n in (2**24 - 1, 2**24, 2**24 + 1, 2**31 - 1)]
    if not dtype.startswith("u"):
        pairs += [([n, -3, 5, 6], [-1, 2, 3, 4]) for n in (-(2**24), -(2**24) - 1, -(2**31) + 1)]
        pairs += [([2**24, 1, -(2**24), 0], [1] * 4), ([1 - 2**24, 7, 2**24, 1], [1] * 4)]
    right = []
    for name in UNSIGNED if dtype.startswith("u") else ARITHMETIC:
        for x, z in pairs:
            feeds = {"x": numpy.array(x, dtype), "z": numpy.array(z, dtype)}
            feeds = {n: a for n, a in feeds.items() if n in {each for part in ARITHMETIC[name] for each in part.input}}
            right.append(outcome(make_model(ARITHMETIC[name], feeds, ["y"], 13), feeds, device))
    assert 0.4 < sum(right) / len(right) < 0.9


def test_an_input_past_the_floats_is_named(device: DeviceInfo) -> None:
    model = imgconv.load(make_model([node("Abs", ["x"], ["y"])], {"x": numpy.zeros(2, "int32")}, ["y"], 13), device)
    message = r"input 'x' holds -2147483648: .* exact up to 2\*\*24 = 16777216"
    array = numpy.int32([7, -(2**31)])
    for run in (lambda: model.run({"x": array}), lambda: model.submit({"x": array}).result()):
        with pytest.raises(imgconv.InputError, match=message):
            run()
    assert model.run({"x": numpy.int32([7, -(2**24)])})["y"].tolist() == [7, 2**24]
    product = make_model([node("Mul", ["x", "x"], ["y"])], {"x": numpy.zeros(2, "int32")}, ["y"], 13)
    with pytest.raises(imgconv.RangeError, match=r"output 'y' depends on an integer that reached 2\*\*24"):
        imgconv.load(product, device).submit({"x": numpy.int32([7, 5000])}).result()


def test_constants_that_floats_do_not_hold(device: DeviceInfo) -> None:
    """Added or compared, one of 2**24 + 1 is refused; the largest of a type may be a bound or a filling."""
    x = numpy.int32([5, 2**24, 9])

    def model(*nodes: onnx.NodeProto, known: int) -> onnx.ModelProto:
        return make_model(nodes, {"x": x}, ["y"], 13, {"known": numpy.int32(known), "two": numpy.int32(9)})

    for op_type in ("Add", "Less", "Equal"):
        with pytest.raises(imgconv.UnsupportedError, match=r"above 2\*\*24"):
            imgconv.load(model(node(op_type, ["x", "known"], ["y"]), known=2**24 + 1), device)
    masked = [node("Less", ["x", "two"], ["c"]), node("Where", ["c", "x", "known"], ["w"])]
    assert outcome(model(node("Min", ["x", "known"], ["y"]), known=2**31 - 1), {"x": x}, device)
    assert outcome(model(*masked, node("ReduceMin", ["w"], ["y"]), known=2**31 - 1), {"x": x}, device)
    assert outcome(model(node("Less", ["x", "known"], ["y"]), known=2**31 - 1), {"x": x}, device)
    assert not outcome(model(*masked, node("Identity", ["w"], ["y"]), known=2**31 - 1), {"x": x}, device)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_integers_made_of_floats(device: DeviceInfo, dtype: str) -> None:
    """Integers past 2**24 stay exact, and so do comparisons of them; sums of them are reported."""
    x = numpy.float32([1e8, -3.7, 2.0**30])
    cast = node("Cast", ["x"], ["i"], to=onnx.helper.np_dtype_to_tensor_dtype(numpy.dtype(dtype)))
    for last, exact in (
        (node("Abs", ["i"], ["y"]), True), (node("Max", ["i", "one"], ["y"]), True),
        (node("Less", ["i", "one"], ["y"]), True), (node("Add", ["i", "one"], ["y"]), False),
    ):
        constants = {"one": numpy.ones((), dtype)} if "one" in last.input else {}
        assert outcome(make_model([cast, last], {"x": x}, ["y"], 13, constants), {"x": x}, device) == exact
    broken = make_model([cast], {"x": x}, ["i"], 13)
    for number in (numpy.nan, numpy.inf, -1e30):
        with pytest.raises(imgconv.RangeError, match=f"a value outside the range of {dtype}"):
            imgconv.load(broken, device).run({"x": numpy.float32([0, number, 1])})


def test_moved_and_computed(device: DeviceInfo, tmp_path: Path) -> None:
    """One output moves on the host, another is computed on the device; saved, submitted, and in an array brought."""
    x = numpy.int64([2**62 + 1, -5, 7])
    nodes = [
        node("Concat", ["x", "x"], ["moved"], axis=0), node("Relu", ["f"], ["computed"]),
        node("Gather", ["x", "places"], ["chosen"]),
    ]
    feeds = {"x": x, "f": numpy.float32([-1, 2]), "places": numpy.int32([2, 0])}
    proto = make_model(nodes, feeds, ["moved", "computed", "chosen"], 13)
    model = imgconv.load(proto, device=device)
    expected = run_oracle(proto, feeds)
    model.save(tmp_path / "m")
    brought = numpy.empty(6, numpy.int64)
    for found in (
        model.run(feeds), model.submit(feeds).result(), model.run(feeds, {"moved": brought}),
        imgconv.load(tmp_path / "m", device=device).run(feeds),
    ):
        assert [*found] == ["moved", "computed", "chosen"]
        for name, want in expected.items():
            numpy.testing.assert_array_equal(found[name], want, err_msg=name)
    assert model.run(feeds, {"moved": brought})["moved"] is brought
    with pytest.raises(imgconv.InputError, match="not made on the device"):
        model.mapped()
    memory = pyopencl.Buffer(model.queue.context, pyopencl.mem_flags.READ_WRITE, 12)
    with pytest.raises(imgconv.InputError, match="input 'x' reaches moved, chosen through the host"):
        model.run({**feeds, "x": memory})


def test_a_frame_moves_what_it_was_given(device: DeviceInfo) -> None:
    """An array may be changed once submit returns."""
    x = numpy.int64([2**40 + 1])
    model = imgconv.load(make_model([node("Identity", ["x"], ["y"])], {"x": x}, ["y"], 13), device=device)
    frame = model.submit({"x": x})
    x[0] = 0
    assert frame.result()["y"] == 2**40 + 1
