"""Evaluates nodes at some positions of their outputs, from the elements that these positions read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy

from imgconv.arrays import Array
from imgconv.checking.error_bounds import (
    FLOAT, UNIT, ArithmeticErrors, BoundedValues, evaluate, sum_with_initial_value, sum_with_bounds
)
from imgconv.graph.evaluate import evaluate_node
from imgconv.graph.expression import Argument, Expression, users
from imgconv.graph.nodes import (
    IDENTITY, Concatenation, Convolution, Gather, Load, Node, Operand, Operation, Order, Product, Recurrence, Reduction,
    Suppression, array_value, index_operands_of, neutral, whole_operand,
)
from imgconv.graph.view import Shape

# One integer array for each axis, of shapes that broadcast: positions in a tensor.
Positions = Sequence[Array]
EXACT_INTEGERS = 2.0**24  # smaller ones are exact in a device's floats
NEARLY = 1e-5  # boxes whose overlap is so near to the limit may be suppressed or not
MOST_ELEMENTS = 1 << 23  # that a node may read; evaluating it at few positions would take seconds


class NotCoveredError(Exception):
    """The node cannot be evaluated at some positions only, or its result depends on rounding."""


@dataclass
class SampledEvaluator:
    """Evaluates nodes at positions. read: the elements of a stored value. nodes: those computed together, by output.

    output: the elements that the last node's launch wrote, for nodes whose results depend on each other.
    elements_read: their count so far, a measure of the time. made: results of `nodes`, by name and positions.
    """

    read: Callable[[str, Positions], BoundedValues]
    nodes: Mapping[str, Node]
    output: Callable[[Positions], BoundedValues]
    arithmetic: ArithmeticErrors = FLOAT
    elements_read: int = 0
    made: dict[tuple[str, bytes], BoundedValues] = field(default_factory=dict)

    def evaluate_at(self, node: Node, position: Positions, count: int) -> BoundedValues:
        """The node's output at `count` positions, before it is stored. Raises NotCoveredError."""
        with numpy.errstate(all="ignore"):
            sample = SAMPLED.get(type(node.operation))
            if sample is None:
                raise NotCoveredError(f"no samples of {node.operation}")
            result = sample(self, node, node.operation, [numpy.asarray(p) for p in position], count)
            others = [self._load(o, position, (count,)) for o in node.epilogue_operands]
            if isinstance(node.operation, Convolution):
                x, w = (operand.view.shape for operand in node.operands[:2])
                terms = x[1] // node.operation.groups * prod(w[2:])
                for number in _bias_argument_numbers(node.epilogue):
                    result = sum_with_initial_value(result, others[number - 1].value, terms, self.arithmetic)
            made = evaluate(node.epilogue, [result, *others], self.arithmetic).broadcast((count,))
            if node.output.dtype.startswith("float"):
                return made
            # Integers wrap around in their own type, and a device does not know them.
            return BoundedValues(made.value, numpy.where(numpy.abs(made.value) < EXACT_INTEGERS, made.error, numpy.inf))

    def _load(self, operand: Operand, position: Positions, shape: Shape) -> BoundedValues:
        """The elements that an operand reads at some positions of its view."""
        self.elements_read += prod(shape)
        if self.elements_read > MOST_ELEMENTS:
            raise NotCoveredError(f"an output depends on too many numbers: over {MOST_ELEMENTS}")
        view = operand.view
        values = {f"i{axis}": along for axis, along in enumerate(position)}
        if prod(view.source) == 0:
            return BoundedValues.exact(numpy.full(shape, operand.fill))
        valid = numpy.ones((1,) * len(shape), bool)
        for bound in view.bounds:
            reached = bound.index.evaluate(values)
            valid = valid & (reached >= bound.low) & (reached < bound.high)
        where = [numpy.clip(e.evaluate(values), 0, n - 1) for e, n in zip(view.index, view.source, strict=True)]
        made = self._value(operand.value, [numpy.broadcast_to(each, shape) for each in where], shape)
        if not view.bounds:
            return made
        fill = numpy.asarray(operand.fill).astype(made.value.dtype)
        return BoundedValues(numpy.where(valid, made.value, fill), numpy.where(valid, made.error, 0.0))

    def _value(self, name: str, position: Positions, shape: Shape) -> BoundedValues:
        """A value's elements: as they are stored, or computed if this launch computes them."""
        node = self.nodes.get(name)
        if node is None:
            return self.read(name, position).broadcast(shape)
        size = node.output.shape
        flat = numpy.ravel_multi_index(tuple(position), size) if size else numpy.zeros(shape, numpy.int64)
        unique, inverse = numpy.unique(flat, return_inverse=True)
        key = name, unique.tobytes()
        if key not in self.made:  # a mean is read by each difference from it
            self.made[key] = self.evaluate_at(node, numpy.unravel_index(unique, size) if size else (), len(unique))
        made = self.made[key]
        places = inverse.reshape(shape)
        error = made.error + self.arithmetic.between * numpy.abs(made.value)
        return BoundedValues(made.value[places], error[places])

    def _evaluate_load(self, node: Node, operation: Load, position: list[Array], count: int) -> BoundedValues:
        return self._load(node.operands[0], position, (count,))

    def _reduction(self, node: Node, reduction: Reduction, position: list[Array], count: int) -> BoundedValues:
        shape = node.operands[0].view.shape if node.operands else ()
        window, inner = shape[len(node.output.shape) :], prod(shape[len(node.output.shape) :])
        if not inner:
            return BoundedValues.exact(numpy.full(count, neutral(reduction.kind, node.output.dtype)))
        reads = [*(p.reshape(-1, 1) for p in position), *_window_positions(window)]
        loaded = [self._load(o, reads, (count, inner)) for o in node.operands]
        body = evaluate(reduction.body, loaded, self.arithmetic)
        return self._reduce(reduction, body.broadcast((count, inner)))

    def _reduce(self, reduction: Reduction, body: BoundedValues) -> BoundedValues:
        value, error = body.value, body.error
        if reduction.kind == "sum":
            return sum_with_bounds(body, self.arithmetic)
        if reduction.kind == "product":
            made = value.prod(1)
            relative = (error / numpy.maximum(numpy.abs(value), 1e-300)).sum(1)
            relative = relative + 2 * self.arithmetic.unit * value.shape[1]
            return BoundedValues(made, numpy.abs(made) * relative)
        if reduction.kind == "argmax":
            best = numpy.argmax(value, 1)
            rivals = (value + error >= numpy.take_along_axis(value - error, best[:, None], 1)) & (error > 0)
            rivals[numpy.arange(len(best)), best] = False
            return BoundedValues(best, numpy.where(rivals.any(1) | numpy.isnan(value).any(1), numpy.inf, 0.0))
        # Kernels ignore NaN, numpy does not.
        known = numpy.where(numpy.isnan(value.astype(numpy.float64)).any(1), numpy.inf, error.max(1))
        return BoundedValues(value.max(1) if reduction.kind == "max" else value.min(1), known)

    def _convolution(self, node: Node, operation: Convolution, position: list[Array], count: int) -> BoundedValues:
        x, w, *factors = node.operands
        image, filter_, row, column = (p.reshape(-1, 1) for p in position)
        filters = node.output.shape[1] // operation.groups
        window = (x.view.shape[1] // operation.groups, *w.view.shape[2:])
        if not prod(window):
            return BoundedValues.exact(numpy.zeros(count))
        c, ky, kx = _window_positions(window)
        channel = filter_ // filters * window[0] + c
        where, inside = [], numpy.ones((1, 1), bool)
        for at, tap, size, stride, dilation, pad in zip(
            (row, column), (ky, kx), x.view.shape[2:], operation.strides, operation.dilations, operation.pads,
            strict=True,
        ):
            if operation.transposed:
                reach = at + pad - tap * dilation
                inside, read = inside & (reach % stride == 0), reach // stride
            else:
                read = at * stride + tap * dilation - pad
            inside = inside & (read >= 0) & (read < size)
            where.append(numpy.clip(read, 0, size - 1))
        shape = count, prod(window)
        given = self._load(x, (image, channel, *where), shape)
        of_weights = (channel, filter_ % filters, ky, kx) if operation.transposed else (filter_, c, ky, kx)
        weights = self._load(w, of_weights, shape)
        given = BoundedValues(numpy.where(inside, given.value, 0), numpy.where(inside, given.error, 0.0))
        for factor in factors:
            gate = self._load(factor, (image, channel, 0 * image, 0 * image), shape)
            given = _rounded_product(given, gate, self.arithmetic)
        like = None
        if self.arithmetic.transformed > 1:  # neighbours take part in the sum, and cancel
            # In half, three standard deviations: a bound by the largest would allow anything.
            usual = 3 * numpy.sqrt(numpy.mean(numpy.square(given.value)))
            size = numpy.abs(given.value).max() if self.arithmetic.sum_unit == UNIT else usual
            like = size * weights.value
        return self._sum_of_products(given, weights, like)

    def _product(self, node: Node, operation: Product, position: list[Array], count: int) -> BoundedValues:
        a, b = node.operands
        *lead, row, column = (p.reshape(-1, 1) for p in position)
        inner = numpy.arange(a.view.shape[-1]).reshape(1, -1)
        shape = count, inner.size
        return self._sum_of_products(
            self._load(a, (*lead, row, inner), shape), self._load(b, (*lead, inner, column), shape)
        )

    def _sum_of_products(self, a: BoundedValues, b: BoundedValues, like: Array | None = None) -> BoundedValues:
        products = a.value * b.value
        error = numpy.abs(a.value) * b.error + numpy.abs(b.value) * a.error + a.error * b.error
        # The rounding of a product is part of the sum's.
        return sum_with_bounds(BoundedValues(products, error), self.arithmetic, like)

    def _concatenation(self, node: Node, operation: Concatenation, position: list[Array], count: int) -> BoundedValues:
        value, error, start = numpy.zeros(count), numpy.zeros(count), 0
        for operand in node.operands:
            size = operand.view.shape[operation.axis]
            along = position[operation.axis] - start
            chosen = (along >= 0) & (along < size)
            start += size
            if chosen.any():
                at = [p[chosen] for p in position]
                at[operation.axis] = along[chosen]
                part = self._load(operand, at, (int(chosen.sum()),))
                value[chosen], error[chosen] = part.value, part.error
        return BoundedValues(value, error)

    def _gather(self, node: Node, operation: Gather, position: list[Array], count: int) -> BoundedValues:
        table, indices = node.operands[0], index_operands_of(node)
        lead = indices[0].view.shape
        window = lead[len(node.output.shape) :]
        shape = (count, prod(window))
        reads = [*(p.reshape(-1, 1) for p in position), *_window_positions(window)]
        inside, certain = numpy.ones(shape, bool), numpy.ones(shape, bool)
        at = list(reads)
        for operand, size in zip(indices, table.view.shape[len(lead) :], strict=True):
            index = self._load(operand, reads, shape)
            chosen = numpy.rint(index.value.astype(numpy.float64))
            certain &= (index.error == 0) | (numpy.abs(index.value - chosen) + index.error < 0.5)
            valid = (chosen >= 0) & (chosen < size)
            inside &= valid
            at.append(numpy.where(valid, chosen, 0).astype(numpy.int64))
        made = self._load(table, at, shape)
        value = numpy.where(inside, made.value, numpy.asarray(table.fill).astype(made.value.dtype))
        found = BoundedValues(value, numpy.where(certain, numpy.where(inside, made.error, 0.0), numpy.inf))
        if operation.reduction is None:
            return BoundedValues(found.value[:, 0], found.error[:, 0])
        others = node.operands[1 + len(indices) :]
        loaded = [self._load(o, reads, shape) for o in others]
        return self._reduce(
            operation.reduction, evaluate(operation.reduction.body, [found, *loaded], self.arithmetic).broadcast(shape)
        )

    def _recurrence(self, node: Node, operation: Recurrence, position: list[Array], count: int) -> BoundedValues:
        """States after a step, from those before it as the launch wrote them: an error does not add up over steps."""
        if node.epilogue != IDENTITY:
            raise NotCoveredError("the states themselves are not stored")
        x, weights, *rest = node.operands
        steps, gates, hidden = node.output.shape[1], weights.view.shape[2], node.output.shape[4]
        state, time, batch, direction, unit = (p.reshape(-1, 1) for p in position)
        reverse = numpy.asarray(operation.reverse)[direction]
        before = time + numpy.where(reverse, 1, -1)
        is_first = (before < 0) | (before >= steps)

        def state_before(number: int, units: Array) -> BoundedValues:
            """A state before the step."""
            shape = numpy.broadcast_shapes(time.shape, units.shape)
            start = self._load(rest[number], (batch, direction, units), shape)
            self.elements_read += prod(shape)
            at = (numpy.full_like(time, number), numpy.clip(before, 0, steps - 1), batch, direction, units)
            later = self.output([numpy.broadcast_to(p, shape) for p in at])
            return BoundedValues(
                numpy.where(is_first, start.value, later.value), numpy.where(is_first, start.error, later.error)
            )

        def product(given: BoundedValues, gate: int, units: Array) -> BoundedValues:
            """Products of a state (count, hidden) and the weights of a gate."""
            made = []
            for column in range(units.shape[1]):
                unit, inner = units[:, column : column + 1], numpy.arange(hidden).reshape(1, -1)
                matrix = self._load(weights, (direction, inner, numpy.full_like(time, gate), unit), (count, hidden))
                made.append(self._sum_of_products(given, matrix))
            return BoundedValues(numpy.stack([m.value for m in made], 1), numpy.stack([m.error for m in made], 1))

        def arguments(units: Array, all_products: bool = True) -> list[BoundedValues]:
            shape = numpy.broadcast_shapes(time.shape, units.shape)
            every = state_before(0, numpy.arange(hidden).reshape(1, -1))
            wide = numpy.broadcast_to(units, shape)
            given = [
                self._load(x, (time, batch, direction, numpy.full_like(time, g), units), shape) for g in range(gates)
            ]
            products = [product(every, g, wide) for g in range(gates if all_products else gates - 1)]
            products += [] if all_products else [BoundedValues.exact(numpy.full(shape, numpy.nan))]
            others = [self._load(o, (batch, direction, units), shape) for o in rest[len(operation.states) :]]
            number = BoundedValues.exact(numpy.broadcast_to(time.astype(numpy.float64), shape))
            return [*given, *products, *(state_before(s, units) for s in range(len(operation.states))), *others, number]

        if operation.inner is not None and count * hidden * hidden * gates > MOST_ELEMENTS:
            raise NotCoveredError("a state depends on too many numbers")
        known = arguments(unit, operation.inner is None)
        if operation.inner is not None:
            units = numpy.broadcast_to(numpy.arange(hidden).reshape(1, -1), (count, hidden))
            inner = evaluate(operation.inner, arguments(units, False), self.arithmetic).broadcast((count, hidden))
            known[2 * gates - 1] = product(inner, gates - 1, unit)
        made = [evaluate(each, known, self.arithmetic).broadcast((count, 1)) for each in operation.states]
        value, error = (numpy.stack([getattr(m, n)[:, 0] for m in made], 1) for n in ("value", "error"))
        return BoundedValues(*(numpy.take_along_axis(each, state, 1)[:, 0] for each in (value, error)))

    def _evaluate_whole(self, node: Node, operation: Operation, position: list[Array], count: int) -> BoundedValues:
        """An order or a suppression, evaluated at all positions."""
        loaded: dict[str, Array] = {}
        for number, operand in enumerate(node.operands):
            shape = operand.view.shape
            made = self._load(operand, [g.reshape(shape) for g in _all_positions(shape)], shape)
            if made.error.any():
                raise NotCoveredError("its result depends on rounding")
            loaded[f"operand {number}"] = made.value
        nodes = [_without_epilogue(node, loaded)]
        if isinstance(operation, Suppression):
            limits = (operation.overlap * (1 - NEARLY), operation.overlap * (1 + NEARLY))
            nodes += [replace(nodes[0], operation=Suppression(limit)) for limit in limits]
        made_all = [evaluate_node(each, loaded) for each in nodes]
        if any(not numpy.array_equal(made_all[0], other) for other in made_all[1:]):
            raise NotCoveredError("its result depends on rounding")
        value = made_all[0][tuple(position)] if position else made_all[0].reshape(-1)
        return BoundedValues.exact(numpy.broadcast_to(value, (count,)))


# The result of an operation at some positions, before the epilogue. Launches of operations without an entry are not
# checked.
SAMPLED: dict[type[Operation], Callable[[SampledEvaluator, Node, Any, list[Array], int], BoundedValues]] = {
    Load: SampledEvaluator._evaluate_load,
    Reduction: SampledEvaluator._reduction,
    Convolution: SampledEvaluator._convolution,
    Product: SampledEvaluator._product,
    Concatenation: SampledEvaluator._concatenation,
    Gather: SampledEvaluator._gather,
    Recurrence: SampledEvaluator._recurrence,
    Order: SampledEvaluator._evaluate_whole,
    Suppression: SampledEvaluator._evaluate_whole,
}


def _without_epilogue(node: Node, loaded: Mapping[str, Array]) -> Node:
    """The node without its epilogue, with operands that are read as they are."""
    operands = tuple(whole_operand(array_value(name, array)) for name, array in loaded.items())
    return replace(node, operands=operands, epilogue=IDENTITY, epilogue_operands=())


def _bias_argument_numbers(epilogue: Expression) -> Iterator[int]:
    """The numbers of the arguments that are added to a sum, which may start with them."""
    for part in users(epilogue, IDENTITY):
        if part.function == "add":
            yield from (each.number for each in part.arguments if isinstance(each, Argument) and each.number)


def _rounded_product(a: BoundedValues, b: BoundedValues, arithmetic: ArithmeticErrors) -> BoundedValues:
    """A product that is rounded."""
    value = a.value * b.value
    error = numpy.abs(a.value) * b.error + numpy.abs(b.value) * a.error + a.error * b.error
    return BoundedValues(value, error + arithmetic.unit * numpy.abs(value))


def _window_positions(window: Shape) -> list[Array]:
    """The positions of a window in row-major order: an array (1, size) for each axis."""
    return [g.reshape(1, -1) for g in _all_positions(window)]


def _all_positions(shape: Shape) -> list[Array]:
    return [numpy.asarray(g).reshape(-1) for g in numpy.indices(shape)]
