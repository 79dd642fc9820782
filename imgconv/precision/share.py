"""Reports which fraction of a plan is fp16, and why the rest stays fp32."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from imgconv.compiling.plan import Plan
from imgconv.compiling.textures import always_float, why_float
from imgconv.config import Config
from imgconv.dtype import FLOAT16, FLOAT32
from imgconv.graph.nodes import Graph
from imgconv.kernels.layout import Texture

UNDECIDED = "not measured within the time limit"


@dataclass(frozen=True)
class HalfShare:
    """The floating-point values in textures: their number, the number stored as fp16, the fraction of their elements.

    reasons: why each of the others stays fp32, by name.

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
        """The fraction, and the number of values that stay fp32 for each kind of reason."""
        if not self.values:
            return "no floating-point values in textures"
        line = f"{self.half} of {self.values} values are fp16, {self.share:.1%} of all elements"
        if not self.reasons:
            return line
        kinds = Counter(reason.partition(":")[0] for reason in self.reasons.values())
        said = ", ".join(f"{count} {kind}" if len(kinds) > 1 else kind for kind, count in kinds.most_common())
        return f"{line}; {len(self.reasons)} stay{'s' * (len(self.reasons) == 1)} fp32: {said}"


def half_share_of(plan: Plan, graph: Graph, config: Config) -> HalfShare:
    """Returns the HalfShare of a plan. Host buffers, such as those of some outputs, do not count."""
    known = always_float(graph)
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
