"""The file of --jsonl: one line per picture, written as soon as it is done. An interrupted run resumes from it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import IO, Any

from imgconv.errors import InputError
from imgconv.files.disk import check_regular


class Journal:
    """Lines of JSON, each with the "model" and the "picture".

        journal = Journal("results.jsonl", "squeezenet.onnx")
        journal.lines                       # [{"model": "squeezenet.onnx", "picture": "a.jpg", ...}], as it was opened
        journal.add('{"picture": "b.jpg"}')
    """

    def __init__(self, path: str, model: str) -> None:
        """Opens or creates the file, and removes an incomplete last line. Raises InputError."""
        self._path, self._model = path, model
        self._head = json.dumps({"model": model}, ensure_ascii=False)[:-1]
        self._file: IO[bytes]
        try:
            if Path(path).exists():
                check_regular(path)
            self._file = open(path, "ab+")
            self._file.seek(0)
            text = self._file.read()
            whole = text[: text.rfind(b"\n") + 1]
            self.lines = [self._parse_line(number, line) for number, line in enumerate(whole.splitlines(), 1)]
            self._remove_broken(text[len(whole) :], len(whole))
        except OSError as error:
            raise InputError(f"cannot write {path!r}: {error.strerror or error}") from error

    def _remove_broken(self, rest: bytes, start: int) -> None:
        """Removes what follows the last whole line, if it is the beginning of a line of this model."""
        usual = self._head.encode()
        if not (rest.startswith(usual) or usual.startswith(rest)):
            raise InputError(f"{self._path!r} does not end with a result of imgconv run: choose another file")
        self._file.truncate(start)

    def _parse_line(self, number: int, line: bytes) -> dict[str, Any]:
        try:
            content = json.loads(line)
            model, _ = content["model"], content["picture"]
        except (ValueError, KeyError, TypeError) as error:
            problem = f"line {number} of {self._path!r} is not a result of imgconv run"
            raise InputError(f"{problem}: choose another file") from error
        if model != self._model:
            raise InputError(f"{self._path!r} has results of {model!r}, not of {self._model!r}: choose another file")
        return dict(content)

    def add(self, result: str) -> None:
        """Writes a line. result: an object in JSON, on one line. Raises InputError."""
        try:
            self._file.write(f"{self._head}, {result[1:]}\n".encode())
            self._file.flush()
        except OSError as error:
            raise InputError(f"cannot write {os.fspath(self._path)!r}: {error.strerror or error}") from error

    def close(self) -> None:
        """Closes the file."""
        self._file.close()
