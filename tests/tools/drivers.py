"""Workarounds in imgconv/ for faults of drivers, each with a probe that tells whether a driver still has the fault.

    python -m tests.tools.drivers                  every workaround on the devices of this machine that it is for
    python -m tests.tools.drivers NAME DEVICE      one probe, in this process: prints "needed" or "not needed"

A probe may crash or hang: that is a fault too. So each runs in a process of its own. tests/device/test_drivers.py
compares the outcome with `mended`; driver_table.py has the table for people.
"""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy
import onnx.helper
import pyopencl as cl

import imgconv
from imgconv.arrays import Array
from imgconv.cl.context import Context
from imgconv.cl.device import UNKNOWN_COMPUTE_UNITS, DeviceInfo, list_devices, open_device
from imgconv.cl.building.program import build, new_kernel
from imgconv.errors import BuildError, DeviceError
from imgconv.kernels.specialise import FOLDER
from imgconv.loading import native_functions
from imgconv.runtime import programs
from tests.tools import driver_times
from tests.support import make_model

ROOT = Path(__file__).parents[2]
SECONDS = 300  # that a probe may take; one that takes longer hangs
INTEL, POCL, MESA, NVIDIA = "Intel(R) OpenCL", "Portable Computing Language", "rusticl", "NVIDIA CUDA"
OCLGRIND = "Oclgrind"
TEXELS = numpy.arange(1, 33, dtype=numpy.float32).reshape(8, 4)
COUNT = "kernel void count(global int *o, int n) { int i = 0; while (i < n) i++; o[0] = i; }"


@dataclass(frozen=True)
class Workaround:
    """The probe of a row of driver_table.py.

    platforms: of the drivers. mended: the first version without the fault, if one is known; since: the first with it.
    probe: whether an opened device has the fault. always: whether a driver that has it shows it at each probe, and in
    seconds.
    """

    name: str
    platforms: tuple[str, ...]
    probe: Callable[[Context], bool]
    mended: str = ""
    always: bool = True
    since: str = ""

    def is_expected(self, info: DeviceInfo) -> bool:
        """Returns whether a device of these platforms has the fault, by its driver's version."""
        found = version(info.driver_version)
        return version(self.since) <= found and (not self.mended or found < version(self.mended))


def version(text: str) -> tuple[int, ...]:
    """The numbers that a version begins with: (3, 1) for '3.1+debian'."""
    return tuple(map(int, re.findall(r"\d+", re.split(r"[+\-_ ]", text)[0])))


def template(file: str) -> str:
    """The text of a .cl file, which compiles alone."""
    return (FOLDER / file).read_text(encoding="utf-8")


def resident() -> int:
    """Bytes of this process in memory."""
    return 4096 * int(Path("/proc/self/statm").read_text().split()[1])


def builds_collide(context: Context) -> bool:
    """Programs that four threads build at once; a crash or a hang is the fault. It does not come each time."""
    text = template("conv.cl")

    def one(number: int) -> None:
        cl.Program(context.handle, f"#define OUTPUT_WIDTH {50 + number}\n{text}").build(driver_times.INCLUDING)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(one, range(16)))
    return False


def contexts_keep_programs(context: Context) -> bool:
    """A small program, built in a new context each time, leaves more than 640 bytes, although both are released."""
    device, times = context.handle.devices[0], 300

    def some() -> None:
        for _ in range(times):
            cl.Program(cl.Context([device]), "kernel void k(global float *x) { x[0] = 1; }").build()
        gc.collect()

    some()
    before = resident()
    some()
    return resident() - before > times * 640


