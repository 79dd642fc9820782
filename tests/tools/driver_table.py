"""The table of drivers' faults in docs/drivers.md, what is done because of each, and what tells that it is needed.

    python -m tests.tools.driver_table        # writes it into docs/drivers.md
"""

from __future__ import annotations

import re
from dataclasses import astuple, dataclass
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "drivers.md"
HEAD = "| driver | its fault | what is done, below imgconv/ | its probe, or what else tells |\n|---|---|---|---|\n"


@dataclass(frozen=True)
class Row:
    """A fault. done: with the file and the name in it. tells: the probe in quotes, with a * if it is a test."""

    drivers: str
    fault: str
    done: str
    tells: str


ROWS = (
    Row(
        "Intel 2026.22",
        "native_exp is 2.3e-4 too large, native_recip 3e-4 too small; OpenCL allows any error",
        "FLOAT16 takes native functions where they were measured to be exact enough, see [below](#native-functions): "
        "`loading/native_functions.py`, `UNITS`",
        '"native functions"',
    ),
    Row(
        "Intel 2026.22",
        "2 KB are lost for each launch that a command buffer replays",
        "the player enqueues launches one by one, which takes as long: `../native/src/recording.cpp`",
        "memory that grows with runs",
    ),
    Row(
        "Intel 2026.22, oclgrind 21.10",
        "two threads that build at once crash or hang, now and then",
        "one builds after another: `cl/quirks.py`, `one_build_at_a_time`",
        '"builds collide", in many tries',
    ),
    Row(
        "PoCL 3.1",
        "processes that share its cache of programs and build at once crash as they read a binary, or fail to build",
        "one process builds after another, and no binaries are kept: `cl/quirks.py`, `caches_programs`",
        "`test_eight_processes_with_an_empty_cache` in `tests/device/test_program_cache.py` fails without it, once in "
        "30 times",
    ),
    Row(
        "Intel 2026.22, NVIDIA 580",
        "a process compiles one program at a time, on one core: NVIDIA's takes 3.0 s for MobileNetV2's by 16 threads, "
        "0.7 s by 8 processes",
        "other processes compile beside this one: `cl/building/processes.py`; `cl/quirks.py`, `kernels_for_a_worker` "
        "and `one_build_at_a_time`",
        '"builds take turns"',
    ),
    Row(
        "NVIDIA 580",
        "a process takes 0.17 s to open the device, and others wait meanwhile: 1.0 s for eight (0.4 s with one "
        "hardware queue each), 1.8 s for fifteen; 0.05 s to end. Those that begin together are ready together",
        "workers have one queue, three open the device at once, a program goes to the process that is ready first, "
        "and nothing waits for their end: `cl/building/processes.py`, `Builders`; `select` keeps the context by which "
        "it looked: `cl/device.py`, `_looked_at`",
        '"opening takes turns"',
    ),
    Row(
        "Intel 2026.22",
        "the compiler tries to put work items into the lanes of vectors, and gives up on every hand-written kernel of "
        "a CPU's plan; trying takes a quarter to a half of the build",
        "they say that it need not try: `cl/common.cl`, `NOT_VECTORIZED`",
        '"vectors are tried"',
    ),
    Row(
        "NVIDIA 580",
        "programs of one kernel each take no longer than one program of all (Intel's takes 0.06 s for each program)",
        "each kernel is a program: `cl/quirks.py`, `one_kernel_a_program`",
        '"programs cost no more"',
    ),
    Row(
        "Intel 2026.22",
        "a program keeps memory after its context is released: 1 KB for the smallest, 25 KB for ours",
        "one context for each device, and built programs are kept: `cl/context.py`, `handles`; "
        "`cl/building/program.py`, `PROGRAMS_KEPT`",
        '"contexts keep programs"',
    ),
    Row(
        "Intel 2026.22",
        "it finds the folder of its other files in /proc/self/maps, and reads a path there up to the first space: in "
        "an environment whose path has one it says that it cannot be opened",
        "a hard link to it, or a copy, in the cache folder or the one for temporary files is loaded; where that "
        "cannot be, the error says what helps: `cl/driver_links.py`",
        "`tests/device/test_driver_links.py` passes without it",
    ),
    Row(
        "Intel's wheel",
        "its .icd file names a path that was never filled in",
        "the driver is found beside the package: `cl/drivers.py`, `unregistered_drivers`",
        '"files of the wheel"',
    ),
    Row(
        "Intel 2026.22",
        'it accepts programs that were built for another CPU. With images it then ends the process ("Requested image '
        "function for library that hasn't been loaded\"); in plain memory it runs the other CPU's code, 3 to 6 times "
        "slower",
        "a CPU's key contains the instruction set: `cl/instruction_set.py`, `../native/src/instruction_set.cpp`",
        "`tests/device/test_cpus.py` and `tests/native/test_cpus.py` fail without it",
    ),
    Row(
        "Intel 2026.22",
        "while a host waits for a copy, one core less computes",
        "a marker is waited for instead: `runtime/frame_memory.py`, `FrameMemory.start`",
        '"waits for copies"',
    ),
    Row(
        "oclgrind 21.10",
        "the local memory of a kernel k10 is counted as that of k1 of the same program too, so launches of k1 may be "
        "refused",
        "the tests put ten kernels at most into a program: `../tests/conftest.py`, `kernels_in_a_program`",
        '* "names share local memory"',
    ),
    Row(
        "PoCL 3.1",
        "a copy between an image and a part of a buffer crashes",
        "it goes through the host: `runtime/launches.py`, `_copy_through_host`",
        '* "copies to parts of buffers"; PoCL 7.0 copies',
    ),
    Row(
        "PoCL 3.1",
        "in a kernel with a barrier, a loop whose number of rounds differs by work item loses rounds if it has a loop "
        "inside: PoCL adds a barrier there that some items do not reach. 7.0 does the same",
        "work items that share a sum make equally many rounds: `conv.cl`, `UNEVEN`",
        '* "unequal rounds"',
    ),
    Row(
        "PoCL 3.1",
        "calls of static functions make states of GRUs wrong; the cause is not known",
        "every function is inlined, see llvmpipe 25.0; then static ones are right too",
        '* "static functions"',
    ),
    Row(
        "NVIDIA 580",
        "with -cl-opt-disable, functions that are `inline` but not `static` are not linked unless they are inlined",
        "every function is, see llvmpipe 25.0",
        '* "functions are not linked"',
    ),
    Row(
        "NVIDIA 580",
        "a float that is written to an image of halves is rounded toward zero, and is 65504 if it is more, as OpenCL "
        "allows: outputs of three real networks were 1.05, 2.2 and 3.2 times as far off",
        "kernels round it before: `cl/common.cl`, `stored_in`. Three networks at 768x768 take as long with and "
        "without on an H100",
        '* "halves are cut off"',
    ),
    Row(
        "rusticl 22.3",
        "CL_IMAGE_ARRAY_SIZE of an image that is no array is 1",
        "the image's type is asked instead: `cl/context.py`, `image_shape`",
        '* "layers of plain images"',
    ),
    Row(
        "rusticl 22.3",
        "CL_KERNEL_LOCAL_MEM_SIZE is twice what a kernel takes",
        "the native player asks for it only if the plan is for a device with more local memory: "
        "`../native/src/programs.cpp`, `local_memory_fits_`",
        '* "local memory counts twice"; 25.0 is mended',
    ),
    Row(
        "rusticl 25.0",
        "an image in a part of a buffer starts where the whole buffer starts: its views of a buffer have the offset 0 "
        "(`mesa/pipe/resource.rs`). 22.3 has no such images",
        "they are not used: `cl/quirks.py`, `images_in_buffers`; `../native/src/device.cpp`",
        '* "images in parts of buffers"',
    ),
    Row(
        "llvmpipe 25.0",
        "functions are called if they are long or have branches, though they are `inline`; the compiler crashes if "
        "such a function has an image. Mesa's drivers of GPUs, and 22.3, inline all",
        "every function is inlined by the front end: `cl/common.cl`, `inline`",
        '* "functions with images"',
    ),
    Row(
        "llvmpipe 22.3",
        "loops end after 65,535 iterations",
        "work items of a sort take part of a row: `kernels/order/template.py`, `MOST_OF_AN_ITEM`; recurrent layers "
        "are split among work items or refused: `kernels/recurrent/template.py`, `Target.loop_rounds`",
        '* "long loops"; 25.0 is mended',
    ),
    Row(
        "llvmpipe 22.3",
        "in a loop, another one whose only condition is on what it reads from memory runs in the first round only",
        "the search for a digit runs to its end: `order.cl`, `FIND_DIGITS`",
        '* "searches end"; 25.0 is mended',
    ),
    Row(
        "NVIDIA 580",
        "an image read at a constant less a variable may give zero",
        "the coordinate is `max(..., -1)`: `kernels/codegen/access.py`, `coordinate`",
        '"offsets of reads"; and `tests/device/test_generated.py` passes on NVIDIA without it',
    ),
    Row(
        "NVIDIA 580",
        "a launch takes 2 to 3 us longer if the last one of its function had other arguments",
        "each launch has a copy of its program: `cl/quirks.py`, `own_functions`; `cl/building/program.py`, "
        "`Functions`",
        '"changed arguments"',
    ),
    Row(
        "rusticl 22.3",
        "clFinish does not wait for commands that another thread has flushed: outputs of runs beside frames were "
        "wrong",
        "a run waits for its downloads' events if clFinish has left them: `cl/context.py`, `finish`",
        "`test_eight_threads` in `tests/device/test_submit.py` fails on rusticl without it",
    ),
    Row(
        "NVIDIA 580",
        "a wait through another thread, or that looks at the device, takes 0.05 to 0.15 ms longer than the driver's "
        "own, which spins",
        "the driver's own is used after a first run, unless `Limits.run_seconds` is given: `cl/quirks.py`, "
        "`waits_directly`",
        "a loop of `model.run` with and without it",
    ),
    Row(
        "NVIDIA 580",
        "the driver waits for a kernel that hangs if memory, a program or a context of the same driver is released, "
        "at the end of the process too, or if memory is allocated beside it",
        "once a device was abandoned, nothing that there is of its driver is released, nor used: `cl/quirks.py`, "
        "`releases_wait`; `runtime/session.py`",
        "`tests/device/test_hang.py` passes on NVIDIA without it",
    ),
    Row(
        "NVIDIA 580",
        "the time of a launch counts its setup, which depends on the host's pace",
        "the device is kept busy before timed launches: `runtime/measuring.py`, `Busy`",
        '"setup of launches"',
    ),
    Row(
        "Mesa for Adreno",
        "it says 9999 compute units",
        "2 are assumed: `cl/device.py`, `COMPUTE_UNITS_OF_ADRENO`",
        '"compute units"',
    ),
    Row(
        "Qualcomm",
        "a recordable queue with any other property is refused",
        "it has none: `../native/src/recording.cpp`",
        "not tried: no such device is at hand",
    ),
)


def row_of(probe: str) -> Row:
    """The row of a probe."""
    (found,) = (row for row in ROWS if f'"{probe}"' in row.tells)
    return found


def page() -> str:
    """The page with the table."""
    table = HEAD + "".join(f"| {' | '.join(astuple(row))} |\n" for row in ROWS)
    return re.sub(re.escape(HEAD) + r"(\|.*\n)*", lambda _: table, PAGE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
