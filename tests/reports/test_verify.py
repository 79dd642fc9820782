"""imgconv verify and imgconv tune --precision: what they find, what they write, what they refuse."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from command_line import Command, in_folder
import numpy
import onnx
from onnx.helper import make_node
import pytest
from PIL import Image
from planted import LAYERS, offset_model, overflow_model, picture, quantised_model
from support import make_model, run_oracle

import imgconv
from imgconv.cl.device import DeviceInfo
from imgconv.commands.verify import in_conditional_mood
from imgconv.config import Precision
from imgconv.onnx_import import import_onnx
from imgconv.passes import run_passes
from imgconv.reports import verify
from imgconv.reports.verify import LayerErrors, difference, problem_of
from imgconv.reports.verify_page import html_page
from imgconv.precision.calibration_inputs import synthetic_inputs
from imgconv.stored.precision_file import PrecisionFile, fingerprint



@pytest.fixture
def command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, device: DeviceInfo
) -> Command:
    """Runs one command line on a device, in an empty folder: exit status, stdout, stderr."""
    return in_folder(tmp_path, capsys, monkeypatch, "--device", device.index)


def layers_of(out: str) -> dict[str, dict[str, Any]]:
    return {layer["name"]: layer for layer in json.loads(out)["layers"]}


# verify


def all_in_half(model: onnx.ModelProto, mode: int = 1, precision: Precision = Precision()) -> str:
    """Writes the precision file of a model that keeps nothing float, and returns its name."""
    print_of_graph = fingerprint(run_passes(import_onnx(model)))
    Path("half.json").write_text(PrecisionFile(print_of_graph, mode, 1e-2, 0.0, precision).to_json())
    return "half.json"


def test_a_planted_overflow_is_named(command: Command) -> None:
    """It is a fault only if half is asked for; what FLOAT16=1 does, which keeps the layer in float, is right."""
    onnx.save(overflow_model(), "planted.onnx")
    half = all_in_half(overflow_model())
    status, out, err = command("verify", "planted.onnx", "--precision", half)
    assert status == 1
    assert re.search(
        r"planted\.onnx: output 'y' is not finite in fp16; "
        r"the first layer with a problem is 'big' \(conv_big\): it overflows fp16", err
    )
    lines = [line.split() for line in out.splitlines() if re.match(r"\s*\d+ ", line)]
    assert [line[1] for line in lines] == ["x", *LAYERS]
    assert ["overflows" in line for line in lines] == [False, False, True, False, False] and "65504" in out
    assert "all layers; 3 of 5 over a bound" in out
    status, out, _ = command("verify", "planted.onnx", "--precision", half, "--json")
    layers = layers_of(out)
    assert status == 1 and json.loads(out)["first_problem"] == "big" and json.loads(out)["wrong_outputs"] == ["y"]
    assert layers["first"]["half_error"] < 1e-3 and layers["big"]["half_error"] is None
    assert layers["big"]["largest"] > 65504 and layers["big"]["rounding"] is None
    assert all(layer["float_error"] < 1e-5 for layer in layers.values())
    status, out, _ = command("verify", "planted.onnx")
    assert status == 0 and "y would not be finite in fp16: --float16" in out and "overflows fp16" not in out
    assert "all layers; 0 of 5 over a bound" in out and "fp16: relative" not in out and "fp32: relative" in out
    assert command("verify", "planted.onnx", "--html", "float.html")[1].endswith("written to float.html\n")
    text = Path("float.html").read_text()
    assert "FLOAT16" not in text and "with all values stored as fp16, y is not finite" in text
    status, out, _ = command("verify", "planted.onnx", "--float16", "--json")
    assert status == 0 and layers_of(out)["big"]["stored"] == "float32"


def test_only_float(command: Command) -> None:
    onnx.save(overflow_model(), "planted.onnx")
    status, out, err = command("verify", "planted.onnx", "--no-float16", "--json")
    assert status == 0, err
    assert all(layer["half_error"] is None and layer["stored"] == "" for layer in layers_of(out).values())


@pytest.mark.usefixtures("half_arithmetic")
def test_how_each_layer_sums(command: Command, device: DeviceInfo) -> None:
    """The table, the page and the JSON of verify show each layer's sums as the precision file sets them."""
    model = overflow_model(1.0)
    onnx.save(model, "plain.onnx")
    half = all_in_half(model, 2, Precision(arithmetic=frozenset({"big"}), runs=frozenset({"back"})))
    status, out, err = command("verify", "plain.onnx", "--precision", half, "--json")
    assert status == 0, err
    expected = {"x": "", "first": "half", "big": "float", "back": "runs", "y": "half"}
    assert {name: layer["sums"] for name, layer in layers_of(out).items()} == expected
    status, out, _ = command("verify", "plain.onnx", "--precision", half, "--html", "page.html")
    rows = {line.split()[1]: line.split() for line in out.splitlines() if re.match(r"\s*\d+ ", line)}
    page_cells = r'<td class="name">(\w+)</td>.*<td data-title="sums">(\w*)</td>'
    cells = dict(re.findall(page_cells, Path("page.html").read_text()))
    said = {"x": "", "first": "fp16", "big": "fp32", "back": "chunks", "y": "fp16"}
    assert status == 0 and cells == said
    assert {name: row[-1] for name, row in rows.items() if name != "x"} == {n: s for n, s in said.items() if s}


