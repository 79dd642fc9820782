"""Times the preparation of a camera's frame on the device, beside the network that takes it.

    python -m benchmarks.picture yolox_nano.onnx [--size 1920x1080] [--format nv12] [--device DEVICE] [--json FILE]

A frame of noise with the spectrum of pictures becomes the network's input: `Model.preprocess` with a letterbox and BGR.
It is first compared with Pillow, and the network's outputs with those for the same input from the host.

    network     the model as it is, with its input as floats
    prepared    the model that takes the frame
    device      the sum of the launches' times, by the driver's events; picture: of those that only prepare
    upload      of the input, by the driver's events
    wall        Model.run from numpy arrays to numpy arrays
    cost        (prepared - network) / network, of the medians
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy
from PIL import Image

import imgconv
from benchmarks.measure import (
    FLOAT_TOLERANCE, HALF_TOLERANCE, Column, add_run_arguments, environment, environment_line, make_table,
    milliseconds, publish, relative_error, run_main,
)
from imgconv.cl.device import DeviceInfo, open_device, select_device
from imgconv.config import read_config
from imgconv.model import Model
from imgconv.preprocessing.stage import PICTURE, array_shape, prepare_picture
from imgconv.preprocessing.preparation import FILTERS, FORMATS, Format, Preparation, resize_geometry
from imgconv.runtime.session import Session
from imgconv.reports.timing import Timing, run_after_warm_up, seconds_of_call, time_repeatedly
from imgconv.tensor import Tensor, build_graph

# Pillow rounds Y, U and V to 8 bits after each direction, by up to 1 together; 1 of U is 2.02 of blue.
PIXEL_TOLERANCE = 255 / 219 + 2 * (1 - 0.114) * 255 / 224 + 2e-3
RESAMPLING = {
    "antialias": Image.Resampling.BILINEAR, "area": Image.Resampling.BOX, "bicubic": Image.Resampling.BICUBIC,
}
Size = tuple[int, int]


@dataclass(frozen=True)
class Row:
    """A model, its launches, and its times; None if its result is wrong."""

    name: str
    launches: int
    device: Timing | None = None
    picture: Timing | None = None
    upload: Timing | None = None
    wall: Timing | None = None

    def to_json(self) -> dict[str, Any]:
        times = {kind: getattr(self, kind) for kind in ("device", "picture", "upload", "wall")}
        return {"name": self.name, "launches": self.launches} | {kind: t and t.to_json() for kind, t in times.items()}


COLUMNS = (
    Column("model", lambda r: r.name), Column("launches", lambda r: str(r.launches)),
    Column("device ms min", lambda r: milliseconds(r.device and r.device.minimum)),
    Column("median", lambda r: milliseconds(r.device and r.device.median)),
    Column("picture", lambda r: milliseconds(r.picture and r.picture.median)),
    Column("upload", lambda r: milliseconds(r.upload and r.upload.median)),
    Column("wall ms min", lambda r: milliseconds(r.wall and r.wall.minimum)),
    Column("median", lambda r: milliseconds(r.wall and r.wall.median)),
)


def main(options: argparse.Namespace) -> int:
    """Checks, then times; 1 if a result is wrong."""
    device = select_device(read_config(device=options.device).device)
    settings = {name: getattr(options, name) for name in ("float16", "native_explog", "max_image")}
    how = Preparation("letterbox", options.filter, "bgr", format=options.format)
    width, height = options.size
    model = imgconv.load(options.model, device, **settings)
    ready = model.preprocess((height, width), options.format, how.resize, how.filter, how.order)
    frame = draw_frame(options.format, options.size)

    pixel_error, array = check_pixels(model, frame, how, options.size, device, settings)
    (name,) = model.inputs
    half = bool(model.config.float16)
    error = relative_error(ready.run({"picture": frame}), model.run({name: array}))
    # Half rounds a pixel of 128 and more by up to 1/16, twice.
    right = pixel_error <= PIXEL_TOLERANCE + 0.5 * half and error <= (HALF_TOLERANCE if half else FLOAT_TOLERANCE)

    rows = [
        measure("network", model, {name: array}, device, options.repeat if right else 0),
        measure("prepared", ready, {"picture": frame}, device, options.repeat if right else 0),
    ]
    by_pillow = time_repeatedly(
        lambda: seconds_of_call(lambda: on_host(frame, how, options.size, model)), options.repeat
    )
    cost = {kind: _cost(getattr(rows[0], kind), getattr(rows[1], kind)) for kind in ("device", "wall")}
    found = environment(device)
    content = {
        "environment": found, "model": options.model, "size": options.size, "format": options.format, "right": right,
        "filter": options.filter, "pixel_error": pixel_error, "pixel_tolerance": PIXEL_TOLERANCE, "error": error,
        "rows": [row.to_json() for row in rows], "cost": cost, "pillow": by_pillow.to_json(),
    }
    verdict = f"{'right' if right else 'WRONG'}: pixels within {pixel_error:.2f} of 255, outputs within {error:.1e}"
    shown = [f"cost: {cost['device']:.1%} on the device, {cost['wall']:.1%} by the wall"] if right else []
    shown += [f"the same picture made by Pillow: {milliseconds(by_pillow.median)} ms"]
    title = f"{options.format} {width}x{height} into {options.model}"
    publish(options, content, environment_line(found), make_table(title, COLUMNS, rows), verdict, *shown)
    return 0 if right else 1


def _cost(network: Timing | None, ready: Timing | None) -> float | None:
    return None if network is None or ready is None else ready.median / network.median - 1


def measure(name: str, model: Model, inputs: dict[str, Any], device: DeviceInfo, repeat: int) -> Row:
    """Device and wall time of a model; no times for 0 repeats."""
    launches = len(model.plan.launches)
    if not repeat:
        return Row(name, launches)
    wall = time_repeatedly(lambda: seconds_of_call(lambda: model.run(inputs)), repeat)
    profiled = Session(model.plan, open_device(device, profile=True))
    seen = run_after_warm_up(lambda: profiled.timeline(inputs), repeat)
    stage = [n for n, launch in enumerate(model.plan.launches) if PICTURE in launch.origin]
    return Row(
        name, launches, Timing.from_seconds([_sum(t.launches) for t in seen]),
        Timing.from_seconds([_sum(t.launches[n] for n in stage) for t in seen]),
        Timing.from_seconds([_sum(t.uploads.values()) for t in seen]), wall,
    )


def _sum(spans: Iterable[tuple[float, float]]) -> float:
    return sum(end - start for start, end in spans)


def draw_frame(format: Format, size: Size) -> Any:
    """A frame of smooth noise: amplitude falls as one over the spatial frequency, as in pictures."""
    random = numpy.random.default_rng(1)
    shape = array_shape(format, size)
    rows, columns = shape[0], int(numpy.prod(shape[1:]))
    frequency = numpy.hypot(numpy.fft.fftfreq(rows)[:, None], numpy.fft.rfftfreq(columns)[None])
    frequency[0, 0] = 1 / max(rows, columns)
    noise = numpy.fft.irfft2(numpy.fft.rfft2(random.standard_normal((rows, columns))) / frequency, s=(rows, columns))
    scaled = (noise - noise.min()) * (255 / (noise.max() - noise.min()))
    return numpy.rint(scaled).astype(numpy.uint8).reshape(shape)


def check_pixels(
    model: Model, frame: Any, how: Preparation, size: Size, device: DeviceInfo, settings: dict[str, Any]
) -> tuple[float, Any]:
    """The largest difference from Pillow, with pixels from 0 to 255, and the input as the device makes it."""
    picture = Tensor.input("picture", frame.shape, "uint8")
    graph = build_graph({"made": prepare_picture(picture, _size_of(model), how)})
    made = imgconv.load(graph, device, **settings)(frame)
    return float(numpy.abs(made - on_host(frame, how, size, model)).max()), made


def on_host(frame: Any, how: Preparation, size: Size, model: Model) -> Any:
    """The model's input, made from the frame by Pillow."""
    wanted = _size_of(model)
    inner, _ = resize_geometry(size, wanted, how.resize)
    if how.format != "nv12":
        scaled = _resized(Image.fromarray(frame).convert("RGB"), inner, how)
        return _letterboxed(scaled[..., ::-1].transpose(2, 0, 1), wanted, how)
    colors = frame[size[1] :].reshape(size[1] // 2, size[0] // 2, 2)
    y, u, v = (
        _resized(Image.fromarray(numpy.ascontiguousarray(plane)), inner, how)
        for plane in (frame[: size[1]], colors[..., 0], colors[..., 1])
    )
    luma, blue, red = (y - 16) * (255 / 219), (u - 128) * (255 / 224), (v - 128) * (255 / 224)
    b, r = luma + 1.772 * blue, luma + 1.402 * red
    g = (luma - 0.299 * r - 0.114 * b) / 0.587
    return _letterboxed(numpy.stack([b, g, r]).clip(0, 255), wanted, how)


def _letterboxed(scaled: Any, size: Size, how: Preparation) -> Any:
    """(3, h, w) at the top left of (1, 3, height, width)."""
    array = numpy.full((1, 3, size[1], size[0]), how.pad, numpy.float32)
    array[0, :, : scaled.shape[1], : scaled.shape[2]] = scaled
    return array


def _resized(image: Image.Image, size: Size, how: Preparation) -> Any:
    if how.filter in RESAMPLING:
        return numpy.asarray(image.resize(size, RESAMPLING[how.filter])).astype(float)
    box = (0, 0, *image.size)
    return numpy.asarray(image.transform(size, Image.Transform.EXTENT, box, Image.Resampling.BILINEAR)).astype(float)


def _size_of(model: Model) -> Size:
    (value,) = model.inputs.values()
    return value.shape[3], value.shape[2]


def size(text: str) -> Size:
    """1920x1080 as (1920, 1080)."""
    width, _, height = text.partition("x")
    if not (width.isdigit() and height.isdigit() and int(width) and int(height)):
        raise argparse.ArgumentTypeError(f"{text!r} is no size such as 1920x1080")
    return int(width), int(height)


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.picture", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", help="an ONNX file that takes one picture of three channels")
    parser.add_argument("--size", type=size, default=(1920, 1080), help="of the frame (default: 1920x1080)")
    parser.add_argument("--format", choices=FORMATS, default="nv12", help="of the frame (default: nv12)")
    parser.add_argument("--filter", choices=FILTERS, default="bilinear", help="(default: bilinear)")
    add_run_arguments(parser)
    return parser


if __name__ == "__main__":
    sys.exit(run_main(make_parser(), main))
