"""Values of the host's part of a model on the device: with the most rows that they may have, and a mask.

How many rows exist is known when the model runs. Until then it is a Count, which arithmetic of shapes hands on:

    x                   float (N, 4)            (300, 4), mask of 300; N is the number of rows of its space
    Shape(x)            int64 [N, 4]            [Count, 4]
    Gather(.., 0)       int64 N                 Count
    Concat(.., [91])    int64 [N, 91]           [Count, 91]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy

from imgconv import ops
from imgconv.arrays import Array
from imgconv.graph.onnx_nodes import HostNode
from imgconv.host import registry
from imgconv.ops.indexing import take_along
from imgconv.tensor import Tensor


class CannotOffloadError(Exception):
    """A node that stays with the host."""


@dataclass(frozen=True, eq=False)
class Space:
    """Rows of which some exist. mask: (rows), bool. is_prefix: whether those that exist come first.

    inside: the spaces that are empty only if this one is.
    """

    mask: Tensor
    is_prefix: bool = False
    inside: frozenset[Space] = frozenset()
    _repeated: dict[int, Space] = field(default_factory=dict)

    def part(self, mask: Tensor, is_prefix: bool = False) -> Space:
        """The space of some rows of this one."""
        return Space(mask, is_prefix, self.inside | {self})

    def repeated(self, count: int) -> Space:
        """The space that has `count` rows, one after the other, for each row of this one."""
        if count == 1:
            return self
        if count not in self._repeated:
            rows = self.mask.size
            mask = self.mask.reshape(rows, 1).expand(rows, count).reshape(rows * count)
            self._repeated[count] = self.part(mask, self.is_prefix)
        return self._repeated[count]


@dataclass(frozen=True, eq=False)
class Count:
    """The number of rows that exist in a space. It is not negative; all else about it is unknown, and asking raises."""

    space: Space

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Count) and other.space is self.space:
            return True
        if isinstance(other, Count) or other >= 0:  # type: ignore[operator]
            raise CannotOffloadError
        return False

    __hash__ = object.__hash__

    def __add__(self, other: object) -> Count:
        return self._unless(other == 0)

    def __mul__(self, other: object) -> Count:
        return self._unless(other == 1)

    __radd__ = __sub__ = __add__
    __rmul__ = __mul__

    def __bool__(self) -> bool:
        raise CannotOffloadError

    def _unless(self, is_same: bool) -> Count:
        if not is_same:
            raise CannotOffloadError
        return self


@dataclass(frozen=True)
class PaddedRows:
    """A value on the device. space: which rows along `axis` exist; None: its shape does not depend on data.

    places_in: the space among whose rows the elements are places, if they are. is_triple: whether each row is
    (batch, class, place). is_suppressed: whether it depends on a suppression. sizes: the integers of a shape, some
    of them Counts; `tensor` has the most that they may be.
    """

    tensor: Tensor
    axis: int = 0
    space: Space | None = None
    places_in: Space | None = None
    is_triple: bool = False
    is_suppressed: bool = False
    sizes: Array | None = None

    @property
    def is_known(self) -> bool:
        """Returns whether it is a constant, without Counts."""
        return self.sizes is None and self.space is None and self.tensor.is_constant

    def numbers(self) -> list[Any]:
        """The integers of a list, some of them Counts. Raises CannotOffloadError if they are computed from data."""
        if self.sizes is not None:
            return list(self.sizes.reshape(-1))
        if not self.is_known:
            raise CannotOffloadError
        return list(self.tensor.numpy().reshape(-1).tolist())


NOTHING = PaddedRows(Tensor.constant(numpy.zeros(0)))
Given = Sequence["PaddedRows | None"]
Rule = Callable[[HostNode, Given], "list[PaddedRows]"]


def call(node: HostNode, given: Given) -> list[Tensor]:
    """The outputs of the operator's own function."""
    registered = ops.find(node.op_type, node.domain)
    if registered is None:
        raise CannotOffloadError
    tensors = tuple(None if each is None else each.tensor for each in given)
    made = registered.function(
        ops.Call(node.name, node.op_type, node.version, tensors, node.attributes, node.outputs)
    )
    return [made] if isinstance(made, Tensor) else list(made)


def take_rows(x: Tensor, places: Tensor) -> Tensor:
    """The rows of x (N, C) at places (M): (M, C)."""
    return take_along(x, 0, places.reshape(-1, 1), (places.shape[0], x.shape[1]))


def with_sizes(sizes: Array) -> PaddedRows:
    """A shape or a part of one. sizes: of objects, integers and Counts."""
    most = [each.space.mask.size if isinstance(each, Count) else int(each) for each in sizes.reshape(-1)]
    known = Tensor.constant(numpy.array(most, numpy.int64).reshape(sizes.shape))
    return PaddedRows(known, sizes=sizes if any(isinstance(each, Count) for each in sizes.reshape(-1)) else None)


def shape_of(node: HostNode, given: Given) -> list[PaddedRows]:
    """Shape of a value whose rows depend on data."""
    (x,) = given
    if x is None or x.space is None:
        raise CannotOffloadError
    sizes = numpy.array(x.tensor.shape, object)
    sizes[x.axis] = Count(x.space)
    start, end = (node.attributes.get(name) for name in ("start", "end"))
    return [with_sizes(sizes[start:end])]


def arithmetic(node: HostNode, given: Given) -> list[PaddedRows]:
    """Returns the result of the host's own function on shapes. Raises CannotOffloadError if it needs a Count."""
    if any(each is not None and each.sizes is None and not each.is_known for each in given):
        raise CannotOffloadError
    if node.op_type == "Cast":
        if node.attributes["to"] not in ("int32", "int64"):
            raise CannotOffloadError
        return [each for each in given if each is not None]
    arrays = [None if each is None else each.tensor.numpy() if each.sizes is None else each.sizes for each in given]
    known: Mapping[str, Any] = node.attributes
    asked = registry.HostCall(node.name, node.op_type, node.version, known, len(node.outputs))
    try:
        made = registry.find(node.op_type)(asked, *arrays)
    except (TypeError, ValueError, AttributeError) as error:
        raise CannotOffloadError from error
    parts = made if isinstance(made, tuple) else (made,)
    results = [numpy.asarray(part) for part in parts]
    return [with_sizes(each) if each.dtype == object else PaddedRows(Tensor.constant(each)) for each in results]
