"""Writes the measurements of `imgconv verify` as one HTML file: outputs, then layers, with a bar for each number."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import log10

from imgconv.kernels.target import HALF_MAX
from imgconv.reports.verify import SUM_TYPES, LayerErrors, first_problem, wrong_outputs

# The powers of ten at the left and the right end of a bar.
ERRORS = (-8.0, 1.0)
VALUES = (-3.0, 7.0)

STYLE = """
:root {
  color-scheme: light dark; --page: #f6f7f9; --panel: #fff; --ink: #1a1f26; --quiet: #5a6572; --line: #d5dae1;
  --track: #eceff3; --bar: #4a7db5; --over: #c9372c; --right: #17703f;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #111418; --panel: #1a1e24; --ink: #e6eaf0; --quiet: #9aa6b4; --line: #363d47; --track: #2a313b;
    --bar: #5b9bff; --over: #ff7b6e; --right: #4cc38a;
  }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1360px; padding: 16px; background: var(--page); color: var(--ink);
  font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.35rem; margin: 0 0 2px; overflow-wrap: anywhere; }
h2 { font-size: 1.08rem; margin: 0 0 4px; }
p { margin: 0 0 10px; }
section { background: var(--panel); border: 1px solid var(--line); border-radius: 8px;
  padding: 14px; margin: 0 0 16px; }
table { border-collapse: collapse; width: 100%; font-size: 0.88rem; }
th { text-align: left; color: var(--quiet); font-weight: 600; padding: 4px 8px; border-bottom: 1px solid var(--line); }
p { overflow-wrap: anywhere; }
td { padding: 4px 8px; border-bottom: 1px solid var(--track); vertical-align: top; overflow-wrap: break-word; }
td.name { font-weight: 600; max-width: 18em; overflow-wrap: anywhere; }
td.operation, .note { color: var(--quiet); }
.right { color: var(--right); font-weight: 600; }
.problem { color: var(--over); font-weight: 600; }
.scale { position: relative; min-width: 7em; height: 10px; margin-top: 6px; background: var(--track);
  border-radius: 3px; }
.bar { height: 100%; background: var(--bar); border-radius: 3px; }
.over { background: var(--over); }
.limit { position: absolute; top: -2px; bottom: -2px; width: 2px; background: var(--ink); }
.number { color: var(--quiet); font-variant-numeric: tabular-nums; }
@media (max-width: 720px) {
  table, tbody, tr, td { display: block; width: 100%; }
  thead { display: none; }
  tr { padding: 8px 0; border-bottom: 1px solid var(--line); }
  td { border: 0; padding: 2px 0; max-width: none; overflow-wrap: anywhere; display: grid;
    grid-template-columns: 7.5em 1fr; gap: 0 8px; }
  td.name { grid-template-columns: 1fr; max-width: none; }
  td:not(.name)::before { content: attr(data-title); color: var(--quiet); }
  td:empty { display: none; }
}
"""
TITLES = ("fp32 error, against onnxruntime", "fp16 error, against fp32", "largest value", "stored", "sums", "problem")


def html_page(title: str, about: str, layers: Sequence[LayerErrors], bound: float) -> str:
    """The page's text. It needs no other file and no network. about: a line below the title."""
    outputs = [layer for layer in layers if layer.is_output]
    over = sum(bool(layer.problem) for layer in layers)
    return f"""<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title><link rel="icon" href="data:,"><style>{STYLE}</style></head>
<body>
<h1>{escape(title)}</h1>
<p class="note">{escape(about)}</p>
{_summary(layers)}
<section><h2>Outputs</h2>
{_table("output", outputs, bound)}
</section>
<section><h2>Layers</h2>
<p>{over} of {len(layers)} layers are over a bound. The table shows where differences start. If all outputs are right, a
layer over its bound is not a fault.</p>
<p class="note">Bars are logarithmic. Errors are relative to the layer's largest value, from 1e{ERRORS[0]:.0f} to
1e{ERRORS[1]:.0f}; largest values are from 1e{VALUES[0]:.0f} to 1e{VALUES[1]:.0f}. Marks show the bounds,
{bound / 10:g} in fp32 and {bound:g} in fp16, and the largest fp16 value, {HALF_MAX:.0f}.</p>
{_table("layer", layers, bound)}
</section>
</body>
</html>
"""


def _summary(layers: Sequence[LayerErrors]) -> str:
    wrong, first = wrong_outputs(layers), first_problem(layers)
    if not wrong:
        half = next((layer for layer in layers if layer.in_half), None)
        rest = f"; with all values stored as fp16, {escape(half.name)} {escape(half.in_half)}" if half else ""
        return f'<p class="right">Every output is within its bound{rest}.</p>'
    begin = "" if first is None or first is wrong[0] else f"; first, {escape(first.name)} {escape(first.problem)}"
    return f'<p class="problem">Output {escape(wrong[0].name)} {escape(wrong[0].fault)}{begin}</p>'


def _table(first: str, layers: Sequence[LayerErrors], bound: float) -> str:
    headings = "".join(f"<th>{title}</th>" for title in (first, "operation", *TITLES))
    rows = "\n".join(_row(layer, bound) for layer in layers)
    return f"<table><thead><tr>{headings}</tr></thead><tbody>\n{rows}\n</tbody></table>"


def _row(layer: LayerErrors, bound: float) -> str:
    kind = "problem" if layer.problem else "note"
    contents = (
        _bar(layer.float_error, ERRORS, bound / 10), _bar(layer.half_error, ERRORS, bound),
        _bar(layer.largest, VALUES, HALF_MAX), escape(layer.stored), SUM_TYPES.get(layer.sums, ""),
        f'<span class="{kind}">{escape(layer.problem)}</span>' if layer.problem else "",
    )
    cells = "".join(f'<td data-title="{title}">{text}</td>' for title, text in zip(TITLES, contents, strict=True))
    operation = f'<td class="operation" data-title="operation">{escape(layer.operation)}</td>'
    name = f'<td class="name">{escape(layer.name)}</td>'
    return f'<tr title="{escape(", ".join(layer.origin))}">{name}{operation}{cells}</tr>'


def _bar(value: float | None, scale: tuple[float, float], limit: float) -> str:
    if value is None:
        return '<span class="note">not measured</span>'
    over = "" if value <= limit else " over"
    return (
        f'<div><div class="scale"><div class="bar{over}" style="width:{_percent(value, scale):.1f}%"></div>'
        f'<div class="limit" style="left:{_percent(limit, scale):.1f}%"></div></div>'
        f'<span class="number">{value:.2g}</span></div>'
    )


def _percent(value: float, scale: tuple[float, float]) -> float:
    """The position of a value between the ends of a logarithmic scale; NaN and infinity are at its right end."""
    if value == 0:
        return 0.0
    position = log10(value) if value < float("inf") else scale[1]
    return 100 * min(max((position - scale[0]) / (scale[1] - scale[0]), 0.0), 1.0)
