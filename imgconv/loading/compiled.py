"""A model compiled for a device, and the model's source: an ONNX file, a Graph or a compiled file."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol, Union

from imgconv.arrays import Arrays, Shapes, TensorSpecs
from imgconv.build_options import DRIVERS_DEFAULTS, BuildOptions
from imgconv.checking.frame_checks import check_frames_once
from imgconv.checking.player_checks import with_checks
from imgconv.checking.session_checks import SessionUnderTest, check_once, is_checked
from imgconv.cl.bad_compilers import miscompiled_patterns
from imgconv.cl.building.crashes import refused_kernels
from imgconv.cl.device_info import DeviceInfo
from imgconv.cl.shutdown import shutdown_guard
from imgconv.compiling.choose import Chooser, CostModelChooser
from imgconv.compiling.compiler import PreparedGraph, prepare, with_image_limit
from imgconv.dtype import FLOAT32
from imgconv.precision.share import UNDECIDED, half_share_of
from imgconv.compiling.shared_packings import Packings, SharedPackingChooser
from imgconv.compiling.plan import Plan
from imgconv.config import Config, Precision
from imgconv.errors import DeviceError, ResourceError
from imgconv.graph.nodes import Graph, Value
from imgconv.limits import Limits, load_budget
from imgconv.loading.device_descriptions import read_device_description
from imgconv.runtime.host_fallback import HostFallback, strict_error
from imgconv.loading.native_functions import native_functions_fit
from imgconv.loading.device_target import target_of
from imgconv.loading.replanning import until_kernels_work
from imgconv.stored.compiled_file import DevicePlan, SavedModel, SizedModel, save_sizes
from imgconv.stored.precision_file import PrecisionFile, choice_key, read_choice, write_choice
from imgconv.stored.tuning import TunedChooser, TuningDatabase

if TYPE_CHECKING:
    from imgconv.cl.opencl_device import OpenCLDevice
    from imgconv.graph.onnx_nodes import HostGraph
    from imgconv.host.host_program import OnDevice
    from imgconv.host.registry import HostFunction
    from imgconv.onnx_import import OnnxModel
    from imgconv.preprocessing.preparation import Format
    from imgconv.preprocessing.stage import PictureStage
    from imgconv.runtime.io_binding import Inputs, Outputs
    from imgconv.runtime.device import Device
    from imgconv.runtime.pipeline import Pipeline
    from imgconv.runtime.programs import ProgressCallback
    from imgconv.runtime.session import Session

LOG = logging.getLogger("imgconv")
DEPTH = 3  # frames in flight, unless the caller says otherwise
TO_THE_END = "imgconv tune --precision MODEL PICTURES, or imgconv compile --pictures PICTURES, measures every value"


class OutputStage(Protocol):
    """The decoding after a model: imgconv.answers.AnswerStage."""

    def append_to(self, model: Graph, shapes: Shapes) -> Graph:
        """The graph with answers in place of its outputs."""

    def with_float_answers(self, precision: Precision, graph: Graph) -> Precision:
        """The precision that keeps the answers in float."""


def prepare_for(
    info: DeviceInfo, graph: Graph, config: Config, tuning: TuningDatabase | None = None,
    packings: Packings | None = None, native_functions: bool = False,
) -> PreparedGraph:
    """Prepares a graph for a device, whose kernels are chosen by measurements there or else by the cost model.

    packings: those of other plans of the model, preferred if that costs little. native_functions: see Target.
    Raises DeviceError.
    """
    chooser = _chooser(info, tuning)
    chooser = chooser if packings is None else SharedPackingChooser(chooser, packings)
    prepared = prepare(graph, config, target_of(info, native_functions), chooser)
    return replace(
        prepared, refused=refused_kernels(info), miscompiled_patterns=miscompiled_patterns(info),
        build_options=build_options_of(info, config, tuning),
    )


def _chooser(info: DeviceInfo, tuning: TuningDatabase | None) -> Chooser:
    """Returns a chooser that prefers measurements on this device to the cost model."""
    return CostModelChooser() if tuning is None else TunedChooser(tuning, info.key, CostModelChooser())


def build_options_of(info: DeviceInfo, config: Config, tuning: TuningDatabase | None) -> BuildOptions:
    """Returns the build options that `imgconv tune` found to be the fastest on this device."""
    return DRIVERS_DEFAULTS if tuning is None else tuning.build_options(info.key, config)


@dataclass(frozen=True)
class CompiledModel:
    """A model for inputs of certain shapes: its plan, and its session on a device.

    fallback: what the host computes of the outputs; None if the device makes them all. states: see `lower`.
    """

    make_graph: Callable[[], Graph]
    plan: Plan
    config: Config
    session: Session
    fallback: HostFallback | None = None
    states: Mapping[str, str] = field(default_factory=dict)

    def run(self, inputs: Inputs, outputs: Outputs | None = None) -> dict[str, Any]:
        """Every output by name; see Session.run. Raises what it and HostFallback.finish raise."""
        if self.fallback is None:
            return self.session.run(inputs, outputs)
        made = self.session.run(inputs, self.fallback.on_device(outputs or {}))
        return self.fallback.finish(made, self.fallback.inputs_of(inputs), outputs)

    def reset(self) -> None:
        """Sets the states to zero. If other threads run frames, it waits for the current one."""
        with shutdown_guard, self.session.context.lock:
            self.session.clear_states()

    @property
    def outputs(self) -> tuple[Value, ...]:
        """Every output of the model; a size that depends on data is -1."""
        made = self.plan.outputs if self.fallback is None else self.fallback.partition.outputs
        return tuple(value for value in made if value.name not in self.states)

    @cached_property
    def pipeline(self) -> Pipeline:
        """The frames in flight."""
        from imgconv.runtime.pipeline import Pipeline

        return Pipeline(self.session, self.fallback)

    @cached_property
    def graph(self) -> Graph:
        """The graph after the passes. A compiled file's graph is read at the first use."""
        return self.make_graph()


