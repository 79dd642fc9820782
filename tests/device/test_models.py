"""Real trained models against their reference results.

IMGCONV_MODELS names a folder of folders that hold a model.onnx each and `case_*.npz` with `in:<input>` and
`out:<output>` arrays. Without it these tests are skipped. They take minutes: `-m "not models"` leaves them out.
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import pytest

import imgconv
from imgconv.cl.device import DeviceInfo

VARIABLE = "IMGCONV_MODELS"
FOLDER = Path(os.environ.get(VARIABLE, ""))
pytestmark = [
    pytest.mark.models,
    pytest.mark.skipif(VARIABLE not in os.environ, reason=f"{VARIABLE} does not name a folder of models and cases"),
]

Arrays = dict[str, Any]


@dataclass(frozen=True)
class Known:
    """A model's file, the most launches that it may take, those that it takes now, and the float error allowed."""

    file: str
    most_launches: int
    launches: int
    tolerance: float = 1e-3


MODELS = {
    "squeezenet": Known("squeezenet/squeezenet.onnx", 33, 31),
    "squeezenet_fp16": Known("squeezenet/squeezenet_fp16.onnx", 33, 31),
    "espcn": Known("espcn/espcn.onnx", 5, 4),
    "yolox_nano": Known("yolox_nano/yolox_nano.onnx", 135, 123),
    "ultraface": Known("ultraface/ultraface_rfb320.onnx", 75, 57),
    # Its normalisations are over pictures: their sums in two launches each are twice as fast.
    "candy": Known("candy/candy.onnx", 46, 46, 2e-3),
    "minifasnet": Known("minifasnet/minifasnet_v2.onnx", 60, 52),
}
CASES = [
    ("squeezenet", "case_squeezenet_fp32_fish"),
    ("squeezenet_fp16", "case_squeezenet_fp16_fish"),
    ("squeezenet_fp16", "case_squeezenet_fp16_kitten"),
    ("squeezenet_fp16", "case_squeezenet_fp16_wolves"),
    ("espcn", "case_espcn_zoo"),
    ("espcn", "case_espcn_australia"),
    ("yolox_nano", "case_yolox_nano_139"),
    ("yolox_nano", "case_yolox_nano_632"),
    ("yolox_nano", "case_yolox_nano_785"),
    ("ultraface", "case_ultraface_rfb320_1"),
    ("ultraface", "case_ultraface_rfb320_11"),
    ("candy", "case_fns_candy_std"),
    ("minifasnet", "case_fas_MiniFASNetV2_T1"),
    ("minifasnet", "case_fas_MiniFASNetV2_F1"),
    ("minifasnet", "case_fas_MiniFASNetV2_F2"),
]
HALF_TOLERANCE = 2e-2
# OpenCL leaves the precision of native functions to the driver: Intel's CPU runtime computes native_exp to 2.3e-4 and
# native_recip to 2.8e-4, always to the same side, which more than fifty SiLUs in a row multiply.
NATIVE_TOLERANCE = {"yolox_nano": 6e-2}


def read_case(model: str, case: str) -> tuple[Arrays, Arrays]:
    """The inputs and the reference outputs of a case, by name."""
    with numpy.load((FOLDER / MODELS[model].file).parent / f"{case}.npz") as arrays:
        found = dict(arrays)
    inputs, outputs = ({k[len(p) :]: a for k, a in found.items() if k.startswith(p)} for p in ("in:", "out:"))
    return inputs, outputs


@functools.lru_cache(maxsize=1)
def loaded(
    model: str, device: DeviceInfo, float16: int, max_image: int | None, native: bool = False
) -> imgconv.Model:
    """The model, kept for the next case that asks for the same."""
    inputs, _ = read_case(model, next(case for name, case in CASES if name == model))
    shapes = {name: array.shape for name, array in inputs.items()}
    path = FOLDER / MODELS[model].file
    return imgconv.load(path, device, float16=float16, native_explog=native, shapes=shapes, max_image=max_image)


def relative_difference(found: Arrays, expected: Arrays) -> float:
    """The largest difference in any output, in parts of the largest reference value of that output."""
    assert found.keys() == expected.keys()
    differences = []
    for name, want in expected.items():
        have = found[name]
        assert (have.shape, have.dtype) == (want.shape, want.dtype), name
        wide = want.astype(numpy.float64)
        differences.append(numpy.abs(have - wide).max() / numpy.abs(wide).max())
    return float(max(differences))


# What a person would see in the result


def decode(model: str, outputs: Arrays) -> list[Any]:
    """The top class, or the detections as (class, box) with boxes rounded to pixels; nothing for pictures."""
    if model.startswith("squeezenet") or model == "minifasnet":
        return [int(numpy.argmax(next(iter(outputs.values()))))]
    if model == "yolox_nano":
        return decode_yolox(outputs["output"][0].astype(numpy.float64))
    if model == "ultraface":
        scores, boxes = (outputs[name][0].astype(numpy.float64) for name in ("scores", "boxes"))
        return [(1, boxes[i] * [320, 240, 320, 240]) for i in suppress(boxes, scores[:, 1], 0.7, 0.3)]
    return []


