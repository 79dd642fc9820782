"""models/: architectures, parameters, weights from files, activations and launches. Nothing here needs a device."""

from __future__ import annotations

import functools
import itertools
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import onnx
import onnx.helper
import onnx.numpy_helper
import pytest
from graphs import assert_near, check_plan, const, numbers, numpy_convolution, target
from numpy.lib.stride_tricks import sliding_window_view

from imgconv.compiling.lower import lower
from imgconv.compiling.plan import Plan
from imgconv.config import Config
from imgconv.errors import ModelError
from imgconv.graph.evaluate import evaluate_graph, evaluate_node
from imgconv.graph.nodes import Convolution, Graph
from imgconv.kernels.layout import Alignment
from imgconv.onnx_import import import_onnx
from imgconv.passes import run_passes
from imgconv.tensor import Tensor, build_graph
from models import MODELS, Weights, build
from models.layers import Layers, scaled
from models.yolo import yolo

HALF_MAX = 65504.0
SMALL = 64

# torchvision's counts; YOLOX-Nano's paper says 0.91 M; the U-Net's is that of the paper's layers; the last two ours.
PARAMETERS = {
    "mobilenet_v2": 3_504_872, "mobilenet_v3_small": 2_542_856, "resnet18": 11_689_512, "resnet50": 25_557_032,
    "squeezenet": 1_235_496, "efficientnet_b0": 5_288_548, "yolo": 912_159, "unet": 31_030_658, "supercombo": 5_761_984,
    "conv_gru": 74_481,
}
# Millions, at the default sizes, by convolutions and products. The papers say 300, 56, 1800, 3800 (with the strides
# elsewhere), 390 for EfficientNet-B0 and 540 for YOLOX-Nano (half of 1.08 G operations, all layers included).
MULTIPLY_ADDS = {
    "mobilenet_v2": 300.8, "mobilenet_v3_small": 56.5, "resnet18": 1814.1, "resnet50": 4089.2, "squeezenet": 349.2,
    "efficientnet_b0": 385.8, "yolo": 522.6, "unet": 48096.1, "supercombo": 274.5, "conv_gru": 375.1,
}
# Launches now, and the most that there may ever be.
LAUNCHES = {
    "mobilenet_v2": (37, 37), "mobilenet_v3_small": (62, 62), "resnet18": (23, 23), "resnet50": (56, 56),
    "squeezenet": (30, 31), "efficientnet_b0": (99, 100), "yolo": (99, 100), "unet": (27, 27), "supercombo": (57, 60),
    "conv_gru": (13, 13),
}
NAMES = sorted(MODELS)
SHARING = ["mobilenet_v2", "resnet18", "squeezenet", "efficientnet_b0", "supercombo"]
CLASSIFIERS = sorted({"mobilenet_v2", "mobilenet_v3_small", "resnet18", "resnet50", "squeezenet", "efficientnet_b0"})


@functools.cache
def full_size(name: str) -> tuple[Graph, Weights]:
    """The network as published, and its parameters."""
    weights = Weights()
    return build(name, weights=weights), weights


@functools.cache
def planned(name: str) -> Plan:
    plan = lower(run_passes(full_size(name)[0]), Config(), target())
    check_plan(plan, target().limits)
    return plan


@functools.cache
def small(name: str) -> Graph:
    return build(name, size=SMALL, width={"unet": 0.25, "resnet50": 0.5, "yolo": 0.25}.get(name, 1.0))


def drawn(graph: Graph, seed: int = 0) -> dict[str, Any]:
    """Inputs as the network wants them: YOLOX takes pixels, the others about normal values."""
    generator = numpy.random.default_rng(seed)
    scale, shift = (60, 128) if graph.name == "yolo" else (1, 0)
    return {v.name: (generator.standard_normal(v.shape) * scale + shift).astype(v.dtype) for v in graph.inputs}


# Architectures

