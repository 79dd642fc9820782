"""Inputs and outputs that stay on the device, and outputs in the caller's own arrays."""

from __future__ import annotations

import dataclasses
from threading import Event
from typing import Any

import numpy
import onnx
import pyopencl as cl
import pytest
from support import HANG_TIMEOUT, make_model

import imgconv
from imgconv.cl import launch_sequence, staging
from imgconv.cl.building import program
from imgconv.cl.device import DeviceInfo
from imgconv.kernels.layout import Placement, Texture
from imgconv.runtime import session
from imgconv.runtime.device_memory import COPYING_THREADS, LARGE_BYTES
from imgconv.tensor import Tensor, build_graph, convolution

SHAPE = (1, 6, 10, 8)
READ_WRITE = cl.mem_flags.READ_WRITE


@pytest.fixture
def model(device: DeviceInfo) -> imgconv.Model:
    """The input is packed to a texture and the output y unpacked from one; the mean is made in a buffer."""
    x = Tensor.input("x", SHAPE)
    weights = [numpy.random.default_rng(n).normal(size=(6, 6, 3, 3)).astype(numpy.float32) for n in range(2)]
    y = convolution(x, Tensor.constant(weights[0]), [1, 1], [1] * 4, [1, 1]).relu()
    z = convolution(y, Tensor.constant(weights[1]), [1, 1], [1] * 4, [1, 1])
    return imgconv.load(build_graph({"y": y, "mean": z.mean((2, 3))}, [x], "network"), device=device)


def drawn(seed: int) -> Any:
    return numpy.random.default_rng(seed).normal(size=SHAPE).astype(numpy.float32)


def buffer_of(model: imgconv.Model, array: Any) -> cl.Buffer:
    made = cl.Buffer(model.queue.context, READ_WRITE, array.nbytes)
    cl.enqueue_copy(model.queue, made, array)
    return made


def content(model: imgconv.Model, buffer: cl.Buffer, like: Any) -> Any:
    found = numpy.empty_like(like)
    cl.enqueue_copy(model.queue, found, buffer)
    return found


def texture(place: Placement) -> Texture:
    assert isinstance(place.storage, Texture)
    return place.storage


def image_of(model: imgconv.Model, name: str) -> cl.Image:
    place = texture(model.plan.placements[name])
    texel = cl.ImageFormat(cl.channel_order.RGBA, cl.channel_type.FLOAT)
    return cl.create_image(model.queue.context, READ_WRITE, texel, shape=place.tiling.image_size)


def region(image: cl.Image) -> dict[str, Any]:
    return {"origin": (0, 0, 0), "region": (image.width, image.height, 1)}


def test_buffers(model: imgconv.Model) -> None:
    expected = [model.run({"x": drawn(seed)}) for seed in range(3)]
    for seed in (2, 0, 1):
        wanted = expected[seed]
        taken = {name: cl.Buffer(model.queue.context, READ_WRITE, array.nbytes) for name, array in wanted.items()}
        found = model.run({"x": buffer_of(model, drawn(seed))}, taken)
        assert found == taken
        for name, array in wanted.items():
            numpy.testing.assert_array_equal(content(model, taken[name], array), array)
    assert_results(model.run({"x": drawn(0)}), expected[0])


