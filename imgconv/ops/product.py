"""Matrix products."""

from __future__ import annotations

from imgconv.ops.registry import Call, operator
from imgconv.ops.scaled_sum import scaled_sum
from imgconv.tensor import Tensor

LARGEST_DETERMINANT = 4


@operator("MatMul")
def matmul(call: Call) -> Tensor:
    """numpy.matmul: batch axes broadcast; a vector gets an axis of length 1, which the result does not have."""
    a, b = call.input(0), call.input(1)
    call.refuse_integers(a, b)
    if not a.rank or not b.rank:
        raise call.wrong("a scalar has no matrix product")
    made = scaled_sum(a, b, None, _matmul_in_float, -1, (-1,)) if b.rank == 2 else None
    return a.matmul(b) if made is None else made


def _matmul_in_float(a: Tensor, b: Tensor) -> Tensor:
    return a.matmul(b, "float32")


@operator("Det")
def determinant(call: Call) -> Tensor:
    """The determinant of each matrix (..., n, n), by cofactor expansion along its first row."""
    x = call.input(0)
    if x.rank < 2 or x.shape[-1] != x.shape[-2] or not x.shape[-1]:
        raise call.wrong(f"{list(x.shape)} is not a square matrix")
    if x.shape[-1] > LARGEST_DETERMINANT:
        raise call.unsupported(f"a matrix of {x.shape[-1]} rows, more than {LARGEST_DETERMINANT}")
    return _determinant(x.cast("float32")).reshape(*x.shape[:-2]).cast(x.dtype)


def _determinant(x: Tensor) -> Tensor:
    """(..., n, n) -> (..., 1, 1)."""
    rows, columns, size = x.rank - 2, x.rank - 1, x.shape[-1]
    if size == 1:
        return x
    below = x.take(rows, range(1, size))
    minors = [below.take(columns, [c for c in range(size) if c != column]) for column in range(size)]
    parts = [x.slice(rows, 0, 1).slice(columns, c, c + 1) * _determinant(minor) for c, minor in enumerate(minors)]
    total = parts[0]
    for column in range(1, size):
        total = total - parts[column] if column % 2 else total + parts[column]
    return total


def _transposed(matrix: Tensor) -> Tensor:
    """The matrix (N, K) as (K, N), quantised if it is."""
    made = matrix.transpose(1, 0)
    if matrix.quantised is not None:
        integers, scale = matrix.quantised
        by_axis = scale if scale.size == 1 else scale.reshape(-1, scale.shape[-1]).transpose(1, 0)
        made.quantised = integers.transpose(1, 0), by_axis
    return made


@operator("Gemm")
def gemm(call: Call) -> Tensor:
    """alpha * A' B' + beta * C; A' is A, or its transpose if transA is set; B' likewise; C broadcasts."""
    a, b, c = call.input(0), call.input(1), call.optional(2)
    call.refuse_integers(a, b)
    if a.rank != 2 or b.rank != 2:
        raise call.wrong(f"needs two matrices, not {list(a.shape)} and {list(b.shape)}")
    a = a.transpose(1, 0) if call.flag("transA") else a
    b = _transposed(b) if call.flag("transB") else b
    alpha, beta = call.number("alpha", 1.0), call.number("beta", 1.0)
    if alpha == beta == 1 and (c is None or c.shape == (b.shape[1],)):
        made = scaled_sum(a, b, c, _matmul_in_float, -1, (-1,))
        if made is not None:
            return made
    product = a.matmul(b)
    product = product if alpha == 1 else product * alpha
    if c is None or beta == 0:
        return product
    result = product + (c if beta == 1 else c * beta)
    if result.shape != product.shape:
        raise call.wrong(f"C of shape {list(c.shape)} does not broadcast to {list(product.shape)}")
    return result
