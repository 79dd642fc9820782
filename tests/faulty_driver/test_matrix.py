"""Models under every fault: the outcome is right, or an error that says what was refused and what to do.

test_builds.py has the faults of compilers, test_hanging.py what never ends.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from faulty_driver.matrix import FROM_THE_START, IN_RUNS, NAMES, REAL_CASES, problems, real_model, small_models, under
from faulty_driver.outcomes import Case, outcomes_of
from published import needs_models

from imgconv.cl.context import ADVICE, LOST_ADVICE, SHORTAGE_ADVICE

REMEDIES = (ADVICE, LOST_ADVICE, SHORTAGE_ADVICE, "the driver has to be updated")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of XDG_CACHE_HOME, in which the programs of models are kept."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    return small_models(tmp_path_factory.mktemp("models"))


@pytest.mark.parametrize("name", NAMES)
def test_faults_from_the_start(models: dict[str, Case], name: str, cache: Path) -> None:
    found, status = outcomes_of([models[name], *under(models[name], FROM_THE_START, True)], cache)
    assert not list(problems({"": ""} | FROM_THE_START, found, REMEDIES)) and status == 0


@pytest.mark.parametrize("name", NAMES)
def test_faults_in_runs(models: dict[str, Case], name: str, cache: Path) -> None:
    found, status = outcomes_of(under(models[name], IN_RUNS, False), cache)
    assert not list(problems(IN_RUNS, found, REMEDIES)) and status == 0


@pytest.mark.models
@needs_models
@pytest.mark.parametrize("path", REAL_CASES)
def test_real_models(path: str, cache: Path) -> None:
    for faults, from_the_start in (FROM_THE_START, True), (IN_RUNS, False):
        found, status = outcomes_of(under(real_model(path), faults, from_the_start), cache, seconds=1800)
        assert not list(problems(faults, found, REMEDIES)) and status == 0


def test_what_failed_is_named(models: dict[str, Case], cache: Path) -> None:
    """The launch that failed while it ran, and the tensor whose memory is missing when it is filled."""
    late, failed = under(models["convolutions"], {"late=1": "", "fail=execution:-36@3": ""}, True)
    (no_memory, lost), _ = outcomes_of([late, failed], cache)
    assert re.match("tensor '.*': an upload of", no_memory.message), no_memory
    assert re.match("launch '.*kernel 'k2', .*it failed while it ran", lost.message), lost
