"""What imgconv/ does because of a driver's fault, each with a probe that says whether a driver still has it.

    python -m tests.drivers                  every workaround on the devices of this machine that it is for
    python -m tests.drivers NAME DEVICE      one probe, in this process: prints "needed" or "not needed"

A probe may crash or hang: that is a fault too. So each runs in a process of its own. tests/device/test_drivers.py
compares the outcome with `mended`; docs/drivers.md has the table for people.
"""

from __future__ import annotations

import gc
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy
import pyopencl as cl

from imgconv.arrays import Array
from imgconv.cl import image, recording
from imgconv.cl.device import Context, DeviceInfo, list_devices, open_device
from imgconv.cl.program import build, kernel
from imgconv.cl.queue import enqueue, finish
from imgconv.kernels.specialise import FOLDER

ROOT = Path(__file__).parents[1]
SECONDS = 300  # that a probe may take; one that takes longer hangs
INTEL, POCL, MESA, NVIDIA = "Intel(R) OpenCL", "Portable Computing Language", "rusticl", "NVIDIA CUDA"
OCLGRIND = "Oclgrind"
INCLUDING = ["-I", str(FOLDER)]
TEXELS = numpy.arange(1, 33, dtype=numpy.float32).reshape(8, 4)
COUNT = "kernel void count(global int *o, int n) { int i = 0; while (i < n) i++; o[0] = i; }"


@dataclass(frozen=True)
class Workaround:
    """A driver's fault and what imgconv does about it.

    platform: of the driver. where: the file and the name in it. mended: the first version without the fault, if one is
    known; since: the first with it. probe: whether an opened device has the fault. always: whether a driver that has it
    shows it at each probe, and in seconds.
    """

    name: str
    platform: str
    where: str
    reason: str
    probe: Callable[[Context], bool]
    mended: str = ""
    always: bool = True
    since: str = ""

    def is_expected(self, info: DeviceInfo) -> bool:
        """Whether a device of the platform is said to have the fault."""
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


def replays_leak(context: Context) -> bool:
    """20 launches replayed 1000 times leave more than 10 MB."""
    made = build(context, "kernel void k(global float *x) { x[0] += 1; }", "k")
    launch = kernel(made, "k")
    number = image.create_buffer(context, numpy.zeros(1, numpy.float32))
    launch.set_args(number)
    with patch.object(recording, "LEAKING_PLATFORM", ""):
        replayed = recording.record(context, [(launch, (1,), (1,))] * 20)
    assert replayed is not None

    def some() -> None:
        for _ in range(1000):
            replayed.replay()
            finish(context)

    some()
    before = resident()
    some()
    return resident() - before > 10 << 20


def builds_collide(context: Context) -> bool:
    """Programs that four threads build at once; a crash or a hang is the fault. It does not come each time."""
    text = template("conv.cl")

    def one(number: int) -> None:
        cl.Program(context.handle, f"#define OUTPUT_WIDTH {50 + number}\n{text}").build(INCLUDING)

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
    made = image.create_image(context, 8, 4, 0, numpy.float32)
    image.upload(context, made, texels)
    whole = image.create_buffer(context, numpy.zeros(4096, numpy.uint8))
    part = image.part_of(context, whole, 2048, texels.nbytes)
    cl.enqueue_copy(context.queue, part, made, offset=0, origin=(0, 0, 0), region=(8, 4, 1))
    there = image.download_buffer(context, part, texels.shape, numpy.float32)
    cl.enqueue_copy(context.queue, made, part, offset=0, origin=(0, 0, 0), region=(8, 4, 1))
    back = image.download(context, made)
    return not (numpy.array_equal(there, texels) and numpy.array_equal(back, texels))


def plain_images_have_layers(context: Context) -> bool:
    """CL_IMAGE_ARRAY_SIZE of an image that is no array is 0."""
    return bool(image.create_image(context, 8, 4, 0, numpy.float32).array_size != 0)


def loops_end(context: Context) -> bool:
    """A loop of 100,000 iterations ends before them."""
    launch = kernel(build(context, COUNT, "count"), "count")
    counted = image.create_buffer(context, numpy.zeros(1, numpy.int32))
    launch.set_args(counted, numpy.int32(100_000))
    enqueue(context, launch, (1,), (1,))
    return bool(image.download_buffer(context, counted, (1,), numpy.int32)[0] != 100_000)