def test_every_model_is_counted() -> None:
    assert set(MODELS) == set(PARAMETERS) == set(MULTIPLY_ADDS) == set(LAUNCHES)


@pytest.mark.parametrize("name", NAMES)
def test_parameters_are_as_many_as_published(name: str) -> None:
    assert full_size(name)[1].count == PARAMETERS[name]


@pytest.mark.parametrize(("width", "depthwise", "count"), [(0.375, False, 5_055_855), (0.5, False, 8_968_255)])
def test_yolox_tiny_and_s_have_as_many_parameters_as_published(width: float, depthwise: bool, count: int) -> None:
    weights = Weights()
    yolo(width, SMALL, weights=weights, depthwise=depthwise)
    assert weights.count == count


@pytest.mark.parametrize("name", NAMES)
def test_multiply_adds_are_as_many_as_published(name: str) -> None:
    assert round(planned(name).multiply_adds / 1e6, 1) == MULTIPLY_ADDS[name]


@pytest.mark.parametrize("name", NAMES)
def test_launches(name: str) -> None:
    plan = planned(name)
    now, most = LAUNCHES[name]
    assert len(plan.compute_launches) <= most, str(plan)
    assert len(plan.compute_launches) == now, f"fewer launches than before: pin {len(plan.compute_launches)}"


@pytest.mark.parametrize("name", SHARING)
def test_one_workspace_is_hardly_larger_than_it_must_be(name: str) -> None:
    """Rows of whole 64 texels, as CPU drivers want them, are the rest."""
    shared = replace(target(), images_in_buffers=Alignment(64, 64, 1 << 30))
    plan = lower(run_passes(full_size(name)[0]), Config(), shared)
    assert plan.memory.lower_bound <= plan.memory.activations <= 1.05 * plan.memory.lower_bound


def assert_images_hardly_larger(graph: Graph) -> None:
    """In images alone, on a CPU of small images and on a GPU of large ones."""
    for on, float16 in itertools.product((target(8192, kind="cpu", compute_units=2), target(32768)), (0, 1)):
        plan = lower(graph, Config(float16), on)
        check_plan(plan, on.limits)
        assert not plan.regions and plan.slots
        memory = plan.memory
        assert memory.lower_bound <= memory.activations <= 1.25 * memory.lower_bound, (on, float16)


@pytest.mark.parametrize("name", SHARING)
def test_shared_images_are_hardly_larger_than_they_must_be(name: str) -> None:
    assert_images_hardly_larger(run_passes(full_size(name)[0]))


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_size_batch_width_and_classes_of_classifiers(name: str) -> None:
    graph, weights = full_size(name)
    assert [(v.name, v.shape) for v in graph.inputs] == [("input", (1, 3, 224, 224))]
    assert [graph.values[o].shape for o in graph.outputs] == [(1, 1000)]
    thin = Weights()
    other = MODELS[name](width=0.5, size=65, batch=2, classes=7, weights=thin)
    assert [v.shape for v in other.inputs] == [(2, 3, 65, 65)]
    assert [other.values[o].shape for o in other.outputs] == [(2, 7)]
    assert 0 < thin.count < weights.count


