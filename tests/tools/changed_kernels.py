"""Models with one kernel's text changed, as by a wrong compiler: whether the check of a load finds each change.

    python -m tests.tools.changed_kernels MODEL ... [--changes 10] [--seed 0] [--real intel] [--json]

Every model is planned for an Adreno 640, over the real driver (see tests/faulty_driver), and loaded again and again:
unchanged, then each time with another change. These changes are no faults, and counted apart: those with which the
outputs are the same bit by bit, or as near as another order of a sum makes them, and those that end the process, by
reads outside of memory. The check of a load takes as long as it needs. Exit status 1 if a fault was missed, or an
unchanged model was reported.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import inf
from itertools import chain
from pathlib import Path
from typing import Any

import numpy

ROOT = Path(__file__).parents[2]
FOUND = "its result is wrong"
# Kernels replaced by others add in another order: see tests/faulty_driver/matrix.py.
TOLERANCE = 1e-3
ROUNDING = 2.0**-20  # of outputs, as a part of the largest number of each: as softmax without the largest of its inputs
TRIES = 6  # changes that are tried for each fault wanted, at most


def _of_writes(made: str) -> tuple[str, str]:
    """A change of every write of an image in a kernel."""
    return r"\A", f"#define write_imagef(image, at, texel) {made}\n"


def _without(lane: str) -> tuple[str, str]:
    """Writes without a lane."""
    lanes = ", ".join("0.0f" if each == lane else f"(texel).{each}" for each in "xyzw")
    return _of_writes(f"write_imagef(image, at, (float4)({lanes}))")


# By kind, patterns and what takes the place of one match.
KINDS: Mapping[str, Sequence[tuple[str, str]]] = {
    "shifted coordinates": (
        (r"first_column \* STRIDE_X - PAD_X", r"\g<0> + 1"),
        (r"first_row \* STRIDE_Y - PAD_Y", r"\g<0> + 1"),
        (r"(read_imagef\(\w+, (?:TEXEL, )?\(int2\)\()", r"\g<1>1 + "),
        (r"(write_imagef\(\w+, \(int2\)\()", r"\g<1>1 + "),
    ),
    "a dropped lane": (*map(_without, "xyzw"), (r"texel\.channel", "texel.x")),
    "a wrong loop end": ((r"(for \(int (\w+) = [^;]+; \2 < )([^;]+)(; )", r"\1(\3) - 1\4"),),
    "fmin for fmax": ((r"\bfmax\(", "fmin("), (r"\bfmin\(", "fmax(")),
    "a lost barrier": ((r"\bbarrier\(CLK_\w+(?: \| CLK_\w+)?\)", "(void)0"),),
    "wrong rounding": (_of_writes("write_imagef(image, at, as_float4(as_int4(texel) & (int4)(0xFFFFE000)))"),),
    "an untouched output": (
        _of_writes("((void)0)"),
        _of_writes("(get_global_id(0) + 1 < get_global_size(0) ? write_imagef(image, at, texel) : (void)0)"),
        _of_writes("(get_global_id(1) > 0 ? write_imagef(image, at, texel) : (void)0)"),
    ),
    "another operation": (
        (r"(const float4 t\d+_\d+ = \(\w+) - ", r"\1 + "), (r"(const float4 t\d+_\d+ = \(\w+) \+ ", r"\1 - "),
        (r"(const float4 t\d+_\d+ = \(\w+) \* ", r"\1 + "), (r"\bexp_of\(", "1.01f * exp_of("),
    ),
}


@dataclass(frozen=True)
class Change:
    """A change of a kernel's text, in the first launch that has it."""

    kind: str
    launch: str
    kernel: str
    old: str
    new: str


@dataclass(frozen=True)
class Tried:
    """A change and its outcome: one of FAULTS, or "rounding", "no fault", "not built" or "ended".

    off: how far off outputs are without the check, as a part of the largest number of each. message: of an error.
    """

    model: str
    kind: str
    launch: str
    kernel: str
    outcome: str
    off: float = 0.0
    message: str = ""


FAULTS = ("replaced", "refused", "missed", "still wrong")
MISSED = ("missed", "still wrong")


