"""Decodes scores to the best classes of a picture."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy

from imgconv.arrays import Array, Arrays, TensorSpecs
from imgconv.errors import InputError
from imgconv.preprocessing.preparation import Size
from imgconv.tasks.description import Description
from imgconv.tasks.values import Answers, Classes, Label, PicturePlacement


# Numbers of floats that are no classes, unless the task is given or they are probabilities. Embeddings of faces and
# people have powers of two; landmarks are x and y, and z, of 21 points of a hand, 5 of an iris, and 68, 71, 98, 106,
# 468 or 478 of a face, or 5 numbers for 39.
EMBEDDINGS = frozenset(2**power for power in range(6, 13))
LANDMARKS = frozenset([*(axes * points for axes in (2, 3) for points in (21, 68, 71, 98, 106, 468, 478)), 15, 5 * 39])
# Fewer floats than this that are no probabilities are as often angles, a box or landmarks as the logits of classes.
MANY = 10
ROUNDING = 0.02  # of a sum of probabilities that are halves or bytes


def may_be_classes(outputs: TensorSpecs, size: Size) -> bool:
    """Returns whether an output is likely scores of classes by its shape, and not of the anchors of another output."""
    shapes = [tuple(int(n) for n in shape or ()) for _, shape in outputs.values()]
    anchors = {shape[1] for shape in shapes if len(shape) == 3 and shape[2] > 1}
    return any(
        is_likely_scores(shape, dtype) and anchors.isdisjoint(shape)
        for (dtype, _), shape in zip(outputs.values(), shapes, strict=True)
    )


def is_likely_scores(shape: Sequence[int], dtype: str) -> bool:
    """Returns whether an output is scores, and of no number that embeddings or landmarks usually have."""
    return is_scores(shape, dtype) and math.prod(shape) not in EMBEDDINGS | LANDMARKS


def is_scores(shape: Sequence[int], dtype: str) -> bool:
    """Returns whether an output is scores: floats for at least two classes, as (1, 1000) or (1, 1000, 1, 1).

    (1, n, 1) is one score for each of n anchors.
    """
    is_vector = sum(n != 1 for n in shape) == 1 and 0 not in shape
    of_anchors = len(shape) == 3 and shape[2] == 1
    return is_vector and not of_anchors and (len(shape) == 1 or shape[0] == 1) and dtype.startswith("float")


def are_probabilities(array: Array, axis: int | None = None) -> bool:
    """Returns whether no number is negative and the sum, or each sum along the axis, is 1 within ROUNDING."""
    sums = array.sum(axis=axis, dtype=numpy.float64)
    return float(array.min()) >= 0 and bool(numpy.all(numpy.abs(sums - 1) < ROUNDING))


def scores(outputs: Arrays, description: Description, placement: PicturePlacement) -> Answers:
    """The best classes of every output that is scores.

    Without a task, a head or labels these are only outputs that are probabilities, or if there are none, those of MANY
    numbers or more.
    """
    names = outputs_of_scores(outputs)
    if not names:
        raise ValueError("no output is scores")
    if not (description.task or description.head or description.labels):
        vectors = [name for name, array in outputs.items() if is_scores(array.shape, str(array.dtype))]
        probable = [name for name in vectors if are_probabilities(outputs[name])]
        names = probable or [name for name in names if outputs[name].size >= MANY]
    return {name: Classes(best(name, outputs[name].reshape(-1), description)) for name in names}


def outputs_of_scores(outputs: Arrays) -> list[str]:
    """The names of the outputs that are scores; of those that may be embeddings only if there is no other."""
    possible = [name for name, array in outputs.items() if is_scores(array.shape, str(array.dtype))]
    return [n for n in possible if is_likely_scores(outputs[n].shape, str(outputs[n].dtype))] or possible


def best(name: str, values: Array, description: Description) -> tuple[Label, ...]:
    """The best classes, best first. Raises InputError if there are labels of another number than classes."""
    labels = description.labels
    if labels and len(labels) != values.size:
        raise InputError(f"output {name!r} has {values.size} scores, but there are {len(labels)} labels")
    order = numpy.argsort(-values.astype(numpy.float64), kind="stable")[: description.top]
    return tuple(Label(int(i), float(values[i]), labels[i] if labels else "") for i in order)
