"""Faults in waits for a device, in the processes that build programs and in what is kept for other processes."""

from __future__ import annotations

from .fault import Fault

HANG, WORKERS, EARLY = "device/test_hang.py", ("device/test_build_processes.py",), ("running/test_early_builds.py",)

FAULTS = (
    Fault(
        "cl/device.py", "the waits of a first run have no bound",
        "(self.always or not self.has_run.is_set())",
        "self.always",
        (f"{HANG} -k first",),
    ),
    Fault(
        "cl/device.py", "all waits are bounded",
        "(self.always or not self.has_run.is_set())",
        "True",
        (f"{HANG} -k first",),
    ),
    Fault(
        "running/session.py", "a new session counts as one that has run",
        "        context.has_run.clear()\n",
        "",
        (f"{HANG} -k first",),
    ),
    Fault(
        "running/session.py", "the steps of a whole run are no run",
        "        finish(self.context)\n        self.context.note_run()\n",
        "        finish(self.context)\n",
        (f"{HANG} -k first",),
    ),
    Fault(
        "running/frame_memory.py", "a frame that ends is no run",
        "        self.context.note_run()\n",
        "",
        (f"{HANG} -k first",),
    ),
    Fault(
        "cl/device.py", "a device that was given up is opened again",
        "        self.has_run.clear()\n        _forget(self.info)\n",
        "        self.has_run.clear()\n",
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
        "issubclass(type(each), cl.MemoryMap) or ",
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
        "running/session.py", "a device that was given up gets memory for a further frame",
        "        self.context.check()  # drivers wait",
        "        # drivers wait",
        (f"{HANG} -k given_up",),
    ),
    Fault(
        "running/pipeline.py", "frames that nobody waits for have no bound",
        "if now - self._oldest_since > context.patience:",
        "if False:",
        (f"{HANG} -k nobody",),
    ),
    Fault(
        "running/pipeline.py", "the end of a process waits for frames without a bound",
        "        frame._wait()\n        with suppress(Exception):\n",
        "        with suppress(Exception):\n",
        (f"{HANG} -k left",),
    ),
    Fault(
        "cl/build_processes.py", "a lost worker is not replaced",
        "            self._workers.remove(worker)\n",
        "",
        WORKERS,
    ),
    Fault(
        "cl/build_processes.py", "workers that are lost are replaced for ever",
        "            self._lost += 1\n",
        "",
        WORKERS,
    ),
    Fault(
        "cl/build_processes.py", "a lost worker gets programs",
        "if who is None or who.works:",
        "if True:",
        WORKERS,
    ),
    Fault(
        "running/early_builds.py", "a load leaves no note for the next one",
        '            PROGRAMS.write(key, b"")\n',
        "            pass\n",
        EARLY,
    ),
    Fault(
        "running/early_builds.py", "a load that failed leaves a note",
        '        yield\n        if not is_noted:\n            PROGRAMS.write(key, b"")\n',
        '        if not is_noted:\n            PROGRAMS.write(key, b"")\n        yield\n',
        EARLY,
    ),
    Fault(
        "running/early_builds.py", "a note is for all settings",
        'context.info.key, config.float16, config.native_explog',
        'context.info.key, config.native_explog',
        EARLY,
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
