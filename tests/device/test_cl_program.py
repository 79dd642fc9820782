"""Programs and launches; what common.cl computes."""

from __future__ import annotations

from dataclasses import replace
import warnings
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from time import sleep
from typing import Any

import numpy as np
import pyopencl as cl
import pytest
from support import HANG_TIMEOUT

from imgconv.cl import launch_sequence
from imgconv.cl.quirks import QUIRKS, quirks_of
from imgconv.cl.building import program
from imgconv.cl.building.program_source import ProgramSource
from imgconv.cl.context import Context
from imgconv.cl.device import DeviceInfo, open_device
from imgconv.errors import BuildError, DeviceError
from imgconv.kernels.kernel_source import COMMON

ADD = """
kernel void add(global float *values, float amount) {
  values[get_global_id(0)] += amount;
}
kernel void double_all(global float *values) {
  values[get_global_id(0)] *= 2.0f;
}
"""

BROKEN = "\n".join(["kernel void broken(global float *values) {", "  values[0] = 1.0f;", "  values[1] = missing;", "}"])


# Programs and launches


def test_build_error_shows_source_log_and_lines(context: Context) -> None:
    with pytest.raises(BuildError) as caught:
        program.build(context, BROKEN, "kernels/broken.cl", ["-DSIZE=3"])
    error = caught.value
    assert error.source == "kernels/broken.cl"
    assert "missing" in error.log
    assert ">    3 |   values[1] = missing;" in error.excerpt
    assert "     2 |   values[0] = 1.0f;" in error.excerpt
    for part in (error.source, error.log, error.excerpt):
        assert part in str(error)


def test_source_near_errors_reads_every_log_style() -> None:
    source = "\n".join(f"line {number}" for number in range(1, 21))
    logs = [
        "<kernel>:9:3: error: no",
        "1:9:3: error: no",
        "error: /tmp/x.cl:9:3: no",
        "<source>:9:3: fatal error: no",
        "note\n<kernel>:2:1: warning: hm\n<kernel>:9:3: error: no",
    ]
    for log in logs:
        lines = program.source_near_errors(source, log).splitlines()
        assert [line.partition(" | ")[2] for line in lines] == [f"line {number}" for number in range(7, 12)], log
        assert [line for line in lines if line.startswith(">")] == [">    9 | line 9"]
    assert program.source_near_errors(source, "internal failure") == ""
    assert program.source_near_errors(source, "<kernel>:99:1: error: past the end") == ""


def test_options_reach_the_compiler(context: Context) -> None:
    source = "kernel void store(global float *values) { values[0] = AMOUNT; }"
    launch = program.new_kernel(program.build(context, source, "store.cl", ["-DAMOUNT=2.5f"]), "store")
    buffer = context.buffer(4)
    launch.set_args(buffer)
    context.enqueue(launch, (1,))
    assert context.read(buffer, (1,), np.float32) == 2.5


@pytest.mark.parametrize("turns", [True, False])
def test_threads_take_turns_at_a_compiler_that_needs_it(
    context: Context, monkeypatch: pytest.MonkeyPatch, turns: bool
) -> None:
    platform = context.info.platform
    if not turns and (quirks_of(platform).one_build_at_a_time or quirks_of(platform).caches_programs):
        pytest.skip("the compiler needs it")
    monkeypatch.setitem(QUIRKS, platform, replace(quirks_of(platform), one_build_at_a_time=turns))
    running, most, original = [0], [0], cl.Program.build
    two = Barrier(2, timeout=HANG_TIMEOUT)

    def slow(self: cl.Program, *arguments: Any, **options: Any) -> cl.Program:
        running[0] += 1
        most[0] = max(most[0], running[0])
        if turns:
            sleep(0.05)
        else:
            two.wait()
        running[0] -= 1
        return original(self, *arguments, **options)

    monkeypatch.setattr(cl.Program, "build", slow)
    source = "__kernel void turn(__global float *x) {{ x[0] = {}.0f; }}"
    parts = [ProgramSource(source.format(n + 4 * turns), "turn") for n in range(4)]
    with ThreadPoolExecutor(2) as pool:
        opened = [open_device(context.info) for _ in range(2)]
        made = list(pool.map(program.build_all, opened, (parts[:2], parts[2:])))
    assert [len(some) for some in made] == [2, 2]
    assert (most[0] == 1) == turns


