"""Model.stream: state that stays on the device, against onnxruntime, whose state goes through the host each frame."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path
from typing import Any

import numpy
import onnx
import onnx.helper
import onnxruntime
import pyopencl
import pytest
from support import make_input, one_thread

import imgconv
from imgconv.cl.device import DeviceInfo
from imgconv.tensor import Tensor, build_graph
from models import build

FRAMES = 100


def test_a_hundred_frames(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = build("conv_gru", size=32, width=0.5)
    oracle = onnxruntime.InferenceSession(imgconv.export_onnx(graph).SerializeToString(), one_thread())
    copying = dataclasses.replace(device, shares_memory=False)
    stream = imgconv.load(graph, device=copying).stream({"state_out": "state_in"})
    assert [v.name for v in stream.plan.inputs] == ["frame"]
    assert [v.name for v in stream.plan.outputs] == ["mask"]
    generator = numpy.random.default_rng(0)
    state = numpy.zeros((1, 16, 8, 8), numpy.float32)
    copied = count_copies(monkeypatch)
    for _ in range(FRAMES):
        frame = generator.random((1, 3, 32, 32), numpy.float32)
        mask, state = oracle.run(["mask", "state_out"], {"frame": frame, "state_in": state})
        found = stream.run({"frame": frame})
        assert found.keys() == {"mask"}
        # A frame rounds some thousand sums of 2**-24 each, which the gates (0..1) do not let grow.
        numpy.testing.assert_allclose(found["mask"], mask, 0, 1e-5)
    assert copied == [frame.nbytes, mask.nbytes] * FRAMES


def test_a_reset_waits_for_its_turn(device: DeviceInfo) -> None:
    """Between two launches of a run it would leave the state of that run."""
    model = imgconv.load(accumulator(), device=device)
    stream = model.stream({"total_out": "total", "before_out": "before", "count_out": "count"})
    thread = threading.Thread(target=stream.reset)
    with stream._last.session.context.lock:
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
    thread.join()


def count_copies(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of every copy between host and device from now on."""
    sizes: list[int] = []
    original = pyopencl.enqueue_copy

    def counted(queue: Any, destination: Any, source: Any, **options: Any) -> Any:
        sizes.extend(each.nbytes for each in (destination, source) if isinstance(each, numpy.ndarray))
        return original(queue, destination, source, **options)

    monkeypatch.setattr(pyopencl, "enqueue_copy", counted)
    return sizes


def accumulator(shape: tuple[int, ...] = (1, 5, 3, 4)) -> Any:
    """total = sum of the frames; before = the total one frame ago; first = 1 at the first frame, 2 at the second ..."""
    x, total, before, count = (Tensor.input(n, shape) for n in ("x", "total", "before", "count"))
    made = {"total_out": total + x, "before_out": total, "count_out": count + 1, "y": (total + x) * 2 + before}
    return build_graph(made, [x, total, before, count])


STATES = {"total_out": "total", "before_out": "before", "count_out": "count"}


@pytest.mark.parametrize("shape", [(1, 5, 3, 4), (2, 3), (7,)], ids=str)
@pytest.mark.parametrize("settings", [{}, {"float16": 1}, {"max_image": 8}], ids=str)
def test_states_of_every_kind(device: DeviceInfo, shape: tuple[int, ...], settings: dict[str, Any]) -> None:
    """An input that becomes another state as it is, a sum that is also read, one that no output shows."""
    stream = imgconv.load(accumulator(shape), device=device, **settings).stream(STATES)
    for _ in range(2):
        total = before = numpy.zeros(shape, numpy.float32)
        for number in range(4):
            # Whole numbers: exact in half too.
            x = numpy.random.default_rng(number).integers(-9, 9, shape).astype(numpy.float32)
            found = stream.run({"x": x})["y"]
            numpy.testing.assert_array_equal(found, (total + x) * 2 + before)
            total, before = total + x, total
        stream.reset()


