"""Compiled models in files: `Model.save` writes them, `load` reads them.

The sections of the file (see files/archive.py): "about"; "plan" and "graph", each with its arrays; "binary 0" and so
on, the driver's programs. The plan fits one device; for another device a plan is made from the graph. Kernel texts and
binaries run on the device as they are: load a file only if you trust its source. Checksums find damage, not intent.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache
from hashlib import blake2b
from typing import Any

from imgconv.compiling.plan import Plan
from imgconv.config import Config
from imgconv.errors import ModelError
from imgconv.files.archive import Archive, write_archive
from imgconv.graph.nodes import Graph
from imgconv.kernels.source import COMMON
from imgconv.kernels.target import Target
from imgconv.stored import serial
from imgconv.version import VERSION


def save_model(
    path: str | os.PathLike[str], graph: Graph, plan: Plan, config: Config, device: str, target: Target,
    binaries: Sequence[bytes],
) -> None:
    """Writes a compiled model, whole or not at all. device: DeviceInfo.key. Raises InputError."""
    about = {
        "imgconv": VERSION, "device": device, "target": _described(target), "kernels": _kernel_version(),
        "binaries": len(binaries), "config": serial.dump(config)[0].decode(),
        "inputs": {value.name: [value.dtype, list(value.shape)] for value in plan.inputs},
    }
    plan_text, plan_arrays = serial.dump(plan)
    graph_text, graph_arrays = serial.dump(graph)
    sections: dict[str, Sequence[bytes | memoryview]] = {
        "about": [json.dumps(about).encode()], "plan": [plan_text], "plan arrays": plan_arrays, "graph": [graph_text],
        "graph arrays": graph_arrays,
    }
    write_archive(path, sections | {f"binary {n}": [binary] for n, binary in enumerate(binaries)})


@dataclass(frozen=True)
class SavedModel:
    """An opened file of `save_model`; each part is read and checked at its first use."""

    archive: Archive
    about: dict[str, Any]

    @staticmethod
    def open(path: str | os.PathLike[str]) -> SavedModel:
        """Raises ModelError for a damaged file, or one of another version of imgconv."""
        archive = Archive(path)
        about = json.loads(archive.section("about"))
        if about["imgconv"] != VERSION:
            raise ModelError(
                f"imgconv {about['imgconv']} compiled it, this is {VERSION}: compile it again", file=str(path)
            )
        return SavedModel(archive, about)

    @property
    def config(self) -> Config:
        """The settings that it was compiled with."""
        config: Config = serial.parse(self.about["config"].encode(), b"")
        return config

    @property
    def inputs(self) -> dict[str, tuple[str, list[int | str] | None]]:
        """dtype and shape of every input, as imgconv.onnx_import.declared_inputs gives them."""
        return {name: (dtype, shape) for name, (dtype, shape) in self.about["inputs"].items()}

    def fits(self, device: str, target: Target) -> bool:
        """Whether plan and binaries were made for this device, its driver, and these kernels."""
        found = (self.about["device"], self.about["target"], self.about["kernels"])
        return found == (device, _described(target), _kernel_version())

    def read_plan(self) -> Plan:
        plan = self._read("plan")
        assert isinstance(plan, Plan)
        return plan

    def read_graph(self) -> Graph:
        graph = self._read("graph")
        assert isinstance(graph, Graph)
        return graph

    def read_binaries(self) -> tuple[bytes, ...]:
        return tuple(self.archive.section(f"binary {n}") for n in range(self.about["binaries"]))

    def _read(self, name: str) -> Any:
        return serial.parse(self.archive.section(name), self.archive.section(f"{name} arrays"))


def _described(target: Target) -> list[str]:
    """Everything that a plan depends on, except the chooser of its kernels."""
    return [f"{field.name} {getattr(target, field.name)}" for field in fields(target)]


@cache
def _kernel_version() -> str:
    """A hash of common.cl, whose functions the kernel texts call."""
    return blake2b(COMMON.read_bytes(), digest_size=16).hexdigest()
