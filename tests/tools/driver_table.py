"""The table of driver faults in docs/drivers.md: for each fault its workaround, and the probe that detects it.

    python -m tests.tools.driver_table        # writes it into docs/drivers.md
"""

from __future__ import annotations

import re
from dataclasses import astuple, dataclass
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "drivers.md"
HEAD = "| driver | fault | workaround, under imgconv/ | probe, or other evidence |\n|---|---|---|---|\n"


@dataclass(frozen=True)
class Row:
    """A fault of a driver. done: the workaround, with its file and name. tells: the probe in quotes, with a * if it is
    also a test; or other evidence."""

    drivers: str
    fault: str
    done: str
    tells: str


ROWS = (
    Row(
        "Intel 2026.22",
        "native_exp is up to 2.3e-4 too large, native_recip 3e-4 too small; OpenCL allows any error",
        "FLOAT16 uses native functions only where they were measured to be accurate enough, see "
        "[below](#native-functions): `loading/native_functions.py`, `UNITS`",
        '"native functions"',
    ),
    Row(
        "Intel 2026.22",
        "each launch that a command buffer replays leaks 2 KB",
        "the player enqueues launches one by one, which is as fast: `../native/src/recording.cpp`",
        "memory that grows with the number of runs",
    ),
    Row(
        "Intel 2026.22, oclgrind 21.10",
        "two threads that build at the same time crash or hang occasionally",
        "a lock lets one thread build at a time: `cl/quirks.py`, `one_build_at_a_time`",
        '"builds collide", in many tries',
    ),
    Row(
        "PoCL 3.1",
        "processes that build at the same time crash while they read a binary from the shared program cache, or fail "
        "to build",
        "a lock lets one process build at a time, and imgconv stores no binaries: `cl/quirks.py`, `caches_programs`",
        "`test_eight_processes_with_an_empty_cache` in `tests/device/test_program_cache.py` fails without it, once in "
        "30 runs",
    ),
    Row(
        "Intel 2026.22, NVIDIA 580",
        "a process compiles one program at a time, on one core: NVIDIA's driver compiles MobileNetV2 in 3.0 s with 16 "
        "threads, in 0.7 s with 8 processes",
        "worker processes compile in parallel: `cl/building/processes.py`; `cl/quirks.py`, "
        "`kernels_for_a_worker` and `one_build_at_a_time`",
        '"builds take turns"',
    ),
    Row(
        "NVIDIA 580",
        "processes open the device one after another: one takes 0.17 s, eight that start together are all ready after "
        "1.0 s (after 0.4 s with one hardware queue each), fifteen after 1.8 s. Ending a process takes 0.05 s",
        "worker processes use one queue, and three of them open the device at a time. A program goes to the process "
        "that is ready first, and nothing waits for workers to end: `cl/building/processes.py`, `BuilderPool`. "
        "`select_device` keeps the context with which it examined the device: `cl/device.py`, `_looked_at`",
        '"opening takes turns"',
    ),
    Row(
        "Intel 2026.22",
        "the compiler tries to vectorise across work items. It fails for every hand-written kernel of a CPU's plan, "
        "after a quarter to a half of the build time",
        "these kernels have an attribute that turns this off: `cl/common.cl`, `NOT_VECTORIZED`",
        '"vectors are tried"',
    ),
    Row(
        "NVIDIA 580",
        "no fault: building one program per kernel is as fast as building one program of all kernels (with Intel's "
        "driver each program takes 0.06 s more)",
        "each kernel gets its own program: `cl/quirks.py`, `one_kernel_a_program`",
        '"programs cost no more"',
    ),
    Row(
        "Intel 2026.22",
        "a program leaks memory when its context is released: 1 KB for the smallest, 25 KB for one of imgconv's",
        "each device has one context, and built programs are kept: `cl/context.py`, `handles`; "
        "`cl/building/program.py`, `PROGRAMS_KEPT`",
        '"contexts keep programs"',
    ),
    Row(
        "Intel 2026.22",
        "the driver finds the folder of its own files in /proc/self/maps, and reads the path only up to its first "
        "space. If the Python environment's path has a space, the driver cannot open its files",
        "imgconv loads a hard link to the driver, or a copy, in the cache folder or the folder for temporary files; if "
        "that is impossible, the error names the remedy: `cl/driver_links.py`",
        "not needed once `tests/device/test_driver_links.py` passes without it",
    ),
    Row(
        "Intel's wheel",
        "its .icd file contains a placeholder instead of a path",
        "imgconv looks for the driver next to the Python package: `cl/drivers.py`, `unregistered_drivers`",
        '"files of the wheel"',
    ),
    Row(
        "Intel 2026.22",
        'it accepts program binaries built for another CPU. Kernels with images then end the process ("Requested image '
        "function for library that hasn't been loaded\"); other kernels run the other CPU's code, 3 to 6 times slower",
        "the device key of a CPU contains its instruction set: `cl/instruction_set.py`, "
        "`../native/src/instruction_set.cpp`",
        "`tests/device/test_cpus.py` and `tests/native/test_cpus.py` fail without it",
    ),
    Row(
        "Intel 2026.22",
        "while the host waits for a copy, one CPU core stops computing",
        "the host waits for a marker instead: `runtime/frame_memory.py`, `FrameMemory.start`",
        '"waits for copies"',
    ),
    Row(
        "oclgrind 21.10",
        "the local memory of a kernel named k10 is also counted for k1 in the same program, so oclgrind may reject "
        "launches of k1",
        "the tests put at most ten kernels into a program: `../tests/conftest.py`, `kernels_in_a_program`",
        '* "names share local memory"',
    ),
    Row(
        "PoCL 3.1",
        "a copy between an image and a part of a buffer crashes",
        "the copy goes through the host: `runtime/launches.py`, `_copy_through_host`",
        '* "copies to parts of buffers"; not needed on PoCL 7.0',
    ),
    Row(
        "PoCL 3.1",
        "in a kernel with a barrier, a nested loop loses iterations if the outer loop has different numbers of "
        "iterations in different work items: PoCL adds a barrier that some work items do not reach. PoCL 7.0 has the "
        "same fault",
        "all work items that share a sum do the same number of iterations: `conv.cl`, `UNEVEN`",
        '* "unequal rounds"',
    ),
    Row(
        "PoCL 3.1",
        "calls of static functions make states of GRUs incorrect; the cause is unknown",
        "every function is inlined: see the row of llvmpipe 25.0",
        '* "static functions"',
    ),
    Row(
        "NVIDIA 580",
        "with -cl-opt-disable, functions that are `inline` but not `static` fail to link unless they are inlined",
        "every function is inlined: see the row of llvmpipe 25.0",
        '* "functions are not linked"',
    ),
    Row(
        "NVIDIA 580",
        "a float written to an fp16 image is rounded toward zero, and becomes 65504 if it is larger. OpenCL allows "
        "this, but it makes the errors of three real networks 1.05, 2.2 and 3.2 times as large",
        "kernels round before they write: `cl/common.cl`, `stored_in`. This takes no measurable time on an H100",
        '* "halves are cut off"',
    ),
    Row(
        "rusticl 22.3",
        "CL_IMAGE_ARRAY_SIZE is 1 for an image that is not an array",
        "imgconv queries the image's type instead: `cl/context.py`, `image_shape`",
        '* "layers of plain images"',
    ),
    Row(
        "rusticl 22.3",
        "CL_KERNEL_LOCAL_MEM_SIZE is twice what a kernel uses",
        "the native player queries it only if the plan is for a device with more local memory: "
        "`../native/src/programs.cpp`, `local_memory_fits_`",
        '* "local memory counts twice"; fixed in 25.0',
    ),
    Row(
        "rusticl 25.0",
        "an image in a part of a buffer starts at the start of the whole buffer, because its offset is ignored "
        "(`mesa/pipe/resource.rs`). 22.3 has no images in buffers",
        "imgconv uses no images in buffers: `cl/quirks.py`, `images_in_buffers`; `../native/src/device.cpp`",
        '* "images in parts of buffers"',
    ),
    Row(
        "llvmpipe 25.0",
        "`inline` functions that are long or have branches are not inlined, and the compiler crashes if such a "
        "function has an image parameter. 22.3, and Mesa's drivers for GPUs, inline all functions",
        "an attribute makes the compiler inline every function: `cl/common.cl`, `inline`",
        '* "functions with images"',
    ),
    Row(
        "llvmpipe 22.3",
        "loops end after 65,535 iterations",
        "each work item of a sort handles only a part of a row: `kernels/order/template.py`, `MOST_OF_AN_ITEM`; "
        "recurrent layers are split among work items or rejected: `kernels/recurrent/template.py`, "
        "`Target.loop_rounds`",
        '* "long loops"; fixed in 25.0',
    ),
    Row(
        "llvmpipe 22.3",
        "an inner loop whose only condition is a value that it reads from memory runs only in the first iteration of "
        "the outer loop",
        "the search for a digit does not stop early: `kernels/order/order.cl`, `FIND_DIGITS`",
        '* "searches end"; fixed in 25.0',
    ),
    Row(
        "NVIDIA 580",
        "an image read at a coordinate 'constant minus variable' may return zero",
        "kernels read at `max(coordinate, -1)`: `kernels/codegen/access.py`, `coordinate`",
        '"offsets of reads"; not needed once `tests/device/test_generated.py` passes on NVIDIA without it',
    ),
    Row(
        "NVIDIA 580",
        "a launch takes 2 to 3 us longer if the previous launch of its kernel function had other arguments",
        "each launch gets its own copy of the program: `cl/quirks.py`, `own_functions`; `cl/building/program.py`, "
        "`KernelFactory`",
        '"changed arguments"',
    ),
    Row(
        "NVIDIA 580",
        "CL_KERNEL_WORK_GROUP_SIZE is 256 for every kernel, even for kernels that require work groups of 1024 and run "
        "with them",
        "imgconv ignores this value, because its kernels declare the size that they need: `cl/quirks.py`, "
        "`understates_groups`; "
        "`../native/src/programs.cpp`",
        '* "work groups of kernels"',
    ),
    Row(
        "rusticl 22.3",
        "clFinish does not wait for commands that another thread has flushed: outputs of runs were wrong while frames "
        "were in flight",
        "a run also waits for the events of its own downloads: `cl/context.py`, `finish`",
        "`test_eight_threads` in `tests/device/test_submit.py` fails on rusticl without it",
    ),
    Row(
        "NVIDIA 580",
        "waiting in another thread, or polling the device, takes 0.05 to 0.15 ms longer than the driver's own wait, "
        "which spins",
        "after a first run imgconv uses the driver's own wait, unless `Limits.run_seconds` is set: `cl/quirks.py`, "
        "`waits_directly`",
        "a loop of `model.run` with and without it",
    ),
    Row(
        "NVIDIA 580",
        "while a kernel hangs, calls that allocate memory, or that release memory, a program or a context, do not "
        "return, even at the end of the process",
        "after abandoning a device, imgconv releases and uses none of the driver's objects: `cl/quirks.py`, "
        "`releases_wait`; "
        "`runtime/session.py`",
        "not needed once `tests/device/test_hang.py` passes on NVIDIA without it",
    ),
    Row(
        "NVIDIA 580",
        "the measured time of a launch includes its setup, which depends on how fast the host enqueues",
        "imgconv keeps the device busy before it times launches: `runtime/measuring.py`, `QueueFiller`",
        '"setup of launches"',
    ),
    Row(
        "Mesa for Adreno",
        "it reports 9999 compute units",
        "imgconv assumes 2: `cl/device.py`, `COMPUTE_UNITS_OF_ADRENO`",
        '"compute units"',
    ),
    Row(
        "Qualcomm",
        "it rejects a recordable queue that has any other property",
        "the player sets no other property: `../native/src/recording.cpp`",
        "not tested: no such device was available",
    ),
    Row(
        "Qualcomm",
        "options of its compiler make kernels faster on some devices and slower on others",
        "`imgconv tune` measures the options, and none is set by default: `cl/quirks.py`, `build_options`",
        "published reports; not tested: no such device was available",
    ),
)


def row_of(probe: str) -> Row:
    """Returns the row of a probe."""
    (found,) = (row for row in ROWS if f'"{probe}"' in row.tells)
    return found


def page() -> str:
    """Returns the text of docs/drivers.md with the current table."""
    table = HEAD + "".join(f"| {' | '.join(astuple(row))} |\n" for row in ROWS)
    return re.sub(re.escape(HEAD) + r"(\|.*\n)*", lambda _: table, PAGE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
