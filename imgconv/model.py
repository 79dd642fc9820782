"""load(), and Model: a compiled model on a device."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Union, overload

import numpy

from imgconv.arrays import Array, Arrays, Shapes
from imgconv.cl.device import DeviceInfo, open_device, select_device
from imgconv.cl.shutdown import shutdown_guard
from imgconv.compiling.plan import Launch, Plan
from imgconv.config import Config, read_config, read_device
from imgconv.errors import ConfigError, ContentError, Error, InputError, ShapeError
from imgconv.files.container import is_container
from imgconv.graph.nodes import Graph, Value
from imgconv.limits import Limits
from imgconv.loading.compiled import DEPTH, CompiledFileSource, CompiledModel, ModelSource
from imgconv.loading.progress import progress_callback
from imgconv.loading.states import check_host, check_states
from imgconv.runtime.host_fallback import strict_error
from imgconv.stored.precision_file import PrecisionFile, read_precision_file
from imgconv.stored.tuning import TuningDatabase, open_tuning_database

if TYPE_CHECKING:
    from imgconv.checking.comparing import LaunchVerdict
    from imgconv.cl.context import Memory, Queue
    from imgconv.cl.priority import Priority
    from imgconv.onnx_import import OnnxModel
    from imgconv.preprocessing.preparation import ChannelOrder, Colors, Filter, Format, Resize
    from imgconv.runtime.io_binding import FrameInput, Input, Inputs, Outputs
    from imgconv.runtime.mapped import Mapped
    from imgconv.runtime.pipeline import Frame
    from imgconv.runtime.programs import ProgressCallback
    from imgconv.runtime.session import Session
    from imgconv.stored.compiled_file import SavedModel

# The name and shape of an input, and dtype and bytes if its content matters: a plan is made for those of all inputs.
PlanKey = tuple[str, tuple[int, ...], Union[tuple[str, bytes], tuple[()]]]
PLANS = 8


class Model:
    """A model compiled for a device, made by `load`. `run` runs it; `graph` and `plan` show what is run.

        model = imgconv.load("squeezenet.onnx")
        model.inputs    # {'data_0': Value(name='data_0', shape=(1, 3, 224, 224), dtype='float32')}

    If sizes are dynamic, or an input's value is a shape, pads or a trip count, `run` compiles a plan for each new size,
    and for each new value of the inputs in `needs_content`. The last eight plans are kept; all use the same weights.
    `graph`, `plan`, `inputs` and `outputs` belong to the last run, or to the sizes given to `load`.
    """

    def __init__(self, source: Union[ModelSource, CompiledFileSource], share_with: Sequence[Session] = ()) -> None:
        """share_with: sessions on the same device; constants and kernels that equal theirs are shared."""
        self.device = source.info
        self._source = source
        self._plans: OrderedDict[frozenset[PlanKey], CompiledModel] = OrderedDict()
        self._contents: frozenset[str] = frozenset()
        self._missing: Error | None = None
        self._lock = Lock()
        try:
            compiled = source.compile(source.shapes, {}, share_with)
            self._plans[_key({v.name: v for v in compiled.plan.inputs}, frozenset())] = compiled
        except (ContentError, ShapeError) as error:
            self._missing = error

    def __repr__(self) -> str:
        return _described(self)

    def _repr_html_(self) -> str:
        """A notebook's view: the model, its device, and a table of inputs and outputs."""
        if not self._plans:
            return f"<p>{escape(_described(self))}</p>"
        rows = [("input", value) for value in self.inputs.values()]
        rows += [("output", value) for value in self.outputs.values()]
        cells = "".join(
            f"<tr><td>{kind}</td><td>{escape(value.name)}</td><td>{value.dtype}</td><td>{list(value.shape)}</td></tr>"
            for kind, value in rows
        )
        about = f"{self._source.name} on {self.device.name}, {len(self.plan.launches)} launches"
        return f"<table><caption>{escape(about)}</caption>{cells}</table>"

    @property
    def _last(self) -> CompiledModel:
        if self._missing is not None and not self._plans:
            raise self._missing
        return next(reversed(self._plans.values()))

    @property
    def _sessions(self) -> list[Session]:
        return [compiled.session for compiled in self._plans.values()]

    @property
    def graph(self) -> Graph:
        """The graph after the passes. Before the first run it may raise ShapeError or ContentError."""
        return self._last.graph

    @property
    def plan(self) -> Plan:
        """The launches in order, and their textures: print(model.plan). Raises as `graph` does."""
        return self._last.plan

    @property
    def config(self) -> Config:
        """The settings it was compiled with. Raises as `graph` does."""
        return self._last.config

    @property
    def inputs(self) -> dict[str, Value]:
        """Name, shape and dtype of every input, by name. Before the first run, dynamic dimensions are -1."""
        values = self.plan.inputs if self._plans else self._source.declared_values()
        return {value.name: value for value in values}

    @property
    def outputs(self) -> dict[str, Value]:
        """Name, shape and dtype of every output, by name; a size that depends on data is -1. Raises as `graph` does."""
        return {value.name: value for value in self._last.outputs}

    @overload
    def run(self, inputs: Inputs, outputs: Mapping[str, Array] | None = None) -> dict[str, Array]: ...

    @overload
    def run(self, inputs: Inputs, outputs: Outputs) -> dict[str, Any]: ...

    def run(self, inputs: Inputs, outputs: Outputs | None = None) -> dict[str, Any]:
        """Returns every output by name, as a new numpy array. inputs: an array for every input.

            model.run({"x": array})["y"]                    # array: float32 (1, 3, 32, 32)
            model.run({"x": array}, {"y": mine})            # fills the array `mine`

        outputs: arrays, OpenCL buffers or images to fill, for some of the outputs; they are returned by name too.
        An input may also be a buffer or an image of `queue.context`, with the shape that it had in the last run: it is
        copied on the device. A buffer holds the row-major tensor in the dtype of `plan.input_buffers[name]` or
        `plan.output_buffers[name]`; `plan.placements[name]` is an image's layout. Other queues must have finished with
        them. The picture of `preprocess` may be a VideoFrame.

        Threads that call it take turns. Raises InputError, RangeError, DeviceError, and what `load` raises.
        """
        compiled, given = self._prepared(inputs, outputs)
        return compiled.run(given, outputs)

    def submit(
        self, inputs: Inputs, depth: int = DEPTH, outputs: Mapping[str, Array] | None = None, tag: object = None
    ) -> Frame:
        """Starts a run; returns the Future of its outputs, as `run` gives them. inputs: an array for every input.

            frames = [model.submit({"x": array}) for array in arrays]
            results = [frame.result()["y"] for frame in frames]

        Uploads, computation and downloads of several frames overlap. If `depth` frames are in flight, `submit` waits.
        The caller may change the inputs after `submit` returns. outputs: arrays for result() to fill. tag: any object,
        such as a timestamp, which callbacks find in `frame.tag`. Each frame in flight needs `plan.buffer_bytes` on the
        device, and as much pinned memory. Raises what `run` raises; result() raises what fails on the device.
        """
        compiled, given = self._prepared(inputs, outputs)
        return compiled.pipeline.submit(given, depth, outputs, tag)

    def mapped(self) -> Mapped:
        """Returns memory for inputs and outputs that is filled and read in place, for the sizes of the last run.

        `mapped.inputs["x"][...] = picture`, then `mapped.run()["y"]`. If host and device share memory, as on phones,
        nothing is copied; otherwise the device copies from and to pinned memory, of `plan.buffer_bytes`.
        See Mapped. Raises ResourceError, and what `graph` raises.
        """
        from imgconv.runtime.mapped import Mapped

        return Mapped(self._last.session, self._last.fallback)

    def import_dma_buf(self, descriptor: int, bytes: int) -> Memory:
        """A buffer of memory that a camera fills, without a copy: the first bytes of a Linux dma-buf.

            memory = model.import_dma_buf(descriptor, 3 * 704 * 480 // 2)       # once for each buffer of the camera
            planes = [Plane(memory, 704), Plane(memory, 704, offset=704 * 480)]
            model.run({"picture": VideoFrame(planes, 640, 480)})

        `run` accepts the buffer as an input or output, or as the data of all planes of a VideoFrame. The caller owns
        the descriptor and may close it. Raises InputError for a descriptor of anything else. If the driver lacks the
        extensions for it, raises DeviceError, which lists them.
        """
        with shutdown_guard, self._source.context.lock:
            return self._source.context.import_dma_buf(descriptor, bytes)

    @property
    def queue(self) -> Queue:
        """The in-order pyopencl queue of all runs. Buffers and images for `run` must belong to its context."""
        return self._source.context.queue

    @property
    def needs_content(self) -> tuple[str, ...]:
        """The inputs whose values the model is compiled for, as known from the runs so far, such as ("shape",)."""
        return tuple(sorted(self._contents))

    def preprocess(
        self, size: tuple[int, int] | None = None, format: Format = "rgb", resize: Resize = "stretch",
        filter: Filter = "antialias", order: ChannelOrder | None = None, scale: float = 1.0,
        mean: float | Sequence[float] = 0.0, std: float | Sequence[float] = 1.0, pad: int = 114,
        colors: Colors = "bt601", input: str | None = None, crop: float = 1.0,
    ) -> Model:
        """Returns the model with an input "picture" of bytes, from which the device makes the model's own input.

            seen = model.preprocess((1080, 1920), "nv12", scale=1 / 255)
            seen.run({"picture": frame})                    # frame: uint8 (1620, 1920); the outputs of the model

        x = (pixel * scale - mean) / std, with pixels from 0 to 255. The picture is a uint8 array, by format: 'rgb' and
        'bgr' (height, width, 3), 'rgba' (height, width, 4) with alpha ignored, 'grey' (height, width), 'nv12', 'nv21',
        'i420' and, of uint16, 'p010' (height * 3/2, width), 'yuyv' (height, width, 2).

        - size: height and width of the picture; another size is compiled at its first run.
        - resize, filter, crop, pad, mean, std: see imgconv.preprocess.Preparation.
        - order: 'rgb', 'bgr' or 'y' (default: 'rgb', or 'y' if the model takes one channel).
        - colors: the standard of the last five formats, 'bt601', 'bt601-full', 'bt709' or 'bt709-full'. With full,
            black is 0 and white 255, otherwise 16 and 235.
        - input: the name of the input, if several can take a picture.

        A dynamic input size becomes the picture's. The new model shares the weights with this model.
        Raises InputError for a setting that does not fit, ConfigError for a compiled file, and what `load` raises.
        """
        from imgconv.preprocessing.stage import PICTURE, array_shape, stage_for_input

        how = {
            "resize": resize, "filter": filter, "order": order, "scale": scale, "mean": _each(mean), "std": _each(std),
            "pad": pad, "format": format, "colors": colors, "crop": crop,
        }
        if not isinstance(self._source, ModelSource):
            raise ConfigError("a compiled file's inputs are fixed: call preprocess first, and compile its result")
        if self._source.states:
            raise ConfigError("the model has states: call preprocess first, and stream of its result")
        shapes = dict(self._source.shapes)
        if self._source.picture:
            shapes.pop(PICTURE, None)
        stage = stage_for_input(self._source.declared_inputs(), shapes, how, input)
        shapes.pop(PICTURE, None)  # if the model's own input has the name, the stage has its sizes
        if size:
            shapes[PICTURE] = array_shape(format, (size[1], size[0]))
        source = replace(self._source, shapes=shapes, picture=stage)
        return Model(source, self._sessions)

    def stream(self, states: Mapping[str, str]) -> Model:
        """Returns the model with states, from outputs to inputs, that stay on the device from run to run.

            stream = model.stream({"state_out": "state_in"})
            masks = [stream.run({"frame": frame})["mask"] for frame in frames]
            stream.reset()

        The states are textures on the device, and are zero at first. The new model has its own activations, for the
        sizes of the last run, and shares the weights with this model. Raises InputError if a name, shape or dtype does
        not match, or if the host reads a state.
        """
        last = self._last
        if self._contents:
            raise InputError(f"the model cannot be a stream: its shapes depend on {', '.join(self.needs_content)}")
        if last.states:
            raise InputError("the model keeps its states already: use run, and reset to set them to zero")
        check_states(last.plan.inputs, last.plan.outputs, states)
        shapes = {value.name: value.shape for value in last.plan.inputs}
        made = Model(replace(self._source, shapes=shapes, states=dict(states)), [last.session])
        if made._last.fallback:
            check_host(made._last.fallback.partition, made.plan)
        return made

    def reset(self) -> None:
        """Sets the states of `stream`, or of a file that has some, to zero; waits for the current frame."""
        self._last.reset()

    def save(
        self, path: str | os.PathLike[str], targets: Sequence[str | os.PathLike[str] | DeviceInfo] = (),
        sizes: Sequence[Shapes] = (), generic: bool = False, player_only: bool = False,
    ) -> None:
        """Writes a compiled file, which `load` accepts: the plan of the last run, the weights and the program binaries.

            model.save("model.imgconv")
            model.save("phone.imgconv", targets=["phone.json"])     # of `imgconv devices --json` on the phone
            model.save("both.imgconv", sizes=[{"x": (1, 3, 480, 640)}])

        Loading the file needs no onnx package. On the same device and driver, nothing is compiled; on another device,
        `load` plans and compiles again.

        - targets: other devices to compile for: files written by `imgconv devices --json`, names in
            loading.description.known_devices(), or DeviceInfos.
        - sizes: further shapes, in the form of `shapes` of `load`. The file then also has plans for these, with the
            same weights. Each run in Python, or opening the file in the native player, uses the plan for its shapes.
        - generic: also write a plan for any phone.
        - player_only: leave out the graph, which Python needs to plan for other devices; `load` rejects the file.

        Raises InputError for a wrong description, a file that cannot be written, or an ONNX file that was removed or
        has changed since it was loaded and is read again, and what `run` raises.
        """
        from imgconv.loading.save import save_sized

        save_sized(path, self._last, self._source, targets, sizes, generic, player_only)

    def __call__(self, array: Input) -> Array:
        """Runs a model that has one input and one output: scores = model(array).

        Raises InputError if the model has several inputs or outputs, and what `run` raises.
        """
        if isinstance(array, Mapping):
            raise InputError("a model is called with one array; inputs by name are for run: model.run({'x': array})")
        # Open sizes have no plan before a run; compiled content is no input of a plan.
        names = [*self.inputs, *self.needs_content] if self._plans else list(self.inputs)
        if len(names) != 1:
            raise InputError(f"the model has {len(names)} inputs ({', '.join(names)}): use run({{name: array}})")
        outputs = self.run(dict.fromkeys(names, array))
        if len(outputs) != 1:
            said = f"the model has {len(outputs)} outputs ({', '.join(outputs)})"
            raise InputError(f"{said}: use run({{{names[0]!r}: array}}), which returns them by name")
        return next(iter(outputs.values()))

    def _prepared(
        self, inputs: Inputs, outputs: Outputs | None = None
    ) -> tuple[CompiledModel, dict[str, FrameInput | Memory]]:
        """The plan for the inputs, and the inputs that it takes."""
        from imgconv.cl.context import is_memory
        from imgconv.runtime.io_binding import convert_inputs, check_wanted

        given = convert_inputs(inputs, self._source.format)
        if outputs is not None:
            check_wanted(outputs)
        shutdown_guard.check()
        with self._lock:
            compiled = self._compiled_for({n: self._stand_in(n) if is_memory(a) else a for n, a in given.items()})
            contents = self._contents.difference(value.name for value in compiled.plan.inputs)
            return compiled, {n: a for n, a in given.items() if n not in contents} if contents else given

    def _stand_in(self, name: str) -> Array:
        """An array without memory of its own, of the shape that an input had in the last run."""
        if name not in self.inputs:
            raise InputError(f"input {name!r} must be an array; on the device it can be {', '.join(self.inputs)}")
        return numpy.broadcast_to(numpy.float32(0), self.inputs[name].shape)

    def _compiled_for(self, arrays: Mapping[str, Any]) -> CompiledModel:
        """The plan for the arrays' shapes and contents, compiled if there is none yet."""
        while not self._source.is_fixed:
            key = _key(arrays, self._contents)
            if key in self._plans:
                self._plans.move_to_end(key)
                break
            try:
                compiled = self._compile(arrays)
            except ContentError as error:
                if self._contents.issuperset(error.inputs):
                    raise
                self._contents |= frozenset(error.inputs)
                continue
            self._plans[key] = compiled
            while len(self._plans) > PLANS:
                self._plans.popitem(last=False)
        return self._last

    def _compile(self, arrays: Arrays) -> CompiledModel:
        _check_given(self.needs_content, arrays)
        shapes = {name: array.shape for name, array in arrays.items()}
        try:
            return self._source.compile(shapes, {n: arrays[n] for n in self._contents}, self._sessions)
        except InputError:
            if self._plans and isinstance(self._source, ModelSource):
                from imgconv.runtime.io_binding import check_inputs

                # An error about the last plan's inputs says more than one about what the file allows.
                check_inputs(self.plan.inputs, {n: a for n, a in arrays.items() if n not in self._contents})
            raise


