"""Frames under way together, and runs from several threads: the results, the order, and what goes wrong on the way."""

from __future__ import annotations

import dataclasses
import gc
import itertools
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, TimeoutError, as_completed
from typing import Any

import numpy
import onnx
import pytest
from support import HANG_TIMEOUT, make_model, wait_until

import imgconv
from imgconv.cl.quirks import QUIRKS, quirks_of
from imgconv.cl.device import DeviceInfo
from imgconv.errors import InputError
from imgconv.graph.nodes import Graph
from imgconv.runtime import pipeline
from imgconv.runtime.frame_memory import FrameMemory
from imgconv.tensor import Tensor, build_graph, convolution

SHAPE = (1, 5, 12, 9)


def network() -> Graph:
    x = Tensor.input("x", SHAPE)
    weights = numpy.random.default_rng(0).normal(size=(7, 5, 3, 3)).astype(numpy.float32)
    y = convolution(x, Tensor.constant(weights), [1, 1], [1] * 4, [1, 1]).relu()
    return build_graph({"y": y, "mean": y.mean((2, 3))}, [x], "network")


@pytest.fixture
def model(device: DeviceInfo) -> Iterator[imgconv.Model]:
    yield imgconv.load(network(), device=device)


def drawn(seed: int) -> dict[str, Any]:
    return {"x": numpy.random.default_rng(seed).normal(size=SHAPE).astype(numpy.float32)}


