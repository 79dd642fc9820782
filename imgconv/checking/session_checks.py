"""Runs a plan launch by launch on its device and checks each; the result is cached for the driver."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, NoReturn

import numpy

from imgconv.arrays import Array
from imgconv.build_options import DRIVERS_DEFAULTS
from imgconv.cl.building.crashes import refuse_wrong_kernel, refused_kernels
from imgconv.cl.building.program_source import BuiltKernel
from imgconv.cl.device_info import DeviceInfo
from imgconv.cl.shutdown import shutdown_guard
from imgconv.compiling.plan import Plan, Storage
from imgconv.config import Config
from imgconv.errors import DeviceError
from imgconv.files.disk_cache import DiskCache, hash_of
from imgconv.graph.nodes import Graph, Value
from imgconv.runtime.device import Device
from imgconv.runtime.device_memory import DeviceMemory
from imgconv.runtime.programs import launch_text
from imgconv.runtime.session import Session

if TYPE_CHECKING:
    from imgconv.checking.comparing import LaunchVerdict
    from imgconv.checking.launched_nodes import LaunchedNodes

VERSION = 2  # of the check: raise it if it finds more
PROVED = DiskCache("proved", 2**20)
SECONDS, PART = 1.0, 0.2  # that the check of a load may take, the latter as a part of the load's
ADVICE = (
    "Update the driver, or choose another device; `imgconv check` writes a report to send to us. load(check=False) "
    "skips this check"
)
# The drivers for CPUs on which imgconv's tests run at every change, by their platforms' names.
TESTED = ("Intel(R) OpenCL", "Portable Computing Language", "rusticl")
UNTOUCHED = 0.1623  # what outputs are overwritten with before: small, as an index too, and never the result of a layer
AGAIN = 3  # times that a wrong launch is launched again


class WrongResultError(DeviceError):
    """The driver computes a kernel wrongly, or its compiler. A new plan leaves the kernel out if it can."""


@dataclass(frozen=True)
class SessionUnderTest:
    """A plan on a device, to be checked. graph: after the passes. states: see `lower`."""

    session: Session
    graph: Graph
    config: Config
    states: Mapping[str, str] = field(default_factory=dict)

    @property
    def plan(self) -> Plan:
        return self.session.plan

    @property
    def context(self) -> Device:
        return self.session.context

    @property
    def memory(self) -> DeviceMemory:
        return self.session.memory


def is_tested_driver(info: DeviceInfo) -> bool:
    """Returns whether imgconv's own tests prove the driver."""
    return info.kind == "cpu" and info.platform in TESTED


def needs_no_check(session: Session) -> bool:
    """Returns whether nothing is left to check of a session's plan on its driver."""
    return is_tested_driver(session.context.info) or not _unchecked_launches(session)


def _unchecked_launches(session: Session) -> Sequence[int]:
    """The numbers of the launches that no load has checked yet."""
    kept = PROVED.read(_checked_plan_key(session))
    return range(len(session.plan.launches)) if kept is None else tuple(map(int, json.loads(kept)["left"]))


def _checked_plan_key(session: Session) -> str:
    """The key of what is proved: device, driver, kernels and their sizes, and what they are built with."""
    sources = [launch.source for launch in session.plan.launches]
    launches = [(source.key, source.global_size, source.local_size) for source in sources]
    options = session.programs.build_options
    extra = [] if options == DRIVERS_DEFAULTS else [vars(options)]
    return hash_of(json.dumps([VERSION, session.context.info.key, launches, *extra]).encode()).hex()


def check_once(running: SessionUnderTest, started: float) -> None:
    """Checks a plan that nobody has checked on this driver; its outcome is kept.

    started: the perf_counter() at which the load began. The check takes a second, or a fifth of the load's time if that
    is more; launches that are left then are checked by the next load. If the driver was or is wrong, it takes what all
    launches need. Raises WrongResultError, after noting the kernels that plans should leave out, and DeviceError if no
    others are known, or if the driver loses launches.
    """
    if is_tested_driver(running.context.info):
        return
    now, wanted = perf_counter(), _unchecked_launches(running.session)
    if not wanted:
        return
    seconds = inf if refused_kernels(running.context.info) else max(SECONDS, (now - started) * PART)
    end, left = now + seconds, list(wanted)
    wrong: list[tuple[int, LaunchVerdict]] = []
    with shutdown_guard, running.context.lock:
        running.context.wait_for_failed_runs()
        for number, found in check_launches(running, wanted):
            left = [n for n in left if n > number]
            if found.verdict == "wrong":
                wrong.append((number, found))
            if found.again or not wrong and perf_counter() > end:
                break
        running.memory.clear_states()
    if wrong:
        _refuse_wrong_kernels(running, wrong)
    PROVED.write(_checked_plan_key(running.session), json.dumps({"left": left}).encode())


