"""A generator whose cases fail on purpose, to test the tool: a hang; a crash and a fault that its third step makes."""

from __future__ import annotations

import os
import signal
import time

from fuzz.case import Draw, Wrong, asking_oracle

CRASH, HANG, ORACLE, FAULT, LOOP = 3, 5, 6, 7, 8


def run(draw: Draw) -> str:
    steps: list[int] = []
    for number in range(4):
        draw.step(lambda random, number=number: steps.append(number))
    if draw.seed == CRASH and 2 in steps:
        os.kill(os.getpid(), signal.SIGKILL)
    if draw.seed == HANG:
        time.sleep(600)
    if draw.seed == ORACLE:
        with asking_oracle():
            os.kill(os.getpid(), signal.SIGKILL)
    if draw.seed == LOOP:
        os.kill(os.getpid(), signal.SIGXCPU)  # as the system does after too much processor time
    if draw.seed == FAULT and 2 in steps:
        raise Wrong("two")
    return "fine"
