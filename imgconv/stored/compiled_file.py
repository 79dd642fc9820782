"""Compiled models in files: `Model.save` writes them, `load` reads them. model.fbs defines their contents.

A file has the graph, from which any imgconv can make new plans, and plans, each for one kind of device. A file for the
player only has no graph, and `load` rejects it. Kernel sources (OpenCL C) and programs (the driver's machine code) run
unchecked; on a CPU they run inside the process. For files that you do not trust, `trusted=False` loads the graph only.
Checksums detect corruption, not malice.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar, get_args

import numpy

from imgconv.arrays import Array, Shapes
from imgconv.build_options import DRIVERS_DEFAULTS
from imgconv.compiling.plan import Plan
from imgconv.config import Config
from imgconv.dtype import DOT_PRODUCTS
from imgconv.errors import InputError, ModelError
from imgconv.files.container import MOST_COMPRESSED, Blob, ContainerFile, packed_blobs, write_container
from imgconv.files.flat import Table
from imgconv.graph.pass_through import pass_through_sources
from imgconv.graph.nodes import Graph, HostPartition
from imgconv.kernels.layout import ImageAlignment, ImageLimits
from imgconv.kernels.kernel_source import common_text
from imgconv.kernels.target import Target, TargetKind
from imgconv.preprocessing.preparation import FORMATS, Format
from imgconv.stored.blobs import BlobWriter, ReadArray, array_reader
from imgconv.stored.codec import TableReader, TableWriter
from imgconv.stored.plan_checks import NO_CHECKS, PlanChecks
from imgconv.stored.frame_table import frame_values
from imgconv.stored.plan_table import plan_values, read_plan
from imgconv.stored.shared_weights import share_weights
from imgconv.stored.tables import codec, graph_values, read_graph, read_partition, schema
from imgconv.version import VERSION

# What this imgconv reads, and what a reader of its files has to know: Model.needs in model.fbs. NEEDS_HOST is for files
# with a host partition, which the host computes, NEEDS_STATES for plans that keep states, NEEDS_VIEWS for arrays that
# are views of others. NEEDS_TAPS is for views of taps, by the outputs of a tile in a row. NEEDS_DECODER is for
# compressed blobs.
READS, NEEDS, NEEDS_HOST, NEEDS_STATES, NEEDS_VIEWS = 7, 1, 2, 3, 4
NEEDS_TAPS = {2: 5, 4: 6}
NEEDS_DECODER = 7
# What reading a made-up file may raise; a damaged one does not pass its checksums.
REFUSED = (
    ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, RecursionError, StopIteration, TypeError,
    ValueError, struct.error,
)
T = TypeVar("T")


@dataclass(frozen=True)
class DevicePlan:
    """A plan for a kind of device. device: the DeviceInfo.key of the device and driver that the binaries are of.

    checks: for the player, which Python does not read.
    """

    plan: Plan
    device: str
    target: Target
    binaries: tuple[bytes, ...] = ()
    checks: PlanChecks = NO_CHECKS


@dataclass(frozen=True)
class SizedModel:
    """A model for one size of its inputs. graph: after the passes. states: of the plans, see `lower`."""

    graph: Graph
    config: Config
    plans: Sequence[DevicePlan]
    states: Mapping[str, str] = field(default_factory=dict)


def save_model(
    path: str | os.PathLike[str], graph: Graph, config: Config, plans: Sequence[DevicePlan], description: str = "",
    format: Format | None = None,
) -> None:
    """Writes a compiled model, whole or not at all. description: JSON, see imgconv.tasks. format: of its picture.

    Raises InputError.
    """
    save_sizes(path, [SizedModel(graph, config, plans)], description, format)


def save_sizes(
    path: str | os.PathLike[str], sizes: Sequence[SizedModel], description: str, format: Format | None,
    player_only: bool = False,
) -> None:
    """Writes a model for several sizes of its inputs; see save_model. The first size is that of readers of one.

    player_only: leave out the graph and the reports. Raises InputError if the player does not run the plans either.
    """
    refused = next(filter(None, (refused_by_player(s.graph, [p.plan for p in s.plans]) for s in sizes)), "")
    if player_only and refused:
        raise InputError(f"a file for the player only has to run there, and the player refuses this model: {refused}")
    values, blobs = model_values(sizes, description, format, player_only)
    write_container(path, schema().pack(values), blobs)


def refused_by_player(graph: Graph, plans: Sequence[Plan]) -> str:
    """Returns why libimgconv, the player of native/, does not run a model, with the node's name; "" if it does."""
    if graph.host_partition:
        return f"node {graph.host_partition.node!r} and what follows it depend on data: the host computes them"
    for plan in plans:
        if plan.moved is None:
            continue
        known = {*plan.constant_outputs, *plan.output_buffers, *pass_through_sources(plan.moved)}
        chosen = next((v.name for v in plan.outputs if 0 not in v.shape and v.name not in known), None)
        if chosen is not None:
            made_by = {node.output.name: node.origin for node in graph.nodes}
            nodes = ", ".join(map(repr, made_by.get(chosen, ())))
            return f"output {chosen!r}, of node {nodes}, holds integers that the host chooses by other integers"
    return ""


