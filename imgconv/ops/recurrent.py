"""RNN, GRU and LSTM: one matrix product of the input for all steps, then a Recurrence of the states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import isnan, nan
from typing import Union

import numpy

from imgconv.graph.expression import Apply, Argument, Expression, apply, fold
from imgconv.ops.registry import Call, operator
from imgconv.tensor import Tensor, concatenate, elementwise, less, recurrence, where

GateFunction = Callable[[Expression], Expression]
StateProduct = Callable[[Tensor, Tensor], Tensor]  # of a state (batch, H) and weights (columns, H)
MOST_HIDDEN = 1024  # numbers of a state that every work group can hold in its local memory; larger ones are unrolled


def _softplus(x: Expression) -> Expression:
    return apply("add", apply("maximum", x, 0), apply("log1p", apply("exp", apply("negative", apply("absolute", x)))))


def _clipped(x: Expression, low: float, high: float) -> Expression:
    return apply("minimum", apply("maximum", x, low), high)


def _affine(x: Expression, a: float, b: float) -> Expression:
    return apply("add", apply("multiply", x, a), b)


@dataclass(frozen=True)
class Activation:
    """A scalar function of x, alpha and beta, and the defaults of alpha and beta.

    None means that the function does not use it; NaN that it has no default, as in ONNX's operator of that name.
    """

    function: Callable[[Expression, float, float], Expression]
    alpha: float | None = None
    beta: float | None = None


_ACTIVATIONS = {
    "relu": Activation(lambda x, _, __: apply("maximum", x, 0)),
    "tanh": Activation(lambda x, _, __: apply("tanh", x)),
    "sigmoid": Activation(lambda x, _, __: apply("sigmoid", x)),
    "softsign": Activation(lambda x, _, __: apply("divide", x, apply("add", apply("absolute", x), 1))),
    "softplus": Activation(lambda x, _, __: _softplus(x)),
    "affine": Activation(_affine, 1.0, 0.0),
    "leakyrelu": Activation(lambda x, a, _: apply("where", apply("less", x, 0), apply("multiply", x, a), x), 0.01),
    "thresholdedrelu": Activation(lambda x, a, _: apply("where", apply("less", x, a), 0, x), 1.0),
    "scaledtanh": Activation(
        lambda x, a, b: apply("multiply", apply("tanh", apply("multiply", x, b)), a), nan, nan
    ),
    "hardsigmoid": Activation(lambda x, a, b: _clipped(_affine(x, a, b), 0, 1), 0.2, 0.5),
    "elu": Activation(
        lambda x, a, _: apply("where", apply("less", x, 0), apply("multiply", apply("expm1", x), a), x), 1.0
    ),
}


@dataclass(frozen=True)
class Cell:
    """The expressions of one step of one direction; see graph.nodes.Recurrence for their arguments.

    size: of the gates, then of the states. other_count: of the arguments between the states and the number of the step.
    """

    size: tuple[int, int]
    other_count: int
    functions: Sequence[GateFunction] = field(compare=False)

    def x(self, gate: int) -> Expression:
        """Returns a gate's input, without its product with the state."""
        return Argument(gate)

    def product(self, gate: int) -> Expression:
        """The product of the state and a gate's weights."""
        return Argument(self.size[0] + gate)

    def total(self, gate: int) -> Expression:
        return apply("add", self.x(gate), self.product(gate))

    def state(self, number: int) -> Expression:
        return Argument(2 * self.size[0] + number)

    def other_argument(self, number: int) -> Expression:
        """One of the other arguments; the number of the step follows the last one."""
        return Argument(2 * self.size[0] + self.size[1] + number)


StepExpressions = tuple[list[Expression], Union[Expression, None]]  # `states` and `inner` of a Recurrence
StepFunction = Callable[[Cell], StepExpressions]


@operator("RNN")
def rnn(call: Call) -> list[Tensor]:
    """H = f(X W' + H R' + Wb + Rb)."""
    return _layer(call, ["tanh"], (1, 1), lambda cell: ([cell.functions[0](cell.total(0))], None))


@operator("GRU")
def gru(call: Call) -> list[Tensor]:
    """z = f(..), r = f(..), h = g(X Wh' + (r*H) Rh' + ..), H = (1 - z)*h + z*H; gates in the order z, r, h.

    With linear_before_reset, h = g(X Wh' + Wbh + r*(H Rh' + Rbh)).
    """
    before = call.flag("linear_before_reset")

    def step(cell: Cell) -> StepExpressions:
        f, g = cell.functions
        z, r = (f(cell.total(gate)) for gate in (0, 1))
        inner = cell.product(2)
        if before:
            inner = apply("multiply", r, apply("add", inner, cell.other_argument(0)))
        h = g(apply("add", cell.x(2), inner))
        made = apply("add", apply("multiply", apply("subtract", 1, z), h), apply("multiply", z, cell.state(0)))
        return [made], None if before else apply("multiply", r, cell.state(0))

    return _layer(call, ["sigmoid", "tanh"], (3, 1), step, late=before)


