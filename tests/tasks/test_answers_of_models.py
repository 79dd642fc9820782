"""Answers that the device makes after trained models, against numpy's decoders of the models' own outputs.

IMGCONV_MODELS names the folder of models, as in test_real_models.py; without it they are skipped.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy
import pytest

import imgconv
from imgconv.answers import with_answers
from imgconv.cl.device import DeviceInfo
from imgconv.pictures.frames import frame_of
from imgconv.preprocess import Preparation, read_picture
from imgconv.preprocessing.preparation import Size
from imgconv.tasks import Description, Detections, PicturePlacement, find_task

VARIABLE = "IMGCONV_MODELS"
FOLDER = Path(os.environ.get(VARIABLE, ""))
FRAME = (640, 480)
pytestmark = [
    pytest.mark.models,
    pytest.mark.skipif(VARIABLE not in os.environ, reason=f"{VARIABLE} does not name a folder of models"),
]
YOLOX, ULTRAFACE = "yolox_nano/yolox_nano.onnx", "ultraface/ultraface_rfb320.onnx"


@pytest.mark.parametrize(
    ("model", "head", "network", "photo"),
    [
        (YOLOX, "yolox", (416, 416), "yolox_nano/000000000139.jpg"),
        (YOLOX, "yolox", (416, 416), "yolox_nano/000000000632.jpg"),
        (ULTRAFACE, "ssd", (320, 240), "ultraface/1.jpg"), (ULTRAFACE, "ssd", (320, 240), "ultraface/11.jpg"),
    ],
)
def test_boxes_of_a_frame(device: DeviceInfo, model: str, head: str, network: Size, photo: str) -> None:
    """The same boxes in the same order, in pixels of an NV12 frame that was letterboxed or stretched."""
    loaded, description = imgconv.load(FOLDER / model, device), Description(head=head, score=0.3)
    task = find_task({name: (v.dtype, v.shape) for name, v in loaded.outputs.items()}, network, description)
    assert task
    settings: dict[str, Any] = dict(task.description.preparation)
    prepared, how = loaded.preprocess(FRAME[::-1], "nv12", **settings), Preparation(format="nv12", **settings)
    frame = frame_of(read_picture(FOLDER / photo), FRAME, how)
    placement = PicturePlacement.of(FRAME, network, how)
    wanted = next(iter(task.decode(prepared.run({"picture": frame}), placement).values()))
    assert isinstance(wanted, Detections) and 2 < len(wanted.found) < 100
    made = with_answers(prepared, description).run({"picture": frame})
    count = int(made["count"].item())
    assert made["classes"][:count].tolist() == [each.label.index for each in wanted.found]
    # Both graphs compute the network's outputs; layers next to the answers may be summed in another order.
    assert made["scores"][:count] == pytest.approx([each.label.score for each in wanted.found], abs=1e-5)
    assert made["boxes"][:count] == pytest.approx(numpy.array([each.box for each in wanted.found]), abs=1e-2)
