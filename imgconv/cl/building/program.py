"""Builds programs from OpenCL C source, caches their binaries, and creates their kernels."""

from __future__ import annotations

import json
import linecache
import os
import re
import warnings
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from weakref import ReferenceType, WeakKeyDictionary, ref

import pyopencl as cl

from imgconv.cl.building.processes import BuildCrashError, parallel_builds
from imgconv.cl.building.crashes import (
    WITHOUT_OPTIMISATION, DistrustedKernels, clear_suspicion, distrusted_kernels, key_with_options, mark_as_being_built,
    note_crash_suspects, refuse, refused_kernels,
)
from imgconv.cl.building.program_source import ProgramSource
from imgconv.cl.context import ADVICE, Context
from imgconv.cl.device_info import DeviceInfo
from imgconv.cl.drivers import environment_options
from imgconv.cl.quirks import quirks_of
from imgconv.cl.watchdog import TIMEOUT, CallOverdueError, ThreadedCalls
from imgconv.errors import BuildError, DeviceError, Error
from imgconv.files.disk_cache import DiskCache, hash_of, one_process_at_a_time

LINES_AROUND_ERROR = 2
BUILD_SECONDS = TIMEOUT  # in which at least one program has to be built
# The programs of some models. One of 16 kernels takes a megabyte or two on a CPU's driver.
PROGRAMS_KEPT = 128
# Binaries, so that the next process does not compile again. The programs of a network take 0.5 to 5 MB.
PROGRAMS = DiskCache("programs", 256 * 2**20)


class Kernel(cl.Kernel):
    """A kernel object of a program, which weak references can refer to. label: the launch that it is for, in errors."""

    label: str = ""


@dataclass(frozen=True, eq=False)
class Program:
    """A built program. ``name`` is the path of its .cl file, or other text that names the origin of its source."""

    name: str
    handle: cl.Program


REFUSED = b"refused"  # in place of a binary: the driver does not build these kernels as one program
# NVIDIA's driver (580) prints "9 warnings generated." on the user's terminal, for code that is never reached.
NO_WARNINGS = "-w"


def build(context: Context, source: str, name: str, options: Sequence[str] = ()) -> Program:
    """Compiles OpenCL C text for the context's device. ``options`` are the compiler's own, such as "-cl-mad-enable".

    Binaries are kept on disk, so a second build is quick. Raises BuildError with ``name``, the
    driver's log and the source lines near each error.
    """
    with _without_warnings(), context.builders:
        part = ProgramSource(source, name, options=tuple(options))
        safe = _unoptimised_if_known_to_crash(context, part)
        return context.watchdog.call(lambda: _load_or_compile(context, safe, 0), BUILD_SECONDS)


@contextmanager
def build_in_background(
    context: Context, parts: Sequence[ProgramSource], workers: int = 0
) -> Iterator[Iterator[Program]]:
    """Builds programs in the background of the block. Yields them in order, each as soon as it is built.

        with build_in_background(context, parts) as built:
            ...                                 # meanwhile
            programs = list(built)

    workers: processes that build in parallel to this one, see `build_workers_for`; they start if a program is not in
    the cache. The last PROGRAMS_KEPT programs of the process are not built again. If the driver refuses a binary, the
    program is built from source. Raises BuildError as ``build`` does.
    """
    # Twice as many threads as builds: one may wait for another's turn at the driver while a worker builds.
    threads = 2 * (parallel_builds(context.info.platform) + workers)
    with _without_warnings(), context.builders:
        builds = ThreadedCalls([partial(_build_part, context, workers, part) for part in parts], threads)
        try:
            yield (_wait_for_build(context, builds, number, parts) for number in range(len(parts)))
        except BaseException as error:
            builds.close(BUILD_SECONDS if isinstance(error, Error) else 0)
            raise
        builds.close(BUILD_SECONDS)


