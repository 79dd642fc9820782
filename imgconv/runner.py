"""Session: a Plan bound to a device. Upload, enqueue, download."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy

from imgconv.cl.device import Context
from imgconv.cl.image import create_buffer, create_image, download_buffer, upload, upload_buffer
from imgconv.cl.program import build, kernel
from imgconv.cl.queue import durations, enqueue, finish
from imgconv.errors import InputError
from imgconv.graph import Value
from imgconv.kernels.source import COMMON
from imgconv.layout import HostBuffer, Texture
from imgconv.plan import Plan, Storage

Progress = Callable[[int, int, str], None]
KERNELS_IN_A_PROGRAM = 16


class Session:
    """A plan with its images, its programs and its arguments bound; `run` only uploads, enqueues and downloads."""

    def __init__(self, plan: Plan, context: Context, progress: Progress | None = None) -> None:
        """Builds every kernel and uploads every constant. Raises BuildError, ResourceError, DeviceError.

        progress: called with (kernels built, kernels in all, what comes next).
        """
        self.plan = plan
        self.context = context
        self._memory = self._allocate()
        kernels = self._build(progress or (lambda done, total, what: None))
        self._launches = []
        for launch in plan.launches:
            program, name = kernels[launch.source.text]
            bound = kernel(program, name)
            bound.set_args(*(self._memory[argument.storage] for argument in launch.source.arguments))
            self._launches.append((bound, launch.source.global_size, launch.source.local_size))

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Every output by name for an array for every input. Raises InputError naming the input that does not fit."""
        arrays = check_inputs(self.plan.inputs, inputs)
        for name, buffer in self.plan.input_buffers.items():
            upload_buffer(self.context, self._memory[buffer], arrays[name].astype(buffer.dtype, copy=False))
        for bound, global_size, local_size in self._launches:
            enqueue(self.context, bound, global_size, local_size)
        finish(self.context)
        return {value.name: self._download(value) for value in self.plan.outputs}

    def launch_seconds(self) -> list[float]:
        """Seconds that each launch takes on the device, in the plan's order, with the inputs of the last run.

        Raises DeviceError where the context was not opened with profile=True.
        """
        return durations(self.context, [enqueue(self.context, *launch) for launch in self._launches])

    def _download(self, value: Value) -> Any:
        if value.name in self.plan.constant_outputs:
            return self.plan.constant_outputs[value.name].copy()
        buffer = self.plan.output_buffers[value.name]
        array = download_buffer(self.context, self._memory[buffer], buffer.shape, buffer.dtype)
        if value.dtype.startswith("float"):
            return array.astype(value.dtype, copy=False)
        return numpy.rint(array).astype(value.dtype)

    def _allocate(self) -> dict[Storage, Any]:
        """The device memory of every storage; constants are uploaded here."""
        memory: dict[Storage, Any] = {}
        for storage, content in self.plan.content.items():
            if isinstance(storage, HostBuffer):
                memory[storage] = create_buffer(self.context, content, storage.name)
            else:
                memory[storage] = self._image(storage)
                upload(self.context, memory[storage], content if storage.tiling.layers > 1 else content[0])
        images: dict[int, Any] = {}
        for texture, slot in self.plan.slots.items():
            if slot not in images:
                images[slot] = self._image(texture)
            memory[texture] = images[slot]
        for buffer in (*self.plan.input_buffers.values(), *self.plan.output_buffers.values()):
            memory[buffer] = create_buffer(self.context, max(buffer.bytes, 4), buffer.name)
        return memory

    def _image(self, texture: Texture) -> Any:
        width, height = texture.tiling.image_size
        layers = texture.tiling.layers if texture.tiling.layers > 1 else 0
        return create_image(self.context, width, height, layers, texture.dtype, texture.name)

    def _build(self, progress: Progress) -> dict[str, tuple[Any, str]]:
        """Program and kernel name of every distinct kernel text; several texts make one program."""
        common = COMMON.read_text(encoding="utf-8")
        texts = {launch.source.text: launch.source.path for launch in self.plan.launches}
        names = {text: f"k{number}" for number, text in enumerate(texts)}
        kernels: dict[str, tuple[Any, str]] = {}
        waiting = list(texts)
        for start in range(0, len(waiting), KERNELS_IN_A_PROGRAM):
            batch = waiting[start : start + KERNELS_IN_A_PROGRAM]
            progress(start, len(waiting), "compiling kernels")
            source = common + "".join(f"#define NAME {names[text]}\n{text}#undef NAME\n" for text in batch)
            paths = ", ".join(sorted({texts[text] for text in batch}))
            program = build(self.context, source, paths)
            kernels |= {text: (program, names[text]) for text in batch}
        progress(len(waiting), len(waiting), "ready")
        return kernels


def check_inputs(wanted: tuple[Value, ...], given: Mapping[str, Any]) -> dict[str, Any]:
    """The arrays, contiguous; InputError for a name, shape or dtype that the model does not take."""
    names = [value.name for value in wanted]
    unknown = [name for name in given if name not in names]
    missing = [name for name in names if name not in given]
    if unknown or missing:
        problem = f"no input is called {unknown[0]!r}" if unknown else f"input {missing[0]!r} is missing"
        raise InputError(f"{problem}; the model's inputs are {', '.join(names)}")
    arrays = {}
    for value in wanted:
        array = numpy.asarray(given[value.name])
        if array.shape != value.shape:
            raise InputError(
                f"input {value.name!r} has shape {list(array.shape)}, the model takes {list(value.shape)}; "
                "load it with shapes= for another one"
            )
        if not _holds(value.dtype, array):
            raise InputError(f"input {value.name!r} has dtype {array.dtype}, the model takes {value.dtype}")
        arrays[value.name] = numpy.ascontiguousarray(array)
    return arrays


def _holds(dtype: str, array: Any) -> bool:
    """Whether an array may be given for a dtype: any float for a float, and what loses nothing for the others."""
    if array.dtype.kind == "f" and dtype.startswith("float"):
        return True
    if array.dtype.kind in "biu" and not dtype.startswith("float"):
        return bool(numpy.all(array.astype(dtype) == array))
    return numpy.can_cast(array.dtype, dtype, "safe")
