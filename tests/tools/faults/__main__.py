"""Plants the faults and runs the tests; see the package's docstring."""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from . import FAULTS, Fault

ROOT = Path(__file__).parents[3]
# They compare digests of texts, or are this tool's own tests: neither says that a result is wrong.
LEFT_OUT = ("tests/compiling/test_snapshots.py", "tests/test_faults.py")
LONGEST = 3600  # seconds of one run of the tests; a fault by which they do not end is caught
_FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", re.MULTILINE)


@dataclass(frozen=True)
class Verdict:
    """The outcome of a fault. caught_by: the test that failed, or why there is no such test's name; "" if missed."""

    fault: Fault
    caught_by: str
    seconds: float

    def __str__(self) -> str:
        result = f"caught by {self.caught_by}" if self.caught_by else "MISSED"
        return f"{result} ({self.seconds:.0f} s): {self.fault}"


@contextmanager
def copied() -> Iterator[Path]:
    """A copy of the working tree, without what git ignores, in a temporary folder."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True,
        text=True,
    )
    with tempfile.TemporaryDirectory(prefix="imgconv-faults-") as folder:
        tree = Path(folder, "tree")
        for name in filter(None, listed.stdout.splitlines()):
            if (ROOT / name).is_file():
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, tree / name)
        yield tree


def run(tree: Path, *arguments: str) -> tuple[int, str]:
    """pytest in a tree, with caches of its own beside it: (its exit status, what it printed)."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"PYTHONPATH": str(tree), "XDG_CACHE_HOME": str(tree.parent / "cache")}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(
        command, cwd=tree, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=LONGEST, check=False,
    )
    return done.returncode, done.stdout


def failing(tree: Path, *arguments: str) -> str:
    """The first test that fails in a tree, or what else is wrong; "" if all pass."""
    try:
        status, printed = run(tree, *arguments)
    except subprocess.TimeoutExpired:
        return f"tests that do not end in {LONGEST} s"
    if status in (0, 5):  # 5: none was selected
        return ""
    found = _FAILED.search(printed)
    if found is None and status > 0:
        raise RuntimeError(f"pytest ended with {status} and names no test:\n{printed[-2000:]}")
    return found[1] if found else f"a process that ends with {status}"


def judge(tree: Path, fault: Fault, likely: bool = False) -> Verdict:
    """Plants a fault in a tree, runs the tests and takes it out. likely: only those of the fault's own list."""
    began, before = time.monotonic(), fault.plant(tree)
    try:
        own = (shlex.split(f"tests/{name}") for name in fault.tests)
        caught = next(filter(None, (failing(tree, "-n", "0", *each) for each in own)), "")
        if not caught and not likely:
            everything = ["--numprocesses", "auto", "--maxprocesses", "4", "--dist", "worksteal"]
            caught = failing(tree, *everything, *(f"--ignore={name}" for name in LEFT_OUT))
    finally:
        fault.heal(tree, before)
    return Verdict(fault, caught, time.monotonic() - began)


def arguments_of(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.tools.faults", description="Does make test notice planted faults?"
    )
    parser.add_argument("--list", action="store_true", help="print the faults and plant none")
    parser.add_argument("--only", type=int, nargs="+", metavar="N", help="these faults, by their numbers in --list")
    parser.add_argument("--likely", action="store_true", help="run only the tests that are likely to notice a fault")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Prints a line for each fault, and whether the tests that caught one pass without it. Returns 0 if all is well."""
    arguments = arguments_of(argv)
    numbers = arguments.only or range(1, len(FAULTS) + 1)
    if arguments.list:
        print("\n".join(f"{number:3} {FAULTS[number - 1]}" for number in numbers))
        return 0
    verdicts = []
    with copied() as tree:
        for number in numbers:
            verdicts.append(judge(tree, FAULTS[number - 1], arguments.likely))
            print(f"{number:3} {verdicts[-1]}", flush=True)
        catching = {v.caught_by for v in verdicts if v.caught_by.startswith("tests/")}
        without = failing(tree, "-n", "0", *sorted(catching)) if catching else ""
    caught = sum(bool(v.caught_by) for v in verdicts)
    print(f"{caught} of {len(verdicts)} caught; " + (f"{without} fails without a fault too" if without else
                                                     "the tests that caught them pass without a fault"))
    return 0 if caught == len(verdicts) and not without else 1


if __name__ == "__main__":
    sys.exit(main())
