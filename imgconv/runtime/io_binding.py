"""Binds the inputs and outputs of a run: checks and converts arrays, OpenCL buffers and images of the caller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Union

import numpy
import numpy.typing as npt

from imgconv.arrays import Array, Arrays
from imgconv.cl.context import Image, element_type, image_dtype, image_shape
from imgconv.cl.context import Memory, is_image, is_memory
from imgconv.compiling.plan import Plan, Storage
from imgconv.errors import InputError, RangeError
from imgconv.graph.evaluate import evaluate_graph
from imgconv.graph.nodes import Value
from imgconv.graph.pass_through import EXACT, WIDE
from imgconv.kernels.layout import LANES, ImageDescriptor, Texels, Texture
from imgconv.preprocessing.pixels import Pixels
from imgconv.preprocessing.preparation import Format
from imgconv.preprocessing.stage import PICTURE, size_of_array
from imgconv.preprocessing.video_frame import PackedFrame, VideoFrame
from imgconv.runtime.device import Device

# What a caller gives for an input, and for an output that is to be filled.
Input = Union[npt.ArrayLike, Memory, Pixels, VideoFrame, PackedFrame]
OutputDestination = Union[Array, Memory]
# What is given for an input of a submitted frame.
FrameInput = Union[Array, Pixels, PackedFrame]
# By the names of a model's inputs and outputs.
Inputs = Mapping[str, Input]
Outputs = Mapping[str, OutputDestination]

# Source, destination, the origin in each, and width and height, in texels.
ImageCopy = tuple[Union[Image, Texture], Union[Image, Texture], Texels, Texels, Texels]


@dataclass
class IOBinding:
    """One run's inputs and outputs.

    uploads and downloads: contiguous arrays of the stored dtype, by the storage that they go to or come from.
    copies_in, copies_out: the caller's memory, by the storage that it is copied to or from. instead: copies of images
    in place of launches that would pack or unpack them, by the launches' numbers. frames: by the input's storage, which
    a launch of its own fills. brought: the caller's memory or array for an output, by its name. moved: the outputs of
    plan.moved.
    """

    plan: Plan
    uploads: dict[Storage, Array] = field(default_factory=dict)
    copies_in: dict[Storage, Memory] = field(default_factory=dict)
    downloads: dict[Storage, Array] = field(default_factory=dict)
    copies_out: dict[Storage, Memory] = field(default_factory=dict)
    instead: dict[int, list[ImageCopy]] = field(default_factory=dict)
    frames: dict[Storage, PackedFrame] = field(default_factory=dict)
    brought: dict[str, OutputDestination] = field(default_factory=dict)
    moved: dict[str, Array] = field(default_factory=dict)

    @staticmethod
    def bind(plan: Plan, context: Device, inputs: Inputs, outputs: Outputs) -> IOBinding:
        """Checks inputs and outputs. Raises InputError naming the one that does not fit."""
        made = IOBinding.to_host(plan, context, outputs)
        _check_names(plan.inputs, inputs)
        for value in plan.inputs:
            given = inputs[value.name]
            if value.name in plan.exact_inputs or is_memory(given):
                made._bind_input(value, given, context)
            else:
                _check_array(value, given)
        check_exact(plan, inputs)
        made.moved.update(pass_through_outputs(plan, inputs))
        return made

    @staticmethod
    def to_host(plan: Plan, context: Device, outputs: Outputs, moved: Arrays | None = None) -> IOBinding:
        """A binding of outputs only, with those of plan.moved. Raises InputError."""
        made = IOBinding(plan)
        made.moved.update(moved or {})
        if outputs:
            _check_output_names(plan.outputs, outputs)
        for value in plan.outputs:
            made._bind_output(value, outputs.get(value.name), context)
        return made

    def results(self) -> dict[str, Any]:
        """Returns every output by name, once the downloads are complete: the caller's own memory or array, if it was
        passed.

        The values are typed Any, so that callers who passed no memory need not check for it. Raises RangeError for an
        integer output that is not exact.
        """
        found: dict[str, Any] = {}
        for value in self.plan.outputs:
            brought = self.brought.get(value.name)
            if brought is not None and is_memory(brought):
                found[value.name] = brought
                continue
            constant = self.plan.constant_outputs.get(value.name)
            if value.name in self.moved:
                made = self.moved[value.name]
            elif constant is not None:
                made = constant if brought is not None else constant.copy()
            else:
                made = to_output_dtype(value, self.downloads[self.plan.output_buffers[value.name]])
            if isinstance(brought, numpy.ndarray) and made is not brought:
                numpy.copyto(brought, made)
            found[value.name] = made if brought is None else brought
        return found

    def _bind_input(self, value: Value, given: Input, context: Device) -> None:
        place = self.plan.input_buffers[value.name]
        if isinstance(given, PackedFrame):
            check_packed(self.plan, value, given)
            if given.memory is not None:
                _check_context("input", value, given.memory, context)
            self.frames[place] = given
            return
        if not is_memory(given):
            self.uploads[place] = to_stored_dtype(place, _check_array(value, given))
            return
        _check_context("input", value, given, context)
        if not is_image(given):
            _check_size("input", value, given, place)
            self.copies_in[place] = given
        elif isinstance(place, Texture):
            _check_image("input", value, given, place)
            self.copies_in[place] = given
        else:
            number, texture = self._packing_launch(value, place)
            moves = _check_image("input", value, given, texture)
            self.instead[number] = [(given, texture, outside, inside, size) for outside, inside, size in moves]

    def _bind_output(self, value: Value, wanted: OutputDestination | None, context: Device) -> None:
        place = self.plan.output_buffers.get(value.name)
        if is_memory(wanted):
            if place is None:
                raise InputError(f"output {value.name!r} is not computed on the device: receive it as an array")
            _check_context("output", value, wanted, context)
            if is_image(wanted):
                number, texture = self._unpacking_launch(value, place)
                moves = _check_image("output", value, wanted, texture)
                self.instead[number] = [(texture, wanted, inside, outside, size) for outside, inside, size in moves]
            else:
                _check_size("output", value, wanted, place)
                self.copies_out[place] = wanted
        else:
            array = _destination(value, wanted)
            if place is not None:
                if array is None or array.dtype != place.dtype or not array.flags.c_contiguous:
                    array = numpy.empty(place.shape, place.dtype)
                self.downloads[place] = array
        if wanted is not None:
            self.brought[value.name] = wanted

    def _packing_launch(self, value: Value, place: Storage) -> tuple[int, Texture]:
        """The only launch that reads an input's buffer, and the texture that it fills from that buffer alone."""
        readers = [n for n, launch in enumerate(self.plan.launches) if place in launch.reads]
        packed = self.plan.placements.get(value.name)
        if len(readers) == 1 and packed is not None and packed.is_whole:
            launch = self.plan.launches[readers[0]]
            if isinstance(packed.storage, Texture) and launch.writes == packed.storage and launch.kind == "pack":
                return readers[0], packed.storage
        raise InputError(f"input {value.name!r} is read from a buffer, not a texture: pass a buffer or an array")

    def _unpacking_launch(self, value: Value, place: Storage) -> tuple[int, Texture]:
        """The launch that writes an output's buffer, and the texture that it reads the whole output from."""
        packed = self.plan.placements.get(value.name)
        writers = [n for n, launch in enumerate(self.plan.launches) if launch.writes == place]
        if len(writers) == 1 and packed is not None and packed.is_whole and isinstance(packed.storage, Texture):
            return writers[0], packed.storage
        raise InputError(f"output {value.name!r} is written to a buffer, not a texture: pass a buffer or an array")


