"""Arrays of the host as arguments of kernels, on devices that read and write all memory of the host.

OpenCL calls this fine-grained system sharing (SVM). Drivers for CPUs have it: nothing is copied, and no command is
enqueued for a copy.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pyopencl as cl

from imgconv.cl.device import Context
from imgconv.cl.loader import pointer_function
from imgconv.cl.queue import Kernel


def reads_host_memory(context: Context) -> bool:
    """Returns whether kernels can take the address of an array."""
    if not context.info.shares_memory:
        return False
    with suppress(cl.Error, AttributeError):
        shared = context.handle.devices[0].svm_capabilities & cl.device_svm_capabilities.FINE_GRAIN_SYSTEM
        return bool(shared) and pointer_function() is not None
    return False


def pointer_setter(kernel: Kernel, number: int) -> Callable[[int], int]:
    """A function that sets an argument of a kernel to an address in the host's memory, and returns the driver's status.

    number: of the argument, from 0. The memory has to live until the kernel has run.
    """
    function = pointer_function()
    assert function is not None
    return partial(function, ctypes.c_void_p(kernel.int_ptr), number)
