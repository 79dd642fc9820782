"""The table of templates. A node goes to the first template that accepts it."""

from __future__ import annotations

from imgconv.kernels.codegen import generated, moments, row_kernel, windows
from imgconv.kernels.conv import template as conv
from imgconv.kernels.matmul import template as matmul
from imgconv.kernels.order import merge, template as order
from imgconv.kernels.recurrent import template as recurrent
from imgconv.kernels.separable import template as separable
from imgconv.kernels.squeeze_excite import template as squeeze_excite
from imgconv.kernels.suppression import template as suppress
from imgconv.kernels.template_interface import AnyTemplate, Problem
from imgconv.kernels.winograd import template as winograd2d

TEMPLATES: tuple[AnyTemplate, ...] = (
    moments.TEMPLATE,
    row_kernel.TEMPLATE,
    separable.TEMPLATE,
    squeeze_excite.TEMPLATE,
    winograd2d.TEMPLATE,
    conv.TEMPLATE,
    matmul.TEMPLATE,
    merge.TEMPLATE,
    order.TEMPLATE,
    suppress.TEMPLATE,
    recurrent.TEMPLATE,
    windows.TEMPLATE,
    generated.TEMPLATE,
)


def template_of(problem: Problem) -> AnyTemplate:
    """The template of a problem, by the problem's type."""
    return next(template for template in TEMPLATES if type(problem) is template.problem)
