"""Find faces with the Ultra-Light-Fast-Generic-Face-Detector (Linzaer, version RFB-320). Run it in the checkout:

    python -m examples.faces ultraface_rfb320.onnx PICTURE [--output FILE.png]

The model takes a picture stretched to 320x240 as (RGB - 127) / 128. For each of 4420 positions it gives the scores of
background and face, and a box whose corners are fractions of the picture's size.
"""

from __future__ import annotations

import argparse
import sys

import numpy

import imgconv
from examples.boxes import Box, draw, suppress
from imgconv.preprocess import Preparation, read_picture, save_picture, to_array
from imgconv.reports import terminal

PREPARATION = Preparation(filter="bilinear", mean=(127.0,), std=(128.0,))
LEAST_SCORE = 0.7
MOST_OVERLAP = 0.3


def main() -> int:
    """Finds, prints and draws the faces; returns the exit status."""
    parser = argparse.ArgumentParser(description="Find faces with an UltraFace model.")
    parser.add_argument("model", help="ultraface_rfb320.onnx")
    parser.add_argument("picture")
    parser.add_argument("--output", metavar="FILE.png", help="where to write the picture with the faces marked")
    parser.add_argument("--device", help="index or part of the name (default: IMGCONV_DEVICE, else a GPU, else a CPU)")
    options = parser.parse_args()
    try:
        picture = read_picture(options.picture)
        with terminal.Progress(f"reading {options.model}") as progress:
            model = imgconv.load(options.model, options.device, progress=progress)
            (_, _, height, width), = (value.shape for value in model.inputs.values())
            outputs = model(to_array(picture, PREPARATION, (width, height)))
        boxes = decode(outputs, picture.size)
        print(f"{options.picture}: {len(boxes)} faces on {model.device.name}")
        for box in boxes:
            print(f"  {box}")
        if options.output:
            save_picture(draw(picture, boxes), options.output)
    except imgconv.Error as error:
        print(f"faces: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def decode(outputs: dict[str, numpy.ndarray], size: tuple[int, int]) -> list[Box]:
    """The faces, best first. outputs: scores (1, n, 2) and boxes (1, n, 4); size: the picture's width and height."""
    scores = outputs["scores"][0, :, 1]
    likely = scores > LEAST_SCORE
    scores, corners = scores[likely], outputs["boxes"][0][likely] * numpy.array([*size, *size])
    return [Box(tuple(corners[i]), scores[i], "") for i in suppress(corners, scores, MOST_OVERLAP)]


if __name__ == "__main__":
    sys.exit(main())
