"""imgconv.batch: pictures in rows, rows with answers; here and in the processes of a local Ray."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

from command_line import write_classifier, write_model
import numpy
import onnx
from onnx.helper import make_node
from PIL import Image
import pytest
from support import HANG_TIMEOUT

import imgconv
from imgconv.batch import Predictor
from imgconv.cl.device import DeviceInfo
from imgconv.tasks import Description

ROOT = Path(__file__).parent.parent
AS_THEY_ARE = Description(task="classify", head="scores", preparation={"scale": 1 / 255})


def encoded(color: tuple[int, int, int], size: tuple[int, int] = (16, 12)) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", size, color).save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_classifier()
    return tmp_path


def batch(count: int = 7) -> dict[str, Any]:
    """Colors in turn, and a row that is no picture."""
    colors = [(255, 0, 0), (0, 255, 0), (0, 0, 255)]
    pictures = [b"no picture" if n == 4 else encoded(colors[n % 3]) for n in range(count)]
    return {"path": numpy.array([f"{n}.png" for n in range(count)]), "bytes": numpy.array(pictures, object)}


def test_rows_keep_their_order_and_bad_pictures_their_rows(folder: Path, device: DeviceInfo) -> None:
    rows = Predictor("means.onnx", description=AS_THEY_ARE, device=device)(batch())
    assert set(rows) == {"path", "answers", "error"} and [*rows["path"]] == [f"{n}.png" for n in range(7)]
    best = [json.loads(text)["y"]["classes"][0]["index"] if text else None for text in rows["answers"]]
    assert best == [0, 1, 2, 0, None, 2, 0]
    assert [bool(error) for error in rows["error"]] == [n == 4 for n in range(7)]
    assert "not a picture that Pillow can read" in rows["error"][4]


def test_raw_outputs_are_arrays_and_arrays_are_pictures(folder: Path, device: DeviceInfo) -> None:
    predictor = Predictor("means.onnx", "image", raw=True, device=device)
    assert repr(Predictor("means.onnx", device=1)) == "Predictor('means.onnx', column='bytes', raw=False, device=1)"
    pixels = numpy.zeros((3, 5, 6, 3), numpy.uint8)
    pixels[1] = (10, 20, 30)
    rows = predictor({"image": pixels})
    assert rows["y"].shape == (3, 1, 3, 1, 1) and rows["y"].dtype == numpy.float32
    numpy.testing.assert_allclose(rows["y"][:, 0, :, 0, 0], [[0, 0, 0], [10, 20, 30], [0, 0, 0]], atol=1e-4)
    wrong = predictor({"image": [pixels[1], pixels[1].astype(float)]})
    assert wrong["error"][0] == "" and "float64" in wrong["error"][1] and not wrong["y"][1].any()


def test_pictures_of_all_sizes_are_resized_as_pillow_does(folder: Path, device: DeviceInfo) -> None:
    """By the device; the last one is too large for it, so that the host does it."""
    write_model("relu.onnx", [make_node("Relu", ["x"], ["y"])], {"x": [1, 3, 16, 16]})
    numbers, sizes = numpy.random.default_rng(3), [(37, 23), (9, 40), (16, 16), (2100, 1400)]
    pictures = [numbers.integers(0, 256, (height, width, 3), numpy.uint8) for width, height in sizes]
    as_bytes = Description(preparation={"scale": 1.0})
    found = Predictor("relu.onnx", raw=True, description=as_bytes, device=device)({"bytes": pictures})["y"]
    for each, picture in zip(found, pictures, strict=True):
        for channel in range(3):
            plane = Image.fromarray(picture[..., channel].astype(numpy.float32))
            expected = numpy.asarray(plane.resize((16, 16), Image.Resampling.BILINEAR))
            numpy.testing.assert_allclose(each[0, channel], expected, atol=2e-3)  # float sums of up to 100,000 numbers


def test_pixels_are_in_the_range_that_run_finds(folder: Path, device: DeviceInfo) -> None:
    """A network that may make images is for 0 to 1; metadata of Windows ML say more; a Description says all."""
    write_model("plain.onnx", [make_node("Relu", ["x"], ["y"])], {"x": [1, 3, 16, 16]})
    model = onnx.load("plain.onnx")
    onnx.helper.set_model_props(model, {"Image.NominalPixelRange": "Normalized_1_1"})
    onnx.save(model, "told.onnx")
    for file, about, red in (
        ("plain.onnx", None, 200 / 255), ("told.onnx", None, 200 / 127.5 - 1),
        ("told.onnx", Description(preparation={"scale": 0.5}), 100.0),
    ):
        rows = Predictor(file, raw=True, description=about, device=device)({"bytes": [encoded((200, 0, 255))]})
        numpy.testing.assert_allclose(rows["y"][0, 0, 0], red, atol=1e-4)


def test_outputs_whose_size_depends_on_data(folder: Path, device: DeviceInfo) -> None:
    nodes = [make_node("Relu", ["x"], ["r"]), make_node("NonZero", ["r"], ["y"])]
    write_model("places.onnx", nodes, {"x": [1, 3, 4, 4]})
    pictures = [encoded((0, 0, 9), (4, 4)), b"bad", encoded((9, 9, 0), (4, 4))]
    rows = Predictor("places.onnx", raw=True, device=device)({"bytes": pictures})
    assert [None if each is None else each.shape for each in rows["y"]] == [(4, 16), None, (4, 32)]
    rows = Predictor("places.onnx", raw=True, device=device)({"bytes": pictures[:1] * 2})
    assert [each.shape for each in rows["y"]] == [(4, 16)] * 2


def test_it_travels_to_another_process_after_it_was_used(folder: Path, device: DeviceInfo) -> None:
    predictor = Predictor("means.onnx", description=AS_THEY_ARE, device=device.index)
    expected = predictor(batch())
    code = "import pickle, sys; rows = pickle.loads(sys.stdin.buffer.read())"
    code += "; sys.stdout.buffer.write(pickle.dumps(rows[0](rows[1])))"
    done = subprocess.run(
        [sys.executable, "-c", code], input=pickle.dumps((predictor, batch())), capture_output=True, check=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    found = pickle.loads(done.stdout)
    assert all(numpy.array_equal(found[name], expected[name]) for name in expected)


def test_what_is_refused(folder: Path, device: DeviceInfo) -> None:
    with pytest.raises(imgconv.InputError, match="no column 'bytes' of pictures; it has path"):
        Predictor("means.onnx", device=device)({"path": ["a"]})
    write_model("two.onnx", [make_node("Add", ["x", "s"], ["y"])], {"x": [1, 3, 8, 8], "s": [8]})
    with pytest.raises(imgconv.InputError, match="Predictor needs a model with one input, a picture"):
        Predictor("two.onnx", device=device)(batch())
    write_classifier("open.onnx", "h", "w")
    with pytest.raises(imgconv.ShapeError, match="h"):
        Predictor("open.onnx", device=device)(batch())
    assert Predictor("open.onnx", device=device, shapes={"h": 4, "w": 4}, raw=True)(batch())["y"].shape[0] == 7


# Ray. IMGCONV_RAY names a Python that has it, if this one does not.

KILLED = """
import os, signal
from examples import ray_folder
from imgconv.batch import Predictor

