"""The command line: imgconv run | inspect | profile | bench | verify | check | tune | compile | devices | completion.

Exit status: 0 if all went well, 1 if the model, the input or the device is at fault, 2 for a wrong command line, 130
after Ctrl-C.
"""

from __future__ import annotations

import argparse
import difflib
import logging
import os
import re
import sys
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

from imgconv.commands import bench, check, compile, completion, devices, inspect, profile, run, tune, verify
from imgconv.errors import Error, one_line
from imgconv.version import VERSION

COMMANDS = (run, inspect, profile, bench, verify, check, tune, compile, devices, completion)
INTERRUPTED = 130


class HelpFormatter(argparse.HelpFormatter):
    """Fills each paragraph of a description; an indented line stays one of its own."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n\n".join("\n".join(_wrapped_lines(paragraph, width)) for paragraph in text.split("\n\n"))


def _wrapped_lines(paragraph: str, width: int) -> Iterator[str]:
    for part in re.split(r"\n(?= )", paragraph):
        first, rest = ("  ", "    ") if part.startswith(" ") else ("", "")
        yield textwrap.fill(" ".join(part.split()), width, initial_indent=first, subsequent_indent=rest)


class Parser(argparse.ArgumentParser):
    """A parser that suggests the command or value that was probably meant."""

    def error(self, message: str) -> NoReturn:
        """Prints where the options are listed, and the message, and ends the process."""
        wrong = re.search(r"invalid choice: '?([^' ]*)'? \(choose from (.*)\)", message)
        known = re.findall(r"[\w-]+", wrong[2]) if wrong else []
        meant = suggestion(wrong[1], known) if wrong else ""
        self.exit(2, f"usage: {self.prog} --help\n{self.prog}: error: {message}{meant}\n")


def suggestion(word: str, known: Iterable[str]) -> str:
    """The known word that looks most like this one, as the end of a message: "; did you mean --device?", or ""."""
    close = difflib.get_close_matches(word, list(known), 1)
    return f"; did you mean {close[0]}?" if close else ""


def build_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line; each module of imgconv.commands adds its own part."""
    parser = Parser(
        prog="imgconv", description="Run convolutional vision models on OpenCL devices, through RGBA textures."
    )
    parser.add_argument("--version", action="version", version=f"imgconv {VERSION}")
    parser.add_argument("--traceback", action="store_true", help="show the Python traceback of an error")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for module in COMMANDS:
        name = module.__name__.rpartition(".")[2]
        line = (module.__doc__ or "").splitlines()[0].partition(": ")[2]
        command = commands.add_parser(name, help=line, description=module.DESCRIPTION, formatter_class=HelpFormatter)
        module.add_arguments(command)
        command.set_defaults(execute=module.execute, parser=parser, command=command)
    return parser


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options of a command line. Pictures may stand anywhere after MODEL. A wrong command line ends the process.

    parse(["run", "model.onnx", "a.jpg"]).pictures      # ["a.jpg"]
    """
    parser = build_parser()
    options, rest = parser.parse_known_args(arguments)
    # argparse takes the pictures next to MODEL, and leaves those after a further option.
    for text in rest:
        if text.startswith("-") or not _add_picture(options, text):
            known = sorted(options.command._option_string_actions)
            options.command.error(f"unrecognized arguments: {text}{suggestion(text.partition('=')[0], known)}")
    return options


def _add_picture(options: argparse.Namespace, path: str) -> bool:
    """Adds a picture to the options of a command; returns whether the command took it."""
    if hasattr(options, "pictures"):
        options.pictures.append(path)
        return True
    if getattr(options, "picture", path) is None and getattr(options, "case", None) is None:
        options.picture = path
        return True
    return False


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line (default: the process's own) and returns its exit status. argparse exits by itself.

    main(["inspect", "model.onnx"])      # 0
    """
    options = parse(arguments)
    try:
        with log_to_stderr():
            options.execute(options)
        sys.stdout.flush()
        return 0
    except KeyboardInterrupt:
        return _print_failure("interrupted", INTERRUPTED)
    except BrokenPipeError:
        # The reader of a pipe has seen enough. Python flushes stdout once more at exit, which must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if options.traceback:
            raise
        return _print_failure(_message(error), 1)


class _LogPrinter(logging.Handler):
    """Prints each line of imgconv's log and each warning once, as "imgconv: ...", on stderr."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.say(record.getMessage())

    def say(self, text: str) -> None:
        # A warning may repeat a line of the log, and add what to do about it.
        if not any(text.startswith(said) for said in self._said):
            self._said.append(text)
            clear = "\r\x1b[2K" if sys.stderr.isatty() else ""  # a progress bar may stand on the line
            print(f"{clear}imgconv: {one_line(text)}", file=sys.stderr)


@contextmanager
def log_to_stderr() -> Iterator[None]:
    """A context in which log messages and warnings, such as how much FLOAT16 stores as fp16, are printed for people."""
    log, notes = logging.getLogger("imgconv"), _LogPrinter()
    level = log.level
    with warnings.catch_warnings():
        warnings.simplefilter("always", RuntimeWarning)
        warnings.showwarning = lambda message, *_, **__: notes.say(str(message))
        log.addHandler(notes)
        log.setLevel(logging.INFO)
        try:
            yield
        finally:
            log.removeHandler(notes)
            log.setLevel(level)


def _message(error: Exception) -> str:
    if isinstance(error, Error):
        return str(error)
    if isinstance(error, MemoryError):
        return f"not enough memory: {error}"
    what = one_line(f"{type(error).__name__}: {error}")
    return f"a fault in imgconv itself, {what} (imgconv --traceback shows where)"


def _print_failure(message: str, status: int) -> int:
    print(f"imgconv: {message}", file=sys.stderr)
    return status
