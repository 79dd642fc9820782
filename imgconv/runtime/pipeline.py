"""Pipeline: keeps several frames of one model in flight, so that their uploads, launches and downloads overlap.

The thread that waits for a frame finishes it: the caller of result(), or the caller of submit() if `depth` frames are
in flight. A thread of the pipeline finishes frames for which no caller waits.

A signal handler may raise an exception at almost any point in the main thread. So a frame stays in the queue until its
Future is done, and the next thread continues where an interrupted one stopped. Locks are only acquired with `with`. If
a lock is written in C, Python runs no handler between its acquisition and the block; threading.Condition is not written
in C.
"""

from __future__ import annotations

import atexit
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from math import inf
from operator import attrgetter
from queue import SimpleQueue
from threading import Condition, Lock, RLock, Thread, current_thread, get_ident, main_thread
from time import monotonic, sleep
from typing import Union, cast

import numpy

from imgconv.arrays import Array, Arrays
from imgconv.cl.shutdown import shutdown_guard
from imgconv.cl.context import is_memory
from imgconv.errors import DeviceError, Error, InputError
from imgconv.preprocessing.video_frame import PackedFrame
from imgconv.runtime.device import QueuedDevice
from imgconv.runtime.io_binding import FrameInput, Inputs, check_exact, check_frame, check_outputs
from imgconv.runtime.frame_memory import FrameMemory, Ticks
from imgconv.runtime.host_fallback import HostFallback
from imgconv.runtime.picture_input import check_pixels
from imgconv.runtime.session import Session

# A frame with fewer bytes of inputs and outputs is copied on the compute queue: a wait for another queue takes a GPU
# tens of microseconds, as long as the copy of this many bytes. Mapping and unmapping shared memory takes as long.
SMALL_FRAME = 1 << 18
# If a wait for a frame takes this many seconds, the device is behind the host: its queue holds launches beside which
# copies can run.
BEHIND = 5e-5
# Seconds between two checks of a frame, and from the last call of submit() until the pipeline's thread checks frames.
# While frames are submitted, submit() itself finishes them, because a second thread, in the driver or in Python, would
# slow down the thread that enqueues (by 5 % for many short launches on an H200).
LOOK, SETTLED = 1e-3, 1e-2
# Seconds after which a thread that waits for another one looks by itself: an interrupted thread may not have woken it.
UNNOTICED = 0.1

FrameOutcome = tuple[dict[str, Array], Union[BaseException, None]]


class _Condition(Condition):
    """threading.Condition that `with` takes and releases as safely as its lock."""

    __enter__ = property(attrgetter("_lock.__enter__"))
    __exit__ = property(attrgetter("_lock.__exit__"))


