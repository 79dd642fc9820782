"""The check of a load finds wrong kernels and lost launches: the outputs are right, or an error names the launch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from faulty_driver import met
from faulty_driver.matrix import small_models
from faulty_driver.outcomes import Case, Outcome, outcomes_of

# Faults of compilers, as pieces of kernels' texts that are swapped, by the small model in which they matter.
SWAPS = {
    "convolutions": {
        "a shifted column": "first_column * STRIDE_X - PAD_X=>max(first_column * STRIDE_X - PAD_X - 1, -PAD_X)",
        "a shifted row": "first_row * STRIDE_Y - PAD_Y=>max(first_row * STRIDE_Y - PAD_Y - 1, -PAD_Y)",
        "one lane for all": "(VECTOR)(texel.channel), weight_##channel=>(VECTOR)(texel.x), weight_##channel",
        "a loop that ends early": "chunk < INPUT_QUADS=>chunk < INPUT_QUADS - 1",
        "the larger in place of the smaller": "fmax(=>fmin(",
        "a wrong function": "1.0f + exp_of(=>1.0078125f + exp_of(",
        "an output that is not written": "write_imagef(output=>if (0) write_imagef(output",
        "a lost barrier": "barrier(CLK_LOCAL_MEM_FENCE)=>",
    },
    "sequences": {
        "exchanged lanes": "left = state[k]=>left = state[k].yxzw",
        "a lost state": "k < OUTPUT_QUADS=>k < OUTPUT_QUADS - 1",
        "a wrong comparison": " != 0.0f)=> == 0.0f)",
        "a wrong quotient": " / (=> * (",
        "a wrong function": "1.0f + exp_of(=>1.0078125f + exp_of(",
    },
}
# Those that a load is tried with; tests/checking/test_changed_kernels.py changes one kernel at a time.
AT_LOAD = {
    "convolutions": (
        "one lane for all", "a wrong function", "an output that is not written", "a lost barrier",
    ),
    "sequences": ("exchanged lanes", "a wrong comparison"),
}
LOST = ("lose=2", "lose=3", "lose=5", "lose=7", "recordable;lose=5")
FOUND = "its result is wrong"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    return small_models(tmp_path_factory.mktemp("models"))


def under_swaps(case: Case, swaps: Sequence[str], folder: Path) -> list[Case]:
    """The case under each swap, with nothing kept from another one."""
    faults = [f"adreno;swap={swap}" for swap in swaps]
    caches = [folder / str(number) for number in range(len(swaps))]
    for cache in caches:
        cache.mkdir()
    return [replace(case, at_load=f, in_runs=f, cache=str(c)) for f, c in zip(faults, caches, strict=True)]


def problem(made: Outcome) -> str:
    """Says what is wrong with the outcome of a model some of whose kernels are wrong."""
    if made.result == "right":
        return "" if any(FOUND in text for text in made.warned) else f"nothing was found: {made}"
    is_named = made.result == "DeviceError" and "launch '" in made.message and "Update the driver" in made.message
    return "" if made.stage == "load" and is_named else str(made)


@pytest.mark.parametrize("name", SWAPS)
def test_wrong_kernels_are_found(models: dict[str, Case], name: str, tmp_path: Path) -> None:
    swaps = {what: SWAPS[name][what] for what in AT_LOAD[name]}
    found, status = outcomes_of(under_swaps(models[name], list(swaps.values()), tmp_path), tmp_path, seconds=1800)
    used = [what for what, swap in swaps.items() if any(swap in line for line in met(tmp_path))]
    assert used == list(swaps), "a text is in no kernel any more"
    problems = {what: problem(made) for what, made in zip(swaps, found, strict=True)}
    assert not any(problems.values()) and status == 0, problems


@pytest.mark.parametrize("name", SWAPS)
def test_lost_launches_are_found(models: dict[str, Case], name: str, tmp_path: Path) -> None:
    """Every Nth launch is lost, with N less than the launches of a run: the error names one, and blames no kernel."""
    faults = {f"adreno;{each}": tmp_path / str(number) for number, each in enumerate(LOST)}
    for cache in faults.values():
        cache.mkdir()
    cases = [replace(models[name], at_load=f, in_runs=f, cache=str(c)) for f, c in faults.items()]
    found, status = outcomes_of(cases, tmp_path)
    for made in found:
        assert (made.result, made.stage) == ("DeviceError", "load") and "loses launches" in made.message, made
        assert "launch '" in made.message and not any(FOUND in text for text in made.warned)
    assert len(found) == len(cases) and status == 0


def test_what_is_right_is_checked_once(models: dict[str, Case], tmp_path: Path) -> None:
    """A second load is not checked again: it gives wrong results with a kernel that is wrong from then on."""
    swap = f"adreno;swap={next(iter(SWAPS['convolutions'].values()))}"
    case = models["convolutions"]
    later = replace(case, at_load=swap, in_runs=swap)
    binaries = "adreno;binary=empty"  # the programs are built again
    elsewhere = replace(later, cache=str(tmp_path / "x"), settings={"check": False})
    (first, second, unchecked), status = outcomes_of([replace(case, at_load=binaries), later, elsewhere], tmp_path)
    assert (first.result, second.result, unchecked.result, status) == ("right", "wrong", "wrong", 0)
    assert not first.warned


# Pieces of texts that are in kernels of every real model, for the player.
REAL_SWAPS = (
    "first_column * STRIDE_X - PAD_X=>max(first_column * STRIDE_X - PAD_X - 1, -PAD_X)",
    "chunk < INPUT_QUADS=>chunk < INPUT_QUADS - 1",
    "(VECTOR)(texel.channel), weight_##channel=>(VECTOR)(texel.x), weight_##channel",
    "first_row * STRIDE_Y - PAD_Y=>max(first_row * STRIDE_Y - PAD_Y - 1, -PAD_Y)",
)
