"""The seam between a graph and its kernels: what a launch is to do, the template that does it, what was chosen of it.

A hand-written kernel is one Template, a row of TEMPLATES in templates.py. Three steps go through it: `place` decides
where everything lies and makes a Step for each launch, a chooser takes one of the template's candidates, and `kernel`
makes the text. Steps without a template are generated kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Protocol

from imgconv.config import Config
from imgconv.graph.expression import operations
from imgconv.graph.nodes import IDENTITY, Convolution, Graph, Load, Node, Operand, Value
from imgconv.kernels.layout import HostBuffer, ImageLimits, Layout, Placement, Texture
from imgconv.kernels.source import KernelSource
from imgconv.kernels.target import Target


class Problem(Protocol):
    """What of a node its kernel depends on: a frozen dataclass of sizes."""

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds, as the model states them."""
        ...


@dataclass(frozen=True)
class Choice:
    """What was chosen for a launch of a template.

    predicted: by the template's cost model, in its unit, and `without`: the same of the launches that it replaces, inf
    if there are none; pays: whether it is expected to be faster than those. seconds: what was measured, None if it
    was not.
    """

    template: str
    problem: Any
    specialisation: Any
    predicted: float
    without: float = inf
    pays: bool = True
    seconds: float | None = None

    def __str__(self) -> str:
        measured = None if self.seconds is None else f"the fastest measured, {self.seconds * 1e6:.1f} us"
        text = f"{measured or 'chosen by the cost model'}; predicted cost {self.predicted:.4g}"
        return text if self.without == inf else f"{text}, {self.without:.4g} in launches of their own"


@dataclass(frozen=True, eq=False)
class Step:
    """What one launch is to do.

    nodes: what it computes, in order; their operands lie as the kernel reads them, at `places`. The result of the last
    one is written to `output`; those before it have no texture. kind, description, reason, operation: see plan.Launch.
    values: the graph's values that it computes. details: what `place` found out for the kernel. instead: steps that do
    the same, if the chooser or the kernel declines; declined: what such a chooser would have taken.
    """

    nodes: tuple[Node, ...]
    output: Placement
    places: Mapping[str, Placement]
    kind: str
    description: str
    operation: str
    reason: str = ""
    values: tuple[str, ...] = ()
    template: Template | None = None
    problem: Any = None
    details: Any = None
    instead: tuple[Step, ...] = ()
    choice: Choice | None = None
    declined: Choice | None = None

    @property
    def name(self) -> str:
        """The value that is written."""
        return self.nodes[-1].output.name

    @property
    def origin(self) -> tuple[str, ...]:
        """The ONNX nodes that it comes from."""
        return tuple(dict.fromkeys(name for node in self.nodes for name in node.origin))

    @property
    def reads(self) -> tuple[Operand, ...]:
        """The operands that it does not compute itself."""
        made = {node.output.name for node in self.nodes[:-1]}
        return tuple(o for node in self.nodes for o in node.all_operands if o.value not in made)


class Packed(Protocol):
    """Known numbers as a kernel reads them. Those of equal keys are stored once."""

    @property
    def key(self) -> Any: ...

    def storage(self, name: str, limits: ImageLimits) -> Texture | HostBuffer:
        """What holds them."""
        ...

    def content(self, storage: Any) -> Any:
        """The array that the storage is uploaded with; asked for once, when the plan is complete."""
        ...


class Placing(Protocol):
    """What a template's `place` may ask.

    graph: after the passes; placements: where the values made so far lie; of_small: the outputs of convolutions whose
    input's values are known to be small.
    """

    graph: Graph
    of_small: frozenset[str]
    config: Config
    target: Target
    placements: dict[str, Placement]

    def placement(self, value: Value) -> Placement:
        """Where a value of the graph will be; see imgconv.compiling.place."""
        ...

    def copy(self, operand: Operand, layout: Layout, reason: str) -> Operand:
        """The operand as a texture of its own, made by a launch before."""
        ...

    def constant_of(self, operand: Operand) -> Any:
        """The array that is read of a constant."""
        ...

    def place_constant(self, name: str, layout: Layout) -> Placement:
        """A constant of the graph as a texture."""
        ...

    def place_array(self, name: str, array: Any, layout: Layout, readers: Sequence[Node]) -> Placement:
        """An array that `place` made as a texture under a new name."""
        ...

    def operand_places(self, node: Node, output: Placement) -> dict[str, Placement]:
        """Where every operand of a node is, constants too."""
        ...

    def weights_dtype(self, array: Any, readers: Sequence[Node]) -> str:
        """The element type that weights are stored in."""
        ...

    def computes_half(self, name: str) -> bool:
        """Whether the node that makes a value may compute in half."""
        ...


class Emitting(Protocol):
    """What a template's `kernel` may ask."""

    config: Config
    target: Target

    def packed(self, name: str, weights: Packed) -> Texture | HostBuffer:
        """What holds packed weights: under this name, if none of the same key are there yet."""
        ...


def _always(problem: Any, specialisation: Any) -> bool:
    return True


def _nothing(problem: Any, target: Target) -> float:
    return inf


@dataclass(frozen=True)
class Template:
    """A hand-written kernel.

    name: what measurements are filed under, so that it stays when files are renamed. file: its text. problem,
    specialisation: frozen dataclasses; candidates: the specialisations worth measuring, none if the template is not
    for that device; allowed: whether a stored specialisation is still one of a problem; cost: what a launch is
    expected to take, in a unit of the template's own; without: the cost of the launches that it replaces.

    nodes: the nodes of a graph that it computes, those of one launch together, the last one written; place: their
    Step, None if it cannot be; kernel: the text of a chosen Step. `imgconv tune` measures copies of a launch's nodes
    side by side, each with a specialisation of its own.
    """

    name: str
    file: str
    problem: type[Any]
    specialisation: type[Any]
    candidates: Callable[[Any, Target], Sequence[Any]]
    cost: Callable[[Any, Any, Target], float]
    nodes: Callable[[Graph], Iterator[tuple[Node, ...]]]
    place: Callable[[Placing, tuple[Node, ...]], Step | None]
    kernel: Callable[[Step, Emitting], KernelSource]
    allowed: Callable[[Any, Any], bool] = _always
    without: Callable[[Any, Target], float] = _nothing


def operation_of(node: Node) -> str:
    """The sort of work that a node is, in a word or two."""
    operation = node.operation
    if isinstance(operation, Load):
        return "movement" if node.epilogue == IDENTITY else "elementwise"
    if isinstance(operation, Convolution) and 1 < operation.groups == node.operands[0].view.shape[1]:
        return "depthwise convolution"
    return type(operation).__name__.lower()


def describe(node: Node) -> str:
    """The operation and, after it, what is fused into its store."""
    fused = " ".join(operations(node.epilogue))
    body = str(node.operation)
    if isinstance(node.operation, Load):
        return fused or f"move {node.operands[0].value}"
    return f"{body} + {fused}" if fused else body