def decode_yolox(rows: Any) -> list[tuple[int, Any]]:
    """Boxes of every class with a score over 0.6: each row is centre, log size, objectness and class scores."""
    grids = [
        numpy.stack([x.ravel(), y.ravel(), numpy.full(x.size, stride)], 1)
        for stride in (8, 16, 32)
        for y, x in [numpy.mgrid[: 416 // stride, : 416 // stride]]
    ]
    grid = numpy.concatenate(grids)
    centre = (rows[:, :2] + grid[:, :2]) * grid[:, 2:]
    half_size = numpy.exp(rows[:, 2:4]) * grid[:, 2:] / 2
    boxes = numpy.concatenate([centre - half_size, centre + half_size], 1)
    scores = rows[:, 4:5] * rows[:, 5:]
    return [(kind, boxes[i]) for kind in range(80) for i in suppress(boxes, scores[:, kind], 0.6, 0.45)]


def suppress(boxes: Any, scores: Any, least: float, overlap: float) -> list[int]:
    """The positions of the best boxes, best first, without those that overlap a better one."""
    kept: list[int] = []
    for i in numpy.argsort(-scores, kind="stable"):
        if scores[i] <= least:
            break
        if all(intersection_over_union(boxes[i], boxes[j]) <= overlap for j in kept):
            kept.append(int(i))
    return kept


def intersection_over_union(a: Any, b: Any) -> float:
    size = numpy.maximum(numpy.minimum(a[2:], b[2:]) - numpy.maximum(a[:2], b[:2]), 0)
    common = size.prod()
    return float(common / ((a[2:] - a[:2]).prod() + (b[2:] - b[:2]).prod() - common))


def assert_same_detections(model: str, found: Arrays, expected: Arrays) -> None:
    """The same classes, and for each detection one of the same class whose box overlaps it by four fifths."""
    have, want = decode(model, found), decode(model, expected)
    assert len(have) == len(want)
    if not want or isinstance(want[0], int):
        assert have == want
        return
    for kind, box in want:
        best = max((intersection_over_union(box, b) for k, b in have if k == kind), default=0.0)
        assert best > 0.8, (kind, box)


@pytest.mark.parametrize(("model", "case"), CASES, ids=[case[5:] for _, case in CASES])
@pytest.mark.parametrize("max_image", [None, 256], ids=["whole", "tiled"])
@pytest.mark.parametrize("float16", [0, 1], ids=["float", "half"])
def test_case(device: DeviceInfo, model: str, case: str, float16: int, max_image: int | None) -> None:
    inputs, expected = read_case(model, case)
    found = loaded(model, device, float16, max_image).run(inputs)
    difference = relative_difference(found, expected)
    print(f"{case} on {device.platform}, float16={float16}, max_image={max_image}: {difference:.2e}")
    assert difference <= (HALF_TOLERANCE if float16 else MODELS[model].tolerance)
    assert_same_detections(model, found, expected)


@pytest.mark.parametrize("model", MODELS)
def test_launches(device: DeviceInfo, model: str) -> None:
    """The number of launches, pinned: fewer is a reason to lower it here, more is a pass that stopped fusing."""
    known = MODELS[model]
    plan = loaded(model, device, 0, None).plan
    launches = len(plan.compute_launches)
    assert launches <= known.most_launches
    assert launches == known.launches, plan
    assert all(launch.reason for launch in plan.launches if launch.kind == "copy")


@pytest.mark.parametrize("model", ["squeezenet", "ultraface"])
@pytest.mark.parametrize("float16", [0, 1])
def test_second_run_is_bit_identical(device: DeviceInfo, model: str, float16: int) -> None:
    cases = [read_case(model, case)[0] for name, case in CASES if name == model]
    engine = loaded(model, device, float16, None)
    first = engine.run(cases[0])
    engine.run({name: array * 0.5 for name, array in cases[-1].items()})
    second = engine.run(cases[0])
    assert all((first[name] == second[name]).all() for name in first)


def test_two_settings_in_one_process(device: DeviceInfo) -> None:
    """A float and a half model, run in turns: each gives what it gives alone."""
    inputs, expected = read_case("minifasnet", "case_fas_MiniFASNetV2_F1")
    path = FOLDER / MODELS["minifasnet"].file
    exact, rounded = (imgconv.load(path, device, float16=float16) for float16 in (0, 1))
    assert relative_difference(exact.run(inputs), expected) <= 1e-3
    assert relative_difference(rounded.run(inputs), expected) <= HALF_TOLERANCE
    assert (exact.run(inputs)["output"] != rounded.run(inputs)["output"]).any()
    assert relative_difference(exact.run(inputs), expected) <= 1e-3


@pytest.mark.parametrize(("model", "case"), [CASES[0], CASES[6], CASES[9]], ids=["squeezenet", "yolox", "ultraface"])
def test_native_functions(device: DeviceInfo, model: str, case: str) -> None:
    inputs, expected = read_case(model, case)
    found = loaded(model, device, 0, None, True).run(inputs)
    assert relative_difference(found, expected) <= NATIVE_TOLERANCE.get(model, MODELS[model].tolerance)
    assert_same_detections(model, found, expected)
