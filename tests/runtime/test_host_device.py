"""A Session on a device that is not OpenCL's: what it needs of a device is what imgconv.runtime.device says.

The device runs each launch of a plan by numpy, on values that lie in its memory as the plan says. So a plan that lets
two values share memory while both are alive gives wrong outputs here too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import prod
from threading import Lock
from typing import Any

import numpy
import pytest
from graphs import const

from imgconv.arrays import Array
from imgconv.cl.device import DeviceInfo
from imgconv.compiling.lower import lower
from imgconv.compiling.plan import Plan, Storage
from imgconv.config import Config
from imgconv.graph.evaluate import evaluate_graph, evaluate_node
from imgconv.graph.nodes import Graph
from imgconv.kernels.layout import LANES, HostBuffer
from imgconv.loading.device_descriptions import read_device_description
from imgconv.loading.device_target import target_of
from imgconv.passes import run_passes
from imgconv.runtime.session import Session
from imgconv.tensor import Tensor, build_graph


@dataclass(eq=False)
class Memory:
    """Bytes of the host. form: the shape of an image's content, without layers if it has one."""

    bytes: Array
    form: tuple[int, ...] = ()
    dtype: str = "uint8"

    @property
    def size(self) -> int:
        return int(self.bytes.size)


class HostDevice:
    """Runs the launches of one plan, which `launch` is asked for in the plan's order."""

    profile = False

    def __init__(self, info: DeviceInfo, graph: Graph, plan: Plan) -> None:
        self.info, self.lock, self._graph, self._plan = info, Lock(), graph, plan
        self._launches = 0

    def check(self) -> None: ...

    def wait_for_failed_runs(self) -> None: ...

    def finish(self, events: Sequence[Any] = ()) -> None: ...

    def clean_up_after(self, error: BaseException, used: object = None) -> None: ...

    def reads_host_memory(self) -> bool:
        return False

    def buffer(self, content: int | Array, tensor: str = "") -> Memory:
        if isinstance(content, int):
            return Memory(numpy.full(content, 0xFF, numpy.uint8))  # NaN
        return Memory(numpy.frombuffer(content.tobytes(), numpy.uint8).copy())

    def image(self, width: int, height: int, layers: int, dtype: Any, tensor: str = "") -> Memory:
        form = (*([layers] if layers > 1 else []), height, width, LANES)
        return Memory(self.buffer(prod(form) * numpy.dtype(dtype).itemsize).bytes, form, str(dtype))

    def sub_buffer(self, buffer: Memory, offset: int, size: int, tensor: str = "") -> Memory:
        return Memory(buffer.bytes[offset : offset + size])

    def pinned_array(self, shape: tuple[int, ...], dtype: Any) -> Array:
        return numpy.empty(shape, dtype)

    def upload(self, memory: Memory, array: Array) -> None:
        memory.bytes[: array.nbytes] = numpy.frombuffer(array.tobytes(), numpy.uint8)

    def write(self, memory: Memory, array: Array, tensor: str = "") -> None:
        self.upload(memory, array)

    def download(self, array: Array, memory: Memory) -> None:
        array[...] = self.read(memory, array.shape, array.dtype)

    def read(self, memory: Memory, shape: tuple[int, ...] = (), dtype: Any = numpy.float32) -> Array:
        if not memory.form:
            return memory.bytes[: prod(shape) * numpy.dtype(dtype).itemsize].view(dtype).reshape(shape)
        part = tuple(slice(0, length) for length in shape)
        return memory.bytes.view(memory.dtype).reshape(memory.form)[part]

    def fill(self, memory: Memory, value: float, tensor: str = "") -> None:
        memory.bytes.view(memory.dtype if memory.form else numpy.float32)[...] = value

    def best_program_count(self, kernels: int) -> int:
        return 1

    @contextmanager
    def build_in_background(self, parts: Sequence[Any]) -> Iterator[Iterator[object]]:
        yield iter(parts)

    def max_work_group_size(self, launch: Any) -> int:
        return self.info.max_work_group_size

    def launch(self, program: Any, name: str, arguments: Sequence[Memory], *rest: Any) -> Callable[[], None]:
        number, self._launches = self._launches, self._launches + 1
        places = [argument.storage for argument in self._plan.launches[number].source.arguments]
        return lambda: self._run(number, dict(zip(places, arguments, strict=True)))

    def sequence(self, launches: Sequence[Any]) -> Any:
        return HostSequence(launches)

    def _run(self, number: int, memory: dict[Storage, Memory]) -> None:
        launch, placements = self._plan.launches[number], self._plan.placements
        arrays = dict(self._graph.constants)
        for name, place in placements.items():
            if place.storage in launch.reads:
                arrays[name] = self._content(memory[place.storage], place.storage)
        arrays |= {name: self._content(memory[place], place) for name, place in self._plan.input_buffers.items()
                   if place in launch.reads}
        for name in launch.values:
            arrays[name] = evaluate_node(self._graph.producers[name], arrays)
        self._store(memory[launch.writes], launch.writes, arrays[launch.values[-1] if launch.values else launch.name])

    def _content(self, memory: Memory, place: Storage) -> Array:
        if isinstance(place, HostBuffer):
            return self.read(memory, place.shape, place.dtype)
        tiling = place.tiling
        width, height = (tiling.width, tiling.height) if tiling.linear else tiling.image_size
        shape = (*([tiling.layers] if tiling.layers > 1 else []), height, width, LANES)
        return place.layout.unpack(tiling.from_image(self.read(memory, shape, place.dtype)), place.shape)

    def _store(self, memory: Memory, place: Storage, array: Array) -> None:
        if isinstance(place, HostBuffer):
            self.upload(memory, array.astype(place.dtype))
            return
        texels = place.tiling.to_image(place.layout.pack(array.astype(place.dtype)))
        if memory.form:  # larger than the texture, if others use the image in turn
            texels = texels.reshape(texels.shape[-len(memory.form) :])
            self.read(memory, texels.shape)[...] = texels
        else:
            self.upload(memory, texels)


