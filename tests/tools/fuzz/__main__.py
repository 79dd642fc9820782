"""Runs the cases of a generator in worker processes; see the package's docstring."""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[2]
KINDS = ("graphs", "streams", "plans", "quantized", "cuttings", "models", "files", "pictures", "kills", "planted")
SECONDS = 30  # of processor time that a case may take
PATIENCE = 300.0  # seconds that a case may take: one that waits for ever takes no processor time
MEGABYTES = 3000  # that a case may take
MANY = 100  # more than the steps of any case
CASES, KEPT = 2000, 1500  # of one worker; megabytes that it may hold after a case: drivers keep some of each program


def add_folders() -> None:
    """Lets the folders of the tests be imported from."""
    for folder in (TESTS, TESTS / "device", TESTS / "graph", TESTS / "ops", TESTS / "tools"):
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))


def outcome(kind: str, seed: int, skipped: Collection[int] = ()) -> tuple[str, str, int]:
    """Runs a case; returns a summary, its failure or "", and the number of its steps."""
    add_folders()
    case = importlib.import_module("fuzz.case")
    draw = case.Draw(seed, frozenset(skipped))
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", module="PIL")
            return importlib.import_module(f"fuzz.{kind}").run(draw), "", draw.steps
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        inner = next((f for f in reversed(frames) if "imgconv" in f.filename), frames[-1])
        where = f"{Path(inner.filename).name}:{inner.name}"
        return "", f"{type(error).__name__} at {where}: {str(error)[:300]}", draw.steps


def work(kind: str, seeds: range, skipped: Collection[int] = ()) -> None:
    """Prints lines of JSON for each case."""
    add_folders()
    importlib.import_module("fuzz.case").tell.set(lambda word: print(json.dumps({"does": word}), flush=True))
    for seed in seeds:
        print(json.dumps({"seed": seed, "begins": True}), flush=True)
        faulthandler.dump_traceback_later(0.9 * PATIENCE)  # says where it hangs
        limit_processor_time()
        before = memory()[0]
        forget_most_memory()
        said, failed, steps = outcome(kind, seed, skipped)
        faulthandler.cancel_dump_traceback_later()
        after, most = memory()
        if not failed and most - before > MEGABYTES:
            failed = f"memory: {most - before} MB"
        print(json.dumps({"seed": seed, "said": said, "failed": failed, "steps": steps}), flush=True)
        if most - before > MEGABYTES or after > KEPT:
            return


def limit_processor_time() -> None:
    """Lets the system end this process with SIGXCPU after SECONDS more."""
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + SECONDS + 1, hard))


def memory() -> tuple[int, int]:
    """Returns the memory of this process and its peak, in MB."""
    try:
        fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        return int(fields["VmRSS"].split()[0]) // 1024, int(fields["VmHWM"].split()[0]) // 1024
    except (OSError, KeyError):
        return 0, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def forget_most_memory() -> None:
    with suppress(OSError):  # Linux alone has it
        Path("/proc/self/clear_refs").write_text("5")


def lines(process: subprocess.Popen[bytes]) -> Iterator[dict[str, Any]]:
    """The worker's lines; ends if it ends or takes too long for one."""
    assert process.stdout is not None
    pending = b""
    while select.select([process.stdout], [], [], PATIENCE)[0]:
        content = os.read(process.stdout.fileno(), 1 << 16)
        if not content:
            return
        *whole, pending = (pending + content).split(b"\n")
        yield from (json.loads(line) for line in whole if line.startswith(b"{"))


def results(kind: str, seeds: range, skipped: Collection[int] = ()) -> Iterator[tuple[int, str, str, int]]:
    """Yields seed, summary, failure and steps of each case, also of those that end or hang the worker."""
    at = seeds.start
    while at < seeds.stop:
        numbers = (at, min(at + CASES, seeds.stop), *skipped)
        command = [sys.executable, "-m", "tests.tools.fuzz", kind, "--work", *map(str, numbers)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=TESTS.parent) as process:
            begun, hung, does = None, False, ""
            try:
                for line in lines(process):
                    does = line.get("does", "")
                    if "begins" in line:
                        begun = line["seed"]
                    if "said" not in line:
                        continue
                    begun, at = None, line["seed"] + 1
                    yield line["seed"], line["said"], line["failed"], line["steps"]
            except (GeneratorExit, KeyboardInterrupt):  # nobody wants more
                process.kill()
                raise
            try:
                status = process.wait(2)
            except subprocess.TimeoutExpired:
                hung = True
                process.kill()
                status = process.wait()
        if begun is not None:
            ended = f"it takes over {SECONDS} s of processor time" if status == -signal.SIGXCPU else (
                f"it takes over {PATIENCE:.0f} s" if hung else f"the process ends with {status}"
            )
            yield (begun, "the oracle ends the process", "", 0) if does == "oracle" else (begun, "", ended, 0)
            at = begun + 1
        elif status:
            raise RuntimeError(f"the worker ends with {status} before a case")


def alone(kind: str, seed: int, skipped: Collection[int]) -> tuple[str, str, int]:
    """Returns what `outcome` returns, from a process of its own."""
    ((_, said, failed, steps),) = results(kind, range(seed, seed + 1), skipped)
    return said, failed, steps


def smaller(kind: str, seed: int, failed: str) -> list[int]:
    """The steps of a case that can be left out, so that it still fails in the same place."""
    sort = failed.partition(":")[0]
    attempt = outcome if " at " in sort else alone  # what ends, hangs or fills a process is tried in another one
    skipped: list[int] = []
    _, _, steps = attempt(kind, seed, range(MANY))  # of a case that does not fail: one that fails may not be counted
    for step in range(steps):
        if attempt(kind, seed, [*skipped, step])[1].partition(":")[0] == sort:
            skipped.append(step)
    return skipped


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.tools.fuzz", description="Looks for what breaks imgconv.")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--count", type=int, help="of cases (default: 100, or as many as go into --minutes)")
    parser.add_argument("--seed", type=int, default=0, help="of the first case; case n has the seed plus n")
    parser.add_argument("--minutes", type=float, default=0, help="run no longer than that")
    parser.add_argument("--work", nargs="+", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        faulthandler.register(signal.SIGXCPU, chain=True)  # says where it is
        start, stop, *skipped = options.work
        with suppress(KeyboardInterrupt):
            work(options.kind, range(start, stop), skipped)
        return 0
    begun, counts, found = time.monotonic(), Counter[str](), set[str]()
    stop = options.seed + (options.count or (10**9 if options.minutes else 100))
    with suppress(KeyboardInterrupt):  # what was found so far is told
        for seed, said, failed, _ in results(options.kind, range(options.seed, stop)):
            counts[said or "FAILED"] += 1
            sort = failed.partition(":")[0]
            if failed:
                left_out = "" if sort in found else f" without steps {smaller(options.kind, seed, failed)}"
                found.add(sort)
                print(f"seed {seed}: {failed}{left_out}", flush=True)
            if options.minutes and time.monotonic() - begun > 60 * options.minutes:
                break
    print(f"{options.kind}: {counts.total()} cases from seed {options.seed}, {time.monotonic() - begun:.0f} s, "
          f"{counts['FAILED']} failed in {len(found)} ways")
    for said, count in counts.most_common():
        print(f"  {count:6} {said}")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