def subgraphs_on(
    info: DeviceInfo, context: Device, config: Config, tuning: TuningDatabase | None = None, limits: Limits = Limits(),
    check: bool = True,
) -> OnDevice:
    """Makes the functions of the host partition's device subgraphs: sessions on a device.

    They compute in float: which values of theirs may be half is not measured. check: whether they are proved.
    """
    plain = replace(config, float16=0, precision=Precision())

    def compile(graph: Graph, share_with: Sequence[Session]) -> Session:
        from imgconv.runtime.session import Session

        def made(info: DeviceInfo) -> Session:
            started, prepared = perf_counter(), prepare_for(info, graph, plain, tuning)
            session = Session(prepared.plan(plain), context, None, share_with)
            if check:
                check_once(SessionUnderTest(session, prepared.graph, plain), started)
            return session

        with load_budget(limits):
            return until_kernels_work(info, made)

    def subgraph(body: HostGraph) -> HostFunction:
        from imgconv.loading.device_subgraphs import DeviceSubgraph

        return DeviceSubgraph(body, compile)

    return subgraph


def plans_to_save(
    compiled: CompiledModel, own: DeviceInfo, targets: Sequence[str | os.PathLike[str] | DeviceInfo],
    tuning: TuningDatabase | None, packings: Packings,
) -> list[DevicePlan]:
    """The plans of a compiled file: the model's own with its binaries, or those for devices that need not be there.

    If the own one uses the device's native functions, or its instruction for products of bytes, another one is for
    devices where these were not measured.
    targets: see Model.save; empty for the model's own. packings: see plans_for. Raises what `load` raises, and
    InputError.
    """
    config = compiled.config
    if not targets:
        native_functions = native_functions_fit(compiled.session.context, config)
        target = with_image_limit(target_of(own, native_functions), config)
        found = DevicePlan(compiled.plan, own.key, target, compiled.session.binaries())
        found = with_checks(found, compiled.graph, config, compiled.states)
        others = [own] if target.native_functions or target.dot_product else []
    else:
        found = None
        others = [each if isinstance(each, DeviceInfo) else read_device_description(each) for each in targets]
    plans = plans_for(compiled.graph, config, others, tuning, compiled.states, packings)
    return plans if found is None else [found, *plans]


