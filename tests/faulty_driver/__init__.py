"""A driver that misbehaves, for tests: an OpenCL driver in C over a real one, with faults that are switched on by name.

    environment("adreno;fail=clFinish:-5@3", tmp_path)  # variables of a process that has only this driver
    run_python("import imgconv; ...", "adreno", tmp_path).stdout

Faults are divided by semicolons. A call number N counts the calls of a function in a process, from 1; `@N` means the
Nth call, `@N-` that one and all later ones, and without it every call is meant. `set_faults` counts anew.

    adreno                      says what the driver of an Adreno 640 says (adreno_640.json); launches of over 1024 work
                                items or 32 KB of local memory fail
    recordable, perf_hint, priority  has cl_qcom_recordable_queues, cl_qcom_perf_hint, or cl_qcom_priority_hint and
                                cl_khr_priority_hints; with adreno. The log has the hints that contexts and queues get
    external_memory, dmabuf_host_ptr, ion_host_ptr, ahardwarebuffer_host_ptr, arm_import  makes buffers of memory of
                                others, by the extension with such a name; with adreno. See imports.c
    refuse_hint                 refuses contexts with a hint: CL_INVALID_PROPERTY
    fail=FUNCTION[:STATUS][@N]  the function returns the status; without one -5, CL_OUT_OF_RESOURCES
    stall=FUNCTION[:SECONDS][@N]  the function blocks, for ever or for some seconds, signals or not, and then goes on
    fail=execution:STATUS[@N]   the Nth launch fails while it runs: it and those that follow do nothing, their events
                                have the status, waiting for events fails with -14, clFinish succeeds
    stall=execution[@N]         the Nth launch never ends: what waits for it blocks
    late=N                      the Nth allocation of a buffer or an image succeeds, and what uses it fails: -4
    work_group_size=N[:PART]    CL_KERNEL_WORK_GROUP_SIZE is N at most, and launches of more work items fail: -54; with
                                PART, of kernels in whose program's text it is. Programs of binaries have no text
    build_fail=N[:PART[:STATUS]]  programs of more than N kernels with PART in their text or options fail to build, with
                                an empty log; -11 without a status
    build_crash=PART            the process ends by SIGSEGV where such a text is built
    build_hang=PART[:SECONDS]   such a build blocks
    binary=refuse               clCreateProgramWithBinary fails: -42
    binary=empty                binaries of programs are empty
    binary=unbuilt              programs of binaries do not build
    binary=kernelless           programs of binaries build and have no kernels
    lose=N                      every Nth launch is lost
    replay=N                    a recording or command buffer runs its first N launches only
    swap=FROM=>TO               replaces a piece of every program's text; in it OPTIMISED is 0 if a program is built
                                with -cl-opt-disable, else 1
    slow=SECONDS:[!]PART        launches of kernels in whose program's text or options PART is, or is not, take this
                                long to enqueue; -qcom-accelerate-16-bit is -DQCOM_ACCELERATE_16BIT here
    options=log                 the log has the options and the waves of each build
    native=coarse               native_exp, native_log and native_recip have 11 bits

fail and stall know the functions that faulty_driver.c and recordings.c name, those of recordings among them, and by
"image_in_buffer" a clCreateImage whose image lies in a buffer. pyopencl calls again what fails for lack of memory, with
-4, -5 or -6: `@N-` in place of `@N` fails there too. What waits fails after it has waited.
"""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from imgconv.cl.drivers import unregistered_drivers

ROOT = Path(__file__).parents[2]
SOURCES = sorted(Path(__file__).parent.glob("*.[ch]"))
NAME = "libfaulty_driver.so"
LIBRARIES = {"pocl": "libpocl.so.2", "rusticl": "libRusticlOpenCL.so.1"}


