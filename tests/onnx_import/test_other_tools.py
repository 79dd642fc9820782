"""Files that onnxruntime's optimizer and quantizer write of small networks: they load, and agree with onnxruntime."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnxruntime.quantization as quantization
import pytest
from other_tools import NETWORKS, Reader, assert_equal, convolutional, written
from support import run_model, run_oracle

from imgconv.errors import UnsupportedError
from imgconv.onnx_import import import_onnx


def domains_of(model: onnx.ModelProto) -> set[str]:
    return {n.domain for n in model.graph.node}


@pytest.mark.parametrize("level", ["BASIC", "EXTENDED", "ALL"])
@pytest.mark.parametrize("network", NETWORKS)
def test_what_the_optimizer_writes(network: str, level: str, tmp_path: Path) -> None:
    model, feeds = NETWORKS[network]()
    expected = run_oracle(model, feeds)["y"]
    optimised = written(model, level, tmp_path, ["NchwcTransformer"])
    assert ("com.microsoft" in domains_of(optimised)) == (level != "BASIC")
    assert_equal(run_model(optimised, feeds)["y"], expected, 1e-5)


def test_the_layout_of_one_machine_is_refused(tmp_path: Path) -> None:
    """Level ALL stores weights in blocks of 8 or 16 channels, as the machine likes; the file does not say which."""
    optimised = written(convolutional()[0], "ALL", tmp_path)
    assert "com.microsoft.nchwc" in domains_of(optimised)
    with pytest.raises(UnsupportedError, match=r"com\.microsoft\.nchwc\.Conv \(\d nodes: .*ORT_ENABLE_EXTENDED"):
        import_onnx(optimised)


@pytest.mark.parametrize("form", ["QOperator", "QDQ"])
@pytest.mark.parametrize("types", [("QUInt8", "QInt8"), ("QInt8", "QInt8"), ("QUInt8", "QUInt8")])
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("level", ["", "EXTENDED", "ALL"])
def test_what_the_static_quantizer_writes(
    network: str, types: tuple[str, str], form: str, level: str, tmp_path: Path
) -> None:
    model, feeds = NETWORKS[network]()
    onnx.save(model, tmp_path / "model.onnx")
    # Weights of 7 bits: with 8 signed ones, onnxruntime's own sums saturate on CPUs without VNNI.
    quantization.quantize_static(
        tmp_path / "model.onnx", tmp_path / "quantised.onnx", Reader(feeds), quantization.QuantFormat[form],
        per_channel=types[0] == "QUInt8", activation_type=quantization.QuantType[types[0]],
        weight_type=quantization.QuantType[types[1]], reduce_range=True,
    )
    quantised = onnx.load(tmp_path / "quantised.onnx")
    quantised = written(quantised, level, tmp_path, ["NchwcTransformer"]) if level else quantised
    assert_equal(run_model(quantised, feeds)["y"], run_oracle(quantised, feeds)["y"], 1e-6)


@pytest.mark.parametrize("level", ["", "EXTENDED", "ALL"])
@pytest.mark.parametrize("network", NETWORKS)
def test_what_the_dynamic_quantizer_writes(network: str, level: str, tmp_path: Path) -> None:
    model, feeds = NETWORKS[network]()
    onnx.save(model, tmp_path / "model.onnx")
    quantization.quantize_dynamic(tmp_path / "model.onnx", tmp_path / "quantised.onnx", reduce_range=True)
    quantised = onnx.load(tmp_path / "quantised.onnx")
    quantised = written(quantised, level, tmp_path, ["NchwcTransformer"]) if level else quantised
    assert_equal(run_model(quantised, feeds)["y"], run_oracle(quantised, feeds)["y"], 1e-6)
