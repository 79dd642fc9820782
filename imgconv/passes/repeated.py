"""Share nodes and constants that occur twice."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

from imgconv.arrays import Array
from imgconv.graph.nodes import Graph, Operand

SAMPLE = 64  # elements that distinguish most arrays


@dataclass(frozen=True, eq=False)
class ArrayKey:
    """An array's bytes as a key. Few elements are hashed: all are compared only if the hashes are equal."""

    array: Array

    def __hash__(self) -> int:
        flat = self.array.reshape(-1)
        return hash((self.array.dtype.str, self.array.shape, flat[:: max(flat.size // SAMPLE, 1)].tobytes()))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ArrayKey):
            return NotImplemented
        a, b = self.array, other.array
        return a is b or (a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes())


def share_repeated(graph: Graph) -> Graph:
    """Merge nodes that differ only in name, and constants of equal content.

    Given:   a = load(x) then exp($0);  b = load(x) then exp($0);  y = load(a) then add($0, $1), $1=b
    Result:  a = load(x) then exp($0);  y = load(a) then add($0, $1), $1=a
    """
    renamed: dict[str, str] = {}
    contents: dict[ArrayKey, str] = {}
    for name, array in graph.constants.items():
        renamed[name] = contents.setdefault(ArrayKey(array), name)

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
