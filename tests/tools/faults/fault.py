"""A planted fault: a change of one place of a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Fault:
    """A change of one place of a file.

    file: below imgconv/. what: the fault in words. text: stands there once; replacement: what is put there instead.
    tests: arguments of pytest, below tests/, that select what is likely to notice it; the likeliest and shortest first.

        Fault("conv.cl", "no shift of phases", "phase_x + PHASE_SHIFT_X", "phase_x", ("device/test_convolution.py",))
    """

    file: str
    what: str
    text: str
    replacement: str
    tests: tuple[str, ...]

    def plant(self, root: Path) -> str:
        """Changes the file in a tree. Returns its text before. Raises ValueError if the place is not there once."""
        path = root / "imgconv" / self.file
        before = path.read_text(encoding="utf-8")
        if before.count(self.text) != 1:
            raise ValueError(f"{self.file} has {before.count(self.text)} times {self.text!r}, not once: mend the table")
        path.write_text(before.replace(self.text, self.replacement), encoding="utf-8")
        return before

    def heal(self, root: Path, before: str) -> None:
        """Puts the text back that `plant` returned."""
        (root / "imgconv" / self.file).write_text(before, encoding="utf-8")

    def __str__(self) -> str:
        return f"{self.file}: {self.what}"
