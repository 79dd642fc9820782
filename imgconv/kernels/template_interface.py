"""The interface between a graph and its kernels: Template (a kind of kernel), LaunchStep (a launch's work) and Choice.

Every kernel is made by a Template, which is listed in TEMPLATES of templates.py. It is used in three stages: `place`
decides where operands are stored and makes a LaunchStep for each launch, a chooser picks one of the template's
candidates, and `kernel` makes the source.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar

from imgconv.arrays import Array
from imgconv.config import Accumulation, Config
from imgconv.dtype import DType
from imgconv.graph.expression import MathMode, function_names
from imgconv.graph.nodes import IDENTITY, Convolution, Graph, Load, Node, Operand, Operation, Value
from imgconv.kernels.device_model.models import time_range_of
from imgconv.kernels.device_model.time_range import NEVER, TimeRange, index_of_best
from imgconv.kernels.device_model.work import LaunchWork
from imgconv.kernels.layout import HostBuffer, ImageLimits, Layout, Placement, Texture
from imgconv.kernels.kernel_source import KernelSource
from imgconv.kernels.target import Target


LaunchKind = Literal["pack", "unpack", "copy", "compute"]  # see plan.Launch


class Problem(Hashable, Protocol):
    """The properties of a node on which its kernel depends: a frozen dataclass of sizes."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]  # as dataclasses.asdict declares it

    @property
    def multiply_adds(self) -> int:
        """Multiply-adds, as in the model."""
        ...


