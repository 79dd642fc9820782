"""Seconds from imgconv.load to the first result, in a new process: cold, then warm.

Cold: the folders of compiled programs, imgconv's and the drivers', are new and empty. Warm: a first process has filled
them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.networks import Network
from imgconv.errors import Error

CACHES = ("XDG_CACHE_HOME", "POCL_CACHE_DIR", "CUDA_CACHE_PATH")


def first_results(network: Network, device: int, settings: dict[str, Any]) -> tuple[float, float]:
    """Seconds to the first result, cold and warm. settings: float16, native_explog and max_image of imgconv.load.

    Raises Error if the other process fails.
    """
    request = {"path": str(network.path), "shapes": network.shapes, "device": device, **settings}
    with tempfile.TemporaryDirectory(prefix="imgconv-cold-") as folder:
        empty = {name: str(Path(folder, name)) for name in CACHES}
        command = [sys.executable, "-m", "benchmarks.first_result", json.dumps(request)]
        cold, warm = (_run(command, {**os.environ, **empty}) for _ in range(2))
    return cold, warm


def _run(command: list[str], environment: dict[str, str]) -> float:
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise Error(f"the process that measures the first result failed: {done.stderr.strip()[-600:]}")
    return float(done.stdout.split()[-1])  # drivers may print too


def main() -> None:
    """Loads what the request says, runs it once and prints the seconds that both took; imports are not counted."""
    import imgconv
    from benchmarks.measure import draw_inputs
    from imgconv.onnx_import import import_onnx

    request = json.loads(sys.argv[1])
    path, shapes, device = (request.pop(name) for name in ("path", "shapes", "device"))
    inputs = draw_inputs(import_onnx(path, shapes).inputs)
    start = time.perf_counter()
    imgconv.load(path, device, shapes=shapes, **request).run(inputs)
    print(time.perf_counter() - start)


if __name__ == "__main__":
    main()
