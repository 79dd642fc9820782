"""Long runs: whatever is done again and again, memory stays flat and the last result is right.

    python -m tests.tools.endure [--only loads,shapes] [--scale 0.1] [--device DEVICE]

    loads       a model is loaded, run and dropped: 3,000 times
    runs        a model runs again and again: 100,000 times
    shapes      a model of open sizes runs on 200 sizes, each of them several times
    frames      submit() with callers that cancel, give up, ask wrongly, fail in a callback or on the device: 30,000
    threads     eight threads run and submit to the same model: 30,000 runs
    processes   eight processes load with one empty cache folder, and run: 80 of them
    forks       processes that are forked while frames are in flight: 100
    exits       processes that end with frames in flight: 40

A row has the process's memory before and after, in MB, and the bytes that each turn keeps: of that tenth of the turns
which keeps the least, or of malloc's memory if that is more (see benchmarks.leaks). --scale makes all counts smaller.
The exit status is 1 if a turn keeps more than LIMITS says and all more than NOISE, or if a result is wrong.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, TimeoutError
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy
import onnx
import onnx.helper

import imgconv
from benchmarks.leaks import BLOCKS, Growth, measure_growth
from imgconv.cl.device import select_device
from imgconv.runtime.frame_memory import FrameMemory

ROOT = Path(__file__).parents[2]
SIDES = 200
NOISE = 2 << 20  # bytes of pages that come and go
# Bytes a turn. Intel's driver keeps 25 KB of each program that it built; a turn of shapes builds one for each.
LIMITS = {"loads": 1000, "runs": 100, "shapes": SIDES * 30_000, "frames": 100, "threads": 800}
NODE = onnx.helper.make_node
PATIENCE = 300  # seconds that a process may take


def model_of_open_sizes() -> onnx.ModelProto:
    """y = mean over the picture of Relu(Conv(x)), for any height and width."""
    weights = numpy.random.default_rng(0).normal(size=(8, 3, 3, 3)).astype(numpy.float32)
    given = onnx.helper.make_tensor_value_info("x", 1, [1, 3, "height", "width"])
    graph = onnx.helper.make_graph(
        [NODE("Conv", ["x", "w"], ["c"], pads=[1] * 4), NODE("Relu", ["c"], ["r"]),
         NODE("GlobalAveragePool", ["r"], ["y"])],
        "open", [given], [onnx.helper.make_tensor_value_info("y", 1, None)],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)


def picture(height: int, width: int) -> Any:
    return numpy.random.default_rng([height, width]).uniform(-1, 1, (1, 3, height, width)).astype(numpy.float32)


def expected(x: Any) -> Any:
    """y in float64."""
    weights = onnx.numpy_helper.to_array(model_of_open_sizes().graph.initializer[0]).astype(float)
    padded = numpy.pad(x.astype(float), ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = numpy.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    return numpy.maximum(numpy.einsum("nchwij,ocij->nohw", windows, weights), 0).mean((2, 3), keepdims=True)


def check(found: Any, x: Any) -> None:
    want = expected(x)
    assert found.shape == want.shape and abs(found - want).max() < 1e-5 * abs(want).max(), "the result is wrong"


@dataclass(frozen=True)
class Setting:
    """device: its index. turns: how many of what the part does. Each part checks its results."""

    device: int
    turns: int


def loads(setting: Setting) -> Growth:
    model, x = model_of_open_sizes(), picture(12, 10)

    def turn() -> None:
        loaded = imgconv.load(model, device=setting.device, shapes={"height": 12, "width": 10})
        check(loaded.run({"x": x})["y"], x)
        loaded.submit({"x": x})

    return measure_growth(turn, setting.turns)


def runs(setting: Setting) -> Growth:
    model, x = fixed(setting), picture(12, 10)
    growth = measure_growth(lambda: model.run({"x": x}), setting.turns)
    check(model.run({"x": x})["y"], x)
    return growth


def shapes(setting: Setting) -> Growth:
    """Each turn is all sizes; the first one builds them."""
    model, sides = imgconv.load(model_of_open_sizes(), device=setting.device), range(5, 5 + setting.turns)

    def turn() -> None:
        for side in sides:
            x = picture(side, 3 + side % 7)
            found = model.run({"x": x})["y"]
        check(found, x)

    return measure_growth(turn, 2, 2)


def frames(setting: Setting) -> Growth:
    model, x, numbers = fixed(setting), picture(12, 10), count()

    def fail(*_: Any) -> None:
        raise RuntimeError("planted")

    def turn() -> None:
        number = next(numbers)
        if number % 7 == 0:
            with suppress(imgconv.InputError):
                model.submit({"x": x[:, :2]})
        if number % 500 == 1:
            with patch.object(FrameMemory, "finish", fail), suppress(RuntimeError):
                model.submit({"x": x}).result()
        frame = model.submit({"x": x}, 1 + number % 4)
        frame.cancel()
        if number % 3 == 0:
            with suppress(TimeoutError):
                frame.result(timeout=0)
        if number % 1000 == 0:
            check(frame.result()["y"], x)

    growth = measure_growth(turn, setting.turns)
    check(model.run({"x": x})["y"], x)
    return growth


def threads(setting: Setting) -> Growth:
    """A turn is a run of each thread, by turns in each way."""
    model, x = fixed(setting), picture(12, 10)
    ways: tuple[Callable[[], Any], ...] = (
        lambda: model.run({"x": x}), lambda: model.submit({"x": x}).result(),
        lambda: model.submit({"x": x}, 3).result(),
    )
    with ThreadPoolExecutor(8) as pool:
        def turn() -> None:
            for found in [pool.submit(ways[number % 3]) for number in range(8)]:
                last = found.result()["y"]
            check(last, x)

        return measure_growth(turn, max(setting.turns // 8, BLOCKS))


def fixed(setting: Setting) -> imgconv.Model:
    return imgconv.load(model_of_open_sizes(), device=setting.device, shapes={"height": 12, "width": 10})


CHILD = """
import os, sys, warnings
warnings.simplefilter("ignore")
sys.path[:0] = [{root!r}]
import imgconv
from tests.tools.endure import *
model, x = fixed(Setting({device}, 1)), picture(12, 10)
check(model.run({{"x": x}})["y"], x)
"""
EXIT = CHILD + "frames = [model.submit({{'x': x}}, 4) for _ in range(4)]\n"
FORK = EXIT + """
for number in range({turns}):
    child = os.fork()
    if not child:
        try:
            model.run({{"x": x}})
        except imgconv.DeviceError:
            os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    frames = [model.submit({{'x': x}}, 4) for _ in range(4)]
