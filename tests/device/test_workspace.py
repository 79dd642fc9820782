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
from imgconv import runner
from imgconv.cl.device import DeviceInfo, open_device
from imgconv.config import Config
from imgconv.errors import ResourceError
from imgconv.evaluate import evaluate_graph
from imgconv.graph import Graph
from imgconv.lower import lower
from imgconv.passes import run_passes
from imgconv.target import target_of
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

    monkeypatch.setattr(runner, "create_buffer", counted(runner.create_buffer))
    monkeypatch.setattr(runner, "create_image", counted(runner.create_image))
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
    """An image that two lenders have is one image: no two slots of the borrower may get it."""
    apart = replace(target_of(device), images_in_buffers=None)
    context = open_device(device)
    # One image of the input's size in each lender, two in the borrower.
    small, large = (lower(run_passes(g), Config(), apart) for g in (network(0, 1, 16), network(0)))
    lender = runner.Session(small, context)
    second = runner.Session(small, context, lenders=[lender])
    session = runner.Session(large, context, lenders=[lender, second])
    held = [id(image) for _, image in session.images.values()]
    assert len(set(held)) == len(held) > 1
    expected = evaluate_graph(network(0), {"x": picture(0)})["y"]
    found = session.run({"x": picture(0)})["y"]
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
    with pytest.raises(imgconv.ConfigError, match="not the device of the model whose workspace"):
        imgconv.load(network(1), device="another", workspace=model)


def test_no_memory_is_said_with_numbers(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = imgconv.load(network(0), device=device).plan

    def refuse(context: Any, memory: Any, tensor: str = "") -> None:
        raise ResourceError("no memory", tensor)

    monkeypatch.setattr(runner, "allocate", refuse)
    monkeypatch.setattr(runner, "allocate_buffer", refuse)
    with pytest.raises(ResourceError) as caught:
        imgconv.load(network(0), device=device)
    message = str(caught.value)
    assert f"the plan takes {plan.bytes}" in message and str(device.global_memory_bytes) in message
