"""The candidates of a problem on an Adreno, by the time model on the machine code of Mesa's compiler."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from math import inf

from benchmarks.adreno_mesa import Mesa
from benchmarks.adreno_rows import row_of
from benchmarks.candidates import Asked, Row
from imgconv.kernels.device_model.adreno import Gpu
from imgconv.loading.tuner import prepare_copies


def predicted_rows(
    problems: Sequence[Asked], gpu: Gpu, mesa: Mesa, count: int | None, budget: float
) -> Iterator[Row]:
    """The rows one after another, until the budget of seconds is spent. count: of candidates, the first ones."""
    end = time.monotonic() + budget
    for asked in problems:
        if time.monotonic() > end:
            return
        choices = asked.candidates[:count]
        plan = prepare_copies(asked.prepared, asked.nodes, choices).plan()
        launches = [launch for launch in plan.launches if launch.specialisation]
        texts = list(dict.fromkeys(launch.source.text for launch in launches))
        compiled = mesa.compile(texts, [gpu.number])[gpu.number]
        rows = [row_of(launch, gpu, compiled[launch.source.text]) for launch in launches]
        seconds = tuple(inf if row.error else row.seconds for row in rows)
        yield Row(asked, len(choices), rows[0].error, seconds=() if rows[0].error else seconds)
