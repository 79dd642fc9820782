"""The player's C interface through ctypes. It imports no imgconv: a process that uses it has no other OpenCL loader."""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy

STATUS = (
    "OK", "ARGUMENT", "FILE", "DEVICE", "UNFIT", "MEMORY", "BUILD", "RANGE", "BUSY", "UNSUPPORTED", "TIMEOUT", "CRASH",
    "WRONG", "CANCELLED",
)
PHASES = "OPEN", "BUILD", "CHECK", "TUNE", "RUN"


class PlayerError(Exception):
    """An error that a function of the player reported. status: one of STATUS."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status, self.message = status, message


class ErrorText(ctypes.Structure):
    _fields_ = (("status", ctypes.c_int), ("message", ctypes.c_char * 1024))


class Tensor(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p), ("dtype", ctypes.c_int), ("dtype_name", ctypes.c_char_p),
        ("rank", ctypes.c_size_t), ("shape", ctypes.POINTER(ctypes.c_int64)), ("bytes", ctypes.c_size_t),
    )


class Plane(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p), ("bytes", ctypes.c_size_t), ("offset", ctypes.c_size_t),
        ("row_stride", ctypes.c_int32), ("pixel_stride", ctypes.c_int32), ("memory", ctypes.c_void_p),
    )


class VideoFrame(ctypes.Structure):
    _fields_ = (
        ("planes", Plane * 3), ("plane_count", ctypes.c_uint32), ("width", ctypes.c_uint32),
        ("height", ctypes.c_uint32), ("rotation", ctypes.c_uint32), ("mirror", ctypes.c_int),
        *((name, ctypes.c_uint32) for name in ("left", "top", "region_width", "region_height")),
    )

    @staticmethod
    def of(
        planes: Sequence[tuple[Any, int, int, int]], width: int, height: int, rotation: int = 0, mirror: int = 0,
        region: Sequence[int] = (0, 0, 0, 0),
    ) -> VideoFrame:
        """planes: of each an array, the offset, the row stride and the pixel stride."""
        listed = [Plane(array.ctypes.data, array.nbytes, *numbers) for array, *numbers in planes]
        made = VideoFrame((Plane * 3)(*listed[:3]), len(listed), width, height, rotation, mirror, *region)
        made.kept = planes
        return made


class Array(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p), ("bytes", ctypes.c_size_t), ("memory", ctypes.c_void_p),
        ("video_frame", ctypes.POINTER(VideoFrame)),
    )


# Takes data, phase, done and total.
PROGRESS = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_size_t)


class Options(ctypes.Structure):
    _fields_ = (
        ("device", ctypes.c_char_p), ("cache_folder", ctypes.c_char_p), ("frames", ctypes.c_uint32),
        ("profile", ctypes.c_int), ("timeout_ms", ctypes.c_uint32), ("check", ctypes.c_int),
        ("shapes", ctypes.c_char_p), ("tune_ms", ctypes.c_uint32), ("priority", ctypes.c_int), ("progress", PROGRESS),
        ("progress_data", ctypes.c_void_p),
    )


LIBRARY = ctypes.CDLL(os.environ["IMGCONV_LIBRARY"])
for _name in ("imgconv_input_count", "imgconv_output_count", "imgconv_launch_count"):
    getattr(LIBRARY, _name).restype = ctypes.c_size_t
for _name in ("imgconv_launch_name", "imgconv_replay", "imgconv_description", "imgconv_version"):
    getattr(LIBRARY, _name).restype = ctypes.c_char_p
for _name in ("imgconv_opencl_context", "imgconv_opencl_queue"):
    getattr(LIBRARY, _name).restype = ctypes.c_void_p


def call(name: str, *arguments: Any) -> None:
    """Calls a function whose last argument is an imgconv_error."""
    error = ErrorText()
    if getattr(LIBRARY, name)(*arguments, ctypes.byref(error)):
        raise PlayerError(STATUS[error.status], error.message.decode())


def counted(array: Any) -> tuple[Any, ctypes.c_size_t]:
    """Returns an array of ctypes and its length, as the library's functions take them."""
    return array, ctypes.c_size_t(len(array))


