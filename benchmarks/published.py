"""Published times on a Snapdragon 845, and predictions of imgconv.kernels.device_model.adreno for the same kernels.

The kernels of TFLite, Paddle-Lite, MNN and MACE were compiled for an Adreno 630 with the compiler that
benchmarks.adreno uses, with the options of their host code: one problem of each kind, bias only. The counts of that
problem are taken for all layers of the kind. Not predicted: smaller blocks that an engine takes for small maps,
launches besides convolutions, and what is fused into a convolution.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Literal

from benchmarks.measure import Column, digits, milliseconds
from imgconv.kernels.device_model.adreno import WAVE, Gpu, LaunchTime, MachineWork, time_of
from imgconv.kernels.layout import LANES

Kind = Literal["1x1", "3x3", "depthwise"]
BYTES = 2  # of an fp16 value


@dataclass(frozen=True)
class Layer:
    """A convolution. size: rows and columns of the output."""

    kind: Kind
    channels: int
    filters: int
    size: int
    stride: int = 1

    @property
    def terms(self) -> int:
        """Multiply-adds of an output."""
        return (9 if self.kind != "1x1" else 1) * (1 if self.kind == "depthwise" else self.channels)

    @property
    def moved_bytes(self) -> int:
        texels = self.channels * (self.size * self.stride) ** 2 + self.filters * self.size**2
        return BYTES * (texels + self.terms * self.filters)


@dataclass(frozen=True)
class Kernel:
    """A kernel's machine code. slots: for each multiply-add. reads: multiply-adds for each texture read.

    block: columns, rows and channel quads that a work item makes. registers: of four floats; 0 if they are few.
    """

    slots: float
    reads: float
    block: tuple[int, int, int]
    registers: int = 0


@dataclass(frozen=True)
class Engine:
    """An engine's kernels. half: whether multiply-adds are in fp16. Textures are fp16."""

    name: str
    kernels: Mapping[Kind, Kernel]
    half: bool = True

    def times(self, layers: Sequence[Layer], gpu: Gpu) -> list[LaunchTime]:
        """The predicted times of each layer."""
        return [time_of(self._work(layer), gpu) for layer in layers]

    def _work(self, layer: Layer) -> MachineWork:
        kernel = self.kernels[layer.kind]
        columns, rows, quads = kernel.block
        items = ceil(layer.size / columns) * ceil(layer.size / rows) * ceil(layer.filters / LANES / quads)
        each = columns * rows * quads * LANES * layer.terms
        half = each if self.half else 0
        return MachineWork(
            half, each * kernel.slots - half, items * each / kernel.reads, layer.moved_bytes, ceil(items / WAVE),
            registers=kernel.registers,
        )


# Slots for each multiply-add and multiply-adds for each read: Mesa 25.0.7's a630 code. Blocks: the kernels' sources.
# Reads of depthwise kernels but TFLite's: counted in their sources, the window's rows whole.
ENGINES = (
    Engine("TFLite", {
        "1x1": Kernel(1.53, 10.7, (2, 2, 2), 16), "3x3": Kernel(1.40, 10.7, (2, 2, 2), 24),
        "depthwise": Kernel(2.58, 5.5, (2, 2, 1), 16),
    }),
    Engine("Paddle-Lite", {
        "1x1": Kernel(1.32, 13.7, (3, 2, 2), 24), "3x3": Kernel(1.32, 13.7, (3, 2, 2), 24),
        "depthwise": Kernel(4.35, 3.4, (2, 1, 1)),
    }),
    Engine("MNN", {
        "1x1": Kernel(2.22, 8.0, (4, 1, 1), 9), "3x3": Kernel(2.22, 8.0, (4, 1, 1), 9),
        "depthwise": Kernel(7.99, 3.2, (4, 1, 1)),
    }),
    Engine("MACE", {
        "1x1": Kernel(2.09, 8.0, (4, 1, 1), 16), "3x3": Kernel(2.08, 8.9, (5, 1, 1), 46),
        "depthwise": Kernel(7.60, 5.3, (4, 1, 1)),
    }, half=False),
)


def mobilenet_v1() -> Iterator[Layer]:
    """The convolutions of MobileNetV1 1.0 at 224x224 (arXiv:1704.04861, table 1)."""
    yield Layer("3x3", 3, 32, 112, 2)
    size, channels = 112, 32
    blocks = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5, (1024, 2), (1024, 1)]
    for filters, stride in blocks:
        size //= stride
        yield Layer("depthwise", channels, channels, size, stride)
        yield Layer("1x1", channels, filters, size)
        channels = filters
    yield Layer("1x1", channels, 1001, 1)


