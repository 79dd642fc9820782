"""The player meets the driver that misbehaves, too."""

from __future__ import annotations

import json
from pathlib import Path

import faulty_driver
from graphs import assert_near, const, image, numbers
from played import Play

import imgconv
from imgconv.graph.evaluate import evaluate_graph
from imgconv.tensor import build_graph

ADRENO = faulty_driver.ROOT / "imgconv" / "running" / "devices" / "adreno_640.json"


def test_the_player_meets_it(play: Play, tmp_path: Path) -> None:
    """It is listed as an Adreno 640, runs the plan for that one, and replays its launches."""
    variables = faulty_driver.variables("adreno;recordable", tmp_path)
    (found,) = json.loads(str(play("results['json'] = numpy.array(devices_json())", **variables)["json"]))["devices"]
    described = json.loads(ADRENO.read_text())
    same = "platform", "name", "kind", "driver_version", "opencl_c_version", "local_memory_bytes", "compute_units"
    assert {name: found[name] for name in same} == {name: described[name] for name in same}
    x = image(1, 3, 9, 7)
    graph = build_graph({"y": x.conv2d(const(6, 3, 3, 3), const(6), padding=1).relu().softmax(1)}, [x])
    imgconv.load(graph).save(tmp_path / "m", targets=[ADRENO])
    lines = f"""
        player = Player({str(tmp_path / "m")!r})
        results.update(player.run(given))
        results["replay"] = numpy.array(LIBRARY.imgconv_replay(player._model))
    """
    inputs = {"x": numbers(1, 3, 9, 7)}
    made = play(lines, inputs, **variables)
    assert_near(made["y"], evaluate_graph(graph, inputs)["y"])
    assert bytes(made["replay"]) == b"cl_qcom_recordable_queues"