def convert_inputs(inputs: Inputs, format: Format | None) -> dict[str, FrameInput | Memory]:
    """The inputs as arrays, memory, Pixels or PackedFrames. format: of the model's picture; None if it takes none.

    Raises InputError if they are not given by name, and for a VideoFrame that does not fit the format.
    """
    if not isinstance(inputs, Mapping):
        said = f"inputs are passed by name, as in run({{'x': array}})['y'], not as a {type(inputs).__name__}"
        names = inputs is None or (isinstance(inputs, (list, tuple)) and all(isinstance(each, str) for each in inputs))
        raise InputError(f"{said}; run accepts no output names: it returns all outputs" if names else said)
    return {
        name: each if type(each) is numpy.ndarray else _as_given(name, each, format) for name, each in inputs.items()
    }


def _as_given(name: str, each: Any, format: Format | None) -> FrameInput | Memory:
    if isinstance(each, VideoFrame):
        if format is None or name != PICTURE:
            about = "imgconv compile --picture and Model.preprocess make models that take frames, as input 'picture'"
            raise InputError(f"input {name!r} accepts no VideoFrame: {about}")
        return PackedFrame.from_frame(each, format)
    return each if is_memory(each) or isinstance(each, (Pixels, PackedFrame)) else numpy.asarray(each)


def check_inputs(wanted: tuple[Value, ...], given: Inputs) -> dict[str, Array]:
    """The arrays by name; InputError for a name, shape or dtype that the model does not take."""
    _check_names(wanted, given)
    return {value.name: _check_array(value, given[value.name]) for value in wanted}


def check_frame(plan: Plan, given: Inputs) -> dict[str, FrameInput]:
    """Does what `check_inputs` does, with Pixels or a PackedFrame in place of some arrays."""
    _check_names(plan.inputs, given)
    made: dict[str, FrameInput] = {}
    for value in plan.inputs:
        mine = given[value.name]
        made[value.name] = mine if isinstance(mine, (Pixels, PackedFrame)) else _check_array(value, mine)
        if isinstance(mine, PackedFrame):
            check_packed(plan, value, mine)
        elif isinstance(mine, Pixels) and mine.shape != value.shape:
            raise InputError(f"input {value.name!r} expects {list(value.shape)}, the picture is {list(mine.shape)}")
    return made


