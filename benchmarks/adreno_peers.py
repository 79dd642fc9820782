"""A network's convolutions on an Adreno next to those of other engines, by the model and by Mesa's code of each.

Only layers count whose kind the other engines' kernels were compiled for (benchmarks/published.py): 1x1 and 3x3
convolutions without groups, and 3x3 depthwise ones, of square maps. Of imgconv all launches of such a layer count, with
what is fused into them; other launches, of any engine, are left out, and so are other engines' Winograd kernels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.adreno_bounds import problems_of
from benchmarks.adreno_rows import Row, Total
from benchmarks.measure import Column, digits, milliseconds
from benchmarks.published import ENGINES, Kind, Layer
from imgconv.compiling.plan import Launch
from imgconv.kernels.conv.problem import Problem
from imgconv.kernels.winograd.problem import Problem as Winograd2d


@dataclass(frozen=True)
class Comparison:
    """The seconds of one engine for the layers that can be compared. layers: how many; all_layers: of the network."""

    network: str
    engine: str
    layers: int
    all_layers: int
    multiply_adds: int
    seconds: float
    pessimistic_seconds: float

    def to_json(self) -> dict[str, Any]:
        return {
            "network": self.network, "engine": self.engine, "layers": self.layers, "all_layers": self.all_layers,
            "multiply_adds": self.multiply_adds, "predicted_seconds": self.seconds,
            "seconds_without_overlap": self.pessimistic_seconds,
        }


def compare(total: Total) -> Iterator[Comparison]:
    """imgconv, then the other engines, each with the layers of the network that can be compared."""
    found = list(layers_of(total.rows))
    known = [(layer, rows) for layer, rows in found if layer is not None]
    rows = [row for _, of_layer in known for row in of_layer]
    layers = [layer for layer, _ in known]
    multiply_adds = sum(layer.terms * layer.filters * layer.size**2 for layer in layers)
    made = [("imgconv", [row.time for row in rows])]
    made += [(engine.name, engine.times(layers, total.gpu)) for engine in ENGINES]
    for name, times in made:
        yield Comparison(
            total.network, name, len(layers), len(found), multiply_adds, sum(time.seconds for time in times),
            sum(time.pessimistic_seconds for time in times),
        )


def layers_of(rows: Iterable[Row]) -> Iterator[tuple[Layer | None, Sequence[Row]]]:
    """Each convolution as a Layer with its launches; None in place of a Layer that cannot be compared."""
    before: list[Row] = []
    for row in rows:
        if row.launch.name.endswith((".taps", ".sums")):
            before.append(row)
            continue
        problems = _convolutions(row.launch)
        layers = [_layer_of(problem) for problem in problems]
        for number, layer in enumerate(layers):
            yield (None if None in layers else layer), [] if number else [*before, row]
        before = []


def _convolutions(launch: Launch) -> tuple[Problem, ...]:
    """The convolutions whose results a launch computes."""
    problem = launch.choice and launch.choice.problem
    return (problem.convolution,) if isinstance(problem, Winograd2d) else problems_of(launch)


def _layer_of(problem: Problem) -> Layer | None:
    rows, columns = problem.output_size
    plain = problem.phases == problem.dilations == (1, 1) and problem.batch == 1 and rows == columns
    if not plain or problem.strides[0] != problem.strides[1]:
        return None
    kinds: dict[tuple[bool, int, tuple[int, int]], Kind] = {
        (False, 1, (1, 1)): "1x1", (False, 1, (3, 3)): "3x3", (True, problem.groups, (3, 3)): "depthwise",
    }
    kind = kinds.get((problem.depthwise, problem.groups, problem.window))
    return Layer(kind, problem.channels, problem.filters, rows, problem.strides[0]) if kind else None


COLUMNS = (
    Column("network", lambda c: c.network), Column("engine", lambda c: c.engine, True),
    Column("layers", lambda c: f"{c.layers} of {c.all_layers}"),
    Column("MMAC", lambda c: digits(c.multiply_adds / 1e6)), Column("ms", lambda c: milliseconds(c.seconds)),
    Column("no overlap", lambda c: milliseconds(c.pessimistic_seconds)),
)
