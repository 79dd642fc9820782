"""models/: weights drawn from a seed and read from files, and trained weights of others in our architectures."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import onnx
import onnx.helper
import onnx.numpy_helper
import pytest
from graphs import assert_near, numbers
from published import CLASSIFIERS, REAL, full_size, needs_models
from support import HANG_TIMEOUT

from imgconv.errors import ModelError
from imgconv.graph.evaluate import evaluate_graph
from models import Weights, build


def test_the_seed_decides_the_weights() -> None:
    def arrays(seed: int) -> dict[str, Any]:
        weights = Weights(seed=seed)
        build("squeezenet", size=32, weights=weights)
        return weights.arrays

    one, again, other = arrays(0), arrays(0), arrays(1)
    assert one.keys() == other.keys()
    assert all(numpy.array_equal(one[n], again[n]) and not numpy.array_equal(one[n], other[n]) for n in one)


def test_parameters_of_one_shape_are_drawn_apart() -> None:
    arrays = full_size("resnet18")[1].arrays
    same = [a for n, a in arrays.items() if n.startswith("layer1") and a.shape == (64, 64, 3, 3)]
    assert len(same) == 4
    assert all(not numpy.array_equal(a, b) for i, a in enumerate(same) for b in same[:i])


def test_the_size_does_not_change_the_weights() -> None:
    found = []
    for size in (32, 96):
        found.append(Weights())
        build("mobilenet_v3_small", size=size, weights=found[-1])
    assert found[0].arrays.keys() == found[1].arrays.keys()
    for name, array in found[0].arrays.items():
        assert numpy.array_equal(array, found[1].arrays[name]), name


def stored(path: Path, arrays: dict[str, Any]) -> Path:
    """The arrays in a file of the path's kind."""
    if path.suffix == ".npz":
        numpy.savez(path, **arrays)
    elif path.suffix == ".safetensors":
        pytest.importorskip("safetensors.numpy").save_file(arrays, path)
    else:
        held = [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()]
        onnx.save(onnx.helper.make_model(onnx.helper.make_graph([], "weights", [], [], held)), path)
    return path


@pytest.mark.parametrize("suffix", [".npz", ".safetensors", ".onnx"])
@pytest.mark.parametrize("name", ["mobilenet_v3_small", "supercombo"])
def test_weights_come_back_from_a_file(suffix: str, name: str, tmp_path: Path) -> None:
    weights = Weights(seed=3)
    graph = build(name, size=32, weights=weights)
    extra = {"a.num_batches_tracked": numpy.array(5)}
    again = build(name, size=32, weights=Weights.load(stored(tmp_path / f"w{suffix}", weights.arrays | extra)))
    assert again.constants.keys() == graph.constants.keys()
    assert all(numpy.array_equal(again.constants[n], a) for n, a in graph.constants.items())
    assert again.nodes == graph.nodes


def test_saved_weights_come_back(tmp_path: Path) -> None:
    weights = Weights(seed=3)
    graph = build("resnet18", width=0.25, size=32, weights=weights)
    weights.save(tmp_path / "weights.npz")
    again = build("resnet18", width=0.25, size=32, weights=Weights.load(tmp_path / "weights.npz"))
    assert all(numpy.array_equal(again.constants[n], a) for n, a in graph.constants.items())


def test_names_are_torchvisions() -> None:
    expected = {
        "mobilenet_v2": ["features.0.0.weight", "features.1.conv.0.1.running_var", "features.17.conv.2.weight"],
        "mobilenet_v3_small": ["features.1.block.1.fc1.bias", "features.4.block.2.fc2.weight", "classifier.3.bias"],
        "resnet18": ["conv1.weight", "bn1.running_mean", "layer2.0.downsample.1.bias", "fc.weight"],
        "resnet50": ["layer1.0.downsample.0.weight", "layer4.2.bn3.weight"],
        "squeezenet": ["features.0.bias", "features.12.expand3x3.weight", "classifier.1.weight"],
        "efficientnet_b0": ["features.1.0.block.1.fc1.weight", "features.7.0.block.3.1.bias", "classifier.1.weight"],
    }
    assert sorted(expected) == CLASSIFIERS
    for name, some in expected.items():
        assert set(some) <= full_size(name)[1].arrays.keys(), name


def test_weights_that_do_not_fit() -> None:
    weights = Weights()
    build("squeezenet", size=32, weights=weights)
    lacking = {name: a for name, a in weights.arrays.items() if name != "features.3.squeeze.bias"}
    with pytest.raises(ModelError, match=r"no 'features\.3\.squeeze\.bias' among their 51 names \(features\.0"):
        build("squeezenet", size=32, weights=Weights(lacking))
    with pytest.raises(ModelError, match=r"'features\.0\.weight' has shape \[64, 3, 3, 3\]; .* needs \[32, 3, 3, 3\]"):
        build("squeezenet", width=0.5, size=32, weights=Weights(weights.arrays))


