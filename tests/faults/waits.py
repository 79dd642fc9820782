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
        "cl/queue.py", "a thread waits in the driver itself",
        "        context.within(queue.finish)\n",
        "        queue.finish()\n",
        (f"{HANG} -k leaves_a_wait",),
    ),
    Fault(
        "cl/queue.py", "a run after Ctrl-C does not wait for the one before",
        "        with suppress(Exception):\n            call.result(math.inf)\n",
        "        pass\n",
        (f"{HANG} -k leaves_a_first",),
    ),
    Fault(
        "cl/device.py", "the arrays of a run that hangs are freed",
        "        keep(self.in_use)\n",
        "",
        (f"{HANG} -k arrays",),
    ),
    Fault(
        "cl/ending.py", "the end of a process waits in the driver for what hangs",
        "                _exit_without_handlers()\n",
        "                pass\n",
        (f"{HANG} -k ctrl_c_leaves_a_device",),
    ),
    Fault(
        "cl/device.py", "a device that was given up is opened again",
        "        _forget(self.info)\n        keep(self.copies)\n",
        "        keep(self.copies)\n",
        (f"{HANG} -k given_up",),
    ),
    Fault(
        "cl/device.py", "what belongs to a device that was given up is released",
        "            driver_use.keep_all(self.info.platform)\n",
        "            pass\n",
        (f"{HANG} -k kept",),
    ),
    Fault(
        "cl/ending.py", "mapped arrays of a device that was given up are released",
        " or issubclass(type(each), cl.MemoryMap)",
        "",
        (f"{HANG} -k kept",),
    ),
    Fault(
        "cl/ending.py", "what was made after a device was given up is released at the end",
        "        for platform in self._kept:\n",
        "        for platform in ():\n",
        (f"{HANG} -k kept",),
    ),
    Fault(
        "runtime/session.py", "a device that was given up gets memory for a further frame",
        "        self.context.check()  # drivers wait",
        "        # drivers wait",
        (f"{HANG} -k given_up",),
    ),
    Fault(
        "runtime/pipeline.py", "frames that nobody waits for have no bound",
        "if now - self._oldest_since > context.patience:",
        "if False:",
        (f"{HANG} -k nobody",),
    ),
    Fault(
        "runtime/launches.py", "a replay is compared on what the launches before it left",
        "            memory.overwrite(NEVER_COMPUTED)\n",
        "",
        ("device/test_recording.py -k wrong",),
    ),
    Fault(
        "cl/recording.py", "a replay of any length is believed",
        "return launches <= _trusted.get(info.key, 0)",
        "return info.key in _trusted",
        ("device/test_recording.py -k length",),
    ),
    Fault(
        "cl/build_processes.py", "a lost worker gets programs",
        "if who is None or who.works:",
        "if True:",
        WORKERS,
    ),
    Fault(
        "cl/device.py", "CPUs of one name have one key",
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
