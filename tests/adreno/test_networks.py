"""Every kernel variant, and whole networks, as Mesa's code for Adreno GPUs in the simulator, where Mesa was built.

`make adreno` runs more: benchmarks/adreno_simulator says what.
"""

from __future__ import annotations

import pytest

from benchmarks.adreno_mesa import Mesa
from benchmarks.adreno_simulator.__main__ import VARIANTS, Case, run

MODES = (0, 1, 2)


@pytest.mark.models
@pytest.mark.parametrize("float16", MODES)
@pytest.mark.parametrize("gpu", [630, 650, 740])
def test_every_form_is_right(mesa: Mesa, gpu: int, float16: int) -> None:
    made = run(mesa, Case(VARIANTS, gpu, float16))
    assert made.launches > 150 and not made.wrong


@pytest.mark.models
@pytest.mark.parametrize("float16", MODES)
@pytest.mark.parametrize("name", ["squeezenet", "mobilenet_v2", "supercombo"])
def test_every_launch_is_right(mesa: Mesa, name: str, float16: int) -> None:
    made = run(mesa, Case(name, 630, float16))
    assert made.launches > 20 and not made.wrong
