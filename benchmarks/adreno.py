"""Predicts times for Adreno GPUs from the machine code of Mesa's compiler; no Adreno is needed.

    python -m benchmarks.adreno [NAME or FILE.onnx ...] [--gpu 630,650,660,740] [--bare] [--summary] [--bounds]
                               [--peers] [--json FILE]
    python -m benchmarks.adreno --networks published   # predictions for other engines, and their published times

The network is planned for a GPU of the given number. Each kernel is compiled once by Mesa's freedreno compiler, which
is not Qualcomm's. The simulator of benchmarks/adreno_simulator counts its instructions: it runs the work groups at the
edges of a launch and one in the interior, on zeros.

    ms          milliseconds predicted by imgconv/kernels/device_model/adreno.py, which lists what the model leaves out.
                The number of units of an Adreno is not documented; --units sets another number
    no overlap  ms if arithmetic and texture reads do not overlap where a processor holds a single wave
    30 us       time to add to both if a launch costs 30 us instead of 10
    bound       the longest of arithmetic, texture, memory, and the cost of any launch
    slots/MAC   issue slots of the launch, of all lanes including idle ones, per multiply-add of the network; at least
                1.0 without Winograd
    issue/MAC   issue slots of an average wave per multiply-add that a work item does, also outside the frame
    MAC/read    multiply-adds of the network per texture read
    waves       waves of the launch; a core: waves that a core holds at once, limited by registers. few waves: launches
                with fewer than two waves per unit
    half        fraction of the slots whose result is fp16
    idle        fraction of the slots of lanes in which a lane is idle
    waits       fraction of a single wave's time in which it waits for data, as Mesa estimates it; not part of ms
    regs        registers of four floats; spills: to memory
    check       texture reads of the machine code, divided by those of the kernel's source: less than 1 if the compiler
                merged reads, or work items at an edge skip some
    slots       issue slots of all launches of a frame, in millions
    least       with --bounds: the lower bound of the time of the launch, see benchmarks/adreno_bounds.py
    single waves  ms of launches that leave a processor a single wave
    by formula  slots and reads predicted by the cost model before compiling, divided by the counts

ADRENO_MESA names the folder of a Mesa build with its freedreno no-op device, default ~/.cache/adreno-mesa. If there is
no build, the error message explains how to make one.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks import adreno_peers, published
from benchmarks.adreno_bounds import COLUMNS_OF_BOUNDS, groups_of
from benchmarks.adreno_mesa import INTEGER_COORDINATES, Mesa, find_mesa
from benchmarks.adreno_rows import LAUNCH_COLUMNS, TOTAL_COLUMNS, Total, rows_of
from benchmarks.measure import (
    add_output_argument, environment, environment_line, make_table, positives, publish, run_main,
)
from benchmarks.networks import DEFAULT, Network, open_network
from imgconv.commands.shared_arguments import positive
from imgconv.compiling.compiler import prepare
from imgconv.compiling.plan import Launch, Plan
from imgconv.config import Precision, read_config
from imgconv.dtype import DotProduct
from imgconv.errors import InputError
from imgconv.kernels.device_model.adreno import A630, GPUS, Gpu
from imgconv.kernels.layout import ImageAlignment, ImageLimits
from imgconv.kernels.target import Target

LIMITS = ImageLimits(16384, 16384, 2048)
# Adreno makes images from parts of buffers; their rows have multiples of 64 texels.
ALIGNMENT = ImageAlignment(64, 64, 1 << 30)
# Adrenos with an instruction for products of bytes: dp4acc of Mesa's ir3.
WITH_DOT_PRODUCTS = (660, 740)
# The convolution of the 2023 engine, compiled by the same Mesa for a630: problem, issue/MAC, MAC/read, regs, waves.
KERNEL_OF_2023 = (("1x1, 256 to 256 channels", 1.67, 8.0, 16, 6), ("3x3, 64 to 64 channels", 1.46, 10.7, 24, 6))


def plan_for(network: Network, gpu: Gpu, options: argparse.Namespace) -> Plan:
    """The network's plan for the GPU; no device is needed. As all layers may sum in fp16, all may use F(4x4, 3x3)."""
    config = read_config(options.float16, options.native_explog)
    prepared = prepare(network.graph, config, target_for(gpu))
    precision = Precision(large_tiles=frozenset(prepared.graph.values))
    plan = prepared.plan(replace(config, precision=precision))
    return without_epilogues(plan) if options.bare else plan


def target_for(gpu: Gpu) -> Target:
    """A phone's GPU as a Target."""
    dot_product: DotProduct = "qcom" if gpu.number in WITH_DOT_PRODUCTS else ""
    return Target(LIMITS, "gpu", gpu.compute_units, images_in_buffers=ALIGNMENT, dot_product=dot_product)


def gpu_of(number: int, units: int | None, compute_units: int | None = None) -> Gpu:
    """A GPU of the table, with other units or with other compute units that its driver reports. InputError if there is
    none of that number."""
    if number not in GPUS:
        raise InputError(f"there is no Adreno {number} in the table: use {', '.join(map(str, GPUS))}")
    gpu = GPUS[number]
    return replace(gpu, units=units or gpu.units, compute_units=compute_units or gpu.compute_units)


def without_epilogues(plan: Plan) -> Plan:
    """The plan with kernels that store their sums without epilogues."""

    def bare(launch: Launch) -> Launch:
        text = re.sub(r"(#define (?:DEPTHWISE_)?EPILOGUE\(.*?\)) .*", r"\1 (sum)", launch.source.text)
        return replace(launch, source=replace(launch.source, text=text))

    return replace(plan, launches=tuple(map(bare, plan.launches)))