def mobilenet_v2() -> Iterator[Layer]:
    """The convolutions of MobileNetV2 1.0 at 224x224 (arXiv:1801.04381, table 2)."""
    yield Layer("3x3", 3, 32, 112, 2)
    size, channels = 112, 32
    stages = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]
    for expansion, filters, repeats, first in stages:
        for stride in [first] + [1] * (repeats - 1):
            hidden = expansion * channels
            if expansion > 1:
                yield Layer("1x1", channels, hidden, size)
            size //= stride
            yield Layer("depthwise", hidden, hidden, size, stride)
            yield Layer("1x1", hidden, filters, size)
            channels = filters
    yield Layer("1x1", channels, 1280, size)
    yield Layer("1x1", 1280, 1001, 1)


NETWORKS = {"MobileNetV1": tuple(mobilenet_v1()), "MobileNetV2": tuple(mobilenet_v2())}
# Engine and network: milliseconds on a Snapdragon 845, and who published them.
PUBLISHED = {
    ("TFLite", "MobileNetV1"): (6.45, "TensorFlow's measurement.md, Pixel 3"),
    ("Paddle-Lite", "MobileNetV1"): (8.26, "its benchmark.md, v2.11"),
    ("Paddle-Lite", "MobileNetV2"): (7.96, "its benchmark.md, v2.11"),
    ("MACE", "MobileNetV2"): (9.9, "XiaoMi/mace#1"),
}


@dataclass(frozen=True)
class Comparison:
    """An engine's network in the model, and as published."""

    engine: Engine
    network: str
    gpu: Gpu

    @property
    def predicted(self) -> float:
        """Seconds, with overlap."""
        return sum(time.seconds for time in self._times)

    @property
    def pessimistic_seconds(self) -> float:
        """Seconds without overlap where a processor holds a single wave."""
        return sum(time.pessimistic_seconds for time in self._times)

    @property
    def more_of_launches(self) -> float:
        """Seconds that are to be added if a launch costs as much as it may."""
        return len(self._times) * (self.gpu.most_launch - self.gpu.launch)

    @property
    def _times(self) -> list[LaunchTime]:
        return self.engine.times(NETWORKS[self.network], self.gpu)

    @property
    def published(self) -> float | None:
        """Seconds on a Snapdragon 845; None if there is no such figure."""
        known = PUBLISHED.get((self.engine.name, self.network))
        return known[0] / 1e3 if known else None

    @property
    def source(self) -> str:
        return PUBLISHED.get((self.engine.name, self.network), (0, ""))[1]

    @property
    def ratio(self) -> float | None:
        """The published time divided by the predicted one."""
        return self.published / self.predicted if self.published else None

    def to_json(self) -> dict[str, Any]:
        return {
            "engine": self.engine.name, "network": self.network, "gpu": self.gpu.number, "units": self.gpu.units,
            "predicted_seconds": self.predicted, "seconds_without_overlap": self.pessimistic_seconds,
            "more_of_launches": self.more_of_launches, "published_seconds": self.published,
            "published_over_predicted": self.ratio, "source": self.source,
        }


COLUMNS = (
    Column("engine", lambda c: c.engine.name), Column("network", lambda c: c.network, True),
    Column("units", lambda c: str(c.gpu.units)), Column("predicted ms", lambda c: milliseconds(c.predicted)),
    Column("no overlap", lambda c: milliseconds(c.pessimistic_seconds)),
    Column("30 us", lambda c: f"+{milliseconds(c.more_of_launches)}"),
    Column("published ms", lambda c: milliseconds(c.published)), Column("ratio", lambda c: digits(c.ratio)),
    Column("source", lambda c: c.source, True),
)


def compare(gpu: Gpu) -> list[Comparison]:
    """Every engine with every network."""
    return [Comparison(engine, network, gpu) for engine in ENGINES for network in NETWORKS]


def honesty(gpu: Gpu) -> str:
    """Returns a sentence that compares published times with predicted ones."""
    ratios = [each.ratio for each in compare(gpu) if each.ratio]
    return (
        f"predicted by a first-order model with {gpu.units} units, not measured: published times of other engines on a "
        f"Snapdragon 845 are {min(ratios):.2f} to {max(ratios):.2f} times what it predicts for their kernels"
    )
