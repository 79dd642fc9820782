"""Find objects or faces in a picture from Python, as `imgconv run MODEL PICTURE --task detect` does. In the checkout:

    python -m examples.detect MODEL PICTURE [--output FILE.png]

MODEL is a YOLOX, YOLOv5, v8 or v11, UltraFace or RetinaFace: the shapes of its outputs say which.
"""

from __future__ import annotations

import argparse
import sys

import imgconv
from imgconv.preprocess import Preparation, read_picture, save_picture, to_array
from imgconv.tasks import Description, Detections, PicturePlacement, draw, find_task


def main() -> int:
    """Finds, prints and draws; returns the exit status."""
    parser = argparse.ArgumentParser(description="Find objects or faces in a picture.")
    parser.add_argument("model", help="yolox_nano.onnx for example")
    parser.add_argument("picture")
    parser.add_argument("--output", metavar="FILE.png", help="where to write the picture with what was found")
    parser.add_argument("--device", help="index or part of the name (default: IMGCONV_DEVICE, else a GPU, else a CPU)")
    options = parser.parse_args()
    try:
        find(options.model, options.picture, options.device, options.output)
    except imgconv.Error as error:
        print(f"detect: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def find(path: str, picture_path: str, device: str | None = None, output: str | None = None) -> Detections:
    """Prints and returns the objects that the model finds in the picture. Raises imgconv.Error."""
    picture, model = read_picture(picture_path), imgconv.load(path, device)
    (name, value), = model.inputs.items()
    size = value.shape[3], value.shape[2]
    shapes = {output.name: (output.dtype, output.shape) for output in model.outputs.values()}
    task = find_task(shapes, size, Description(task="detect"))
    assert task  # find_task raises an error if a task is named and the outputs do not show it
    how = Preparation(**task.description.preparation)
    outputs = model.run({name: to_array(picture, how, size)})
    found, = task.decode(outputs, PicturePlacement.of(picture.size, size, how)).values()
    assert isinstance(found, Detections)
    for each in found.found:
        print(f"{each.label.score:.2f}", "{:.0f},{:.0f} .. {:.0f},{:.0f}".format(*each.box), each.label.name)
    if output:
        save_picture(draw(picture, found), output)
    return found


if __name__ == "__main__":
    sys.exit(main())