def parts_of_buffers_copy(context: Context) -> bool:
    """A copy from an image to a part of a buffer; a crash or wrong bytes are the fault."""
    texels = numpy.random.default_rng(0).normal(size=(4, 8, 4)).astype(numpy.float32)
    made = context.image(8, 4, 0, numpy.float32)
    context.write(made, texels)
    whole = context.buffer(numpy.zeros(4096, numpy.uint8))
    part = context.sub_buffer(whole, 2048, texels.nbytes)
    cl.enqueue_copy(context.queue, part, made, offset=0, origin=(0, 0, 0), region=(8, 4, 1))
    there = context.read(part, texels.shape, numpy.float32)
    cl.enqueue_copy(context.queue, made, part, offset=0, origin=(0, 0, 0), region=(8, 4, 1))
    back = context.read(made)
    return not (numpy.array_equal(there, texels) and numpy.array_equal(back, texels))


def plain_images_have_layers(context: Context) -> bool:
    """CL_IMAGE_ARRAY_SIZE of an image that is no array is 0."""
    return bool(context.image(8, 4, 0, numpy.float32).array_size != 0)


def loops_end(context: Context) -> bool:
    """A loop of 100,000 iterations ends before them."""
    launch = new_kernel(build(context, COUNT, "count"), "count")
    counted = context.buffer(numpy.zeros(1, numpy.int32))
    launch.set_args(counted, numpy.int32(100_000))
    context.enqueue(launch, (1,), (1,))
    return bool(context.read(counted, (1,), numpy.int32)[0] != 100_000)


def searches_end(context: Context) -> bool:
    """In a loop, another one whose only condition is on what it reads from memory runs in the first round only."""
    source = """kernel void k(global const uint *counts, global uint *found) {
  for (int round = 0; round < 4; round++) {
    uint at = 0, rank = 200 + round;
    for (; rank >= counts[at]; at++) rank -= counts[at];
    found[round] = at;
  }
}"""
    counts = context.buffer(numpy.ones(256, numpy.uint32))
    found = context.buffer(numpy.zeros(4, numpy.uint32))
    launch = new_kernel(build(context, source, "k"), "k")
    launch.set_args(counts, found)
    context.enqueue(launch, (1,), (1,))
    return context.read(found, (4,), numpy.uint32).tolist() != [200, 201, 202, 203]


def read_by(context: Context, source: str) -> Array:
    """Runs kernel k on an image of TEXELS in one row and returns its eight results of four numbers."""
    read = context.image(len(TEXELS), 1, 0, numpy.float32)
    context.write(read, TEXELS[None])
    made = context.buffer(numpy.zeros_like(TEXELS))
    launch = new_kernel(build(context, source, "k"), "k")
    launch.set_args(read, made)
    context.enqueue(launch, (len(TEXELS),))
    return context.read(made, TEXELS.shape, numpy.float32)


def offsets_read_zero(context: Context) -> bool:
    """Reads of an image at a constant less a variable, without a sampler, give zeros."""
    source = """kernel void k(read_only image2d_t input, global float4 *output) {
  const int x = get_global_id(0);
  output[x] = read_imagef(input, (int2)(7 - x, 0));
}"""
    return not numpy.array_equal(read_by(context, source), TEXELS[::-1])


def names_share_local_memory(context: Context) -> bool:
    """A kernel without local memory has that of a kernel whose name begins with its own."""
    made = build(context, """kernel void k1(global float *x) { x[0] = 1; }
kernel void k10(global float *x) {
  local float kept[1000];
  kept[get_local_id(0)] = x[get_local_id(0)];
  barrier(CLK_LOCAL_MEM_FENCE);
  x[0] = kept[1];
}""", "names")
    asked = cl.kernel_work_group_info.LOCAL_MEM_SIZE
    return bool(new_kernel(made, "k1").get_work_group_info(asked, context.handle.devices[0]) >= 4000)


