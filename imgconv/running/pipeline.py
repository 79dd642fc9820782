"""Pipeline: frames of one model in flight together, so that upload, compute and download of successive ones overlap.

The thread that waits for a frame finishes it: the caller of result(), or the caller of submit() if `depth` frames are
in flight. A thread of the pipeline finishes frames for which no caller waits.
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
from queue import SimpleQueue
from threading import Condition, RLock, Thread
from time import monotonic, sleep

from imgconv.arrays import Array, Arrays
from imgconv.cl.ending import driver_use
from imgconv.cl.queue import drain
from imgconv.cl.transfer import is_memory, new_queue
from imgconv.errors import DeviceError, Error, InputError
from imgconv.running.exchange import Inputs, check_exact, check_frame, check_outputs
from imgconv.running.frame_memory import FrameMemory, Ticks
from imgconv.running.host_tail import HostTail
from imgconv.running.picture_port import check_pixels
from imgconv.running.session import Session

# A frame with fewer bytes of inputs and outputs is copied on the compute queue: a wait for another queue takes a GPU
# tens of microseconds, as long as the copy of this many bytes. Mapping and unmapping shared memory takes as long.
SMALL_FRAME = 1 << 18
# If a wait for a frame takes this many seconds, the device is behind the host: its queue holds launches beside which
# copies can run.
BEHIND = 5e-5
# Seconds between two looks at a frame, and from the last call of submit() until the pipeline's thread looks. As long as
# frames are submitted, submit() finishes them: a second thread, in the driver or in Python, takes turns with the one
# that enqueues (5 % of the throughput of many short launches on an H200).
LOOK, SETTLED = 1e-3, 1e-2


class Frame(Future[dict[str, Array]]):
    """The Future of one submitted frame's outputs: Model.submit returns it. It runs at once and cannot be cancelled.

    If no caller waits for it in result() or exception(), and the device takes over 600 s for it (Limits.run_seconds, if
    it is given), the device is given up and it fails with a DeviceError.

        frame = model.submit({"x": array})
        frame.result()["y"]                     # waits; raises what failed on the device

    ticks: start and end of its 'upload', 'compute' and 'download', in nanoseconds of the device's clock, once it is
    done; empty unless the context was opened with profile=True.
    """

    def __init__(self, pipeline: Pipeline, memory: FrameMemory, direct: Arrays, outputs: Mapping[str, Array]) -> None:
        """direct: the inputs that the host reads. outputs: the caller's arrays."""
        super().__init__()
        self.direct, self.outputs = direct, outputs
        self.ticks: Mapping[str, Ticks] = {}
        self._work: tuple[Pipeline, FrameMemory] | None = (pipeline, memory)
        self._oldest_since = inf  # as the pipeline's thread saw it
        self.set_running_or_notify_cancel()

    def result(self, timeout: float | None = None) -> dict[str, Array]:
        """The outputs by name. Raises RangeError, DeviceError, and TimeoutError after `timeout` seconds."""
        self._finish(timeout)
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """The exception that result() raises, or None. Raises TimeoutError after `timeout` seconds."""
        self._finish(timeout)
        return super().exception(timeout)

    def _finish(self, timeout: float | None = None) -> None:
        """Waits until it is done. This thread finishes it and the earlier frames, unless another thread does.

        timeout: seconds after which it may return before that.
        """
        if timeout is not None:
            # A wait in the driver cannot be interrupted.
            end = monotonic() + timeout
            while not self._is_over():
                if monotonic() >= end:
                    return
                sleep(LOOK)
        work = self._work
        if work is not None:
            work[0].finish_through(self)

    def _is_over(self) -> bool:
        """Whether the device has finished its work."""
        work = self._work
        return work is None or work[1].is_over()

    def _finish_unasked(self) -> None:
        """Finishes it, the oldest one, if the device has finished its work, or is given up since it takes too long."""
        work, now = self._work, monotonic()
        if work is None:
            return
        context = work[1].context
        self._oldest_since = min(self._oldest_since, now)
        if now - self._oldest_since > context.patience:
            with suppress(DeviceError):
                context.give_up()
        if context.given_up.is_set() or work[1].is_over():
            self._finish()

    def _wait(self) -> None:
        """Waits until the device has finished its work, or is given up; does not fetch the outputs."""
        work = self._work
        if work is not None:
            with suppress(Exception):
                work[1].wait_within()

    def _take_memory(self) -> FrameMemory:
        """Its memory, which the frame gives up."""
        assert self._work is not None
        _, memory = self._work
        self._work = None
        return memory


