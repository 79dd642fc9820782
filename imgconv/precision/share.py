"""The share of a plan that is half, and the reasons why the rest stays float."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from imgconv.compiling.plan import Plan
from imgconv.compiling.textures import known_float, why_float
from imgconv.config import Config
from imgconv.dtype import FLOAT16, FLOAT32
from imgconv.graph.nodes import Graph
from imgconv.kernels.layout import Texture

UNDECIDED = "not measured within the time of a load"


@dataclass(frozen=True)
class HalfShare:
    """The values of floats in textures: their number, those in half, the part of all their numbers that is in half.

    reasons: why each of the others stays float, by name.

    str(HalfShare(1, 12, 11, 0.98, {"y": "near 65504: 3e4 on the measured inputs"}))
    """

    float16: int
    values: int
    half: int
    share: float
    reasons: Mapping[str, str]

    def __str__(self) -> str:
        return f"float16={self.float16}: {self.text}"

    @property
    def text(self) -> str:
        """The share, and the number of values that stay float for each kind of reason."""
        line = f"{self.half} of {self.values} values are fp16, {self.share:.1%} of all elements"
        if not self.reasons:
            return line
        kinds = Counter(reason.partition(":")[0] for reason in self.reasons.values())
        said = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
        return f"{line}; {len(self.reasons)} stay{'s' * (len(self.reasons) == 1)} fp32: {said}"


def half_share_of(plan: Plan, graph: Graph, config: Config) -> HalfShare:
    """The share of a plan that is half. Buffers of the host's side, as of some outputs, do not count."""
    known = known_float(graph)
    stored = {
        name: place.storage.dtype for name, place in plan.placements.items()
        if isinstance(place.storage, Texture) and name in graph.values and graph.values[name].dtype.startswith("float")
    }
    half = [name for name, dtype in stored.items() if dtype == FLOAT16]
    numbers = sum(graph.values[name].size for name in stored)
    reasons = {
        name: why_float(graph, graph.values[name], config.precision, known) or "sharing a texture with one of these"
        for name, dtype in stored.items() if dtype == FLOAT32
    }
    share = sum(graph.values[name].size for name in half) / numbers if numbers else 1.0
    return HalfShare(config.float16, len(stored), len(half), share, reasons)
