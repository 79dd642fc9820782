"""imgconv-run, the command of native/: its options, and how it compares with references."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy
import onnx
from graphs import const, numbers
from support import make_input

import imgconv
from imgconv.cl.device import DeviceInfo
from imgconv.graph.nodes import Graph
from imgconv.tensor import Tensor, build_graph

X = numbers(1, 3, 9, 7)


def network() -> Graph:
    x = Tensor.input("x", X.shape)
    kept = x.conv2d(const(5, 3, 3, 3), padding=1).relu()
    return build_graph({"y": kept.global_average_pool().flatten().softmax(1), "kept": kept}, [x])


def test_the_command(device: DeviceInfo, environment: dict[str, str], built: Path, tmp_path: Path) -> None:
    """Status 0, 1 if a reference differs, 2 for what it cannot do."""
    model = imgconv.load(network(), device=device)
    model.save(tmp_path / "m")
    X.tofile(tmp_path / "x.raw")
    numpy.save(tmp_path / "x.npy", X)
    numpy.save(tmp_path / "wrong.npy", model.run({"x": X})["y"] + 1)

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [built / "imgconv-run", "m", "--device", device.index, *arguments]
        return subprocess.run(list(map(str, command)), cwd=tmp_path, env=environment, capture_output=True, text=True)

    assert run("--input", "x=x.raw", "--output", "y=y.npy").returncode == 0
    assert numpy.load(tmp_path / "y.npy").tobytes() == model.run({"x": X})["y"].tobytes()
    assert run("--input", "x=x.npy", "--reference", "y=y.npy").returncode == 0
    differs = run("--input", "x=x.npy", "--reference", "y=wrong.npy")
    assert (differs.returncode, differs.stderr.count("y: 5 elements differ from wrong.npy")) == (1, 1)
    listed = run("--unchecked").stdout
    assert listed == "input   x: float32 1x3x9x7\noutput  y: float32 1x5\noutput  kept: float32 1x5x9x7\n"
    assert run("--help").stdout.startswith("imgconv-run MODEL") and run("-h").returncode == 0
    for frames, seconds in ((1, 0), (3, 0), (3, 0.2)):
        measured = run("--bench", "--json", "--seconds", seconds, "--frames-in-flight", frames)
        found = json.loads(measured.stdout)
        assert found["frames"] >= 1 and found["milliseconds"]["p50"] <= found["milliseconds"]["most"], found
        quarters = found["first_quarter"] + found["last_quarter"]
        assert 0 < quarters <= 4.01 * found["frames_per_second"], found
    assert len(run("--profile").stdout.splitlines()) == len(model.plan.launches)
    wrong = ("--seconds", "a"), ("--seconds", "-1"), ("--seconds",), ("--input", "x"), ("--input", "x=y.npy"), ("--no",)
    for arguments in wrong:
        refused = run(*arguments)
        assert refused.returncode == 2 and refused.stderr.startswith("imgconv-run: "), (arguments, refused.stderr)
    assert "the model has no output 'box'; it has y, kept" in run("--output", "box=box.npy").stderr
    X.tofile(tmp_path / "frame")
    # Problems that are reported before a model is opened, even of one that cannot be opened.
    early = (
        ("--input x=none", "cannot read none"), ("--output y=no/y.npy", "cannot write no/y.npy"),
        ("--frame x=frame --plane 0,9", "needs --size"), ("--frame x=frame --size 3x3", "needs a --plane"),
        ("--rotate 45", "--rotate 45 is not a multiple of 90"),
    )
    for words, text in early:
        command = [built / "imgconv-run", "/dev/null", *words.split()]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 2 and text in done.stderr, (words, done.stderr)


def test_references_of_another_machine(
    device: DeviceInfo, environment: dict[str, str], built: Path, tmp_path: Path
) -> None:
    """--tolerance is of a reference's largest number. What is not finite differs from everything else."""
    x, half, i = Tensor.input("x", (2, 3)), Tensor.input("half", (2, 3), "float16"), Tensor.input("i", (3,), "int32")
    imgconv.load(build_graph({"y": x * 2, "z": half * 2, "j": i * 2}, [x, half, i]), device=device).save(tmp_path / "m")
    given = {
        "x": numpy.array([[1, -50, 3], [numpy.inf, numpy.nan, 0]], "f4"),
        "half": numpy.array([[1, 2**-20, 6e-5], [-numpy.inf, numpy.nan, -20]], "f2"),
        "i": numpy.array([7, -9, 0], "i4"),
    }
    right = {"y": given["x"] * 2, "z": given["half"] * 2, "j": given["i"] * 2}
    for name, array in given.items():
        numpy.save(tmp_path / f"{name}.npy", array)

    def differs(name: str, reference: numpy.ndarray, *more: str) -> tuple[int, str]:
        numpy.save(tmp_path / "directory=1.npy", reference)
        command = [built / "imgconv-run", "m", "--device", str(device.index), *more]
        command += [text for each in given for text in ("--input", f"{each}={each}.npy")]
        command += ["--reference", f"{name}=directory=1.npy"]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        (line,) = (line for line in done.stderr.splitlines() if line.startswith(name))
        return done.returncode, line.replace(" elements differ from directory=1.npy, by at most", ",").split(": ")[1]

    assert differs("y", right["y"]) == (0, "0, 0 of its largest number")
    near = right["y"] + numpy.array([[0, 0, 1], [0, 0, 0]], "f4")
    assert differs("y", near) == (1, "1, 0.01 of its largest number")
    assert differs("y", near, "--tolerance", "0.011")[0] == 0
    assert differs("y", near, "--tolerance", "0.009")[0] == 1
    for wrong in (numpy.nan_to_num(right["y"], nan=0, posinf=numpy.inf), numpy.nan_to_num(right["y"], nan=numpy.nan)):
        assert differs("y", wrong, "--tolerance", "10") == (1, "1, inf of its largest number")
    halves = right["z"] + numpy.array([[0, 2**-19, 0], [0, 0, 4]], "f2")
    status, text = differs("z", halves)
    assert status == 1 and text.endswith(", 0.111 of its largest number")  # a driver's NaN may have other bits
    assert differs("j", numpy.array([14, -20, 0], "i4")) == (1, "1, 0.1 of its largest number")


