"""RNN, GRU and LSTM, unrolled: one matrix product of the input for all steps, one or two of the state for each step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isnan, nan

import numpy

from imgconv.ops.registry import Call, operator
from imgconv.tensor import Tensor, concatenate, less, where

Function = Callable[[Tensor], Tensor]
# One step: (the input's product with w at that step, the states before it) -> the states after it.
Step = Callable[[Tensor, "list[Tensor]"], "list[Tensor]"]


def _softplus(x: Tensor) -> Tensor:
    return x.maximum(0) + (-x.apply("absolute")).exp().apply("log1p")


@dataclass(frozen=True)
class Activation:
    """A scalar function of x, alpha and beta, and the defaults of alpha and beta.

    None means that the function does not use it; NaN that it has no default, as in ONNX's operator of that name.
    """

    function: Callable[[Tensor, float, float], Tensor]
    alpha: float | None = None
    beta: float | None = None


_ACTIVATIONS = {
    "relu": Activation(lambda x, _, __: x.relu()),
    "tanh": Activation(lambda x, _, __: x.tanh()),
    "sigmoid": Activation(lambda x, _, __: x.sigmoid()),
    "softsign": Activation(lambda x, _, __: x / (x.apply("absolute") + 1)),
    "softplus": Activation(lambda x, _, __: _softplus(x)),
    "affine": Activation(lambda x, a, b: x * a + b, 1.0, 0.0),
    "leakyrelu": Activation(lambda x, a, _: x.leaky_relu(a), 0.01),
    "thresholdedrelu": Activation(lambda x, a, _: where(less(x, a), 0.0, x), 1.0),
    "scaledtanh": Activation(lambda x, a, b: (x * b).tanh() * a, nan, nan),
    "hardsigmoid": Activation(lambda x, a, b: (x * a + b).clip(0, 1), 0.2, 0.5),
    "elu": Activation(lambda x, a, _: x.elu(a), 1.0),
}


@dataclass(frozen=True)
class Direction:
    """The weights of one direction: w (G*H, I), r (G*H, H), wb and rb (G*H), and LSTM's peepholes p (3*H)."""

    w: Tensor
    r: Tensor
    wb: Tensor | None
    rb: Tensor | None
    p: Tensor | None
    functions: Sequence[Function]

    @property
    def hidden(self) -> int:
        return self.r.shape[1]


@operator("RNN")
def rnn(call: Call) -> list[Tensor]:
    """H = f(X W' + H R' + Wb + Rb)."""

    def begin(of: Direction) -> tuple[Tensor | None, Step]:
        def step(x: Tensor, states: list[Tensor]) -> list[Tensor]:
            return [of.functions[0](x + states[0].matmul(of.r.transpose(1, 0)))]

        return _total(of.wb, of.rb), step

    return _unrolled(call, 1, ["tanh"], begin)


@operator("GRU")
def gru(call: Call) -> list[Tensor]:
    """z = f(..), r = f(..), h = g(X Wh' + (r*H) Rh' + ..), H = (1 - z)*h + z*H; gates in the order z, r, h.

    With linear_before_reset, h = g(X Wh' + Wbh + r*(H Rh' + Rbh)).
    """
    before = int(call.attribute("linear_before_reset", 0)) != 0

    def begin(of: Direction) -> tuple[Tensor | None, Step]:
        h, (f, g) = of.hidden, of.functions
        ruled = of.r.transpose(1, 0)
        early, late = of.rb, None
        if before and of.rb is not None:
            late, nothing = of.rb.slice(0, 2 * h, 3 * h), Tensor.constant(numpy.zeros(h, of.rb.dtype))
            early = concatenate([of.rb.slice(0, 0, 2 * h), nothing], 0)

        def step(x: Tensor, states: list[Tensor]) -> list[Tensor]:
            state = states[0]
            product = state.matmul(ruled if before else ruled.slice(1, 0, 2 * h))
            z, r = (f(_gate(x, i, h) + _gate(product, i, h)) for i in (0, 1))
            if before:
                inner = _gate(product, 2, h)
                inner = r * (inner if late is None else inner + late)
            else:
                inner = (r * state).matmul(ruled.slice(1, 2 * h, 3 * h))
            return [(1 - z) * g(_gate(x, 2, h) + inner) + z * state]

        return _total(of.wb, early), step

    return _unrolled(call, 3, ["sigmoid", "tanh"], begin)


