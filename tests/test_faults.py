"""The table of planted faults fits the code, and the tool tells a fault that is caught from one that is missed."""

from __future__ import annotations

from pathlib import Path

import pytest
from faults import FAULTS, Fault
from faults import __main__ as tool

ROOT = Path(__file__).parents[1]
WRONG = Fault(
    "graph/index.py", "a quotient is one too large", "return outside + multiple // (divisor // common)",
    "return outside + multiple // (divisor // common) + 1", ("graph/test_index.py -k carries",),
)
HARMLESS = Fault(
    "graph/index.py", "a comment is another", '"""Integer index expressions:', '"""Whole index expressions:',
    ("graph/test_index.py -k carries",),
)


def test_there_are_fifty_and_each_has_its_place() -> None:
    assert len(FAULTS) >= 50 and len({fault.what for fault in FAULTS}) == len(FAULTS)
    for fault in FAULTS:
        assert (ROOT / "imgconv" / fault.file).read_text(encoding="utf-8").count(fault.text) == 1, fault
        assert fault.text != fault.replacement and fault.tests, fault
        assert all((ROOT / "tests" / each.split()[0]).exists() for each in fault.tests), fault


def test_a_fault_is_planted_and_taken_out(tmp_path: Path) -> None:
    file = tmp_path / "imgconv" / WRONG.file
    file.parent.mkdir(parents=True)
    file.write_text(f"a\n{WRONG.text}\nb\n")
    before = WRONG.plant(tmp_path)
    assert WRONG.replacement in file.read_text() != before
    WRONG.heal(tmp_path, before)
    assert file.read_text() == before
    file.write_text("another text")
    with pytest.raises(ValueError, match="has 0 times"):
        WRONG.plant(tmp_path)


def test_caught_and_missed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool, "FAULTS", (WRONG, HARMLESS))
    assert tool.main(["--likely"]) == 1
    first, second, last = capsys.readouterr().out.splitlines()
    assert first.startswith("  1 caught by tests/graph/test_index.py::") and "MISSED" in second
    assert last == "1 of 2 caught; the tests that caught them pass without a fault"
