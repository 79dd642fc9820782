"""Memory for activations: known from the plan, shared by models that take turns, refused with numbers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy
import pytest
from graphs import const

import imgconv
from imgconv.cl.context import Context
from imgconv.cl.device import DeviceInfo, open_device
from imgconv.compiling.lower import lower
from imgconv.config import Config
from imgconv.errors import DeviceError, ResourceError
from imgconv.graph.evaluate import evaluate_graph
from imgconv.graph.nodes import Graph
from imgconv.passes import run_passes
from imgconv.runtime.session import Session
from imgconv.loading.device_target import target_of
from imgconv.tensor import Tensor, build_graph

SHAPE = (1, 8, 24, 24)


def network(seed: int, layers: int = 4, channels: int = 8) -> Graph:
    x = Tensor.input("x", SHAPE)
    t = x
    for layer in range(layers):
        t = t.conv2d(const(channels, t.shape[1], 3, 3, seed=10 * seed + layer), padding=1).relu()
    return build_graph({"y": t}, [x])


def picture(seed: int) -> Any:
    return numpy.random.default_rng(seed).normal(size=SHAPE).astype(numpy.float32)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of every buffer and image that is created, save images in buffers."""
    sizes: list[int] = []

    def counted(create: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            made = create(*arguments)
            sizes.append(made.size)
            return made

        return call

    monkeypatch.setattr(Context, "buffer", counted(Context.buffer))
    monkeypatch.setattr(Context, "image", counted(Context.image))
    return sizes


def test_the_plan_says_what_is_taken(device: DeviceInfo, taken: list[int]) -> None:
    memory = imgconv.load(network(0), device=device).plan.memory
    assert memory.peak <= sum(taken) <= memory.peak + 64, "a driver may round up"
    assert memory.lower_bound <= memory.activations


def test_two_models_share(device: DeviceInfo, taken: list[int]) -> None:
    large = imgconv.load(network(0), device=device)
    before = len(taken)
    small = imgconv.load(network(1, layers=2), workspace=large)
    memory = small.plan.memory
    assert sum(taken[before:]) <= memory.weights + memory.buffers + 64
    models = {0: large, 1: small}
    for turn in (0, 1, 1, 0):
        x = picture(turn)
        expected = evaluate_graph(network(turn, layers=2 if turn else 4), {"x": x})["y"]
        found = models[turn].run({"x": x})["y"]
        numpy.testing.assert_allclose(found, expected, 0, 1e-5 * numpy.abs(expected).max())


def test_a_workspace_that_does_not_suffice(device: DeviceInfo, taken: list[int]) -> None:
    small = imgconv.load(network(1, layers=2), device=device)
    large = imgconv.load(network(0, channels=32), workspace=small)
    x = picture(3)
    expected = evaluate_graph(network(0, channels=32), {"x": x})["y"]
    numpy.testing.assert_allclose(large.run({"x": x})["y"], expected, 0, 1e-5 * numpy.abs(expected).max())


def test_lenders_that_share_already(device: DeviceInfo) -> None:
    """An image that two share_with have is one image: no two slots of the borrower may get it."""
    apart = replace(target_of(device), images_in_buffers=None, linear=None)
    context = open_device(device)
    # One image of the input's size in each lender, two in the borrower.
    small, large = (lower(run_passes(g), Config(), apart) for g in (network(0, 1, 16), network(0)))
    lender = Session(small, context)
    second = Session(small, context, share_with=[lender])
    session = Session(large, context, share_with=[lender, second])
    held = [id(image) for _, image in session.memory.images.values()]
    assert len(set(held)) == len(held) > 1
    expected = evaluate_graph(network(0), {"x": picture(0)})["y"]
    found = session.run({"x": picture(0)})["y"]
    numpy.testing.assert_allclose(found, expected, 0, 1e-5 * numpy.abs(expected).max())


def test_images_in_buffers_that_the_driver_refuses(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused textures become images of their own; the others stay in the workspace."""
    plan = lower(run_passes(network(0)), Config(), replace(target_of(device), linear=None))
    if not plan.regions:
        pytest.skip(f"{device.name} has no images in buffers")
    create, refused = Context.image_from_buffer, []

    def every_second(*arguments: Any) -> Any:
        refused.append(len(refused) % 2 == 0)
        if refused[-1]:
            raise DeviceError("CL_INVALID_IMAGE_SIZE")
        return create(*arguments)

    monkeypatch.setattr(Context, "image_from_buffer", every_second)
    found = Session(plan, open_device(device)).run({"x": picture(0)})["y"]
    assert len(refused) == len(plan.regions) > 1
    expected = evaluate_graph(network(0), {"x": picture(0)})["y"]
    numpy.testing.assert_allclose(found, expected, 0, 1e-5 * numpy.abs(expected).max())


def padded(batch: int) -> Graph:
    """Reads past every edge, by every sort of kernel, of textures much smaller than the first one."""
    x = Tensor.input("x", (batch, 5, 40, 6))
    t = x.conv2d(const(24, 5, 3, 3), const(24), padding=1).relu()
    t = t.conv2d(const(8, 24, 3, 3, seed=1), stride=2, padding=1).relu()
    t = t + t.conv2d(const(8, 8, 3, 3, seed=2), padding=2, dilation=2)
    t = t + t.depthwise(const(8, 1, 3, 3, seed=3), padding=1).relu()
    t = t + t.pool("sum", (3, 3), pads=(1, 1, 1, 1), scale=0.1)
    t = (0.01 * t).tanh().conv_transpose2d(const(8, 6, 4, 4, seed=4), stride=2, padding=1)
    t = t.pad((0, 0, 1, 0), (0, 0, 2, 2)).conv2d(const(4, 6, 2, 2, seed=5))
    return build_graph({"y": t, "mean": t.pad((0, 0, 0, 0), (0, 0, 3, 1)).exp().mean([2, 3])}, [x])


@pytest.mark.parametrize("batch", [1, 2])
def test_what_other_textures_left_in_an_image_is_never_read(device: DeviceInfo, batch: int) -> None:
    graph = run_passes(padded(batch))
    plan = lower(graph, Config(), replace(target_of(device), images_in_buffers=None, linear=None))
    forms = {t: (t.descriptor, plan.images[slot]) for t, slot in plan.slots.items()}
    spare = {t: (image.width - own.width, image.height - own.height) for t, (own, image) in forms.items()}
    assert sum(t.tiling.tiles == 1 and min(each) > 0 for t, each in spare.items()) >= 3, plan
    session = Session(plan, open_device(device))
    for _, image in session.memory.images.values():
        session.context.fill(image, float("nan"))
    x = numpy.random.default_rng(batch).normal(size=(batch, 5, 40, 6)).astype(numpy.float32)
    expected = evaluate_graph(graph, {"x": x})
    for found in (session.run({"x": x}), session.run({"x": x})):
        for name, array in found.items():
            numpy.testing.assert_allclose(array, expected[name], 0, 1e-5 * numpy.abs(expected[name]).max())
    for name in session.steps({"x": x}):
        value = session.value(name)
        assert not numpy.isnan(value).any(), name


def test_a_smaller_model_lies_in_the_images_of_a_larger_one(device: DeviceInfo) -> None:
    apart, context = replace(target_of(device), images_in_buffers=None, linear=None), open_device(device)
    large, small = (lower(run_passes(g), Config(), apart) for g in (network(0, channels=32), network(1, layers=3)))
    lender = Session(large, context)
    session = Session(small, context, share_with=[lender])
    assert {id(i) for _, i in session.memory.images.values()} <= {id(i) for _, i in lender.memory.images.values()}
    for turn, (model, graph) in enumerate([(lender, network(0, channels=32)), (session, network(1, layers=3))] * 2):
        expected = evaluate_graph(graph, {"x": picture(turn)})["y"]
        found = model.run({"x": picture(turn)})["y"]
        numpy.testing.assert_allclose(found, expected, 0, 1e-5 * numpy.abs(expected).max())


def test_threads_take_turns(device: DeviceInfo) -> None:
    large = imgconv.load(network(0), device=device)
    models = {0: large, 1: imgconv.load(network(1), workspace=large)}
    expected = {n: models[n].run({"x": picture(n)})["y"] for n in models}
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(20):
            found = models[number].run({"x": picture(number)})["y"]
            if not numpy.array_equal(found, expected[number]):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n % 2,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_another_device_cannot_share(device: DeviceInfo) -> None:
    model = imgconv.load(network(0), device=device)
    for same in (device.index, str(device.index), device):
        assert imgconv.load(network(1), device=same, workspace=model).device == device
    with pytest.raises(imgconv.ConfigError, match="not the device of the model whose workspace"):
        imgconv.load(network(1), device=replace(device, index=99), workspace=model)
    with pytest.raises(imgconv.ConfigError, match="has the priority of the workspace's"):
        imgconv.load(network(1), priority="low", workspace=model)


def test_no_memory_is_said_with_numbers(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = imgconv.load(network(0), device=device).plan

    def refuse(context: Any, memory: Any, value: float, tensor: str = "") -> None:
        raise ResourceError("no memory", tensor)

    monkeypatch.setattr(Context, "fill", refuse)
    with pytest.raises(ResourceError) as caught:
        imgconv.load(network(0), device=device)
    message = str(caught.value)
    assert f"the model needs {plan.bytes}" in message and str(device.global_memory_bytes) in message