def test_a_size_is_chosen(device: DeviceInfo, environment: dict[str, str], built: Path, tmp_path: Path) -> None:
    """--shape selects the size in a file for several; the error about a wrong one lists those that the file has."""
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    graph = onnx.helper.make_graph(
        [node], "g", [make_input("x", "f4", (1, 3, "h", "w"))], [onnx.ValueInfoProto(name="y")]
    )
    proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)])
    model = imgconv.load(proto, device=device, shapes={"x": (1, 3, 8, 6)})
    model.save(tmp_path / "m", sizes=[{"x": (1, 3, 10, 7)}])
    given = numbers(1, 3, 10, 7) - 0.5
    numpy.save(tmp_path / "x.npy", given)
    command = [built / "imgconv-run", "m", "--device", str(device.index)]

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*command, *arguments], cwd=tmp_path, env=environment, capture_output=True, text=True)

    assert "input   x: float32 1x3x8x6\n" in run().stdout
    done = run("--shape", "x=1,3,10,7", "--input", "x=x.npy", "--output", "y=y.npy")
    assert done.returncode == 0, done.stderr
    assert numpy.load(tmp_path / "y.npy").tobytes() == numpy.maximum(given, 0).tobytes()
    for shape, text in (("x=1,3,9,9", "x=1,3,8,6\n  x=1,3,10,7"), ("z=1", "no model for z=1"), ("x", "NAME=SIZES")):
        refused = run("--shape", shape)
        assert refused.returncode == 2 and text in refused.stderr, refused.stderr