class Killed(Predictor):
    '''Ends its process at the first sight of one picture, without a word.'''
    def __call__(self, batch):
        if any(path.endswith("030.png") for path in batch["path"]):
            try:
                os.close(os.open(os.environ["KILLED"], os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(batch)

print(ray_folder.run("means.onnx", "photos", "results", workers=2, rows=4, predictor=Killed))
"""


def run_ray(folder: Path, *words: object) -> str:
    """Runs a Python that has Ray, and gives what it prints."""
    python = os.environ.get("IMGCONV_RAY", sys.executable if importlib.util.find_spec("ray") else "")
    if not python:
        pytest.skip("needs Ray: pip install 'imgconv[ray]', or IMGCONV_RAY with the path of a Python that has it")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "KILLED": str(folder / "killed")}
    done = subprocess.run(
        [python, *map(str, words)], cwd=folder, env=environment, capture_output=True, text=True, timeout=HANG_TIMEOUT
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.ray
def test_a_killed_worker_and_a_second_start_lose_no_row(folder: Path) -> None:
    """One of two workers is killed in the middle; then pictures are added and the same folder runs again."""
    (folder / "photos").mkdir()
    (folder / "means.task.json").write_text('{"task": "classify", "head": "scores"}')
    for n in range(60):
        (folder / "photos" / f"{n:03}.png").write_bytes(b"bad" if n % 20 == 7 else encoded((n, 0, 0)))
    assert "60 pictures done, 3 of them with an error" in run_ray(folder, "-c", KILLED)
    assert (folder / "killed").exists(), "a worker was killed"
    for n in range(60, 70):
        (folder / "photos" / f"{n:03}.png").write_bytes(encoded((n, 0, 0)))
    broken = folder / "results" / "broken.parquet"
    broken.write_bytes(next((folder / "results").glob("*.parquet")).read_bytes()[:-9])
    command = ("-m", "examples.ray_folder", "means.onnx", "photos", "results", "--workers", 2)
    printed = run_ray(folder, *command)
    assert "60 of 70 pictures are done already" in printed and not broken.exists()
    assert "70 pictures done, 3 of them with an error" in printed
    read = "import json, pyarrow.dataset as d; print(json.dumps(d.dataset('results').to_table().to_pylist()))"
    rows = json.loads(run_ray(folder, "-c", read))
    assert sorted(Path(row["path"]).name for row in rows) == [f"{n:03}.png" for n in range(70)]
    for row in rows:
        number = int(Path(row["path"]).stem)
        if number % 20 == 7 and number < 60:
            assert row["error"] and not row["answers"]
        else:
            (best,) = (each for each in json.loads(row["answers"])["y"]["classes"] if each["index"] == 0)
            assert best["score"] == pytest.approx(number, abs=0.01)
