"""Faults in what makes the texts of kernels, the constants of templates, and their sizes."""

from __future__ import annotations

from .fault import Fault

CONVOLUTION, NEIGHBOURS, OCLGRIND = "device/test_convolution.py", "device/test_neighbours.py", "device/test_oclgrind.py"
REDUCTIONS = "device/test_reductions.py"

FAULTS = (
    Fault(
        "kernels/codegen/access.py", "off by one: a row below the grid is read from memory",
        "|| y < 0 || y >= {tiling.height})",
        "|| y < 0 || y > {tiling.height})",
        ("device/test_linear.py", CONVOLUTION),
    ),
    Fault(
        "kernels/codegen/access.py", "an image that others share is taken to have zeros around it",
        "high if placement.texture.tiling.bordered else bound.high",
        "high",
        ("device/test_workspace.py -k other_textures", NEIGHBOURS),
    ),
    Fault(
        "kernels/codegen/access.py", "the end of a slice is taken for the end of the image",
        "if bound.low + shift == 0 and bound.high + shift == storage.shape[axis]:",
        "if bound.low + shift == 0:",
        (f"{NEIGHBOURS} -k padding", "device/test_generated.py -k movements", "device/test_generated.py"),
    ),
    Fault(
        "kernels/codegen/access.py", "off by one: a table is read past its end",
        "if lookup.value.high >= len(lookup.table):",
        "if lookup.value.high > len(lookup.table):",
        ("device/test_tables.py", f"{OCLGRIND} -k tables"),
    ),
    Fault(
        "kernels/codegen/access.py", "dropped lane mask: generated kernels store two or three lanes too many",
        "        if size % LANES:\n",
        "        if size % LANES == 1:\n",
        ("device/test_epilogue.py -k spare", NEIGHBOURS),
    ),
    Fault(
        "kernels/codegen/generated.py", "lanes past a row's end count as 0 in a maximum",
        'value = f"fill_lanes({value}, {left}, {neutral})"',
        'value = f"fill_lanes({value}, {left}, 0.0f)"',
        (f"{REDUCTIONS} -k softmax", REDUCTIONS),
    ),
    Fault(
        "kernels/codegen/generated.py", "the last block of a long sum ends past the window",
        "min(b{axis} + {stride}, {count});",
        "b{axis} + {stride};",
        ("device/test_long_sums.py -k test_sums", REDUCTIONS),
    ),
    Fault(
        "kernels/codegen/generated.py", "the odd item of a tree of parts is added to what lies behind it",
        'f"if (item < {left - half})',
        'f"if (item < {half})',
        (f"{REDUCTIONS} -k long", REDUCTIONS),
    ),
    Fault(
        "kernels/codegen/generated.py", "missed barrier in the tree that parts of a reduction meet in",
        'lines += ["barrier(CLK_LOCAL_MEM_FENCE);", f"if (item <',
        'lines += [f"if (item <',
        (f"{REDUCTIONS} -k long", f"{OCLGRIND} -k reductions", REDUCTIONS),
    ),
    Fault(
        "kernels/codegen/generated.py", "off by one: work items past the grid's end store texels",
        "' || '.join(f'{v.name} >= {v.size}' for v in grid)",
        "' || '.join(f'{v.name} > {v.size}' for v in grid)",
        ("device/test_generated.py -k gpu", NEIGHBOURS, f"{REDUCTIONS} -k gpu"),
    ),
    Fault(
        "kernels/codegen/row_kernel.py", "work items go past the end of their row",
        'if self.walk * self.group != self.steps else "{"',
        'if self.walk > self.steps else "{"',
        ("device/test_row_groups.py -k one_launch", "device/test_row_groups.py"),
    ),
    Fault(
        "kernels/codegen/row_kernel.py", "the last block of a long row is not added",
        '        if blocks:\n            emitter.lines.append(f"{total} += {part};")\n',
        "",
        ("device/test_long_sums.py -k normalisations", "device/test_row_groups.py"),
    ),
    Fault(
        "kernels/codegen/moments.py", "lanes past a row's end count in its mean",
        "number += {inside};",
        "number += 1.0f;",
        ("device/test_moments.py -k two_launches", "device/test_moments.py"),
    ),
    Fault(
        "kernels/codegen/epilogue.py", "wrong epilogue: what is subtracted from a sum is added to it",
        'found[0].function == "add":',
        'found[0].function in ("add", "subtract"):',
        ("device/test_epilogue.py -k bias", "device/test_epilogue.py"),
    ),
    Fault(
        "kernels/conv/text.py", "off by one: a window that reads one past the end is taken to stay inside",
        "* problem.dilations[axis] >= problem.input_size[axis])",
        "* problem.dilations[axis] > problem.input_size[axis])",
        ("device/test_linear.py", "device/test_workspace.py -k other_textures", CONVOLUTION),
    ),
    Fault(
        "kernels/conv/text.py", "off by one: reads one past the end go without the sampler's border",
        "and last < problem.input_size[axis])",
        "and last <= problem.input_size[axis])",
        (f"{CONVOLUTION} -k 'test_grid and pads'", "device/test_linear.py", CONVOLUTION),
    ),
    Fault(
        "kernels/conv/text.py", "a pad of one before the first column is not tested",
        "before = max(problem.pads) > 0 or",
        "before = max(problem.pads) > 1 or",
        ("device/test_linear.py", CONVOLUTION),
    ),
    Fault(
        "kernels/conv/text.py", "positions past 32,767 are kept in a short",
        'return "short" if largest <= SHORT_LIMIT',
        'return "short" if largest <= 2 * SHORT_LIMIT',
        ("compiling/test_plan.py -k 'short or ints'", f"{CONVOLUTION} -k short"),
    ),
    Fault(
        "kernels/conv/weights.py", "weights of a transposed convolution lie in the phases of another padding",
        "(phase + shift) % stride + stride",
        "phase % stride + stride",
        (f"{CONVOLUTION} -k transposed",),
    ),
)
