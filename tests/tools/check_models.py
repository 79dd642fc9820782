"""imgconv check on folders of models, in a process for each: verdicts, and the check's seconds next to a cold load's.

    python -m tests.tools.check_models FOLDER ... [--device N] [--float16] [--seconds 600] [--json]

Each process has an empty cache. FOLDER/shapes.json, if there is one, has the arguments of --shape for models of open
sizes, by file name: {"det.onnx": ["x=1,3,320,320"]}.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

VERDICTS = ("right", "wrong", "not covered")


@dataclass(frozen=True)
class Row:
    """A model's verdicts by number, and seconds. error: the last line of what it said if it could not be checked."""

    model: str
    launches: int = 0
    right: int = 0
    wrong: int = 0
    not_covered: int = 0
    load: float = 0.0
    check: float = 0.0
    error: str = ""
    reasons: tuple[str, ...] = ()


def models_in(folder: Path) -> Iterator[tuple[Path, list[str]]]:
    """Every ONNX file below a folder, and its arguments of --shape."""
    listed = folder / "shapes.json"
    shapes = json.loads(listed.read_text()) if listed.exists() else {}
    for path in sorted(folder.rglob("*.onnx")):
        yield path, shapes.get(path.name, [])


def checked(path: Path, shapes: Sequence[str], options: Sequence[str], seconds: float) -> Row:
    """The verdicts on a model's launches, from a process of its own."""
    given = [part for shape in shapes for part in ("--shape", shape)]
    command = [sys.executable, "-m", "imgconv", "check", str(path), "--json", *given, *options]
    with tempfile.TemporaryDirectory() as cache:
        variables = os.environ | {"XDG_CACHE_HOME": cache}
        try:
            done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=seconds)
        except subprocess.TimeoutExpired:
            return Row(path.stem, error=f"over {seconds:g} s")
    if not done.stdout.startswith("{"):
        return Row(path.stem, error=f"status {done.returncode}: {(done.stderr.strip().splitlines() or [''])[-1]}")
    (plan,) = json.loads(done.stdout)["plans"]
    found = plan["launches"]
    counts = [sum(each["verdict"] == verdict for each in found) for verdict in VERDICTS]
    others = [each for each in found if each["verdict"] != "right"]
    reasons = tuple("{verdict}: {launch}, {kernel}: {text}".format(**each) for each in others)
    return Row(path.stem, len(found), *counts, plan["load_seconds"], plan["check_seconds"], reasons=reasons)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", metavar="FOLDER", type=Path, nargs="+")
    parser.add_argument("--seconds", type=float, default=600, help="that a model may take")
    parser.add_argument("--device", help="as for imgconv check")
    parser.add_argument("--float16", action="store_true")
    parser.add_argument("--json", action="store_true", help="print a line of JSON for each model")
    options = parser.parse_args()
    given = [*(["--device", options.device] if options.device else []), *(["--float16"] if options.float16 else [])]
    if not options.json:
        print(f"{'model':30} launches  wrong  not covered  load s  check s")
    wrong = 0
    for folder in options.folders:
        for path, shapes in models_in(folder):
            row = checked(path, shapes, given, options.seconds)
            wrong += row.wrong
            if options.json:
                print(json.dumps(asdict(row)), flush=True)
                continue
            seconds = f"{row.load:7.1f} {row.check:8.2f}"
            print(f"{row.model:30} {row.launches:8} {row.wrong:6} {row.not_covered:12} {seconds}")
            for line in filter(None, [row.error, *row.reasons]):
                print(f"    {line}", flush=True)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
