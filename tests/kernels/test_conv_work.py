"""Slots and spills that the model of a phone's GPU predicts, compared with those of Mesa's code; candidates."""

from __future__ import annotations

from dataclasses import replace

import pytest

from imgconv.config import Accumulation
from imgconv.kernels.conv.candidates import candidates, default_specialisation
from imgconv.kernels.conv.mobile import ordered_weights_pay_off
from imgconv.kernels.conv.problem import Problem, Specialisation
from imgconv.kernels.conv.work import launch_work, predicted_time
from imgconv.kernels.device_model.adreno import A630, gpu_with_compute_units
from imgconv.kernels.device_model.mobile_gpu import MOBILE_GPU
from imgconv.kernels.device_model.work import LaunchWork
from imgconv.kernels.separable import candidates as separable_candidates, problem as separable
from imgconv.kernels.target import LARGE_GPU, TargetKind

WIDE = Problem(1, 64, (56, 56), 64, (56, 56), (3, 3), (1, 1), (1, 1), (1, 1), 1, sums="half")
STRIDED = replace(WIDE, filters=128, output_size=(28, 28), strides=(2, 2))
COLOURS = Problem(1, 3, (224, 224), 64, (112, 112), (7, 7), (2, 2), (1, 1), (3, 3), 1, sums="half")
POINTWISE = Problem(1, 512, (13, 13), 1000, (13, 13), (1, 1), (1, 1), (1, 1), (0, 0), 1, sums="half")


def predicted(problem: Problem, block: tuple[int, int, int]) -> float:
    """Issue slots of a work item; more if it spills."""
    chosen = Specialisation(*block, "texel", float_coordinates=True, local_size=(8, 8, 2))
    work = launch_work(problem, chosen, "gpu", 2)
    held = MOBILE_GPU.time(work, A630).arithmetic / MOBILE_GPU.time(replace(work, registers=0), A630).arithmetic
    return MOBILE_GPU.slots(work) * held


# Counted in Mesa's a630 code: issue slots of a work item, without an epilogue.
@pytest.mark.parametrize("problem, block, slots", [
    (WIDE, (7, 2, 1), 37990), (WIDE, (4, 4, 1), 44101), (WIDE, (3, 3, 2), 49183), (WIDE, (13, 1, 1), 36131),
    (STRIDED, (4, 2, 2), 44959), (COLOURS, (7, 1, 1), 5171),
    (POINTWISE, (13, 1, 2), 64821), (POINTWISE, (7, 2, 2), 73007),
])
def test_blocks_that_fit_the_registers(problem: Problem, block: tuple[int, int, int], slots: int) -> None:
    """Within 8 %."""
    assert predicted(problem, block) == pytest.approx(slots, rel=0.08)


def test_blocks_that_do_not() -> None:
    """Mesa's code of (4, 4, 1) spills registers: never chosen. Larger blocks are offered for 1x1 windows only."""
    assert predicted(STRIDED, (4, 4, 1)) > 1.5 * 85956
    assert max(c.block_columns * c.block_rows * c.block_quads for c in candidates(WIDE, "gpu", 2)) <= 24
    assert max(c.block_columns * c.block_rows * c.block_quads for c in candidates(POINTWISE, "gpu", 2)) == 28


@pytest.mark.parametrize("columns, blocks", [(13, {(13, 1, 1), (13, 1, 2)}), (26, {(13, 1, 1), (13, 1, 2)})])
def test_blocks_of_maps_of_13_columns(columns: int, blocks: set[tuple[int, int, int]]) -> None:
    problem = replace(POINTWISE, input_size=(13, columns), output_size=(13, columns))
    made = {(c.block_columns, c.block_rows, c.block_quads) for c in candidates(problem, "gpu", 2)}
    assert blocks <= made


@pytest.mark.parametrize("units, narrow", [(2, False), (3, True)])
def test_blocks_that_need_narrow_waves(units: int, narrow: bool) -> None:
    """A full wave of Mesa's code has 48 registers on an Adreno 630, and 32 on a 650."""
    gpu = gpu_with_compute_units(units)
    few, many = (LaunchWork(100, 128, 1000.0, registers=registers) for registers in (20, 40))
    times = [MOBILE_GPU.time(work, gpu).arithmetic for work in (few, many)]
    assert (times[1] > times[0]) == narrow