def changed(text: str, kind: str, draw: random.Random) -> str | None:
    """The text with a change of a kind; None if it can have none."""
    matches = [(m, new) for pattern, new in KINDS[kind] for m in re.finditer(pattern, text)]
    if not matches:
        return None
    match, new = draw.choice(matches)
    made = text[: match.start()] + match.expand(new) + text[match.end() :]
    return made + "#undef write_imagef\n" if "#define write_imagef" in made else made


def changes(launches: Sequence[Any], seed: int) -> Iterator[Change]:
    """Changes of the kernels of launches, each kind in turn, in an order that the seed draws."""
    draw = random.Random(seed)
    texts = {launch.source.text: launch for launch in reversed(launches)}
    waiting = {kind: draw.sample(sorted(texts), len(texts)) for kind in KINDS}
    while any(waiting.values()):
        for kind, left in waiting.items():
            while left:
                text = left.pop()
                new = changed(text, kind, draw)
                if new is not None:
                    launch = texts[text]
                    yield Change(kind, launch.name, launch.source.path, text, new)
                    break


class Model:
    """A model on the device of this process, loaded again for each change."""

    def __init__(self, path: str, folder: Path) -> None:
        from imgconv.onnx_import import import_onnx

        self.path, self.folder = path, folder
        self.graph = import_onnx(path, {}, {})
        self.number = 0
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            model = self.load({}, check=True)  # nothing is reported
        self.launches = model.plan.launches
        self.inputs = {value.name: drawn(value) for value in model.plan.inputs}
        self.right = model.run(self.inputs)

    def load(self, swapped: Mapping[str, str], check: bool) -> Any:
        """Loads the model with some kernels' texts in place of others, on a driver of which nothing is known."""
        import imgconv
        from imgconv.checking import session_checks
        from imgconv.cl.building import crashes
        from imgconv.files.disk_cache import DiskCache
        from imgconv.kernels.kernel_source import program_text
        from imgconv.runtime import programs

        self.number += 1
        crashes.CRASHES = DiskCache(str(self.folder / f"crashes{self.number}"), 2**20)
        crashes._seen.clear()
        session_checks.PROVED = DiskCache(str(self.folder / f"proved{self.number}"), 2**20)
        session_checks.SECONDS = inf
        programs.program_text = lambda common, texts: program_text(
            common, {swapped.get(text, text): number for text, number in texts.items()}
        )
        return imgconv.load(self.graph, check=check)

    def tried(self, change: Change) -> Tried:
        """Loads the model with a change, without the check and with it."""
        from imgconv.errors import BuildError, DeviceError

        named = [f"launch {launch.name!r}" for launch in self.launches if launch.source.text == change.old]

        def outcome(kind: str, found: float = 0.0, message: str = "") -> Tried:
            return Tried(Path(self.path).stem, change.kind, change.launch, change.kernel, kind, found, message)

        swapped = {change.old: change.new}
        try:
            found = self.load(swapped, check=False).run(self.inputs)
        except BuildError as error:
            return outcome("not built", message=str(error))
        if all(found[name].tobytes() == array.tobytes() for name, array in self.right.items()):
            return outcome("no fault")
        before = off(found, self.right)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                checked = self.load(swapped, check=True).run(self.inputs)
            except DeviceError as error:
                is_named = any(name in str(error) for name in named)
                return outcome("refused" if is_named else "still wrong", before, str(error))
        if not any(FOUND in str(each.message) for each in caught):
            return outcome("missed" if before > ROUNDING else "rounding", before)
        after = off(checked, self.right)
        return outcome("replaced" if after <= TOLERANCE else "still wrong", before, f"then {after:.2g} off")


def off(found: Mapping[str, Any], right: Mapping[str, Any]) -> float:
    """The largest error of outputs, as a part of the largest number of each."""
    with numpy.errstate(all="ignore"):
        errors = [
            numpy.abs(found[name].astype(float) - array).max() / max(1e-3, numpy.abs(array).max())
            for name, array in right.items()
        ]
    return max(inf if numpy.isnan(error) else float(error) for error in errors)