@operator("LSTM")
def lstm(call: Call, product: StateProduct | None = None) -> list[Tensor]:
    """i, o, f = f(..), c = g(..), C = f*C + i*c, H = o*h(C); gates in the order i, o, f, c.

    Peepholes add Pi*C and Pf*C to the inputs of gates i and f, and Po times the new C to that of o. input_forget makes
    f = 1 - i. clip bounds the arguments of f and g, but not C, as in onnxruntime. product: of a state and r, if it is
    another one.
    """
    coupled, peeps = call.flag("input_forget"), call.optional(7) is not None

    def step(cell: Cell) -> StepExpressions:
        f, g, h = cell.functions

        def total(gate: int, peephole: int, c: Expression) -> Expression:
            made = cell.total(gate)
            return apply("add", made, apply("multiply", cell.other_argument(peephole), c)) if peeps else made

        old = cell.state(1)
        i = f(total(0, 0, old))
        kept = apply("subtract", 1, i) if coupled else f(total(2, 2, old))
        c = apply("add", apply("multiply", kept, old), apply("multiply", i, g(cell.total(3))))
        return [apply("multiply", f(total(1, 1, c)), h(c)), c], None

    return _layer(call, ["sigmoid", "tanh", "tanh"], (4, 2), step, product=product)


@dataclass(frozen=True)
class Parameters:
    """The tensors of all directions: w (D, G*H, I), r (D, G*H, H), b (D, G*H) for all steps, others (D, H) each.

    lengths: of the sequences, (N, 1), None if all are as long as x. initial: the states, each (N, D, H).
    """

    w: Tensor
    r: Tensor
    b: Tensor | None
    others: tuple[Tensor, ...]
    lengths: Tensor | None
    initial: tuple[Tensor, ...]


def _layer(
    call: Call, names: Sequence[str], size: tuple[int, int], step: StepFunction, late: bool = False,
    product: StateProduct | None = None,
) -> list[Tensor]:
    """Y, Y_h and, with two states, Y_c, for one or both directions.

    names: the default activations. size: the number of gates and of states. late: whether the recurrent bias of the
    last gate is the first of the other arguments, not a part of x. product: see `lstm`.
    """
    by_batch = call.flag("layout")
    x = call.input(0).transpose(1, 0, 2) if by_batch else call.input(0)
    flows = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
    backward = flows[call.choice("direction", "forward", flows)]
    given = _parameters(call, x, len(backward), size, late, by_batch)
    cells = []
    for functions in _functions(call, names, len(backward)):
        cell = Cell(size, len(given.others) + (given.lengths is not None), functions)
        cells.append(_frozen_past_end(cell, *step(cell)) if given.lengths is not None else step(cell))
    total = _input_product(x, given, size[0])
    single = len(backward) == 1 or (cells[0][0] == cells[1][0] and cells[0][1] == cells[1][1])
    groups = [range(len(backward))] if single else [range(1), range(1, 2)]
    made = [_states(total, given, group, cells[group[0]], backward, product) for group in groups]
    states = concatenate(made, 3)
    y = states.take(0, [0]).reshape(*states.shape[1:])
    if given.lengths is not None:
        times = Tensor.constant(numpy.arange(x.shape[0], dtype=numpy.float32).reshape(-1, 1, 1, 1))
        y = where(less(times, given.lengths.reshape(-1, 1, 1)), y, 0.0)
    finals = [_final_state(states, number, backward) for number in range(size[1])]
    if by_batch:
        return [y.transpose(1, 0, 2, 3), *finals]
    return [y.transpose(0, 2, 1, 3), *(t.transpose(1, 0, 2) for t in finals)]


def _frozen_past_end(cell: Cell, states: list[Expression], inner: Expression | None) -> StepExpressions:
    """The expressions of a step that leaves the states as they are past the end of a sequence.

    A backward run therefore starts at the end of each sequence with its initial states.
    """
    runs = apply("less", cell.other_argument(cell.other_count), cell.other_argument(cell.other_count - 1))
    return [apply("where", runs, new, cell.state(number)) for number, new in enumerate(states)], inner


