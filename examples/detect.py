"""Find objects of COCO's 80 classes with YOLOX (Ge et al., arXiv:2107.08430). Run it in the checkout:

    python -m examples.detect yolox_nano.onnx PICTURE [--output FILE.png]

The model takes a letterboxed picture as BGR, 0 to 255. For each cell of grids with strides of 8, 16 and 32 pixels it
gives a box, a score that there is an object, and a score for each class. A centre is relative to its cell, in strides;
width and height are logarithms of their number of strides.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy

import imgconv
from examples.boxes import Box, draw, suppress
from imgconv.preprocess import Preparation, letterbox_scale, read_picture, save_picture, to_array
from imgconv.reports import terminal

PREPARATION = Preparation(resize="letterbox", filter="bilinear", order="bgr", pad=114)
STRIDES = (8, 16, 32)
MOST_OVERLAP = 0.45
CLASSES = (
    "person", "bicycle", "car", "motorcycle", "airplane", "bus", "train", "truck", "boat", "traffic light",
    "fire hydrant", "stop sign", "parking meter", "bench", "bird", "cat", "dog", "horse", "sheep", "cow", "elephant",
    "bear", "zebra", "giraffe", "backpack", "umbrella", "handbag", "tie", "suitcase", "frisbee", "skis", "snowboard",
    "sports ball", "kite", "baseball bat", "baseball glove", "skateboard", "surfboard", "tennis racket", "bottle",
    "wine glass", "cup", "fork", "knife", "spoon", "bowl", "banana", "apple", "sandwich", "orange", "broccoli",
    "carrot", "hot dog", "pizza", "donut", "cake", "chair", "couch", "potted plant", "bed", "dining table", "toilet",
    "tv", "laptop", "mouse", "remote", "keyboard", "cell phone", "microwave", "oven", "toaster", "sink",
    "refrigerator", "book", "clock", "vase", "scissors", "teddy bear", "hair drier", "toothbrush",
)


def main() -> int:
    """Finds, prints and draws the objects; returns the exit status."""
    parser = argparse.ArgumentParser(description="Find objects with a YOLOX model.")
    parser.add_argument("model", help="yolox_nano.onnx, or a larger one")
    parser.add_argument("picture")
    parser.add_argument("--score", type=float, default=0.5, help="least score of an object (default: 0.5)")
    parser.add_argument("--output", metavar="FILE.png", help="where to write the picture with the objects marked")
    parser.add_argument("--device", help="index or part of the name (default: IMGCONV_DEVICE, else a GPU, else a CPU)")
    options = parser.parse_args()
    try:
        picture = read_picture(options.picture)
        with terminal.Progress(f"reading {options.model}") as progress:
            model = imgconv.load(options.model, options.device, progress=progress)
            (_, _, height, width), = (value.shape for value in model.inputs.values())
            output = model(to_array(picture, PREPARATION, (width, height)))
        boxes = decode(output[0], (width, height), letterbox_scale(picture.size, (width, height)), options.score)
        print(f"{options.picture}: {len(boxes)} objects on {model.device.name}")
        for box in boxes:
            print(f"  {box}")
        if options.output:
            save_picture(draw(picture, boxes), options.output)
    except imgconv.Error as error:
        print(f"detect: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def decode(output: Any, size: tuple[int, int], scale: float, least_score: float) -> list[Box]:
    """The objects, best first.

    output: (cells, 5 + classes); size: the width and height of the model's input; scale: see letterbox_scale.
    """
    cells, strides = grid(size)
    centre, extent = (output[:, :2] + cells) * strides, numpy.exp(output[:, 2:4]) * strides
    corners = numpy.concatenate([centre - extent / 2, centre + extent / 2], axis=1) / scale
    scores = output[:, 4:5] * output[:, 5:]
    best = scores.argmax(axis=1)
    boxes = []
    for kind in numpy.unique(best):
        chosen = numpy.flatnonzero((best == kind) & (scores[:, kind] > least_score))
        kept = chosen[suppress(corners[chosen], scores[chosen, kind], MOST_OVERLAP)]
        boxes += [Box(tuple(corners[i]), scores[i, kind], CLASSES[kind]) for i in kept]
    return sorted(boxes, key=lambda box: -box.score)


def grid(size: tuple[int, int]) -> tuple[Any, Any]:
    """(Column and row of every cell (cells, 2), its stride (cells, 1)), in the order of the model's output."""
    cells, strides = [], []
    for stride in STRIDES:
        columns, rows = numpy.meshgrid(numpy.arange(size[0] // stride), numpy.arange(size[1] // stride))
        cells.append(numpy.stack([columns.ravel(), rows.ravel()], axis=1))
        strides.append(numpy.full((columns.size, 1), stride))
    return numpy.concatenate(cells), numpy.concatenate(strides)


if __name__ == "__main__":
    sys.exit(main())