def _product(x: Tensor, w: Tensor) -> Tensor:
    """x (..., I) times the transpose of w (O, I)."""
    return x.matmul(w.transpose(1, 0))


@operator("LSTM")
def lstm(call: Call, product: Callable[[Tensor, Tensor], Tensor] = _product) -> list[Tensor]:
    """i, o, f = f(..), c = g(..), C = f*C + i*c, H = o*h(C); gates in the order i, o, f, c.

    Peepholes add Pi*C and Pf*C to the inputs of gates i and f, and Po times the new C to that of o. input_forget makes
    f = 1 - i. clip bounds the arguments of f and g, but not C, as in onnxruntime. product: of a state and r, if it is
    another one.
    """
    coupled = call.flag("input_forget")

    def begin(of: Direction) -> tuple[Tensor | None, Step]:
        hidden, (f, g, h) = of.hidden, of.functions
        peepholes = None if of.p is None else [_gate(of.p, i, hidden) for i in range(3)]

        def step(x: Tensor, states: list[Tensor]) -> list[Tensor]:
            state, cell = states
            total = x + product(state, of.r)
            i, o, forget, c = (_gate(total, n, hidden) for n in range(4))
            if peepholes is not None:
                i, forget = i + peepholes[0] * cell, forget + peepholes[2] * cell
            i = f(i)
            cell = (1 - i if coupled else f(forget)) * cell + i * g(c)
            return [f(o if peepholes is None else o + peepholes[1] * cell) * h(cell), cell]

        return _total(of.wb, of.rb), step

    return _unrolled(call, 4, ["sigmoid", "tanh", "tanh"], begin)


