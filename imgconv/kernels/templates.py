"""The hand-written kernels. A node goes to the first template that takes it."""

from __future__ import annotations

from imgconv.kernels import conv_template, matmul, merge, order, recurrent, separable_template, squeeze_excite
from imgconv.kernels import suppress, winograd2d
from imgconv.kernels.step import AnyTemplate, Problem

TEMPLATES: tuple[AnyTemplate, ...] = (
    separable_template.TEMPLATE, squeeze_excite.TEMPLATE, winograd2d.TEMPLATE, conv_template.TEMPLATE, matmul.TEMPLATE,
    merge.TEMPLATE, order.TEMPLATE, suppress.TEMPLATE, recurrent.TEMPLATE,
)


def template_of(problem: Problem) -> AnyTemplate:
    """The template of a problem, by the problem's type."""
    return next(template for template in TEMPLATES if type(problem) is template.problem)
