"""Faults in waits for a device, in the processes that build programs and in what is kept for other processes."""

from __future__ import annotations

from .fault import Fault

HANG, WORKERS = "device/test_hang.py", ("device/test_build_processes.py",)

FAULTS = (
    Fault(
        "cl/watchdog.py", "a wait has no bound",
        "                if monotonic() >= end:\n",
        "                if False:\n",
        (f"{HANG} -k given_up",),
    ),
    Fault(
        "cl/context.py", "a thread waits in the driver itself",
        "                self.watchdog.call(self.queue.finish)\n",
        "                self.queue.finish()\n",
        (f"{HANG} -k leaves_a_wait",),
    ),
    Fault(
        "cl/context.py", "a run after Ctrl-C does not wait for the one before",
        "        with suppress(Exception):\n            call.result(math.inf)\n",
        "        pass\n",
        (f"{HANG} -k leaves_a_first",),
    ),
    Fault(
        "cl/watchdog.py", "the arrays of a run that hangs are freed",
        "        never_release(self.in_use)\n",
        "",
        (f"{HANG} -k arrays",),
    ),
    Fault(
        "cl/shutdown.py", "the end of a process waits in the driver for what hangs",
        "                _exit_without_handlers()\n",
        "                pass\n",
        (f"{HANG} -k ctrl_c_leaves_a_device",),
    ),
    Fault(
        "cl/context.py", "a device that was abandoned is opened again",
        "        forget_context(self.info)\n        never_release(self._copies)\n",
        "        never_release(self._copies)\n",
        (f"{HANG} -k given_up",),
    ),
    Fault(
        "cl/watchdog.py", "what belongs to a device that was abandoned is released",
        "            shutdown_guard.never_release_all(self._info.platform)\n",
        "            pass\n",
        (f"{HANG} -k kept",),
    ),
    Fault(
        "cl/shutdown.py", "mapped arrays of a device that was abandoned are released",
        " or issubclass(type(each), cl.MemoryMap)",
        "",
        (f"{HANG} -k kept",),
    ),
    Fault(
        "cl/shutdown.py", "what was made after a device was abandoned is released at the end",
        "        for platform in self._kept:\n",
        "        for platform in ():\n",
        (f"{HANG} -k kept",),
    ),
    Fault(
        "runtime/session.py", "a device that was abandoned gets memory for a further frame",
        "        self.context.check()  # drivers wait",
        "        # drivers wait",
        (f"{HANG} -k given_up",),
    ),
    Fault(
        "runtime/pipeline.py", "frames that nobody waits for have no bound",
        "if now - self._oldest_since > context.watchdog.timeout:",
        "if False:",
        (f"{HANG} -k nobody",),
    ),
    Fault(
        "cl/building/processes.py", "a lost worker gets programs",
        "if who is None or who.works:",
        "if True:",
        WORKERS,
    ),
    Fault(
        "cl/device_info.py", "CPUs of one name have one key",
        'f"{self.full_name} | {self.instruction_set}" if self.instruction_set else self.full_name',
        "self.full_name",
        ("test_instruction_set.py",),
    ),
    Fault(
        "cl/drivers.py", "processes that build compile for another CPU than this one",
        "for name, value in os.environ.items() if name not in CPU_VARIABLES} | cpu_variables()",
        "for name, value in os.environ.items()}",
        ("test_instruction_set.py",),
    ),
)
