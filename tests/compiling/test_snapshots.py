"""Plans and kernel texts of known networks are those of snapshots.json.

Where they are meant to change, `python -m tests.tools.snapshots --write` renews that file.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
import snapshots
from snapshots import Case


def check(cases: Sequence[Case]) -> None:
    known = snapshots.stored()
    found = [snapshots.differences(case, known.get(str(case)), snapshots.snapshot(case)) for case in cases]
    lines = list(itertools.chain.from_iterable(found))
    assert not lines, "\n".join(lines)


def by_network(cases: Sequence[Case]) -> list[list[Case]]:
    """In lists of one network each, which is built once for all of them."""
    ordered = sorted(cases, key=lambda case: (case.network, case.full))
    return [list(group) for _, group in itertools.groupby(ordered, lambda case: (case.network, case.full))]


def name_of(cases: Sequence[Case]) -> str:
    return cases[0].network + ("-full" if cases[0].full else "")


@pytest.mark.parametrize("cases", by_network(snapshots.quick()), ids=name_of)
def test_small_networks(cases: Sequence[Case]) -> None:
    check(cases)


@pytest.mark.models
@pytest.mark.parametrize("cases", by_network(snapshots.thorough()), ids=name_of)
def test_other_modes_and_full_sizes(cases: Sequence[Case]) -> None:
    check(cases)


@pytest.mark.models
def test_models_of_others() -> None:
    cases = snapshots.from_files()
    if not cases:
        pytest.skip("IMGCONV_MODELS does not name a folder of models: their snapshots did not run")
    check(cases)


def test_a_difference_is_named() -> None:
    """A changed text, a missing template and a count are told apart."""
    case = Case("squeezenet", "cpu")
    found = snapshots.snapshot(case)
    known = {**found, "launches": 1, "texts": {**found["texts"], "conv.cl": "another", "more.cl": "gone"}}
    assert list(snapshots.differences(case, found, found)) == []
    assert list(snapshots.differences(case, known, found)) == [
        f"{case}: launches 1 -> {found['launches']}", f"{case}: text of conv.cl changed",
        f"{case}: text of more.cl changed",
    ]
