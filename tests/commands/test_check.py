"""imgconv check: verdicts on each launch of a model, and on each kernel variant."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import Command, write_convolution

import imgconv as engine
from imgconv.checking import session_checks
from imgconv.checking.comparing import LaunchVerdict
from imgconv.checking.session_checks import SessionUnderTest, check_launches
from imgconv.cl.building import crashes
from imgconv.cl.building.program_source import BuiltKernel
from imgconv.cl.device import DeviceInfo
from imgconv.commands import check

SHAPE = ("--shape", "x=1,3,12,10")


@pytest.fixture
def wrong_convolutions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every launch of conv.cl is found to be wrong."""

    def found(running: SessionUnderTest) -> Iterator[tuple[int, LaunchVerdict]]:
        for number, finding in check_launches(running):
            is_wrong = "conv.cl" in finding.kernel
            yield number, replace(finding, verdict="wrong", text="1 is wrong") if is_wrong else finding

    monkeypatch.setattr(session_checks, "check_launches", found)


def test_a_model(imgconv: Command, device: DeviceInfo) -> None:
    write_convolution()
    status, out, err = imgconv("check", "conv.onnx", *SHAPE, "--device", device.index)
    assert status == 0 and " 0 wrong, 0 not covered" in out, out + err


def test_a_compiled_file(imgconv: Command, device: DeviceInfo) -> None:
    write_convolution()
    model = engine.load("conv.onnx", device=device, shapes={"x": (1, 3, 12, 10)})
    model.save("conv.imgconv")
    status, out, err = imgconv("check", "conv.imgconv", "--device", device.index, "--json")
    assert status == 0, err
    (plan,) = json.loads(out)["plans"]
    assert len(plan["launches"]) == len(model.plan.launches)
    assert {each["verdict"] for each in plan["launches"]} == {"right"}


def test_a_wrong_launch(imgconv: Command, device: DeviceInfo, wrong_convolutions: None) -> None:
    write_convolution()
    options = (*SHAPE, "--device", device.index)
    status, out, err = imgconv("check", "conv.onnx", *options, "--report", "report.txt")
    assert status == 1 and "1 wrong" in out and "1 launches are wrong; report.txt has" in err
    text = Path("report.txt").read_text(encoding="utf-8")
    for words in (device.name, device.driver_version, "found: 1 is wrong", "conv.cl", "__kernel void NAME"):
        assert words in text, words
    assert "wrong launches: 2\n" in text
    smallest, own = (line for line in text.splitlines() if ", launch " in line)
    assert "alone, of (1, 1, 1, 1), gives" in smallest and own.startswith("conv.onnx")
    status, out, _ = imgconv("check", "conv.onnx", *options, "--json")
    assert status == 1 and json.loads(out)["wrong"] == 1


def test_kernels_that_were_wrong_are_tried_again(imgconv: Command, device: DeviceInfo) -> None:
    """A report is about them, though plans do without them. What is known of them stays."""
    write_convolution()
    launches = engine.load("conv.onnx", device=device, shapes={"x": (1, 3, 12, 10)}).plan.launches
    (key,) = (launch.source.key for launch in launches if launch.source.path == "conv.cl")
    with pytest.warns(RuntimeWarning, match="1 is wrong"):
        crashes.refuse_wrong_kernel(device, BuiltKernel("k0", key, "conv.cl"), "1 is wrong")
    before = crashes.refused_kernels(device)
    status, out, _ = imgconv("check", "conv.onnx", *SHAPE, "--device", device.index, "--json")
    kernels = [launch["kernel"] for launch in json.loads(out)["plans"][0]["launches"]]
    specialisation = next(launch.specialisation for launch in launches if launch.source.key == key)
    assert status == 0 and f"conv.cl {specialisation}" in kernels
    assert crashes.refused_kernels(device) == before and key in before


def test_kernel_variants(imgconv: Command, device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each variant is right on the drivers that imgconv is tested on."""
    monkeypatch.setattr(check, "SECONDS", 600.0)
    graphs = list(check.variant_graphs())[::6]
    monkeypatch.setattr(check, "variant_graphs", lambda: iter(graphs))
    monkeypatch.setattr(check, "FORMATS", ("nv12", "p010"))
    status, out, err = imgconv("check", "--device", device.index)
    widths = 1 + device.half_images + (device.half_images and device.fp16_arithmetic)
    count = widths * len(graphs) + 2
    assert status == 0 and f"computes {count} of {count} kernel variants" in out and "frames of p010" in out, out + err


def test_variants_that_take_too_long(imgconv: Command, device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "SECONDS", -1.0)
    status, out, _ = imgconv("check", "--device", device.index)
    assert status == 0 and "computes 0 of 0 kernel variants" in out and "were not checked" in out


def test_every_template_has_a_form(device: DeviceInfo) -> None:
    """On this device; templates that are for others only are named."""
    for_gpus = {"kernels/squeeze_excite/squeeze_excite.cl", "kernels/winograd/winograd2d.cl", "kernels/order/merge.cl"}
    for_gpus |= {"kernels/separable/separable.cl"}
    found = set()
    for graph in check.variant_graphs():
        prepared = check.prepare_for(device, graph, check.Config())
        found |= {launch.source.path for launch in prepared.plan().launches}
    from imgconv.kernels.templates import TEMPLATES

    files = {template.file for template in TEMPLATES} | {"kernels/conv/depthwise.cl"}
    assert files - found <= for_gpus, files - found