def _final_state(states: Tensor, number: int, backward: Sequence[bool]) -> Tensor:
    """A state (N, D, H) after the last step of each direction."""
    last = [0 if each else states.shape[1] - 1 for each in backward]
    whole = states.take(0, [number]).reshape(*states.shape[1:])
    ends = [
        whole.take(0, [time]).reshape(*whole.shape[1:]).slice(1, direction, direction + 1)
        for direction, time in enumerate(last)
    ]
    return concatenate(ends, 1)


def _input_product(x: Tensor, given: Parameters, gates: int) -> Tensor:
    """x times the weights of all directions and gates, with the biases, (T, N, D, G, H)."""
    steps, batch, size = x.shape
    directions, rows, _ = given.w.shape
    made = x.reshape(steps * batch, size).matmul(given.w.reshape(directions * rows, size).transpose(1, 0))
    made = made if given.b is None else made + given.b.reshape(directions * rows)
    return made.reshape(steps, batch, directions, gates, rows // gates)


def _states(
    total: Tensor, given: Parameters, group: range, cell: StepExpressions, backward: Sequence[bool],
    product: StateProduct | None
) -> Tensor:
    """The states (S, T, N, D, H) of a group of directions with the same expressions."""
    (states, inner), (_, batch, _, gates, hidden) = cell, total.shape
    begin, end = group[0], group[-1] + 1
    others = [t.slice(0, begin, end).reshape(1, len(group), hidden).expand(batch, len(group), hidden)
              for t in given.others]
    if given.lengths is not None:
        others.append(given.lengths.reshape(batch, 1, 1).cast(total.dtype).expand(batch, len(group), hidden))
    x, initial = total.slice(2, begin, end), [t.slice(1, begin, end) for t in given.initial]
    r = given.r.slice(0, begin, end)
    if product is None and hidden <= MOST_HIDDEN:
        weights = r.reshape(len(group), gates, hidden, hidden).transpose(0, 3, 1, 2)
        return recurrence(x, weights, initial, others, states, inner, [backward[d] for d in group])
    made = []
    for n, d in enumerate(group):
        first, rest = ([t.slice(1, n, n + 1).reshape(batch, hidden) for t in part] for part in (initial, others))
        matrix, seen = r.take(0, [n]).reshape(gates * hidden, hidden), x.slice(2, n, n + 1)
        made.append(_unrolled(seen, matrix, first, rest, cell, backward[d], product))
    return concatenate(made, 3)


def _state_product(r: Tensor, product: StateProduct | None) -> Callable[[Tensor], Tensor]:
    """The product of a state and r. The transpose is one tensor for all steps: each one is computed at load."""
    transposed = r.transpose(1, 0)
    return (lambda state: state.matmul(transposed)) if product is None else lambda state: product(state, r)


def _unrolled(
    x: Tensor, r: Tensor, states: list[Tensor], others: list[Tensor], cell: StepExpressions, backward: bool,
    product: StateProduct | None,
) -> Tensor:
    """The same as `recurrence` for one direction, with tensors of their own for each step."""
    steps, inner = cell
    count, batch, _, gates, hidden = x.shape
    made: list[Tensor] = []
    late = 0 if inner is None else hidden  # rows of r, the last ones, that `inner` is multiplied with
    whole_of = _state_product(r.slice(0, 0, gates * hidden - late), product)
    last_of = _state_product(r.slice(0, gates * hidden - late, gates * hidden), product)
    for time in reversed(range(count)) if backward else range(count):
        given = x.take(0, [time]).reshape(batch, gates * hidden)
        whole = whole_of(states[0])
        products = [_gate(whole, gate, hidden) for gate in range(gates - (inner is not None))]
        number = Tensor.constant(numpy.full((1, 1), time, x.dtype))
        if inner is not None:
            arguments = [*(_gate(given, gate, hidden) for gate in range(gates)), *products, states[0], *states, *others]
            products.append(last_of(_value(inner, [*arguments, number])))
        arguments = [*(_gate(given, gate, hidden) for gate in range(gates)), *products, *states, *others, number]
        states = [_value(each, arguments) for each in steps]
        made.append(concatenate([t.reshape(1, 1, batch, 1, hidden) for t in states], 0))
    return concatenate(made[::-1] if backward else made, 1)


def _gate(x: Tensor, number: int, hidden: int) -> Tensor:
    """The slice of the last axis that belongs to one gate."""
    return x.slice(x.rank - 1, number * hidden, (number + 1) * hidden)


def _value(expression: Expression, arguments: Sequence[Tensor]) -> Tensor:
    given: Sequence[Tensor | float] = arguments

    def applied(part: Apply, values: Sequence[Tensor | float]) -> Tensor | float:
        return elementwise(part.function, *values)

    made = fold(expression, float, given, applied)
    if not isinstance(made, Tensor):
        raise TypeError(f"{expression} is the same at every step")
    return made


def _lengths(call: Call, steps: int, batch: int) -> Tensor | None:
    """sequence_lens as (batch, 1); None if every sequence is as long as x."""
    lengths = call.optional(4)
    if lengths is None:
        return None
    if lengths.shape != (batch,):
        raise call.wrong(f"sequence_lens {list(lengths.shape)} for a batch of {batch}")
    if lengths.is_constant:
        content = lengths.numpy()
        if numpy.any((content < 0) | (content > steps)):
            raise call.wrong(f"sequence_lens {content.tolist()} for {steps} steps")
        if numpy.all(content == steps):
            return None
    return lengths.reshape(batch, 1)


def _parameters(
    call: Call, x: Tensor, count: int, size: tuple[int, int], late: bool, by_batch: bool
) -> Parameters:
    w, r, b = call.input(1), call.input(2), call.optional(3)
    p = call.optional(7) if call.op_type == "LSTM" else None
    if x.rank != 3 or w.rank != 3 or r.rank != 3:
        raise call.wrong(f"X {list(x.shape)}, W {list(w.shape)} and R {list(r.shape)} need rank 3")
    hidden = int(call.attribute("hidden_size", r.shape[2]))
    rows = size[0] * hidden
    wanted = [(count, rows, x.shape[2]), (count, rows, hidden), (count, 2 * rows), (count, 3 * hidden)]
    for name, tensor, shape in zip("WRBP", (w, r, b, p), wanted, strict=True):
        if tensor is not None and tensor.shape != shape:
            raise call.wrong(f"{name} has shape {list(tensor.shape)}; {list(shape)} is needed")
    others = [] if p is None else [_gate(p, number, hidden) for number in range(3)]
    if late and b is None:
        others = [Tensor.constant(numpy.zeros((count, hidden), x.dtype))]
    bias = None
    if b is not None:
        bias, own = b.slice(1, 0, rows), b.slice(1, rows, 2 * rows)
        if late:
            others = [own.slice(1, rows - hidden, rows)]
            own = own.slice(1, 0, rows - hidden).pad([0, 0], [0, hidden])
        bias = bias + own
    initial = tuple(_initial(call, 5 + n, (count, x.shape[1], hidden), x.dtype, by_batch) for n in range(size[1]))
    return Parameters(w, r, bias, tuple(others), _lengths(call, x.shape[0], x.shape[1]), initial)


def _initial(call: Call, position: int, shape: tuple[int, int, int], dtype: str, by_batch: bool) -> Tensor:
    """The initial states of all directions, (N, D, H)."""
    given = call.optional(position)
    if given is None:
        return Tensor.constant(numpy.zeros((shape[1], shape[0], shape[2]), dtype))
    given = given.transpose(1, 0, 2) if by_batch else given
    if given.shape != shape:
        raise call.wrong(f"an initial state has shape {list(given.shape)}; {list(shape)} is needed")
    return given.transpose(1, 0, 2)


def _functions(call: Call, defaults: Sequence[str], count: int) -> list[list[GateFunction]]:
    """The activation functions of each direction; those that use alpha or beta take the next of the list."""
    names = [str(n).lower() for n in call.attribute("activations", None) or [*defaults] * count]
    unknown = [n for n in names if n not in _ACTIVATIONS]
    if unknown or len(names) != len(defaults) * count:
        raise call.wrong(f"activations {names}; {len(defaults) * count} of {', '.join(_ACTIVATIONS)} are needed")
    alphas, betas = (list(call.attribute(f"activation_{name}", None) or ()) for name in ("alpha", "beta"))
    limit = call.attribute("clip", None)

    def gate_function(name: str, clips: bool) -> GateFunction:
        kind = _ACTIVATIONS[name]
        alpha, beta = (
            0.0 if default is None else float(given.pop(0)) if given else default
            for default, given in ((kind.alpha, alphas), (kind.beta, betas))
        )
        if isnan(alpha) or isnan(beta):
            raise call.wrong(f"{name} needs activation_alpha and activation_beta")
        return lambda x: kind.function(_clipped(x, -limit, limit) if clips else x, alpha, beta)

    each = len(defaults)
    # The argument of LSTM's third function is the cell, which is not clipped.
    made = [gate_function(name, limit is not None and i % each < 2) for i, name in enumerate(names)]
    return [made[i * each : (i + 1) * each] for i in range(count)]
