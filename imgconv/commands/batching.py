"""Several pictures in one run: how many, put together and taken apart again."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy

from imgconv.arrays import Arrays, Declared, Shapes
from imgconv.commands.arguments import check_sizes
from imgconv.errors import Error, InputError
from imgconv.model import Model

TRIED = 8  # pictures at once
GAIN = 0.9  # of the time for each picture, at most, so that it is worth the memory
RUNS = 3
J = TypeVar("J")


def batch_shapes(declared: Declared, shapes: Shapes, batch: int) -> Shapes:
    """The shapes of the inputs that leave their batch open, with this batch. Raises InputError if none does."""
    check_sizes(declared, shapes)
    found: dict[str, Sequence[int] | int] = dict(shapes)
    sizes = {name: size for name, size in shapes.items() if isinstance(size, int)}
    for name, (_, dimensions) in declared.items():
        if dimensions and isinstance(dimensions[0], str):
            given = shapes.get(name, dimensions)
            rest = [] if isinstance(given, int) else [*given][1:]
            found[name] = (batch, *(each if isinstance(each, int) else sizes[each] for each in rest))
    if found == dict(shapes):
        raise InputError(f"--batch {batch}: no input of the model leaves its batch open")
    return found


def repeated(arrays: Arrays, shapes: Shapes) -> dict[str, Any]:
    """The arrays of one picture as those of a batch of it."""
    made = {}
    for name, array in arrays.items():
        shape = shapes.get(name)
        count = 1 if shape is None or isinstance(shape, int) else shape[0] // array.shape[0]
        made[name] = numpy.concatenate([array] * count) if count > 1 else array
    return made


def takes(model: Model, one: Arrays, batch: int) -> bool:
    """Returns whether the model runs this many pictures at once: each output has a row for each. Compiles for that.

    one: the inputs of one picture.
    """
    single = {name: array.shape for name, array in model.run(one).items()}
    try:
        several = model.run({name: numpy.concatenate([array] * batch) for name, array in one.items()})
    except Error:
        return False
    return all(array.shape == (batch, *single[name][1:]) for name, array in several.items() if single[name])


def faster_batch(model: Model, one: Arrays) -> int:
    """TRIED, if the model takes so many at once and needs less time for each; else 1. Compiles for that, and runs."""
    if not takes(model, one, TRIED):
        return 1
    alone, together = one, {name: numpy.concatenate([array] * TRIED) for name, array in one.items()}
    return TRIED if _seconds(model, together) < GAIN * TRIED * _seconds(model, alone) else 1


def _seconds(model: Model, inputs: Arrays) -> float:
    """The least of a few runs; the first is not counted."""
    model.run(inputs)
    taken = []
    for _ in range(RUNS):
        start = time.perf_counter()
        model.run(inputs)
        taken.append(time.perf_counter() - start)
    return min(taken)


@dataclass(frozen=True)
class Row:
    """One picture's outputs of a run of several. Like a Future, it has a result."""

    run: Future[Any]
    number: int

    def result(self) -> Mapping[str, Any]:
        """The picture's row of each output. Raises what the run raises."""
        return {name: array[self.number : self.number + 1] for name, array in self.run.result().items()}


@dataclass(frozen=True)
class Grouped(Generic[J]):
    """Jobs that are run together. inputs: those of each that has a run, in their order."""

    jobs: list[tuple[J, bool]]
    inputs: list[Arrays]

    def joined(self, batch: int) -> dict[str, Any]:
        """The inputs as one batch; the last picture stands in for those that are missing."""
        rows = self.inputs + [self.inputs[-1]] * (batch - len(self.inputs))
        return {name: numpy.concatenate([each[name] for each in rows]) for name in rows[0]}


def grouped(jobs: Iterable[tuple[J, list[Arrays]]], batch: int) -> Iterator[Grouped[J]]:
    """Jobs in groups of so many runs, in their order; a job has one run, or none."""
    made: Grouped[J] = Grouped([], [])
    for job, runs in jobs:
        made.jobs.append((job, bool(runs)))
        made.inputs.extend(runs)
        if len(made.inputs) == batch:
            yield made
            made = Grouped([], [])
    if made.jobs:
        yield made
