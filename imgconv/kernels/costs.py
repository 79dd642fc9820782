"""The numbers of the cost models: a class for each kind of device, and an instance of each with the numbers in use.

A float was fitted to the measurements that its class names. `python -m benchmarks.fit` makes it anew from the smaller
sets of benchmarks/measured/, and says how well both fit. A Given was found otherwise: its comment says how. An int was
counted, or is a limit of the device. A texel is four numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

# Compute units from which on a GPU is one of a computer rather than of a phone.
LARGE_GPU = 16
Given = float


@dataclass(frozen=True)
class DeviceCosts:
    """What products cost on any device, in texture reads of a compute unit. Estimated: few networks have such ones."""

    product_multiply_add: float = 0.25  # reads, four multiply-adds of a row by a texel
    product_store: float = 1.0  # reads, a texel that is written
    product_part: float = 0.25  # of product_store, for each of the items that share the sum
    product_items: int = 512  # work items that keep a GPU's compute unit busy; the wait of fewer is as long


@dataclass(frozen=True)
class CpuCosts(DeviceCosts):
    """conv.cl on a CPU, in nanoseconds of a core.

    Measured: Intel's runtime on one core of a Zen 5, which emulates texture reads: one takes as long as ten
    multiply-adds of 16. Fitted to 2,900 candidates for 140 problems of five networks: half of them are within 10 %,
    and of those that it likes best 94 % are within 10 % of the fastest.
    """

    # What a work item reads and writes.
    read: float = 2.0  # ns, an input texel
    read_and_keep: float = 2.4  # ns, an input texel that is kept for all passes
    store: float = 1.8  # ns, an output texel
    weight_of_image: float = 2.2  # ns, a texel of weights; those of a buffer are part of a step
    # Its arithmetic. A step adds the products by one input channel and one position of the window.
    step: float = 1.25  # ns, a step before its multiply-adds
    step_of_winograd: float = 1.0  # ns, the same with Winograd's taps
    multiply_add: float = 0.25  # ns, of a vector of up to 16 numbers
    shift: float = 0.18  # ns for each multiply-add while the texels of a line of the window move through registers
    rows: float = 0.25  # ns for each multiply-add of a 1x1 window, if the block has several rows
    rows_of_passes: float = 0.05  # ns, the same with several passes
    # Weights that are read past a core's own cache, in a buffer of so many bytes or more.
    byte_of_shared_cache: float = 0.032  # ns a byte, 31 GB/s
    byte_of_memory: float = 0.06  # ns a byte, 16 GB/s
    own_cache_bytes: int = 1 << 20
    shared_cache_bytes: int = 1 << 23
    # Depthwise.
    depthwise_read: float = 1.0  # ns, an input texel
    depthwise_read_tested: float = 1.9  # ns, the same if blocks reach past the last column
    depthwise_multiply_add: float = 0.6  # ns, of a texel
    depthwise_spill: float = 1.2  # ns for each sum that finds no register, in each step
    depthwise_registers: int = 28  # sums that find one
    depthwise_item: float = 50.0  # ns, a work item
    # Launches that cores share.
    share: float = 0.25  # of a group's time, until the last core is done
    wake: float = 2000.0  # ns, until all cores have begun


@dataclass(frozen=True)
class LargeGpuCosts(DeviceCosts):
    """conv.cl and separable.cl on a GPU of a computer, in cycles of a compute unit.

    Measured: an H200. Fitted to 4,000 candidates for 100 problems of five networks: measured anew, what it chooses
    takes 1.02 times as long as the best of 16, in all, and for 94 % of the problems at most 1.1 times.
    separable.cl: fitted to 300 launches of MobileNetV2's pairs at 7x7 and 14x14: off by 10 % if a launch takes longer
    than the driver needs for it.
    """

    # A compute unit that is busy.
    multiply_adds: int = 128  # in a cycle, by NVIDIA's datasheet
    read: float = 0.155  # cycles, a texel, if all items of a wave read texels beside each other
    read_apart: float = 16.4  # of `read`, more for a texel that has no neighbours; divided by how many are beside it
    weight: float = 0.29  # cycles, a texel of weights in an image, which the items of a wave share
    weight_of_tiles: float = 0.9  # cycles, the same if the image's rows are cut into tiles
    weight_of_local: float = 0.12  # cycles, a texel of weights in local memory
    new_texel: float = 1.0  # cycles, more for an input texel that no item of the group has read before
    new_weight: float = 0.43  # cycles, the same for weights
    # Arithmetic on what a group staged in local memory, of that in registers. Without a line of texels there: fitted
    # to 37 blocks and groups of one 1x1 convolution, 256 to 256 channels at 256x256.
    staged_line: float = 2.4  # times as long
    staged_texel_narrow: float = 1.6  # in groups of one or two items along x
    staged_texel: float = 1.85  # in wider ones
    staged_memory: float = 0.35  # of the memory's time that does not pass beside the arithmetic
    # A work item alone, which waits for everything.
    wait_read: float = 83.0  # cycles, a texel
    wait_weight_of_buffer: float = 54.0  # cycles, a texel of weights in a buffer
    wait_step: float = 270.0  # cycles, a step: an input quad and a row of the window
    wait_stage: float = 630.0  # cycles, each copy into local memory
    wait_store: float = 700.0  # cycles, an output texel
    wait_parts: float = 1240.0  # cycles, for the items that share the sum
    spill: Given = 4.0  # times as long if an item has too few registers; estimated
    registers: int = 65536  # of a compute unit
    registers_of_item: int = 255  # most of a work item
    registers_besides: int = 40  # of a work item, besides those of its sums and of the texels that it keeps
    groups: int = 16  # most that a compute unit runs at once
    # separable.cl.
    launch: Given = 14000.0  # cycles that a second launch takes: 8 us on an H200's driver, at 1.75 GHz
    separable_multiply_adds: float = 107.0  # in a cycle
    separable_texel: float = 0.17  # cycles, an input texel or one of the depthwise weights
    separable_weight: float = 0.1  # cycles, a texel of the 1x1's weights
    separable_wait: float = 4300.0  # cycles, a work item alone
    separable_wait_window: float = 1100.0  # cycles, each window of 3x3 of an item
    separable_wait_step: float = 140.0  # cycles, an input quad of the 1x1
    separable_wait_weights: float = 120.0  # cycles, for each output quad of a step
    separable_wait_parts: float = 50.0  # cycles, each sum and item that shares it
    separable_items: int = 1024  # that a compute unit runs at once, with 64 registers each


@dataclass(frozen=True)
class SmallGpuCosts(DeviceCosts):
    """conv.cl on a GPU of a phone, in issue slots of a work item; a multiply-add takes one.

    Measured: Mesa's a630 code of 3,200 candidates for five networks' convolutions; nothing was run on such a GPU. Its
    reads take 3.7 slots and its sums 16: half of the dense candidates are within 5 % of that, of the depthwise ones
    within 10 %. A read counts for more here, because the texture unit is the slower part below some 14 multiply-adds a
    read. What it chooses takes 1.4 % more slots than the best.
    """

    read: float = 12.0  # slots, a texel of input or weights; 3.7 of them are issued, the others are the texture unit's
    sum: float = 21.0  # slots, an output texel, and for each item that shares it
    item: float = 15.0  # slots, a work item
    tiles: Given = 4.0  # reads for each of weights whose rows are cut into tiles; estimated
    shared: Given = 1.5  # times as long if items share sums: the group waits; estimated
    spill: Given = 4.0  # times as long if an item has too few registers; estimated
    # From which texels on Mesa's code spills: it reads all that an unrolled loop needs before the loop starts.
    depthwise_unrolled: int = 900  # numbers: multiply-adds and three times the window's texels; more stay a loop
    depthwise_line: int = 40  # texels of a line and of sums, in that loop
    depthwise_window: int = 45  # texels of an unrolled window
    depthwise_sums: int = 8  # texels of sums beside it
    winograd_sums: int = 16  # the one number of sums whose loop is left as it is
    held_by_1x1: int = 42  # texels of sums, input and weights with a window of 1x1
    sums: int = 16  # texels of sums with a larger window
    held: int = 40  # texels of sums, a line and weights
    kept: int = 18  # texels of sums and of input that is kept
    sums_in_loop: int = 24  # texels of sums for which it leaves the loop over columns


CPU, LARGE, SMALL = CpuCosts(), LargeGpuCosts(), SmallGpuCosts()


def costs_of(kind: str, compute_units: int) -> DeviceCosts:
    """The numbers in use for a device. kind: 'cpu' or 'gpu'.

    >>> costs_of("gpu", 132) is LARGE
    True
    """
    if kind == "cpu":
        return CPU
    return LARGE if compute_units >= LARGE_GPU else SMALL
