"""Probes of drivers whose fault is the time that they take; each says whether a device has it. See drivers.py.

A machine that does other work may hide a fault or show one that is not there, so that these are no tests.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import numpy
import pyopencl as cl


from imgconv.runtime.measuring import QueueFiller
from imgconv.cl.context import Context
from imgconv.cl.device import open_device
from imgconv.cl.building.program import Program, build, build_binary, new_kernel, program_binary
from imgconv.cl.context import KernelLaunch
from imgconv.cl.launch_sequence import bind, enqueue_all
from imgconv.kernels.specialise import FOLDER

ROOT = Path(__file__).parents[2]
INCLUDING = ["-I", os.path.relpath(FOLDER)]  # drivers disagree on quotes around a path with spaces
_new = count(time.time_ns() % 10**6 * 1000)  # drivers keep what they built, in later processes too


def seconds(work: Callable[[], object], times: int = 1, clock: Callable[[], float] = time.perf_counter) -> float:
    """The least time of some, by a clock."""
    least = float("inf")
    for _ in range(times):
        began = clock()
        work()
        least = min(least, clock() - began)
    return least


def is_longer(one: float, other: float, factor: float, more: float = 0) -> bool:
    """Prints two times; returns whether the first exceeds `factor` times the other, and by more than some seconds."""
    print(f"{one * 1e3:.4g} ms, {other * 1e3:.4g} ms")
    return one > factor * other and one > other + more


def new_text() -> str:
    """conv.cl with a number that it never had."""
    return f"// {next(_new)}\n#define OUTPUT_WIDTH {next(_new)}\n{(FOLDER / 'conv.cl').read_text(encoding='utf-8')}"


def builds_take_turns(context: Context) -> bool:
    """Two threads build programs no sooner than one does."""
    def one(text: str) -> None:
        cl.Program(context.handle, text).build(["-w", *INCLUDING])

    one(new_text())
    texts = [[new_text() for _ in range(4)] for _ in range(2)]
    alone = seconds(lambda: [one(text) for text in texts[0]])
    with ThreadPoolExecutor(2) as pool:
        together = seconds(lambda: list(pool.map(one, texts[1])))
    return is_longer(together, alone, 0.75)


def vectors_are_tried(context: Context) -> bool:
    """conv.cl builds a tenth sooner if it says that its work items need not become the lanes of vectors."""
    def built(is_tried: bool) -> None:
        for _ in range(3):
            text = new_text()
            assert " NOT_VECTORIZED " in text
            text = text.replace(" NOT_VECTORIZED ", " ") if is_tried else text
            cl.Program(context.handle, text).build(["-w", *INCLUDING])

    built(True)
    tried, spared = (seconds(lambda: built(each), 3, time.process_time) for each in (True, False))
    return is_longer(tried, spared, 1.1)


OPENED = """
import sys, time
from imgconv.cl.device import list_devices, open_device
print("ready", flush=True)
sys.stdin.readline()
began = time.perf_counter()
open_device(list_devices()[{index}])
print(time.perf_counter() - began)
"""


def opened_in(context: Context, processes: int) -> float:
    """The seconds in which the last one of some processes has opened the device."""
    command = [sys.executable, "-W", "ignore", "-c", OPENED.format(index=context.info.index)]
    pipe = subprocess.PIPE
    started = [subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) for _ in range(processes)]
    for each in started:
        assert each.stdout is not None and each.stdin is not None and each.stdout.readline() == "ready\n"
    for each in started:
        assert each.stdin is not None
        each.stdin.write("\n")
        each.stdin.flush()
    return max(float(each.communicate()[0]) for each in started)


def opening_takes_turns(context: Context) -> bool:
    """Four processes open the device in more than twice the time of one. Needs four cores."""
    return is_longer(opened_in(context, 4), min(opened_in(context, 1) for _ in range(2)), 2)


def programs_cost_no_more(context: Context) -> bool:
    """Four programs of one kernel take no longer than one program of four, give or take a fifth."""
    terms = "\n".join(f"  s = mad(s, x[{n}], x[{n + 1}]) * s;" for n in range(300))

    def text(kernels: int) -> str:
        body = f"{{\n  float s = {next(_new)};\n{terms}\n  x[0] = s;\n}}\n"
        return "".join(f"kernel void k{next(_new)}(global float *x) {body}" for _ in range(kernels))

    def built(kernels: int) -> None:
        cl.Program(context.handle, text(kernels)).build(["-w", *INCLUDING])

    built(1)
    return not is_longer(seconds(lambda: [built(1) for _ in range(4)], 2), seconds(lambda: built(4), 2), 1.2)


def changed_arguments_cost(context: Context) -> bool:
    """A launch takes over 1 us longer if the last one of its function had other images."""
    source = """kernel void k(read_only image2d_t input, write_only image2d_t output) {
  const int2 at = (int2)(get_global_id(0), 0);
  write_imagef(output, at, read_imagef(input, at) + 1);
}"""
    first = build(context, source, "k")
    copy = build_binary(context, program_binary(first), "k")
    assert copy is not None
    images = [context.image(64, 1, 0, numpy.float32) for _ in range(3)]

    def pair(programs: Sequence[Program]) -> float:
        launches: list[KernelLaunch] = []
        for number, program in enumerate(programs):
            made = new_kernel(program, "k")
            made.set_args(images[number], images[number + 1])
            launches.append((made, (64,), (64,)))
        bound = bind(context, launches * 500)

        def run() -> None:
            enqueue_all(context, bound)
            context.finish()

        run()
        return seconds(run, 5) / len(bound)

    return is_longer(pair((first, first)), pair((first, copy)), 1, 1e-6)


def launches_count_setup(context: Context) -> bool:
    """A launch takes over 1 us and a quarter longer by its event if nothing ran just before it."""
    timed = open_device(context.info, profile=True)
    number, busy = timed.buffer(numpy.zeros(64, numpy.float32)), QueueFiller(timed)
    launch = new_kernel(build(timed, "kernel void k(global float *x) { x[get_global_id(0)] += 1; }", "k"), "k")
    launch.set_args(number)
    alone = []
    for _ in range(30):
        event = timed.enqueue(launch, (64,), (64,))
        alone += timed.durations([event])
    busy.enqueue(30)
    after = timed.durations([timed.enqueue(launch, (64,), (64,)) for _ in range(30)])
    return is_longer(statistics.median(alone), statistics.median(after), 1.25, 1e-6)


def waits_for_copies_take_a_core(context: Context) -> bool:
    """Work takes over a fifth longer if the host waits for a copy behind it, not for a marker."""
    text = """kernel void k(global float *x) {
  float s = x[get_global_id(0)];
  for (int n = 0; n < 20000; n++) s = mad(s, 0.5f, 1.0f);
  x[get_global_id(0)] = s;
}"""
    size = 64 * context.info.compute_units
    numbers = context.buffer(numpy.zeros(size, numpy.float32))
    launch, host = new_kernel(build(context, text, "k"), "k"), numpy.zeros(size, numpy.float32)
    launch.set_args(numbers)

    def work(by_marker: bool) -> None:
        for _ in range(20):
            context.enqueue(launch, (size,), (1,))
        copied = cl.enqueue_copy(context.queue, host, numbers, is_blocking=False)
        awaited = cl.enqueue_marker(context.queue) if by_marker else copied
        context.queue.flush()
        awaited.wait()
        copied.wait()

    work(True)
    return is_longer(seconds(lambda: work(False), 5), seconds(lambda: work(True), 5), 1.2)
