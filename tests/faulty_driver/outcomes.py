"""Outcomes of models under faults: a process that loads and runs them, in Python or in the player.

    python -m faulty_driver.outcomes '[{"model": "m.onnx", "numbers": "m.npz", "at_load": "adreno;late=3", ...}, ...]'

It prints a line for each case as soon as it is over, see `PictureResult`.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy

from faulty_driver import ROOT, environment, set_faults

Calls = dict[str, Callable[[Any], Any]]


@dataclass(frozen=True)
class Case:
    """A model under faults.

    numbers: a file of arrays, inputs as "in:NAME" and expected outputs as "out:NAME". at_load, in_runs: faults. player:
    the model is a compiled file, for the player. settings: arguments of imgconv.load, or of Player. run_seconds:
    Limits.run_seconds. cache: another folder than the process's. tolerance: of outputs, as a part of the largest number
    of each.
    """

    model: str
    numbers: str
    at_load: str = "adreno"
    in_runs: str = "adreno"
    player: bool = False
    settings: dict[str, Any] = field(default_factory=dict)
    run_seconds: float | None = None
    cache: str = ""
    tolerance: float = 1e-4


@dataclass
class Outcome:
    """result: "right", "wrong", or the type of an error. stage: the call that raised it, or gave wrong numbers.

    meant: the error is an imgconv.Error, or one of the player's. warned: texts of warnings. seconds: it took.
    """

    result: str = "right"
    stage: str = "load"
    message: str = ""
    meant: bool = True
    warned: tuple[str, ...] = ()
    seconds: float = 0.0


def outcomes_of(
    cases: Sequence[Case], cache: Path, variables: Mapping[str, str] | None = None, seconds: float = 300
) -> tuple[list[Outcome], int]:
    """The outcomes of cases in a process of their own, and its status: fewer outcomes than cases if a driver ended it.

    variables: of the process, for the player. A process that takes longer than `seconds` raises TimeoutExpired.
    """
    folders = (ROOT, ROOT / "tests", ROOT / "tests" / "native")
    known = {**environment("adreno", cache), **(variables or {}), "PYTHONPATH": os.pathsep.join(map(str, folders))}
    given = json.dumps([dataclasses.asdict(case) for case in cases])
    command = [sys.executable, "-m", "faulty_driver.outcomes", given]
    done = subprocess.run(command, env=known, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=seconds)
    return [Outcome(**json.loads(line)) for line in done.stdout.splitlines() if line.startswith("{")], done.returncode


def in_python(case: Case) -> Calls:
    """Loads a model, and returns ways to run it."""
    import imgconv
    from imgconv.cl import context
    from imgconv.cl.building import crashes, program

    context.handles.clear()  # what this process keeps of contexts and programs
    program._built.clear()
    crashes._seen.clear()
    limits = imgconv.Limits() if case.run_seconds is None else imgconv.Limits(run_seconds=case.run_seconds)
    model = imgconv.load(case.model, limits=limits, **case.settings)
    return {"run": model.run, "second run": model.run, "frame": lambda given: model.submit(given).result()}


def in_player(case: Case) -> Calls:
    """Opens a compiled file, and returns ways to run it."""
    from player import Player

    player = Player(case.model, cache=os.environ["XDG_CACHE_HOME"], frames=2, **case.settings)
    return {"run": player.run, "second run": player.run, "frame": lambda given: player.wait(player.submit(given))}


def difference(found: Mapping[str, Any], expected: Mapping[str, Any], tolerance: float) -> str:
    """Says how far outputs are off, if that is more than the tolerance."""
    for name, want in expected.items():
        error = numpy.abs(found[name].astype(float) - want).max() / max(1e-3, numpy.abs(want).max())
        if not error <= tolerance:
            return f"{name} is {error:.2g} off"
    return ""


def outcome(case: Case) -> Outcome:
    """Loads a model and runs it twice, and once as a frame in flight."""
    made = Outcome()
    with numpy.load(case.numbers) as file:
        numbers = dict(file)
    given, expected = ({n.partition(":")[2]: a for n, a in numbers.items() if n.startswith(k)} for k in ("in:", "out:"))
    try:
        if "swap=" in case.at_load:
            os.environ["FAULTY_DRIVER"] = case.at_load  # the processes that build for this one swap texts too
        set_faults(case.at_load)
        calls = in_player(case) if case.player else in_python(case)
        set_faults(case.in_runs)
        for made.stage, call in calls.items():
            if problem := difference(call(given), expected, case.tolerance):
                made.result, made.message = "wrong", problem
                break
    except BaseException as error:
        names = {kind.__name__ for kind in type(error).__mro__}
        made.meant = not names.isdisjoint({"PlayerError", "ModelError", "DeviceError"})
        made.result, made.message = type(error).__name__, str(error) if made.meant else traceback.format_exc()
    return made


def main(cases: list[Case]) -> None:
    usual, faults = os.environ["XDG_CACHE_HOME"], os.environ["FAULTY_DRIVER"]
    for case in cases:
        os.environ["FAULTY_DRIVER"] = faults
        os.environ["XDG_CACHE_HOME"] = case.cache or usual
        begun = time.monotonic()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            made = outcome(case)
        made.seconds = time.monotonic() - begun
        made.warned = tuple(str(each.message) for each in caught if issubclass(each.category, RuntimeWarning))
        set_faults("adreno")
        print(json.dumps(dataclasses.asdict(made)), flush=True)


if __name__ == "__main__":
    main([Case(**case) for case in json.loads(sys.argv[1])])