def test_size_batch_and_width_of_the_others() -> None:
    def shapes(name: str, **arguments: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        graph = build(name, **arguments)
        return {v.name: v.shape for v in graph.inputs}, {n: graph.values[n].shape for n in graph.outputs}

    assert shapes("yolo") == ({"input": (1, 3, 416, 416)}, {"output": (1, 3549, 85)})
    thin = shapes("yolo", width=0.125, size=64, batch=2, classes=3)
    assert thin == ({"input": (2, 3, 64, 64)}, {"output": (2, 64 + 16 + 4, 8)})
    assert shapes("unet") == ({"input": (1, 1, 256, 256)}, {"output": (1, 2, 256, 256)})
    thin = shapes("unet", width=0.25, size=32, batch=2, classes=5, channels=3)
    assert thin == ({"input": (2, 3, 32, 32)}, {"output": (2, 5, 32, 32)})
    small_inputs = {"desire": (1, 8), "traffic_convention": (1, 2), "initial_state": (1, 512)}
    images = {"input_imgs": (1, 12, 128, 256), "big_input_imgs": (1, 12, 128, 256)}
    assert shapes("supercombo") == (images | small_inputs, {"outputs": (1, 6472)})
    small_inputs = {name: (3, n) for name, (_, n) in small_inputs.items()}
    thin = shapes("supercombo", width=0.5, size=64, batch=3, cameras=1)
    assert thin == ({"input_imgs": (3, 12, 64, 128)} | small_inputs, {"outputs": (3, 6472)})


def test_width_scales_channels() -> None:
    def filters(width: float) -> list[int]:
        graph = build("resnet18", width=width, size=32)
        return [n.output.shape[1] for n in graph.nodes if isinstance(n.operation, Convolution)]

    assert [n // 2 for n in filters(1.0)] == filters(0.5)
    assert [scaled(n) for n in (3, 11, 12, 17, 72 * 0.5, 1280)] == [8, 16, 16, 16, 40, 1280]


def test_squeezenet_rounds_the_sizes_of_its_pools_up() -> None:
    graph = build("squeezenet", size=65)
    assert {n.output.shape[2] for n in graph.nodes if len(n.output.shape) == 4} == {32, 16, 8, 4, 1}


def test_a_batch_is_so_many_pictures() -> None:
    weights = Weights()
    both = build("efficientnet_b0", size=32, batch=2, weights=weights)
    one = build("efficientnet_b0", size=32, weights=weights)
    pictures = drawn(both)["input"]
    found = evaluate_graph(both, {"input": pictures})["output"]
    for number in range(2):
        assert_near(found[number], evaluate_graph(one, {"input": pictures[number : number + 1]})["output"][0], 1e-5)


def test_sizes_that_do_not_fit() -> None:
    with pytest.raises(ModelError, match="yolo: size 100 is no multiple of 32"):
        build("yolo", size=100)
    with pytest.raises(ModelError, match="unet: size 40 is no multiple of 16"):
        build("unet", size=40)


def test_an_unknown_model() -> None:
    with pytest.raises(ModelError, match=r"no model is called 'resnet19'; there are mobilenet_v2, "):
        build("resnet19")


# Activations

@pytest.mark.parametrize("name", NAMES)
def test_activations_stay_far_inside_half_and_far_from_nothing(name: str) -> None:
    graph = small(name)
    arrays: dict[str, Any] = {**graph.constants, **drawn(graph)}
    for node in graph.nodes:
        value = arrays[node.output.name] = evaluate_node(node, arrays)
        largest = numpy.abs(value).max()
        assert 1e-3 < largest < HALF_MAX / 8, f"{node.output.name} from {node.origin}: {largest}"
    other = evaluate_graph(graph, drawn(graph, seed=1))
    for output in graph.outputs:
        spread = numpy.abs(arrays[output]).max()
        assert numpy.abs(other[output] - arrays[output]).max() > 0.02 * spread, "the output hardly sees the input"


def test_a_running_variance_is_what_it_divides() -> None:
    """The mean square behind every normalisation of a larger picture than the one that it was measured on."""
    graph = build("efficientnet_b0", size=128)
    arrays: dict[str, Any] = {**graph.constants, **drawn(graph)}
    for node in graph.nodes:
        arrays[node.output.name] = evaluate_node(node, arrays)
        if isinstance(node.operation, Convolution):
            (scale,) = graph.consumers[node.output.name]
            (shift,) = graph.consumers[scale.output.name]
            last = evaluate_node(shift, {**arrays, scale.output.name: evaluate_node(scale, arrays)})
            assert 0.1 < numpy.sqrt(numpy.mean(last**2)) < 3, node.origin


# Weights

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
    subprocess.run([sys.executable, "-c", code], cwd=root, check=True, timeout=120)


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

REAL = Path(os.environ.get("IMGCONV_MODELS", ""))
needs_models = pytest.mark.skipif(
    "IMGCONV_MODELS" not in os.environ, reason="IMGCONV_MODELS does not name a folder of models and cases"
)


@needs_models
def test_shared_images_of_style_transfer() -> None:
    assert_images_hardly_larger(run_passes(import_onnx(REAL / "candy" / "candy.onnx")))


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


# The lazy front end

def value_of(tensor: Tensor, **inputs: Any) -> Any:
    return evaluate_graph(build_graph({"y": tensor}), inputs)["y"]


def test_nothing_is_computed_while_a_network_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("computed")

    monkeypatch.setattr("imgconv.graph.lazy.evaluate_node", refuse)
    x = Tensor.input("x", (1, 3, 8, 8))
    w = Tensor.constant(numbers(4, 3, 3, 3))
    y = x.conv2d(w * 2.0).relu().global_average_pool().flatten().linear(Tensor.constant(numbers(2, 4)))
    assert y.shape == (1, 2)
    assert y.array is None


def test_the_same_subexpression_is_computed_once() -> None:
    x, w = Tensor.input("x", (1, 8, 8, 8)), const(8, 8, 3, 3)

    def branch() -> Tensor:
        return x.conv2d(w, padding=1).relu()

    once = branch()
    shared = lower(run_passes(build_graph({"y": once.max_pool(2, 2) + once.max_pool(2, 2)})), Config(), target())
    twice = lower(run_passes(build_graph({"y": branch().max_pool(2, 2) + branch().max_pool(2, 2)})), Config(), target())
    assert len(shared.compute_launches) == len(twice.compute_launches) == 2


def test_an_unused_branch_costs_nothing() -> None:
    def network(wanted: bool) -> Graph:
        x = Tensor.input("x", (1, 8, 8, 8))
        y = x.conv2d(const(8, 8, 3, 3), padding=1).relu()
        aside = y.conv2d(const(32, 8, 3, 3, seed=1)).silu().global_average_pool()
        return build_graph({"y": y.max_pool(2, 2), **({"z": aside} if wanted else {})})

    without, with_branch = network(False), network(True)
    assert len(without.nodes) < len(with_branch.nodes)
    assert sum(a.size for a in without.constants.values()) < sum(a.size for a in with_branch.constants.values())
    plan = lower(run_passes(without), Config(), target())
    assert [launch.name for launch in plan.compute_launches] and plan.multiply_adds == 8 * 8 * 9 * 64


@pytest.mark.parametrize(("name", "blocks", "products"), [("efficientnet_b0", 16, 1), ("mobilenet_v3_small", 9, 2)])
def test_squeeze_and_excite_takes_three_launches(name: str, blocks: int, products: int) -> None:
    """The mean, two products, and the scale in the convolution after it; and the head has a mean and its products."""
    sorts = [launch.operation for launch in planned(name).compute_launches]
    assert sorts.count("reduction") == blocks + 1
    assert sorts.count("product") == 2 * blocks + products
    assert set(sorts) - {"separable convolution"} == {"reduction", "product", "convolution", "depthwise convolution"}


def test_squeeze_and_excite_scales_in_the_convolution_that_follows() -> None:
    x = Tensor.input("x", (1, 16, 8, 8))
    net = Layers(Weights())
    wide = net.unit(x, "a", 16, 3, groups=16, activation=Tensor.silu)
    y = net.unit(net.squeeze_excite(wide, "b", 4, Tensor.silu, Tensor.sigmoid), "c", 8)
    plan = lower(run_passes(build_graph({"y": y.max_pool(2, 2)})), Config(), target())
    expected = ["convolution", "sum", "product", "product", "convolution", "max"]
    assert [launch.description.split()[0] for launch in plan.compute_launches] == expected, str(plan)


def test_batch_norm() -> None:
    x, (scale, bias, mean) = numbers(2, 5, 3, 4), numbers(3, 5, seed=1)
    variance = numbers(5, seed=2, low=0.1, high=2)
    made = Tensor.input("x", x.shape).batch_norm(*map(Tensor.constant, (scale, bias, mean, variance)), epsilon=0.01)
    by = [p.astype(numpy.float64).reshape(5, 1, 1) for p in (scale, bias, mean, variance)]
    assert_near(value_of(made, x=x), (x - by[2]) / numpy.sqrt(by[3] + 0.01) * by[0] + by[1])


def test_linear() -> None:
    x, w, b = numbers(2, 5), numbers(3, 5, seed=1), numbers(3, seed=2)
    made = Tensor.input("x", x.shape).linear(Tensor.constant(w), Tensor.constant(b))
    assert_near(value_of(made, x=x), x.astype(numpy.float64) @ w.T + b)


def test_depthwise() -> None:
    x, w, b = numbers(2, 3, 5, 6), numbers(6, 1, 3, 3, seed=1), numbers(6, seed=2)
    made = Tensor.input("x", x.shape).depthwise(Tensor.constant(w), Tensor.constant(b), stride=2, padding=1)
    assert_near(value_of(made, x=x), numpy_convolution(x, w, (2, 2), (1, 1, 1, 1), groups=3) + b.reshape(6, 1, 1))


def test_conv_transpose2d() -> None:
    x, w, b = numbers(2, 3, 4, 5), numbers(3, 2, 3, 3, seed=1), numbers(2, seed=2)
    made = Tensor.input("x", x.shape).conv_transpose2d(Tensor.constant(w), Tensor.constant(b), stride=2, padding=1)
    whole = numpy.zeros((2, 2, 9, 11))
    for row, column in numpy.ndindex(4, 5):
        spread = numpy.einsum("nc,cokl->nokl", x[:, :, row, column].astype(numpy.float64), w)
        whole[:, :, 2 * row : 2 * row + 3, 2 * column : 2 * column + 3] += spread
    assert_near(value_of(made, x=x), whole[:, :, 1:-1, 1:-1] + b.reshape(2, 1, 1))


def test_pools() -> None:
    x = numbers(1, 2, 6, 7)
    tensor = Tensor.input("x", x.shape)
    assert_near(value_of(tensor.global_average_pool(), x=x), x.mean((2, 3), keepdims=True, dtype=numpy.float64))
    assert value_of(tensor.flatten(), x=x).shape == (1, 84)
    wide = numpy.pad(x, ((0, 0), (0, 0), (0, 1), (0, 0)), constant_values=-numpy.inf)
    expected = sliding_window_view(wide, (3, 3), (2, 3))[:, :, ::2, ::2].max((-2, -1))
    assert_near(value_of(tensor.max_pool(3, 2, round_up=True), x=x), expected)
    assert tensor.max_pool(3, 2).shape == (1, 2, 2, 3)
    # A window that would begin in the padding after the last column is left out.
    assert tensor.max_pool(2, 2, padding=1, round_up=True).shape == (1, 2, 4, 4)
    assert tensor.max_pool(2, 3, padding=1, round_up=True).shape == (1, 2, 3, 3)


def test_gated_recurrent_unit() -> None:
    weights = Weights()
    x, state = numbers(2, 5), numbers(2, 4, seed=1)
    made = Layers(weights).gated_recurrent_unit(Tensor.input("x", x.shape), Tensor.input("state", state.shape), "cell")
    a = {n: v.astype(numpy.float64) for n, v in weights.arrays.items()}
    one = numpy.split(x @ a["cell.weight_ih"].T + a["cell.bias_ih"], 3, axis=1)
    two = numpy.split(state @ a["cell.weight_hh"].T + a["cell.bias_hh"], 3, axis=1)
    reset, update = (1 / (1 + numpy.exp(-(one[i] + two[i]))) for i in range(2))
    new = numpy.tanh(one[2] + reset * two[2])
    assert_near(value_of(made, x=x, state=state), (1 - update) * new + update * state)
