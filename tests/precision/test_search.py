"""The search alone, with costs that are given."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from imgconv.precision.search import (
    ItemBlock, SearchResult, TrialBudget, by_cost_per_size, measured_blocks, search, blocks_over_budget, trials_within
)

MOST = (1.0, 0.7, 0.5, 0.35, 0.25, 0.125)


class Costs:
    """Items whose costs add up as squares. asked: the sets whose cost, or admission, was asked for."""

    def __init__(self, costs: Mapping[str, float], bound: float, budget: TrialBudget) -> None:
        self.costs, self.bound, self.budget = costs, bound, budget
        self.asked: list[frozenset[str]] = []

    def cost(self, names: frozenset[str]) -> float:
        self.budget.spend()
        self.asked.append(names)
        return float(sum(self.costs[name] ** 2 for name in names) ** 0.5)

    def allowed(self, names: frozenset[str]) -> bool:
        return self.cost(names) <= self.bound


def found_with(
    costs: Mapping[str, float], runs: int | None = None, sizes: Mapping[str, int] | None = None
) -> SearchResult:
    budget = TrialBudget(runs)
    given = Costs(costs, 1.0, budget)
    return search(sizes or dict.fromkeys(costs, 1), given.cost, given.allowed, MOST, budget)


def test_nothing_is_split_if_all_may_be_narrow() -> None:
    given = Costs({"a": 0.5, "b": 0.5}, 1.0, TrialBudget())
    assert search({"a": 1, "b": 1}, given.cost, given.allowed, MOST, given.budget) == SearchResult(frozenset("ab"))
    assert given.asked == [frozenset("ab")]


def test_only_what_costs_too_much_stays_wide() -> None:
    """Two of 40 items are sensitive and stay wide; the others together cost nearly the bound."""
    costs = {f"item {n}": 0.1 for n in range(40)} | {"item 7": 3.0, "item 30": 2.0}
    found = found_with(costs)
    assert found.narrow == costs.keys() - {"item 7", "item 30"} and not found.undecided


def test_nothing_is_narrow_if_each_item_costs_too_much() -> None:
    assert found_with(dict.fromkeys("abcdef", 2.0)) == SearchResult(frozenset())


def test_the_rule_of_squares_decides_nothing() -> None:
    """Costs that add up themselves, not as squares: more stays wide until the outputs are within the bound."""
    names = [f"item {n}" for n in range(16)]
    found = search(dict.fromkeys(names, 1), lambda b: 0.2 * len(b), lambda b: 0.2 * len(b) <= 1, MOST, TrialBudget())
    assert 1 <= len(found.narrow) <= 5


@pytest.mark.parametrize("runs", range(0, 40, 3))
def test_what_is_undecided_stays_wide(runs: int) -> None:
    """However few runs there are: the result is within the bound, and the budget is not exceeded by more than a split.

    All sensitive items stay wide, and what else stays wide is called undecided.
    """
    costs = {f"item {n}": 0.01 for n in range(64)} | {"item 9": 5.0}
    budget = TrialBudget(runs)
    given = Costs(costs, 1.0, budget)
    found = search(dict.fromkeys(costs, 1), given.cost, given.allowed, MOST, budget)
    assert not found.narrow & {"item 9"} and not found.narrow & found.undecided
    assert found.narrow | found.undecided | {"item 9"} == costs.keys()
    assert len(given.asked) - 1 <= runs + 4  # the first question, of all, is in any case


def test_more_runs_decide_more() -> None:
    costs = {f"item {n}": 0.01 for n in range(64)} | {"item 9": 5.0}
    counts = [len(found_with(costs, runs).narrow) for runs in (0, 10, 40)] + [len(found_with(costs).narrow)]
    assert counts == sorted(counts) and counts[0] == 0 and counts[-1] == 63


def test_a_sensitive_item_is_found_in_few_runs() -> None:
    """One of 23: blocks of four parts, each of which is measured once."""
    names = {f"item {n}": 1 for n in range(23)}
    asked: list[frozenset[str]] = []

    def cost(names: frozenset[str]) -> float:
        asked.append(names)
        return float("item 13" in names)

    blocks, ended = measured_blocks(names, cost, 0.1, TrialBudget())
    assert ended and sorted(name for block in blocks for name in block.names) == sorted(names)
    assert max(blocks, key=lambda block: block.error).names == ("item 13",)
    assert len(asked) == len(set(asked)) <= 12


def test_small_blocks_are_not_split() -> None:
    """Sensitive items that are a thousandth of all numbers are not told apart."""
    sizes = {"large": 10_000, "a": 5, "b": 5}
    blocks, ended = measured_blocks(sizes, lambda names: float("large" not in names), 0.1, TrialBudget())
    assert ended and {block.names for block in blocks} == {("large",), ("a",), ("b",)}
    sizes = {f"item {n}": 10_000 for n in range(3)} | {"a": 5, "b": 5}
    blocks, _ = measured_blocks(sizes, lambda names: float(bool(names & {"a", "b"})), 0.1, TrialBudget())
    assert ("a", "b") in {block.names for block in blocks}


def test_what_costs_most_for_its_size_comes_first() -> None:
    """The small value stays fp32 before the large one, whose squared error is smaller for its size."""
    blocks = [ItemBlock(("large", "too"), 0.4, 1000), ItemBlock(("small",), 0.04, 1), ItemBlock(("none",), 0.0, 0)]
    assert [block.names[0] for block in by_cost_per_size(blocks)] == ["small", "large", "none"]
    assert by_cost_per_size([*blocks, ItemBlock(("lost",), float("inf"), 10)])[0].names == ("lost",)


def test_a_block_without_room_does_not_keep_others_wide() -> None:
    """The large block costs too much alone. Half of the others' cost has room."""
    large, small = ItemBlock(("large",), 0.2, 1000), [ItemBlock((str(number),), 0.05, 1) for number in range(6)]
    assert by_cost_per_size([large, *small])[-1] is large
    kept = blocks_over_budget([large, *small], 0.1)
    assert large in kept and len(kept) == 3
    assert blocks_over_budget(small, 0.05 * 6**0.5 + 1e-9) == [] and len(blocks_over_budget(small, 0.0)) == 6


def test_trials_within_a_time() -> None:
    assert trials_within(None, 0.5, 7) == 7 and trials_within(None, 0.5, None) is None
    assert trials_within(3.0, 0.5, None) == 6 and trials_within(3.0, 0.5, 7, searches=2) == 3
    assert trials_within(0.0, 0.0, None) == 0
