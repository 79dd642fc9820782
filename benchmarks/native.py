"""Measures the player of native/ on a compiled file, beside Python and beside a bare loop of launches.

    make native && python -m benchmarks.native [NETWORK] [--device DEVICE] [--repeat N] [--json FILE]

The player's outputs must have Python's bits first.

    first result    a process from its start to its end with one run, programs kept; the least of N. Its time of the
                    processor says more if the machine is busy
    peak memory     of these processes, the largest resident set
    run             upload, launches, download; medians of 100 runs that take turns
    bare            the same kernels, uploads and downloads by nothing but calls of OpenCL
    library         libimgconv.so, stripped
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy

import imgconv
from benchmarks.measure import (
    add_run_arguments, digits, draw_inputs, environment, environment_line, milliseconds, publish, run_main,
)
from examples.player import PLAYER, loader_variables
from imgconv.errors import Error
from models import build

ROOT = Path(__file__).parent.parent
RUNS = 100
# Starts a process from a small one: a process counts the memory of the one that it is started from as its own.
WATCH = """
import os, sys, time
start = time.perf_counter()
_, status, usage = os.wait4(os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ), 0)
print(time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status))
"""
# What an app in Python does. The arguments: the file, the device, the inputs.
IN_PYTHON = "import sys, numpy, imgconv; imgconv.load(sys.argv[1], sys.argv[2]).run(dict(numpy.load(sys.argv[3])))"


def main() -> int:
    """Runs the benchmark; returns the exit status."""
    parser = argparse.ArgumentParser(prog="benchmarks.native", description="Measure the player of native/.")
    parser.add_argument("network", nargs="?", default="squeezenet", help="a network of models/ (default: %(default)s)")
    add_run_arguments(parser, repeat=10)
    return run_main(parser, measure)


def measure(options: argparse.Namespace) -> int:
    """Measures and prints; returns the exit status. Raises Error."""
    if not PLAYER.exists():
        raise Error(f"{PLAYER} is not there: run make native")
    settings = {"float16": options.float16, "native_explog": options.native_explog, "max_image": options.max_image}
    model = imgconv.load(build(options.network), options.device, **settings)
    with tempfile.TemporaryDirectory(prefix="imgconv-native-") as name:
        found = compare(model, Path(name), options.repeat)
    found["environment"] = environment(model.device)
    publish(options, found, environment_line(found["environment"]), *lines_of(found, options.network))
    return 0


def lines_of(found: dict[str, Any], network: str) -> Iterator[str]:
    """The figures as text."""
    yield f"{network}, {found['launches']} launches"
    for name in ("player", "Python"):
        each = found[name.lower()]
        yield (
            f"{name:8} first result {digits(each['seconds'])} s, of the processor "
            f"{digits(each['processor_seconds'])} s; peak memory {each['megabytes']:.0f} MB"
        )
    ratio = found["run_seconds"] / found["bare_seconds"]
    how = f"one call by {found['replay']}" if found["replay"] else "launches enqueued one by one"
    yield (
        f"run      {milliseconds(found['run_seconds'])} ms, bare {milliseconds(found['bare_seconds'])} ms, "
        f"{ratio:.3f} times; {how}"
    )
    yield f"library  {found['library_bytes'] / 1000:.0f} kB"


def compare(model: imgconv.Model, folder: Path, repeat: int) -> dict[str, Any]:
    """Every figure, by name. Raises Error if the player's outputs differ from Python's."""
    variables, device, path = loader_variables(folder), str(model.device.index), folder / "model.imgconv"
    inputs = draw_inputs(tuple(model.inputs.values()))
    model.save(path)
    player: list[object] = [PLAYER, path, "--device", device]
    for name, array in inputs.items():
        numpy.save(folder / f"{name}.npy", array)
        player += ["--input", f"{name}={folder / name}.npy"]
    references: list[object] = []
    for name, array in model.run(inputs).items():
        numpy.save(folder / f"of-{name}.npy", array)
        references += ["--reference", f"{name}={folder / 'of-'}{name}.npy"]
    process([*player, *references], variables)
    numpy.savez(folder / "inputs.npz", **inputs)
    python = [sys.executable, "-c", IN_PYTHON, path, device, folder / "inputs.npz"]
    stripped = folder / "stripped"
    subprocess.run(["strip", "-o", stripped, (PLAYER.parent.parent / "lib" / "libimgconv.so").resolve()], check=True)
    return {
        "launches": len(model.plan.launches), "library_bytes": stripped.stat().st_size,
        "player": least(player, variables, repeat), "python": least(python, {**os.environ}, repeat),
        **bare_loop(path, device, variables),
    }


def process(command: Sequence[object], variables: dict[str, str]) -> tuple[float, float, float]:
    """Seconds, seconds of the processor, and peak megabytes of a process. Raises Error if it fails."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", WATCH, *map(str, command)], env=variables, capture_output=True, text=True
    )
    if done.returncode:
        raise Error(f"{command[0]} failed: {done.stderr.strip()[-600:]}")
    seconds, processor, kilobytes = map(float, done.stdout.split()[-3:])
    return seconds, processor, kilobytes / 1024


def least(command: Sequence[object], variables: dict[str, str], repeat: int) -> dict[str, float]:
    """The least seconds of some processes, and the most megabytes."""
    seconds, processor, megabytes = zip(*(process(command, variables) for _ in range(repeat)), strict=True)
    return {"seconds": min(seconds), "processor_seconds": min(processor), "megabytes": max(megabytes)}


def bare_loop(path: Path, device: str, variables: dict[str, str]) -> dict[str, Any]:
    """The medians that imgconv-bare prints; it is built first."""
    folder = ROOT / "build" / "native"
    subprocess.run(["cmake", "--build", folder, "--target", "imgconv-bare"], check=True, stdout=subprocess.DEVNULL)
    command = [str(folder / "imgconv-bare"), str(path), device, str(RUNS)]
    words = subprocess.run(command, env=variables, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    return {"bare_seconds": float(words[1]), "run_seconds": float(words[3]), "replay": "".join(words[5:])}


if __name__ == "__main__":
    sys.exit(main())