def devices_json() -> str:
    """Returns the text of imgconv_devices_json."""
    needed = ctypes.c_size_t()
    call("imgconv_devices_json", None, ctypes.c_size_t(0), ctypes.byref(needed))
    text = ctypes.create_string_buffer(needed.value)
    call("imgconv_devices_json", text, needed, None)
    return text.value.decode()


class Player:
    """An opened model. source: a path, or the content of a file. timeout, tune: in milliseconds.

    progress: called with one of PHASES, done and total; opening goes on if it returns True.
    """

    def __init__(
        self, source: str | bytes, device: str | None = None, cache: str | None = None, frames: int = 0,
        profile: bool = False, timeout: int = 0, check: bool = True, shapes: str = "", tune: int = 0,
        progress: Callable[[str, int, int], bool] = lambda phase, done, total: True,
    ) -> None:
        self._model = ctypes.c_void_p()
        named = device and device.encode(), cache and cache.encode()
        tell = PROGRESS(lambda _, phase, done, total: not progress(PHASES[phase], done, total))
        options = Options(*named, frames, profile, timeout, not check, shapes.encode(), tune, 0, tell)
        last = ctypes.byref(options), ctypes.byref(self._model)
        if isinstance(source, str):
            call("imgconv_open_file", source.encode(), *last)
        else:
            call("imgconv_open_memory", source, ctypes.c_size_t(len(source)), *last)
        self.inputs, self.outputs = self._tensors("input"), self._tensors("output")

    def _tensors(self, kind: str) -> dict[str, tuple[tuple[int, ...], str]]:
        found, tensor = {}, Tensor()
        for number in range(getattr(LIBRARY, f"imgconv_{kind}_count")(self._model)):
            getattr(LIBRARY, f"imgconv_{kind}")(self._model, ctypes.c_size_t(number), ctypes.byref(tensor))
            found[tensor.name.decode()] = tuple(tensor.shape[: tensor.rank]), tensor.dtype_name.decode()
        return found

    def close(self) -> None:
        LIBRARY.imgconv_close(self._model)
        self._model = ctypes.c_void_p()

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        made = self._new_outputs()
        call("imgconv_run", self._model, *counted(self._given(inputs)), *counted(_arrays(made.values())))
        return made

    def submit(self, inputs: Mapping[str, Any]) -> int:
        frame = ctypes.c_uint64()
        call("imgconv_submit", self._model, *counted(self._given(inputs)), ctypes.byref(frame))
        return frame.value

    def wait(self, frame: int) -> dict[str, Any]:
        made = self._new_outputs()
        call("imgconv_wait", self._model, ctypes.c_uint64(frame), *counted(_arrays(made.values())))
        return made

    def submit_tagged(self, inputs: Mapping[str, Any], tag: int) -> None:
        call("imgconv_submit_tagged", self._model, *counted(self._given(inputs)), ctypes.c_uint64(tag))

    def wait_next(self) -> tuple[int, dict[str, Any]]:
        """Returns the tag of the first frame in flight, and its outputs."""
        tag, made = ctypes.c_uint64(), self._new_outputs()
        call("imgconv_wait_next", self._model, ctypes.byref(tag), *counted(_arrays(made.values())))
        return tag.value, made

    def map_input(self, name: str) -> Any:
        data, number = ctypes.c_void_p(), list(self.inputs).index(name)
        call("imgconv_map_input", self._model, ctypes.c_size_t(number), ctypes.byref(data))
        shape, dtype = self.inputs[name]
        size = int(numpy.prod(shape)) * numpy.dtype(dtype).itemsize
        content = (ctypes.c_byte * size).from_address(data.value or 0)
        return numpy.frombuffer(content, dtype).reshape(shape)

    def run_with_buffers(self, inputs: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
        """A run whose inputs and outputs of these names are OpenCL buffers: a Buffer each, as large as the array."""
        made, given = self._new_outputs(), self._given(inputs)
        wanted, buffers = _arrays(made.values()), {}
        for listed, arrays in ((dict(zip(self.inputs, self._kept, strict=True)), given), (made, wanted)):
            for number, (name, array) in enumerate(listed.items()):
                if name in names:
                    buffers[name] = Buffer(self._model, array)
                    arrays[number] = Array(None, array.nbytes, buffers[name].memory, None)
        call("imgconv_run", self._model, *counted(given), *counted(wanted))
        return {name: buffers[name].content() if name in buffers else array for name, array in made.items()}

    def reset(self) -> None:
        call("imgconv_reset", self._model)

    def check(self) -> dict[str, Any]:
        """Returns the report of imgconv_check."""
        report, wrong = ctypes.c_char_p(), ctypes.c_size_t()
        call("imgconv_check", self._model, ctypes.byref(report), ctypes.byref(wrong))
        found: dict[str, Any] = json.loads(report.value or b"")
        assert wrong.value == [each["verdict"] for each in found["launches"]].count("wrong")
        return found

    def profile(self, inputs: Mapping[str, Any]) -> list[tuple[str, float]]:
        count = LIBRARY.imgconv_launch_count(self._model)
        seconds = (ctypes.c_double * count)()
        call("imgconv_profile", self._model, *counted(self._given(inputs)), *counted(seconds))
        names = [LIBRARY.imgconv_launch_name(self._model, ctypes.c_size_t(n)).decode() for n in range(count)]
        return list(zip(names, seconds, strict=True))

    @property
    def replay(self) -> str:
        return str(LIBRARY.imgconv_replay(self._model).decode())

    @property
    def description(self) -> str:
        return str(LIBRARY.imgconv_description(self._model).decode())

    def _given(self, inputs: Mapping[str, Any]) -> Any:
        self._kept = [
            inputs[name] if isinstance(inputs[name], VideoFrame) else numpy.ascontiguousarray(inputs[name], dtype)
            for name, (_, dtype) in self.inputs.items()
        ]
        return _arrays(self._kept)

    def _new_outputs(self) -> dict[str, Any]:
        return {name: numpy.zeros(shape, dtype) for name, (shape, dtype) in self.outputs.items()}


class Buffer:
    """An OpenCL buffer of a model's context with the content of an array."""

    def __init__(self, model: Any, array: Any) -> None:
        self._opencl = ctypes.CDLL("libOpenCL.so")
        self._opencl.clCreateBuffer.restype = ctypes.c_void_p
        self._queue = ctypes.c_void_p(LIBRARY.imgconv_opencl_queue(model))
        self._array, context = array.copy(), ctypes.c_void_p(LIBRARY.imgconv_opencl_context(model))
        self.memory = ctypes.c_void_p(
            self._opencl.clCreateBuffer(context, ctypes.c_uint64(1), ctypes.c_size_t(array.nbytes), None, None)
        )
        self._copy("clEnqueueWriteBuffer")

    def content(self) -> Any:
        self._copy("clEnqueueReadBuffer")
        return self._array

    def _copy(self, function: str) -> None:
        size, place = ctypes.c_size_t(self._array.nbytes), ctypes.c_void_p(self._array.ctypes.data)
        status = getattr(self._opencl, function)(
            self._queue, self.memory, 1, ctypes.c_size_t(0), size, place, 0, None, None
        )
        assert status == 0, status


def _arrays(arrays: Any) -> Any:
    listed: Sequence[Any] = list(arrays)
    return (Array * len(listed))(*map(_array, listed))


def _array(given: Any) -> Array:
    if isinstance(given, VideoFrame):
        return Array(None, 0, None, ctypes.pointer(given))
    return Array(given.ctypes.data, given.nbytes, None, None)
