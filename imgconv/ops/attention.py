"""Attention of com.microsoft, as onnxruntime's optimizer fuses it; Vaswani et al., arXiv:1706.03762.

The operators split the last axis into heads: q (B, N, S, h), k (B, N, T, h) and v (B, N, T, g), for N heads.
"""

from __future__ import annotations

from math import sqrt

import numpy

from imgconv.ops.quantization import by_column, subtract_zero_point
from imgconv.ops.registry import FLOATS, MICROSOFT, Call, Signature, operator
from imgconv.tensor import Tensor, concatenate, less, where

_BYTES = ("uint8", "int8")
_SHARED = ("mask_filter_value", "num_heads", "scale", "unidirectional")
_BUFFERS = ("do_rotary", "past_present_share_buffer")
_NEVER = -3.4028235e38  # what a score becomes that unidirectional forbids


@operator("Attention", domain=MICROSOFT, signature=Signature(
    {"input": "T", "weights": "T", "bias": "T?", "mask_index": "int32?", "past": "T?", "attention_bias": "T?"},
    {"T": FLOATS}, (*_SHARED, *_BUFFERS, "qkv_hidden_sizes")))
def attention(call: Call) -> list[Tensor]:
    """Self-attention of input (B, S, D): weights (D, q + k + v) make q, k and v of it. Also keys and values so far."""
    _refuse_buffers(call)
    x, weights, bias = call.input(0), call.input(1), call.optional(2)
    if x.rank != 3 or weights.rank != 2 or (bias is not None and bias.shape != weights.shape[1:]):
        raise call.wrong(f"input {list(x.shape)} and weights {list(weights.shape)}, or a bias that does not fit")
    projected = x.matmul(weights)
    sizes = list(call.attribute("qkv_hidden_sizes", None) or [weights.shape[1] // 3] * 3)
    return _self_attention(call, projected if bias is None else projected + bias, sizes, 3, 4, call.optional(5))


@operator("QAttention", domain=MICROSOFT, signature=Signature({
    "input": "T1", "weight": "T2", "bias": "T3", "input_scale": "T3", "weight_scale": "T3", "mask_index": "int32?",
    "input_zero_point": "T1?", "weight_zero_point": "T2?", "past": "T3?"},
    {"T1": _BYTES, "T2": _BYTES, "T3": FLOATS}, (*_SHARED, *_BUFFERS)))
def quantised_attention(call: Call) -> list[Tensor]:
    """Attention of a quantised input and quantised weights; q, k and v are floats."""
    _refuse_buffers(call)
    x, weights, scale = call.input(0), call.input(1), call.input(3)
    zeros = call.optional(6), call.optional(7)
    if x.rank != 3 or weights.rank != 2 or call.input(2).shape != weights.shape[1:]:
        raise call.wrong(f"input {list(x.shape)} and weight {list(weights.shape)}, or a bias that does not fit")
    if scale.size != 1 or (zeros[0] is not None and zeros[0].size != 1):
        raise call.wrong("input_scale and input_zero_point are scalars")
    left = subtract_zero_point(x, None if zeros[0] is None else zeros[0].reshape())
    right = subtract_zero_point(weights, None if zeros[1] is None else by_column(call, zeros[1], weights))
    factor = scale.reshape().cast("float32") * by_column(call, call.input(4), weights).cast("float32")
    product = left.cast("float32").matmul(right.cast("float32")) * factor
    projected = (product + call.input(2).cast("float32")).cast(scale.dtype)
    return _self_attention(call, projected, [weights.shape[1] // 3] * 3, 5, 8, None)


def _self_attention(
    call: Call, projected: Tensor, sizes: list[int], mask: int, past: int, bias: Tensor | None
) -> list[Tensor]:
    """Attention of q, k and v one after another along the last axis; mask and past are the numbers of inputs."""
    heads = _heads(call)
    ends = [sum(sizes[:n]) for n in range(4)]
    if len(sizes) != 3 or ends[3] != projected.shape[2] or sizes[0] != sizes[1] or any(n % heads for n in sizes):
        raise call.wrong(f"hidden sizes {sizes} of {projected.shape[2]} columns for {heads} heads")
    q, k, v = (_split_heads(projected.slice(2, ends[n], ends[n + 1]), heads) for n in range(3))
    before, earlier = call.optional(past), 0
    if before is not None:
        if before.rank != 5:
            raise call.wrong(f"past {list(before.shape)}")
        earlier = before.shape[3]
        halves = [before.slice(0, n, n + 1).reshape(*before.shape[1:]) for n in (0, 1)]
        k, v = _append_to_past(call, halves[0], k), _append_to_past(call, halves[1], v)
    output = _attend(call, q, k, v, [_mask(call, mask, q, k, earlier), bias])
    if not call.is_output_used(1):
        return [output]
    if k.shape != v.shape:
        raise call.wrong("present, of keys and values of different sizes")
    return [output, concatenate([t.reshape(1, *t.shape) for t in (k, v)], 0)]


@operator("MultiHeadAttention", domain=MICROSOFT, signature=Signature({
    "query": "T", "key": "T?", "value": "T?", "bias": "T?", "key_padding_mask": "int32?", "attention_bias": "T?",
    "past_key": "T?", "past_value": "T?"}, {"T": FLOATS}, _SHARED))
def multi_head_attention(call: Call) -> list[Tensor]:
    """Attention of query (B, S, N*h), key (B, T, N*h) and value (B, T, N*g), with a bias for each.

    query may also hold all three, (B, S, N, 3, h), and key both others, (B, T, N, 2, h); key and value may be split
    into heads already. Also keys and values so far.
    """
    if call.is_output_used(3):
        raise call.unsupported("output qk")
    q, k, v = _query_key_value(call)
    earlier = call.optional(6), call.optional(7)
    if (earlier[0] is None) != (earlier[1] is None):
        raise call.wrong("needs past_key and past_value, or neither")
    past = 0
    if earlier[0] is not None and earlier[1] is not None:
        past = k.shape[2]
        k, v = _append_to_past(call, earlier[0], k), _append_to_past(call, earlier[1], v)
        past = k.shape[2] - past
    return [_attend(call, q, k, v, [_mask(call, 4, q, k, past), call.optional(5)]), k, v]


def _query_key_value(call: Call) -> tuple[Tensor, Tensor, Tensor]:
    """q, k and v, each (B, N, positions, size), with their biases."""
    query, key, value, bias = call.input(0), call.optional(1), call.optional(2), call.optional(3)
    heads, given = _heads(call), [t for t in (query, key, value) if t is not None]
    ranks = [t.rank for t in given]
    if ranks not in ([3, 3, 3], [3, 4, 4], [5], [3, 5]) or (bias is not None and 4 in ranks):
        raise call.unsupported(f"query, key and value of shapes {[list(t.shape) for t in given]}, or a bias with them")
    parts: list[Tensor] = []
    for tensor in given:
        if tensor.rank == 5:
            count = 3 if len(given) == 1 else 2
            if tensor.shape[2:4] != (heads, count):
                raise call.wrong(f"{list(tensor.shape)} for {heads} heads of {count} parts")
            flat = tensor.transpose(3, 0, 1, 2, 4).reshape(count, *tensor.shape[:2], heads * tensor.shape[4])
            parts += [flat.slice(0, n, n + 1).reshape(*flat.shape[1:]) for n in range(count)]
        else:
            parts.append(tensor)
    sizes = [part.shape[-1] for part in parts]
    if bias is not None and bias.shape != (sum(sizes),):
        raise call.wrong(f"bias {list(bias.shape)}; it needs {sum(sizes)} elements")
    for n, part in enumerate(parts):
        if part.rank == 3 and sizes[n] % heads:
            raise call.wrong(f"{sizes[n]} columns for {heads} heads")
        if bias is not None:
            part = part + bias.slice(0, sum(sizes[:n]), sum(sizes[: n + 1]))
        parts[n] = part if part.rank == 4 else _split_heads(part, heads)
    return parts[0], parts[1], parts[2]


def _attend(call: Call, q: Tensor, k: Tensor, v: Tensor, added: list[Tensor | None]) -> Tensor:
    """softmax(q k' * scale + added) v, (B, S, N*g); the softmax is in float32."""
    if q.shape[:2] != k.shape[:2] or k.shape[:3] != v.shape[:3] or q.shape[3] != k.shape[3]:
        raise call.wrong(f"q {list(q.shape)}, k {list(k.shape)} and v {list(v.shape)} do not fit")
    scale = call.number("scale", 0.0) or 1 / sqrt(q.shape[3])
    scores = (q.matmul(k.transpose(0, 1, 3, 2)) * scale).cast("float32")
    shape = scores.shape
    for each in added:
        scores = scores if each is None else scores + each.cast("float32")
    if scores.shape != shape:
        raise call.wrong(f"a mask or attention_bias does not broadcast to {list(shape)}")
    made = scores.softmax(3).cast(q.dtype).matmul(v)
    return made.transpose(0, 2, 1, 3).reshape(q.shape[0], q.shape[2], v.shape[1] * v.shape[3])


def _mask(call: Call, position: int, q: Tensor, k: Tensor, past: int) -> Tensor | None:
    """Returns the scores' bias (B, N, S, T): mask_filter_value where the mask is 0, _NEVER past a causal mask.

    past: how many of the keys are of earlier positions. A mask is (B, T) or (B, S, T); or (B), the end of each
    sequence; or (2*B), the ends, then the starts.
    """
    mask, (batch, _, length, _), total = call.optional(position), q.shape, k.shape[2]
    places, filtered = numpy.arange(total), call.number("mask_filter_value", -10000.0)
    kept: Tensor | None = None
    if mask is not None and mask.shape in ((batch, total), (batch, length, total)):
        kept = less(0, mask.reshape(batch, 1, -1, total))
    elif mask is not None and mask.shape in ((batch,), (2 * batch,)):
        kept = less(Tensor.constant(places), mask.slice(0, 0, batch).reshape(batch, 1, 1, 1))
        if mask.shape != (batch,):
            starts = mask.slice(0, batch, 2 * batch).reshape(batch, 1, 1, 1)
            kept = kept.apply("and", less(Tensor.constant(places), starts).apply("not"))
    elif mask is not None:
        raise call.unsupported(f"a mask of shape {list(mask.shape)} for {length} queries and {total} keys")
    added = None if kept is None else where(kept, Tensor.constant(numpy.float32(0)), filtered)
    if not call.flag("unidirectional"):
        return added
    if total != length + past:
        raise call.unsupported(f"unidirectional with {length} queries after {past} and {total} keys")
    later = places > numpy.arange(length)[:, None] + past
    never = Tensor.constant(numpy.where(later, numpy.float32(_NEVER), numpy.float32(0)))
    return never if added is None else where(Tensor.constant(later), never, added)


def _append_to_past(call: Call, before: Tensor, now: Tensor) -> Tensor:
    """Keys or values of earlier positions, then those of this call."""
    if before.rank != 4 or before.shape[:2] != now.shape[:2] or before.shape[3] != now.shape[3]:
        raise call.wrong(f"past {list(before.shape)} for {list(now.shape)}")
    return concatenate([before, now], 2)


def _split_heads(x: Tensor, heads: int) -> Tensor:
    """(B, positions, N*h) to (B, N, positions, h)."""
    return x.reshape(*x.shape[:2], heads, x.shape[2] // heads).transpose(0, 2, 1, 3)


def _heads(call: Call) -> int:
    heads = int(call.attribute("num_heads", 0))
    if heads < 1:
        raise call.wrong(f"num_heads is {heads}")
    return heads


def _refuse_buffers(call: Call) -> None:
    for name in _BUFFERS:
        if call.flag(name):
            raise call.unsupported(name)