def check_packed(plan: Plan, value: Value, frame: PackedFrame) -> None:
    """Raises InputError for a frame of another size than the input's, and for an input that is read on the host."""
    if frame.shape != value.shape:
        sizes = frame.size, size_of_array(frame.format, value.shape)
        made, takes = (f"{width}x{height}" for width, height in sizes)
        raise InputError(f"input {value.name!r} expects {takes}; the frame's region, after its rotation, is {made}")
    if value.name not in plan.exact_inputs or plan.moved and value.name in {each.name for each in plan.moved.inputs}:
        raise InputError(f"input {value.name!r} is read on the host: pass an array")


def check_outputs(made: tuple[Value, ...], given: Mapping[str, Array]) -> None:
    """Raises InputError for an array that does not fit an output, and for an unknown name."""
    _check_output_names(made, given)
    for value in made:
        _destination(value, given.get(value.name))


def check_wanted(outputs: Outputs) -> None:
    """Raises InputError unless the outputs to fill are given by name, each in memory of its own."""
    if not isinstance(outputs, Mapping):
        raise InputError(
            f"outputs are arrays to fill, by name, as in run(inputs, {{'y': array}}), not a {type(outputs).__name__}; "
            "without them run returns all outputs"
        )
    for (name, wanted), (other, second) in combinations(outputs.items(), 2):
        if _overlap(wanted, second):
            raise InputError(f"outputs {name!r} and {other!r} are to fill the same memory")


def _overlap(a: OutputDestination, b: OutputDestination) -> bool:
    if isinstance(a, numpy.ndarray) and isinstance(b, numpy.ndarray):
        return numpy.shares_memory(a, b)
    return is_memory(a) and is_memory(b) and a == b


def _check_output_names(made: tuple[Value, ...], given: Outputs) -> None:
    names = [value.name for value in made]
    unknown = [name for name in given if name not in names]
    if unknown:
        raise InputError(f"no output is called {unknown[0]!r}; the model's outputs are {', '.join(names)}")


def _check_names(wanted: tuple[Value, ...], given: Inputs) -> None:
    names = [value.name for value in wanted]
    if given.keys() != set(names):
        unknown = [name for name in given if name not in names]
        missing = [name for name in names if name not in given]
        problem = f"no input is called {unknown[0]!r}" if unknown else missing_inputs(missing)
        raise InputError(f"{problem}; the model's inputs are {', '.join(names)}")


def missing_inputs(names: Sequence[str]) -> str:
    """Returns the missing inputs: "input 'x' is missing", "inputs 'x' and 'state' are missing"."""
    *first, last = map(repr, names)
    return f"inputs {', '.join(first)} and {last} are missing" if first else f"input {last} is missing"


def _check_array(value: Value, given: Input) -> Array:
    if isinstance(given, Pixels):
        raise InputError(f"input {value.name!r} is given as Pixels, which submit() takes: pass an array")
    if isinstance(given, PackedFrame):
        raise InputError(f"input {value.name!r} is read on the host: pass an array")
    array = numpy.asarray(given)
    if array.shape != value.shape:
        raise InputError(f"input {value.name!r} has shape {list(array.shape)}, the model expects {list(value.shape)}")
    if not _accepts_array(value.dtype, array):
        raise InputError(f"input {value.name!r} has dtype {array.dtype}, the model expects {value.dtype}")
    if array.dtype.kind == "f" and array.dtype.itemsize > numpy.dtype(value.dtype).itemsize:
        _check_range(value, array, value.dtype)
    return array


def check_exact(plan: Plan, given: Inputs) -> None:
    """Raises InputError for a number that the device computes with and that a float does not hold.

    That is an integer over 2**24, and a float64 that would become infinite.
    """
    for value in plan.checked_inputs:
        if is_memory(given[value.name]) or isinstance(given[value.name], PackedFrame):
            continue
        array = numpy.asarray(given[value.name])
        if value.dtype == "float64":
            _check_range(value, array, "float32")
        if value.dtype not in WIDE or not array.size or array.dtype.itemsize <= 2:
            continue
        low, high = int(array.min()), int(array.max())
        if max(-low, high) > EXACT:
            raise InputError(
                f"input {value.name!r} holds {high if high > EXACT else low}: integers that are computed with are "
                f"fp32 values on the device, exact up to 2**24 = {EXACT}"
            )