def rounds_are_lost(context: Context) -> bool:
    """Sums of a loop in a loop are wrong if two parts of them take two rounds and the others one."""
    source = """kernel void k(global const float *terms, global float *output) {
  const int item = get_local_id(0), part = get_local_id(1) % 4;
  local float parts[4][4];
  float sum = 0;
  for (int n = part; n < 6; n += 4)
    for (int m = 0; m < 3; m++) sum += terms[3 * n + m];
  parts[part][item] = sum;
  barrier(CLK_LOCAL_MEM_FENCE);
  output[part * 4 + item] = parts[part][item];
}"""
    terms = numpy.arange(18, dtype=numpy.float32)
    read = context.buffer(terms)
    made = context.buffer(numpy.zeros((4, 4), numpy.float32))
    launch = new_kernel(build(context, source, "k"), "k")
    launch.set_args(read, made)
    context.enqueue(launch, (4, 4), (4, 4))
    expected = [terms.reshape(6, 3)[part::4].sum() for part in range(4)]
    return not numpy.array_equal(context.read(made, (4, 4), numpy.float32).T[0], expected)


def local_memory_counts_twice(context: Context) -> bool:
    """A kernel with 1024 bytes of local memory is said to take more."""
    source = """kernel void k(global float *o) {
  local float a[256];
  a[get_local_id(0)] = o[get_global_id(0)];
  barrier(CLK_LOCAL_MEM_FENCE);
  o[get_global_id(0)] = a[get_local_size(0) - 1 - get_local_id(0)];
}"""
    made = new_kernel(build(context, source, "k"), "k")
    return bool(made.get_work_group_info(cl.kernel_work_group_info.LOCAL_MEM_SIZE, context.handle.devices[0]) > 1024)


def functions_lose_images(context: Context) -> bool:
    """A function with a loop and an image, which the compiler calls. llvmpipe 25.0 crashes while it compiles that."""
    source = """float4 total(read_only image2d_t input, int count) {
  float4 sum = 0;
  for (int n = 0; n < count; n++) sum += read_imagef(input, (int2)(n, 0));
  return sum;
}
kernel void k(read_only image2d_t input, global float4 *output) {
  output[get_global_id(0)] = total(input, get_global_id(0) + 1) + total(input, 8);
}"""
    return not numpy.array_equal(read_by(context, source), TEXELS.cumsum(0) + TEXELS.sum(0))


