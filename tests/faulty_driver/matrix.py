"""Faults, and what has to become of a model under each of them; tests of Python and of the player run these.

A model's outputs are right, or an error says which status OpenCL gave, and what can be done.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import onnx
from onnx.helper import make_node
from published import REAL
from support import make_model, run_oracle

from faulty_driver.outcomes import Case, Outcome

RIGHT = ""
# Faults that are there from the start: words of the error, or RIGHT.
FROM_THE_START = {
    "fail=clCreateContext:-2": "DEVICE_NOT_AVAILABLE",
    "fail=clCreateContext:-5": "OUT_OF_RESOURCES",
    "fail=clCreateContext:-6": "OUT_OF_HOST_MEMORY",
    "perf_hint;refuse_hint": RIGHT,
    "fail=clCreateCommandQueue:-6;fail=clCreateCommandQueueWithProperties:-6": "OUT_OF_HOST_MEMORY",
    "fail=clCreateBuffer:-4": "MEM_OBJECT_ALLOCATION_FAILURE",
    "fail=clCreateBuffer:-61@2-": "INVALID_BUFFER_SIZE",
    "fail=clCreateImage:-4@2-": "MEM_OBJECT_ALLOCATION_FAILURE",
    "fail=clCreateImage:-10@2-": "IMAGE_FORMAT_NOT_SUPPORTED",
    "fail=clCreateSubBuffer:-13": RIGHT,
    "fail=image_in_buffer:-40": RIGHT,
    "fail=image_in_buffer:-65@2-": RIGHT,
    "late=1": "MEM_OBJECT_ALLOCATION_FAILURE",
    "late=4": "MEM_OBJECT_ALLOCATION_FAILURE",
    "late=7": "MEM_OBJECT_ALLOCATION_FAILURE",
    "fail=clEnqueueWriteImage:-5": "OUT_OF_RESOURCES",
    "fail=clEnqueueFillBuffer:-5": "OUT_OF_RESOURCES",
    "fail=clCreateKernel:-5@2-": "OUT_OF_RESOURCES",
    "fail=clSetKernelArg:-50": "INVALID_ARG_VALUE",
    "work_group_size=64": RIGHT,
    "native=coarse": RIGHT,
}
# Faults that begin when a model is loaded.
IN_RUNS = {
    "fail=clEnqueueNDRangeKernel:-5": "OUT_OF_RESOURCES",
    "fail=clEnqueueNDRangeKernel:-54@2-": "INVALID_WORK_GROUP_SIZE",
    "fail=clEnqueueNDRangeKernel:-4@3-": "MEM_OBJECT_ALLOCATION_FAILURE",
    "fail=clEnqueueWriteBuffer:-5": "OUT_OF_RESOURCES",
    "fail=clEnqueueReadBuffer:-5": "OUT_OF_RESOURCES",
    "fail=clFinish:-5": "OUT_OF_RESOURCES",
    "fail=clFinish:-36": "INVALID_COMMAND_QUEUE",
    "fail=clWaitForEvents:-14": "EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST",
    "fail=execution:-36@3": "(-36)",
}
# The same of recordable queues, which the player uses.
RECORDABLE_FROM_THE_START = {
    "recordable": RIGHT,
    "recordable;replay=1": RIGHT,
    "recordable;replay=4": RIGHT,
    "recordable;fail=clNewRecordingQCOM:-5": RIGHT,
    "recordable;fail=clEndRecordingQCOM:-59": RIGHT,
    "recordable;fail=clEnqueueRecordingQCOM:-5": RIGHT,
}
RECORDABLE_IN_RUNS = {
    "recordable;fail=clEnqueueRecordingQCOM:-5": "OUT_OF_RESOURCES",
    "recordable;fail=clEnqueueRecordingQCOM:-59@2-": "INVALID_OPERATION",
}
# Faults of compilers, without a program cache.
OF_BUILDS = {
    "build_fail=1": RIGHT,
    "build_fail=0": "-11",
    "build_fail=0:WINDOW:-6": "-6",
    "fail=clBuildProgram:-6@1": RIGHT,
    "fail=clCreateProgramWithSource:-6": "-6",
}
NAMES = ("convolutions", "sequences")  # of small_models
# Of real models: a case each.
REAL_CASES = {
    "espcn/espcn.onnx": "case_espcn_zoo", "minifasnet/minifasnet_v2.onnx": "case_fas_MiniFASNetV2_T1",
    "squeezenet/squeezenet.onnx": "case_squeezenet_fp32_fish", "yolox_nano/yolox_nano.onnx": "case_yolox_nano_139",
    "ultraface/ultraface_rfb320.onnx": "case_ultraface_rfb320_1",
}
# Each changed kernel takes a cold load, which is minutes with the larger ones: tests/tools/changed_kernels.py has them.
CHANGED = tuple(REAL_CASES)[:3]


def real_model(path: str) -> Case:
    """A real model with its case. Sums in another order than onnxruntime's are up to 1e-3 off."""
    return Case(str(REAL / path), str((REAL / path).with_name(f"{REAL_CASES[path]}.npz")), tolerance=1e-3)


