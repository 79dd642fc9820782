"""The epilogue: the elementwise expression that follows a kernel's sum, as one OpenCL function.

The function takes the sum and the texel's place (column, row and quad of the output) and reads its other operands
through their views, with the same loads as every generated kernel. What depends on the quad alone, a bias above all, is
loaded before: once for all positions that a work item makes of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from imgconv.access import LANE, SHORT_LIMIT, Emitter, KernelArgument
from imgconv.graph import IDENTITY, Node
from imgconv.index import Variable, variable, variable_index
from imgconv.layout import Placement


@dataclass(frozen=True)
class Epilogue:
    """What a template needs: function definitions, the call, the parameters' text and the arguments they stand for.

    loads: statements that stand where `quad` is known, before the calls for it.
    """

    functions: str
    call: str
    parameters: str
    arguments: tuple[KernelArgument, ...]
    loads: str = ";"


def build_epilogue(
    node: Node, output: Placement, placements: Mapping[str, Placement], native: bool, prefix: str = ""
) -> Epilogue:
    """The epilogue of a node whose kernel defines EPILOGUE(sum, column, row, quad).

    prefix: of the arguments' names, where a kernel has two epilogues.
    """
    if node.epilogue == IDENTITY:
        return Epilogue("", "(sum)", "", ())
    emitter = Emitter(native, prefix=f"{prefix}e_", half=output.storage.dtype == "float16")
    quads = output.layout.quads(output.shape)
    width, height = output.layout.grid(output.shape)
    x = variable("column", width // quads) * quads + variable("quad", quads)
    position = output.layout.position(output.shape, x, variable("row", height), variable_index(LANE))
    axes = {Variable(f"i{a}", n): position[a] for a, n in enumerate(output.shape)}
    operands = {0: "sum"}
    of_quad = Emitter(native, prefix=f"{prefix}q_")
    loaded = []
    for number, operand in enumerate(node.epilogue_operands, 1):
        variables = {v.name for e in operand.view.index for v in e.substitute(axes).variables()}
        variables |= {v.name for b in operand.view.bounds for v in b.index.substitute(axes).variables()}
        constant_of_quad = variables <= {"quad", LANE.name}
        operands[number] = (of_quad if constant_of_quad else emitter).load(operand, placements[operand.value], axes)
        loaded += [operands[number]] if constant_of_quad else []
    result = emitter.compute(node.epilogue, operands)
    kind = "short" if emitter.largest <= SHORT_LIMIT else "int"
    parameters = "".join(f", {a.declaration}" for a in emitter.arguments)
    body = "".join(f"  {line}\n" for line in emitter.lines)
    given = "".join(f", const float4 {name}" for name in dict.fromkeys(loaded))
    rest = f"(const float4 sum, const {kind} column, const {kind} row, const {kind} quad{parameters}{given})"
    rest += f" {{\n{body}  return {result};\n}}\n"
    name = "epilogue_" + hashlib.sha256(rest.encode()).hexdigest()[:12]
    functions = "".join((of_quad.helpers | emitter.helpers).values())
    functions += f"#ifndef HAVE_{name}\n#define HAVE_{name}\ninline float4 {name}{rest}#endif\n"
    names = "".join(f", {n}" for n in (*(a.name for a in emitter.arguments), *dict.fromkeys(loaded)))
    parameters += "".join(f", {a.declaration}" for a in of_quad.arguments)
    arguments = (*emitter.arguments, *of_quad.arguments)
    return Epilogue(
        functions, f"{name}(sum, column, row, quad{names})", parameters, arguments, " ".join(of_quad.lines) or ";"
    )