def _wait_for_build(
    context: Context, builds: ThreadedCalls[Program], number: int, parts: Sequence[ProgramSource]
) -> Program:
    """The program of a part, once it is built. Raises BuildError; DeviceError if builds hang."""
    try:
        return builds.result(number, BUILD_SECONDS)
    except CallOverdueError:
        names = ", ".join(str(kernel) for each in sorted(builds.running) for kernel in parts[each].kernels_or_itself)
        raise DeviceError(
            f"{context.info.name}, driver {context.info.driver_version}, has built no kernel for {BUILD_SECONDS:g} s, "
            f"and is still building {names}: its compiler hangs. Start another process, which will skip these kernels"
        ) from None


def build_all(context: Context, parts: Sequence[ProgramSource], workers: int = 0) -> list[Program]:
    """The programs in order; see `build_in_background`."""
    with build_in_background(context, parts, workers) as built:
        return list(built)


# NVIDIA's driver (580, H200) takes 0.05 s or more to open the device for a process, and one after the other.
MOST_PROCESSES = 12
MEMORY_OF_A_PROCESS = 2 * 2**30  # bytes of the device for each, a quarter of which NVIDIA's driver takes


def build_workers_for(context: Context, kernels: int) -> int:
    """Returns the number of processes that build this many kernels, besides this one."""
    each = quirks_of(context.info.platform).kernels_for_a_worker
    if not each:
        return 0
    fitting = min(MOST_PROCESSES, (os.cpu_count() or 1) - 1, context.info.global_memory_bytes // MEMORY_OF_A_PROCESS)
    return max(0, min(fitting, kernels // each - 1))


def best_program_count(context: Context, kernels: int) -> int:
    """Returns the number of programs that minimises the time to build this many kernels; at least 1."""
    platform = context.info.platform
    if quirks_of(platform).one_kernel_a_program:
        return max(kernels, 1)
    return build_workers_for(context, kernels) + parallel_builds(platform)


_compiler = Lock()


@contextmanager
def _compiler_lock(context: Context) -> Iterator[None]:
    quirks = quirks_of(context.info.platform)
    with (
        _compiler if quirks.one_build_at_a_time else nullcontext(),
        one_process_at_a_time("build") if quirks.caches_programs else nullcontext(),
    ):
        yield


# By the context and the program's key.
_built: OrderedDict[tuple[int, str], Program] = OrderedDict()
_lock = Lock()


def program_key(info: DeviceInfo, source: str, options: Sequence[str]) -> str:
    """The name of a program's entry: a hash of source, compiler options, device and driver."""
    about = [info.key, info.vendor, info.opencl_version, *options]
    return hash_of(json.dumps(about).encode(), source.encode()).hex()


def _build_part(context: Context, workers: int, part: ProgramSource) -> Program:
    key = program_key(context.info, part.source, [*part.options, *environment_options()])
    found = _built.get((context.handle.int_ptr, key))
    if found is None and part.binary is not None:
        found = build_binary(context, part.binary, part.name, part.options, part.names)
    made = found or _load_or_compile(context, part, workers)
    with _lock:
        _built[context.handle.int_ptr, key] = made
        _built.move_to_end((context.handle.int_ptr, key))
        while len(_built) > PROGRAMS_KEPT:
            _built.popitem(last=False)
    return made


def _load_or_compile(context: Context, part: ProgramSource, workers: int) -> Program:
    key = program_key(context.info, part.source, [*part.options, *environment_options()])
    kept = PROGRAMS.read(key)
    if kept == REFUSED:
        raise BuildError(part.name, "the driver failed to build it before")
    made = None if kept is None else build_binary(context, kept, part.name, part.options, part.names)
    if made is None:
        try:
            made = _compile_guarded(context, part, workers)
        except BuildError:
            if len(part.kernels) > 1:  # each of them is built alone next time, without this attempt
                PROGRAMS.write(key, REFUSED)
            raise
        if not quirks_of(context.info.platform).caches_programs and (content := program_binary(made)):
            PROGRAMS.write(key, content)
    return made


def _compile_guarded(context: Context, part: ProgramSource, workers: int) -> Program:
    """The program, compiled here or by a worker; in a process of its own if the driver's compiler is known to crash.

    Raises BuildError if a process ended in it and it has several kernels: they are to be built alone.
    """
    known = distrusted_kernels(context.info)
    if not known:
        made = _compile_on_idle_builder(context, part, workers)
        if made:
            return made
        note_crash_suspects(context.info, part.kernels_or_itself)
    if len(part.kernels_or_itself) > 1 and (not known or any(kernel.key in known for kernel in part.kernels_or_itself)):
        raise BuildError(part.name, "a process crashed while it built one of these kernels")
    return _compile_in_own_process(context, part, known)


def _compile_on_idle_builder(context: Context, part: ProgramSource, workers: int) -> Program | None:
    """The program, compiled by whoever is idle, here or in a worker; None if that process ended."""
    context.builders.start(workers)
    with context.builders.idle_builder() as worker:
        if worker is None:
            return compile_text(context, part)
        with mark_as_being_built(context.info, part.kernels_or_itself):
            content = worker.build(part.source, _compiler_flags(part))
        if worker.crashed:
            return None
        if content is None:
            return compile_text(context, part)
    return build_binary(context, content, part.name, part.options, part.names) or compile_text(context, part)


# One crash has one culprit: a process that cannot start others compiles one program at a time after a crash.
_apart = Lock()


def _compile_in_own_process(context: Context, part: ProgramSource, known: DistrustedKernels) -> Program:
    """The program, compiled in a process of its own first. Raises RefusedError if it ends in the only kernel."""
    kernels = part.kernels_or_itself
    _, how = known.get(key_with_options(kernels[0].key, part.options), ("", ""))
    if how:
        how += f", and with {WITHOUT_OPTIMISATION} too" if WITHOUT_OPTIMISATION in part.options else ""
        raise BuildError(kernels[0].path, how, launch=kernels[0].launch)
    try:
        content = context.builders.build_in_own_process(part.source, _compiler_flags(part))
    except BuildCrashError as error:
        if len(kernels) == 1:
            refuse(context.info, kernels[0], part.options, str(error))
        note_crash_suspects(context.info, kernels)
        raise BuildError(part.name, str(error)) from error
    made = build_binary(context, content, part.name, part.options, part.names) if content else None
    if made is None:
        with _apart:
            made = compile_text(context, part)
    clear_suspicion(context.info, kernels)
    return made


def _unoptimised_if_known_to_crash(context: Context, part: ProgramSource) -> ProgramSource:
    """The part; without optimisation if crash marks say that the compiler crashed at it."""
    is_refused = part.kernels_or_itself[0].key in refused_kernels(context.info)
    return replace(part, options=(*part.options, WITHOUT_OPTIMISATION)) if is_refused else part


def _compiler_flags(part: ProgramSource) -> list[str]:
    return [NO_WARNINGS, *part.options, *environment_options()]


def compile_text(context: Context, part: ProgramSource) -> Program:
    """The program, compiled by the driver in this process. Raises BuildError as ``build`` does."""
    made = cl.Program(context.handle, part.source)
    try:
        with _compiler_lock(context), mark_as_being_built(context.info, part.kernels_or_itself):
            return Program(part.name, made.build(options=[NO_WARNINGS, *part.options]))
    except cl.Error as error:
        log = _build_log(context, made)
        launch = part.kernels[0].launch if len(part.kernels) == 1 else ""
        raise BuildError(part.name, log, source_near_errors(part.source, log), launch, error.code) from error


@contextmanager
def _without_warnings() -> Iterator[None]:
    # Some drivers log a line for every successful build, and pyopencl turns each into a warning.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cl.CompilerWarning)
        yield


def program_binary(program: Program) -> bytes:
    """The driver's own form of the program, for `build_binary` on the same device and driver. Empty if it has none."""
    try:
        return bytes(program.handle.get_info(cl.program_info.BINARIES)[0])  # type: ignore[index]
    except cl.Error:
        return b""


def build_binary(
    context: Context, content: bytes, name: str, options: Sequence[str] = (), kernels: Sequence[str] = ()
) -> Program | None:
    """The program whose `program_binary` this is. options: those of its build. kernels: that it must have, by name.

    None if the driver refuses it, or if the result lacks one of the kernels, or has none at all.
    """
    try:
        with _compiler_lock(context):
            made = cl.Program(context.handle, [context.handle.devices[0]], [content])
            built = made.build(options=[NO_WARNINGS, *options])
        if not built.get_info(cl.program_info.NUM_KERNELS):  # NVIDIA's driver (580) crashes at the names of none
            return None
        found = str(built.get_info(cl.program_info.KERNEL_NAMES)).split(";")
        return Program(name, built) if any(found) and set(kernels) <= set(found) else None
    except cl.Error:
        return None


class KernelFactory:
    """Kernels for launches that are kept: each of its own function, on drivers that launch faster then."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._copies: WeakKeyDictionary[Program, list[Program]] = WeakKeyDictionary()
        # By name, the kernel of each copy. Those of launches that are gone, as of failed frames, are created again.
        self._kernels: WeakKeyDictionary[Program, dict[str, list[ReferenceType[Kernel]]]] = WeakKeyDictionary()

    def take(self, program: Program, name: str) -> Kernel:
        """The result of `new_kernel`, for the program or a copy of it. Raises what `new_kernel` raises."""
        if not quirks_of(self._context.info.platform).own_functions:
            return new_kernel(program, name)
        copies = self._copies.setdefault(program, [])
        kernels = self._kernels.setdefault(program, {}).setdefault(name, [])
        number = next((number for number, used in enumerate(kernels) if used() is None), len(kernels))
        while len(copies) < number:
            with _without_warnings():
                made = build_binary(self._context, program_binary(program), program.name)
                copies.append(made or Program(program.name, program.handle))
        taken = new_kernel(copies[number - 1] if number else program, name)
        kernels[number : number + 1] = [ref(taken)]
        return taken


def new_kernel(program: Program, name: str) -> Kernel:
    """A new kernel object of the built program, with arguments of its own: make one for each launch, and keep it.

    Raises DeviceError, naming the program's kernels if none has that name.
    """
    try:
        made = Kernel(program.handle, name)
        _forget_texts()
        return made
    except cl.Error as error:
        if error.code != cl.status_code.INVALID_KERNEL_NAME:
            raise DeviceError(f"kernel {name!r} of {program.name}: the driver refused: {error}; {ADVICE}") from error
        names = ", ".join(sorted(each.function_name for each in program.handle.all_kernels()))
        raise DeviceError(f"{program.name} has no kernel {name!r}; it has: {names or 'none'}") from error


def max_work_group_size(context: Context, made: cl.Kernel) -> int:
    """The most work items of a group that the driver allows for the kernel: CL_KERNEL_WORK_GROUP_SIZE."""
    if quirks_of(context.info.platform).understates_groups:
        return context.info.max_work_group_size
    device = context.handle.devices[0]
    try:
        return int(made.get_work_group_info(cl.kernel_work_group_info.WORK_GROUP_SIZE, device))
    except cl.Error:
        return context.info.max_work_group_size


def _forget_texts() -> None:
    """Drops the Python text that pyopencl makes for each kernel: it would stay for ever, 4 KB for each launch."""
    for name in tuple(linecache.cache):
        if name.startswith("<generated: 'pyopencl invoker"):
            linecache.cache.pop(name, None)


def source_near_errors(source: str, log: str) -> str:
    """The numbered source lines around each line in which a build log reports an error; empty if it names none.

    Understands "name:line:column: error: text" (most drivers) and "error: name:line:column: text" (PoCL).
    """
    lines = source.splitlines()
    reports = [re.search(r":(\d+):\d+", line) for line in log.splitlines() if re.search(r"\berror:", line)]
    errors = {int(report[1]) for report in reports if report}
    wanted = {
        number
        for error in errors
        for number in range(error - LINES_AROUND_ERROR, error + LINES_AROUND_ERROR + 1)
        if 1 <= number <= len(lines)
    }
    return "\n".join(f"{'>' if number in errors else ' '}{number:5} | {lines[number - 1]}" for number in sorted(wanted))


def _build_log(context: Context, failed: cl.Program) -> str:
    try:
        log = failed.get_build_info(context.handle.devices[0], cl.program_build_info.LOG)  # type: ignore[no-untyped-call]
        return str(log).strip()
    except cl.Error:
        return ""
