"""Faults in layouts, memory planning, choices and running."""

from __future__ import annotations

from .fault import Fault

MEMORY = ("compiling/test_memory_planning.py", "compiling/test_plan.py", "device/test_workspace.py")

FAULTS = (
    Fault(
        "compiling/memory_planning.py", "a lifetime one launch short",
        "found[storage] = (found[storage][0], number)",
        "found[storage] = (found[storage][0], max(found[storage][0], number - 1))",
        MEMORY,
    ),
    Fault(
        "compiling/memory_planning.py", "an image is written by the launch that reads it last",
        "(1 << last + 1) - (1 << first)",
        "(1 << last) - (1 << first)",
        MEMORY,
    ),
    Fault(
        "compiling/memory_planning.py", "a region of the workspace is written by the launch that reads it last",
        "if life[0] <= last and first <= life[1]]",
        "if life[0] < last and first < life[1]]",
        MEMORY,
    ),
    Fault(
        "compiling/memory_planning.py", "a texture is put into a gap that is too small",
        "if offset + size <= region.offset:",
        "if offset < region.offset:",
        MEMORY,
    ),
    Fault(
        "compiling/memory_planning.py", "states share memory with other textures",
        "isinstance(launch.writes, Texture) and launch.writes not in lasting:",
        "isinstance(launch.writes, Texture):",
        MEMORY,
    ),
    Fault(
        "compiling/textures.py", "a kernel reads the image that it writes",
        "            for read in producer.reads if writes is not None and producer else ():\n",
        "            for read in ():\n",
        ("compiling/test_textures.py", "compiling/test_plan.py", "device/test_separable.py"),
    ),
    Fault(
        "kernels/squeeze_excite/template.py", "what stays in local memory takes other functions if it keeps float",
        'f"{node.output.name}.local"', "node.output.name", ("compiling/test_plan.py",),
    ),
    Fault(
        "compiling/emit.py", "what a plan in half keeps in float is computed by other kernels than halves",
        '"kept in float" if', '"of numbers" if', ("compiling/test_plan.py",),
    ),
    Fault(
        "graph/expression.py", "exp(x) - 1 of what stays float has too few digits near zero",
        'MOST_DIGITS = frozenset({"exp", "erf", "sigmoid"})',
        'MOST_DIGITS = frozenset({"exp", "expm1", "erf", "sigmoid"})', ("graph/test_expression.py",),
    ),
    Fault(
        "compiling/textures.py", "a value that must stay float is written into a concatenation in half",
        "any(self.keeps_float(part, precision) for part, (owner, _) in self.inside.items() if owner == name)",
        "False",
        ("compiling/test_textures.py", "compiling/test_plan.py", "precision/test_choose.py"),
    ),
    Fault(
        "compiling/textures.py", "long sums are stored in half",
        "if terms >= LONG_SUM:",
        "if terms > 100 * LONG_SUM:",
        ("compiling/test_plan.py", "device/test_long_sums.py"),
    ),
    Fault(
        "compiling/textures.py", "weights past 65,504 are stored in half",
        "or numpy.any(numpy.abs(array) > HALF_MAX) else",
        "else",
        ("compiling/test_plan.py", "device/test_product.py"),
    ),
    Fault(
        "compiling/textures.py",
        "a part that a concatenation has twice is copied from the image that it is written into",
        "            if copied is not None:\n",
        "            if False:\n",
        ("compiling/test_textures.py",),
    ),
    Fault(
        "kernels/conv/problem.py", "a block of quads of one group reads the input of that group for the next one's too",
        "problem.groups == 1 or problem.group_output_quads % blocks == 0",
        "True",
        ("device/test_convolution.py",),
    ),
    Fault(
        "runtime/frame_memory.py", "a frame is fetched before its launches have ended",
        "computed = self.computing[-1:] if apart else None",
        "computed = self.computing[:0] if apart else None",
        ("device/test_submit.py", "device/test_stream.py"),
    ),
    Fault(
        "kernels/conv/problem.py", "the last of merged groups is taken to be as large as the others on average",
        "else round_up(ceil(self.channels / self.groups), LANES)",
        "else ceil(self.channels / self.groups)",
        ("device/test_convolution.py -k groups",),
    ),
    Fault(
        "graph/expression.py", "values that stay float in a half plan get kernels of their own",
        'of_numbers = None if math_mode == "exact" else function.of_numbers',
        "of_numbers = function.of_numbers if half else None",
        ("compiling/test_plan.py",),
    ),
    Fault(
        "precision/choose.py", "a quantised network is measured as others are",
        "if not inputs and is_quantised(graph):", "if False:",
        ("precision/test_choose.py -k quantised",),
    ),
    Fault(
        "precision/storage.py", "the plan that a simulation stands for is not run",
        "if max(errors) > accepted:", "if False:",
        ("precision/test_choose.py -k confirmed",),
    ),
    Fault(
        "precision/storage.py", "inputs that are much larger do not show which outputs half loses",
        "        return True\n\n    def inputs_within", "        return False\n\n    def inputs_within",
        ("precision/test_choose.py -k lost",),
    ),
    Fault(
        "precision/storage.py", "a session is left with weights that were rounded",
        "        finally:\n            self.simulation.restore()", "        finally:\n            pass",
        ("precision/test_choose.py -k own_weights",),
    ),
    Fault(
        "precision/loss.py", "weights are not rounded with the values that they make",
        "self._round_weights(frozenset(w for", "self._round_weights(frozenset(w for w in () for",
        ("precision/test_loss.py -k 'loss_is or one_item'",),
    ),
    Fault(
        "precision/statistics.py", "the largest values are those of the last of the inputs",
        "largest = {name: float(numpy.maximum(value, largest[name])) for name, value in found.items()}",
        "largest = found",
        ("precision/test_loss.py -k all_inputs",),
    ),
    Fault(
        "precision/tensor_statistics.cl", "small numbers are rounded to as many digits as others",
        "select(normal, small, bits < SMALLEST_NORMAL)", "normal",
        ("precision/test_loss.py -k statistics",),
    ),
    Fault(
        "precision/search.py", "a search goes on when its runs are spent",
        "if not budget.has_more_than(reserve + PARTS_OF_BLOCK):", "if False:",
        ("precision/test_search.py -k undecided",),
    ),
    Fault(
        "precision/search.py", "what the rule of squares says is not tried",
        "        if allowed(narrow):", "        if True:",
        ("precision/test_search.py -k squares",),
    ),
    Fault(
        "precision/calibration_inputs.py", "an input is noise on both sides",
        "made[..., middle:] = discs[..., middle:]", "made[..., middle:] = made[..., middle:]",
        ("precision/test_calibration_inputs.py -k right_half",),
    ),
    Fault(
        "kernels/conv/candidates.py", "GPUs unroll windows of any width",
        '"gpu": (64, 64)', '"gpu": (6400, 6400)',
        ("kernels/test_conv_work.py -k wide",),
    ),
)
