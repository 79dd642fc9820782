"""models/: architectures, parameters, activations and launches. Nothing here needs a device."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy
import pytest
from graphs import assert_near, check_plan, target
from published import CLASSIFIERS, full_size

from imgconv.compiling.lower import lower
from imgconv.compiling.plan import Plan
from imgconv.config import Config
from imgconv.errors import ModelError
from imgconv.graph.evaluate import evaluate_graph, evaluate_node
from imgconv.graph.nodes import Convolution, Graph
from imgconv.kernels.layout import ImageAlignment
from imgconv.passes import run_passes
from models import MODELS, Weights, build
from models.layers import scaled
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
    "mobilenet_v2": (37, 37), "mobilenet_v3_small": (48, 62), "resnet18": (23, 23), "resnet50": (56, 56),
    "squeezenet": (30, 31), "efficientnet_b0": (85, 100), "yolo": (99, 100), "unet": (27, 27), "supercombo": (57, 60),
    "conv_gru": (13, 13),
}
NAMES = sorted(MODELS)
SHARING = ["mobilenet_v2", "resnet18", "squeezenet", "efficientnet_b0", "supercombo"]


@functools.cache
def optimised(name: str) -> Graph:
    return run_passes(full_size(name)[0])


@functools.cache
def planned(name: str) -> Plan:
    plan = lower(optimised(name), Config(), target())
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


@pytest.mark.parametrize(("name", "blocks", "large", "products"), [
    ("efficientnet_b0", 16, 10, 1), ("mobilenet_v3_small", 7, 2, 6),
])
def test_squeeze_and_excite_is_a_launch(name: str, blocks: int, large: int, products: int) -> None:
    """On a computer's GPU; large maps are pooled in one before it. The head has a mean and its products."""
    plan = lower(optimised(name), Config(), replace(target(), max_work_group=1024))
    sorts = [launch.operation for launch in plan.compute_launches]
    assert sorts.count("squeeze-and-excitation") == blocks
    assert sorts.count("reduction") == large + 1
    assert sorts.count("product") == products


@pytest.mark.parametrize("name", SHARING)
def test_one_workspace_is_hardly_larger_than_it_must_be(name: str) -> None:
    """Rows of whole 64 texels, as CPU drivers want them, are the rest."""
    shared = replace(target(), images_in_buffers=ImageAlignment(64, 64, 1 << 30))
    plan = lower(optimised(name), Config(), shared)
    assert plan.memory.lower_bound <= plan.memory.activations <= 1.05 * plan.memory.lower_bound


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
