"""States of a model: outputs that stay on the device and become inputs of the next run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from imgconv.compiling.plan import Plan
from imgconv.errors import InputError
from imgconv.graph.nodes import HostPartition, Value


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