def checked(model: Model) -> dict[int, LaunchVerdict]:
    """Checks each launch of the last run's plan: verdicts by number, see docs/check.md. Raises DeviceError."""
    from imgconv.checking.session_checks import SessionUnderTest, check_session

    last = model._last
    return check_session(SessionUnderTest(last.session, last.graph, last.config))


def checked_frames(model: Model) -> tuple[Launch, LaunchVerdict] | None:
    """The launch that reads frames, which is in no plan, and the verdict on it; None if the model takes none."""
    from imgconv.checking.frame_checks import check_frames, frame_launch
    from imgconv.stored.frame_table import takes_frames

    session, format = model._last.session, model._source.format
    if format is None or not takes_frames(session.plan, format):
        return None
    return frame_launch(session, format), check_frames(session, format)


def prepares_pictures(model: Model, name: str) -> bool:
    """Returns whether `model.submit` takes Pixels for an input, see imgconv.preprocessing.pixels."""
    from imgconv.runtime.picture_input import takes_pixels

    return takes_pixels(model.plan, model._last.fallback, name)


def pin_in_place(model: Model, array: Array) -> Array:
    """Pins the memory of an array of bytes, a whole mmap, for copies of Pixels; returns an array of that memory."""
    from imgconv.cl import staging

    with shutdown_guard, model._source.context.lock:
        return staging.pin_in_place(model._source.context, array)


