"""Decoders of a model's outputs: classes, boxes, masks, keypoints, text, depth, an image. Nothing here uses a device.

    task = find_task(outputs, (416, 416), Description(head="yolox"))       # outputs: {"y": ("float32", (1, 3549, 85))}
    how = Preparation(**task.description.preparation)
    array = to_array(picture, how, (416, 416))
    answers = task.decode(model.run({"images": array}), PicturePlacement.of(picture.size, (416, 416), how))
    draw(picture, answers["output"]).save("boxes.png")

heads.py            the table of heads, and the choice of a model's head
graph_array.py      a tensor of a graph with the interface of a numpy array
answer_outputs.py   reads answers that were computed on the device: see imgconv/answers.py
values.py           the types of answers, and where a picture lies in a model's input
description.py      the JSON that describes what shapes do not show
classification.py   scores of classes
detection.py        code that all detectors share, and the YOLO family
anchors.py          SSD and RetinaFace
dense.py            YuNet, NanoDet, CenterNet, FCOS
text.py             DBNet, CTC
maps.py             masks, depth, heatmaps, images
coco.py             COCO's names and JSON
drawing.py          draws answers on their picture
"""

from imgconv.stored.description_file import find_description, read_labels
from imgconv.suppression import suppress
from imgconv.tasks.coco import coco_json
from imgconv.tasks.description import TASKS, Description, read_description
from imgconv.tasks.drawing import draw
from imgconv.tasks.heads import HEADS, Task, find_task
from imgconv.tasks.values import (
    Answer, Answers, Classes, Depth, Detection, Detections, Label, Picture, PicturePlacement, Pose, Segmentation, Text,
    Texts,
)

__all__ = [
    "HEADS", "TASKS", "Answer", "Answers", "Classes", "Depth", "Description", "Detection", "Detections", "Label",
    "Picture", "PicturePlacement", "Pose", "Segmentation", "Task", "Text", "Texts", "coco_json", "find_description",
    "draw", "find_task", "read_description", "read_labels", "suppress",
]
