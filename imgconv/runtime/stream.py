"""Stream: a model that runs frame by frame, with its state on the device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from imgconv.arrays import Array
from imgconv.cl.shutdown import shutdown_guard
from imgconv.compiling.plan import Plan
from imgconv.errors import InputError

if TYPE_CHECKING:
    from imgconv.preprocessing.preparation import Format
    from imgconv.runtime.host_fallback import HostFallback
    from imgconv.runtime.io_binding import Inputs
    from imgconv.runtime.session import Session


class Stream:
    """A model whose state outputs feed its state inputs at the next frame, in textures that never leave the device.

    Model.stream makes it. The state is zero before the first frame.

        stream = model.stream({"state_out": "state_in"})
        masks = [stream.run({"frame": frame})["mask"] for frame in frames]
        stream.reset()
    """

    def __init__(self, session: Session, fallback: HostFallback | None, format: Format | None = None) -> None:
        """format: of the model's picture. Raises InputError if what the host computes reads a state."""
        self._session, self._fallback, self._format = session, fallback, format
        if fallback:
            given = {value.name for value in session.plan.outputs} | {value.name for value in session.plan.inputs}
            states = [name for name in fallback.partition.graph.inputs if name not in given]
            if states:
                raise InputError(f"the host reads {states[0]!r}, so it cannot be a state: {fallback.partition.reason}")
        self.reset()

    @property
    def plan(self) -> Plan:
        """The plan that runs for each frame."""
        return self._session.plan

    def run(self, inputs: Inputs) -> dict[str, Array]:
        """Every output by name, without the states. inputs: an array for every input that is no state.

        Raises InputError, RangeError, DeviceError.
        """
        from imgconv.runtime.io_binding import as_given

        given = as_given(inputs, self._format)
        made = self._session.run(given)
        return made if self._fallback is None else self._fallback.finish(made, self._fallback.inputs_of(given))

    def reset(self) -> None:
        """Sets the state to zero. If other threads run frames, it waits for the current one."""
        with shutdown_guard, self._session.context.lock:
            self._session.clear_states()


def check_states(plan: Plan, states: Mapping[str, str]) -> None:
    """Raises InputError unless the states map outputs to inputs of the same shape and dtype, each once."""
    outputs, inputs = ({v.name: v for v in values} for values in (plan.outputs, plan.inputs))
    for name, target in states.items():
        if name not in outputs:
            raise InputError(f"no output is called {name!r}; the model's outputs are {', '.join(outputs)}")
        if target not in inputs:
            raise InputError(f"no input is called {target!r}; the model's inputs are {', '.join(inputs)}")
        made, taken = outputs[name], inputs[target]
        if (made.shape, made.dtype) != (taken.shape, taken.dtype):
            raise InputError(f"output {made} cannot feed input {taken}: shapes and dtypes differ")
    if not states:
        raise InputError("a stream needs at least one state: {output: input}")
    if len(set(states.values())) != len(states):
        raise InputError(f"two outputs feed the same input: {dict(states)}")