def _described(model: Model) -> str:
    """<imgconv.Model squeezenet.onnx on [0] ...: data_0: float32[1, 3, 224, 224] -> ..., 31 launches>."""
    about = f"<imgconv.Model {model._source.name} on {model.device.name}"
    if not model._plans:
        return f"{about}: {', '.join(model.inputs)} of dynamic sizes, compiled at the first run>"
    inputs, outputs = (", ".join(map(str, values)) for values in (model.plan.inputs, model.plan.outputs))
    states = ", ".join(f"{made} to {taken}" for made, taken in model._last.states.items())
    states = f"; on the device {states}" if states else ""
    return f"{about}: {inputs} -> {outputs}, {len(model.plan.launches)} launches{states}>"


def _check_given(names: Sequence[str], arrays: Mapping[str, Any]) -> None:
    missing = [name for name in names if name not in arrays]
    if missing:
        from imgconv.runtime.io_binding import missing_inputs

        raise InputError(missing_inputs(missing))


def _key(arrays: Mapping[str, Any], contents: frozenset[str]) -> frozenset[PlanKey]:
    """The key of a plan: shapes of the inputs, and content of `contents`. arrays: Values do without contents."""
    return frozenset([
        (name, array.shape, (array.dtype.str, array.tobytes()) if name in contents else ())
        for name, array in arrays.items()
    ])