def test_chatty_builds_stay_quiet_and_filters_stay(context: Context) -> None:
    source = '#warning "compiled"\nkernel void chatty(global float *values) { int unused; values[0] = 1; }'
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        filters = list(warnings.filters)
        built = program.build(context, source, "chatty.cl")
        for _ in range(3):
            program.new_kernel(built, "chatty")
        assert warnings.filters == filters


def test_unknown_kernel_lists_what_there_is(context: Context) -> None:
    built = program.build(context, ADD, "add.cl")
    with pytest.raises(DeviceError, match=r"add\.cl has no kernel 'subtract'; it has: add, double_all"):
        program.new_kernel(built, "subtract")


@pytest.mark.parametrize("own", [True, False])
def test_kernels_that_are_kept(context: Context, monkeypatch: pytest.MonkeyPatch, own: bool) -> None:
    """Each of a function of its own where the driver wants that: the same function is one of another program."""
    platform = context.info.platform
    monkeypatch.setitem(QUIRKS, platform, replace(quirks_of(platform), own_functions=own))
    functions, built = program.KernelFactory(context), program.build(context, ADD, "add.cl")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kernels = [functions.take(built, name) for name in ("add", "add", "double_all", "add")]
    programs = [kernel.get_info(cl.kernel_info.PROGRAM).int_ptr for kernel in kernels]
    assert programs[0] == programs[2] == built.handle.int_ptr
    assert len({programs[n] for n in (0, 1, 3)}) == (3 if own else 1)
    buffer = context.buffer(np.zeros(64, np.float32))
    for number, kernel in enumerate(kernels):
        kernel.set_args(*([buffer] if number == 2 else [buffer, np.float32(number + 1)]))
    for kernel in kernels:
        context.enqueue(kernel, (64,))
    np.testing.assert_array_equal(context.read(buffer, (64,), np.float32), np.full(64, 10.0))
    del kernels[1]  # what it was a kernel of is the next one's: no further copy
    assert functions.take(built, "add").get_info(cl.kernel_info.PROGRAM).int_ptr == programs[1]


def test_launches_run_in_order_with_their_own_arguments(context: Context) -> None:
    built = program.build(context, ADD, "add.cl")
    buffer = context.buffer(np.zeros(64, np.float32))
    add_one, add_three, double = (program.new_kernel(built, name) for name in ("add", "add", "double_all"))
    add_one.set_args(buffer, np.float32(1))
    add_three.set_args(buffer, np.float32(3))
    double.set_args(buffer)
    expected = 0
    for _ in range(5):
        for launch in (add_one, double, add_three):
            context.enqueue(launch, (64,), (16,))
        expected = (expected + 1) * 2 + 3
    context.finish()
    np.testing.assert_array_equal(context.read(buffer, (64,), np.float32), expected)


def test_refused_launch_names_kernel_and_sizes(context: Context) -> None:
    launch = program.new_kernel(program.build(context, ADD, "add.cl"), "add")
    buffer = context.buffer(4 * 1024)
    launch.set_args(buffer, np.float32(1))
    too_large = 2 * context.info.max_work_group_size
    with pytest.raises(DeviceError) as caught:
        context.enqueue(launch, (too_large,), (too_large,))
    for part in ("'add'", str(too_large), context.info.name):
        assert part in str(caught.value)


