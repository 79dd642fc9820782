"""Small networks that onnxruntime's optimizer and quantizer have rewritten, on every OpenCL device."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnxruntime.quantization as quantization
import pytest
from other_tools import NETWORKS, Reader, assert_equal, written
from support import run_model, run_oracle

from imgconv.cl.device import DeviceInfo


@pytest.mark.parametrize("network", NETWORKS)
def test_optimised(network: str, device: DeviceInfo, tmp_path: Path) -> None:
    model, feeds = NETWORKS[network]()
    optimised = written(model, "ALL", tmp_path, ["NchwcTransformer"])
    assert_equal(run_model(optimised, feeds, device)["y"], run_oracle(model, feeds)["y"], 1e-5)


@pytest.mark.parametrize("network", NETWORKS)
def test_quantised(network: str, device: DeviceInfo, tmp_path: Path) -> None:
    model, feeds = NETWORKS[network]()
    onnx.save(model, tmp_path / "model.onnx")
    # Weights of 7 bits: with 8, onnxruntime's own sums saturate on CPUs without VNNI.
    quantization.quantize_static(
        tmp_path / "model.onnx", tmp_path / "quantised.onnx", Reader(feeds), quantization.QuantFormat.QOperator,
        reduce_range=True,
    )
    quantised = onnx.load(tmp_path / "quantised.onnx")
    assert_equal(run_model(quantised, feeds, device)["y"], run_oracle(quantised, feeds)["y"], 1e-6)