class HostSequence:
    """Launches in order."""

    def __init__(self, launches: Sequence[Callable[[], None]]) -> None:
        self.launches, self.launched = launches, False

    def enqueue(self) -> None:
        for _ in self.enqueue_each():
            pass

    def enqueue_each(self) -> Iterator[int]:
        self.launched = True
        for number, launch in enumerate(self.launches):
            launch()
            yield number


def network() -> Graph:
    x = Tensor.input("x", (1, 5, 12, 10))
    y = first = x.conv2d(const(12, 5, 3, 3), padding=1).relu()
    for seed in range(3):
        y = y.conv2d(const(12, 12, 3, 3, seed=seed), padding=1).relu() * 0.25
    y = (y + first).conv2d(const(12, 12, 3, 3, seed=3), padding=1)
    return run_passes(build_graph({"y": y.max_pool(2, 2), "mean": y.mean((2, 3))}, [x]))


@pytest.mark.parametrize("kind", ["gpu", "cpu"])
def test_a_session_runs_on_any_device(kind: Any) -> None:
    info, graph = replace(read_device_description("adreno_640"), kind=kind), network()
    plan = lower(graph, Config(), replace(target_of(info), images_in_buffers=None))
    assert plan.regions if kind == "cpu" else plan.slots, "activations share memory"
    session = Session(plan, HostDevice(info, graph, plan))
    for seed in range(2):
        x = {"x": numpy.random.default_rng(seed).normal(size=(1, 5, 12, 10)).astype(numpy.float32)}
        expected = evaluate_graph(graph, x)
        for found in (session.run(x), list(session.steps(x)) and session.outputs()):
            for name, array in expected.items():
                # Values are rounded to float between launches, some of 24 terms in turn.
                numpy.testing.assert_allclose(found[name], array, 0, 1e-5 * numpy.abs(array).max())
