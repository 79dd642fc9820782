"""Enlarge a picture with the super-resolution network of models/, and print how close it is to the original.

The picture is reduced to half its size and the network enlarges it again. The result and a bicubic enlargement are
both compared with the original. Run it in the checkout:

    python -m examples.demo [PICTURE] [--device DEVICE] [--output FILE.png]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
from numpy.typing import NDArray
from PIL import Image, ImageOps
from rich.text import Text

import imgconv
from imgconv.preprocess import Preparation, read_picture, save_picture, to_array, to_picture
from imgconv.reports import terminal
from models import superres
from models.train_superres import downscale, psnr

PICTURE = Path(__file__).with_name("demo.png")
RUNS = 10
COLUMNS = 76
RAMP = " .:-=+*#%@"


def main() -> int:
    """Runs the demo; returns the exit status."""
    return run_demo("Enlarge a picture and compare with bicubic interpolation.", demonstrate)


def run_demo(description: str, demonstrate: Callable[[str, str | None, str], int]) -> int:
    """Runs a demo with the arguments of the command line; returns the exit status.

    demonstrate: gets the picture's path, the device and the path to write to, and gives the exit status.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("picture", nargs="?", default=str(PICTURE), help="(default: examples/demo.png)")
    parser.add_argument("--device", help="index or part of the name (default: IMGCONV_DEVICE, else a GPU, else a CPU)")
    parser.add_argument("--output", default="demo-output.png", help="(default: demo-output.png)")
    options = parser.parse_args()
    try:
        return demonstrate(options.picture, options.device, options.output)
    except imgconv.Error as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def demonstrate(path: str | Path, device: str | None, output: str) -> int:
    """Enlarges the picture, prints quality and time, writes the result; returns 0. Raises imgconv.Error."""
    original = read_original(path)
    small = downscale(original)
    with terminal.ProgressSpinner("planning") as progress:
        model = imgconv.load(superres.build(small.height, small.width), device, progress=progress)
        array = to_array(small, Preparation(scale=1 / 255))
        enlarged = to_picture(model(array)[0], value_range=(0, 1))
        seconds = min(timed(model, array) for _ in range(RUNS))
    bicubic = small.resize(original.size, Image.Resampling.BICUBIC)
    truth = numpy.asarray(original)
    save_picture(enlarged, output)
    console = terminal.console()
    in_color = console.color_system in ("256", "truecolor") and not console.options.ascii_only
    console.print(as_text(enlarged, min(COLUMNS, console.width), in_color))
    plan, info = model.plan, model.device
    for name, value in (
        ("picture", f"{small.width}x{small.height} enlarged to {original.width}x{original.height}"),
        ("device", f"{info.name} ({info.kind}), {info.platform}"),
        ("driver", f"{info.driver_version}, {info.opencl_c_version}"),
        ("network", f"{len(plan.launches)} launches, {plan.multiply_adds / 1e6:.0f} M multiply-adds"),
        ("time", f"{seconds * 1e3:.1f} ms a run, best of {RUNS}"),
        ("bicubic", f"{psnr(numpy.asarray(bicubic), truth):.2f} dB PSNR"),
        ("network", f"{psnr(numpy.asarray(enlarged), truth):.2f} dB PSNR"),
        ("written", output),
    ):
        console.print(f"{name:9} {value}")
    return 0


def read_original(path: str | Path) -> Image.Image:
    """The picture, without a last odd row or column. Raises imgconv.Error."""
    original = read_picture(path)
    return original.crop((0, 0, original.width // 2 * 2, original.height // 2 * 2))


def timed(model: imgconv.Model, array: NDArray[Any]) -> float:
    """The seconds of one run, including upload and download."""
    start = time.perf_counter()
    model(array)
    return time.perf_counter() - start


def as_text(picture: Image.Image, columns: int, in_color: bool) -> Text:
    """A picture as text: two colored pixels per character, or without color one character per pixel, by brightness."""
    rows = max(1, round(columns * picture.height / picture.width / 2))
    if not in_color:
        small = picture.convert("L").resize((columns, rows), Image.Resampling.BOX)
        grey = numpy.asarray(ImageOps.equalize(small)) // 26
        return Text("\n".join("".join(RAMP[value] for value in row) for row in grey))
    pixels = numpy.asarray(picture.convert("RGB").resize((columns, rows * 2), Image.Resampling.BOX))
    text = Text()
    for above, below in zip(pixels[::2], pixels[1::2], strict=True):
        for upper, lower in zip(above.tolist(), below.tolist(), strict=True):
            text.append("▀", "rgb({},{},{}) on rgb({},{},{})".format(*upper, *lower))
        text.append("\n")
    return text


if __name__ == "__main__":
    sys.exit(main())