class Specialisation(Hashable, Protocol):
    """The free choices of a template, such as the block of a work item: a frozen dataclass. Plans show its text."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]  # as in Problem


P = TypeVar("P", bound=Problem)
S = TypeVar("S", bound=Specialisation)
D = TypeVar("D")
Kind = TypeVar("Kind", bound=Operation)


@dataclass(frozen=True)
class Choice:
    """The specialisation chosen for a launch.

    predicted: the time of the launch, from the device model. baseline: the time of the launches that it and the
    launches before it replace, NEVER if there are none. profitable: whether it is expected to be faster than these.
    seconds: the measured time, None if it was not measured.
    """

    template: str
    problem: Problem
    specialisation: Specialisation
    predicted: TimeRange
    baseline: TimeRange = NEVER
    profitable: bool = True
    seconds: float | None = None

    def __str__(self) -> str:
        measured = None if self.seconds is None else f"the fastest measured, {self.seconds * 1e6:.1f} us"
        text = f"{measured or 'chosen by the cost model'}; predicted: {self.predicted}"
        return f"{text}, {self.baseline} in launches of their own" if self.baseline.is_finite else text


@dataclass(frozen=True, eq=False)
class LaunchStep(Generic[P, D]):
    """The work of one launch.

    nodes: the nodes that it computes, in order. places: where their operands are stored, as the kernel reads them.
    output: where the last node's result is written; the results of the other nodes have no texture. details: further
    results of the template's `place` that its `kernel` needs. kind, description, reason, operation: see plan.Launch.
    values: the graph's values that it computes. before: steps whose results only this step reads; they run if it does.
    fallback: steps that compute the same, if this step is not profitable. multiply_adds: as in the model; None if they
    are the problem's.
    """

    nodes: tuple[Node, ...]
    output: Placement
    places: Mapping[str, Placement]
    template: Template[P, Any, D]
    problem: P
    details: D
    description: str
    operation: str
    kind: LaunchKind = "compute"
    reason: str = ""
    values: tuple[str, ...] = ()
    before: tuple[AnyLaunchStep, ...] = ()
    fallback: tuple[AnyLaunchStep, ...] = ()
    multiply_adds: int | None = None

    @property
    def output_name(self) -> str:
        """The name of the value that is written."""
        return self.nodes[-1].output.name

    @property
    def origin(self) -> tuple[str, ...]:
        """The names of the ONNX nodes that it comes from."""
        return tuple(dict.fromkeys(name for node in self.nodes for name in node.origin))

    @property
    def reads(self) -> tuple[Operand, ...]:
        """The operands that the launch does not compute itself."""
        made = {node.output.name for node in self.nodes[:-1]}
        return tuple(o for node in self.nodes for o in node.all_operands if o.value not in made)


class PackedConstant(Protocol):
    """Constant weights in the form that a kernel reads. Those with equal keys are stored once."""

    @property
    def key(self) -> Hashable: ...

    def storage(self, name: str, limits: ImageLimits | None) -> Texture | HostBuffer:
        """The texture or the buffer of the weights."""
        ...

    @property
    def source(self) -> Array:
        """The constant weights."""
        ...

    def transform(self, source: Array) -> Array:
        """The numbers that are packed: those of `source`, or computed from them."""
        ...

    def content(self, storage: Texture | HostBuffer, numbers: Array) -> Array:
        """The array to upload to the storage: packed numbers, or others in an array of the same shape."""
        ...


class PlacingContext(Protocol):
    """The interface of the compiler to a template's `place`.

    graph: after the passes. placements: of the values placed so far.
    """

    graph: Graph
    config: Config
    target: Target
    placements: dict[str, Placement]

    def place_value(self, value: Value) -> Placement:
        """Places a value of the graph unless it is placed, and returns where; see imgconv.compiling.place."""
        ...

    def place_result(self, value: Value) -> Placement:
        """Returns where a kernel that can write buffers writes a value: an output may go to its host buffer."""
        ...

    def reads_input_buffer(self, operand: Operand) -> bool:
        """Returns whether an operand is read from the buffer to which an input is uploaded."""
        ...

    def copy(self, operand: Operand, layout: Layout, reason: str) -> Operand:
        """The operand, copied to a texture of its own by an earlier launch."""
        ...

    def add_intermediate_value(
        self, name: str, shape: tuple[int, ...], layout: Layout, same_dtype_as: str = ""
    ) -> Value:
        """A value between the launches of one node, under about this name. Its texture is among the placements.

        same_dtype_as: the value of the graph whose element type it has; float if none.
        """
        ...

    def constant_of(self, operand: Operand) -> Array:
        """The array that a constant operand reads."""
        ...

    def place_constant(self, name: str, layout: Layout) -> Placement:
        """The texture of a constant of the graph."""
        ...

    def place_array(self, name: str, array: Array, layout: Layout, readers: Sequence[Node]) -> Placement:
        """The texture of an array that `place` made, under a new name."""
        ...

    def operand_places(self, node: Node, output: Placement) -> dict[str, Placement]:
        """Returns the placement of every operand of a node, constants included."""
        ...

    def weights_dtype(self, array: Array, readers: Sequence[Node]) -> DType:
        """The element type in which weights are stored."""
        ...

    def narrowest_accumulation(self, name: str) -> Accumulation:
        """Returns the narrowest width in which the node that computes a value may sum."""
        ...


class EmittingContext(Protocol):
    """The interface of the compiler to a template's `kernel`."""

    config: Config
    target: Target

    def math_mode_of(self, output: Placement) -> MathMode:
        """The math mode of a kernel that writes there."""
        ...

    def packed(self, name: str, weights: PackedConstant) -> Texture | HostBuffer:
        """The storage of packed weights. It gets this name, unless weights with the same key already have one."""
        ...


def _always(problem: Problem, specialisation: Specialisation) -> bool:
    return True


def _no_baseline(problem: Problem, target: Target) -> TimeRange:
    return NEVER