class Frame(Future[dict[str, Array]]):
    """The Future of one submitted frame's outputs, which Model.submit returns. It runs at once and cannot be cancelled.

    If the frame takes over 600 s (Limits.run_seconds), the device is abandoned, and the frame fails with a DeviceError.
    An exception that a signal handler raises, as for Ctrl-C, ends the wait but not the frame: result() can be called
    again.

        frame = model.submit({"x": array})
        frame.result()["y"]                     # waits; raises errors of the device

    tag: the argument of submit. ticks: start and end of its 'upload', 'compute' and 'download', in nanoseconds of the
    device's clock, once it is done; empty unless the context was opened with profile=True.
    """

    def __init__(
        self, pipeline: Pipeline, direct: Arrays, outputs: Mapping[str, Array], tag: object = None
    ) -> None:
        """direct: the inputs that the host reads. outputs: the caller's arrays."""
        super().__init__()
        self._condition = _Condition()  # Future's
        self.direct, self.outputs, self.tag = direct, outputs, tag
        self.ticks: Mapping[str, Ticks] = {}
        self._pipeline: Pipeline | None = pipeline  # until it is done
        self._memory: FrameMemory | None = None
        self._outcome: FrameOutcome | None = None
        self._oldest_since = inf  # as the pipeline's thread saw it
        self.set_running_or_notify_cancel()

    def result(self, timeout: float | None = None) -> dict[str, Array]:
        """The outputs by name. Raises RangeError, DeviceError, and futures' TimeoutError after `timeout` seconds."""
        self._finish(timeout)
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The exception of result(), or None. Raises futures' TimeoutError after `timeout` seconds."""
        self._finish(timeout)
        return super().exception(timeout)

    def _finish(self, timeout: float | None = None) -> None:
        """Waits until it is done. This thread finishes it and the earlier frames, unless another thread does.

        timeout: seconds after which it may return before that.
        """
        if timeout is not None:
            end = monotonic() + timeout
            while not self._is_over():
                if monotonic() >= end:
                    return
                sleep(LOOK)
        pipeline = self._pipeline
        if pipeline is not None:
            pipeline.finish_through(self)

    def _is_over(self) -> bool:
        """Returns whether the device has finished its work."""
        memory = self._memory
        return memory is None or memory.is_over()

    def _finish_unasked(self) -> None:
        """Finishes it, the oldest one, if the device has finished its work, or is abandoned since it takes too long."""
        memory, now = self._memory, monotonic()
        if memory is None:
            self._finish()
            return
        context = memory.context
        self._oldest_since = min(self._oldest_since, now)
        if now - self._oldest_since > context.watchdog.timeout:
            with suppress(DeviceError):
                context.watchdog.abandon(context.watchdog.timeout)
        if context.watchdog.reason or memory.is_over():
            self._finish()

    def _wait(self) -> None:
        """Waits until the device has finished its work, or is abandoned; does not fetch the outputs."""
        memory = self._memory
        if memory is not None:
            with suppress(Exception):
                memory.finish()