def load(
    model: Graph | OnnxModel, device: str | int | DeviceInfo | None = None, float16: int | bool | None = None,
    native_explog: bool | None = None, shapes: Shapes | None = None, max_image: int | None = None,
    progress: ProgressCallback | bool | None = None, precision: str | Path | None = None,
    tuning: str | Path | None = None, workspace: Model | None = None, strict: bool = False,
    limits: Limits | None = None, trusted: bool = True, check: bool = True, outputs: Sequence[str] = (),
    priority: Priority | None = None,
) -> Model:
    """Compiles an ONNX file, its bytes, an onnx ModelProto or a Graph for a device, or loads a compiled file.

        load("model.onnx", shapes={"height": 480, "width": 640})    # symbolic dimensions by name
        load("model.onnx", shapes={"x": (1, 3, 480, 640)})          # an input's whole shape
        load("model.onnx", device="Adreno", float16=1)

    - device: index or part of the name (default: IMGCONV_DEVICE, else a GPU, else a CPU).
    - float16: 1 stores fp16 where the outputs tolerate it, 2 also computes in fp16 (default: FLOAT16, else 0).
    - native_explog: use the device's native_exp, native_log and native_recip (default: NATIVE_EXPLOG, else no).
    - shapes: sizes by input or symbolic dimension (default: batch 1, the others those of the first run).
    - max_image: for tests, a limit on image sizes in texels, below the device's (default: IMGCONV_MAX_IMAGE).
    - progress: called with (kernels built, all kernels, text), or (runs, 0, text) while fp16 and fp32 are chosen;
        False is silent (default: a line in a terminal or a notebook).
    - precision: a file from `imgconv tune --precision`, which sets float16, and fp16 or fp32 for each value.
    - tuning: a file from `imgconv tune` with measurements of this device (default: the file next to the model).
    - workspace: a larger model that is already loaded. The new model shares its device and its memory for activations;
        runs of the two models wait for each other.
    - strict: reject a model if the host has to compute part of it; see docs/operators.md.
    - limits: limits on the memory, time and nodes of the model; see Limits.
    - trusted: False uses only the graph of a compiled file, not its kernels and programs; see docs/threat_model.md.
    - check: False skips the comparison of launches with float64 at the first load on a driver; see docs/check.md.
    - outputs: tensors at which an ONNX model is cut, such as ("neck",).
    - priority: 'high', 'normal' or 'low'; with 'low' other programs, such as the screen's, use the GPU first.

    Raises ConfigError, ModelError, UnsupportedError, InputError, DeviceError, ResourceError or BuildError.
    """
    if shapes is not None and not isinstance(shapes, Mapping):
        raise ConfigError(f"shapes= is a dict such as {{'x': (1, 3, 224, 224)}}, not a {type(shapes).__name__}")
    with progress_callback(progress) as step:
        settings = Settings(
            device, float16, native_explog, shapes or {}, max_image, step, precision, tuning, strict,
            limits or Limits(), trusted, check, tuple(outputs), priority,
        )
        if workspace is None:
            return Model(open_source(model, settings))
        if not isinstance(workspace, Model):
            raise ConfigError(f"workspace= is a model that is already loaded, not a {type(workspace).__name__}")
        wanted = device if device is None or isinstance(device, DeviceInfo) else select_device(device)
        if wanted not in (None, workspace.device):
            raise ConfigError(f"{device!r} is not the device of the model whose workspace is to be shared")
        if priority is not None:
            raise ConfigError("a model that shares a workspace has the priority of the workspace's: leave priority out")
        source = open_source(model, replace(settings, device=workspace.device))
        return Model(replace(source, context=workspace._source.context), workspace._sessions)


