"""Matrix products."""

from __future__ import annotations

from imgconv.ops.registry import Call, operator
from imgconv.tensor import Tensor


@operator("MatMul")
def matmul(call: Call) -> Tensor:
    """numpy.matmul: batch axes broadcast, a vector gains an axis that is dropped again."""
    a, b = call.input(0), call.input(1)
    call.computes(a, b)
    if not a.rank or not b.rank:
        raise call.wrong("a scalar has no matrix product")
    return a.matmul(b)


@operator("Gemm")
def gemm(call: Call) -> Tensor:
    """alpha * A' B' + beta * C, where A' and B' may be transposed and C broadcasts."""
    a, b, c = call.input(0), call.input(1), call.optional(2)
    call.computes(a, b)
    if a.rank != 2 or b.rank != 2:
        raise call.wrong(f"needs two matrices, not {list(a.shape)} and {list(b.shape)}")
    a = a.transpose(1, 0) if call.flag("transA") else a
    b = b.transpose(1, 0) if call.flag("transB") else b
    alpha, beta = call.number("alpha", 1.0), call.number("beta", 1.0)
    product = a.matmul(b)
    product = product if alpha == 1 else product * alpha
    if c is None or beta == 0:
        return product
    result = product + (c if beta == 1 else c * beta)
    if result.shape != product.shape:
        raise call.wrong(f"C of shape {list(c.shape)} does not broadcast to {list(product.shape)}")
    return result