class Pipeline:
    """A session's frames in flight. Each frame has its own memory for inputs and outputs; textures and kernels are
    shared.

    Uploads, launches and downloads have separate queues if frames are large, the device has its own memory, and it is
    slower than the host; otherwise they share one. A frame takes plan.buffer_bytes on the device, and the same number
    of bytes of the host's pinned memory if the device has its own memory.
    """

    def __init__(self, session: Session, fallback: HostFallback | None = None) -> None:
        """fallback: what the host computes of the outputs. Raises DeviceError. Frames allocate the memory they need."""
        self._session = session
        self._fallback = fallback
        self._context = context = cast(QueuedDevice, session.context)
        self._small = session.plan.buffer_bytes < SMALL_FRAME
        # The queues of uploads and of downloads.
        self._queues = context.queue, context.queue
        if not (self._small or context.info.shares_memory):
            self._queues = context.new_queue(), context.new_queue()
        # Guards what follows, up to `_waiting`.
        self._lock = RLock()
        self._free: list[FrameMemory] = []
        self._busy: set[Frame] = set()  # those that have memory
        self._finisher: int | None = None  # the thread that finishes frames; callbacks of a frame may submit the next
        self._waiting: list[Lock] = []  # one for each thread that waits for a change
        self._watch = watch = _FrameWatch()
        self._under_way = watch.frames
        # Whether the device is behind the host.
        self._behind = False
        # The thread refers to the frames in flight only, so that an unused pipeline is collected.
        thread = Thread(target=_finish_all, args=(watch,), name="imgconv frames", daemon=True)
        at_exit = partial(_finish_frames_at_exit, watch, thread)
        # The end of the interpreter, which joins the thread, waits until it is started.
        with shutdown_guard:
            atexit.register(at_exit)
            weakref.finalize(self, _end_thread, watch, at_exit).atexit = False
            thread.start()

    @property
    def bytes(self) -> int:
        """Bytes of device memory that frames take, in addition to the plan's."""
        return (len(self._free) + len(self._busy)) * self._session.plan.buffer_bytes

    def submit(
        self, inputs: Inputs, depth: int, outputs: Mapping[str, Array] | None = None, tag: object = None
    ) -> Frame:
        """Starts a frame; waits first while `depth` frames are in flight.

        The arrays are copied before it returns. outputs: arrays to fill for some outputs. Raises InputError for inputs
        and outputs that do not fit, and ResourceError if there is no memory for a frame. The frame's result() raises
        later failures.
        """
        if not isinstance(depth, (int, numpy.integer)) or depth < 1:
            raise InputError(f"depth is {depth!r}; it must be an integer, the frames in flight, of at least 1")
        shutdown_guard.check()
        frames = [each.memory for each in inputs.values() if isinstance(each, PackedFrame)]
        if any(map(is_memory, (*inputs.values(), *frames))):
            raise InputError("submit() accepts only arrays; run() also accepts OpenCL buffers and images")
        arrays = check_frame(self._session.plan, inputs)
        check_pixels(self._session.plan, self._fallback, arrays)
        check_exact(self._session.plan, arrays)
        wanted = outputs or {}
        on_device = wanted if self._fallback is None else self._fallback.outputs_on_device(wanted)
        check_outputs(self._session.plan.outputs, on_device)
        direct = {} if self._fallback is None else self._fallback.arrays_of_inputs(arrays, copy=True)
        frame = Frame(self, direct, wanted, tag)
        try:
            self._finish_frames_until(partial(self._give_memory, frame, depth))
            self._start(frame, arrays)
        except BaseException as error:
            had_memory = frame._memory is not None
            self._abandon(frame, error)
            if not (had_memory and isinstance(error, Error)):
                raise
        self._wake()
        return frame

    def _start(self, frame: Frame, arrays: Mapping[str, FrameInput]) -> None:
        context, memory = self._context, frame._memory
        assert memory is not None
        memory.fill(arrays)
        with shutdown_guard, context.lock:
            memory.start(*(self._queues if self._behind else (context.queue, context.queue)))
            self._watch.add(frame)

    def _abandon(self, frame: Frame, error: BaseException) -> None:
        """Ends a frame that could not be started. One that was started before an interruption goes on unseen."""
        if frame in tuple(self._under_way):
            frame.outputs = {}
            return
        self._retire(frame, error)
        frame.set_exception(error)
        frame._pipeline = None

    def finish_through(self, frame: Frame) -> None:
        """Finishes the frames up to this one; may leave the last step to another thread."""
        shutdown_guard.check()
        self._finish_frames_until(lambda: frame._pipeline is None)

    def _finish_frames_until(self, is_served: Callable[[], bool]) -> None:
        """Finishes the oldest frames, or waits while another thread does, until `is_served`, which has the lock."""
        thread = get_ident()
        is_nested = self._finisher == thread
        while True:
            waiter = None
            try:
                with self._lock:
                    if is_served():
                        return
                    if self._under_way and self._finisher in (None, thread):
                        self._finisher = thread
                    else:
                        waiter = Lock()
                        waiter.acquire()
                        self._waiting.append(waiter)
                if waiter is None:
                    self._finish_oldest()
            finally:
                if self._finisher == thread and not is_nested:
                    self._finisher = None
                    self._wake()
            if waiter is not None:
                waiter.acquire(timeout=UNNOTICED)

    def _finish_oldest(self) -> None:
        """Waits for the oldest frame and sets its outputs; continues what was interrupted. This is the finisher."""
        frame = self._under_way[0]
        if frame._outcome is None:
            frame._outcome = self._finish_frame(frame)
        outputs, failure = frame._outcome
        self._retire(frame, failure)
        if not frame.done():
            frame.set_result(outputs) if failure is None else frame.set_exception(failure)
        frame._pipeline = None
        if self._under_way and self._under_way[0] is frame:  # a callback may have removed it
            self._under_way.popleft()

    def _finish_frame(self, frame: Frame) -> FrameOutcome:
        """The frame's outputs, or its failure. Raises what interrupts the wait: the frame does not fail by that."""
        memory, outputs = frame._memory, frame.outputs
        assert memory is not None
        try:
            with shutdown_guard:
                start = monotonic()
                memory.finish()
                self._behind = monotonic() - start > BEHIND
                made = memory.results(outputs if self._fallback is None else self._fallback.outputs_on_device(outputs))
                frame.ticks = memory.ticks()
                return (made if self._fallback is None else self._fallback.finish(made, frame.direct, outputs)), None
        except Exception as error:
            # What a signal handler raises in the main thread is for the caller that waits.
            if not isinstance(error, Error) and current_thread() is main_thread():
                raise
            return {}, error

    def _give_memory(self, frame: Frame, depth: int) -> bool:
        """Gives the frame memory, unless `depth` frames are in flight. The caller has the lock."""
        if len(self._busy) >= depth:
            return False
        self._busy.add(frame)
        frame._memory = self._free.pop() if self._free else FrameMemory(self._session, not self._small)
        return True

    def _retire(self, frame: Frame, failure: BaseException | None) -> None:
        """Returns the frame's memory for the next one. After a failure it may be mapped, or in use by the device."""
        if failure is not None and frame._memory is not None:
            with shutdown_guard:
                self._context.clean_up_after(failure, frame._memory, self._queues)
        with self._lock:
            memory, frame._memory = frame._memory, None
            if memory is not None and failure is None:
                self._free.append(memory)
            self._busy.discard(frame)
        self._wake()

    def _wake(self) -> None:
        """Wakes the threads that wait: there is memory, a frame to finish, or no other thread that finishes frames."""
        with self._lock:
            while self._waiting:
                self._waiting.pop().release()


