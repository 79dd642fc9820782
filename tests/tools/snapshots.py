"""Digests of known networks after compilation: plans, kernel texts, counts and bytes. No device is needed.

    python -m tests.tools.snapshots            say what differs from snapshots.json
    python -m tests.tools.snapshots --write    write what is so now; for a commit that says why it changed

Three devices, as numbers: a CPU, a computer's GPU, and a phone's GPU whose images are parts of one buffer. Networks of
models/ are small ones of their kind, so that this takes seconds; `attention` has the kernels that none of them needs.
Those of the folder IMGCONV_MODELS are as they are; without it they are left alone.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy

from imgconv.compiling.lower import lower
from imgconv.compiling.plan import Plan, Storage
from imgconv.config import Config
from imgconv.graph.nodes import Graph
from imgconv.kernels.layout import ImageAlignment, ImageLimits
from imgconv.kernels.target import Target
from imgconv.onnx_import import import_onnx
from imgconv.passes import run_passes
from imgconv.tensor import Tensor, build_graph, concatenate, convolution
from models import MODELS, build

FILE = Path(__file__).parent / "snapshots.json"
FOLDER = os.environ.get("IMGCONV_MODELS")
DEVICES = {
    "cpu": Target(ImageLimits(16384, 16384, 2048), "cpu", 8, linear=ImageAlignment(1, 16, 1 << 30)),
    "large gpu": Target(ImageLimits(32768, 32768, 2048), "gpu", 132, native_functions=True),
    "small gpu": Target(ImageLimits(16384, 16384, 2048), "gpu", 2, images_in_buffers=ImageAlignment(64, 64, 1 << 30)),
}
MODES = ("float", "half", "half arithmetic")
TILED = 32  # the most texels of an image's side, for networks that must be cut into tiles


@dataclass(frozen=True)
class Case:
    """A network, or a file below IMGCONV_MODELS, for a device. full: as published, with all of its channels."""

    network: str
    device: str
    float16: int = 0
    max_image: int | None = None
    full: bool = False

    def __str__(self) -> str:
        text = f"{self.network}, {self.device}, {MODES[self.float16]}"
        return text + (", full size" if self.full else "") + (f", images of {self.max_image}" if self.max_image else "")


def attention() -> Graph:
    """Products of computed matrices and by a known one, convolutions in groups and transposed, a softmax, a batch."""
    random = numpy.random.default_rng(0)

    def constant(*shape: int) -> Tensor:
        return Tensor.constant(random.uniform(-1, 1, shape).astype(numpy.float32))

    x = Tensor.input("x", (2, 24, 12, 10))
    rows = x.conv2d(constant(36, 6, 3, 3), padding=1, groups=4).relu().reshape(2, 3, 12, 120)
    scores = rows.matmul(rows.transpose(0, 1, 3, 2)).softmax(3)
    mixed = scores.matmul(rows).matmul(constant(120, 60)).reshape(2, 36, 12, 5)
    wide = convolution(mixed, constant(36, 10, 3, 2), (1, 2), (1, 0, 1, 0), (1, 1), 1, (12, 10), True)
    return build_graph({"y": concatenate([wide, x], 1).mean([2, 3]), "scores": scores})


NETWORKS = {**MODELS, "attention": attention}
LARGE = ("yolo", "supercombo", "resnet50")  # two fifths of the time of all


def quick() -> list[Case]:
    """The cases of every run of the tests."""
    wanted = [("cpu", 0), ("cpu", 1), ("large gpu", 0), ("small gpu", 1), ("small gpu", 2)]
    cases = [Case(name, device, mode) for name in NETWORKS if name not in LARGE for device, mode in wanted]
    tiled = ("mobilenet_v2", "small gpu"), ("squeezenet", "cpu"), ("conv_gru", "large gpu"), ("attention", "cpu")
    return cases + [Case(name, device, 0, TILED) for name, device in tiled]


def thorough() -> list[Case]:
    """The other modes, and networks at full size."""
    cases = [Case(name, device, mode) for name in NETWORKS for device in DEVICES for mode in range(3)]
    cases += [Case(name, device, 0, None, True) for name in MODELS for device in DEVICES]
    return [case for case in cases if case not in quick()]


def from_files() -> list[Case]:
    """The models of the folder IMGCONV_MODELS; none without it."""
    files = sorted(Path(FOLDER).rglob("*.onnx")) if FOLDER else []
    names = [str(path.relative_to(FOLDER)) for path in files if FOLDER]
    cases = [Case(name, device, mode) for name in names for device in DEVICES for mode in range(3)]
    return cases + [Case(name, "small gpu", 0, 256) for name in names]


@lru_cache(1)
def graph_of(network: str, full: bool) -> Graph:
    """The network after the passes."""
    if network in MODELS:
        return run_passes(build(network) if full else build(network, size=64, width=0.25))
    if network in NETWORKS:
        return run_passes(NETWORKS[network]())
    assert FOLDER
    path = Path(FOLDER) / network
    with numpy.load(next(path.parent.glob(f"case_{path.stem}*.npz"), next(path.parent.glob("case_*.npz")))) as arrays:
        shapes = {name[3:]: array.shape for name, array in arrays.items() if name.startswith("in:")}
    return run_passes(import_onnx(path, shapes))


def plan_of(case: Case) -> Plan:
    target = DEVICES[case.device]
    if case.max_image:
        limits = ImageLimits(case.max_image, case.max_image, 2048)
        target = Target(limits, target.kind, target.compute_units, images_in_buffers=target.images_in_buffers)
    return lower(graph_of(case.network, case.full), Config(case.float16, max_image=case.max_image), target)


def snapshot(case: Case) -> dict[str, Any]:
    """Digests of the plan, of each template's texts, and of what the launches are given; counts and bytes."""
    plan = plan_of(case)
    texts: dict[str, list[str]] = {}
    for launch in plan.launches:
        texts.setdefault(launch.source.path, []).append(launch.source.text)
    given = [
        f"{launch.name} {launch.operation} {launch.moved_bytes} {launch.source.global_size} {launch.source.local_size} "
        + ", ".join(f"{a.name} {_described(a.storage)}" for a in launch.source.arguments)
        for launch in plan.launches
    ]
    places = [f"{_described(texture)} in {slot}" for texture, slot in plan.slots.items()]
    places += [f"{_described(texture)} at {region}" for texture, region in plan.regions.items()]
    places += [f"{_described(storage)} holds {content.shape}" for storage, content in plan.content.items()]
    return {
        "launches": len(plan.launches), "kernels": len({launch.source.text for launch in plan.launches}),
        "textures": len(plan.textures), "weight bytes": plan.weight_bytes, "activation bytes": plan.activation_bytes,
        "state bytes": plan.state_bytes, "workspace bytes": plan.workspace_bytes, "buffer bytes": plan.buffer_bytes,
        "plan": _digest([str(plan)]), "arguments and sizes": _digest(given), "places": _digest(sorted(places)),
        "texts": {path: _digest(found) for path, found in sorted(texts.items())},
    }