def _total(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    return b if a is None else a if b is None else a + b


def _gate(x: Tensor, number: int, hidden: int) -> Tensor:
    """The slice of the last axis that belongs to one gate."""
    return x.slice(x.rank - 1, number * hidden, (number + 1) * hidden)


def _unrolled(
    call: Call, gates: int, names: Sequence[str], begin: Callable[[Direction], tuple[Tensor | None, Step]]
) -> list[Tensor]:
    """Y, Y_h and, with two states, Y_c, for one or both directions. begin(direction) gives its bias and its step."""
    by_batch = call.flag("layout")
    x = call.input(0).transpose(1, 0, 2) if by_batch else call.input(0)
    flows = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
    backward = flows[call.choice("direction", "forward", flows)]
    functions = _functions(call, names, len(backward))
    results = []
    for number, (flip, chosen) in enumerate(zip(backward, functions, strict=True)):
        of = _direction(call, x, number, len(backward), gates, chosen)
        states = [
            _initial(call, position, number, len(backward), (x.shape[1], of.hidden), x.dtype, by_batch)
            for position in ((5, 6) if call.op_type == "LSTM" else (5,))
        ]
        results.append(_run(call, x, of, states, flip, *begin(of)))
    y = concatenate([r[0].reshape(x.shape[0], 1, *r[0].shape[1:]) for r in results], 1)
    finals = [
        concatenate([r[1][i].reshape(1, *r[1][i].shape) for r in results], 0) for i in range(len(results[0][1]))
    ]
    return [y.transpose(2, 0, 1, 3), *(t.transpose(1, 0, 2) for t in finals)] if by_batch else [y, *finals]


def _run(
    call: Call, x: Tensor, of: Direction, states: list[Tensor], flip: bool, bias: Tensor | None, step: Step
) -> tuple[Tensor, list[Tensor]]:
    """The first state after every step, (steps, batch, H), and the final states.

    Past the end of a sequence shorter than x, the states stay unchanged and the outputs are zero. A backward run
    therefore starts at the end of each sequence with its initial states.
    """
    steps, batch, size = x.shape
    product = x.reshape(steps * batch, size).matmul(of.w.transpose(1, 0))
    product = (product if bias is None else product + bias).reshape(steps, batch, -1)
    lengths = _lengths(call, steps, batch)
    made: list[Tensor] = []
    for time in reversed(range(steps)) if flip else range(steps):
        after = step(product.take(0, [time]).reshape(batch, -1), states)
        if lengths is None:
            states = after
            made.append(states[0])
            continue
        runs = less(float(time), lengths)
        states = [where(runs, new, old) for new, old in zip(after, states, strict=True)]
        made.append(where(runs, after[0], 0.0))
    parts = [t.reshape(1, *t.shape) for t in (reversed(made) if flip else made)]
    return concatenate(parts, 0), states


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


def _direction(
    call: Call, x: Tensor, number: int, count: int, gates: int, functions: Sequence[Function]
) -> Direction:
    w, r, b = call.input(1), call.input(2), call.optional(3)
    p = call.optional(7) if call.op_type == "LSTM" else None
    if x.rank != 3 or w.rank != 3 or r.rank != 3:
        raise call.wrong(f"X {list(x.shape)}, W {list(w.shape)} and R {list(r.shape)} need rank 3")
    hidden = int(call.attribute("hidden_size", r.shape[2]))
    rows = gates * hidden
    wanted = [(count, rows, x.shape[2]), (count, rows, hidden), (count, 2 * rows), (count, 3 * hidden)]
    for name, tensor, shape in zip("WRBP", (w, r, b, p), wanted, strict=True):
        if tensor is not None and tensor.shape != shape:
            raise call.wrong(f"{name} has shape {list(tensor.shape)}; {list(shape)} is needed")
    own_w, own_r, own_b, own_p = (
        None if t is None else t.take(0, [number]).reshape(*t.shape[1:]) for t in (w, r, b, p)
    )
    assert own_w is not None and own_r is not None
    wb, rb = (None, None) if own_b is None else (own_b.slice(0, 0, rows), own_b.slice(0, rows, 2 * rows))
    return Direction(own_w, own_r, wb, rb, own_p, functions)


def _initial(
    call: Call, position: int, number: int, count: int, shape: tuple[int, int], dtype: str, by_batch: bool
) -> Tensor:
    """A direction's initial state, (batch, H)."""
    given = call.optional(position)
    if given is None:
        return Tensor.constant(numpy.zeros(shape, dtype))
    given = given.transpose(1, 0, 2) if by_batch else given
    if given.shape != (count, *shape):
        raise call.wrong(f"an initial state has shape {list(given.shape)}; {[count, *shape]} is needed")
    return given.take(0, [number]).reshape(*shape)


def _functions(call: Call, defaults: Sequence[str], count: int) -> list[list[Function]]:
    """The activation functions of each direction; those that use alpha or beta take the next of the list."""
    names = [str(n).lower() for n in call.attribute("activations", None) or [*defaults] * count]
    unknown = [n for n in names if n not in _ACTIVATIONS]
    if unknown or len(names) != len(defaults) * count:
        raise call.wrong(f"activations {names}; {len(defaults) * count} of {', '.join(_ACTIVATIONS)} are needed")
    alphas, betas = (list(call.attribute(f"activation_{name}", None) or ()) for name in ("alpha", "beta"))
    limit = call.attribute("clip", None)

    def function(name: str, clips: bool) -> Function:
        kind = _ACTIVATIONS[name]
        alpha, beta = (
            0.0 if default is None else float(given.pop(0)) if given else default
            for default, given in ((kind.alpha, alphas), (kind.beta, betas))
        )
        if isnan(alpha) or isnan(beta):
            raise call.wrong(f"{name} needs activation_alpha and activation_beta")
        return lambda x: kind.function(x.clip(-limit, limit) if clips else x, alpha, beta)

    each = len(defaults)
    # The argument of LSTM's third function is the cell, which is not clipped.
    made = [function(name, limit is not None and i % each < 2) for i, name in enumerate(names)]
    return [made[i * each : (i + 1) * each] for i in range(count)]
