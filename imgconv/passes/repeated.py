"""Share nodes and constants that occur twice."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from imgconv.graph.nodes import Graph, Operand


def share_repeated(graph: Graph) -> Graph:
    """Merge nodes that differ only in name, and constants of equal content.

    Given:   a = load(x) then exp($0);  b = load(x) then exp($0);  y = load(a) then add($0, $1), $1=b
    Result:  a = load(x) then exp($0);  y = load(a) then add($0, $1), $1=a
    """
    renamed: dict[str, str] = {}
    contents: dict[Hashable, str] = {}
    for name, array in graph.constants.items():
        content = (str(array.dtype), array.shape, array.tobytes())
        renamed[name] = contents.setdefault(content, name)

    def rename(operands: tuple[Operand, ...]) -> tuple[Operand, ...]:
        return tuple(replace(o, value=renamed.get(o.value, o.value)) for o in operands)

    seen: dict[Hashable, str] = {}
    nodes = []
    for node in graph.nodes:
        made = replace(node, operands=rename(node.operands), epilogue_operands=rename(node.epilogue_operands))
        output = (made.output.shape, made.output.dtype)
        key = (made.operation, made.operands, made.epilogue, made.epilogue_operands, output)
        first = seen.setdefault(key, node.output.name)
        if first != node.output.name and node.output.name not in graph.outputs:
            renamed[node.output.name] = first
            continue
        nodes.append(made)
    constants = {n: a for n, a in graph.constants.items() if renamed[n] == n or n in graph.outputs}
    return replace(graph, nodes=tuple(nodes), constants=constants)
