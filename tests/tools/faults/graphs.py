"""Faults in passes and in the arithmetic of views."""

from __future__ import annotations

from .fault import Fault

ALL_PASSES = "passes/test_pipeline.py"
RESIZE = ("device/test_resize.py", "ops/test_operators.py -k Resize")

FAULTS = (
    Fault(
        "passes/padding.py", "padding with another value than 0 is taken for the convolution's own",
        " or operation.transposed or operand.fill != 0:",
        " or operation.transposed:",
        ("passes/test_padding.py", "device/test_convolution.py"),
    ),
    Fault(
        "passes/padding.py", "swapped axis: the pads of rows and columns",
        "(operation.pads[0] + before[0], operation.pads[1] + before[1])",
        "(operation.pads[0] + before[1], operation.pads[1] + before[0])",
        ("passes/test_padding.py",),
    ),
    Fault(
        "passes/padding.py", "a crop at the end is taken for padding",
        "o.constant > 0 or view.shape[a] + o.constant < view.source[a] for",
        "o.constant > 0 for",
        ("passes/test_padding.py",),
    ),
    Fault(
        "passes/products.py", "the value that an operand is padded with is multiplied too",
        "    if operand.view.bounds and operand.fill:  # a fill of zero is zero times the factor too\n"
        "        return None\n",
        "",
        ("passes/test_products.py",),
    ),
    Fault(
        "passes/epilogues.py", "work that reads a result as it is and turned becomes its kernel's epilogue",
        "whole = all(o.view.is_identity for",
        "whole = any(o.view.is_identity for",
        ("passes/test_epilogues.py", ALL_PASSES),
    ),
    Fault(
        "passes/concatenations.py", "a part's fill value is added to all other parts",
        "if operand.view.bounds and operand.fill != 0:",
        "if False:",
        ("passes/test_concatenations.py", ALL_PASSES),
    ),
    Fault(
        "passes/elementwise.py", "zeros after elementwise work become zeros before it",
        "isinstance(made, Literal) and made.value == 0",
        "isinstance(made, Literal)",
        ("passes/test_elementwise.py", "device/test_neighbours.py"),
    ),
    Fault(
        "passes/movement.py", "work after padding leaves the padding out",
        "not read.view.is_identity and not read.view.bounds",
        "not read.view.is_identity",
        ("passes/test_movement.py", ALL_PASSES),
    ),
    Fault(
        "passes/views.py", "of two paddings with different values, one is kept",
        "inner.view.bounds and outer.fill != inner.fill:",
        "inner.view.bounds and False:",
        ("passes/test_views.py", ALL_PASSES),
    ),
    Fault(
        "passes/views.py", "a cast that only moves is left out",
        "if is_movement(made) and made.output.dtype == graph.values[made.operands[0].value].dtype:",
        "if is_movement(made):",
        ("passes/test_views.py", ALL_PASSES),
    ),
    Fault(
        "passes/exact_integers.py", "integers past 2**24 are not marked",
        'expression.apply("less", size, EXACT)',
        'expression.apply("less", size, 2 * EXACT)',
        ("passes/test_exact_integers.py", "device/test_integers.py"),
    ),
    Fault(
        "kernels/codegen/row_groups.py", "rows are made together although one is read with padding",
        "            if operand.view.bounds:\n                return False\n",
        "",
        ("device/test_row_groups.py", "device/test_neighbours.py"),
    ),
    Fault(
        "graph/index.py", "off by one: a rest that is as large as the factor is left out",
        "rest.low >= 0 and rest.high < common:",
        "rest.low >= 0 and rest.high <= common:",
        ("graph/test_index.py",),
    ),
    Fault(
        "graph/index.py", "a quotient of a negative number is rounded towards 0",
        "-(atom.value.low // atom.divisor))",
        "-atom.value.low // atom.divisor)",
        ("graph/test_index.py",),
    ),
    Fault(
        "graph/view.py", "off by one: the last window reaches nothing",
        "tap * dilation\n    return reach // stride, [Bound(reach, 0, (size - 1) * stride + 1),",
        "tap * dilation\n    return reach // stride, [Bound(reach, 0, (size - 1) * stride),",
        ("passes/test_sums_to_reductions.py", "device/test_convolution.py", "ops/test_operators.py"),
    ),
    Fault(
        "passes/parallel_convolutions.py", "a smaller window lies at the wrong place of the larger one",
        "largest.operation.pads[axis] - branch.operation.pads[axis]",
        "branch.operation.pads[axis] - branch.operation.pads[axis]",
        ("passes/test_parallel_convolutions.py",),
    ),
    Fault(
        "passes/concatenation_parts.py", "every part gets the operands of the first one",
        "        first += part.view.shape[1]\n",
        "",
        ("passes/test_concatenation_parts.py",),
    ),
    Fault(
        "passes/channel_factors.py", "a convolution of some channels is multiplied by one factor",
        "(*view.index[:2], constant(0), constant(0))",
        "(view.index[0], view.index[1] * 0, constant(0), constant(0))",
        ("passes/test_channel_factors.py",),
    ),
    Fault(
        "ops/resize.py", "coordinates of Resize are half",
        "_Single = numpy.float32",
        "_Single = numpy.float16",
        RESIZE,
    ),
    Fault(
        "ops/resize.py", "a coordinate near halfway is none",
        "TIE = 1e-6",
        "TIE = 0",
        RESIZE,
    ),
    Fault(
        "passes/gathers.py", "a gather that a reduction takes in loses its fill value",
        "replace(made, fill=operand.fill)",
        "made",
        ("passes/test_gathers.py",),
    ),
    Fault(
        "passes/gathers.py", "a reduction that reads elements several times chooses them each time",
        " or prod(seen.view.shape) != gather.output.size:",
        ":",
        ("passes/test_gathers.py",),
    ),
    Fault(
        "kernels/codegen/generated.py", "lanes of one texel are taken to have equal indices, though they are not",
        "uniform = not any(LANE in e.substitute(axes).variables() for e in read)",
        "uniform = True",
        ("ops/test_operators.py -k Gather", "device/test_tables.py", "device/test_operators_on_device.py"),
    ),
    Fault(
        "host/padded_rows.py", "the first rows are taken, though others exist",
        "or (ends < 0).any() or not space.is_prefix", "or (ends < 0).any()",
        ("host/test_padded_rows.py",),
    ),
    Fault(
        "host/padded_rows.py", "a column of numbers lies next to the rows that exist",
        "return (other.space, other.places_in) == (first.space, first.places_in)", "return True",
        ("host/test_padded_rows.py",),
    ),
    Fault(
        "host/offload.py", "boxes that one mask picks twice are taken to be different rows",
        "self.places[node.inputs[0]] = made", "pass",
        ("device/test_offload.py",),
    ),
)