def _check_range(value: Value, array: Array, dtype: str) -> None:
    """Raises InputError for a finite number that a narrower type of floats does not hold."""
    with numpy.errstate(over="ignore"):
        beyond = numpy.isfinite(array) & numpy.isinf(array.astype(dtype))
    if numpy.any(beyond):
        number, largest = float(array[beyond].flat[0]), float(numpy.finfo(dtype).max)
        said = f"it is computed in {dtype}, which ends at {largest:.4g}"
        raise InputError(f"input {value.name!r} holds {number:g}: {said}")


def pass_through_outputs(plan: Plan, given: Inputs) -> dict[str, Array]:
    """The outputs that the host makes, as new arrays. Raises InputError if one needs an input that is on the device."""
    if plan.moved is None:
        return {}
    for value in plan.moved.inputs:
        if is_memory(given[value.name]):
            outputs = ", ".join(plan.moved.outputs)
            raise InputError(f"input {value.name!r} reaches {outputs} through the host: pass an array")
    made = evaluate_graph(plan.moved, {value.name: numpy.asarray(given[value.name]) for value in plan.moved.inputs})
    return {name: array.copy() for name, array in made.items()}


def to_stored_dtype(place: Storage, array: Array) -> Array:
    """An input's array as it is uploaded: contiguous, of the stored dtype."""
    contiguous = numpy.ascontiguousarray(array, place.dtype)
    return contiguous.reshape(place.shape[0], -1, LANES) if isinstance(place, Texture) else contiguous


def to_output_dtype(value: Value, array: Array, copy: bool = False) -> Array:
    """A downloaded array in the output's dtype. copy: always a new one. Raises RangeError for values outside of it."""
    if value.dtype.startswith("float"):
        return array.astype(value.dtype, copy=copy)
    low, high = (0, 1) if value.dtype == "bool" else (numpy.iinfo(value.dtype).min, numpy.iinfo(value.dtype).max)
    whole = numpy.rint(array)
    # As a float, the largest int32 rounds to 2**31, which is no int32.
    if array.size and not (low <= whole.min() and (whole.max() < high or whole.max() == high < EXACT)):
        raise RangeError(
            f"output {value.name!r} depends on an integer that reached 2**24, where fp32 values are not exact, "
            f"or on a value outside the range of {value.dtype}"
        )
    return whole.astype(value.dtype)


def _accepts_array(dtype: str, array: Array) -> bool:
    """Returns whether an array may be given for a dtype: any float for a float, else any dtype that loses nothing."""
    if array.dtype == dtype or (array.dtype.kind == "f" and dtype.startswith("float")):
        return True
    if array.dtype.kind in "biu" and not dtype.startswith("float"):
        return bool(numpy.all(array.astype(dtype) == array))
    return numpy.can_cast(array.dtype, dtype, "safe")


def _destination(value: Value, wanted: object) -> Array | None:
    """The array that an output goes to; None if there is none. Raises InputError if it does not fit."""
    if wanted is None:
        return None
    if not isinstance(wanted, numpy.ndarray):
        raise InputError(f"output {value.name!r} can go to an array, a buffer or an image, not to {type(wanted)}")
    if (wanted.shape, wanted.dtype) != (value.shape, numpy.dtype(value.dtype)) or not wanted.flags.writeable:
        raise InputError(f"output {value} does not fit an array {wanted.dtype} {list(wanted.shape)}")
    return wanted


def _check_context(what: str, value: Value, memory: Memory, context: Device) -> None:
    if not context.owns(memory):
        raise InputError(f"the memory of {what} {value.name!r} does not belong to model.queue.context")


def _check_size(what: str, value: Value, buffer: Memory, place: Storage) -> None:
    if buffer.size != max(place.bytes, 4):
        raise InputError(
            f"the buffer of {what} {value.name!r} has {buffer.size} bytes; the model expects {max(place.bytes, 4)}, "
            f"{place.dtype} in row-major order"
        )


def _check_image(what: str, value: Value, image: Image, texture: Texture) -> list[tuple[Texels, Texels, Texels]]:
    """The copies between a caller's image and a texture: the origin of each in both, and its size.

    The image has the layout of the texture. For a texture in tiles, it may also have the layout without tiles.
    """
    tiling = texture.tiling
    given = ImageDescriptor(image.width, image.height, max(1, image.array_size), element_type(image))
    if given == ImageDescriptor(tiling.width, tiling.height, 1, texture.dtype):
        return list(tiling.tile_copies())
    if given == texture.descriptor:
        return [((0, 0, 0), (0, 0, 0), (given.width, given.height, given.layers))]
    width, height, layers = *tiling.image_size, tiling.layers
    wanted = (layers, height, width, LANES) if layers > 1 else (height, width, LANES)
    raise InputError(
        f"the image of {what} {value.name!r} is {image_shape(image)} {image_dtype(image)}; the model expects "
        f"{wanted} {texture.dtype}, the layout of {texture}"
    )
