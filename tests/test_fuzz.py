"""The fuzzing tool: what it draws is drawn again, what fails is found and made smaller; a few cases of each kind."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
from fuzz import __main__ as tool
from fuzz import compared, files, models, planted, quantized
from fuzz.case import Draw, Wrong, damaged
from fuzz.every_case import OPSETS, by_operator
from support import HANG_TIMEOUT, make_model

from imgconv import ops
from imgconv.files.container import ContainerFile
from imgconv.graph.evaluate import evaluate_graph
from imgconv.onnx_import import import_onnx

CONTENT = bytes(range(256))


def test_a_case_is_drawn_again() -> None:
    assert damaged(Draw(7), CONTENT) == damaged(Draw(7), CONTENT) != damaged(Draw(8), CONTENT)
    drawn = [models.changed(Draw(n), models.model_of(models.cases()[0])[0]).SerializeToString() for n in (3, 3, 4)]
    assert drawn[0] == drawn[1]


def test_leaving_out_a_step_changes_no_other() -> None:
    done: list[list[float]] = []
    for skipped in ((), (1,)):
        found: list[float] = []
        draw = Draw(0, skipped)
        for _ in range(3):
            draw.step(lambda random, found=found: found.append(random.random()))
        done.append(found)
    assert done[1] == [done[0][0], done[0][2]]


def test_crashes_hangs_and_faults_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that ends or hangs loses the one case only."""
    lines = tool.lines

    def hasty(process: subprocess.Popen[bytes]) -> Iterator[dict[str, Any]]:
        """The lines, with little patience once the case that hangs has begun."""
        monkeypatch.setattr(tool, "PATIENCE", HANG_TIMEOUT)
        for line in lines(process):
            if "begins" in line and line["seed"] == planted.HANG:
                monkeypatch.setattr(tool, "PATIENCE", 1.0)
            yield line

    monkeypatch.setattr(tool, "lines", hasty)
    found = list(tool.results("planted", range(10)))
    assert [seed for seed, *_ in found] == list(range(10))
    failed = {seed: how for seed, _, how, _ in found if how}
    assert failed.keys() == {planted.CRASH, planted.HANG, planted.FAULT, planted.LOOP}
    assert failed[planted.CRASH] == "the process ends with -9"
    assert failed[planted.HANG] == "it takes over 1 s" and "Wrong at" in failed[planted.FAULT]
    assert found[planted.ORACLE][1] == "the oracle ends the process"
    assert failed[planted.LOOP] == "it takes over 30 s of processor time"


def test_a_case_that_fails_is_made_smaller() -> None:
    said, failed, steps = tool.outcome("planted", planted.FAULT)
    assert not said and "two" in failed and steps == 4
    assert tool.smaller("planted", planted.FAULT, failed) == [0, 1, 3]


def test_a_case_that_ends_its_process_is_made_smaller() -> None:
    assert tool.smaller("planted", planted.CRASH, "the process ends with -9") == [0, 1, 3]


def test_a_damaged_file_is_made_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the changes that matter: one, unless it moves the place of another. What cuts a file off is a change too."""
    monkeypatch.setattr(files, "DEVICES", {"cpu": files.DEVICES["cpu"]})
    whole = files.whole_file(("cpu",))

    def use(_: Draw, path: Path) -> None:
        if ContainerFile(path).head[-8000:] != whole[-8000:]:
            raise Wrong("its end is another")

    monkeypatch.setattr(files, "KINDS", ((files.compiled_file, use),) * 2)
    left: list[int] = []
    for seed in range(40):
        _, how, steps = tool.outcome("files", seed)
        if how and steps > 1:
            out = tool.smaller("files", seed, how)
            needed = sorted(set(range(steps)) - set(out))
            assert not any(tool.outcome("files", seed, [*out, step])[1] for step in needed), seed
            left.append(len(needed))
        if left.count(1) == 3:
            break
    assert left.count(1) == 3, f"of 40 files, these changes are needed: {left}"


def test_every_failure_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The first of each sort is made smaller."""
    failures = ["Wrong at a.py:f: one", "Wrong at a.py:f: two", "", "the process ends with -9"]
    monkeypatch.setattr(tool, "results", lambda kind, seeds: ((n, "", how, 1) for n, how in enumerate(failures)))
    monkeypatch.setattr(tool, "smaller", lambda kind, seed, failed: [seed])
    monkeypatch.setattr("sys.argv", ["fuzz", "graphs"])
    assert tool.main() == 1
    *told, _ = capsys.readouterr().out.partition("graphs:")[0].split("\n")
    assert told == [
        "seed 0: Wrong at a.py:f: one without steps [0]", "seed 1: Wrong at a.py:f: two",
        "seed 3: the process ends with -9 without steps [3]",
    ]


