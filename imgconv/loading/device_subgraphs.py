"""Runs convolutions and products after a data-dependent shape on the device: see imgconv.host.subgraphs."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy

from imgconv.arrays import Array
from imgconv.errors import ResourceError, UnsupportedError
from imgconv.graph.nodes import Graph
from imgconv.graph.onnx_nodes import HostGraph
from imgconv.host.registry import HostCall
from imgconv.host.subgraphs import ELEMENTWISE, PRODUCTS, graph_of, row_inputs

if TYPE_CHECKING:
    from imgconv.runtime.session import Session

InputShapes = tuple[tuple[int, ...], ...]
Compile = Callable[[Graph, Sequence["Session"]], "Session"]

SESSIONS = 8  # of each subgraph; a model keeps as many plans
# With fewer multiply-adds numpy takes less time for a subgraph of products (0.02 to 0.05 ms a product) than
# the copies, a launch and the wait for it (0.7 ms, profiled on Intel's). Loops of decoders ask for such, of one row.
WORTH_A_LAUNCH = 1 << 19


class DeviceSubgraph:
    """A subgraph on a device; called as a host function. It keeps its last eight sessions, which share the weights.

    If each row of the outputs depends on the same row of the inputs, it is compiled for numbers of rows 1, 2, 3, 4, 6,
    8, 12, 16 ..., and rows of zeros are added; else for each shape.
    """

    def __init__(self, body: HostGraph, compile: Compile) -> None:
        """compile: makes a session of a graph, which may take weights from the sessions it is given."""
        self.body, self.compile = body, compile
        self.on_host = False
        products = [node for node in body.nodes if node.op_type in PRODUCTS]
        only_these = all(node.op_type in PRODUCTS | ELEMENTWISE for node in body.nodes)
        self._matrices = [body.constants[node.inputs[1]] for node in products] if only_these else []
        self._sessions: OrderedDict[InputShapes, Session] = OrderedDict()
        self._rows: dict[InputShapes, frozenset[str]] = {}
        self._lock = Lock()

    def __call__(self, call: HostCall, *inputs: Array) -> Any:
        """Returns the outputs; the host computes them if that is little work, or if an input is empty or no float."""
        of_floats = all(x.size and x.dtype.kind == "f" and x.dtype.itemsize <= 4 for x in inputs)
        if of_floats and not self.on_host and not self._is_small(inputs):
            try:
                return self._on_device(inputs)
            except (UnsupportedError, ResourceError) as error:
                self.on_host = True
                warnings.warn(f"node {call.node!r} and what follows it run on the host: {error}", RuntimeWarning)
        return tuple(call.attribute("body")(*inputs))

    def _is_small(self, inputs: Sequence[Array]) -> bool:
        """Returns whether the subgraph is products by matrices, and elementwise work, with few multiply-adds."""
        if not self._matrices:
            return False
        first = self.body.nodes[0]
        shape = self._matrices[0].shape
        inner = shape[-1 if first.attributes.get("transB", 0) or len(shape) == 1 else -2]
        rows = inputs[self.body.inputs.index(first.inputs[0])].size // inner
        return bool(rows * sum(matrix.size for matrix in self._matrices) < WORTH_A_LAUNCH)

    def _on_device(self, inputs: Sequence[Array]) -> tuple[Array, ...]:
        rows = self._row_inputs(inputs)
        count = next((len(x) for name, x in zip(self.body.inputs, inputs) if name in rows), 0)
        given = {
            name: _with_rows(x, padded_row_count(count)) if name in rows else x
            for name, x in zip(self.body.inputs, inputs)
        }
        made = self._session(given).run(given)
        return tuple(made[name][:count] if rows else made[name] for name in self.body.outputs)

    def _row_inputs(self, inputs: Sequence[Array]) -> frozenset[str]:
        """The inputs to which rows may be added; found once for all numbers of rows."""
        key = tuple((x.shape[0] == inputs[0].shape[0] if x.ndim else False, *x.shape[1:]) for x in inputs)
        if key not in self._rows:
            shapes, dtypes = self._types(dict(zip(self.body.inputs, inputs)))
            self._rows[key] = row_inputs(self.body, shapes, dtypes)
        return self._rows[key]

    def _session(self, given: dict[str, Array]) -> Session:
        """The session for inputs of these shapes."""
        shapes, dtypes = self._types(given)
        with self._lock:
            key = tuple(shapes.values())
            if key not in self._sessions:
                graph = graph_of(self.body, shapes, dtypes)
                self._sessions[key] = self.compile(graph, tuple(self._sessions.values()))
                while len(self._sessions) > SESSIONS:
                    self._sessions.popitem(last=False)
            self._sessions.move_to_end(key)
            return self._sessions[key]

    @staticmethod
    def _types(given: dict[str, Array]) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
        return {n: x.shape for n, x in given.items()}, {n: x.dtype.name for n, x in given.items()}


def padded_row_count(count: int) -> int:
    """The number of rows that a subgraph is compiled for: 1, 2, 3, 4, 6, 8, 12, 16, 24, 32 ..., at least `count`."""
    power = 1 << max(count - 1, 0).bit_length()
    return power * 3 // 4 if count <= power * 3 // 4 else power


def _with_rows(x: Array, count: int) -> Array:
    """The array with rows of zeros at the end."""
    if len(x) == count:
        return x
    made = numpy.zeros((count, *x.shape[1:]), x.dtype)
    made[: len(x)] = x
    return made
