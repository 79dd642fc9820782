"""Pipeline: frames of one model under way together, so that upload, compute and download of successive ones overlap.

Whoever waits for a frame finishes it, without another thread between: the caller of result(), and that of submit()
where `depth` frames are under way. A thread of the pipeline finishes those that nobody waits for in time.
"""

from __future__ import annotations

import atexit
import weakref
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from threading import Condition, RLock, Thread
from time import monotonic, sleep
from typing import Any

import numpy

from imgconv.cl.ending import driver_use
from imgconv.cl.queue import Event, enqueue_barrier, enqueue_marker, is_over, span, wait
from imgconv.cl.transfer import finish_queue, is_memory, new_queue
from imgconv.compiling.plan import Storage
from imgconv.errors import Error, InputError
from imgconv.running.exchange import check_exact, check_inputs, converted, moved_outputs
from imgconv.running.session import Session

Ticks = tuple[int, int]
# Bytes of a frame's inputs and outputs under which a copy is the cheapest: a wait for another queue is tens of
# microseconds of a GPU's time, as the copy of this many bytes is; so is handing shared memory back and forth.
SMALL_FRAME = 1 << 18
# Seconds of waiting for a frame that say that the device is behind the host: its queue holds launches to hide copies
# behind.
BEHIND = 5e-5
# Seconds between two looks at a frame, and since the last call of submit() before the pipeline's thread looks. While
# frames are submitted they are finished there: a second thread, waiting in the driver or at work in Python, takes turns
# with the one that enqueues (5 % of the throughput of many short launches on an H200).
LOOK, SETTLED = 1e-3, 1e-2