def read_by(context: Context, source: str) -> Array:
    """What kernel k makes of an image of TEXELS in one row: eight results of four numbers."""
    read = image.create_image(context, len(TEXELS), 1, 0, numpy.float32)
    image.upload(context, read, TEXELS[None])
    made = image.create_buffer(context, numpy.zeros_like(TEXELS))
    launch = kernel(build(context, source, "k"), "k")
    launch.set_args(read, made)
    enqueue(context, launch, (len(TEXELS),))
    return image.download_buffer(context, made, TEXELS.shape, numpy.float32)


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
    return bool(kernel(made, "k1").get_work_group_info(asked, context.handle.devices[0]) >= 4000)


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
    read = image.create_buffer(context, terms)
    made = image.create_buffer(context, numpy.zeros((4, 4), numpy.float32))
    launch = kernel(build(context, source, "k"), "k")
    launch.set_args(read, made)
    enqueue(context, launch, (4, 4), (4, 4))
    expected = [terms.reshape(6, 3)[part::4].sum() for part in range(4)]
    return not numpy.array_equal(image.download_buffer(context, made, (4, 4), numpy.float32).T[0], expected)


def local_memory_counts_twice(context: Context) -> bool:
    """A kernel with 1024 bytes of local memory is said to take more."""
    source = """kernel void k(global float *o) {
  local float a[256];
  a[get_local_id(0)] = o[get_global_id(0)];
  barrier(CLK_LOCAL_MEM_FENCE);
  o[get_global_id(0)] = a[get_local_size(0) - 1 - get_local_id(0)];
}"""
    made = kernel(build(context, source, "k"), "k")
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
    whole = image.create_buffer(context, texels)
    second = image.create_image_in(context, whole, texels.nbytes // 2, texels.nbytes // 2, 1024, 1, numpy.float32)
    made = image.create_buffer(context, texels[0])
    source = """kernel void k(read_only image2d_t input, global float4 *output) {
  output[get_global_id(0)] = read_imagef(input, (int2)(get_global_id(0), 0));
}"""
    launch = kernel(build(context, source, "k"), "k")
    launch.set_args(second, made)
    enqueue(context, launch, (1024,))
    return not numpy.array_equal(image.download_buffer(context, made, (1024, 4), numpy.float32), texels[1])


WORKAROUNDS = (
    Workaround("replays leak", INTEL, "cl/recording.py, LEAKING_PLATFORM",
               "2 KB of memory are lost for each launch that a command buffer replays", replays_leak),
    Workaround("builds collide", INTEL, "cl/build_processes.py, ONE_AT_A_TIME",
               "two threads that build at once crash or hang", builds_collide, always=False),
    Workaround("contexts keep programs", INTEL, "cl/device.py, _handles; cl/program.py, PROGRAMS_KEPT",
               "a program keeps memory after its context is released, 10 KB for order.cl", contexts_keep_programs,
               always=False),
    Workaround("copies to parts of buffers", POCL, "cl/image.py, copy_through_host",
               "a copy between an image and a part of a buffer crashes", parts_of_buffers_copy, mended="7.0"),
    Workaround("unequal rounds", POCL, "conv.cl, UNEVEN",
               "in a kernel with a barrier, a loop whose number of rounds differs by work item loses rounds if it has "
               "a loop inside", rounds_are_lost),
    Workaround("layers of plain images", MESA, "cl/image.py, _is_array",
               "CL_IMAGE_ARRAY_SIZE of an image that is no array is 1", plain_images_have_layers),
    Workaround("long loops", MESA, "kernels/order.py, MOST_OF_AN_ITEM",
               "loops end after 65,535 iterations", loops_end, mended="25.0"),
    Workaround("local memory counts twice", MESA, "../native/src/programs.cpp, local_memory_fits_",
               "CL_KERNEL_LOCAL_MEM_SIZE is twice what a kernel takes", local_memory_counts_twice, mended="25.0"),
    Workaround("functions with images", MESA, "cl/common.cl, inline",
               "llvmpipe crashes if a function that it does not inline has an image", functions_lose_images,
               since="25.0"),
    Workaround("images in parts of buffers", MESA, "cl/device.py, WITHOUT_IMAGES_IN_PARTS; ../native/src/device.cpp",
               "an image in a part of a buffer starts where the whole buffer starts", images_ignore_parts,
               since="25.0"),
    Workaround("offsets of reads", NVIDIA, "kernels/access.py, coordinate",
               "reads at a constant less a variable give zero", offsets_read_zero, always=False),
    Workaround("names share local memory", OCLGRIND, "../tests/conftest.py, kernels_in_a_program",
               "the local memory of k10 is counted as that of k1 too", names_share_local_memory),
)


def outcome(workaround: Workaround, info: DeviceInfo) -> tuple[bool, str]:
    """(Whether a device needs a workaround, what the probe's process said), from a process of its own."""
    command = [sys.executable, "-m", "tests.drivers", workaround.name, str(info.index)]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return True, f"does not end in {SECONDS} s"
    said = done.stdout.strip().splitlines()[-1:] or ["nothing"]
    if done.returncode == 0 and said[0] in ("needed", "not needed"):
        return said[0] == "needed", said[0]
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
        for each in (each for each in WORKAROUNDS if each.platform == info.platform):
            print(f"{info.platform} {info.driver_version}, {each.name}: {outcome(each, info)[1]}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