def save_sized(
    path: str | os.PathLike[str], compiled: CompiledModel, source: ModelSource | CompiledFileSource,
    targets: Sequence[str | os.PathLike[str] | DeviceInfo], sizes: Sequence[Shapes], generic: bool, player_only: bool,
) -> None:
    """Writes the file of a model that `source` compiled, and of the same for other sizes; see Model.save.

    Raises what `plans_to_save` and `save_sizes` raise.
    """
    states, packings = compiled.states, Packings()
    others = [source.compile({**source.shapes, **each}, {}, [compiled.session]) for each in sizes]
    made = []
    for each in (compiled, *others):
        plans = plans_to_save(each, source.info, targets, source.tuning, packings)
        if generic:
            plans = with_generic(plans, each.graph, each.config, states, packings)
        made.append(SizedModel(each.graph, each.config, plans, states))
    save_sizes(path, made, source.description, source.format, player_only)


def plans_for(
    graph: Graph, config: Config, devices: Sequence[DeviceInfo], tuning: TuningDatabase | None,
    states: Mapping[str, str], packings: Packings,
) -> list[DevicePlan]:
    """Makes a plan for each device, without its native functions and products of bytes.

    graph: after the passes. states: see `lower`.
    packings: of earlier plans of the model; later ones read their weights where that takes little longer. Raises
    what `with_image_limit` and `lower` raise.
    """
    plans: list[DevicePlan] = []
    for info in devices:
        target = with_image_limit(target_of(replace(info, dot_product="")), config)
        chooser = SharedPackingChooser(_chooser(info, tuning), packings)
        prepared = PreparedGraph(
            graph, config, target, chooser, miscompiled_patterns=miscompiled_patterns(info),
            build_options=build_options_of(info, config, tuning),
        )
        plan = DevicePlan(prepared.plan(states=states), info.key, target)
        plans.append(with_checks(plan, graph, config, states))
    return plans


def with_generic(
    plans: Sequence[DevicePlan], graph: Graph, config: Config, states: Mapping[str, str], packings: Packings
) -> list[DevicePlan]:
    """Appends a plan for the least capable device, unless there is one.

    There can be none if the settings ask for arithmetic in half, or if a kernel exceeds that device's limits.
    """
    least = read_device_description("generic")
    if any(each.device == least.key for each in plans):
        return [*plans]
    try:
        return [*plans, *plans_for(graph, config, [least], None, states, packings)]
    except (DeviceError, ResourceError) as error:
        LOG.warning("the file has no plan for any device: %s", error)
        return [*plans]


