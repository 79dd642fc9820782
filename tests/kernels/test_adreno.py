"""The time model of a phone's GPU, on launches whose times are known by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from imgconv.kernels.device_model.adreno import (
    A630, GPUS, Gpu, LaunchTime, MachineWork, gpu_with_compute_units, time_of, time_range,
)
from imgconv.kernels.device_model.mobile_gpu import MOBILE_GPU
from imgconv.kernels.device_model.time_range import TimeRange
from imgconv.kernels.device_model.work import LaunchWork

# Half twice as fast as float; narrow waves at half of float's rate.
GPU = Gpu(
    1, units=4, compute_units=2, registers=48, local_bytes=1 << 15, half_slots=2e9, float_slots=1e9, narrow_slots=5e8,
    reads=1e8, bandwidth=1e9, launch=1e-6,
    most_launch=3e-6,
)
WORK = MachineWork(half_slots=0, float_slots=1000, reads=0, moved_bytes=0, waves=4)


@pytest.mark.parametrize(("waves", "rounds"), [(1, 1), (4, 1), (5, 2), (8, 2), (9, 3)])
def test_arithmetic_takes_whole_rounds_of_waves(waves: int, rounds: int) -> None:
    time = time_of(replace(WORK, waves=waves), GPU)
    assert time.arithmetic == pytest.approx(rounds * 4 * 128 * 1000 / 1e9)


def test_half_slots_have_their_own_rate() -> None:
    time = time_of(replace(WORK, half_slots=600, float_slots=400), GPU)
    assert time.arithmetic == pytest.approx(4 * 128 * (600 / 2e9 + 400 / 1e9))


def test_narrow_waves_have_one_rate() -> None:
    time = time_of(replace(WORK, half_slots=600, float_slots=400, wave_size=64), GPU)
    assert time.arithmetic == pytest.approx(4 * 64 * 1000 / 5e8)


def test_the_longest_time_binds() -> None:
    work = replace(WORK, reads=1e5, moved_bytes=2e6)
    assert time_of(work, GPU) == LaunchTime(pytest.approx(5.12e-4), 1e-3, 2e-3, 1e-6)
    assert (time_of(work, GPU).seconds, time_of(work, GPU).bottleneck) == (2e-3 + 1e-6, "memory")
    assert time_of(replace(work, moved_bytes=0), GPU).bottleneck == "texture"
    assert time_of(replace(work, moved_bytes=0, reads=0), GPU).bottleneck == "arithmetic"
    assert time_of(replace(WORK, float_slots=1), GPU).bottleneck == "launch"


def test_an_access_to_local_memory_takes_as_long_as_a_texture_read() -> None:
    assert time_of(replace(WORK, reads=1e5, local=3e5), GPU).texture == pytest.approx(4e-3)


@pytest.mark.parametrize(("group_bytes", "group_waves", "rounds"), [
    (0, 1, 2), (1 << 14, 1, 2), ((1 << 14) + 1, 1, 4), (1 << 15, 2, 2), (1 << 16, 1, 4),
])
def test_local_memory_limits_how_many_groups_run_at_once(group_bytes: int, group_waves: int, rounds: int) -> None:
    """Eight waves on two compute units of two units each: with more than half of it for a wave, one waits."""
    work = replace(WORK, waves=8, group_bytes=group_bytes, group_waves=group_waves)
    assert time_of(work, GPU).arithmetic == pytest.approx(rounds * 4 * 128 * 1000 / 1e9)


@pytest.mark.parametrize(("registers", "wave_size", "group_bytes", "overlaps"), [
    (0, 128, 0, True), (24, 128, 0, True), (25, 128, 0, False), (48, 64, 0, True), (24, 128, 1 << 15, False),
    (24, 128, 1 << 13, True),
], ids=str)
def test_a_single_wave_of_a_processor_reads_and_then_multiplies(
    registers: int, wave_size: int, group_bytes: int, overlaps: bool
) -> None:
    """A full wave has 48 registers. Each of a core's two processors needs a second wave, in registers and in memory."""
    work = replace(WORK, reads=1e5, registers=registers, wave_size=wave_size, group_bytes=group_bytes)
    time = time_of(work, GPU)
    assert time.texture == pytest.approx(1e-3)
    together = max(time.arithmetic, 1e-3) if overlaps else time.arithmetic + 1e-3
    assert time.pessimistic_seconds == pytest.approx(together + 1e-6)
    assert time.seconds == pytest.approx(max(time.arithmetic, 1e-3) + 1e-6)


def test_a_launch_has_a_range_of_times() -> None:
    time = LaunchTime(2e-3, 1e-3, 2.5e-3, 1e-6, overlaps=False)
    assert time_range(time, GPU) == TimeRange(pytest.approx(3e-3 + 3e-6), pytest.approx(2.5e-3 + 1e-6))


def test_the_model_of_a_phone_adds_up_only_with_many_registers() -> None:
    """The upper bound of 100 work groups adds reads to arithmetic if work items need 25 registers, but not with 24."""
    few, many = (
        MOBILE_GPU.range(LaunchWork(100, 128, 5000.0, reads=500, registers=20, fewest_registers=fewest), 2)
        for fewest in (24, 25)
    )
    assert few.least == many.least
    assert few.most < 1.01 * few.least + A630.most_launch < many.most


def test_other_gpus_are_scaled_by_cores_and_clock() -> None:
    faster = GPUS[740]
    factor = 3 * 0.68 / 0.71
    assert faster.units == 3 * A630.units
    for name in ("half_slots", "float_slots", "narrow_slots", "reads"):
        assert getattr(faster, name) == pytest.approx(factor * getattr(A630, name))
    assert faster.bandwidth == pytest.approx(0.7 * 67.2e9)


def test_a_driver_says_which_gpu_it_is_by_its_compute_units() -> None:
    assert [gpu_with_compute_units(units) for units in (2, 3, 6)] == [GPUS[630], GPUS[650], GPUS[740]]
    one = gpu_with_compute_units(1)
    assert (one.units, one.float_slots) == (A630.units / 2, A630.float_slots / 2)
