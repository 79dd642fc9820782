"""ONNX nodes as plain data: the part of a model that depends on data, which `imgconv.host` computes.

Values have names. A body of If, Loop, Scan or SequenceMap also reads names of the graphs around it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from textwrap import indent
from typing import Union

from imgconv.arrays import Array, Arrays


@dataclass(frozen=True)
class HostNode:
    """An ONNX node. version: the opset of its domain. inputs: "" if an optional one is absent.

    outputs: "" if nothing reads one. attributes: element types are numpy's names of them.
    """

    name: str
    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    version: int = 1
    domain: str = ""

    @property
    def bodies(self) -> dict[str, HostGraph]:
        """The attributes that are graphs, by name."""
        return {name: value for name, value in self.attributes.items() if isinstance(value, HostGraph)}

    @property
    def reads(self) -> Iterator[str]:
        """The names of the values that the node and its bodies read, some of them several times."""
        yield from (name for name in self.inputs if name)
        for body in self.bodies.values():
            yield from body.captured

    def __str__(self) -> str:
        bodies = "".join(f"\n{body}" for body in self.bodies.values())
        said = f"{', '.join(filter(None, self.outputs))} = {self.op_type}({', '.join(self.inputs)})"
        return said + indent(bodies, "  ")


@dataclass(frozen=True)
class HostGraph:
    """ONNX nodes in topological order, with the names of what they are given and of what they make."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[HostNode, ...]
    constants: Arrays = field(default_factory=dict)

    def __str__(self) -> str:
        return "\n".join(map(str, self.nodes))

    @property
    def captured(self) -> tuple[str, ...]:
        """The names that a body reads from the graphs around it, each once."""
        own = self.own_names
        read = [*(name for node in self.nodes for name in node.reads), *self.outputs]
        return tuple(dict.fromkeys(name for name in read if name not in own))

    @property
    def own_names(self) -> set[str]:
        """The names of its inputs, its constants and what its nodes make; they hide those of the graphs around it."""
        return {*self.inputs, *self.constants, *(name for node in self.nodes for name in node.outputs)}


Attribute = Union[int, float, str, tuple[int, ...], tuple[float, ...], tuple[str, ...], Array, HostGraph]
