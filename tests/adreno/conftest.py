"""Mesa's compiler for Adreno GPUs, for the tests in this folder."""

from __future__ import annotations

import pytest

from benchmarks.adreno_mesa import Mesa, find_mesa
from imgconv.errors import Error


@pytest.fixture(scope="session")
def mesa() -> Mesa:
    try:
        return find_mesa(integer_coordinates=True)
    except Error:
        pytest.skip("Mesa's compiler for Adreno was not built here")
