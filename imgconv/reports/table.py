"""Tables that fit the terminal: the least important columns are left out first, then texts are shortened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from imgconv.reports import terminal

GAP = 2  # between columns
READABLE = 18  # characters that a text keeps while less important columns are there
SHORT = 8  # characters that it keeps at least
WIDEST = 200  # characters of a row in a file or a pipe, if an option shows more


@dataclass(frozen=True)
class Column:
    """rank: columns of the highest rank go first, those of rank 0 never. text: it may be cut, and is on the left.

    wraps: a text goes on in more lines instead.
    """

    title: str
    rank: int = 0
    text: bool = False
    wraps: bool = False


def fitting_columns(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> dict[int, int]:
    """The columns that fit into `width` characters, with the width of each, by their places.

        fitting_columns([Column("name", text=True), Column("ms")], [("a long name", "0.5")], 14)    # {0: 9, 1: 3}
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
    return _shrink_widths({n: wide[n] for n in kept}, least, width)


def _shrink_widths(wide: dict[int, int], least: dict[int, int], width: int) -> dict[int, int]:
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
    styles: Sequence[str | None] = (), hint: str = "",
) -> None:
    """Prints the rows. everything: every column, and texts on several lines. styles: of rows, in rich's names.

    hint: the option that shows the columns that were left out. Everything is a list if the terminal is too narrow.
    """
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, GAP - 1, 0, 0))
    room = min(console.width, WIDEST if hint else console.width)
    shown = fitting_columns(columns, rows, 1 << 20 if everything else room)
    styles = styles or [None] * len(rows)
    readable = [min(width, READABLE) if columns[n].text else width for n, width in shown.items()]
    if everything and sum(readable) + GAP * (len(readable) - 1) > console.width:
        _print_list(console, [columns[n].title for n in shown], [[row[n] for n in shown] for row in rows], styles)
        return
    for n, width in shown.items():
        fixed, wraps = None if everything else width, everything or columns[n].wraps
        table.add_column(
            columns[n].title, justify="left" if columns[n].text else "right", width=fixed, no_wrap=not wraps,
            overflow="fold" if wraps else "ellipsis",
        )
    for row, style in zip(rows, styles, strict=True):
        table.add_row(*(row[n] for n in shown), style=style)
    with console.capture() as printed:
        console.print(table)
    for line in printed.get().splitlines():
        print(line.rstrip())
    hidden = sum(n not in shown and any(row[n] for row in rows) for n in range(len(columns)))
    if hidden and hint:
        console.print(f"{hidden} more column{'s' * (hidden > 1)}: {hint}", style="dim")


def _print_list(
    console: Console, titles: Sequence[str], rows: Sequence[Sequence[str]], styles: Sequence[str | None]
) -> None:
    """Prints a line for each cell that has a text, below the first one of its row."""
    for row, style in zip(rows, styles, strict=True):
        console.print(f"{titles[0]} {row[0]}", style=style or "bold")
        for title, text in zip(titles[1:], row[1:], strict=True):
            if text:
                terminal.print_at(console, 2, f"{title}: {text}", style, under=6)
