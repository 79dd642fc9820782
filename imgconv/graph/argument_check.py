"""Checks the arguments of calls of the lazy front end, at the line where the user writes them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from reprlib import Repr
from typing import NoReturn, TypeGuard

import numpy

from imgconv.errors import InputError
from imgconv.graph.view import Shape

KINDS = "fiub"  # floats, integers and bool, as numpy's dtype.kind
_DTYPES = (
    "float32", "float64", "float16", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
)
_SHORT = Repr()
_SHORT.maxlist = _SHORT.maxtuple = 8


@dataclass(eq=False)
class ShapedTensor:
    """A tensor as the checks of calls know it: its shape, the name of its numpy dtype, and its name."""

    shape: Shape
    dtype: str
    name: str | None = None


class ArgumentCheck:
    """A call's name and arguments by name. An InputError quotes both:

        given = ArgumentCheck("conv2d", x=x, weight=weight, stride=0)
        given.check_counts("stride")
        # conv2d(x=float32[1, 3, 8, 8], weight=float32[8, 3, 3, 3], stride=0): stride has to be an integer, 1 or more
    """

    def __init__(self, call: str, /, **values: object) -> None:
        self._call = call
        self._values = values

    def require(self, holds: bool, problem: str) -> None:
        """Raises InputError with the problem unless a condition holds."""
        if not holds:
            raise self.error(problem)

    def error(self, problem: str) -> InputError:
        listed = ", ".join(f"{name}={_as_text(value)}" for name, value in self._values.items() if value is not None)
        return InputError(f"{self._call}({listed}): {problem}")

    def check_tensors(self, *names: str) -> None:
        """Raises InputError for an argument that is no Tensor, and for several dtypes that are not all integers."""
        for name in names:
            if not isinstance(self._values[name], ShapedTensor):
                self._refuse_non_tensor(name, "a Tensor")
        dtypes = {value.dtype for name in names if isinstance(value := self._values[name], ShapedTensor)}
        fit = len(dtypes) < 2 or all(numpy.dtype(each).kind in "iu" for each in dtypes)
        self.require(fit, "dtypes differ: cast() one of them")

    def check_tensors_or_numbers(self) -> None:
        """Raises InputError for an argument that is neither a Tensor nor a number."""
        for name, value in self._values.items():
            if not isinstance(value, (ShapedTensor, int, float, numpy.number, numpy.bool_)):
                self._refuse_non_tensor(name, "a Tensor or a number")

    def _refuse_non_tensor(self, name: str, wanted: str) -> NoReturn:
        value = self._values[name]
        remedy = f": Tensor.constant({name})" if isinstance(value, numpy.ndarray) else ""
        raise self.error(f"{name} has to be {wanted}, not {type(value).__name__}{remedy}")

    def broadcast_shapes(self, *shapes: tuple[int, ...]) -> tuple[int, ...]:
        """The shape that shapes broadcast to, as in numpy. Raises InputError if they do not."""
        try:
            return tuple(numpy.broadcast_shapes(*shapes))
        except ValueError:
            raise self.error("the shapes do not broadcast") from None

    def check_counts(self, *names: str, least: int = 1) -> None:
        """Raises InputError for an argument that is no integer, or less than `least`."""
        for name in names:
            value = self._values[name]
            self.require(is_integer(value) and value >= least, f"{name} has to be an integer, {least} or more")

    def as_integers(self, name: str, least: int | None = None) -> tuple[int, ...]:
        """An argument as a tuple of integers. Raises InputError if it is none, or if one is less than `least`."""
        value = self._values[name]
        listed = [*value] if isinstance(value, Iterable) else [value]
        found = tuple(int(n) for n in listed if is_integer(n) and (least is None or n >= least))
        fit = isinstance(value, Iterable) and len(found) == len(listed)
        self.require(fit, f"{name} has to be a list of integers{'' if least is None else f', each {least} or more'}")
        return found

    def check_dtype(self, name: str) -> None:
        """Raises InputError for an argument that is no name of a numpy dtype of numbers."""
        value = self._values[name]
        fit = isinstance(value, str) and value in _DTYPES
        self.require(fit, f"{name} has to be one of {', '.join(_DTYPES)}")

    def normalized_axis(self, name: str, rank: int) -> int:
        """An axis, counted from the front: -1 is rank - 1. Raises InputError if there is none of that number."""
        return self._normalized([self._values[name]], rank)[0]

    def normalized_axes(self, name: str, rank: int) -> list[int]:
        """Does what `normalized_axis` does with a list, or with one axis alone."""
        value = self._values[name]
        if is_integer(value):
            value = [value]
        return self._normalized([*value] if isinstance(value, Iterable) else [None], rank)

    def _normalized(self, values: list[object], rank: int) -> list[int]:
        found = [axis % rank for axis in values if is_integer(axis) and -rank <= axis < rank]
        self.require(len(found) == len(values), f"there is no such axis: the tensor has {rank}")
        return found


def is_integer(value: object) -> TypeGuard[int]:
    """Returns whether a value is an integer of Python or numpy: 3 and numpy.int64(3) are, 3.0 and True are not."""
    return isinstance(value, (int, numpy.integer)) and not isinstance(value, bool)


def _as_text(value: object) -> str:
    """One argument as text: "x: float32[1, 3, 8, 8]" for a tensor, "numpy float64[3]" for an array."""
    if isinstance(value, ShapedTensor):
        return f"{f'{value.name}: ' if value.name else ''}{value.dtype}{list(value.shape)}"
    if isinstance(value, numpy.ndarray):
        return f"numpy {value.dtype}{list(value.shape)}"
    if isinstance(value, (list, tuple)) and any(isinstance(each, ShapedTensor) for each in value):
        return f"[{', '.join(map(_as_text, value))}]"
    return _SHORT.repr(value)
