"""Checks at load, and the marks that they leave: on devices that are not believed for these tests."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from math import inf
from pathlib import Path

import numpy
import pytest

import imgconv
from imgconv.checking import session_checks
from imgconv.checking.comparing import LaunchVerdict
from imgconv.checking.session_checks import SessionUnderTest, check_launches
from imgconv.cl.building import crashes
from imgconv.cl.building.program_source import BuiltKernel
from imgconv.cl.device import DeviceInfo
from imgconv.files.disk_cache import DiskCache
from imgconv.graph.nodes import Graph
from imgconv.tensor import Tensor, build_graph

X = numpy.random.default_rng(1).uniform(-1, 1, (1, 8, 12, 12)).astype(numpy.float32)


def network() -> Graph:
    x, random = Tensor.input("x", X.shape), numpy.random.default_rng(0)
    weights = Tensor.constant(random.uniform(-1, 1, (8, 8, 3, 3)).astype(numpy.float32))
    y = x.conv2d(weights, padding=1).relu()
    return build_graph({"y": y.max_pool(3, 1, 1), "state": y * 0.5}, [x], "network")


@pytest.fixture(autouse=True)
def not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_checks, "TESTED", ())
    monkeypatch.setattr(session_checks, "PROVED", DiskCache(str(tmp_path / "proved"), 2**20))
    monkeypatch.setattr(session_checks, "SECONDS", inf)  # a busy machine takes longer


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the launches that are checked."""
    seen: list[int] = []

    def noting(*arguments: object) -> Iterator[tuple[int, LaunchVerdict]]:
        for number, found in check_launches(*arguments):  # type: ignore[arg-type]
            seen.append(number)
            yield number, found

    monkeypatch.setattr(session_checks, "check_launches", noting)
    return seen


def test_each_launch_is_checked_once(device: DeviceInfo, checked: list[int]) -> None:
    model = imgconv.load(network(), device=device)
    assert checked == list(range(len(model.plan.launches)))
    imgconv.load(network(), device=device)
    assert len(checked) == len(model.plan.launches)


def test_a_load_may_leave_it_out(device: DeviceInfo, checked: list[int]) -> None:
    imgconv.load(network(), device=device, check=False)
    assert not checked


def test_the_next_load_goes_on(device: DeviceInfo, checked: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Without time one launch is checked, and the next one by the next load."""
    monkeypatch.setattr(session_checks, "SECONDS", 0.0)
    monkeypatch.setattr(session_checks, "PART", 0.0)
    count = len(imgconv.load(network(), device=device).plan.launches)
    for _ in range(count + 1):
        imgconv.load(network(), device=device)
    assert checked == list(range(count))


def test_compiled_files(device: DeviceInfo, checked: list[int], tmp_path: Path) -> None:
    """The plan of a file is the one that was proved before it was saved; elsewhere it is checked."""
    path = tmp_path / "model.imgconv"
    model = imgconv.load(network(), device=device, check=False)
    model.save(path)
    imgconv.load(path, device=device)
    assert checked == list(range(len(model.plan.launches)))
    imgconv.load(path, device=device)
    imgconv.load(path, device=device, check=False)
    assert len(checked) == len(model.plan.launches)


def test_states(device: DeviceInfo, checked: list[int]) -> None:
    """A stream's plan has a launch that keeps the state, and begins with zeros after the check."""
    model = imgconv.load(network(), device=device)
    checked.clear()
    stream = model.stream({"state": "x"})
    launches = stream.plan.launches
    assert checked == list(range(len(launches))) and any(launch.kind == "copy" for launch in launches)
    assert not stream.run({})["y"].any()


def wrong(text: str, again: bool = False) -> object:
    """A check of launches that finds the one that computes "y" wrong."""

    def check(running: SessionUnderTest, *_: object) -> Iterator[tuple[int, LaunchVerdict]]:
        for number, found in check_launches(running):
            launch = running.plan.launches[number]
            is_wrong = launch.values[-1:] == ("y",) and text in f"{launch.source.path} {launch.specialisation}"
            yield number, replace(found, verdict="wrong", text="1 is wrong", again=again) if is_wrong else found

    return check


def test_a_wrong_kernel_is_replaced_and_remembered(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    x = Tensor.input("x", X.shape)
    weights = Tensor.constant(numpy.random.default_rng(0).uniform(-1, 1, (8, 8, 3, 3)).astype(numpy.float32))
    graph = build_graph({"y": x.conv2d(weights, padding=1)}, [x])
    unchecked = imgconv.load(graph, device=device, check=False)
    expected = unchecked.run({"x": X})["y"]
    path = next(launch.source.path for launch in unchecked.plan.launches if launch.values[-1:] == ("y",))
    monkeypatch.setattr(session_checks, "check_launches", wrong(path))
    with pytest.warns(RuntimeWarning, match=f"fails at {path}, launch 'y.*its result is wrong: 1 is wrong"):
        model = imgconv.load(graph, device=device)
    assert not any(path in launch.source.path for launch in model.plan.launches)
    numpy.testing.assert_allclose(model.run({"x": X})["y"], expected, 0, 1e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = imgconv.load(graph, device=device)
    assert [launch.source for launch in again.plan.launches] == [launch.source for launch in model.plan.launches]


def test_launches_of_one_wrong_kernel_are_replaced(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second launch does not count as one for which the first one's kernel was tried in vain."""
    x, random = Tensor.input("x", X.shape), numpy.random.default_rng(0)
    made = [x.conv2d(Tensor.constant(random.uniform(-1, 1, (8, 8, 3, 3)).astype(numpy.float32))) for _ in range(2)]
    graph = build_graph({"y": made[0] * 2.0, "z": made[1] * 2.0}, [x])
    before = imgconv.load(graph, device=device, check=False)
    (text,) = {launch.source.text for launch in before.plan.launches if launch.multiply_adds}

    def check(running: SessionUnderTest, *_: object) -> Iterator[tuple[int, LaunchVerdict]]:
        for number, found in check_launches(running):
            is_wrong = running.plan.launches[number].source.text == text
            yield number, replace(found, verdict="wrong", text="1 is wrong") if is_wrong else found

    monkeypatch.setattr(session_checks, "check_launches", check)
    with pytest.warns(RuntimeWarning, match="its result is wrong: 1 is wrong"):
        model = imgconv.load(graph, device=device)
    assert text not in {launch.source.text for launch in model.plan.launches}


def test_a_driver_that_was_wrong_is_checked_whole(
    device: DeviceInfo, checked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_checks, "SECONDS", 0.0)
    monkeypatch.setattr(session_checks, "PART", 0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        crashes.refuse_wrong_kernel(device, BuiltKernel("k0", "other", "conv.cl"), "1 is wrong")
    model = imgconv.load(network(), device=device)
    assert checked == list(range(len(model.plan.launches)))


def test_nothing_is_right(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that names launch, kernel and driver, not a wrong answer."""
    monkeypatch.setattr(session_checks, "check_launches", wrong(""))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        with pytest.raises(imgconv.DeviceError) as error:
            imgconv.load(network(), device=device)
    for words in ("launch 'y'", "kernel generated", "1 is wrong", device.name, device.driver_version, "imgconv check"):
        assert words in str(error.value), words


def test_lost_launches(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    """No kernel is blamed for them."""
    monkeypatch.setattr(session_checks, "check_launches", wrong("", again=True))
    with pytest.raises(imgconv.DeviceError, match="loses launches"):
        imgconv.load(network(), device=device)
    assert not crashes.refused_kernels(device)