def assert_results(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        numpy.testing.assert_array_equal(found[name], array, err_msg=name)


def test_images(model: imgconv.Model) -> None:
    """In the plan's own layout, which its packing and unpacking would give."""
    expected = [model.run({"x": drawn(seed)}) for seed in range(2)]
    given, taken = image_of(model, "x"), image_of(model, "y")
    for seed in (1, 0):
        texels = texture(model.plan.placements["x"]).layout.pack(drawn(seed))
        cl.enqueue_copy(model.queue, given, texels, **region(given))
        found = model.run({"x": given}, {"y": taken})
        assert found["y"] is taken
        numpy.testing.assert_array_equal(found["mean"], expected[seed]["mean"])
        texels = numpy.empty((taken.height, taken.width, 4), numpy.float32)
        cl.enqueue_copy(model.queue, texels, taken, **region(taken))
        y = texture(model.plan.placements["y"]).layout.unpack(texels, expected[seed]["y"].shape)
        numpy.testing.assert_array_equal(y, expected[seed]["y"])
    assert_results(model.run({"x": drawn(0)}), expected[0])


def test_one_models_output_is_anothers_input(model: imgconv.Model, device: DeviceInfo) -> None:
    stream = cl.Buffer(model.queue.context, READ_WRITE, 6 * 10 * 8 * 4)
    first = model.run({"x": drawn(0)}, {"y": stream})
    second = model.run({"x": first["y"]})
    again = model.run({"x": model.run({"x": drawn(0)})["y"]})
    assert_results(second, again)


def test_arrays(model: imgconv.Model) -> None:
    expected = model.run({"x": drawn(0)})
    exact = numpy.empty_like(expected["y"])
    apart = numpy.empty((1, 12), numpy.float32)[:, ::2]
    found = model.run({"x": drawn(0)}, {"y": exact, "mean": apart})
    assert found["y"] is exact and found["mean"] is apart
    assert_results(found, expected)


def test_integers_and_bytes(device: DeviceInfo) -> None:
    """Integers are floats on the device; the array has the output's dtype. Bytes are bytes, in a texture."""
    nodes = [
        onnx.helper.make_node("Cast", ["x"], ["f"], to=onnx.TensorProto.FLOAT),
        onnx.helper.make_node("ArgMax", ["f"], ["best"], axis=1),
    ]
    x = numpy.random.default_rng(0).integers(0, 256, (1, 4, 6, 8), numpy.uint8)
    model = imgconv.load(make_model(nodes, {"x": x}, ["best"], 13), device=device)
    taken = numpy.zeros((1, 1, 6, 8), numpy.int64)
    assert model.run({"x": buffer_of(model, x)}, {"best": taken})["best"] is taken
    numpy.testing.assert_array_equal(taken, x.argmax(1, keepdims=True))
    place = model.plan.input_buffers["x"]
    if isinstance(place, Texture):
        texel = cl.ImageFormat(cl.channel_order.RGBA, cl.channel_type.UNORM_INT8)
        image = cl.create_image(model.queue.context, READ_WRITE, texel, shape=place.tiling.image_size)
        cl.enqueue_copy(model.queue, image, x[:, ::-1].copy(), **region(image))
        numpy.testing.assert_array_equal(model.run({"x": image})["best"], x[:, ::-1].argmax(1, keepdims=True))


def test_models_hand_buffers_on(model: imgconv.Model, device: DeviceInfo) -> None:
    """The models of a device share a context: one takes what another one has filled."""
    second = imgconv.load(build_graph({"z": Tensor.input("x", SHAPE) + 1.0}), device=device)
    between = buffer_of(model, drawn(1))
    model.run({"x": drawn(0)}, {"y": between})
    numpy.testing.assert_array_equal(second.run({"x": between})["z"], model.run({"x": drawn(0)})["y"] + 1)


def test_what_does_not_fit(model: imgconv.Model) -> None:
    x, context = drawn(0), model.queue.context
    other = cl.Context([model.queue.device])
    small = cl.Buffer(context, READ_WRITE, 16)
    texel = cl.ImageFormat(cl.channel_order.RGBA, cl.channel_type.FLOAT)
    image = cl.create_image(context, READ_WRITE, texel, shape=(3, 3))
    cases: list[tuple[Any, Any, str]] = [
        ({"x": small}, {}, "the buffer of input 'x' has 16 bytes; the model expects 1920, float32 in row-major order"),
        ({"x": image}, {}, r"the image of input 'x' is \(3, 3, 4\) float32; the model expects \(10, 16, 4\) float32"),
        ({"x": cl.Buffer(other, READ_WRITE, x.nbytes)}, {}, "does not belong to model.queue.context"),
        ({"x": x}, {"y": small}, "the buffer of output 'y' has 16 bytes"),
        ({"x": x}, {"y": image}, "the image of output 'y'"),
        ({"x": x}, {"mean": image}, "output 'mean' is written to a buffer"),
        ({"x": x}, {"nothing": small}, "no output is called 'nothing'"),
        ({"x": x}, {"y": numpy.zeros(3)}, "does not fit an array float64"),
        ({"x": x}, {"y": [0.0]}, "not to <class 'list'>"),
        ({"x": x}, {"y": numpy.broadcast_to(numpy.float32(0), (1, 6, 10, 8))}, "does not fit"),
        ({"q": small}, {}, "input 'q' must be an array"),
    ]
    for inputs, outputs, message in cases:
        with pytest.raises(imgconv.InputError, match=message):
            model.run(inputs, outputs)
    with pytest.raises(imgconv.InputError, match="accepts only arrays"):
        model.submit({"x": buffer_of(model, x)})


def test_an_input_that_is_read_from_its_buffer(device: DeviceInfo) -> None:
    model = imgconv.load(build_graph({"z": Tensor.input("x", SHAPE) + 1.0}), device=device)
    texel = cl.ImageFormat(cl.channel_order.RGBA, cl.channel_type.FLOAT)
    image = cl.create_image(model.queue.context, READ_WRITE, texel, shape=(16, 10))
    with pytest.raises(imgconv.InputError, match="input 'x' is read from a buffer"):
        model.run({"x": image})
    x = drawn(0)
    numpy.testing.assert_array_equal(model.run({"x": buffer_of(model, x)})["z"], x + 1)


def test_a_constant_output(device: DeviceInfo) -> None:
    x = Tensor.input("x", (2, 3))
    constant = numpy.arange(4, dtype=numpy.float32)
    model = imgconv.load(build_graph({"y": x + 1.0, "c": Tensor.constant(constant)}, [x]), device=device)
    taken = numpy.empty(4, numpy.float32)
    ones = numpy.ones((2, 3), numpy.float32)
    assert model.run({"x": ones}, {"c": taken})["c"] is taken
    numpy.testing.assert_array_equal(taken, constant)
    numpy.testing.assert_array_equal(model.submit({"x": ones}).result()["c"], constant)
    with pytest.raises(imgconv.InputError, match="'c' is not computed on the device"):
        model.run({"x": ones}, {"c": cl.Buffer(model.queue.context, READ_WRITE, 16)})


# Memory that the host fills and reads in place


@pytest.mark.parametrize("shares", [True, False], ids=["shared", "apart"])
def test_mapped(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, shares: bool) -> None:
    """Nothing is copied where the memory is the same, each array once where it is not."""
    x = Tensor.input("x", SHAPE)
    y = convolution(x, Tensor.constant(numpy.ones((6, 6, 3, 3), numpy.float32)), [1, 1], [1] * 4, [1, 1])
    graph = build_graph({"y": y, "mean": y.mean((2, 3)), "one": Tensor.constant(numpy.ones(3, numpy.float32))}, [x])
    model = imgconv.load(graph, dataclasses.replace(device, shares_memory=shares))
    copied = count_copies(monkeypatch)
    mapped, other = model.mapped(), model.mapped()
    for seed in range(20):  # often enough to be recorded
        expected = model.run({"x": drawn(seed)})
        copied.clear()
        mapped.inputs["x"][...] = drawn(seed)
        other.inputs["x"][...] = numpy.nan
        found = mapped.run()
        arrays = [] if shares else [drawn(0), *(expected[name] for name in model.plan.output_buffers)]
        assert copied == [array.nbytes for array in arrays]
        assert_results(found, expected)
        assert found["y"].base is not None and numpy.shares_memory(found["y"], mapped.outputs["y"])


def count_copies(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of every copy between host and device, or on the device, from now on; of what is made from now on."""
    sizes: list[int] = []
    original, function = cl.enqueue_copy, staging.copy_function

    def counted(queue: Any, destination: Any, source: Any, **options: Any) -> Any:
        sizes.append(destination.nbytes if isinstance(destination, numpy.ndarray) else source.nbytes)
        return original(queue, destination, source, **options)

    def counting(name: str) -> Any:
        def call(queue: Any, buffer: Any, blocking: int, offset: int, size: int, *rest: Any) -> int:
            sizes.append(size)
            copy = function(name)
            return 1 if copy is None else copy(queue, buffer, blocking, offset, size, *rest)

        return call

    monkeypatch.setattr(cl, "enqueue_copy", counted)
    monkeypatch.setattr(staging, "copy_function", counting)
    return sizes


@pytest.mark.parametrize("shares", [True, False], ids=["shared", "apart"])
def test_mapped_bytes_and_integers(device: DeviceInfo, shares: bool) -> None:
    """The arrays have the dtypes that are stored: bytes are uploaded to a texture, indices made as floats."""
    nodes = [
        onnx.helper.make_node("Cast", ["x"], ["f"], to=onnx.TensorProto.FLOAT),
        onnx.helper.make_node("ArgMax", ["f"], ["best"], axis=1),
    ]
    x = numpy.random.default_rng(0).integers(0, 256, (1, 4, 6, 8), numpy.uint8)
    proto = make_model(nodes, {"x": x}, ["best"], 13)
    model = imgconv.load(proto, dataclasses.replace(device, shares_memory=shares))
    mapped = model.mapped()
    for rolled in range(3):
        given = numpy.roll(x, rolled, 1)
        mapped.inputs["x"][...] = given
        assert mapped.inputs["x"].dtype == model.plan.input_buffers["x"].dtype
        numpy.testing.assert_array_equal(mapped.run()["best"], given.argmax(1, keepdims=True))


@pytest.mark.parametrize("shares", [True, False], ids=["shared", "apart"])
def test_mapped_after_a_failure(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch, shares: bool) -> None:
    graph = build_graph({"z": Tensor.input("x", SHAPE) + 1.0})
    mapped = imgconv.load(graph, dataclasses.replace(device, shares_memory=shares)).mapped()

    def fail(sequence: Any) -> None:
        raise imgconv.DeviceError("planted")

    with monkeypatch.context() as broken, pytest.raises(imgconv.DeviceError, match="planted"):
        broken.setattr(launch_sequence.OpenCLLaunchSequence, "enqueue", fail)
        mapped.run()
    mapped.inputs["x"][...] = drawn(0)
    numpy.testing.assert_array_equal(mapped.run()["z"], drawn(0) + 1)


def test_runs_of_a_device_with_its_own_memory(model: imgconv.Model, device: DeviceInfo) -> None:
    """Arrays go through pinned memory: those of one run are not those of the next."""
    apart = imgconv.load(model.graph, dataclasses.replace(device, shares_memory=False))
    expected = [model.run({"x": drawn(seed)}) for seed in range(3)]
    found = [apart.run({"x": drawn(seed)}) for seed in range(3)]
    taken = numpy.empty_like(expected[1]["y"])
    assert apart.run({"x": drawn(1)}, {"y": taken})["y"] is taken
    numpy.testing.assert_array_equal(taken, expected[1]["y"])
    for got, want in zip(found, expected, strict=True):
        assert_results(got, want)


def test_large_arrays_are_copied_whole(device: DeviceInfo) -> None:
    """By several threads, on devices that share no memory with the host; the parts are not of one length."""
    x = Tensor.input("x", (1, 5, 941, 943))
    graph = build_graph({"y": x * 2.0})
    array = numpy.random.default_rng(1).random(x.shape, numpy.float32)
    assert array.nbytes > LARGE_BYTES and array.size % COPYING_THREADS
    model = imgconv.load(graph, dataclasses.replace(device, shares_memory=False))
    numpy.testing.assert_array_equal(model.run({"x": array})["y"], 2 * array)


def test_memory_is_filled_while_kernels_are_built(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    started, filled, build, make = Event(), Event(), program._build_part, session.DeviceMemory

    def building(*arguments: Any) -> Any:
        started.set()
        assert filled.wait(HANG_TIMEOUT), "the memory waits for the kernels"
        return build(*arguments)

    def filling(*arguments: Any) -> Any:
        assert started.wait(HANG_TIMEOUT), "the kernels wait for the memory"
        memory = make(*arguments)
        filled.set()
        return memory

    monkeypatch.setattr(program, "_build_part", building)
    monkeypatch.setattr(session, "DeviceMemory", filling)
    x = Tensor.input("x", (2,))
    made = imgconv.load(build_graph({"y": x * 3.0}, [x], "network"), device=device)
    assert made(numpy.ones(2, numpy.float32)).tolist() == [3.0, 3.0]