def environment(faults: str, cache: Path | None = None, real: str = "intel") -> dict[str, str]:
    """The environment of a process whose only OpenCL driver is the faulty one.

    cache: XDG_CACHE_HOME, where imgconv keeps what it builds; by default an empty folder. real: the driver below,
    "intel", "pocl" or "rusticl". Skips the test if it cannot be had, or if there is no C compiler or no headers.
    """
    return os.environ | variables(faults, cache, real)


def variables(faults: str, cache: Path | None = None, real: str = "intel") -> dict[str, str]:
    """Returns the variables that `environment` adds to those of this process."""
    if cache is None:
        cache = Path(tempfile.mkdtemp(prefix="faulty-driver-"))
        atexit.register(shutil.rmtree, cache, ignore_errors=True)
    added = {"RUSTICL_ENABLE": "llvmpipe"} if real == "rusticl" else {}
    return added | {
        "OCL_ICD_VENDORS": str(built().parent), "FAULTY_DRIVER_LIBRARY": real_driver(real), "FAULTY_DRIVER": faults,
        "FAULTY_DRIVER_LOG": str(cache / "faults.log"), "XDG_CACHE_HOME": str(cache),
    }


def run_python(
    lines: str, faults: str, cache: Path | None = None, real: str = "intel", seconds: float = 300
) -> subprocess.CompletedProcess[str]:
    """Runs lines of Python in a process that has the faulty driver. A process that takes longer fails the test."""
    known = environment(faults, cache, real) | {"PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests")))}
    command = [sys.executable, "-c", lines]
    return subprocess.run(command, env=known, cwd=ROOT, capture_output=True, text=True, timeout=seconds)


def met(cache: Path) -> list[str]:
    """The faults that processes with this cache have met, a line each."""
    log = cache / "faults.log"
    return log.read_text().splitlines() if log.exists() else []


def builds(cache: Path) -> list[str]:
    """The number of kernels, the options and the waves of each build of a plan's program, with options=log."""
    lines = [line.removeprefix("build of ") for line in met(cache) if line.startswith("build of ")]
    return [line for line in lines if not line.startswith("0 ")]


def set_faults(faults: str) -> None:
    """Changes the faults of this process, whose driver is the faulty one."""
    ctypes.CDLL(str(Path(os.environ["OCL_ICD_VENDORS"], NAME))).faulty_driver_set(faults.encode())


def real_driver(name: str) -> str:
    """The library of a driver. Skips the test if it is not installed."""
    if name == "intel":
        found = [driver for driver in unregistered_drivers() if Path(driver).name == "libintelocl.so"]
        return found[0] if found else pytest.skip("the faulty driver is over Intel's: pip install intel-opencl-rt")
    try:
        ctypes.CDLL(LIBRARIES[name])
    except OSError as error:
        pytest.skip(f"the driver below is not installed: {error}")
    return LIBRARIES[name]


def built() -> Path:
    """The library, in a folder with its .icd file. Built once for each state of its sources."""
    digest = hashlib.sha256(b"\0".join(source.read_bytes() for source in SOURCES)).hexdigest()[:16]
    folder = ROOT / "build" / "faulty_driver" / digest
    if (folder / "faulty.icd").exists():
        return folder / NAME
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        pytest.skip("the faulty driver is not built without a C compiler")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as work:  # processes that build at once do not meet
        made, options = Path(work, NAME), ("-std=gnu11", "-Wall", "-Wextra", "-O1", "-shared", "-fPIC")
        texts = [source for source in SOURCES if source.suffix == ".c"]
        command = [compiler, *options, "-fvisibility=hidden", "-o", made, *texts, "-ldl", "-lpthread"]
        done = subprocess.run(command, capture_output=True, text=True)
        if "CL/cl" in done.stderr and done.returncode:
            pytest.skip("the faulty driver is not built without OpenCL's headers: install opencl-c-headers")
        assert done.returncode == 0, done.stderr
        Path(work, "faulty.icd").write_text(f"{folder / NAME}\n")
        os.replace(made, folder / NAME)
        os.replace(Path(work, "faulty.icd"), folder / "faulty.icd")
    return folder / NAME
