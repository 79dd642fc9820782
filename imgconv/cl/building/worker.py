"""The worker process that processes.py starts: builds programs for a device until its standard input ends.

It runs as a script and imports nothing but ctypes, so it is ready in 0.1 s; importing pyopencl alone takes 0.2 to 1 s.

    its input                                              its output
    the OpenCL library's path, the platform's name and     READY, as soon as the device is opened; otherwise the reason,
    the device's number on the platform, one per line      and the process ends
    the compiler's options in a line, then the source      the binary, or nothing if the driver rejects the source
"""

from __future__ import annotations

import os
import signal
import sys
from ctypes import CDLL, byref, c_char_p, c_int32, c_size_t, c_uint32, c_uint64, c_void_p, cast, create_string_buffer
from typing import IO

SIZE = 8  # bytes in front of each message: how many follow
READY = b"ready"
DEVICE_TYPE_ALL = 0xFFFFFFFF
# Parameters of clGetPlatformInfo and clGetProgramInfo.
PLATFORM_NAME, PROGRAM_BINARY_SIZES, PROGRAM_BINARIES = 0x0902, 0x1165, 0x1166


def write_message(stream: IO[bytes], content: bytes) -> None:
    """Sends what `read_message` receives. Raises OSError if the other process has ended."""
    stream.write(len(content).to_bytes(SIZE, "little") + content)
    stream.flush()


def read_message(stream: IO[bytes]) -> bytes | None:
    """Waits for a message; None if the other process has ended."""
    head = stream.read(SIZE)
    size = int.from_bytes(head, "little")
    content = stream.read(size)
    return content if len(head) == SIZE and len(content) == size else None


class Compiler:
    """A device's compiler, through the OpenCL library alone."""

    def __init__(self, library: str, platform: str, number: int) -> None:
        """number: of the device on its platform. Raises OSError or LookupError if there is none."""
        self._opencl = CDLL(library)
        self._device = self._find_device(platform, number)
        self._context = self._create("clCreateContext", None, 1, byref(self._device), None, None)

    def binary(self, source: bytes, options: bytes) -> bytes:
        """The driver's own form of a program; empty if the driver refuses the source."""
        opencl = self._opencl
        program = self._create("clCreateProgramWithSource", self._context, 1, byref(c_char_p(source)), None)
        try:
            if opencl.clBuildProgram(program, 1, byref(self._device), c_char_p(options), None, None):
                return b""
            size = c_size_t()
            opencl.clGetProgramInfo(program, PROGRAM_BINARY_SIZES, c_size_t(8), byref(size), None)
            content = create_string_buffer(size.value)
            place = cast(content, c_void_p)
            failed = opencl.clGetProgramInfo(program, PROGRAM_BINARIES, c_size_t(8), byref(place), None)
            return b"" if failed else content.raw
        finally:
            opencl.clReleaseProgram(program)

    def _find_device(self, name: str, number: int) -> c_void_p:
        opencl, count = self._opencl, c_uint32()
        opencl.clGetPlatformIDs(0, None, byref(count))
        platforms = (c_void_p * count.value)()
        opencl.clGetPlatformIDs(count, platforms, None)
        text = create_string_buffer(1024)
        for platform in map(c_void_p, platforms):
            failed = opencl.clGetPlatformInfo(platform, PLATFORM_NAME, c_size_t(len(text)), text, None)
            if failed or text.value.decode(errors="replace") != name:
                continue
            devices = (c_void_p * (number + 1))()
            opencl.clGetDeviceIDs(platform, c_uint64(DEVICE_TYPE_ALL), number + 1, devices, byref(count))
            if number < count.value:
                return c_void_p(devices[number])
        raise LookupError(f"no device {number} on platform {name!r}")

    def _create(self, function: str, *arguments: object) -> c_void_p:
        """Returns the result of a function whose last argument takes its status. Raises LookupError with it."""
        status, make = c_int32(), self._opencl[function]
        make.restype = c_void_p
        made = c_void_p(make(*arguments, byref(status)))
        if status.value:
            raise LookupError(f"{function}: {status.value}")
        return made


def main() -> None:
    """Reads the device, then programs, from standard input; writes the binary of each."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started it, which then ends it
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # drivers print
    questions = sys.stdin.buffer
    library, platform, number = (read_message(questions) or b"").decode().split("\n")
    try:
        compiler = Compiler(library, platform, int(number))
    except (OSError, LookupError) as error:
        write_message(answers, str(error).encode(errors="replace"))
        return
    write_message(answers, READY)
    while question := read_message(questions):
        options, _, source = question.partition(b"\n")
        write_message(answers, compiler.binary(source, options))


if __name__ == "__main__":
    main()
