"""The best classes of a picture."""

from __future__ import annotations

from collections.abc import Sequence

import numpy

from imgconv.arrays import Array, Arrays
from imgconv.errors import InputError
from imgconv.tasks.description import Description
from imgconv.tasks.values import Answers, Classes, Label, PicturePlacement


def is_scores(shape: Sequence[int], dtype: str) -> bool:
    """Returns whether an output is scores: floats for at least two classes, as (1, 1000) or (1, 1000, 1, 1)."""
    return sum(n != 1 for n in shape) == 1 and 0 not in shape and dtype.startswith("float")


def scores(outputs: Arrays, description: Description, placement: PicturePlacement) -> Answers:
    """The best classes of every output that is scores."""
    found = {
        name: Classes(best(name, array.reshape(-1), description))
        for name, array in outputs.items() if is_scores(array.shape, str(array.dtype))
    }
    if not found:
        raise InputError("no output of the model is scores, one for each class")
    return found


def best(name: str, values: Array, description: Description) -> tuple[Label, ...]:
    """The best classes, best first. Raises InputError if there are labels of another number than classes."""
    labels = description.labels
    if labels and len(labels) != values.size:
        raise InputError(f"output {name!r} has {values.size} scores, but there are {len(labels)} labels")
    order = numpy.argsort(-values.astype(numpy.float64), kind="stable")[: description.top]
    return tuple(Label(int(i), float(values[i]), labels[i] if labels else "") for i in order)