def test_layers_that_lose_digits_and_the_bound(command: Command) -> None:
    """Half between 1000 and 1001: that layer is exact enough in its own measure, the next one is not."""
    onnx.save(offset_model(), "offset.onnx")
    numpy.savez("case.npz", x=picture())
    judged = ("verify", "offset.onnx", "--case", "case.npz", "--precision", all_in_half(offset_model()))
    status, out, err = command(*judged, "--json")
    assert status == 1 and json.loads(out)["first_problem"] == "y" and "off by" in err
    layers = layers_of(out)
    assert layers["high"]["half_error"] < 5e-4 and 0.1 < layers["y"]["half_error"] < 0.6
    assert layers["y"]["half_difference"] == pytest.approx(0.25, abs=0.03)
    assert command(*judged, "--bound", 0.6)[0] == 0
    status, _, err = command(*judged, "--bound", "1e-4")
    assert status == 1 and "'x'" in err


def test_an_output_that_differs_as_onnxruntime_does_from_itself(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An oracle whose runs are off by these parts stands for one that rounds to other levels.

    Its second run has perturbed inputs: the output may be off by seven times what that changes. Its third one has its
    own optimisations: the output may be as near to either run as they are to each other.
    """
    onnx.save(quantised_model(), "levels.onnx")
    onnx.save(overflow_model(1.0), "plain.onnx")
    right = verify.reference
    calls: list[bool] = []
    arrays: dict[str, Any] = {}

    def off(path: Any, graph: Any, inputs: Any, optimised: bool = False) -> Any:
        if not calls:  # on some CPUs the other runs round to other levels by themselves
            arrays.update(right(path, graph, inputs))
        calls.append(optimised)
        return arrays | {"y": arrays["y"] * (1 + parts[len(calls) - 1])}

    monkeypatch.setattr(verify, "reference", off)
    by_moved, by_optimised = "if its inputs change by 1e-7", "with and without its graph optimisations"
    for model, parts, verdict in (
        ("levels.onnx", (0.01, 0.004), by_moved), ("levels.onnx", (0.01, 0.01, -0.01), by_optimised),
        ("levels.onnx", (0.01, 0.01, 0.004), by_optimised), ("levels.onnx", (0.01, 0.01, 0.008), ""),
        ("plain.onnx", (0.01,), ""),
    ):
        calls.clear()
        status, out, err = command("verify", model)
        assert status == (not verdict) and calls == [False, False, True][: len(parts)], err
        assert [reason for reason in (by_moved, by_optimised) if reason in out] == [verdict] * bool(verdict)


@pytest.mark.parametrize(
    ("problem", "said"),
    [
        ("is off by 0.14 in fp16, over 0.01", "would be off by 0.14 in fp16"),
        ("is not finite in fp16", "would not be finite in fp16"),
        ("overflows fp16: 7e+04 is over 65504", "would overflow fp16"),
    ],
)
def test_half_that_is_not_judged_is_said_in_a_line(problem: str, said: str) -> None:
    assert in_conditional_mood(problem) == said


def test_inputs_are_perturbed_by_one_digit() -> None:
    given = {"x": numpy.linspace(-3, 3, 101, dtype=numpy.float32), "n": numpy.arange(3)}
    other = verify.perturbed_inputs(given)
    gaps = abs(other["x"].astype(float) - given["x"])
    assert (other["n"] == given["n"]).all() and (gaps > 0).all() and (gaps <= 1.2e-7 * abs(given["x"]) + 1e-44).all()


def test_a_fault_in_float_is_found(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """An oracle that is 1 % off in one layer stands for a kernel that is."""
    onnx.save(overflow_model(1.0), "plain.onnx")
    assert command("verify", "plain.onnx")[0] == 0
    right = verify.reference

    def wrong(*arguments: Any) -> dict[str, Any]:
        arrays = right(*arguments)
        return arrays | {"back": arrays["back"] * numpy.float32(1.01)}

    def wrong_at_the_end(*arguments: Any) -> dict[str, Any]:
        return wrong(*arguments) | {"y": right(*arguments)["y"] * numpy.float32(1.02)}

    monkeypatch.setattr(verify, "reference", wrong)
    status, out, err = command("verify", "plain.onnx")
    assert status == 0 and "1 of 5 over a bound" in out, "the outputs are right"
    assert "differs from onnxruntime by 0.0099 in fp32, over 0.001" in out
    monkeypatch.setattr(verify, "reference", wrong_at_the_end)
    status, _, err = command("verify", "plain.onnx")
    assert status == 1 and "output 'y' differs from onnxruntime by 0.02 in fp32" in err
    assert "first layer with a problem is 'back'" in err


def test_outputs_of_the_host_are_judged(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """The output is positions of numbers above a threshold: the device makes the mask, the host finds the positions."""
    weights = numpy.random.default_rng(0).normal(size=(2, 3, 3, 3)).astype(numpy.float32)
    nodes = [
        make_node("Conv", ["x", "w"], ["a"], pads=[1] * 4), make_node("Relu", ["a"], ["r"]),
        make_node("NonZero", ["r"], ["z"]), make_node("Cast", ["z"], ["y"], to=onnx.TensorProto.FLOAT),
    ]
    onnx.save(make_model(nodes, {"x": numpy.zeros((1, 3, 8, 8), numpy.float32)}, ["y"], 13, {"w": weights}), "nz.onnx")
    status, out, err = command("verify", "nz.onnx", "--json")
    assert status == 0, err
    outputs = {name: layer for name, layer in layers_of(out).items() if layer["is_output"]}
    assert list(outputs) == ["y"] and outputs["y"]["operation"] == "on the host"
    assert outputs["y"]["float_error"] == 0 and outputs["y"]["largest"] == 7
    right = verify.reference
    for change in (lambda y: y + 1, lambda y: y[:, 1:]):
        changed = {"y": change(right("nz.onnx", *reference_inputs("nz.onnx"))["y"])}
        monkeypatch.setattr(verify, "reference", lambda *given, changed=changed: right(*given) | changed)
        status, _, err = command("verify", "nz.onnx")
        assert status == 1 and "output 'y' differs from onnxruntime" in err


def reference_inputs(path: str) -> tuple[Any, Any]:
    """The graph of a model and its drawn inputs, as verify has them."""
    graph = run_passes(import_onnx(path))
    return graph, synthetic_inputs(graph)[0]


def test_pictures_and_fused_layers(command: Command) -> None:
    """A layer has the name of the last tensor that is fused into it, and the nodes that it came from."""
    model = overflow_model(1.0)
    model.graph.node.append(onnx.helper.make_node("Relu", ["y"], ["z"], name="relu"))
    model.graph.output[0].name = "z"
    onnx.save(model, "fused.onnx")
    Image.fromarray(numpy.random.default_rng(1).integers(0, 255, (20, 30, 3), numpy.uint8)).save("a.png")
    status, out, err = command("verify", "fused.onnx", "a.png", "--scale", "1/255", "--json")
    assert status == 0, err
    layers = layers_of(out)
    assert list(layers) == ["x", *LAYERS[:-1], "z"] and layers["z"]["origin"] == ["conv_y", "relu"]
    assert 0.5 < layers["x"]["largest"] <= 1


def test_what_verify_refuses(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    onnx.save(overflow_model(), "planted.onnx")
    Path("broken.npz").write_bytes(b"PK\x03\x04 not really")
    numpy.save("array.npy", picture())
    numpy.savez("other.npz", z=picture())
    numpy.savez("empty.npz")
    Image.new("RGB", (8, 8)).save("photo.jpg")
    for case, part in (
        ("none.npz", "cannot read"), ("broken.npz", "not a valid .npz"), ("array.npy", "not a valid .npz"),
        ("other.npz", "'other.npz' has an array 'z'; the model's inputs are x"), ("empty.npz", "input 'x' is missing"),
        ("photo.jpg", "it has another format"),
    ):
        status, out, err = command("verify", "planted.onnx", "--case", case)
        assert status == 1 and out == "" and part in err and "fault" not in err and "pickle" not in err, (case, err)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    status, _, err = command("verify", "planted.onnx")
    assert status == 1 and "pip install 'imgconv[verify]'" in err


def test_page_is_self_contained(command: Command) -> None:
    name = '<b> & "big"'
    onnx.save(overflow_model(middle=name), "planted.onnx")
    half = all_in_half(overflow_model(middle=name))
    status, _, err = command("verify", "planted.onnx", "--precision", half, "--html", "out.html")
    assert status == 1 and name in err
    text = Path("out.html").read_text()
    assert not re.search(r"https?:|<script|<img|url\(|@import", text) and text.count("<link") == 1
    assert '<link rel="icon" href="data:,">' in text and 'content="width=device-width' in text
    assert "<b>" not in text and "&lt;b&gt; &amp; &quot;big&quot;" in text
    rows = re.findall(r"<tr title.*?</tr>", text, re.DOTALL)
    assert len(rows) == 6 and all(row.count('class="scale"') == 3 for row in rows), "an output and five layers"
    assert ['class="problem"' in row for row in rows] == [True, False, False, True, True, True]
    assert "overflows fp16" in text and command("verify", "planted.onnx", "--html", "no/out.html")[0] == 1


def test_bars_are_as_long_as_their_numbers() -> None:
    layer = LayerErrors("a", (1,), "convolution", (), 65504.0, 1e-4, 0.0, 1e-8, "float16", 0.1, 0.1, "")
    widths = re.findall(r'class="(bar[ a-z]*)" style="width:([\d.]+)%"', html_page("t", "", [layer], 1e-2))
    # From 1e-8 to 1e1 and from 1e-3 to 1e7.
    assert widths == [("bar", "0.0"), ("bar over", "77.8"), ("bar", "78.2")]
    endless = LayerErrors(
        "a", (1,), "", (), float("inf"), float("inf"), None, None, "float16", float("inf"), float("inf")
    )
    text = html_page("t", "", [endless], 1e-2)
    assert text.count('"bar over" style="width:100.0%"') == 2 and "not measured" in text


def test_problems() -> None:
    fine = LayerErrors("a", (1,), "", (), 1.0, 1e-4, 1e-6, 1e-6, "float16", 1e-4, 1e-4)
    assert problem_of(fine, 1e-2, 1e-3) == ""
    for change, problem in (
        ({"float_error": 2e-3}, "in fp32"), ({"float_error": float("nan")}, "in fp32"),
        ({"largest": 7e4}, "overflows fp16"), ({"half_error": 2e-2}, "off by 0.02"),
        ({"half_error": float("inf")}, "not finite"),
    ):
        assert problem in problem_of(LayerErrors(**{**vars(fine), **change}), 1e-2, 1e-3)
    kept = {"largest": 7e4, "stored": "float32"}
    assert problem_of(LayerErrors(**{**vars(fine), **kept}), 1e-2, 1e-3) == ""
    assert difference(numpy.array([1.0, numpy.nan]), numpy.array([3.0, numpy.inf])) == 2.0
    assert difference(numpy.array([numpy.nan]), numpy.array([3.0])) == float("inf")


# tune --precision


def test_tune_keeps_the_overflow_in_float(command: Command, device: DeviceInfo) -> None:
    onnx.save(overflow_model(), "planted.onnx")
    status, out, err = command("tune", "--precision", "--tolerance", "1e-2", "planted.onnx")
    assert status == 0, err
    content = json.loads(Path("planted.precision.json").read_text())
    assert content["float_storage"] == ["big"] and content["error"] <= 1e-2
    share = re.search(r"^(\d) of (\d) values are fp16, .* stays? fp32: .*\bnear 65504", out, re.MULTILINE)
    assert share and "planted.precision.json" in out
    out = command("inspect", "planted.onnx", "--float16")[1]
    assert f"float16=1: {share[1]} of {share[2]} values are fp16" in out, "both count the same"
    assert [path.name for path in Path().iterdir() if "precision" in path.name] == ["planted.precision.json"]
    status, _, err = command("verify", "planted.onnx", "--precision", "planted.precision.json")
    assert status == 0, err
    x = picture()
    model = imgconv.load("planted.onnx", device, precision="planted.precision.json")
    expected = run_oracle(overflow_model(), {"x": x})["y"]
    assert numpy.abs(model(x) - expected).max() <= 2e-3 * numpy.abs(expected).max()
    numpy.save("x.npy", x)
    arguments = ("--input", "x=x.npy", "--save", "y.npz", "--precision", "planted.precision.json")
    assert command("run", "planted.onnx", *arguments)[0] == 0
    with numpy.load("y.npz") as saved:
        numpy.testing.assert_array_equal(saved["y"], model(x))


def test_tune_measures_the_pictures_given(command: Command) -> None:
    """The layer that loses digits on them stays float, and one that is large on 0 .. 255 only does not."""
    onnx.save(offset_model(), "offset.onnx")
    for name, seed in (("a.png", 1), ("b.png", 2)):
        pixels = numpy.random.default_rng(seed).integers(0, 255, (12, 10, 3), numpy.uint8)
        Image.fromarray(pixels).save(name)
    arguments = ("tune", "--precision", "offset.onnx", "a.png", "b.png", "--scale", "1/255")
    status, out, err = command(*arguments, "--json", "--output", "chosen.json")
    assert status == 0, err
    assert json.loads(Path("chosen.json").read_text())["float_storage"] == ["high"]
    result = json.loads(out)
    assert result["file"] == "chosen.json" and result["error"] <= 1e-2 < 0.1 < result["half_error"]
    onnx.save(overflow_model(1000.0), "large.onnx")
    for pictures, kept in (((), ["big"]), (("a.png", "--scale", "1/255"), [])):
        assert command("tune", "--precision", "large.onnx", *pictures)[0] == 0
        assert json.loads(Path("large.precision.json").read_text())["float_storage"] == kept
    status, _, _ = command(*arguments, "--output", "loose.json", "--tolerance", 1)
    assert status == 0 and json.loads(Path("loose.json").read_text())["float_storage"] == []


def test_what_tune_refuses(command: Command) -> None:
    onnx.save(overflow_model(), "planted.onnx")
    status, _, err = command("tune", "planted.onnx", "a.png")
    assert status == 1 and "pictures can only be used with --precision" in err
    for arguments, part in (
        (("--merge", "none.tuning"), "there is no tuning file"), (("--budget", "-5"), "--budget is -5"),
        (("--tolerance", "1"), "--tolerance can only be used with --precision"),
    ):
        status, out, err = command("tune", "planted.onnx", *arguments)
        assert status == 1 and out == "" and part in err, err
    for arguments, part in (
        (("--merge", "none.tuning"), "--merge can only be"), (("--budget", "9"), "--budget can only"),
        (("--tolerance", "0"), "--tolerance is"), (("--output", "no/p.json"), "cannot write"), (("no.png",), "no.png"),
    ):
        status, out, err = command("tune", "--precision", "planted.onnx", *arguments)
        assert status == 1 and out == "" and part in err, err
    numpy.save("x.npy", picture())
    status, out, err = command("run", "planted.onnx", "--input", "x=x.npy", "--precision", "none.json")
    assert status == 1 and out == "" and "cannot read 'none.json'" in err
