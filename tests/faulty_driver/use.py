"""A program that uses OpenCL once, through pyopencl: for tests that see what a fault changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy
import pyopencl as cl

from faulty_driver import set_faults

TEXT = """kernel void add(global float *x) { x[get_global_id(0)] += native_exp(x[64]) * 1; }
kernel void other(global float *x) { x[1] = get_local_size(0); }"""
WORK_GROUP_SIZE = cl.kernel_work_group_info.WORK_GROUP_SIZE


def used(faults: str) -> dict[str, Any]:
    """Switches the faults on, and returns the result of each step, or the status with which its call failed."""
    set_faults(faults)
    steps: dict[str, Any] = {}

    def step(name: str, call: Callable[[], Any]) -> None:
        try:
            steps[name] = call()
        except cl.Error as error:
            steps[name] = error.code

    step("start", lambda: steps.update(start(step)))
    return {name: result for name, result in steps.items() if result is not None}


def start(step: Callable[[str, Callable[[], Any]], None]) -> dict[str, Any]:
    """Makes context, queue, memory and program, any of which may be refused, and uses them in further steps."""
    vars(cl)["_PYOPENCL_NO_CACHE"] = True
    (device,) = cl.get_platforms()[0].get_devices()
    context = cl.Context([device])
    queue = cl.CommandQueue(context, device)
    numbers = numpy.zeros(256, numpy.float32)
    numbers[64] = 0.3
    memory = cl.Buffer(context, cl.mem_flags.COPY_HOST_PTR, hostbuf=numbers)
    program = cl.Program(context, TEXT).build()

    def launches(name: str, items: int) -> Any:
        kernel = cl.Kernel(program, name)
        kernel.set_args(memory)
        for _ in range(4):
            cl.enqueue_nd_range_kernel(queue, kernel, (items,), (items,))
        cl.enqueue_copy(queue, numbers, memory)
        queue.finish()
        return numbers[:8].tolist()

    def from_binary(content: bytes) -> None:
        cl.Kernel(cl.Program(context, [device], [content]).build(), "add")

    step("run", lambda: launches("add", 8))
    step("run 256 items", lambda: launches("other", 256))
    step("work group size", lambda: cl.Kernel(program, "add").get_work_group_info(WORK_GROUP_SIZE, device))
    content: bytes = program.get_info(cl.program_info.BINARIES)[0]  # type: ignore[index]
    if content:
        step("binary", lambda: from_binary(content))
    return {"binary has bytes": bool(content)}
