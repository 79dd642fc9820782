"""A model compiled for a device, and the model's source: an ONNX file, a Graph or a compiled file."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import cached_property
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol, Union

from imgconv.arrays import Arrays, Shapes, TensorSpecs
from imgconv.checking.session_checks import SessionUnderTest, check_once, needs_no_check
from imgconv.cl.bad_compilers import miscompiled_patterns
from imgconv.cl.building.crashes import refused_kernels
from imgconv.cl.device_info import DeviceInfo
from imgconv.cl.shutdown import shutdown_guard
from imgconv.dtype import FLOAT32
from imgconv.errors import InputError
from imgconv.compiling.plan import Plan
from imgconv.config import Config, Precision
from imgconv.graph.nodes import Graph, Value
from imgconv.limits import Limits, load_budget
from imgconv.runtime.host_fallback import HostFallback, strict_error
from imgconv.loading.native_functions import native_functions_fit
from imgconv.loading.device_target import target_of
from imgconv.loading.plan_cache import (
    CachedPlan, mark_as_planned, plan_key, read_graph, read_plan, was_planned, write_plan,
)
from imgconv.loading.replanning import replan_until_kernels_work
from imgconv.stored.precision_file import PrecisionFile, choice_key, read_choice, write_choice
from imgconv.stored.tuning import TuningDatabase

if TYPE_CHECKING:
    from imgconv.cl.opencl_device import OpenCLDevice
    from imgconv.compiling.compiler import PreparedGraph
    from imgconv.compiling.shared_packings import Packings
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
    from imgconv.stored.compiled_file import SavedModel

LOG = logging.getLogger("imgconv")
DEPTH = 3  # frames in flight, unless the caller says otherwise
# Nodes of an imported graph for each kernel of its plan: 2 to 12 in seven networks.
NODES_OF_A_KERNEL = 3
TO_THE_END = "imgconv tune --precision MODEL PICTURES, or imgconv compile --pictures PICTURES, measures every value"


class OutputStage(Protocol):
    """The decoding after a model: imgconv.answers.AnswerStage."""

    def append_to(self, model: Graph, shapes: Shapes) -> Graph:
        """The graph with answers in place of its outputs."""

    def with_float_answers(self, precision: Precision, graph: Graph) -> Precision:
        """The precision that keeps the answers in float."""


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
        made = self.session.run(inputs, self.fallback.outputs_on_device(outputs or {}))
        return self.fallback.finish(made, self.fallback.arrays_of_inputs(inputs), outputs)

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


def subgraph_maker(
    info: DeviceInfo, context: Device, config: Config, tuning: TuningDatabase | None = None, limits: Limits = Limits(),
    check: bool = True,
) -> OnDevice:
    """Makes the functions of the host partition's device subgraphs: sessions on a device.

    They compute in float: which values of theirs may be half is not measured. check: whether they are proved.
    """
    plain = replace(config, float16=0, precision=Precision())

    def compile(graph: Graph, share_with: Sequence[Session]) -> Session:
        from imgconv.loading.plans import prepare_for
        from imgconv.runtime.session import Session

        def make_session(info: DeviceInfo) -> Session:
            started, prepared = perf_counter(), prepare_for(info, graph, plain, tuning)
            session = Session(prepared.plan(plain), context, None, share_with)
            if check:
                check_once(SessionUnderTest(session, prepared.graph, plain), started)
            return session

        with load_budget(limits):
            return replan_until_kernels_work(info, make_session)

    def subgraph(body: HostGraph) -> HostFunction:
        from imgconv.loading.device_subgraphs import DeviceSubgraph

        return DeviceSubgraph(body, compile)

    return subgraph


@dataclass(frozen=True)
class ModelSource:
    """The model and the arguments of `load`.

    model: as given to `load`, as are shapes and precision; tuning: measurements of devices; picture: the preparation of
    a picture before the model, on the device; packings: those of the weights of the plans made so far; description:
    what the outputs mean, for the compiled file; strict: whether a model that needs the host is refused; limits: of
    each plan; choices: what keeps float, by the `choice_key` of the graphs so far; check: whether plans are proved;
    outputs: the tensors at which an ONNX model ends; empty for its own; answers: the decoding after the model; states:
    see `lower`; cached: whether plans are read from the cache, and added to it.
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
    cached: bool = True

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
                return replace(self, info=info)._cached(shapes, contents, share_with)

        return replan_until_kernels_work(self.info, compiled)

    def _cached(self, shapes: Shapes, contents: Arrays, share_with: Sequence[Session]) -> CompiledModel:
        """The model by the plan in the cache; compiled, and added to the cache, if there is none."""
        started, known = perf_counter(), {problem: {*each} for problem, each in self.packings.items()}
        key = self._key(shapes, known) if self.cached and not contents else None
        found = None if key is None else read_plan(key)
        if key is not None and found is not None:
            self.packings.update(found.packings)
            return self._restored(key, found, shapes, share_with, started, known)
        is_first = key is not None and not was_planned(key)
        with self.context.builders:
            made = self._compiled(shapes, contents, share_with, is_first)
        if key is not None and key == self._key(shapes, known):  # the file may have changed meanwhile
            is_complete = made.fallback is None and not (is_first and is_undecided(made.plan, made.graph, made.config))
            cached = CachedPlan(made.plan, made.config, self.packings)
            if not (is_complete and write_plan(key, self.model, cached, made.graph)):
                mark_as_planned(key)
        return made

    def _key(self, shapes: Shapes, packings: Packings) -> str | None:
        """The key of a plan in the cache, see `plan_key`. packings: those known before it is made."""
        if self.answers:
            return None
        precision = self.precision and (self.precision.to_json(), self.precision.version)
        return plan_key(self.model, self.tuning, [
            sorted(shapes.items()), self.config, self.info, precision, self.outputs, self.picture, self.limits,
            sorted(self.states.items()), sorted((astuple(each), sorted(known)) for each, known in packings.items()),
            native_functions_fit(self.context, self.config), sorted(refused_kernels(self.info)),
            miscompiled_patterns(self.info),
        ])

    def _restored(
        self, key: str, found: CachedPlan, shapes: Shapes, share_with: Sequence[Session], started: float,
        known: Packings,
    ) -> CompiledModel:
        """The model by a plan of an earlier load. known: the packings of its key."""
        from imgconv.runtime.session import Session

        def graph() -> Graph:
            kept = read_graph(key)
            if kept is None and key != self._key(shapes, known):
                raise InputError(
                    f"{self.name!r}, or what its plan depends on, was removed or has changed since it was loaded: load "
                    "it again"
                )
            return kept or replace(self, cached=False).compile(shapes, {}, [session]).graph

        session = Session(found.plan, self.context, self.progress, share_with)
        made = CompiledModel(graph, found.plan, found.config, session, None, self.states)
        if self.check and not needs_no_check(session):
            check_once(SessionUnderTest(session, made.graph, made.config, self.states), started)
        if self.check:
            _check_frames(session, self.format)
        if made.config.float16:
            log_half_share(made.plan, made.graph, made.config)
        made.reset()
        return made

    def _compiled(
        self, shapes: Shapes, contents: Arrays, share_with: Sequence[Session], is_first: bool
    ) -> CompiledModel:
        """The model by a new plan. is_first: no earlier load made this plan, so its kernels are probably new too."""
        stage, graph, started = self.picture, self.model, perf_counter()
        inner = stage.model_input_shapes(shapes) if stage else shapes
        if not isinstance(graph, Graph):
            from imgconv.onnx_import import import_onnx

            graph = import_onnx(graph, inner, contents, self.outputs)
        if self.strict and graph.host_partition:
            file = os.fspath(self.model) if isinstance(self.model, (str, os.PathLike)) else ""
            raise strict_error(graph.host_partition, file)
        if is_first:
            self.context.start_build_workers(len(graph.nodes) // NODES_OF_A_KERNEL)
        prepared, config, session = self._built(graph, shapes, share_with, started, is_first)
        log_half_share(session.plan, prepared.graph, config)
        optimised = prepared.graph
        on_device = subgraph_maker(self.info, self.context, self.config, self.tuning, self.limits, self.check)
        fallback = HostFallback.prepare(optimised.host_partition, optimised.inputs, optimised.outputs, on_device)
        compiled = CompiledModel(lambda: optimised, session.plan, config, session, fallback, self.states)
        compiled.reset()
        return compiled

    def _built(
        self, graph: Graph, shapes: Shapes, share_with: Sequence[Session], started: float, is_first: bool
    ) -> tuple[PreparedGraph, Config, Session]:
        """The graph after the passes, the settings with what keeps float, and their plan on the device.

        started: the perf_counter() at which the load began. is_first: see `_compiled`.
        """
        from imgconv.loading.plans import prepare_for
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
            _check_frames(session, self.format)
        # Only now are the kernels checked that measured it. The next load may have more time to measure.
        self._keep(precision, measured, on_disk=not (is_first and is_undecided(session.plan, prepared.graph, config)))
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

    def _keep(self, precision: Precision, prepared: PreparedGraph, on_disk: bool) -> None:
        """Keeps a precision that was measured, for this process and, on disk, for later ones."""
        if self.precision or not self.config.float16:
            return
        key = choice_key(prepared.graph, self.info.key, self.config)
        if key not in self.choices:
            self.choices[key] = precision
            if on_disk:
                write_choice(key, precision)


def _check_frames(session: Session, format: Format | None) -> None:
    """Checks the kernel that reads frames, if the model takes any. Raises DeviceError."""
    if format is not None:
        from imgconv.checking.frame_checks import check_frames_once

        check_frames_once(session, format)


def is_undecided(plan: Plan, graph: Graph, config: Config) -> bool:
    """Returns whether FLOAT16 was asked for, and the time of the load ended before any value was found to be fp16."""
    if config.storage == FLOAT32:
        return False
    from imgconv.precision.share import UNDECIDED, half_share_of

    return UNDECIDED in config.precision.reasons.values() and not half_share_of(plan, graph, config).half


def log_half_share(plan: Plan, graph: Graph, config: Config) -> None:
    """One line for the log; a warning if less than half of the numbers are half, or if some were not measured."""
    if config.storage == FLOAT32:
        return
    from imgconv.precision.share import UNDECIDED, half_share_of

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
        return replan_until_kernels_work(self.info, lambda info: replace(self, info=info)._compiled(saved, share_with))

    def _compiled(self, saved: SavedModel, share_with: Sequence[Session]) -> CompiledModel:
        from imgconv.compiling.compiler import PreparedGraph, with_image_limit
        from imgconv.runtime.session import Session

        started = perf_counter()
        with load_budget(self.limits), saved.errors_with_file_name():
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
            if self.check and not needs_no_check(session):
                check_once(SessionUnderTest(session, saved.read_graph(), saved.config, kept), started)
            if self.check:
                _check_frames(session, saved.format)
            on_device = subgraph_maker(self.info, self.context, saved.config, self.tuning, self.limits, self.check)
            fallback = HostFallback.prepare(
                saved.host_partition, plan.inputs, [v.name for v in plan.outputs], on_device
            )
            compiled = CompiledModel(saved.read_graph, plan, saved.config, session, fallback, kept)
            compiled.reset()
            return compiled