def assert_equal(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        numpy.testing.assert_array_equal(found[name], array, err_msg=name)


@pytest.fixture(params=["copied", "shared", "queues"])
def each_way(request: pytest.FixtureRequest, device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> imgconv.Model:
    """Frames that are copied on the one queue, those in memory that is shared, and those with queues of their own."""
    if request.param != "copied":
        monkeypatch.setattr(pipeline, "SMALL_FRAME", 0)
        monkeypatch.setattr(pipeline, "BEHIND", -1.0)
    return imgconv.load(network(), dataclasses.replace(device, shares_memory=request.param == "shared"))


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_frames_are_runs(each_way: imgconv.Model, depth: int) -> None:
    model = each_way
    inputs = [drawn(seed) for seed in range(20)]
    expected = [model.run(each) for each in inputs]
    frames = []
    for each in inputs:
        given = {"x": each["x"].copy()}
        frames.append(model.submit(given, depth))
        given["x"][:] = numpy.nan  # the caller's next picture
    for frame, want in zip(frames, expected, strict=True):
        assert_equal(frame.result(timeout=HANG_TIMEOUT), want)
        assert frame.done() and not frame.cancelled() and frame.exception() is None
    assert model._last.pipeline.bytes <= depth * model.plan.buffer_bytes


def test_launches_of_functions_of_their_own(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that a network repeats, and those of several frames under way."""
    x = y = Tensor.input("x", SHAPE)
    for seed in range(3):
        weights = numpy.random.default_rng(seed).normal(size=(5, 5, 3, 3)).astype(numpy.float32)
        y = convolution(y, Tensor.constant(weights), [1, 1], [1] * 4, [1, 1]).relu()
    repeated = build_graph({"y": y}, [x], "repeated")
    model = imgconv.load(repeated, device)
    texts = [launch.source.text for launch in model.plan.launches]
    assert len(set(texts)) < len(texts)
    expected = [model.run(drawn(seed)) for seed in range(5)]
    monkeypatch.setitem(QUIRKS, device.platform, dataclasses.replace(quirks_of(device.platform), own_functions=True))
    apart = imgconv.load(repeated, device)
    frames = [apart.submit(drawn(seed)) for seed in range(5)]
    for seed, frame in enumerate(frames):
        assert_equal(frame.result(), expected[seed])
        assert_equal(apart.run(drawn(seed)), expected[seed])


def test_order_is_kept(model: imgconv.Model) -> None:
    done: list[int] = []
    frames = []
    for number in range(12):
        frames.append(model.submit(drawn(number), tag=number))
        frames[-1].add_done_callback(lambda frame: done.append(frame.tag))
    assert {id(frame) for frame in as_completed(frames)} == {id(frame) for frame in frames}
    model.submit(drawn(0)).result()
    assert done == list(range(12))


@pytest.mark.parametrize("how", [lambda f: f.result(), lambda f: f.exception(), lambda f: f.result(HANG_TIMEOUT)])
def test_who_waits_finishes_the_frames(each_way: imgconv.Model, monkeypatch: pytest.MonkeyPatch, how: Any) -> None:
    """No other thread is needed for what submit() and result() wait for."""
    monkeypatch.setattr(pipeline, "_finish_all", lambda pending: None)
    expected = [each_way.run(drawn(seed)) for seed in range(8)]
    threads: list[threading.Thread] = []
    frames = []
    for seed in range(8):
        frames.append(each_way.submit(drawn(seed), 2))
        frames[-1].add_done_callback(lambda _: threads.append(threading.current_thread()))
    assert [frame.done() for frame in frames] == [True] * 6 + [False] * 2
    with ThreadPoolExecutor() as pool:  # where nobody finishes them the test fails, and the pool's thread with it
        waiting = pool.submit(how, frames[-1])
        try:
            waiting.result(HANG_TIMEOUT)
        finally:
            if not waiting.done():
                frames[-1].set_exception(RuntimeError("nobody finished it"))
    assert frames[-2].done() and threads[:6] == [threading.current_thread()] * 6
    for frame, want in zip(frames, expected, strict=True):
        assert_equal(frame.result(), want)


def test_a_finished_frame_waits_for_the_next(model: imgconv.Model) -> None:
    frames = [model.submit(drawn(seed)) for seed in range(3)]
    found: list[Any] = []
    frames[0].add_done_callback(lambda _: found.append(frames[2].result()))
    with ThreadPoolExecutor() as pool:
        pool.submit(frames[0].result).result(HANG_TIMEOUT)
    assert_equal(found[0], model.run(drawn(2)))


def test_a_finished_frame_submits_the_next(model: imgconv.Model) -> None:
    """Whichever thread finishes it; where there is no room, it finishes those before first."""
    expected = [model.run(drawn(seed)) for seed in range(3)]
    found: list[tuple[int, dict[str, Any]]] = []
    numbers, over = itertools.count(), threading.Event()

    def submit(depth: int) -> None:
        number = next(numbers)
        if number < 60:
            model.submit(drawn(number % 3), depth).add_done_callback(lambda frame: go_on(number, frame))

    def go_on(number: int, frame: Any) -> None:
        found.append((number, frame.result()))
        submit(1 if number % 5 == 0 else 2)
        if len(found) == 60:
            over.set()

    submit(2)
    submit(2)
    assert over.wait(HANG_TIMEOUT)
    for number, outputs in found:
        assert_equal(outputs, expected[number % 3])


def test_a_finished_frame_submits_while_another_thread_does(
    model: imgconv.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other thread has the memory, but its frame is not under way yet: nobody else could finish that one."""
    fill, filling, go = FrameMemory.fill, threading.Event(), threading.Event()

    def slow(memory: Any, arrays: Any) -> None:
        if threading.current_thread() is other:
            filling.set()
            go.wait(HANG_TIMEOUT)
        fill(memory, arrays)

    found: list[Any] = []
    first = model.submit(drawn(0), 2)
    first.add_done_callback(lambda _: found.append(model.submit(drawn(2), 1).result()))
    other = threading.Thread(target=lambda: model.submit(drawn(1), 2), daemon=True)
    monkeypatch.setattr(FrameMemory, "fill", slow)
    monkeypatch.setattr(FrameMemory, "is_over", lambda memory: False)  # the pipeline's own thread finishes nothing
    other.start()
    assert filling.wait(HANG_TIMEOUT)
    waiting = threading.Thread(target=first.result, daemon=True)
    waiting.start()
    time.sleep(0.1)
    go.set()
    waiting.join(HANG_TIMEOUT)
    assert not waiting.is_alive(), "it waits for ever"
    assert_equal(found[0], model.run(drawn(2)))


def test_submit_waits_for_free_memory(model: imgconv.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    go, over, finish = threading.Semaphore(0), threading.Event(), FrameMemory.finish
    monkeypatch.setattr(FrameMemory, "finish", lambda memory: (go.acquire(), finish(memory)))
    monkeypatch.setattr(FrameMemory, "is_over", lambda memory: over.is_set())
    frames = [model.submit(drawn(seed), 2) for seed in range(2)]
    assert model._last.pipeline.bytes == 2 * model.plan.buffer_bytes
    with pytest.raises(TimeoutError):
        frames[0].result(timeout=0.05)
    assert not frames[0].done() and not frames[0].cancel()
    with ThreadPoolExecutor() as pool:
        third = pool.submit(lambda: model.submit(drawn(2), 2))
        time.sleep(0.1)
        assert not third.done()
        go.release()
        assert third.result(HANG_TIMEOUT) is not None and frames[0].done()
        over.set()
        go.release(2)
        assert_equal(third.result().result(HANG_TIMEOUT), model.run(drawn(2)))


def test_what_does_not_fit_is_raised_at_once(model: imgconv.Model) -> None:
    for inputs, message in (({}, "missing"), ({"x": numpy.zeros(3)}, "shape"), (drawn(0) | {"z": 1}, "'z'")):
        with pytest.raises(imgconv.InputError, match=message):
            model.submit(inputs)
    with pytest.raises(imgconv.InputError, match="depth is 0"):
        model.submit(drawn(0), 0)


@pytest.mark.parametrize("where", ["start", "finish"])
def test_a_failure_is_the_frames_own(model: imgconv.Model, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    expected = model.run(drawn(0))
    for _ in range(4):  # more often than frames have memory
        with monkeypatch.context() as broken:
            broken.setattr(FrameMemory, where, fail)
            frame = model.submit(drawn(1))
            with pytest.raises(imgconv.DeviceError, match="planted"):
                frame.result(timeout=HANG_TIMEOUT)
    assert_equal(model.submit(drawn(0)).result(timeout=HANG_TIMEOUT), expected)


def test_the_memory_of_a_failed_frame_is_not_used_again(
    each_way: imgconv.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of what a frame enqueues was enqueued: nobody knows whose its memory is."""
    expected = each_way.run(drawn(0))
    for _ in range(4):
        with monkeypatch.context() as broken:
            broken.setattr("imgconv.cl.launch_sequence.OpenCLLaunchSequence.enqueue", fail)
            frame = each_way.submit(drawn(1))
            with pytest.raises(imgconv.DeviceError, match="planted"):
                frame.result(timeout=HANG_TIMEOUT)
    assert each_way._last.pipeline.bytes == 0
    for frame in [each_way.submit(drawn(0)) for _ in range(5)]:
        assert_equal(frame.result(timeout=HANG_TIMEOUT), expected)


def fail(memory: Any, *queues: Any) -> None:
    raise imgconv.DeviceError("planted")


def test_ctrl_c_gives_the_memory_back(model: imgconv.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    start = FrameMemory.start

    def interrupted(memory: Any, *queues: Any) -> None:
        start(memory, *queues)
        raise KeyboardInterrupt

    for _ in range(4):
        with monkeypatch.context() as broken:
            broken.setattr(FrameMemory, "start", interrupted)
            with pytest.raises(KeyboardInterrupt):
                model.submit(drawn(1))
    assert_equal(model.submit(drawn(0)).result(timeout=HANG_TIMEOUT), model.run(drawn(0)))


class Alarm(Exception):
    """Raised by a signal handler."""


@pytest.mark.parametrize("raised", [KeyboardInterrupt, Alarm])
def test_what_ends_a_wait_is_not_the_frames_failure(
    model: imgconv.Model, monkeypatch: pytest.MonkeyPatch, raised: type[BaseException]
) -> None:
    """The frames before it and after it are as they were, and so is the room for further ones."""
    expected, outputs = [model.run(drawn(seed)) for seed in range(4)], {"y": numpy.zeros((1, 7, 12, 9), "f4")}
    monkeypatch.setattr(FrameMemory, "is_over", lambda memory: False)  # the pipeline's own thread finishes nothing

    def interrupted(memory: Any) -> None:
        raise raised

    for _ in range(4):
        frames = [model.submit(drawn(seed), 3, outputs if seed == 1 else None) for seed in range(3)]
        with monkeypatch.context() as broken:
            broken.setattr(FrameMemory, "finish", interrupted)
            for wait in (frames[1].result, frames[2].exception, lambda: model.submit(drawn(3), 3)):
                with pytest.raises(raised):
                    wait()
            assert not any(frame.done() for frame in frames)
        frames.append(model.submit(drawn(3), 3))
        for frame, want in zip(frames, expected, strict=True):
            assert_equal(frame.result(), want)
        assert model._last.pipeline.bytes == 3 * model.plan.buffer_bytes


def test_a_dropped_model_still_answers(device: DeviceInfo) -> None:
    before = frame_threads()
    expected = [imgconv.load(network(), device=device).run(drawn(seed)) for seed in range(3)]
    model = imgconv.load(network(), device=device)
    frames = [model.submit(drawn(seed)) for seed in range(3)]
    del model
    gc.collect()
    for frame, want in zip(frames, expected, strict=True):
        assert_equal(frame.result(timeout=HANG_TIMEOUT), want)
    wait_until(lambda: gc.collect() >= 0 and frame_threads() <= before, "the thread of the collected model goes on")


def frame_threads() -> int:
    return sum(thread.name == "imgconv frames" for thread in threading.enumerate())


def test_runs_between_frames(model: imgconv.Model) -> None:
    expected = [model.run(drawn(seed)) for seed in range(8)]
    for _ in range(3):
        frames = []
        for seed in range(8):
            frames.append(model.submit(drawn(seed)))
            assert_equal(model.run(drawn(7 - seed)), expected[7 - seed])
        for frame, want in zip(frames, expected, strict=True):
            assert_equal(frame.result(timeout=HANG_TIMEOUT), want)


def test_frames_of_several_sizes_and_integers(device: DeviceInfo) -> None:
    nodes = [onnx.helper.make_node("Relu", ["x"], ["y"]), onnx.helper.make_node("ArgMax", ["x"], ["best"], axis=1)]
    declared = {"x": numpy.zeros((1, 4, 6, 6), numpy.float32)}
    proto = make_model(nodes, declared, ["y", "best"], 13)
    for dimension in (2, 3):
        proto.graph.input[0].type.tensor_type.shape.dim[dimension].dim_param = f"d{dimension}"
    model = imgconv.load(proto, device=device)
    frames = []
    for seed in range(9):
        x = numpy.random.default_rng(seed).normal(size=(1, 4, 5 + seed % 3, 6)).astype(numpy.float32)
        frames.append((x, model.submit({"x": x})))
    for x, frame in frames:
        found = frame.result(timeout=HANG_TIMEOUT)
        numpy.testing.assert_array_equal(found["y"], numpy.maximum(x, 0))
        numpy.testing.assert_array_equal(found["best"], x.argmax(1, keepdims=True))
        assert found["best"].dtype == numpy.int64


def test_bytes(device: DeviceInfo) -> None:
    """An input of bytes is uploaded to a texture."""
    nodes = [
        onnx.helper.make_node("Cast", ["x"], ["f"], to=onnx.TensorProto.FLOAT),
        onnx.helper.make_node("Mul", ["f", "f"], ["y"]),
    ]
    x = numpy.random.default_rng(0).integers(0, 256, (1, 4, 6, 8), numpy.uint8)
    model = imgconv.load(make_model(nodes, {"x": x}, ["y"], 13), device=device)
    frames = [model.submit({"x": x + numpy.uint8(number)}) for number in range(5)]
    for number, frame in enumerate(frames):
        expected = (x + numpy.uint8(number)).astype(numpy.float32) ** 2
        numpy.testing.assert_allclose(frame.result(HANG_TIMEOUT)["y"], expected, 1e-6)


# Threads


def test_eight_threads(model: imgconv.Model) -> None:
    expected = [model.run(drawn(seed)) for seed in range(8)]

    def work(seed: int) -> None:
        for _ in range(25):
            assert_equal(model.run(drawn(seed)), expected[seed])
            assert_equal(model.submit(drawn(seed)).result(60), expected[seed])

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(work, seed) for seed in range(8)]:
            done.result(120)


def test_threads_with_several_sizes(device: DeviceInfo) -> None:
    """Every thread has a size of its own, so that each compiles a plan and all share the weights."""
    weights = {"w": numpy.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype(numpy.float32)}
    nodes = [onnx.helper.make_node("Conv", ["x", "w"], ["y"], pads=[1] * 4)]
    proto = make_model(nodes, {"x": numpy.zeros((1, 3, 8, 8), numpy.float32)}, ["y"], 13, weights)
    proto.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "rows"
    pictures = [numpy.random.default_rng(n).normal(size=(1, 3, 6 + n, 8)).astype(numpy.float32) for n in range(4)]
    alone = imgconv.load(proto, device=device)
    expected = [alone.run({"x": picture})["y"] for picture in pictures]
    model = imgconv.load(proto, device=device)

    def work(number: int) -> None:
        for _ in range(10):
            numpy.testing.assert_array_equal(model.run({"x": pictures[number]})["y"], expected[number])

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(work, number) for number in range(4)]:
            done.result(120)


def test_two_models_of_one_queue(device: DeviceInfo) -> None:
    """A stream and its model share a context: its state must not see the other's runs."""
    x = Tensor.input("x", SHAPE)
    total = x + Tensor.input("total", SHAPE)
    model = imgconv.load(build_graph({"total_out": total, "y": total * 2.0}), device=device)
    stream = model.stream({"total_out": "total"})
    ones, zeros = numpy.ones(SHAPE, numpy.float32), numpy.zeros(SHAPE, numpy.float32)

    def count() -> None:
        for number in range(1, 101):
            assert numpy.all(stream.run({"x": ones})["y"] == 2 * number)

    def run(value: float) -> None:
        for _ in range(100):
            assert numpy.all(model.run({"x": ones * value, "total": zeros})["y"] == 2 * value)

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(count), pool.submit(run, 3.0), pool.submit(run, 5.0)]:
            done.result(120)


def test_outputs_go_to_the_callers_arrays(each_way: imgconv.Model) -> None:
    """To one of two; of several frames in flight each to its own."""
    mine = [numpy.full((1, 7, 12, 9), numpy.nan, numpy.float32) for _ in range(5)]
    frames = [each_way.submit(drawn(seed), outputs={"y": array}) for seed, array in enumerate(mine)]
    for seed, (frame, array) in enumerate(zip(frames, mine, strict=True)):
        found = frame.result()
        assert found["y"] is array and found["mean"] is not array
        assert_equal(found, each_way.run(drawn(seed)))


def test_outputs_that_do_not_fit(model: imgconv.Model) -> None:
    with pytest.raises(InputError, match="no output is called 'z'; the model's outputs are y, mean"):
        model.submit(drawn(0), outputs={"z": numpy.zeros(3)})
    with pytest.raises(InputError, match=r"output y: .* does not fit an array float32 \[7\]"):
        model.submit(drawn(0), outputs={"y": numpy.zeros(7, numpy.float32)})
    assert_equal(model.submit(drawn(0)).result(), model.run(drawn(0)))