def model_values(
    sizes: Sequence[SizedModel], description: str = "", format: Format | None = None, player_only: bool = False
) -> tuple[dict[str, Any], Sequence[bytes | memoryview]]:
    """The values of a Model table, and the blobs that they refer to."""
    blobs = BlobWriter()
    share_weights(blobs, [(plan.plan, _constants(each.graph)) for each in sizes for plan in each.plans])
    first, *others = [_sized_values(each, blobs, format, player_only) for each in sizes]
    first |= {"description": description, "sizes": others}
    packed, places = packed_blobs(blobs.parts)
    if any(place.content_bytes for place in places):
        for each in (first, *others):
            each["needs"] = max(each["needs"], NEEDS_DECODER)
    first["blobs"] = list(map(vars, places))
    return first, packed


def _constants(graph: Graph) -> dict[str, Array]:
    return {name: numpy.asarray(array) for name, array in graph.constants.items()}


def _sized_values(sized: SizedModel, blobs: BlobWriter, format: Format | None, player_only: bool) -> dict[str, Any]:
    made = [
        plan_values(each.plan, blobs, each.binaries, each.checks, player_only)
        | {"device": each.device, "target": _target_values(each.target), "frame": frame_values(each.plan, format)}
        for each in sized.plans
    ]
    writer, partition = TableWriter(codec(), blobs), sized.graph.host_partition
    needs = NEEDS_STATES if sized.states else NEEDS_HOST if partition else NEEDS
    needs = NEEDS_TAPS.get(blobs.largest_tile, NEEDS_VIEWS if blobs.has_views else needs)
    return {
        "needs": needs, "written_by": VERSION,
        "config": writer.values(Config, "Config", sized.config),
        "graph": None if player_only else graph_values(sized.graph, blobs),
        "plans": made, "states": [{"name": output, "text": fed} for output, fed in sized.states.items()],
        "host_partition": partition and writer.values(HostPartition, "HostPartition", partition),
    }


