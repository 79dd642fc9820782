"""Mapped: the memory of a run's inputs and outputs, which the caller fills and reads in place."""

from __future__ import annotations

from imgconv.arrays import Array
from imgconv.cl.shutdown import shutdown_guard
from imgconv.compiling.plan import Plan, Storage
from imgconv.errors import InputError
from imgconv.runtime.frame_memory import FrameMemory
from imgconv.runtime.host_fallback import HostFallback
from imgconv.runtime.session import Session


class Mapped:
    """The memory of a run's inputs and outputs, which the caller fills and reads in place. Model.mapped creates it.

        mapped = model.mapped()
        mapped.inputs["x"][...] = picture       # float32 (1, 3, 32, 32)
        y = mapped.run()["y"]                   # valid until the next run

    If the device shares the host's memory, nothing is copied; otherwise data is copied from and to pinned memory. The
    arrays have the dtypes that the plan stores: those of plan.input_buffers and plan.output_buffers.
    """

    def __init__(self, session: Session, fallback: HostFallback | None = None) -> None:
        """Raises ResourceError; InputError if the host makes an output: integers that only move, or fallback."""
        if fallback is not None:
            raise InputError(f"output {fallback.partition.graph.outputs[0]!r} is made on the host: use run or submit")
        if session.plan.moved is not None:
            raise InputError(f"output {session.plan.moved.outputs[0]!r} is not made on the device: use run or submit")
        self._session = session
        self._made: FrameMemory | None = FrameMemory(session, True)

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(map(str, values)) for values in (self._plan.inputs, self._plan.outputs))
        return f"<imgconv Mapped: {inputs} -> {outputs}>"

    @property
    def _plan(self) -> Plan:
        return self._session.plan

    @property
    def _memory(self) -> FrameMemory:
        if self._made is None:
            self._made = FrameMemory(self._session, True)
        return self._made

    @property
    def inputs(self) -> dict[str, Array]:
        """An array for each input, to fill. A run makes them invalid: get them again for the next one."""
        plan = self._plan
        return {v.name: self._array(plan.input_buffers[v.name]).reshape(v.shape) for v in plan.inputs}

    @property
    def outputs(self) -> dict[str, Array]:
        """An array for each output of the last run, valid until the next run. Constant outputs stay valid."""
        plan = self._plan
        places = {v.name: plan.output_buffers.get(v.name) for v in plan.outputs}
        return {
            name: plan.constant_outputs[name] if place is None else self._array(place) for name, place in places.items()
        }

    def run(self) -> dict[str, Array]:
        """Runs the model on `inputs` and returns `outputs`. Threads take turns, each with its own Mapped.

        Raises DeviceError.
        """
        with shutdown_guard:
            self._run()
        return self.outputs

    def _run(self) -> None:
        memory = self._memory
        context = memory.context
        try:
            with context.lock:
                memory.start(context.queue, context.queue)
            memory.finish()
        except BaseException as error:
            self._made = None  # its arrays may be the device's
            context.clean_up_after(error, memory)
            raise

    def _array(self, place: Storage) -> Array:
        array: Array = self._memory.bindings[place].array
        return array
