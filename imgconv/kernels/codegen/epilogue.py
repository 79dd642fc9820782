"""Generates the epilogue: the elementwise expression after a kernel's sum, as one OpenCL function.

The function's parameters are the sum and the position of the output texel (column, row and quad). It reads the other
operands through their views, with the same loads as generated kernels. Operands that depend only on the quad are loaded
before the calls, once for all positions of a work item. A sum can start with the bias, which saves an addition.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from math import ceil

from imgconv.dtype import FLOAT16, FLOAT32, DType
from imgconv.graph.expression import (
    Argument, Expression, MathMode, argument_numbers, is_exact_in_half, replace_subexpression, users,
)
from imgconv.graph.index import Index, Variable, variable, variable_index
from imgconv.graph.nodes import IDENTITY, Node, Operand
from imgconv.kernels.codegen.access import (
    LANE, Emitter, KernelArgument, image_type, named_function, with_zero_lanes, without_rounding, write_text,
)
from imgconv.kernels.layout import LANES, Placement


@dataclass(frozen=True)
class Epilogue:
    """An epilogue for a template: function definitions, the call, the source of the parameters, and the arguments.

    loads: statements to run once for each `quad`, before the calls. start: the initial value of a sum. start_loads:
    statements to run before `start`. dtype: the type of the four numbers that the function accepts and returns. levels:
    whether they are quantised values plus ROUNDING, whose addition rounds them.
    """

    functions: str
    call: str
    parameters: str
    arguments: tuple[KernelArgument, ...]
    loads: str = ";"
    start: str = "0.0f"
    start_loads: str = ";"
    dtype: DType = FLOAT32
    levels: bool = False

    @property
    def half_epilogue_constant(self) -> int:
        """The constant HALF_EPILOGUE."""
        return int(self.dtype == FLOAT16)


def build_epilogue(
    node: Node, output: Placement, placements: Mapping[str, Placement], math_mode: MathMode, prefix: str = "",
    start_with_bias: bool = False, dtype: DType = FLOAT32, rounded_on_store: bool = False,
) -> Epilogue:
    """Returns the epilogue of a node whose kernel defines EPILOGUE(sum, column, row, quad).

    prefix: of the arguments' names, if a kernel has two epilogues. start_with_bias: whether a sum may start with the
    bias. dtype: the type of the sums, and of the epilogue if it returns the same type. rounded_on_store: whether
    `output_constants` stores its result, and then rounds quantised values.
    """
    found = without_rounding(node.epilogue, output) if rounded_on_store else None
    node = node if found is None else replace(node, epilogue=found)
    if node.epilogue == IDENTITY:
        return Epilogue("", "(sum)", "", (), dtype=dtype, levels=found is not None)
    emitter = Emitter.storing(math_mode, output.storage, f"{prefix}e_")
    quads = output.layout.quads(output.shape)
    width, height = output.layout.grid(output.shape)
    x = variable("column", width // quads) * quads + variable("quad", quads)
    position = output.layout.position(output.shape, x, variable("row", height), variable_index(LANE))
    axes = {Variable(f"i{a}", n): position[a] for a, n in enumerate(output.shape)}
    operands = {0: "sum"}
    of_start, of_quad = Emitter(math_mode, prefix=f"{prefix}s_"), Emitter(math_mode, prefix=f"{prefix}q_")
    numbered = dict(enumerate(node.epilogue_operands, 1))
    constant_of_quad = {n for n, operand in numbered.items() if _variables_of(operand, axes) <= {"quad", LANE.name}}
    bias, expression = _split_bias(node.epilogue, constant_of_quad if start_with_bias else set())
    read, start, loaded = argument_numbers(expression), "0.0f", []
    stored = (placements[operand.value].storage.dtype for number, operand in numbered.items() if number in read)
    if not is_exact_in_half(expression) or any(each != dtype for each in stored):
        dtype = FLOAT32
    kind = f"{dtype.scalar}4"
    for number, operand in numbered.items():
        if number == bias:
            start = of_start.load(operand, placements[operand.value], axes)
        if number in read:
            from_quad = number in constant_of_quad
            operands[number] = (of_quad if from_quad else emitter).load(operand, placements[operand.value], axes)
            loaded += [operands[number]] if from_quad else []
    if dtype != FLOAT32:  # exact, for the operands are halfs; and compilers make it a read of halfs
        operands |= {n: emitter.name(kind, f"convert_{kind}_rtz({operands[n]})") for n in sorted(read - {0})}
    result = emitter.compute(expression, operands, kind)
    parameters = "".join(f", {a.declaration}" for a in emitter.arguments)
    given = "".join(f", const float4 {name}" for name in dict.fromkeys(loaded))
    takes = f"const {kind} sum, const int column, const int row, const int quad{parameters}{given}"
    name, function = named_function("epilogue_", kind, takes, [*emitter.lines, f"return {result};"])
    functions = "".join(dict.fromkeys(of_start.helpers + of_quad.helpers + emitter.helpers)) + function
    names = "".join(f", {n}" for n in (*(a.name for a in emitter.arguments), *dict.fromkeys(loaded)))
    parameters += "".join(f", {a.declaration}" for a in (*of_quad.arguments, *of_start.arguments))
    arguments = (*emitter.arguments, *of_quad.arguments, *of_start.arguments)
    return Epilogue(
        functions, f"{name}(sum, column, row, quad{names})", parameters, arguments, " ".join(of_quad.lines) or ";",
        start, " ".join(of_start.lines) or ";", dtype, found is not None,
    )


def output_constants(output: Placement, channels: int, epilogue: Epilogue, helpers: list[str]) -> dict[str, str | int]:
    """The constants of kernels/lib/output.cl but for NAME, INDEX, WORK_GROUP and BLOCK_QUADS. channels: of the output.

    helpers: gets the functions that a store in tiles needs.
    """
    lanes = (channels - 1) % LANES + 1
    write = write_text("output", output.texture, helpers, epilogue.dtype, epilogue.levels)
    if epilogue.levels and lanes < LANES:  # the level 0 is ROUNDING, not 0
        filled = f"(quad == OUTPUT_QUADS - 1 ? {with_zero_lanes('texel', str(lanes), True)} : texel)"
        write = re.sub(r"\btexel\b", filled, write)
    return {
        "OUTPUT_IMAGE": image_type(output.texture, True), "WRITE_OUTPUT(x, y, texel)": write,
        "HALF_EPILOGUE": epilogue.half_epilogue_constant,
        "OUTPUT_PITCH": output.layout.quads(output.storage.shape), "OUTPUT_OFFSET": output.channel_offset // LANES,
        "OUTPUT_QUADS": ceil(channels / LANES), "LAST_LANES": lanes,
        "EPILOGUE(sum, column, row, quad)": epilogue.call, "EPILOGUE_LOADS(quad)": epilogue.loads,
        "EPILOGUE_PARAMETERS": epilogue.parameters,
    }


def _variables_of(operand: Operand, axes: Mapping[Variable, Index]) -> set[str]:
    """The variables of the texel's position on which an operand's element depends."""
    indices = (*operand.view.index, *(bound.index for bound in operand.view.bounds))
    return {v.name for index in indices for v in index.substitute(axes).variables()}


def _split_bias(epilogue: Expression, candidates: Set[int]) -> tuple[int | None, Expression]:
    """The operand that is added to the sum first, and the rest of the epilogue. None if there is no such operand."""
    found = users(epilogue, IDENTITY)
    if len(found) == 1 and found[0].function == "add":
        numbers = [a.number for a in found[0].arguments if isinstance(a, Argument) and a.number in candidates]
        if len(numbers) == 1:
            return numbers[0], replace_subexpression(epilogue, found[0], IDENTITY)
    return None, epilogue
