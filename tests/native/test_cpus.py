"""CPUs that share a compiled file and a folder of programs: the player gives no driver another CPU's program."""

from __future__ import annotations

from pathlib import Path

import pytest
from cpus import VARIABLE, cpus_of, entries
from graphs import const, inputs_of
from played import Play

import imgconv
from imgconv.cl.device import DeviceInfo
from imgconv.graph.evaluate import evaluate_graph
from imgconv.tensor import Tensor, build_graph

FILES = {"memory": {}, "images": {"max_image": 64}}


def test_cpus_share_a_file_and_programs(
    device: DeviceInfo, play: Play, environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files with this process's programs, and the same without any."""
    cpus = cpus_of(device)
    monkeypatch.delitem(environment, VARIABLE, raising=False)
    x = Tensor.input("x", (1, 3, 17, 13))
    graph = build_graph({"y": x.conv2d(const(8, 3, 3, 3), padding=1).sigmoid().max_pool(2, 2)}, [x])
    for name, settings in FILES.items():
        model = imgconv.load(graph, device=device, **settings)
        model.save(tmp_path / name)
        model.save(tmp_path / f"{name} without", targets=[device])
    folder, given, kept = tmp_path / "programs", inputs_of(graph), {}
    folder.mkdir()
    expected = evaluate_graph(graph, given)["y"]
    lines = f"""
        for name in {[*(f"{name} without" for name in FILES), *FILES]}:
            model = Player({str(tmp_path)!r} + "/" + name, "{device.index}", cache={str(folder)!r})
            results[name] = model.run(given)["y"]
            model.close()
    """
    for turn in range(2):
        for cpu, variables in cpus.items():
            for name, array in play(lines, given, **variables).items():
                # Sums of 27 terms that are 10 together, each off by 2**-24.
                assert abs(array - expected).max() < 2e-5, f"{name} on {cpu}, turn {turn}"
            before, kept = kept, entries(folder)
            assert kept.items() >= before.items(), f"{cpu} replaced what another CPU keeps"
            assert (kept != before) == (turn == 0), f"{cpu}, turn {turn}"
