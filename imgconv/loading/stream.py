"""Stream: a model that runs frame by frame, with its state on the device."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from imgconv.arrays import Array, Shapes
from imgconv.cl.device_info import DeviceInfo
from imgconv.compiling.plan import Plan
from imgconv.errors import InputError
from imgconv.graph.nodes import HostPartition, Value
from imgconv.loading.compiled import DEPTH, Compiled, SavedSource, Source, save_sized

if TYPE_CHECKING:
    from imgconv.runtime.io_binding import Inputs
    from imgconv.runtime.mapped import Mapped
    from imgconv.runtime.pipeline import Frame


class Stream:
    """A model whose state outputs feed its state inputs at the next frame, in textures that never leave the device.

    Model.stream makes it. The state is zero before the first frame.

        stream = model.stream({"state_out": "state_in"})
        masks = [stream.run({"frame": frame})["mask"] for frame in frames]
        stream.reset()
        stream.save("model.imgconv")
    """

    def __init__(self, compiled: Compiled, source: Source | SavedSource) -> None:
        """Raises InputError if what the host computes reads a state."""
        self._compiled, self._source = compiled, source
        if compiled.fallback:
            check_host(compiled.fallback.partition, compiled.plan)
        self.reset()

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(map(str, values)) for values in (self.plan.inputs, self.plan.outputs))
        states = ", ".join(f"{made} to {taken}" for made, taken in self._compiled.states.items())
        return f"<imgconv Stream {self._source.name}: {inputs} -> {outputs}; on the device {states}>"

    @property
    def plan(self) -> Plan:
        """The plan that runs for each frame."""
        return self._compiled.plan

    def run(self, inputs: Inputs) -> dict[str, Array]:
        """Returns every output by name, except the states. inputs: an array for every input that is no state.

        Raises InputError, RangeError, DeviceError.
        """
        from imgconv.runtime.io_binding import as_given

        return self._compiled.run(as_given(inputs, self._source.format))

    def submit(
        self, inputs: Inputs, depth: int = DEPTH, outputs: Mapping[str, Array] | None = None, tag: object = None
    ) -> Frame:
        """Starts a frame; returns the Future of its outputs. Frames run in the order of the calls; see Model.submit."""
        from imgconv.runtime.io_binding import as_given

        return self._compiled.pipeline.submit(as_given(inputs, self._source.format), depth, outputs, tag)

    def mapped(self) -> Mapped:
        """Returns memory for a frame's inputs and outputs that is filled and read in place; see Model.mapped."""
        from imgconv.runtime.mapped import Mapped

        return Mapped(self._compiled.session, self._compiled.fallback)

    def reset(self) -> None:
        """Sets the state to zero. If other threads run frames, it waits for the current one."""
        self._compiled.reset()

    def save(
        self, path: str | os.PathLike[str], targets: Sequence[str | os.PathLike[str] | DeviceInfo] = (),
        sizes: Sequence[Shapes] = (), generic: bool = False, player_only: bool = False,
    ) -> None:
        """Writes a compiled file that keeps the states from run to run; see Model.save.

        `load` and the native player take it: Model.reset and imgconv_reset set the states to zero.
        """
        save_sized(path, self._compiled, self._source, targets, sizes, generic, player_only)


def check_host(partition: HostPartition, plan: Plan) -> None:
    """Raises InputError if what the host computes reads a state. plan: with the states."""
    given = {value.name for value in (*plan.outputs, *plan.inputs)}
    states = [name for name in partition.graph.inputs if name not in given]
    if states:
        raise InputError(f"the host reads {states[0]!r}, so it cannot be a state: {partition.reason}")


def check_states(inputs: Sequence[Value], outputs: Sequence[Value], states: Mapping[str, str]) -> None:
    """Raises InputError unless the states map outputs to inputs of the same shape and dtype, each once."""
    made_by, taken_by = ({v.name: v for v in values} for values in (outputs, inputs))
    for name, target in states.items():
        if name not in made_by:
            raise InputError(f"no output is called {name!r}; the model's outputs are {', '.join(made_by)}")
        if target not in taken_by:
            raise InputError(f"no input is called {target!r}; the model's inputs are {', '.join(taken_by)}")
        made, taken = made_by[name], taken_by[target]
        if (made.shape, made.dtype) != (taken.shape, taken.dtype):
            raise InputError(f"output {made} cannot feed input {taken}: shapes and dtypes differ")
    if not states:
        raise InputError("a stream needs at least one state: {output: input}")
    if len(set(states.values())) != len(states):
        raise InputError(f"two outputs feed the same input: {dict(states)}")