def images_ignore_parts(context: Context) -> bool:
    """An image in the second half of a buffer has the texels of the first half."""
    if "cl_khr_image2d_from_buffer" not in context.info.extensions:
        return False
    texels = numpy.arange(2 * 4096, dtype=numpy.float32).reshape(2, 1024, 4)
    whole = context.buffer(texels)
    second = context.image_from_buffer(whole, texels.nbytes // 2, texels.nbytes // 2, 1024, 1, numpy.float32)
    made = context.buffer(texels[0])
    source = """kernel void k(read_only image2d_t input, global float4 *output) {
  output[get_global_id(0)] = read_imagef(input, (int2)(get_global_id(0), 0));
}"""
    launch = new_kernel(build(context, source, "k"), "k")
    launch.set_args(second, made)
    context.enqueue(launch, (1024,))
    return not numpy.array_equal(context.read(made, (1024, 4), numpy.float32), texels[1])


def functions_are_not_linked(context: Context) -> bool:
    """A program of a function that is inline and not static does not build if the compiler does not optimise."""
    source = """inline float twice(float x) { return 2 * x; }
kernel void k(global float *x) { x[0] = twice(x[0]); }"""
    try:
        launch = new_kernel(build(context, source, "k", ["-cl-opt-disable"]), "k")
        launch.set_args(context.buffer(numpy.zeros(1, numpy.float32)))
        context.enqueue(launch, (1,))
        context.finish()
    except (BuildError, DeviceError):
        return True
    return False


def halves_are_cut_off(context: Context) -> bool:
    """write_imagef to an image of halves does not store the nearest ones."""
    source = """kernel void k(write_only image2d_t made, global const float4 *given) {
  write_imagef(made, (int2)(get_global_id(0), 0), given[get_global_id(0)]);
}"""
    numbers = numpy.random.default_rng(0).uniform(1, 2, (1, 16, 4)).astype(numpy.float32)
    made, given = context.image(16, 1, 0, numpy.float16), context.buffer(numbers)
    launch = new_kernel(build(context, source, "k"), "k")
    launch.set_args(made, given)
    context.enqueue(launch, (16,))
    return not numpy.array_equal(context.read(made), numbers.astype(numpy.float16))


def units_are_unknown(context: Context) -> bool:
    """The device says 9999 compute units, as Mesa's driver for Adreno does; llvmpipe says the host's."""
    return bool(context.handle.devices[0].max_compute_units == UNKNOWN_COMPUTE_UNITS)


def static_functions_are_wrong(context: Context) -> bool:
    """A step of a GRU is wrong if the kernel's functions are static and not always inlined."""
    shapes = {"x": (1, 1, 4), "h": (1, 1, 4), "w": (1, 12, 4), "r": (1, 12, 4)}
    random = numpy.random.default_rng(0)
    x, h, w, r = (random.uniform(-1, 1, shape).astype(numpy.float32) for shape in shapes.values())
    layer = onnx.helper.make_node("GRU", ["x", "w", "r", "", "", "h"], ["", "y"], hidden_size=4)
    model = make_model([layer], {"x": x, "h": h}, ["y"], 14, {"w": w, "r": r})
    text = programs.program_text

    def of_static(*given: Any) -> str:
        return text(*given).replace("inline inline __attribute__((always_inline))", "inline static inline")

    with patch.object(programs, "program_text", of_static):
        found = imgconv.load(model, device=context.info).run({"x": x, "h": h})["y"]
    update, reset, new = (x[0] @ part.T for part in w.reshape(3, 4, 4))
    update_of, reset_of, new_of = r.reshape(3, 4, 4)
    update, reset = (1 / (1 + numpy.exp(-a - h[0] @ b.T)) for a, b in ((update, update_of), (reset, reset_of)))
    expected = (1 - update) * numpy.tanh(new + (reset * h[0]) @ new_of.T) + update * h[0]
    return bool(abs(found[0] - expected).max() > 1e-5)


def groups_are_understated(context: Context) -> bool:
    """The driver allows a kernel fewer work items than the work group that it requires and runs in."""
    most = context.info.max_work_group_size
    body = "global int *o) { if (get_local_id(0) == get_local_size(0) - 1) o[0] = get_local_size(0); }"
    source = f"__attribute__((reqd_work_group_size({most}, 1, 1))) kernel void last({body}"
    made = cl.Kernel(cl.Program(context.handle, source).build(), "last")
    memory = cl.Buffer(context.handle, cl.mem_flags.READ_WRITE, 4)
    queue, found = cl.CommandQueue(context.handle), numpy.zeros(1, numpy.int32)
    made(queue, (most,), (most,), memory)
    cl.enqueue_copy(queue, found, memory)
    said = made.get_work_group_info(cl.kernel_work_group_info.WORK_GROUP_SIZE, context.handle.devices[0])
    return bool(found[0] == most > said)


def native_functions_are_coarse(context: Context) -> bool:
    """The exponential and the sigmoid of native functions are not as exact as FLOAT16 needs them."""
    errors = native_functions.native_errors(context)
    print(", ".join(f"{name} {error:.3g} (1 + |x|) units off" for name, error in errors.items()))
    return max(errors.values()) > native_functions.UNITS


def wheel_names_no_library(context: Context) -> bool:
    """The .icd files of Intel's wheel name no library that is there. No if the driver is of no wheel."""
    try:
        files = [Path(str(each.locate())) for each in metadata.files("intel-opencl-rt") or () if each.suffix == ".icd"]
    except metadata.PackageNotFoundError:
        return False
    return bool(files) and not any(Path(each.read_text().strip()).exists() for each in files)


WORKAROUNDS = (
    Workaround("builds collide", (INTEL, OCLGRIND), builds_collide, always=False),
    Workaround("contexts keep programs", (INTEL,), contexts_keep_programs, always=False),
    Workaround("copies to parts of buffers", (POCL,), parts_of_buffers_copy, mended="7.0"),
    Workaround("unequal rounds", (POCL,), rounds_are_lost),
    Workaround("layers of plain images", (MESA,), plain_images_have_layers),
    Workaround("long loops", (MESA,), loops_end, mended="25.0"),
    Workaround("searches end", (MESA,), searches_end, mended="25.0"),
    Workaround("local memory counts twice", (MESA,), local_memory_counts_twice, mended="25.0"),
    Workaround("compute units", (MESA,), units_are_unknown, always=False),
    Workaround("functions with images", (MESA,), functions_lose_images, since="25.0"),
    Workaround("images in parts of buffers", (MESA,), images_ignore_parts, since="25.0"),
    Workaround("offsets of reads", (NVIDIA,), offsets_read_zero, always=False),
    Workaround("static functions", (POCL,), static_functions_are_wrong),
    Workaround("files of the wheel", (INTEL,), wheel_names_no_library, always=False),
    Workaround("native functions", (INTEL, POCL, MESA, NVIDIA, OCLGRIND), native_functions_are_coarse, always=False),
    Workaround("functions are not linked", (NVIDIA,), functions_are_not_linked),
    Workaround("halves are cut off", (NVIDIA,), halves_are_cut_off),
    Workaround("builds take turns", (INTEL, NVIDIA), driver_times.builds_take_turns, always=False),
    Workaround("vectors are tried", (INTEL,), driver_times.vectors_are_tried, always=False),
    Workaround("opening takes turns", (NVIDIA,), driver_times.opening_takes_turns, always=False),
    Workaround("programs cost no more", (NVIDIA,), driver_times.programs_cost_no_more, always=False),
    Workaround("changed arguments", (NVIDIA,), driver_times.changed_arguments_cost, always=False),
    Workaround("work groups of kernels", (NVIDIA,), groups_are_understated),
    Workaround("setup of launches", (NVIDIA,), driver_times.launches_count_setup, always=False),
    Workaround("waits for copies", (INTEL,), driver_times.waits_for_copies_take_a_core, always=False),
    Workaround("names share local memory", (OCLGRIND,), names_share_local_memory),
)


def outcome(workaround: Workaround, info: DeviceInfo) -> tuple[bool, str]:
    """Runs a probe in a process; returns whether the device needs the workaround, and the process's output."""
    command = [sys.executable, "-m", "tests.tools.drivers", workaround.name, str(info.index)]
    with tempfile.TemporaryDirectory() as cache:  # what a probe builds is nobody else's
        known = os.environ | {"XDG_CACHE_HOME": cache}
        try:
            done = subprocess.run(command, cwd=ROOT, env=known, capture_output=True, text=True, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return True, f"does not end in {SECONDS} s"
    *told, verdict = done.stdout.strip().splitlines() or ["nothing"]
    if done.returncode == 0 and verdict in ("needed", "not needed"):
        return verdict == "needed", ", ".join([verdict, *told])
    if done.returncode > 0:
        raise RuntimeError(f"the probe {workaround.name!r} failed on {info.name}:\n{done.stderr[-2000:]}")
    return True, f"the process ends with {done.returncode}"


def main(arguments: list[str]) -> int:
    devices = list_devices()
    if arguments:
        (workaround,) = (each for each in WORKAROUNDS if each.name == arguments[0])
        print("needed" if workaround.probe(open_device(devices[int(arguments[1])])) else "not needed")
        return 0
    for info in devices:
        for each in (each for each in WORKAROUNDS if info.platform in each.platforms):
            print(f"{info.platform} {info.driver_version}, {each.name}: {outcome(each, info)[1]}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
