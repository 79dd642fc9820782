"""Einsum: sums of products of tensors, given by the letters of their axes, as in numpy.einsum("ij,jk->ik", a, b)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from imgconv.ops.registry import Call, operator
from imgconv.tensor import Tensor

# Prefix of the labels of axes that an ellipsis covers, such as those before "ij" in "...ij".
_COVERED = "."


@dataclass(frozen=True)
class Term:
    """A tensor with a label for each axis; no label occurs twice."""

    tensor: Tensor
    labels: tuple[str, ...]

    def size(self, label: str) -> int:
        """The length of the axis with this label; 1 if the tensor has no such axis."""
        return self.tensor.shape[self.labels.index(label)] if label in self.labels else 1

    def permuted_to(self, labels: Sequence[str]) -> Tensor:
        """The tensor with exactly these axes in this order; axes that it does not have get length 1."""
        own = [label for label in labels if label in self.labels]
        moved = self.tensor.transpose(*(self.labels.index(label) for label in own)) if own else self.tensor
        return moved.reshape(*(self.size(label) for label in labels))


@operator("Einsum")
def einsum(call: Call) -> Tensor:
    """Multiplies the operands two at a time from the left; sums a letter once no later operand or output needs it."""
    operands = [call.input(i) for i in range(len(call.inputs))]
    call.refuse_integers(*operands)
    inputs, output = _parse(call, [t.rank for t in operands])
    sizes: dict[str, int] = {}
    terms = []
    for tensor, labels in zip(operands, inputs, strict=True):
        for label, size in zip(labels, tensor.shape, strict=True):
            known = sizes.get(label, 1)
            if 1 not in (size, known) and size != known:
                raise call.wrong(f"axes {label} have lengths {known} and {size}")
            sizes[label] = max(size, known)
        terms.append(_diagonal(Term(tensor, labels), sizes))
    total = terms[0]
    for number, term in enumerate(terms[1:], 1):
        later = {label for t in terms[number + 1 :] for label in t.labels}
        total = _product(total, term, {*output, *later})
    rest = [axis for axis, label in enumerate(total.labels) if label not in output]
    if rest:
        labels = tuple(label for label in total.labels if label in output)
        total = Term(total.tensor.sum(rest), labels)
    return total.permuted_to(output).expand(*(sizes[label] for label in output))


def _parse(call: Call, ranks: Sequence[int]) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """The labels of every operand's axes and of the output's."""
    equation = str(call.attribute("equation", "")).replace(" ", "")
    left, arrow, right = equation.partition("->")
    parts = left.split(",")
    if len(parts) != len(ranks):
        raise call.wrong(f"equation {equation!r} has {len(parts)} terms for {len(ranks)} inputs")
    covered = [rank - len(part.replace("...", "")) if "..." in part else 0 for part, rank in zip(parts, ranks)]
    inputs = [_labels(call, part, count) for part, count in zip(parts, covered)]
    for part, labels, rank in zip(parts, inputs, ranks):
        if len(labels) != rank or min(covered) < 0:
            raise call.wrong(f"term {part!r} of {equation!r} for a tensor of rank {rank}")
    letters = "".join(parts).replace("...", "")
    if arrow:
        output = _labels(call, right, max(covered))
    else:
        # An equation without "->" gives the ellipsis axes, then the letters that occur once, sorted.
        output = _labels(call, "..." + "".join(sorted(c for c in set(letters) if letters.count(c) == 1)), max(covered))
    unknown = [label for label in output if not any(label in labels for labels in inputs)]
    if unknown or len(set(output)) != len(output):
        raise call.wrong(f"the output of {equation!r} repeats a letter, or has one that no term has")
    return inputs, output


def _labels(call: Call, term: str, covered: int) -> tuple[str, ...]:
    """The letters of a term, and a label for each axis that its ellipsis covers, numbered from the right."""
    before, dots, after = term.partition("...")
    if not (before + after).isalpha() and before + after:
        raise call.wrong(f"term {term!r} of equation {call.attribute('equation', '')!r} is not of letters and '...'")
    axes = [f"{_COVERED}{axis}" for axis in range(covered, 0, -1)] if dots else []
    return (*before, *axes, *after)


def _diagonal(term: Term, sizes: dict[str, int]) -> Term:
    """The term with each repeated letter replaced by one axis, the diagonal: "ii" becomes "i"."""
    tensor, labels = term.tensor, list(term.labels)
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first, second = [axis for axis, other in enumerate(labels) if other == label][:2]
            order = [a for a in range(tensor.rank) if a not in (first, second)]
            moved = tensor.transpose(*order, first, second)
            size = sizes[label]
            lead = moved.shape[:-2]
            moved = moved.expand(*lead, size, size).reshape(*lead, size * size)
            tensor = moved.take(len(lead), [i * (size + 1) for i in range(size)])
            labels = [labels[a] for a in order] + [label]
    return Term(tensor, tuple(labels))


def _product(a: Term, b: Term, needed: set[str]) -> Term:
    """a times b, summed over the letters that are not needed afterwards: a matrix product with batch axes."""
    a, b = (_summed(term, other, needed) for term, other in ((a, b), (b, a)))
    batch = [label for label in a.labels if label in b.labels and label in needed]
    inner = [label for label in a.labels if label in b.labels and label not in needed]
    rows = [label for label in a.labels if label not in b.labels]
    columns = [label for label in b.labels if label not in a.labels]
    # An axis of length 1 broadcasts to any length.
    length = {label: max(a.size(label), b.size(label)) for label in (*batch, *inner)}
    left, right = a.permuted_to([*batch, *rows, *inner]), b.permuted_to([*batch, *inner, *columns])
    many, summed = [length[label] for label in batch], [length[label] for label in inner]
    heights, widths = [a.size(label) for label in rows], [b.size(label) for label in columns]
    m, k, n = prod(heights), prod(summed), prod(widths)
    left = left.expand(*many, *left.shape[len(batch) : left.rank - len(inner)], *summed).reshape(*many, m, k)
    right = right.expand(*many, *summed, *right.shape[len(batch) + len(inner) :]).reshape(*many, k, n)
    labels = (*batch, *rows, *columns)
    made = left.matmul(right) if inner else left * right
    return Term(made.reshape(*many, *heights, *widths), labels)


def _summed(term: Term, other: Term, needed: set[str]) -> Term:
    """The term summed over the letters that are neither in the other term nor needed afterwards."""
    kept = [label for label in term.labels if label in needed or label in other.labels]
    gone = [axis for axis, label in enumerate(term.labels) if label not in kept]
    return Term(term.tensor.sum(gone), tuple(kept)) if gone else term
