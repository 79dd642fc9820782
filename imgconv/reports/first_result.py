"""Measures the seconds from imgconv.load to the first result, in a new process: cold, then warm.

Cold: imgconv's and the drivers' caches of compiled programs are new and empty. Warm: a first process has filled them.
The measured process runs this module as a program.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy

from imgconv.arrays import Arrays
from imgconv.errors import Error

CACHES = ("XDG_CACHE_HOME", "POCL_CACHE_DIR", "CUDA_CACHE_PATH")


def times_to_first_result(
    path: str | os.PathLike[str], inputs: Arrays, settings: Mapping[str, Any]
) -> tuple[float, float]:
    """Seconds to the first result, cold and warm. settings: keyword arguments of imgconv.load that JSON can hold.

    Raises Error if the other process fails.
    """
    with tempfile.TemporaryDirectory(prefix="imgconv-cold-") as folder:
        arrays = Path(folder, "inputs.npz")
        numpy.savez(arrays, *inputs.values())
        request = {"path": os.fspath(path), "names": list(inputs), "arrays": str(arrays), "settings": dict(settings)}
        empty = {name: str(Path(folder, name)) for name in CACHES}
        command = [sys.executable, "-m", "imgconv.reports.first_result", json.dumps(request)]
        cold, warm = (_run(command, {**os.environ, **empty}) for _ in range(2))
    return cold, warm


def _run(command: list[str], environment: dict[str, str]) -> float:
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise Error(f"the process that measures the first result failed: {done.stderr.strip()[-600:]}")
    return float(done.stdout.split()[-1])  # drivers may print too


def main() -> None:
    """Loads what the request says, runs it once and prints the seconds that both took; imports are not counted."""
    from imgconv.model import load

    request = json.loads(sys.argv[1])
    with numpy.load(request["arrays"]) as arrays:
        inputs = dict(zip(request["names"], (arrays[name] for name in arrays.files), strict=True))
    start = time.perf_counter()
    load(request["path"], **request["settings"]).run(inputs)
    print(time.perf_counter() - start)


if __name__ == "__main__":
    main()
