"""Faults, planted one at a time: does `make test` notice them?

    python -m tests.tools.faults --list             the faults, by number
    python -m tests.tools.faults                    plant each of them; hours
    python -m tests.tools.faults --only 3 17        these two; seconds each if they are caught
    python -m tests.tools.faults --likely           only the tests that are likely to notice; minutes

Each fault is a small change of a kernel, of what makes its text, of the planning, of a pass or of a wait. It is applied
to a copy of the working tree, and the tests run there until one fails: first those of the fault's own list, then all
that `make test` selects. A fault is caught if a test fails with it and passes without it. Snapshots are left out: they
say that a kernel's text changed, not that it is wrong.

    fault.py       what a fault is
    kernels.py     faults in .cl files
    texts.py       faults in what makes the texts of kernels, and their sizes
    planning.py    faults in layouts, memory planning and running
    graphs.py      faults in passes and in the arithmetic of views
    waits.py       faults in waits for a device and in the processes that build programs
"""

from __future__ import annotations

from . import graphs, kernels, planning, texts, waits
from .fault import Fault

FAULTS: tuple[Fault, ...] = (
    *kernels.FAULTS, *texts.FAULTS, *planning.FAULTS, *graphs.FAULTS, *waits.FAULTS,
)