def _refuse_wrong_kernels(running: SessionUnderTest, wrong: Sequence[tuple[int, LaunchVerdict]]) -> NoReturn:
    """Notes the kernels of wrong launches: other plans do without them. Raises WrongResultError, DeviceError."""
    from imgconv.checking.launched_nodes import launched_nodes_of

    info, subjects = running.context.info, launched_nodes_of(running.plan, running.graph, running.states)
    about, refused = f"{info.name}, driver {info.driver_version}", refused_kernels(info)
    key_of = running.session.programs.key_of
    noted: set[str] = set()  # several launches may have one kernel
    for number, found in wrong:
        launch = running.plan.launches[number]
        what = f"launch {launch_text(launch)}, kernel {found.kernel}: {found.text}"
        if found.again:
            raise DeviceError(f"{what}. Repeated, it is right: {about} loses launches. {ADVICE}")
        parts = [running.plan.launches[n] for n in (number, *subjects[number].parts)]
        left = [part for part in parts if key_of(part) not in refused]
        if not left:
            raise DeviceError(f"{what}. {about} computes it wrongly with this kernel and every alternative. {ADVICE}")
        for part in left:
            if key_of(part) in noted:
                continue
            noted.add(key_of(part))
            kernel = BuiltKernel("", key_of(part), part.source.path, launch_text(part))
            refuse_wrong_kernel(info, kernel, found.text)
    raise WrongResultError(f"{about} computes {len(wrong)} launches wrongly")


def check_session(running: SessionUnderTest) -> dict[int, LaunchVerdict]:
    """The verdict on each launch that has a subject, by number. Raises DeviceError."""
    with shutdown_guard, running.context.lock:
        running.context.wait_for_failed_runs()
        found = dict(check_launches(running))
        running.memory.clear_states()
    return found


def check_launches(
    running: SessionUnderTest, wanted: Sequence[int] | None = None
) -> Iterator[tuple[int, LaunchVerdict]]:
    """Runs a plan launch by launch on drawn inputs; yields the number of each launch that has a subject, and a verdict.

    wanted: the numbers of those to check, by default all. A wrong launch is launched again: if it is right then, its
    verdict has `again`. Raises DeviceError.
    """
    from imgconv.checking.launched_nodes import launched_nodes_of

    plan, subjects = running.plan, launched_nodes_of(running.plan, running.graph, running.states)
    checked = subjects.keys() if wanted is None else subjects.keys() & set(wanted)
    arrays: dict[Storage, Array] = {}
    last = _last_check_by_storage({n: s for n, s in subjects.items() if n in checked})
    memory = running.memory
    memory.clear_states()
    for value in plan.inputs:
        place = plan.input_buffers[value.name]
        arrays[place] = _random_input(value, place)
        running.context.write(memory[place], arrays[place], place.name)
    arrays |= {texture: memory.content(texture) for texture in plan.states}
    written: set[Storage] = set()
    for number, launch in enumerate(plan.launches):
        if launch.writes not in written:
            running.context.fill(memory[launch.writes], UNTOUCHED)
            written.add(launch.writes)
        _launch_and_wait(running, number)
        if last.get(launch.writes, -1) >= number:
            arrays[launch.writes] = memory.content(launch.writes)
        if number in checked:
            yield number, _check_launch(running, number, subjects[number], arrays)
        for storage in [s for s in arrays if last.get(s, -1) <= number]:
            del arrays[storage]


def _check_launch(
    running: SessionUnderTest, number: int, subject: LaunchedNodes, arrays: dict[Storage, Array]
) -> LaunchVerdict:
    """The verdict on the launch that has just run."""
    from imgconv.checking.comparing import StorageContents, judge_launch

    launch = running.plan.launches[number]
    reads = {s for n in (number, *subject.parts) for s in running.plan.launches[n].reads}
    half = any(s in running.plan.content and s.dtype == "float16" for s in reads)
    contents = StorageContents(running.graph, running.config, arrays, half)
    found = judge_launch(launch, subject, contents, UNTOUCHED, number)
    if found.verdict != "wrong":
        return found
    for _ in range(AGAIN):
        if subject.output.is_whole:
            running.context.fill(running.memory[launch.writes], UNTOUCHED)
        _launch_and_wait(running, number)
        arrays[launch.writes] = running.memory.content(launch.writes)
        if judge_launch(launch, subject, contents, UNTOUCHED, number).verdict == "right":
            return replace(found, again=True)
    return found


def _launch_and_wait(running: SessionUnderTest, number: int) -> None:
    """Launches one kernel, and waits for it; an error names the launch."""
    running.context.sequence([running.session.sequence.launches[number]]).enqueue()
    running.context.finish()


def _last_check_by_storage(subjects: Mapping[int, LaunchedNodes]) -> dict[Storage, int]:
    """The number of the last launch whose check reads each storage."""
    last: dict[Storage, int] = {}
    for number, subject in subjects.items():
        for place in (subject.output, *subject.places.values()):
            last[place.storage] = number
    return last


def _random_input(value: Value, place: Storage) -> Array:
    """An input of random numbers: 0 .. 1 in pictures, else -1 .. 1; zeros and ones for integers, valid as indices."""
    random = numpy.random.default_rng(len(value.name))
    if place.dtype.dtype == numpy.uint8:
        return random.integers(0, 256, place.shape).astype(place.dtype)
    if not value.dtype.startswith("float"):
        return random.integers(0, 2, place.shape).astype(place.dtype)
    low = 0.0 if len(value.shape) == 4 else -1.0
    return random.uniform(low, 1.0, place.shape).astype(place.dtype)
