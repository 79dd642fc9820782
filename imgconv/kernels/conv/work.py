"""Counts the work of a launch of conv.cl or depthwise.cl, from which the device model predicts its time."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, prod

from imgconv.kernels.conv import mobile
from imgconv.kernels.conv.problem import (
    Problem, Specialisation, accumulators_of, groups_of, local_quads, local_texels, multiply_adds_of, texel_reads,
    tile_has_one_tap, tile_size, weight_reads, work_items,
)
from imgconv.kernels.device_model.cpu import TEXEL_BYTES
from imgconv.kernels.device_model.models import time_range_of
from imgconv.kernels.device_model.time_range import TimeRange
from imgconv.kernels.device_model.work import LaunchWork
from imgconv.kernels.layout import LANES
from imgconv.kernels.target import LARGE_GPU, TargetKind

WAVE = 32  # work items that a computer's GPU runs in step


def predicted_time(problem: Problem, chosen: Specialisation, kind: TargetKind, compute_units: int) -> TimeRange:
    """The predicted time of a launch. kind: 'cpu' or 'gpu'."""
    return time_range_of(launch_work(problem, chosen, kind, compute_units), kind, compute_units)


def launch_work(problem: Problem, chosen: Specialisation, kind: TargetKind, compute_units: int) -> LaunchWork:
    """The work of a launch, with the loops that compilers for such a device leave. kind: 'cpu' or 'gpu'."""
    if kind == "cpu":
        return _cpu_work(problem, chosen)
    return mobile.launch_work(problem, chosen) if compute_units < LARGE_GPU else _gpu_work(problem, chosen)


def _cpu_work(problem: Problem, chosen: Specialisation) -> LaunchWork:
    """A step is one input channel and one position of the window."""
    width, height, depth = work_items(problem, chosen)
    # If the driver chooses the group, it is a row of work items.
    groups, items = (height * depth, width) if chosen.local_size is None else (width * height * depth, 1)
    weights = weight_reads(problem, chosen)
    blocks = ceil(problem.output_quads / chosen.block_quads / chosen.passes)
    return LaunchWork(
        groups, items, multiply_adds_of(problem, chosen), vector=LANES * chosen.vector_quads,
        reads=texel_reads(problem, chosen), steps=weights // chosen.block_quads, writes=_output_texels(chosen),
        constant_texels=0 if problem.depthwise else weights * blocks, constant_reads=weights,
    )


def _output_texels(chosen: Specialisation) -> int:
    """Texels that a work item writes if it shares none."""
    return chosen.block_columns * chosen.block_rows * chosen.block_quads * chosen.passes


def _gpu_work(problem: Problem, chosen: Specialisation) -> LaunchWork:
    """A step is a row of the window in an input quad. Idle work items cost as much as the others."""
    local = chosen.local_size or (1, 1, 1)
    texels, weights = texel_reads(problem, chosen), weight_reads(problem, chosen)
    # Items of a wave that differ in y read adjacent quads of one input texel, those that share a sum different ones.
    beside = min(local[1], max(1, ceil(WAVE / local[0])))
    work = LaunchWork(
        groups_of(problem, chosen), prod(local), multiply_adds_of(problem, chosen), reads=texels + weights,
        scattered=texels / (beside if problem.depthwise else min(chosen.parts, beside)),
        steps=ceil(problem.group_input_quads / chosen.parts) * problem.window[0], barriers=int(chosen.parts > 1),
        writes=ceil(accumulators_of(chosen) / chosen.parts),
        registers=prod(tile_size(problem, chosen)) + accumulators_of(chosen),
        fetched=_fetched_texels(problem, chosen, local),
    )
    return _tiled_work(problem, chosen, work, local) if chosen.weights == "local" else work


def _tiled_work(problem: Problem, chosen: Specialisation, work: LaunchWork, group: tuple[int, int, int]) -> LaunchWork:
    """The work of a launch whose work items read local memory, into which their group copies input and weights."""
    quads, local = problem.group_input_quads, float(work.reads)
    stages, fetched = quads / local_quads(problem, chosen), work.fetched
    outputs = chosen.block_rows * chosen.block_columns
    if tile_has_one_tap(problem, chosen):  # each position of the window is copied by itself
        taps = prod(problem.window)
        stages *= taps
        tile = group[0] * chosen.block_columns * group[2] * chosen.block_rows
        fetched = quads * taps * (tile + LANES * chosen.block_quads * group[1])
    if chosen.keep == "texel":  # items of a wave read four channels of a texel at once
        local = quads * prod(problem.window) * LANES * (outputs / LANES + chosen.block_quads)
    return replace(
        work, reads=0, scattered=0, steps=0, local=local, barriers=stages, fetched=fetched,
        local_bytes=TEXEL_BYTES * local_quads(problem, chosen) * local_texels(problem, chosen),
    )


def _fetched_texels(problem: Problem, chosen: Specialisation, local: tuple[int, int, int]) -> int:
    """Different texels of input and weights that a work group reads."""
    width, height, depth = local
    texels = 1
    for axis, items in ((0, depth * chosen.block_rows), (1, width * chosen.block_columns)):
        reach = (problem.window[axis] - 1) * problem.dilations[axis] + 1
        outputs = min(items, problem.phase_size[axis])
        texels *= min((outputs - 1) * min(problem.strides[axis], reach) + reach, problem.input_size[axis])
    taps, blocks = prod(problem.window), height // chosen.parts
    if problem.depthwise:
        return (taps + texels) * min(blocks, problem.output_quads)
    quads = min(blocks, ceil(problem.group_output_quads / chosen.block_quads)) * chosen.block_quads
    return problem.group_input_quads * (taps * problem.input_lanes * quads + texels)