@dataclass(frozen=True)
class SavedModel:
    """An opened file of `save_model`; each part is read and checked at its first use.

    root: the table of the whole file; `table` is one of its sizes. Every problem with it is a ModelError that
    names the file.
    """

    container: ContainerFile
    table: Table
    root: Table

    @staticmethod
    def open(path: str | os.PathLike[str]) -> SavedModel:
        """Raises ModelError for a damaged file, or one that this imgconv cannot read."""
        container = ContainerFile(path)
        try:
            table = schema().read(container.head)
            needs, written_by = table.needs, table.written_by
            compressed = sum(each.content_bytes for each in table.blobs)
        except REFUSED as error:
            raise container.error(f"it is not a compiled model ({error}): compile it again") from error
        if needs > READS:
            raise container.error(
                f"imgconv {written_by} compiled it for readers of version {needs}, imgconv {VERSION} reads {READS}: "
                "compile it again, or install a newer imgconv"
            )
        if compressed > MOST_COMPRESSED:
            raise container.error("its blobs are too long: compile it again")
        return SavedModel(container, table, table)

    @cached_property
    def sizes(self) -> tuple[SavedModel, ...]:
        """The model for each size of its inputs that the file has."""
        return self._read(lambda: tuple(replace(self, table=each) for each in (self.root, *self.root.sizes)))

    def for_shapes(self, shapes: Shapes) -> SavedModel:
        """Returns the model for inputs of these shapes, the first if several fit. Raises InputError with all sizes."""
        wanted = {name: tuple(shape) if isinstance(shape, Sequence) else (shape,) for name, shape in shapes.items()}
        unknown = next((name for name in wanted if name not in self.shapes), None)
        if unknown is not None:
            raise InputError(f"no input is called {unknown!r}; the model's inputs are {', '.join(self.shapes)}")
        for each in self.sizes:
            if wanted.items() <= each.shapes.items():
                return each
        listed, given = "; or ".join(_shapes_as_text(each.shapes) for each in self.sizes), _shapes_as_text(wanted)
        raise InputError(f"{str(self.container.path)!r} is compiled for {listed}; not for {given}")

    @property
    def is_player_only(self) -> bool:
        """Returns whether the file has no graph: only the player runs it."""
        return self._read(lambda: self.root.graph is None)

    @cached_property
    def _inputs(self) -> tuple[Any, ...]:
        """The Value table of every input, without states."""
        fed = self.states.values()
        given = [each.value for each in self.table.plans[0].inputs] if self.is_player_only else self.table.graph.inputs
        return tuple(value for value in given if value.name not in fed)

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of every input, without states."""
        return self._read(lambda: {value.name: tuple(value.shape) for value in self._inputs})

    @cached_property
    def config(self) -> Config:
        """The settings that it was compiled with."""
        reader = TableReader(codec(), self._arrays())
        config: Config = self._read(lambda: reader.value(Config, "Config", self.table.config))
        return config

    @property
    def inputs(self) -> dict[str, tuple[str, list[int | str] | None]]:
        """dtype and shape of every input, as imgconv.onnx_import.declared_inputs gives them; without states."""
        return self._read(lambda: {value.name: (value.dtype, list(value.shape)) for value in self._inputs})

    @cached_property
    def states(self) -> dict[str, str]:
        """The outputs that the plans keep, and the input that each feeds at the next run."""
        return self._read(lambda: {each.name: each.text for each in self.table.states})

    @property
    def description(self) -> str:
        """The meaning of the outputs as JSON; "" if nobody said it."""
        return self._read(lambda: str(self.root.description or ""))

    @property
    def devices(self) -> list[str]:
        """DeviceInfo.key of each plan's device."""
        return self._read(lambda: [str(plan.device) for plan in self.table.plans])

    @cached_property
    def format(self) -> Format | None:
        """The format of the picture; None if the model takes none."""
        tables = (plan.frame for plan in self.table.plans)
        found = self._read(lambda: next((table.format for table in tables if table is not None), None))
        if found is not None and found not in FORMATS:
            raise self.container.error(f"its picture has the format {found!r}: use a newer imgconv")
        return found

    def read_plans(self) -> list[DevicePlan]:
        """Returns every plan with its weights and programs, in the order of the file."""
        array = self._arrays()
        return self._read(lambda: [
            DevicePlan(read_plan(table, array), table.device, _read_target(table.target), self._binaries(table))
            for table in self.table.plans
        ])

    def plan_for(self, device: str, target: Target) -> DevicePlan | None:
        """The plan that was made for this kind of device and these kernels, with its weights; None if there is none.

        device: DeviceInfo.key. The plan has binaries and build options only if they are of this device and driver. A
        plan that uses native functions or products of bytes is for the device and driver on which they were measured,
        whatever `target` says of them.
        """
        return self._read(lambda: self._plan_for(device, target))

    def _plan_for(self, device: str, target: Target) -> DevicePlan | None:
        wanted, common = dict(_target_values(target)), common_text()
        del wanted["native_functions"], wanted["dot_product"]
        fitting = [
            plan for plan in self.table.plans
            if plan.common == common and {name: getattr(plan.target, name) for name in wanted} == wanted
            and (plan.device == device or not (plan.target.native_functions or plan.target.dot_product))
        ]
        table = next((plan for plan in fitting if plan.device == device), fitting[0] if fitting else None)
        if table is None:
            return None
        plan = read_plan(table, self._arrays())
        if table.device != device:
            return DevicePlan(replace(plan, build_options=DRIVERS_DEFAULTS), device, target)
        return DevicePlan(plan, device, target, self._binaries(table))

    def _binaries(self, table: Any) -> tuple[bytes, ...]:
        return tuple(self._blob(program.binary) for program in table.programs if program.binary >= 0)

    def read_graph(self) -> Graph:
        """The graph after the passes, with its host partition. Raises ModelError for a file for the player only."""
        if self.is_player_only:
            raise self.container.error(
                "it was compiled with --player-only and has no graph: imgconv-run and libimgconv run it. For Python "
                "compile without this option, or use the ONNX file"
            )
        graph = self._read(lambda: read_graph(self.table.graph, self._arrays()))
        return replace(graph, host_partition=self.host_partition)

    @cached_property
    def host_partition(self) -> HostPartition | None:
        """The host fallback; None if the device makes all outputs."""
        table = self.table.host_partition
        return self._read(lambda: None if table is None else read_partition(table, self._arrays()))

    @property
    def refused_by_player(self) -> str:
        """The reason why libimgconv, the player of native/, does not open it, with the node's name; "" if it does."""
        if self.is_player_only:
            return ""
        return refused_by_player(self.read_graph(), [each.plan for each in self.read_plans()])

    def _arrays(self) -> ReadArray:
        return array_reader(self._blob)

    def _blob(self, number: int) -> bytes:
        place = self.root.blobs[number]
        return self.container.blob(Blob(place.offset, place.bytes, place.checksum, place.content_bytes))

    def _read(self, read: Callable[[], T]) -> T:
        with self.errors_with_file_name():
            return read()

    @contextmanager
    def errors_with_file_name(self) -> Iterator[None]:
        """A context that makes what a made-up file causes a ModelError with the file's name."""
        try:
            yield
        except ModelError as error:
            error.file = error.file or str(self.container.path)
            raise
        except REFUSED as error:
            raise self.container.error(f"its content is not a model ({error}): compile it again") from error


