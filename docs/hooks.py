"""Fills the table of operators, from imgconv.ops, into the pages that MkDocs builds."""

from __future__ import annotations

from itertools import groupby
from typing import Any

MARK = "{{ operators }}"


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by MkDocs for each page."""
    return markdown.replace(MARK, operators()) if MARK in markdown else markdown


def operators() -> str:
    """A table: ONNX's own operators by their first letter, then a row for each further domain."""
    from imgconv import ops

    parted = (each.rpartition(".") for each in ops.supported())
    names = sorted((domain or "ai.onnx", name) for domain, _, name in parted)
    lines = ["| domain | operators |", "|---|---|"]
    for (domain, _), group in groupby(names, key=lambda pair: (pair[0], pair[1][0] if pair[0] == "ai.onnx" else "")):
        lines.append(f"| {domain} | {', '.join(f'`{name}`' for _, name in group)} |")
    return "\n".join(lines)
