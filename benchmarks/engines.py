"""imgconv and other engines behind one interface, each in its own process that answers on a pipe.

A process loads one ONNX file, or what it was converted into, with one engine. It then reads lines: "check FILE" runs
once and saves the outputs by name, "run" runs once and answers with the seconds from numpy arrays to numpy arrays.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy

from benchmarks.measure import dump, onnxruntime_session

Arrays = Mapping[str, Any]
Run = Callable[[Arrays], dict[str, Any]]


@dataclass(frozen=True)
class Request:
    """A process's request to load a model. outputs: names in order; platform, device: OpenCL's.

    settings: of imgconv.load. folder: for converted models.
    """

    path: str
    shapes: Mapping[str, tuple[int, ...]]
    outputs: tuple[str, ...]
    platform: str
    device: str
    settings: Mapping[str, Any]
    folder: str

    def file(self, ending: str) -> Path:
        """A converted model, or a file beside it."""
        return Path(self.folder, Path(self.path).stem + ending)


# The engines: each function loads a file and returns a function that runs it


def load_imgconv(request: Request) -> Run:
    import imgconv

    # As users choose it: after list_devices(), `load` would open the device a second time.
    device = f"{request.platform} | {request.device} | "
    return imgconv.load(request.path, device, shapes=request.shapes, **request.settings).run


def load_onnxruntime(request: Request) -> Run:
    session = onnxruntime_session(request.path)
    return lambda inputs: dict(zip(request.outputs, session.run(list(request.outputs), dict(inputs)), strict=True))


def load_tinygrad(request: Request, image: bool) -> Run:
    # Its settings are read when it is imported. Up to 0.10 OpenCL was called GPU, and images were IMAGE=2.
    from importlib.util import find_spec

    found = find_spec("tinygrad")
    if found is None or found.origin is None:
        raise ImportError("tinygrad is not installed")
    new = Path(found.origin).with_name("runtime").joinpath("ops_cl.py").exists()
    os.environ.update({"DEV": "CL", "IMAGE": str(int(image))} if new else {"GPU": "1", "IMAGE": str(2 * image)})
    from tinygrad import Device, Tensor, TinyJit
    from tinygrad.nn.onnx import OnnxRunner

    used = getattr(Device[Device.DEFAULT], "device_name", "").rstrip("\0") or request.device
    if " ".join(used.split()) != request.device:
        raise RuntimeError(f"it takes another device, {used}")
    runner = OnnxRunner(request.path)

    def compute(**tensors: Any) -> Any:
        made = runner(tensors)
        return tuple(made[name].realize() for name in request.outputs)

    replay = TinyJit(compute)

    def run(inputs: Arrays) -> dict[str, Any]:
        made = replay(**{name: Tensor(array).realize() for name, array in inputs.items()})
        return {name: tensor.numpy() for name, tensor in zip(request.outputs, made, strict=True)}

    return run


def convert_ncnn(request: Request) -> None:
    shapes = ",".join(f"[{','.join(map(str, shape))}]f32" for shape in request.shapes.values())
    # fp16=0: pnnx would store the weights as fp16.
    _convert(["pnnx", request.path, f"inputshape={shapes}", "fp16=0", f"ncnnparam={request.file('.param')}",
              f"ncnnbin={request.file('.bin')}"], request.folder)


def load_ncnn(request: Request, vulkan: bool = False, half: bool = False) -> Run:
    import ncnn

    if vulkan and not ncnn.get_gpu_count():
        raise ImportError("ncnn sees no Vulkan device")
    net = ncnn.Net()
    net.opt.use_vulkan_compute = vulkan
    net.opt.use_fp16_packed = net.opt.use_fp16_storage = net.opt.use_fp16_arithmetic = half
    net.opt.use_bf16_storage = False
    if net.load_param(str(request.file(".param"))) or net.load_model(str(request.file(".bin"))):
        raise RuntimeError("the converted model does not load")

    def run(inputs: Arrays) -> dict[str, Any]:
        extractor = net.create_extractor()
        for number, name in enumerate(request.shapes):
            extractor.input(f"in{number}", ncnn.Mat(numpy.ascontiguousarray(inputs[name][0])))
        return {name: numpy.array(extractor.extract(f"out{n}")[1])[None] for n, name in enumerate(request.outputs)}

    return run


def convert_litert(request: Request) -> None:
    _convert(["onnx2tf", "-i", request.path, "-o", request.folder, "-n"], request.folder)


def load_litert(request: Request, half: bool = False) -> Run:
    """ML Drift over WebGPU. Its arrays have channels last: an input is transposed before the first run, untimed."""
    from ai_edge_litert.compiled_model import CompiledModel
    from ai_edge_litert.hardware_accelerator import HardwareAccelerator
    from ai_edge_litert.options import GpuOptions, Options

    gpu = GpuOptions(enforce_f32=not half)
    options = Options(hardware_accelerators=HardwareAccelerator.GPU, gpu_options=gpu)
    model = CompiledModel.from_file(str(request.file("_float32.tflite")), options=options)
    if not model.is_fully_accelerated():
        raise RuntimeError("the GPU does not run the whole model")
    details = list(model.get_output_tensor_details(model.get_signature_by_index(0)["key"]).values())
    given, made = model.create_input_buffers(0), model.create_output_buffers(0)
    held: dict[int, Any] = {}

    def channels_last(array: Any) -> Any:
        if id(array) not in held:
            held[id(array)] = numpy.ascontiguousarray(numpy.moveaxis(array, 1, -1) if array.ndim > 2 else array)
        return held[id(array)]

    def result(buffer: Any, shape: Sequence[int]) -> Any:
        array = buffer.read(math.prod(shape), numpy.float32).reshape(shape)
        return numpy.moveaxis(array, -1, 1) if array.ndim > 2 else array

    def run(inputs: Arrays) -> dict[str, Any]:
        for buffer, name in zip(given, request.shapes, strict=True):
            buffer.write(channels_last(inputs[name]))
        model.run_by_index(0, given, made)
        arrays = [result(buffer, detail["shape"]) for buffer, detail in zip(made, details, strict=True)]
        return dict(zip(request.outputs, arrays, strict=True))

    return run


# MNN's MNN_GPU_TUNING_WIDE, MNN_GPU_MEMORY_BUFFER and MNN_GPU_MEMORY_IMAGE (include/MNN/MNNForwardType.h).
MNN_TUNED, MNN_BUFFERS, MNN_IMAGES = 1 << 2, 1 << 6, 1 << 7


def convert_mnn(request: Request) -> None:
    _convert(["mnnconvert", "-f", "ONNX", "--modelFile", request.path, "--MNNModel", str(request.file(".mnn"))],
             request.folder)


def load_mnn(request: Request, memory: int = 0) -> Run:
    """memory: MNN_BUFFERS or MNN_IMAGES for OpenCL, 0 for the CPU. The package on PyPI has no OpenCL."""
    import MNN

    backend, mode = ("OPENCL", memory | MNN_TUNED) if memory else ("CPU", os.cpu_count())
    settings = {"backend": backend, "precision": "high", "numThread": mode}
    with _printed(request.file(f".{memory}.log")) as printed:
        runtime = MNN.nn.create_runtime_manager((settings,))
    # It says so and takes the CPU.
    if "Can't Find" in printed.read_text(errors="replace"):
        raise ImportError(f"MNN {backend} is not in this build")
    net = MNN.nn.load_module_from_file(
        str(request.file(".mnn")), list(request.shapes), list(request.outputs), runtime_manager=runtime
    )

    def run(inputs: Arrays) -> dict[str, Any]:
        given = [
            MNN.expr.const(inputs[name], list(shape), MNN.expr.NCHW, MNN.expr.float)
            for name, shape in request.shapes.items()
        ]
        made = [MNN.expr.convert(output, MNN.expr.NCHW) for output in net.forward(given)]
        return {name: numpy.array(output.read()) for name, output in zip(request.outputs, made, strict=True)}

    return run


def load_openvino(request: Request) -> Run:
    import openvino

    core = openvino.Core()
    model = core.read_model(request.path)
    model.reshape({name: list(shape) for name, shape in request.shapes.items()})
    compiled = core.compile_model(model, "CPU", {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32"})
    ports = [compiled.output(name) for name in request.outputs]

    def run(inputs: Arrays) -> dict[str, Any]:
        made = compiled(dict(inputs))
        return {name: numpy.array(made[port]) for name, port in zip(request.outputs, ports, strict=True)}

    return run


def load_torch(request: Request, device: str = "cuda", graph: bool = False) -> Run:
    import torch

    from benchmarks.torch_onnx import TorchModel

    if device == "cuda" and not torch.cuda.is_available():
        raise ImportError("torch sees no CUDA device")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.set_grad_enabled(False)
    model = TorchModel(request.path, device)
    held = [torch.zeros(request.shapes[name], device=device) for name in model.inputs]
    replay: Callable[[], list[Any]] = lambda: model(*held)  # noqa: E731
    if graph:
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            for _ in range(3):
                model(*held)
        side.synchronize()
        recorded = torch.cuda.CUDAGraph()
        with torch.cuda.graph(recorded):
            made = model(*held)
        replay = lambda: recorded.replay() or made  # noqa: E731

    def run(inputs: Arrays) -> dict[str, Any]:
        for tensor, name in zip(held, model.inputs, strict=True):
            tensor.copy_(torch.from_numpy(inputs[name]))
        return {name: tensor.cpu().numpy() for name, tensor in zip(model.outputs, replay(), strict=True)}

    return run


@contextmanager
def _printed(file: Path) -> Iterator[Path]:
    """Redirects to a file what libraries of other languages print meanwhile."""
    streams = {number: os.dup(number) for number in (1, 2)}
    with open(file, "wb") as caught:
        for number in streams:
            os.dup2(caught.fileno(), number)
        try:
            yield file
        finally:
            for number, own in streams.items():
                os.dup2(own, number)
                os.close(own)


def _convert(command: list[str], folder: str) -> None:
    """Runs a converter that was installed beside this Python. Raises ImportError if there is none."""
    program = Path(sys.executable).parent / command[0]
    if not program.exists():
        raise ImportError(f"{command[0]} is not installed")
    # MNN's converter makes pip install a package that reports its use; a benchmark installs nothing unasked.
    offline = {**os.environ, "PIP_NO_INDEX": "1"}
    done = subprocess.run([str(program), *command[1:]], cwd=folder, capture_output=True, text=True, env=offline)
    if done.returncode:
        raise RuntimeError(f"{command[0]}: {(done.stdout + done.stderr).strip()[-300:]}")


@dataclass(frozen=True)
class Engine:
    """load: called once, in a process that has imported no engine. package: whose version is shown.

    convert: makes the file with the ending `converted`, which `load` reads. half: chooses fp16 by itself.
    """

    load: Callable[[Request], Run]
    package: str
    note: str = ""
    convert: Callable[[Request], None] | None = None
    converted: str = ""
    half: bool = False


def _ncnn(note: str, vulkan: bool = False, half: bool = False) -> Engine:
    return Engine(lambda request: load_ncnn(request, vulkan, half), "ncnn", note, convert_ncnn, ".param", half)


def _mnn(note: str, memory: int = 0) -> Engine:
    return Engine(lambda request: load_mnn(request, memory), "MNN", note, convert_mnn, ".mnn")


def _litert(note: str, half: bool = False) -> Engine:
    return Engine(
        lambda request: load_litert(request, half), "ai-edge-litert", note, convert_litert, "_float32.tflite", half,
    )


ENGINES: Mapping[str, Engine] = {
    "imgconv": Engine(load_imgconv, "imgconv"),
    "onnxruntime": Engine(load_onnxruntime, "onnxruntime", "CPU"),
    "tinygrad buffers": Engine(lambda request: load_tinygrad(request, False), "tinygrad", "OpenCL, the same device"),
    "tinygrad images": Engine(lambda request: load_tinygrad(request, True), "tinygrad", "OpenCL, the same device"),
    "LiteRT": _litert("WebGPU over Vulkan, its own choice of device"),
    "LiteRT half": _litert("WebGPU over Vulkan, its own choice of device and of precision", half=True),
    "ncnn": _ncnn("CPU"),
    "ncnn Vulkan": _ncnn("Vulkan, its own choice of device", vulkan=True),
    "ncnn Vulkan half": _ncnn("Vulkan, its own choice of device", vulkan=True, half=True),
    "MNN": _mnn("CPU"),
    "MNN buffers": _mnn("OpenCL, its own choice of device", MNN_BUFFERS),
    "MNN images": _mnn("OpenCL, its own choice of device", MNN_IMAGES),
    "OpenVINO": Engine(load_openvino, "openvino", "CPU"),
    "torch CPU": Engine(lambda request: load_torch(request, "cpu"), "torch", "CPU, eager"),
    "torch CUDA": Engine(load_torch, "torch", "CUDA, eager, no TF32"),
    "torch CUDA graph": Engine(lambda request: load_torch(request, graph=True), "torch", "CUDA graph, no TF32"),
}


def convert(name: str, request: Request) -> str:
    """Makes the file that an engine reads unless it is there. Returns why it cannot be made, or an empty string."""
    engine = ENGINES[name]
    if engine.convert is not None and not request.file(engine.converted).exists():
        try:
            engine.convert(request)
        except (ImportError, RuntimeError) as error:
            return _reason(error)
    return ""


# The other side of the pipe


class Peer:
    """A process with one engine and one model. problem: why it cannot run, or empty."""

    def __init__(self, name: str, request: Request, inputs: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        start = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.engines", name, json.dumps(request.__dict__), str(inputs)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env={**os.environ, **environment},
        )
        self.problem = self._answer().get("problem", "")
        self.load_seconds = time.perf_counter() - start

    def check(self, folder: Path) -> dict[str, Any]:
        """The outputs of one run; if it fails, they are empty and `problem` is set."""
        file = folder / f"{self.name}.npz"
        self.problem = self._ask(f"check {file}").get("problem", "")
        if self.problem:
            return {}
        with numpy.load(file) as stored:
            return dict(stored)

    def run(self) -> float:
        """Seconds of one run. Raises RuntimeError if the process has ended."""
        answer = self._ask("run")
        if "seconds" not in answer:
            raise RuntimeError(f"{self.name}: {answer.get('problem')}")
        return float(answer["seconds"])

    def close(self) -> None:
        """Ends the process."""
        self.process.kill()
        self.process.wait()

    def _ask(self, line: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"problem": f"its process ended with status {self.process.wait()}"}


def main() -> None:
    """The process: loads, says that it is ready, and answers lines until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # prints of libraries must not mix with the answers

    def answer(**content: Any) -> None:
        answers.write(dump(content) + "\n")
        answers.flush()

    name, request = sys.argv[1], Request(**json.loads(sys.argv[2]))
    with numpy.load(sys.argv[3]) as stored:
        inputs = dict(stored)
    try:
        run = ENGINES[name].load(request)
    except Exception as error:
        answer(problem=_reason(error))
        return
    answer()
    for line in sys.stdin:
        word, _, file = line.strip().partition(" ")
        try:
            start = time.perf_counter()
            made = run(inputs)
            seconds = time.perf_counter() - start
            if word == "check":
                numpy.savez(file, **made)
            answer(seconds=seconds)
        except Exception as error:
            answer(problem=_reason(error))


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())[:200]
    return text if isinstance(error, ImportError) else f"{type(error).__name__}: {text}"


if __name__ == "__main__":
    main()
