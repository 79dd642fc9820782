"""The parameters of the cost models: a class for each kind of device, and an instance of each with the values in use.

A float was fitted to the measurements that its class names. `python -m benchmarks.fit` fits it again, to the smaller
sets of benchmarks/measured/, and reports the errors of both fits. A Given was found in another way, which its comment
states. An int was counted, or is a limit of the device. A texel is four numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

from imgconv.kernels.target import TargetKind

# A GPU with at least this many compute units is a computer's, not a phone's.
LARGE_GPU = 16
Given = float


@dataclass(frozen=True)
class DeviceCosts:
    """The costs of matrix products on CPUs and, without staging, on large GPUs, in texture reads of a compute unit.

    Estimates; rarely used.
    """

    product_multiply_add: float = 0.25  # reads, the four multiply-adds of a row by a texel
    product_store: float = 1.0  # reads, an output texel
    product_part: float = 0.25  # of product_store, for each work item that shares the sum
    product_items: int = 512  # work items that keep a GPU's compute unit busy; fewer take as long


@dataclass(frozen=True)
class CpuCosts(DeviceCosts):
    """conv.cl on a CPU, in nanoseconds of a core.

    Measured with Intel's runtime on one core of a Zen 5. It emulates texture reads: a read takes as long as ten
    multiply-adds of 16 numbers. Fitted to 2,900 candidates for 140 problems of five networks. Half of the predictions
    are within 10 %. For 94 % of the problems, the chosen candidate is within 10 % of the fastest.
    """

    # Reads and writes of a work item.
    read: float = 2.0  # ns, an input texel
    read_and_keep: float = 2.4  # ns, an input texel that is kept for all passes
    store: float = 1.8  # ns, an output texel
    weight_of_image: float = 2.2  # ns, a texel of weights in an image; weights in a buffer are part of a step
    # Arithmetic of a work item. A step is the multiply-adds of one input channel and one position of the window.
    step: float = 1.25  # ns, a step before its multiply-adds
    step_of_winograd: float = 1.0  # ns, the same with Winograd's taps
    multiply_add: float = 0.25  # ns, of a vector of up to 16 numbers
    shift: float = 0.18  # ns for each multiply-add, if the texels of a line of the window are shifted through registers
    rows: float = 0.25  # ns for each multiply-add of a 1x1 window, if the block has several rows
    rows_of_passes: float = 0.05  # ns, the same with several passes
    # Weights in a buffer that exceeds a core's own cache, and their speed from the shared cache and from memory.
    byte_of_shared_cache: float = 0.032  # ns a byte, 31 GB/s
    byte_of_memory: float = 0.06  # ns a byte, 16 GB/s
    own_cache_bytes: int = 1 << 20
    shared_cache_bytes: int = 1 << 23
    # Depthwise.
    depthwise_read: float = 1.0  # ns, an input texel
    depthwise_read_tested: float = 1.9  # ns, the same if blocks reach past the last column
    depthwise_multiply_add: float = 0.6  # ns, of a texel
    depthwise_spill: float = 1.2  # ns in each step, for each sum that has no register
    depthwise_registers: int = 28  # sums that have a register
    depthwise_item: float = 50.0  # ns, a work item
    # Launches that several cores share.
    share: float = 0.25  # of a group's time, the wait for the last core
    wake: float = 2000.0  # ns, until all cores have started


@dataclass(frozen=True)
class LargeGpuCosts(DeviceCosts):
    """conv.cl and separable.cl on a GPU of a computer, in cycles of a compute unit.

    Measured on an H200. Fitted to 4,000 candidates for 100 problems of five networks. In a second measurement, the
    chosen candidates took 1.02 times as long in total as the best of 16. For 94 % of the problems, the chosen one took
    at most 1.1 times as long.
    matmul.cl: fitted to 700 launches of 27 products of vision transformers. The chosen candidates took 1.02 times as
    long as the best of about 25 each.
    separable.cl: fitted to 300 launches of MobileNetV2's pairs at 7x7 and 14x14. The error is 10 % for launches that
    take longer than the driver's overhead.
    """

    # Throughput of a busy compute unit.
    multiply_adds: int = 128  # in a cycle, from NVIDIA's datasheet
    read: float = 0.155  # cycles, a texel, if all items of a wave read adjacent texels
    read_apart: float = 16.4  # of `read`, added for a texel read alone; divided by the number of adjacent ones
    weight: float = 0.29  # cycles, a texel of weights in an image, shared by the items of a wave
    weight_of_tiles: float = 0.9  # cycles, the same if the image's rows are cut into tiles
    weight_of_local: float = 0.12  # cycles, a texel of weights in local memory
    new_texel: float = 1.0  # cycles, added for an input texel that the group reads for the first time
    new_weight: float = 0.43  # cycles, the same for weights
    # Arithmetic on data staged in local memory, relative to data in registers. The staged_texel ones were fitted to 37
    # blocks and groups of one 1x1 convolution, 256 to 256 channels at 256x256.
    staged_line: float = 2.4  # times as long
    staged_texel_narrow: float = 1.6  # times as long, in groups of one or two items along x
    staged_texel: float = 1.85  # times as long, in wider groups
    staged_memory: float = 0.35  # of the memory's time, the part that does not overlap the arithmetic
    # Latencies of a work item that is alone.
    wait_read: float = 83.0  # cycles, a texel
    wait_weight_of_buffer: float = 54.0  # cycles, a texel of weights in a buffer
    wait_step: float = 270.0  # cycles, a step: an input quad and a row of the window
    wait_stage: float = 630.0  # cycles, a copy into local memory
    wait_local: float = 8.7  # cycles, a texel of local memory, with texels staged there
    wait_multiply_add: float = 0.9  # cycles, a multiply-add of these
    wait_store: float = 700.0  # cycles, an output texel
    wait_parts: float = 1240.0  # cycles, if work items share the sum
    spill: Given = 4.0  # times as long if a work item runs out of registers; estimated
    registers: int = 65536  # registers of a compute unit
    registers_of_item: int = 255  # the most registers of a work item
    registers_besides: int = 40  # registers of a work item, besides those of sums and kept texels
    groups: int = 16  # the most work groups that a compute unit runs at once
    items: int = 2048  # the most work items
    local_texels: int = 12800  # texels of local memory of a compute unit
    # matmul.cl. A tile is what a work group copies into local memory at once.
    product_read: float = 0.3  # cycles of a read of DeviceCosts, if nothing is staged
    product_copied: float = 0.21  # cycles, a texel that is copied
    product_local: float = 0.065  # cycles, a texel of local memory that an item reads
    product_sum: float = 0.465  # cycles, an output texel, for each work item that shares it
    product_group: float = 96.0  # cycles, a work group
    product_wait: float = 850.0  # cycles, a work item that is alone
    product_wait_tile: float = 445.0  # cycles, a tile
    product_wait_local: float = 8.7  # cycles, a texel of local memory
    product_wait_multiply_add: float = 0.9  # cycles, a multiply-add
    product_wait_part: float = 17.5  # cycles, a sum that an item meets with those of others
    # separable.cl.
    launch: Given = 14000.0  # cycles of a second launch: 8 us with an H200's driver, at 1.75 GHz
    separable_multiply_adds: float = 107.0  # multiply-adds in a cycle
    separable_texel: float = 0.17  # cycles, an input texel or one of the depthwise weights
    separable_weight: float = 0.1  # cycles, a texel of the 1x1's weights
    separable_wait: float = 4300.0  # cycles, a work item that is alone
    separable_wait_window: float = 1100.0  # cycles, each 3x3 window of a work item
    separable_wait_step: float = 140.0  # cycles, an input quad of the 1x1
    separable_wait_weights: float = 120.0  # cycles, for each output quad of a step
    separable_wait_parts: float = 50.0  # cycles, each sum and each work item that shares it
    separable_items: int = 1024  # work items that a compute unit runs at once, with 64 registers each


@dataclass(frozen=True)
class SmallGpuCosts(DeviceCosts):
    """conv.cl and matmul.cl on a GPU of a phone: the issue slots of a work item, of which gpu_time.py makes a time.

    Counted in Mesa's a630 code of 380 candidates for 62 convolutions of five networks, without epilogues; not run on
    such a GPU. Half of the counts are within 5 %. A multiply-add takes a slot.
    """

    read: float = 3.6  # slots, a texel of input or weights
    sum: float = 9.3  # slots, an output texel
    item: float = 18.0  # slots, a work item
    part: Given = 14.0  # slots, a sum of which a work item of matmul.cl makes a part; this and `total`: by 120 kernels
    total: Given = 128.0  # slots, a sum whose parts a work item of matmul.cl adds up
    met_sum: Given = 100.0  # slots, a sum whose parts a work item of conv.cl adds up; as `met_part`, by 200 kernels
    met_part: Given = 6.0  # slots, each of these parts
    product_step: Given = 50.0  # slots, a quad of k of matmul.cl: 34 to 100 in 80 kernels, by the operands' sizes
    product_item: Given = 400.0  # slots, a work item of matmul.cl: 60 to 1000
    tiled: Given = 1.08  # times as long as predicted beside one launch: the three of winograd2d.cl, in 78 triples
    tile_taps: Given = 340.0  # slots, the taps of a tile of winograd2d.cl; 329 to 352 in 12 kernels
    tile_outputs: Given = 235.0  # slots, the outputs of such a tile, without an epilogue; 220 to 274 in 12 kernels
    wait_read: Given = 100.0  # nanoseconds, a texel that an item of squeeze_excite.cl reads; estimated
    # separable.cl in half, in Mesa's a630 code of 336 kernels for 12 pairs: 90 % of the counts are within 5 %.
    separable_read: Given = 6.6  # slots, a texel of input or weights
    separable_window: Given = 68.6  # slots, the windows of a block, besides reads
    separable_step: Given = 20.4  # slots, an input quad of the 1x1, besides reads
    separable_sum: Given = 10.3  # slots, an output texel
    separable_total: Given = 42.9  # slots, a sum whose parts a work item adds up
    separable_part: Given = 6.9  # slots, a part of such a sum
    texel_bytes: Given = 8.0  # in half
    hidden: Given = 0.1  # of the times that a longer one hides, the part that is felt; estimated
    looped: Given = 1.13  # times as long if the loop over a window's columns stays, with sums in half; by 40 kernels
    ahead: Given = 0.67  # registers for each texel of a window whose rows are unrolled, and of its weights and sums
    tiles: Given = 4.0  # reads for each texel of weights that are cut into tiles; estimated
    spill: Given = 4.0  # times as long if a work item runs out of registers; estimated
    # Limits above which Mesa's code spills: it reads all data of an unrolled loop before the loop starts.
    depthwise_unrolled: int = 900  # multiply-adds + 3 * texels of the window; above it, the loop over rows stays
    depthwise_line: int = 40  # texels of a line and of sums, if that loop stays
    depthwise_window: int = 45  # texels of an unrolled window
    depthwise_sums: int = 8  # texels of sums, with an unrolled window; if they are half, `sums`
    unrolled: int = 200  # multiply-adds of texels in a loop over a window's columns; above it, the loop stays
    registers_besides: int = 6  # registers of four floats, besides those of held texels
    held_by_1x1: int = 42  # texels of sums, input and weights, with a 1x1 window
    held_by_parts: int = 44  # the same if work items share sums, whose outputs they make one after another
    sums_in_half: int = 28  # texels of sums in half, with a 1x1 window or fewer than four channels
    sums: int = 16  # texels of sums with a larger window
    held: int = 40  # texels of sums, a line and weights
    kept: int = 18  # texels of sums and of input that is kept
    sums_in_loop: int = 24  # texels of sums for which the loop over columns is not unrolled
    held_in_half: int = 55  # texels of sums in half, a line and weights, if that loop is unrolled
    # Limits of kernels whose items wait for each other; these and `ahead`: by 240 kernels of 1x1 and 3x3 windows.
    unrolled_rows: int = 320  # `unrolled` for a loop over a window's rows, with texels that are read
    registers_of_waiting: int = 2  # `registers_besides` if sums are float; with the weights of two columns
    registers_in_half: int = 5  # the same if sums are half
    held_of_waiting: int = 48  # `held_in_half`: only 48 registers can be of four halves
    unrolled_in_half: int = 1070  # `unrolled` for sums in half: multiply-adds of numbers, and texels that are read
    unrolled_by_parts: int = 1060  # the same if work items share sums


CPU, LARGE, SMALL = CpuCosts(), LargeGpuCosts(), SmallGpuCosts()


def costs_of(kind: TargetKind, compute_units: int) -> DeviceCosts:
    """The parameters in use for a device. kind: 'cpu' or 'gpu'.

    >>> costs_of("gpu", 132) is LARGE
    True
    """
    if kind == "cpu":
        return CPU
    return LARGE if compute_units >= LARGE_GPU else SMALL
