"""Launches replayed by one call: through the drivers here, and through made-up ones that fail or are Qualcomm's."""

from __future__ import annotations

import ctypes
import gc
import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
from support import wait_until

import imgconv
from imgconv.cl import command_buffer, launch_sequence
from imgconv.cl.context import Context
from imgconv.cl.device import DeviceInfo, open_device
from imgconv.cl.launch_sequence import bind, enqueue_all
from imgconv.graph.nodes import Graph
from imgconv.runtime.session import Session
from imgconv.tensor import Tensor, build_graph, convolution

STATUS = ctypes.POINTER(ctypes.c_int32)
INVALID_OPERATION = -59


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every test meets the drivers for the first time; one that leaks is tried here all the same."""
    monkeypatch.setattr(command_buffer, "LEAKING_PLATFORM", "")
    monkeypatch.setattr(launch_sequence, "_trusted", {})
    monkeypatch.setattr(launch_sequence, "_distrusted", {})
    yield


@pytest.fixture
def recorder(device: DeviceInfo) -> DeviceInfo:
    if not device.command_buffer:
        pytest.skip(f"{device.name} has no command buffers")
    return device


def chain() -> Graph:
    """Launches that need the one before: any other order gives other numbers."""
    x = Tensor.input("x", (1, 5, 7, 9))
    y = x
    for number in range(4):
        weights = numpy.random.default_rng(number).normal(size=(5, 5, 3, 3)).astype(numpy.float32)
        y = convolution(y, Tensor.constant(weights), [1, 1], [1] * 4, [1, 1]).relu()
    return build_graph({"y": y, "mean": y.mean((2, 3))}, [x], "chain")


def drawn(seed: int) -> dict[str, Any]:
    return {"x": numpy.random.default_rng(seed).normal(size=(1, 5, 7, 9)).astype(numpy.float32)}


def sessions(info: DeviceInfo) -> tuple[Session, Session]:
    """A session that replays, and one that enqueues one by one, of the same plan."""
    plan = imgconv.load(chain(), device=info).plan
    recorded, plain = (Session(plan, open_device(info)) for _ in range(2))
    plain.sequence.command_buffer = None
    return recorded, plain


def test_one_call_a_run_with_the_same_results(recorder: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded, plain = sessions(recorder)
    assert recorded.sequence.command_buffer is not None
    calls: list[str] = []
    replay = recorded.sequence.command_buffer.replay
    monkeypatch.setattr(recorded.sequence.command_buffer, "replay", lambda: (calls.append("replay"), replay()))
    expected = [plain.run(drawn(seed)) for seed in range(3)]
    monkeypatch.setattr("imgconv.cl.launch_sequence.enqueue_all", lambda *_: calls.append("one by one"))
    for seed in (0, 1, 2, 1):
        found = recorded.run(drawn(seed))
        for name, array in expected[seed].items():
            numpy.testing.assert_array_equal(found[name], array)
    assert calls == ["replay"] * 4


def test_a_run_after_one_that_stopped_half_way(recorder: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recording must not be replayed before its last replay is over."""
    shape = (1, 8, 256, 256)
    y = Tensor.input("x", shape)
    for number in range(6):
        weights = numpy.random.default_rng(number).normal(size=(8, 8, 3, 3)).astype(numpy.float32)
        y = convolution(y, Tensor.constant(weights), [1, 1], [1] * 4, [1, 1])
    model = imgconv.load(build_graph({"y": y}), device=recorder)
    inputs = {"x": numpy.random.default_rng(0).normal(size=shape).astype(numpy.float32)}
    expected = model.run(inputs)["y"]

    def interrupted(*arguments: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken, pytest.raises(KeyboardInterrupt):
        broken.setattr("imgconv.cl.context.Context.download", interrupted)
        model.run(inputs)
    numpy.testing.assert_array_equal(model.run(inputs)["y"], expected)


def test_a_driver_that_leaks_is_not_used(recorder: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a word: the launches take as long one by one."""
    monkeypatch.setattr(command_buffer, "LEAKING_PLATFORM", recorder.platform)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert command_buffer.record(open_device(recorder), sessions(recorder)[1].sequence.launches) is None


def test_timed_queues_are_not_recorded(recorder: DeviceInfo) -> None:
    plan = imgconv.load(chain(), device=recorder).plan
    assert Session(plan, open_device(recorder, profile=True)).sequence.command_buffer is None


def test_a_driver_that_replays_nothing_is_told_once(recorder: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_buffer.CommandBuffer, "replay", lambda self: None)
    with pytest.warns(RuntimeWarning, match="a replay through cl_khr_command_buffer gave other results"):
        model = imgconv.load(chain(), device=recorder)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = imgconv.load(chain(), device=recorder)
    x = drawn(0)
    assert numpy.abs(model.run(x)["y"]).sum() > 0
    numpy.testing.assert_array_equal(model.run(x)["y"], again.run(x)["y"])


@pytest.mark.parametrize("name", sorted(command_buffer.COMMAND_BUFFER.keys() - {"clReleaseCommandBufferKHR"}))
def test_a_driver_that_refuses_is_told_once(
    recorder: DeviceInfo, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    load_functions = command_buffer.load_functions

    def with_a_failing_one(context: Context, types: Any) -> dict[str, Any]:
        functions = load_functions(context, types)

        def refuse(*arguments: Any) -> int:
            if name == "clCreateCommandBufferKHR":
                ctypes.cast(arguments[-1], STATUS).contents.value = INVALID_OPERATION
            return INVALID_OPERATION

        return functions | {name: refuse}

    monkeypatch.setattr(command_buffer, "load_functions", with_a_failing_one)
    with pytest.warns(RuntimeWarning, match=f"one by one, because {name}: .* refused: INVALID_OPERATION"):
        model = imgconv.load(chain(), device=recorder)
    assert numpy.abs(model.run(drawn(0))["y"]).sum() > 0


def test_a_missing_function_is_told(recorder: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    types = command_buffer.COMMAND_BUFFER | {"clNobodyHasThisKHR": (ctypes.c_int32,)}
    monkeypatch.setattr(command_buffer, "WAYS", ((command_buffer.CommandBuffer, types),))
    with pytest.warns(RuntimeWarning, match="the driver lacks clNobodyHasThisKHR"):
        imgconv.load(chain(), device=recorder)


def test_recordings_are_released(recorder: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    load_functions = command_buffer.load_functions
    live: set[int] = set()

    def counted(context: Context, types: Any) -> dict[str, Any]:
        functions = load_functions(context, types)

        def create(*arguments: Any) -> int:
            handle: int = functions["clCreateCommandBufferKHR"](*arguments)
            live.add(handle)
            return handle

        def release(handle: Any) -> int:
            live.remove(handle.value)
            status: int = functions["clReleaseCommandBufferKHR"](handle)
            return status

        return functions | {"clCreateCommandBufferKHR": create, "clReleaseCommandBufferKHR": release}

    monkeypatch.setattr(command_buffer, "load_functions", counted)
    model = imgconv.load(chain(), device=recorder)
    model.run(drawn(0))
    model.submit(drawn(0), 1).result()
    assert len(live) == 2
    del model
    gc.collect()
    wait_until(lambda: gc.collect() >= 0 and not live, "recordings are left behind")


class Qualcomm:
    """Entry points that write down how they are called, with the real core functions left out."""

    def __init__(self, fails: str = "") -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.fails = fails

    def functions(self) -> dict[str, Any]:
        return {
            "clNewRecordingQCOM": self.new, "clEndRecordingQCOM": self.noted("end"),
            "clEnqueueRecordingQCOM": self.noted("replay"), "clReleaseRecordingQCOM": self.noted("release"),
            "clEnqueueNDRangeKernel": self.launch,
        }

    def new(self, queue: Any, status: Any) -> int:
        ctypes.cast(status, STATUS).contents.value = INVALID_OPERATION if self.fails == "new" else 0
        number = 100 + sum(call[0] == "new" for call in self.calls)
        self.calls.append(("new", queue.value))
        return number

    def launch(
        self, queue: Any, kernel: int, rank: int, offset: Any, sizes: Any, local: Any, count: int, *events: Any
    ) -> int:
        assert (offset, count, events) == (None, 0, (None, None))
        self.calls.append(("launch", queue.value, kernel, rank, tuple(sizes), local and tuple(local)))
        return INVALID_OPERATION if self.fails == "launch" else 0

    def noted(self, name: str) -> Any:
        def call(*arguments: Any) -> int:
            self.calls.append((name, *(getattr(a, "value", a) for a in arguments)))
            return INVALID_OPERATION if self.fails == name else 0

        return call


def qualcomm_context(monkeypatch: pytest.MonkeyPatch, driver: Qualcomm, longest: int = 2) -> Any:
    info = SimpleNamespace(
        key="q", name="Adreno", platform="QUALCOMM Snapdragon(TM)", driver_version="1",
        extensions=("cl_qcom_recordable_queues",),
    )
    device = object()

    def queue(handle: Any, found: Any, properties: int) -> Any:
        assert (handle.devices, found, properties) == ([device], device, 1 << 30)
        return SimpleNamespace(int_ptr=7)

    def number(found: Any, parameter: int) -> int:
        assert (found, parameter) == (device, 0x41DE)
        return longest

    monkeypatch.setattr(command_buffer.cl, "CommandQueue", queue)
    monkeypatch.setattr(command_buffer, "device_number", number)
    monkeypatch.setattr(command_buffer, "load_functions", lambda context, types: driver.functions())
    handle = SimpleNamespace(devices=[device])
    return SimpleNamespace(info=info, handle=handle, queue=SimpleNamespace(int_ptr=5), profile=False)


LAUNCHES: Any = [
    (SimpleNamespace(int_ptr=1), (8, 4), (2, 2)), (SimpleNamespace(int_ptr=2), (16,), None),
    (SimpleNamespace(int_ptr=3), (4, 4, 4), (1, 1, 4)),
]


def test_qualcomm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Recorded on a queue of its own, in recordings as long as the device takes, replayed in order on the context's."""
    driver = Qualcomm()
    made = command_buffer.record(qualcomm_context(monkeypatch, driver), LAUNCHES)
    assert made is not None and made.extension == "cl_qcom_recordable_queues"
    assert driver.calls == [
        ("new", 7), ("launch", 7, 1, 2, (8, 4), (2, 2)), ("launch", 7, 2, 1, (16,), None), ("end", 100),
        ("new", 7), ("launch", 7, 3, 3, (4, 4, 4), (1, 1, 4)), ("end", 101),
    ]
    driver.calls.clear()
    made.replay()
    nothing = (0, None) * 4 + (0, None, None)
    assert driver.calls == [("replay", 5, 100, *nothing), ("replay", 5, 101, *nothing)]
    driver.calls.clear()
    del made
    gc.collect()
    assert sorted(driver.calls) == [("release", 100), ("release", 101)]


@pytest.mark.parametrize("fails", ["new", "launch", "end"])
def test_qualcomm_that_refuses(monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    driver = Qualcomm(fails)
    with pytest.raises(imgconv.DeviceError, match="refused: INVALID_OPERATION"):
        command_buffer.record(qualcomm_context(monkeypatch, driver), LAUNCHES)
    assert [call for call in driver.calls if call[0] == "release"] == ([] if fails == "new" else [("release", 100)])


def test_qualcomm_that_holds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(imgconv.DeviceError, match="hold no launches"):
        command_buffer.record(qualcomm_context(monkeypatch, Qualcomm(), 0), LAUNCHES)


def test_a_replay_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    made = command_buffer.record(qualcomm_context(monkeypatch, driver := Qualcomm()), LAUNCHES)
    driver.fails = "replay"
    assert made is not None
    with pytest.raises(imgconv.DeviceError, match="clEnqueueRecordingQCOM: Adreno refused: INVALID_OPERATION"):
        made.replay()


class Recorded:
    """A recording of a made-up driver, which replays some of the launches in some order."""

    extension = "a made-up extension"

    def __init__(self, context: Context, launches: Any, order: Callable[[list[Any]], list[Any]]) -> None:
        self._context, self._bound = context, bind(context, order(list(launches)))

    def replay(self) -> None:
        enqueue_all(self._context, self._bound)


@pytest.fixture
def records(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[list[Any]], list[Any]]], None]:
    """Makes the device record, and replay as a function orders the launches. None of it is known before."""

    def use(order: Callable[[list[Any]], list[Any]]) -> None:
        launch_sequence._distrusted.clear()
        launch_sequence._trusted.clear()

        monkeypatch.setattr(launch_sequence, "record", lambda context, launches: Recorded(context, launches, order))

    return use


def without(number: int) -> Callable[[list[Any]], list[Any]]:
    return lambda launches: launches[:number] + launches[number + 1 :]


def swapped(number: int) -> Callable[[list[Any]], list[Any]]:
    return lambda launches: [*launches[:number], launches[number + 1], launches[number], *launches[number + 2 :]]


def until(number: int) -> Callable[[list[Any]], list[Any]]:
    return lambda launches: launches[:number]


@pytest.mark.parametrize("way", [until, without, swapped])
def test_any_replay_that_is_wrong_is_found(device: DeviceInfo, records: Any, way: Any) -> None:
    """A replay that stops at any launch, loses any, or swaps any two is not used."""
    plan = imgconv.load(chain(), device=device).plan
    expected = Session(plan, open_device(device)).run(drawn(0))
    count = len(plan.launches)
    # The last two launches write outputs, of which the first does not need the second.
    for number in range(count - 2 if way is swapped else count):
        records(way(number))
        with pytest.warns(RuntimeWarning, match="a replay through a made-up extension gave other results"):
            session = Session(plan, open_device(device))
        assert session.sequence.command_buffer is None
        for name, array in session.run(drawn(0)).items():
            numpy.testing.assert_array_equal(array, expected[name])


def test_a_replay_is_believed_up_to_the_length_compared(device: DeviceInfo, records: Any) -> None:
    """A driver that cuts long recordings off is found by the first one that is longer."""
    x = Tensor.input("x", (1, 5, 7, 9))
    short = build_graph({"y": x.mean((2, 3))}, [x], "short")
    plans = [imgconv.load(graph, device=device).plan for graph in (short, chain())]
    cut = len(plans[0].launches)
    assert cut < len(plans[1].launches)
    records(until(cut))
    assert Session(plans[0], open_device(device)).sequence.command_buffer is not None
    assert launch_sequence._trusted == {device.key: cut}
    with pytest.warns(RuntimeWarning, match="gave other results"):
        assert Session(plans[1], open_device(device)).sequence.command_buffer is None


def test_a_right_replay_is_compared_once(device: DeviceInfo, records: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = imgconv.load(chain(), device=device).plan
    records(lambda launches: launches)
    compared: list[int] = []
    replay = Recorded.replay
    monkeypatch.setattr(Recorded, "replay", lambda self: [compared.append(1), replay(self)][1])
    sessions = [Session(plan, open_device(device)) for _ in range(3)]
    assert len(compared) == 1 and all(session.sequence.command_buffer is not None for session in sessions)


def test_states_are_zero_after_a_comparison(device: DeviceInfo, records: Any) -> None:
    """And lenders' memory holds what it did, as far as anyone reads it."""
    x, state = Tensor.input("x", (1, 4)), Tensor.input("state", (1, 4))
    graph = build_graph({"y": x + state * 0.5, "next": x + state}, [x, state], "state")
    given = {"x": numpy.arange(4, dtype=numpy.float32).reshape(1, 4)}
    records(lambda launches: launches)
    stream = imgconv.load(graph, device=device).stream({"next": "state"})
    assert [stream.run(given)["y"][0, 2] for _ in range(3)] == [2, 3, 4]
