"""OpenCLDevice: implements imgconv.runtime.device.Device with OpenCL."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from functools import cached_property, partial

import numpy.typing as npt
import pyopencl as cl

from imgconv.cl.building.program import (
    KernelFactory, Program, build_in_background, build_workers_for, max_work_group_size, program_binary,
    best_program_count,
)
from imgconv.cl.building.program_source import ProgramSource
from imgconv.cl.context import Context, KernelLaunch, Memory, launch_name
from imgconv.cl.launch_sequence import OpenCLLaunchSequence
from imgconv.cl.opencl_library import pointer_function
from imgconv.cl.staging import HostBinding, SharedBuffer, StagingBuffer


class OpenCLDevice(Context):
    """An opened device with its programs and launches."""

    @cached_property
    def _functions(self) -> KernelFactory:
        return KernelFactory(self)

    def best_program_count(self, kernels: int) -> int:
        """Returns the number of programs that minimises the time to build this many kernels; at least 1."""
        return best_program_count(self, kernels)

    def build_in_background(self, parts: Sequence[ProgramSource]) -> AbstractContextManager[Iterator[Program]]:
        """Builds programs in the background of the block, see program.build_in_background."""
        return build_in_background(self, parts, build_workers_for(self, sum(len(part.kernels) for part in parts)))

    def start_build_workers(self, kernels: int) -> None:
        """Starts the processes that will build about this many kernels. To be called inside of `with builders`."""
        self.builders.start(build_workers_for(self, kernels))

    def binary(self, program: Program) -> bytes:
        """The driver's own form of a program; empty if it has none."""
        return program_binary(program)

    def launch(
        self, program: Program, name: str, arguments: Sequence[Memory], global_size: tuple[int, ...],
        local_size: tuple[int, ...] | None, label: str = "",
    ) -> KernelLaunch:
        """A launch of a kernel by name, with its arguments. label: names it in errors. Raises DeviceError."""
        kernel = self._functions.take(program, name)
        kernel.label = label
        with self._wrap_errors(f"arguments of {launch_name((kernel, global_size, local_size))}"):
            kernel.set_args(*arguments)
        return kernel, global_size, local_size

    def set_argument(self, launch: KernelLaunch, number: int, memory: Memory) -> None:
        """Gives a launch another argument. number: from 0. Raises DeviceError."""
        with self._wrap_errors(f"argument {number} of {launch[0].function_name}"):
            launch[0].set_arg(number, memory)

    def max_work_group_size(self, launch: KernelLaunch) -> int:
        """The most work items of a group that the driver allows for the launch's kernel."""
        return max_work_group_size(self, launch[0])

    def reads_host_memory(self) -> bool:
        """Returns whether kernels can take the address of an array: fine-grained system sharing (SVM).

        Drivers for CPUs have it: nothing is copied, and no command is enqueued for a copy.
        """
        if not self.info.shares_memory:
            return False
        with suppress(cl.Error, AttributeError):
            shared = self.handle.devices[0].svm_capabilities & cl.device_svm_capabilities.FINE_GRAIN_SYSTEM
            return bool(shared) and pointer_function() is not None
        return False

    def address_setter(self, launch: KernelLaunch, number: int) -> Callable[[int], int]:
        """A function that sets an argument of a launch to an address in the host's memory, and returns the status.

        number: of the argument, from 0. The memory has to live until the launch has run.
        """
        function = pointer_function()
        assert function is not None
        return partial(function, ctypes.c_void_p(launch[0].int_ptr), number)

    def sequence(self, launches: Sequence[KernelLaunch]) -> OpenCLLaunchSequence:
        """Launches that are enqueued together again and again."""
        return OpenCLLaunchSequence(self, launches)

    def staging(self, shape: tuple[int, ...], dtype: npt.DTypeLike, memory: Memory | None = None) -> HostBinding:
        """A host's array for memory of the device; without `memory`, a buffer that host and device share.

        Raises ResourceError.
        """
        return SharedBuffer(self, shape, dtype) if memory is None else StagingBuffer(self, memory, shape, dtype)