@dataclass(frozen=True)
class Settings:
    """The arguments of `load`, with the same names and meanings: Settings(float16=1)."""

    device: str | int | DeviceInfo | None = None
    float16: int | bool | None = None
    native_explog: bool | None = None
    shapes: Shapes = field(default_factory=dict)
    max_image: int | None = None
    progress: ProgressCallback | None = None
    precision: str | Path | PrecisionFile | None = None
    tuning: str | Path | None = None
    strict: bool = False
    limits: Limits = Limits()
    trusted: bool = True
    check: bool = True
    outputs: tuple[str, ...] = ()
    priority: Priority | None = None


def open_source(model: Graph | OnnxModel, settings: Settings) -> ModelSource | CompiledFileSource:
    """The source that `load` compiles: the model and its settings, on an opened device. Raises what `load` raises.

        open_source("model.onnx", Settings(float16=1)).config.float16      # 1
    """
    device = settings.device
    if isinstance(model, (str, os.PathLike)) and is_container(model):
        from imgconv.stored.compiled_file import SavedModel

        return _open_saved(SavedModel.open(model), os.fspath(model), settings)
    config, file = read_settings(settings)
    info = device if isinstance(device, DeviceInfo) else select_device(config.device)
    database = open_tuning_database(model) if settings.tuning is None else TuningDatabase(settings.tuning)
    context = open_device(info, timeout=settings.limits.run_seconds, priority=settings.priority)
    source = ModelSource(
        model, settings.shapes, config, info, context, settings.progress, file, database, strict=settings.strict,
        limits=settings.limits, check=settings.check, outputs=settings.outputs,
    )
    if settings.outputs and isinstance(model, Graph):
        raise ConfigError("outputs= can only cut ONNX models: build the graph with the outputs that you want")
    if not isinstance(model, (str, os.PathLike)):
        return source
    from imgconv.stored.description_file import find_description

    return replace(source, description=find_description(model))


