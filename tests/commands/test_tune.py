"""The report of imgconv tune: the layers, the time saved, and the layers left to measure."""

from __future__ import annotations

import json

from command_line import Command, write_convolution

from imgconv.cl.device import DeviceInfo
from imgconv.commands.tune import summary


def test_layers_with_their_time_before_and_after(imgconv: Command, device: DeviceInfo) -> None:
    """The cost model's choice is the first candidate: the fastest takes as long at most. Without time all are left."""
    write_convolution()
    command = ("tune", "conv.onnx", "--shape", "h=12", "--device", device.index, "--candidates", 3)
    status, out, err = imgconv(*command, "--budget", 0, "--json")
    assert status == 0, err
    assert json.loads(out)["left"] == ["y"] and json.loads(out)["problems"] == []
    status, out, err = imgconv(*command, "--budget", 0)
    assert "0 of 1 layers are measured" in out and "left: y" in out
    status, out, err = imgconv(*command, "--json")
    row, = json.loads(out)["problems"]
    assert row["layers"] == ["y"] and 0 < row["seconds"] <= row["predicted_seconds"] and json.loads(out)["left"] == []
    out = imgconv(*command)[1]
    assert "1 of 1 layers are measured (1 of different size)" in out and "before ms" in out and "left" not in out


def test_the_gain_counts_every_layer() -> None:
    rows = [
        {"layers": ["a", "b"], "predicted_seconds": 0.003, "seconds": 0.002},
        {"layers": ["c"], "predicted_seconds": None, "seconds": 0.001},
    ]
    first, gain, left = summary(rows, [f"d{n}" for n in range(7)])
    assert first == "3 of 10 layers are measured (2 of different size)"
    assert gain == "these layers take 4.000 ms a run, 6.000 with the cost model's choice"
    assert left == "left: d0, d1, d2, d3, d4 ...; repeat the command to continue"