class Frame(Future[dict[str, Any]]):
    """The outputs of one submitted frame, to come. It runs from the start on, so it cannot be cancelled.

    ticks: when its 'upload', 'compute' and 'download' started and ended, in nanoseconds of the device's clock, once it
    is done and where the context was opened with profile=True.
    """

    def __init__(self, pipeline: Pipeline, slot: _Slot) -> None:
        super().__init__()
        self.ticks: Mapping[str, Ticks] = {}
        self._work: tuple[Pipeline, _Slot] | None = (pipeline, slot)
        self.set_running_or_notify_cancel()

    def result(self, timeout: float | None = None) -> dict[str, Any]:
        """The outputs by name. Raises RangeError, DeviceError, and TimeoutError after as many seconds."""
        self._finish(timeout)
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What result() raises, or None. Raises TimeoutError after as many seconds."""
        self._finish(timeout)
        return super().exception(timeout)

    def _finish(self, timeout: float | None = None) -> None:
        """Waits until it is done: this thread finishes it, and those before it, unless another one is about to.

        timeout: seconds after which it may return without.
        """
        if timeout is not None:
            # A wait in the driver cannot be given up.
            end = monotonic() + timeout
            while not self._is_over():
                if monotonic() >= end:
                    return
                sleep(LOOK)
        work = self._work
        if work is not None:
            work[0].finish_through(self)

    def _is_over(self) -> bool:
        """Whether the device has nothing left to do for it."""
        work = self._work
        return work is None or work[1].is_over()

    def _wait(self) -> None:
        """Waits until the device has nothing left to do for it, and no more."""
        work = self._work
        if work is not None:
            with suppress(Error):
                work[1].finish()

    def _take_slot(self) -> _Slot:
        """Its memory, which it does not know from here on."""
        assert self._work is not None
        _, slot = self._work
        self._work = None
        return slot


class Pipeline:
    """A session's frames, each in memory of its own for inputs and outputs; textures and kernels are shared.

    Where frames are large, and the device has memory of its own and is behind the host, uploads, launches and downloads
    go through a queue each, else through one. On the device a frame takes plan.buffer_bytes, and as many bytes of the
    host's pinned memory where these are two.
    """

    def __init__(self, session: Session) -> None:
        """Raises DeviceError. Memory is taken when frames need it."""
        self._session = session
        context = session.context
        self._small = session.plan.buffer_bytes < SMALL_FRAME
        # Of uploads and of downloads.
        self._queues = context.queue, context.queue
        if not (self._small or context.info.shares_memory):
            self._queues = new_queue(context), new_queue(context)
        self._free: list[_Slot] = []
        self._slots = 0
        self._busy = 0
        self._changed = Condition()
        self._watch = watch = _Watch()
        self._under_way = watch.frames
        # Whether the device is behind the host.
        self._behind = False
        # Held by the thread that finishes frames; the functions that the caller added to a frame may submit the next.
        self._finishing = RLock()
        # The thread knows the frames under way only: a pipeline that nobody holds any more is collected.
        thread = Thread(target=_finish_all, args=(watch,), name="imgconv frames", daemon=True)
        at_exit = partial(_stop, watch, thread)
        atexit.register(at_exit)
        weakref.finalize(self, _collected, watch, at_exit).atexit = False
        thread.start()

    @property
    def bytes(self) -> int:
        """Device memory of the frames, beside that of the plan."""
        return self._slots * self._session.plan.buffer_bytes

    def submit(self, inputs: Mapping[str, Any], depth: int) -> Frame:
        """Starts a frame; waits first while `depth` frames are under way.

        The arrays are copied before it returns. Raises InputError for inputs that do not fit, and ResourceError where
        there is no memory for a frame; what fails later is raised by the frame's result().
        """
        if depth < 1:
            raise InputError(f"depth {depth}: at least one frame has to be under way")
        context = self._session.context
        if any(map(is_memory, inputs.values())):
            raise InputError("a submitted frame takes arrays; run() takes OpenCL buffers and images")
        arrays = check_inputs(self._session.plan.inputs, inputs)
        check_exact(self._session.plan, arrays)
        slot = self._acquire(depth)
        frame = Frame(self, slot)
        try:
            slot.fill(arrays)
            with driver_use, context.lock:
                slot.start(*(self._queues if self._behind else (context.queue, context.queue)))
                self._watch.add(frame)
        except BaseException as error:
            with suppress(ValueError):
                self._under_way.remove(frame)
            frame._take_slot()
            self._drop(slot)
            frame.set_exception(error)
            if not isinstance(error, Error):
                raise
        return frame

    def finish_through(self, frame: Frame) -> None:
        """Waits until a frame is done, and with it those before it; or leaves the last of it to another thread."""
        while frame._work is not None:
            try:
                with self._finishing:
                    if frame._work is not None:
                        self._finish_oldest()
            finally:
                self._wake()

    def _finish_oldest(self) -> None:
        """Waits for the frame that was submitted first, and gives it its outputs. The caller holds `_finishing`."""
        outputs, failure = {}, None
        with driver_use:
            frame = self._under_way.popleft()
            slot = frame._take_slot()
            try:
                start = monotonic()
                slot.finish()
                self._behind = monotonic() - start > BEHIND
                outputs = slot.results()
                frame.ticks = slot.ticks()
            except BaseException as error:
                self._drop(slot)
                failure = error
            else:
                self._release(slot)
        if failure is None:
            frame.set_result(outputs)
            return
        frame.set_exception(failure)
        if not isinstance(failure, Exception):
            raise failure

    def _acquire(self, depth: int) -> _Slot:
        """A slot; finishes frames while `depth` of them are under way."""
        while True:
            with self._changed:
                if self._busy < depth:
                    slot = self._free.pop() if self._free else self._new_slot()
                    self._busy += 1
                    return slot
                if not (self._under_way and self._finishing.acquire(blocking=False)):
                    self._changed.wait()  # another thread finishes frames, or is about to start one
                    continue
            try:
                if self._under_way:
                    self._finish_oldest()
            finally:
                self._finishing.release()
                self._wake()

    def _wake(self) -> None:
        """Lets who waits for a slot look again: the thread that finished frames may have ended with the interpreter."""
        with self._changed:
            self._changed.notify_all()

    def _new_slot(self) -> _Slot:
        slot = _Slot(self._session, not self._small)
        self._slots += 1
        return slot

    def _release(self, slot: _Slot) -> None:
        """Lets the next frame have the slot."""
        with self._changed:
            self._free.append(slot)
            self._busy -= 1
            self._changed.notify_all()

    def _drop(self, slot: _Slot) -> None:
        """Takes a slot out of use in which something failed: nobody knows who has its memory, host or device."""
        try:
            with driver_use:
                for queue in {self._session.context.queue, *self._queues}:
                    finish_queue(queue)
        finally:
            with self._changed:
                self._slots -= 1
                self._busy -= 1
                self._changed.notify_all()


class _Slot:
    """The memory of one frame, and what of it is enqueued."""

    def __init__(self, session: Session, shared: bool) -> None:
        plan = session.plan
        self.context = session.context
        self.lane, self.ports = session.new_lane(shared)
        self.inputs = [(name, self.ports[place]) for name, place in plan.input_buffers.items()]
        places = {value: plan.output_buffers.get(value.name) for value in plan.outputs}
        self.outputs = [(value, None if place is None else self.ports[place]) for value, place in places.items()]
        self.plan = plan
        self.moved: dict[str, Any] = {}
        # A buffer that is shared goes to the device and comes back, whatever it holds.
        self.sent = [p for place, p in self.ports.items() if p.shares or place in plan.input_buffers.values()]
        self.fetched = [p for place, p in self.ports.items() if p.shares or place in plan.output_buffers.values()]
        self.uploads: list[Event] = []
        self.computing: list[Event] = []
        self.downloads: list[Event] = []

    def fill(self, arrays: Mapping[str, Any]) -> None:
        """Copies checked inputs to where the device takes them from, in the dtypes that are stored."""
        for name, port in self.inputs:
            array = arrays[name]
            numpy.copyto(port.array.reshape(array.shape), array, casting="unsafe")
        self.moved = moved_outputs(self.plan, arrays)

    def results(self) -> dict[str, Any]:
        """The outputs of a frame that is finished, as new arrays."""
        made = {v.name: converted(v, port.array, copy=True) for v, port in self.outputs if port is not None}
        constants = {name: array.copy() for name, array in self.plan.constant_outputs.items()}
        made |= self.moved | constants
        return {value.name: made[value.name] for value, _ in self.outputs}

    def start(self, uploading: Any, downloading: Any) -> None:
        """Enqueues the frame behind the frames before, its copies on these queues."""
        context = self.context
        apart = uploading is not context.queue
        awaited = apart or context.profile
        self.uploads = [event for port in self.sent for event in port.to_device(context, uploading, awaited)]
        self.computing = []
        if apart:
            uploading.flush()
        if awaited:
            self.computing.append(enqueue_barrier(context, self.uploads))
        self.lane.enqueue()
        if awaited:
            self.computing.append(enqueue_marker(context))
        if apart:
            context.queue.flush()
        computed = self.computing[-1:] if apart else None
        self.downloads = [e for port in self.fetched for e in port.to_host(context, downloading, awaited, computed)]
        if not awaited:
            # Intel's CPU driver computes on one core less for a host that waits for a copy.
            self.computing.append(enqueue_marker(context))
        downloading.flush()

    def finish(self) -> None:
        """Waits for the frame. Raises DeviceError, ResourceError."""
        wait(self.context, [*self.computing, *self.downloads])

    def is_over(self) -> bool:
        """Whether it was finished, or could be without a wait."""
        return is_over([*self.computing, *self.downloads])

    def ticks(self) -> dict[str, Ticks]:
        """See Frame; of a queue that records no times, nothing."""
        if not self.context.profile:
            return {}
        # The barrier ends where the uploads are there, the marker where the launches are over.
        computed = span(self.computing[:1])[1], span(self.computing[1:])[1]
        parts = {"upload": self.uploads, "download": self.downloads}
        return {"compute": computed, **{name: span(events) for name, events in parts.items() if events}}


class Mapped:
    """The memory of a run's inputs and outputs, for a caller who fills and reads it in place.

    On a device that shares the host's memory nothing is copied; others copy from and to pinned memory. The arrays have
    the dtypes that are stored: those of plan.input_buffers and plan.output_buffers.
    """

    def __init__(self, session: Session) -> None:
        """Raises ResourceError; InputError where integers only move, which a device's floats would round."""
        if session.plan.moved is not None:
            raise InputError(f"output {session.plan.moved.outputs[0]!r} is not made on the device: use run or submit")
        self._session = session
        self._slot = _Slot(session, True)

    @property
    def inputs(self) -> dict[str, Any]:
        """An array for each input, to fill. A run ends their use: take them anew for the next."""
        plan = self._session.plan
        return {v.name: self._array(plan.input_buffers[v.name]).reshape(v.shape) for v in plan.inputs}

    @property
    def outputs(self) -> dict[str, Any]:
        """An array for each output, as the last run left it, until the next run. Constant outputs are constant."""
        plan = self._session.plan
        places = {v.name: plan.output_buffers.get(v.name) for v in plan.outputs}
        return {
            name: plan.constant_outputs[name] if place is None else self._array(place) for name, place in places.items()
        }

    def run(self) -> dict[str, Any]:
        """Runs the model on `inputs`; `outputs`. Threads take turns, but not over one Mapped. Raises DeviceError."""
        with driver_use:
            self._run()
        return self.outputs

    def _run(self) -> None:
        context = self._session.context
        try:
            with context.lock:
                self._slot.start(context.queue, context.queue)
            self._slot.finish()
        except BaseException:
            finish_queue(context.queue)
            self._slot = _Slot(self._session, True)
            raise

    def _array(self, place: Storage) -> Any:
        return self._slot.ports[place].array


