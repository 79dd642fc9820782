"""Compiled files with one kernel's text changed, as by a wrong compiler: whether the player's first open finds it.

    python -m tests.tools.changed_kernels_in_player MODEL ... [--changes 10] [--seed 0] [--real intel] [--json]

Every model is compiled for an Adreno 640 and opened over the real driver (see tests/faulty_driver) by imgconv-run of
build/native: unchanged, then each time with another change, unchecked and checked. Changes, what counts as a fault and
the table are those of tests/tools/changed_kernels.py. Exit status 1 if a fault was missed, or an unchanged model was
reported.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy

from examples.player import loader_variables
from imgconv.checking.player_checks import with_checks
from imgconv.config import Config
from imgconv.loading.plans import prepare_for
from imgconv.loading.device_descriptions import read_device_description
from imgconv.onnx_import import import_onnx
from imgconv.stored.compiled_file import DevicePlan, save_model
from tests.tools.changed_kernels import (
    FAULTS, ROOT, ROUNDING, TOLERANCE, TRIES, Change, Tried, arguments, changes, drawn, off, report,
)

PLAYER = ROOT / "build" / "native" / "imgconv-run"
ADRENO = ROOT / "imgconv" / "loading" / "devices" / "adreno_640.json"
SECONDS = 600


@dataclass(frozen=True)
class Opened:
    """A file that was opened and run once. status: of the process. forms: whether launches have other forms."""

    status: int
    message: str
    outputs: Mapping[str, Any]
    replaced: bool


class Model:
    """A model, whose files are written again for each change and opened in processes of their own."""

    def __init__(self, path: str, folder: Path, player: str, variables: Mapping[str, str]) -> None:
        self.path, self.folder, self.player, self.variables = path, folder, player, variables
        info = read_device_description(ADRENO)
        prepared = prepare_for(info, import_onnx(path, {}, {}), Config())
        self.graph, self.config = prepared.graph, prepared.config
        plan = DevicePlan(prepared.plan(), info.key, prepared.target)
        self.made = with_checks(plan, self.graph, self.config, {})
        self.inputs = {value.name: drawn(value) for value in self.made.plan.inputs}
        for number, array in enumerate(self.inputs.values()):
            numpy.save(folder / f"in{number}.npy", array)
        unchanged = self.opened({}, check=True)
        if unchanged.status or unchanged.replaced:
            raise RuntimeError(f"{path} is reported without a change: {unchanged.message}")

    @cached_property
    def right(self) -> Mapping[str, Any]:
        """The outputs without a change."""
        return self.opened({}, check=False).outputs

    def opened(self, swapped: Mapping[str, str], check: bool) -> Opened:
        """Opens a file in which some kernels' texts are others, and runs it. Programs without changes are kept."""
        launches = [
            replace(each, source=replace(each.source, text=swapped.get(each.source.text, each.source.text)))
            for each in self.made.plan.launches
        ]
        changed = replace(self.made, plan=replace(self.made.plan, launches=tuple(launches)))
        file, cache = self.folder / "model.imgconv", self.folder / "cache"
        save_model(file, self.graph, self.config, [changed])
        cache.mkdir(exist_ok=True)
        given, outputs = list[str](), [value.name for value in self.made.plan.outputs]
        for number, name in enumerate(self.inputs):
            given += ["--input", f"{name}={self.folder / f'in{number}.npy'}"]
        for number, name in enumerate(outputs):
            given += ["--output", f"{name}={self.folder / f'out{number}.npy'}"]
        command = [self.player, file, "--cache", cache, *given, *([] if check else ["--unchecked"])]
        done = subprocess.run(
            command, env=self.variables, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=SECONDS
        )
        arrays = {} if done.returncode else {
            name: numpy.load(self.folder / f"out{number}.npy") for number, name in enumerate(outputs)
        }
        return Opened(done.returncode, done.stderr, arrays, _has_replaced(file, cache))

    def tried(self, change: Change) -> Tried:
        """Opens the model with a change, without the check and with it."""
        named = [each.name for each in self.made.plan.launches if each.source.text == change.old]

        def outcome(kind: str, found: float = 0.0, message: str = "") -> Tried:
            return Tried(Path(self.path).stem, change.kind, change.launch, change.kernel, kind, found, message)

        swapped = {change.old: change.new}
        unchecked = self.opened(swapped, check=False)
        if unchecked.status < 0:
            return outcome("ended", message=f"status {unchecked.status}")
        if unchecked.status:
            return outcome("not built", message=unchecked.message)
        if all(unchecked.outputs[name].tobytes() == array.tobytes() for name, array in self.right.items()):
            return outcome("no fault")
        before = off(unchecked.outputs, self.right)
        checked = self.opened(swapped, check=True)
        if checked.status:
            is_named = any(f"launch '{name}'" in checked.message for name in named)
            return outcome("refused" if is_named else "still wrong", before, checked.message)
        if not checked.replaced:
            return outcome("missed" if before > ROUNDING else "rounding", before)
        after = off(checked.outputs, self.right)
        return outcome("replaced" if after <= TOLERANCE else "still wrong", before, f"then {after:.2g} off")


def _has_replaced(file: Path, cache: Path) -> bool:
    """Returns whether the outcome that is kept of a file's check has other forms of launches."""
    with open(file, "rb") as content:
        checksum = int.from_bytes(content.read(16)[12:], "little")
    of_file = re.compile(rb"outcome \d+ of plan \d+ of file %d\D.*\d:\d" % checksum)
    return any(of_file.search(path.read_bytes()) for path in cache.glob("*.program") if path.stat().st_size < 10_000)


def of_model(path: str, wanted: int, seed: int, real: str, player: str) -> Iterator[Tried]:
    """Tries changes of a model until `wanted` are faults."""
    from faulty_driver import environment

    with tempfile.TemporaryDirectory() as name:
        folder, faults = Path(name), 0
        (folder / "opencl").mkdir()
        variables = environment("adreno", folder, real)
        variables["LD_LIBRARY_PATH"] = loader_variables(folder / "opencl")["LD_LIBRARY_PATH"]
        model = Model(path, folder, player, variables)
        for number, change in enumerate(changes(model.made.plan.launches, seed)):
            if faults == wanted or number >= TRIES * wanted:
                break
            made = model.tried(change)
            faults += made.outcome in FAULTS
            yield made


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--player", default=str(PLAYER), help="imgconv-run, by default that of build/native")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT / "tests"))
    found = (of_model(path, options.changes, options.seed, options.real, options.player) for path in options.models)
    sys.exit(report(chain.from_iterable(found), options.json))


if __name__ == "__main__":
    main()
