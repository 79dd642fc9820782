"""The demo without Python at run time: imgconv-run enlarges the picture with a compiled model, to the same pixels.

    make native && python -m examples.demo_native [PICTURE] [--device DEVICE] [--output FILE.png]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy

import imgconv
from examples.demo import PICTURE, read_original
from examples.player import loader_variables, run_player
from imgconv.preprocess import Preparation, save_picture, to_array, to_picture
from models import superres
from models.train_superres import downscale


def main() -> int:
    """Runs the demo; returns the exit status: 1 if a pixel differs from what Python makes."""
    parser = argparse.ArgumentParser(description="Enlarge a picture with imgconv-run, and compare with Python.")
    parser.add_argument("picture", nargs="?", default=PICTURE, help="(default: examples/demo.png)")
    parser.add_argument("--device", help="index or part of the name (default: IMGCONV_DEVICE, else a GPU, else a CPU)")
    parser.add_argument("--output", default="demo-output.png", help="(default: demo-output.png)")
    options = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory() as folder:
            differing = demonstrate(options.picture, options.device, options.output, Path(folder))
    except imgconv.Error as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(f"written   {options.output}; {differing} pixels differ from Python's")
    return int(differing != 0)


def demonstrate(path: str | Path, device: str | None, output: str, folder: Path) -> int:
    """Writes the enlarged picture, and gives the number of pixels that differ from Python's. Raises imgconv.Error."""
    small = downscale(read_original(path))
    model = imgconv.load(superres.build(small.height, small.width), device)
    array = to_array(small, Preparation(scale=1 / 255))
    (input_name,), (output_name,) = model.inputs, model.outputs
    model.save(folder / "model.imgconv")
    numpy.save(folder / "input.npy", array)
    run_player([
        folder / "model.imgconv", "--device", model.device.index, "--input", f"{input_name}={folder / 'input.npy'}",
        "--output", f"{output_name}={folder / 'output.npy'}",
    ], loader_variables(folder))
    enlarged, expected = (
        to_picture(made[0], value_range=(0, 1)) for made in (numpy.load(folder / "output.npy"), model(array))
    )
    save_picture(enlarged, output)
    return int(numpy.any(numpy.asarray(enlarged) != numpy.asarray(expected), axis=-1).sum())


if __name__ == "__main__":
    sys.exit(main())