def main(options: argparse.Namespace) -> int:
    """Compiles every network for every GPU; 1 if a kernel does not compile."""
    gpus = [gpu_of(number, options.units, options.compute_units) for number in options.gpu]
    if options.networks == "published":
        return show_published(options)
    mesa = find_mesa(options.integer_coordinates)
    with tempfile.TemporaryDirectory(prefix="imgconv-bench-") as folder:
        networks = [open_network(name, Path(folder)) for name in options.network or DEFAULT]
    totals = [total for gpu in gpus for total in totals_of(networks, gpu, mesa, options)]
    totals.sort(key=lambda total: [network.name for network in networks].index(total.network))
    show(options, mesa, totals)
    return 1 if any(total.failed for total in totals) else 0


def totals_of(networks: Sequence[Network], gpu: Gpu, mesa: Mesa, options: argparse.Namespace) -> list[Total]:
    """The networks planned and compiled for one GPU."""
    plans = {network.name: plan_for(network, gpu, options) for network in networks}
    texts = list(dict.fromkeys(launch.source.text for plan in plans.values() for launch in plan.launches))
    compiled = mesa.compile(texts, [gpu.number])[gpu.number]
    return [Total(name, gpu, rows_of(plan, gpu, compiled)) for name, plan in plans.items()]


def show_published(options: argparse.Namespace) -> int:
    """Prints the model's predictions for other engines beside their published times."""
    gpu = gpu_of(A630.number, options.units)
    found, compared = environment(), published.compare(gpu)
    content = {"environment": found, "published": [each.to_json() for each in compared]}
    table = make_table("Other engines on a Snapdragon 845 (Adreno 630)", published.COLUMNS, compared)
    publish(options, content, environment_line(found), table, published.honesty(gpu))
    return 0


def show(options: argparse.Namespace, mesa: Mesa, totals: Sequence[Total]) -> None:
    """Prints the tables and writes the JSON."""
    found = environment() | {"mesa": str(mesa.folder), INTEGER_COORDINATES: mesa.integer_coordinates}
    parts = [
        make_table(f"{total.network}: Mesa's {total.gpu.name} code, launch by launch", LAUNCH_COLUMNS, total.rows)
        for total in totals if not options.summary
    ]
    groups = list(groups_of(totals)) if options.bounds else []
    if groups:
        parts.append(make_table("Launches and their lower bounds", COLUMNS_OF_BOUNDS, groups))
    peers = [each for total in totals for each in adreno_peers.compare(total)] if options.peers else []
    if peers:
        parts.append(make_table("Convolutions of other engines, each as its own kernels", adreno_peers.COLUMNS, peers))
    parts.append(make_table("Networks: Mesa's code for each GPU; nothing was run on one", TOTAL_COLUMNS, totals))
    beside = [
        f"2023 engine's convolution, Mesa's a630 code, {problem}: issue/MAC {issue}, MAC/read {reads}, "
        f"{registers} registers, {waves} waves" for problem, issue, reads, registers, waves in KERNEL_OF_2023
    ]
    honesty = published.honesty(gpu_of(A630.number, options.units))
    names = ("problem", "issue_per_multiply_add", "multiply_adds_per_read", "registers", "waves")
    content = {
        "environment": found, "predicted": honesty, "networks": [total.to_json() for total in totals],
        "bounds": [group.to_json() for group in groups], "peers": [each.to_json() for each in peers],
        "kernel_of_2023_a630": [dict(zip(names, figures, strict=True)) for figures in KERNEL_OF_2023],
    }
    publish(options, content, environment_line(found), *parts, f"ms: {honesty}", *beside)


def make_parser() -> argparse.ArgumentParser:
    described = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog="python -m benchmarks.adreno", description=__doc__, formatter_class=described)
    parser.add_argument("network", nargs="*", help=f"a name of models/ or an ONNX file (default: {' '.join(DEFAULT)})")
    parser.add_argument(
        "--gpu", type=positives, default=tuple(GPUS), metavar="NUMBERS", help="(default: 630,650,660,740)"
    )
    parser.add_argument("--summary", action="store_true", help="one line for each network and GPU, none for launches")
    parser.add_argument("--bounds", action="store_true", help="kinds of launches next to their lower bounds")
    parser.add_argument("--peers", action="store_true", help="convolutions next to those of other engines")
    parser.add_argument(
        "--bare", action="store_true", help="without what is fused into the stores, as the 2023 engine's kernels are"
    )
    parser.add_argument(
        "--networks", choices=("published",), help="other engines' kernels and published times, in place of NAME"
    )
    parser.add_argument(
        "--compute-units", type=positive, help="that the driver reports (default: the table's, 2 for an Adreno 630)"
    )
    parser.add_argument(
        "--units", type=positive, help="that issue waves in the model (default: the table's, 8 for an Adreno 630)"
    )
    yes_or_no = argparse.BooleanOptionalAction
    parser.add_argument("--float16", action=yes_or_no, help="keep textures in half precision (default: FLOAT16)")
    parser.add_argument(
        "--native-explog", action=yes_or_no, help="use native_exp, native_log and native_recip (default: NATIVE_EXPLOG)"
    )
    parser.add_argument(
        "--integer-coordinates", action=yes_or_no, default=os.environ.get(INTEGER_COORDINATES) == "1",
        help="reads take integer coordinates, as Qualcomm's compiler is believed to do; Mesa by itself converts each "
        f"to float (default: {INTEGER_COORDINATES})",
    )
    add_output_argument(parser)
    return parser


if __name__ == "__main__":
    sys.exit(run_main(make_parser(), main))
