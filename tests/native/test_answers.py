"""Files whose outputs are answers, in the player: Python's answers to the bit, and what they mean."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy
import pytest
from camera_frames import check_printed, expected_rows
from played import Play, assert_same_bits

import imgconv
from imgconv.cl.device import DeviceInfo
from imgconv.graph.nodes import Graph
from imgconv.preprocess import Preparation
from imgconv.tasks import Description, Detections, PicturePlacement, find_task
from imgconv.answers import with_answers
from imgconv.tensor import Tensor, build_graph

SIZE, FRAME = (96, 64), (64, 48)
LABELS = ("cat", "dog", "cow", "Eule \N{OWL}")
CELLS = 12 * 8 + 6 * 4 + 3 * 2
SHAPES = {"yolox": (1, CELLS, 9), "logits": (1, 4, 16, 24), "scores": (1, 4), "heatmaps": (1, 4, 16, 24)}
FRAMES = numpy.random.default_rng(1).integers(0, 256, (2, FRAME[1] * 3 // 2, FRAME[0]), numpy.uint8)


def network(head: str) -> Graph:
    """The head's output, of noise and a little of the picture."""
    x = Tensor.input("x", (1, 3, SIZE[1], SIZE[0]))
    noise = numpy.random.default_rng(0).random(SHAPES[head], numpy.float32)
    return build_graph({"y": Tensor.constant(noise) + x.mean() * 1e-3}, [x])


@pytest.mark.parametrize("head", SHAPES)
def test_the_answers_of_python(device: DeviceInfo, play: Play, tmp_path: Path, head: str) -> None:
    seen = imgconv.load(network(head), device).preprocess((FRAME[1], FRAME[0]), "nv12", "letterbox")
    model = with_answers(seen, Description(head=head, labels=LABELS, score=0.5))
    model.save(tmp_path / "m")
    found = play(
        """
        player = Player('m', device)
        for number, frame in enumerate(given['frames']):
            for name, array in player.run({'picture': frame}).items():
                results[f'{name} {number}'] = array
        results['description'] = player.description
        """.replace("device", repr(str(device.index))), {"frames": FRAMES},
    )
    said = json.loads(str(found["description"]))
    assert (said["head"], tuple(said["labels"]), said["answers"]) == (head, LABELS, True)
    for number, frame in enumerate(FRAMES):
        for name, array in model.run({"picture": frame}).items():
            assert_same_bits({name: found[f"{name} {number}"]}, {name: array})
    if head == "yolox":
        check_boxes(found, seen)


def check_boxes(found: dict[str, numpy.ndarray], seen: imgconv.Model) -> None:
    """The boxes are those that numpy decodes of the model's own output."""
    task = find_task({"y": ("float32", SHAPES["yolox"])}, SIZE, Description(head="yolox", score=0.5))
    place = PicturePlacement.of(FRAME, SIZE, Preparation("letterbox"))
    assert task
    answer = task.decode(seen.run({"picture": FRAMES[0]}), place)["y"]
    assert isinstance(answer, Detections) and found["count 0"][0] == len(answer.found) > 3
    boxes = [each.box for each in answer.found]
    # Coordinates of up to 64 pixels; a device's exponential function is off by some units in the last place.
    numpy.testing.assert_allclose(found["boxes 0"][: len(boxes)], boxes, atol=1e-3)


def test_the_command_gives_boxes(
    device: DeviceInfo, environment: dict[str, str], built: Path, tmp_path: Path
) -> None:
    seen = imgconv.load(network("yolox"), device).preprocess((FRAME[1], FRAME[0]), "nv12", "letterbox")
    model = with_answers(seen, Description(head="yolox", score=0.5))
    model.save(tmp_path / "m")
    numpy.save(tmp_path / "frame.npy", FRAMES[0])
    wanted = model.run({"picture": FRAMES[0]})
    outputs = [word for name in wanted for word in ("--output", f"{name}={name}.npy")]
    words = [built / "imgconv-run", "m", "--device", str(device.index), "--input", "picture=frame.npy", *outputs]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    check_printed("".join(f"0 {line}\n" for line in done.stdout.splitlines()), expected_rows(0, wanted))
    for name, array in wanted.items():
        assert numpy.load(tmp_path / f"{name}.npy").tobytes() == array.tobytes()