def read_settings(settings: Settings) -> tuple[Config, PrecisionFile | None]:
    """The Config for an ONNX model, and the content of the precision file. Raises ConfigError."""
    device = None if isinstance(settings.device, DeviceInfo) else settings.device
    file = settings.precision
    if file is not None and not isinstance(file, PrecisionFile):
        file = read_precision_file(file)
    float16 = settings.float16
    if file and float16 is not None and int(float16) != file.float16:
        raise ConfigError(f"{file.path!r} was made for float16={file.float16}, not for float16={int(float16)}")
    return read_config(file.float16 if file else float16, settings.native_explog, settings.max_image, device), file


def _open_saved(saved: SavedModel, path: str, settings: Settings) -> CompiledFileSource:
    shapes = {name: tuple(map(int, _each(shape))) for name, shape in settings.shapes.items()}
    unknown = shapes.keys() - saved.inputs.keys()
    fixed = Settings(settings.device, shapes=settings.shapes, progress=settings.progress, limits=settings.limits)
    fixed_file = f"{path!r} is a compiled file: its settings and shapes cannot be changed"
    if unknown or replace(settings, strict=False, trusted=True, check=True, priority=None) != fixed:
        raise ConfigError(fixed_file)
    device = settings.device
    info = device if isinstance(device, DeviceInfo) else select_device(read_device(device))
    if settings.strict and saved.host_partition:
        raise strict_error(saved.host_partition, path)
    if saved.is_player_only:
        saved.read_graph()  # raises
    try:
        saved.for_shapes(shapes)
    except InputError as error:
        raise ConfigError(f"{fixed_file}: {error}") from error
    context = open_device(info, timeout=settings.limits.run_seconds, priority=settings.priority)
    return CompiledFileSource(
        saved, info, context, settings.progress, None, settings.limits, settings.trusted, settings.check, shapes
    )


def _each(numbers: float | Sequence[float]) -> tuple[float, ...]:
    """One number, or one for each channel, as a tuple."""
    return tuple(map(float, numpy.ravel(numbers)))