class Pipeline:
    """A session's frames, each in memory of its own for inputs and outputs; textures and kernels are shared.

    If frames are large, and the device has its own memory and is behind the host, then uploads, launches and downloads
    have a queue each; else they share one. A frame takes plan.buffer_bytes on the device, and as many bytes of the
    host's pinned memory if the device has its own memory.
    """

    def __init__(self, session: Session, tail: HostTail | None = None) -> None:
        """tail: what the host computes of the outputs. Raises DeviceError. Frames allocate the memory they need."""
        self._session = session
        self._tail = tail
        context = session.context
        self._small = session.plan.buffer_bytes < SMALL_FRAME
        # The queues of uploads and of downloads.
        self._queues = context.queue, context.queue
        if not (self._small or context.info.shares_memory):
            self._queues = new_queue(context), new_queue(context)
        self._free: list[FrameMemory] = []
        self._frames = 0
        self._busy = 0
        self._changed = Condition()
        self._watch = watch = _Watch()
        self._under_way = watch.frames
        # Whether the device is behind the host.
        self._behind = False
        # Held by the thread that finishes frames; callbacks of a frame may submit the next one.
        self._finishing = RLock()
        # The thread refers to the frames in flight only, so that an unused pipeline is collected.
        thread = Thread(target=_finish_all, args=(watch,), name="imgconv frames", daemon=True)
        at_exit = partial(_stop, watch, thread)
        # The end of the interpreter, which joins the thread, waits until it is started.
        with driver_use:
            atexit.register(at_exit)
            weakref.finalize(self, _collected, watch, at_exit).atexit = False
            thread.start()

    @property
    def bytes(self) -> int:
        """Bytes of device memory of the frames, beside that of the plan."""
        return self._frames * self._session.plan.buffer_bytes

    def submit(self, inputs: Inputs, depth: int, outputs: Mapping[str, Array] | None = None) -> Frame:
        """Starts a frame; waits first while `depth` frames are in flight.

        The arrays are copied before it returns. outputs: arrays to fill for some outputs. Raises InputError for inputs
        and outputs that do not fit, and ResourceError if there is no memory for a frame. The frame's result() raises
        later failures.
        """
        if depth < 1:
            raise InputError(f"depth {depth}: at least one frame has to be under way")
        driver_use.check()
        context = self._session.context
        if any(map(is_memory, inputs.values())):
            raise InputError("a submitted frame takes arrays; run() takes OpenCL buffers and images")
        arrays = check_frame(self._session.plan.inputs, inputs)
        check_pixels(self._session.plan, self._tail, arrays)
        check_exact(self._session.plan, arrays)
        wanted = outputs or {}
        check_outputs(self._session.plan.outputs, wanted if self._tail is None else self._tail.on_device(wanted))
        memory = self._acquire(depth)
        frame = Frame(self, memory, {} if self._tail is None else self._tail.inputs_of(arrays, copy=True), wanted)
        try:
            memory.fill(arrays)
            with driver_use, context.lock:
                memory.start(*(self._queues if self._behind else (context.queue, context.queue)))
                self._watch.add(frame)
        except BaseException as error:
            with suppress(ValueError):
                self._under_way.remove(frame)
            frame._take_memory()
            self._drop(memory)
            frame.set_exception(error)
            if not isinstance(error, Error):
                raise
        self._wake()
        return frame

    def finish_through(self, frame: Frame) -> None:
        """Finishes the frames up to this one; may leave the last step to another thread."""
        driver_use.check()
        while frame._work is not None:
            try:
                with self._finishing:
                    if frame._work is not None:
                        self._finish_oldest()
            finally:
                self._wake()

    def _finish_oldest(self) -> None:
        """Waits for the oldest frame and sets its outputs. The caller holds `_finishing`."""
        outputs, failure = {}, None
        with driver_use:
            frame = self._under_way.popleft()
            memory = frame._take_memory()
            try:
                start = monotonic()
                memory.finish()
                self._behind = monotonic() - start > BEHIND
                outputs = memory.results(frame.outputs if self._tail is None else self._tail.on_device(frame.outputs))
                frame.ticks = memory.ticks()
                if self._tail is not None:
                    outputs = self._tail.finish(outputs, frame.direct, frame.outputs)
            except BaseException as error:
                self._drop(memory)
                failure = error
            else:
                self._release(memory)
        if failure is None:
            frame.set_result(outputs)
            return
        frame.set_exception(failure)
        if not isinstance(failure, Exception):
            raise failure

    def _acquire(self, depth: int) -> FrameMemory:
        """Memory for a frame; finishes frames while `depth` of them are in flight."""
        while True:
            with self._changed:
                if self._busy < depth:
                    memory = self._free.pop() if self._free else self._new_memory()
                    self._busy += 1
                    return memory
                if not (self._under_way and self._finishing.acquire(blocking=False)):
                    self._changed.wait()  # another thread finishes or starts a frame
                    continue
            try:
                if self._under_way:
                    self._finish_oldest()
            finally:
                self._finishing.release()
                self._wake()

    def _wake(self) -> None:
        """Wakes threads that wait for memory: there is a frame to finish, or no other thread finishes frames."""
        with self._changed:
            self._changed.notify_all()

    def _new_memory(self) -> FrameMemory:
        memory = FrameMemory(self._session, not self._small)
        self._frames += 1
        return memory

    def _release(self, memory: FrameMemory) -> None:
        """Returns the memory for the next frame."""
        with self._changed:
            self._free.append(memory)
            self._busy -= 1
            self._changed.notify_all()

    def _drop(self, memory: FrameMemory) -> None:
        """Discards memory after a failure: it may still be mapped, or in use by the device."""
        try:
            with driver_use:
                drain(self._session.context, self._queues)
        finally:
            with self._changed:
                self._frames -= 1
                self._busy -= 1
                self._changed.notify_all()


class _Watch:
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

    def settles_in(self) -> float:
        """Seconds until the thread may look, if submit() is not called meanwhile."""
        return self.submitted + SETTLED - monotonic()


def _finish_all(watch: _Watch) -> None:
    while watch.tokens.get():
        while watch.frames:
            sleep(max(LOOK, watch.settles_in()))
            # Another thread may be finishing the last of them.
            with suppress(IndexError):
                if watch.settles_in() <= 0:
                    watch.frames[0]._finish_unasked()
        watch.sleeps = True
        if watch.frames:
            watch.wake()


def _collected(watch: _Watch, at_exit: Callable[[], None]) -> None:
    """Ends the thread after the frames in flight; called once the pipeline is collected."""
    atexit.unregister(at_exit)
    watch.tokens.put(False)


def _stop(watch: _Watch, thread: Thread) -> None:
    """Finishes the frames in flight before the interpreter ends, because the driver's library is unloaded then."""
    if driver_use.forked:
        return
    driver_use.end()
    for frame in tuple(watch.frames):
        frame._wait()
        frame._finish()
    # Frames that callbacks submitted meanwhile.
    for frame in tuple(watch.frames):
        frame._wait()
    watch.tokens.put(False)
    thread.join()