@pytest.mark.parametrize("units, spills", [(2, False), (3, True)])
def test_items_that_wait_for_each_other_spill(units: int, spills: bool) -> None:
    """Mesa unrolls the rows of (7, 1, 1) too, and reads 63 texels ahead: too many for a full wave of an Adreno 650.

    Its code takes 1.23 ms in the time model there, and that of (4, 2, 1) 0.59; on a 630 0.69 and 0.66.
    """
    problem = Problem(1, 128, (28, 28), 128, (28, 28), (3, 3), (1, 1), (1, 1), (1, 1), 1)
    wide, small = (
        predicted_time(problem, Specialisation(*block, "texel", local_size=(4, 8, 4), parts=4), "gpu", units).least
        for block in ((7, 1, 1), (4, 2, 1))
    )
    assert (wide > 1.5 * small) == spills


@pytest.mark.parametrize("block, steps, units, spills", [
    ((7, 1, 1), 2, 2, True),  # Mesa unrolls the rows too, and reads 45 texels ahead
    ((7, 1, 3), 1, 2, True), ((8, 1, 2), 2, 2, True), ((7, 1, 2), 2, 2, False),
    ((4, 2, 3), 2, 2, False),  # the loop over columns stays
    ((5, 1, 2), 1, 3, True), ((2, 2, 2), 1, 3, True), ((4, 1, 2), 2, 3, True), ((4, 1, 2), 1, 3, False),
])
def test_registers_of_unrolled_loops(block: tuple[int, int, int], steps: int, units: int, spills: bool) -> None:
    """Sums in float: blocks that spill in Mesa's code, or that need more than the registers of a full wave."""
    problem = Problem(1, 128, (28, 28), 128, (28 // steps,) * 2, (3, 3), (steps, steps), (1, 1), (1, 1), 1)
    work = launch_work(problem, Specialisation(*block, "texel", local_size=(4, 16, 2)), "gpu", units)
    gpu = gpu_with_compute_units(units)
    assert (work.registers + MOBILE_GPU.registers > gpu.registers) == spills


def test_loops_over_wide_windows_are_not_unrolled() -> None:
    """A short-time Fourier transform: compilers take long for hundreds of copies of a loop's body."""
    problem = Problem(1, 1, (1, 1600), 322, (1, 9), (1, 320), (1, 160), (1, 1), (0, 0), 1)
    assert keeps(problem, "cpu") == {"texel"}
    apart = replace(problem, window=(1, 100), output_size=(1, 10))
    assert keeps(apart, "cpu") == {"texel"}, "eight windows of 100 that lie 160 apart"
    beside = replace(apart, strides=(1, 10), output_size=(1, 151))
    assert keeps(beside, "cpu") == {"line", "input"}


@pytest.mark.parametrize("groups", [1, 8])
def test_wide_windows_are_not_unrolled_for_any_device(groups: int) -> None:
    """A wavelet transform, with one filter for each channel and with eight."""
    wide = Problem(1, 8, (1, 600), 8, (1, 345), (1, 256), (1, 1), (1, 1), (0, 0), groups)
    narrow = replace(wide, window=(1, 7), output_size=(1, 594))
    for kind, units in (("cpu", 2), ("gpu", 2), ("gpu", 132)):
        assert keeps(wide, kind, units) == {"texel"}
    assert "line" in keeps(narrow, "gpu")


@pytest.mark.parametrize("width, is_fused", [(7, True), (256, False)])
def test_a_wide_depthwise_window_has_a_launch_of_its_own(width: int, is_fused: bool) -> None:
    size = 1, 601 - width
    depthwise = Problem(1, 8, (1, 600), 8, size, (1, width), (1, 1), (1, 1), (0, 0), 8)
    pair = separable.Problem(depthwise, Problem(1, 8, size, 512, size, (1, 1), (1, 1), (1, 1), (0, 0), 1))
    assert bool(separable_candidates.candidates(pair, "gpu", 1 << 15)) == is_fused


@pytest.mark.parametrize("problem, block, plain, ordered", [
    # Registers of Mesa's a630 code: more than 24 leave a processor one wave.
    (WIDE, (7, 2, 1), 26, 24), (WIDE, (7, 1, 2), 28, 24), (STRIDED, (7, 1, 2), 32, 24), (STRIDED, (2, 4, 2), 38, 48),
    (POINTWISE, (13, 1, 2), 30, 24), (POINTWISE, (7, 1, 3), 26, 24),
    (replace(POINTWISE, output_size=(14, 14)), (7, 1, 4), 31, 24),
    (replace(POINTWISE, output_size=(14, 14)), (7, 2, 2), 38, 29),
])
def test_reads_in_order_leave_room_for_a_second_wave(
    problem: Problem, block: tuple[int, int, int], plain: int, ordered: int
) -> None:
    """The model knows on which side of 24 registers both kernels are."""
    chosen = Specialisation(*block, "texel", float_coordinates=True, local_size=(8, 8, 2))
    for each, registers in ((chosen, plain), (replace(chosen, ordered=True), ordered)):
        assert (launch_work(problem, each, "gpu", 2).fewest_registers > 24) == (registers > 24)
    assert ordered_weights_pay_off(problem, chosen) == (ordered <= 24 < plain)


@pytest.mark.parametrize("sums, kind, units", [("float", "gpu", 2), ("runs", "gpu", 2), ("half", "gpu", LARGE_GPU)])
def test_only_sums_in_half_on_a_phone_read_in_order(sums: Accumulation, kind: TargetKind, units: int) -> None:
    problem = replace(POINTWISE, sums=sums)
    assert not any(c.ordered for c in candidates(problem, kind, units))
    assert any(c.ordered for c in candidates(POINTWISE, "gpu", 2))


def keeps(problem: Problem, kind: TargetKind, compute_units: int = LARGE_GPU) -> set[str]:
    return {chosen.keep for chosen in candidates(problem, kind, compute_units)}


@pytest.mark.parametrize("vector_floats, most", [(4, 21), (8, 8), (16, 21)])
@pytest.mark.parametrize("problem", [
    Problem(1, 64, (56, 56), 64, (56, 56), (3, 3), (1, 1), (1, 1), (1, 1), 1),
    Problem(1, 128, (1, 300), 256, (1, 300), (1, 1), (1, 1), (1, 1), (0, 0), 1),
    Problem(1, 96, (40, 1), 24, (40, 1), (1, 1), (1, 1), (1, 1), (0, 0), 1),
    Problem(1, 8, (5, 3), 8, (5, 3), (3, 3), (1, 1), (1, 1), (1, 1), 1),
])
def test_sums_fit_into_the_registers_of_a_cpu(problem: Problem, vector_floats: int, most: int) -> None:
    """AVX2 has 16 registers of 8 floats, AVX-512 32 of 16, NEON 32 of 4."""
    made = candidates(problem, "cpu", vector_floats=vector_floats)
    taken = [
        c.block_columns * c.block_rows * c.block_quads // c.vector_quads * -(-4 * c.vector_quads // vector_floats)
        for c in made
    ]
    assert taken and max(taken) <= most


@pytest.mark.parametrize("problem, block", [
    # 0.118 ms with and without overlap, with weights read in order. (7, 1, 3) takes 0.119 or 0.219 without order, for a
    # processor holds a single wave of it. With its factors, (7, 2, 2) in parts runs out of half registers.
    (Problem(1, 672, (14, 14), 112, (14, 14), (1, 1), (1, 1), (1, 1), (0, 0), 1, sums="half", gated=True), (5, 2, 2)),
    # The loop over columns stays in (7, 1, 3) in parts, so that its reads are not merged.
    (Problem(1, 128, (28, 28), 256, (14, 14), (3, 3), (2, 2), (1, 1), (1, 1), 1, sums="half"), (7, 1, 2)),
    # As fast as (8, 1, 2), which spills 15 registers.
    (Problem(1, 24, (128, 256), 24, (64, 128), (3, 3), (2, 2), (1, 1), (1, 1), 1), (4, 2, 3)),
    # In parts, outputs are made one after another.
    (Problem(1, 240, (16, 32), 40, (16, 32), (1, 1), (1, 1), (1, 1), (0, 0), 1), (4, 2, 3)),
    # The loop over rows stays in (4, 2, 1), so that rows share no reads.
    (Problem(1, 672, (8, 16), 672, (8, 16), (5, 5), (1, 1), (1, 1), (2, 2), 672, True), (8, 1, 1)),
], ids=str)
def test_choices(problem: Problem, block: tuple[int, int, int]) -> None:
    """Blocks of candidates within 4 % of the fastest on an Adreno 630, by the time model on Mesa's code."""
    chosen = default_specialisation(problem, "gpu", 2)
    assert (chosen.block_columns, chosen.block_rows, chosen.block_quads) == block
