"""The epilogue: the elementwise expression that follows a kernel's sum, as one OpenCL function.

The function takes the sum and the texel's place (column, row and quad of the output) and reads its other operands
through their views, with the same loads as every generated kernel.
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
    """What a template needs: function definitions, the call, the parameters' text and the arguments they stand for."""

    functions: str
    call: str
    parameters: str
    arguments: tuple[KernelArgument, ...]


def build_epilogue(node: Node, output: Placement, placements: Mapping[str, Placement], native: bool) -> Epilogue:
    """The epilogue of a node whose kernel defines EPILOGUE(sum, column, row, quad)."""
    if node.epilogue == IDENTITY:
        return Epilogue("", "(sum)", "", ())
    emitter = Emitter(native, prefix="e_")
    quads = output.layout.quads(output.shape)
    width, height = output.layout.grid(output.shape)
    x = variable("column", width // quads) * quads + variable("quad", quads)
    position = output.layout.position(output.shape, x, variable("row", height), variable_index(LANE))
    axes = {Variable(f"i{a}", n): position[a] for a, n in enumerate(output.shape)}
    operands = {0: "sum"}
    for number, operand in enumerate(node.epilogue_operands, 1):
        operands[number] = emitter.load(operand, placements[operand.value], axes)
    result = emitter.compute(node.epilogue, operands)
    kind = "short" if emitter.largest <= SHORT_LIMIT else "int"
    parameters = "".join(f", {a.declaration}" for a in emitter.arguments)
    body = "".join(f"  {line}\n" for line in emitter.lines)
    rest = f"(const float4 sum, const {kind} column, const {kind} row, const {kind} quad{parameters})"
    rest += f" {{\n{body}  return {result};\n}}\n"
    name = "epilogue_" + hashlib.sha256(rest.encode()).hexdigest()[:12]
    functions = "".join(emitter.helpers.values())
    functions += f"#ifndef HAVE_{name}\n#define HAVE_{name}\ninline float4 {name}{rest}#endif\n"
    names = "".join(f", {a.name}" for a in emitter.arguments)
    return Epilogue(functions, f"{name}(sum, column, row, quad{names})", parameters, tuple(emitter.arguments))
