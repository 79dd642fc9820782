"""Tests under oclgrind, a simulator that reports what is read or written outside of memory, and data races.

    python -m tests.tools.oclgrind                 the device tests of every kernel variant; over an hour
    python -m tests.tools.oclgrind row_groups windows    those of tests/device/test_row_groups.py and test_windows.py

The tests run with oclgrind as the only device. tests/device/test_oclgrind.py runs a sample of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
# Files of tests/device by their subjects, and what of them takes too long on a simulator.
SUBJECTS = {
    "tables": "", "epilogue": "", "convolution": "not past_short", "byte_weights": "",
    "product": "not large_weights", "separable": "", "squeeze_excite": "not network",
    "order": "not three_digits and not long_rows", "recurrence": "not many_numbers",
    "row_groups": "not 1024 and not 8100", "moments": "", "windows": "not large",
    "generated": "not operations and not past_short", "reductions": "not huge and not repeated", "neighbours": "",
    "integers": "", "out_of_range": "", "picture": "", "pixels": "", "video_frames": "",
    "drivers": "needed", "workspace": "other_textures or stale",
}


def under_oclgrind(log: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python with some arguments, in the repository's root, with oclgrind as the only driver."""
    # Its optimiser drops reads that nothing uses, and makes 255 of a comparison that becomes a float (21.10).
    options = ("--build-options", "-cl-opt-disable", "--data-races", "--compute-units", "2", "--max-errors", "20")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["XDG_CACHE_HOME"] = str(log.parent)  # no program that was built with other options
    return subprocess.run(
        ["oclgrind", *options, "--log", str(log), sys.executable, *arguments], cwd=ROOT, env=environment, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )


def run_tests(log: Path, subject: str, chosen: str) -> subprocess.CompletedProcess[str]:
    """The tests of tests/device/test_<subject>.py that an expression of pytest's -k chooses, under oclgrind."""
    expression = f"oclgrind and ({chosen})" if chosen else "oclgrind"
    file = f"tests/device/test_{subject}.py"
    return under_oclgrind(log, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", file, "-k", expression)


def main(subjects: Sequence[str]) -> int:
    """Prints a line for each subject. Returns 1 if a test failed or something was reported."""
    wrong = False
    for subject in subjects or SUBJECTS:
        with tempfile.TemporaryDirectory(prefix="imgconv-oclgrind-") as folder:
            log, began = Path(folder, "log"), time.monotonic()
            done = run_tests(log, subject, SUBJECTS[subject])
            reported = log.read_text()
            reports = reported.count("\n\n") + 1 if reported.strip() else 0
            last = done.stdout.strip().splitlines()[-1:] or ["nothing"]
            print(f"{subject}: {reports} reports; {last[0]} ({time.monotonic() - began:.0f} s)", flush=True)
            wrong |= bool(reported.strip()) or done.returncode != 0
            if reported.strip() or done.returncode:
                print(reported[:4000] or done.stdout[-4000:], flush=True)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