def _described(storage: Storage) -> str:
    return f"{storage.name} {storage.shape} {storage.dtype} {storage.bytes} bytes"


def _digest(texts: list[str]) -> str:
    return hashlib.sha256("\n\0".join(texts).encode()).hexdigest()[:24]


def stored() -> dict[str, Any]:
    """The file's snapshots, by the text of their case."""
    content: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return content


def differences(case: Case, known: dict[str, Any] | None, found: dict[str, Any]) -> Iterator[str]:
    """Yields a line for each difference between a case and the file."""
    if known is None:
        yield f"{case}: not in {FILE.name}"
        return
    flat = [{**each, **{f"text of {path}": text for path, text in each["texts"].items()}} for each in (known, found)]
    for name in dict.fromkeys((*flat[0], *flat[1])):
        before, after = (each.get(name) for each in flat)
        if name != "texts" and before != after:
            yield f"{case}: {name}" + (f" {before} -> {after}" if isinstance(after, int) else " changed")


def main(arguments: list[str]) -> int:
    """Says what differs, or writes it; 1 where something does and is not written."""
    if arguments not in ([], ["--write"]):
        print(__doc__, file=sys.stderr)
        return 2
    known = stored() if FILE.exists() else {}
    cases = quick() + thorough() + from_files()
    found = {}
    for case in sorted(cases, key=lambda c: (c.network, c.full)):
        found[str(case)] = snapshot(case)
        for line in differences(case, known.get(str(case)), found[str(case)]):
            print(line)
    if not FOLDER:
        print("IMGCONV_MODELS is not set: the snapshots of its models did not run")
        found |= {name: each for name, each in known.items() if ".onnx," in name}
    changed = found != known
    if arguments and changed:
        FILE.write_text(json.dumps(dict(sorted(found.items())), indent=1) + "\n", encoding="utf-8")
    print(f"{len(cases)} cases, " + ("as stored" if not changed else "written" if arguments else "changed"))
    return int(changed and not arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
