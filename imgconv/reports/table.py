"""Tables as wide as the terminal: the least important columns go first, then texts are cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

GAP = 2  # between columns
READABLE = 18  # characters that a text keeps while less important columns are there
SHORT = 8  # characters that it keeps at least


@dataclass(frozen=True)
class Column:
    """rank: columns of the highest rank go first, those of rank 0 never. text: it may be cut, and is on the left."""

    title: str
    rank: int = 0
    text: bool = False


def fitting(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> dict[int, int]:
    """The columns that fit into `width` characters, with the width of each, by their places.

        fitting([Column("name", text=True), Column("ms")], [("a long name", "0.5")], 14)    # {0: 9, 1: 3}
    """
    wide = {n: max(cell_len(text) for text in (each.title, *(row[n] for row in rows)))
            for n, each in enumerate(columns)}
    readable = {n: min(size, READABLE) if columns[n].text else size for n, size in wide.items()}
    kept = [n for n in wide if any(row[n] for row in rows) or not columns[n].rank]
    while sum(readable[n] + GAP for n in kept) - GAP > width:
        gone = max(kept, key=lambda n: (columns[n].rank, n))
        if not columns[gone].rank:
            break
        kept.remove(gone)
    least = {n: min(size, SHORT) if columns[n].text else size for n, size in wide.items()}
    return _cut({n: wide[n] for n in kept}, least, width)


def _cut(wide: dict[int, int], least: dict[int, int], width: int) -> dict[int, int]:
    """The widths after the widest texts were cut."""
    over = sum(wide.values()) + GAP * (len(wide) - 1) - width
    while over > 0:
        longest = max(wide, key=lambda n: wide[n] - least[n])
        if wide[longest] <= least[longest]:
            break
        wide[longest] -= 1
        over -= 1
    return wide


def print_table(
    console: Console, columns: Sequence[Column], rows: Sequence[Sequence[str]], everything: bool = False,
    styles: Sequence[str | None] = (), hint: str = "", widest: int = 1 << 20,
) -> None:
    """Prints the rows. everything: every column, and texts on several lines. styles: of rows, in rich's names.

    hint: the option that shows the columns that were left out; widest: the most columns of characters, unless
    everything is shown.
    """
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, GAP - 1, 0, 0))
    shown = fitting(columns, rows, 1 << 20 if everything else min(console.width, widest))
    for n, width in shown.items():
        fixed = None if everything else width
        table.add_column(
            columns[n].title, justify="left" if columns[n].text else "right", width=fixed, no_wrap=not everything,
            overflow="fold" if everything else "ellipsis",
        )
    for row, style in zip(rows, styles or [None] * len(rows), strict=True):
        table.add_row(*(row[n] for n in shown), style=style)
    console.print(table)
    hidden = sum(n not in shown and any(row[n] for row in rows) for n in range(len(columns)))
    if hidden and hint:
        console.print(f"{hidden} more column{'s' * (hidden > 1)}: {hint}", style="dim")