def small_models(folder: Path) -> dict[str, Case]:
    """Convolutions, and layers of sequences whose work groups are large, by name; their outputs are onnxruntime's."""
    random = numpy.random.default_rng(0)

    def drawn(*shape: int, scale: float = 1.0) -> Any:
        return (scale * random.normal(size=shape)).astype(numpy.float32)

    convolutions = make_model(
        [
            make_node("Conv", ["x", "w1", "b1"], ["a"], pads=[1] * 4, name="first"), make_node("Relu", ["a"], ["b"]),
            make_node("Conv", ["b", "w2"], ["c"], group=16, pads=[1] * 4, name="depthwise"),
            make_node("Conv", ["c", "w3"], ["d"], name="pointwise"), make_node("Add", ["d", "b"], ["e"]),
            make_node("Sigmoid", ["e"], ["map"]), make_node("GlobalAveragePool", ["map"], ["f"]),
            make_node("Flatten", ["f"], ["g"]), make_node("MatMul", ["g", "w4"], ["h"], name="product"),
            make_node("Softmax", ["h"], ["y"]),
        ],
        {"x": drawn(1, 3, 20, 24)}, ["y", "map"], 17,
        {
            "w1": drawn(16, 3, 3, 3, scale=0.2), "b1": drawn(16), "w2": drawn(16, 1, 3, 3, scale=0.3),
            "w3": drawn(16, 16, 1, 1, scale=0.2), "w4": drawn(16, 10, scale=0.3),
        },
    )
    sequences = make_model(
        [
            make_node("LSTM", ["x", "w", "r"], ["s"], hidden_size=32, name="lstm"),
            make_node("Squeeze", ["s", "one"], ["t"]), make_node("LayerNormalization", ["t", "g", "b"], ["u"]),
            make_node("TopK", ["u", "five"], ["y", "i"], name="topk"), make_node("ReduceSum", ["u"], ["sum"]),
        ],
        {"x": drawn(12, 2, 16)}, ["y", "u", "sum"], 17,
        {
            "w": drawn(1, 128, 16, scale=0.2), "r": drawn(1, 128, 32, scale=0.2), "g": drawn(32), "b": drawn(32),
            "one": numpy.array([1]), "five": numpy.array([5]),
        },
    )
    models = {"convolutions": (convolutions, drawn(1, 3, 20, 24)), "sequences": (sequences, drawn(12, 2, 16))}
    return {name: _saved(folder / name, model, {"x": x}) for name, (model, x) in models.items()}


def _saved(path: Path, model: onnx.ModelProto, inputs: Mapping[str, Any]) -> Case:
    onnx.save(model, f"{path}.onnx")
    expected = run_oracle(model, inputs)
    named = {f"in:{name}": array for name, array in inputs.items()} | {f"out:{n}": a for n, a in expected.items()}
    numpy.savez(f"{path}.npz", **named)
    return Case(f"{path}.onnx", f"{path}.npz")


def under(case: Case, faults: Mapping[str, str], from_the_start: bool) -> list[Case]:
    """The case under each of the faults, on an Adreno."""
    return [replace(case, at_load=_adreno(each, from_the_start), in_runs=f"adreno;{each}") for each in faults]


def _adreno(faults: str, all_of_them: bool) -> str:
    if all_of_them:
        return f"adreno;{faults}"
    return "adreno;recordable" if "recordable" in faults else "adreno"


def problems(faults: Mapping[str, str], found: Sequence[Outcome], remedies: Sequence[str]) -> Iterator[str]:
    """Returns what is wrong with the outcomes of models under faults. remedies: each error's message has one."""
    if len(found) < len(faults):
        yield f"the process ended under {list(faults)[len(found)]}"
    for (fault, words), made in zip(faults.items(), found):
        # A run that ends soon on a GPU does not call clFinish.
        if made.result == "right" and (words == RIGHT or "clFinish" in fault):
            continue
        is_error = made.meant and made.result not in ("right", "wrong")
        if words == RIGHT or not is_error or words not in made.message or not any(r in made.message for r in remedies):
            yield f"{fault}: {made}"