def test_graphs_know_every_operator() -> None:
    known = {name for opset in OPSETS for name in by_operator(opset)}
    assert set(ops.supported()) - known == {"ai.onnx.ml.ZipMap"}  # it makes no tensor


@pytest.mark.parametrize("wrong", ["oracle", "ours", "neither"])
def test_who_is_wrong(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decided by onnx's reference implementation in float64."""
    x = numpy.linspace(-1, 1, 12, dtype=numpy.float32).reshape(3, 4)
    model = make_model([compared.NODE("Softmax", ["x"], ["y"])], {"x": x}, ["y"], 13)
    right = compared.oracle(model, {"x": x})
    assert right is not None
    off = {"y": right["y"] + numpy.float32(0.01)}
    if wrong == "oracle":
        monkeypatch.setattr(compared, "oracle", lambda model, inputs: off)
    found = {"way": off if wrong == "ours" else right}
    if wrong == "ours":
        with pytest.raises(Wrong, match="way: y is off by 0.01"):
            compared.judged(model, {"x": x}, right, found, False)
    else:
        said = compared.judged(model, {"x": x}, off if wrong == "oracle" else right, found, False)
        assert said == (compared.ORACLES_FAULT if wrong == "oracle" else "1 ways agree")


def test_the_sign_of_a_transforms_zero_is_not_judged() -> None:
    """onnxruntime has 1e-7 there. The name is that which graphs.py gives; without it the zero counts."""
    x = numpy.sin(numpy.arange(12, dtype=numpy.float32)).reshape(1, 12, 1)
    constants = {"step": numpy.array(1), "size": numpy.array(12)}
    for name in ("STFT-17_1", "another"):
        nodes = [
            compared.NODE("STFT", ["x", "step", "", "size"], ["t"], name=name), compared.NODE("Sign", ["t"], ["y"]),
        ]
        model = make_model(nodes, {"x": x}, ["y"], 17, constants)
        spectrum = numpy.fft.rfft(x.ravel().astype(float))
        exact = numpy.sign(numpy.stack([spectrum.real, spectrum.imag], -1).reshape(1, 1, 7, 2))
        right = compared.oracle(model, {"x": x})
        assert right is not None and (right["y"] != exact).any()
        assert bool(compared.different({"y": exact}, right, [], 1e-5))
        moved = [compared.moved_result(model, {"x": x}, compared.EPSILON, n) for n in range(6)]
        assert bool(compared.different({"y": exact}, right, [m for m in moved if m], 1e-5)) == (name == "another")


def test_a_wrong_level_is_found() -> None:
    """A level one off is told apart from a tie, in whichever layer it is; the layers after it are judged by it."""
    network, feeds = quantized.drawn(Draw(3))
    model = make_model(network.nodes, feeds, [each.name for each in network.tensors], network.opset, network.constants)
    right = evaluate_graph(import_onnx(model), feeds)
    quantized.judge(network, right, "right")
    assert len(network.layers) > 1
    for layer in network.layers:
        wrong = {name: array.copy() for name, array in right.items()}
        levels = wrong[layer.made.name]
        levels.flat[0] = int(levels.flat[0]) + (1 if levels.flat[0] < numpy.iinfo(levels.dtype).max else -1)
        with pytest.raises(Wrong, match=layer.made.name):
            quantized.judge(network, wrong, "wrong")


COUNTS = {
    "models": 150, "files": 12, "pictures": 40, "graphs": 3, "streams": 2, "plans": 5, "quantized": 10, "cuttings": 4,
    "kills": 1,
}


@pytest.mark.models
@pytest.mark.parametrize(("kind", "count"), COUNTS.items())
def test_a_few_cases(kind: str, count: int) -> None:
    for seed in range(count):
        said, failed, _ = tool.outcome(kind, seed)
        assert said and not failed, f"seed {seed}: {failed}"


def test_every_part_of_a_compiled_file_is_changed() -> None:
    values, _ = files.packed()
    names = {name for path in files.places(values) for name in path if isinstance(name, str)}
    assert {"terms", "expressions", "text", "binary", "global_size", "reduction", "choice", "shape"} <= names