@dataclass(frozen=True)
class ModelSource:
    """The model and the arguments of `load`.

    model: as given to `load`, as are shapes and precision; tuning: measurements of devices; picture: the preparation of
    a picture before the model, on the device; packings: those of the weights of the plans made so far; description:
    what the outputs mean, for the compiled file; strict: whether a model that needs the host is refused; limits: of
    each plan; choices: what keeps float, by the `choice_key` of the graphs so far; check: whether plans are proved;
    outputs: the tensors at which an ONNX model ends; empty for its own; answers: the decoding after the model; states:
    see `lower`.
    """

    model: Union[Graph, OnnxModel]
    shapes: Shapes
    config: Config
    info: DeviceInfo
    context: OpenCLDevice
    progress: ProgressCallback | None
    precision: PrecisionFile | None = None
    tuning: TuningDatabase | None = None
    picture: PictureStage | None = None
    packings: Packings = field(default_factory=dict)
    description: str = ""
    strict: bool = False
    limits: Limits = Limits()
    choices: dict[str, Precision] = field(default_factory=dict)
    check: bool = True
    outputs: tuple[str, ...] = ()
    answers: OutputStage | None = None
    states: Mapping[str, str] = field(default_factory=dict)

    @property
    def format(self) -> Format | None:
        """The format of the picture; None if the model takes none."""
        return self.picture.how.format if self.picture else None

    @property
    def is_fixed(self) -> bool:
        """Returns whether the shapes of the inputs never change."""
        return bool(self.states) or isinstance(self.model, Graph) and self.picture is None

    @property
    def name(self) -> str:
        """The file's name, or that of the graph."""
        if isinstance(self.model, (str, os.PathLike)):
            return os.path.basename(self.model)
        if isinstance(self.model, bytes):
            return "model"
        return self.model.name if isinstance(self.model, Graph) else self.model.graph.name or "model"

    def declared_inputs(self) -> TensorSpecs:
        """dtype and dimensions of every input of the model itself; see imgconv.onnx_import.declared_inputs."""
        if isinstance(self.model, Graph):
            return {value.name: (value.dtype, value.shape) for value in self.model.inputs}
        from imgconv.onnx_import import declared_inputs

        return declared_inputs(self.model, self.outputs)

    def declared_values(self) -> list[Value]:
        """The arrays that a run takes: the picture in place of the input made from it. Dynamic dimensions are -1.

        A shape that the file does not declare is ().
        """
        values = [
            Value(name, tuple(dim if isinstance(dim, int) else -1 for dim in dims or ()), dtype)
            for name, (dtype, dims) in self.declared_inputs().items()
        ]
        stage = self.picture
        return [stage.picture if stage and value.name == stage.target.name else value for value in values]

    def compile(self, shapes: Shapes, contents: Arrays, share_with: Sequence[Session] = ()) -> CompiledModel:
        """Compiles the model for these shapes and known contents, sharing weights that equal those of `share_with`."""
        def compiled(info: DeviceInfo) -> CompiledModel:
            with load_budget(self.limits):
                return replace(self, info=info)._compiled(shapes, contents, share_with)

        return until_kernels_work(self.info, compiled)

    def _compiled(self, shapes: Shapes, contents: Arrays, share_with: Sequence[Session]) -> CompiledModel:
        stage, graph, started = self.picture, self.model, perf_counter()
        inner = stage.shapes_after(shapes) if stage else shapes
        if not isinstance(graph, Graph):
            from imgconv.onnx_import import import_onnx

            graph = import_onnx(graph, inner, contents, self.outputs)
        if self.strict and graph.host_partition:
            file = os.fspath(self.model) if isinstance(self.model, (str, os.PathLike)) else ""
            raise strict_error(graph.host_partition, file)
        with self.context.builders:
            prepared, config, session = self._built(graph, shapes, share_with, started)
        log_half_share(session.plan, prepared.graph, config)
        optimised = prepared.graph
        on_device = subgraphs_on(self.info, self.context, self.config, self.tuning, self.limits, self.check)
        fallback = HostFallback.prepare(optimised.host_partition, optimised.inputs, optimised.outputs, on_device)
        compiled = CompiledModel(lambda: optimised, session.plan, config, session, fallback, self.states)
        compiled.reset()
        return compiled

    def _built(
        self, graph: Graph, shapes: Shapes, share_with: Sequence[Session], started: float
    ) -> tuple[PreparedGraph, Config, Session]:
        """The graph after the passes, the settings with what keeps float, and their plan on the device.

        started: the perf_counter() at which the load began.
        """
        from imgconv.runtime.session import Session

        stage, native = self.picture, native_functions_fit(self.context, self.config)
        measured = prepared = prepare_for(self.info, graph, self.config, self.tuning, self.packings, native)
        precision, session = self._precision(prepared, started)
        config = replace(self.config, precision=precision)
        if stage or self.answers:
            after = self.answers.append_to(graph, shapes) if self.answers else graph
            after = stage.prepend_to(after, shapes) if stage else after
            prepared = prepare_for(self.info, after, self.config, self.tuning, self.packings, native)
        if self.answers:
            config = replace(config, precision=self.answers.with_float_answers(precision, prepared.graph))
        if session is None or stage or self.answers or self.states or share_with:
            share_with = [*share_with, session] if session else share_with
            session = Session(prepared.plan(config, self.states), self.context, self.progress, share_with)
        if self.check:
            check_once(SessionUnderTest(session, prepared.graph, config, self.states), started)
            check_frames_once(session, self.format)
        self._keep(precision, measured)  # not before the kernels are proved by which it was measured
        return prepared, config, session

    def _precision(self, prepared: PreparedGraph, started: float) -> tuple[Precision, Session | None]:
        """Returns the precision, of its file, of an earlier load or of a measurement, and the measured plan."""
        if self.precision:
            return self.precision.precision_of(prepared.graph), None
        if self.config.storage == FLOAT32:
            return Precision(), None
        key = choice_key(prepared.graph, self.info.key, self.config)
        kept = self.choices.get(key) or read_choice(key, prepared.graph)
        if kept is not None:
            self.choices[key] = kept
            return kept, None
        from imgconv.precision.choose import choose_precision

        chosen = choose_precision(prepared, self.context, self.progress, started=started)
        return chosen.precision, chosen.session

    def _keep(self, precision: Precision, prepared: PreparedGraph) -> None:
        """Keeps a precision that was measured, for this process and later ones."""
        if self.precision or not self.config.float16:
            return
        key = choice_key(prepared.graph, self.info.key, self.config)
        if key not in self.choices:
            self.choices[key] = precision
            write_choice(key, precision)


