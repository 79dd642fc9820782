"""What the preparation of a host's graph saves."""

from __future__ import annotations

import numpy

from imgconv.graph.onnx_nodes import HostGraph, HostNode
from imgconv.host import HostProgram


def test_equal_nodes_run_once() -> None:
    """The second NonZero of one mask, and the Transpose behind it; not those of other inputs or attributes."""
    nodes = [HostNode(f"n{i}", "NonZero", ("mask",), (f"places{i}",), {}, 13) for i in (1, 2)]
    nodes += [HostNode(f"t{i}", "Transpose", (f"places{i}",), (f"rows{i}",), {"perm": (1, 0)}, 13) for i in (1, 2)]
    nodes += [HostNode("other", "Transpose", ("places1",), ("same",), {"perm": (0, 1)}, 13)]
    nodes += [
        HostNode("a", "GatherND", ("x", "rows1"), ("a",), {}, 13),
        HostNode("b", "GatherND", ("y", "rows2"), ("b",), {}, 13),
        HostNode("c", "GatherND", ("y", "rows1"), ("c",), {}, 13), HostNode("s", "Shape", ("same",), ("s",), {}, 13),
    ]
    program = HostProgram.of(HostGraph(("mask", "x", "y"), ("a", "b", "c", "s"), tuple(nodes), {}))
    ran = [step.call.op_type for step in program.steps]
    assert (ran.count("NonZero"), ran.count("Transpose"), ran.count("GatherND")) == (1, 2, 3)
    mask = numpy.array([0, 1, 1, 0, 1])
    x, y = numpy.arange(5.0), numpy.arange(5.0) * 10
    a, b, c, s = program.run([mask, x, y])
    assert a.tolist() == [1, 2, 4] and b.tolist() == c.tolist() == [10, 20, 40] and s.tolist() == [1, 3]
    assert b is not c  # outputs are arrays of their own
