"""Kernels whose texts are changed one at a time: the check finds each change that changes what the launch writes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy
import pytest
from changed_kernels import KINDS, Tried, of_model, table
from faulty_driver.matrix import CHANGED, NAMES, small_models
from graphs import target
from published import REAL, needs_models

import imgconv
from imgconv.checking import session_checks
from imgconv.checking.comparing import LaunchVerdict, StorageContents, judge_launch
from imgconv.checking.kernel_variants import variant_graphs
from imgconv.checking.session_checks import UNTOUCHED, SessionUnderTest, check_launches
from imgconv.cl.building.program_source import ProgramSource
from imgconv.cl.device import DeviceInfo
from imgconv.compiling.compiler import prepare
from imgconv.compiling.plan import Launch
from imgconv.config import Config
from imgconv.errors import BuildError
from imgconv.graph.nodes import Graph
from imgconv.kernels.kernel_source import COMMON, program_text

# Changes that end no process, by reads outside of memory: all are tried in this one.
CHANGES = {
    "a loop ends early": (r"(for \(int (\w+) = 0; \2 < )([\w]+)(; \2\+\+\))", r"\1\3 - 1\4"),
    "a loop starts late": (r"(for \(int (\w+) = )0(; \2 < )", r"\g<1>1\3"),
    "the smaller for the larger": (r"\bfmax\(", "fmin("),
    "a sum for a difference": (r"(const float4 \w*t\d+_\d+ = \(\w+) - ", r"\1 + "),
    "a difference for a sum": (r"(const float4 \w*t\d+_\d+ = \(\w+) \+ ", r"\1 - "),
    "a sum for a product": (r"(const float4 \w*t\d+_\d+ = \(\w+) \* ", r"\1 + "),
    "a function that is 1 % off": (r"\bexp_of\(", "1.01f * exp_of("),
    "another lane": (r"texel\.channel", "texel.w"),
    "a shifted column": (r"#define PAD_X (\d+)", r"#define PAD_X \1 - -1"),
    "another stride": (r"#define STRIDE_X 1\b", "#define STRIDE_X 2"),
    "an output that is not written": (r"\bwrite_imagef\(output", "if (0) write_imagef(output"),
}
SEVERAL = slice(19, None, 3)  # of the variants
TIMES = 2  # that each change is tried where it changes the result


def safely_changed(text: str) -> Iterator[tuple[str, str]]:
    """The text with each change that it can have."""
    for name, (pattern, replacement) in CHANGES.items():
        made = re.sub(pattern, replacement, text, count=1)
        if made != text:
            yield name, made


class Changes:
    """Takes the place of session_checks._check_launch: after the check of a launch it tries changes of its kernel.

    found: how often each change was; missed: what was changed, and in which launch.
    """

    def __init__(self) -> None:
        self.found: Counter[str] = Counter()
        self.missed: list[str] = []
        self.original = session_checks._check_launch

    def __call__(
        self, running: SessionUnderTest, number: int, subject: object, arrays: dict[object, object]
    ) -> LaunchVerdict:
        finding = self.original(running, number, subject, arrays)  # type: ignore[arg-type]
        launch = running.plan.launches[number]
        right = running.memory.content(launch.writes)
        for name, text in safely_changed(launch.source.text):
            if self.found[name] == TIMES:
                continue
            running.context.fill(running.memory[launch.writes], UNTOUCHED)
            if not self._runs(running, launch, text):
                continue
            arrays[launch.writes] = made = running.memory.content(launch.writes)
            # Some changes are of what this launch does not use, or of texels that no tensor has.
            if numpy.allclose(made, right, 1e-3, 1e-3, equal_nan=True):
                continue
            if self._verdict(running, number, subject, arrays) == "wrong":
                self.found[name] += 1
            else:
                self.missed.append(f"{name}: {launch}, {running.graph.name}")
        running.context.fill(running.memory[launch.writes], UNTOUCHED)
        session_checks._launch_and_wait(running, number)
        arrays[launch.writes] = running.memory.content(launch.writes)
        return finding

    def _runs(self, running: SessionUnderTest, launch: Launch, text: str) -> bool:
        """Builds and launches a kernel with another text; whether that can be."""
        context, source = running.context, launch.source
        part = ProgramSource(program_text(COMMON.read_text(encoding="utf-8"), {text: 0}), source.path)
        try:
            with context.build_in_background([part]) as built:
                program = next(built)
        except BuildError:
            return False
        arguments = [running.memory[argument.storage] for argument in source.arguments]
        made = context.launch(program, "k0", arguments, source.global_size, source.local_size, "changed")
        context.sequence([made]).enqueue()
        context.finish()
        return True

    def _verdict(self, running: SessionUnderTest, number: int, subject: object, arrays: dict[object, object]) -> str:
        contents = StorageContents(running.graph, running.config, arrays)  # type: ignore[arg-type]
        launch = running.plan.launches[number]
        return judge_launch(launch, subject, contents, UNTOUCHED, number).verdict  # type: ignore[arg-type]


def running(graph: Graph, device: DeviceInfo) -> SessionUnderTest:
    """The graph in images, which bear reads outside of them."""
    model = imgconv.load(graph, device=device, max_image=4096, check=False)
    return SessionUnderTest(model._last.session, model.graph, model.config)


def test_changes_are_found(device: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    changes = Changes()
    monkeypatch.setattr(session_checks, "_check_launch", changes)
    for graph in list(variant_graphs())[SEVERAL]:
        for _, finding in check_launches(running(graph, device)):
            assert finding.verdict == "right", finding
    assert not changes.missed, changes.missed
    # On some GPUs none of these kernels has a difference.
    spared = {"a sum for a difference"} if device.kind == "gpu" else set()
    assert CHANGES.keys() - changes.found.keys() <= spared, changes.found


def found(made: Sequence[Tried], wanted: int) -> None:
    """Asserts that there were as many faults, and that each was found."""
    assert not [each for each in made if each.outcome in ("missed", "still wrong")]
    assert sum(each.outcome in ("replaced", "refused") for each in made) == wanted
    *_, total = table(made)
    assert total.split()[:2] == ["all", str(wanted)]


@pytest.mark.parametrize("name", NAMES)
def test_a_load_finds_changes(name: str, tmp_path: Path) -> None:
    """Outputs are right, or an error names the launch."""
    found(list(of_model(small_models(tmp_path)[name].model, 2, 0, "intel")), 2)


@pytest.mark.models
@needs_models
@pytest.mark.parametrize("path", CHANGED)
def test_real_models(path: str) -> None:
    found(list(of_model(str(REAL / path), 2, 1, "intel")), 2)


def test_every_change_has_a_text() -> None:
    """Kernels have what the patterns find: another name in a template would leave one without use."""
    plans = [prepare(graph, Config(), target()).plan() for graph in variant_graphs()]
    texts = {launch.source.text for plan in plans for launch in plan.launches}
    patterns = [pattern for each in KINDS.values() for pattern, _ in each]
    unused = [pattern for pattern in patterns if not any(re.search(pattern, text) for text in texts)]
    assert not unused, unused
