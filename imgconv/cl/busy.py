"""Keeps a GPU busy while the launches to be timed are enqueued after it."""

from __future__ import annotations

import numpy

from imgconv.cl.device import Context
from imgconv.cl.image import create_buffer
from imgconv.cl.program import build, kernel
from imgconv.cl.queue import Event, enqueue

SOURCE = """
// One work item works on one number, step after step.
__kernel void keep_busy(__global float *number, int steps) {
  float value = number[0];
  for (int step = 0; step < steps; step++) value = mad(value, 0.5f, 1.0f);
  number[0] = value;
}
"""
# 46 us on an H200; its driver and pyopencl take 15 us to enqueue a launch with images and an event.
STEPS_OF_LAUNCH = 20000


class Busy:
    """Work for a GPU that takes about as long as a host needs to enqueue launches.

    NVIDIA's driver (580, H200) counts the setup of a launch as part of it: some 4 us, which vary with the host's pace.
    If other work runs before, the setup is done before the launch starts.
    """

    def __init__(self, context: Context) -> None:
        """Raises BuildError, ResourceError or DeviceError."""
        self._context = context
        self._kernel = kernel(build(context, SOURCE, "keep_busy"), "keep_busy")
        # A kernel's arguments do not keep memory alive.
        self._number = create_buffer(context, numpy.zeros(1, numpy.float32))

    def enqueue(self, launches: int) -> Event:
        """Keeps the device busy while the host enqueues `launches` launches. Raises DeviceError, ResourceError."""
        self._kernel.set_args(self._number, numpy.int32(STEPS_OF_LAUNCH * launches))
        return enqueue(self._context, self._kernel, (1,), (1,))