@pytest.mark.parametrize("found", [True, False], ids=["library", "no library"])
def test_launches_that_are_ready(context: Context, monkeypatch: pytest.MonkeyPatch, found: bool) -> None:
    """Through the driver's own function, and through pyopencl where the library is not found."""
    if not found:
        monkeypatch.setattr(launch_sequence, "launch_function", lambda: None)
    grid = "kernel void grid(global float *x) { x[get_global_id(0) + 8 * get_global_id(1)] *= get_local_size(0); }"
    built = program.build(context, ADD + grid, "add.cl")
    buffer = context.buffer(np.zeros(64, np.float32))
    add, double = program.new_kernel(built, "add"), program.new_kernel(built, "grid")
    add.set_args(buffer, np.float32(1))
    double.set_args(buffer)
    bound = launch_sequence.bind(context, [(add, (64,), None), (double, (8, 4), (2, 1)), (add, (64,), (8,))])
    enqueued: list[object] = []
    one_by_one = context.enqueue
    monkeypatch.setattr(context, "enqueue", lambda *launch: (enqueued.append(launch[0]), one_by_one(*launch)))
    expected = np.zeros(64, np.float32)
    for _ in range(3):
        launch_sequence.enqueue_all(context, bound)
        expected += 1
        expected[:32] *= 2
        expected += 1
    context.finish()
    np.testing.assert_array_equal(context.read(buffer, (64,), np.float32), expected)
    assert enqueued == ([] if found else [add, double, add] * 3)
    too_large = 2 * context.info.max_work_group_size
    with pytest.raises(DeviceError, match=f"'add'.*{too_large}"):
        launch_sequence.enqueue_all(context, launch_sequence.bind(context, [(add, (too_large,), (too_large,))]))


def test_durations_need_a_profiling_queue(context: Context) -> None:
    with pytest.raises(DeviceError, match="profile=True"):
        context.durations([])


def test_durations_are_seconds_of_each_launch(device: DeviceInfo) -> None:
    context = open_device(device, profile=True)
    source = """
kernel void spin(global float *values, int rounds) {
  float value = values[0];
  for (int i = 0; i < rounds; i++) value = native_sin(value) + 1.0f;
  values[0] = value;
}
"""
    built = program.build(context, source, "spin.cl")
    buffer = context.buffer(np.ones(1, np.float32))
    launches = []
    for rounds in (1, 1, 1_000_000):
        launch = program.new_kernel(built, "spin")
        launch.set_args(buffer, np.int32(rounds))
        launches.append(launch)
    _warm_up, short, long = context.durations([context.enqueue(launch, (1,)) for launch in launches])
    assert 0 < short < long
    assert 1e-4 < long < 10


# common.cl


def test_exp_is_right_everywhere(context: Context) -> None:
    """exp_of and expm1_of within 2 units in the last place, over all that is finite; infinities and NaN."""
    kernels = "".join(
        f"""kernel void {name}(global float4 *values) {{
          values[get_global_id(0)] = {name}_of(values[get_global_id(0)]);
        }}
        """ for name in ("exp", "expm1")
    ).replace("void exp(", "void raise(").replace("void expm1(", "void raise_less(")
    built = program.build(context, COMMON.read_text(encoding="utf-8") + kernels, "exp")
    tiny = np.geomspace(1e-37, 1, 5000)
    x = np.concatenate([np.linspace(-87, 88.7, 20000), tiny, -tiny]).astype(np.float32)
    special = np.array([np.nan, np.inf, -np.inf, 89, -200, 0, -0.0, 1e30], np.float32)
    values = np.concatenate([x, special])
    for name, meaning in (("raise", np.exp), ("raise_less", np.expm1)):
        memory = context.buffer(values, name)
        bound = program.new_kernel(built, name)
        bound.set_args(memory)
        context.enqueue(bound, (len(values) // 4,))
        found = context.read(memory, values.shape, "float32")
        expected = meaning(x.astype(np.float64))
        assert np.max(np.abs(found[: len(x)] - expected) / np.maximum(np.abs(expected), 2.0**-126)) <= 2.0**-22
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(found[len(x) :], meaning(special), err_msg=name)