@dataclass(frozen=True)
class Template(Generic[P, S, D]):
    """A kind of kernel.

    name: the key of stored measurements, so it must not change. file: the .cl file, or "generated". problem,
    specialisation: frozen dataclasses. candidates: the specialisations worth measuring for a problem; none if the
    template is not for this device. allowed: whether a stored specialisation is valid for a problem. work: counts the
    work of a launch, which the device model converts to seconds. baseline: predicts the time of the launches that it
    and the steps before it replace.

    nodes: the groups of nodes of a graph that one launch can compute; it writes the last node's result. place: the
    LaunchStep of such a group, None if there is none. kernel: the source of a LaunchStep with a specialisation.
    measured: whether `imgconv tune` measures copies of a launch's nodes, each with another specialisation.
    """

    name: str
    file: str
    problem: type[P]
    specialisation: type[S]
    candidates: Callable[[P, Target], Sequence[S]]
    work: Callable[[P, S, Target], LaunchWork]
    nodes: Callable[[Graph], Iterator[tuple[Node, ...]]]
    place: Callable[[PlacingContext, tuple[Node, ...]], AnyLaunchStep | None]
    kernel: Callable[[LaunchStep[P, D], S, EmittingContext], KernelSource]
    allowed: Callable[[P, S], bool] = _always
    baseline: Callable[[P, Target], TimeRange] = _no_baseline
    measured: bool = True

    def predict(self, problem: P, chosen: S, target: Target) -> TimeRange:
        """The predicted time of a launch."""
        return time_range_of(self.work(problem, chosen, target), target.kind, target.compute_units)

    def best_time(self, problem: P, target: Target) -> TimeRange:
        """The predicted time of a launch with the best candidate; NEVER if there is none."""
        times = [self.predict(problem, each, target) for each in self.candidates(problem, target)]
        return times[index_of_best(times)] if times else NEVER


# A template of the table. A problem meets its own template only (`template_of`), which these types cannot say.
AnyTemplate = Template[Any, Any, Any]
AnyLaunchStep = LaunchStep[Any, Any]


@dataclass(frozen=True)
class FixedProblem:
    """The problem of a kernel without free constants: to compute a value of this name."""

    value: str

    @property
    def multiply_adds(self) -> int:
        return 0


@dataclass(frozen=True)
class NoSpecialisation:
    """The only specialisation of a Fixed problem."""

    def __str__(self) -> str:
        return ""


def fixed_template(
    name: str, file: str, nodes: Callable[[Graph], Iterator[tuple[Node, ...]]],
    place: Callable[[PlacingContext, tuple[Node, ...]], AnyLaunchStep | None],
    kernel: Callable[[LaunchStep[FixedProblem, D], EmittingContext], KernelSource],
) -> Template[FixedProblem, NoSpecialisation, D]:
    """A Template without free choices."""
    return Template(
        name, file, FixedProblem, NoSpecialisation, candidates=lambda problem, target: [NoSpecialisation()],
        work=lambda problem, chosen, target: LaunchWork(1), nodes=nodes, place=place,
        kernel=lambda step, chosen, emitting: kernel(step, emitting), measured=False,
    )


def nodes_with(*kinds: type[Operation]) -> Callable[[Graph], Iterator[tuple[Node, ...]]]:
    """The `nodes` of a template for every node with an operation of these kinds."""
    return lambda graph: ((node,) for node in graph.nodes if isinstance(node.operation, kinds))


def require_operation(kind: type[Kind], node: Node) -> Kind:
    """The operation of a node that a template's `nodes` gave it. Raises TypeError if it is of another kind."""
    if not isinstance(node.operation, kind):
        raise TypeError(f"{node.output.name} is a {node.operation}, not a {kind.__name__}")
    return node.operation


def step_of(
    placing: PlacingContext, node: Node, output: Placement, template: Template[P, Any, D], problem: P, details: D
) -> LaunchStep[P, D]:
    """The LaunchStep of a node whose operands the kernel reads where they are, through any view."""
    return LaunchStep(
        (node,), output, placing.operand_places(node, output), template, problem, details, describe(node),
        operation_kind(node), values=(node.output.name,),
    )


def operation_kind(node: Node) -> str:
    """The kind of work of a node, such as "depthwise convolution"."""
    operation = node.operation
    if isinstance(operation, Load):
        return "movement" if node.epilogue == IDENTITY else "elementwise"
    if isinstance(operation, Convolution) and 1 < operation.groups == node.operands[0].view.shape[1]:
        return "depthwise convolution"
    return type(operation).__name__.lower()


def describe(node: Node) -> str:
    """A node's operation and the scalar functions that are fused into its store."""
    fused = " ".join(function_names(node.epilogue))
    body = str(node.operation)
    if isinstance(node.operation, Load):
        return fused or f"move {node.operands[0].value}"
    return f"{body} + {fused}" if fused else body
