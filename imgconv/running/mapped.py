"""Mapped: the memory of a run's inputs and outputs, in place."""

from __future__ import annotations

from imgconv.arrays import Array
from imgconv.cl.ending import driver_use
from imgconv.cl.transfer import finish_queue
from imgconv.compiling.plan import Storage
from imgconv.errors import InputError
from imgconv.running.frame_memory import FrameMemory
from imgconv.running.session import Session


class Mapped:
    """The memory of a run's inputs and outputs, for a caller who fills and reads it in place.

    On a device that shares the host's memory nothing is copied; others copy from and to pinned memory. The arrays have
    the dtypes that are stored: those of plan.input_buffers and plan.output_buffers.
    """

    def __init__(self, session: Session) -> None:
        """Raises ResourceError; InputError if integers only move, which a device's floats would round."""
        if session.plan.moved is not None:
            raise InputError(f"output {session.plan.moved.outputs[0]!r} is not made on the device: use run or submit")
        self._session = session
        self._memory = FrameMemory(session, True)

    @property
    def inputs(self) -> dict[str, Array]:
        """An array for each input, to fill. A run ends their use: take them anew for the next."""
        plan = self._session.plan
        return {v.name: self._array(plan.input_buffers[v.name]).reshape(v.shape) for v in plan.inputs}

    @property
    def outputs(self) -> dict[str, Array]:
        """An array for each output, as the last run left it, until the next run. Constant outputs are constant."""
        plan = self._session.plan
        places = {v.name: plan.output_buffers.get(v.name) for v in plan.outputs}
        return {
            name: plan.constant_outputs[name] if place is None else self._array(place) for name, place in places.items()
        }

    def run(self) -> dict[str, Array]:
        """Runs the model on `inputs`; `outputs`. Threads take turns, but not over one Mapped. Raises DeviceError."""
        with driver_use:
            self._run()
        return self.outputs

    def _run(self) -> None:
        context = self._session.context
        try:
            with context.lock:
                self._memory.start(context.queue, context.queue)
            self._memory.finish()
        except BaseException:
            finish_queue(context.queue)
            self._memory = FrameMemory(self._session, True)
            raise

    def _array(self, place: Storage) -> Array:
        return self._memory.ports[place].array
