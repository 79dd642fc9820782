"""The device model of CPUs: predicts the seconds of a launch from its work."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from imgconv.kernels.device_model.work import LaunchWork

# Bytes of a core's own cache, and of the one that cores share, on the machines that were measured.
OWN_CACHE, SHARED_CACHE = 1 << 20, 1 << 23
TEXEL_BYTES = 16


@dataclass(frozen=True)
class CpuModel:
    """The parameters of the model, in nanoseconds. A core runs its work groups one after another:

        group = item + read * reads + write * writes + max(step * steps + multiply * multiply_adds / vector, bytes)

    Parameters that are not marked as estimated are fitted to benchmarks/measured/cpu.csv by benchmarks.fit: Intel's
    runtime on one core of a Xeon with AVX-512.
    """

    item: float = 28.0  # a work item
    read: float = 2.07  # a texel
    write: float = 2.06  # a texel
    step: float = 1.14  # a round of a loop
    multiply: float = 0.188  # an instruction that multiplies and adds
    byte_of_shared_cache: float = 0.0175  # a byte of weights, which together exceed a core's own cache
    byte_of_memory: float = 0.059  # a byte of weights, which together exceed all caches
    share: float = 0.25  # of a group's time: what cores that share a launch wait for the last one; estimated
    launch: float = 2000.0  # a launch that several cores share; estimated

    def seconds(self, work: LaunchWork, compute_units: int) -> float:
        """The predicted time of a launch on so many cores."""
        item = self.item + self.read * work.reads + self.write * work.writes + max(
            self.step * work.steps + self.multiply * work.multiply_adds / work.vector, self._weights(work)
        )
        group = item * work.items
        if work.groups == 1:
            return 1e-9 * group
        shares = work.groups / compute_units
        return 1e-9 * (group * max(ceil(shares), shares + self.share) + self.launch)

    def _weights(self, work: LaunchWork) -> float:
        """Nanoseconds until a work item's weights are in its core's own cache."""
        size = TEXEL_BYTES * work.constant_texels
        if size < OWN_CACHE:
            return 0.0
        byte = self.byte_of_shared_cache if size < SHARED_CACHE else self.byte_of_memory
        return byte * TEXEL_BYTES * work.constant_reads


CPU = CpuModel()
