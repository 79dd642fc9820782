"""Faults in .cl files."""

from __future__ import annotations

from .fault import Fault

CONVOLUTION, NEIGHBOURS, OCLGRIND = "device/test_convolution.py", "device/test_neighbours.py", "device/test_oclgrind.py"
PRODUCT = "device/test_product.py"

FAULTS = (
    # conv.cl and what it includes
    Fault(
        "conv.cl", "off by one: a pass more than there are quads",
        "if (first_quad >= OUTPUT_QUADS) break;",
        "if (first_quad > OUTPUT_QUADS) break;",
        (f"{CONVOLUTION} -k 'half_arithmetic and runs'", CONVOLUTION),
    ),
    Fault(
        "conv.cl", "sums in half leave out the fourth lane",
        "EACH_LANE(ADD_CHANNEL)",
        "ADD_CHANNEL(0, x) ADD_CHANNEL(1, y) ADD_CHANNEL(2, z)",
        (f"{CONVOLUTION} -k half_arithmetic",),
    ),
    Fault(
        "conv.cl", "off by one: weights that are read in order are those of the next texel",
        "step * WEIGHTS_OF_STEP + (n))",
        "step * WEIGHTS_OF_STEP + (n) + 1)",
        (f"{CONVOLUTION} -k in_order",),
    ),
    Fault(
        "conv.cl", "missed barrier: parts of a sum are added before they are there",
        f"  puts{' ' * 78}\\\n  barrier(CLK_LOCAL_MEM_FENCE);", "  puts",
        (f"{CONVOLUTION} -k 'blocks and parts'", f"{OCLGRIND} -k convolution", CONVOLUTION),
    ),
    Fault(
        "kernels/conv/conv_tiled.cl", "missed barrier: a copy in local memory is overwritten while others use it",
        "  while (quads < ALL_QUADS) {\n    barrier(CLK_LOCAL_MEM_FENCE);",
        "  while (quads < ALL_QUADS) {",
        (f"{CONVOLUTION} -k 'blocks and local'", f"{OCLGRIND} -k convolution", CONVOLUTION),
    ),
    Fault(
        "kernels/lib/input.cl", "off by one: the padding below an image is the first row of the next one",
        "row >= INPUT_HEIGHT ? -1",
        "row > INPUT_HEIGHT ? -1",
        (f"{CONVOLUTION} -k batches", CONVOLUTION),
    ),
    Fault(
        "kernels/winograd/winograd2d.cl", "a wrong factor in the transform of F(4x4, 3x3)",
        "1.265625f * d[1] - 2.8125f * d[3]",
        "1.265625f * d[1] - 2.8f * d[3]",
        ("device/test_winograd2d.py -k large_tiles",),
    ),
    Fault(
        "kernels/lib/store.cl", "off by one: a row below the image is stored",
        "|| row < OUTPUT_HEIGHT)",
        "|| row <= OUTPUT_HEIGHT)",
        (f"{CONVOLUTION} -k batches", CONVOLUTION),
    ),
    Fault(
        "kernels/lib/output.cl", "dropped lane mask: lanes past the last channel are stored as they are",
        "#if LAST_LANES < 4\n",
        "#if LAST_LANES < 0\n",
        (f"{NEIGHBOURS} -k spare", CONVOLUTION, NEIGHBOURS),
    ),
    Fault(
        "kernels/lib/output.cl", "a part of a concatenation is written over its first part",
        "column * OUTPUT_PITCH + OUTPUT_OFFSET + quad;",
        "column * OUTPUT_PITCH + quad;",
        ("device/test_generated.py -k in_place", CONVOLUTION),
    ),
    Fault(
        "kernels/lib/operands.cl", "swapped axis: rows of a kept window are a column's stride apart",
        "#define ROW_AT(row, ky) (((row) * STRIDE_Y",
        "#define ROW_AT(row, ky) (((row) * STRIDE_X",
        (f"{CONVOLUTION} -k 'blocks and window'", CONVOLUTION),
    ),
    Fault(
        "kernels/conv/conv_tiled.cl", "off by one: a position of the window that meets only the first row is left out",
        "(LOCAL_ROWS - 1) * SKIP_Y >= 0)",
        "(LOCAL_ROWS - 1) * SKIP_Y > 0)",
        (f"{CONVOLUTION} -k one_position", CONVOLUTION),
    ),
    Fault(
        "kernels/conv/conv_tiled.cl", "off by one: a window position that meets only the last column is left out",
        "column >= INPUT_WIDTH ||",
        "column >= INPUT_WIDTH - 1 ||",
        (f"{CONVOLUTION} -k one_position", CONVOLUTION),
    ),
    Fault(
        "kernels/conv/depthwise.cl", "work items that fill up a group write quads past the last",
        "|| item_y >= QUAD_BLOCKS ||",
        "||",
        (f"{CONVOLUTION} -k depthwise", CONVOLUTION),
    ),
    # the other templates
    Fault(
        "matmul.cl", "off by one: a row below B's last is multiplied, by a lane that is zero",
        "right[lane] = inner < INNER ?",
        "right[lane] = inner <= INNER ?",
        (f"{PRODUCT} -k 'neighbours or vectors'", PRODUCT, NEIGHBOURS),
    ),
    Fault(
        "matmul.cl", "missed barrier between the rounds in which parts of a sum meet",
        "parts[part][item][r] += parts[part + half_way][item][r];\n    barrier(CLK_LOCAL_MEM_FENCE);",
        "parts[part][item][r] += parts[part + half_way][item][r];",
        (f"{PRODUCT} -k shared", f"{OCLGRIND} -k product", PRODUCT),
    ),
    Fault(
        "kernels/separable/separable.cl", "missed barrier between the depthwise convolution and the other one",
        "  barrier(CLK_LOCAL_MEM_FENCE);\n\n  const uint block",
        "\n  const uint block",
        ("device/test_separable.py -k grid", f"{OCLGRIND} -k separable"),
    ),
    Fault(
        "kernels/separable/separable.cl",
        "dropped lane mask: lanes past the last channel lie between the two convolutions",
        "QUAD_LANES < 4 && quad == QUADS - 1 ? keep_lanes(texel, QUAD_LANES) : texel)",
        "texel)",
        ("device/test_separable.py -k lanes_past", "device/test_separable.py"),
    ),
    Fault(
        "kernels/separable/separable.cl", "a run in half replaces the sum of those before it",
        "sum[c][o] += convert_float4(partial[c][o]);",
        "sum[c][o] = convert_float4(partial[c][o]);",
        ("device/test_separable_in_half.py -k sums",),
    ),
    Fault(
        "kernels/separable/separable.cl", "the zero point is added once for each part of a sum of integers",
        "part == 0 ? as_int4(READ_WEIGHT(first_weight + o, QUADS)) : (int4)(0);",
        "as_int4(READ_WEIGHT(first_weight + o, QUADS));",
        ("device/test_sums_of_levels.py -k pairs",),
    ),
    Fault(
        "kernels/separable/separable.cl", "a wrong pad: that of the columns for the rows",
        "row * STRIDE_Y - PAD_Y + ky",
        "row * STRIDE_Y - PAD_X + ky",
        ("device/test_separable.py -k grid",),
    ),
    Fault(
        "kernels/squeeze_excite/squeeze_excite.cl", "missed barrier between the first product and its parts' sum",
        "FIRST_PARTS)\n  barrier(CLK_LOCAL_MEM_FENCE);\n  for (int quad = item; quad < HIDDEN_QUADS;",
        "FIRST_PARTS)\n  for (int quad = item; quad < HIDDEN_QUADS;",
        ("device/test_squeeze_excite.py -k groups", f"{OCLGRIND} -k squeeze"),
    ),
    Fault(
        "kernels/squeeze_excite/squeeze_excite.cl",
        "dropped lane mask: lanes past the last channel lie between the products",
        "return lanes < 4 && quad == quads - 1 ? keep_lanes(texel, lanes) : texel;",
        "return texel;",
        ("device/test_squeeze_excite.py -k lanes_past",),
    ),
    Fault(
        "kernels/squeeze_excite/squeeze_excite.cl", "off by one: a row below the map is added",
        "if (row < MAP_HEIGHT)",
        "if (row <= MAP_HEIGHT)",
        ("device/test_squeeze_excite.py -k groups", "device/test_squeeze_excite.py"),
    ),
    Fault(
        "kernels/suppression/suppress.cl",
        "a quotient that is the overlap when it is rounded counts as larger: boxes that share 9 of 20",
        "> HALF_STEP * all;",
        "> 0.0f;",
        ("device/test_offload.py -k rounded",),
    ),
    Fault(
        "kernels/suppression/template.py", "no box stays behind the first",
        '"SIZE": problem.size, "MOST": problem.most',
        '"SIZE": problem.size, "MOST": 1',
        ("device/test_offload.py -k batched",),
    ),
    Fault(
        "kernels/order/order.cl", "equal elements past the 65,536th have positions of two digits",
        "(1 + (SIZE > 256) + (SIZE > 65536))",
        "(1 + (SIZE > 256))",
        ("device/test_order.py -k three_digits",),
    ),
    Fault(
        "kernels/order/order.cl", "missed barrier: pairs are counted before the counter is 0",
        "  if (item == 0) collected = 0;\n  WAIT\n",
        "  if (item == 0) collected = 0;\n",
        ("device/test_order.py -k several", f"{OCLGRIND} -k order"),
    ),
    Fault(
        "kernels/recurrent/recurrent.cl", "off by one: a block's sum is written over another gate's",
        "if (first + o < end) sums[first + o]",
        "if (first + o <= end) sums[first + o]",
        ("device/test_recurrence.py -k layers", f"{OCLGRIND} -k recurrence", "device/test_recurrence.py"),
    ),
    Fault(
        "kernels/recurrent/recurrent.cl", "missed barrier: a step begins before the states of the last are there",
        "      }\n    }\n    WAIT\n  }\n}",
        "      }\n    }\n  }\n}",
        ("device/test_recurrence.py -k layers", f"{OCLGRIND} -k recurrence"),
    ),
    Fault(
        "cl/common.cl", "off by one: a lane too many is kept",
        "select((float4)(0.0f), texel, (int4)(0, 1, 2, 3) < (int4)(count))",
        "select((float4)(0.0f), texel, (int4)(0, 1, 2, 3) <= (int4)(count))",
        (f"{NEIGHBOURS} -k spare", "device/test_generated.py", NEIGHBOURS),
    ),
)
