"""Pipeline: frames of one model under way together, so that upload, compute and download of successive ones overlap."""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from threading import Condition, Thread
from typing import Any

import numpy

from imgconv.cl.device import Context
from imgconv.cl.queue import Event, enqueue_barrier, enqueue_marker, span, wait
from imgconv.cl.transfer import enqueue_download, enqueue_upload, finish_queue, new_queue, pinned_array
from imgconv.errors import Error, InputError
from imgconv.exchange import Exchange
from imgconv.plan import Storage
from imgconv.runner import Lane, Session

Ticks = tuple[int, int]
# Bytes of a frame's inputs and outputs under which queues of their own cost more than they hide: a wait for another
# queue is tens of microseconds of a GPU's time, and so is the copy of this many bytes.
SMALL_FRAME = 1 << 18


class Frame(Future[dict[str, Any]]):
    """The outputs of one submitted frame, to come. It runs from the start on, so it cannot be cancelled.

    ticks: when its 'upload', 'compute' and 'download' started and ended, in nanoseconds of the device's clock, once it
    is done and where the context was opened with profile=True.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ticks: Mapping[str, Ticks] = {}
        self.set_running_or_notify_cancel()


class Pipeline:
    """A session's frames, each in memory of its own for inputs and outputs; textures and kernels are shared.

    Uploads, launches and downloads go through a queue each, those of small frames through one. On the device a frame
    takes plan.buffer_bytes, and as many bytes of the host's pinned memory.
    """

    def __init__(self, session: Session) -> None:
        """Raises DeviceError. Memory is taken when frames need it."""
        self._session = session
        context = session.context
        small = session.plan.buffer_bytes < SMALL_FRAME
        self._queues = (context.queue,) * 2 if small else (new_queue(context), new_queue(context))
        self._free: list[_Slot] = []
        self._slots = 0
        self._busy = 0
        self._changed = Condition()
        self._pending: SimpleQueue[_Work | None] = SimpleQueue()
        # The thread knows the frames under way only: a pipeline that nobody holds any more is collected.
        thread = Thread(target=_complete_all, args=(self._pending,), name="imgconv frames", daemon=True)
        at_exit = partial(_stop, self._pending, thread)
        atexit.register(at_exit)
        weakref.finalize(self, _collected, self._pending, at_exit).atexit = False
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
        exchange = Exchange.of(self._session.plan, context, inputs, {})
        if exchange.copies_in or exchange.instead:
            raise InputError("a submitted frame takes arrays; run() takes OpenCL buffers and images")
        slot, frame = self._acquire(depth), Frame()
        work = _Work(self, slot, frame, exchange)
        try:
            slot.fill(exchange.uploads)
            with context.lock:
                slot.start()
                self._pending.put(work)
        except BaseException as error:
            slot.give_up()
            self.release(slot)
            if not isinstance(error, Error):
                raise
            frame.set_exception(error)
        return frame

    def release(self, slot: _Slot) -> None:
        """Lets the next frame have the slot."""
        with self._changed:
            self._free.append(slot)
            self._busy -= 1
            self._changed.notify()

    def _acquire(self, depth: int) -> _Slot:
        with self._changed:
            while self._busy >= depth:
                self._changed.wait()
            if not self._free:
                self._free.append(_Slot(self._session, *self._queues))
                self._slots += 1
            self._busy += 1
            return self._free.pop()


class _Slot:
    """The memory of one frame, and what of it is enqueued."""

    def __init__(self, session: Session, uploading: Any, downloading: Any) -> None:
        plan = session.plan
        self.context: Context = session.context
        self.lane: Lane = session.new_lane()
        self.arrays: dict[Storage, Any] = {}
        for place in (*plan.input_buffers.values(), *plan.output_buffers.values()):
            self.arrays[place] = pinned_array(self.context, place.shape, place.dtype)
        self.inputs, self.outputs = [*plan.input_buffers.values()], [*plan.output_buffers.values()]
        self.uploading, self.downloading = uploading, downloading
        self.uploads: list[Event] = []
        self.computing: list[Event] = []
        self.downloads: list[Event] = []

    def fill(self, uploads: Mapping[Storage, Any]) -> None:
        """Copies the inputs to where the device takes them from."""
        for place, array in uploads.items():
            numpy.copyto(self.arrays[place], array.reshape(place.shape))

    def start(self) -> None:
        """Enqueues the frame on the three queues, behind the frames before."""
        context, memory = self.context, self.lane.memory
        self.uploads = [
            enqueue_upload(context, memory[place], self.arrays[place], self.uploading) for place in self.inputs
        ]
        self.uploading.flush()
        self.computing = [enqueue_barrier(context, self.uploads)]
        self.lane.enqueue()
        self.computing.append(enqueue_marker(context))
        context.queue.flush()
        self.downloads = [
            enqueue_download(context, self.arrays[place], memory[place], self.downloading, self.computing[1:])
            for place in self.outputs
        ]
        self.downloading.flush()

    def finish(self) -> None:
        """Waits for the frame. Raises DeviceError, ResourceError."""
        wait(self.context, [*self.computing, *self.downloads])

    def give_up(self) -> None:
        """Waits for whatever was enqueued, so that the memory is free again."""
        for queue in (self.uploading, self.context.queue, self.downloading):
            finish_queue(queue)

    def ticks(self) -> dict[str, Ticks]:
        """See Frame; of a queue that records no times, nothing."""
        if not self.context.profile:
            return {}
        # The barrier ends where the uploads are there, the marker where the launches are over.
        computed = span(self.computing[:1])[1], span(self.computing[1:])[1]
        parts = {"upload": self.uploads, "download": self.downloads}
        return {"compute": computed, **{name: span(events) for name, events in parts.items() if events}}


@dataclass(frozen=True, eq=False)
class _Work:
    """A frame under way."""

    pipeline: Pipeline
    slot: _Slot
    frame: Frame
    exchange: Exchange

    def complete(self) -> None:
        """Waits for the frame, and gives it its outputs."""
        try:
            self.slot.finish()
            for place, array in self.exchange.downloads.items():
                numpy.copyto(array, self.slot.arrays[place])
            outputs = self.exchange.results()
            self.frame.ticks = self.slot.ticks()
        except BaseException as error:
            self.slot.give_up()
            self.pipeline.release(self.slot)
            self.frame.set_exception(error)
        else:
            self.pipeline.release(self.slot)
            self.frame.set_result(outputs)


def _complete_all(pending: SimpleQueue[_Work | None]) -> None:
    while True:
        work = pending.get()
        if work is None:
            return
        work.complete()
        del work


def _collected(pending: SimpleQueue[_Work | None], at_exit: Any) -> None:
    """The thread ends with the frames that are under way."""
    atexit.unregister(at_exit)
    pending.put(None)


def _stop(pending: SimpleQueue[_Work | None], thread: Thread) -> None:
    """Before the interpreter ends, the frames that are under way do: the driver's library is unloaded after that."""
    pending.put(None)
    thread.join()
