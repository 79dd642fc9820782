"""Value: a named tensor of a graph. Operand: a read of a Value through a view."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from imgconv.arrays import Array
from imgconv.graph.view import Shape, View, identity


@dataclass(frozen=True)
class Value:
    """A tensor's name, shape and numpy dtype name ('float32', 'float16', 'int64', 'bool' ...)."""

    name: str
    shape: Shape
    dtype: str

    @property
    def size(self) -> int:
        return prod(self.shape)

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}{list(self.shape)}"


@dataclass(frozen=True)
class Operand:
    """A value read through a view. Outside the view's bounds it reads `fill`."""

    value: str
    view: View
    fill: float = 0.0

    def read(self, array: Array) -> Array:
        """The elements that it reads of the value's array; the array itself if the view changes nothing."""
        return array if self.view.is_identity else self.view.evaluate(array, self.fill)

    def __str__(self) -> str:
        if self.view.is_identity:
            return self.value
        filled = f" else {self.fill:g}" if self.view.bounds else ""
        shown = ", ".join(map(str, self.view.index))
        where = " where " + " and ".join(map(str, self.view.bounds)) if self.view.bounds else ""
        return f"{self.value}[{shown}{where}{filled}]"


def whole_operand(value: Value) -> Operand:
    """An operand that reads a whole value, through the identity view."""
    return Operand(value.name, identity(value.shape))


def array_value(name: str, array: Array) -> Value:
    """The Value of a constant array."""
    return Value(name, array.shape, str(array.dtype))
