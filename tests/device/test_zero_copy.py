"""Kernels that take the caller's arrays, on devices that read the host's memory; all other devices copy them."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy
import pyopencl
import pytest

import imgconv
from imgconv.cl.device import DeviceInfo
from imgconv.runtime.io_binding import IOBinding
from imgconv.runtime.zero_copy import are_separate_arrays, can_bind_arrays
from imgconv.runtime.session import Session
from imgconv.tensor import Tensor, build_graph, convolution

SHAPE = (1, 6, 10, 8)
WEIGHTS = numpy.random.default_rng(5).normal(size=(6, 6, 1, 1)).astype(numpy.float32)


def network() -> imgconv.Graph:
    """y is made in a texture and unpacked, z = 2 * offset - 1 is read from a buffer and written to one."""
    x, offset = Tensor.input("x", SHAPE), Tensor.input("offset", (3, 5))
    y = convolution(x, Tensor.constant(WEIGHTS), [1, 1], [0] * 4, [1, 1])
    return build_graph({"y": y, "z": offset * 2.0 - 1.0}, [x, offset], "network")


def drawn(seed: int, *shape: int) -> Any:
    return numpy.random.default_rng(seed).normal(size=shape).astype(numpy.float32)


def expected(x: Any, offset: Any) -> dict[str, Any]:
    return {"y": numpy.einsum("oi,nihw->nohw", WEIGHTS[:, :, 0, 0], x), "z": 2 * offset - 1}


def check(found: Any, x: Any, offset: Any) -> None:
    for name, array in expected(x, offset).items():
        numpy.testing.assert_allclose(found[name], array, 0, 1e-5)  # six products of numbers up to 3, in float


def session_of(model: imgconv.Model) -> Session:
    return model._last.session


def needs_arrays(model: imgconv.Model) -> None:
    """Skips a device that copies."""
    if not can_bind_arrays(session_of(model)._launching):
        pytest.skip("the device copies arrays")


def test_nothing_is_copied(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    model = imgconv.load(network(), device)
    needs_arrays(model)

    def refuse(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("a copy")

    monkeypatch.setattr(pyopencl, "enqueue_copy", refuse)
    for seed in range(3):
        x, offset = drawn(seed, *SHAPE), drawn(seed + 9, 3, 5)
        x.flags.writeable = seed > 0
        mine = numpy.empty(SHAPE, numpy.float32)
        found = model.run({"x": x, "offset": offset}, {"y": mine} if seed else None)
        assert not seed or found["y"] is mine
        check(found, x, offset)


@pytest.mark.parametrize("change", [
    lambda a: a.astype(numpy.float64), lambda a: numpy.asfortranarray(a), lambda a: numpy.repeat(a, 2, -1)[..., ::2],
    lambda a: numpy.frombuffer(b"-" + a.tobytes(), numpy.float32, offset=1).reshape(a.shape),
], ids=["float64", "fortran", "steps", "unaligned"])
def test_any_array(device: DeviceInfo, change: Any) -> None:
    """Arrays that kernels cannot read in place are copied first."""
    model, x, offset = imgconv.load(network(), device), drawn(1, *SHAPE), drawn(2, 3, 5)
    check(model.run({"x": change(x), "offset": change(offset)}), x, offset)


def test_an_output_in_the_memory_of_an_input(device: DeviceInfo) -> None:
    """The kernel would read what it has written."""
    x = Tensor.input("x", (200, 200))
    model = imgconv.load(build_graph({"y": x.transpose(1, 0) + 1.0}, [x], "turned"), device)
    given = drawn(3, 200, 200)
    wanted = given.T + 1
    assert model.run({"x": given}, {"y": given})["y"] is given
    numpy.testing.assert_array_equal(given, wanted)


def test_memory_of_the_device_between_arrays(device: DeviceInfo) -> None:
    """Runs with buffers use the plan's own memory, and the next run with arrays does not."""
    model, x, offset = imgconv.load(network(), device), drawn(4, *SHAPE), drawn(5, 3, 5)
    buffer = pyopencl.Buffer(model.queue.context, pyopencl.mem_flags.READ_WRITE, x.nbytes)
    pyopencl.enqueue_copy(model.queue, buffer, x)
    for _ in range(2):
        check(model.run({"x": -x, "offset": offset}), -x, offset)
        check(model.run({"x": buffer, "offset": offset}), x, offset)


def test_an_output_that_is_an_input(device: DeviceInfo) -> None:
    """One buffer serves both."""
    x = Tensor.input("x", SHAPE)
    model, given = imgconv.load(build_graph({"x": x, "y": x + 1.0}, [x], "same"), device), drawn(6, *SHAPE)
    found = model.run({"x": given})
    numpy.testing.assert_array_equal(found["x"], given)
    numpy.testing.assert_array_equal(found["y"], given + 1)
    assert not numpy.shares_memory(found["x"], given)


def test_who_copies(device: DeviceInfo) -> None:
    """A device with memory of its own."""
    model = imgconv.load(network(), dataclasses.replace(device, shares_memory=False))
    assert not can_bind_arrays(session_of(model)._launching)
    x, offset = drawn(7, *SHAPE), drawn(8, 3, 5)
    check(model.run({"x": x, "offset": offset}), x, offset)


def test_are_apart(device: DeviceInfo) -> None:
    session, x, offset = session_of(imgconv.load(network(), device)), drawn(1, *SHAPE), drawn(2, 3, 5)
    other = numpy.empty_like(offset)
    for outputs, apart in (({}, True), ({"z": other}, True), ({"z": offset}, False)):
        binding = IOBinding.bind(session.plan, session.context, {"x": x, "offset": offset}, outputs)
        assert are_separate_arrays(binding) is apart