for frame in frames:
    check(frame.result()["y"], x)
"""


def start(code: str, setting: Setting, cache: str) -> subprocess.Popen[bytes]:
    text = code.format(root=str(ROOT), device=setting.device, turns=setting.turns)
    return subprocess.Popen([sys.executable, "-c", text], env=os.environ | {"XDG_CACHE_HOME": cache})


def processes(setting: Setting, code: str = CHILD, at_once: int = 8) -> None:
    """Eight at a time, each time with an empty cache folder."""
    for _ in range(max(setting.turns // at_once, 1)):
        with tempfile.TemporaryDirectory() as cache:
            ended = [each.wait(PATIENCE) for each in [start(code, setting, cache) for _ in range(at_once)]]
        assert not any(ended), f"processes end with {ended}"


def forks(setting: Setting) -> None:
    """One process, which forks again and again."""
    with tempfile.TemporaryDirectory() as cache:
        ended = start(FORK, setting, cache).wait(PATIENCE)
    assert not ended, f"the process ends with {ended}"


PARTS: dict[str, tuple[int, Callable[[Setting], Growth | None]]] = {
    "loads": (3000, loads), "runs": (100_000, runs), "shapes": (SIDES, shapes), "frames": (30_000, frames),
    "threads": (30_000, threads), "processes": (80, processes), "forks": (100, forks),
    "exits": (40, partial(processes, code=EXIT, at_once=4)),
}


def rows(names: list[str], scale: float, device: int) -> Iterator[tuple[str, str, bool]]:
    """The name of each part, what it measured, and whether it passed."""
    for name in names:
        most, part = PARTS[name]
        turns = max(int(most * scale) // BLOCKS, 1) * BLOCKS
        began = time.monotonic()
        try:
            growth = part(Setting(device, turns))
        except (AssertionError, imgconv.Error, subprocess.TimeoutExpired) as error:
            yield name, f"{turns:6}  {type(error).__name__}: {error}", False
            continue
        took = f"{turns:6}  {time.monotonic() - began:5.0f} s"
        if growth is None:
            yield name, took, True
            continue
        before, after = growth.resident[0] / 1e6, growth.resident[-1] / 1e6
        memory = f"{before:7.1f} -> {after:.1f} MB, {growth.least:.0f} bytes a turn"
        yield name, f"{took}  {memory}", growth.least < LIMITS[name] or growth.least * growth.runs < NOISE


def main() -> int:
    described = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="python -m tests.tools.endure", description=__doc__, formatter_class=described
    )
    parser.add_argument("--only", help="parts to do, with commas between them (default: all)")
    parser.add_argument("--scale", type=float, default=1.0, help="times the counts")
    parser.add_argument("--device", help="as IMGCONV_DEVICE")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(PARTS)
    device = select_device(options.device or os.environ.get("IMGCONV_DEVICE"))
    print(device)
    passed = True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, said, good in rows(names, options.scale, device.index):
            print(f"{name:10} {said}{'' if good else '  FAILED'}", flush=True)
            passed &= good
    return int(not passed)


if __name__ == "__main__":
    sys.exit(main())