class _FrameWatch:
    """The frames in flight, oldest first, for the thread that finishes those for which no caller waits."""

    def __init__(self) -> None:
        self.frames: deque[Frame] = deque()
        self.submitted = monotonic()
        # Whether the thread waits for a token. A token is True if there is a frame, False if the thread must end.
        self.sleeps = True
        self.tokens: SimpleQueue[bool] = SimpleQueue()

    def add(self, frame: Frame) -> None:
        """Adds the newest frame."""
        self.frames.append(frame)
        self.submitted = monotonic()
        if self.sleeps:
            self.wake()

    def wake(self) -> None:
        """Lets the thread look at the frames."""
        self.sleeps = False
        self.tokens.put(True)

    def seconds_until_unattended(self) -> float:
        """Seconds until the thread may look, if submit() is not called meanwhile."""
        return self.submitted + SETTLED - monotonic()


def _finish_all(watch: _FrameWatch) -> None:
    while watch.tokens.get():
        while watch.frames:
            sleep(max(LOOK, watch.seconds_until_unattended()))
            # Another thread may be finishing the last of them.
            with suppress(IndexError):
                if watch.seconds_until_unattended() <= 0:
                    watch.frames[0]._finish_unasked()
        watch.sleeps = True
        if watch.frames:
            watch.wake()


def _end_thread(watch: _FrameWatch, at_exit: Callable[[], None]) -> None:
    """Ends the thread after the frames in flight; called once the pipeline is collected."""
    atexit.unregister(at_exit)
    watch.tokens.put(False)


def _finish_frames_at_exit(watch: _FrameWatch, thread: Thread) -> None:
    """Finishes the frames in flight before the interpreter ends, because the driver's library is unloaded then."""
    if shutdown_guard.forked:
        return
    shutdown_guard.close_and_wait()
    for frame in tuple(watch.frames):
        with suppress(Exception):
            frame._finish()
    # Frames that callbacks submitted meanwhile.
    for frame in tuple(watch.frames):
        frame._wait()
    watch.tokens.put(False)
    if thread.ident is not None:  # a signal handler that raised may have kept it from starting
        thread.join()
