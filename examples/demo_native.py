"""The demo without Python at run time: imgconv-run enlarges the picture with a compiled model, to the same pixels.

    make native && python -m examples.demo_native [PICTURE] [--device DEVICE] [--output FILE.png]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy

import imgconv
from examples.demo import read_original, run_demo
from examples.player import loader_variables, run_player
from imgconv.preprocess import Preparation, save_picture, to_array, to_picture
from models import superres
from models.train_superres import downscale


def main() -> int:
    """Runs the demo; returns the exit status: 1 if a pixel differs from what Python makes."""
    return run_demo("Enlarge a picture with imgconv-run, and compare with Python.", demonstrate)


def demonstrate(path: str | Path, device: str | None, output: str) -> int:
    """Writes the enlarged picture; returns 1 if a pixel differs from Python's, else 0. Raises imgconv.Error."""
    with tempfile.TemporaryDirectory() as folder:
        differing = enlarge(path, device, output, Path(folder))
    print(f"written   {output}; {differing} pixels differ from Python's")
    return int(differing != 0)


def enlarge(path: str | Path, device: str | None, output: str, folder: Path) -> int:
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