def test_frames_in_flight_and_in_place(device: DeviceInfo) -> None:
    """Give what run gives: the states follow the order of the calls."""
    stream = imgconv.load(accumulator(), device=device).stream(STATES)
    states = "total_out to total, before_out to before, count_out to count"
    shown = "x: float32[1, 5, 3, 4] -> y: float32[1, 5, 3, 4]"
    assert repr(stream).startswith(f"<imgconv.Model model on {device.name}: {shown}, ")
    assert repr(stream).endswith(f" launches; on the device {states}>")
    frames = numpy.random.default_rng(0).random((9, 1, 5, 3, 4), numpy.float32)
    expected = [stream.run({"x": frame})["y"] for frame in frames]
    stream.reset()
    waiting = [stream.submit({"x": frame}, 3, tag=number) for number, frame in enumerate(frames)]
    assert [frame.tag for frame in waiting] == list(range(9))
    found = [frame.result()["y"] for frame in waiting]
    stream.reset()
    mapped = stream.mapped()
    assert repr(mapped) == f"<imgconv Mapped: {shown}>"
    for frame, made, wanted in zip(frames, found, expected, strict=True):
        mapped.inputs["x"][...] = frame
        assert made.tobytes() == wanted.tobytes() == mapped.run()["y"].tobytes()


def test_a_stream_is_saved(device: DeviceInfo, tmp_path: Path) -> None:
    """Its file keeps the states: on the device that it was saved for, and planned again for another."""
    graph = build("conv_gru", size=16, width=0.5)
    stream = imgconv.load(graph, device=device).stream({"state_out": "state_in"})
    frames = numpy.random.default_rng(0).random((5, 1, 3, 16, 16), numpy.float32)
    expected = [stream.run({"frame": frame})["mask"] for frame in frames]
    stream.save(tmp_path / "m")
    stream.save(tmp_path / "generic", ["generic"])
    for file in ("m", "generic"):
        model = imgconv.load(tmp_path / file, device=device)
        assert list(model.inputs) == ["frame"] and list(model.outputs) == ["mask"]
        bound = 0 if file == "m" else 1e-5  # another plan rounds some thousand sums of 2**-24 in another order
        for _ in range(2):
            for frame, wanted in zip(frames, expected, strict=True):
                numpy.testing.assert_allclose(model.run({"frame": frame})["mask"], wanted, 0, bound)
            model.reset()
    with pytest.raises(imgconv.InputError, match="keeps its states already"):
        model.stream({"state_out": "state_in"})
    model.save(tmp_path / "again")
    again = imgconv.load(tmp_path / "again", device=device)
    numpy.testing.assert_array_equal(again.run({"frame": frames[0]})["mask"], model.run({"frame": frames[0]})["mask"])


def test_a_stream_and_its_model_do_not_meet(device: DeviceInfo) -> None:
    model = imgconv.load(accumulator(), device=device)
    one, other = model.stream(STATES), model.stream({"total_out": "total"})
    ones = numpy.ones((1, 5, 3, 4), numpy.float32)
    rest = {"before": ones, "count": ones}
    for number in range(1, 4):
        assert numpy.all(one.run({"x": ones})["y"] == 2 * number + max(number - 2, 0))
        assert numpy.all(other.run({"x": ones, **rest})["y"] == 2 * number + 1)
        assert numpy.all(model.run({"x": ones, "total": ones, **rest})["y"] == 5)


def test_the_weights_are_shared(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    model = imgconv.load(build("conv_gru", size=16, width=0.5), device=device, check=False)  # a check copies too
    copied = count_copies(monkeypatch)
    stream = model.stream({"state_out": "state_in"})
    assert stream.plan.weight_bytes == model.plan.weight_bytes > 0
    assert copied == []


def test_what_does_not_match(device: DeviceInfo) -> None:
    shapes = {"a": (1, 2), "b": (2, 1), "c": (1, 2)}
    nodes = [onnx.helper.make_node("Relu", [n], [f"{n}_out"]) for n in shapes]
    graph = onnx.helper.make_graph(
        nodes, "g", [make_input(n, "f4", s) for n, s in shapes.items()],
        [onnx.ValueInfoProto(name=f"{n}_out") for n in shapes],
    )
    model = imgconv.load(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)]), device=device
    )
    for states, message in (
        ({"z": "a"}, "no output is called 'z'"), ({"a_out": "z"}, "no input is called 'z'"),
        ({"a_out": "b"}, "shapes and dtypes differ"), ({"a_out": "c", "c_out": "c"}, "feed the same input"),
        ({}, "at least one state"),
    ):
        with pytest.raises(imgconv.InputError, match=message):
            model.stream(states)
    with pytest.raises(imgconv.InputError, match="no input is called 'a'"):
        model.stream({"c_out": "a"}).run({n: numpy.zeros(s) for n, s in shapes.items()})
