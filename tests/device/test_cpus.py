"""CPUs that share a cache folder: no driver is given another CPU's program, and each CPU's programs stay."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy
import pytest
from cpus import VARIABLE, cpus_of, entries
from graphs import const, inputs_of

from imgconv.cl.device import DeviceInfo
from imgconv.graph.evaluate import evaluate_graph
from imgconv.graph.nodes import Graph
from imgconv.onnx_export import export_onnx
from imgconv.tensor import Tensor, build_graph

ROOT = Path(__file__).parent.parent.parent
# In plain memory and in images, float and half, from a file that the first CPU compiled and from the graph. The file is
# first, because a process does not build the same program twice.
TURN = """
    import sys
    from pathlib import Path
    import numpy, imgconv
    x, results = numpy.load("x.npy"), {}
    for name, settings in (("memory", {}), ("images", {"max_image": 64}), ("half", {"max_image": 64, "float16": 1})):
        if Path(name).exists():
            results[name + " compiled"] = imgconv.load(name, device=int(sys.argv[1])).run({"x": x})["y"]
        model = imgconv.load("m.onnx", device=int(sys.argv[1]), **settings)
        results[name] = model.run({"x": x})["y"]
        if not Path(name).exists():
            model.save(name)
    numpy.savez("results.npz", **results)
"""


def network() -> Graph:
    x = Tensor.input("x", (1, 3, 17, 13))
    made = x.conv2d(const(8, 3, 3, 3), padding=1).relu().conv2d(const(8, 1, 3, 3), groups=8).sigmoid()
    return build_graph({"y": made.max_pool(2, 2).conv2d(const(5, 8, 1, 1))}, [x])


def test_cpus_share_a_cache_folder(device: DeviceInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cpus = cpus_of(device)
    monkeypatch.delenv(VARIABLE, raising=False)
    graph = network()
    export_onnx(graph, tmp_path / "m.onnx")
    given = inputs_of(graph)
    numpy.save(tmp_path / "x.npy", given["x"])
    expected = evaluate_graph(graph, given)["y"]
    kept: dict[Path, int] = {}
    for turn in range(2):
        for cpu, variables in cpus.items():
            done = subprocess.run(
                [sys.executable, "-c", textwrap.dedent(TURN), str(device.index)], cwd=tmp_path, text=True,
                env={**os.environ, **variables, "XDG_CACHE_HOME": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)},
                capture_output=True,
            )
            assert done.returncode == 0, f"{cpu}, turn {turn}: status {done.returncode}\n{done.stderr}"
            with numpy.load(tmp_path / "results.npz") as found:
                for name, array in found.items():
                    # Half: the bound of FLOAT16=1. Float: sums of 27 terms that are 10 together, each off by 2**-24.
                    bound = 1e-2 * abs(expected).max() if "half" in name else 2e-5
                    assert abs(array - expected).max() < bound, f"{name} on {cpu}, turn {turn}"
            before, kept = kept, entries(tmp_path / "cache")
            assert kept.items() >= before.items(), f"{cpu} replaced what another CPU keeps"
            # A plan of a load that had no time to measure what can be fp16 is made again.
            new = {path for path in kept.keys() - before.keys() if path.parent.name == "programs"}
            assert bool(new) == (turn == 0), f"{cpu}, turn {turn}"