def drawn(value: Any) -> Any:
    draw = numpy.random.default_rng(7)
    if value.dtype.startswith("float"):
        return draw.uniform(0 if len(value.shape) == 4 else -1, 1, value.shape).astype(value.dtype)
    return draw.integers(0, 2, value.shape).astype(value.dtype)


def try_changes(path: str, wanted: int, seed: int, first: int) -> None:
    """Tries changes from the `first` on, until `wanted` are faults. Prints each, before it is tried and after."""
    with tempfile.TemporaryDirectory() as folder:
        model, faults = Model(path, Path(folder)), 0
        for number, change in enumerate(changes(model.launches, seed)):
            if number < first:
                continue
            if faults == wanted or number >= TRIES * wanted:
                break
            print(json.dumps({"number": number, "kind": change.kind, "launch": change.launch, "kernel": change.kernel}))
            sys.stdout.flush()
            made = model.tried(change)
            faults += made.outcome in FAULTS
            print(json.dumps(asdict(made)), flush=True)
    print("done", flush=True)


def of_model(path: str, wanted: int, seed: int, real: str) -> Iterator[Tried]:
    """The changes of a model, tried in processes that have the faulty driver: a new one where one has ended."""
    from faulty_driver import environment

    number, faults = -1, 0
    with tempfile.TemporaryDirectory() as cache:
        variables = environment("adreno", Path(cache), real)
        while faults < wanted:
            given = ["--child", str(number + 1), "--changes", str(wanted - faults), "--seed", str(seed), path]
            command = [sys.executable, "-m", "tests.tools.changed_kernels", *given]
            child = subprocess.Popen(command, env=variables, cwd=ROOT, stdout=subprocess.PIPE, text=True)
            assert child.stdout is not None
            trying: dict[str, Any] = {}
            for line in child.stdout:
                if not line.startswith("{"):
                    continue
                read = json.loads(line)
                if "number" in read:
                    trying, number = read, read.pop("number")
                    continue
                trying = {}
                faults += read["outcome"] in FAULTS
                yield Tried(**read)
            if child.wait() == 0:
                return
            if not trying:
                raise RuntimeError(f"{path} cannot be loaded: its process ended with {child.returncode}")
            yield Tried(Path(path).stem, outcome="ended", message=f"status {child.returncode}", **trying)


def table(made: Sequence[Tried]) -> Iterator[str]:
    """Lines of a table: how many faults of each kind were found."""
    outcomes = (*FAULTS, "rounding", "no fault", "not built", "ended")
    yield f"{'kind':20} faults  " + "  ".join(outcomes)
    for kind in (*KINDS, "all"):
        count = Counter(each.outcome for each in made if kind in (each.kind, "all"))
        numbers = "  ".join(f"{count[outcome]:{len(outcome)}}" for outcome in outcomes)
        yield f"{kind:20} {sum(count[outcome] for outcome in FAULTS):6}  {numbers}"


def arguments(description: str | None) -> argparse.ArgumentParser:
    """The arguments that the tools for Python and for the player share."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", metavar="MODEL", nargs="+")
    parser.add_argument("--changes", type=int, default=10, help="faults of each model")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--real", default="intel", help="the driver below: intel, pocl or rusticl")
    parser.add_argument("--json", action="store_true", help="print a line of JSON for each change")
    return parser


def report(tried: Iterable[Tried], as_json: bool) -> int:
    """Prints changes as they are tried, or the table at the end. Returns 1 if a fault was missed, else 0."""
    made: list[Tried] = []
    for each in tried:
        made.append(each)
        if as_json or each.outcome in MISSED:
            print(json.dumps(asdict(each)), flush=True)
    if not as_json:
        print("\n".join(table(made)))
    return int(any(each.outcome in MISSED for each in made))


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        try_changes(options.models[0], options.changes, options.seed, options.child)
        return
    sys.path.insert(0, str(ROOT / "tests"))
    found = (of_model(path, options.changes, options.seed, options.real) for path in options.models)
    sys.exit(report(chain.from_iterable(found), options.json))


if __name__ == "__main__":
    main()
