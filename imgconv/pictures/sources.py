"""The pictures that a command line names: files, folders, patterns, videos, cameras, standard input."""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path

from PIL import Image

from imgconv.errors import InputError
from imgconv.pictures.host import open_upright, read_picture
from imgconv.pictures.video import frames, is_video

STANDARD_INPUT = "-"


@dataclass(frozen=True)
class NamedPicture:
    """A picture to read. name: its path, with #NUMBER for a frame of a video, from 0; read: raises InputError."""

    name: str
    read: Callable[[], Image.Image]


def expand_paths(paths: Sequence[str]) -> list[str]:
    """The paths of pictures and videos: a folder is the pictures and videos in it and below, sorted; so is a pattern.

    A pattern is a path with *, ? or [] that is no file; ** stands for any folders. Raises InputError for a folder or a
    pattern without any. Example: expanded(["photos/*.jpg", "-"]).
    """
    found: list[str] = []
    for path in paths:
        if Path(path).is_dir():
            inside = sorted(str(each) for each in Path(path).rglob("*") if _is_shown(each))
            if not inside:
                raise InputError(f"folder {path!r} contains no picture")
            found += inside
        elif glob.has_magic(path) and not os.path.exists(path):
            matching = sorted(each for each in glob.glob(path, recursive=True) if not os.path.isdir(each))
            if not matching:
                raise InputError(f"no file matches {path!r}")
            found += matching
        else:
            found.append(path)
    return found


def _is_shown(path: Path) -> bool:
    """Returns whether a file in a folder is a picture or a video, by its suffix."""
    known = path.suffix.lower() in Image.registered_extensions() or is_video(str(path))
    return known and path.is_file() and not path.name.startswith(".")


def pictures(paths: Sequence[str], every: int = 1) -> Iterator[NamedPicture]:
    """Yields every picture, and every frame of a video or camera. paths: as `expanded` gives them.

    every: 3 for frames 0, 3, 6 and so on of a video. Raises InputError.
    """
    for path in paths:
        if path == STANDARD_INPUT:
            yield NamedPicture(path, _from_standard_input)
        elif is_video(path):
            for number, read in frames(path):
                if number % every == 0:
                    yield NamedPicture(f"{path}#{number}", read)
        else:
            yield NamedPicture(path, partial(read_picture, path))


def _from_standard_input() -> Image.Image:
    return open_upright(STANDARD_INPUT, BytesIO(sys.stdin.buffer.read()))


def count_pictures(paths: Sequence[str]) -> int | None:
    """Returns the number of pictures; None if it is not known before a video ends."""
    return None if any(is_video(path) for path in paths) else len(paths)