def _shapes_as_text(shapes: Mapping[str, Sequence[int]]) -> str:
    return ", ".join(f"{name} {list(shape)}" for name, shape in shapes.items())


def _target_values(target: Target) -> Mapping[str, Any]:
    """Everything that a plan depends on, except the chooser of its kernels."""
    limits, alignment, linear = target.limits, target.images_in_buffers, target.linear
    return {
        "image_width": limits.width, "image_height": limits.height, "image_layers": limits.layers,
        "kind": target.kind, "compute_units": target.compute_units, "half_images": target.half_images,
        "max_read_images": target.max_read_images, "half_arithmetic": target.half_arithmetic,
        "byte_images": target.byte_images, "local_memory_bytes": target.local_memory_bytes,
        "row_alignment": alignment.row if alignment else 0, "base_alignment": alignment.base if alignment else 0,
        "largest_buffer": alignment.limit if alignment else 0, "max_work_group": target.max_work_group,
        "linear_alignment": linear.base if linear else 0, "linear_limit": linear.limit if linear else 0,
        "loop_rounds": target.loop_rounds or 0, "native_functions": target.native_functions,
        "dot_product": target.dot_product,
    }


def _read_target(table: Any) -> Target:
    """Returns the Target of a table. Raises ValueError for what no target has."""
    alignment = ImageAlignment(table.row_alignment, table.base_alignment, table.largest_buffer)
    if table.kind not in get_args(TargetKind):
        raise ValueError(f"kind is {table.kind!r}")
    if table.dot_product not in DOT_PRODUCTS:
        raise ValueError(f"dot_product is {table.dot_product!r}")
    return Target(
        ImageLimits(table.image_width, table.image_height, table.image_layers), table.kind, table.compute_units,
        table.half_images, table.max_read_images, table.half_arithmetic, table.byte_images, table.local_memory_bytes,
        alignment if table.row_alignment else None, table.max_work_group,
        ImageAlignment(1, table.linear_alignment, table.linear_limit) if table.linear_alignment else None,
        table.loop_rounds or None, native_functions=table.native_functions, dot_product=table.dot_product,
    )
