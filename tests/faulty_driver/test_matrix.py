"""Models under every fault: the outcome is right, or an error that says what was refused and what to do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from faulty_driver.matrix import FROM_THE_START, IN_RUNS, OF_BUILDS, problems, small_models, under
from faulty_driver.outcomes import Case, outcomes_of
from published import REAL, needs_models

from imgconv.cl.device import ADVICE, LOST_ADVICE, SHORTAGE_ADVICE

REMEDIES = (ADVICE, LOST_ADVICE, SHORTAGE_ADVICE)
NAMES = ("convolutions", "sequences")
# Of real models: a case each.
REAL_CASES = {
    "espcn/espcn.onnx": "case_espcn_zoo", "minifasnet/minifasnet_v2.onnx": "case_fas_MiniFASNetV2_T1",
    "squeezenet/squeezenet.onnx": "case_squeezenet_fp32_fish", "yolox_nano/yolox_nano.onnx": "case_yolox_nano_139",
    "ultraface/ultraface_rfb320.onnx": "case_ultraface_rfb320_1",
}


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


def test_builds_that_fail(models: dict[str, Case], tmp_path: Path) -> None:
    """The first of them is named, with its status, if it fails alone too."""
    cases = under(models["convolutions"], OF_BUILDS, True)
    found, status = outcomes_of(
        [replace(case, cache=str(tmp_path / str(number))) for number, case in enumerate(cases)], tmp_path
    )
    assert not list(problems(OF_BUILDS, found, ("",))) and status == 0


@pytest.mark.parametrize("binary", ("refuse", "empty", "unbuilt"))
def test_binaries_that_are_no_good(models: dict[str, Case], binary: str, tmp_path: Path) -> None:
    """What the cache has is not believed: twice with the fault, and once more without it."""
    faults = {"": "", f"binary={binary}": "", f"binary={binary};": "", ";": ""}
    found, status = outcomes_of(under(models["convolutions"], faults, True), tmp_path)
    assert not list(problems(faults, found, ())) and status == 0


@pytest.mark.models
@needs_models
@pytest.mark.parametrize("path", REAL_CASES)
def test_real_models(path: str, cache: Path) -> None:
    numbers = (REAL / path).with_name(f"{REAL_CASES[path]}.npz")
    case = Case(str(REAL / path), str(numbers), tolerance=1e-3)  # float in another order than onnxruntime's
    for faults, from_the_start in (FROM_THE_START, True), (IN_RUNS, False):
        found, status = outcomes_of(under(case, faults, from_the_start), cache, seconds=1800)
        assert not list(problems(faults, found, REMEDIES)) and status == 0