def log_half_share(plan: Plan, graph: Graph, config: Config) -> None:
    """One line for the log; a warning if less than half of the numbers are half, or if some were not measured."""
    if config.storage == FLOAT32:
        return
    half_share = half_share_of(plan, graph, config)
    LOG.info("%s", half_share)
    if UNDECIDED in config.precision.reasons.values():
        warnings.warn(f"{half_share}; {TO_THE_END}", RuntimeWarning, stacklevel=2)
    elif half_share.share < 0.5:
        warnings.warn(f"{half_share}; see imgconv inspect", RuntimeWarning, stacklevel=2)


@dataclass(frozen=True)
class CompiledFileSource:
    """A compiled file as the source of a model: its own plan and binaries if they fit the device and are trusted."""

    saved: SavedModel
    info: DeviceInfo
    context: OpenCLDevice
    progress: ProgressCallback | None
    tuning: TuningDatabase | None = None
    limits: Limits = Limits()
    trusted: bool = True
    check: bool = True
    shapes: Shapes = field(default_factory=dict)
    states: Mapping[str, str] = field(default_factory=dict)

    @property
    def format(self) -> Format | None:
        """The format of the picture; None if the model takes none."""
        return self.saved.format

    @property
    def description(self) -> str:
        """The meaning of the outputs, as JSON."""
        return self.saved.description

    @property
    def name(self) -> str:
        """The file's name."""
        return os.path.basename(self.saved.container.path)

    @property
    def is_fixed(self) -> bool:
        """Returns whether the shapes of the inputs never change."""
        return bool(self.states) or len(self.saved.sizes) == 1

    def declared_values(self) -> list[Value]:
        return [Value(name, self.saved.shapes[name], dtype) for name, (dtype, _) in self.saved.inputs.items()]

    def compile(self, shapes: Shapes, contents: Arrays, share_with: Sequence[Session] = ()) -> CompiledModel:
        """The saved plan for these shapes and this kind of device.

        If there is none, or for other states, a plan from the saved graph.
        A file that is not trusted gets one from its graph too, with images in place of linear textures: a view that
        reads outside of its tensor reads zeros of an image.
        """
        saved = self.saved.for_shapes(shapes)
        return until_kernels_work(self.info, lambda info: replace(self, info=info)._compiled(saved, share_with))

    def _compiled(self, saved: SavedModel, share_with: Sequence[Session]) -> CompiledModel:
        from imgconv.runtime.session import Session

        started = perf_counter()
        with load_budget(self.limits), saved.naming():
            target = with_image_limit(target_of(self.info), saved.config)
            kept = self.states or saved.states
            found = saved.plan_for(self.info.key, target) if self.trusted and kept == saved.states else None
            refused, bad = refused_kernels(self.info), miscompiled_patterns(self.info)
            sources = [launch.source for launch in found.plan.launches] if found else []
            if any(source.key in refused or source.matches_any(bad) for source in sources if refused or bad):
                found = None
            if found is None:
                target = replace(target, native_functions=native_functions_fit(self.context, saved.config))
                target = target if self.trusted else replace(target, linear=None)
                prepared = PreparedGraph(
                    saved.read_graph(), saved.config, target, refused=refused, miscompiled_patterns=bad
                )
                plan = prepared.plan(states=kept)
            else:
                plan = found.plan
            session = Session(plan, self.context, self.progress, share_with, found.binaries if found else ())
            if self.check and not is_checked(session):
                check_once(SessionUnderTest(session, saved.read_graph(), saved.config, kept), started)
            if self.check:
                check_frames_once(session, saved.format)
            on_device = subgraphs_on(self.info, self.context, saved.config, self.tuning, self.limits, self.check)
            fallback = HostFallback.prepare(
                saved.host_partition, plan.inputs, [v.name for v in plan.outputs], on_device
            )
            compiled = CompiledModel(saved.read_graph, plan, saved.config, session, fallback, kept)
            compiled.reset()
            return compiled
