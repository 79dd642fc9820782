"""Times the host's part of a model that depends on data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from imgconv.arrays import Arrays
from imgconv.compiling.plan import Plan
from imgconv.graph.nodes import HostPartition
from imgconv.host import NodeTiming
from imgconv.host.host_program import OnDevice
from imgconv.runtime.host_fallback import HostFallback, boundary_bytes
from imgconv.runtime.session import Session


@dataclass(frozen=True)
class HostProfile:
    """The host's part of a frame. shown: the nodes in the run of median length; boundary_bytes: from the device."""

    shown: tuple[NodeTiming, ...]
    boundary_bytes: Mapping[str, int]

    @property
    def seconds(self) -> float:
        """Seconds from the start of the first node to the end of the last."""
        return self.shown[-1].end if self.shown else 0.0

    def to_json(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {
            "seconds": self.seconds, "boundary_bytes": dict(self.boundary_bytes),
            "nodes": [
                {"name": e.node, "op_type": e.op_type, "start": e.start, "end": e.end, "bytes": e.bytes}
                for e in self.shown
            ],
        }


def measure_host(
    partition: HostPartition | None, plan: Plan, session: Session, inputs: Arrays, repeat: int, on_device: OnDevice
) -> HostProfile | None:
    """Runs the host fallback `repeat` times on what the device makes of the inputs; None if there is none."""
    host = HostFallback.prepare(partition, plan.inputs, [value.name for value in plan.outputs], on_device)
    if partition is None or host is None:
        return None
    made, direct = session.run(inputs), host.arrays_of_inputs(inputs)
    host.finish(made, direct)  # compiles the subgraphs
    runs: list[tuple[NodeTiming, ...]] = []
    for _ in range(repeat):
        timings: list[NodeTiming] = []
        host.finish(made, direct, timings=timings)
        runs.append(tuple(timings))
    ordered = sorted(runs, key=lambda run: run[-1].end if run else 0.0)
    return HostProfile(ordered[(len(ordered) - 1) // 2], boundary_bytes(partition, plan))