class _Watch:
    """The frames under way, first to last, for the thread that finishes those that nobody waits for."""

    def __init__(self) -> None:
        self.frames: deque[Frame] = deque()
        self.submitted = monotonic()
        # Whether the thread waits for a token: True where there is a frame, False where it is to end.
        self.sleeps = True
        self.tokens: SimpleQueue[bool] = SimpleQueue()

    def add(self, frame: Frame) -> None:
        """Adds the last frame."""
        self.frames.append(frame)
        self.submitted = monotonic()
        if self.sleeps:
            self.wake()

    def wake(self) -> None:
        """Lets the thread look at the frames."""
        self.sleeps = False
        self.tokens.put(True)

    def settles_in(self) -> float:
        """Seconds until there was no call of submit() for a while."""
        return self.submitted + SETTLED - monotonic()


def _finish_all(watch: _Watch) -> None:
    while watch.tokens.get():
        while watch.frames:
            sleep(max(LOOK, watch.settles_in()))
            # Another thread may finish the last of them now.
            with suppress(IndexError):
                if watch.settles_in() <= 0 and watch.frames[0]._is_over():
                    watch.frames[0]._finish()
        watch.sleeps = True
        if watch.frames:
            watch.wake()


def _collected(watch: _Watch, at_exit: Any) -> None:
    """The thread ends with the frames that are under way."""
    atexit.unregister(at_exit)
    watch.tokens.put(False)


def _stop(watch: _Watch, thread: Thread) -> None:
    """Before the interpreter ends, the frames that are under way do: the driver's library is unloaded after that."""
    driver_use.end()
    for frame in tuple(watch.frames):
        frame._finish()
    # Those that the callers' functions submitted meanwhile.
    for frame in tuple(watch.frames):
        frame._wait()
    watch.tokens.put(False)
    thread.join()
