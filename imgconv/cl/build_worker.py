"""The process that build_processes.py starts: builds programs for a device, until its standard input ends."""

from __future__ import annotations

import json
import os
import sys

from imgconv.cl.build_processes import read_message, write_message
from imgconv.cl.device import DeviceInfo, open_device
from imgconv.cl.program import binary, compile_text
from imgconv.errors import Error


def main() -> None:
    """Reads the device, then programs, from standard input; writes the binary of each, empty if it has errors."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # drivers print
    questions = sys.stdin.buffer
    context = open_device(DeviceInfo(**json.loads(read_message(questions))))
    while question := read_message(questions):
        source, name, options = json.loads(question)
        try:
            content = binary(compile_text(context, source, name, options))
        except Error:
            content = b""
        write_message(answers, content)
