"""The JSON file that describes a model's outputs, next to the ONNX file: a.task.json for a.onnx.

Compiled files contain its text. imgconv.tasks interprets it.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from imgconv.errors import InputError
from imgconv.files.disk import check_regular

SUFFIX = ".task.json"


def description_path(model: str | os.PathLike[str]) -> Path:
    """Returns the path of a model's description: a.task.json for a.onnx."""
    return Path(model).with_suffix(SUFFIX)


def find_description(model: str | os.PathLike[str]) -> str:
    """Returns the text of the description next to a model, with the labels in it; "" without one. Raises InputError."""
    if not Path(model).name or not description_path(model).is_file():
        return ""
    path = description_path(model)
    try:
        text = path.read_text(encoding="utf-8")
        content = json.loads(text)
        if isinstance(content, dict) and isinstance(content.get("labels"), str):
            content["labels"] = read_labels(path.parent / content["labels"])
            return json.dumps(content, ensure_ascii=False)
    except OSError as error:
        raise InputError(f"cannot read {str(path)!r}: {error.strerror or error}") from error
    except ValueError as error:
        raise InputError(f"{str(path)!r} is not a description of a task: {error}") from error
    except InputError as error:
        raise InputError(f"{str(path)!r}: {error}") from error
    return text


def read_labels(path: str | Path) -> tuple[str, ...]:
    """One name a line; if every line starts with its own number, as in "0,tench", the number is dropped.

    A line of a space is that space, as dictionaries of characters have it. Raises InputError naming the file.
    """
    try:
        check_regular(path)
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read labels {str(path)!r}: {getattr(error, 'strerror', None) or error}") from error
    while lines and not lines[-1]:
        lines.pop()
    if not any(map(str.strip, lines)):
        raise InputError(f"labels {str(path)!r} are empty: give one name per line")
    numbered = [re.fullmatch(rf"\s*{number}[\s,:;.]+(.*\S)\s*", line) for number, line in enumerate(lines)]
    return tuple(match[1] if match and all(numbered) else line.strip() or line for match, line in zip(numbered, lines))
