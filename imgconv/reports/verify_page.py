"""The measurements of `imgconv verify` as one HTML file: a row for each layer, with a bar for each number."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import log10

from imgconv.kernels.target import HALF_MAX
from imgconv.reports.verify import Layer, first_problem

# The powers of ten at the left and the right end of a bar.
ERRORS = (-8.0, 1.0)
VALUES = (-3.0, 7.0)

STYLE = """
body { font: 14px system-ui, sans-serif; margin: 2em; color: #222; background: #fff; }
h1 { font-size: 1.3em; margin-bottom: 0.2em; }
table { border-collapse: collapse; width: 100%; }
th { text-align: left; font-weight: 600; padding: 0.3em 0.6em; border-bottom: 1px solid #999; }
td { padding: 0.15em 0.6em; border-bottom: 1px solid #eee; vertical-align: middle; }
td.name { font-family: ui-monospace, monospace; max-width: 16em; overflow-wrap: anywhere; }
td.operation { color: #666; max-width: 22em; overflow-wrap: anywhere; }
tr.problem td { background: #fdecea; }
p.problem { color: #b3261e; font-weight: 600; }
.scale { position: relative; width: 11em; height: 0.8em; background: #f0f0f0; }
.bar { height: 100%; background: #4a7db5; }
.over { background: #c9372c; }
.limit { position: absolute; top: -0.1em; bottom: -0.1em; width: 1px; background: #222; }
.number { color: #444; font-variant-numeric: tabular-nums; }
.note { color: #666; }
"""


def page(title: str, about: str, layers: Sequence[Layer], bound: float) -> str:
    """The page's text. It needs no other file and no network. about: a line below the title."""
    first = first_problem(layers)
    verdict = '<p>Every layer is within its bound.</p>'
    if first:
        verdict = f'<p class="problem">First problem: {escape(first.name)} {escape(first.problem)}</p>'
    rows = "\n".join(_row(layer, bound) for layer in layers)
    return f"""<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>{escape(title)}</title><style>{STYLE}</style></head>
<body>
<h1>{escape(title)}</h1>
<p class="note">{escape(about)}</p>
{verdict}
<p class="note">Bars are logarithmic: errors from 1e{ERRORS[0]:.0f} to 1e{ERRORS[1]:.0f} of a layer's largest value,
largest values from 1e{VALUES[0]:.0f} to 1e{VALUES[1]:.0f}. Lines mark the bounds, {bound / 10:g} in float and {bound:g}
in half, and where half ends, at {HALF_MAX:.0f}.</p>
<table>
<tr><th></th><th>layer</th><th>operation</th><th>float, from onnxruntime</th><th>half, from float</th>
<th>largest value</th><th>stored</th><th>sums</th></tr>
{rows}
</table>
</body>
</html>
"""


def _row(layer: Layer, bound: float) -> str:
    kind, mark = (' class="problem"', "!") if layer.problem else ("", "")
    return (
        f'<tr{kind} title="{escape(layer.problem or ", ".join(layer.origin))}"><td>{mark}</td>'
        f'<td class="name">{escape(layer.name)}</td><td class="operation">{escape(layer.operation)}</td>'
        f"<td>{_bar(layer.float_error, ERRORS, bound / 10)}</td><td>{_bar(layer.half_error, ERRORS, bound)}</td>"
        f"<td>{_bar(layer.largest, VALUES, HALF_MAX)}</td><td>{escape(layer.stored)}</td>"
        f"<td>{escape(layer.sums)}</td></tr>"
    )


def _bar(value: float | None, scale: tuple[float, float], limit: float) -> str:
    if value is None:
        return '<span class="note">not measured</span>'
    over = "" if value <= limit else " over"
    return (
        f'<div class="scale"><div class="bar{over}" style="width:{_percent(value, scale):.1f}%"></div>'
        f'<div class="limit" style="left:{_percent(limit, scale):.1f}%"></div></div>'
        f'<span class="number">{value:.2g}</span>'
    )


def _percent(value: float, scale: tuple[float, float]) -> float:
    """The position of a value between the ends of a logarithmic scale; NaN and infinity are at its right end."""
    if value == 0:
        return 0.0
    position = log10(value) if value < float("inf") else scale[1]
    return 100 * min(max((position - scale[0]) / (scale[1] - scale[0]), 0.0), 1.0)
