"""The host fallback: the part of a model that depends on data, prepared once and run for each frame."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy

from imgconv.arrays import Array
from imgconv.cl.context import is_memory
from imgconv.compiling.plan import Plan
from imgconv.errors import InputError, UnsupportedError
from imgconv.graph.nodes import HostPartition, Value
from imgconv.preprocessing.video_frame import PackedFrame

if TYPE_CHECKING:
    from imgconv.host import HostProgram, NodeTiming
    from imgconv.host.host_program import OnDevice
    from imgconv.runtime.io_binding import Inputs, Outputs

T = TypeVar("T")


@dataclass(frozen=True)
class HostFallback:
    """A HostPartition with its program. direct: the inputs of the model that it reads."""

    partition: HostPartition
    program: HostProgram
    direct: tuple[Value, ...]

    @staticmethod
    def prepare(
        partition: HostPartition | None, inputs: Sequence[Value], made: Collection[str],
        on_device: OnDevice | None = None,
    ) -> HostFallback | None:
        """The prepared host partition; None if there is none. inputs: the model's; made: what the device makes.

        on_device: makes the functions of the device subgraphs; without it the host computes them. Raises ModelError
        for an operator that the host does not run.
        """
        if partition is None:
            return None
        from imgconv.host import HostProgram
        from imgconv.host.detections import speed_up_detections

        direct = tuple(v for v in inputs if v.name in partition.graph.inputs and v.name not in made)
        return HostFallback(
            partition, HostProgram.prepare(speed_up_detections(partition.graph), on_device=on_device), direct
        )

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the model's outputs."""
        return tuple(value.name for value in self.partition.outputs)

    def outputs_on_device(self, outputs: Mapping[str, T]) -> dict[str, T]:
        """The caller's arrays and memory for outputs that the device makes. Raises InputError for an unknown name."""
        unknown = [name for name in outputs if name not in self.names]
        if unknown:
            raise InputError(f"no output is called {unknown[0]!r}; the model's outputs are {', '.join(self.names)}")
        return {name: given for name, given in outputs.items() if name not in self.partition.graph.outputs}

    def arrays_of_inputs(self, inputs: Inputs, copy: bool = False) -> dict[str, Array]:
        """The arrays of the inputs that it reads, in the model's types. Raises InputError for OpenCL memory."""
        for value in self.direct:
            if is_memory(inputs[value.name]) or isinstance(inputs[value.name], PackedFrame):
                raise InputError(f"input {value.name!r} is read on the host: pass an array")
        return {v.name: numpy.array(inputs[v.name], v.dtype, copy=copy or None) for v in self.direct}

    def finish(
        self, made: Mapping[str, Any], inputs: Mapping[str, Array], outputs: Outputs | None = None,
        timings: list[NodeTiming] | None = None,
    ) -> dict[str, Any]:
        """Every output of the model, by name. made: the device's outputs. inputs: of `arrays_of_inputs`.

        outputs: arrays of the caller for some of them. timings: takes the time of each node. Raises ModelError and
        ResourceError naming a node, InputError for an array that does not fit.
        """
        given = {**made, **inputs}
        found = self.program.run([given[name] for name in self.partition.graph.inputs], timings)
        kept = {id(value) for value in given.values()}
        results = dict(made)
        for name, value in zip(self.partition.graph.outputs, found, strict=True):
            mine = (outputs or {}).get(name)
            results[name] = _copy_if_shared(value, kept) if mine is None else _fill_array(name, mine, value)
            kept.add(id(results[name]))
        return {name: results[name] for name in self.names if name in results}  # a state of a stream is not there


def boundary_bytes(partition: HostPartition, plan: Plan) -> dict[str, int]:
    """The bytes of each boundary tensor that the host reads from the device, by name."""
    return {name: plan.output_buffers[name].bytes for name in partition.graph.inputs if name in plan.output_buffers}


def strict_error(partition: HostPartition, file: str = "") -> UnsupportedError:
    """The error of load(strict=True) for a model with a host partition."""
    said = f"strict: the host would compute it and what follows it: {partition.reason}"
    return UnsupportedError(said, file, partition.node)


def _copy_if_shared(value: Any, kept: set[int]) -> Any:
    """A value that shares no memory with constants, inputs and the device's outputs, whose ids are `kept`."""
    if isinstance(value, list):
        return [_copy_if_shared(each, kept) for each in value]
    if not isinstance(value, numpy.ndarray):
        return value
    is_own = value.flags.owndata and value.flags.writeable and id(value) not in kept
    return value if is_own else value.copy()


def _fill_array(name: str, mine: Any, made: Any) -> Any:
    """The caller's array with an output's content. Raises InputError if it does not fit."""
    if not isinstance(mine, numpy.ndarray):
        raise InputError(f"output {name!r} is computed on the host: receive it as an array")
    if not isinstance(made, numpy.ndarray) or (mine.shape, mine.dtype) != (made.shape, made.dtype):
        shown = f"{made.dtype} {list(made.shape)}" if isinstance(made, numpy.ndarray) else "no array"
        raise InputError(f"output {name!r} is {shown} and does not fit an array {mine.dtype} {list(mine.shape)}")
    numpy.copyto(mine, made)
    return mine
