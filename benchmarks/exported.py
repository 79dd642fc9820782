"""Networks of torchvision and timm, exported as ONNX files, beside PyTorch's own CUDA graph of the same module.

    python -m benchmarks.exported [NAME ...] [--folder FOLDER] [--jobs N] [--device DEVICE] [--repeat N] [--json FILE]

A name is one of torchvision, or one of timm after "timm/". Weights are random, with a fixed seed. Each module is
exported and loaded in a process of its own first, so that every program is in the driver's cache. Then each result is
compared with PyTorch's, in float without TF32, and the two take turns, from numpy arrays to numpy arrays.

    device      the sum of imgconv's launches by the driver's events
    ratio       the graph's median divided by imgconv's: above 1, imgconv is faster
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy

import imgconv
from benchmarks.measure import (
    FLOAT_TOLERANCE, TOLERANCE_REASON, Column, add_repeat_arguments, digits, environment, environment_line, make_table,
    milliseconds, publish, relative_error, run_main, steps, version_of,
)
from imgconv.arrays import Arrays
from imgconv.cl.device import DeviceInfo, open_device, select_device
from imgconv.commands.shared_arguments import add_device_argument, positive
from imgconv.runtime.session import Session
from imgconv.reports.timing import Timing, run_after_warm_up, seconds_of_call, time_repeatedly

NETWORKS = (
    "alexnet", "convnext_tiny", "densenet121", "efficientnet_b0", "efficientnet_v2_s", "googlenet", "inception_v3",
    "maxvit_t", "mnasnet1_0", "mobilenet_v2", "mobilenet_v3_large", "mobilenet_v3_small", "regnet_x_400mf",
    "regnet_y_400mf", "resnet18", "resnet50", "resnext50_32x4d", "shufflenet_v2_x1_0", "squeezenet1_0", "swin_t",
    "vgg11_bn", "vit_b_16", "deeplabv3_mobilenet_v3_large", "fcn_resnet50", "lraspp_mobilenet_v3_large",
    "timm/convmixer_768_32", "timm/cspresnet50", "timm/dla34", "timm/edgenext_small", "timm/efficientformer_l1",
    "timm/fastvit_t8", "timm/fbnetc_100", "timm/ghostnet_100", "timm/hrnet_w18_small", "timm/lcnet_050",
    "timm/mobilenetv4_conv_small", "timm/mobileone_s0", "timm/mobilevit_s", "timm/poolformer_s12", "timm/repvgg_a0",
    "timm/rexnet_100", "timm/tf_mixnet_s", "timm/vit_tiny_patch16_224", "timm/xception41",
)
SIZES = {"inception_v3": 299, "fcn_resnet50": 512}  # the sizes that these were made for; 224 otherwise


@dataclass(frozen=True)
class Row:
    """One network. problem: why there is no timing."""

    network: str
    size: int
    problem: str = ""
    error: float | None = None
    launches: int = 0
    device: Timing | None = None
    wall: Timing | None = None
    graph: Timing | None = None

    @property
    def ratio(self) -> float | None:
        return self.graph.median / self.wall.median if self.graph and self.wall else None


COLUMNS = (
    Column("network", lambda r: r.network), Column("size", lambda r: str(r.size)),
    Column("error", lambda r: "-" if r.error is None else f"{r.error:.1e}"),
    Column("launches", lambda r: str(r.launches)),
    Column("device ms", lambda r: milliseconds(r.device and r.device.median)),
    Column("wall ms min", lambda r: milliseconds(r.wall and r.wall.minimum)),
    Column("median", lambda r: milliseconds(r.wall and r.wall.median)),
    Column("CUDA graph min", lambda r: milliseconds(r.graph and r.graph.minimum)),
    Column("median", lambda r: milliseconds(r.graph and r.graph.median)),
    Column("ratio", lambda r: digits(r.ratio)), Column("", lambda r: r.problem[:100], True),
)


def main(options: argparse.Namespace) -> int:
    """Exports all networks, then measures each; 1 if a result is wrong."""
    if options.prepare:
        return prepare(options.network[0], Path(options.folder), options.device)
    device = select_device(options.device)
    names = options.network or NETWORKS
    with tempfile.TemporaryDirectory(prefix="imgconv-bench-") as temporary, ThreadPoolExecutor(options.jobs) as jobs:
        folder = Path(options.folder or temporary)
        problems = jobs.map(lambda name: prepared(name, folder, device), names)
        ready = dict(zip(names, problems, strict=True))
        with steps(names) as walk:
            rows = [
                Row(name, size_of(name), ready[name]) if ready[name] else tried(name, folder, device, options.repeat)
                for name in walk
            ]
    found = environment(device) | {name: version_of(name) for name in ("torch", "torchvision", "timm")}
    table = [asdict(row) | {"ratio": row.ratio} for row in rows]
    content = {"environment": found, "tolerance": TOLERANCE_REASON, "rows": table}
    publish(options, content, environment_line(found), make_table("Beside a CUDA graph", COLUMNS, rows))
    return 1 if any(row.problem for row in rows) else 0


def prepared(name: str, folder: Path, device: DeviceInfo) -> str:
    """Exports and loads one network in a new process; what went wrong, or an empty text."""
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.exported", name]
    command += ["--prepare", "--folder", str(folder), "--device", str(device.index)]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stderr.strip().splitlines()[-1] if done.returncode and done.stderr.strip() else ""


def prepare(name: str, folder: Path, device: str) -> int:
    """Writes the ONNX file, and fills the driver's cache of programs."""
    import torch

    path = file_of(name, folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    x = torch.from_numpy(picture(size_of(name)))
    torch.onnx.export(module(name), (x,), str(path), opset_version=17, dynamo=False, input_names=["x"])
    imgconv.load(path, device)
    return 0


def tried(name: str, folder: Path, device: DeviceInfo, repeat: int) -> Row:
    """measure; what the network raises is its problem, because PyTorch cannot record every module."""
    try:
        return measure(name, folder, device, repeat)
    except Exception as error:  # a whole table is not lost for one network
        return Row(name, size_of(name), f"{type(error).__name__}: {error}".replace("\n", " "))


def measure(name: str, folder: Path, device: DeviceInfo, repeat: int) -> Row:
    """Checks one network, then times both in turn."""
    size = size_of(name)
    inputs = {"x": picture(size)}
    model = imgconv.load(file_of(name, folder), device)
    graph = cuda_graph(name, inputs, tuple(model.outputs))
    launches = len(model.plan.compute_launches)
    error = relative_error(model.run(inputs), graph(inputs))
    if error > FLOAT_TOLERANCE:
        return Row(name, size, "wrong", error, launches)
    pairs = run_after_warm_up(
        lambda: (seconds_of_call(lambda: model.run(inputs)), seconds_of_call(lambda: graph(inputs))), repeat
    )
    ours, theirs = zip(*pairs, strict=True)
    profiled = Session(model.plan, open_device(device, profile=True))
    profiled.run(inputs)
    busy = time_repeatedly(lambda: sum(profiled.launch_seconds()), repeat)
    return Row(name, size, "", error, launches, busy, Timing.from_seconds(ours), Timing.from_seconds(theirs))


def cuda_graph(name: str, inputs: Arrays, outputs: tuple[str, ...]) -> Callable[[Arrays], dict[str, Any]]:
    """The module as a recorded CUDA graph, in float without TF32: called with arrays, it gives arrays."""
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    network, held = module(name).cuda(), torch.from_numpy(inputs["x"]).cuda()
    side = torch.cuda.Stream()
    with torch.no_grad(), torch.cuda.stream(side):
        for _ in range(3):
            network(held)
    side.synchronize()
    recorded = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(recorded):
        made = network(held)
    tensors = list(made.values()) if isinstance(made, dict) else [made]

    def run(arrays: Arrays) -> dict[str, Any]:
        held.copy_(torch.from_numpy(arrays["x"]))
        recorded.replay()
        return {output: tensor.cpu().numpy() for output, tensor in zip(outputs, tensors, strict=True)}

    return run


def module(name: str) -> Any:
    """The network with random weights, for inference. Raises ImportError if its package is not installed."""
    import torch

    torch.manual_seed(0)
    if name.startswith("timm/"):
        import timm

        return timm.create_model(name.removeprefix("timm/"), pretrained=False).eval()
    import torchvision

    options = {"init_weights": True} if name in ("googlenet", "inception_v3") else {}
    backbone = {"weights_backbone": None} if hasattr(torchvision.models.segmentation, name) else {}
    return torchvision.models.get_model(name, weights=None, **options, **backbone).eval()


def size_of(name: str) -> int:
    """Rows and columns of the network's picture."""
    return SIZES.get(name, 224)


def picture(size: int) -> numpy.ndarray:
    """A normalised picture of noise, the same each time."""
    return numpy.random.default_rng(1).standard_normal((1, 3, size, size), numpy.float32)


def file_of(name: str, folder: Path) -> Path:
    """The network's ONNX file."""
    return folder / f"{name.replace('/', '_')}.onnx"


def make_parser() -> argparse.ArgumentParser:
    described = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.exported", description=__doc__, formatter_class=described
    )
    parser.add_argument("network", nargs="*", help="a name of torchvision, or timm/NAME (default: 44 of both)")
    parser.add_argument("--folder", help="keep the exported files here")
    parser.add_argument("--jobs", type=positive, default=4, help="networks exported at a time (default: %(default)s)")
    add_device_argument(parser)
    parser.add_argument("--prepare", action="store_true", help=argparse.SUPPRESS)
    add_repeat_arguments(parser)
    return parser


if __name__ == "__main__":
    sys.exit(run_main(make_parser(), main))
