"""The search algorithm: finds as many items as possible that can be narrow within a bound on the error, by trial runs.

Items are values that are fp16 (narrow) or fp32 (wide), or layers that sum in fp16 or wider. The search measures the
cost of blocks of items, each block alone, and repeatedly splits the most costly block. Rounding errors are nearly
independent, so the squares of costs add up. With this rule the search decides which blocks stay wide: those that cost
most for their size. It tries all others together, and makes smaller sets until the outputs are within the bound. The
rule only suggests sets; a trial run decides whether a set is accepted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

# One sensitive item among many is found in as many trials by splitting into four as into two, many in two thirds.
PARTS_OF_BLOCK = 4
# A block with a smaller part of all numbers than this is not split.
LITTLE = 0.01
# Of the trials of a search that has to stop, the part that finds out what blocks cost; the others try sets of blocks.
PART_OF_COSTS = 0.75


@dataclass
class TrialBudget:
    """The number of runs that a search may still make; None for no limit."""

    left: int | None = None

    def spend(self, runs: int = 1) -> None:
        """Counts runs that are made."""
        if self.left is not None:
            self.left = max(self.left - runs, 0)

    def has_more_than(self, runs: float) -> bool:
        """Returns whether more runs than this are left."""
        return self.left is None or self.left > runs


def trials_within(seconds: float | None, trial_seconds: float, runs: int | None, searches: int = 1) -> int | None:
    """Returns the trials that each of some searches may make: as many as take these seconds together.

    Without a time limit, they are `runs`.
    """
    return runs if seconds is None else int(seconds / max(trial_seconds, 1e-9) / searches)


@dataclass(frozen=True)
class ItemBlock:
    """Neighbouring items, and the relative error of the outputs if only these are narrow. size: in numbers."""

    names: tuple[str, ...]
    error: float
    size: int = 1


@dataclass(frozen=True)
class SearchResult:
    """The items that are narrow, and those that stay wide because the budget was spent before they were measured."""

    narrow: frozenset[str]
    undecided: frozenset[str] = frozenset()


def search(
    sizes: Mapping[str, int], cost: Callable[[frozenset[str]], float], allowed: Callable[[frozenset[str]], bool],
    most: Sequence[float], budget: TrialBudget,
) -> SearchResult:
    """Returns the items that may be narrow together. sizes: the sizes of all items, in their order.

    cost: the error if only these items are narrow; allowed: whether the outputs are within the bound if all of these
    items are narrow. most: the cost that narrow items may have by the rule of squares, from the boldest trial to the
    most cautious. Both functions count their runs in the budget.
    """
    every = frozenset(sizes)
    if not every or allowed(every):
        return SearchResult(every)
    blocks, ended = measured_blocks(sizes, cost, most[0], budget)
    tried = {every}
    for bound in most:
        wide = [name for block in blocks_over_budget(blocks, bound) for name in block.names]
        narrow = every.difference(wide)
        if not narrow:
            break
        if narrow in tried:
            continue
        if not budget.has_more_than(0):
            return SearchResult(frozenset(), every)
        tried.add(narrow)
        if allowed(narrow):
            unsplit = frozenset(name for block in blocks if len(block.names) > 1 for name in block.names)
            return SearchResult(narrow, frozenset() if ended else unsplit - narrow)
    return SearchResult(frozenset(), frozenset() if ended else every)


def measured_blocks(
    sizes: Mapping[str, int], cost: Callable[[frozenset[str]], float], most: float, budget: TrialBudget
) -> tuple[list[ItemBlock], bool]:
    """All items in blocks with their costs, and whether they are as small as they have to be.

    most: blocks that cost half of this together stay whole.
    """
    blocks, least = [ItemBlock(tuple(sizes), float("inf"), sum(sizes.values()))], LITTLE * sum(sizes.values())
    reserve = (1 - PART_OF_COSTS) * (budget.left or 0)
    while True:
        several = [block for block in blocks if len(block.names) > 1]
        splitting = [block for block in several if block.size > least]
        if not splitting or combined_error(several) <= most / 2:
            return blocks, True
        largest = max(splitting, key=lambda block: block.error)
        if not budget.has_more_than(reserve + PARTS_OF_BLOCK):
            return blocks, False
        blocks.remove(largest)
        names, count = largest.names, min(PARTS_OF_BLOCK, len(largest.names))
        ends = [len(names) * part // count for part in range(count + 1)]
        for start, end in pairwise(ends):
            part = names[start:end]
            blocks.append(ItemBlock(part, cost(frozenset(part)), sum(sizes[name] for name in part)))


def combined_error(blocks: Collection[ItemBlock]) -> float:
    """The error of all these blocks by the rule of squares."""
    return float(sum(block.error**2 for block in blocks) ** 0.5)


def by_cost_per_size(blocks: Collection[ItemBlock]) -> list[ItemBlock]:
    """The blocks, first those that cost most for their size: the squares of errors add up, and so do sizes."""
    return sorted(blocks, key=lambda block: -(block.error**2) / max(block.size, 1))


def blocks_over_budget(blocks: Collection[ItemBlock], most: float) -> list[ItemBlock]:
    """The blocks that stay wide, for the others to cost at most `most` together.

    A block that costs more than is left is passed over; smaller ones after it may still be narrow.
    """
    narrow: list[ItemBlock] = []
    for block in reversed(by_cost_per_size(blocks)):
        narrow += [block] if combined_error([*narrow, block]) <= most else []
    return [block for block in blocks if block not in narrow]