@pytest.mark.parametrize("suffix", [".npz", ".safetensors", ".onnx"])
def test_files_that_are_no_weights(suffix: str, tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    path = tmp_path / f"broken{suffix}"
    path.write_bytes(b"\xff\xff\xff\xff no weights")
    with pytest.raises(ModelError, match=f"broken{suffix}: cannot read the weights"):
        Weights.load(path)
    with pytest.raises(ModelError, match=f"absent{suffix}: cannot read the weights"):
        Weights.load(tmp_path / f"absent{suffix}")


def test_unknown_kinds_of_files() -> None:
    with pytest.raises(ModelError, match=r"weights\.pth: weights are read from \.npz, \.safetensors, \.onnx files"):
        Weights.load("weights.pth")


def test_without_the_safetensors_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(ModelError, match=r"w\.safetensors: reading it needs the package safetensors: pip install"):
        Weights.load("w.safetensors")


def test_optional_packages_are_not_imported_uninvited() -> None:
    code = "import sys, models; sys.exit(any(name in sys.modules for name in ('safetensors', 'torch', 'pyopencl')))"
    root = Path(__file__).parent.parent
    subprocess.run([sys.executable, "-c", code], cwd=root, check=True, timeout=HANG_TIMEOUT)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_classifier_with_torchvisions_weights_is_torchvisions(name: str) -> None:
    """Every name of its state is asked for, and the outputs agree; skipped where torchvision is not installed."""
    torch, torchvision = pytest.importorskip("torch"), pytest.importorskip("torchvision")
    network = getattr(torchvision.models, {"squeezenet": "squeezenet1_1"}.get(name, name))(weights=None).eval()
    for key, statistic in network.named_buffers():
        if key.endswith("running_var"):
            statistic.uniform_(0.5, 1.5)
    state = {key: a.numpy() for key, a in network.state_dict().items() if not key.endswith("num_batches_tracked")}
    weights = Weights(state)
    graph, picture = build(name, size=97, weights=weights), numbers(1, 3, 97, 97)
    assert weights.arrays.keys() == state.keys()
    with torch.no_grad():
        expected = network(torch.from_numpy(picture)).numpy()
    assert_near(evaluate_graph(graph, {"input": picture})["output"], expected, 1e-5)


# Trained weights of others: the architectures do what the published files do


def real_case(folder: str, case: str) -> tuple[Any, Any]:
    arrays = dict(numpy.load(REAL / folder / f"{case}.npz"))
    return next(a for n, a in arrays.items() if n[:3] == "in:"), next(a for n, a in arrays.items() if n[:4] == "out:")


@needs_models
def test_squeezenet_with_trained_weights() -> None:
    layers = dict(zip(range(2, 10), (3, 4, 6, 7, 9, 10, 11, 12), strict=True))
    loaded = {}
    for key, array in (Weights.load(REAL / "squeezenet/squeezenet.onnx").loaded or {}).items():
        layer, kind = key[:-4], {"_w_0": "weight", "_b_0": "bias"}[key[-4:]]
        fire, _, part = layer.partition("/")
        name = {"conv1": "features.0", "conv10": "classifier.1"}.get(layer)
        name = name or f"features.{layers[int(fire[4:])]}.{part.replace('squeeze1x1', 'squeeze')}"
        loaded[f"{name}.{kind}"] = array
    picture, expected = real_case("squeezenet", "case_squeezenet_fp32_fish")
    scores = evaluate_graph(build("squeezenet", weights=Weights(loaded)), {"input": picture})["output"]
    powers = numpy.exp(scores - scores.max())
    assert_near(powers / powers.sum(), expected.reshape(1, 1000), 1e-5)


@needs_models
def test_yolox_nano_with_trained_weights() -> None:
    """The file has convolutions with their normalisation folded in, and boxes before decoding."""
    model = onnx.load(REAL / "yolox_nano/yolox_nano.onnx")
    arrays = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    convolutions = [n for n in model.graph.node if n.op_type == "Conv" and "preds" not in n.input[1]]
    asked = Weights()
    build("yolo", size=32, weights=asked)
    names = [n.removesuffix(".conv.weight") for n in asked.arrays if n.endswith(".conv.weight")]
    # The file's order: in each level of the head, all class convolutions before all box convolutions.
    names.sort(key=lambda n: (n.startswith("head"), n.split(".")[2:3] if n.startswith("head") else [], "reg" in n))
    loaded = {n: a for n, a in arrays.items() if "preds" in n}
    for name, node in zip(names, convolutions, strict=True):
        weight, bias = arrays[node.input[1]], arrays[node.input[2]]
        zeros, ones = numpy.zeros_like(bias), numpy.ones_like(bias)
        loaded |= {f"{name}.conv.weight": weight, f"{name}.bn.bias": bias, f"{name}.bn.weight": ones}
        loaded |= {f"{name}.bn.running_mean": zeros, f"{name}.bn.running_var": ones - numpy.float32(1e-3)}
    picture, raw = real_case("yolox_nano", "case_yolox_nano_139")
    found = evaluate_graph(build("yolo", weights=Weights(loaded)), {"input": picture})["output"]
    first = 0
    for stride in (8, 16, 32):
        n = 416 // stride
        rows, columns = numpy.divmod(numpy.arange(n * n), n)
        boxes, made = raw[0, first : first + n * n], found[0, first : first + n * n]
        assert_near(made[:, 0], (boxes[:, 0] + columns) * stride, 1e-4)
        assert_near(made[:, 1], (boxes[:, 1] + rows) * stride, 1e-4)
        assert_near(made[:, 2:4], numpy.exp(boxes[:, 2:4]) * stride, 1e-4)
        assert_near(made[:, 4:], boxes[:, 4:], 1e-4)
        first += n * n
